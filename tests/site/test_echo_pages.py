"""A page that writes out a model and its training calls it by the name of the package's."""

import pytest
import torch
from mhsite.pages import runs

from mhattn.lessons import train_echo


@pytest.fixture
def double():
    before = torch.get_default_dtype()
    yield torch.set_default_dtype(torch.float64)
    torch.set_default_dtype(before)


@pytest.mark.slow
def test_model_3_of_head_importance_is_echo_3(double):
    """Before and after its training."""
    names = {}
    exec(runs.code("head-importance", "model_of"), names)
    trained, untrained = names["model_of"](2)
    echoes = train_echo(3)
    for model in (untrained, trained):
        _, echo = next(echoes)
        found = model.state_dict()
        for name, weight in echo.state_dict().items():
            torch.testing.assert_close(found[name], weight)

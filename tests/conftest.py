import os

import matplotlib
import pytest
import torch
from mhsite.stories import models
from mhsite.stories.source import ROOT, SourceError

# The processes that tests start import this clone, whichever is installed.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "scripts")])
torch.set_num_threads(1)  # one a worker: more wait for each other's cores, with scratch memory each


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def no_window():
    matplotlib.use("agg")


@pytest.fixture(autouse=True)
def no_figure_left():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture(scope="session")
def trained():
    """The files of the trained models by their titles; without network, tests are skipped."""
    try:
        return {model.title: models.fetch(model) for model in models.known()}
    except SourceError as error:
        give_up = pytest.fail if os.environ.get("CI") else pytest.skip
        give_up(error.message)

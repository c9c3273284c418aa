"""The layers that delta-rule.md draws are those of transformers' configurations."""

import pytest
from mhsite.stories.source import DOCS

TABLE = DOCS / "data" / "texts" / "hybrid-layers.tsv"
ROWS = [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines()][1:]


@pytest.mark.parametrize(("model", "configuration", "layers"), ROWS)
def test_layers_of_a_hybrid(model, configuration, layers):
    from transformers.models.bailing_hybrid import configuration_bailing_hybrid
    from transformers.models.qwen4_exp import configuration_qwen4_exp

    modules = {"Ling 3.0": configuration_bailing_hybrid, "Qwen4-Exp": configuration_qwen4_exp}
    kinds = getattr(modules[model], configuration)().layer_types
    assert layers.split() == kinds[:16], model

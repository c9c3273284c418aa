"""The layers that delta-rule.md draws and convolves by are those of transformers."""

import importlib

import pytest
import torch
import torch.nn.functional as F
from measuring.claims import of_story
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


@pytest.mark.parametrize(
    ("module", "layer", "sizes"),
    [
        ("qwen3_next", "Qwen3NextGatedDeltaNet", {"linear_key_head_dim": 5}),
        ("kimi_linear", "KimiLinearDeltaAttention", {"linear_head_dim": 5}),
    ],
)
def test_the_short_convolution_is_that_of_transformers(module, layer, sizes):
    """The layer's own, on all channels, with its activation, and what it calls in `forward`."""
    package = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    configuration = importlib.import_module(f"transformers.models.{module}.configuration_{module}")
    (config,) = [
        value(hidden_size=12, **sizes)
        for name, value in vars(configuration).items()
        if name.endswith("Config") and name != "PreTrainedConfig"
    ]
    theirs = getattr(package, layer)(config, layer_idx=0)
    size, width = theirs.conv_dim, theirs.conv1d.kernel_size
    story = of_story("delta-rule", "short")
    try:
        ours = story.Short(size).float()
    finally:
        torch.set_default_dtype(torch.float32)
    assert (ours.kernel_size, ours.groups, ours.bias) == (width, theirs.conv1d.groups, None)
    assert theirs.conv1d.bias is None
    with torch.no_grad():
        ours.weight.copy_(theirs.conv1d.weight)
        x = torch.randn(2, 11, size)
        weight = theirs.conv1d.weight.squeeze(1)
        right = package.causal_conv1d_fn(x.mT, weight, None, activation=theirs.activation).mT
        torch.testing.assert_close(F.silu(ours(x)), right)

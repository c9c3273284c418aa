"""PyTorch's attention, argument by argument: the tables have every argument there is."""

import inspect

import pytest
from mhsite.stories.source import DOCS, LANGUAGES
from torch import nn

FUNCTIONS = [
    nn.MultiheadAttention,
    nn.MultiheadAttention.forward,
    nn.TransformerEncoderLayer,
    nn.TransformerEncoder,
    nn.TransformerEncoder.forward,
]


def named(language):
    """What stands in code in the first column of a table."""
    text = (DOCS / language / "pytorch-attention.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {part for cell in cells for part in cell.split("`")[1::2]}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_every_argument_is_in_a_table(function, language):
    assert {*inspect.signature(function).parameters} - named(language) - {"self"} == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_argument_of_the_function_is_in_a_table(language):
    told = nn.functional.scaled_dot_product_attention.__doc__.partition(")")[0]
    arguments = {part.split("=")[0] for part in told.partition("(")[2].split(", ")}
    assert {"query", "scale", "enable_gqa"} <= arguments
    assert arguments - named(language) == set()

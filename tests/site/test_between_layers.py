"""The page on the stream between the layers, beside the classes of transformers."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from measuring.claims import of_story
from mhsite.stories.source import DOCS

# What replaces or weighs the sum, by the names of its classes.
CONNECTION = re.compile(
    r"^class (\w*(?:HyperConnection|GatedResidual|AttentionResidual|ResidualGate"
    r"|ResidualScaling|AltUp))\b",
    re.M,
)
NAMED = {"ZayaResidualScaling", "Gemma3nTextAltUp"}  # named on the page, and not rebuilt


@pytest.fixture
def story():
    """The page's functions; what the story sets in torch is set back."""
    kind = torch.get_default_dtype()
    yield of_story("between-layers", "classes")
    torch.set_default_dtype(kind)


@pytest.mark.parametrize("seed", [7, 31])
def test_equal_to_the_classes_with_other_numbers(story, seed):
    rows = story.classes(seed)
    assert len(rows) == len(story.homes)
    assert max(off for off, *_ in rows) < 1e-5


def test_comparison_sees_a_change(story):
    """Sources that aren't normed, and a query that isn't scaled."""
    made = story.part_of("inkling2", "Inkling2BlockAttentionResidual")
    layer = made(SimpleNamespace(hidden_size=13))
    torch.manual_seed(0)
    layer.query.data = torch.randn(13, dtype=torch.float32)
    streams = torch.randn(2, 7, 3, 13, dtype=torch.float32)
    theirs = layer(streams[..., :-1, :], streams[..., -1, :])[0]
    as_published = story.over_depth(streams.unbind(-2), layer.query, False, 13**-0.5)
    unscaled = story.over_depth(streams.unbind(-2), layer.query, True)
    assert min((theirs - other).abs().max() for other in (as_published, unscaled)) > 1e-3


def test_page_names_every_such_class_of_transformers(story):
    """A new one fails here: then the table needs its row, or the page a word on it."""
    import transformers

    folder = Path(transformers.__file__).parent / "models"
    sources = [path.read_text("utf-8") for path in folder.glob("*/modeling_*.py")]
    found = {name for source in sources for name in CONNECTION.findall(source)}
    assert found == {home[1] for home in story.homes.values()} | NAMED


def test_what_the_page_says_of_two_classes(story):
    mean = story.part_of("glm5_next", "Glm5NextTextHyperHead")()
    streams = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(mean(streams), streams.mean(dim=2))
    text = (DOCS / "en" / "between-layers.md").read_text("utf-8")
    assert "Gemma 3n" in text
    assert "ZAYA" in text

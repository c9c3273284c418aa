"""The angles of image-positions.md are those of transformers' classes."""

import importlib

import pytest
import torch
from mhsite.stories.translation import shown_section


class Config:
    head_dim, hidden_size, num_attention_heads, max_position_embeddings = 128, 256, 2, 64

    def __init__(self, kind, **options):
        self.rope_parameters = {"rope_type": kind, "rope_theta": 1e6, **options}


def library(name):
    """A model's module; loaded here, since loading takes three seconds of every collection."""
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


@pytest.fixture(scope="module")
def page():
    names = {"torch": torch}
    exec(shown_section("image-positions.pycon:turn").code, names)
    return names


def turned(page, x, places, sections, woven):
    return page["turn"](x.double(), page["angles"](places, sections, woven, base=1e6))


@pytest.mark.parametrize(
    ("kind", "sections", "woven"),
    [
        ("qwen2_vl Qwen2VLRotaryEmbedding", [16, 24, 24], False),
        ("qwen3_vl Qwen3VLTextRotaryEmbedding", [24, 20, 20], True),
    ],
)
def test_shared_out_pairs_are_those_of_the_library(page, kind, sections, woven):
    torch.manual_seed(0)
    places, x = torch.randint(50, (3, 13)), torch.randn(13, 128)
    model, name = kind.split()
    theirs = getattr(library(model), name)(Config("default", mrope_section=sections))
    cosine, sine = theirs(x, places[:, None])
    expected = x * cosine[0] + library("qwen2_vl").rotate_half(x) * sine[0]
    torch.testing.assert_close(
        turned(page, x, places, sections, woven).float(), expected, atol=2e-5, rtol=2e-5
    )
    other = turned(page, x, places, sections, not woven).float()
    assert (other - expected).abs().max() > 0.1


def test_pixtral_gives_rows_and_columns_alternate_frequencies(page):
    """All pairs alike, scores don't depend on the order of the pairs."""
    torch.manual_seed(0)
    places, x = torch.randint(50, (2, 13)), torch.ones(13, 128)
    pixtral = library("pixtral").PixtralVisionRotaryEmbedding(Config("axial"))
    cosine, sine = pixtral(x, places.T)
    theirs = x * cosine + library("qwen2_vl").rotate_half(x) * sine
    ours = turned(page, x, places, [32, 32], woven=True).float()
    torch.testing.assert_close(ours @ ours.T, theirs @ theirs.T, atol=1e-2, rtol=1e-4)
    runs = turned(page, x, places, [32, 32], woven=False).float()
    assert (runs @ runs.T - theirs @ theirs.T).abs().max() > 5


def test_places_of_text_and_images_are_those_of_the_library(page):
    names = {"torch": torch, "table": lambda *_, **__: ""}
    exec(shown_section("image-positions.pycon:sequence-rows").code, names)
    kind = library("qwen2_vl").Qwen2VLModel
    model = kind.__new__(kind)
    torch.nn.Module.__init__(model)
    model.config = type("C", (), {})()
    model.config.vision_config = type("V", (), {"spatial_merge_size": 1})()
    kinds = torch.tensor([[0, 0, *[1] * 15, 0, 0, 0]])
    grid = torch.tensor([[1, 5, 3]])
    found, delta = model.get_rope_index(torch.zeros_like(kinds), kinds, grid)
    ours = names["mixed"](2, (5, 3), 3)
    assert torch.equal(found[:, 0], ours)
    assert ours.max() + 1 == kinds.shape[1] + delta

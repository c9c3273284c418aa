"""Small models of transformers: what they are given, and what of their attention is examined."""

import pytest
import torch
import transformers
from torch import nn

from mhattn.testing import check_model, tiny_model
from mhattn.testing.shrunk import classes_of

E, H = 24, 3


@pytest.mark.parametrize(
    ("of", "given"),
    [
        ("clip", {"input_ids": (2, 11), "pixel_values": (2, 3, 32, 32)}),
        ("siglip_text_model", {"input_ids": (2, 11)}),
        ("whisper", {"input_features": (2, 80, 48), "decoder_input_ids": (2, 7)}),
        ("wav2vec2", {"input_values": (2, 3840)}),
        ("qwen2_5_vl_vision", {"hidden_states": (32, 1176), "grid_thw": (2, 3)}),
        ("chinese_clip_text_model", {"input_ids": (2, 11)}),
        ("videomae", {"pixel_values": (2, 16, 3, 32, 32)}),
    ],
)
def test_a_model_is_given_what_it_takes(of, given):
    model, inputs = tiny_model(of)
    assert {name: tuple(x.shape) for name, x in inputs.items()} == given
    with torch.no_grad():
        model(**inputs)


def test_parts_of_a_turned_head_fit_into_a_small_one():
    model, _ = tiny_model("qwen2_5_vl_text")
    settings = model.config
    dim = settings.hidden_size // settings.num_attention_heads
    assert sum(settings.rope_parameters["mrope_section"]) == dim // 2


def test_a_configuration_that_is_not_registered_has_the_class_beside_it():
    settings = transformers.CONFIG_MAPPING["siglip_text_model"]()
    assert next(kind.__name__ for kind in classes_of(settings, transformers)) == "SiglipTextModel"


class Windows(nn.Module):
    """Attention within windows of 16 tokens, with a table for each pair, and one slip or none."""

    def __init__(self, slip=""):
        super().__init__()
        self.slip = slip
        self.table = nn.Parameter(torch.randn(H, 16, 16))
        self.q, self.k, self.v, self.out = (nn.Linear(E, E) for _ in range(4))

    def forward(self, hidden_states):
        B, L, _ = hidden_states.shape
        q, k, v = (
            f(hidden_states).view(B, L, H, -1).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        scores = q @ k.mT * (E // H) ** -0.5 + self.table
        if self.slip == "a key":
            scores = scores.masked_fill(torch.arange(L) == 3, -torch.inf)
        mixed = scores.softmax(-1) @ v
        if self.slip == "batch":
            mixed = mixed + 0.1 * mixed.mean(0)
        if self.slip == "weights":
            mixed = 1.1 * mixed * scores.softmax(-1).amax(-1, keepdim=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Pictures(nn.Module):
    """Four windows of a picture, as rows of one batch; or its patches as a grid."""

    def __init__(self, attention, is_grid=False):
        super().__init__()
        torch.manual_seed(4)
        self.patches, self.attention, self.is_grid = nn.Conv2d(3, E, 4, 4), attention, is_grid

    def forward(self, pictures):
        x = self.patches(pictures).permute(0, 2, 3, 1)
        if self.is_grid:
            return self.attention(x)
        x = x.unflatten(2, (2, 4)).unflatten(1, (2, 4)).transpose(2, 3)
        return self.attention(x.flatten(0, 2).flatten(1, 2))


class Grid(Windows):
    """The same on (B, height, width, E)."""

    def forward(self, hidden_states):
        return super().forward(hidden_states.flatten(1, 2)).view(hidden_states.shape)


SIXTEEN = "its model calls it with 16 tokens, whatever the input"


@pytest.mark.parametrize(
    "model",
    [Pictures(Windows()), nn.Sequential(Pictures(Grid(), is_grid=True))],
    ids=["windows", "grid"],
)
def test_windows_of_one_length_are_examined_at_that_length(model):
    pictures = (
        torch.randn(2, 3, 32, 32) if isinstance(model, Pictures) else torch.randn(2, 3, 16, 16)
    )
    found = check_model(model, pictures)
    [report] = found.reports.values()
    assert report.findings == []
    assert {"past", "batch", "constant-values", "gradients", "dropout"} <= set(report.checked)
    assert report.skipped["lengths"] == SIXTEEN


@pytest.mark.parametrize(("slip", "check"), [("batch", "batch"), ("weights", "constant-values")])
def test_slips_are_found_in_windows(slip, check):
    [report] = check_model(Pictures(Windows(slip)), torch.randn(2, 3, 32, 32)).reports.values()
    assert check in {each.check for each in report.errors}, str(report)


@pytest.mark.parametrize("of", ["sam_vision_model", "xlnet", "qwen2_5_vl_vision"])
def test_layouts_of_tokens_are_read(of):
    model, inputs = tiny_model(of)
    found = check_model(model, **inputs)
    assert found.ok, str(found)
    assert found.reports
    assert not found.unexamined


class Local(nn.Module):
    """Causal attention that sees few keys itself: the nearest, or those with the largest scores."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(E, E) for _ in range(4))

    def forward(self, hidden_states):
        B, L, _ = hidden_states.shape
        maps = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (f(hidden_states).view(B, L, H, -1).transpose(1, 2) for f in maps)
        scores = q @ k.mT * (E // H) ** -0.5
        far = torch.arange(L)[:, None] - torch.arange(L)
        hidden = (far < 0) | (far >= 4) if self.way == "window" else far < 0
        if self.way == "a key":
            hidden = hidden | ((torch.arange(L) == 2) & (far > 0))
        scores = scores.masked_fill(hidden, -torch.inf)
        if self.way == "largest":
            least = scores.topk(min(L, 3), dim=-1).values[..., -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Text(nn.Module):
    def __init__(self, way):
        super().__init__()
        torch.manual_seed(5)
        self.embedding, self.attention = nn.Embedding(97, E), Local(way)

    def forward(self, ids):
        return self.attention(self.embedding(ids))


def text(way):
    ids = torch.randint(3, 97, (2, 11), generator=torch.Generator().manual_seed(1))
    [report] = check_model(Text(way), ids).reports.values()
    return report


def test_a_window_that_the_layer_makes_itself_is_measured():
    report = text("window")
    assert report.findings == []
    assert {"past", "future", "formula"} <= set(report.checked)


def test_keys_that_are_chosen_are_no_mistake():
    report = text("largest")
    assert report.ok, str(report)
    told = [each.got for each in report.findings if each.check == "past"]
    assert all("depends on the tokens" in each for each in told)


def test_a_key_that_nobody_sees_is_an_error():
    assert "past" in {each.check for each in text("a key").errors}

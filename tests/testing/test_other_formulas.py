"""What may be said of a layer: of each word a right layer that needs it, and one with a slip."""

import pytest
import torch
from plain import E, Layer, errors, report
from torch import nn

from mhattn.testing import check_attention


def hidden(scores, seen):
    return scores.masked_fill(~seen, -torch.inf).softmax(-1)


def earlier(length):
    return torch.ones(length, length, dtype=torch.bool).tril()


class Turned(Layer):
    """Causal, with the first four of eight features turned, and perhaps a norm of each head."""

    def turned(self, x):
        width = 8 if self.slip == "whole" else 4  # that the frequencies are spread over
        speeds = (-1 if self.slip == "back" else 1) * 10000.0 ** -(torch.arange(0, 4, 2) / width)
        turn = torch.polar(torch.tensor(1.0), torch.arange(x.shape[-2])[:, None] * speeds)
        pairs = torch.complex(*x[..., :4].float().chunk(2, -1)) * turn
        return torch.cat([pairs.real.to(x.dtype), pairs.imag.to(x.dtype), x[..., 4:]], -1)

    def placed(self, q, k):
        return self.turned(q), self.turned(k)

    def forward(self, x):
        q, k, v = self.three(x, x, x)
        scores = self.scores(*self.placed(q, k))
        return self.merged(hidden(scores, earlier(x.shape[1])) @ v)


PART = {"causal": True, "positions": "rotary", "rotary": ("halves", 10000.0, 4)}


def test_a_part_of_each_head_may_be_turned():
    found = report(Turned, **PART)
    assert found.findings == []
    assert "formula" in found.checked
    for how in (PART, PART | {"rotary": ("halves", 10000.0)}):
        [slip] = report(Turned, "whole", **how).errors
        assert "rotary of 4 features, with frequencies of the whole head" in slip.got
    assert errors(Turned, **PART | {"rotary": ("halves", 10000.0, 2)}) == ["formula"]


def test_a_turn_to_the_other_side_has_a_name():
    [slip] = report(Turned, "back", **PART).errors
    assert "rotary positions turned backwards" in slip.got


def test_a_part_that_was_not_said_is_measured():
    found = report(Turned, causal=True, positions="rotary")
    assert found.ok
    [note] = found.findings
    assert "rotary of the first 4 features" in note.got
    assert "say rotary=('halves', 10000, 4)" in note.got


@pytest.mark.parametrize(
    "rotary", [("halves",), ("halves", 1e4, 3), ("halves", 1e4, 2.0), ("no", 1)]
)
def test_what_rotary_may_not_be(rotary):
    with pytest.raises(ValueError, match="rotary must"):
        check_attention(Turned(), rotary=rotary)


class Normed(Turned):
    """Queries and keys of each head are normed, before they are turned or after."""

    def __init__(self, slip=""):
        super().__init__(slip)
        self.q_norm, self.k_norm = nn.LayerNorm(8), nn.RMSNorm(8)
        for norm in (self.q_norm, self.k_norm):
            nn.init.normal_(norm.weight)

    def placed(self, q, k):
        if self.slip == "late":
            return self.q_norm(self.turned(q)), self.k_norm(self.turned(k))
        return self.turned(self.q_norm(q)), self.turned(self.k_norm(k))

    def scores(self, q, k):
        return q @ k.mT * (3 if self.slip == "scale" else 8) ** -0.5


@pytest.mark.parametrize("slip", ["", "late"])
def test_the_formula_is_checked_behind_norms_of_heads(slip):
    found = report(Normed, slip, **PART)
    assert found.findings == []
    assert "formula" in found.checked


def test_a_wrong_scale_behind_norms_has_a_name():
    [slip] = report(Normed, "scale", **PART).errors
    assert "it is exactly that of: scale of the number of heads" in slip.got


class Wide(Layer):
    """Queries and keys are normed over all heads at once."""

    def __init__(self, slip=""):
        super().__init__(slip)
        self.q_norm, self.k_norm = nn.RMSNorm(E), nn.RMSNorm(E)

    def forward(self, x):
        given = self.q_norm(self.q_proj(x)), self.k_norm(self.k_proj(x)), self.v_proj(x)
        q, k, v = (y.unflatten(-1, (3, 8)).transpose(1, 2) for y in given)
        scores = q @ k.mT if self.slip else self.scores(q, k)
        return self.merged(scores.softmax(-1) @ v)


def test_the_formula_is_checked_behind_a_norm_over_all_heads():
    found = report(Wide)
    assert found.findings == []
    assert "formula" in found.checked
    assert "scale missing" in report(Wide, "unscaled").errors[0].got


class Behind(Layer):
    """A norm over all heads, in front of the output matrix."""

    def __init__(self, slip=""):
        super().__init__(slip)
        self.norm = nn.LayerNorm(E)

    def merged(self, mixed):
        flat = mixed.transpose(1, 2)
        flat = mixed.reshape(flat.shape) if self.slip else flat
        return self.o_proj(self.norm(flat.flatten(2)))


def test_heads_are_apart_before_a_norm_over_all_of_them():
    found = report(Behind)
    assert found.findings == []
    assert "heads-apart" in found.checked
    assert "heads-apart" in errors(Behind, "view")


class Sunk(Layer):
    """A learned score of each head that takes a share of its weights."""

    def __init__(self, slip=""):
        super().__init__(slip)
        self.sinks = nn.Parameter(torch.randn(3))

    def forward(self, x):
        q, k, v = self.three(x, x, x)
        scores = self.scores(q, k)
        sink = self.sinks[:, None, None].expand(*scores.shape[:-1], 1)
        if self.slip:
            shares = (scores - scores.amax(-1, keepdim=True)).exp()
            return self.merged(shares / (shares.sum(-1, keepdim=True) + sink.exp()) @ v)
        return self.merged(torch.cat([scores, sink], -1).softmax(-1)[..., :-1] @ v)


def test_the_formula_is_checked_with_a_sink_of_each_head():
    found = report(Sunk, sinks=True)
    assert found.ok
    assert "formula" in found.checked
    assert "sinks without the row's maximum" in report(Sunk, "maximum", sinks=True).errors[0].got


class Biased(Layer):
    """A slope for each head and step of distance."""

    def __init__(self, slopes):
        super().__init__()
        self.num_heads, self.embed_dim, self.slopes = len(slopes), 8 * len(slopes), slopes
        for name in "qkvo":
            setattr(self, f"{name}_proj", nn.Linear(self.embed_dim, self.embed_dim))

    def scores(self, q, k):
        i, j = (torch.arange(x.shape[-2]) for x in (q, k))
        slopes = torch.tensor(self.slopes, dtype=q.dtype)[:, None, None]
        return super().scores(q, k) - slopes * (i[:, None] - j).abs()


# By the paper for 4 heads, and by its code for 6: those of 4, then every other of those of 8.
FOUR = [1 / 4, 1 / 16, 1 / 64, 1 / 256]
SIX = [*FOUR, 1 / 2, 1 / 8]


@pytest.mark.parametrize("slopes", [FOUR, SIX])
def test_the_slopes_of_alibi_are_checked(slopes):
    found = report(Biased, slopes, positions="alibi")
    assert found.findings == []
    assert "formula" in found.checked


@pytest.mark.parametrize(
    ("slopes", "name"),
    [
        ([1, 1 / 4, 1 / 16, 1 / 64], "slopes from 1 on"),
        ([2 ** (-8 * h / 6) for h in range(1, 7)], "slopes in one geometric row"),
        ([-slope for slope in FOUR], "slopes added"),
        ([0.0] * 4, "positions are not used"),
    ],
)
def test_wrong_slopes_have_a_name(slopes, name):
    assert name in report(Biased, slopes, positions="alibi").errors[0].got


def test_slopes_that_were_not_said_have_a_name():
    assert 'say positions="alibi"' in report(Biased, SIX).errors[0].got


def after_a_prefix(i, j):
    return j <= i or j < 3


def in_chunks(i, j):
    return j <= i and i // 4 == j // 4


class Patterned(Layer):
    """Each query sees the keys of a pattern that are no padding."""

    def __init__(self, slip="", pattern=after_a_prefix):
        super().__init__(slip)
        self.pattern = pattern

    def forward(self, x, attn_mask=None, padding_mask=None):
        q, k, v = self.three(x, x, x)
        places = range(x.shape[1])
        seen = torch.tensor([[self.pattern(i, j) for j in places] for i in places])
        real = torch.ones(x.shape[:2], dtype=torch.bool) if padding_mask is None else ~padding_mask
        real = real[:, None, None]
        first = torch.arange(x.shape[1]) < 3
        may = (seen & real) | first if self.slip == "prefix" else seen & real
        may = may if attn_mask is None else may & attn_mask
        return self.merged(hidden(self.scores(q, k), may).nan_to_num() @ v)


@pytest.mark.parametrize("pattern", [after_a_prefix, in_chunks])
def test_a_pattern_that_was_said_is_no_mistake(pattern):
    torch.manual_seed(0)
    found = check_attention(Patterned(pattern=pattern), seen=pattern)
    assert found.ok
    assert {"formula", "past", "padding", "mask", "mask-batch"} <= set(found.checked)


def test_a_pattern_that_was_not_said_and_another_one_are_mistakes():
    assert "past" in errors(Patterned)
    torch.manual_seed(0)
    found = check_attention(Patterned(pattern=in_chunks), seen=after_a_prefix)
    assert "past" in [finding.check for finding in found.errors]
    full = check_attention(Patterned(pattern=lambda i, j: True), seen=in_chunks)
    assert any("seen(" in finding.expected for finding in full.errors)
    assert "every key is seen" in full.errors[0].got


@pytest.mark.parametrize("corner", ["lower right", "upper left"])
def test_a_pattern_counts_places_from_the_corner(corner):
    """Of fewer queries than keys: the last places of the text, or the first."""

    def attend(query, key, value):
        late = key.shape[-2] - query.shape[-2] if corner == "lower right" else 0
        far = torch.arange(query.shape[-2])[:, None] + late - torch.arange(key.shape[-2])
        return hidden(query @ key.mT / query.shape[-1] ** 0.5, far.abs() < 4) @ value

    def near(i, j):
        return abs(i - j) < 4

    assert check_attention(attend, seen=near, corner=corner).ok
    other = "upper left" if corner == "lower right" else "lower right"
    assert not check_attention(attend, seen=near, corner=other).ok


class Written(Patterned):
    """With a cache of all tokens that have come."""

    def forward(self, x, cache=None):
        text = x if cache is None else torch.cat([cache, x], 1)
        return super().forward(text)[:, -x.shape[1] :], text


def test_a_cache_is_checked_where_no_query_sees_later_keys():
    torch.manual_seed(0)
    for pattern, checked in (after_a_prefix, False), (in_chunks, True):
        found = check_attention(Written(pattern=pattern), seen=pattern)
        assert found.ok
        assert ("cache" in found.checked) == checked


def test_a_prefix_that_shows_padding_is_found():
    assert "padding" in errors(Patterned, "prefix", seen=after_a_prefix)


def test_what_seen_may_not_be():
    with pytest.raises(TypeError, match="seen must be a function of two places, got 'causal'"):
        check_attention(Patterned(), seen="causal")


class Latent(Layer):
    """Keys and values from a latent that is normed: matrices that no reading finds."""

    def __init__(self, slip=""):
        super().__init__(slip)
        del self.k_proj, self.v_proj
        self.head_dim = 12
        self.q_proj, self.o_proj = nn.Linear(E, 36), nn.Linear(24, E)
        self.down, self.norm, self.up = nn.Linear(E, 10), nn.RMSNorm(10), nn.Linear(10, 60)

    def forward(self, x):
        k, v = self.up(self.norm(self.down(x))).unflatten(-1, (3, 20)).split([12, 8], -1)
        q = self.q_proj(x).unflatten(-1, (3, 12)).transpose(1, 2)
        scale = {"width": 8**-0.5, "product": 12**0.5, "other": 0.4}.get(self.slip, 12**-0.5)
        if self.slip == "unit":  # another scale is right for vectors of length one
            q, k = (nn.functional.normalize(y, dim=-1) for y in (q, k))
            scale = 12**0.5
        scores = q @ k.transpose(1, 2).mT * scale
        return self.merged(scores.softmax(-1) @ v.transpose(1, 2))


@pytest.mark.parametrize("slip", ["", "unit"])
def test_a_latent_layer_is_right(slip):
    assert report(Latent, slip).findings == []


def test_the_scale_of_a_latent_layer_is_read_at_the_product():
    assert "scale of width / heads" in report(Latent, "width").errors[0].got
    assert "scale is a product, not a quotient" in report(Latent, "product").errors[0].got
    other = report(Latent, "other")
    assert other.ok
    assert "say scale=0.4" in other.findings[0].got
    assert errors(Latent, "other", scale=0.4) == []
    assert "formula" in errors(Latent, scale=0.4)

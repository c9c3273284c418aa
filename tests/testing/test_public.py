"""Kinds of layers and slips that were seen in public, rebuilt in our own words.

Of each kind a right layer, which must not be accused, beside one that is broken as it was there.
"""

import pytest
import torch
from plain import E, H, Layer, errors, report
from torch import nn

from mhattn.testing import check_attention


class Linear(Layer):
    """Causal linear attention with a running sum, and its cache."""

    def forward(self, x, cache=None):
        q, k, v = self.three(x, x, x)
        q, k = nn.functional.softplus(q), nn.functional.softplus(k)
        state = (k[..., None] * v[..., None, :]).cumsum(2)
        total = k.cumsum(1 if self.slip == "axis" else 2)
        if cache is not None:
            state = state + cache[0][:, :, None]
            total = total if self.slip == "state" else total + cache[1][:, :, None]
        kept = state[:, :, -1], total[:, :, -1]
        total = total.detach() if self.slip == "gradient" else total
        mixed = (q[..., None, :] @ state).squeeze(-2) / (q * total).sum(-1, keepdim=True)
        return self.merged(mixed), kept


@pytest.mark.parametrize(
    ("slip", "check"),
    [("axis", "constant-values"), ("gradient", "gradients"), ("state", "cache")],
)
def test_slips_of_linear_attention_are_found(slip, check):
    assert check in errors(Linear, slip, causal=True)


def test_another_formula_is_a_note_where_nothing_was_said_of_it():
    found = report(Linear, causal=True)
    assert found.ok
    [note] = [finding for finding in found.findings if finding.check == "formula"]
    assert "if another formula is meant, this is no mistake" in note.got
    said = report(Linear, causal=True, scale=0.5)
    assert [finding.check for finding in said.errors] == ["formula"], "who says a scale means it"
    alone = report(Linear, causal=True, only=["formula"])
    assert not alone.ok, "whether all else is right was not asked"


class ValuesFirst(Layer):
    """The order of arguments of a tutorial that was copied many times."""

    def forward(self, values, keys, query, mask=None):
        q, k, v = self.three(query, keys, values)
        scores = self.scores(q, k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -torch.inf)
        mixed = scores.softmax(-1) @ v
        if self.slip:
            return self.o_proj(mixed.reshape(*query.shape[:2], -1))
        return self.merged(mixed)


def test_arguments_get_what_their_names_say():
    assert errors(ValuesFirst) == []
    named = [finding.got for finding in report(ValuesFirst, "view").errors]
    assert "heads merged by view alone" in named[0]
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="inputs must be one of"):
        check_attention(ValuesFirst(), inputs="vvq")


class Kept(Layer):
    """Keys and values of a memory, computed once: right for one memory, wrong for the next."""

    def forward(self, x, memory):
        q, k, v = self.three(x, memory, memory)
        old = getattr(self, "kept", None)
        cached = self.slip == "graph" or (self.slip == "no_grad" and not torch.is_grad_enabled())
        if cached and old is not None and old[0].shape == k.shape:
            k, v = old
        elif cached:
            self.kept = k, v
        return self.merged(self.scores(q, k).softmax(-1) @ v)


@pytest.mark.parametrize("slip", ["graph", "no_grad"])
def test_what_is_kept_from_an_earlier_call_has_a_name(slip):
    found = report(Kept, slip)
    told = [finding.got for finding in found.errors if finding.check == "lengths"]
    assert told
    assert "it depends on an earlier call" in told[0]
    assert not [finding.got for finding in found.findings if "deepcopy" in finding.got]


def test_a_layer_that_keeps_nothing_is_right():
    assert errors(Kept) == []


def test_a_layer_that_keeps_a_graph_can_be_copied():
    """The caller has called it before."""
    torch.manual_seed(0)
    layer = Kept("graph")
    layer(torch.randn(2, 5, E), torch.randn(2, 7, E))
    kept = layer.kept[0]
    assert not check_attention(layer).ok
    assert layer.kept[0] is kept, "the caller's own stays as it is"


class Capped(Layer):
    """Soft-capped scores, or scores cut off, or another scale."""

    def scores(self, q, k):
        scores = super().scores(q, k)
        if self.slip == "scale":
            return 1.7 * scores
        return scores.clamp(-2, 2) if self.slip == "cut" else 2 * (scores / 2).tanh()


def test_a_cap_is_measured_and_can_be_said():
    found = report(Capped)
    assert found.ok
    assert any(
        "soft-capped scores, at 2; if that is meant, say cap=2" in f.got for f in found.findings
    )
    said = report(Capped, cap=2.0)
    assert said.findings == []
    assert "formula" in said.checked
    wrong = report(Capped, cap=3.0)
    assert [finding.check for finding in wrong.errors] == ["formula"]


def test_a_number_that_is_wrong_is_measured():
    [cut] = [f.got for f in report(Capped, "cut").errors if f.check == "formula"]
    assert "scores cut off at 2" in cut
    [scale] = [f.got for f in report(Capped, "scale").errors if f.check == "formula"]
    assert f"scale {1.7 / (E // H) ** 0.5:.4g}" in scale
    with pytest.raises(ValueError, match="cap must be a positive number, got -1"):
        check_attention(Capped(), cap=-1)


class Empty(Layer):
    """A row that sees nothing is NaN."""

    def forward(self, x, attn_mask=None):
        q, k, v = self.three(x, x, x)
        scores = self.scores(q, k)
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        return self.merged(scores.softmax(-1) @ v)


def test_an_empty_row_of_nan_is_a_mistake_only_where_numbers_were_promised():
    assert errors(Empty) == []
    assert "empty-rows" in [finding.check for finding in report(Empty).findings]
    assert errors(Empty, empty_rows="finite") == ["empty-rows"]


class Pooled(Layer):
    """Learned queries: as many outputs as there are queries, whatever the length."""

    def __init__(self, slip="", number=5):
        super().__init__(slip)
        self.queries = nn.Parameter(torch.randn(number, E))

    def forward(self, x, padding_mask=None):
        q, k, v = self.three(self.queries.expand(len(x), -1, -1), x, x)
        scores = self.scores(q, k)
        if padding_mask is not None:
            hidden = ~padding_mask if self.slip == "mask" else padding_mask
            scores = scores.masked_fill(hidden[:, None, None], -torch.inf)
        if self.slip == "last":
            scores[..., -1] = -torch.inf
        return self.merged(scores.softmax(-1) @ v)


@pytest.mark.parametrize("number", [1, 4, 5])
def test_learned_queries_are_seen_in_how_many_outputs_there_are(number):
    torch.manual_seed(0)
    found = check_attention(Pooled(number=number))
    assert found.ok
    assert f"outputs={number}" in found.assumed[0]
    assert {"padding", "past", "order", "batch", "gradients"} <= set(found.checked)
    with pytest.raises(ValueError, match="outputs is for layers of one sequence"):
        check_attention(Kept(), outputs=number)


@pytest.mark.parametrize(("slip", "check"), [("mask", "padding"), ("last", "past")])
def test_slips_beside_learned_queries_are_found(slip, check):
    assert check in errors(Pooled, slip)


class Summed(Layer):
    """One output for any text, and no query of its own."""

    def forward(self, x):
        return super().forward(x).sum(1, keepdim=True)


def test_a_layer_that_sums_its_outputs_has_no_learned_queries():
    assert {"shape", "lengths"} <= set(errors(Summed))


class Odd(Layer):
    """What comes back is no sequence."""

    def forward(self, x):
        y = super().forward(x)
        return y if y.shape[1] < 6 else y[:, :4]


def test_what_a_check_makes_of_an_answer_and_fails_at_is_no_mistake_of_the_layer():
    found = report(Odd)
    failed = [why for why in found.skipped.values() if "the check itself failed" in why]
    assert not [f for f in found.findings if "Error: " in f.got]
    assert failed


def test_what_follows_from_a_mistake_with_a_name_is_one_line_of_the_report():
    layer = torch.ao.nn.quantizable.MultiheadAttention(E, H, batch_first=True)
    found = check_attention(layer)
    text = str(found)
    assert text.count("error: ") == 1
    assert "it is\n           exactly that of: heads merged by view alone" in text
    told = text.split("also found, as a rule for the same reason: ")[1].split("\n\n")[0]
    others = [finding.check for finding in found.findings[1:]]
    assert told.replace("\n ", "").split(", ") == list(dict.fromkeys(others))
    assert len(set(others)) > 8

"""Kinds of mistakes that show only in long texts, alone, twice, in training, in half, or later.

Of each kind several layers that are broken, found by the check that is named, and right ones beside
them, of which nothing is said.
"""

import math

import pytest
import torch
from bases import Decoder, Layer as Base
from plain import Layer
from torch import nn
from torch.nn import functional as F

from mhattn.testing import check_attention

HOW = {"mask_heads": "B,H,L,S", "weights": "need_weights"}
BROKEN, RIGHT = [], []


class Plain(Layer):
    """The plain layer in small steps: who sees whom, weights, what is made of the output."""

    def seen(self, length):
        return torch.ones(length, length, dtype=torch.bool)

    def weigh(self, scores):
        return scores.softmax(-1)

    def after(self, x, output):
        return output

    def forward(self, x):
        q, k, v = self.three(x, x, x)
        scores = self.scores(q, k).masked_fill(~self.seen(x.shape[1]), -math.inf)
        return self.after(x, self.merged(self.weigh(scores) @ v))


def broken(check, base=Plain, part="", way=None, **how):
    """A class in which one part is another."""
    BROKEN.append(pytest.param(type("Broken", (base,), {part: way}), check, how))


def right(base=Plain, part="", way=None, **how):
    RIGHT.append(pytest.param(type("Right", (base,), {part: way} if part else {}), how))


def eye(length):
    return torch.eye(length, dtype=torch.bool)


# Long texts
def tens_alone(self, length):
    whole = length // 10 * 10 if length > 10 else length
    return (torch.arange(length) < whole)[None] | eye(length)


def nearest_fifty(self, length):
    return (torch.arange(length) >= length - 50).expand(length, -1)


def first_fifty_causal(self, length):
    return torch.ones(length, length).bool().tril() & (torch.arange(length) < 50) | eye(length)


def by_logarithm(self, q, k):
    return Layer.scores(self, q, k) * max(1.0, math.log(k.shape[2], 64))


def mean_beyond(self, scores):
    if scores.shape[-1] < 129:
        return scores.softmax(-1)
    return torch.ones_like(scores) / scores.shape[-1]


def round_table(self, positions, dtype):
    return Decoder.angles(self, positions % 64, dtype)


def number_of_keys(self, q, k):
    return q @ k.mT / k.shape[2] ** 0.5


broken("past", part="seen", way=tens_alone)
broken("past", part="seen", way=nearest_fifty)
broken("past", part="seen", way=first_fifty_causal, causal=True)
broken("formula", part="scores", way=by_logarithm)
broken("formula", part="weigh", way=mean_beyond)
broken("formula", Decoder, "angles", round_table, causal=True, positions="rotary", cache=False)
broken("formula", part="scores", way=number_of_keys)
right(part="seen", way=lambda self, length: torch.ones(41, 41).bool()[:length, :length])
right(part="seen", way=lambda self, length: torch.ones(length, length).bool().tril(), causal=True)


# One token
def alone_without_output(self, x, output):
    return self.v_proj(x) if x.shape[1] == 1 else output


def one_query_unscaled(self, query):
    return 1.0 if query.shape[2] == 1 else Base.scale(self, query)


broken("lengths", part="after", way=alone_without_output)
broken("lengths", part="after", way=lambda self, x, o: o * (2 if x.shape[1] == 1 else 1))
broken("formula", Base, "scale", one_query_unscaled, mask_heads="B,H,L,S")


# Two sequences
class Cross(Layer):
    """Queries of one sequence, keys of another, and a gate."""

    def __init__(self, slip=""):
        super().__init__()
        self.gate = nn.Linear(self.embed_dim, self.embed_dim)

    def cut(self, x, memory):
        return memory

    def forward(self, x, memory):
        memory = self.cut(x, memory)
        mixed = F.scaled_dot_product_attention(*self.three(x, memory, memory))
        return self.o_proj(mixed.transpose(1, 2).flatten(2) * self.gate(x).sigmoid())


broken("past", Cross, "cut", lambda self, x, m: m[:, : 2 * x.shape[1]])
broken("past", Cross, "cut", lambda self, x, m: m[:, :13])
right(Cross)


# Dropout
class Dropping(Plain):
    name, value = "attn_rate", 0.3

    def __init__(self, slip=""):
        super().__init__()
        setattr(self, self.name, self.value)

    @property
    def rate(self):
        return getattr(self, self.name)

    def weigh(self, scores):
        return F.dropout(scores.softmax(-1), self.rate, self.training)


class Keeping(Dropping):
    name, value = "keep", 0.8

    @property
    def rate(self):
        return 1 - self.keep


class Unused(Dropping):
    name, value = "dropout", 0.0


def scores_dropped(self, scores):
    return F.dropout(scores, self.rate, self.training).softmax(-1)


def not_made_up_for(self, scores):
    return Dropping.weigh(self, scores) * (1 - self.rate if self.training else 1)


def one_for_all(self, scores):
    one = F.dropout(torch.ones_like(scores[:, :1]), self.rate, self.training)
    return scores.softmax(-1) * one


for kind in (Dropping, Unused):
    broken("dropout", kind, "weigh", scores_dropped)
    broken("dropout", kind, "weigh", one_for_all)
broken("dropout", Keeping, "weigh", not_made_up_for)
for kind in (Dropping, Keeping, Unused):
    right(kind)


# Half precision
def filled(self, scores, seen):
    if seen is None:
        return scores
    return scores.masked_fill(~seen, -1e9).to(self.q_proj.weight.dtype)


def sixteen_times(self, q, k):
    return (16 * q) @ k.mT / 16 / q.shape[-1] ** 0.5


def length_in_half(self, x, output):
    size = output.norm(dim=-1, keepdim=True)
    return output / (output * 10).pow(2).sum(-1, keepdim=True).sqrt() * 10 * size


def tenth_more(self, q, k):
    return Layer.scores(self, q, k) * (1.1 if q.dtype == torch.bfloat16 else 1)


class Filled(Base):
    def weigh(self, scores):
        return scores.softmax(-1)

    def mix(self, weights, value):
        return weights.to(value.dtype) @ value


broken("empty-rows", Filled, "hide", filled, **HOW)
broken("half", part="scores", way=sixteen_times)
broken("half", part="after", way=length_in_half)
broken("half", part="scores", way=tenth_more)
broken("half", part="after", way=lambda s, x, o: o * (1.1 if x.dtype == torch.bfloat16 else 1))
broken(
    "formula",
    part="scores",
    way=lambda self, q, k: 1.02 * Layer.scores(self, q, k),
    dtype=torch.bfloat16,
)
right(dtype=torch.bfloat16)


# Queries that see nothing
class Added(Base):
    """Hides by adding the least number."""

    def seen(self, query, key, attn_mask, padding, is_causal):
        seen, _ = super().seen(query, key, None, None, is_causal)
        masks = [seen, attn_mask, None if padding is None else self.real(padding)]
        return None, self.sum([mask for mask in masks if mask is not None], query.dtype)

    def sum(self, masks, dtype):
        parts = [self.low(x, dtype) if x.dtype == torch.bool else x for x in masks]
        return sum(parts) if parts else None

    def low(self, mask, dtype):
        return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)

    def weigh(self, scores):
        return scores.softmax(-1)


def clamped(self, masks, dtype):
    found = Added.sum(self, masks, dtype)
    return None if found is None else found.clamp(min=torch.finfo(dtype).min)


def others_too(self, scores):
    weights = scores.softmax(-1)
    return weights.nan_to_num() * (0.9 if weights.isnan().any() else 1.0)


broken("empty-rows", Added, "low", Added.low, **HOW)
broken("empty-rows", Base, "weigh", others_too, **HOW)
right(Added, "sum", clamped, **HOW)
right(Base, "weigh", lambda self, scores: scores.softmax(-1), **HOW)


# What is returned
class Again(Base):
    """Computes its weights a second time, to return them."""

    def forward(self, query, key=None, value=None, *masks, need_weights=False, **more):
        output = super().forward(query, key, value, *masks, **more)
        if not need_weights:
            return output
        key = query if key is None else key
        q, k = self.split(self.q_proj(query)), self.split(self.k_proj(key))
        given = (more.get(name) for name in ("attn_mask", "key_padding_mask", "is_causal"))
        seen, bias = self.seen(query, key, *given)
        scores = q @ k.mT * self.factor()
        return output, self.weigh(self.hide(scores if bias is None else scores + bias, seen))

    def factor(self):
        return self.head_dim**-0.5


class Gated(Plain):
    """A gate in front of the output matrix: the formula isn't found."""

    def __init__(self, slip=""):
        super().__init__()
        self.gate = nn.Linear(self.embed_dim, self.embed_dim)

    def forward(self, x, need_weights=False):
        q, k, v = self.three(x, x, x)
        weights = self.scores(q, k).softmax(-1)
        mixed = (weights @ v).transpose(1, 2).flatten(2)
        output = self.o_proj(mixed * self.gate(x).sigmoid())
        return (output, self.told(weights)) if need_weights else output

    def told(self, weights):
        return weights


class Stored(Base):
    store = None

    def shown(self, weights, applied, scores):
        if self.store is None or self.store.shape != applied.shape:
            self.store = torch.empty_like(applied.detach())
        return self.store.copy_(applied.detach())


def kept_output(self, x, output):
    if torch.is_grad_enabled():
        return output
    kept = vars(self).setdefault("kept", {})
    return kept.setdefault((*output.shape, output.dtype), output.clone()).copy_(output)


NAMES = {"mask": "attn_mask", "padding": "key_padding_mask", "causal": "is_causal", "inputs": "qkv"}
broken("weights", Again, "factor", lambda self: self.embed_dim**-0.5, **HOW, **NAMES)
broken("weights", Gated, "told", lambda self, w: w.mT.softmax(-1), weights="need_weights")
broken("weights", Stored, "part", None, **HOW)
broken("inputs-kept", part="after", way=kept_output)
right(Again, **HOW, **NAMES)
right(Gated, weights="need_weights")
right(Gated, "told", lambda self, weights: weights.mean(1), weights="need_weights")


# Positions that are relative, and no argument for them
class Relative(Layer):
    def __init__(self, slip=""):
        super().__init__()
        self.rel = nn.Parameter(torch.randn(self.num_heads, 63))

    def places(self, length):
        return torch.arange(length)[:, None] - torch.arange(length)

    def forward(self, x, attn_mask=None):
        q, k, v = self.three(x, x, x)
        bias = self.rel[:, (self.places(x.shape[1])).clamp(-31, 31) + 31]
        scores = self.scores(q, k) + bias
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, torch.finfo(x.dtype).min)
        return self.merged(scores.softmax(-1) @ v)


TOLD = {"positions": "relative"}
broken("relative", Relative, "places", lambda self, n: torch.arange(n).expand(n, n), **TOLD)
broken("relative", Relative, "places", lambda self, n: torch.zeros(n, n).long(), **TOLD)
right(Relative, **TOLD)


# The beginning alone
class Steps(Gated):
    def scores(self, q, k):
        later = torch.ones(q.shape[2], k.shape[2]).bool().triu(1)
        return (super().scores(q, k) * self.by(k.shape[2])).masked_fill(later, -1e9)

    def by(self, length):
        return 1.0


broken("future", Steps, "by", lambda self, length: length**0.1, causal=True)
right(Steps, causal=True)


@pytest.mark.parametrize(("kind", "check", "how"), BROKEN)
def test_it_is_found(kind, check, how):
    torch.manual_seed(0)
    only = [check, "past"] if check == "future" else [check]
    report = check_attention(kind(), only=only, **how)
    assert check in [each.check for each in report.errors], str(report)


@pytest.mark.parametrize(("kind", "how"), RIGHT)
def test_nothing_is_said_of_what_is_right(kind, how):
    torch.manual_seed(0)
    report = check_attention(kind(), **how)
    assert report.ok, str(report)

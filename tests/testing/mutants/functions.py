"""Functions of queries, keys and values with one step of the formula broken."""

import math

import torch
from bases import Attend, Windowed

from mutants.registry import broken

GROUPED = {"num_heads": 6, "num_kv_heads": 2}


@broken("the scale is missing", "formula", says="scale missing")
class NoScale(Attend):
    def scale(self, query):
        return 1.0


@broken("scaled twice, queries and scores", "formula", says="scale twice")
class TwoScales(Attend):
    def scores(self, query, key):
        return super().scores(query, key) / math.sqrt(query.shape[-1])


@broken("multiplied by the root, not divided", "formula")
class TimesRoot(Attend):
    def scale(self, query):
        return query.shape[-1] ** 0.5


@broken("the scale of the whole width", "formula", says="scale of the whole width")
class ScaleOfModel(Attend):
    def scale(self, query):
        return (query.shape[1] * query.shape[-1]) ** -0.5


@broken("the scale of the length", "formula lengths")
class ScaleOfLength(Attend):
    def scores(self, query, key):
        return super().scores(query, key) * math.sqrt(query.shape[-1] / key.shape[-2])


@broken("softmax over the queries", "formula constant-values", says="softmax over queries")
class OverQueries(Attend):
    def softmax(self, scores):
        return scores.softmax(dim=-2)


@broken("softmax over the heads", "formula constant-values", says="softmax over heads")
class OverHeads(Attend):
    def softmax(self, scores):
        return scores.softmax(dim=1)


@broken("softmax over the batch", "formula constant-values batch")
class OverBatch(Attend):
    def softmax(self, scores):
        return scores.softmax(dim=0)


@broken("softmax over all pairs", "formula constant-values")
class OverPairs(Attend):
    def softmax(self, scores):
        return scores.flatten(-2).softmax(dim=-1).view_as(scores)


@broken("no softmax: divided by the sum", "formula constant-values")
class Divided(Attend):
    def softmax(self, scores):
        return scores / scores.abs().sum(dim=-1, keepdim=True).clamp(min=1e-9)


@broken("softmax twice", "formula")
class Twice(Attend):
    def softmax(self, scores):
        return scores.softmax(dim=-1).softmax(dim=-1)


@broken("a one in the denominator", "formula constant-values")
class PlusOne(Attend):
    def softmax(self, scores):
        most = scores.amax(dim=-1, keepdim=True).clamp(min=0)
        parts = (scores - most).exp()
        return parts / (parts.sum(dim=-1, keepdim=True) + (-most).exp())


@broken("grouped heads tiled, not repeated", "formula", says="groups in the wrong order", **GROUPED)
class Tiled(Attend):
    def spread(self, x, query):
        return x.repeat(1, query.shape[1] // x.shape[1], 1, 1)


@broken("only the values' groups tiled", "formula", **GROUPED)
class ValuesTiled(Attend):
    def spread_values(self, value, query):
        return value.repeat(1, query.shape[1] // value.shape[1], 1, 1)


@broken("all heads get the first group", "formula", **GROUPED)
class FirstGroup(Attend):
    def spread(self, x, query):
        return x[:, :1].expand(-1, query.shape[1], -1, -1)


@broken("keys used as values", "formula", says="keys used as values")
class KeysAsValues(Attend):
    def attend(self, query, key, value, seen=None, bias=None):
        return super().attend(query, key, key, seen, bias)


@broken("values used as keys", "formula")
class ValuesAsKeys(Attend):
    def attend(self, query, key, value, seen=None, bias=None):
        return super().attend(query, value, value, seen, bias)


@broken("queries and keys exchanged", "formula lengths", says="queries and keys exchanged")
class Exchanged(Attend):
    def scores(self, query, key):
        return (
            super().scores(query, key).mT
            if query.shape == key.shape
            else super().scores(query, key)
        )


@broken("keys reshaped, not transposed", "formula")
class Reshaped(Attend):
    def scores(self, query, key):
        turned = key.reshape(*key.shape[:-2], key.shape[-1], key.shape[-2])
        return super().scores(query, turned.mT)


@broken("heads attend to heads, as (B, L, H, D) into SDPA", "formula past lengths")
class HeadsToHeads(Attend):
    def attend(self, query, key, value, seen=None, bias=None):
        turned = (x.transpose(1, 2) for x in (query, key, value))
        mixed, weights = super().attend(*turned)
        return mixed.transpose(1, 2), weights


@broken("weights transposed before they mix", "formula constant-values lengths")
class MixedByColumns(Attend):
    def mix(self, weights, value):
        square = weights.shape[-1] == weights.shape[-2]
        return super().mix(weights.mT if square else weights, value)


@broken("the second head reads the first one's keys", "formula")
class SecondHead(Attend):
    def scores(self, query, key):
        key = torch.cat([key[:, :1], key[:, :1], key[:, 2:]], dim=1)
        return super().scores(query, key)


@broken("the last key is left out", "formula past")
class WithoutLast(Attend):
    def hide(self, scores, seen):
        scores = super().hide(scores, seen)
        if scores.shape[-1] < 3:
            return scores
        return torch.cat([scores[..., :-1], torch.full_like(scores[..., -1:], -torch.inf)], dim=-1)


@broken("values are normalised over the length", "formula")
class ValuesNormalised(Attend):
    def mix(self, weights, value):
        return super().mix(weights, value - value.mean(dim=-2, keepdim=True))


@broken("scores divided by their spread over the batch", "batch formula")
class SpreadOverBatch(Attend):
    def hide(self, scores, seen):
        return super().hide(scores / scores.std(), seen)


@broken("the window has one key more", "past future formula")
class WindowOneMore(Windowed):
    def near(self, L, S):
        return torch.ones(L, S, dtype=torch.bool).triu(S - L - self.window)


@broken("the window has one key less", "past future formula")
class WindowOneLess(Windowed):
    def near(self, L, S):
        return torch.ones(L, S, dtype=torch.bool).triu(S - L - self.window + 2)


@broken("the window looks ahead too", "future")
class WindowBothWays(Windowed):
    def seen(self, L, S, mask, is_causal):
        near = torch.ones(L, S, dtype=torch.bool)
        return near.triu(S - L - self.window + 1) & near.tril(S - L + self.window - 1)


@broken("the window is counted in blocks", "past future formula")
class WindowOfBlocks(Windowed):
    def near(self, L, S):
        places = torch.arange(S) // self.window
        return places[S - L :, None] - places <= 1


def blocks(scores, value, step):
    """Scores and values, cut along the keys."""
    return zip(scores.split(step, dim=-1), value.split(step, dim=-2), strict=True)


class Blockwise(Attend):
    """The softmax in blocks of four keys, with a running maximum."""

    step = 4

    def attend(self, query, key, value, seen=None, bias=None):
        key, value = self.spread(key, query), self.spread(value, query)
        scores = self.scores(query, key)
        scores = self.hide(scores if bias is None else scores + bias, seen)
        most = torch.full_like(scores[..., :1], -torch.inf)
        total, mixed = torch.zeros_like(most), 0.0
        for part, values in blocks(scores, value, self.step):
            new = torch.maximum(most, part.amax(dim=-1, keepdim=True))
            unit = self.unit(new)
            shares, old = (part - unit).exp(), (most - unit).exp()
            total = total * old + shares.sum(dim=-1, keepdim=True)
            mixed = mixed * self.kept(old) + shares.to(values.dtype) @ values
            most = new
        return mixed / torch.where(total == 0, 1, total).to(value.dtype), total

    def unit(self, most):
        return torch.where(most == -torch.inf, 0.0, most)

    def kept(self, old):
        return old


@broken("online softmax: the output isn't rescaled", "formula overflow")
class NotRescaled(Blockwise):
    def kept(self, old):
        return 1.0


@broken("online softmax: a hidden first block is NaN", "mask mask-size empty-rows mask-forms")
class HiddenBlock(Blockwise):
    def unit(self, most):
        return most


@broken("online softmax: the last block is short and left out", "formula lengths past")
class ShortBlock(Blockwise):
    def attend(self, query, key, value, seen=None, bias=None):
        whole = max(key.shape[-2] // self.step * self.step, min(key.shape[-2], self.step))
        cut = seen if seen is None else seen[..., :whole]
        bias = bias if bias is None else bias[..., :whole]
        return super().attend(query, key[..., :whole, :], value[..., :whole, :], cut, bias)

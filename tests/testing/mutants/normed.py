"""Layers for which the plain formula doesn't hold: normalised heads, sinks, capped scores."""

import torch
from bases import Attend, Layer
from torch import nn

from mutants.registry import broken


class Normed(Layer):
    """Queries and keys are normalised in each head, with a gain for each feature."""

    told = {"mask_heads": "B,H,L,S", "weights": "need_weights"}  # noqa: RUF012

    def __init__(self, embed_dim=24, num_heads=6, num_kv_heads=2):
        super().__init__(embed_dim, num_heads, num_kv_heads)
        self.q_norm, self.k_norm = (self.norm(self.head_dim) for _ in range(2))
        for norm in (self.q_norm, self.k_norm):
            nn.init.uniform_(norm.weight, 1.0, 2.0)

    def norm(self, width):
        return nn.RMSNorm(width, eps=1e-6)

    def project(self, query, key, value):
        q, k, v = super().project(query, key, value)
        return self.q_norm(q), self.k_norm(k), self.normed_value(v)

    def normed_value(self, v):
        return v


@broken("normed: grouped heads tiled", "formula heads-apart")
class Tiled(Normed):
    def spread(self, x, query):
        return x.repeat(1, query.shape[1] // x.shape[1], 1, 1)


@broken("normed: heads merged by view", "formula heads-apart future")
class MergedByView(Normed):
    def merge(self, heads):
        B, H, L, D = heads.shape
        return heads.reshape(B, L, H * D)


@broken("normed: heads split by view", "formula heads-apart future")
class SplitByView(Normed):
    def split(self, x):
        B, L, E = x.shape
        return x.reshape(B, E // self.head_dim, L, self.head_dim)


@broken("normed: over all tokens of a head", "future batch queries-apart")
class OverTokens(Normed):
    def project(self, query, key, value):
        q, k, v = super().project(query, key, value)
        return q, k / k.square().mean(dim=(2, 3), keepdim=True).sqrt(), v


@broken("normed: over the batch", "batch")
class OverBatch(Normed):
    def normed_value(self, v):
        return v / v.square().mean(dim=(0, 2, 3), keepdim=True).sqrt()


@broken("normed: the keys' norm is never used", "gradients formula")
class KeysNotNormed(Normed):
    def project(self, query, key, value):
        q, _, v = super().project(query, key, value)
        return q, self.split_keys(self.k_proj(key)), v


@broken("normed: the future leaks in the last head", "future")
class LeakInLastHead(Normed):
    def hide(self, scores, seen):
        hidden = super().hide(scores, seen)
        return torch.cat([hidden[:, :-1], scores[:, -1:]], dim=1)


class Sinks(Attend):
    """A score for nothing in each head, learned in other models; rows sum to less than one."""

    told = {"num_heads": 3, "mask_heads": "B,H,L,S", "sinks": True}  # noqa: RUF012

    def weigh(self, scores):
        return self.cut(self.softmax(self.joined(scores)))

    def joined(self, scores):
        nothing = torch.tensor([0.5, 0.0, -0.5]).view(1, 3, 1, 1).to(scores)
        return torch.cat([scores, nothing.expand(*scores.shape[:-1], 1)], dim=-1)

    def cut(self, weights):
        return weights[..., :-1]


@broken(
    "sinks: the first key is dropped, not the sink",
    "past order mask formula queries-apart mask-forms",
)
class FirstDropped(Sinks):
    def cut(self, weights):
        return weights[..., 1:]


@broken("sinks: along the queries", "lengths future shape")
class AlongQueries(Sinks):
    def softmax(self, scores):
        return scores.softmax(dim=-2)


@broken("sinks: the mask hides the keys after the sum", "future mask")
class MaskedAfterwards(Sinks):
    def hide(self, scores, seen):
        self.late = seen
        return scores

    def cut(self, weights):
        weights = super().cut(weights)
        return weights if self.late is None else weights * self.late


class Capped(Attend):
    """Scores are capped at 5, then hidden."""

    told = {"num_heads": 3, "mask_heads": "B,H,L,S"}  # noqa: RUF012

    def scores(self, query, key):
        return 5 * (super().scores(query, key) / 5).tanh()


CAPPED = {"only": ["future", "mask", "mask-size", "overflow", "gradients", "half"]}


@broken("capped: after the mask", "mask-size mask future", **CAPPED)
class CappedAfterwards(Capped):
    def hide(self, scores, seen):
        return 5 * (super().hide(scores, seen) / 5).tanh()


@broken("capped: the gradient goes past the cap", "gradients", **CAPPED)
class PastTheCap(Capped):
    def scores(self, query, key):
        plain = Attend.scores(self, query, key)
        return plain + (5 * (plain / 5).tanh() - plain).detach()

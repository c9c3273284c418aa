"""Layers whose dropout or returned weights are wrong, and fused ones."""

import torch
from bases import Fused, Layer
from torch import nn

from mutants.registry import broken

DROPOUT = {"dropout": 0.3}


@broken("dropout in evaluation", "dropout repeat", sizes=DROPOUT)
class DropsInEval(Layer):
    def drop(self, weights):
        return nn.functional.dropout(weights, self.dropout)


@broken("dropout that is never applied", "dropout", sizes=DROPOUT)
class NeverDrops(Layer):
    def drop(self, weights):
        return weights


@broken("dropout in evaluation only", "dropout repeat", sizes=DROPOUT)
class DropsTheWrongWay(Layer):
    def drop(self, weights):
        return nn.functional.dropout(weights, self.dropout, not self.training)


@broken("dropout of the scores", "dropout", sizes=DROPOUT)
class DropsScores(Layer):
    def hide(self, scores, seen):
        return super().hide(nn.functional.dropout(scores, self.dropout, self.training), seen)

    def drop(self, weights):
        return weights


@broken("dropout without making up for it", "dropout", sizes=DROPOUT)
class DropsUnscaled(Layer):
    def drop(self, weights):
        return weights * (torch.rand_like(weights) >= self.dropout) if self.training else weights


@broken("dropout made up for in evaluation too", "formula constant-values", sizes=DROPOUT)
class ScaledInEval(Layer):
    def drop(self, weights):
        return super().drop(weights) / (1 if self.training else 1 - self.dropout)


@broken("the share that is kept is taken for the one dropped", "dropout", sizes={"dropout": 0.1})
class KeepsTheRest(Layer):
    def drop(self, weights):
        return nn.functional.dropout(weights, 1 - self.dropout, self.training)


@broken("rows are summed to one again after dropout", "dropout", sizes=DROPOUT)
class SummedAgain(Layer):
    def drop(self, weights):
        weights = super().drop(weights)
        return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-9)


@broken("the weights that are returned are the scores", "weights")
class ReturnsScores(Layer):
    def shown(self, weights, applied, scores):
        return scores


@broken("the weights that are returned were made before the mask", "weights")
class BeforeMask(Layer):
    def scores(self, query, key):
        self.all = super().scores(query, key)
        return self.all

    def shown(self, weights, applied, scores):
        return self.all.softmax(dim=-1)


@broken("the heads of the returned weights are in another order", "weights")
class WeightsTurned(Layer):
    def shown(self, weights, applied, scores):
        return applied.roll(1, dims=1)


@broken("the first head's weights are returned for all", "weights")
class FirstWeights(Layer):
    def shown(self, weights, applied, scores):
        return applied[:, :1].expand_as(applied)


@broken("the mean of the heads is returned for each", "weights")
class MeanWeights(Layer):
    def shown(self, weights, applied, scores):
        return applied.mean(dim=1, keepdim=True).expand_as(applied)


@broken("the returned weights are transposed", "weights")
class WeightsTransposed(Layer):
    def shown(self, weights, applied, scores):
        return applied.mT


@broken("the weights of the call before are returned", "weights")
class WeightsOfBefore(Layer):
    last = None

    def shown(self, weights, applied, scores):
        before, self.last = self.last, applied.detach()
        return applied if before is None or before.shape != applied.shape else before


@broken("the returned weights have another temperature", "weights")
class WeightsOfOtherScale(Layer):
    def shown(self, weights, applied, scores):
        return (2 * scores).softmax(dim=-1)


@broken("asked for weights, it is not causal", "weights future")
class WeightsNotCausal(Layer):
    def forward(
        self, query, key=None, value=None, attn_mask=None, is_causal=False, need_weights=False
    ):
        causal = is_causal and not need_weights
        return super().forward(query, key, value, attn_mask, None, causal, need_weights)


@broken("asked for weights, it has no scale", "weights")
class WeightsUnscaled(Layer):
    asked = False

    def forward(
        self, query, key=None, value=None, attn_mask=None, is_causal=False, need_weights=False
    ):
        self.asked = need_weights
        return super().forward(query, key, value, attn_mask, None, is_causal, need_weights)

    def scale(self, query):
        return 1.0 if self.asked else super().scale(query)


@broken("fused: cut along the length", "formula future")
class CutAlongLength(Fused):
    def pieces(self, x, B, L):
        return x.view(B, 3, self.num_heads, L, self.head_dim).unbind(1)


@broken("fused: the queries' piece twice", "formula gradients")
class QueriesTwice(Fused):
    def pieces(self, x, B, L):
        q, _, v = super().pieces(x, B, L)
        return q, q, v


@broken("fused: the scale of the three widths", "formula")
class ScaleOfThree(Fused):
    def scale(self, query):
        return (3 * self.embed_dim) ** -0.5


@broken("fused: heads merged by view", "formula future", says="heads merged by view")
class FusedMerged(Fused):
    def merge(self, heads):
        B, H, L, D = heads.shape
        return heads.reshape(B, L, H * D)


@broken("fused: a leak in evaluation", "future")
class FusedLeak(Fused):
    def seen(self, query, key, attn_mask, padding, is_causal):
        return super().seen(query, key, attn_mask, padding, is_causal and self.training)

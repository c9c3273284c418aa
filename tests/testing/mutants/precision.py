"""Overflow, half precision, gradients, memory, results that are kept."""

import torch
from bases import Attend, Layer

from mutants.registry import broken


@broken("exponentials without the maximum", "overflow half")
class NoMaximum(Attend):
    def softmax(self, scores):
        parts = scores.exp()
        return parts / parts.sum(dim=-1, keepdim=True)


@broken("the maximum of the whole table", "overflow")
class TableMaximum(Attend):
    def softmax(self, scores):
        finite = torch.where(scores == -torch.inf, torch.finfo(scores.dtype).min, scores)
        parts = (scores - finite.amax()).exp()
        return parts / parts.sum(dim=-1, keepdim=True)


@broken("the maximum of each column", "formula overflow")
class ColumnMaximum(Attend):
    def softmax(self, scores):
        most = scores.amax(dim=-2, keepdim=True)
        parts = (scores - torch.where(most == -torch.inf, 0, most)).exp()
        return parts / parts.sum(dim=-1, keepdim=True)


@broken("half precision: products before the scale", "half overflow")
class HalfProducts(Attend):
    def scores(self, query, key):
        return (query @ key.mT) * self.scale(query)


@broken("half precision: the sum of exponentials in half", "half overflow")
class HalfSums(Attend):
    def softmax(self, scores):
        parts = (scores - 0.0).half().exp() if scores.dtype == torch.float32 else scores.exp()
        return (parts / parts.sum(dim=-1, keepdim=True)).to(scores.dtype)


@broken("half precision: hidden scores by a product with infinity", "half mask future empty-rows")
class TimesInfinity(Attend):
    def hide(self, scores, seen):
        return scores if seen is None else scores + (~seen).to(scores.dtype) * -torch.inf


@broken("the output is float32 whatever came in", "half double shape")
class AlwaysSingle(Attend):
    def mix(self, weights, value):
        return super().mix(weights.float(), value.float())


@broken("scores are rounded to bfloat16", "double formula half")
class Rounded(Attend):
    def scores(self, query, key):
        found = super().scores(query, key)
        return found.bfloat16().to(found.dtype)


@broken("the queries are scaled in place", "inputs-kept gradients repeat")
class ScaledInPlace(Attend):
    def scores(self, query, key):
        with torch.no_grad():
            query *= self.scale(query)
        return query @ key.mT


@broken("the mask is changed in place", "inputs-kept")
class MaskInPlace(Attend):
    def both(self, *masks):
        given = [mask for mask in masks if mask is not None]
        for other in given[1:]:
            given[0].logical_and_(other)
        return given[0] if given else None


@broken("an additive mask is changed in place", "inputs-kept")
class BiasInPlace(Attend):
    def __call__(self, query, key, value, attn_mask=None, is_causal=False):
        if attn_mask is not None and attn_mask.dtype != torch.bool and is_causal:
            L, S = query.shape[-2], key.shape[-2]
            attn_mask.masked_fill_(~self.causal(L, S), -torch.inf)
        return super().__call__(query, key, value, attn_mask, is_causal)


@broken("values are centred in place", "inputs-kept gradients")
class ValuesInPlace(Attend):
    def spread_values(self, value, query):
        value.data.sub_(value.data.mean(dim=-2, keepdim=True))
        return super().spread_values(value, query)


@broken("the inputs must be contiguous", "strides")
class NeedsContiguous(Attend):
    def scores(self, query, key):
        return super().scores(query.view(-1).view_as(query), key)


@broken("the memory is read as if it were contiguous", "strides")
class ReadsMemory(Attend):
    def scores(self, query, key):
        steps = torch.empty(query.shape, device="meta").stride()
        return super().scores(torch.as_strided(query, query.shape, steps), key)


@broken("the weights give no gradient", "gradients")
class NoGradient(Attend):
    def drop(self, weights):
        return weights.detach()


@broken("the keys give no gradient", "gradients")
class KeysDetached(Attend):
    def scores(self, query, key):
        return super().scores(query, key.detach())


@broken("the values go through .data", "gradients")
class ValuesData(Attend):
    def mix(self, weights, value):
        return super().mix(weights, value.data)


class Slopes(torch.autograd.Function):
    """Softmax, with a backward pass by hand."""

    @staticmethod
    def forward(ctx, scores):
        weights = scores.softmax(dim=-1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, grad):
        (weights,) = ctx.saved_tensors
        return weights * (1 - weights) * grad


@broken("a backward pass by hand has the slope of the sigmoid", "gradients")
class Sigmoid(Attend):
    def softmax(self, scores):
        return Slopes.apply(scores)


class Unscaled(torch.autograd.Function):
    """Products of queries and keys, the backward pass without the scale."""

    @staticmethod
    def forward(ctx, query, key, scale):
        ctx.save_for_backward(query, key)
        return scale * query @ key.mT

    @staticmethod
    def backward(ctx, grad):
        query, key = ctx.saved_tensors
        return grad @ key, grad.mT @ query, None


@broken("a backward pass by hand has no scale", "gradients")
class BackwardUnscaled(Attend):
    def scores(self, query, key):
        return Unscaled.apply(query, key, self.scale(query))


@broken("gradients of long rows are cut off", "gradients")
class Clipped(Attend):
    def drop(self, weights):
        if weights.requires_grad:
            weights.register_hook(lambda grad: grad.clamp(-0.05, 0.05))
        return weights


@broken("the result of the first call of a size is kept", "repeat batch")
class Kept(Attend):
    def __init__(self):
        self.kept = {}

    def __call__(self, query, key, value, attn_mask=None, is_causal=False):
        size = query.shape, key.shape
        if size not in self.kept:
            self.kept[size] = super().__call__(query, key, value, attn_mask, is_causal)
        return self.kept[size]


@broken("a running maximum is kept between calls", "repeat formula batch")
class RunningScale(Layer):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.register_buffer("most", torch.ones(()))

    def scores(self, query, key):
        self.most = torch.maximum(self.most, query.detach().abs().amax().to(self.most))
        return super().scores(query, key) / self.most.to(query.dtype)


@broken("chance in evaluation: noise is added to the scores", "repeat dropout")
class Noisy(Attend):
    def scores(self, query, key):
        found = super().scores(query, key)
        return found + 0.01 * torch.randn_like(found)


@broken("random features whose draw depends on the call", "repeat dropout formula")
class Subsampled(Attend):
    def hide(self, scores, seen):
        kept = torch.rand(scores.shape[-1]) < 0.8
        return super().hide(scores, seen).masked_fill(~kept, -30.0)


@broken("a batch of one loses an axis", "batch shape lengths")
class Squeezed(Attend):
    def mix(self, weights, value):
        return super().mix(weights, value).squeeze(0)


@broken("one query loses an axis", "lengths shape")
class OneQuery(Attend):
    def mix(self, weights, value):
        return super().mix(weights, value).squeeze(2)


@broken("only as many keys as queries", "lengths")
class SameLength(Attend):
    def scores(self, query, key):
        B, H, L, D = query.shape
        return super().scores(query, key.reshape(B, H, L, D))


@broken("more than sixteen tokens are cut off", "lengths past formula")
class SixteenKeys(Attend):
    def attend(self, query, key, value, seen=None, bias=None):
        S = min(key.shape[-2], 16)
        seen = seen if seen is None else seen[..., :S]
        bias = bias if bias is None else bias[..., :S]
        return super().attend(query, key[..., :S, :], value[..., :S, :], seen, bias)

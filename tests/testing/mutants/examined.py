"""Mistakes that another examiner would try: of heads beside norms, biases, modes, crops, sizes."""

import torch
import torch.nn.functional as F
from bases import AddingLayer, Attend, Cache, Decoder, Fused, Layer, Windowed

from mutants.normed import Normed
from mutants.registry import broken

GROUPED = {"num_heads": 6, "num_kv_heads": 2}


@broken("the scale of the number of heads", "formula", says="scale of the number of heads")
class ScaleOfHeads(Attend):
    def scale(self, query):
        return query.shape[1] ** -0.5


@broken("groups are one place late", "formula", **GROUPED)
class GroupsLate(Attend):
    def spread(self, x, query):
        return super().spread(x, query).roll(1, dims=1)


@broken("layer: groups from the last to the first", "heads-apart", sizes=GROUPED)
class GroupsReversed(Layer):
    def spread(self, x, query):
        return super().spread(x.flip(1), query)


@broken("normed: only the keys' groups tiled", "heads-apart", says="tiled")
class KeysTiled(Normed):
    def spread_keys(self, key, query):
        return key.repeat(1, query.shape[1] // key.shape[1], 1, 1)


@broken("normed: only the values' groups tiled", "heads-apart", says="tiled")
class ValuesTiled(Normed):
    def spread_values(self, value, query):
        return value.repeat(1, query.shape[1] // value.shape[1], 1, 1)


@broken("normed: all heads read the first group", "heads-apart gradients")
class FirstGroup(Normed):
    def spread_values(self, value, query):
        return value[:, :1].expand(-1, query.shape[1], -1, -1)


@broken("normed: two heads exchanged when merged", "heads-apart")
class Exchanged(Normed):
    def merge(self, heads):
        return super().merge(heads[:, [1, 0, *range(2, heads.shape[1])]])


@broken("normed: queries cut as (D, H)", "heads-apart")
class FeaturesFirst(Normed):
    def split_queries(self, x):
        return x.unflatten(-1, (self.head_dim, -1)).permute(0, 3, 1, 2)


@broken("fused: the values' heads in the wrong order", "heads-apart formula")
class FusedValues(Fused):
    def pieces(self, x, B, L):
        q, k, v = super().pieces(x, B, L)
        return q, k, v.flip(1)


@broken("a mask of floats is added twice", "mask-forms formula")
class AddedTwice(Attend):
    def read(self, mask):
        seen, bias = super().read(mask)
        return seen, None if bias is None else 2 * bias


@broken("a mask of floats is scaled with the scores", "mask-forms formula")
class BiasScaled(Attend):
    def read(self, mask):
        seen, bias = super().read(mask)
        return seen, None if bias is None else bias * 8**-0.5


@broken("of a mask of floats only the sign of hiding is read", "mask-forms formula")
class FloatsAsBooleans(Attend):
    def read(self, mask):
        return (mask, None) if mask is None or mask.dtype == torch.bool else (mask >= 0, None)


@broken("layer: a key is seen if the mask or the padding shows it", "padding mask")
class MaskOrPadding(Layer):
    def both(self, *masks):
        found = [mask for mask in masks if mask is not None]
        return None if not found else torch.stack(torch.broadcast_tensors(*found)).any(0)


@broken("padding is taken for a mask of pairs if the batch is as long", "padding batch")
class PaddingAsPairs(Layer):
    def real(self, padding):
        B, S = padding.shape
        return ~padding[None, None] if B == S else super().real(padding)


@broken("padding hides by its share, not by its place", "padding")
class PaddingByShare(Layer):
    def real(self, padding):
        number = (~padding).sum(-1, keepdim=True)
        return (torch.arange(padding.shape[-1]) < number)[:, None, None]


@broken("the temperature is another one in training", "dropout")
class OtherInTraining(Layer):
    def scale(self, query):
        return super().scale(query) * (0.5 if self.training else 1.0)


@broken("the first head rests in training", "dropout gradients")
class RestsInTraining(Layer):
    def merge(self, heads):
        rest = torch.ones(heads.shape[1]).index_fill(0, torch.tensor(0), 0.0)
        return super().merge(heads * rest.view(1, -1, 1, 1) if self.training else heads)


@broken("keys are dropped before the product", "dropout", sizes={"dropout": 0.3})
class KeysDropped(Layer):
    def split_keys(self, x):
        return F.dropout(super().split_keys(x), self.dropout, self.training)

    def drop(self, weights):
        return weights


@broken("weights are dropped and not divided by what is left", "dropout", sizes={"dropout": 0.3})
class NotDivided(Layer):
    def drop(self, weights):
        return super().drop(weights) * (1 - self.dropout if self.training else 1)


@broken("weights that are left are summed to one again", "dropout", sizes={"dropout": 0.3})
class SummedAgain(Layer):
    def drop(self, weights):
        left = super().drop(weights)
        return left / left.sum(-1, keepdim=True).clamp(min=1e-9)


@broken("scores are cut off at 12", "formula overflow gradients")
class CutOff(Layer):
    def scores(self, query, key):
        return super().scores(query, key).clamp(-12, 12)


@broken("weights below a thousandth are left out", "formula")
class SmallLeftOut(Layer):
    def softmax(self, scores):
        weights = super().softmax(scores)
        return weights.masked_fill(weights < 1e-3, 0)


@broken("the softmax is computed in half precision", "formula double")
class HalfSoftmax(Layer):
    def softmax(self, scores):
        return scores.half().softmax(dim=-1).to(scores.dtype)


class ValuesStay(Cache):
    def crop(self, length):
        self.key, self.seen = self.key[:, :, :length], length
        self.value = torch.cat([self.value[:, :, -1:], self.value[:, :, : length - 1]], dim=2)


@broken("a crop moves the values by one", "cache-crop", new_cache=ValuesStay)
class CropMoves(Decoder):
    pass


class CountsOn(Cache):
    def crop(self, length):
        self.key, self.value = self.key[:, :, :length], self.value[:, :, :length]


@broken("after a crop positions go on", "cache-crop", new_cache=CountsOn, position_ids=False)
class CropCountsOn(Decoder):
    pass


class OnceCropped(Cache):
    crops = 0

    def crop(self, length):
        self.crops += 1
        if self.crops == 1:
            super().crop(length)


@broken("the second crop is forgotten", "cache-crop", new_cache=OnceCropped)
class SecondCrop(Decoder):
    pass


@broken("the cached keys are turned again in each call", "cache")
class TurnedAgain(Decoder):
    def remember(self, cache, k, v):
        if cache.key is not None:
            steps = torch.full((cache.key.shape[2],), k.shape[2])
            cache.key = self.rotate(cache.key, self.angles(steps, k.dtype))
        return super().remember(cache, k, v)


@broken("the cached keys are scaled in place", "cache")
class ScaledInPlace(Decoder):
    def remember(self, cache, k, v):
        if cache.key is not None:
            cache.key.mul_(0.9)
        return super().remember(cache, k, v)


@broken("values of the cache are those of the first call", "cache cache-chunks")
class OldValues(Decoder):
    def remember(self, cache, k, v):
        key, value = super().remember(cache, k, v)
        return key, torch.where(torch.arange(value.shape[2])[:, None] < 4, value, value[:, :, :1])


@broken("positions are halved, as for a text twice as long", "formula")
class Halved(Decoder):
    def angles(self, positions, dtype):
        return super().angles(positions, dtype) / 2


@broken("the window turns round", "future past")
class TurnsRound(Windowed):
    def seen(self, L, S, mask, is_causal):
        found = super().seen(L, S, mask, is_causal)
        return found | (torch.arange(S) - torch.arange(S - L, S)[:, None] > S - 2)


@broken("a block sees the block before it alone", "past")
class BlockBefore(Attend):
    told = {"num_heads": 3, "causal": True}  # noqa: RUF012

    def __call__(self, query, key, value):
        L, S = query.shape[-2], key.shape[-2]
        at, of = torch.arange(S - L, S)[:, None], torch.arange(S)
        near = (of <= at) & (at // 8 - of // 8 <= 1)
        return self.attend(query, key, value, near)[0]


@broken("the future leaks from the 50th token on", "future")
class LeaksLate(Layer):
    def causal(self, L, S):
        return super().causal(L, S) | (torch.arange(S - L, S)[:, None] >= 50)


@broken("the mean of the values is added, a little", "formula")
class LittleMean(Layer):
    def mix(self, weights, value):
        return super().mix(weights, value) + 0.01 * value.mean(2, keepdim=True)


@broken("after forty calls it rests", "formula repeat lengths")
class Tired(Layer):
    calls = 0

    def mix(self, weights, value):
        self.calls += 1
        return super().mix(weights, value) * (0.0 if self.calls > 40 else 1.0)


@broken("batches of more than eight are cut into eights, the last one is left as zeros", "batch")
class Eights(Layer):
    def mix(self, weights, value):
        found = super().mix(weights, value)
        return (
            torch.cat([found[: len(found) // 8 * 8], found[len(found) // 8 * 8 :] * 0])
            if (len(found) > 8)
            else found
        )


@broken("a hidden key is dropped from the sum of the second head only", "mask")
class SecondHeadSum(AddingLayer):
    def softmax(self, scores):
        weights = super().softmax(scores)
        shown = scores.masked_fill(scores == -torch.inf, 0.0).softmax(-1)
        return torch.cat([weights[:, :1], shown[:, 1:2], weights[:, 2:]], dim=1)

"""Padding that reaches what is real, and documents that see each other."""

import torch
from bases import AddingLayer, Layer, Packed

from mutants.registry import broken


@broken("padding is read the wrong way round", "padding")
class Inverted(Layer):
    def real(self, padding):
        return padding[:, None, None, :]


@broken("padding is ignored", "padding")
class Ignored(Layer):
    def real(self, padding):
        return torch.ones_like(padding)[:, None, None, :]


@broken("padding hides queries, not keys", "padding")
class HidesQueries(Layer):
    def real(self, padding):
        return ~padding[:, None, :, None]


@broken("padding is ignored in evaluation", "padding")
class IgnoredInEval(Layer):
    def real(self, padding):
        return ~padding[:, None, None, :] | (not self.training)


@broken("padding is ignored if it is causal", "padding")
class IgnoredIfCausal(Layer):
    def seen(self, query, key, attn_mask, padding, is_causal):
        return super().seen(query, key, attn_mask, None if is_causal else padding, is_causal)


@broken("padding is ignored beside a mask", "padding mask-and-causal mask")
class IgnoredBesideMask(Layer):
    def seen(self, query, key, attn_mask, padding, is_causal):
        return super().seen(
            query, key, attn_mask, padding if attn_mask is None else None, is_causal
        )


@broken("the first sequence's padding is used for all", "padding batch")
class FirstPadding(Layer):
    def real(self, padding):
        return ~padding[:1, None, None, :]


@broken("padding is counted and expected at the end", "padding")
class CountedOnly(Layer):
    def real(self, padding):
        lengths = (~padding).sum(dim=1)
        return (torch.arange(padding.shape[1]) < lengths[:, None])[:, None, None, :]


@broken("padding is counted and one too few is hidden", "padding")
class OneTooFew(Layer):
    def real(self, padding):
        hidden = padding.clone()
        hidden[:, 1:] &= padding[:, :-1]
        return ~hidden[:, None, None, :]


@broken("the last real token is hidden with the padding", "padding")
class OneTooMany(Layer):
    def real(self, padding):
        hidden = padding.clone()
        hidden[:, :-1] |= padding[:, 1:]
        return ~hidden[:, None, None, :]


@broken("padding's values are zero, its scores count", "padding")
class ZeroValues(Layer):
    def seen(self, query, key, attn_mask, padding, is_causal):
        self.gone = padding
        return super().seen(query, key, attn_mask, None, is_causal)

    def mix(self, weights, value):
        if self.gone is not None:
            value = value.masked_fill(self.gone[:, None, :, None], 0.0)
        return super().mix(weights, value)


@broken("padding is added as 0 and 1", "padding")
class AddedAsOnes(Layer):
    def seen(self, query, key, attn_mask, padding, is_causal):
        seen, bias = super().seen(query, key, attn_mask, None, is_causal)
        if padding is not None:
            real = (~padding[:, None, None, :]).to(query.dtype)
            bias = real if bias is None else bias + real
        return seen, bias


@broken("padding lies along the heads", "padding batch")
class AlongHeads(Layer):
    def real(self, padding):
        return ~(
            padding[None, :, None, :]
            if padding.shape[0] == self.num_heads
            else padding[:, None, None]
        )


@broken("padding lies along the queries' axis", "padding batch lengths")
class AlongQueries(Layer):
    def real(self, padding):
        return ~padding  # (B, S) against (B, H, L, S)


@broken("heads folded into the batch, padding repeated in the wrong order", "padding")
class PaddingRepeated(Layer):
    def real(self, padding):
        B, S = padding.shape
        return ~padding.repeat(self.num_heads, 1).view(B, self.num_heads, 1, S)


@broken("padding is hidden by -10", "padding mask-size")
class SmallFiller(Layer):
    def seen(self, query, key, attn_mask, padding, is_causal):
        seen, bias = super().seen(query, key, attn_mask, None, is_causal)
        if padding is not None:
            hidden = -10.0 * padding[:, None, None, :].to(query.dtype)
            bias = hidden if bias is None else bias + hidden
        return seen, bias


@broken("gradients reach the padding", "padding-gradient gradients")
class ReachedByGradients(Layer):
    def seen(self, query, key, attn_mask, padding, is_causal):
        self.padded = padding is not None
        return super().seen(query, key, attn_mask, padding, is_causal)

    def merge(self, heads):
        merged = super().merge(heads)
        return merged + (self.leak - self.leak.detach()) if self.padded else merged

    def split_values(self, x):
        self.leak = x.mean(dim=(1, 2), keepdim=True)
        return super().split_values(x)


@broken("a sequence of padding alone is NaN", "empty-rows padding", empty_rows="finite")
class PaddedNaN(Layer):
    def weigh(self, scores):
        return self.softmax(scores)


@broken("a sequence of padding alone spoils gradients", "empty-rows padding-gradient")
class PaddedGradient(AddingLayer):
    def weigh(self, scores):
        return torch.nan_to_num(self.softmax(scores))


@broken("the mean of all tokens, padding too, is taken off the values", "padding formula")
class MeanOfAll(Layer):
    def mix(self, weights, value):
        return super().mix(weights, value - value.mean(dim=2, keepdim=True))


@broken("documents are ignored", "packing")
class DocumentsIgnored(Packed):
    def within(self, seen, documents):
        return seen


@broken("documents see the earlier ones", "packing")
class SeesEarlier(Packed):
    def same(self, documents):
        return (documents[:, :, None] >= documents[:, None, :])[:, None]


@broken("documents see the one before", "packing")
class SeesNeighbour(Packed):
    def same(self, documents):
        return ((documents[:, :, None] - documents[:, None, :]).abs() <= 1)[:, None]


@broken("the first row's documents are used for all", "packing batch")
class FirstDocuments(Packed):
    def same(self, documents):
        return super().same(documents[:1])


@broken("the border of documents is one late", "packing")
class LateBorder(Packed):
    def same(self, documents):
        late = documents.clone()
        late[:, 1:] = documents[:, :-1]
        return super().same(late)


@broken("only even and odd documents are apart", "packing")
class EvenAndOdd(Packed):
    def same(self, documents):
        return super().same(documents % 2)


@broken("documents make it forget to be causal", "packing future")
class DocumentsWin(Packed):
    def within(self, seen, documents):
        return self.same(documents)


@broken("positions go on over documents", "packing")
class PositionsGoOn(Packed):
    def first(self, documents, index):
        return torch.zeros_like(documents)


@broken("positions begin at one in later documents", "packing")
class PositionsFromOne(Packed):
    def first(self, documents, index):
        first = super().first(documents, index)
        return (first - 1).clamp(min=0)


@broken("the first row's documents place all tokens", "packing batch")
class FirstPlaces(Packed):
    def first(self, documents, index):
        return super().first(documents, index)[:1]


@broken("a document sees the last token before it", "packing")
class OneBefore(Packed):
    def same(self, documents):
        seen = super().same(documents)
        begins = torch.zeros_like(documents, dtype=torch.bool)
        begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
        L = documents.shape[1]
        before = torch.eye(L, dtype=torch.bool).roll(-1, dims=1).tril(-1)
        return seen | (begins[:, None, :, None] & before)

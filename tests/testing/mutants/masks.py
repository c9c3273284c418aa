"""Leaks, and masks that are misread: functions, and the same in layers."""

import torch
from bases import Adding, Attend, Fused, Layer

from mutants.registry import broken


@broken("causal at the upper left corner", "corner")
class UpperLeft(Attend):
    def causal(self, L, S):
        return torch.ones(L, S, dtype=torch.bool).tril()


@broken("a query doesn't see its own position", "past empty-rows")
class NotItself(Attend):
    def causal(self, L, S):
        return torch.ones(L, S, dtype=torch.bool).tril(S - L - 1)


@broken("a query sees one position ahead", "future")
class OneAhead(Attend):
    def causal(self, L, S):
        return torch.ones(L, S, dtype=torch.bool).tril(S - L + 1)


@broken("the causal mask the wrong way round", "future")
class FutureOnly(Attend):
    def causal(self, L, S):
        return torch.ones(L, S, dtype=torch.bool).triu(S - L)


@broken("is_causal is ignored", "future")
class NotCausal(Attend):
    def causal(self, L, S):
        return torch.ones(L, S, dtype=torch.bool)


@broken("hidden scores are set to zero before the softmax", "future")
class ZeroScores(Attend):
    def hide(self, scores, seen):
        return scores if seen is None else scores * seen


@broken("hidden after the softmax, rows not summed again", "future mask constant-values")
class HiddenAfterwards(Attend):
    def attend(self, query, key, value, seen=None, bias=None):
        self.late = seen
        return super().attend(query, key, value, None, bias)

    def drop(self, weights):
        return weights if self.late is None else weights * self.late


@broken("the future leaks in the second head only", "future")
class LeakInOneHead(Attend):
    def hide(self, scores, seen):
        hidden = super().hide(scores, seen)
        return torch.cat([hidden[:, :1], scores[:, 1:2], hidden[:, 2:]], dim=1)


@broken("the future leaks in the first sequence only", "future batch")
class LeakInOneSequence(Attend):
    def hide(self, scores, seen):
        return torch.cat([scores[:1], super().hide(scores, seen)[1:]])


@broken("the future leaks in the last sequence only", "future batch")
class LeakInLastSequence(Attend):
    def hide(self, scores, seen):
        return torch.cat([super().hide(scores, seen)[:-1], scores[-1:]])


@broken("the future leaks at the first token only", "future")
class LeakAtFirst(Attend):
    def causal(self, L, S):
        seen = super().causal(L, S)
        seen[0] = True
        return seen


@broken("the future leaks at the borders of blocks of eight", "future")
class LeakAtBlocks(Attend):
    def causal(self, L, S):
        seen = super().causal(L, S)
        for i in range(7, L - 1, 8):
            seen[i, S - L + i + 1] = True
        return seen


@broken("the future leaks if L and S differ", "corner lengths future")
class LeakAcross(Attend):
    def causal(self, L, S):
        return super().causal(L, S) if L == S else torch.ones(L, S, dtype=torch.bool)


@broken("a mask makes it forget is_causal", "mask-and-causal")
class MaskWins(Attend):
    def seen(self, L, S, mask, is_causal):
        return super().seen(L, S, mask, is_causal and mask is None)


@broken("is_causal makes it forget the mask", "mask-and-causal")
class CausalWins(Attend):
    def seen(self, L, S, mask, is_causal):
        return super().seen(L, S, None if is_causal else mask, is_causal)


@broken("mask or causal, not both", "mask-and-causal")
class MaskOrCausal(Attend):
    def both(self, *masks):
        given = [mask for mask in masks if mask is not None]
        return given[0] | given[1] if len(given) == 2 else super().both(*masks)


@broken("an additive mask makes it forget is_causal", "mask-and-causal mask-forms")
class BiasWins(Attend):
    def __call__(self, query, key, value, attn_mask=None, is_causal=False):
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            is_causal = False
        return super().__call__(query, key, value, attn_mask, is_causal)


@broken("the mask is read the wrong way round", "mask-sense mask")
class Inverted(Attend):
    def read(self, mask):
        mask, bias = super().read(mask)
        return (mask if mask is None else ~mask), bias


@broken("the mask is ignored", "mask")
class Ignored(Attend):
    def read(self, mask):
        return None, None


@broken("any mask is taken for the causal one", "mask")
class TakenForCausal(Attend):
    def seen(self, L, S, mask, is_causal):
        return super().seen(L, S, None, is_causal or mask is not None)


@broken("a mask of booleans is added as 0 and 1", "mask")
class AddedAsOnes(Attend):
    def read(self, mask):
        return (None, None) if mask is None else (None, mask.float())


@broken("the mask is transposed", "mask mask-sense mask-batch mask-heads mask-and-causal")
class Transposed(Attend):
    def seen(self, L, S, mask, is_causal):
        turned = mask.mT if mask is not None and mask.shape[-1] == mask.shape[-2] else mask
        return super().seen(L, S, turned, is_causal)


@broken("hidden scores are -1e-9", "mask future")
class TinyFiller(Attend):
    def hide(self, scores, seen):
        return scores if seen is None else scores.masked_fill(~seen, -1e-9)


@broken("hidden scores are -10", "mask mask-size future")
class SmallFiller(Attend):
    def hide(self, scores, seen):
        return scores if seen is None else scores.masked_fill(~seen, -10.0)


@broken("hidden scores are -1e4, which large scores reach", "mask-size overflow")
class LowScores(Attend):
    def hide(self, scores, seen):
        return scores if seen is None else scores.masked_fill(~seen, -1e4)


@broken("-100 is added to hidden scores", "mask-size mask future")
class AddedFiller(Attend):
    def hide(self, scores, seen):
        return scores if seen is None else scores - 100.0 * ~seen


@broken("scores are capped after the mask", "mask-size future mask formula")
class CappedAfterwards(Attend):
    def hide(self, scores, seen):
        return 20 * (super().hide(scores, seen) / 20).tanh()


@broken("the first head's mask is used for all", "mask-heads")
class FirstHeadsMask(Attend):
    def read(self, mask):
        mask, bias = super().read(mask)
        return (mask[:, :1] if mask is not None and mask.ndim == 4 else mask), bias


@broken("heads get the masks in the wrong order", "mask-heads")
class HeadsMasksTurned(Attend):
    def read(self, mask):
        mask, bias = super().read(mask)
        return (mask.flip(1) if mask is not None and mask.ndim == 4 else mask), bias


@broken("the first sequence's mask is used for all", "mask-batch")
class FirstMask(Attend):
    def read(self, mask):
        mask, bias = super().read(mask)
        return (mask[:1] if mask is not None and mask.ndim == 4 else mask), bias


@broken("heads folded into the batch, masks repeated in the wrong order", "mask-batch")
class MasksRepeated(Attend):
    def hide(self, scores, seen):
        if seen is None or seen.ndim < 4 or seen.shape[1] > 1:
            return super().hide(scores, seen)
        B, H, L, S = scores.shape
        seen = seen[:, 0].expand(B, L, S).repeat(H, 1, 1)
        return super().hide(scores.flatten(0, 1), seen).view(B, H, L, S)


@broken("the heads' mask is folded as if heads came first", "mask-heads mask-batch")
class FoldedMask(Attend):
    def hide(self, scores, seen):
        if seen is None or seen.ndim < 4:
            return super().hide(scores, seen)
        B, H, L, S = scores.shape
        seen = seen.expand(B, H, L, S).transpose(0, 1).reshape(B, H, L, S)
        return super().hide(scores, seen)


@broken("a mask of a batch is broadcast over heads", "mask-batch mask-heads")
class WrongAxis(Attend):
    def hide(self, scores, seen):
        if seen is not None and seen.ndim == 4 and seen.shape[0] == scores.shape[1]:
            seen = seen[:, 0]  # (B, L, S) against (B, H, L, S), where B is H
        return super().hide(scores, seen)


@broken("a row that sees nothing is NaN", "empty-rows", empty_rows="finite")
class EmptyNaN(Attend):
    def weigh(self, scores):
        return self.softmax(scores)


@broken("a row that sees nothing is the mean of all", "empty-rows", empty_rows="zeros")
class EmptyMean(Attend):
    def weigh(self, scores):
        return self.softmax(scores.clamp(min=torch.finfo(scores.dtype).min))


@broken("NaN is set to zero after the softmax: its gradient stays", "empty-rows")
class EmptyGradient(Adding):
    def weigh(self, scores):
        return torch.nan_to_num(self.softmax(scores))


@broken("a row that sees nothing makes the whole table NaN", "empty-rows")
class EmptySpoils(Attend):
    def weigh(self, scores):
        blind = (scores == -torch.inf).all(dim=-1).any()
        return super().weigh(scores) + (torch.nan if blind else 0.0)


@broken("causal in training only", "future")
class LeakInEval(Layer):
    def seen(self, query, key, attn_mask, padding, is_causal):
        return super().seen(query, key, attn_mask, padding, is_causal and self.training)


@broken("causal in evaluation only", "future")
class LeakInTraining(Layer):
    def seen(self, query, key, attn_mask, padding, is_causal):
        return super().seen(query, key, attn_mask, padding, is_causal and not self.training)


@broken("the mask is dropped in evaluation", "mask")
class MaskInTraining(Layer):
    def seen(self, query, key, attn_mask, padding, is_causal):
        return super().seen(query, key, attn_mask if self.training else None, padding, is_causal)


@broken("not causal beside a padding mask", "padding mask-and-causal future")
class PaddingWins(Layer):
    def seen(self, query, key, attn_mask, padding, is_causal):
        return super().seen(query, key, attn_mask, padding, is_causal and padding is None)


@broken("the triangle was made for 8 tokens; later ones see all", "future")
class ShortTriangle(Fused):
    def causal(self, L, S):
        seen = torch.ones(L, S, dtype=torch.bool)
        seen[:8] = super().causal(L, S)[:8]
        return seen


@broken("the mask of the first call is kept", "future repeat mask mask-batch")
class KeptMask(Fused):
    kept: torch.Tensor | None = None

    def seen(self, query, key, attn_mask, padding, is_causal):
        found, bias = super().seen(query, key, attn_mask, padding, is_causal)
        size = query.shape[1], key.shape[1]
        self.kept = dict(self.kept or {})
        return self.kept.setdefault(size, found), bias

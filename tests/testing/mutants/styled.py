"""Layers as they are written elsewhere, each with one place broken."""

import math

import torch
import torch.nn.functional as F
from styles import (
    Annotated,
    BertLike,
    Block,
    ComplexRotary,
    Einsum,
    FixedRoom,
    Head,
    Heads,
    LengthFirst,
    Picture,
    Room,
    SmallGPT,
)
from torch import nn

from mutants.registry import broken


@broken("small GPT: the triangle includes the next token", "future")
class NextToken(SmallGPT):
    def triangle(self, size):
        return torch.ones(size, size).tril(1)


@broken("small GPT: the triangle is upper", "future")
class UpperTriangle(SmallGPT):
    def triangle(self, size):
        return torch.triu(torch.ones(size, size))


@broken("small GPT: hidden only in training", "future")
class HiddenInTraining(SmallGPT):
    def hidden(self, att, T):
        return super().hidden(att, T) if self.training else att


@broken("small GPT: multiplied by the triangle", "future")
class TimesTriangle(SmallGPT):
    def hidden(self, att, T):
        return att * self.tril[:, :, :T, :T]


@broken("small GPT: the scale of the width", "formula", says="scale of the whole width")
class WidthScale(SmallGPT):
    def factor(self, q, C):
        return 1.0 / math.sqrt(C)


@broken("small GPT: heads cut by view", "formula future")
class CutByView(SmallGPT):
    def cut(self, y, B, T, C):
        return y.reshape(B, self.n_head, T, C // self.n_head)


@broken("small GPT: heads joined by view", "formula future")
class JoinedByView(SmallGPT):
    def joined(self, y, B, T, C):
        return y.contiguous().view(B, T, C)


@broken("small GPT: dropout by a function, which ignores eval", "dropout repeat")
class FunctionalDropout(SmallGPT):
    def hidden(self, att, T):
        return F.dropout(super().hidden(att, T).clamp(min=-1e9), 0.1)


@broken("small GPT: the triangle is cut from its lower corner", "future past lengths")
class WrongCut(SmallGPT):
    def hidden(self, att, T):
        return att.masked_fill(self.tril[:, :, -T:, :T] == 0, float("-inf"))


@broken("annotated: 1 in the mask hides", "mask mask-sense")
class OneHides(Annotated):
    def filled(self, scores, mask):
        return super().filled(scores, mask == 0)


@broken("annotated: -1e-9", "mask")
class TypingError(Annotated):
    def filled(self, scores, mask):
        return scores.masked_fill(mask == 0, -1e-9)


@broken("annotated: the query's matrix three times", "formula gradients")
class FirstMatrix(Annotated):
    def heads(self, inputs, n):
        lin = self.linears[0]
        return [lin(x).view(n, -1, self.h, self.d_k).transpose(1, 2) for x in inputs]


@broken("annotated: no transpose of the heads", "formula lengths future")
class NoTranspose(Annotated):
    def heads(self, inputs, n):
        pairs = zip(self.linears, inputs, strict=False)
        return [lin(x).view(n, self.h, -1, self.d_k) for lin, x in pairs]


@broken("annotated: dropout of the scores", "dropout")
class DropsScores(Annotated):
    def filled(self, scores, mask):
        return super().filled(self.dropout(scores), mask)

    def attention(self, query, key, value, mask=None):
        scores = self.dropout(query @ key.transpose(-2, -1) / math.sqrt(query.size(-1)))
        if mask is not None:
            scores = super().filled(scores, mask)
        return scores.softmax(dim=-1) @ value


@broken("BERT-like: the mask is multiplied", "mask")
class MaskTimes(BertLike):
    def masked(self, scores, mask):
        return scores * (mask + 1)


@broken("BERT-like: the mask is added after the softmax", "mask")
class MaskLate(BertLike):
    late = None

    def masked(self, scores, mask):
        self.late = mask
        return scores

    def probabilities(self, scores):
        probs, mask, self.late = scores.softmax(dim=-1), self.late, None
        return probs if mask is None else probs * (mask == 0)


@broken("BERT-like: only the first query's mask", "mask mask-batch")
class FirstRow(BertLike):
    def masked(self, scores, mask):
        return scores + mask[..., :1, :]


@broken("BERT-like: scores are returned as attentions", "weights")
class GivesScores(BertLike):
    def given(self, probs, scores):
        return scores


@broken("BERT-like: attentions are those of a temperature of two", "weights")
class GivesOthers(BertLike):
    def given(self, probs, scores):
        return (scores / 2).softmax(dim=-1)


@broken("BERT-like: heads are merged with the axes of the cut", "formula")
class TurnedWrong(BertLike):
    def turned(self, x):
        return x.view(*x.shape[:-1], self.size, self.heads).permute(0, 3, 1, 2)


@broken("complex rotary: conjugate", "formula")
class Conjugate(ComplexRotary):
    def times(self, pairs, table):
        return pairs * table.conj()


@broken("complex rotary: theta is not read", "formula")
class ThetaUnread(ComplexRotary):
    def __init__(self, **options):
        super().__init__(**options)
        self.theta = 500000.0


@broken("complex rotary: the table lies along the heads", "formula past")
class AlongHeads(ComplexRotary):
    def turned(self, x):
        pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
        table = self.table(x.shape[2]).transpose(0, 1)  # (1, H, D / 2)
        return torch.view_as_real(pairs * table).flatten(3).to(x.dtype)


@broken("complex rotary: heads are tiled", "formula", says="groups in the wrong order")
class Tiled(ComplexRotary):
    def repeated(self, x):
        return x.repeat(1, 1, self.n_heads // self.n_kv_heads, 1)


@broken("complex rotary: groups lie along the length", "formula future")
class GroupsAlongLength(ComplexRotary):
    def repeated(self, x):
        B, L, G, D = x.shape
        n = self.n_heads // self.n_kv_heads
        return x[:, None].expand(B, n, L, G, D).reshape(B, L, G * n, D)


@broken("complex rotary: the triangle begins two above", "future")
class TwoAbove(ComplexRotary):
    def triangle(self, L, x):
        return torch.triu(torch.full((L, L), float("-inf")), diagonal=2)


@broken("complex rotary: softmax of the queries", "formula constant-values future")
class OfQueries(ComplexRotary):
    def weights(self, scores, q):
        return torch.nan_to_num(F.softmax(scores, dim=-2)).type_as(q)


@broken("complex rotary: positions count from the end", "formula")
class FromTheEnd(ComplexRotary):
    def table(self, length):
        return super().table(length).flip(0)


@broken("picture: no scale", "formula", says="scale missing")
class NoScale(Picture):
    def factor(self, dim, num_heads):
        return 1.0


@broken("picture: softmax over heads", "formula constant-values")
class OverHeads(Picture):
    def shares(self, scores):
        return scores.softmax(dim=1)


@broken("picture: heads joined by reshape", "formula")
class JoinedByReshape(Picture):
    def joined(self, x, B, N, C):
        return x.reshape(B, N, C)


@broken("picture: cut along the patches", "formula batch")
class CutAlongPatches(Picture):
    def pieces(self, x, B, N, C):
        return x.reshape(3, B, self.num_heads, N, C // self.num_heads).unbind(0)


@broken("picture: sigmoid for softmax", "formula constant-values")
class Sigmoids(Picture):
    def shares(self, scores):
        return scores.sigmoid()


@broken("length first: the batch and the heads change places", "batch formula")
class HeadsFirst(LengthFirst):
    def folded(self, x, B):
        turned = x.contiguous().view(-1, B, self.num_heads, self.head_dim)
        return turned.permute(2, 1, 0, 3).reshape(B * self.num_heads, -1, self.head_dim)


@broken("length first: padding is repeated for heads in the wrong order", "padding")
class PaddingTiled(LengthFirst):
    def padded(self, scores, padding, B):
        rows = padding.repeat(self.num_heads, 1)[:, None]
        return scores.masked_fill(rows, torch.finfo(scores.dtype).min)


@broken("length first: True may attend", "mask mask-sense")
class TrueAttends(LengthFirst):
    def hidden(self, scores, mask):
        return super().hidden(scores, ~mask if mask.dtype == torch.bool else mask)


@broken("length first: unfolded without a transpose", "formula batch")
class NotTransposed(LengthFirst):
    def unfolded(self, x, L, B, E):
        return x.contiguous().view(L, B, E)


@broken("length first: weights of heads that lie first", "weights")
class WeightsOfHeadsFirst(LengthFirst):
    def given(self, weights, applied, B):
        turned = applied.view(self.num_heads, B, *weights.shape[-2:])
        return turned.transpose(0, 1)


@broken("length first: weights before dropout", "weights")
class BeforeDropout(LengthFirst):
    def given(self, weights, applied, B):
        return 0.5 * weights.view(B, self.num_heads, *weights.shape[-2:])


class WideHead(Head):
    def factor(self, x, k):
        return x.shape[-1] ** -0.5


@broken("heads as modules: each scaled by the width", "formula", says="scale of the whole width")
class ScaledByWidth(Heads):
    head = WideHead


@broken("heads as modules: stacked, not joined", "formula")
class StackedHeads(Heads):
    def joined(self, heads):
        return torch.stack(heads, dim=-1).flatten(-2)


@broken("heads as modules: one head for all", "formula gradients")
class OneHead(Heads):
    def forward(self, x):
        return self.proj(self.joined([self.heads[0](x) for _ in self.heads]))


@broken("heads as modules: added, not joined", "formula")
class AddedHeads(Heads):
    def joined(self, heads):
        return torch.cat([sum(heads)] * len(heads), dim=-1)


@broken("letters: the values' axis is the query's", "formula lengths")
class ValuesByQueries(Einsum):
    def shares(self, sim):
        return sim.softmax(dim=-1) if sim.shape[-1] != sim.shape[-2] else sim.softmax(dim=-1).mT


@broken("letters: the heads are summed in the products", "formula")
class SummedHeads(Einsum):
    products = "blhd,bsgd->bhls"


@broken("letters: the batch is summed in the mixture", "batch")
class SummedBatch(Einsum):
    mixture = "bhls,cshd->blhd"


@broken("letters: softmax of the heads", "formula constant-values")
class SoftmaxOfHeads(Einsum):
    def shares(self, sim):
        return sim.softmax(dim=1)


@broken("fixed room: positions begin anew", "cache")
class BeginsAnew(FixedRoom):
    def index(self, past, L):
        return torch.arange(L)


@broken("fixed room: a chunk sees all of the memory", "cache cache-chunks future")
class SeesChunk(FixedRoom):
    def seen(self, L, S, past):
        return super().seen(L, S, past) if past == 0 else torch.ones(L, S, dtype=torch.bool)


@broken("fixed room: a triangle from the upper left", "cache")
class UpperLeft(FixedRoom):
    def seen(self, L, S, past):
        return torch.ones(L, S, dtype=torch.bool).tril()


class Whole(Room):
    def put(self, k, v):
        super().put(k, v)
        return self.keys, self.values


@broken("fixed room: the empty part is seen", "cache cache-chunks", new_cache=Whole)
class SeesEmpty(FixedRoom):
    def seen(self, L, S, past):
        return None if L == 1 else super().seen(L, S, past)


class Late(Room):
    def crop(self, length):
        self.at = length + 1


@broken("fixed room: cropped one too few", "cache-crop", new_cache=Late)
class CroppedLate(FixedRoom):
    pass


class Around(Room):
    def put(self, k, v):
        if self.at and k.shape[2] == 1:
            self.at -= 1
            super().put(k, v)
            return self.keys[:, :, : self.at], self.values[:, :, : self.at]
        return super().put(k, v)


@broken("fixed room: one token is written over the last", "cache", new_cache=Around)
class WrittenOver(FixedRoom):
    def seen(self, L, S, past):
        return torch.ones(L, S, dtype=torch.bool).tril(S - L)


class Norms(nn.Module):
    """Normalises over the length."""

    def forward(self, x):
        return (x - x.mean(dim=1, keepdim=True)) / (x.std(dim=1, keepdim=True, correction=0) + 1e-3)


@broken("block: normalised over the length", "future lengths")
class NormedOverLength(Block):
    def __init__(self, **options):
        super().__init__(**options)
        self.ln_1 = Norms()


@broken("block: its attention leaks in evaluation", "future")
class LeakingBlock(Block):
    def __init__(self, **options):
        torch.manual_seed(0)
        super().__init__(**options)
        torch.manual_seed(0)
        self.attn = HiddenInTraining()


@broken("block: normalised over the batch in training", "batch")
class NormedOverBatch(Block):
    def forward(self, x):
        if self.training:
            x = x - x.mean(dim=0, keepdim=True)
        return super().forward(x)

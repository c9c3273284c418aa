"""Layers whose projections, heads, dropout, weights or batch are wrong."""

import torch
from bases import Layer
from torch import nn

from mutants.registry import broken

GROUPED = {"embed_dim": 24, "num_heads": 6, "num_kv_heads": 2}


@broken("layer: the scale is missing", "formula", says="scale missing")
class NoScale(Layer):
    def scale(self, query):
        return 1.0


@broken("layer: the scale of the whole width", "formula", says="scale of the whole width")
class ScaleOfModel(Layer):
    def scale(self, query):
        return self.embed_dim**-0.5


@broken("layer: scaled twice", "formula", says="scale twice")
class TwoScales(Layer):
    def scores(self, query, key):
        return super().scores(query, key) * self.scale(query)


@broken("layer: softmax over the queries", "formula constant-values", says="softmax over queries")
class OverQueries(Layer):
    def softmax(self, scores):
        return scores.softmax(dim=-2)


@broken("layer: softmax over the heads", "formula constant-values")
class OverHeads(Layer):
    def softmax(self, scores):
        return scores.softmax(dim=1)


def viewed(x, heads):
    B, L, E = x.shape
    return x.reshape(B, heads, L, E // heads)


@broken("heads split by view alone", "formula future", says="heads split by view")
class SplitByView(Layer):
    def split(self, x):
        return viewed(x, x.shape[-1] // self.head_dim)


@broken("only the values split by view", "formula future")
class ValuesByView(Layer):
    def split_values(self, x):
        return viewed(x, x.shape[-1] // self.head_dim)


@broken("only the queries split by view", "formula future")
class QueriesByView(Layer):
    def split_queries(self, x):
        return viewed(x, x.shape[-1] // self.head_dim)


@broken("heads merged by view alone", "formula future", says="heads merged by view")
class MergedByView(Layer):
    def merge(self, heads):
        B, H, L, D = heads.shape
        return heads.reshape(B, L, H * D)


@broken("heads stacked on the last axis", "formula")
class Stacked(Layer):
    def merge(self, heads):
        return heads.permute(0, 2, 3, 1).flatten(-2)


@broken("heads cut from every third feature", "formula")
class Strided(Layer):
    def split(self, x):
        return x.unflatten(-1, (self.head_dim, -1)).permute(0, 3, 1, 2)


@broken("the heads' outputs are averaged", "formula")
class Averaged(Layer):
    def merge(self, heads):
        return super().merge(heads.mean(dim=1, keepdim=True).expand_as(heads))


@broken("the last head is lost", "formula gradients")
class LostHead(Layer):
    def merge(self, heads):
        return super().merge(torch.cat([heads[:, :-1], 0 * heads[:, -1:]], dim=1))


@broken("heads are merged in the wrong order", "formula")
class MergedBackwards(Layer):
    def merge(self, heads):
        return super().merge(heads.flip(1))


@broken(
    "layer: groups tiled, not repeated", "formula", says="groups in the wrong order", sizes=GROUPED
)
class Tiled(Layer):
    def spread(self, x, query):
        return x.repeat(1, query.shape[1] // x.shape[1], 1, 1)


@broken("layer: only the keys' groups tiled", "formula", sizes=GROUPED)
class KeysTiled(Layer):
    def spread_keys(self, key, query):
        return key.repeat(1, query.shape[1] // key.shape[1], 1, 1)


@broken("layer: groups spread along the length", "formula future", sizes=GROUPED)
class SpreadByView(Layer):
    def spread(self, x, query):
        B, G, S, D = x.shape
        n = query.shape[1] // G
        return x[:, :, :, None].expand(B, G, S, n, D).reshape(B, n * G, S, D)


@broken("the output matrix is forgotten", "formula gradients")
class NoOutput(Layer):
    def out(self, x):
        return x


@broken("the output matrix twice", "formula")
class OutputTwice(Layer):
    def out(self, x):
        return self.out_proj(self.out_proj(x))


@broken("the output matrix is transposed", "formula")
class OutputTransposed(Layer):
    def out(self, x):
        return nn.functional.linear(x, self.out_proj.weight.T, self.out_proj.bias)


@broken("the output's bias is forgotten", "formula gradients")
class NoOutputBias(Layer):
    def out(self, x):
        return x @ self.out_proj.weight.T


@broken("the values' bias is forgotten", "formula gradients")
class NoValueBias(Layer):
    def project(self, query, key, value):
        q, k, _ = super().project(query, key, value)
        return q, k, self.split(value @ self.v_proj.weight.T)


# Unless the formula is said, it is a note: a layer may add its tokens on purpose.
@broken("the residual is inside", "formula", scale=8**-0.5)
class Residual(Layer):
    def project(self, query, key, value):
        self.stream = query
        return super().project(query, key, value)

    def out(self, x):
        return super().out(x) + self.stream


@broken("queries through the keys' matrix", "formula gradients")
class QueriesAsKeys(Layer):
    def project(self, query, key, value):
        _, k, v = super().project(query, key, value)
        return self.split(self.k_proj(query)), k, v


@broken("keys and values change places", "formula")
class KeysForValues(Layer):
    def project(self, query, key, value):
        q, k, v = super().project(query, key, value)
        return q, v, k


@broken(
    "cross-attention: queries and memory exchanged", "shape formula lengths order queries-apart"
)
class MemoryAsks(Layer):
    def project(self, query, key, value):
        return super().project(key, query, query)


@broken(
    "cross-attention: values from the queries, if sizes fit", "formula lengths order queries-apart"
)
class OwnValues(Layer):
    def project(self, query, key, value):
        return super().project(query, key, query if query.shape == value.shape else value)


@broken(
    "cross-attention: equal sizes are taken for self-attention",
    "formula lengths order queries-apart",
)
class OwnKeys(Layer):
    def project(self, query, key, value):
        same = query.shape == key.shape
        return super().project(query, query if same else key, query if same else value)


@broken("values from the keys' input", "formula constant-values")
class ValuesFromKeys(Layer):
    def project(self, query, key, value):
        return super().project(query, key, key)


@broken("the length is taken from the query", "lengths")
class QueryLength(Layer):
    def project(self, query, key, value):
        B, L, _ = query.shape
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        return tuple(x.view(B, L, -1, self.head_dim).transpose(1, 2) for x in (q, k, v))


@broken("a −1 swallows the batch", "lengths batch")
class SwallowsBatch(Layer):
    def project(self, query, key, value):
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        L = query.shape[1]
        return tuple(
            x.view(-1, L, x.shape[-1] // self.head_dim, self.head_dim).transpose(1, 2)
            for x in (q, k, v)
        )


@broken("the batch is taken for the length", "batch")
class BatchForLength(Layer):
    def project(self, query, key, value):
        return super().project(*(x.transpose(0, 1) for x in (query, key, value)))

    def seen(self, query, *others):
        return None, None

    def out(self, x):
        return super().out(x).transpose(0, 1)


@broken("all sequences attend to each other", "batch")
class OneLongSequence(Layer):
    def attend(self, query, key, value, seen=None, bias=None):
        if seen is not None or bias is not None:
            return super().attend(query, key, value, seen, bias)
        B, H, L, D = query.shape
        query, key, value = (x.transpose(0, 1).flatten(1, 2)[None] for x in (query, key, value))
        mixed, weights = super().attend(query, key, value)
        return mixed.view(H, B, L, D).transpose(0, 1), weights


@broken("a sequence sees the mean of the batch", "batch")
class BatchMean(Layer):
    def merge(self, heads):
        return super().merge(heads + 0.1 * heads.mean(dim=0, keepdim=True))


@broken("the first sequence's keys are used for all", "batch")
class FirstKeys(Layer):
    def split_keys(self, x):
        return self.split(x)[:1].expand(x.shape[0], -1, -1, -1)


@broken("keys normalised over the batch, in training only", "batch dropout")
class BatchNorm(Layer):
    def scores(self, query, key):
        if self.training and key.shape[0] > 1:
            key = (key - key.mean(dim=(0, 2), keepdim=True)) / key.std(dim=(0, 2), keepdim=True)
        return super().scores(query, key)


@broken("the batch is flipped and not flipped back", "batch formula")
class Flipped(Layer):
    def split_values(self, x):
        return self.split(x.flip(0))

"""Right functions and layers in small steps, so that a mutant can break one of them.

B batch, H heads, L queries, S keys, D width of a head, E of a layer. Masks of pairs: True may
attend; floats are added. Padding masks: True is padding.
"""

import torch
from torch import Tensor, nn


class Core:
    """The formula, step by step."""

    def attend(self, query, key, value, seen=None, bias=None):
        """Outputs and weights, ``(B, H, L, D)`` and ``(B, H, L, S)``."""
        key, value = self.spread_keys(key, query), self.spread_values(value, query)
        scores = self.scores(query, key)
        if bias is not None:
            scores = scores + bias
        scores = self.hide(scores, seen)
        weights = self.weigh(scores)
        applied = self.drop(weights)
        return self.mix(applied, value), self.shown(weights, applied, scores).to(query.dtype)

    def scale(self, query):
        return query.shape[-1] ** -0.5

    def spread(self, x, query):
        """Each head of a key or value, once for every query of its group."""
        return x.repeat_interleave(query.shape[1] // x.shape[1], dim=1)

    def spread_keys(self, key, query):
        return self.spread(key, query)

    def spread_values(self, value, query):
        return self.spread(value, query)

    def scores(self, query, key):
        wide = torch.promote_types(query.dtype, torch.float32)
        return (self.scale(query) * query.to(wide)) @ key.to(wide).mT

    def hide(self, scores, seen):
        return scores if seen is None else scores.masked_fill(~seen, -torch.inf)

    def weigh(self, scores):
        """A row that sees nothing gets zeros."""
        blind = (scores == -torch.inf).all(dim=-1, keepdim=True)
        return self.softmax(scores.masked_fill(blind, 0.0)).masked_fill(blind, 0.0)

    def softmax(self, scores):
        return scores.softmax(dim=-1)

    def drop(self, weights):
        return weights

    def mix(self, weights, value):
        return weights.to(value.dtype) @ value

    def shown(self, weights, applied, scores):
        """What is returned as weights."""
        return applied

    def causal(self, L, S):
        """The last query stands beside the last key."""
        return torch.ones(L, S, dtype=torch.bool).tril(S - L)

    def both(self, *masks: Tensor | None) -> Tensor | None:
        """Seen only if each of the masks shows it."""
        found = None
        for mask in masks:
            if mask is not None:
                found = mask if found is None else found & mask
        return found

    def read(self, mask):
        """A mask of booleans, and what is added to the scores: one of the two."""
        if mask is None:
            return None, None
        return (mask, None) if mask.dtype == torch.bool else (None, mask)


class Attend(Core):
    """``f(query, key, value, attn_mask, is_causal)``, ``(B, H, L, D)``; heads may be grouped."""

    window: int | None = None

    def __call__(self, query, key, value, attn_mask=None, is_causal=False):
        L, S = query.shape[-2], key.shape[-2]
        mask, bias = self.read(attn_mask)
        seen = self.seen(L, S, mask, is_causal)
        return self.attend(query, key, value, seen, bias)[0]

    def seen(self, L, S, mask, is_causal):
        near = self.near(L, S) if self.window else None
        return self.both(mask, self.causal(L, S) if is_causal or self.window else None, near)

    def near(self, L, S):
        """The last ``window`` keys, the query's own among them."""
        return torch.ones(L, S, dtype=torch.bool).triu(S - L - self.window + 1)


class Adding(Attend):
    """Masks of booleans are added as 0 and -inf."""

    def hide(self, scores, seen):
        return scores if seen is None else scores + low(scores, seen)


def low(scores, seen):
    return torch.zeros(seen.shape, dtype=scores.dtype).masked_fill(~seen, -torch.inf)


class Windowed(Attend):
    """Causal, and no further back than the window."""

    window = 4

    def __call__(self, query, key, value):
        return super().__call__(query, key, value)


class Layer(Core, nn.Module):
    """Self-attention and cross-attention, grouped heads, masks, padding, weights, dropout."""

    def __init__(self, embed_dim=24, num_heads=3, num_kv_heads=None, *, bias=True, dropout=0.0):
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.num_kv_heads = num_kv_heads or num_heads
        self.head_dim, self.dropout = embed_dim // num_heads, dropout
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias)
        self.k_proj = nn.Linear(embed_dim, self.num_kv_heads * self.head_dim, bias)
        self.v_proj = nn.Linear(embed_dim, self.num_kv_heads * self.head_dim, bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(
        self,
        query,
        key=None,
        value=None,
        attn_mask=None,
        key_padding_mask=None,
        is_causal=False,
        need_weights=False,
    ):
        key = query if key is None else key
        value = key if value is None else value
        heads = self.project(query, key, value)
        seen, bias = self.seen(query, key, attn_mask, key_padding_mask, is_causal)
        mixed, weights = self.attend(*heads, seen, bias)
        output = self.out(self.merge(mixed))
        return (output, weights) if need_weights else output

    def project(self, query, key, value):
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        return self.split_queries(q), self.split_keys(k), self.split_values(v)

    def split(self, x):
        """``(B, L, H * D)`` into ``(B, H, L, D)``."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def split_queries(self, x):
        return self.split(x)

    def split_keys(self, x):
        return self.split(x)

    def split_values(self, x):
        return self.split(x)

    def merge(self, heads):
        """``(B, H, L, D)`` into ``(B, L, H * D)``."""
        return heads.transpose(1, 2).flatten(-2)

    def out(self, x):
        return self.out_proj(x)

    def seen(self, query, key, attn_mask, padding, is_causal):
        L, S = query.shape[1], key.shape[1]
        mask, bias = self.read(attn_mask)
        real = None if padding is None else self.real(padding)
        return self.both(mask, real, self.causal(L, S) if is_causal else None), bias

    def real(self, padding):
        return ~padding[:, None, None, :]

    def drop(self, weights):
        return nn.functional.dropout(weights, self.dropout, self.training)


class AddingLayer(Layer):
    """Masks of booleans are added as 0 and -inf."""

    def hide(self, scores, seen):
        return scores if seen is None else scores + low(scores, seen)


def rotate(x, angles):
    """The two halves of each head, turned as pairs."""
    cos, sin = angles.cos(), angles.sin()
    a, b = x.float().chunk(2, dim=-1) if x.dtype != torch.float64 else x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


class Cache:
    """Keys and values so far; ``seen`` counts the tokens that came."""

    def __init__(self):
        self.key = self.value = None
        self.seen = 0

    def update(self, key, value, keep=None):
        """Append, and keep no more than the last ``keep`` for the next call."""
        self.seen += key.shape[2]
        if self.key is not None:
            key = torch.cat([self.key, key], dim=2)
            value = torch.cat([self.value, value], dim=2)
        self.key, self.value = (
            (key, value) if keep is None else (key[:, :, -keep:], value[:, :, -keep:])
        )
        return key, value

    def crop(self, length):
        self.key, self.value = self.key[:, :, :length], self.value[:, :, :length]
        self.seen = length


class Decoder(Layer):
    """Causal self-attention with rotary positions, grouped heads and a cache."""

    base = 10000.0

    def __init__(self, embed_dim=48, num_heads=6, num_kv_heads=2, *, window=None, **options):
        super().__init__(embed_dim, num_heads, num_kv_heads, **options)
        self.window = window

    def forward(self, x, position_ids=None, cache=None):
        q, k, v = self.project(x, x, x)
        positions = self.positions(x, position_ids, cache)
        q, k, v = self.turn(q, k, v, positions)
        if cache is not None:
            k, v = self.remember(cache, k, v)
        mixed, _ = self.attend(q, k, v, self.visible(q, k, cache))
        return self.out(self.merge(mixed))

    def positions(self, x, position_ids, cache):
        if position_ids is not None:
            return position_ids
        start = 0 if cache is None else cache.seen
        return torch.arange(start, start + x.shape[1])

    def angles(self, positions, dtype):
        steps = self.base ** (
            -torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim
        )
        angles = positions[..., None].double() * steps  # (..., L, D / 2)
        angles = angles if angles.ndim == 2 else angles[:, None]
        return angles if dtype == torch.float64 else angles.float()

    def rotate(self, x, angles):
        return rotate(x, angles)

    def turn(self, q, k, v, positions):
        angles = self.angles(positions, q.dtype)
        return self.rotate(q, angles), self.rotate(k, angles), v

    def remember(self, cache, k, v):
        return cache.update(k, v, keep=self.window and self.window - 1)

    def visible(self, q, k, cache):
        L, S = q.shape[2], k.shape[2]
        seen = self.causal(L, S)
        return seen if self.window is None else seen & self.near(L, S)

    def near(self, L, S):
        return torch.ones(L, S, dtype=torch.bool).triu(S - L - self.window + 1)


class TupleDecoder(Decoder):
    """The same; the cache is the pair of keys and values, and comes back."""

    def forward(self, x, past=None):
        start = 0 if past is None else past[0].shape[2]
        positions = torch.arange(start, start + x.shape[1])
        q, k, v = self.project(x, x, x)
        q, k, v = self.turn(q, k, v, positions)
        k, v = self.joined(past, k, v)
        mixed, _ = self.attend(q, k, v, self.visible(q, k, past))
        return self.out(self.merge(mixed)), self.handed((k, v), past)

    def joined(self, past, k, v):
        if past is None:
            return k, v
        return torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)

    def handed(self, new, past):
        return new


class Packed(Decoder):
    """Causal, several documents in a row; a learned vector for each position is added to it."""

    def __init__(self, embed_dim=24, num_heads=3, num_kv_heads=None, **options):
        super().__init__(embed_dim, num_heads, num_kv_heads, **options)
        self.table = nn.Parameter(torch.randn(64, embed_dim))

    def forward(self, x, documents=None):
        x = x + self.place(x, documents)
        q, k, v = self.project(x, x, x)
        seen = self.causal(x.shape[1], x.shape[1])
        if documents is not None:
            seen = self.within(seen, documents)
        mixed, _ = self.attend(q, k, v, seen)
        return self.out(self.merge(mixed))

    def within(self, seen, documents):
        return seen & self.same(documents)

    def same(self, documents):
        return (documents[:, :, None] == documents[:, None, :])[:, None]

    def place(self, x, documents):
        """``(L, E)``, or ``(B, L, E)`` where each document begins anew."""
        index = torch.arange(x.shape[1])
        if documents is not None:
            index = index - self.first(documents, index)
        return self.table[index]

    def first(self, documents, index):
        """Where the document of each token begins, ``(B, L)``."""
        begins = torch.ones_like(documents, dtype=torch.bool)
        begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
        return torch.where(begins, index, 0).cummax(dim=1).values


class Fused(Layer):
    """Self-attention alone; one product for query, key and value."""

    def __init__(self, embed_dim=24, num_heads=3, *, dropout=0.0):
        nn.Module.__init__(self)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.num_kv_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.dropout = dropout
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, x, mask=None, causal=False):
        B, L, _ = x.shape
        q, k, v = self.pieces(self.qkv(x), B, L)
        seen, bias = self.seen(x, x, mask, None, causal)
        mixed, _ = self.attend(q, k, v, seen, bias)
        return self.proj(self.merge(mixed))

    def pieces(self, x, B, L):
        """``(B, L, 3 * H * D)`` into three of ``(B, H, L, D)``."""
        return x.view(B, L, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)

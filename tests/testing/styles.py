"""Right layers in the ways in which attention is written elsewhere, with hooks to break them.

``told`` is what `check_attention` has to be told of each.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def strong(module):
    """Weights large enough that attention isn't uniform."""
    for parameter in module.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.3)
    return module


class SmallGPT(nn.Module):
    """A causal layer with one fused matrix, and its triangle in a buffer."""

    told = {"causal": True}  # noqa: RUF012

    def __init__(self, n_embd=24, n_head=3, dropout=0.1, block_size=64):
        super().__init__()
        self.n_embd, self.n_head = n_embd, n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.attn_dropout, self.resid_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.register_buffer("tril", self.triangle(block_size).view(1, 1, block_size, block_size))
        strong(self)

    def triangle(self, size):
        return torch.tril(torch.ones(size, size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (self.cut(y, B, T, C) for y in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * self.factor(q, C)
        att = self.hidden(att, T)
        att = self.attn_dropout(F.softmax(att, dim=-1))
        y = self.joined(att @ v, B, T, C)
        return self.resid_dropout(self.c_proj(y))

    def cut(self, y, B, T, C):
        return y.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)

    def factor(self, q, C):
        return 1.0 / math.sqrt(q.size(-1))

    def hidden(self, att, T):
        return att.masked_fill(self.tril[:, :, :T, :T] == 0, float("-inf"))

    def joined(self, y, B, T, C):
        return y.transpose(1, 2).contiguous().view(B, T, C)


class Annotated(nn.Module):
    """Four equal matrices in a list; 0 in the mask hides, one mask for each sequence."""

    told = {"mask": "mask", "num_heads": 3, "embed_dim": 24, "empty_rows": "any"}  # noqa: RUF012

    def __init__(self, h=3, d_model=24, dropout=0.1):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(p=dropout)
        strong(self)

    def attention(self, query, key, value, mask=None):
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
        if mask is not None:
            scores = self.filled(scores, mask)
        p_attn = scores.softmax(dim=-1)
        return torch.matmul(self.dropout(p_attn), value)

    def filled(self, scores, mask):
        return scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)

    def forward(self, query, key, value, mask=None):
        if mask is not None and mask.dim() > 2:
            mask = self.spread(mask)
        n = query.size(0)
        query, key, value = self.heads((query, key, value), n)
        x = self.attention(query, key, value, mask)
        x = x.transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k)
        return self.linears[-1](x)

    def spread(self, mask):
        """``(B, L, S)``, the same for all heads."""
        return mask.unsqueeze(1) if mask.dim() == 3 else mask

    def heads(self, inputs, n):
        pairs = zip(self.linears, inputs, strict=False)
        return [lin(x).view(n, -1, self.h, self.d_k).transpose(1, 2) for lin, x in pairs]


class BertLike(nn.Module):
    """Masks are floats, 0 and the lowest number, ``(B, 1, L, S)``; probabilities come along."""

    told = {  # noqa: RUF012
        "mask": "attention_mask",
        "mask_true": "add",
        "weights": "output_attentions",
        "num_heads": 3,
        "embed_dim": 24,
    }

    def __init__(self, hidden_size=24, heads=3, dropout=0.1):
        super().__init__()
        self.heads, self.size = heads, hidden_size // heads
        self.query, self.key, self.value, self.dense = (
            nn.Linear(hidden_size, hidden_size) for _ in range(4)
        )
        self.dropout = nn.Dropout(dropout)
        strong(self)

    def turned(self, x):
        return x.view(*x.shape[:-1], self.heads, self.size).permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask=None, output_attentions=False):
        q, k, v = (self.turned(f(hidden_states)) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.size)
        if attention_mask is not None:
            scores = self.masked(scores, attention_mask)
        probs = self.probabilities(scores)
        context = (self.dropout(probs) @ v).permute(0, 2, 1, 3).contiguous()
        output = self.dense(context.view(*context.shape[:-2], -1))
        return (output, self.given(probs, scores)) if output_attentions else output

    def masked(self, scores, mask):
        return scores + mask

    def probabilities(self, scores):
        return scores.softmax(dim=-1)

    def given(self, probs, scores):
        return probs


class ComplexRotary(nn.Module):
    """Grouped heads, causal; neighbours are turned as complex numbers, from a table."""

    told = {  # noqa: RUF012
        "causal": True,
        "positions": "rotary",
        "rotary": ("interleaved", 10000.0),
        "num_heads": 6,
        "num_kv_heads": 2,
        "embed_dim": 48,
    }

    def __init__(self, dim=48, n_heads=6, n_kv_heads=2, theta=10000.0):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.size = n_heads, n_kv_heads, dim // n_heads
        self.theta = theta
        self.wq = nn.Linear(dim, n_heads * self.size, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.size, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.size, bias=False)
        self.wo = nn.Linear(n_heads * self.size, dim, bias=False)
        strong(self)

    def table(self, length):
        steps = 1.0 / self.theta ** (torch.arange(0, self.size, 2).double() / self.size)
        angles = torch.outer(torch.arange(length).double(), steps)
        return torch.polar(torch.ones_like(angles), angles)[:, None]  # (L, 1, D / 2)

    def turned(self, x):
        """``(B, L, H, D)``."""
        pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(self.times(pairs, self.table(x.shape[1]))).flatten(3).to(x.dtype)

    def times(self, pairs, table):
        return pairs * table

    def repeated(self, x):
        B, L, G, D = x.shape
        n = self.n_heads // self.n_kv_heads
        return x[:, :, :, None, :].expand(B, L, G, n, D).reshape(B, L, G * n, D)

    def forward(self, x):
        B, L, _ = x.shape
        q = self.wq(x).view(B, L, self.n_heads, self.size)
        k, v = (w(x).view(B, L, self.n_kv_heads, self.size) for w in (self.wk, self.wv))
        q, k = self.turned(q), self.turned(k)
        k, v = self.repeated(k), self.repeated(v)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        scores = self.scores(q, k)
        if L > 1:
            scores = scores + self.triangle(L, x)
        output = self.weights(scores, q) @ v
        return self.wo(output.transpose(1, 2).contiguous().view(B, L, -1))

    def scores(self, q, k):
        return (
            q.float() @ k.float().mT / math.sqrt(self.size)
            if q.dtype != torch.float64
            else (q @ k.mT / math.sqrt(self.size))
        )

    def triangle(self, L, x):
        return torch.triu(torch.full((L, L), float("-inf")), diagonal=1)

    def weights(self, scores, q):
        return F.softmax(scores, dim=-1).type_as(q)


class Picture(nn.Module):
    """Of patches: fused, without masks; queries, keys and values are the first axis."""

    told: dict = {}  # noqa: RUF012

    def __init__(self, dim=24, num_heads=3, attn_drop=0.1, proj_drop=0.0):
        super().__init__()
        self.dim, self.num_heads = dim, num_heads
        self.scale = self.factor(dim, num_heads)
        self.qkv = nn.Linear(dim, dim * 3)
        self.attn_drop, self.proj_drop = nn.Dropout(attn_drop), nn.Dropout(proj_drop)
        self.proj = nn.Linear(dim, dim)
        strong(self)

    def factor(self, dim, num_heads):
        return (dim // num_heads) ** -0.5

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.pieces(self.qkv(x), B, N, C)
        attn = self.shares((q * self.scale) @ k.transpose(-2, -1))
        x = self.joined(self.attn_drop(attn) @ v, B, N, C)
        return self.proj_drop(self.proj(x))

    def pieces(self, x, B, N, C):
        cut = x.reshape(B, N, 3, self.num_heads, C // self.num_heads)
        return cut.permute(2, 0, 3, 1, 4).unbind(0)

    def shares(self, scores):
        return scores.softmax(dim=-1)

    def joined(self, x, B, N, C):
        return x.transpose(1, 2).reshape(B, N, C)


class LengthFirst(nn.Module):
    """``(L, B, E)``; heads lie in the batch, masks of pairs and of padding: True hides."""

    told = {  # noqa: RUF012
        "batch_first": False,
        "mask": "attn_mask",
        "mask_true": "ignore",
        "mask_heads": "B*H,L,S",
        "padding": "key_padding_mask",
        "weights": "need_weights",
    }

    def __init__(self, embed_dim=24, num_heads=3, dropout=0.1):
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout_p = dropout
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )
        strong(self)

    def folded(self, x, B):
        """``(L, B, E)`` into ``(B * H, L, D)``."""
        return x.contiguous().view(-1, B * self.num_heads, self.head_dim).transpose(0, 1)

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None, need_weights=False):
        L, B, E = query.shape
        q = self.folded(self.q_proj(query) * self.head_dim**-0.5, B)
        k, v = self.folded(self.k_proj(key), B), self.folded(self.v_proj(value), B)
        scores = torch.bmm(q, k.transpose(1, 2))
        if attn_mask is not None:
            scores = self.hidden(scores, attn_mask)
        if key_padding_mask is not None:
            scores = self.padded(scores, key_padding_mask, B)
        weights = scores.softmax(dim=-1)
        applied = F.dropout(weights, self.dropout_p, self.training)
        output = self.out_proj(self.unfolded(torch.bmm(applied, v), L, B, E))
        return (output, self.given(weights, applied, B)) if need_weights else output

    def hidden(self, scores, mask):
        if mask.dtype != torch.bool:
            return scores + mask
        return scores.masked_fill(mask, torch.finfo(scores.dtype).min)

    def padded(self, scores, padding, B):
        four = scores.view(B, self.num_heads, *scores.shape[-2:])
        low = torch.finfo(scores.dtype).min
        return four.masked_fill(padding[:, None, None, :], low).view_as(scores)

    def unfolded(self, x, L, B, E):
        return x.transpose(0, 1).contiguous().view(L, B, E)

    def given(self, weights, applied, B):
        return applied.view(B, self.num_heads, *weights.shape[-2:])


class Head(nn.Module):
    """One head of `Heads`."""

    def __init__(self, n_embd, head_size, block_size=64):
        super().__init__()
        self.key, self.query, self.value = (
            nn.Linear(n_embd, head_size, bias=False) for _ in range(3)
        )
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        T = x.shape[1]
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * self.factor(x, k)
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return self.dropout(F.softmax(wei, dim=-1)) @ self.value(x)

    def factor(self, x, k):
        return k.shape[-1] ** -0.5


class Heads(nn.Module):
    """Heads one after the other, each a module; causal."""

    told = {"causal": True, "num_heads": 3, "embed_dim": 24}  # noqa: RUF012
    head = Head

    def __init__(self, num_heads=3, n_embd=24):
        super().__init__()
        size = n_embd // num_heads
        self.heads = nn.ModuleList(self.head(n_embd, size) for _ in range(num_heads))
        self.proj = nn.Linear(n_embd, n_embd)
        strong(self)

    def forward(self, x):
        return self.proj(self.joined([head(x) for head in self.heads]))

    def joined(self, heads):
        return torch.cat(heads, dim=-1)


class Einsum(nn.Module):
    """Axes by letters, ``(B, L, H, D)``; from a sequence to a memory."""

    told = {"mask_heads": "B,H,L,S", "empty_rows": "any"}  # noqa: RUF012
    products, mixture = "blhd,bshd->bhls", "bhls,bshd->blhd"

    def __init__(self, embed_dim=24, num_heads=3):
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.to_q, self.to_k, self.to_v, self.to_out = (
            nn.Linear(embed_dim, embed_dim, bias=False) for _ in range(4)
        )
        strong(self)

    def forward(self, x, context=None, mask=None):
        context = x if context is None else context
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        q, k, v = (y.unflatten(-1, (self.num_heads, self.head_dim)) for y in (q, k, v))
        sim = torch.einsum(self.products, q, k) * self.head_dim**-0.5
        if mask is not None:
            sim = sim.masked_fill(~mask, -torch.finfo(sim.dtype).max)
        out = torch.einsum(self.mixture, self.shares(sim), v)
        return self.to_out(self.joined(out))

    def shares(self, sim):
        return sim.softmax(dim=-1)

    def joined(self, out):
        return out.flatten(-2)


class Room:
    """Memory of a fixed size, filled from the front."""

    def __init__(self, size=64):
        self.size, self.at = size, 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def put(self, k, v):
        if self.keys is None:
            shape = (*k.shape[:2], self.size, k.shape[3])
            self.keys, self.values = (
                torch.zeros(shape, dtype=k.dtype),
                torch.zeros(shape, dtype=k.dtype),
            )
        end = self.at + k.shape[2]
        self.keys[:, :, self.at : end], self.values[:, :, self.at : end] = k, v
        self.at = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def crop(self, length):
        self.at = length


class FixedRoom(nn.Module):
    """Causal, with a cache of fixed size; learned positions are added to the input."""

    told = {  # noqa: RUF012
        "causal": True,
        "cache": "cache",
        "new_cache": Room,
        "positions": "absolute",
    }

    def __init__(self, embed_dim=24, num_heads=3):
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.places = nn.Embedding(64, embed_dim)
        self.c_attn = nn.Linear(embed_dim, 3 * embed_dim)
        self.c_proj = nn.Linear(embed_dim, embed_dim)
        strong(self)

    def forward(self, x, cache=None):
        L, past = x.shape[1], 0 if cache is None else cache.at
        x = x + self.places(self.index(past, L))
        q, k, v = self.c_attn(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = cache.put(k.detach(), v.detach())
        seen = self.seen(L, k.shape[2], past)
        y = F.scaled_dot_product_attention(q, k, v, seen)
        return self.c_proj(y.transpose(1, 2).flatten(-2))

    def index(self, past, L):
        return torch.arange(past, past + L)

    def seen(self, L, S, past):
        return torch.arange(S) <= torch.arange(past, past + L)[:, None]


class Block(nn.Module):
    """Norm, attention, residual; norm, two layers, residual. Causal."""

    told = {"causal": True, "num_heads": 3, "embed_dim": 24}  # noqa: RUF012

    def __init__(self, embed_dim=24):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.attn = SmallGPT(embed_dim)
        self.mlp = nn.Sequential(
            nn.Linear(embed_dim, 4 * embed_dim), nn.GELU(), nn.Linear(4 * embed_dim, embed_dim)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


STYLES = (
    SmallGPT,
    Annotated,
    BertLike,
    ComplexRotary,
    Picture,
    LengthFirst,
    Heads,
    Einsum,
    FixedRoom,
    Block,
)

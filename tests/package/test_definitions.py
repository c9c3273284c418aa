"""Each fast form computes what its definition says: any sizes, masks, dtypes, and gradients."""

import zlib

import pytest
import torch

from mhattn import attention, padding_mask, repeat_heads, window_mask
from mhattn.core import fused_attention
from mhattn.variants import (
    LearnedBias,
    RelativePosition,
    latent_attention_absorbed,
    latent_attention_expanded,
    relative_attention,
    relative_blocks,
    tiled_attention,
)

PRIMES = 3, 5, 7, 11, 13, 37, 41, 43  # beyond 32, `relative_blocks` has several blocks
B, H, H_KV, K = 2, 6, 3, 2  # K: the largest distance with vectors of its own
TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-4, torch.bfloat16: 0.1, torch.float16: 0.02}
MASKS = {
    "none": lambda L, S: None,
    "padding": lambda L, S: padding_mask(torch.tensor([S - 2, 1]), S),
    "a sequence without keys": lambda L, S: padding_mask(torch.tensor([0, S]), S),
    "window": lambda L, S: window_mask(L, S, 2),
    "random": lambda L, S: torch.rand(B, H, L, S) < 0.4,
    "one for each query": lambda L, S: torch.rand(L, 1) < 0.5,
}


def written_out(query, key, value, **options):
    return attention(query, key, value, **options, return_weights=True)[0]


def repeated(query, key, value, **options):
    return attention(query, repeat_heads(key, query), repeat_heads(value, query), **options)


def tiled(*inputs, bias=None, **options):
    return tiled_attention(*inputs, block_size=4, **options)


def by_distance(table, L, S):
    distance = torch.arange(S) - torch.arange(S - L, S)[:, None]
    return table[:, distance + table.shape[-1] // 2]


def with_table(query, key, value, table, **options):
    bias = by_distance(table, query.shape[-2], key.shape[-2])
    return written_out(query, key, value, bias=bias, **options)


def learned_bias(query, key, value, table, **options):
    position = LearnedBias(H, 44).to(query.dtype)
    return called(position, {"table": table}, query, key, value, **options)


def with_vectors(*inputs, **options):
    return relative_attention(*inputs, **options)[0]


def relative_position(query, key, value, *vectors, **options):
    position = RelativePosition(query.shape[-1], K).to(query.dtype)
    names = "key_vectors", "value_vectors"
    learned = dict(zip(names, vectors, strict=True))
    return called(position, learned, query, key, value, **options)


def called(position, learned, *inputs, **options):
    for name, tensor in learned.items():  # tensors with gradients, where parameters were
        delattr(position, name)
        setattr(position, name, tensor)
    return position.attend(*inputs, **options)


def three(L, S, D, D_v):
    return [(B, H, L, D), (B, H_KV, S, D), (B, H_KV, S, D_v)]


FORMS = {  # the definition, the fast form, the shapes of their inputs
    "attention": (written_out, fused_attention, three),
    "grouped heads": (repeated, attention, three),
    "online softmax": (written_out, tiled, three),
    "latent": (
        latent_attention_expanded,
        latent_attention_absorbed,
        lambda L, S, D, D_v: [(B, H, L, D + 2), (B, 1, S, 29 + 2), (H, D, 29), (H, D_v, 29)],
    ),
    "learned bias": (
        with_table,
        learned_bias,
        lambda L, S, D, D_v: [*three(L, S, D, D_v), (H, 2 * 44 - 1)],
    ),
    "relative": (
        with_vectors,
        relative_position,
        lambda L, S, D, D_v: [*three(L, S, D, D), *[(2 * K + 1, D)] * 2],
    ),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    for name, size in {"ROOM": 256, "ROWS": 4, "CAUSAL_ROWS": 3}.items():
        monkeypatch.setattr(relative_blocks, name, size)


@pytest.fixture
def sizes(request):
    """Four different primes, other ones for each test."""
    draw = torch.Generator().manual_seed(zlib.crc32(request.node.name.encode()))
    return [PRIMES[i] for i in torch.randperm(len(PRIMES), generator=draw)[:4]]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", FORMS)
def test_the_fast_form_computes_the_definition(name, mask, is_causal, dtype, sizes):
    definition, fast, shapes = FORMS[name]
    L, S, D, D_v = sizes
    options = {"mask": MASKS[mask](L, S), "is_causal": is_causal}
    given = [(0.5 * torch.randn(shape)).to(dtype) for shape in shapes(L, S, D, D_v)]
    inputs = [x.clone().requires_grad_() for x in given]
    exact_inputs = [x.double().requires_grad_() for x in given]
    exact, got = definition(*exact_inputs, **options), fast(*inputs, **options)
    near = {"atol": TOLERANCES[dtype], "rtol": TOLERANCES[dtype]}
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), exact, **near)
    with torch.no_grad():
        torch.testing.assert_close(fast(*inputs, **options).double(), exact, **near)
    if dtype in (torch.float64, torch.float32):
        change = torch.randn_like(exact)
        expected = torch.autograd.grad(exact, exact_inputs, change, materialize_grads=True)
        found = torch.autograd.grad(got, inputs, change.to(dtype), materialize_grads=True)
        for ours, right in zip(found, expected, strict=True):
            torch.testing.assert_close(ours.double(), right, **near)

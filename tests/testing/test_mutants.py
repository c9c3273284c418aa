"""The bases of the mutants are right, by PyTorch; each mutant behaves otherwise than its base."""

import functools

import bases
import probes
import pytest
import torch
import torch.nn.functional as F
from mutants import MUTANTS
from torch import nn

B, H, G, L, S, D = 2, 6, 2, 5, 7, 4


def heads(seed=0, G=H, L=L, S=S):
    shapes = (B, H, L, D), (B, G, S, D), (B, G, S, D)
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=source) for shape in shapes]


def built(make, seed=0):
    torch.manual_seed(seed)
    return make()


@pytest.mark.parametrize("G", [6, 2, 1])
def test_the_function_is_right(G):
    query, key, value = heads(G=G)
    mask = torch.rand(B, 1, L, S) < 0.6
    mask[..., 0] = True
    for given in (mask, torch.randn(B, H, L, S)):
        theirs = F.scaled_dot_product_attention(query, key, value, given, enable_gqa=True)
        torch.testing.assert_close(bases.Attend()(query, key, value, given), theirs)
    causal = torch.ones(L, S, dtype=torch.bool).tril(S - L)
    theirs = F.scaled_dot_product_attention(query, key, value, causal, enable_gqa=True)
    torch.testing.assert_close(bases.Attend()(query, key, value, is_causal=True), theirs)


def test_the_window_is_right():
    query, key, value = heads()
    distance = torch.arange(S - L, S)[:, None] - torch.arange(S)
    seen = (distance >= 0) & (distance < 4)
    theirs = F.scaled_dot_product_attention(query, key, value, seen)
    torch.testing.assert_close(bases.Windowed()(query, key, value), theirs)


def test_blocks_are_right():
    from mutants.functions import Blockwise

    query, key, value = heads(L=9, S=11)
    theirs = F.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(Blockwise()(query, key, value), theirs)


def from_torch(theirs):
    """Our base with their weights."""
    ours = bases.Layer(theirs.embed_dim, theirs.num_heads)
    for proj, weight, bias in zip(
        (ours.q_proj, ours.k_proj, ours.v_proj),
        theirs.in_proj_weight.chunk(3),
        theirs.in_proj_bias.chunk(3),
        strict=True,
    ):
        proj.weight.data, proj.bias.data = weight.data, bias.data
    ours.out_proj.load_state_dict(theirs.out_proj.state_dict())
    return ours


def test_the_layer_is_right():
    theirs = nn.MultiheadAttention(24, 3, batch_first=True)
    nn.init.normal_(theirs.in_proj_bias)
    ours = from_torch(theirs)
    query, key, value = torch.randn(B, L, 24), torch.randn(B, S, 24), torch.randn(B, S, 24)
    hidden = torch.tensor([[False] * S, [False] * 4 + [True] * 3])
    found, weights = ours(query, key, value, key_padding_mask=hidden, need_weights=True)
    expected = theirs(query, key, value, key_padding_mask=hidden, average_attn_weights=False)
    torch.testing.assert_close(found, expected[0])
    torch.testing.assert_close(weights, expected[1])
    x = torch.randn(B, L, 24)
    causal = torch.ones(L, L, dtype=torch.bool).triu(1)
    torch.testing.assert_close(ours(x, is_causal=True), theirs(x, x, x, attn_mask=causal)[0])


def test_the_fused_layer_is_right():
    theirs = nn.MultiheadAttention(24, 3, batch_first=True)
    ours = bases.Fused(24, 3)
    ours.qkv.weight.data, ours.qkv.bias.data = theirs.in_proj_weight.data, theirs.in_proj_bias.data
    ours.proj.load_state_dict(theirs.out_proj.state_dict())
    x = torch.randn(B, L, 24)
    torch.testing.assert_close(ours(x), theirs(x, x, x)[0])


@pytest.mark.parametrize("window", [None, 4])
def test_the_decoder_is_right(window):
    """Turned as complex numbers, and the same with a cache in chunks."""
    ours, x = bases.Decoder(window=window), torch.randn(B, 11, 48)

    def turned(x):
        a, b = x.double().chunk(2, dim=-1)
        angles = torch.arange(11)[:, None] * 10000.0 ** (-torch.arange(0, 8, 2).double() / 8)
        pairs = torch.complex(a, b) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([pairs.real, pairs.imag], dim=-1).float()

    q, k, v = ours.project(x, x, x)
    distance = torch.arange(11)[:, None] - torch.arange(11)
    seen = (distance >= 0) & (distance < (window or 99))
    mixed = F.scaled_dot_product_attention(turned(q), turned(k), v, seen, enable_gqa=True)
    expected = ours.out_proj(mixed.transpose(1, 2).reshape(B, 11, -1))
    torch.testing.assert_close(ours(x), expected, rtol=1e-4, atol=1e-5)
    cache = bases.Cache()
    found = [ours(part, cache=cache) for part in x.split([4, 1, 3, 1, 2], dim=1)]
    torch.testing.assert_close(torch.cat(found, dim=1), expected, rtol=1e-4, atol=1e-5)


def test_the_other_decoder_is_right():
    one, other = built(bases.Decoder), built(bases.TupleDecoder)
    x, past, found = torch.randn(B, 7, 48), None, []
    for part in x.split([3, 1, 2, 1], dim=1):
        output, past = other(part, past)
        found.append(output)
    torch.testing.assert_close(torch.cat(found, dim=1), one(x), rtol=1e-4, atol=1e-5)


def test_the_packed_layer_is_right():
    ours, x = bases.Packed(), torch.randn(1, 9, 24)
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 2, 2, 2]])
    alone = [ours(part) for part in x.split([4, 2, 3], dim=1)]
    torch.testing.assert_close(ours(x, documents), torch.cat(alone, dim=1))


HOW = ("num_heads", "num_kv_heads", "batch_first")


@functools.cache
def right_behaviour(right, sizes, how):
    """Of a right class; twice the same, or the comparison says nothing."""
    how, sizes = dict(how), dict(sizes)
    one = dict(probes.behaviour(built(lambda: right(**sizes)), how))
    assert probes.difference(built(lambda: right(**sizes)), how, one) is None
    return one


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_differs_from_what_it_was_made_of(mutant):
    asked = {name: mutant.how[name] for name in HOW if name in mutant.how}
    if "new_cache" in mutant.how:
        asked["new_cache"] = getattr(mutant.right, "told", {}).get("new_cache", bases.Cache)
    right = right_behaviour(mutant.right, tuple(sorted(mutant.sizes.items())), tuple(asked.items()))
    assert probes.difference(built(mutant.make), mutant.how, right)


def test_mutants_are_many_and_have_names_of_their_own():
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) >= 200
    assert len(set(names)) == len(names)

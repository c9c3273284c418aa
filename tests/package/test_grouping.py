"""Pooled heads against means by hand, and planted heads that are equal already."""

import copy
import functools

import pytest
import torch
from torch import nn

from mhattn import KVCache, MultiHeadAttention, Rotary
from mhattn.variants import local_attention, pool_kv_heads

B, L, S, E, H, D = 2, 5, 7, 17, 12, 4


def layer(num_kv_heads=H, **options):
    mha = MultiHeadAttention(E, H, num_kv_heads=num_kv_heads, head_dim=D, **options).double()
    for parameter in mha.parameters():  # also the biases, which start at zero
        nn.init.normal_(parameter)
    return mha


def rows(projection, head):
    """What belongs to one head: its rows of the weight, its entries of the bias."""
    own = slice(head * D, (head + 1) * D)
    bias = projection.bias
    return projection.weight[own], None if bias is None else bias[own]


@torch.no_grad()
def plant_equal_heads(mha, source_of):
    """Each key-value head becomes a copy of another."""
    for projection in (mha.k_proj, mha.v_proj):
        for head in range(mha.num_kv_heads):
            pair = rows(projection, head), rows(projection, source_of(head))
            for own, source in zip(*pair, strict=True):
                if own is not None:
                    own.copy_(source)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("bias", [True, False])
def test_each_new_head_is_the_mean_of_its_group(num_kv_heads, bias):
    mha = layer(bias=bias)
    pooled = pool_kv_heads(mha, num_kv_heads)
    assert pooled.num_kv_heads == num_kv_heads
    group = H // num_kv_heads
    for name in ("k_proj", "v_proj"):
        old, new = getattr(mha, name), getattr(pooled, name)
        assert new.weight.shape == (num_kv_heads * D, E)
        for head in range(num_kv_heads):
            own = [rows(old, head * group + i) for i in range(group)]
            mean_weight = sum(weight for weight, _ in own) / group
            torch.testing.assert_close(rows(new, head)[0], mean_weight)
            if bias:
                mean_bias = sum(bias for _, bias in own) / group
                torch.testing.assert_close(rows(new, head)[1], mean_bias)
        assert (new.bias is not None) == bias
    for name in ("q_proj", "out_proj"):
        assert getattr(pooled, name).weight.equal(getattr(mha, name).weight)


OPTIONS = [{}, {"bias": False}, {"kdim": 13, "vdim": 11}, {"position": Rotary(D)}]


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_equal_heads_lose_nothing(num_kv_heads, options, is_causal):
    mha = layer(**options)
    plant_equal_heads(mha, lambda head: head - head % (H // num_kv_heads))
    pooled = pool_kv_heads(mha, num_kv_heads)
    query = torch.randn(B, L, E, dtype=torch.float64)
    key = torch.randn(B, S, mha.kdim, dtype=torch.float64)
    value = torch.randn(B, S, mha.vdim, dtype=torch.float64)
    expected, weights = mha(query, key, value, is_causal=is_causal, return_weights=True)
    output, pooled_weights = pooled(query, key, value, is_causal=is_causal, return_weights=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(pooled_weights, weights)
    fused = pooled(query, key, value, is_causal=is_causal)
    torch.testing.assert_close(fused, expected)


def test_heads_equal_in_another_order_are_not_the_same_function():
    """Groups are neighbours: heads that alternate are not groups."""
    mha = layer()
    plant_equal_heads(mha, lambda head: head % 2)
    x = torch.randn(B, L, E, dtype=torch.float64)
    assert not torch.allclose(pool_kv_heads(mha, 2)(x), mha(x), atol=1e-2)


def test_pooling_twice_is_pooling_once():
    mha = layer()
    twice = pool_kv_heads(pool_kv_heads(mha, 6), 2)
    once = pool_kv_heads(mha, 2)
    for name, tensor in once.state_dict().items():
        torch.testing.assert_close(twice.state_dict()[name], tensor)


def test_all_heads_pooled_to_all_heads_are_the_same_layer():
    mha = layer(num_kv_heads=3)
    for name, tensor in pool_kv_heads(mha, 3).state_dict().items():
        assert tensor.equal(mha.state_dict()[name])


def test_the_cache_shrinks_by_the_group():
    mha, x = layer(), torch.randn(B, L, E, dtype=torch.float64)
    caches = [KVCache(L), KVCache(L)]
    for module, cache in zip((mha, pool_kv_heads(mha, 3)), caches, strict=True):
        module(x, is_causal=True, cache=cache)
    assert caches[0].nbytes == 4 * caches[1].nbytes


@pytest.mark.parametrize("training", [True, False])
def test_dtype_dropout_training_and_position_are_kept(training):
    mha = MultiHeadAttention(E, H, head_dim=D, dropout=0.3, position=Rotary(D, base=37.0))
    pooled = pool_kv_heads(mha.to(torch.bfloat16).train(training), 4)
    assert {p.dtype for p in pooled.parameters()} == {torch.bfloat16}
    assert [m.training for m in (pooled, pooled.k_proj, pooled.position)] == [training] * 3
    assert (pooled.dropout, pooled.position.base) == (0.3, 37.0)
    assert pooled.position is not mha.position


def test_the_weights_are_copies():
    mha = layer()
    before = copy.deepcopy(mha.state_dict())
    pooled = pool_kv_heads(mha, 12)
    with torch.no_grad():
        for parameter in pooled.parameters():
            parameter += 1
    assert all(tensor.equal(before[name]) for name, tensor in mha.state_dict().items())


def test_half_precision_means_are_rounded_once():
    mha = layer().to(torch.bfloat16)
    exact = mha.k_proj.weight.double().unflatten(0, (2, 6, D)).mean(dim=1).flatten(0, 1)
    assert pool_kv_heads(mha, 2).k_proj.weight.equal(exact.to(torch.bfloat16))


@pytest.mark.parametrize(
    ("error", "text", "arguments"),
    [
        (ValueError, "num_kv_heads must divide the module's num_kv_heads, 12, got 5", (layer(), 5)),
        (ValueError, "num_kv_heads must divide the module's num_kv_heads, 3, got 6", (layer(3), 6)),
        (ValueError, "num_kv_heads must be at least 1, got 0", (layer(), 0)),
        (TypeError, "num_kv_heads must be an integer, got float", (layer(), 2.0)),
        (TypeError, "must be a MultiHeadAttention, got Linear", (nn.Linear(2, 3), 1)),
    ],
)
def test_what_cannot_be_pooled_is_named(error, text, arguments):
    with pytest.raises(error, match=text):
        pool_kv_heads(*arguments)


def test_pooling_keeps_how_the_heads_attend():
    mha = layer(num_kv_heads=4, attend=functools.partial(local_attention, window=2))
    x = torch.randn(B, L, E).double()
    pooled = pool_kv_heads(mha, 4)  # the same heads
    torch.testing.assert_close(pooled(x, is_causal=True), mha(x, is_causal=True))

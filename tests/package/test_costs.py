"""Against a count by hand, the module's parameters and torch's FLOP counter."""

import itertools

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mhattn import KVCache, MultiHeadAttention
from mhattn.costs import (
    attention_cost,
    kv_cache_bytes,
    kv_cache_numbers,
    latent_multiplications,
    latent_parameters,
)
from mhattn.variants import LatentAttention, latent_attention

GRID = list(
    itertools.product(
        [(12, 3), (20, 4), (7, 1)],  # embed_dim, num_heads
        [None, 1],  # num_kv_heads
        [None, 5],  # head_dim
        [(5, None), (5, 11), (1, 13)],  # query_len, key_len
        [1, 3],  # batch
        [True, False],  # bias
    )
)


def test_the_example_by_hand():
    cost = attention_cost(8, 2, query_len=4, bias=False)
    by_hand = {"query": 256, "key": 256, "value": 256, "scores": 128, "mix": 128, "output": 256}
    assert {step.name: step.multiplications for step in cost.steps} == by_hand
    assert cost.multiplications == 1280
    assert cost.flops == 2560
    assert cost.parameters == 4 * 8 * 8
    assert cost.exponentials == 2 * 4 * 4


def test_bert_base_by_hand():
    cost = attention_cost(768, 12, query_len=128)
    assert cost.parameters == 4 * (768 * 768 + 768) == 2_362_368
    assert cost.multiplications == 4 * 128 * 768**2 + 2 * 128**2 * 768 == 327_155_712


def test_steps_by_hand_when_every_size_differs():
    cost = attention_cost(
        17, 6, query_len=5, key_len=7, batch=2, num_kv_heads=3, head_dim=11, bias=True
    )
    by_hand = {
        "query": (2 * 5 * 17 * 66, 18 * 66),
        "key": (2 * 7 * 17 * 33, 18 * 33),
        "value": (2 * 7 * 17 * 33, 18 * 33),
        "scores": (2 * 6 * 5 * 7 * 11, 0),
        "mix": (2 * 6 * 5 * 7 * 11, 0),
        "output": (2 * 5 * 66 * 17, 67 * 17),
    }
    assert {s.name: (s.multiplications, s.parameters) for s in cost.steps} == by_hand
    assert cost["scores"].product == "12 × (5, 11) (11, 7)"
    assert cost["mix"].product == "12 × (5, 7) (7, 11)"
    assert cost["query"].product == "(10, 17) (17, 66)"
    assert cost.exponentials == 2 * 6 * 5 * 7


@pytest.mark.parametrize("fused", [True, False], ids=["SDPA, math backend", "written out"])
def test_parameters_and_flops_are_torchs_over_a_grid(fused):
    for (embed_dim, heads), kv_heads, head_dim, (queries, keys), batch, bias in GRID:
        options = {"num_kv_heads": kv_heads, "head_dim": head_dim, "bias": bias}
        module = MultiHeadAttention(embed_dim, heads, **options)
        query = torch.randn(batch, queries, embed_dim)
        key = query if keys is None else torch.randn(batch, keys, embed_dim)
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            module(query, key, return_weights=not fused)
        cost = attention_cost(
            embed_dim, heads, query_len=queries, key_len=keys, batch=batch, **options
        )
        assert cost.parameters == sum(p.numel() for p in module.parameters())
        assert cost.flops == counter.get_total_flops() == 2 * cost.multiplications


# Every width a prime of its own; with the first the absorbed form can win, with the second not.
LATENT = [
    {"kv_lora_rank": 23, "qk_nope_head_dim": 7, "qk_rope_head_dim": 2, "v_head_dim": 11},
    {"kv_lora_rank": 5, "qk_nope_head_dim": 13, "qk_rope_head_dim": 2, "v_head_dim": 17},
]


@pytest.mark.parametrize("sizes", LATENT, ids=["wide latent", "narrow latent"])
@pytest.mark.parametrize("absorb", [False, True])
@pytest.mark.parametrize("lengths", [(1, 19), (3, 19), (19, 19)])
def test_latent_multiplications_are_torchs(sizes, absorb, lengths):
    (heads, (L, S)), (R, D, turned, D_v) = (3, lengths), sizes.values()
    query, kept = torch.randn(1, heads, L, D + turned), torch.randn(1, 1, S, R + turned)
    matrices = torch.randn(heads, D, R), torch.randn(heads, D_v, R)
    with FlopCounterMode(display=False) as counter:
        latent_attention(query, kept, *matrices, absorb=absorb, return_weights=True)
    one_head = latent_multiplications(L, S, **sizes, absorb=absorb)
    assert counter.get_total_flops() == 2 * heads * one_head


@pytest.mark.parametrize("q_lora_rank", [None, 29])
def test_latent_parameters_and_cache_are_those_of_a_layer(q_lora_rank):
    sizes = LATENT[0] | {"q_lora_rank": q_lora_rank}
    layer, cache = LatentAttention(31, 3, **sizes), KVCache(max_len=5)
    assert latent_parameters(31, 3, **sizes) == sum(
        parameter.numel() for parameter in layer.parameters() if parameter.ndim == 2
    )
    layer(torch.randn(1, 5, 31), is_causal=True, cache=cache)
    numbers = kv_cache_numbers(1, 23 + 2, 0)
    assert kv_cache_bytes(5, numbers, bytes_per_number=4) == cache.nbytes


def test_cache_bytes_are_those_of_grouped_heads():
    layer, cache = MultiHeadAttention(21, 6, num_kv_heads=3, head_dim=7), KVCache(max_len=5)
    layer(torch.randn(2, 5, 21), is_causal=True, cache=cache)
    numbers = kv_cache_numbers(3, 7, 7)
    assert 2 * kv_cache_bytes(5, numbers, bytes_per_number=4) == cache.nbytes


def test_the_number_of_heads_changes_the_softmax_only():
    costs = [attention_cost(64, heads, query_len=16) for heads in (1, 2, 4, 8)]
    assert len({(cost.flops, cost.parameters) for cost in costs}) == 1
    assert [cost.exponentials for cost in costs] == [heads * 256 for heads in (1, 2, 4, 8)]


def test_counts_are_exact_where_floats_are_not():
    cost = attention_cost(16_384, 128, query_len=10**6 + 1, batch=3)
    n = 10**6 + 1
    assert cost.multiplications == 3 * (4 * n * 16_384**2 + 2 * n**2 * 16_384)
    assert isinstance(cost.flops, int)


def test_the_table_is_aligned():
    text = str(attention_cost(768, 12, query_len=128))
    lines = text.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("step", "query", "key", "value", "scores", "mix", "output", "total", "softmax")
    ]
    assert len({len(line) for line in lines[:-1]}) == 1
    assert lines[-2].split() == ["total", "2,362,368", "327,155,712", "654,311,424"]
    assert "12 × (128, 64) (64, 128)" in lines[4]
    assert "196,608 exponentials" in lines[-1]


def test_an_unknown_step_is_named():
    with pytest.raises(KeyError, match="no step 'logits', only query, key, value, scores, mix"):
        attention_cost(8, 2, query_len=4)["logits"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"embed_dim": 9}, ValueError, "num_heads must divide embed_dim, 9, got 2"),
        ({"num_kv_heads": 3}, ValueError, "num_kv_heads must divide num_heads, 2, got 3"),
        ({"query_len": 0}, ValueError, "query_len must be at least 1, got 0"),
        ({"key_len": -1}, ValueError, "key_len must be at least 1, got -1"),
        ({"head_dim": 0}, ValueError, "head_dim must be at least 1, got 0"),
        ({"num_heads": 0}, ValueError, "num_heads must be at least 1, got 0"),
        ({"num_kv_heads": 0}, ValueError, "num_kv_heads must be at least 1, got 0"),
        ({"batch": 1.0}, TypeError, "batch must be an integer, got float"),
        ({"batch": True}, TypeError, "batch must be an integer, got bool"),
    ],
)
def test_wrong_sizes_are_named(options, error, message):
    sizes = {"embed_dim": 8, "num_heads": 2, "query_len": 4} | options
    with pytest.raises(error) as raised:
        attention_cost(**sizes)
    assert str(raised.value) == message

"""Against brute force, single layers' counts, torch's modules, and what autograd keeps."""

import itertools
import random

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mhattn import KVCache, MultiHeadAttention, causal_mask, window_mask
from mhattn.costs import (
    attention_cost,
    kept_bytes,
    known_model,
    known_models,
    kv_cache_bytes,
    kv_cache_numbers,
    latent_multiplications,
    latent_parameters,
    model_cost,
    visible_pairs,
)
from mhattn.variants import LatentAttention

SIZES = {"layers": 6, "embed_dim": 20, "num_heads": 4, "num_kv_heads": 2, "head_dim": 7}
LATENT = SIZES | {"num_kv_heads": 4, "q_lora_rank": 23, "kv_lora_rank": 11}
LATENT |= {"qk_rope_head_dim": 2, "v_head_dim": 5}


def test_visible_pairs_are_those_of_the_mask():
    for queries, more, window in itertools.product((1, 2, 5, 11), (0, 1, 7), (1, 2, 3, 11, 13, 30)):
        sizes = queries, queries + more
        mask = window_mask(*sizes, window=window) & causal_mask(*sizes)
        assert visible_pairs(*sizes, window) == mask.sum()
    assert visible_pairs(11, 11) == 66
    assert visible_pairs(10**9, 10**9) == 10**9 * (10**9 + 1) // 2


def test_a_layer_costs_what_attention_cost_counts():
    for heads, kv_heads, head_dim, tokens, batch in itertools.product(
        (4, 6), (1, 2), (3, 7), (1, 13), (1, 5)
    ):
        sizes = SIZES | {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": head_dim}
        cost = model_cost(**sizes, tokens=tokens, batch=batch)
        options = {"num_kv_heads": kv_heads, "head_dim": head_dim, "bias": False, "batch": batch}
        layer = attention_cost(20, heads, query_len=tokens, **options)
        assert cost.attention_parameters == 6 * layer.parameters
        assert cost.forward_flops == 6 * layer.flops
        assert cost.score_flops == 6 * (layer["scores"].flops + layer["mix"].flops)
        assert cost.training_flops == 18 * layer.flops
        new, cached = (
            attention_cost(20, heads, query_len=1, key_len=length, **options)
            for length in (1, tokens)
        )
        attended = cached["scores"].flops + cached["mix"].flops
        projected = new.flops - new["scores"].flops - new["mix"].flops
        assert cost.decode_flops == 6 * (projected + attended)
        numbers = kv_cache_numbers(kv_heads, head_dim, head_dim)
        assert cost.cache_bytes == batch * kv_cache_bytes(tokens, numbers, layers=6)
        assert cost.cache_bytes_per_token == kv_cache_bytes(1, numbers, layers=6)


def test_forward_and_training_are_torchs():
    """A gated MLP and grouped heads, forward and backward."""
    batch, tokens, hidden = 3, 13, 17
    attention = MultiHeadAttention(20, 4, num_kv_heads=2, head_dim=7, bias=False)
    gate, up, down = (
        torch.nn.Linear(*widths, bias=False) for widths in ((20, 17), (20, 17), (17, 20))
    )
    x = torch.randn(batch, tokens, 20, requires_grad=True)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        y = attention(x)
        y = down(gate(y) * up(y))
        forward = counter.get_total_flops()
        y.sum().backward()
    cost = model_cost(
        **SIZES | {"layers": 1}, tokens=tokens, batch=batch, mlp_dim=hidden, mlp_matrices=3
    )
    assert cost.forward_flops == forward
    assert cost.training_flops == counter.get_total_flops()
    assert cost.mlp_flops == 2 * batch * tokens * 3 * 20 * 17
    assert cost.mlp_parameters == 3 * 20 * 17


def test_latent_layers():
    tokens, batch = 13, 3
    cost = model_cost(**LATENT, tokens=tokens, batch=batch)
    widths = {"kv_lora_rank": 11, "qk_nope_head_dim": 7, "qk_rope_head_dim": 2, "v_head_dim": 5}
    one = latent_parameters(20, 4, q_lora_rank=23, **widths)
    assert cost.attention_parameters == 6 * one
    up = 4 * 11 * (7 + 5)  # counted by latent_multiplications, with scores and mixing
    expanded = 4 * latent_multiplications(tokens, tokens, **widths, absorb=False)
    assert cost.forward_flops == 2 * batch * 6 * (tokens * (one - up) + expanded)
    absorbed = 4 * latent_multiplications(1, tokens, **widths, absorb=True)
    assert cost.decode_flops == 2 * batch * 6 * (one - up + absorbed)
    layer, cache = LatentAttention(20, 4, q_lora_rank=23, **widths), KVCache(max_len=tokens)
    layer(torch.randn(batch, tokens, 20), is_causal=True, cache=cache)
    assert 6 * cache.nbytes == 2 * cost.cache_bytes  # float32


def test_windows_and_shared_caches():
    options = {"tokens": 13, "batch": 3, "window": 5, "global_layers": 2}
    cost, plain = model_cost(**SIZES, **options), model_cost(**SIZES, tokens=13, batch=3)
    per_pair = 2 * 3 * 4 * (7 + 7)
    windowed, every = 5 * 6 // 2 + 8 * 5, 13 * 14 // 2
    visible = cost.causal_forward_flops - cost.projection_flops
    assert visible == per_pair * (2 * every + 4 * windowed)
    assert cost.score_flops == plain.score_flops == per_pair * 6 * 13 * 13
    numbers = kv_cache_numbers(2, 7, 7)
    kept = kv_cache_bytes(13, numbers, layers=6, window=5, global_layers=2)
    assert cost.cache_bytes == 3 * kept
    assert cost.decode_flops == plain.decode_flops - 4 * 8 * per_pair
    shared = model_cost(**SIZES, **options, layers_per_cache=2)
    assert 2 * shared.cache_bytes == cost.cache_bytes
    assert cost.attention_parameters - shared.attention_parameters == 3 * 20 * numbers


def test_a_part_for_positions_without_latents():
    cost = model_cost(**SIZES, qk_rope_head_dim=2, tokens=13)
    assert cost.cache_bytes_per_token == 6 * 2 * (7 + 2 + 7) * 2
    assert cost.attention_parameters == 6 * 20 * (4 + 2) * (7 + 2 + 7)


def test_bytes_and_time():
    cost = model_cost(**SIZES, tokens=13, mlp_dim=80, bytes_per_number=4, gigabytes_per_second=7)
    assert cost.weight_bytes == 4 * (cost.attention_parameters + cost.mlp_parameters)
    assert cost.decode_nanoseconds == (cost.weight_bytes + cost.cache_bytes) // 7


def saved_bytes(layer, x, **options):
    """What autograd keeps for the backward pass, without parameters, each storage once."""
    storages = {}

    def keep(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = layer(x, **options)
    for parameter in layer.parameters():
        storages.pop(parameter.untyped_storage().data_ptr(), None)
    assert result is not None
    return sum(storages.values())


@pytest.mark.parametrize("tokens", [1, 2, 53, 127])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_kept_bytes_are_what_autograd_keeps(kv_heads, tokens):
    sizes = (20, 4, kv_heads, 7)
    run = {"tokens": tokens, "batch": 3, "bytes_per_number": 4}
    layer = MultiHeadAttention(20, 4, num_kv_heads=kv_heads, head_dim=7)
    x = torch.randn(3, tokens, 20, requires_grad=True)
    assert saved_bytes(layer, x, is_causal=tokens > 1) == kept_bytes(*sizes, **run)
    stored = saved_bytes(layer, x, return_weights=True)
    assert stored == kept_bytes(*sizes, **run, with_weights=True)
    assert kept_bytes(*sizes, **run, layers=5) == 5 * kept_bytes(*sizes, **run)


def test_what_cannot_be_kept():
    for name in ("embed_dim", "num_heads", "num_kv_heads", "head_dim", "tokens", "layers", "batch"):
        sizes = {"embed_dim": 8, "num_heads": 2, "num_kv_heads": 2, "head_dim": 4, "tokens": 3}
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            kept_bytes(**sizes | {name: 0})


def test_balance_is_where_scores_outweigh_the_rest():
    sizes = {"layers": 3, "embed_dim": 64, "num_heads": 8, "num_kv_heads": 8, "head_dim": 8}
    assert model_cost(**sizes, tokens=1).balance_tokens == 2 * 64
    assert model_cost(**sizes, tokens=1, mlp_dim=256).balance_tokens == 6 * 64
    assert model_cost(**sizes, tokens=1, mlp_dim=256, mlp_matrices=3).balance_tokens == 8 * 64
    draw = random.Random(0)
    for _ in range(50):
        sizes = {name: draw.randint(1, 40) for name in ("layers", "embed_dim", "head_dim")}
        sizes |= {"num_heads": 6, "num_kv_heads": draw.choice([1, 2, 3, 6])}
        sizes |= {"mlp_dim": draw.randint(0, 90)}
        at = model_cost(**sizes, tokens=1).balance_tokens
        cost = model_cost(**sizes, tokens=at)
        assert cost.score_flops >= cost.projection_flops + cost.mlp_flops
        if at > 1:
            cost = model_cost(**sizes, tokens=at - 1)
            assert cost.score_flops < cost.projection_flops + cost.mlp_flops


def test_known_models_cost_what_their_sizes_say():
    for name in known_models():
        model = known_model(name)
        if not model.countable:
            with pytest.raises(ValueError, match="layers of one kind, got "):
                model.cost(10)
            continue
        cost = model.cost(10_000, mlp_dim=model.embed_dim)
        assert cost.attention_parameters == model.attention_parameters
        assert cost.mlp_parameters == 2 * model.layers * model.embed_dim**2
        if model.kind == "decoder":
            assert cost.cache_bytes == model.kv_cache_bytes(10_000)
            assert cost.cache_bytes_per_token == model.kv_cache_bytes_per_token()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"num_heads": 3}, "num_kv_heads must divide num_heads, 3, got 2"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"global_layers": 7}, "layers must be at least 7, got 6"),
        ({"layers_per_cache": 4}, "layers_per_cache must divide layers, 6, got 4"),
        (
            {"layers_per_cache": 2, "global_layers": 3, "window": 4},
            "layers_per_cache must divide global_layers, 3, got 2",
        ),
        (
            {"layers_per_cache": 2, "kv_lora_rank": 3},
            "layers_per_cache must be 1 in latent attention, got 2",
        ),
        ({"kv_lora_rank": 0}, "kv_lora_rank must be at least 1, got 0"),
        ({"q_lora_rank": 0}, "q_lora_rank must be at least 1, got 0"),
        ({"gigabytes_per_second": 0}, "gigabytes_per_second must be at least 1, got 0"),
        ({"mlp_dim": -1}, "mlp_dim must be at least 0, got -1"),
    ],
)
def test_impossible_sizes(change, text):
    with pytest.raises(ValueError, match=f"^{text}$"):
        model_cost(**SIZES | {"tokens": 5} | change)


def test_sizes_are_integers():
    for name in SIZES:
        with pytest.raises(TypeError, match=f"{name} must be an integer, got float"):
            model_cost(**SIZES | {"tokens": 5, name: 2.0})
    with pytest.raises(ValueError, match="key_len must be at least 3, got 2"):
        visible_pairs(3, 2)

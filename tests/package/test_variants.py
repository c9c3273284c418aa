"""The benchmark of variants: the layers are what their names say, and every cell has its place."""

import pytest
import torch
from measuring import rounds, variants

from mhattn import KVCache, causal_mask, merge_heads, split_heads, strided_mask, window_mask
from mhattn.costs import attention_cost, kv_cache_bytes, kv_cache_numbers, latent_parameters
from mhattn.variants import linear_attention_weights

NAMES = ["variants-forward", "variants-training", "variants-memory", "variants-decode"]
KINDS = ["MHA", "GQA", "MQA", "MLA", "window", "strided", "linear"]


@pytest.fixture
def kinds():
    return variants.layers(torch.float64, "cpu")


def test_layers_have_one_width_and_the_parameters_of_the_formulas(kinds):
    assert list(kinds) == KINDS
    counted = {
        kind: attention_cost(512, 8, query_len=1, num_kv_heads=heads, bias=False).parameters
        for kind, heads in zip(KINDS, (8, 2, 1, None, 8, 8, 8), strict=True)
    }
    counted["MLA"] = latent_parameters(512, 8, **variants.LATENT, v_head_dim=64) + 128  # the norm
    for kind, layer in kinds.items():
        assert sum(p.numel() for p in layer.parameters()) == counted[kind]


def test_sparse_layers_are_dense_ones_with_a_mask(kinds):
    x, n = torch.randn(2, 389, 512, dtype=torch.float64), 389
    masks = {"window": window_mask(n, n, 128)}
    masks["strided"] = window_mask(n, n, 64) | strided_mask(n, n, 64)
    for kind, mask in masks.items():
        kinds["MHA"].load_state_dict(kinds[kind].state_dict())
        expected = kinds["MHA"](x, mask=mask & causal_mask(n))
        torch.testing.assert_close(variants.forward(kinds[kind], x), expected)
        assert not torch.allclose(expected, variants.forward(kinds["MHA"], x))


def test_the_linear_layer_has_the_weights_of_its_formula(kinds):
    x, layer = torch.randn(2, 79, 512, dtype=torch.float64), kinds["linear"]
    heads = [split_heads(p(x), 8) for p in (layer.q_proj, layer.k_proj, layer.v_proj)]
    weights = linear_attention_weights(*heads[:2], is_causal=True)
    expected = layer.out_proj(merge_heads(weights @ heads[2]))
    torch.testing.assert_close(variants.forward(layer, x), expected)


def test_training_gives_the_gradients_of_input_and_parameters(kinds):
    x = torch.randn(2, 13, 512, dtype=torch.float64)
    for layer in kinds.values():
        with torch.no_grad():
            found = variants.training(layer, x.clone())
        layer(inputs := x.clone().requires_grad_(), is_causal=True).sum().backward()
        expected = [inputs.grad, *(p.grad for p in layer.parameters())]
        for gradient, other in zip(found, expected, strict=True):
            torch.testing.assert_close(gradient, other)


def test_a_cache_holds_what_is_counted_and_a_step_leaves_it_as_it_was(kinds):
    x = torch.randn(3, 1, 512, dtype=torch.float64)
    numbers = {"MHA": (8, 64, 64), "GQA": (2, 64, 64), "MQA": (1, 64, 64), "MLA": (1, 160, 0)}
    for kind, layer in kinds.items():
        with torch.no_grad():
            cache = variants.remembered(layer, 3, 389)
            first = variants.step(layer, x, cache, 389)
            if kind in numbers:
                counted = kv_cache_bytes(390, kv_cache_numbers(*numbers[kind]), bytes_per_number=8)
                assert cache.nbytes == 3 * counted
                assert len(cache) == 389
                assert torch.equal(variants.step(layer, x, cache, 389), first)
            elif kind == "window":
                assert (cache.window, len(cache)) == (128, 127)  # and the next one
            assert first.shape == x.shape
    assert cache.nbytes == 3 * 8 * 64 * 65 * 8  # of linear, the last one
    assert not isinstance(cache, KVCache)


def test_no_stride_in_decoding(kinds):
    assert list(variants.steps(kinds, 2, 5)) == [kind for kind in KINDS if kind != "strided"]


def test_a_cpu_gets_no_more_tokens_than_it_can_take():
    assert variants.lengths(1, "cpu") == (256, 1024, 4096)
    assert variants.lengths(16, "cpu") == (256,)
    assert variants.lengths(1, "cuda") == (1024, 4096, 16384)
    assert variants.lengths(16, "cuda") == (1024, 4096)


@pytest.mark.parametrize(
    ("all_threads", "device", "threads"),
    [(7, "cpu", [1, 7]), (1, "cpu", [1]), (7, "cuda", [1])],
)
def test_settings_are_all_pairs(monkeypatch, all_threads, device, threads):
    monkeypatch.setattr(variants, "ALL_THREADS", all_threads)
    asked = variants.settings(device)
    types = 2 if device == "cpu" else 1
    assert len(set(asked)) == len(asked) == types * len(threads) * 2
    assert sorted({setting[1] for setting in asked}) == threads
    expected = threads[0] if len(threads) == 1 else "1, 7"
    assert variants.about(asked, device)["threads"] == expected
    assert ("sizes" in variants.about(asked, device)) is (device == "cuda")


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_has_its_place(monkeypatch, name):
    """Small sizes; a call of ``k`` tokens at a time of ``k`` seconds."""
    few = {"lengths": (5, 7, 11), "cached": (131, 137), "batches": (1, 2), "tokens": 11}
    monkeypatch.setitem(variants.SIZES, "cpu", variants.SIZES["cpu"]._replace(**few))
    monkeypatch.setattr(variants, "ALL_THREADS", 3)
    asked = []

    def measured(calls, *, rounds, device, num_threads):
        asked.append((rounds, num_threads))
        return {kind: [float(calls[kind].args[1].shape[1])] * rounds for kind in calls}

    monkeypatch.setattr(variants, "times", measured)
    with torch.no_grad():
        found = rounds.BENCHMARKS[name](6)
    assert all(len(row) == len(found["columns"]) for row in found["rows"])
    assert set(found["units"]) <= set(found["columns"])
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    assert {row["type"] for row in rows} == {"float32", "bfloat16"}
    kinds = [kind for kind in KINDS if kind != "strided" or name != "variants-decode"]
    assert [row["kind"] for row in rows] == kinds * (len(rows) // len(kinds))
    if name == "variants-memory":
        for row in rows:
            assert row["training, n = 11"] > row["forward, n = 11"] > row["forward, n = 5"]
        return
    settings = {(row["type"], row["threads"], row["batch"]) for row in rows}
    assert len(rows) == len(settings) * len(kinds)
    assert len(settings) == (2 if name == "variants-training" else 8)
    assert {rounds for rounds, _ in asked} == {6}
    assert {threads for _, threads in asked} == {row["threads"] for row in rows}
    for row in rows:
        if name == "variants-decode":
            assert row["S = 131"] == [row["batch"]] * 3  # of one token each
            continue
        whole = [[n] * 3 for n in (5, 7, 11)]
        expected = whole if row["batch"] == 1 else [[5] * 3, "–", "–"]
        assert [row[f"n = {n}"] for n in (5, 7, 11)] == expected

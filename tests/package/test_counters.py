"""The table of published counters: what can be checked of it where only torch's is installed."""

import json

import pytest
import torch
from measuring import counters

from mhattn.lessons import data_file

FILE = data_file("measured/counters.json")
MEASURED = json.loads(FILE.read_text(encoding="utf-8"))
FOUND = {row[0]: dict(zip(counters.COUNTERS, row[1:], strict=False)) for row in MEASURED["rows"]}


@pytest.fixture
def x():
    return torch.randn(1, counters.LENGTH, counters.EMBED_DIM)


def test_the_layers_are_what_their_names_say(x):
    """With one layer's weights, those without grouped heads give the same."""
    layers = {label: layer for label, (layer, heads) in counters.layers().items() if heads == 8}
    first, fused = layers["`torch.matmul`"], layers["`F.scaled_dot_product_attention`"]
    fused.load_state_dict(first.state_dict())
    imported = layers["`from … import scaled_dot_product_attention`"]
    imported.load_state_dict(first.state_dict())
    layers["`@`"].load_state_dict(first.state_dict())
    layers["`mhattn.MultiHeadAttention`"].load_state_dict(first.state_dict())
    of_torch = [layer for label, layer in layers.items() if "nn.Multihead" in label]
    for layer in of_torch:
        layer.layer = layers["`mhattn.MultiHeadAttention`"].to_torch().train(layer.training)
    expected = first(x)
    for layer in layers.values():
        torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)


def test_our_column_is_one_and_torchs_is_measured_again(x):
    assert [row[-1] for row in MEASURED["rows"][:-1]] == [1.0] * (len(MEASURED["rows"]) - 1)
    for label, (layer, heads) in counters.layers().items():
        sizes = {"query_len": counters.LENGTH, "num_kv_heads": heads}
        flops = counters.attention_cost(counters.EMBED_DIM, counters.HEADS, **sizes).flops
        assert counters.ours(layer, x) == flops
        share = counters.reported("torch", layer, x) / flops
        assert share == pytest.approx(FOUND[label]["torch"], abs=5e-4)


def test_what_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr(counters, "installed", lambda: {"torch": "2.13.0+cpu"})
    found = counters.counters(1)
    assert [row[0] for row in found["rows"]] == [row[0] for row in MEASURED["rows"]]
    for row in found["rows"]:
        assert row[1:-2] == ["–"] * 5
    assert found["rows"][-1][-2:] == ["2.13.0", "–"]
    assert len(found["columns"]) == len(MEASURED["columns"]) == len(found["rows"][0])


def test_those_that_return_macs_are_those_whose_linear_layer_is_half():
    linear = FOUND["`nn.Linear`"]
    halves = {name for name, share in linear.items() if share == pytest.approx(0.5, abs=0.01)}
    assert halves == counters.MACS
    others = set(linear) - halves
    assert {linear[name] for name in others} == {1.0}

"""Every layer as one graph for all lengths: `torch.compile` and `torch.export`."""

from functools import partial

import pytest
import torch

from mhattn import Alibi, MultiHeadAttention, Rotary, padding_mask
from mhattn.variants import (
    LatentAttention,
    LearnedBias,
    RelativePosition,
    linear_attention,
    local_attention,
    strided_attention,
    tiled_attention,
)

B, E, H, D = 2, 33, 3, 10
LENGTHS = 5, 7, 1, 9, 41

LAYERS = {
    "plain": lambda: MultiHeadAttention(E, H, num_kv_heads=1),
    "rotary": lambda: MultiHeadAttention(E, H, head_dim=D, position=Rotary(D)),
    "alibi": lambda: MultiHeadAttention(E, H, position=Alibi(H)),
    "bias": lambda: MultiHeadAttention(E, H, position=LearnedBias(H, 53)),
    "vectors": lambda: MultiHeadAttention(E, H, head_dim=D, position=RelativePosition(D, 3)),
    "window": lambda: MultiHeadAttention(E, H, attend=partial(local_attention, window=4)),
    "stride": lambda: MultiHeadAttention(
        E, H, attend=partial(strided_attention, window=4, stride=3)
    ),
    "turned window": lambda: MultiHeadAttention(
        E, H, head_dim=D, attend=partial(local_attention, window=4), position=Rotary(D)
    ),
    "linear": lambda: MultiHeadAttention(E, H, num_kv_heads=1, attend=linear_attention),
    "latent": lambda: LatentAttention(E, H, kv_lora_rank=8, qk_nope_head_dim=5, qk_rope_head_dim=2),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


def layer(name):
    made = LAYERS[name]()
    for parameter in made.parameters():  # also what starts at zero
        torch.nn.init.normal_(parameter, std=0.3)
    return made


@pytest.fixture(autouse=True)
def no_graphs_of_others():
    torch._dynamo.reset()


@every_layer
@pytest.mark.parametrize("is_causal", [False, True])
def test_one_graph_serves_all_lengths(name, is_causal):
    if name == "stride" and not is_causal:
        pytest.skip("a stride is causal")
    mha = layer(name)
    compiled = torch.compile(mha, fullgraph=True, backend="eager")
    for length in LENGTHS:
        x = torch.randn(B, length, E)
        torch.testing.assert_close(compiled(x, is_causal=is_causal), mha(x, is_causal=is_causal))


def test_a_tiled_layer_computes_the_same_in_a_graph_for_each_length():
    mha, counter = MultiHeadAttention(E, H, attend=partial(tiled_attention, block_size=4)), []

    def count(graph, inputs):
        counter.append(graph)
        return graph.forward

    compiled = torch.compile(mha, fullgraph=True, backend=count)
    for length in LENGTHS:
        x = torch.randn(B, length, E)
        torch.testing.assert_close(compiled(x, is_causal=True), mha(x, is_causal=True))
    assert len(counter) == len(LENGTHS)


@pytest.mark.parametrize("name", ["plain", "rotary", "alibi", "bias", "vectors", "latent"])
def test_weights_and_positions_at_all_lengths(name):
    mha, takes_positions = layer(name), name != "plain"
    compiled = torch.compile(mha, fullgraph=True, backend="eager")
    for length in LENGTHS:
        x, options = torch.randn(B, length, E), {"is_causal": True, "return_weights": True}
        if takes_positions:
            options["positions"] = torch.arange(length).expand(B, length) * 2
            options["positions"] = options["positions"].clamp(max=52)
        torch.testing.assert_close(compiled(x, **options), mha(x, **options))


@every_layer
def test_export_with_a_dynamic_length(name):
    class Causal(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mha = layer(name)

        def forward(self, x):
            return self.mha(x, is_causal=True)

    module = Causal()
    shapes = ({1: torch.export.Dim.AUTO},)
    exported = torch.export.export(module, (torch.randn(B, 41, E),), dynamic_shapes=shapes)
    for n in (7, 23, 47):  # fewer than 7 leave nothing of the stride but its window
        x = torch.randn(B, n, E)
        torch.testing.assert_close(exported.module()(x), module(x))


def test_a_padding_mask_inside_of_a_graph():
    mha = layer("plain")

    def padded(x, lengths):
        return mha(x, mask=padding_mask(lengths, x.shape[1]))

    compiled, lengths = torch.compile(padded, fullgraph=True, backend="eager"), torch.tensor([5, 2])
    for length in LENGTHS:
        x, real = torch.randn(B, length, E), lengths.clamp(max=length)
        torch.testing.assert_close(compiled(x, real), padded(x, real))

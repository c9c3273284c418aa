"""Everything in the registry as one graph for all lengths: `torch.compile` and `torch.export`.

A graph takes seconds: plain `pytest` draws five of them, `pytest -m slow` makes the others.
"""

import pytest
import torch
from drawn import few_now
from registry import LAYERS, TABLE, B, E, duty

from mhattn import MultiHeadAttention, padding_mask

LENGTHS = 5, 7, 1, 9, 41
OLD = torch.__version__.startswith("2.9.")  # all here passes with 2.10
WITH_WEIGHTS = ["plain", "rotary", "alibi", "bias", "vectors", "latent"]


@pytest.fixture(autouse=True)
def no_graphs_of_others():
    torch._dynamo.reset()


class Alone(torch.nn.Module):
    """An entry as a function of its inputs alone."""

    def __init__(self, entry, is_causal):
        super().__init__()
        self.module, self.options = entry.module(torch.float32), {}
        if is_causal != entry.default:
            self.options["is_causal"] = is_causal

    def forward(self, *inputs):
        output = self.module(*inputs, **self.options)
        return output[0] if isinstance(output, tuple) else output


def ways(entry):
    """With and without causality, where the layer goes another way then."""
    one_way = entry.name not in LAYERS or entry.name in ("tiled", "normed", "capped", "packed")
    return entry.ways()[-1:] if one_way else entry.ways()


def drawn(entry, length):
    batch = 1 if entry.name == "stride" else B  # it writes out a loop over sequences and heads
    return entry.alone(entry.drawn(length, batch=batch, dtype=torch.float32))


@duty("compile", now=2)
def test_one_graph_serves_all_lengths(entry):
    if OLD and entry.name == "stride":
        pytest.xfail("torch 2.9 compiles slices of a loop for the sizes of the first length")
    for is_causal in ways(entry):
        torch._dynamo.reset()
        module, graphs = Alone(entry, is_causal), []

        def count(graph, inputs, graphs=graphs):
            graphs.append(graph)
            return graph.forward

        compiled = torch.compile(module, fullgraph=True, backend=count)
        for length in LENGTHS if entry.name in LAYERS else LENGTHS[:3]:
            inputs = drawn(entry, length)
            torch.testing.assert_close(compiled(*inputs), module(*inputs))
        if entry.graph_for_each_length:
            assert len(graphs) == (len(LENGTHS) if entry.name in LAYERS else 3)
        else:
            assert len(graphs) <= 3  # for the first length, a single token, and all others


@duty("export", now=2)
def test_export_with_a_dynamic_length(entry):
    if OLD and entry.graph_for_each_length:
        pytest.xfail("torch 2.9 exports a loop over positions for one length")
    module = Alone(entry, entry.ways()[-1])
    longest = 11 if entry.graph_for_each_length else 41  # of which the loop is written out
    inputs, any_length = drawn(entry, longest), torch.export.Dim.AUTO
    axes = [[i for i, n in enumerate(x.shape) if n == longest] for x in inputs]
    shapes = (tuple(dict.fromkeys(places, any_length) for places in axes),)
    exported = torch.export.export(module, inputs, dynamic_shapes=shapes)
    for n in (7, 23, 47):  # fewer than 7 leave nothing of the stride but its window
        inputs = drawn(entry, n)
        run = exported.module(check_guards=not OLD)  # torch 2.9 writes guards that cannot be read
        torch.testing.assert_close(run(*inputs), module(*inputs))


@pytest.mark.parametrize("name", few_now(WITH_WEIGHTS, 1, of="weights in a graph", name=str))
def test_weights_and_positions_at_all_lengths(name):
    mha, takes_positions = TABLE[name].module(torch.float32), name != "plain"
    compiled = torch.compile(mha, fullgraph=True, backend="eager")
    for length in LENGTHS:
        x, options = torch.randn(B, length, E), {"is_causal": True, "return_weights": True}
        if takes_positions:
            options["positions"] = torch.arange(length).expand(B, length) * 2
            options["positions"] = options["positions"].clamp(max=52)
        torch.testing.assert_close(compiled(x, **options), mha(x, **options))


@pytest.mark.slow
def test_a_padding_mask_inside_of_a_graph():
    mha = MultiHeadAttention(E, 3, num_kv_heads=1)

    def padded(x, lengths):
        return mha(x, mask=padding_mask(lengths, x.shape[1]))

    compiled, lengths = torch.compile(padded, fullgraph=True, backend="eager"), torch.tensor([5, 2])
    for length in LENGTHS:
        x, real = torch.randn(B, length, E), lengths.clamp(max=length)
        torch.testing.assert_close(compiled(x, real), padded(x, real))

"""The trace against the module's own output, and against the formula done by hand."""

import inspect
import math
import sys
from functools import partial

import pytest
import registry
import torch
from torch import nn

from mhattn import MultiHeadAttention, Rotary, causal_mask, trace
from mhattn.core.steps import STEPS
from mhattn.variants import (
    GatedDelta,
    LatentAttention,
    LearnedBias,
    NormedAttention,
    RelativePosition,
    linear_attention,
    local_attention,
    recurrent_linear_attention,
    soft_capped_attention,
    strided_attention,
    tiled_attention,
    top_k_attention,
)

B, L, S, H, D = 2, 5, 7, 6, 11
E = 13


def by_hand(mha, query, key, value):
    """Every intermediate tensor, with plain view and transpose."""
    steps = {"query": query, "key": key, "value": value}
    for letter, x in zip("qkv", (query, key, value), strict=True):
        proj = getattr(mha, f"{letter}_proj")
        heads = mha.num_heads if letter == "q" else mha.num_kv_heads
        steps[f"{letter}_proj"] = y = x @ proj.weight.T + proj.bias
        steps[f"split {letter}"] = y.view(B, -1, heads, mha.head_dim).transpose(1, 2)
    group = mha.num_heads // mha.num_kv_heads
    k, v = steps["split k"], steps["split v"]
    if group > 1:
        steps["repeat k"] = k = torch.stack([k] * group, 2).view(B, H, -1, mha.head_dim)
        steps["repeat v"] = v = torch.stack([v] * group, 2).view(B, H, -1, mha.head_dim)
    steps["scores"] = steps["split q"] @ k.mT / math.sqrt(mha.head_dim)
    steps["weights"] = steps["scores"].softmax(-1)
    steps["mix"] = steps["weights"] @ v
    steps["merge"] = steps["mix"].transpose(1, 2).reshape(B, L, -1)
    steps["out_proj"] = steps["merge"] @ mha.out_proj.weight.T + mha.out_proj.bias
    return steps


SETTINGS = [{}, {"num_kv_heads": 2}, {"num_kv_heads": 1, "kdim": 17, "vdim": 19}]


@pytest.mark.parametrize("options", SETTINGS, ids=["MHA", "GQA", "MQA"])
@pytest.mark.parametrize("training", [True, False])
def test_every_step_is_what_the_formula_gives(options, training):
    mha = MultiHeadAttention(E, H, head_dim=D, **options).double().train(training)
    for parameter in mha.parameters():
        nn.init.normal_(parameter)
    shapes = (L, E), (S, mha.kdim), (S, mha.vdim)
    inputs = [torch.randn(B, *shape, dtype=torch.float64) for shape in shapes]
    traced, expected = trace(mha, *inputs), by_hand(mha, *inputs)
    assert {step.name for step in traced} == expected.keys()
    owners = {}
    for name, tensor in expected.items():
        step = traced[name]
        torch.testing.assert_close(step.tensor, tensor.detach())
        assert step.shape == tensor.shape
        assert step.stride == tensor.stride(), name
        assert step.is_contiguous == tensor.is_contiguous()
        owner = owners.setdefault(tensor.untyped_storage().data_ptr(), name)
        assert step.of == (None if owner == name else owner)
        assert step.is_view == (owner != name)
    assert traced["out_proj"].tensor.equal(mha(*inputs, return_weights=True)[0])
    assert traced["weights"].tensor.equal(mha(*inputs, return_weights=True)[1])


def test_views_and_copies_are_where_memory_says():
    mha = MultiHeadAttention(12, 3)
    traced = trace(mha, torch.randn(2, 5, 12))
    views = {step.name: step.of for step in traced if step.is_view}
    assert views == {"split q": "q_proj", "split k": "k_proj", "split v": "v_proj"}
    before = traced["q_proj"].tensor.clone()
    traced["split q"].tensor[1, 2, 3, 1] += 1
    changed = (traced["q_proj"].tensor != before).nonzero().tolist()
    assert changed == [[1, 3, 2 * 4 + 1]]


def test_a_single_head_needs_no_copy_to_merge():
    traced = trace(MultiHeadAttention(12, 1), torch.randn(2, 5, 12))
    assert traced["merge"].of == "mix"


def test_steps_come_in_the_order_of_the_forward_pass():
    traced = trace(MultiHeadAttention(12, 6, num_kv_heads=2), torch.randn(2, 5, 12))
    assert [step.name for step in traced.steps] == [
        *("query", "q_proj", "split q", "k_proj", "split k", "v_proj", "split v"),
        *("repeat k", "repeat v", "scores", "weights", "mix", "merge", "out_proj"),
    ]
    assert traced[0] is traced["query"] is traced.steps[0]
    assert traced[-1].name == "out_proj"
    assert len(traced) == 14


def test_inputs_are_named_as_forward_names_them():
    x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    mha = MultiHeadAttention(12, 3)
    assert [step.name for step in trace(mha, x, memory)][:2] == ["query", "key"]
    assert [step.name for step in trace(mha, query=x, key=memory)][:2] == ["query", "key"]
    part = trace(mha, x, x[:, :3])
    assert part["key"].of == "query"


def test_mask_and_causality_reach_the_forward_pass():
    mha, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12)
    mask = causal_mask(5)
    for traced in (trace(mha, x, mask=mask), trace(mha, x, is_causal=True, return_weights=False)):
        assert (traced["weights"].tensor > 0).equal(mask.expand(2, 3, 5, 5))


def test_half_precision():
    mha = MultiHeadAttention(12, 6, num_kv_heads=2).bfloat16()
    x = torch.randn(2, 5, 12, dtype=torch.bfloat16)
    traced = trace(mha, x)
    assert traced["out_proj"].tensor.equal(mha(x, return_weights=True)[0])
    assert traced["scores"].tensor.dtype == torch.float32
    assert [step.name for step in traced].count("repeat k") == 1


def test_nothing_is_left_behind():
    mha, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12, requires_grad=True)
    before, dictionary = sys.getprofile(), dict(mha.__dict__)
    assert trace(mha, x)["out_proj"].tensor.requires_grad is False
    assert sys.getprofile() is before
    assert mha.__dict__ == dictionary
    assert not any(m._forward_hooks for m in mha.modules())
    assert mha(x).requires_grad
    with pytest.raises(ValueError, match="query must be"):
        trace(mha, x[0])
    assert sys.getprofile() is before


def test_the_profile_function_of_the_caller_comes_back():
    def profile(frame, event, argument):
        pass

    sys.setprofile(profile)
    try:
        trace(MultiHeadAttention(12, 3), torch.randn(2, 5, 12))
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)


def test_the_table_is_aligned():
    traced = trace(MultiHeadAttention(12, 3), torch.randn(2, 5, 12), torch.randn(2, 7, 12))
    lines = str(traced).splitlines()
    assert lines[0].split() == ["step", "shape", "stride", "memory"]
    assert len(lines) == 1 + len(traced)
    column = lines[0].index("memory")
    memory = {step.name: line[column:] for step, line in zip(traced, lines[1:], strict=True)}
    assert memory["split q"] == "view of q_proj"
    assert memory["merge"] == memory["query"] == "own"
    assert lines[0].index("shape") == lines[5].index("(2, ")


def test_wrong_arguments_are_named():
    x = torch.randn(2, 5, 12)
    with pytest.raises(TypeError, match=r"^module must be a torch.nn.Module, got function$"):
        trace(trace, x)
    with pytest.raises(ValueError, match=r"^query must not be empty, got shape \(0, 5, 12\)$"):
        trace(MultiHeadAttention(12, 3), x[:0])
    with pytest.raises(KeyError, match="no step 'logits', only query, q_proj, split q"):
        trace(MultiHeadAttention(12, 3), x)["logits"]
    with pytest.raises(ValueError, match=r"^module must call functions of mhattn, got NoAtt"):
        trace(NoAttention(), x)


def test_a_compiled_module_is_traced_as_what_it_wraps():
    mha, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12)
    compiled = torch.compile(mha, backend="eager", fullgraph=True)
    assert str(trace(compiled, x)) == str(trace(mha, x))


def attends(attend, **options):
    return MultiHeadAttention(12, 3, attend=attend, **options)


def to_best_keys(query, key, value, *, is_causal=False):
    return top_k_attention(query, key, value, query @ key.mT, 3, is_causal=is_causal)


def in_a_loop(query, key, value, *, is_causal=False):
    return recurrent_linear_attention(query, key, value)


LAYERS = {
    "rotary": (MultiHeadAttention(12, 3, position=Rotary(4)), "turn q, turn k, scores, weights"),
    "vectors": (MultiHeadAttention(12, 3, position=RelativePosition(4, 2)), "weights, mix, merge"),
    "window": (attends(partial(local_attention, window=2)), "split v, mix, merge"),
    "turned window": (
        attends(partial(local_attention, window=2), position=Rotary(4)),
        "split v, turn q, turn k, mix, merge",
    ),
    "stride": (attends(partial(strided_attention, window=2, stride=2)), "split v, mix, merge"),
    "linear": (attends(linear_attention), "split v, mix, merge"),
    "grouped": (attends(linear_attention, num_kv_heads=1), "repeat k, repeat v, mix, merge"),
    "tiled": (attends(partial(tiled_attention, block_size=8)), "split v, mix, merge"),
    "learned": (MultiHeadAttention(12, 3, position=LearnedBias(3, 37)), "weights, mix, merge"),
    "delta": (attends(GatedDelta(3, 4)), "split v, mix, merge"),
    "grouped delta": (attends(GatedDelta(1, 4), num_kv_heads=1), "split v, mix, merge"),
    "normed": (attends(NormedAttention(4)), "norm q, norm k, scores, weights, mix, merge"),
    "turned and normed": (
        attends(NormedAttention(4), position=Rotary(4), num_kv_heads=1),
        "turn q, turn k, norm q, norm k, repeat k, repeat v, scores, weights, mix, merge",
    ),
    "capped": (
        attends(partial(soft_capped_attention, cap=2.0)),
        "split v, scores, weights, mix, merge",
    ),
    "top k": (attends(to_best_keys), "split v, mix, merge"),
    "recurrent": (attends(in_a_loop), "split v, mix, merge"),
    "latent": (
        LatentAttention(12, 3, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=2),
        "kv_a_proj, kv_a_layernorm, k_rope_proj, turn k, kept, q_proj, split q, turn q, scores, "
        "weights, mix",
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_has_its_steps(name):
    layer, expected = LAYERS[name]
    x = torch.randn(2, 37, 12)
    found = trace(layer, x, is_causal=True)
    names = [step.name for step in found]
    assert expected in ", ".join(names)
    assert names[-1] == "out_proj"
    assert len(set(names)) == len(names)
    output = layer(x, is_causal=True)
    torch.testing.assert_close(found["out_proj"].tensor, output)


def takes_heads(function):
    return {"query", "key", "value"} <= set(inspect.signature(function).parameters)


def test_every_function_that_attends_is_a_step():
    parts = {"attend_in_groups", "fused_attention", "block_sums", "attention_gradients"}
    parts |= {"exchange_attention", "ring_attention", "split_attention"}  # in processes
    parts |= {"weights_of_call"}  # reads a call from outside
    public = registry.public()
    attend = {name for name, it in public.items() if inspect.isfunction(it) and takes_heads(it)}
    lacking = [public[n] for n in sorted(attend - parts) if public[n].__code__ not in STEPS]
    assert not lacking, "\n".join(map(registry.how_to_trace, lacking))
    assert parts < attend


def test_every_layer_that_attends_is_traced_above():
    ours = [it for it in registry.public().values() if inspect.isclass(it)]
    layers = [it for it in ours if issubclass(it, nn.Module) and takes_heads(it.forward)]
    used = {type(part) for layer, _ in LAYERS.values() for part in layer.modules()}
    assert len(layers) > 2
    assert set(layers) <= used


def test_the_weights_of_a_soft_cap():
    layer, x = attends(partial(soft_capped_attention, cap=0.1)).double(), torch.randn(2, 5, 12)
    nn.init.normal_(layer.q_proj.weight)
    found = trace(layer, x.double())
    expected = (0.1 * (found["scores"].tensor / 0.1).tanh()).softmax(dim=-1)
    torch.testing.assert_close(found["weights"].tensor, expected)
    torch.testing.assert_close(found["mix"].tensor, expected @ found["split v"].tensor)


def test_the_norm_of_queries():
    found = trace(attends(NormedAttention(4)), torch.randn(2, 5, 12))
    sizes = found["norm q"].tensor.norm(dim=-1)
    torch.testing.assert_close(sizes, torch.full((2, 3, 5), 2.0), rtol=1e-3, atol=0.0)


class NoAttention(nn.Module):
    def forward(self, x, return_weights):
        return x


def test_one_tensor_passed_twice_is_one_step():
    x = torch.randn(2, 5, 12)
    steps = [step.name for step in trace(MultiHeadAttention(12, 3), x, x)]
    assert steps == [step.name for step in trace(MultiHeadAttention(12, 3), x)]
    assert not x.requires_grad

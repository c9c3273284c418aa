"""Against PyTorch, against a loop written from the formula, and against closed forms."""

import math
import re
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from mhattn import (
    attention,
    attention_scores,
    attention_weights,
    causal_mask,
    masked_softmax,
    merge_heads,
    padding_mask,
    repeat_heads,
    split_heads,
    window_mask,
)
from mhattn.core import attention_gradients, fold_heads, fused, fused_attention, unfold_heads
from mhattn.inside import peak_bytes
from mhattn.variants import (
    LearnedBias,
    NormedAttention,
    RelativePosition,
    gated_delta_attention,
    linear_attention,
    local_attention,
    soft_capped_attention,
    strided_attention,
    tiled_attention,
    top_k_attention,
)

B, H, H_KV, L, S, D, D_V = 2, 6, 3, 5, 7, 11, 13
MANY = 17  # queries, more than keys

MASKS = {
    "none": lambda num_queries: None,
    "padding": lambda num_queries: padding_mask(torch.tensor([7, 3]), S),
    "a sequence without keys": lambda num_queries: padding_mask(torch.tensor([0, 5]), S),
    "padding per query": lambda num_queries: padding_mask(torch.randint(S, (B, num_queries)), S),
    "window": lambda num_queries: window_mask(num_queries, S, 2),
    "window or padding": lambda n: window_mask(n, S, 2) | padding_mask(torch.tensor([4, 2]), S),
    "random": lambda num_queries: torch.rand(B, H, num_queries, S) < 0.3,
    "one for each key": lambda num_queries: torch.rand(S) < 0.5,
    "one for each query": lambda num_queries: torch.rand(num_queries, 1) < 0.5,
    "nothing": lambda num_queries: torch.tensor(False),
}
every_mask = pytest.mark.parametrize("mask", MASKS)
causal_or_not = pytest.mark.parametrize("is_causal", [False, True])
both_paths = pytest.mark.parametrize("return_weights", [False, True], ids=["fused", "written out"])
half_types = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


def tensors(num_queries=L, *, num_kv_heads=H_KV, dtype=torch.float64, value_dim=D_V):
    shapes = (H, num_queries, D), (num_kv_heads, S, D), (num_kv_heads, S, value_dim)
    return [torch.randn(B, *shape, dtype=dtype).requires_grad_() for shape in shapes]


def output_of(result):
    return result[0] if isinstance(result, tuple) else result


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def by_loop(query, key, value, mask=None, is_causal=False, scale=None):
    """The formula, one query at a time, in plain Python numbers."""
    batch, heads, num_queries, dim = query.shape
    num_keys, group = key.shape[2], heads // key.shape[1]
    scale = 1 / math.sqrt(dim) if scale is None else scale
    seen = torch.ones(batch, heads, num_queries, num_keys, dtype=torch.bool)
    seen = (seen if mask is None else seen & mask).tolist()
    query, key, value = query.tolist(), key.tolist(), value.tolist()
    output = torch.zeros(batch, heads, num_queries, len(value[0][0][0])).double()
    weights = torch.zeros(batch, heads, num_queries, num_keys).double()
    for b, h, i in product(range(batch), range(heads), range(num_queries)):
        keys, values = key[b][h // group], value[b][h // group]
        visible = [j for j in range(num_keys) if seen[b][h][i][j]]
        if is_causal:
            visible = [j for j in visible if num_keys - j >= num_queries - i]
        scores = {j: scale * dot(query[b][h][i], keys[j]) for j in visible}
        total = sum(math.exp(score) for score in scores.values())
        for j, score in scores.items():
            weights[b, h, i, j] = math.exp(score) / total
            output[b, h, i] += math.exp(score) / total * torch.tensor(values[j]).double()
    return output, weights


@pytest.mark.parametrize("num_queries", [L, S, MANY], ids=["L<S", "L=S", "L>S"])
@causal_or_not
@every_mask
def test_both_paths_equal_the_loop(mask, is_causal, num_queries):
    mask = MASKS[mask](num_queries)
    inputs = [x.detach() for x in tensors(num_queries)]
    expected, expected_weights = by_loop(*inputs, mask, is_causal)
    output, weights = attention(*inputs, mask=mask, is_causal=is_causal, return_weights=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(attention(*inputs, mask=mask, is_causal=is_causal), expected)


@both_paths
def test_scale_is_what_the_dot_products_are_multiplied_by(return_weights):
    inputs = [x.detach() for x in tensors()]
    expected, _ = by_loop(*inputs, scale=0.7)
    output = output_of(attention(*inputs, scale=0.7, return_weights=return_weights))
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(
        attention_scores(*inputs[:2], scale=0.7),
        0.7 * inputs[0] @ inputs[1].repeat_interleave(2, 1).mT,
    )


BIASES = {
    "(S,)": (S,),
    "(L, 1)": (L, 1),
    "(H, L, S)": (H, L, S),
    "(B, 1, 1, S)": (B, 1, 1, S),
    "(B, H, L, S)": (B, H, L, S),
}


@pytest.mark.parametrize("shape", BIASES)
@causal_or_not
@every_mask
def test_a_bias_is_added_to_the_scaled_scores(mask, is_causal, shape):
    """As one more feature of the query, which meets one that only key j has."""
    mask, bias = MASKS[mask](L), torch.randn(BIASES[shape], dtype=torch.float64)
    query, key, value = (x.detach() for x in tensors(num_kv_heads=H))
    longer = torch.cat([query, bias.expand(B, H, L, S) / 0.7], dim=-1)
    longer_key = torch.cat([key, torch.eye(S).double().expand(B, H, S, S)], dim=-1)
    expected = by_loop(longer, longer_key, value, mask, is_causal, scale=0.7)
    options = {"bias": bias, "is_causal": is_causal, "scale": 0.7}
    both = attention(query, key, value, mask=mask, **options, return_weights=True)
    torch.testing.assert_close(both, expected)
    torch.testing.assert_close(attention(query, key, value, mask=mask, **options), expected[0])
    torch.testing.assert_close(attention_weights(query, key, mask=mask, **options), expected[1])


@both_paths
def test_a_bias_gets_its_gradient(return_weights):
    inputs = [x.detach()[..., :2] for x in tensors(3)]
    bias = torch.randn(H, 3, S, dtype=torch.float64).requires_grad_()

    def run(bias):
        options = {"bias": bias, "is_causal": True, "return_weights": return_weights}
        return output_of(attention(*inputs, **options))

    assert torch.autograd.gradcheck(run, [bias])


@both_paths
@pytest.mark.parametrize(
    ("dtype", "bias_dtype"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float64),
        (torch.float64, torch.float32),
    ],
)
def test_a_bias_of_another_dtype(dtype, bias_dtype, return_weights):
    inputs = [x.detach().to(dtype) for x in tensors()]
    bias = torch.randn(H, L, S, dtype=bias_dtype)
    output = output_of(attention(*inputs, bias=bias, return_weights=return_weights))
    assert output.dtype == dtype
    expected = attention(*(x.double() for x in inputs), bias=bias)
    torch.testing.assert_close(output.double(), expected, atol=0.03, rtol=0.03)


@every_mask
@both_paths
def test_gradients_equal_pytorchs(mask, return_weights):
    mask = MASKS[mask](L)
    query, key, value = tensors(num_kv_heads=H)
    probe = torch.randn(B, H, L, D_V).double()
    ours = torch.autograd.grad(
        output_of(attention(query, key, value, mask=mask, return_weights=return_weights)),
        (query, key, value),
        probe,
    )
    seen = None if mask is None else mask.expand(B, H, L, S)
    theirs = F.scaled_dot_product_attention(query, key, value, seen)
    for our, their in zip(
        ours, torch.autograd.grad(theirs, (query, key, value), probe), strict=True
    ):
        torch.testing.assert_close(our, their)


@causal_or_not
@every_mask
def test_both_paths_have_the_same_gradients(mask, is_causal):
    mask = MASKS[mask](MANY)
    inputs = tensors(MANY)
    gradients = [
        torch.autograd.grad(output_of(output).square().sum(), inputs)
        for output in (
            attention(*inputs, mask=mask, is_causal=is_causal),
            attention(*inputs, mask=mask, is_causal=is_causal, return_weights=True),
        )
    ]
    torch.testing.assert_close(*gradients)


@both_paths
@pytest.mark.parametrize("mask", ["none", "a sequence without keys", "random"])
def test_gradcheck(mask, return_weights):
    mask = MASKS[mask](3)
    inputs = [x[..., :2].detach().requires_grad_() for x in tensors(3)]

    def run(*inputs):
        return attention(*inputs, mask=mask, is_causal=True, return_weights=return_weights)

    assert torch.autograd.gradcheck(run, inputs)


def test_without_mask_it_is_pytorchs_with_grouped_heads():
    query, key, value = tensors(dtype=torch.float32)
    expected = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    torch.testing.assert_close(attention(query, key, value), expected)
    torch.testing.assert_close(attention(query, key, value, return_weights=True)[0], expected)


def test_causal_is_pytorchs_only_if_there_are_as_many_queries_as_keys():
    query, key, value = tensors(S, num_kv_heads=H)
    pytorchs = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(attention(query, key, value, is_causal=True), pytorchs)
    query = query[:, :, -L:]
    ours = attention(query, key, value, is_causal=True)
    torch.testing.assert_close(ours, pytorchs[:, :, -L:])
    theirs = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert (ours - theirs).abs().max() > 0.1


@both_paths
@pytest.mark.parametrize("num_queries", [L, S, MANY])
def test_changing_a_key_changes_no_query_before_it(return_weights, num_queries):
    query, key, value = (x.detach() for x in tensors(num_queries))

    def run(key, value):
        return output_of(
            attention(query, key, value, is_causal=True, return_weights=return_weights)
        )

    before = run(key, value)
    for j in range(S):
        other_key, other_value = key.clone(), value.clone()
        other_key[:, :, j] += 1
        other_value[:, :, j] += 1
        changed = (run(other_key, other_value) != before).any(-1).all(0).all(0)
        position = torch.arange(num_queries) + S - num_queries
        assert changed.tolist() == (position >= j).tolist()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("how", ["mask", "causal", "both", "everything"])
@both_paths
def test_a_query_with_nothing_to_see_gets_zeros_and_zero_gradients(dtype, how, return_weights):
    inputs = tensors(MANY, dtype=dtype)
    mask = torch.ones(MANY, S, dtype=torch.bool)
    mask[2] = how not in ("mask", "both")
    if how == "everything":
        mask[:] = False
    is_causal = how in ("causal", "both")
    first, all_of_them = range(MANY - S), range(MANY)
    blind = {"mask": [2], "causal": first, "both": first, "everything": all_of_them}[how]
    result = attention(
        *inputs,
        mask=None if how == "causal" else mask,
        is_causal=is_causal,
        return_weights=return_weights,
    )
    output = output_of(result)
    assert (output == 0).all(-1).all(0).all(0).nonzero().flatten().tolist() == list(blind)
    assert output.isfinite().all()
    if return_weights:
        assert (result[1][:, :, list(blind)] == 0).all()
    output.float().square().sum().backward()
    for x in inputs:
        assert x.grad.isfinite().all()
    query_is_idle = (inputs[0].grad == 0).all(-1).all(0).all(0).nonzero().flatten().tolist()
    # A query that sees one key only cannot change its weight, so its gradient is zero as well.
    alone = [MANY - S] if is_causal else []
    assert [i for i in query_is_idle if i not in alone] == list(blind)
    if how == "everything":
        assert all((x.grad == 0).all() for x in inputs)


@both_paths
@pytest.mark.parametrize("mask", ["a sequence without keys", "nothing"])
def test_no_step_of_the_backward_pass_makes_a_nan(mask, return_weights):
    inputs = tensors()
    with torch.autograd.set_detect_anomaly(True):  # raises at the first NaN, later hidden or not
        result = attention(*inputs, mask=MASKS[mask](L), return_weights=return_weights)
        output_of(result).square().sum().backward()


@half_types
@every_mask
@causal_or_not
def test_half_precision_is_close_to_float64(dtype, mask, is_causal):
    mask = MASKS[mask](L)
    inputs = [x.detach() for x in tensors(dtype=dtype)]
    exact = attention(*(x.double() for x in inputs), mask=mask, is_causal=is_causal)
    fused = attention(*inputs, mask=mask, is_causal=is_causal)
    output, weights = attention(*inputs, mask=mask, is_causal=is_causal, return_weights=True)
    assert fused.dtype == output.dtype == weights.dtype == dtype
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(fused.double(), exact, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(output.double(), exact, atol=tolerance, rtol=tolerance)


@half_types
@every_mask
@pytest.mark.parametrize("num_kv_heads", [H, H_KV])
def test_one_token_in_half_precision(dtype, mask, num_kv_heads):
    """Its row may be computed twice: the second one must leave no trace, in gradients neither."""
    inputs = tensors(1, num_kv_heads=num_kv_heads)
    inputs = [x.detach().to(dtype).requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    mask = MASKS[mask](1)
    outputs = [attention(*x, mask=mask, is_causal=True) for x in (inputs, exact)]
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(outputs[0].double(), outputs[1], atol=tolerance, rtol=tolerance)
    for output in outputs:
        output.sum().backward()
    for x, y in zip(inputs, exact, strict=True):
        torch.testing.assert_close(x.grad.double(), y.grad, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("mask", ["none", "bool", "bias", "both"])
@pytest.mark.parametrize(("num_queries", "group"), [(1, 2), (1, 4), (2, 2), (1, 5)])
def test_few_rows_for_many_keys(monkeypatch, mask, num_queries, group):
    """In two products, like in the fused kernel, gradients and dropout included."""
    monkeypatch.setattr(fused, "LARGE", 0)
    query = torch.randn(2, 3 * group, num_queries, 7, requires_grad=True)
    key, value = (torch.randn(2, 3, 11, d, requires_grad=True) for d in (7, 5))
    options = {"mask": torch.rand(2, 1, 1, 11) < 0.7} if mask in ("bool", "both") else {}
    options |= {"bias": torch.randn(2, 1, 1, 11)} if mask in ("bias", "both") else {}
    inputs = query, key, value
    found = attention(*inputs, **options, scale=0.3)
    expected, _ = attention(*inputs, **options, scale=0.3, return_weights=True)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    grads = (torch.autograd.grad(x.square().sum(), inputs) for x in (found, expected))
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    ones = torch.ones_like(value)
    dropped = attention(query, key, ones, **options, dropout=0.5)
    assert not torch.allclose(dropped, attention(query, key, ones, **options))


def test_which_calls_take_two_products(monkeypatch):
    calls = []
    two = fused.two_products
    monkeypatch.setattr(fused, "two_products", lambda *x: calls.append(x[0].shape) or two(*x))
    large = torch.randn(1, 2, 2**14, 64)  # 2**23 bytes
    for heads, length, key in (
        (2, 1, large),
        (8, 1, large),
        (4, 2, large),
        (10, 1, large),
        (8, 1, large[:, :, 1:]),
        (8, 1, large.double()),
    ):
        query = torch.randn(1, heads, length, 64, dtype=key.dtype)
        torch.testing.assert_close(
            attention(query, key, key),
            attention(query, key, key, return_weights=True)[0],
            atol=1e-5,
            rtol=1e-4,
        )
    assert calls == [(1, 2, 4, 64), (1, 2, 4, 64)]


def test_float16_scores_too_large_for_float16_are_not_nan():
    query = torch.full((1, 3, 64), 200.0, dtype=torch.float16)
    key = query * torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float16)
    weights = attention_weights(query, key)  # scores of 320 000
    assert weights.tolist() == [[[0.5, 0.0, 0.5]] * 3]


def test_rows_of_the_weights_sum_to_one():
    query, key, _ = tensors()
    weights = attention_weights(query, key, is_causal=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, L).double())
    assert (weights >= 0).all()


def test_weights_are_pytorchs_softmax_of_the_scores():
    query, key, _ = tensors(num_kv_heads=H)
    scores = attention_scores(query, key)
    torch.testing.assert_close(scores, torch.einsum("bhid,bhjd->bhij", query, key) / D**0.5)
    torch.testing.assert_close(attention_weights(query, key), F.softmax(scores, dim=3))


@pytest.mark.parametrize("group", [1, 2, 3, 6])
@both_paths
def test_head_i_uses_key_and_value_head_i_over_group(group, return_weights):
    query, key, value = tensors(num_kv_heads=H // group)
    output = output_of(attention(query, key, value, return_weights=return_weights))
    for i in range(H):
        alone = attention(query[:, i], key[:, i // group], value[:, i // group])
        torch.testing.assert_close(output[:, i], alone)


def test_any_leading_axes():
    query, key, value = tensors(num_kv_heads=H)
    output = attention(query, key, value, is_causal=True)
    folded = attention(*(fold_heads(x) for x in (query, key, value)), is_causal=True)
    torch.testing.assert_close(unfold_heads(folded, H), output)
    one = attention(query[0, 0], key[0, 0], value[0, 0], is_causal=True)
    torch.testing.assert_close(one, output[0, 0])
    five_axes = attention(query[None], key[None], value[None], is_causal=True)
    torch.testing.assert_close(five_axes, output[None])


@both_paths
def test_no_queries_or_an_empty_batch_is_no_error(return_weights):
    query, key, value = tensors()
    nobody = attention(query[:, :, :0], key, value, return_weights=return_weights)
    assert output_of(nobody).shape == (B, H, 0, D_V)
    nothing = attention(query[:0], key[:0], value[:0], return_weights=return_weights)
    assert output_of(nothing).shape == (0, H, L, D_V)


@both_paths
def test_dropout_keeps_the_mean(return_weights):
    query, key = torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 20_000, 2)
    value = torch.ones(1, 1, 20_000, 1)
    torch.manual_seed(1)
    draws = [
        output_of(attention(query, key, value, dropout=0.25, return_weights=return_weights)).item()
        for _ in range(20)
    ]
    # Each draw is the mean of 20 000 numbers that are 4/3 or 0: standard deviation 0.0041.
    assert all(abs(draw - 1) < 5 * 0.0041 for draw in draws)
    assert len(set(draws)) > 10


def test_dropout_drops_its_share_of_the_weights_and_returns_what_it_applied():
    query, key = torch.zeros(1, 1, 10, 2), torch.zeros(1, 1, 10_000, 2)
    value = torch.randn(1, 1, 10_000, 3)
    output, weights = attention(query, key, value, dropout=0.25, return_weights=True)
    torch.testing.assert_close(output, weights @ value)
    assert weights.unique().tolist() == pytest.approx([0, 4 / 3 / 10_000])
    # 100 000 draws with probability 1/4: standard deviation 0.0014.
    assert abs((weights == 0).double().mean() - 0.25) < 5 * 0.0014


def test_split_heads_gives_each_head_its_own_columns():
    x = torch.randn(2, 5, 3 * 7)
    heads = split_heads(x, 3)
    assert heads.shape == (2, 3, 5, 7)
    for h in range(3):
        assert heads[:, h].equal(x[:, :, 7 * h : 7 * (h + 1)])
    assert heads.data_ptr() == x.data_ptr()


def test_merge_heads_lays_them_side_by_side():
    x = torch.randn(2, 3, 5, 7)
    assert merge_heads(x).equal(torch.cat([x[:, h] for h in range(3)], dim=-1))


def test_fold_heads_keeps_a_sequence_together():
    x = torch.randn(2, 3, 5, 7)
    assert fold_heads(x).equal(torch.stack([x[b, h] for b in range(2) for h in range(3)]))


sizes = st.integers(0, 4)


@given(sizes, st.integers(1, 4), sizes, sizes)
def test_splitting_and_folding_are_undone(batch, heads, length, dim):
    x = torch.randn(batch, length, heads * dim)
    split = split_heads(x, heads)
    assert split.shape == (batch, heads, length, dim)
    assert merge_heads(split).equal(x)
    assert unfold_heads(fold_heads(split), heads).equal(split)


@given(
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 5),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(0, 4),
    st.booleans(),
)
def test_any_shape(batch, kv_heads, group, queries, keys, dim, value_dim, is_causal):
    query = torch.randn(batch, kv_heads * group, queries, dim)
    key = torch.randn(batch, kv_heads, keys, dim)
    value = torch.randn(batch, kv_heads, keys, value_dim)
    output, weights = attention(query, key, value, is_causal=is_causal, return_weights=True)
    assert output.shape == (batch, kv_heads * group, queries, value_dim)
    assert weights.shape == (batch, kv_heads * group, queries, keys)
    torch.testing.assert_close(attention(query, key, value, is_causal=is_causal), output)
    assert ((weights.sum(-1) - 1).abs() < 1e-5).logical_or(weights.sum(-1) == 0).all()


def shaped(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype)


Q, K, V = shaped(2, 6, 5, 8), shaped(2, 3, 7, 8), shaped(2, 3, 7, 4)

WRONG = [
    (
        (Q, shaped(2, 3, 7, 9), V),
        {},
        "query and key must have the same last axis, got query (2, 6, 5, 8) and key (2, 3, 7, 9)",
    ),
    (
        (Q, shaped(2, 4, 7, 8), shaped(2, 4, 7, 8)),
        {},
        "the key's heads must divide the query's, got query (2, 6, 5, 8) and key (2, 4, 7, 8)",
    ),
    (
        (Q, shaped(1, 3, 7, 8), V),
        {},
        "query and key must have the same axes before the heads, "
        "got query (2, 6, 5, 8) and key (1, 3, 7, 8)",
    ),
    (
        (Q[0], K[0], V[0]),
        {},
        "query and key must have the same axes before the heads, "
        "got query (6, 5, 8) and key (3, 7, 8)",
    ),
    (
        (Q, shaped(2, 3, 0, 8), shaped(2, 3, 0, 8)),
        {},
        "key must have at least one position and D >= 1, "
        "got query (2, 6, 5, 8) and key (2, 3, 0, 8)",
    ),
    (
        (Q, K, shaped(2, 3, 11, 8)),
        {},
        "key and value must have the same axes but the last, "
        "got key (2, 3, 7, 8) and value (2, 3, 11, 8)",
    ),
    ((Q, K, shaped(2, 6, 7, 8)), {}, "got key (2, 3, 7, 8) and value (2, 6, 7, 8)"),
    ((Q[0, 0, 0], K, V), {}, "query must have at least 2 axes, got shape (8,)"),
    (
        (Q, K, V),
        {"mask": torch.ones(7, 5, dtype=torch.bool)},
        "mask must broadcast to (..., L, S) = (2, 6, 5, 7), got (7, 5)",
    ),
    ((Q, K, V), {"mask": torch.ones(1, 2, 6, 5, 7, dtype=torch.bool)}, "got (1, 2, 6, 5, 7)"),
    (
        (Q, K, V),
        {"bias": torch.ones(7, 5)},
        "bias must broadcast to (..., L, S) = (2, 6, 5, 7), got (7, 5)",
    ),
    ((Q, K, V), {"bias": torch.ones(1, 2, 6, 5, 7)}, "bias must broadcast to (..., L, S)"),
    ((Q, K, V), {"dropout": 1.0}, "dropout must be in [0, 1), got 1.0"),
    ((Q, K, V), {"dropout": -0.1}, "dropout must be in [0, 1), got -0.1"),
    ((Q, K, V), {"scale": 0.0}, "scale must be positive and finite, got 0.0"),
    ((Q, K, V), {"scale": -1.0}, "scale must be positive and finite, got -1.0"),
    ((Q, K, V), {"scale": math.nan}, "scale must be positive and finite, got nan"),
    ((Q, K, V), {"scale": math.inf}, "scale must be positive and finite, got inf"),
]
WRONG_TYPES = [
    ((Q.long(), K, V), {}, "query must be a tensor of floats, got torch.int64"),
    ((Q, K.bool(), V), {}, "key must be a tensor of floats, got torch.bool"),
    ((Q, K, [1.0]), {}, "value must be a tensor of floats, got list"),
    (
        (Q, K, V),
        {"mask": shaped(5, 7)},
        "mask must be a tensor of booleans, True = may attend, got ",
    ),
    (
        (Q, K, V),
        {"mask": [[True]]},
        "mask must be a tensor of booleans, True = may attend, got list",
    ),
]


@pytest.mark.parametrize(("arguments", "options", "message"), WRONG)
@both_paths
def test_wrong_values_are_named(arguments, options, message, return_weights):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the message is compared below)
        attention(*arguments, **options, return_weights=return_weights)
    assert message in str(error.value)


@pytest.mark.parametrize(("bias", "got"), [(shaped(5, 7).long(), "torch.int64"), (1.0, "float")])
@both_paths
def test_a_bias_of_a_wrong_type_is_named(bias, got, return_weights):
    with pytest.raises(TypeError, match=f"bias must be a tensor of floats, got {got}"):
        attention(Q, K, V, bias=bias, return_weights=return_weights)


@pytest.mark.parametrize(("arguments", "options", "message"), WRONG_TYPES)
@both_paths
def test_wrong_types_are_named(arguments, options, message, return_weights):
    with pytest.raises(TypeError) as error:
        attention(*arguments, **options, return_weights=return_weights)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: split_heads(shaped(2, 5, 8), 3), "num_heads must divide the last axis of x, 8"),
        (lambda: split_heads(shaped(2, 5, 8), 0), "8, got 0"),
        (lambda: split_heads(shaped(8), 2), "x must have at least 2 axes, got shape (8,)"),
        (lambda: merge_heads(shaped(5, 8)), "x must have at least 3 axes, got shape (5, 8)"),
        (lambda: fold_heads(shaped(3, 5, 8)), "x must have 4 axes, got shape (3, 5, 8)"),
        (lambda: unfold_heads(shaped(2, 3, 5, 8), 3), "x must have 3 axes"),
        (lambda: unfold_heads(shaped(7, 5, 8), 3), "num_heads must divide the first axis of x, 7"),
    ],
)
def test_wrong_shapes_of_heads_are_named(call, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("dtype", "length", "width", "mask", "is_causal", "expected"),
    [  # heads of queries and keys, rows of a head, whether the kernel is to share keys
        (torch.bfloat16, 1, 64, False, False, (6, 2, 1, True)),
        (torch.float16, 5, 256, False, False, (6, 2, 5, True)),
        (torch.float16, 7, 64, False, True, (6, 2, 7, True)),
        (torch.bfloat16, 1, 64, True, False, (2, 2, 3, False)),  # only cuDNN would take both
        (torch.bfloat16, 1, 264, False, False, None),  # as the latents of MLA: no kernel, products
        (torch.float16, 4, 264, True, False, None),
        (torch.bfloat16, 5, 264, False, False, (2, 2, 15, False)),
        (torch.float32, 1, 264, False, False, (2, 2, 3, False)),
        (torch.bfloat16, 7, 264, False, True, (6, 6, 7, True)),
        (torch.float32, 1, 64, False, False, (2, 2, 3, False)),
        (torch.float32, 7, 64, False, True, (6, 6, 7, True)),
    ],
)
def test_what_a_gpu_gets_of_grouped_heads(
    monkeypatch, dtype, length, width, mask, is_causal, expected
):
    """By tensors that have shapes alone, on a GPU that need not be there."""
    seen = []

    def kernel(query, key, value, mask=None, *, enable_gqa=False, **others):
        seen.append((query.shape[1], key.shape[1], query.shape[2], enable_gqa))
        return query

    monkeypatch.setattr(fused.F, "scaled_dot_product_attention", kernel)
    with FakeTensorMode():
        query = torch.empty(3, 6, length, width, dtype=dtype, device="cuda")
        key = torch.empty(3, 2, 7, width, dtype=dtype, device="cuda")
        hides = torch.ones(3, 1, 1, 7, dtype=torch.bool, device="cuda") if mask else None
        mixed = fused.attend_in_groups(query, key, key, mask=hides, is_causal=is_causal)
        assert mixed.shape == query.shape
    assert seen == ([] if expected is None else [expected])


@pytest.mark.parametrize("mask", [None, "hides", "bias"])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_the_products_of_wide_heads_are_the_formula(monkeypatch, mask, scale):
    """On the CPU, whose product of halves in float32 is that of floats."""
    plain = torch.bmm
    monkeypatch.setattr(
        fused.torch, "bmm", lambda a, b, out_dtype: plain(a.to(out_dtype), b.to(out_dtype))
    )
    rows, key = torch.randn(3, 2, 5, 264), torch.randn(3, 2, 7, 264)
    hides = torch.rand(3, 1, 1, 7) < 0.5
    hides[..., 0] = True
    mask = {"hides": hides, "bias": torch.randn(3, 1, 1, 7), None: None}[mask]
    expected = F.scaled_dot_product_attention(rows, key, key, mask, scale=scale)
    half = [x.bfloat16() for x in (rows, key, key)]
    mixed = fused.rows_on_gpu(None, *half, mask, scale, is_step=True)
    assert mixed.dtype == torch.bfloat16
    torch.testing.assert_close(mixed.float(), expected, atol=0.05, rtol=0.05)
    exact = F.scaled_dot_product_attention(*(x.double() for x in half), mask, scale=scale)
    assert (mixed - exact).norm() < 2**-7 * exact.norm()


@pytest.mark.parametrize(
    ("dtype", "width", "is_step", "learns"),
    [
        (torch.float32, 264, True, False),
        (torch.float16, 256, True, False),
        (torch.float16, 264, False, False),
        (torch.float16, 264, True, True),
    ],
)
def test_what_is_no_wide_step_keeps_its_kernel(dtype, width, is_step, learns):
    rows = torch.zeros(1, 1, 4, width, dtype=dtype, requires_grad=learns)
    key = rows.detach()
    assert fused.rows_on_gpu(lambda *_: "kernel", rows, key, key, None, None, is_step) == "kernel"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@every_mask
@causal_or_not
@both_paths
def test_cuda_equals_the_cpu(dtype, mask, is_causal, return_weights):
    mask = MASKS[mask](MANY)
    inputs = tensors(MANY, dtype=dtype)
    expected = attention(*(x.detach().double() for x in inputs), mask=mask, is_causal=is_causal)
    on_gpu = [x.detach().cuda().requires_grad_() for x in inputs]
    mask = None if mask is None else mask.cuda()
    result = attention(*on_gpu, mask=mask, is_causal=is_causal, return_weights=return_weights)
    output = output_of(result)
    tolerance = 8 * max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    torch.testing.assert_close(
        output.double().cpu(), expected, atol=2 * tolerance, rtol=2 * tolerance
    )
    output.float().sum().backward()
    assert all(x.grad.isfinite().all() for x in on_gpu)


def test_causal_argument_and_causal_mask_are_the_same():
    inputs = tensors(MANY)
    torch.testing.assert_close(
        attention(*inputs, is_causal=True), attention(*inputs, mask=causal_mask(MANY, S))
    )


# The fused path

LONG = 512  # a table of scores is far larger than all inputs
FLOAT = 4  # bytes
FUSED = {"aten::_scaled_dot_product_flash_attention_for_cpu"}


@causal_or_not
@pytest.mark.parametrize("value_dim", [3, 7, 11])
@pytest.mark.parametrize(
    ("axes", "num_kv_heads"), [(2, 6), (3, 6), (4, 1), (4, 2), (4, 6), (5, 1), (5, 2), (5, 6)]
)
def test_fused_path_never_holds_all_scores(axes, value_dim, num_kv_heads, is_causal):
    inputs = tensors_of_length(LONG, num_kv_heads, value_dim, axes)
    table = inputs[0][..., 0].numel() * LONG * FLOAT
    with torch.no_grad():
        fused = peak_bytes(lambda: attention(*inputs, is_causal=is_causal))
        written_out = peak_bytes(lambda: attention(*inputs, return_weights=True))
    assert fused < table / 2
    assert written_out > table, "this test would see nothing"


def tensors_of_length(length, num_kv_heads, value_dim, axes):
    leading = (2, 1, 6)[: max(0, axes - 2)] if axes < 5 else (2, 1, 6)
    leading = {2: (), 3: (6,), 4: (2, 6), 5: (2, 1, 6)}[axes]
    kv = (*leading[:-1], num_kv_heads) if axes > 3 else leading
    shapes = (*leading, length, 7), (*kv, length, 7), (*kv, length, value_dim)
    return [torch.randn(shape) for shape in shapes]


@pytest.mark.parametrize("mask_shape", [(5, 11), (3, 1, 11), (2, 1, 5, 11), (7, 2, 6, 5, 11)])
def test_five_axes_and_a_mask_of_any_axes(mask_shape):
    """The mask broadcasts from the right, also when leading axes are folded together."""
    query = torch.randn(7, 2, 6, 5, 3, dtype=torch.float64)
    key, value = torch.randn(2, 7, 2, 2, 11, 3, dtype=torch.float64)
    mask = torch.rand(mask_shape) < 0.6
    if mask_shape == (3, 1, 11):
        mask = mask.repeat(2, 1, 1)  # one for each of the six heads
    for is_causal in (False, True):
        options = {"is_causal": is_causal}
        expected, _ = attention(query, key, value, mask=mask, return_weights=True, **options)
        torch.testing.assert_close(attention(query, key, value, mask=mask, **options), expected)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
@pytest.mark.parametrize("per", ["nothing", "sequence", "head"])
def test_one_new_query_over_grouped_heads(is_causal, num_kv_heads, per):
    """Decoding: the groups of a key's queries are rows, unless each head has its own mask."""
    query, key, value = tensors(1, num_kv_heads=num_kv_heads)
    masks = {
        "nothing": None,
        "sequence": padding_mask(torch.tensor([7, 3]), S),
        "head": torch.rand(B, H, 1, S) < 0.5,
    }
    options = {"mask": masks[per], "is_causal": is_causal}
    expected, _ = attention(query, key, value, return_weights=True, **options)
    torch.testing.assert_close(attention(query, key, value, **options), expected)


def kernels(function):
    """Which of torch's ways to compute attention was taken."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        function()
    return {event.name for event in profiled.events() if "_scaled_dot_product" in event.name}


def across():
    """A query whose numbers of one row lie apart in memory."""
    return torch.randn(2, 4, 8, 128).mT


@pytest.mark.parametrize(
    "options",
    [
        {"mask": torch.rand(4, 128, 128) < 0.5},
        {"bias": torch.randn(4, 128, 128)},
        {"query": across()},
        {"key": across(), "is_causal": True},
        {"value": across()[..., :5]},
        {"query": across()[0], "key": across()[0], "value": across()[0]},
    ],
    ids=["mask", "bias", "query", "key", "value", "three axes"],
)
def test_nothing_falls_back_to_the_written_out_form(options):
    inputs = {name: torch.randn(2, 4, 128, 8) for name in ("query", "key", "value")} | options
    assert kernels(lambda: attention(**inputs)) == FUSED
    written_out = attention(**inputs, return_weights=True)[0]
    torch.testing.assert_close(attention(**inputs), written_out)


@pytest.mark.parametrize(("is_causal", "tables"), [(False, 1), (True, 2)])
def test_weights_stay_in_the_memory_of_the_scores(is_causal, tables):
    """With gradients, the scores' memory must not be written to again."""
    query, key = torch.randn(2, 3, 5, 256, 8)
    table = 3 * 5 * 256 * 256 * 4
    taken = peak_bytes(lambda: attention_weights(query, key, is_causal=is_causal))
    assert tables * table < taken < (tables + 0.1) * table
    query.requires_grad_()
    with_gradients = peak_bytes(lambda: attention_weights(query, key, is_causal=is_causal))
    assert with_gradients > (tables + 1) * table


@causal_or_not
def test_weights_without_gradients_are_those_with_them(is_causal):
    query, key, bias = torch.randn(3, 5, 7), torch.randn(3, 11, 7), torch.randn(5, 11)
    inputs, mask = (query, key), torch.rand(3, 1, 11) < 0.7
    options = {"mask": mask, "bias": bias, "is_causal": is_causal}
    before = [x.clone() for x in (*inputs, bias)]
    plain = attention_weights(*inputs, **options)
    assert all(x.equal(y) for x, y in zip((*inputs, bias), before, strict=True))
    query.requires_grad_()
    assert attention_weights(*inputs, **options).detach().equal(plain)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own
@causal_or_not
def test_weights_inside_of_transforms(is_causal):
    """None of them knows how to write into memory that is there."""
    query, key, change = torch.randn(3, 2, 5, 7, dtype=torch.float64)

    def weights(query):
        return attention_weights(query, key[0], is_causal=is_causal)

    expected = torch.stack([weights(x) for x in query])
    torch.testing.assert_close(torch.vmap(weights)(query), expected)
    jacobian = torch.func.jacrev(weights)(query[0])  # (L, S, L, D)
    by_rows = torch.autograd.functional.jacobian(weights, query[0])
    torch.testing.assert_close(jacobian, by_rows)
    _, forward = torch.func.jvp(weights, (query[0],), (change[0],))
    torch.testing.assert_close(forward, (jacobian * change[0]).sum(dim=(-2, -1)))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"mask": torch.rand(5, 7) < 0.5}])
def test_masked_softmax_writes_over_the_scores_only_if_told_to(options):
    scores = torch.randn(2, 5, 7)
    before = scores.clone()
    weights = masked_softmax(scores, **options)
    assert scores.equal(before)
    torch.testing.assert_close(masked_softmax(scores, **options, overwrite=True), weights)
    assert scores.equal(weights) == (not options)


def test_repeated_heads_are_copies_of_their_group():
    key, query = torch.randn(B, H_KV, S, D), torch.randn(B, H, L, D)
    repeated = repeat_heads(key, query)
    for head in range(H):
        assert repeated[:, head].equal(key[:, head // (H // H_KV)])
    assert repeat_heads(repeated, query) is repeated


DTYPES = {
    "attention": lambda q, k, v: attention(q, k, v),
    "with weights": lambda q, k, v: attention(q, k, v, return_weights=True),
    "fused": lambda q, k, v: fused_attention(q, k, v),
    "tiled": lambda q, k, v: tiled_attention(q, k, v),
    "local": lambda q, k, v: local_attention(q, k, v, window=2),
    "strided": lambda q, k, v: strided_attention(q, k, v, window=2, stride=2),
    "linear": lambda q, k, v: linear_attention(q, k, v),
    "delta": lambda q, k, v: gated_delta_attention(q, k, v),
    "capped": lambda q, k, v: soft_capped_attention(q, k, v, cap=1.0),
    "normed": lambda q, k, v: NormedAttention(4)(q, k, v),
    "top k": lambda q, k, v: top_k_attention(q, k, v, torch.zeros(2, 3, 5, 5), 2),
    "gradients": lambda q, k, v: attention_gradients(q, k, v, v),
    "relative": lambda q, k, v: RelativePosition(4, 2).attend(q, k, v),
    "bias": lambda q, k, v: LearnedBias(3, 5).attend(q, k, v),
}


@pytest.mark.parametrize("name", DTYPES)
def test_query_key_and_value_have_one_dtype(name):
    query, key, value = torch.randn(3, 2, 3, 5, 4)
    DTYPES[name](query, key, value)
    with pytest.raises(TypeError, match=r"^key must be torch.float32 as query, got torch.float64$"):
        DTYPES[name](query, key.double(), value.double())
    with pytest.raises(TypeError, match=r"^value must be torch.float32 as key, got torch.bfloat16"):
        DTYPES[name](query, key, value.bfloat16())


@pytest.mark.parametrize("return_weights", [False, True])
def test_a_mask_of_three_axes_is_for_the_heads(return_weights):
    query, key = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4)
    mask = torch.rand(2, 5, 7) > 0.5
    rule = r"mask must broadcast to (..., L, S) = (2, 3, 5, 7), got (2, 5, 7)"
    hint = "; for one table a sequence, (B, L, S), pass mask[:, None]"
    with pytest.raises(ValueError, match="^" + re.escape(rule + hint) + "$"):
        attention(query, key, key, mask=mask, return_weights=return_weights)
    heads = torch.rand(3, 5, 7) > 0.5
    same = attention(query, key, key, mask=heads.expand(2, 3, 5, 7))
    assert attention(query, key, key, mask=heads).equal(same)

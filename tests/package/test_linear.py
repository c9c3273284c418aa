"""Against the formula in plain Python, PyTorch's attention where both agree, and closed forms."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mhattn import MultiHeadAttention, causal_mask, padding_mask, window_mask
from mhattn.inside import peak_bytes
from mhattn.variants import (
    elu_plus_one,
    linear_attention,
    linear_attention_weights,
    recurrent_linear_attention,
)

B, H, H_KV, L, S, D, D_V = 2, 6, 3, 5, 7, 11, 13
MANY = 17  # queries, more than keys

MASKS = {
    "none": None,
    "padding": padding_mask(torch.tensor([7, 3]), S),
    "a sequence without keys": padding_mask(torch.tensor([0, 5]), S),
    "one for each key": torch.tensor([1, 0, 1, 1, 0, 1, 0]).bool(),
    "another for each head": torch.rand(B, H, 1, S) < 0.5,
    "one for each sequence": torch.tensor([True, False]).view(B, 1, 1, 1),
    "nothing": torch.tensor(False),
}
every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
every_length = pytest.mark.parametrize("num_queries", [L, S, MANY], ids=["L<S", "L=S", "L>S"])
causal_or_not = pytest.mark.parametrize("is_causal", [False, True])
every_chunk = pytest.mark.parametrize("chunk_size", [1, 2, 3, 64])


def tensors(num_queries=L, num_keys=S, *, num_kv_heads=H, dtype=torch.float64):
    kv = num_kv_heads
    shapes = (H, num_queries, D), (kv, num_keys, D), (kv, num_keys, D_V)
    return [torch.randn(B, *shape, dtype=torch.float64).to(dtype) for shape in shapes]


def features_of(rows):
    return [[x + 1 if x > 0 else math.exp(x) for x in row] for row in rows.tolist()]


def by_loop(query, key, value, mask, is_causal):
    """Weights and output of one head, from the formula, in plain Python numbers."""
    last = len(key) - len(query)
    weights = []
    for i, q in enumerate(features_of(query)):
        row = [sum(a * b for a, b in zip(q, k, strict=True)) for k in features_of(key)]
        for j, seen in enumerate(mask[i].tolist()):
            if not seen or (is_causal and j > i + last):
                row[j] = 0.0
        total = sum(row) or 1.0
        weights.append([weight / total for weight in row])
    weights = torch.tensor(weights, dtype=query.dtype)
    return weights @ value, weights


def by_loop_over_heads(query, key, value, mask=None, is_causal=False):
    shape = (*query.shape[:-1], key.shape[-2])
    masks = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    group = query.shape[1] // key.shape[1]
    results = [
        by_loop(query[b, h], key[b, h // group], value[b, h // group], masks[b, h], is_causal)
        for b in range(query.shape[0])
        for h in range(query.shape[1])
    ]
    output, weights = (
        torch.stack(parts).unflatten(0, query.shape[:2]) for parts in zip(*results, strict=True)
    )
    return output, weights


def assert_equal(ours, right, atol=1e-12):
    torch.testing.assert_close(ours, right, atol=atol, rtol=0)


@every_mask
@every_length
@causal_or_not
def test_equal_to_the_formula(mask, num_queries, is_causal):
    inputs = tensors(num_queries)
    output, weights = by_loop_over_heads(*inputs, mask, is_causal)
    assert_equal(linear_attention_weights(*inputs[:2], mask=mask, is_causal=is_causal), weights)
    for chunk_size in (1, 3, 64):
        ours = linear_attention(*inputs, mask=mask, is_causal=is_causal, chunk_size=chunk_size)
        assert_equal(ours, output)


@settings(deadline=None)
@given(
    st.integers(0, 2),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 40),
    st.integers(1, 40),
    st.integers(1, 9),
    st.booleans(),
)
def test_table_and_sums_agree_at_any_size(
    batch, kv_heads, group, queries, keys, chunk_size, is_causal
):
    query = torch.randn(batch, kv_heads * group, queries, 3).double()
    key = torch.randn(batch, kv_heads, keys, 3).double()
    value = torch.randn(batch, kv_heads, keys, 2).double()
    mask = torch.rand(batch, 1, 1, keys) < 0.7
    weights = linear_attention_weights(query, key, mask=mask, is_causal=is_causal)
    output, state = linear_attention(
        query, key, value, mask=mask, is_causal=is_causal, return_state=True, chunk_size=chunk_size
    )
    assert_equal(output, weights @ value.repeat_interleave(group, dim=1))
    assert state.shape == (batch, kv_heads * group, 3, 3)


@settings(deadline=None)
@given(
    st.integers(0, 2), st.integers(1, 3), st.integers(1, 2), st.integers(1, 40), st.integers(1, 9)
)
def test_three_forms_of_one_function(batch, kv_heads, group, length, chunk_size):
    """Values and gradients of the table, the recurrence and the chunks."""
    query = torch.randn(batch, kv_heads * group, length, 3).double().requires_grad_()
    key = torch.randn(batch, kv_heads, length, 3).double().requires_grad_()
    value = torch.randn(batch, kv_heads, length, 2).double().requires_grad_()
    inputs = query, key, value
    table = linear_attention_weights(query, key, is_causal=True)
    table = table @ value.repeat_interleave(group, dim=1)
    chunks = linear_attention(*inputs, is_causal=True, chunk_size=chunk_size)
    recurrence = recurrent_linear_attention(*inputs)
    probe = torch.randn_like(table)
    gradients = torch.autograd.grad(table, inputs, probe)
    for form in (recurrence, chunks):
        assert_equal(form, table)
        for ours, expected in zip(torch.autograd.grad(form, inputs, probe), gradients, strict=True):
            assert_equal(ours, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(S, D), (H, S, D), (2, B, H, S, D)], ids=len)
def test_the_recurrence_in_any_shape_and_precision(dtype, shape):
    inputs = torch.randn(3, *shape).to(dtype)
    exact = linear_attention(*inputs.double(), is_causal=True)
    output = recurrent_linear_attention(*inputs)
    assert output.dtype == dtype
    loose = {"atol": 2e-5, "rtol": 0 if dtype == torch.float32 else torch.finfo(dtype).eps}
    torch.testing.assert_close(output.double(), exact, **loose)


def test_weights_by_hand():
    """Features (1, 3) against (1, 1), (3, 1) and (2, 4): 4, 6 and 14 of 24."""
    query, key = torch.tensor([[0.0, 2.0]]), torch.tensor([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]])
    weights = linear_attention_weights(query, key)
    torch.testing.assert_close(24 * weights, torch.tensor([[4.0, 6.0, 14.0]]))
    value = torch.tensor([[24.0], [48.0], [-24.0]])
    output, state = linear_attention(query, key, value, return_state=True)
    torch.testing.assert_close(output, torch.tensor([[2.0]]))  # 4 + 2 * 6 - 14
    expected = torch.tensor([[24.0 * (1 + 6 - 2), 6.0], [24.0 * (1 + 2 - 4), 6.0]])
    torch.testing.assert_close(state, expected)


@pytest.mark.parametrize("shape", [(S, D), (H, S, D), (B, H, S, D), (2, B, H, S, D)], ids=len)
def test_any_leading_axes(shape):
    query, key, value = torch.randn(3, *shape).double()
    flat = [x.reshape(1, -1, S, D) for x in (query, key, value)]
    expected, _ = by_loop_over_heads(*flat, is_causal=True)
    ours = linear_attention(query, key, value, is_causal=True, chunk_size=3)
    assert_equal(ours, expected.view(shape))


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3])
@causal_or_not
def test_grouped_heads(num_kv_heads, is_causal):
    inputs = tensors(num_kv_heads=num_kv_heads)
    output, weights = by_loop_over_heads(*inputs, is_causal=is_causal)
    assert_equal(linear_attention(*inputs, is_causal=is_causal), output)
    assert_equal(linear_attention_weights(*inputs[:2], is_causal=is_causal), weights)


@causal_or_not
def test_with_features_of_the_softmax_it_is_softmax_attention(is_causal):
    """Keys are unit vectors, so exp(q . e_j) = exp(q) . e_j."""

    def unit_or_exp(x):
        is_unit = (x == 0).any()  # keys; no random query has a zero
        return x if is_unit else x.exp()

    query, key = torch.randn(2, 3, S, S).double(), torch.eye(S).double().expand(2, 3, S, S)
    value = torch.randn(2, 3, S, D_V).double()
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=is_causal, scale=1.0)
    options = {"is_causal": is_causal, "chunk_size": S}
    assert_equal(linear_attention(query, key, value, feature_map=unit_or_exp, **options), expected)


def test_feature_map_may_widen():
    def degree_two(x):
        return torch.cat([torch.ones_like(x[..., :1]), x.abs(), x.square()], dim=-1)

    query, key, value = tensors(S)
    features = degree_two(query), degree_two(key)
    table = (features[0] @ features[1].mT).tril()
    expected = table @ value / table.sum(dim=-1, keepdim=True)
    options = {"is_causal": True, "feature_map": degree_two}
    output, state = linear_attention(query, key, value, return_state=True, **options)
    assert_equal(output, expected)
    assert state.shape == (B, H, 2 * D + 1, D_V + 1)
    assert_equal(linear_attention_weights(query, key, **options) @ value, expected)


@every_chunk
@pytest.mark.parametrize("cuts", [[29], [1] * 29, [13, 1, 1, 14], [28, 1], [2, 27]], ids=str)
def test_a_state_handed_on_is_the_full_pass(cuts, chunk_size):
    inputs = tensors(29, 29)
    expected, full = linear_attention(*inputs, is_causal=True, return_state=True)
    outputs, state = [], None
    for parts in zip(*(x.split(cuts, dim=-2) for x in inputs), strict=True):
        options = {"state": state, "return_state": True, "chunk_size": chunk_size}
        output, state = linear_attention(*parts, is_causal=True, **options)
        outputs.append(output)
    assert_equal(torch.cat(outputs, dim=-2), expected)
    assert_equal(state, full)


@pytest.mark.parametrize(("before", "queries", "keys"), [(5, 3, 7), (5, 7, 3), (1, 2, 2)])
@causal_or_not
def test_keys_of_the_state_are_seen_by_all(before, queries, keys, is_causal):
    query, key, value = tensors(queries, before + keys)
    mask = torch.ones(queries, before + keys).bool()
    if is_causal:
        mask[:, before:] = causal_mask(queries, keys)
    expected = linear_attention_weights(query, key, mask=mask) @ value
    first, then = (
        [x[..., part, :] for x in (key, value)] for part in (slice(before), slice(before, None))
    )
    _, state = linear_attention(query[..., :1, :], *first, return_state=True)
    options = {"is_causal": is_causal, "state": state, "chunk_size": 2}
    assert_equal(linear_attention(query, *then, **options), expected)


def test_state_holds_two_sums():
    query, key, value = tensors()
    _, state = linear_attention(query, key, value, mask=MASKS["padding"], return_state=True)
    for b, length in enumerate((7, 3)):
        features = (F.elu(key[b]) + 1)[:, :length]  # (H, n, D)
        products = torch.einsum("hnd,hne->hde", features, value[b, :, :length])
        assert_equal(state[b, ..., :-1], products)
        assert_equal(state[b, ..., -1], features.sum(dim=-2))


@every_length
@causal_or_not
@every_chunk
def test_gradients_are_those_of_the_table(num_queries, is_causal, chunk_size):
    inputs = [x.requires_grad_() for x in tensors(num_queries, num_kv_heads=H_KV)]
    probe = torch.randn(B, H, num_queries, D_V).double()
    mask = padding_mask(torch.tensor([6, 3]), S)
    allowed = mask.expand(B, H, num_queries, S)
    if is_causal:
        allowed = allowed & causal_mask(num_queries, S)
    query, key, value = inputs
    features = [F.elu(x) + 1 for x in (query, key.repeat_interleave(2, dim=1))]
    table = (features[0] @ features[1].mT) * allowed
    total = table.sum(dim=-1, keepdim=True)
    output = table @ value.repeat_interleave(2, dim=1) / torch.where(total == 0, 1.0, total)
    expected = torch.autograd.grad(output, inputs, probe)
    output = linear_attention(*inputs, mask=mask, is_causal=is_causal, chunk_size=chunk_size)
    ours = torch.autograd.grad(output, inputs, probe)
    for gradient, right in zip(ours, expected, strict=True):
        assert_equal(gradient, right)


def test_gradients_reach_back_through_the_state():
    inputs = [x.requires_grad_() for x in tensors(S)]
    probe = torch.randn(B, H, S, D_V).double()
    expected = torch.autograd.grad(linear_attention(*inputs, is_causal=True), inputs, probe)
    outputs, state = [], None
    for parts in zip(*(x.split(3, dim=-2) for x in inputs), strict=True):
        output, state = linear_attention(*parts, is_causal=True, state=state, return_state=True)
        outputs.append(output)
    ours = torch.autograd.grad(torch.cat(outputs, dim=-2), inputs, probe)
    for gradient, right in zip(ours, expected, strict=True):
        assert_equal(gradient, right)


def test_no_position_sees_a_later_one():
    inputs = tensors(29, 29)
    before = linear_attention(*inputs, is_causal=True, chunk_size=4)
    for x in inputs:
        x[..., 18:, :] += 100
    after = linear_attention(*inputs, is_causal=True, chunk_size=4)
    assert after[..., :18, :].equal(before[..., :18, :])
    assert not torch.isclose(after[..., 18:, :], before[..., 18:, :]).any()


@every_mask
@causal_or_not
def test_output_is_a_mean_of_the_values_that_are_seen(mask, is_causal):
    query, key, _ = tensors(S, dtype=torch.float32)
    value = torch.tensor([3.0, -7.0]).expand(B, H, S, 2)
    output = linear_attention(query, key, value, mask=mask, is_causal=is_causal, chunk_size=3)
    seen = torch.ones(B, H, S, S).bool() if mask is None else mask.expand(B, H, S, S)
    some = (seen.tril() if is_causal else seen).any(dim=-1, keepdim=True)
    torch.testing.assert_close(output, torch.where(some, value, torch.tensor(0.0)))


def test_hidden_values_may_be_anything():
    query, key, value = tensors(S)
    mask = MASKS["one for each key"]
    expected = linear_attention(query, key, value, mask=mask, is_causal=True)
    value[..., ~mask, :] = math.nan
    assert_equal(linear_attention(query, key, value, mask=mask, is_causal=True), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@causal_or_not
def test_lower_precision_is_close_to_float64(dtype, is_causal):
    inputs = tensors(257, 257, dtype=dtype)
    options = {"is_causal": is_causal, "return_state": True}
    exact, _ = linear_attention(*(x.double() for x in inputs), **options)
    output, state = linear_attention(*inputs, **options)
    assert output.dtype == dtype
    assert state.dtype == torch.float32
    loose = {"atol": 2e-5, "rtol": 0 if dtype == torch.float32 else torch.finfo(dtype).eps}
    torch.testing.assert_close(output.double(), exact, **loose)


def test_sums_too_large_for_float16_are_no_infinity():
    query = torch.full((3, 64), 200.0, dtype=torch.float16)
    value = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float16)
    assert linear_attention(query, query, value).tolist() == [[2], [2], [2]]


def test_what_float16_sums_would_lose():
    """Added up in float16, 1 + 1 + ... stops at 2048."""
    ones = torch.zeros(1, 4096, 1, dtype=torch.float16)  # features of 1
    value = torch.ones(1, 4096, 1, dtype=torch.float16)
    output, state = linear_attention(ones, ones, value, is_causal=True, return_state=True)
    assert output.eq(1).all()
    assert state.tolist() == [[[4096.0, 4096.0]]]


def test_elu_plus_one_is_elu_plus_one():
    x = torch.linspace(-30, 30, 241, dtype=torch.float64)
    torch.testing.assert_close(elu_plus_one(x), F.elu(x) + 1, atol=1e-15, rtol=1e-15)
    assert elu_plus_one(torch.tensor(0.0)) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_elu_plus_one_keeps_its_digits(dtype):
    x = torch.tensor([-80.0, -20.0, -10.0, -7.0, -1.0, 0.0, 50.0, 200.0], dtype=dtype)
    if dtype == torch.float16:
        x = x[2:]
    expected = torch.where(x > 0, x.double() + 1, x.double().exp())
    torch.testing.assert_close(
        elu_plus_one(x).double(), expected, atol=0, rtol=2 * torch.finfo(dtype).eps
    )
    assert (elu_plus_one(x) > 0).all()


def test_slope_of_elu_plus_one_is_right_everywhere():
    x = torch.tensor([-1e4, -1.0, 0.0, 1.0, 1e4], requires_grad=True)
    (slope,) = torch.autograd.grad(elu_plus_one(x).sum(), x)
    torch.testing.assert_close(slope, torch.tensor([0.0, math.exp(-1), 1, 1, 1]))


def test_small_features_divide_out():
    """All features of the query are exp(-80): far below float32's digits at 1, and no matter."""
    query = torch.full((1, 4), -80.0)
    key, value = torch.randn(5, 4), torch.randn(5, 3)
    expected = linear_attention(torch.zeros(1, 4), key, value)
    torch.testing.assert_close(linear_attention(query, key, value), expected)


def test_underflow_gives_zeros_not_nan():
    query = torch.full((1, 4), -200.0, requires_grad=True)  # exp(-200) is 0 in float32
    output = linear_attention(query, torch.randn(5, 4), torch.randn(5, 3))
    assert output.tolist() == [[0, 0, 0]]
    (gradient,) = torch.autograd.grad(output.sum(), query)
    assert gradient.tolist() == [[0, 0, 0, 0]]


LONG = 1024


@causal_or_not
def test_memory_grows_with_the_length_only(is_causal):
    def peak(length):
        inputs = torch.randn(3, 1, 2, length, 16)
        return peak_bytes(lambda: linear_attention(*inputs, is_causal=is_causal))

    assert 1.8 < peak(2 * LONG) / peak(LONG) < 2.05
    result = 2 * LONG * 16 * 4
    assert peak(LONG) < 3 * result, "the result, its pieces, and one chunk"
    assert peak(LONG) < LONG * LONG * 4 / 8, "one table for one head would take more"


class Numbers(TorchDispatchMode):
    """How many numbers all operations return together, those of the backward pass included."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.count += sum(x.numel() for x in tree_leaves(result) if isinstance(x, torch.Tensor))
        return result


@causal_or_not
def test_memory_and_work_of_training_grow_with_the_length_only(is_causal):
    def train(length):
        inputs = torch.randn(3, 1, 2, length, 32).requires_grad_()
        linear_attention(*inputs, is_causal=is_causal).sum().backward()

    def work(length):
        with Numbers() as numbers:
            train(length)
        return numbers.count

    peaks = [peak_bytes(lambda length=length: train(length)) for length in (LONG, 2 * LONG)]
    assert 1.8 < peaks[1] / peaks[0] < 2.05
    assert peaks[0] < 2 * LONG * 32 * 33 * 4, "a state for every position would take more"
    assert work(2 * LONG) / work(LONG) < 2.05


def test_time_grows_with_the_length_only():
    """Counted, not measured: each chunk takes the same products of matrices."""
    from torch.utils.flop_counter import FlopCounterMode

    def flops(length, is_causal):
        inputs = torch.randn(3, 1, 1, length, 16)
        with FlopCounterMode(display=False) as counter:
            linear_attention(*inputs, is_causal=is_causal)
        return counter.get_total_flops()

    state, table = 2 * 16 * 17, 2 * 64 * (16 + 17)  # a position and the state; and its chunk
    assert flops(1024, False) == 1024 * 2 * state
    assert flops(1024, True) == 1024 * (2 * state + table)


def test_inputs_are_left_alone():
    inputs = tensors(S)
    _, state = linear_attention(*inputs, return_state=True)
    copies = [x.clone() for x in (*inputs, state)]
    linear_attention(*inputs, mask=MASKS["padding"], is_causal=True, state=state)
    assert all(x.equal(y) for x, y in zip((*inputs, state), copies, strict=True))


SIZES = {"embed_dim": 23, "num_heads": 3, "head_dim": 7, "kdim": 11, "vdim": 13}


@causal_or_not
@every_mask
def test_layer_is_its_four_projections_around_the_function(mask, is_causal):
    if mask is not None and mask.ndim > 1 and mask.shape[1] == H:
        mask = mask[:, :3]
    layer = MultiHeadAttention(**SIZES, attend=linear_attention)
    x, key, value = torch.randn(B, L, 23), torch.randn(B, S, 11), torch.randn(B, S, 13)
    heads = []
    for i in range(3):
        own = slice(7 * i, 7 * i + 7)
        q, k, v = (
            F.linear(y, proj.weight[own], proj.bias[own])
            for y, proj in [(x, layer.q_proj), (key, layer.k_proj), (value, layer.v_proj)]
        )
        allowed = mask
        if mask is not None and mask.ndim == 4:
            allowed = mask[:, min(i, mask.shape[1] - 1)]
        heads.append(linear_attention(q, k, v, mask=allowed, is_causal=is_causal))
    expected = layer.out_proj(torch.cat(heads, dim=-1))
    torch.testing.assert_close(layer(x, key, value, mask=mask, is_causal=is_causal), expected)


Q, K, V = (torch.zeros(2, *shape) for shape in [(6, 5, 8), (3, 7, 8), (3, 7, 4)])
KEYS_ONLY = (
    "mask must be the same for all queries, (..., 1, S): "
    "the keys are added up once for all of them, got "
)
WRONG = [
    ((Q, K, V), {"mask": window_mask(5, 7, 2)}, ValueError, KEYS_ONLY + "(5, 7)"),
    ((Q, K, V), {"mask": torch.ones(2, 1, 5, 1).bool()}, ValueError, KEYS_ONLY + "(2, 1, 5, 1)"),
    (
        (Q, K, V),
        {"mask": torch.ones(5, dtype=torch.bool)},
        ValueError,
        "mask must broadcast to (..., L, S) = (2, 6, 5, 7), got (5,)",
    ),
    (
        (Q, K, V),
        {"mask": torch.zeros(7)},
        TypeError,
        "mask must be a tensor of booleans, True = may attend, got torch.float32",
    ),
    ((Q, K, V), {"chunk_size": 0}, ValueError, "chunk_size must be at least 1, got 0"),
    ((Q, K, V), {"chunk_size": 4.0}, TypeError, "chunk_size must be an integer, got float"),
    (
        (Q, K, V),
        {"state": torch.zeros(2, 6, 8, 4)},
        ValueError,
        "state must be (..., D_phi, D_v + 1) = (2, 6, 8, 5), got (2, 6, 8, 4)",
    ),
    ((Q, K, V), {"state": 0}, TypeError, "state must be a tensor of floats, got int"),
    ((Q.int(), K, V), {}, TypeError, "query must be a tensor of floats, got torch.int32"),
    (
        (Q, K, V[:, :, :2]),
        {},
        ValueError,
        "key and value must have the same axes but the last, "
        "got key (2, 3, 7, 8) and value (2, 3, 2, 4)",
    ),
]


@pytest.mark.parametrize(("args", "options", "kind", "message"), WRONG)
def test_errors_name_argument_rule_and_value(args, options, kind, message):
    with pytest.raises(kind) as caught:
        linear_attention(*args, **options)
    assert str(caught.value) == message


def test_a_table_takes_any_mask():
    query, key, value = tensors(S)
    mask = window_mask(S, S, 2)
    _, weights = by_loop_over_heads(query, key, value, mask, True)
    assert_equal(linear_attention_weights(query, key, mask=mask, is_causal=True), weights)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: recurrent_linear_attention(Q, K, V),
            ValueError,
            "query must be as long as key, got query (2, 6, 5, 8) and key (2, 3, 7, 8)",
        ),
        (
            lambda: linear_attention_weights(Q, K, mask=torch.zeros(5, 7)),
            TypeError,
            "mask must be a tensor of booleans, True = may attend, got torch.float32",
        ),
    ],
)
def test_errors_of_the_definitions(call, kind, message):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message

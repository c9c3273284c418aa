"""Against autograd through PyTorch's own attention, finite differences, and closed forms."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st

from mhattn import attention, attention_weights, padding_mask, window_mask
from mhattn.core import AttentionGradients, attention_gradients

B, H, H_KV, L, S, D, D_V = 2, 6, 3, 5, 7, 11, 13
MANY = 17  # queries, more than keys

MASKS = {
    "none": lambda num_queries: None,
    "padding": lambda num_queries: padding_mask(torch.tensor([7, 3]), S),
    "a sequence without keys": lambda num_queries: padding_mask(torch.tensor([0, 5]), S),
    "window": lambda num_queries: window_mask(num_queries, S, 2),
    "random": lambda num_queries: torch.rand(B, H, num_queries, S) < 0.3,
    "one for each key": lambda num_queries: torch.rand(S) < 0.5,
    "one for each query": lambda num_queries: torch.rand(num_queries, 1) < 0.5,
    "nothing": lambda num_queries: torch.tensor(False),
}
every_mask = pytest.mark.parametrize("mask", MASKS)
every_length = pytest.mark.parametrize("num_queries", [L, S, MANY], ids=["L<S", "L=S", "L>S"])
causal_or_not = pytest.mark.parametrize("is_causal", [False, True])


def tensors(num_queries=L, *, num_kv_heads=H_KV, dtype=torch.float64):
    """Query, key, value and the gradient of the output."""
    kv = num_kv_heads
    shapes = (H, num_queries, D), (kv, S, D), (kv, S, D_V), (H, num_queries, D_V)
    return [torch.randn(B, *shape, dtype=torch.float64).to(dtype) for shape in shapes]


def by_autograd(query, key, value, grad_output, mask=None, is_causal=False, scale=None):
    """PyTorch's attention and PyTorch's gradients; causal as a table, grouped heads repeated."""
    inputs = [x.detach().requires_grad_() for x in (query, key, value)]
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    seen = torch.ones(*query.shape[:-1], num_keys, dtype=torch.bool)
    seen = seen if mask is None else seen & mask
    if is_causal:
        seen &= (
            torch.arange(num_keys) <= torch.arange(num_queries)[:, None] + num_keys - num_queries
        )
    group = query.shape[-3] // key.shape[-3] if query.ndim > 2 else 1
    key, value = inputs[1:]
    if group > 1:
        key, value = (x.repeat_interleave(group, dim=-3) for x in (key, value))
    output = F.scaled_dot_product_attention(inputs[0], key, value, seen, scale=scale)
    output = output.masked_fill(~seen.any(-1, keepdim=True), 0.0)
    return torch.autograd.grad(output, inputs, grad_output)


def double(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def assert_equal(gradients, expected, atol=1e-12):
    for gradient, right in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, right, atol=atol, rtol=0)


@every_length
@causal_or_not
@every_mask
def test_equal_to_autograd(mask, is_causal, num_queries):
    inputs, mask = tensors(num_queries), MASKS[mask](num_queries)
    expected = by_autograd(*inputs, mask, is_causal)
    assert_equal(attention_gradients(*inputs, mask=mask, is_causal=is_causal), expected)


@pytest.mark.parametrize("scale", [0.01, 0.7, 3.0])
def test_scale_reaches_query_and_key(scale):
    inputs = tensors()
    assert_equal(attention_gradients(*inputs, scale=scale), by_autograd(*inputs, scale=scale))


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
def test_a_shared_head_gets_the_sum_over_its_query_heads(num_kv_heads):
    query, key, value, grad_output = tensors(num_kv_heads=num_kv_heads)
    gradients = attention_gradients(query, key, value, grad_output)
    expected = [torch.zeros_like(x) for x in (query, key, value)]
    for i in range(H):
        shared = i * num_kv_heads // H
        alone = query[:, i], key[:, shared], value[:, shared], grad_output[:, i]
        for total, at, part in zip(expected, (i, shared, shared), by_autograd(*alone), strict=True):
            total[:, at] += part
    assert_equal(gradients, expected)


@pytest.mark.parametrize("take", [(0, 0), (0,), (), (None,)], ids=["2", "3", "4", "5 axes"])
def test_any_leading_axes(take):
    inputs = [x[take] for x in tensors(num_kv_heads=H)]
    assert_equal(attention_gradients(*inputs, is_causal=True), by_autograd(*inputs, is_causal=True))


class ByHand(torch.autograd.Function):
    """Attention whose backward pass is ours."""

    @staticmethod
    def forward(query, key, value, mask):
        return attention(query, key, value, mask=mask, is_causal=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.mask = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, grad_output):
        gradients = attention_gradients(
            *ctx.saved_tensors, grad_output, mask=ctx.mask, is_causal=True
        )
        return (*gradients, None)


@pytest.mark.parametrize("mask", ["none", "a sequence without keys", "random"])
def test_equal_to_finite_differences(mask):
    inputs = [x[..., :2].requires_grad_() for x in tensors(3)[:3]]
    assert torch.autograd.gradcheck(ByHand.apply, (*inputs, MASKS[mask](3)))


def test_it_is_differentiable_itself():
    inputs = [x[:1, ..., :2].requires_grad_() for x in tensors(3)[:3]]
    assert torch.autograd.gradgradcheck(ByHand.apply, (*inputs, None))


def test_two_keys_are_a_sigmoid():
    """With d_k = 1, keys 0 and k, values 0 and v: o = a v, a = sigmoid(q k), a' = a (1 - a)."""
    q, k, v = 0.7, 1.3, -2.1
    a = 1 / (1 + math.exp(-q * k))
    query, key, value = map(double, ([[q]], [[0], [k]], [[0], [v]]))
    gradients = attention_gradients(query, key, value, torch.ones(1, 1).double())
    slope = a * (1 - a) * v
    expected = [[[slope * k]], [[-slope * q], [slope * q]], [[1 - a], [a]]]
    assert_equal(gradients, map(double, expected))


def test_three_keys_by_hand():
    """a = (1, 2, 1) / 4 and dA = (4, 0, 8), whose mean is 3: dS = (1/4, -3/2, 5/4)."""
    query, value = torch.ones(1, 1).double(), double([[4], [0], [8]])
    key = double([[1], [2], [1]]).log()
    gradients = attention_gradients(query, key, value, torch.ones(1, 1).double(), scale=1.0)
    expected = [[-1.5 * math.log(2)]], [[0.25], [-1.5], [1.25]], [[0.25], [0.5], [0.25]]
    assert_equal(gradients, map(double, expected))


def test_unit_keys_show_the_gradient_of_the_scores():
    """It is A (dA - r), where r is found from the output alone, and its rows sum to zero."""
    query, value, grad_output = torch.randn(3, S, S).double()
    output, weights = attention(
        query, torch.eye(S).double(), value, is_causal=True, scale=1.0, return_weights=True
    )
    from_output = (grad_output * output).sum(dim=-1, keepdim=True)
    expected = weights * (grad_output @ value.mT - from_output)
    inputs = query, torch.eye(S).double(), value, grad_output
    grad_scores = attention_gradients(*inputs, is_causal=True, scale=1.0).query
    torch.testing.assert_close(grad_scores, expected, atol=1e-12, rtol=0)
    assert (grad_scores.sum(dim=-1).abs() < 1e-12).all()


@every_mask
def test_moving_all_keys_alike_changes_nothing(mask):
    mask = MASKS[mask](L)
    gradients = attention_gradients(*tensors(), mask=mask)
    zero = torch.zeros(B, H_KV, D).double()
    torch.testing.assert_close(gradients.key.sum(dim=-2), zero, atol=1e-12, rtol=0)


def test_gradients_of_the_value_are_shares_of_attention():
    query, key, value, grad_output = tensors(num_kv_heads=H)
    ones = torch.ones_like(grad_output)
    gradient = attention_gradients(query, key, value, ones).value
    received = attention_weights(query, key).sum(dim=-2)  # (B, H, S)
    torch.testing.assert_close(gradient, received[..., None].expand_as(value))


def test_what_is_hidden_gets_exactly_nothing():
    mask = torch.ones(L, S, dtype=torch.bool)
    mask[:, 3] = False  # a key that nobody sees
    mask[2] = False  # a query that sees nobody
    query, key, value, grad_output = tensors()
    gradients = attention_gradients(query, key, value, grad_output, mask=mask)
    assert (gradients.key[:, :, 3] == 0).all()
    assert (gradients.value[:, :, 3] == 0).all()
    assert (gradients.query[:, :, 2] == 0).all()
    idle = [(x == 0).all(-1).sum().item() for x in gradients]
    assert idle == [B * H, B * H_KV, B * H_KV], "and nobody else is idle"
    without = [x.index_select(2, torch.tensor([0, 1, 3, 4])) for x in (query, grad_output)]
    rest = attention_gradients(without[0], key, value, without[1], mask=mask[:1])
    assert_equal(gradients[1:], rest[1:])


def test_one_hot_weights_teach_the_values_only():
    query = 1000 * torch.eye(S).double()
    value, grad_output = torch.randn(2, S, D_V).double()
    order = torch.randperm(S)
    key = torch.eye(S).double()[order]
    gradients = attention_gradients(query, key, value, grad_output, scale=1.0)
    assert not gradients.query.any()
    assert not gradients.key.any()
    assert gradients.value.equal(grad_output[order])


def test_a_query_with_one_key_learns_nothing():
    inputs = tensors(S)
    gradients = attention_gradients(*inputs, is_causal=True)
    assert not gradients.query[:, :, 0].any()
    assert gradients.query[:, :, 1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@every_mask
def test_lower_precision_is_close_to_float64(dtype, mask):
    mask = MASKS[mask](L)
    inputs = tensors(dtype=dtype)
    exact = attention_gradients(*(x.double() for x in inputs), mask=mask)
    gradients = attention_gradients(*inputs, mask=mask)
    eps = torch.finfo(dtype).eps
    for gradient, right in zip(gradients, exact, strict=True):
        assert gradient.dtype == dtype
        # All is computed in float32; the result is rounded once.
        loose = {"atol": 2e-5, "rtol": 2e-5} if dtype is torch.float32 else {"atol": 2e-5}
        loose.setdefault("rtol", eps)
        torch.testing.assert_close(gradient.double(), right, **loose)


def test_scores_too_large_for_float16_are_no_nan():
    query = torch.full((3, 64), 200.0, dtype=torch.float16)
    key = query * torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float16)
    gradients = attention_gradients(query, key, key, query)
    assert gradients.value[0].unique().tolist() == [300]
    assert gradients.value[1].unique().tolist() == [0]
    assert all(gradient.isfinite().all() for gradient in gradients)


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
    query = torch.randn(batch, kv_heads * group, queries, dim).double()
    key = torch.randn(batch, kv_heads, keys, dim).double()
    value = torch.randn(batch, kv_heads, keys, value_dim).double()
    grad_output = torch.randn(batch, kv_heads * group, queries, value_dim).double()
    inputs = query, key, value, grad_output
    gradients = attention_gradients(*inputs, is_causal=is_causal)
    assert [x.shape for x in gradients] == [x.shape for x in (query, key, value)]
    if 0 not in (batch, queries, value_dim):
        assert_equal(gradients, by_autograd(*inputs, is_causal=is_causal))


def test_result_is_a_named_tuple_and_inputs_are_left_alone():
    inputs = tensors()
    before = [x.clone() for x in inputs]
    gradients = attention_gradients(*inputs)
    assert isinstance(gradients, AttentionGradients)
    assert AttentionGradients._fields == ("query", "key", "value")
    assert gradients.key is gradients[1]
    assert all(x.equal(y) for x, y in zip(inputs, before, strict=True))


Q, K, V, G = (torch.zeros(2, *shape) for shape in [(6, 5, 8), (3, 7, 8), (3, 7, 4), (6, 5, 4)])
OUTPUT = "grad_output must have the output's shape, (..., L, D_v) = (2, 6, 5, 4), got "

WRONG = [
    ((Q, K, V, G[:, :3]), {}, ValueError, OUTPUT + "(2, 3, 5, 4)"),
    ((Q, K, V, Q), {}, ValueError, OUTPUT + "(2, 6, 5, 8)"),
    ((Q, K, V, G[0]), {}, ValueError, OUTPUT + "(6, 5, 4)"),
    ((Q, K, V, 1.0), {}, TypeError, "grad_output must be a tensor of floats, got float"),
    ((Q, K, V, G.int()), {}, TypeError, "grad_output must be a tensor of floats, got torch.int32"),
    ((Q.int(), K, V, G), {}, TypeError, "query must be a tensor of floats, got torch.int32"),
    ((Q, K, V.bool(), G), {}, TypeError, "value must be a tensor of floats, got torch.bool"),
    (
        (Q, K[..., :5], V, G),
        {},
        ValueError,
        "query and key must have the same last axis, got query (2, 6, 5, 8) and key (2, 3, 7, 5)",
    ),
    (
        (Q, K, V[:, :, :2], G),
        {},
        ValueError,
        "key and value must have the same axes but the last, "
        "got key (2, 3, 7, 8) and value (2, 3, 2, 4)",
    ),
    (
        (Q, K, V, G),
        {"mask": torch.zeros(5, 7)},
        TypeError,
        "mask must be a tensor of booleans, True = may attend, got torch.float32",
    ),
    (
        (Q, K, V, G),
        {"mask": torch.ones(7, 5, dtype=torch.bool)},
        ValueError,
        "mask must broadcast to (..., L, S) = (2, 6, 5, 7), got (7, 5)",
    ),
    ((Q, K, V, G), {"scale": 0.0}, ValueError, "scale must be positive and finite, got 0.0"),
    ((Q, K, V, G), {"scale": math.inf}, ValueError, "scale must be positive and finite, got inf"),
]


@pytest.mark.parametrize(("args", "options", "kind", "message"), WRONG)
def test_errors_name_argument_rule_and_value(args, options, kind, message):
    with pytest.raises(kind) as caught:
        attention_gradients(*args, **options)
    assert str(caught.value) == message

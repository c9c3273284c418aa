"""Against PyTorch's dense attention with a mask made by a loop, closed forms, and counts."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mhattn import causal_mask, padding_mask, strided_mask, window_mask
from mhattn.inside import peak_bytes
from mhattn.variants import local_attention, strided_attention
from mhattn.variants.sparse import SHORTEST_BLOCK

B, H, H_KV, D, D_V = 2, 6, 3, 5, 7
LENGTHS = [(1, 1), (1, 131), (5, 7), (37, 37), (37, 131), (131, 131), (97, 193)]
every_length = pytest.mark.parametrize(("L", "S"), LENGTHS)
every_window = pytest.mark.parametrize("window", [1, 2, 3, 11, 32, 67, 131, 300])
causal_or_not = pytest.mark.parametrize("is_causal", [False, True])
PATTERNS = [(1, 1), (1, 3), (3, 1), (3, 7), (7, 7), (8, 4), (11, 7), (2, 200), (200, 3)]
every_pattern = pytest.mark.parametrize(("window", "stride"), PATTERNS)


def tensors(L, S, *, num_kv_heads=H_KV, dtype=torch.float64):
    shapes = (H, L, D), (num_kv_heads, S, D), (num_kv_heads, S, D_V)
    return [torch.randn(B, *shape, dtype=torch.float64).to(dtype) for shape in shapes]


def by_rule(L, S, rule):
    """Who sees whom, where the rule is given the position of the query and of the key."""
    return torch.tensor([[rule(i + S - L, j) for j in range(S)] for i in range(L)])


def in_window(window, is_causal):
    return lambda p, j: abs(p - j) < window and (j <= p or not is_causal)


def in_window_or_stride(window, stride):
    return lambda p, j: j <= p and (p - j < window or (p - j) % stride == 0)


def dense(query, key, value, seen, scale=None):
    """PyTorch's attention with all its scores; zeros for those who see nothing."""
    if query.ndim > 2 and key.shape[-3] != query.shape[-3]:
        group = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(group, dim=-3) for x in (key, value))
    seen = seen.expand(*query.shape[:-1], key.shape[-2])
    output = F.scaled_dot_product_attention(query, key, value, seen, scale=scale)
    return output.masked_fill(~seen.any(-1, keepdim=True), 0.0)


def assert_equal(output, expected, atol=1e-12):
    torch.testing.assert_close(output, expected, atol=atol, rtol=0)


@every_length
@every_window
@causal_or_not
def test_local_is_dense_with_a_window(L, S, window, is_causal):
    inputs = tensors(L, S)
    expected = dense(*inputs, by_rule(L, S, in_window(window, is_causal)))
    assert_equal(local_attention(*inputs, window, is_causal=is_causal), expected)


@every_length
@every_pattern
def test_strided_is_dense_with_a_window_and_a_stride(L, S, window, stride):
    inputs = tensors(L, S)
    expected = dense(*inputs, by_rule(L, S, in_window_or_stride(window, stride)))
    assert_equal(strided_attention(*inputs, window, stride), expected)


def test_the_rules_are_those_of_our_masks():
    seen = window_mask(37, 53, 5)
    assert seen.equal(by_rule(37, 53, in_window(5, False)))
    both = (seen | strided_mask(37, 53, 7)) & causal_mask(37, 53)
    assert both.equal(by_rule(37, 53, in_window_or_stride(5, 7)))


KEYS = {
    "padding": lambda S: padding_mask(torch.tensor([S, S // 3]), S),
    "a sequence without keys": lambda S: padding_mask(torch.tensor([0, S - 1]), S),
    "random, of each head": lambda S: torch.rand(B, H, 1, S) < 0.3,
    "the same for all": lambda S: torch.rand(S) < 0.3,
    "nobody": lambda S: torch.tensor(False),
}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize(("L", "S"), [(5, 7), (37, 131), (131, 131)])
@causal_or_not
def test_hidden_keys(keys, L, S, is_causal):
    inputs, mask = tensors(L, S), KEYS[keys](S)
    expected = dense(*inputs, by_rule(L, S, in_window(11, is_causal)) & mask)
    assert_equal(local_attention(*inputs, 11, mask=mask, is_causal=is_causal), expected)


CALLS = {
    "local": (lambda *x, **k: local_attention(*x, 11, **k), in_window(11, False)),
    "causal": (lambda *x, **k: local_attention(*x, 11, is_causal=True, **k), in_window(11, True)),
    "strided": (lambda *x, **k: strided_attention(*x, 11, 7, **k), in_window_or_stride(11, 7)),
}
every_call = pytest.mark.parametrize(("call", "rule"), CALLS.values(), ids=CALLS)


@every_call
@pytest.mark.parametrize(("L", "S"), [(1, 131), (37, 131), (131, 131)])
def test_gradients_are_those_of_dense_attention(call, rule, L, S):
    inputs = [x.requires_grad_() for x in tensors(L, S)]
    probe, seen = torch.randn(B, H, L, D_V, dtype=torch.float64), by_rule(L, S, rule)
    ours = torch.autograd.grad(call(*inputs), inputs, probe)
    theirs = torch.autograd.grad(dense(*inputs, seen), inputs, probe)
    for gradient, expected in zip(ours, theirs, strict=True):
        assert_equal(gradient, expected)


@every_call
def test_gradients_by_finite_differences(call, rule):
    inputs = [x[:1, :2, :, :2].contiguous().requires_grad_() for x in tensors(17, 19)]
    inputs[0] = inputs[0][:, :2].detach().requires_grad_()
    assert torch.autograd.gradcheck(call, inputs)


@every_call
@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
def test_grouped_heads(call, rule, num_kv_heads):
    inputs = tensors(37, 131, num_kv_heads=num_kv_heads)
    assert_equal(call(*inputs), dense(*inputs, by_rule(37, 131, rule)))


@every_call
@pytest.mark.parametrize("take", [(0, 0), (0,), (), (None,)], ids=["2", "3", "4", "5 axes"])
def test_any_leading_axes(call, rule, take):
    inputs = [x[take] for x in tensors(131, 131, num_kv_heads=H)]
    assert_equal(call(*inputs), dense(*inputs, by_rule(131, 131, rule)))


@every_call
def test_layout_in_memory_does_not_matter(call, rule):
    inputs = tensors(131, 131)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs]  # as split_heads
    assert_equal(call(*turned), call(*inputs))


@every_call
def test_scale(call, rule):
    inputs = tensors(131, 131)
    expected = dense(*inputs, by_rule(131, 131, rule), scale=0.1)
    assert_equal(call(*inputs, scale=0.1), expected)


@every_call
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 2e-6), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)]
)
def test_precisions(call, rule, dtype, atol):
    inputs = tensors(131, 131, dtype=dtype)
    expected = dense(*(x.double() for x in inputs), by_rule(131, 131, rule))
    output = call(*inputs)
    assert output.dtype == dtype
    assert_equal(output.double(), expected, atol)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_strided_is_rounded_once(dtype):
    """The log-sum-exp of a window, in half precision, would shift shares by some percent."""
    inputs = tensors(131, 131, dtype=dtype)
    expected = strided_attention(*(x.float() for x in inputs), 11, 7).to(dtype)
    assert strided_attention(*inputs, 11, 7).equal(expected)


@every_call
@pytest.mark.parametrize("factor", [1e-3, 30, 300])
def test_flat_and_sharp_scores(call, rule, factor):
    query, key, value = tensors(131, 131)
    inputs = factor * query, key, value
    assert_equal(call(*inputs), dense(*inputs, by_rule(131, 131, rule)))


@every_call
def test_equal_scores_give_every_seen_key_the_same_share(call, rule):
    """Closed form: a key that was counted twice would get two shares."""
    identity = torch.eye(53, dtype=torch.float64)  # makes the output the weights
    weights = call(torch.zeros(53, 1).double(), torch.zeros(53, 1).double(), identity)
    seen = by_rule(53, 53, rule).double()
    assert_equal(weights, seen / seen.sum(-1, keepdim=True))


@every_call
def test_inputs_stay_as_they_are(call, rule):
    inputs = tensors(131, 131)
    before = [x.clone() for x in inputs]
    call(*inputs)
    assert all(x.equal(y) for x, y in zip(inputs, before, strict=True))


@every_call
@pytest.mark.parametrize("shape", [(0, 3, 131), (2, 3, 0)], ids=["sequences", "queries"])
def test_nothing_to_do(call, rule, shape):
    query = torch.randn(*shape, D)
    key = torch.randn(*shape[:2], 131, D)
    assert call(query, key, key).shape == query.shape


def flops(call, n, D=8):
    query, key, value = torch.randn(3, 1, 2, n, D)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call(query, key, value)
    return counter.get_total_flops()


@causal_or_not
@pytest.mark.parametrize("window", [16, 64])
def test_local_flops_are_linear_and_near_what_is_needed(window, is_causal):
    def call(*x):
        return local_attention(*x, window, is_causal=is_causal)

    one, two, three = (flops(call, n) for n in (1024, 2048, 3072))
    assert three - two == two - one
    width = window if is_causal else 2 * window - 1
    block = max(SHORTEST_BLOCK, window // 2)
    # each of 1024 more queries, in 2 heads: two products, 2 FLOPs, with the keys of its block
    assert two - one == 1024 * 2 * 2 * 2 * 8 * (width + block - 1)


def test_strided_flops():
    """A quarter of the length squared over the stride, once more for the window."""
    far = flops(lambda *x: strided_attention(*x, 64, 64), 4096)
    near = flops(lambda *x: local_attention(*x, 64, is_causal=True), 4096)
    rows = 4096 // 64
    by_hand = 2 * 64 * rows * rows * 2 * 2 * 16  # heads, classes, scores, products; 16 columns
    assert far - near == by_hand
    assert far < flops(lambda *x: F.scaled_dot_product_attention(*x), 4096) / 10


def both_ways(call, n):
    inputs = [torch.randn(1, 2, n, 8, requires_grad=True) for _ in "qkv"]
    return lambda: call(*inputs).sum().backward()


@pytest.mark.parametrize(
    "run", [lambda call, n: lambda: call(*torch.randn(3, 1, 2, n, 8)), both_ways]
)
@every_call
def test_memory_is_linear(call, rule, run):
    one, two, four = (peak_bytes(run(call, n)) for n in (2048, 4096, 8192))
    assert two < 2.1 * one
    assert four < 2.1 * two


def test_dense_attention_with_the_same_mask_saves_nothing():
    """What the page warns of, and that these tests would see it."""

    def masked(*x):
        return dense(*x, window_mask(x[0].shape[-2], x[0].shape[-2], 11))

    assert flops(masked, 2048) == 4 * flops(masked, 1024)
    with sdpa_kernel(SDPBackend.MATH):
        one, two = (peak_bytes(both_ways(masked, n)) for n in (512, 1024))
    assert two > 3.5 * one


@pytest.mark.parametrize(
    ("call", "seen"),
    [(CALLS["causal"][0], 11), (CALLS["strided"][0], 11 + math.ceil(100_000 / 7))],
    ids=["causal", "strided"],
)
def test_a_single_query_copies_only_the_keys_that_it_sees(call, seen):
    query, cache = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 100_000, 8)
    assert peak_bytes(lambda: call(query, cache, cache)) < 4 * seen * 16 * 4  # bytes


Q, K, V = torch.randn(2, 6, 5, 3), torch.randn(2, 3, 7, 3), torch.randn(2, 3, 7, 11)
WRONG = [
    (lambda: local_attention(Q, K, V, 0), ValueError, "window must be at least 1, got 0"),
    (lambda: local_attention(Q, K, V, 2.0), TypeError, "window must be an integer, got float"),
    (lambda: strided_attention(Q, K, V, 0, 1), ValueError, "window must be at least 1, got 0"),
    (lambda: strided_attention(Q, K, V, 1, 0), ValueError, "stride must be at least 1, got 0"),
    (
        lambda: local_attention(Q, K[..., :4, :], V[..., :4, :], 2),
        ValueError,
        "query must not be longer than key, got query (2, 6, 5, 3) and key (2, 3, 4, 3)",
    ),
    (
        lambda: strided_attention(Q, K[..., :4, :], V[..., :4, :], 2, 2),
        ValueError,
        "query must not be longer than key, got query (2, 6, 5, 3) and key (2, 3, 4, 3)",
    ),
    (
        lambda: local_attention(Q, K, V, 2, mask=torch.ones(5, 7).bool()),
        ValueError,
        "mask must broadcast to (..., 1, S) = (2, 6, 1, 7), got (5, 7)",
    ),
    (
        lambda: local_attention(Q, K, V, 2, mask=torch.ones(7)),
        TypeError,
        "mask must be a tensor of booleans, True = may attend, got torch.float32",
    ),
    (
        lambda: local_attention(Q, K, V[..., :4, :], 2),
        ValueError,
        "key and value must have the same axes but the last, "
        "got key (2, 3, 7, 3) and value (2, 3, 4, 11)",
    ),
    (
        lambda: strided_attention(Q, K, V, 1, 1, scale=0.0),
        ValueError,
        "scale must be positive and finite, got 0.0",
    ),
    (
        lambda: strided_attention(Q, K, V, 1, 1, is_causal=False),
        ValueError,
        "with a stride, is_causal must be True, got False",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), WRONG)
def test_errors_name_argument_rule_and_value(call, kind, message):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message

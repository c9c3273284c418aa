"""Against loops over the definitions, and against PyTorch's own causal bias."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch.nn.attention.bias import causal_lower_right

from mhattn import (
    attention_weights,
    causal_mask,
    padding_mask,
    sink_mask,
    strided_mask,
    window_mask,
)

LENGTHS = st.integers(0, 7)


def by_rule(num_queries, num_keys, rule):
    rows = [[rule(i, j) for j in range(num_keys)] for i in range(num_queries)]
    return torch.tensor(rows, dtype=torch.bool).reshape(num_queries, num_keys)


@given(LENGTHS, LENGTHS)
def test_causal_mask_follows_its_definition(L, S):
    assert causal_mask(L, S).equal(by_rule(L, S, lambda i, j: j <= i + (S - L)))


@pytest.mark.parametrize(("L", "S"), [(5, 7), (5, 5)])
def test_causal_mask_is_pytorchs_lower_right_one(L, S):
    query, key, value = torch.zeros(1, 1, L, 2), torch.zeros(1, 1, S, 2), torch.eye(S)[None, None]
    weights = F.scaled_dot_product_attention(query, key, value, causal_lower_right(L, S))
    assert causal_mask(L, S).equal(weights[0, 0] > 0)


def test_causal_mask_is_square_by_default():
    assert causal_mask(5).equal(torch.ones(5, 5, dtype=torch.bool).tril())


@given(LENGTHS, LENGTHS, st.integers(1, 9))
def test_window_mask_follows_its_definition(L, S, window):
    expected = by_rule(L, S, lambda i, j: abs(i + (S - L) - j) < window)
    assert window_mask(L, S, window).equal(expected)


def test_window_and_causal_lets_a_query_see_as_many_keys():
    seen = window_mask(7, 11, 3) & causal_mask(7, 11)
    assert seen.sum(-1).tolist() == [3] * 7
    assert seen[-1].nonzero().flatten().tolist() == [8, 9, 10]


@given(LENGTHS, LENGTHS, st.integers(1, 9))
def test_strided_mask_follows_its_definition(L, S, stride):
    expected = by_rule(L, S, lambda i, j: (i + (S - L) - j) % stride == 0)
    assert strided_mask(L, S, stride).equal(expected)


def test_a_query_sees_every_stride_th_position_from_its_own():
    seen = strided_mask(3, 11, 4) & causal_mask(3, 11)
    assert [row.nonzero().flatten().tolist() for row in seen] == [[0, 4, 8], [1, 5, 9], [2, 6, 10]]


@given(LENGTHS, LENGTHS, st.integers(0, 9))
def test_sink_mask_follows_its_definition(L, S, sinks):
    assert sink_mask(L, S, sinks).equal(by_rule(L, S, lambda i, j: j < sinks))


def test_padding_mask_of_one_length_for_a_sequence():
    mask = padding_mask(torch.tensor([0, 3, 5]), 5)
    assert mask.shape == (3, 1, 1, 5)
    assert mask[:, 0, 0].equal(by_rule(3, 5, lambda b, j: j < [0, 3, 5][b]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_padding_mask_of_one_length_for_each_query(dtype):
    lengths = torch.randint(8, (2, 5)).to(dtype)
    mask = padding_mask(lengths, 7)
    assert mask.shape == (2, 1, 5, 7)
    for b in range(2):
        assert mask[b, 0].equal(by_rule(5, 7, lambda i, j, b=b: j < lengths[b, i]))


def test_no_sequences_no_mask():
    assert padding_mask(torch.tensor([], dtype=torch.int64), 7).shape == (0, 1, 1, 7)


def test_masks_combine_and_broadcast():
    B, H, L, S = 2, 3, 5, 7
    query, key = torch.randn(B, H, L, 11), torch.randn(B, H, S, 11)
    mask = causal_mask(L, S) & window_mask(L, S, 2) | padding_mask(torch.tensor([1, 0]), S)
    assert mask.broadcast_to(B, H, L, S).equal(attention_weights(query, key, mask=mask) > 0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: causal_mask(-1), ValueError, "L must be at least 0, got -1"),
        (lambda: causal_mask(5, -1), ValueError, "S must be at least 0, got -1"),
        (lambda: causal_mask(5.0), TypeError, "L must be an integer, got float"),
        (lambda: window_mask(5, 7, 0), ValueError, "window must be at least 1, got 0"),
        (lambda: window_mask(5, -7, 1), ValueError, "S must be at least 0, got -7"),
        (lambda: window_mask(5, 7, True), TypeError, "window must be an integer, got bool"),
        (lambda: strided_mask(5, 7, 0), ValueError, "stride must be at least 1, got 0"),
        (lambda: strided_mask(-5, 7, 1), ValueError, "L must be at least 0, got -5"),
        (lambda: strided_mask(5, 7, 2.0), TypeError, "stride must be an integer, got float"),
        (
            lambda: padding_mask(torch.tensor([2, 8]), 7),
            ValueError,
            "lengths must be in 0..S = 0..7, got 8",
        ),
        (
            lambda: padding_mask(torch.tensor([-1, 2]), 7),
            ValueError,
            "lengths must be in 0..S = 0..7, got -1",
        ),
        (
            lambda: padding_mask(torch.tensor(3), 7),
            ValueError,
            "lengths must have 1 or 2 axes, got shape ()",
        ),
        (
            lambda: padding_mask(torch.tensor([1.5]), 7),
            TypeError,
            "lengths must be a tensor of integers, got torch.float32",
        ),
        (
            lambda: padding_mask(torch.tensor([True]), 7),
            TypeError,
            "lengths must be a tensor of integers, got torch.bool",
        ),
        (lambda: padding_mask([3], 7), TypeError, "lengths must be a tensor of integers, got list"),
        (
            lambda: padding_mask(torch.tensor([3]), -1),
            ValueError,
            "S must be at least 0, got -1",
        ),
        (lambda: sink_mask(2, 3, -1), ValueError, "sinks must be at least 0, got -1"),
        (lambda: sink_mask(2, 3, 1.0), TypeError, "sinks must be an integer, got float"),
        (lambda: sink_mask(-2, 3, 1), ValueError, "L must be at least 0, got -2"),
        (lambda: sink_mask(2, -3, 1), ValueError, "S must be at least 0, got -3"),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value) == message


def test_device_is_where_the_mask_is_made():
    assert causal_mask(5, device="meta").is_meta
    assert window_mask(5, 7, 2, device="meta").is_meta
    assert strided_mask(5, 7, 2, device="meta").is_meta
    assert sink_mask(5, 7, 2, device="meta").is_meta


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_masks_on_a_gpu():
    lengths = torch.tensor([3, 5], device="cuda")
    assert padding_mask(lengths, 7).cpu().equal(padding_mask(lengths.cpu(), 7))
    assert causal_mask(5, 7, device="cuda").cpu().equal(causal_mask(5, 7))

"""Against attention with its weights written out, torch's logsumexp, and closed forms."""

import math
from functools import reduce
from itertools import permutations

import pytest
import torch
from hypothesis import given, strategies as st

from mhattn import attention, attention_weights, causal_mask, padding_mask, window_mask
from mhattn.core import fold_heads, unfold_heads
from mhattn.inside import peak_bytes
from mhattn.variants import Sums, block_sums, merge_sums, tiled_attention, tiles

B, H, H_KV, L, S, D, D_V = 2, 6, 3, 5, 11, 7, 13
MANY = 17  # queries, more than keys
BLOCKS = [1, 4, 64]  # only the first divides a length

MASKS = {
    "none": lambda num_queries: None,
    "padding": lambda num_queries: padding_mask(torch.tensor([S, 3]), S),
    "padding on the left": lambda num_queries: ~padding_mask(torch.tensor([5, 0]), S),
    "a sequence without keys": lambda num_queries: padding_mask(torch.tensor([0, 5]), S),
    "window": lambda num_queries: window_mask(num_queries, S, 2),
    "one for each head": lambda num_queries: torch.rand(B, H, num_queries, S) < 0.3,
    "one for each key": lambda num_queries: torch.rand(S) < 0.5,
    "one for each query": lambda num_queries: torch.rand(num_queries, 1) < 0.5,
    "nothing": lambda num_queries: torch.tensor(False),
}
every_mask = pytest.mark.parametrize("mask", MASKS)
causal_or_not = pytest.mark.parametrize("is_causal", [False, True])
every_block_size = pytest.mark.parametrize("block_size", BLOCKS)
every_length = pytest.mark.parametrize("num_queries", [L, S, MANY], ids=["L<S", "L=S", "L>S"])


def tensors(num_queries=L, *, num_kv_heads=H_KV, dtype=torch.float64):
    shapes = (H, num_queries, D), (num_kv_heads, S, D), (num_kv_heads, S, D_V)
    return [torch.randn(B, *shape, dtype=dtype).requires_grad_() for shape in shapes]


def written_out(*inputs, **options):
    return attention(*inputs, **options, return_weights=True)[0]


def assert_exact(got, expected):
    """Up to the rounding of float64."""
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


# The same function


@every_block_size
@every_length
@causal_or_not
@every_mask
def test_tiles_give_the_whole(mask, is_causal, num_queries, block_size):
    mask = MASKS[mask](num_queries)
    inputs = [x.detach() for x in tensors(num_queries)]
    output = tiled_attention(*inputs, mask=mask, is_causal=is_causal, block_size=block_size)
    assert_exact(output, written_out(*inputs, mask=mask, is_causal=is_causal))


@pytest.mark.parametrize("block_size", [4, 64])
@causal_or_not
@every_mask
def test_gradients_of_tiles_are_those_of_the_whole(mask, is_causal, block_size):
    mask = MASKS[mask](MANY)
    inputs, probe = tensors(MANY), torch.randn(B, H, MANY, D_V).double()
    tiled = tiled_attention(*inputs, mask=mask, is_causal=is_causal, block_size=block_size)
    whole = written_out(*inputs, mask=mask, is_causal=is_causal)
    for ours, theirs in zip(
        torch.autograd.grad(tiled, inputs, probe),
        torch.autograd.grad(whole, inputs, probe),
        strict=True,
    ):
        assert_exact(ours, theirs)


@pytest.mark.parametrize("mask", ["none", "padding on the left", "one for each head"])
def test_gradcheck(mask):
    mask = MASKS[mask](3)
    inputs = [x[..., :2].detach().requires_grad_() for x in tensors(3)]

    def run(*inputs):
        return tiled_attention(*inputs, mask=mask, is_causal=True, block_size=8)

    assert torch.autograd.gradcheck(run, inputs)


@every_mask
def test_no_step_of_the_backward_pass_makes_a_nan(mask):
    inputs = tensors()
    with torch.autograd.set_detect_anomaly(True):  # raises at the first NaN, later hidden or not
        output = tiled_attention(*inputs, mask=MASKS[mask](L), is_causal=True, block_size=4)
        output.square().sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@causal_or_not
@every_mask
def test_lower_precision_is_close_to_float64(dtype, mask, is_causal):
    mask = MASKS[mask](L)
    inputs = [x.detach() for x in tensors(dtype=dtype)]
    output = tiled_attention(*inputs, mask=mask, is_causal=is_causal, block_size=4)
    exact = written_out(*(x.double() for x in inputs), mask=mask, is_causal=is_causal)
    assert output.dtype == dtype
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(output.double(), exact, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_many_equal_keys_in_half_precision(dtype):
    """A sum of 4096 ones kept in the dtype itself would stop at 256 or 2048."""
    query, key = torch.zeros(1, 1, dtype=dtype), torch.zeros(4096, 1, dtype=dtype)
    output = tiled_attention(query, key, torch.ones(4096, 1, dtype=dtype), block_size=1)
    assert output.item() == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
@every_block_size
def test_huge_scores_in_any_order(dtype, block_size):
    """All the weight is on the largest score, wherever it stands."""
    score = torch.tensor([-300.0, 100, 300, 290, -100], dtype=dtype)  # times 100
    for order in permutations(range(5)):
        key, value = score[list(order), None], torch.eye(5, dtype=dtype)[list(order)]
        query = torch.tensor([[100.0], [-100.0]], dtype=dtype)
        output = tiled_attention(query, key, value, scale=1.0, block_size=block_size)
        assert output.tolist() == [[0, 0, 1, 0, 0], [1, 0, 0, 0, 0]]


@pytest.mark.parametrize("shift", [-1e5, 1e5])
def test_scores_all_far_below_or_above_zero(shift):
    """A number added to a whole row cancels: exp(score) alone would be 0 or infinite."""
    query, value = torch.ones(1, 2).double(), torch.eye(5).double()
    scores = torch.tensor([3.0, -2, 5, 4, 5]).double()
    key = torch.stack([scores, torch.full((5,), shift).double()], dim=-1)
    output = tiled_attention(query, key, value, scale=1.0, block_size=2)
    torch.testing.assert_close(output[0], scores.softmax(-1))


def test_closed_form_over_three_blocks():
    """Scores log 1 ... log 5: the weights are 1/15 ... 5/15."""
    key = torch.arange(1, 6).double().log()[:, None]
    value = torch.tensor([[2.0], [3.0], [5.0], [7.0], [11.0]]).double()
    query = torch.ones(1, 1).double()
    for order in permutations(range(5)):
        output = tiled_attention(query, key[list(order)], value[list(order)], block_size=2)
        assert output.item() == pytest.approx((2 + 6 + 15 + 28 + 55) / 15, rel=1e-14)


def test_scale_is_what_the_dot_products_are_multiplied_by():
    inputs = tensors()
    output = tiled_attention(*inputs, scale=0.7, block_size=4)
    assert_exact(output, written_out(*inputs, scale=0.7))


@pytest.mark.parametrize("group", [1, 2, 3, 6])
def test_head_i_uses_key_and_value_head_i_over_group(group):
    query, key, value = tensors(num_kv_heads=H // group)
    output = tiled_attention(query, key, value, block_size=4)
    for i in range(H):
        assert_exact(output[:, i], attention(query[:, i], key[:, i // group], value[:, i // group]))


def test_any_leading_axes():
    query, key, value = tensors(num_kv_heads=H)
    options = {"is_causal": True, "block_size": 4}
    output = tiled_attention(query, key, value, **options)
    folded = tiled_attention(*(fold_heads(x) for x in (query, key, value)), **options)
    assert_exact(unfold_heads(folded, H), output)
    assert_exact(tiled_attention(query[0, 0], key[0, 0], value[0, 0], **options), output[0, 0])
    assert_exact(tiled_attention(query[None], key[None], value[None], **options), output[None])


def test_no_queries_or_an_empty_batch_is_no_error():
    query, key, value = tensors()
    assert tiled_attention(query[:, :, :0], key, value).shape == (B, H, 0, D_V)
    assert tiled_attention(query[:0], key[:0], value[:0]).shape == (0, H, L, D_V)


# Rows with nothing to see


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@every_block_size
def test_blind_queries_get_zeros_and_zero_gradients(dtype, block_size):
    inputs = tensors(MANY, dtype=dtype)
    mask = torch.ones(MANY, S, dtype=torch.bool)
    mask[10] = False
    output = tiled_attention(*inputs, mask=mask, is_causal=True, block_size=block_size)
    blind = [*range(MANY - S), 10]
    assert (output == 0).all(-1).all(0).all(0).nonzero().flatten().tolist() == blind
    output.float().square().sum().backward()
    assert all(x.grad.isfinite().all() for x in inputs)
    assert (inputs[0].grad[:, :, blind] == 0).all()


@every_block_size
def test_a_first_block_without_keys_leaves_no_trace(block_size):
    query, key, value = tensors()
    mask = torch.arange(S) >= 5
    output = tiled_attention(query, key, value, mask=mask, block_size=block_size)
    assert_exact(output, written_out(query, key[:, :, 5:], value[:, :, 5:]))


# The sums


def random_sums(num_keys=7, mask=None, dtype=torch.float64):
    query, key = torch.randn(L, D, dtype=dtype), torch.randn(num_keys, D, dtype=dtype)
    return block_sums(query, key, torch.randn(num_keys, D_V, dtype=dtype), mask=mask)


def plain_numbers(sums):
    """The two sums themselves: neither in units of e^largest."""
    return sums.largest.exp() * sums.total, sums.largest.exp() * sums.mixed


NO_SUMS = Sums(torch.full((L, 1), -math.inf), torch.zeros(L, 1), torch.zeros(L, D_V))


def assert_same_sums(a, b):
    for name in ("largest", "total", "mixed"):
        assert_exact(getattr(a, name), getattr(b, name))


def test_sums_are_those_of_the_formula():
    query, key, value = (x[:, :H_KV].detach() for x in tensors())
    seen = MASKS["one for each head"](L)[:, :H_KV]
    sums = block_sums(query, key, value, mask=seen, scale=0.7)
    exponentials = (0.7 * query @ key.mT).exp() * seen
    total, mixed = plain_numbers(sums)
    assert_exact(total, exponentials.sum(-1, keepdim=True))
    assert_exact(mixed, exponentials @ value)
    assert_exact(sums.output, written_out(query, key, value, mask=seen, scale=0.7))


def test_the_total_is_between_one_and_the_number_of_keys():
    query, key, value = tensors()
    seen = MASKS["one for each head"](L)
    sums = block_sums(10 * query, key, value, mask=seen)
    number = seen.sum(-1, keepdim=True)
    assert ((sums.total >= 1) | (number == 0)).all()
    assert (sums.total <= number).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_sums_are_kept_in_float32_at_least(dtype):
    sums = random_sums(dtype=dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert {sums.largest.dtype, sums.total.dtype, sums.mixed.dtype, sums.output.dtype} == {wide}


def test_log_sum_exp_is_torchs_and_gives_the_weights():
    query, key, value = tensors()
    seen = MASKS["one for each head"](L)
    scores = query @ key.repeat_interleave(2, 1).mT / math.sqrt(D)
    scores = scores.masked_fill(~seen, -math.inf)
    got = block_sums(query, key, value, mask=seen).log_sum_exp
    assert_exact(got, scores.logsumexp(-1, keepdim=True))
    weights = attention_weights(query, key, mask=seen)
    sees = seen.any(-1)
    assert_exact((scores - got).exp()[sees], weights[sees])


def test_gradient_of_log_sum_exp_is_the_weights():
    scores = torch.randn(1, 7).double().requires_grad_()
    identity = torch.eye(7).double()
    sums = merge_sums(
        block_sums(scores, identity[:4], identity[:4], scale=1.0),
        block_sums(scores, identity[4:], identity[4:], scale=1.0),
    )
    (gradient,) = torch.autograd.grad(sums.log_sum_exp, scores)
    assert_exact(gradient, scores.softmax(-1))
    assert_exact(sums.output, scores.softmax(-1))


def test_merging_is_adding():
    a, b = random_sums(3), random_sums(7)
    for merged, left, right in zip(
        plain_numbers(merge_sums(a, b)), plain_numbers(a), plain_numbers(b), strict=True
    ):
        assert_exact(merged, left + right)


def test_merging_is_associative_and_commutative_and_has_a_neutral_element():
    a, b, c = random_sums(3), random_sums(7), random_sums(2)
    assert_same_sums(merge_sums(merge_sums(a, b), c), merge_sums(a, merge_sums(b, c)))
    assert_same_sums(merge_sums(a, b), merge_sums(b, a))
    for both in (merge_sums(a, NO_SUMS), merge_sums(NO_SUMS, a)):
        assert_same_sums(both, a)
    nothing = merge_sums(NO_SUMS, NO_SUMS)
    assert (nothing.largest == -math.inf).all()
    assert (nothing.output == 0).all()


def test_hidden_blocks_are_neutral():
    a, hidden = random_sums(3), random_sums(7, torch.tensor(False))
    assert (hidden.log_sum_exp == -math.inf).all()
    assert_same_sums(merge_sums(hidden, a), a)


def test_blocks_may_come_in_any_order():
    query, key, value = (x[:, :H_KV] for x in tensors())
    cuts = [slice(0, 3), slice(3, 4), slice(4, 9), slice(9, S)]
    parts = [block_sums(query, key[:, :, cut], value[:, :, cut]) for cut in cuts]
    for order in permutations(parts):
        assert_exact(reduce(merge_sums, order).output, written_out(query, key, value))


# Tiles

length = st.integers(0, 12)


@given(length, length, st.integers(1, 14), st.booleans())
def test_every_visible_pair_is_in_one_tile_and_no_tile_is_hidden(L, S, block_size, is_causal):
    visits = torch.zeros(L, S)
    seen = causal_mask(L, S) if is_causal else torch.ones(L, S, dtype=torch.bool)
    cut = tiles(L, S, block_size, is_causal=is_causal)
    assert sum(rows.stop - rows.start for rows, _ in cut) == L
    for rows, blocks in cut:
        for block in blocks:
            visits[rows, block] += 1
            assert seen[rows, block].any()
            assert 1 <= rows.stop - rows.start <= block_size
            assert 1 <= block.stop - block.start <= block_size
    assert (visits <= 1).all()
    assert (visits[seen] == 1).all()


def test_causal_tiles_are_half_and_half_the_diagonal():
    number = sum(len(blocks) for _, blocks in tiles(4096, 4096, 64, is_causal=True))
    assert number == 64 * 65 // 2


def test_what_the_causal_mask_hides_entirely_is_not_computed():
    query, key, value = (torch.randn(8, 4) for _ in range(3))
    before = tiled_attention(query, key, value, is_causal=True, block_size=4)
    key[4:], value[4:] = math.nan, math.nan  # even 0 * NaN is NaN
    after = tiled_attention(query, key, value, is_causal=True, block_size=4)
    assert after[:4].equal(before[:4])
    assert after[4:].isnan().all()


# Memory


def peak(function, length):
    query, key, value = (torch.randn(length, 8) for _ in range(3))
    with torch.no_grad():
        return peak_bytes(lambda: function(query, key, value))


def test_memory_grows_with_the_length_and_not_with_its_square():
    def growth(function):
        return peak(function, 1024) / peak(function, 256)

    assert growth(written_out) > 14
    assert growth(lambda *inputs: tiled_attention(*inputs, block_size=32)) < 4
    mask = torch.tensor([[True]])  # broadcast, never written out
    options = {"mask": mask, "is_causal": True, "block_size": 32}
    assert growth(lambda *inputs: tiled_attention(*inputs, **options)) < 4


# Errors


def shaped(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype)


Q, K, V = shaped(2, 6, 5, 8), shaped(2, 3, 7, 8), shaped(2, 3, 7, 4)

WRONG = [
    ((Q, shaped(2, 3, 7, 9), V), {}, ValueError, "query and key must have the same last axis"),
    ((Q, shaped(2, 4, 7, 8), shaped(2, 4, 7, 8)), {}, ValueError, "heads must divide the query's"),
    ((Q, K, shaped(2, 3, 11, 8)), {}, ValueError, "key and value must have the same axes but"),
    (
        (Q, K, V),
        {"mask": torch.ones(7, 5, dtype=torch.bool)},
        ValueError,
        "(2, 6, 5, 7), got (7, 5)",
    ),
    ((Q, K, V), {"scale": -1.0}, ValueError, "scale must be positive and finite, got -1.0"),
    ((Q.long(), K, V), {}, TypeError, "query must be a tensor of floats, got torch.int64"),
    ((Q, K, [1.0]), {}, TypeError, "value must be a tensor of floats, got list"),
    ((Q, K, V), {"mask": shaped(5, 7)}, TypeError, "mask must be a tensor of booleans"),
]
SIZES = [
    (0, ValueError, "block_size must be at least 1, got 0"),
    (2.0, TypeError, "block_size must be an integer, got float"),
]


@pytest.mark.parametrize("function", [tiled_attention, block_sums])
@pytest.mark.parametrize(("arguments", "options", "kind", "message"), WRONG)
def test_wrong_arguments_are_named(function, arguments, options, kind, message):
    with pytest.raises(kind) as error:
        function(*arguments, **options)
    assert message in str(error.value)


@pytest.mark.parametrize(("size", "kind", "message"), SIZES)
def test_wrong_block_sizes_are_named(size, kind, message):
    for call in (lambda: tiled_attention(Q, K, V, block_size=size), lambda: tiles(5, 7, size)):
        with pytest.raises(kind) as error:
            call()
        assert str(error.value) == message


@pytest.mark.parametrize("arguments", [(-1, 7, 3), (5, -1, 3)])
def test_negative_lengths_are_named(arguments):
    with pytest.raises(ValueError, match="must be at least 0, got -1"):
        tiles(*arguments)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@every_mask
@causal_or_not
def test_cuda_equals_the_cpu(dtype, mask, is_causal):
    mask = MASKS[mask](MANY)
    inputs = tensors(MANY, dtype=dtype)
    expected = written_out(*(x.detach().double() for x in inputs), mask=mask, is_causal=is_causal)
    on_gpu = [x.detach().cuda().requires_grad_() for x in inputs]
    mask = None if mask is None else mask.cuda()
    output = tiled_attention(*on_gpu, mask=mask, is_causal=is_causal, block_size=7)
    tolerance = 16 * max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    torch.testing.assert_close(output.double().cpu(), expected, atol=tolerance, rtol=tolerance)
    output.float().sum().backward()
    assert all(x.grad.isfinite().all() for x in on_gpu)

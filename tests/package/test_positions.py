"""Positions against independent forms: complex numbers, dense scores, and what must not change."""

import cmath
import copy
import math
import pickle
from itertools import product

import pytest
import torch

from mhattn import (
    Alibi,
    MultiHeadAttention,
    Rotary,
    attention,
    padding_mask,
    sinusoidal_positions,
    trace,
    window_mask,
)
from mhattn.core import Position, rotary_frequencies
from mhattn.core.positions import TABLES
from mhattn.inside import peak_bytes
from mhattn.variants import LearnedBias, RelativePosition

B, H, L, S, D = 2, 3, 5, 11, 6


@pytest.mark.parametrize(("start", "base"), [(0, 10_000.0), (7, 10_000.0), (1000, 37.0)])
def test_sinusoids_are_the_papers_formula(start, base):
    dim, expected = 14, torch.zeros(L, 14, dtype=torch.float64)
    for place, feature in product(range(L), range(dim)):
        angle = (start + place) / base ** (2 * (feature // 2) / dim)
        expected[place, feature] = math.cos(angle) if feature % 2 else math.sin(angle)
    table = sinusoidal_positions(L, dim, start, base)
    assert table.dtype == torch.get_default_dtype()
    torch.testing.assert_close(table.double(), expected, atol=1e-6, rtol=0)


def in_double(length, dim, start=0):
    torch.set_default_dtype(torch.float64)
    try:
        return sinusoidal_positions(length, dim, start)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("shift", [1, 7, 500])
def test_shifting_sinusoids_is_one_rotation_for_all_positions(shift):
    dim = 14
    rotation = torch.zeros(dim, dim, dtype=torch.float64)
    for feature in range(0, dim, 2):
        angle = shift * 10_000 ** (-feature / dim)
        cos, sin = math.cos(angle), math.sin(angle)
        block = torch.tensor([[cos, sin], [-sin, cos]])
        rotation[feature : feature + 2, feature : feature + 2] = block
    torch.testing.assert_close(rotation @ rotation.T, torch.eye(dim).double())
    table = in_double(100 + shift, dim)
    torch.testing.assert_close(table[:100] @ rotation.T, table[shift:])
    torch.testing.assert_close(in_double(100, dim, start=shift), table[shift:])


def test_sinusoids_meet_in_a_product_that_knows_the_distance_only():
    table = in_double(60, 10)
    dots = table @ table.T
    for distance in range(60):
        diagonal = dots.diagonal(distance)
        angles = [distance * 10_000 ** (-i / 10) for i in range(0, 10, 2)]
        expected = sum(math.cos(angle) for angle in angles)
        torch.testing.assert_close(diagonal, torch.full_like(diagonal, expected))


def test_positions_go_with_the_length_and_not_with_the_batch():
    """What a table (L, B, E) or (L, 1, E) for another layout would do if B = L."""
    x = torch.zeros(L, L, D)
    placed = x + sinusoidal_positions(L, D)
    assert placed[0].equal(placed[1])
    assert not placed[:, 0].equal(placed[:, 1])


def by_complex_numbers(x, start, base):
    """Feature i and feature i + D / 2 as one complex number, times e^(i angle)."""
    result, half = x.clone(), x.shape[-1] // 2
    for place in range(x.shape[-2]):
        for i in range(half):
            angle = (start + place) * base ** (-2 * i / x.shape[-1])
            for vector in result[..., place, :].reshape(-1, x.shape[-1]).unbind():
                number = complex(vector[i], vector[i + half]) * cmath.exp(1j * angle)
                vector[i], vector[i + half] = number.real, number.imag
    return result


@pytest.mark.parametrize(("start", "base"), [(0, 10_000.0), (7, 10_000.0), (1000, 37.0)])
def test_rotary_is_a_product_of_complex_numbers(start, base):
    x = torch.randn(1, 1, L, D, dtype=torch.float64)
    expected = by_complex_numbers(x, start, base)
    torch.testing.assert_close(Rotary(D, base).rotate(x, start), expected)


def test_rotary_scores_depend_on_the_distance_only():
    rotary = Rotary(D)
    query, key = torch.randn(2, B, H, L, D, dtype=torch.float64)
    near = rotary.rotate(query, 3) @ rotary.rotate(key, 0).mT
    far = rotary.rotate(query, 1003) @ rotary.rotate(key, 1000).mT
    torch.testing.assert_close(near, far)
    moved = rotary.rotate(query, 4) @ rotary.rotate(key, 0).mT
    assert not torch.allclose(near, moved, atol=1e-3)


def test_rotary_keeps_lengths_and_the_first_position():
    x = torch.randn(B, H, L, D, dtype=torch.float64)
    turned = Rotary(D).rotate(x, 0)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(turned[..., 0, :], x[..., 0, :])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rotary_in_half_precision_is_right_far_out(dtype):
    x = torch.randn(1, 1, 3, D).to(dtype)
    turned = Rotary(D).rotate(x, 100_000)
    expected = Rotary(D).rotate(x.double(), 100_000)
    assert turned.dtype == dtype
    torch.testing.assert_close(turned.double(), expected, atol=0.02, rtol=0.02)


def test_a_layer_turns_queries_and_keys_as_they_are_aligned():
    """The last query stands beside the last key; shifting both sequences changes nothing."""
    mha = MultiHeadAttention(12, 2, position=Rotary(6)).double()
    x = torch.randn(B, S, 12, dtype=torch.float64)
    torch.testing.assert_close(mha(x[:, -L:], x), mha(x)[:, -L:])
    without = MultiHeadAttention(12, 2).double()
    without.load_state_dict(mha.state_dict())
    assert not torch.allclose(without(x), mha(x), atol=1e-3)
    order = torch.randperm(S)
    assert not torch.allclose(mha(x[:, order]), mha(x)[:, order], atol=1e-3)


PAPER = {  # what the function in the paper's code returns, as exponents of 2
    1: [8],
    2: [4, 8],
    4: [2, 4, 6, 8],
    8: [1, 2, 3, 4, 5, 6, 7, 8],
    16: [number / 2 for number in range(1, 17)],
    3: [4, 8, 2],
    6: [2, 4, 6, 8, 1, 3],
    12: [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5],
}


@pytest.mark.parametrize("num_heads", PAPER)
def test_alibi_has_the_papers_slopes(num_heads):
    assert Alibi(num_heads).slopes == [2**-exponent for exponent in PAPER[num_heads]]


@pytest.mark.parametrize("num_heads", range(1, 70))
def test_alibi_has_one_slope_for_each_head_and_no_two_alike(num_heads):
    slopes = Alibi(num_heads).slopes
    assert len(slopes) == len(set(slopes)) == num_heads
    assert all(2**-8 <= slope < 1 for slope in slopes)


def alibi_by_loop(query, key, value, mask, is_causal, slopes):
    """Each score, each exponential and each mean on its own, in double precision."""
    queries, keys, group = query.shape[2], key.shape[2], query.shape[1] // key.shape[1]
    output = torch.zeros(*query.shape[:3], value.shape[-1], dtype=torch.float64)
    weights = torch.zeros(*query.shape[:3], keys, dtype=torch.float64)
    for b, h, i in product(*map(range, query.shape[:3])):
        place, total = i + keys - queries, 0.0
        for j in range(keys):
            if (is_causal and j > place) or not mask[b, h, i, j]:
                continue
            score = (query[b, h, i] @ key[b, h // group, j]) / math.sqrt(query.shape[-1])
            weights[b, h, i, j] = math.exp(score - slopes[h] * abs(place - j))
            total += weights[b, h, i, j]
        if total:
            weights[b, h, i] /= total
        for j in range(keys):
            output[b, h, i] += weights[b, h, i, j] * value[b, h // group, j]
    return output, weights


MASKS = {
    "none": None,
    "a sequence without keys": padding_mask(torch.tensor([0, 7]), S),
    "window": window_mask(L, S, 3),
    "one for each head": torch.arange(B * 6 * L * S).reshape(B, 6, L, S) % 3 > 0,
    "one for each query": torch.tensor([[True], [False], [True], [True], [True]]),
    "nothing": torch.tensor(False),
}


def attend(alibi, query, key, value, **options):
    return attention(query, key, value, bias=alibi.bias_for(query, key), **options)


@pytest.mark.parametrize("kv_heads", [6, 3, 1])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_alibi_equals_the_loop(mask, is_causal, kv_heads):
    query = torch.randn(B, 6, L, D, dtype=torch.float64)
    key = torch.randn(B, kv_heads, S, D, dtype=torch.float64)
    value = torch.randn(B, kv_heads, S, 7, dtype=torch.float64)
    alibi, seen = Alibi(6), torch.tensor(True) if MASKS[mask] is None else MASKS[mask]
    slopes = [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]
    inputs = query, key, value
    expected, weights = alibi_by_loop(*inputs, seen.expand(B, 6, L, S), is_causal, slopes)
    options = {"mask": MASKS[mask], "is_causal": is_causal}
    torch.testing.assert_close(attend(alibi, *inputs, **options), expected)
    both = attend(alibi, *inputs, **options, return_weights=True)
    torch.testing.assert_close(both, (expected, weights))


def test_alibi_is_as_exact_as_its_inputs():
    """Sixteen heads: half of the slopes are irrational. All dot products are zero."""
    zeros = torch.zeros(1, 16, 1, D, dtype=torch.float64)
    key = value = torch.zeros(1, 16, 2, D, dtype=torch.float64)
    _, weights = attend(Alibi(16), zeros, key, value, return_weights=True)
    for head in range(16):
        expected = 1 / (1 + math.exp(2 ** -((head + 1) / 2)))
        assert abs(weights[0, head, 0, 0].item() - expected) < 1e-14


@pytest.mark.parametrize("batch", [(), (2, 2)], ids=["no batch", "two batches"])
def test_alibi_takes_any_batch(batch):
    shape = (*batch, 6, L, D)
    query, key, value = torch.randn(3, *shape, dtype=torch.float64)
    output = attend(Alibi(6), query, key, value, is_causal=True)
    flat = [x.reshape(-1, 6, L, D) for x in (query, key, value)]
    expected = attend(Alibi(6), *flat, is_causal=True)
    torch.testing.assert_close(output, expected.reshape(output.shape))


def test_both_ways_through_alibi_have_the_same_gradients_and_dropout():
    inputs = torch.randn(3, B, H, L, D, dtype=torch.float64).requires_grad_().unbind()
    fused = attend(Alibi(H), *inputs, is_causal=True)
    written, _ = attend(Alibi(H), *inputs, is_causal=True, return_weights=True)
    gradients = [torch.autograd.grad(x.square().sum(), inputs) for x in (fused, written)]
    torch.testing.assert_close(*gradients)
    _, weights = attend(Alibi(H), *inputs, return_weights=True, dropout=0.9)
    assert weights.eq(0).any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_alibi_in_half_precision(dtype, is_causal):
    inputs = torch.randn(3, B, H, 300, D).to(dtype)
    expected = attend(Alibi(H), *inputs.double(), is_causal=is_causal)
    output = attend(Alibi(H), *inputs, is_causal=is_causal)
    written, _ = attend(Alibi(H), *inputs, is_causal=is_causal, return_weights=True)
    for result in (output, written):
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), expected, atol=0.02, rtol=0.02)


def test_alibi_stays_in_the_fused_kernel():
    """Its bias is one for all sequences; nothing of the size of all scores is made."""
    inputs = torch.randn(3, 16, 4, 256, 8)
    one = 4 * 256 * 256 * 4  # bytes of a bias (H, L, S)
    assert peak_bytes(lambda: attend(Alibi(4), *inputs, is_causal=True)) < 5 * one
    three = [x[0] for x in inputs]
    fused = peak_bytes(lambda: attend(Alibi(4), *three, is_causal=True))
    written = peak_bytes(lambda: attend(Alibi(4), *three, is_causal=True, return_weights=True))
    assert fused < 2.5 * one < written


def test_alibi_bias_has_the_dtype_that_is_asked_for():
    bias = Alibi(16).bias(2, 3, dtype=torch.float64)
    assert bias[0, 0, 0].item() == -(2**-0.5)
    assert Alibi(16).bias(2, 3).dtype == torch.float32


def test_a_trace_sees_every_step_with_alibi():
    x = torch.randn(B, L, 12)
    with_it = trace(MultiHeadAttention(12, 2, position=Alibi(2)), x, is_causal=True)
    without = trace(MultiHeadAttention(12, 2), x, is_causal=True)
    assert [step.name for step in with_it] == [step.name for step in without]


@pytest.mark.parametrize("position", [Rotary(6), Alibi(2)])
def test_only_distances_count_in_a_layer(position):
    """Twice the same sequence, the first one out of sight: the second is as it is alone."""
    mha = MultiHeadAttention(12, 2, position=position).double()
    x = torch.randn(B, S, 12, dtype=torch.float64)
    late = torch.arange(2 * S) >= S
    twice = mha(torch.cat([x, x], dim=1), mask=late & late[:, None])
    torch.testing.assert_close(twice[:, S:], mha(x))
    order = torch.randperm(S)
    assert not torch.allclose(mha(x[:, order]), mha(x)[:, order], atol=1e-3)


@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_sinusoids_in_chunks_need_a_start(chunk):
    table = sinusoidal_positions(S, D)
    starts = range(0, S, chunk)
    parts = [sinusoidal_positions(min(chunk, S - start), D, start) for start in starts]
    torch.testing.assert_close(torch.cat(parts), table)


def test_a_position_that_says_nothing_changes_nothing():
    mha, x = MultiHeadAttention(12, 2, position=Position()), torch.randn(B, L, 12)
    same = MultiHeadAttention(12, 2)
    same.load_state_dict(mha.state_dict())
    assert mha(x, is_causal=True).equal(same(x, is_causal=True))


@pytest.mark.parametrize(
    ("error", "text", "use"),
    [
        (ValueError, "head_dim must be even, got 7", lambda: Rotary(7)),
        (TypeError, "head_dim must be an integer, got float", lambda: Rotary(8.0)),
        (ValueError, "base must be greater than 1, got 1", lambda: Rotary(8, base=1)),
        (
            ValueError,
            r"x must have head_dim=8 last, got \(1, 2, 6\)",
            lambda: Rotary(8).rotate(torch.zeros(1, 2, 6), 0),
        ),
        (ValueError, "dim must be even, got 7", lambda: sinusoidal_positions(5, 7)),
        (ValueError, "dim must be at least 2, got 0", lambda: sinusoidal_positions(5, 0)),
        (ValueError, "length must be at least 0, got -1", lambda: sinusoidal_positions(-1, 6)),
        (ValueError, "start must be at least 0, got -1", lambda: sinusoidal_positions(5, 6, -1)),
        (TypeError, "start must be an integer, got float", lambda: sinusoidal_positions(5, 6, 1.0)),
        (
            ValueError,
            "base must be greater than 1, got 1",
            lambda: sinusoidal_positions(5, 6, 0, 1),
        ),
        (TypeError, "num_heads must be an integer, got float", lambda: Alibi(8.0)),
        (ValueError, "num_heads must be at least 1, got 0", lambda: Alibi(0)),
        (
            ValueError,
            r"query must be \(..., H=4, L, D\), got \(2, 3, 5, 6\)",
            lambda: attend(Alibi(4), *torch.randn(3, B, H, L, D)),
        ),
        (
            ValueError,
            r"query must be \(..., H=4, L, D\), got \(5, 6\)",
            lambda: attend(Alibi(4), *torch.randn(3, L, D)),
        ),
        (
            TypeError,
            "position must be a mhattn.core.Position, got str",
            lambda: MultiHeadAttention(12, 2, position="rotary"),
        ),
        (
            ValueError,
            "for PyTorch's module position must be None, got Rotary",
            lambda: MultiHeadAttention(12, 2, position=Rotary(6)).to_torch(),
        ),
    ],
)
def test_what_positions_refuse(error, text, use):
    with pytest.raises(error, match=text):
        use()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("by", [0, 1, 17, -3, 4_000_000])
def test_moving_is_rotating_later(by, dtype):
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    moved = Rotary(8).move(Rotary(8).rotate(x, 7).to(dtype), by)
    assert moved.dtype == dtype
    tolerance = {torch.float64: 1e-8, torch.bfloat16: 0.03, torch.float16: 0.005}[dtype]
    expected = Rotary(8).rotate(x, 7 + by)
    torch.testing.assert_close(moved.double(), expected, atol=tolerance, rtol=tolerance)


def test_without_turns_nothing_moves():
    x = torch.randn(2, 3, 5, 8)
    assert Position().move(x, 3).equal(x)
    assert Alibi(3).move(x, 3).equal(x)


def tables():
    """How many bytes the tables of all layers take."""
    return sum(table.cos.nbytes + table.sin.nbytes for table in TABLES.values())


def test_all_layers_share_one_table():
    before, base = tables(), 12_345.0  # that no other test has
    layers = [Rotary(128, base) for _ in range(5)]
    layers += [copy.deepcopy(layers[0]), pickle.loads(pickle.dumps(layers[0]))]
    layers += [Rotary(128, frequencies=rotary_frequencies(128, base)), layers[1].bfloat16()]
    made = tables() - before
    assert made == 2 * 4096 * 128 * 4, "a cosine and a sine in float32 for each feature"
    assert sum(x.nbytes for rotary in layers for x in rotary.buffers()) < made / 100
    x = torch.randn(2, 3, 5, 128)
    assert all(rotary.rotate(x, 7).equal(layers[0].rotate(x, 7)) for rotary in layers)
    other = Rotary(128, base + 1)
    assert tables() - before == 2 * made
    assert not other.rotate(x, 7).equal(layers[0].rotate(x, 7))
    del layers, other
    assert tables() == before


def test_a_table_made_in_inference_mode_serves_training():
    with torch.inference_mode():
        rotary = Rotary(6, base=54_321.0)
    x = torch.randn(1, 2, 3, 6, requires_grad=True)
    rotary.rotate(x).square().sum().backward()
    assert x.grad.isfinite().all()


def test_a_layer_on_meta_gets_its_table_where_it_goes():
    with torch.device("meta"):
        rotary = Rotary(6, base=543.0)
        assert rotary.rotate(torch.randn(1, 2, 3, 6)).device.type == "meta"
    rotary.to_empty(device="cpu")
    rotary.reset_parameters()
    x = torch.randn(1, 2, 3, 6)
    for start in (0, 5000):
        assert rotary.rotate(x, start).equal(Rotary(6, base=543.0).rotate(x, start))
    assert rotary.state_dict() == {}


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Rotary(8), "Rotary(head_dim=8, base=10000.0)"),
        (
            Rotary(4, frequencies=torch.tensor([0.5, 0.0])),
            "Rotary(head_dim=4, frequencies from 0 to 0.5)",
        ),
        (Alibi(3), "Alibi(num_heads=3)"),
        (LearnedBias(3, 5), "LearnedBias(num_heads=3, max_len=5)"),
        (RelativePosition(8, 2), "RelativePosition(head_dim=8, max_distance=2)"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_a_position_says_its_sizes(part, text):
    assert repr(part) == text


def test_a_replica_on_another_device_computes_its_angles():
    """`torch.nn.DataParallel` moves the buffers of its replicas, and nothing else."""
    rotary = Rotary(6)
    rotary.steps = rotary.steps.to("meta")
    assert rotary.rotate(torch.randn(1, 2, 3, 6, device="meta")).device.type == "meta"

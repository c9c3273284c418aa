"""Against the nearest of all levels, torch's own fake quantisation, and bounds."""

import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mhattn import quantise

SHAPE = (2, 3, 35, 14)  # groups of 7 and 5 on the last two axes


def half(x, towards):
    """The float16 at x or beside it, by numpy."""
    nearest = np.float16(x)
    wrong = nearest > x if towards < 0 else nearest < x
    return np.nextafter(nearest, np.float16(towards)) if wrong else nearest


def groups_of(x, dim, size):
    return x.movedim(dim, -1).unflatten(-1, (-1, size)).flatten(0, -2)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize(("dim", "group"), [(-1, 7), (3, None), (-2, 5), (2, None), (1, 3)])
def test_each_number_is_the_nearest_level_of_its_group(bits, dim, group):
    x = torch.randn(SHAPE)
    stored = quantise(x, bits, dim=dim, group=group)
    restored, size = stored.restore(), group or x.shape[dim]
    assert restored.shape == x.shape
    rows, found = groups_of(x, dim, size), groups_of(restored, dim, size)
    held = [groups_of(y, dim, 1).flatten() for y in (stored.low, stored.step)]
    for row, ours, low, step in list(zip(rows.double(), found.double(), *held, strict=True))[::17]:
        smallest, largest = (np.float32(y.item()) for y in row.aminmax())
        assert low.item() == half(smallest, -np.inf)
        steps = (largest - np.float32(low.item())) / np.float32(2**bits - 1)
        assert step.item() == half(steps, np.inf)
        levels = low.item() + step.item() * torch.arange(2**bits, dtype=torch.float64)
        error = (row[:, None] - levels).abs().amin(dim=1)
        torch.testing.assert_close((row - ours).abs(), error, rtol=0, atol=1e-6)
        assert error.max() <= step.item() / 2 * (1 + 1e-6)
        assert (ours[:, None] - levels).abs().amin(dim=1).max() < 1e-6


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
PLACES = [(1.0, 0.0), (1e-3, 1e4), (100.0, -3e4), (1e-6, 0.0), (1e-9, 0.0), (1e-3, 1024.0)]
PLACES += [(0.0, 0.1), (0.0, -7.3), (3e4, 0.0)]  # scale and offset


@pytest.mark.parametrize("bits", [2, 8])
@pytest.mark.parametrize(("scale", "offset"), PLACES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_at_most_half_a_step_and_a_rounding(dtype, scale, offset, bits):
    x = (scale * torch.empty(11, 48, dtype=torch.float64).uniform_(-1, 1) + offset).to(dtype)
    stored = quantise(x, bits, group=16)
    error = (stored.restore().double() - x.double()).abs()
    allowed = stored.step.double().repeat_interleave(16, dim=-1) / 2
    allowed += torch.finfo(dtype).eps / 2 * (x.double().abs() + allowed)
    allowed += torch.finfo(torch.promote_types(dtype, torch.float32)).eps * x.double().abs()
    assert (error <= allowed).all()


def test_small_differences_of_float64_stay():
    """float32 has places of 1e-4 at 1024; half a step is 2e-6."""
    x = 1024 + 1e-3 * torch.linspace(0, 1, 97, dtype=torch.float64)[None]
    error = (quantise(x, 8).restore() - x).abs().max().item()
    assert 1e-6 < error < 2.1e-6


class Finite(TorchDispatchMode):
    """Every number on the way is one."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        result = op(*args, **kwargs or {})
        for x in result if isinstance(result, tuple) else (result,):
            if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel():
                assert x.abs().amax().isfinite(), op
        return result


@pytest.mark.parametrize("number", [0.0, -7.5])
def test_equal_numbers_are_not_divided_by_their_step(number):
    x = torch.full((3, 10), number)
    with Finite():
        stored = quantise(x, 2, group=5)
    assert not stored.step.any()
    assert not stored.codes.any()


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_it_is_torchs_where_zero_is_a_level(bits):
    step, most = 0.25, 2**bits - 1
    x = torch.rand(5, 11) * most * step - 2 * step
    x[:, 0], x[:, 1] = -2 * step, (most - 2) * step  # smallest and largest, a whole number of steps
    scale, zero = torch.full((5,), step), torch.full((5,), 2, dtype=torch.int32)
    expected = torch.fake_quantize_per_channel_affine(x, scale, zero, 0, 0, most)
    torch.testing.assert_close(quantise(x, bits).restore(), expected)


def test_codes_are_all_there():
    stored = quantise(torch.linspace(-3, 5, 64)[None], bits=3)
    assert stored.codes.dtype == torch.uint8
    assert stored.codes.unique().tolist() == list(range(8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_type_comes_back(dtype):
    x = torch.randn(SHAPE).to(dtype)
    restored = quantise(x, 8, dim=-2, group=5).restore()
    assert restored.dtype == dtype
    assert (restored.double() - x.double()).abs().max() < 0.06


@pytest.mark.parametrize("number", [0.0, -7.5, 65504.0, -65504.0])
def test_equal_numbers_stay(number):
    x = torch.full((3, 10), number)
    assert quantise(x, 2, group=5).restore().equal(x)


def test_bits_of_steps_are_counted():
    """As many as are held, and the codes packed."""
    x = torch.randn(SHAPE)
    stored = quantise(x, 3, group=2)
    assert stored.step.dtype == stored.low.dtype == torch.float16
    held = stored.step.nbytes + stored.low.nbytes
    assert stored.bits_per_number == 3 + 8 * held / x.numel()
    assert quantise(x[:0], 3, group=2).bits_per_number == 19
    assert quantise(x, 2, group=7).bits_per_number == pytest.approx(2 + 32 / 7)
    assert quantise(x, 4, dim=2).bits_per_number == pytest.approx(4 + 32 / 35)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bits": 0}, ValueError, "bits must be at least 1, got 0"),
        ({"bits": 9}, ValueError, "bits must be at most 8, got 9"),
        ({"bits": 2.0}, TypeError, "bits must be an integer"),
        ({"bits": 2, "dim": 4}, ValueError, "dim must be an axis of x, which has 4, got 4"),
        ({"bits": 2, "dim": -5}, ValueError, "dim must be an axis of x, which has 4, got -5"),
        ({"bits": 2, "group": 4}, ValueError, "group must divide axis 3 of x, 14, got 4"),
        ({"bits": 2, "group": 0}, ValueError, "group must be at least 1, got 0"),
    ],
)
def test_wrong_arguments(options, error, message):
    with pytest.raises(error, match=message):
        quantise(torch.randn(SHAPE), **options)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 7e4, -7e4, 3.4e38])
def test_numbers_that_float16_cannot_hold_are_refused(number):
    x = torch.randn(SHAPE)
    x[1, 2, 3, 4] = number
    rule = "^x must be finite, and its smallest numbers and steps at most 65504, as in float16, got"
    with pytest.raises(ValueError, match=rule + r".* in 2 bits$"):
        quantise(torch.stack([x, -x]), 2)


def test_codes_have_no_gradient():
    x = torch.randn(SHAPE, requires_grad=True)
    assert not quantise(x, 2).restore().requires_grad


def test_integers_are_refused():
    with pytest.raises(TypeError, match="x must be a tensor of floats"):
        quantise(torch.ones(3, 4, dtype=torch.long), 2)

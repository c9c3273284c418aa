"""Against the nearest of all levels, torch's own fake quantisation, and bounds."""

import pytest
import torch

from mhattn.models import quantise

SHAPE = (2, 3, 35, 14)  # groups of 7 and 5 on the last two axes


def levels(x, bits):
    """All numbers that a group can be restored to."""
    return torch.linspace(x.min().item(), x.max().item(), 2**bits, dtype=torch.float64)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize(("dim", "group"), [(-1, 7), (3, None), (-2, 5), (2, None), (1, 3)])
def test_each_number_is_the_nearest_level_of_its_group(bits, dim, group):
    x = torch.randn(SHAPE)
    restored = quantise(x, bits, dim=dim, group=group).restore()
    assert restored.shape == x.shape
    size = group or x.shape[dim]
    rows = x.movedim(dim, -1).unflatten(-1, (-1, size)).flatten(0, -2)
    found = restored.movedim(dim, -1).unflatten(-1, (-1, size)).flatten(0, -2)
    for row, ours in zip(rows.double()[::17], found.double()[::17], strict=True):
        all_levels = levels(row, bits)
        error = (row[:, None] - all_levels).abs().amin(dim=1)
        torch.testing.assert_close((row - ours).abs(), error, rtol=0, atol=1e-5)
        off = (ours[:, None] - all_levels).abs().amin(dim=1)
        assert off.max() < 1e-5
        torch.testing.assert_close(ours.aminmax(), row.aminmax(), rtol=0, atol=1e-5)


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


@pytest.mark.parametrize("number", [0.0, -7.5])
def test_equal_numbers_stay(number):
    x = torch.full((3, 10), number)
    assert quantise(x, 2, group=5).restore().equal(x)


def test_bits_of_steps_are_counted():
    x = torch.randn(SHAPE)
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


def test_integers_are_refused():
    with pytest.raises(TypeError, match="x must be a tensor of floats"):
        quantise(torch.ones(3, 4, dtype=torch.long), 2)

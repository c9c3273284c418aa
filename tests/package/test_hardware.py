"""Accelerators: what their data sheets say, entered a second time."""

import re

import pytest

from mhattn.costs import known_accelerator, known_accelerators

# TFLOP/s in bfloat16 with sparsity, as the sheets print it; GB/s; GB.
SHEETS = {"a100": (624, 2039, 80), "h100": (1979, 3350, 80)}


@pytest.mark.parametrize("name", SHEETS)
def test_both_entries_agree(name):
    sparse, bandwidth, memory = SHEETS[name]
    chip = known_accelerator(name)
    assert chip.flops == sparse // 2 * 10**12  # dense: half, as a footnote of each sheet says
    assert chip.bandwidth == bandwidth * 10**9
    assert chip.memory == memory * 10**9
    assert chip.ridge == pytest.approx(sparse / 2 / bandwidth * 1000, rel=1e-3)


def test_sheets_are_the_makers():
    assert set(known_accelerators()) == set(SHEETS)
    for chip in map(known_accelerator, known_accelerators()):
        assert re.match(r"https://(www|resources)\.nvidia\.com/", chip.source)
        assert all(type(n) is int for n in (chip.flops, chip.bandwidth, chip.memory))
    assert known_accelerator("a100").float32_flops * 16 == known_accelerator("a100").flops


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("A100", ValueError, "name must be one of a100, h100, got 'A100'"),
        (100, TypeError, "name must be a string, got int"),
    ],
)
def test_unknown_names(name, error, message):
    with pytest.raises(error) as raised:
        known_accelerator(name)
    assert str(raised.value) == message

"""Accelerators: what their data sheets say, entered a second time."""

import re

import pytest

from mhattn.costs import known_accelerator, known_accelerators

GB, GIB = 10**9, 2**30
# Dense TFLOP/s in bfloat16 (the first two sheets print twice that, with sparsity); bytes a second
# in units of a GB; bytes.
SHEETS = {
    "a100": (624 / 2, 2039, 80 * GB),
    "h100": (1979 // 2, 3350, 80 * GB),
    "tpu-v5e": (197, 819, 16 * GB),
    "tpu-v5p": (459, 2765, 95 * GIB),
    "tpu-v6e": (918, 1638, 32 * GIB),
    "tpu-7x": (2307, 7380, 192 * GIB),
    "trainium1": (190, 820 * GIB / GB, 32 * GIB),
    "inferentia2": (190, 820 * GIB / GB, 32 * GIB),
    "trainium2": (667, 2900, 96 * GIB),
    "trainium3": (671, 4900, 144 * GIB),
}
MAKERS = r"https://(www|resources)\.nvidia\.com/|https://docs\.cloud\.google\.com/tpu/"
MAKERS += r"|https://awsdocs-neuron\.readthedocs-hosted\.com/"


@pytest.mark.parametrize("name", SHEETS)
def test_both_entries_agree(name):
    teraflops, bandwidth, memory = SHEETS[name]
    chip = known_accelerator(name)
    assert chip.flops == teraflops * 10**12
    assert chip.bandwidth == bandwidth * GB
    assert chip.memory == memory
    assert chip.ridge == pytest.approx(teraflops / bandwidth * 1000, rel=1e-3)


def test_sheets_are_the_makers():
    assert set(known_accelerators()) == set(SHEETS)
    for chip in map(known_accelerator, known_accelerators()):
        assert re.match(MAKERS, chip.source)
        assert all(type(n) is int for n in (chip.flops, chip.bandwidth, chip.memory))
    assert known_accelerator("a100").float32_flops * 16 == known_accelerator("a100").flops


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("A100", ValueError, f"name must be one of {', '.join(SHEETS)}, got 'A100'"),
        (100, TypeError, "name must be a string, got int"),
    ],
)
def test_unknown_names(name, error, message):
    with pytest.raises(error) as raised:
        known_accelerator(name)
    assert str(raised.value) == message

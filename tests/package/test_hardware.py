"""Accelerators: what their sources say, entered a second time."""

import re

import pytest

from mhattn.costs import known_accelerator, known_accelerators

GB, GIB = 10**9, 2**30
# Dense TFLOP/s in bfloat16, bytes a second in units of a GB, bytes, as the sources print them:
# those of the A100 and H100 print twice the first, with sparsity.
SHEETS = {
    "a100": (624 / 2, 2039, 80 * GB),
    "a800": (312, 2039, 80 * GB),
    "h100": (1979 // 2, 3350, 80 * GB),
    "h200": (989, 4800, 141 * GB),
    "h800": (990, 3350, 80 * GB),
    "h20": (147, 4000, 96 * GB),
    "b200": (2250, 7700, 180 * GB),
    "l20": (119, 864, 48 * GB),
    "l40s": (362, 864, 48 * GB),
    "rtx-4090": (165.2, 1008, 24 * GB),
    "rtx-5090": (210, 1792, 32 * GB),
    "mi300x": (1307.4, 5300, 192 * GIB),
    "mi325x": (1307, 6000, 256 * GIB),
    "ascend-910b-376t": (353.9, 1600, 64 * GIB),
    "ascend-910b-313t": (294.9, 1600, 64 * GIB),
    "ascend-910b-280t": (245.8, 1600, 64 * GIB),
    "ascend-910c": (2 * 353.9, 2 * 1600, 2 * 64 * GIB),
    "tpu-v5e": (197, 819, 16 * GB),
    "tpu-v5p": (459, 2765, 95 * GIB),
    "tpu-v6e": (918, 1638, 32 * GIB),
    "tpu-7x": (2307, 7380, 192 * GIB),
    "trainium1": (190, 820 * GIB / GB, 32 * GIB),
    "inferentia2": (190, 820 * GIB / GB, 32 * GIB),
    "trainium2": (667, 2900, 96 * GIB),
    "trainium3": (671, 4900, 144 * GIB),
}
# The pages and the code of each maker; a repository at one commit, or one finished round of MLPerf.
COMMIT = r"/blob/[0-9a-f]{40}/"
ROUND = r"https://raw\.githubusercontent\.com/mlcommons/inference_results_v[\d.]+/main/"
MAKERS = {
    "NVIDIA": rf"https://(www|resources)\.nvidia\.com/"
    rf"|https://github\.com/(NVIDIA|ai-dynamo)/[\w-]+{COMMIT}|{ROUND}",
    "AMD": rf"https://github\.com/ROCm/[\w-]+{COMMIT}",
    "Huawei": rf"https://github\.com/Ascend/[\w-]+{COMMIT}",
    "Google": r"https://docs\.cloud\.google\.com/tpu/",
    "Amazon": r"https://awsdocs-neuron\.readthedocs-hosted\.com/",
}
QUOTED = {"a800", "h800", "rtx-4090", "rtx-5090", "mi325x"}


@pytest.mark.parametrize("name", SHEETS)
def test_both_entries_agree(name):
    teraflops, bandwidth, memory = SHEETS[name]
    chip = known_accelerator(name)
    assert chip.flops == teraflops * 10**12
    assert chip.bandwidth == bandwidth * GB
    assert chip.memory == memory
    assert chip.ridge == pytest.approx(teraflops / bandwidth * 1000, rel=1e-3)


def test_sources_are_the_makers_or_said_to_quote_them():
    assert [*known_accelerators()] == [*SHEETS]
    for chip in map(known_accelerator, known_accelerators()):
        assert chip.source_kind == ("quoted" if chip.name in QUOTED else "maker")
        ours = [re.match(MAKERS[chip.maker], at) for at in (chip.source, *chip.more_sources)]
        assert all(ours) if chip.source_kind == "maker" else not ours[0]
        for source in (chip.source, *chip.more_sources):
            assert "github" not in source or re.search(COMMIT, source) or re.match(ROUND, source)
        assert all(type(n) is int for n in (chip.flops, chip.bandwidth, chip.memory))
    assert known_accelerator("a100").float32_flops * 16 == known_accelerator("a100").flops


def test_what_one_chip_shares_with_another():
    """The same silicon with other memory, other links, or twice: sources that differ by little."""
    peaks = {name: known_accelerator(name).flops for name in SHEETS}
    for one, other in [("a100", "a800"), ("h100", "h200"), ("h100", "h800"), ("mi300x", "mi325x")]:
        assert peaks[one] == pytest.approx(peaks[other], rel=2e-3)
    assert peaks["ascend-910c"] == 2 * peaks["ascend-910b-376t"]
    assert known_accelerator("h200").ridge < known_accelerator("h100").ridge


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

"""What the benchmarks share: how they are registered, and what becomes of their rounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import torch
from mhsite.pages.measured import FEWEST

BENCHMARKS: dict[str, Callable[[int], dict]] = {}
ANYWHERE: dict[str, Callable[[int, str], dict]] = {}
EMBED_DIM, GPU_EMBED_DIM = 512, 4096  # a GPU is measured with layers that people run there
COVERAGE = 0.95  # of an interval of the median, at least


def benchmark(function: Callable[[int], dict]) -> Callable[[int], dict]:
    """Register a benchmark under its name; it takes how many rounds to make."""
    BENCHMARKS[function.__name__.replace("_", "-")] = function
    return function


def anywhere(function: Callable[..., dict]) -> Callable[..., dict]:
    """Above `benchmark`: this one takes torch's name of a device as well; the others need a CPU."""
    ANYWHERE[function.__name__.replace("_", "-")] = function
    return function


def number_type(device: str) -> torch.dtype:
    """float32 on a CPU; in it, a GPU has neither its fast products nor FlashAttention."""
    return torch.float32 if device == "cpu" else torch.bfloat16


def sizes(device: str, **numbers: int) -> dict:
    """What overwrites the provenance where the sizes are not those that the text is about."""
    if device == "cpu":
        return {}
    told = ", ".join(f"{name} = {number}" for name, number in numbers.items())
    # [6:] takes "torch." off the type's name.
    return {"sizes": ", ".join(filter(None, (str(number_type(device))[6:], told)))}


def rank(rounds: int) -> int:
    """Which of so many rounds, from the fastest and from the slowest, bound the interval.

    A round lies below the median as often as above it. So the median of all rounds there could
    be lies below the k-th smallest of ``rounds`` only if fewer than k of them lie below it, which
    a binomial distribution counts: whatever else is known of the times, or not.

    Raises:
        ValueError: so few rounds have no interval that keeps the promise.
    """
    outside, k = 0.0, 0
    while (outside := outside + 2 * math.comb(rounds, k) / 2**rounds) <= 1 - COVERAGE:
        k += 1
    if not k:
        raise ValueError(f"rounds must be at least {FEWEST}, got {rounds}")
    return k


def interval(measured: list[float]) -> list[float]:
    """Median, and the ends of an interval that holds the true one at least 95 times of 100.

    True for rounds that are independent of each other; with as many digits as anybody reads.
    """
    ordered, k = sorted(measured), rank(len(measured))
    # Rounds that were measured, not a formula of their spread: times have a long tail to one side,
    # so an interval around the mean would promise too much.
    numbers = statistics.median(ordered), ordered[k - 1], ordered[-k]
    return [float(f"{number:.4g}") for number in numbers]


def ratios(above: list[float], below: list[float]) -> list[float]:
    """The interval of the ratio; both sides of each pair were measured in the same round."""
    return interval([a / b for a, b in zip(above, below, strict=True)])

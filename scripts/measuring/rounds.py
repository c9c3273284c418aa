"""What the benchmarks share: how they are registered, and what becomes of their rounds."""

from __future__ import annotations

from collections.abc import Callable

import torch

BENCHMARKS: dict[str, Callable[[int], dict]] = {}
ANYWHERE: dict[str, Callable[[int, str], dict]] = {}
EMBED_DIM = 512


def benchmark(function: Callable[[int], dict]) -> Callable[[int], dict]:
    """Register a benchmark under its name; it takes how many rounds to make."""
    BENCHMARKS[function.__name__.replace("_", "-")] = function
    return function


def anywhere(function: Callable[..., dict]) -> Callable[..., dict]:
    """Above `benchmark`: this one takes torch's name of a device as well; the others need a CPU."""
    ANYWHERE[function.__name__.replace("_", "-")] = function
    return function


def quartiles(measured: list[float]) -> list[float]:
    """Median, lower and upper quartile, with as many digits as anybody reads."""
    numbers = torch.tensor(measured, dtype=torch.float64)
    points = torch.tensor([0.5, 0.25, 0.75], dtype=torch.float64)
    return [float(f"{number:.4g}") for number in torch.quantile(numbers, points).tolist()]


def ratios(above: list[float], below: list[float]) -> list[float]:
    """Quartiles of the ratio; both sides of each pair were measured in the same round."""
    return quartiles([a / b for a, b in zip(above, below, strict=True)])

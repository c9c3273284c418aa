"""Experiments of stories that train too long for a build: run beforehand, for several seeds.

A story's ``def name(seed)`` trains and returns nested lists of numbers. What it gave for each seed
is filed, with the hash of its code; the story reads that. Tests run one seed again and compare.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from mhsite.pages import runs
from mhsite.stories import with_torch
from mhsite.stories.source import SourceError
from tqdm import tqdm

from measuring.machine import processor

DIGITS = 5


def run(story: str, name: str, seeds: int) -> Path:
    """Call a story's function with each seed from 0 on, and file what it returns.

    Raises:
        SourceError: if the story has no such function, or it returns anything but numbers.
    """
    function = _function(story, name)
    values = []
    for seed in tqdm(range(seeds), desc=f"{story}:{name}", disable=None):
        values.append(_numbers(function(seed), f"{story}:{name}"))
    found = {
        "seeds": seeds,
        "date": datetime.now(UTC).date().isoformat(),
        "device": processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "code": runs.fingerprint(story, name),
        "values": values,
    }
    return runs.write(story, runs.filed(story) | {name: found})


def difference(asked: str, seed: int, relative: float = 0.0) -> float:
    """Run ``story:name`` with one seed again: the most by which a number differs from the filed.

    Args:
        asked: the story and its function.
        seed: one of those that are filed.
        relative: by which share of the filed number it may differ besides.

    Raises:
        SourceError: if nothing is filed for this seed.
    """
    story, _, name = asked.partition(":")
    filed = runs.filed(story).get(name, {"values": []})["values"]
    if not 0 <= seed < len(filed):
        raise SourceError(f"{asked}: nothing is filed for the seed {seed}")
    return _difference(_numbers(_function(story, name)(seed), asked), filed[seed], relative)


def _difference(now: Any, filed: Any, relative: float) -> float:
    if isinstance(now, list) and isinstance(filed, list) and len(now) == len(filed):
        return max(
            (_difference(*pair, relative) for pair in zip(now, filed, strict=True)), default=0.0
        )
    if isinstance(now, list) or isinstance(filed, list):
        return math.inf  # it returns lists of another form
    return abs(now - filed) - relative * abs(filed)


def _function(story: str, name: str) -> Callable[[int], Any]:
    """A story's function, with all that its code needs, in a process that does nothing else."""
    with_torch.prepare("cpu")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(runs.code(story, name), f"{story}.pycon", "exec"), namespace)
    return namespace[name]


def _numbers(value: Any, name: str) -> Any:
    """Nested lists of numbers, with as many digits as anybody reads."""
    if isinstance(value, list):
        return [_numbers(each, name) for each in value]
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise SourceError(f"{name} must return nested lists of numbers, got {value!r}")
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def again(asked: str, seeds: int | None) -> Path:
    """Run ``story:name``, or with ``story:`` all that is filed for it, as often as before."""
    story, _, name = asked.partition(":")
    before = runs.filed(story)
    names = [name] if name else list(before)
    if not names:
        raise SourceError(f"{asked}: nothing is filed for this story; name one of its functions")
    for each in names:
        if seeds is None and each not in before:
            raise SourceError(f"{story}:{each} was never run: say --seeds")
    for each in names:
        run(story, each, seeds or before[each]["seeds"])
    return runs.path_of(story)

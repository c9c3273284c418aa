"""Experiments of stories that train too long for a build: run beforehand, for several seeds.

A story's ``def name(seed)`` trains and returns nested lists of numbers. What it gave for each seed
is filed, with the hash of its code; the story reads that. Tests run one seed again and compare.

It may return ``numbers, weights`` instead, where weights are tensors under their names, as in a
state_dict, of the type in which they are to be kept. Each name's tensors of all seeds, stacked, are
filed beside the numbers; a story reads them by ``torch.load(data_file("runs/STORY-name.pt"))``.
"""

from __future__ import annotations

import hashlib
import io
import math
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from mhsite.pages import runs
from mhsite.stories import with_torch
from mhsite.stories.source import SourceError
from torch import Tensor
from tqdm import tqdm

from measuring.machine import processor

DIGITS = 6


def run(story: str, name: str, seeds: int) -> Path:
    """Call a story's function with each seed from 0 on, and file what it returns.

    Raises:
        SourceError: if the story has no such function, or it returns anything but numbers.
    """
    function, results = _function(story, name), []
    for seed in tqdm(range(seeds), desc=f"{story}:{name}", disable=None):
        results.append(_checked(function(seed), f"{story}:{name}"))
    about = {
        "seeds": seeds,
        "date": datetime.now(UTC).date().isoformat(),
        "device": processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "code": runs.fingerprint(story, name),
    }
    if results[0].weights:
        stacked = {n: torch.stack([r.weights[n] for r in results]) for n in results[0].weights}
        about["weights"] = _file_weights(runs.weights_path(story, name), stacked)
    found = about | {"values": [result.numbers for result in results]}
    return runs.write(story, runs.filed(story) | {name: found})


def _file_weights(path: Path, weights: dict[str, Tensor]) -> dict[str, str]:
    """Write them, and return what the file is called, and its hash."""
    content = io.BytesIO()  # a file's name would be in it
    torch.save(weights, content)
    runs.write_bytes(path, content.getvalue())
    return {"file": path.name, "sha256": hashlib.sha256(content.getvalue()).hexdigest()}


def differences(asked: str, seed: int, relative: float = 0.0) -> tuple[float, float]:
    """Run ``story:name`` with one seed again, and compare with what is filed.

    Args:
        asked: the story and its function.
        seed: one of those that are filed.
        relative: by which share of the filed number a number may differ besides.

    Returns:
        The most by which a number differs, and the most by which a weight does, as a share of
        the largest of its name.

    Raises:
        SourceError: if nothing is filed for this seed.
    """
    story, _, name = asked.partition(":")
    filed = runs.filed(story).get(name, {"values": []})
    if not 0 <= seed < len(filed["values"]):
        raise SourceError(f"{asked}: nothing is filed for the seed {seed}")
    seeds = runs.ran_with_seeds(story, name) is not False
    result = _checked(_function(story, name, seeds)(seed), asked)
    weights = torch.load(runs.weights_path(story, name)) if "weights" in filed else {}
    weights = {part: tensor[seed].double() for part, tensor in weights.items()}
    if {n: w.shape for n, w in result.weights.items()} != {n: w.shape for n, w in weights.items()}:
        return math.inf, math.inf
    gaps = [_share(result.weights[part], tensor) for part, tensor in weights.items()]
    return _difference(result.numbers, filed["values"][seed], relative), max(gaps, default=0.0)


def _share(now: Tensor, filed: Tensor) -> float:
    """Of the largest weight of this name; bytes and small numbers can be compared alike."""
    return ((now - filed).abs().max() / filed.abs().max().clamp(min=1e-3)).item()


def _difference(now: Any, filed: Any, relative: float) -> float:
    if isinstance(now, list) and isinstance(filed, list) and len(now) == len(filed):
        return max(
            (_difference(*pair, relative) for pair in zip(now, filed, strict=True)), default=0.0
        )
    if isinstance(now, list) or isinstance(filed, list):
        return math.inf  # it returns lists of another form
    return abs(now - filed) - relative * abs(filed)


def _function(story: str, name: str, seeds: bool = True) -> Callable[[int], Any]:
    """A story's function, with all that its code needs, in a process that does nothing else.

    A top-level `_ = torch.manual_seed(0)` is taken along where what follows it is needed, for the
    function may read what was drawn there.
    """
    with_torch.prepare("cpu")
    return reached(story, runs.code(story, name, seeds))[name]


def reached(story: str, code: str) -> dict[str, Any]:
    """What a piece of a story's code defines, by its names; it runs as if by itself."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, f"{story}.pycon", "exec"), namespace)
    return namespace


class _Result(NamedTuple):
    numbers: list
    weights: dict[str, Tensor]


def _checked(returned: Any, name: str) -> _Result:
    """What a function returned: numbers, perhaps with weights."""
    numbers, weights = returned if isinstance(returned, tuple) else (returned, {})
    named = weights.items() if isinstance(weights, dict) else [(None, weights)]
    if not all(isinstance(n, str) and isinstance(w, Tensor) for n, w in named):
        raise SourceError(f"{name} must return weights as tensors under their names, as a dict")
    return _Result(_numbers(numbers, name), {n: tensor.detach() for n, tensor in named})


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

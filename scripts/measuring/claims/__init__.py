"""Claims of the pages, tried again with seeds that nobody saw when they were written.

Each claim of docs/data/claims/<chapter>.toml has a function of its name here, in the module of its
chapter: ``def NAME(seed)`` trains or computes anew and returns a `Verdict`. Who reads a page and
doubts it draws some by lot: ``python scripts/measure.py --claims 20``.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from mhsite.pages import claims as register, runs
from mhsite.stories.source import SourceError

from measuring.runs import reached

FRESH = (10_000, 1_000_000)  # seeds: those of stories are far smaller


class Verdict(NamedTuple):
    """Whether a claim holds with one seed, and the numbers that it was judged by."""

    holds: bool
    numbers: dict[str, float]


def of_story(story: str, function: str) -> SimpleNamespace:
    """A function of a story and all that it reaches, by their names there."""
    return SimpleNamespace(**reached(story, runs.code(story, function)))


def check_of(name: str) -> Callable[[int], Verdict]:
    """The function that tries a claim."""
    claim = register.every().get(name)
    if claim is None:
        raise SourceError(f"docs/data/claims has no claim {name!r}")
    module = importlib.import_module(f"measuring.claims.{claim['chapter']}")
    function = getattr(module, name.replace("-", "_"), None)
    if function is None:
        why = f"has no function for the claim {name!r}"
        raise SourceError(why, Path(str(module.__file__)))
    return function


def code(name: str) -> str:
    """The hash of what tries a claim: a draw by another code says nothing of today's."""
    return hashlib.sha256(inspect.getsource(check_of(name)).encode()).hexdigest()[:16]


def lots(number: int, lot: int) -> list[tuple[str, int]]:
    """So many claims with a fresh seed for each; who names the same lot draws the same."""
    names = list(register.every())
    if not 1 <= number <= len(names):
        raise ValueError(f"--claims must be from 1 to {len(names)}, got {number}")
    draw = random.Random(lot)
    return [(name, draw.randrange(*FRESH)) for name in draw.sample(names, number)]


def attempt(name: str, seed: int) -> dict:
    """Try a claim once, in this process, with one thread; as it is filed."""
    import torch  # who only draws lots needs none
    from mhsite.stories import with_torch

    with_torch.prepare("cpu")
    torch.set_num_threads(1)
    start = time.perf_counter()
    holds, numbers = check_of(name)(seed)
    if not isinstance(holds, bool):
        raise SourceError(f"the check of {name!r} must return a bool first, got {holds!r}")
    return {
        "seed": seed,
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "seconds": round(time.perf_counter() - start, 1),
        "code": code(name),
        "holds": holds,
        "numbers": {key: float(f"{number:.4g}") for key, number in numbers.items()},
    }


def tried(drawn: list[tuple[str, int]], jobs: int = 1) -> Iterator[tuple[str, int, Future]]:
    """Each in a process of its own, since a story's code may change what others compute with."""
    spawn = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, max_tasks_per_child=1) as pool:
        waiting = [(name, seed, pool.submit(attempt, name, seed)) for name, seed in drawn]
        yield from waiting


def file(name: str, found: dict) -> Path:
    """Add what came of a claim to what is filed for its chapter: one draw a line."""
    chapter = register.every()[name]["chapter"]
    whole = register.draws(chapter)
    whole.setdefault(name, []).append(found)
    told = [
        f"  {json.dumps(each)}: [\n    "
        + ",\n    ".join(json.dumps(draw) for draw in whole[each])
        + "\n  ]"
        for each in sorted(whole)
    ]
    text = "{\n" + ",\n".join(told) + "\n}\n"
    return runs.write_bytes(register.FOLDER / f"{chapter}.json", text.encode())

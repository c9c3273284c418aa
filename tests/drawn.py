"""What plain `pytest` takes of many equal tests: a few, drawn anew by each commit.

The others have the mark `slow`, so that ``pytest`` and ``pytest -m slow`` together run all of them,
and days of work run nearly all of them even without. The commit's hash is the seed: whoever sees a
test fail, and every process of one run, draws the same.
"""

import functools
import random
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


@functools.cache
def commit() -> str:
    """The hash of the commit that is checked out; outside of a clone, a name for that."""
    command = ["git", "rev-parse", "HEAD"]
    folder = Path(__file__).parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8")
    except FileNotFoundError:  # no git on this machine
        return "no commit"
    return done.stdout.strip() or "no commit"


def drawn(things: Iterable[Any], number: int, *, of: str = "") -> list[Any]:
    """So many of the things, in their order; ``of`` names the draw, so that others differ."""
    things = list(things)
    draw = random.Random(f"{commit()} {of}")
    places = draw.sample(range(len(things)), min(number, len(things)))
    return [things[place] for place in sorted(places)]


def few_now(things: Iterable[Any], number: int, *, of: str, name: Callable[[Any], str]) -> list:
    """The things as parameters of a test: those that are drawn run now, the others are slow."""
    things = list(things)
    now = set(drawn(map(name, things), number, of=of))
    return [
        pytest.param(thing, id=name(thing), marks=() if name(thing) in now else pytest.mark.slow)
        for thing in things
    ]

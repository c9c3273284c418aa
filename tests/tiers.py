"""Which tier holds which promise, as tiers.toml has it, and which slow tests a sample takes."""

import functools
import subprocess
import tomllib
from pathlib import Path

import pytest
from cases import ROOT, drawn_number

TESTS = Path(__file__).parent
TIERS = ("plain", "slow", "nightly")
COLLECTED = pytest.StashKey[dict[str, set[str]]]()
UNKNOWN = 5  # seconds of a slow test that tiers.toml does not name


@functools.cache
def promises():
    """Each promise: what it says, its tier, its tests, what a case takes, which files touch it."""
    return tomllib.loads((TESTS / "tiers.toml").read_text(encoding="utf-8"))["promise"]


def name_of(item):
    """A test as tiers.toml names it, ``site/test_build.py::test_two_builds_at_once``."""
    path = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else item.path
    return f"{path}::{getattr(item, 'originalname', item.name)}"


def tier_of(item):
    marked = (tier for tier in TIERS[:0:-1] if item.get_closest_marker(tier))
    return next(marked, "plain")


def changed_files():
    """What the working tree has changed since the commit before; none where that isn't known."""
    command = ["git", "-C", str(ROOT), "diff", "--name-only", "HEAD^1"]
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8").stdout.split("\n")
    except OSError:
        return []


def sample(items, seconds, changed):
    """Slow tests for a number of seconds: first those that a change touches, then drawn ones."""
    about = {name: promise for promise in promises() for name in promise["tests"]}

    def is_touched(item):
        promise = about.get(name_of(item), {})
        ours = (item.path.relative_to(ROOT).as_posix(), *promise.get("touched_by", ()))
        return any(file.startswith(ours) for file in changed if file)

    chosen = set()
    for item in sorted(items, key=lambda item: (not is_touched(item), drawn_number(item.nodeid))):
        seconds -= about.get(name_of(item), {}).get("seconds", UNKNOWN)
        if seconds < 0:
            break
        chosen.add(item)
    return chosen

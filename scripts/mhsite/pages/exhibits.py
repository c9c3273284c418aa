"""The museum's exhibits: silent mistakes by what one sees of them, each to be understood alone.

Their code and words stand in docs/data/exhibits.toml; the chapters that explain them have longer
code, which is about the chapter's own names. A test runs both sides of each exhibit.
"""

from __future__ import annotations

from html import escape

from mhsite import words
from mhsite.pages.settings import toml
from mhsite.stories.source import DOCS, SourceError

FILE = DOCS / "data" / "exhibits.toml"
GIVEN = "given"  # the lines that all exhibits begin with, and a name for those of one
SIDES = ("wrong", "right")


def by_sight() -> dict[str, dict[str, dict]]:
    """The exhibits of each thing one sees, under their names."""
    return {sight: named for sight, named in toml(FILE).items() if sight != GIVEN}


def given() -> str:
    """The code that stands before each exhibit's."""
    return toml(FILE)[GIVEN].strip("\n")


def of_sight(sight: str) -> dict[str, dict]:
    if sight not in by_sight():
        raise SourceError(f"docs/data/exhibits.toml has no [{sight}.…]", FILE)
    return by_sight()[sight]


def traps_shown() -> set[str]:
    """The keys of the chapters' traps that have an exhibit."""
    return {shown["trap"] for named in by_sight().values() for shown in named.values()}


def sides(exhibit: dict, language: str) -> str:
    """What comes before, the wrong lines beside the right ones, and the test below both."""
    names = words.of(language, "museum.sides")
    before = _lines("given", names["given"], exhibit[GIVEN]) if GIVEN in exhibit else ""
    pair = "".join(_lines(side, names[side], exhibit[side]) for side in SIDES)
    return f"{before}{pair}{_lines('test', names['test'], exhibit['test'])}"


def _lines(kind: str, word: str, code: str) -> str:
    code = escape(code.strip("\n"), quote=False)
    return f'<div class="mh-{kind}"><b>{word}</b><code>{code}</code></div>'

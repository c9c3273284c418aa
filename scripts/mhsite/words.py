"""The words in figures, in Chinese: a story is run once, its figures are shown in two languages."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from html import escape, unescape

from mhsite.source import DOCS

FILE = DOCS / "data" / "figure-words.toml"
TEXT = re.compile(r"(?<=>)([^<>]+)(?=</text>)")  # formulas consist of tspans


def in_chinese(svg: str) -> str:
    """A figure with the words that docs/data/figure-words.toml has in Chinese."""
    chinese = known()["chinese"]

    def translated(match: re.Match) -> str:
        text = unescape(match[1])
        return escape(chinese.get(text.strip(), text), quote=False)

    return TEXT.sub(translated, svg)


def known() -> dict:
    """The words that have Chinese ones, and the list of those that are kept."""
    return _parsed(FILE.read_text(encoding="utf-8"))


@cache
def _parsed(text: str) -> dict:
    return tomllib.loads(text)

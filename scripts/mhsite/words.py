"""The words in figures and tables, in Chinese: a story is run once and shown in two languages."""

from __future__ import annotations

import re
import tomllib
from html import escape, unescape
from pathlib import Path

from mhsite.source import DOCS, of_file

FILE = DOCS / "data" / "words.toml"
TEXT = re.compile(r"(?<=>)([^<>]+)(?=</text>)")  # formulas consist of tspans
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def in_chinese(story: str, text: str) -> str:
    """A text of a story's figures and tables in Chinese, or the text itself if it has none.

    In docs/data/words.toml each number is a ``#``, and is put back here.
    """
    numbers = iter(NUMBER.findall(text))
    chinese = of(story).get(NUMBER.sub("#", text.strip()))
    return text if chinese is None else re.sub("#", lambda _: next(numbers), chinese)


def figure_in_chinese(story: str, svg: str) -> str:
    def translated(match: re.Match) -> str:
        return escape(in_chinese(story, unescape(match[1])), quote=False)

    return TEXT.sub(translated, svg)


def of(story: str) -> dict[str, str]:
    """The Chinese for the words of a story."""
    return known()["everywhere"] | known().get(story, {})


def known() -> dict:
    """The words of each story and of all, and the list of those that are kept."""
    return _read(FILE)


@of_file
def _read(path: Path) -> dict:
    return tomllib.loads(path.read_text(encoding="utf-8"))

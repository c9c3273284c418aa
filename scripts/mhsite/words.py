"""The words of the interface in both languages: docs/data/words.toml."""

from __future__ import annotations

import json
import re
import tomllib
from functools import lru_cache
from typing import Any

from mhsite.folders import DOCS

FILE = DOCS / "data" / "words.toml"
LANGUAGES = {"en", "zh"}
ASKED = re.compile(r'\bwordsOf\("([\w-]+)"\)')


def of(language: str, name: str, /, **values: object) -> Any:
    """What stands under a name, such as ``page.cite``, with ``values`` in its curly brackets.

    A text in most cases; a list where the file has one, or a whole table by its name, such as
    ``calculator.errors``, if data choose which of its words is needed.

    Raises:
        ValueError: nothing has this name, or a word lacks a language.
    """
    about = FILE.stat()
    word = _read(about.st_mtime_ns, about.st_size)[language]
    for part in name.split("."):
        if not isinstance(word, dict) or part not in word:
            raise ValueError(f"docs/data/words.toml has no {name}")
        word = word[part]
    return word.format(**values) if values else word


def into_script(script: str, language: str) -> str:
    """A script in which ``wordsOf("birth")`` is what [birth] says in one language.

    Words that arrive with their script cost no request, and work in a page opened as a file.
    """

    def table(match: re.Match[str]) -> str:
        return json.dumps(of(language, match[1]), ensure_ascii=False)

    return ASKED.sub(table, script)


@lru_cache(maxsize=1)  # of the newest version: `mkdocs serve` shows a word as soon as it changes
def _read(changed: int, size: int) -> dict[str, dict]:
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {language: _in(language, tables) for language in LANGUAGES}


def _in(language: str, entry: object, name: str = "") -> Any:
    """A table without its other languages: a word's own is what stands in its place."""
    if not isinstance(entry, dict):
        raise ValueError(f"docs/data/words.toml: {name[1:]} must have en and zh, got {entry!r}")
    if not LANGUAGES & entry.keys():
        return {key: _in(language, below, f"{name}.{key}") for key, below in entry.items()}
    if entry.keys() != LANGUAGES:
        raise ValueError(f"docs/data/words.toml: {name[1:]} must have en and zh, got {[*entry]}")
    return entry[language]

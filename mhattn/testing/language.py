"""The language that reports are printed in, by ``MHATTN_LANGUAGE``: English, or Chinese.

Findings are data and stay English; a phrase that ``chinese.toml`` doesn't have is printed as it is.
"""

import functools
import os
import re
import tomllib
from pathlib import Path

__all__: list[str] = []

HAN = r"\u4e00-\u9fff"  # Chinese characters without their punctuation
NO_SPACE = re.compile(rf"(?<=[{HAN}]) +(?=[{HAN}])|(?<=[\u3000-\u303f\uff00-\uffef]) +")
SPACE = re.compile(rf"(?<=[{HAN}])(?=[^\W{HAN}]|\()|(?<=[^\W{HAN}]|\))(?=[{HAN}])")
# What is put in: a list in brackets has commas of its own.
PUT_IN = r"((?:\[[^\]]*\]|.)*?)"


def language() -> str:
    """What is asked for, ``"en"`` or ``"zh"``; another value is a `ValueError`."""
    asked = os.environ.get("MHATTN_LANGUAGE", "en")
    if asked not in ("en", "zh"):
        raise ValueError(f"MHATTN_LANGUAGE must be en or zh, got {asked!r}")
    return asked


def label(text: str) -> str:
    """A word, or a form, of the report itself."""
    return text if language() == "en" else _table()["labels"].get(text, text)


def translated(text: str) -> str:
    """A text of a finding, or why a check was not made."""
    return text if language() == "en" else _chinese(text)


@functools.cache
def _table() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("chinese.toml").read_text(encoding="utf-8"))


@functools.cache
def _phrases() -> list[tuple[re.Pattern[str], str]]:
    """What to look for, and its Chinese: first the phrases with most letters of their own."""
    table = _table()["phrases"]
    ordered = sorted(table, key=lambda english: -len(english.replace("{}", "")))
    forms = [PUT_IN.join(map(re.escape, english.split("{}"))) for english in ordered]
    return [(re.compile(f, re.S), table[e]) for f, e in zip(forms, ordered, strict=True)]


def _chinese(text: str) -> str:
    first, *others = text.split("; ")
    parts = [(_clause(part), part) for part in others]
    joined = [label("; ") + chinese if chinese else f"; {part}" for chinese, part in parts]
    return (_clause(first) or first) + "".join(joined)


def _clause(text: str) -> str:
    """The Chinese that leaves fewest letters English; nothing if no phrase fits."""
    fitting = [(match, zh) for form, zh in _phrases() if (match := form.fullmatch(text))]
    made = [chinese.format(*map(_chinese, match.groups())) for match, chinese in fitting]
    if text.count(", ") == 1 and all(two := [_clause(part) for part in text.split(", ")]):
        made.append(label("{}, {}").format(*two))  # two mistakes at once
    best = min(made, key=lambda chinese: len(re.findall("[A-Za-z]", chinese)), default="")
    return SPACE.sub(" ", NO_SPACE.sub("", best))

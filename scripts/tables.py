"""The site's tables, bibliography and glossary: from docs/data to Markdown."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from functools import cache

from pages import CITATION
from snippets import DOCS

CITED = {"en": (" and ", " et al.", ", "), "zh": ("、", " 等", "，")}
ELSEWHERE = {"en": "Elsewhere: {}.", "zh": "别处叫法：{}。"}


class UnknownCitation(Exception):
    """A page cites a key that docs/data/bibliography.toml does not have."""


def bibliography() -> dict[str, dict]:
    return _parsed((DOCS / "data" / "bibliography.toml").read_text(encoding="utf-8"))


def glossary() -> list[dict]:
    return _parsed((DOCS / "data" / "glossary.toml").read_text(encoding="utf-8"))["term"]


@cache
def _parsed(text: str) -> dict:
    return tomllib.loads(text)


def short_name(key: str, language: str) -> str:
    """A citation as it stands in a sentence: ``Vaswani et al., 2017``."""
    if key not in bibliography():
        raise UnknownCitation(f"[@{key}] is not in docs/data/bibliography.toml")
    entry, (together, others, comma) = bibliography()[key], CITED[language]
    names = [author.split(",")[0] for author in entry["authors"]]
    who = names[0] + others if len(names) > 2 else together.join(names)
    return f"{who}{comma}{entry['year']}"


def with_citations(text: str, language: str, url: Callable[[str], str]) -> str:
    """Each ``[@key]`` as a link to ``url(key)``; those side by side share their brackets."""
    first, between, last = {"en": ("(", "; ", ")"), "zh": ("（", "；", "）")}[language]

    def replace(match: re.Match) -> str:
        keys = [cited["target"] for cited in CITATION.finditer(match[0])]
        links = between.join(f"[{short_name(key, language)}]({url(key)})" for key in keys)
        space = match["space"] if language == "en" else ""
        return space + first + links + last

    one = CITATION.pattern.replace("?P<target>", "")
    return re.sub(rf"(?P<space>\s?){one}(?:\s?{one})*", replace, text)


def bibliography_markdown() -> str:
    """One list item per work, with the anchor that citations link to."""
    items = []
    for key, entry in sorted(bibliography().items()):
        authors = "; ".join(entry["authors"])
        title = f"[{entry['title']}]({entry['url']}){{ #{key} }}"
        items.append(f"- {authors} ({entry['year']}). {title}. {entry['venue']}.")
    return "\n".join(items)


def glossary_markdown(language: str) -> str:
    """A definition list in the order of the file: from scores to memory."""
    other = "zh" if language == "en" else "en"
    entries = []
    for term in glossary():
        names = [f"**{term[language]}**", f'<span lang="{other}">{term[other]}</span>']
        names += [f"${term['symbol']}$"] if "symbol" in term else []
        names += [f"`{name}`" for name in term.get("code", [])]
        meaning = term[f"meaning_{language}"]
        if "elsewhere" in term:
            others = ("、" if language == "zh" else ", ").join(term["elsewhere"])
            meaning += (" " if language == "en" else "") + ELSEWHERE[language].format(others)
        entries.append(" · ".join(names) + f"\n:   {meaning}\n")
    return "\n".join(entries)

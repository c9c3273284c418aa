"""The site's tables, bibliography and glossary: from docs/data to Markdown."""

from __future__ import annotations

import tomllib
from functools import cache

from snippets import DOCS

HEADERS = {
    "en": ("Term", "中文", "Symbol", "In code", "Elsewhere", "Meaning"),
    "zh": ("术语", "English", "符号", "代码中", "别处叫法", "含义"),
}


class UnknownCitation(Exception):
    """A page cites a key that docs/data/bibliography.toml does not have."""


def bibliography() -> dict[str, dict]:
    return _parsed((DOCS / "data" / "bibliography.toml").read_text(encoding="utf-8"))


def glossary() -> list[dict]:
    return _parsed((DOCS / "data" / "glossary.toml").read_text(encoding="utf-8"))["term"]


@cache
def _parsed(text: str) -> dict:
    return tomllib.loads(text)


def short_name(key: str) -> str:
    """A citation as it stands in a sentence: ``Vaswani et al., 2017``."""
    if key not in bibliography():
        raise UnknownCitation(f"[@{key}] is not in docs/data/bibliography.toml")
    entry = bibliography()[key]
    names = [author.split(",")[0] for author in entry["authors"]]
    if len(names) > 2:
        names = [names[0] + " et al."]
    return f"{' and '.join(names)}, {entry['year']}"


def bibliography_markdown() -> str:
    """One list item per work, with the anchor that citations link to."""
    items = []
    for key, entry in sorted(bibliography().items()):
        authors = "; ".join(entry["authors"])
        title = f"[{entry['title']}]({entry['url']}){{ #{key} }}"
        items.append(f"- {authors} ({entry['year']}). {title}. {entry['venue']}.")
    return "\n".join(items)


def glossary_markdown(language: str) -> str:
    """A table with one row per term, in the order of the file: from scores to costs."""
    other = "zh" if language == "en" else "en"
    rows = ["| " + " | ".join(HEADERS[language]) + " |", "|---" * len(HEADERS[language]) + "|"]
    for term in glossary():
        symbol = f"${term['symbol']}$" if "symbol" in term else ""
        code = f"`{term['code']}`" if "code" in term else ""
        cells = [term[language], term[other], symbol, code, term.get("elsewhere", "")]
        rows.append("| " + " | ".join([*cells, term[f"meaning_{language}"]]) + " |")
    return "\n".join(rows)

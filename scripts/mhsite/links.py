"""Where something is said: the pages that show a function, cite a work, explain a term."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mhsite import data, search
from mhsite.page import Block, Page, Span, keys, read, with_spans
from mhsite.settings import settings
from mhsite.source import DOCS, of_file

SHOWN = {"en": "In the chapters: ", "zh": "讲到它们的章节："}
CITED = {"en": "Cited in ", "zh": "引用于"}
TERMS = {"en": "Terms: ", "zh": "本页术语："}
COMMA = {"en": ", ", "zh": "、"}
SEMICOLON = {"en": "; ", "zh": "；"}
COLON = {"en": ": ", "zh": "："}


def pages(language: str) -> list[Path]:
    """The pages in the order of the nav."""
    return [DOCS / language / name for name in _names_in(settings(language)["nav"])]


def _names_in(nav: list | dict | str) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from _names_in(item)


def to_page(name: str, language: str) -> str:
    return f"[{data.title(name, language)}]({name})"


def terms(page: Page) -> str:
    """The terms that a page explains, each with a link to the glossary; Markdown."""
    found = [term for group in data.glossary() for term in group["term"]]
    mine = [term for term in found if term["page"].partition("#")[0] == page.name]
    links = [f"[{term[page.language]}](glossary.md#{term['id']})" for term in mine]
    return (
        f"{TERMS[page.language]}{COMMA[page.language].join(links)}\n{{ .mh-about }}"
        if links
        else ""
    )


def to_reference(block: Block) -> str:
    """Of shown source, a link to what the reference says of it; Markdown."""
    file, _, name = block.value.partition(":")
    module = file.removesuffix(".py").replace("/", ".")
    if module.startswith("mhattn.") and name in public(module):
        return f"[`{module}.{name}`](reference.md#{module}.{name})\n{{ .mh-about }}"
    return ""


def public(module: str) -> list[str]:
    """The functions and classes of a module that the reference has."""
    if module not in _modules(DOCS / "en" / "reference.md"):
        return []
    _, *members = search.api(module, "en")
    return [name for location, name, _ in members if location == f"#{module}.{name}"]


@of_file
def _modules(reference: Path) -> set[str]:
    return {block.value for block in read(reference).walk() if block.kind == "api"}


def to_chapters(module: str, language: str) -> str:
    """Where the names of a module are shown, else used for the first time; Markdown."""
    by_page: dict[str, list[str]] = {}
    for name in public(module):
        source = f"{module.replace('.', '/')}.py:{name}"
        having = [path for path in pages(language) if source in _shown(path)]
        having += [path for path in pages(language) if name in _used(path)]
        if having:
            by_page.setdefault(read(having[0]).name, []).append(f"`{name}`")
    comma, colon = COMMA[language], COLON[language]
    found = [f"{to_page(page, language)}{colon}{comma.join(n)}" for page, n in by_page.items()]
    return f"{SHOWN[language]}{SEMICOLON[language].join(found)}\n{{ .mh-about }}" if found else ""


@of_file
def _shown(path: Path) -> set[str]:
    return {block.value for block in read(path).walk() if block.kind == "include"}


@of_file
def _used(path: Path) -> set[str]:
    """All words in the code of a page's story."""
    blocks = (block for block in read(path).walk() if block.kind == "include")
    return set(re.findall(r"\w+", "\n".join(b.section.shown for b in blocks if b.section.is_story)))


def citing(language: str) -> dict[str, str]:
    """For each work that is cited, the pages that cite it; Markdown."""
    found: dict[str, list[str]] = {}
    for path in pages(language):
        for key in _cited(path):
            found.setdefault(key, []).append(to_page(read(path).name, language))
    stop = "." if language == "en" else "。"
    return {key: CITED[language] + COMMA[language].join(p) + stop for key, p in found.items()}


@of_file
def _cited(path: Path) -> set[str]:
    found: set[str] = set()

    def note(span: Span) -> str:
        if span.kind == "citation":
            found.update(keys(span))
        return span.text

    page = read(path)
    for block in page.walk():
        glossary = block.kind == "table" and block.value == "glossary"
        with_spans(data.table(block, page.language, str) if glossary else block.text, note)
    return found

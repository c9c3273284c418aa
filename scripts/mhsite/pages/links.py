"""Where something is said: the pages that show a function or explain a term."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain, groupby
from pathlib import Path

from mhsite import words
from mhsite.pages import glossary, navigation
from mhsite.pages.api import api
from mhsite.pages.page import Block, Page, read
from mhsite.stories.source import address, of_file


def terms(page: Page) -> str:
    """The terms that a page explains, each with a link to the glossary; Markdown."""
    found = [term for group in glossary.groups() for term in group["term"]]
    mine = [term for term in found if term["page"].partition("#")[0] == page.name]
    to = "../" * page.name.count("/") + "glossary.md"
    links = [f"[{term[page.language]}]({to}#{term['id']})" for term in mine]
    if not links:
        return ""
    comma = words.of(page.language, "punctuation.list_comma")
    return words.of(page.language, "page.terms", terms=comma.join(links)) + "\n{ .mh-about }"


def to_reference(block: Block) -> str:
    """Of shown source, a link to what the reference says of it; Markdown."""
    file, _, name = block.value.partition(":")
    module = file.removesuffix(".py").replace("/", ".")
    if module.startswith("mhattn.") and name in public(module):
        page = reference()[module]
        return f"[`{address(module, name)}.{name}`]({page}#{module}.{name})\n{{ .mh-about }}"
    return ""


def imports(module: str) -> str:
    """How to import what a module exports; Markdown."""
    pairs = sorted((address(module, name), name) for name in public(module))
    grouped = groupby((pair for pair in pairs if pair[0] != module), key=lambda pair: pair[0])
    return "\n\n".join(
        f"`from {door} import {', '.join(name for _, name in names)}`" for door, names in grouped
    )


def public(module: str) -> list[str]:
    """The functions and classes of a module that the reference has."""
    # What the reference doesn't have is nobody's to import.
    if module not in reference():
        return []
    _, *members = api(module, "en")
    return [name for location, name, _ in members if location == f"#{module}.{name}"]


def reference() -> dict[str, str]:
    """Of each module that the reference has, the page."""
    names = {path: read(path).name for path in navigation.pages("en")}
    return {module: name for path, name in names.items() for module in _modules(path)}


@of_file
def _modules(path: Path) -> set[str]:
    return {block.value for block in read(path).walk() if block.kind == "api"}


def to_chapters(module: str, language: str, to: Callable[[str], str]) -> str:
    """Where the names of a module are shown, else used for the first time; Markdown.

    ``to`` gives the link to a page.
    """
    in_order, by_page = navigation.pages(language), {}
    for name in public(module):
        source = f"{module.replace('.', '/')}.py:{name}"
        # The page that shows the source explains it best; a page that only uses the name is second.
        showing = (path for path in in_order if source in _shown(path))
        using = (path for path in in_order if name in _used(path))
        if path := next(chain(showing, using), None):
            by_page.setdefault(read(path).name, []).append(f"`{name}`")
    if not by_page:
        return ""
    colon = words.of(language, "punctuation.colon")
    comma = words.of(language, "punctuation.list_comma")
    found = [
        navigation.to_page(page, language, to) + colon + comma.join(names)
        for page, names in by_page.items()
    ]
    chapters = words.of(language, "punctuation.semicolon").join(found)
    return words.of(language, "reference.in_chapters", chapters=chapters) + "\n{ .mh-about }"


@of_file
def _shown(path: Path) -> set[str]:
    return {block.value for block in read(path).walk() if block.kind == "include"}


@of_file
def _used(path: Path) -> set[str]:
    """All words in the code of a page's story."""
    # Words of the code, not of the prose: "mask" is written on most pages, and used on few.
    blocks = (block for block in read(path).walk() if block.kind == "include")
    return set(re.findall(r"\w+", "\n".join(b.section.shown for b in blocks if b.section.is_story)))

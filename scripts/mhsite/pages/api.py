"""What the reference says of the package's modules, read from their source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import griffe

from mhsite.pages import cells, chinese_api
from mhsite.stories.source import ROOT, of_file


def api(name: str, language: str) -> Iterator[str | tuple[str, str, str]]:
    """What a module is about; then an entry for each of its functions, classes and methods."""
    # Read, not imported: a page of the reference is rendered without loading torch.
    module = _module(cells.module_of(name))
    yield about(module, language)
    for member in members(module):
        yield f"#{member.path}", member.name, about(member, language)


def documented(name: str, language: str) -> Iterator[tuple[str, str]]:
    """A module's docstring, under no name; then each member's, under its signature."""
    module = _module(cells.module_of(name))
    yield "", said(module, language)
    for member in members(module):
        signature = member.path
        if member.is_function:
            signature = member.signature(return_type=True).replace(member.name, member.path, 1)
        yield signature, said(member, language)


@of_file
def _module(path: Path) -> griffe.Module:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return griffe.visit(name, path, path.read_text(encoding="utf-8"))


def members(parent: griffe.Object) -> Iterator[griffe.Object]:
    for member in parent.members.values():
        # An alias is an import from elsewhere, which is in the reference of its own module.
        named = not member.is_alias and not member.name.startswith("_")
        if member.has_docstring and named and member.is_public:
            yield member
            yield from members(member) if member.is_class else ()


def about(member: griffe.Object, language: str) -> str:
    """The first paragraph of a docstring."""
    paragraph = said(member, language).partition("\n\n")[0]
    return re.sub(r"`|<(https?://[^>\s]+)>", r"\1", paragraph)


def said(member: griffe.Object, language: str) -> str:
    """A docstring; in Chinese as far as the catalogs have it."""
    docstring = member.docstring.value if member.docstring else ""
    return docstring if language == "en" else chinese_api.translated(docstring)

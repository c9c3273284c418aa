"""Docstrings in Chinese for the reference: what stands in the catalogs in place of each paragraph.

docs/data/reference.zh.po has the paragraphs of docstrings and the descriptions of arguments, each
in one line; the first lines of what pages show stand in docs/data/mhattn.zh.po. What has no entry
stays English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import griffe
import polib

from mhsite.stories.source import DOCS, of_file
from mhsite.stories.translation import PACKAGE

CATALOG = DOCS / "data" / "reference.zh.po"
ITEM = re.compile(r"(?P<name>    [*\w][\w*, ]*: )(?P<said>\S.*)")
WITH_ITEMS = ("Args:", "Raises:", "Attributes:")
SECTION = re.compile(r"[A-Z]\w+:")


class Chinese(griffe.Extension):
    """Has mkdocstrings read the Chinese of docstrings; docs/zh.yml names this module."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            obj.docstring.value = translated(obj.docstring.value)


def translated(docstring: str) -> str:
    """A docstring with its paragraphs and descriptions in Chinese, as far as they are known."""
    known = catalog()
    lines = []
    for head, said, indent, source in pieces(docstring):
        chinese = known.get(said, "")
        lines += [head + chinese if head.strip() else indent + chinese] if chinese else source
    return "\n".join(lines[:-1])  # the last one only ends the part before it


def pieces(docstring: str) -> Iterator[tuple[str, str, str, list[str]]]:
    """The parts of a docstring that have a translation each, and the lines between them.

    Yields:
        The name that an item begins with; its words, in one line; its indentation; its lines.
    """
    head, indent, part, in_code, with_items = "", "", [], False, False
    for line in [*docstring.split("\n"), ""]:
        blank = not line.strip()
        in_code = not blank and (in_code or line.lstrip().startswith(">>>"))
        if SECTION.fullmatch(line):
            with_items = line in WITH_ITEMS
        item = ITEM.fullmatch(line) if with_items and not in_code else None
        ends = blank or in_code or item or SECTION.fullmatch(line)
        if part and ends:
            yield _piece(head, indent, part)
            head, part = "", []
        if item:
            head, indent, part = item["name"], "    ", [line]
        elif blank or (ends and not part):
            yield "", "", "", [line]
        else:
            indent = indent if part else line[: len(line) - len(line.lstrip())]
            part.append(line)


def _piece(head: str, indent: str, part: list[str]) -> tuple[str, str, str, list[str]]:
    said = " ".join(" ".join(part).split())
    return head, said.removeprefix(" ".join(head.split())).strip(), indent, part


def catalog() -> dict[str, str]:
    """The Chinese of texts in docstrings, of both catalogs."""
    return _entries(PACKAGE) | _entries(CATALOG)


@of_file
def _entries(path: Path) -> dict[str, str]:
    found = polib.pofile(str(path))
    return {each.msgid: each.msgstr for each in found if each.translated() and not each.obsolete}

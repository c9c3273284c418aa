"""Traps as they stand on the pages: their wrong lines, the right ones, and what came out of each.

A trap is a warning on a page. The first section of its story that is called ``trap…`` gives it its
key, as in ``kv-cache:trap-position``, and its address on the page. Its story says which lines are
wrong and which are right, in the code and in what that prints, by the names ``wrong`` and ``right``
or by marks, which no page shows: see "A trap" in CONTRIBUTING.md. Its kind, and the doctor's check
that finds it, are in docs/data/museum.toml.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from mhsite.pages import page as pages
from mhsite.pages.page import Block, Page, read, with_spans
from mhsite.pages.settings import toml
from mhsite.stories import results
from mhsite.stories.source import (
    DISCARDED,
    DOCS,
    PROMPT,
    STORIES,
    Section,
    SourceError,
    sections,
)
from mhsite.stories.translation import shown_section

FILE = DOCS / "data" / "museum.toml"
LEFT_OUT = "left-out"
NAMES = ("wrong", "right")
PREFIX = re.compile(r"Trap: |陷阱[：:]\s*")
SIDE = re.compile(r"\[(wrong|right)(?:: ([^\]]+))?\]")
LABEL = re.compile(r"^(?:[^\s:：,，]+[:：,，] *|\S+ +)")  # "wrong: ", "right, "
HALF = re.compile(r"[,，;；] ?(?=\S)")


@dataclass(frozen=True)
class Trap:
    """A trap as it stands on a page in one language, and what the file says of it."""

    page: Page
    block: Block

    @cached_property
    def sections(self) -> list[Section]:
        return [each.section for each in self.block.walk() if each.kind == "include"]

    @property
    def key(self) -> str:
        name = self.page.name.removesuffix(".md")
        return f"{name}:{self.block.trap}" if self.block.trap else name

    @property
    def target(self) -> str:
        """Where it stands, as links name it: ``kv-cache.md#trap-position``."""
        return f"{self.page.name}#{self.block.trap}" if self.block.trap else self.page.name

    @property
    def title(self) -> str:
        title, prefixed = PREFIX.subn("", self.block.title)
        return title[0].upper() + title[1:] if prefixed else title

    @property
    def plain_title(self) -> str:
        """The title, of formulas the TeX: ``Cutting *W^O* like the others``."""
        return with_spans(self.title, lambda s: f"*{s.value}*" if s.kind == "math" else s.text)

    @property
    def code(self) -> str:
        return "\n".join(each.code for each in self.sections)

    @cached_property
    def story(self) -> list[Section]:
        """All sections of its story, in its language."""
        name = self.sections[0].path.name.split(".")[0] + ".pycon"
        found = sections(STORIES / name)
        return [shown_section(f"{name}:{each}", self.page.language) for each in found]

    def error(self, why: str) -> SourceError:
        section = self.sections[0]
        return SourceError(f"of the trap {self.key}, {why}", section.path, section.line)

    @property
    def cited(self) -> list[str]:
        """The keys of the works that its text cites."""
        prose = (block for block in self.block.walk() if block.kind == "prose")
        found = (span for block in prose for span in pages.spans(block.text))
        return [key for span in found if span.kind == "citation" for key in pages.keys(span)]


def traps(language: str) -> dict[str, Trap]:
    """All traps of a language's pages by their keys."""
    found: dict[str, Trap] = {}
    for path in pages.page_paths(language):
        page = read(DOCS / language / path)
        for block in page.walk():
            if block.kind == "block" and block.value == "warning":
                trap = Trap(page, block)
                if trap.key in found:
                    raise SourceError(f"two traps are called {trap.key}", page.path, block.line)
                found[trap.key] = trap
    return found


def kinds() -> dict[str, dict[str, dict]]:
    """Of each kind its traps' keys, each with what the file says of it."""
    return {name: said for name, said in toml(FILE).items() if name != LEFT_OUT}


def left_out() -> dict[str, str]:
    """The traps that the museum hasn't, each with the reason."""
    return toml(FILE)[LEFT_OUT]


@dataclass(frozen=True)
class Mark:
    """A line that a story marks as ``wrong`` or ``right``: of code, or of what that printed.

    ``of`` is what the mark names: of a table's row the column, and of code in a section that is
    not the trap's the trap, by the name of its first section.
    """

    section: Section
    line: int
    side: str
    of: str = ""

    @property
    def text(self) -> str:
        return self.section.text.split("\n")[self.line]

    @property
    def is_code(self) -> bool:
        return bool(PROMPT.match(self.text))

    def error(self, why: str) -> SourceError:
        return SourceError(why, self.section.path, self.section.line + self.line)


def marks(section: Section) -> list[Mark]:
    return [
        Mark(section, line, side, of)
        for line, mark in section.marks
        for side, of in SIDE.findall(mark)
    ]


# The lines that are wrong, and those that are right


def pair(trap: Trap) -> list[str]:
    """The wrong lines of a trap and the right ones; "" if its story has no right ones."""
    wrong, right = (_marked_code(trap, side) or _named(trap, side) for side in NAMES)
    if not wrong:
        raise trap.error("no line is wrong; put `# [wrong]` behind those that are")
    return [textwrap.dedent(code).strip("\n") for code in (wrong, right)]


def _marked_code(trap: Trap, side: str) -> str:
    """The lines with a mark, in the trap's own sections or, with its name, elsewhere."""
    own = [section.name for section in trap.sections]
    lines = [
        DISCARDED.sub(r"\1", mark.text[4:])
        for section in trap.story
        for mark in marks(section)
        if mark.side == side and mark.is_code
        if mark.of == own[0] or (not mark.of and section.name in own)
    ]
    return "\n".join(lines)


def _named(trap: Trap, side: str) -> str:
    """What the trap's code gives the name ``wrong`` or ``right``."""
    values = {
        _segment(trap.code, value)
        for node in ast.walk(ast.parse(trap.code))
        for target, value in _assigned(node)
        if getattr(target, "id", None) == side
    }
    if len(values) > 1:
        raise trap.error(f"`{side}` has {len(values)} values; put `# [{side}]` behind the line")
    return "".join(values)


def _segment(code: str, node: ast.expr) -> str:
    """An expression; its later lines as far to the right of the first as if it began a line."""
    indent = code.splitlines()[node.lineno - 1]
    indent = indent[: len(indent) - len(indent.lstrip())]
    return textwrap.dedent(indent + ast.get_source_segment(code, node))


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a statement assigns, and its value."""
    for target in getattr(node, "targets", ()):
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


# What came out


def outcome(trap: Trap, english: Trap) -> list[tuple[str, str]]:
    """What the wrong lines gave and what the right ones: of a table its heading, and the result.

    The lines are looked for in English, and taken from the same places.
    """
    found = [mark for side in NAMES for mark in _printed(english, side)]
    if not found:
        why = "no printed line says what came out; put `# [wrong]` or `# [right]` behind it"
        raise trap.error(why)
    told = {section.name: results.as_printed(section) for section in trap.sections}
    in_one_line = len({(mark.section.name, mark.line) for mark in found}) < len(found)
    return [
        _cell(mark, told[mark.section.name])
        if mark.text.startswith("|")
        else ("", _words(mark, told[mark.section.name], half if in_one_line else None))
        for half, mark in enumerate(found)
    ]


def _printed(trap: Trap, side: str) -> list[Mark]:
    """The printed line of a side, if there is one: with its mark, or else with its name."""
    named = [mark for section in trap.sections for mark in marks(section)]
    named = [mark for mark in named if mark.side == side and not mark.is_code]
    if not named:
        lines = [(each, i) for each in trap.sections for i in range(each.text.count("\n"))]
        named = [Mark(section, i, side) for section, i in lines]
        named = [mark for mark in named if _begins(mark.text, side)]
    if len(named) > 1:
        raise named[1].error(f"a second line says what is {side}; put `# [{side}]` behind one")
    return named


def _begins(text: str, side: str) -> bool:
    return bool(re.match(rf"{side}\b", text))


def _words(mark: Mark, told: Section, half: int | None) -> str:
    """A line, or its half at the comma, without the word ``wrong`` or ``right`` before it."""
    english, text = (section.text.split("\n")[mark.line] for section in (mark.section, told))
    if half is not None:
        english, text = (HALF.split(line)[half] for line in (english, text))
    return LABEL.sub("", text) if _begins(english, mark.side) else text


def _cell(mark: Mark, told: Section) -> tuple[str, str]:
    """A table's cell, under its row's and its column's name if these are not the side's."""
    lines = mark.section.text.split("\n")
    top = mark.line
    while top and lines[top - 1].startswith("|"):
        top -= 1
    titles, row = _cells(lines[top]), _cells(mark.text)
    named = not _cells(lines[top + 1])[0].endswith(":")  # the rows have names
    columns = [i for i in range(named, len(titles)) if titles[i] == (mark.of or mark.side)]
    if not columns and not mark.of and len(titles) == named + 1:
        columns = [int(named)]
    if not columns:
        raise mark.error(f"which column is {mark.side}? Say it: `# [{mark.side}: COLUMN]`")
    column = columns[0]
    titles_told, row_told = (_cells(told.text.split("\n")[i]) for i in (top, mark.line))
    head = [row_told[0]] if named and not any(_begins(row[0], side) for side in NAMES) else []
    if not any(_begins(titles[column], side) for side in NAMES):
        head.append(titles_told[column])
    return " · ".join(head), row_told[column]


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]

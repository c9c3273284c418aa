"""Traps as they stand on the pages: their wrong lines, the right ones, and what came out of each.

A trap is a warning on a page. The first section of its story that is called ``trap…`` gives it its
key, as in ``kv-cache:trap-position``, and its address on the page. docs/data/museum.toml says only
what nobody can compute: its kind, the doctor's check that finds it, and, where a story has nothing
of the names ``wrong`` and ``right``, how the lines start that are.
"""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mhsite.pages import page as pages
from mhsite.pages.page import Block, Page, read, with_spans
from mhsite.stories import results
from mhsite.stories.source import DOCS, STORIES, Cell, Section, SourceError, of_file, sections
from mhsite.stories.translation import shown_section

FILE = DOCS / "data" / "museum.toml"
LEFT_OUT = "left-out"
NAMES = ("wrong", "right")
PREFIX = re.compile(r"Trap: |陷阱[：:]\s*")
LABEL = re.compile(r"^(?:[^\s:：,，]+[:：,，] *|\S+ +)")  # "wrong: ", "right, "
HALF = re.compile(r"[,，;；] ?(?=\S)")
LOOP = re.compile(r"^for .*\bin [(\[](?:[\w.]+, [^,\n]+|wrong, .+)[)\]]:", re.M)  # over a pair
ONE_LINE = re.compile(r"wrong\b[^,]*, right\b[^,]*$")


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


@of_file
def _parsed(path: Path) -> dict[str, dict]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def kinds() -> dict[str, dict[str, dict]]:
    """Of each kind its traps' keys, each with what the file says of it."""
    return {name: said for name, said in _parsed(FILE).items() if name != LEFT_OUT}


def left_out() -> dict[str, str]:
    """The traps that the museum hasn't, each with the reason."""
    return _parsed(FILE)[LEFT_OUT]


# The lines that are wrong, and those that are right


def pair(trap: Trap, english: Trap, said: dict) -> list[str]:
    """The wrong lines of a trap and the right ones; "" if its story has no such lines."""
    found = []
    for name in NAMES:
        called = _marked(english.code, name)  # by words that the Chinese hasn't
        found.append(_named(trap.code, name, called) or _named(english.code, name, called))
    if all(isinstance(each, list) for each in found):
        found = _differing(*found)
    code = ["\n".join(each) if isinstance(each, list) else each for each in found]
    for place, name in enumerate(NAMES):
        if name in said:
            starts = said[name] if isinstance(said[name], list) else [said[name]]
            code[place] = "\n".join(_pointed(trap, start) for start in starts)
    return [textwrap.dedent(each).strip("\n") for each in code]


def _marked(code: str, name: str) -> set[str]:
    """The functions and classes that are called so, or by a comment on their first line."""
    lines, found = code.splitlines(), {name, name.title()}
    for node in ast.walk(ast.parse(code)):
        defines = isinstance(node, ast.FunctionDef | ast.ClassDef)
        if defines and re.search(rf"# {name}\b", lines[node.lineno - 1]):
            found.add(node.name)
    return found


def _named(code: str, name: str, definitions: set[str]) -> str | list[str]:
    """What a piece of code calls so: an expression, or the lines of a definition."""
    lines = code.splitlines()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in definitions:
            first = node.body[bool(ast.get_docstring(node))]
            return lines[first.lineno - 1 : node.end_lineno]
        for target, value in _assigned(node):
            if getattr(target, "id", getattr(target, "value", None)) == name:
                return _segment(code, value)
    return ""


def _segment(code: str, node: ast.expr) -> str:
    """An expression; its later lines as far to the right of the first as if it began a line."""
    indent = code.splitlines()[node.lineno - 1]
    indent = indent[: len(indent) - len(indent.lstrip())]
    return textwrap.dedent(indent + ast.get_source_segment(code, node))


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Names, or the keys of a dictionary, and what they are."""
    if isinstance(node, ast.Dict):
        yield from zip(node.keys, node.values, strict=True)
    for target in getattr(node, "targets", ()):
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def _differing(wrong: list[str], right: list[str]) -> list[list[str]]:
    """The lines in which two definitions differ."""
    parts: list[list[str]] = [[], []]
    for tag, a, b, c, d in difflib.SequenceMatcher(None, wrong, right).get_opcodes():
        if tag != "equal":
            parts[0] += wrong[a:b]
            parts[1] += right[c:d]
    return parts


def _pointed(trap: Trap, start: str) -> str:
    """The line that starts so, with those that it goes on in: of the trap, or of its story.

    It is looked for in English, and taken from the same place in the trap's language.
    """
    story = STORIES / (trap.sections[0].path.name.split(".")[0] + ".pycon")
    own = [f"{story.name}:{each.name}" for each in trap.sections]
    for among in (own, [f"{story.name}:{name}" for name in sections(story)]):
        found = {
            line: (reference, number)
            for reference in among
            for number, line in enumerate(shown_section(reference).code.splitlines())
            if _begins(line.strip(), start)
        }
        if len(found) == 1:
            break
    else:
        raise SourceError(f"{len(found)} lines of {story.name} start with {start!r}", FILE)
    ((reference, number),) = found.values()
    lines = shown_section(reference, trap.page.language).code.splitlines()
    end = number + 1
    while sum(map(_opened, lines[number:end])) > 0:
        end += 1
    return "\n".join(lines[number:end])


def _begins(line: str, start: str) -> bool:
    """Does a line start so? With ``$`` at its end, is it that?"""
    return line == start[:-1] if start.endswith("$") else line.startswith(start)


def _opened(line: str) -> int:
    code = re.sub(r"\"[^\"]*\"|#.*", "", line)
    return sum(code.count(sign) for sign in "([{") - sum(code.count(sign) for sign in ")]}")


# What came out


@dataclass(frozen=True)
class Place:
    """Where a result stands: its line; of a table the column too, and the cells that head it."""

    line: int
    column: int | None = None
    heads: tuple[tuple[int, int], ...] | None = None
    labelled: bool = False  # the result stands behind a label

    def head(self, output: str) -> str:
        grid = _grid(output) if self.heads else []
        return " · ".join(grid[line][column] for line, column in self.heads or ())

    def of(self, output: str) -> str:
        """The result in this output."""
        if self.heads is not None:
            return _grid(output)[self.line][self.column]
        text = output.splitlines()[self.line]
        if self.column is not None:  # a half of the line
            text = HALF.split(text)[self.column]
        return LABEL.sub("", text) if self.labelled else text

    def context(self, output: str) -> str:
        return output.splitlines()[self.line] if self.heads is None else self.head(output)


def outcome(trap: Trap, english: Trap, said: dict) -> list[tuple[str, str]]:
    """What the wrong lines gave and what the right ones: of a table its heading, and the result.

    It is looked for in English, from the last output on, and taken from the same place.
    """
    labels, at = said.get("labels", list(NAMES)), said.get("at", "")
    cells = [cell for each in english.sections for cell in each.cells]
    told = [cell.output for each in trap.sections for cell in results.as_printed(each).cells]
    found = _found(cells, labels, at)
    return [(place.head(told[number]), place.of(told[number])) for number, place in found]


def _found(cells: list[Cell], labels: list[str], at: str) -> list[tuple[int, Place]]:
    """The places that say what belongs to these labels, each with the number of its cell."""
    for number, cell in reversed(list(enumerate(cells))):
        text = cell.output
        found = [p for p in _places(cell, labels) if all(at in each.context(text) for each in p)]
        apart = (each for each in found if len({place.of(text) for place in each}) > 1)
        if places := next(apart, found[0] if found else []):
            return [(number, place) for place in places]
    alone = [_found(cells, [label], at) for label in labels if labels[1:]]
    return [each[0] for each in alone] if all(alone) else []


def _places(cell: Cell, labels: list[str]) -> Iterator[list[Place]]:
    """Where an output says what belongs to these labels."""
    usual = set(labels) <= set(NAMES)
    if cell.output.startswith("|"):
        yield from _table_places(_grid(cell.output), labels, usual)
        return
    lines = cell.output.splitlines()
    yield from zip(
        *[[Place(i, labelled=usual) for i, x in enumerate(lines) if _is(x, n)] for n in labels],
        strict=False,
    )
    if labels == list(NAMES):
        both = (i for i, line in enumerate(lines) if ONE_LINE.match(line))
        yield from ([Place(i, half, labelled=True) for half in (0, 1)] for i in both)
        half = len(lines) // 2 if LOOP.search(cell.code) else 0
        yield from ([Place(i), Place(i + half)] for i in range(half))


def _table_places(grid: list[list[str]], labels: list[str], usual: bool) -> Iterator[list[Place]]:
    """The same of a table: labels are rows or columns, and are shown where they are not usual."""
    named = not grid[1][0].endswith(":")  # the rows have names
    if named and (rows := _first([row[0] for row in grid], labels)):
        for c in range(1, len(grid[0])):
            yield [Place(r, c, ((0, c),) if usual else ((r, 0), (0, c))) for r in rows]
    if columns := _first(grid[0], labels):
        for r in range(2, len(grid)):
            row = ((r, 0),) if named else ()
            yield [Place(r, c, row if usual else (*row, (0, c))) for c in columns]


def _first(names: list[str], labels: list[str]) -> list[int]:
    """The places of the first names that start with these labels, if all are there."""
    found = [[i for i, name in enumerate(names) if _is(name, label)] for label in labels]
    return [each[0] for each in found] if all(found) else []


def _is(name: str, label: str) -> bool:
    return name.startswith(label) and not name[len(label) :][:1].isalpha()


def _grid(output: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in output.splitlines()]

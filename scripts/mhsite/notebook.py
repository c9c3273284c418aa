"""A page as a notebook and as a script: its prose, its code, and what the code gave."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from functools import cache

import nbformat
from nbformat import v4

from mhsite import data, results
from mhsite.page import Block, Page, Span, with_spans
from mhsite.source import Section

ROLE = re.compile(r"\\(?:query|key|value|weights|output)\{([^{}]*)\}")
ATTRIBUTES = re.compile(r"\{ [.:][^}]*\}")


def notebook(page: Page, home: str) -> str:
    """The page as .ipynb, with what its code printed and drew; ``home`` is the site's address."""
    return _file(tuple(_cells(page, home)))


def _cells(page: Page, home: str) -> Iterator[tuple[str, ...]]:
    """The text of each cell; of one with code also what it printed, and its figure as SVG."""
    for piece in _pieces(page, home):
        if isinstance(piece, str):
            yield (piece,)
        else:
            drawn = results.drawn(piece)
            svg = results.figure(drawn, page.language) if drawn else ""
            yield _quiet(piece.code.rstrip("\n")), results.printed(piece), svg


@cache
def _file(cells: tuple[tuple[str, ...], ...]) -> str:
    whole = {
        "cells": [_cell(f"cell-{number}", *cell) for number, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python", "file_extension": ".py"},
        },
        "nbformat": v4.nbformat,
        "nbformat_minor": v4.nbformat_minor,
    }
    whole = nbformat.from_dict(whole)
    nbformat.validate(whole)  # once: each of v4's new_... would
    return nbformat.writes(whole) + "\n"


def _quiet(code: str) -> str:
    """A notebook shows the value of a cell's last expression, unless a semicolon follows."""
    last = ast.parse(code).body[-1]
    if not isinstance(last, ast.Expr) or ast.unparse(last).startswith("print("):
        return code
    lines = code.split("\n")
    line = lines[last.end_lineno - 1].encode()  # ast counts bytes
    before, after = line[: last.end_col_offset], line[last.end_col_offset :]
    lines[last.end_lineno - 1] = f"{before.decode()};{after.decode()}"
    return "\n".join(lines)


def _cell(name: str, text: str, *gave: str) -> dict:
    cell = {"id": name, "metadata": {}, "source": text, "cell_type": "markdown"}
    if not gave:
        return cell
    printed, svg = gave
    outputs = []
    if printed:
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed})
    if svg:
        data = {"image/svg+xml": svg}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    return cell | {"cell_type": "code", "execution_count": None, "outputs": outputs}


def script(page: Page) -> str:
    """The page's code as a script in percent format, under the page's headings."""
    parts, titles, drawn = [], [], False
    for block in page.walk():
        if block.kind == "heading":
            titles.append(block.title)
        if block.kind == "include":
            parts.append(" ".join(["# %%", " · ".join(titles)]).rstrip())
            parts.append(block.section.code)
            titles, drawn = [], drawn or bool(results.drawn(block.section))
    if drawn:
        parts.append("# %%\nimport matplotlib.pyplot as plt\n\nplt.show()\n")
    return "\n".join(parts)


def _pieces(page: Page, home: str) -> Iterator[str | Section]:
    """The page's prose as Markdown that every notebook program reads, and its sections between."""
    prose = ""
    for piece in _Plain(page, home).pieces(page.blocks):
        if isinstance(piece, str):
            prose += piece
            continue
        if cleaned := _clean(prose):
            yield cleaned
        yield piece
        prose = ""
    if cleaned := _clean(prose):
        yield cleaned


def _clean(prose: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", ATTRIBUTES.sub("", ROLE.sub(r"{\1}", prose))).strip()


class _Plain:
    """A page's blocks in plain Markdown, with whole addresses."""

    def __init__(self, page: Page, home: str):
        self.page, self.home = page, home

    def pieces(self, blocks: tuple[Block, ...]) -> Iterator[str | Section]:
        for block in blocks:
            if block.kind == "include":
                yield block.section
            elif block.kind == "block":
                yield from self.admonition(block)
            elif block.kind == "heading":
                yield f"{block.mark} {block.title}\n"
            elif block.kind == "prose":
                yield with_spans(block.text, self.span, block.line)
            elif block.kind == "table":
                text = data.table(block, self.page.language, lambda file: self.home + file)
                yield with_spans(text, self.span) + "\n"
            elif block.kind not in ("figure", "needs", "widget"):
                yield block.text

    def admonition(self, block: Block) -> Iterator[str | Section]:
        inside, title = list(self.pieces(block.blocks)), with_spans(block.title, self.span)
        if block.value == "details" and all(isinstance(piece, str) for piece in inside):
            body = "".join(inside).strip()
            inside = [f"<details><summary>{title}</summary>\n\n{body}\n\n</details>\n"]
        elif block.value != "details" and title:
            yield f"**{title}**\n\n"
        yield from inside

    def span(self, span: Span) -> str:
        if span.kind == "citation":
            works = data.bibliography()
            return data.citation(span, self.page.language, lambda key: works[key]["url"])
        if span.kind == "link" and not re.match("https?:", span.value):
            return f"]({self.address(span.value)})"
        return span.text

    def address(self, target: str) -> str:
        """The address on the site of what a link names as a page."""
        path, hash_, anchor = target.partition("#")
        file, mark, asked = path.partition("?")  # asked of a widget
        page = self.page
        if file:
            name = posixpath.normpath(posixpath.join(posixpath.dirname(page.name), file))
            page = Page((), page.folder / name)
        return self.home + page.url + mark + asked + hash_ + anchor

"""A page as a notebook and as a script: its prose, its code, and what the code gave."""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from typing import Any, NamedTuple

import nbformat
from nbformat import v4

from mhsite import words
from mhsite.pages import (
    bibliography,
    cells,
    chapters,
    museum,
    navigation,
    release,
    tables,
    your_turn,
)
from mhsite.pages.page import Block, Page, Span, models_of, question_ids, with_spans
from mhsite.stories import results
from mhsite.stories.source import Section, SourceError

ROLE = re.compile(r"\\(?:query|key|value|weights|output)(?![a-zA-Z])\s*")
TOKEN = re.compile(r"\\(?:[a-zA-Z]+|.)|.", re.S)
ATTRIBUTES = re.compile(r"\{ [.:#][^}]*\}")


class Code(NamedTuple):
    """A section of the page; ``folded`` where the reader has to ask for it.

    Of a solution, ``own`` is the reader's own cell, which stands before it.
    """

    section: Section
    folded: bool
    own: str = ""


class Turn(NamedTuple):
    """A cell for the reader, which nobody has run."""

    code: str


def notebook(page: Page, home: str) -> str:
    """The page as .ipynb, with what its code printed and drew; ``home`` is the site's address."""
    made, runs = list(_head(page, home)), 0
    for number, piece in enumerate(_pieces(page, home)):
        if isinstance(piece, str):
            made.append(prose_cell(f"cell-{number}", piece))
        elif isinstance(piece, Turn):
            made.append(unrun_cell(f"cell-{number}", piece.code))
        else:
            runs += 1
            made.append(code_cell(f"cell-{number}", piece, page.language, runs))
    return file(json.dumps(made))


@cache
def file(cells: str) -> str:
    whole = {
        "cells": json.loads(cells),
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


def prose_cell(name: str, text: str) -> dict[str, Any]:
    return {"id": name, "metadata": {}, "source": text, "cell_type": "markdown"}


def code_cell(name: str, piece: Code, language: str, runs: int) -> dict[str, Any]:
    """A section as a cell: hidden is the code that the page folds, never what it gave."""
    drawn = results.drawn(piece.section)
    outputs = list(_printed(piece.section))
    if drawn:
        outputs.append(_shown({"image/svg+xml": results.figure(drawn, language)}))
    about = {"jupyter": {"source_hidden": True}, "tags": ["hide-input"]} if piece.folded else {}
    code = _taken_away(piece, language)
    cell = prose_cell(name, _quiet(code.rstrip("\n")))
    ran = {"outputs": outputs, "execution_count": runs}
    return cell | {"cell_type": "code", "metadata": about} | ran


def _taken_away(piece: Code, language: str) -> str:
    """A section's code as it runs elsewhere: a solution leaves the reader's answer in force."""
    code = cells.taken_away(piece.section.code, language)
    return your_turn.stepping_in(code, piece.own, language) if piece.own else code


def unrun_cell(name: str, code: str) -> dict[str, Any]:
    cell = prose_cell(name, code) | {"cell_type": "code"}
    return cell | {"execution_count": None, "outputs": []}


def _printed(section: Section) -> Iterator[dict[str, Any]]:
    """What a section printed, its tables as tables."""
    text, end = results.printed(section), 0
    for match in cells.TABLE.finditer(text):
        yield from _stream(text[end : match.start()])
        table = cells.table(match[0].rstrip("\n"))
        yield _shown({"text/html": table, "text/plain": match[0].rstrip("\n")})
        end = match.end()
    yield from _stream(text[end:])


def _stream(text: str) -> Iterator[dict[str, Any]]:
    if text:
        yield {"output_type": "stream", "name": "stdout", "text": text}


def _shown(data: dict[str, str]) -> dict[str, Any]:
    return {"output_type": "display_data", "metadata": {}, "data": data}


def _about(page: Page, home: str) -> Iterator[str]:
    """Where a page's code is from, and what it needs: a line each."""
    language, url = page.language, home + page.url
    yield words.of(language, "notebook.origin", url=url, state=release.state(language))
    for model in models_of(page):
        yield words.of(language, "notebook.fetches", **vars(model))
    if models_of(page):
        yield words.of(language, "notebook.extra")


def _extras(page: Page) -> list[str]:
    return ["models"] * bool(models_of(page))


def _install(page: Page) -> str:
    """The command that installs what the page's code imports."""
    return f'pip install "{release.requirement(*_extras(page))}"'


def _install_without_git(page: Page) -> str:
    """The same from the site's wheel, in Chinese with a mirror of the package index."""
    wheel = release.wheel(*_extras(page))
    return f'pip install{words.of(page.language, "notebook.mirror")} "{wheel}"'


def _head(page: Page, home: str) -> Iterator[dict[str, Any]]:
    """The title, where it is from, and the cell that installs what the others need."""
    yield prose_cell("about", "\n\n".join([f"# {page.headings[0].title}", *_about(page, home)]))
    why = words.of(page.language, "notebook.without_git")
    install = f"{_install(page)}\n# {why}\n# {_install_without_git(page)}"
    yield unrun_cell("install", install.replace("pip install", "%pip install --quiet"))
    if your_turn.cells(page):
        yield unrun_cell("unwritten", your_turn.helper(page.language).rstrip("\n"))


def script(page: Page, home: str) -> str:
    """The page's code as a script in percent format, under the page's headings."""
    about = [re.sub(r"\[.*?\]\((.*?)\)", r"\1", line) for line in _about(page, home)]
    commands = [f"python -m {each(page)}" for each in (_install_without_git, _install)]
    commands.insert(0, words.of(page.language, "notebook.without_git"))
    about = [page.headings[0].title, *about, *commands]
    parts, titles, drawn = ["".join(f"# {line}\n" for line in about)], [], False
    turns, own = your_turn.cells(page), {}
    if turns:
        parts.append(f"# %%\n{your_turn.helper(page.language)}")
    for block in page.walk():
        if block.line in turns and block.kind == "block":
            parts += [f"# %%\n{turns[block.line]}\n"]
            own |= {inner.line: turns[block.line] for inner in block.walk()}
        if block.kind == "heading":
            titles.append(block.title)
        if block.kind == "include":
            parts.append(" ".join(["# %%", " · ".join(titles)]).rstrip())
            piece = Code(block.section, False, own.get(block.line, ""))
            parts.append(_taken_away(piece, page.language))
            titles, drawn = [], drawn or bool(results.drawn(block.section))
    if drawn:
        parts.append("# %%\nimport matplotlib.pyplot as plt\n\nplt.show()\n")
    return "\n".join(parts)


def _pieces(page: Page, home: str) -> Iterator[str | Code | Turn]:
    """The page's prose as Markdown that every notebook program reads, and its code between."""
    prose = ""
    for piece in Plain(page, home).pieces(page.blocks):
        if isinstance(piece, str):
            prose += piece
            continue
        if cleaned := clean(prose):
            yield cleaned
        yield piece
        prose = ""
    if cleaned := clean(prose):
        yield cleaned


def clean(prose: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", ATTRIBUTES.sub("", prose)).strip()


def plain_tex(tex: str) -> str:
    r"""A formula without the site's colours: ``\query{Q}`` is Q, in braces where it needs them."""
    while match := ROLE.search(tex):
        start = match.end()
        if tex[start] == "{":
            inside = _braced(tex, start)
            end = start + len(inside) + 2
        else:
            inside = TOKEN.match(tex, start)[0]
            end = start + len(inside)
        before, after = tex[: match.start()], tex[end:]
        takes = re.search(r"([\^_}]|\\[a-zA-Z]+)\s*$", before) or re.match(r"[\^_']", after)
        if takes and not TOKEN.fullmatch(inside):
            inside = f"{{{inside}}}"
        elif re.search(r"\\[a-zA-Z]+$", before) and inside[:1].isalpha():
            inside = " " + inside
        if re.search(r"\\[a-zA-Z]+$", inside) and after[:1].isalpha():
            inside += " "
        tex = before + inside + after
    return tex


def _braced(tex: str, start: int) -> str:
    """What stands between the brace at ``start`` and its end."""
    depth = 0
    for match in TOKEN.finditer(tex, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return tex[start + 1 : match.start()]
    raise SourceError(f"{tex} has a brace without an end")


class Plain:
    """A page's blocks in plain Markdown, with whole addresses."""

    def __init__(self, page: Page, home: str):
        self.page, self.home = page, home
        self.given: set[str] = set()  # the figures whose code has come
        self.anchor = ""  # of the last heading
        self.turns = your_turn.cells(page)

    def pieces(
        self, blocks: tuple[Block, ...], folded: bool = False, own: str = ""
    ) -> Iterator[str | Code | Turn]:
        """``folded``: whether the reader has to unfold them; ``own``: as in `Code`."""
        waiting: dict[str, list[str | Code]] = {}  # captions of figures whose code comes next
        figure = ""
        for number, block in enumerate(blocks):
            if block.kind == "figure":
                figure = block.value.split("figures/")[-1]
                if self.comes_next(figure, blocks[number + 1 :]):
                    waiting[figure] = []
                elif not self.has_come(figure):
                    yield f"![{block.title}]({self.home}figures/{figure})\n\n"
                continue
            if block.kind == "block" and block.line in self.turns:
                yield Turn(self.turns[block.line])
            made = self.written(block, folded, own)
            if block.value == "caption" and figure in waiting:
                waiting[figure] += made
                continue
            for piece in made:
                yield piece
                if isinstance(piece, Code) and (drawn := results.drawn(piece.section)):
                    self.given.add(drawn)
                    yield from waiting.pop(drawn, ())

    def comes_next(self, figure: str, blocks: tuple[Block, ...]) -> bool:
        """Is the code of a figure the next thing after it and its caption?"""
        block = next((b for b in blocks if b.value != "caption" and b.text.strip()), None)
        if block is None or block.kind not in ("include", "block"):
            return False
        inner = [block] if block.kind == "include" else Page(block.blocks).walk()
        return any(results.drawn(b.section) == figure for b in inner if b.kind == "include")

    def has_come(self, figure: str) -> bool:
        """Has its code drawn it already?"""
        return figure in self.given

    def written(self, block: Block, folded: bool, own: str) -> Iterator[str | Code]:
        if block.kind == "include":
            yield Code(block.section, folded, own)
        elif block.kind == "block":
            yield from self.admonition(block, folded, own)
        elif block.kind == "heading":
            self.anchor = block.value
            if len(block.mark) > 1:  # the title stands in the first cell
                yield f"{block.mark} {with_spans(block.title, self.span)}\n"
        elif block.kind == "prose":
            yield with_spans(block.text, self.span, block.line)
        elif block.kind == "math":
            yield f"$$\n{plain_tex(block.value)}\n$$\n"
        elif block.kind == "table" and block.value.startswith("museum "):
            traps = museum.listed(block.value, self.page.language)
            yield "".join(
                f"- [{trap.plain_title}]({self.address(trap.target)})\n" for trap in traps
            )
        elif block.kind == "table":
            text = tables.table(block, self.page.language, self.from_root)
            yield with_spans(text, self.span) + "\n"
        elif block.kind == "cards":
            names = [name for _, found in chapters.listed(block, self.page) for name in found]
            links = (navigation.to_page(name, self.page.language, self.address) for name in names)
            yield "".join(f"- {link}\n" for link in links)
        elif block.kind == "widget":
            address = f"{self.home}{self.page.url}#{self.anchor}"
            yield words.of(self.page.language, "notebook.try", address=address) + "\n"
        elif block.kind != "needs":
            yield block.text

    def admonition(self, block: Block, folded: bool, own: str) -> Iterator[str | Code]:
        """Of a block that folds only prose is folded: cells stand under its title."""
        folds, own = block.value == "details", self.turns.get(block.line, own)
        inside = list(self.pieces(block.blocks, folded or folds, own))
        title = with_spans(block.title, self.span)
        if folds and all(isinstance(piece, str) for piece in inside):
            title = with_spans(block.title, self.in_html)
            body = "".join(inside).strip()
            name = question_ids(self.page).get(block.line) if block.is_question else None
            start = f'<details class="question" id="{name}">' if name else "<details>"
            inside = [f"{start}<summary>{title}</summary>\n\n{body}\n\n</details>\n"]
        elif title:
            yield f"**{title}**\n\n"
        yield from inside

    def in_html(self, span: Span) -> str:
        if span.kind == "code":
            return f"<code>{escape(span.text.strip('`').strip(), quote=False)}</code>"
        return self.span(span)

    def span(self, span: Span) -> str:
        if span.kind == "math":
            return f"${plain_tex(span.value)}$"
        if span.kind == "citation":
            works = bibliography.works()
            return bibliography.citation(span, self.page.language, lambda key: works[key]["url"])
        if span.kind == "link" and not re.match("https?:", span.value):
            return f"]({self.address(span.value)})"
        return span.text

    def from_root(self, file: str) -> str:
        """The address of a file of the site, or of a page in its language's folder."""
        name, hash_, anchor = file.partition("#")
        if not name.endswith(".md"):
            return self.home + file
        return self.home + Page((), self.page.folder / name).url + hash_ + anchor

    def address(self, target: str) -> str:
        """The address on the site of what a link names as a page."""
        path, hash_, anchor = target.partition("#")
        file, mark, asked = path.partition("?")  # asked of a widget
        page = self.page
        if file:
            name = posixpath.normpath(posixpath.join(posixpath.dirname(page.name), file))
            if not name.endswith(".md"):  # a file that the build makes
                return self.home + name
            page = Page((), page.folder / name)
        return self.home + page.url + mark + asked + hash_ + anchor

"""Labs are notebooks that mkdocs-jupyter renders, in the form of all other pages.

A lab's notebook has a cell for each piece of prose and of code. What mkdocs-jupyter makes of it has
half a megabyte of styles, and scripts from other hosts, of which none is kept. What Markdown
has no signs for (formulas, figures, what folds) is a word such as ``KEPT7KEPT`` in the notebook
that it gets, and stands in that word's place afterwards. So is a cell of code: as elsewhere, its
lines fold on a phone, and its numbers light up under the hand.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from html import escape

from bs4 import BeautifulSoup

from mhsite.beside import notebook
from mhsite.pages import chapters, fragments, links, running
from mhsite.pages.extension import Writer
from mhsite.pages.page import Block, Page, parse, with_spans

HEADING = re.compile(r"<h(?P<level>\d) id=.*?</h(?P=level)>", re.S)
TO_PAGE = re.compile(r'href="(?P<file>[^":#]+)\.md(?P<hash>#[^"]*)?"')
KEPT = re.compile(r"(?P<before><p>)?KEPT(?P<number>\d+)KEPT(?P<after></p>)?")
CELL = re.compile(r"\n*CODE(\d+)CODE\n*")
ABOUT = "\n{ .mh-about }"  # how Markdown gives a class, which a notebook program would show
CLASS = re.compile(r"\n    (?:type: |attrs: \{class: )([\w-]+)")
BOX = '<div class="admonition {}"{}>\n<p class="admonition-title">'
FOLD = '<details class="{}"{}>\n<summary>'


class LabWriter(Writer):
    """Writes a lab in Markdown that every notebook program reads, and keeps all else aside."""

    def __init__(self, page: Page):
        super().__init__(page, self.word_for)
        self.kept: list[tuple[str, bool]] = []  # HTML, and whether it stands between paragraphs
        self.code: list[tuple[notebook.Code, str]] = []  # of each cell, with its HTML
        self.folded = False

    def word_for(self, html: str, *, alone: bool = False) -> str:
        self.kept.append((html, alone))
        return f"KEPT{len(self.kept) - 1}KEPT"

    def between(self, opened: str, text: str, ended: str) -> str:
        """A line of Markdown in HTML that takes the place of its paragraph."""
        first, last = (self.word_for(html, alone=True) for html in (opened, ended))
        return f"\n\n{first}{text}{last}\n\n"

    def alone(self, html: str) -> str:
        return f"\n\n{self.word_for(html, alone=True)}\n\n"

    def markdown(self, blocks: tuple[Block, ...]) -> str:
        """A caption is part of its figure."""
        parts = []
        for number, block in enumerate(blocks, 1):
            part = self.written(block)
            after = [each.value for each in blocks[number : number + 1]]
            if block.kind == "figure" and after == ["caption"]:
                part = f"{self.alone('<figure>')}{part}"
            parts.append(part)
        return "".join(parts)

    def heading(self, block: Block) -> str:
        first = block.line == self.page.headings[0].line
        text = f"{block.mark} {with_spans(block.title, self.span)}\n"
        return text + (self.about() if first and not self.page.needs else "")

    def contents(self) -> str:
        return self.markdown(parse(chapters.contents(self.page), self.page.path).blocks)

    def terms(self) -> str:
        text = links.terms(self.page).removesuffix(ABOUT)
        return self.between('<p class="mh-about">', text, "</p>") if text else ""

    def block(self, block: Block) -> str:
        if block.value == "caption":
            opened, closed = "<figcaption>", "</figcaption>\n</figure>"
            return f"{self.alone(opened)}{self.markdown(block.blocks)}{self.alone(closed)}"
        folds = block.value == "details"
        name = f' id="{escape(anchor)}"' if (anchor := self.anchor(block)) else ""
        said = CLASS.search(block.text.partition("\n\n")[0])
        kind = (said[1] if said else "") if folds else block.value
        opened, ended = (FOLD, "</summary>") if folds else (BOX, "</p>")
        opened = opened.format(kind, name).replace(' class=""', "")
        title = self.between(opened, with_spans(block.title, self.span), ended)
        before = self.asked, self.folded
        self.asked, self.folded = self.asked or bool(name), self.folded or folds
        body = self.markdown(block.blocks)
        self.asked, self.folded = before
        return f"{title}{body}{self.alone('</details>' if folds else '</div>')}"

    def include(self, block: Block) -> str:
        code = notebook.Code(block.section, self.folded)
        self.code.append((code, self.cell(block)))
        return f"\n\nCODE{len(self.code) - 1}CODE\n\n"

    def notebook_cells(self) -> Iterator[dict]:
        """The cells of the notebook, prose and code in turn."""
        pieces = CELL.split(self.markdown(self.page.blocks) + self.terms())
        for number, piece in enumerate(pieces):
            if number % 2:
                code, _ = self.code[int(piece)]
                yield notebook.code_cell(f"code-{piece}", code, self.page.language, int(piece) + 1)
            elif piece.strip():
                yield notebook.prose_cell(f"prose-{number}", piece.strip())

    def shown(self, name: str, prose: str | None) -> str:
        """A cell of the page, by its name: its prose as it was rendered, or our code."""
        return self.code[int(name.removeprefix("code-"))][1] if prose is None else prose

    def put_back(self, html: str) -> str:
        """All that was kept, in its place; what stands between paragraphs is in none."""

        def kept(match: re.Match) -> str:
            inner, alone = self.kept[int(match["number"])]
            if alone:
                return f"\n{inner}" if match["before"] else inner
            return f"{match['before'] or ''}{inner}{match['after'] or ''}"

        return KEPT.sub(kept, html)


_writers: dict[tuple[str, str], LabWriter] = {}  # of the notebooks that are being rendered


def as_notebook(page: Page) -> str:
    """What mkdocs-jupyter gets of a lab, with all that its code printed and drew."""
    writer = _writers[page.language, page.name] = LabWriter(page)
    return notebook.file(json.dumps(list(writer.notebook_cells())))


def html(made: str, page: Page, permalink: str) -> str:
    """A lab's page, from what mkdocs-jupyter made of its notebook."""
    writer, parts = _writers.pop((page.language, page.name)), []
    for cell in BeautifulSoup(made, "html.parser").select(".jp-Notebook-cell[id]"):
        prose = cell.select_one(".jp-RenderedMarkdown")
        name = cell["id"].removeprefix("cell-id=")
        parts.append(writer.shown(name, prose and prose.decode_contents()))
    text = "\n".join([*parts, fragments.cite(page), fragments.led_on(page, page.up)])
    headings = iter(page.headings)
    text = HEADING.sub(lambda match: _heading(match, next(headings), permalink), text)
    text = TO_PAGE.sub(lambda match: _address(match, page), writer.put_back(text))
    text += fragments.grids_script(text, page.up) + fragments.figures_script(text, page.up)
    return text + (running.script(page.up) if running.runs(page) else "")


def _heading(match: re.Match, block: Block, permalink: str) -> str:
    title = re.search(r"<h\d[^>]*>(.*?)<a class=\"anchor-link\"", match[0], re.S)[1]
    link = f'<a class="headerlink" href="#{block.value}" title="{permalink}">#</a>'
    return f'<h{match["level"]} id="{block.value}">{title}{link}</h{match["level"]}>'


def _address(match: re.Match, page: Page) -> str:
    name = posixpath.normpath(posixpath.join(posixpath.dirname(page.name), match["file"]))
    to = fragments.url(Page((), page.folder / f"{name}.md"), page.up)
    return f'href="{to}{match["hash"] or ""}"'

"""The Python-Markdown extension that makes a page of this site out of its Markdown.

It needs nothing of what calls it but a language, and a page is known by the id of its title. It
does not stand in mkdocs.yml: MkDocs would import it before it knows which clone is built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

from markdown import Extension, Markdown
from markdown.postprocessors import Postprocessor
from markdown.preprocessors import Preprocessor

from mhsite.pages import (
    bibliography,
    cells,
    chapters,
    fragments,
    link_targets,
    links,
    museum,
    navigation,
    running,
    tables,
    your_turn,
)
from mhsite.pages.page import (
    Block,
    Page,
    Span,
    page_paths,
    parse,
    question_ids,
    read,
    trap_ids,
    with_spans,
)
from mhsite.stories.source import DOCS, SourceError

CODE = re.compile(r"<pre([^>]*)><code")


class SiteExtension(Extension):
    def __init__(self, **options):
        self.config = {
            "language": ["en", "the folder of docs that the pages lie in"],
            "links": ["page", "where links in HTML count from: the page, or (Zensical) its source"],
        }
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        pages = _Pages(md, **self.getConfigs())
        md.preprocessors.register(pages, "mhsite", 29)  # lines are clean, nothing is read yet
        md.block_level_elements.append("link")  # a widget's style sheet stands in no paragraph
        md.postprocessors.register(_Reference(md, pages), "mhsite", -10)  # all HTML is there


def makeExtension(**options) -> SiteExtension:
    return SiteExtension(**options)


class _Pages(Preprocessor):
    """Puts a page's code, formulas, figures, tables and citations in its text's place."""

    def __init__(self, md: Markdown, language: str, links: str):
        super().__init__(md)
        self.language, self.links, self.path = language, links, None

    def run(self, lines: list[str]) -> list[str]:
        text = "\n".join(lines)
        self.path = source(text, self.language)
        if self.path is None:  # a docstring
            return lines
        page = parse(text, self.path)
        stash = self.md.htmlStash
        writer = Writer(page, stash.store, self.links)
        text = writer.whole()
        html = "".join(stash.rawHtmlBlocks)
        for scripts in (fragments.grids_script, fragments.figures_script):
            if script := scripts(html, writer.address):
                text += writer.alone(script)
        if running.runs(page):
            text += writer.alone(running.script(writer.address))
        return text.split("\n")


class _Reference(Postprocessor):
    """Lets the examples of docstrings be copied, in what mkdocstrings has made."""

    def __init__(self, md: Markdown, pages: _Pages):
        super().__init__(md)
        self.pages = pages

    def run(self, text: str) -> str:
        if self.pages.path is None or '<div class="doc ' not in text:
            return text
        text = cells.with_examples(text)
        return text if self.pages.language == "en" else fragments.without_docstrings(text)


class Writer:
    """Writes a page in Markdown that Python-Markdown reads without us.

    Args:
        page: the page.
        keep: takes HTML, and returns what stands for it in the Markdown.
        links: where links in HTML count from, ``page`` or ``source``.
    """

    def __init__(self, page: Page, keep: Callable[[str], str], links: str = "page"):
        self.page, self.keep = page, keep
        self.asked, self.cells = False, count()  # within what has an id; cells of code there
        self.turns = your_turn.cells(page) if running.runs(page) else {}
        self.from_source = ("../" * page.name.count("/") + "{}").format
        self.address = page.up if links == "page" else self.from_source

    def whole(self) -> str:
        """The page, the terms that it explains, how to cite it."""
        text = self.markdown(self.page.blocks)
        foot = fragments.cite(self.page) + fragments.led_on(self.page, self.address)
        return f"{text}\n\n{links.terms(self.page)}\n\n" + (self.alone(foot) if foot else "")

    def markdown(self, blocks: tuple[Block, ...]) -> str:
        return "".join(self.written(block) for block in blocks)

    def written(self, block: Block) -> str:
        write = getattr(self, block.kind)
        if block.kind == "block" and block.line in self.turns:
            return self.alone(running.field(self.turns[block.line])) + write(block)
        if block.kind in ("prose", "heading", "block"):  # what is wrong there knows its own line
            return write(block)
        with self.blame(block.line):
            return write(block)

    @contextmanager
    def blame(self, line: int) -> Iterator[None]:
        """What is wrong within is an error on this line of the page."""
        try:
            yield
        except SourceError as error:
            raise SourceError(error, self.page.path, line) from None

    def alone(self, html: str) -> str:
        return f"\n{self.keep(html)}\n\n"

    def prose(self, block: Block) -> str:
        return with_spans(block.text, self.span, block.line)

    def heading(self, block: Block) -> str:
        first = block.line == self.page.headings[0].line
        return self.prose(block) + (self.about() if first and not self.page.needs else "")

    def needs(self, block: Block) -> str:
        return self.about()

    def about(self) -> str:
        for include in (block for block in self.page.walk() if block.kind == "include"):
            with self.blame(include.line):
                cells.text(include.section)  # its lines count for the time that a page takes
        line = chapters.steps(self.page, self.address) + fragments.about(self.page, self.address)
        text = self.alone(line) if line else ""
        return text + self.contents()

    def contents(self) -> str:
        return with_spans(chapters.contents(self.page), self.plain_span)

    def block(self, block: Block) -> str:
        head = self.prose(block)
        if name := self.anchor(block):
            head += f"    attrs: {{id: {name}}}\n"
        before, self.asked = self.asked, self.asked or bool(name)
        body = self.markdown(block.blocks)
        self.asked = before
        return f"{head}{body}{block.mark}\n"

    def anchor(self, block: Block) -> str:
        """The id of a question or a trap, if it has one."""
        ids = question_ids(self.page) if block.is_question else trap_ids(self.page)
        return ids.get(block.line, "")

    def include(self, block: Block) -> str:
        return f"{self.alone(self.cell(block))}{links.to_reference(block)}\n\n"

    def cell(self, block: Block) -> str:
        html = cells.shown(block.section, self.page.language)
        if self.asked:  # or Material's copy buttons know them all by the box's id
            html = CODE.sub(
                lambda match: f'<pre id="cell-{next(self.cells)}"{match[1]}><code', html
            )
        return html

    def fence(self, block: Block) -> str:
        return block.text

    def api(self, block: Block) -> str:
        said = links.to_chapters(block.value, self.page.language, self.from_source)
        return f"{links.imports(block.value)}\n\n{block.text}\n\n{said}\n\n"

    def math(self, block: Block) -> str:
        return self.alone(fragments.formula(block.value, display=True))

    def figure(self, block: Block) -> str:
        return self.keep(fragments.figure(block.value, block.title, self.page.language)) + "\n"

    def table(self, block: Block) -> str:
        if block.value.startswith("museum"):
            return self.alone(museum.html(block.value, self.page.language, self.address))
        text = tables.table(block, self.page.language, self.from_source)
        text = with_spans(text, self.plain_span) + "\n"
        if block in self.page.blocks and self.page.name in navigation.road(self.page.language):
            return chapters.origin(block, text)
        if block.value != "models":
            return text
        opened, closed = fragments.models_region(self.page.language, self.address)
        return f"{self.alone(opened)}{text}{self.alone(closed)}"

    def cards(self, block: Block) -> str:
        made = chapters.cards(block, self.page, self.address)
        return "".join(self.alone(part) if part[0] == "<" else f"\n{part}\n\n" for part in made)

    def widget(self, block: Block) -> str:
        return self.alone(fragments.widget(block, self.page.language, self.address))

    def span(self, span: Span) -> str:
        with self.blame(span.line):
            return self.plain_span(span)

    def plain_span(self, span: Span) -> str:
        if span.kind == "math":
            return self.keep(fragments.formula(span.value, display=False))
        if span.kind == "citation":
            to = self.from_source("bibliography.md#{}").format
            return bibliography.citation(span, self.page.language, to)
        if span.kind == "link":
            link_targets.check_link(span.value, self.page)
        return span.text


def check(page: Page) -> None:
    """Fail, with its line, at the first thing on a page that cannot be made."""
    Writer(page, str).markdown(page.blocks)


def source(text: str, language: str) -> Path | None:
    """The file of the page with this text: that whose title has the same id."""
    headings = parse(text).headings
    if not headings or not headings[0].value:
        return None
    found = _sources(language)
    if headings[0].value not in found:
        _sources.cache_clear()  # it may be new
    return _sources(language).get(headings[0].value)


@cache
def _sources(language: str) -> dict[str, Path]:
    paths = [DOCS / language / path for path in page_paths(language)]
    return {read(path).headings[0].value: path for path in paths}

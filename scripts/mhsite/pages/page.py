"""A page, parsed once: the blocks that it consists of, and the spans of its prose.

All that is made of a page is made of these: its skeleton, its HTML, its notebook and its script.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from mhattn.lessons.files import Model
from mhsite.stories.models import named_in
from mhsite.stories.schedule import choose
from mhsite.stories.source import DOCS, LANGUAGES, ROOT, Section, SourceError, of_file, sections
from mhsite.stories.translation import shown_section

HEADING = re.compile(r"(?P<level>#{1,6}) (?P<title>.+?)(?: \{ #(?P<value>[\w.-]+) \})?")
INCLUDE = re.compile(r'--8<-- "(?P<value>[^"]+)"')
FENCE = re.compile(r"(?P<bar>`{3,})\s*(?P<value>[\w-]*).*")
FIGURE = re.compile(r"!\[(?P<title>[^\]]*)\]\((?P<value>[^)\s]+)\)")
OPEN = re.compile(r"(?P<bar>/{3,}) (?P<value>[\w-]+)(?: \| (?P<title>.*))?")
API = re.compile(r"::: (?P<value>[\w.]+)")
TABLE = re.compile(r"<!-- (?P<value>[\w-]+(?: [\w:-]+)?(?: \w+=\w+)*)(?: \| (?P<title>.+))? -->")
CARDS = re.compile(r"<!-- cards(?P<value>(?: [\w/-]+)*) -->")
NEEDS = re.compile(r"<!-- needs (?P<value>[\w/-]+\.md(?: [\w/-]+\.md)*) -->")
SPAN = re.compile(
    r"(?P<code>(?P<ticks>`+)(?:(?!\n\n).)+?(?P=ticks))"
    r"|(?<!\\)\$(?P<math>(?!\s)(?:\\.|(?!\n\n)[^\\$])+?(?<!\s))\$"
    r"|\]\((?P<link>[^)\s]+)\)"
    r"|(?P<citation>\s?\[@[\w-]+\](?:\s?\[@[\w-]+\])* ?)",
    re.S,
)


@dataclass(frozen=True)
class Block:
    """A piece of a page: its lines as they stand there, from line ``line`` on.

    ``value`` is what both languages share: a heading's id, the reference of a section, a figure's
    path, a formula's TeX, a table's name. ``title`` is what each says in its own words. Of an
    admonition, ``text`` is what stands above its blocks, and its first sign, repeated, ends it.
    """

    kind: str
    line: int
    text: str
    value: str = ""
    title: str = ""
    blocks: tuple[Block, ...] = ()
    language: str = "en"

    @cached_property
    def section(self) -> Section:
        """The section that an include shows."""
        return shown_section(self.value, self.language)

    @property
    def is_question(self) -> bool:
        """Whether it is a question whose answer unfolds."""
        return self.kind == "block" and "\n    type: question\n" in self.text

    @property
    def is_hint(self) -> bool:
        """Whether it is a hint of a task, which unfolds."""
        return self.kind == "block" and "\n    type: hint\n" in self.text

    @property
    def trap(self) -> str:
        """Of a warning, the section of a story that is a trap; the first if there are several."""
        shown = (each.value for each in self.walk() if each.kind == "include")
        names = (reference.partition(":")[2] for reference in shown)
        found = next((name for name in names if name.startswith("trap")), "")
        return found if self.value == "warning" else ""

    def walk(self) -> Iterator[Block]:
        """Every block in it."""
        return _walk(self.blocks)

    @property
    def mark(self) -> str:
        """The signs that it starts with: ``##`` of a heading, ``///`` of an admonition."""
        return re.match(r"(.)\1*", self.text)[0]


@dataclass(frozen=True)
class Span:
    """A piece of prose that is more than words: ``kind`` is code, math, link or citation."""

    kind: str
    line: int
    text: str
    value: str


@dataclass(frozen=True)
class Page:
    blocks: tuple[Block, ...]
    path: Path | None = None

    @property
    def language(self) -> str:
        return language(self.path)

    @cached_property
    def name(self) -> str:
        """Its path within its language's folder: ``labs/every-head.md``."""
        return self.path.relative_to(DOCS / self.language).as_posix()

    @property
    def folder(self) -> Path:
        return DOCS / self.language

    @property
    def url(self) -> str:
        """Its address within its language's site: ``labs/every-head/``."""
        name = self.name.removesuffix(".md")
        return name.removesuffix("index") if name.split("/")[-1] == "index" else name + "/"

    def up(self, file: str) -> str:
        """The address of a file of the site, as the page's HTML names it."""
        return posixpath.relpath(file, self.url or ".")

    @property
    def headings(self) -> list[Block]:
        return [block for block in self.walk() if block.kind == "heading"]

    @property
    def has_code(self) -> bool:
        return any(block.kind == "include" for block in self.walk())

    @property
    def is_notebook(self) -> bool:
        """Whether MkDocs gets it as a notebook: it is a lab."""
        return self.name.startswith("labs/") and self.has_code

    @property
    def needs(self) -> list[str]:
        """The pages that should be read before: ``attention.md``."""
        return [name for b in self.blocks if b.kind == "needs" for name in b.value.split()]

    def unfolded(self) -> Iterator[Block]:
        """Every block but those that a reader has to unfold."""
        return _walk(self.blocks, folded=False)

    def walk(self) -> Iterator[Block]:
        """Every block, those within admonitions after the admonition itself."""
        return _walk(self.blocks)


def question_ids(page: Page) -> dict[int, str]:
    """The ids of a page's folded questions, by their lines: words of the English ones."""
    mine = [block for block in page.walk() if block.is_question]
    twin = page.path and DOCS / LANGUAGES[0] / page.name
    english = read(twin) if twin and twin != page.path and twin.is_file() else page
    found, times = {}, Counter()
    titles = [block.title for block in english.walk() if block.is_question]
    for block, title in zip(mine, titles, strict=False):
        name = "q-" + "-".join(re.findall(r"[a-z0-9]+", title.lower())[:8])
        times[name] += 1
        found[block.line] = name if times[name] == 1 else f"{name}-{times[name]}"
    return found


def trap_ids(page: Page) -> dict[int, str]:
    """The ids of a page's traps, its warnings, by their lines: the first section called so.

    Where a heading has that id, it leads to the trap as well, and the warning has none.
    """
    headings, found = {heading.value for heading in page.headings}, {}
    for block in page.walk():
        if (name := block.trap) and name not in headings:
            found[block.line] = name
    return found


def _walk(blocks: tuple[Block, ...], *, folded: bool = True) -> Iterator[Block]:
    for block in blocks:
        yield block
        if folded or block.value != "details":
            yield from _walk(block.blocks, folded=folded)


def language(path: Path) -> str:
    """The folder of docs that a page lies in."""
    return path.relative_to(DOCS).parts[0]


@of_file
def read(path: Path) -> Page:
    return parse(path.read_text(encoding="utf-8"), path)


def page_paths(language: str) -> list[Path]:
    """The pages of a language, relative to its folder, in order of their paths."""
    folder = DOCS / language
    return sorted(path.relative_to(folder) for path in folder.rglob("*.md"))


def parse(text: str, path: Path | None = None) -> Page:
    """The page with this text, or a `SourceError` with the line of what has no end."""
    return Page(tuple(_Parser(text, path).blocks("")), path)


class _Parser:
    def __init__(self, text: str, path: Path | None):
        self.lines, self.path, self.at = text.splitlines(keepends=True), path, 0
        self.language = language(path) if path else LANGUAGES[0]

    def blocks(self, end: str) -> Iterator[Block]:
        """The blocks from here to the line ``end``, or to the end of the page."""
        prose, start = "", self.at
        while self.at < len(self.lines) and not (end and self.lines[self.at].rstrip() == end):
            begin = self.at
            if (block := self.block()) is None:
                self.at = begin + 1
                # What no pattern knows is prose, and goes to Markdown as it is.
                prose += self.lines[begin]
                continue
            if prose:
                yield Block("prose", start + 1, prose)
            yield block
            prose, start = "", self.at
        if prose:
            yield Block("prose", start + 1, prose)

    def block(self) -> Block | None:
        """The block that starts in this line, if it is not prose."""
        begin, line = self.at, self.lines[self.at].rstrip()
        self.at += 1
        # The whole line has to match: a comment or a figure within a sentence is prose.
        for kind, pattern in {
            "heading": HEADING, "figure": FIGURE, "api": API, "cards": CARDS, "table": TABLE,
            "needs": NEEDS,
        }.items():  # fmt: skip
            if match := pattern.fullmatch(line):
                kind = "widget" if line.startswith("<!-- widget ") else kind
                return self.made(kind, begin, **match.groupdict(""))
        if line == "$$":
            return self.made("math", begin, "".join(self.until("$$", begin)).strip())
        if match := FENCE.fullmatch(line):
            body = self.until(match["bar"], begin)
            if len(body) == 1 and (shown := INCLUDE.fullmatch(body[0].rstrip())):
                return self.made("include", begin, shown["value"], match["value"])
            return self.made("fence", begin, match["value"], "".join(body))
        if match := OPEN.fullmatch(line):
            while self.at < len(self.lines) and self.lines[self.at].startswith("    "):
                self.at += 1  # its options
            head = self.made("block", begin, match["value"], match["title"] or "")
            blocks = tuple(self.blocks(match["bar"]))
            self.until(match["bar"], begin)
            return replace(head, blocks=blocks)
        return None

    def until(self, end: str, begin: int) -> list[str]:
        start = self.at
        while self.at < len(self.lines):
            self.at += 1
            if self.lines[self.at - 1].rstrip() == end:
                return self.lines[start : self.at - 1]
        raise SourceError(f"{self.lines[begin].strip()} has no end", self.path, begin + 1)

    def made(self, kind: str, begin: int, value="", title="", **_) -> Block:
        text = "".join(self.lines[begin : self.at])
        return Block(kind, begin + 1, text, value, title, language=self.language)


def spans(text: str, line: int = 1) -> list[Span]:
    """The code, formulas, links and citations of a piece of prose that starts on ``line``."""
    return [_span(match, line) for match in SPAN.finditer(text)]


def with_spans(text: str, write: Callable[[Span], str], line: int = 1) -> str:
    """The prose, with what ``write`` makes of each span in the span's place."""
    return SPAN.sub(lambda match: write(_span(match, line)), text)


def _span(match: re.Match, line: int) -> Span:
    kind = next(name for name in ("code", "math", "link", "citation") if match[name])
    # A span may begin with a line break, which belongs to the line before.
    start = match.start(kind) + len(match[kind]) - len(match[kind].lstrip())
    return Span(kind, line + match.string.count("\n", 0, start), match[0], match[kind])


def keys(citation: Span) -> list[str]:
    """The keys of the works that stand side by side in a citation."""
    return re.findall(r"\[@([\w-]+)\]", citation.text)


@dataclass(frozen=True)
class Part:
    """One piece of a page's skeleton, with its line."""

    kind: str
    value: str
    line: int


def skeleton(page: Page) -> Iterator[Part]:
    """Headings, includes, display math, figures, tables, links, citations, blocks, in order."""
    for block in page.walk():
        if block.kind == "prose":
            for span in spans(block.text, block.line):
                if span.kind == "link":
                    yield Part("link", span.value, span.line)
                if span.kind == "citation":
                    yield from (Part("citation", key, span.line) for key in keys(span))
        elif block.kind == "heading":
            yield Part("heading", f"{block.mark} {block.value or None}", block.line)
        elif block.kind == "include":
            # The fence as well as what it includes: its options fold the code, in both languages or
            # in none.
            yield Part("fence", block.title, block.line)
            yield Part("include", block.value, block.line + 1)
        elif block.kind == "fence":
            yield Part("fence", block.value, block.line)
            for number, line in enumerate(block.title.splitlines(), 1):
                yield Part("code", line.strip(), block.line + number)
        elif block.kind == "math":
            yield Part("math", without_words(block.value), block.line)
        else:
            yield Part(block.kind, " ".join(block.value.split()), block.line)


def without_words(formula: str) -> str:
    """What a formula has in both languages: all but the words in ``\\text``."""
    return re.sub(r"\\text\{[^{}]*\}", r"\\text{}", " ".join(formula.split()))


def models_of(page: Page) -> list[Model]:
    """The trained models that the code of a page reads."""
    includes = (block for block in page.walk() if block.kind == "include")
    return named_in("\n".join(block.section.text for block in includes))


def sections_of(name: str) -> list[Section]:
    """The sections of a story or lab, or, for ``mhattn``, all of the package's that pages show."""
    if name != "mhattn":
        return list(sections(choose([name])[0]).values())
    pages = [read(DOCS / LANGUAGES[0] / path) for path in page_paths(LANGUAGES[0])]
    blocks = (block for page in pages for block in page.walk() if block.kind == "include")
    found = {block.section: None for block in blocks}
    return [section for section in found if section.path.is_relative_to(ROOT / "mhattn")]

"""The search index of a language's site, made from the blocks of its pages.

A document for each heading, each folded question, and each function or class of the reference.
docs/assets/search.js reads them: Zensical, which writes an index of its own, has no part in it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from mhsite.pages import bibliography, fragments, glossary, tables
from mhsite.pages.api import api
from mhsite.pages.page import Block, Page, Span, keys, parse, question_ids, with_spans
from mhsite.pages.settings import toml
from mhsite.stories.source import DOCS

PART = 200_000  # characters of the index in one file
BEHIND = ("reference/", "glossary/")  # the chapters
END = "#now"  # says what the page has taught
LISTS = ("bibliography/",)  # what they list stands on other pages, or is cited there
MARKUP = re.compile(
    r"\{ [.:#][^}]*\}"  # attributes
    r"|</?\w[^>]*>"
    r"|^ *(?:[-*]|\d+\.|:) +"  # of a list's item
    r"|^\|[-:| ]+\|$"  # between a table's headings and its rows
    r"|\*\*|\*(?=\S)|(?<=\S)\*|[\[|]",
    re.M,
)
NAME = re.compile(r"\b[A-Za-z]+_\w+|\b[A-Z][a-z]+[A-Z]\w*")  # that somebody may look for
SIMPLE = re.compile(r"\w+")
KEPT = re.compile("\0(\\d+)\0")
BEFORE_STOP = re.compile(r" +(?=[,;.:!?](?:\s|$))")  # where a link or a formula ended
BESIDE_SIGN = re.compile(r" +(?=[，。；：！？、）])|(?<=[，。；：！？、（）]) +")
UNTYPED = re.compile(r"(?:(?<![\w.])[-−]?\d*\.\d{2,}(?![\w.])|\s)+")  # by any reader: long decimals


def write(found: Iterable[dict], folder: Path) -> None:
    """Put these documents beside the index that Material wrote without any, in parts.

    docs/assets/search.js fetches them when somebody searches.
    """
    index = folder / "search_index.json"
    made = json.loads(index.read_text(encoding="utf-8"))
    made["config"]["parts"] = []
    for number, part in enumerate(parts(found)):
        name = f"part-{number}.json"
        made["config"]["parts"].append(name)
        (folder / name).write_text(f"[{','.join(part)}]", encoding="utf-8")
    index.write_text(json.dumps(made), encoding="utf-8")
    (folder / "words.json").write_text(lists_of_words(), encoding="utf-8")


def lists_of_words() -> str:
    """What docs/assets/search.js knows of words."""
    found = dict(toml(DOCS / "data" / "search.toml"))
    split = {name: found[name].split() for name in ("empty", "weak", "empty_han")}
    return json.dumps(found | split, ensure_ascii=False, separators=(",", ":"))


def parts(found: Iterable[dict]) -> Iterator[list[str]]:
    """These documents as JSON, in lists of at most `PART` characters together."""
    part: list[str] = []
    for each in found:
        written = json.dumps(each, ensure_ascii=False, separators=(",", ":"))
        if sum(map(len, part)) + len(written) > PART:
            yield part
            part = []
        part.append(written)
    yield part


def documents(page: Page) -> list[dict]:
    """What a search finds on a page: its headings, and the functions and classes below them."""
    behind = page.url.startswith(BEHIND)
    called = names(page)
    entries = _entries(page)
    if page.url in LISTS:
        entries = [("", next(entries)[1], "")]
    return [
        {"location": page.url + location, "title": cut(" ".join(title.split())), "text": cut(text)}
        | ({"tags": called[location]} if location in called else {})
        | ({"boost": 0.2} if behind else {"boost": 0.4} if location == END else {})
        for location, title, text in entries
        # A heading above others answers nothing; the reference is searched by names alone.
        if text.strip() or not location or page.name.startswith("reference/")
    ]


def names(page: Page) -> dict[str, list[str]]:
    """What the subject of a section is called, here and elsewhere: fragments to names."""
    found: dict[str, list[str]] = {}
    for target, called in glossary.searched():
        name, hash_, anchor = target.partition("#")
        if name == page.name:
            plain = [cut(words(each, page.language)).strip() for each in called]
            found.setdefault(hash_ + anchor, []).extend(plain)
    return {location: list(dict.fromkeys(called)) for location, called in found.items()}


def _entries(page: Page) -> Iterator[tuple[str, str, str]]:
    """Fragment, title and text of each document of a page."""
    location, title, text, below = "", "", "", []
    questions = question_ids(page)
    times = Counter(block.title for block in page.walk() if block.is_question)
    for block in _blocks(page.blocks):
        if block.kind == "heading":
            if title:
                yield location, title, text
                yield from below
                location = f"#{block.value}"
            title, text, below = words(block.title, page.language), "", []
        elif block.kind == "api":
            about, *members = api(block.value, page.language)
            text += about
            below += members
        elif block.is_question:
            asked, *answer = (block_words(each, page.language) for each in [block, *block.walk()])
            if times[block.title] == 1:
                below.append((f"#{questions[block.line]}", asked, "\n".join(answer)))
            else:  # "Answer", below an exercise
                text += "\n".join(answer)
        else:
            text += f"{block_words(block, page.language)}\n"
    yield location, title, text
    yield from below


def _blocks(blocks: tuple[Block, ...]) -> Iterator[Block]:
    """Those with words, a question with its answer as one; nobody searches for a hint."""
    for block in blocks:
        if block.value.startswith(("measured ", "museum ")) or block.is_hint:
            continue
        if block.kind == "table":  # that of the glossary has headings
            yield from parse(tables.table(block, block.language, str)).blocks
            continue
        yield block
        if not block.is_question:
            yield from _blocks(block.blocks)


def block_words(block: Block, language: str) -> str:
    """The words of a block, the names in code; figures and displayed formulas are not searched."""
    if block.kind == "include":
        return " ".join(dict.fromkeys(NAME.findall(block.section.shown)))
    if block.kind == "prose":
        return words(block.text, language)
    return words(block.title, language) if block.kind == "block" else ""


@cache
def words(markdown: str, language: str) -> str:
    """Prose without its markup, formulas as one reads them."""
    kept: list[str] = []

    def keep(span: Span) -> str:
        kept.append(span_words(span, language))
        return f"\0{len(kept) - 1}\0"

    plain = MARKUP.sub(" ", with_spans(markdown, keep))
    return KEPT.sub(lambda match: kept[int(match[1])], plain)


def span_words(span: Span, language: str) -> str:
    if span.kind == "citation":
        cited = [bibliography.short_name(key, language) for key in keys(span)]
        return f"（{'；'.join(cited)}）" if language == "zh" else f" ({'; '.join(cited)}) "
    if span.kind == "math":
        return formula(span.value)
    return span.value.strip("`") if span.kind == "code" else " "


@cache
def formula(tex: str) -> str:
    """The signs of a short formula in one line, as one types them: ``d_k``."""
    typed = re.sub(r"\\[a-z]+\{([^{}]*)\}|[{}]", r"\1", tex)
    if SIMPLE.fullmatch(typed):
        return typed
    mathml = fragments.formula(tex, display=False).partition("<annotation")[0]
    signs = fragments.plain_text(mathml)
    return signs if len(signs) < 8 else " "


def cut(text: str) -> str:
    """The text without what nobody types."""
    text = BEFORE_STOP.sub("", UNTYPED.sub(" ", text))
    return BESIDE_SIGN.sub("", text).strip()

"""The works that pages cite: docs/data/bibliography.toml as citations and as a page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from mhsite import words
from mhsite.pages import glossary, navigation
from mhsite.pages.page import Span, keys, read, with_spans
from mhsite.pages.settings import toml
from mhsite.stories.source import DOCS, SourceError, of_file


def works() -> dict[str, dict]:
    return toml(DOCS / "data" / "bibliography.toml")


def short_name(key: str, language: str) -> str:
    """A citation as it stands in a sentence: ``Vaswani et al., 2017``."""
    if key not in works():
        raise SourceError(f"[@{key}] is not in docs/data/bibliography.toml")
    entry = works()[key]
    # Entries have "Vaswani, Ashish": in a sentence stands the family name.
    names = [author.split(",")[0] for author in entry["authors"]]
    who = names[0]
    if len(names) == 2:
        who = words.of(language, "citation.two_authors", first=names[0], second=names[1])
    if len(names) > 2:
        who = words.of(language, "citation.more_authors", first=names[0])
    return who + words.of(language, "punctuation.comma") + str(entry["year"])


def citation(span: Span, language: str, url: Callable[[str], str]) -> str:
    """The works that stand side by side in one pair of brackets, each a link to ``url(key)``."""
    links = [f"[{short_name(key, language)}]({url(key)})" for key in keys(span)]
    joined = words.of(language, "punctuation.semicolon").join(links)
    cited = words.of(language, "citation.brackets", works=joined)
    if language == "zh":  # full-width brackets stand without spaces
        return cited
    before, after = re.fullmatch(r"(\s?).*?( ?)", span.text, re.S).groups()
    return before + cited + after


def markdown(language: str) -> str:
    """One list item per work, with the anchor that citations link to, and where it is cited."""
    items, cited = [], citing(language)
    for key, entry in sorted(works().items(), key=_by_author):
        authors = "; ".join(entry["authors"])
        title = f"[{entry['title']}]({entry['url']}){{ #{key} }}"
        about = f"{authors} ({entry['year']}). {title}. {entry['venue']}."
        items.append(f"- {about} {cited.get(key, '')}".rstrip())
    return "\n".join(items)


def _by_author(item: tuple[str, dict]) -> tuple:
    key, entry = item
    return entry["authors"][0].casefold(), entry["year"], key


def citing(language: str) -> dict[str, str]:
    """For each work that is cited, the pages that cite it; Markdown."""
    comma = words.of(language, "punctuation.list_comma")
    citing_pages: dict[str, list[str]] = {}
    for path in navigation.pages(language):
        for key in _cited(path):
            link = navigation.to_page(read(path).name, language)
            citing_pages.setdefault(key, []).append(link)
    return {
        key: words.of(language, "citation.cited_in", pages=comma.join(links))
        for key, links in citing_pages.items()
    }


@of_file
def _cited(path: Path) -> set[str]:
    cited: set[str] = set()

    def note(span: Span) -> str:
        if span.kind == "citation":
            cited.update(keys(span))
        return span.text

    page = read(path)
    for block in page.walk():
        # Terms cite works, too, and they stand in a file, not in the page that lists them.
        is_glossary = block.kind == "table" and block.value == "glossary"
        text = glossary.markdown(page.language) if is_glossary else block.text
        with_spans(text, note)
    return cited

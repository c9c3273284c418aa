"""The order of the pages, their titles and descriptions, and addresses that they had."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mhsite import words
from mhsite.pages.page import read
from mhsite.pages.settings import settings, toml
from mhsite.stories.source import DOCS, SourceError


def pages(language: str) -> list[Path]:
    """The pages in the order of the nav."""
    return [DOCS / language / name for name in names_in(settings(language)["nav"])]


def road(language: str) -> list[str]:
    """The pages under the nav's first title behind the home page, which come in order."""
    # The home page stands in front of the course, and is no step of it.
    return list(names_in(settings(language)["nav"][0]))[1:]


def names_in(nav: list | dict | str) -> Iterator[str]:
    """The pages that stand in a part of the nav, in order."""
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from names_in(item)


def title(target: str, language: str) -> str:
    """What a link to ``masks.md#padding`` is called: page and heading, ``Masks: Padding``.

    Of the page's title, only what stands before a colon.
    """
    page, _, anchor = target.partition("#")
    file = DOCS / language / page
    if not file.is_file():
        raise SourceError(f"there is no page {page}")
    headings = read(file).headings
    # A link in a sentence has no room for a title and its explanation.
    found = [re.split("[:：]", headings[0].title)[0]]
    if anchor:
        found += [heading.title for heading in headings if heading.value == anchor]
        if len(found) == 1:
            raise SourceError(f"{page} has no heading #{anchor}")
    return words.of(language, "punctuation.colon").join(found)


def to_page(name: str, language: str, to: Callable[[str], str] = str) -> str:
    return f"[{title(name, language)}]({to(name)})"


def description(name: str, language: str) -> str:
    """What a page is about, in one sentence, if anybody has written that."""
    # A small project, such as those of the tests, has no descriptions and no old addresses.
    file = DOCS / "data" / "descriptions.toml"
    return toml(file).get(name, {}).get(language, "") if file.is_file() else ""


def moved() -> dict[str, str]:
    """Addresses that pages had, with those that they have: ``old/`` to ``new/#section``."""
    file = DOCS / "data" / "addresses.toml"
    return toml(file)["moved"] if file.is_file() else {}

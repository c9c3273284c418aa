"""From the reference to the chapters: to the page that shows a function, else uses it first."""

import functools
import re

import pytest
from mhsite.pages import links, navigation
from mhsite.stories.source import DOCS, LANGUAGES, STORIES

SHOWN = re.compile(r'^\s*--8<-- "mhattn/([\w/]+)\.py:(\w+)"', re.M)
INCLUDED = re.compile(r'^\s*--8<-- "([\w-]+)\.pycon:', re.M)


@functools.cache
def pages(language):
    """The text of each page by its name, in the order of the navigation."""
    folder = DOCS / language
    paths = navigation.pages(language)
    return {p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8") for p in paths}


def shown_first(language):
    """For the source that pages show, as ``core/masks.causal_mask``, the first of these pages."""
    found = {}
    for page, text in pages(language).items():
        for module, name in SHOWN.findall(text):
            found.setdefault(f"{module}.{name}", page)
    return found


@functools.cache
def words_of(story):
    return set(re.findall(r"\w+", (STORIES / f"{story}.pycon").read_text(encoding="utf-8")))


def used_first(language, name):
    """The first page whose stories have this word."""
    for page, text in pages(language).items():
        if any(name in words_of(story) for story in INCLUDED.findall(text)):
            return page
    return None


def led_to(module, language):
    """For each name of a module, the page that the reference's line leads to."""
    dotted = f"mhattn.{module.replace('/', '.')}"
    line = links.to_chapters(dotted, language, lambda page: page)
    lists = re.findall(r"\]\(([^)]+)\)[^`]*((?:`\w+`(?:, |、)?)+)", line)
    return {name: page for page, names in lists for name in re.findall(r"`(\w+)`", names)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_reference_leads_to_the_page_that_shows_a_function(language):
    shown = shown_first(language)
    modules = {name.partition(".")[0] for name in shown}
    leads = {f"{m}.{name}": page for m in modules for name, page in led_to(m, language).items()}
    documented = {name for name in shown if name in leads}
    assert len(documented) > 20
    assert {name: leads[name] for name in documented} == {n: shown[n] for n in documented}
    order = list(pages(language))
    used = {name: used_first(language, name.partition(".")[2]) for name in documented}
    earlier = [n for n, page in used.items() if page and order.index(page) < order.index(shown[n])]
    assert earlier, "none is used before it is shown"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_reference_leads_to_the_first_page_that_uses_what_none_shows(language):
    shown, leads = shown_first(language), led_to("show/tables", language)
    assert "show/tables.table" not in shown
    assert leads["table"] == used_first(language, "table")


def test_the_reference_says_how_to_import_what_is_exported():
    assert links.imports("mhattn.core.fused") == (
        "`from mhattn.core import attend_in_groups, fused_attention`"
    )
    masks = links.imports("mhattn.core.masks")
    assert masks.startswith("`from mhattn import causal_mask, padding_mask")
    code = "\n".join(line.strip("`") for line in links.imports("mhattn.inside.observe").split("\n"))
    names = {}
    exec(code, names)
    assert names["attention_maps"].__module__ == "mhattn.inside.observe"

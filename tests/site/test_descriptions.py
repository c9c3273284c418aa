"""A description, which search engines and cards show, names nothing that its page lacks."""

import re

import pytest
from mhsite.pages import glossary, navigation
from mhsite.pages.page import page_paths, read
from mhsite.pages.settings import settings
from mhsite.stories.source import DOCS, LANGUAGES

NUMBER = r"\d+(?:[.,]\d+)*"
# What is written like a name: FLOPs, GQA, W^O, SmolLM2; or Hopper behind the first word.
NAME = r"[A-Za-z0-9.]*(?:[a-z0-9][A-Z]|[A-Z]{2}|[A-Z]\d)[\w.-]*|(?<=[^.!?:] )[A-Z][a-z][\w-]*"
EVERYWHERE = {"Python", "API"}  # what every page is written in; what the reference is


def bare(text):
    """Letters and digits alone: `KV-cache`, `KV cache` and `KV caches` hold the same name."""
    return re.sub(r"[^\w.]|_", "", text).lower()


def terms(description, language):
    """The terms of the glossary in a description, each with all names that a page may use."""
    for term in (term for group in glossary.groups() for term in group["term"]):
        plain = re.escape(term[language])
        whole = rf"(?i)\b{plain}s?\b" if language == "en" else plain
        if re.search(whole, description):
            others = [name for key in ("also", "also_zh", "code") for name in term.get(key, [])]
            yield term[language], [term["en"], term["zh"], *others]


def text_of(page):
    """Its prose and the code and outputs that it shows; of the first of a section, of all there."""
    parts = (list(navigation.names_in(part)) for part in settings(page.language)["nav"])
    names = next((names for names in parts if names[0] == page.name != "index.md"), [page.name])
    pages = [read(page.folder / name) for name in names]
    blocks = (b for each in pages for b in each.walk() if b.kind == "include")
    prose = (each.path.read_text(encoding="utf-8") for each in pages)
    return " ".join([*prose, *(block.section.text for block in blocks)])


def lacks(description, text, language):
    """The numbers, names and terms of a description that a text lacks."""
    yield from sorted({*re.findall(NUMBER, description)} - {*re.findall(NUMBER, text)})
    text = bare(text)
    for name in sorted({*re.findall(NAME, description)} - EVERYWHERE):
        if bare(name.rstrip(".")) not in text:
            yield name
    for term, others in terms(description, language):
        if not any(all(bare(word) in text for word in name.split()) for name in others):
            yield term


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_description_names_nothing_that_its_page_lacks(language):
    missing = {}
    for path in page_paths(language):
        page = read(DOCS / language / path)
        said = navigation.description(page.name, language)
        if page.name.startswith("reference/"):  # the names in mhattn are written when it is built
            said = ""
        if lacking := list(lacks(said, text_of(page), language)):
            missing[page.name] = lacking
    assert missing == {}, "in docs/data/descriptions.toml: say it on the page, or not here"


@pytest.mark.parametrize(
    ("language", "description", "missing"),
    [
        ("en", "FlashAttention-3 on Hopper, with 35 % of the peak.", []),
        ("en", "FlashAttention-3 on Hopper, with 34.5 % of the peak.", ["34.5"]),
        ("en", "FlashAttention-3 on Turing.", ["Turing"]),
        ("en", "Kernels and the delta rule.", ["delta rule"]),
        ("zh", "H100 与 FlashAttention-3 的内核。", []),
        ("zh", "H300 与秩坍缩。", ["H300", "秩", "秩坍缩"]),
    ],
)
def test_what_a_page_lacks_is_seen(language, description, missing):
    text = text_of(read(DOCS / language / "kernels.md"))
    assert list(lacks(description, text, language)) == missing

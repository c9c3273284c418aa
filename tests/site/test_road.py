"""The road: the pages under the nav's first title, which a newcomer reads in order."""

import re

import pytest
from mhsite import data
from mhsite.page import read
from mhsite.source import DOCS, LANGUAGES, shown_section

CHAPTERS = data.road("en")
SENTENCE = [page for page in CHAPTERS if page != "build-and-train.md"]  # which reads a text

each_language = pytest.mark.parametrize("language", LANGUAGES)
each_chapter = pytest.mark.parametrize("page", CHAPTERS)


def opened(language, page):
    return read(DOCS / language / page)


def test_the_road_is_short():
    words = {
        page: len((DOCS / "en" / page).read_text("utf-8").split())
        for page in ["index.md", *CHAPTERS]
    }
    assert sum(words.values()) < 9000, words
    assert "multi-head.md" in CHAPTERS[:5]  # four pages stand before the formula
    assert "build-and-train.md" in CHAPTERS[:7]


@each_chapter
@each_language
def test_each_page_leads_to_the_next(language, page):
    found = opened(language, page)
    now = [heading.value for heading in found.headings][-1]
    assert now == "now", "the last section says what the reader can do now"
    assert any(block.value == "task" for block in found.walk()), "there is no task"
    end = found.path.read_text("utf-8").split("{ #now }")[1]
    if page == CHAPTERS[-1]:
        (doors,) = [block for block in found.blocks if block.kind == "cards"]
        assert len(doors.value.split()) == 3
    else:
        assert f"]({CHAPTERS[CHAPTERS.index(page) + 1]})" in end


@each_chapter
@each_language
def test_each_page_says_what_it_needs(language, page):
    lines = [block.text for block in opened(language, page).walk() if "<!-- needs" in block.text]
    needed = re.findall(r"[\w/-]+\.md", "".join(lines))
    assert bool(needed) == (page != CHAPTERS[0])
    assert all(CHAPTERS.index(other) < CHAPTERS.index(page) for other in needed)


@pytest.mark.parametrize("page", SENTENCE)
def test_the_same_numbers_stand_on_every_page(page):
    first, this = {}, {}
    for name, namespace in (("why-attention", first), (page.removesuffix(".md"), this)):
        exec(shown_section(f"{name}.pycon:sentence").code, namespace)
    assert (this["X"] == first["X"]).all()
    assert this["words"] == first["words"]

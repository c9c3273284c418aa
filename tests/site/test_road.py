"""The way through the pages: the home page, the road, the sections and their cards."""

import json
import re
from urllib.parse import urljoin

import pytest
from cases import every
from mhsite import words
from mhsite.pages import navigation, your_turn
from mhsite.pages.page import read
from mhsite.pages.settings import settings
from mhsite.stories.source import DOCS, LANGUAGES
from mhsite.stories.translation import shown_section
from test_site import address, each_language, html

CHAPTERS = navigation.road("en")
SENTENCE = [page for page in CHAPTERS if page != "build-and-train.md"]  # which reads a text

each_chapter = every("page", CHAPTERS)


def opened(language, page):
    return read(DOCS / language / page)


def open_words(page):
    """The words of a page that aren't folded away."""
    shown = [b for b in opened("en", page).unfolded() if b.kind in ("prose", "heading", "block")]
    return sum(len((b.text if b.kind == "prose" else b.title).split()) for b in shown)


def test_the_road_is_short():
    words = {page: open_words(page) for page in CHAPTERS}
    assert sum(words.values()) < 6900, words
    assert "multi-head.md" in CHAPTERS[:5]  # four pages stand before the formula
    assert "build-and-train.md" in CHAPTERS[:7]


@each_chapter
@each_language
def test_each_page_leads_to_the_next(language, page):
    found = opened(language, page)
    ends = ["now", "ten", "purr"] if page == "block.md" else ["now"]  # the last one comes home
    at = [heading.value for heading in found.headings][-len(ends) :]
    assert at == ends, "the last section says what the reader can do now"
    assert any(block.value == "task" for block in found.walk()), "there is no task"
    end = found.path.read_text("utf-8").split("{ #now }")[1]
    if page == CHAPTERS[-1]:
        (doors,) = [block for block in found.blocks if block.kind == "cards"]
        assert len(doors.value.split()) == 3
    else:
        assert f"]({CHAPTERS[CHAPTERS.index(page) + 1]})" in end


@each_chapter
@each_language
def test_each_page_leads_to_three_questions(language, page):
    asked = {block.value for block in opened(language, "questions.md").headings}
    end = opened(language, page).path.read_text("utf-8").split("{ #now }")[1]
    (line,) = [line for line in end.splitlines() if "](questions.md#" in line]
    links = re.findall(r"\]\(questions\.md#([\w-]+)\)", line)
    assert len({*links}) == len(links) == 3
    assert {*links} <= asked


@each_chapter
@each_language
def test_where_numbers_come_from_is_folded_away(site, language, page):
    told = html(site, language, page).select(".mh-measured")
    marks = [b for b in opened(language, page).walk() if b.value.startswith(("runs ", "claim "))]
    assert len(told) == len(marks)
    assert all(each.find_parent("details") for each in told)


@each_chapter
@each_language
def test_each_page_says_what_it_needs(language, page):
    lines = [block.text for block in opened(language, page).walk() if "<!-- needs" in block.text]
    needed = re.findall(r"[\w/-]+\.md", "".join(lines))
    assert bool(needed) == (page != CHAPTERS[0])
    assert all(CHAPTERS.index(other) < CHAPTERS.index(page) for other in needed)


@every("page", SENTENCE)
def test_the_same_numbers_stand_on_every_page(page):
    first, this = {}, {}
    for name, namespace in (("why-attention", first), (page.removesuffix(".md"), this)):
        exec(shown_section(f"{name}.pycon:sentence").code, namespace)
    assert (this["X"] == first["X"]).all()
    assert this["words"] == first["words"]


@each_chapter
@each_language
def test_each_page_has_its_place_on_the_road(site, language, page):
    here = address(language, page)
    steps = html(site, language, page).select(".mh-road a")
    assert [urljoin(here, link["href"]) for link in steps] == [
        address(language, other) for other in CHAPTERS
    ]
    assert [link.get("aria-current") for link in steps].index("step") == CHAPTERS.index(page)


@each_language
def test_every_section_begins_with_cards_of_its_pages(site, language):
    for item in settings(language)["nav"][1:]:
        (below,) = item.values()
        first, *others = navigation.names_in(below)
        if first in ("questions.md", "reference/index.md"):  # which are no lists
            continue
        here = address(language, first)
        cards = html(site, language, first).select(".mh-cards li")
        links = [urljoin(here, card.a["href"]) for card in cards]
        assert links == [address(language, name) for name in others]
        assert all(card.b.text and card.p.text for card in cards)


def test_labels_of_the_navigation_fit_their_column():
    for language in LANGUAGES:
        labels = []

        def note(below, labels=labels):
            for item in below if isinstance(below, list) else []:
                for label, inner in item.items() if isinstance(item, dict) else ():
                    labels.append(label)
                    note(inner)

        note(settings(language)["nav"])
        assert len(labels) > 70
        wide = {label: len(label) + len(re.findall("[一-鿿]", label)) for label in labels}
        assert [label for label, width in wide.items() if width > 28] == []


SCREENS = {"laptop": {"width": 1280, "height": 800}, "phone": {"width": 360, "height": 740}}


@pytest.mark.parametrize("screen", SCREENS)
@each_language
def test_the_first_screen_has_both_doors_and_the_picture_with_its_numbers(
    open_page, language, screen
):
    page = open_page(
        address(language, "index.md"), viewport=SCREENS[screen], reduced_motion="reduce"
    )
    said = page.locator('[data-widget="reading"] [role="status"]')
    assert re.search(r"0\.\d\d", said.inner_text())
    doors = page.locator(".mh-doors a")
    assert doors.count() == 2
    for part in (doors.nth(0), doors.nth(1), page.locator(".mh-words").first, said):
        box = part.bounding_box()
        assert box["y"] + box["height"] <= SCREENS[screen]["height"]
    doors.nth(0).click()
    assert page.url.endswith(address(language, CHAPTERS[0]))


@each_language
def test_what_was_read_to_its_end_has_a_tick(open_page, home, language):
    page = open_page(address(language, CHAPTERS[2]))
    assert page.locator(".mh-road .mh-read").count() == 0
    page.mouse.wheel(0, 300)
    page.wait_for_timeout(300)
    assert page.locator(".mh-road .mh-read").count() == 0  # begun is not read
    page.locator("#now").scroll_into_view_if_needed()
    page.locator(".mh-road .mh-read").wait_for(state="attached")
    for other in LANGUAGES:  # both languages know it
        page.goto(home + address(other, "index.md"))
        page.locator("ol.mh-cards .mh-read").wait_for()
        cards = page.locator("ol.mh-cards li").all()
        assert [bool(card.locator(".mh-read").count()) for card in cards] == [
            name == CHAPTERS[2] for name in CHAPTERS
        ]
    page.evaluate("localStorage.setItem('mhattn-read', '{broken')")
    page.reload()
    page.locator(".mh-cards").first.wait_for()
    assert page.locator("ol.mh-cards .mh-read").count() == 0


@each_language
def test_a_solved_task_is_told_where_its_page_is_named(open_page, home, language):
    """A page of the road has one task; the card of a lab counts."""
    page = open_page(address(language, CHAPTERS[0]))
    solved = {"masks/1": True, "see-order/1": True, "see-order/4": True}
    page.evaluate("kept => localStorage.setItem('mhattn-tasks', kept)", json.dumps(solved))
    page.reload()
    page.locator(".mh-road .mh-solved").wait_for(state="attached")
    stars = [bool(link.get_attribute("class")) for link in page.locator(".mh-road a").all()]
    assert stars == [name == "masks.md" for name in CHAPTERS]
    page.goto(home + address(language, "labs/index.md"))
    page.locator(".mh-cards small b").first.wait_for()
    tasks = len(your_turn.cells(opened(language, "labs/see-order.md")))
    said = words.of(language, "road.counted", done=2, tasks=tasks)
    assert page.locator(".mh-cards small b").all_inner_texts() == [said]
    assert (
        said
        in page.locator(".mh-cards li").filter(has=page.locator("a[href*=see-order]")).inner_text()
    )


@each_language
def test_a_phone_has_the_sections_below_the_title(open_page, language):
    wide = open_page(address(language, "kv-cache.md"))
    assert not wide.locator(".mh-contents").is_visible()
    page = open_page(address(language, "kv-cache.md"), viewport=SCREENS["phone"], has_touch=True)
    contents = page.locator(".mh-contents")
    contents.locator("summary").tap()
    links = contents.locator("a")
    assert links.count() == page.locator("article h2").count()
    links.nth(2).tap()
    target = page.locator("article h2").nth(2)
    page.wait_for_function("y => Math.abs(scrollY - y) > 100", arg=0)
    page.wait_for_timeout(300)
    assert 0 <= target.bounding_box()["y"] < 150


HANGING = """() => [...document.querySelectorAll("pre > code > .mh-long")].map(line => {
    const range = document.createRange()
    range.selectNodeContents(line)
    const rows = [...range.getClientRects()].filter(box => box.width > 1).map(box => box.left)
    const { clientWidth, scrollWidth } = line.parentElement
    return [scrollWidth - clientWidth, Math.min(...rows.slice(1)) - rows[0], rows.length]
})"""
COVERED = """() => [...document.querySelectorAll("pre > code")].filter(code => {
    const button = code.parentElement.querySelector("button")?.getBoundingClientRect()
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT)
    const range = document.createRange()
    while (button && walker.nextNode()) {
        range.selectNodeContents(walker.currentNode)
        for (const box of range.getClientRects())
            if (box.right > button.left && box.left < button.right && box.width > 1
                && box.bottom > button.top + 2 && box.top < button.bottom - 2) return true
    }
}).length"""


@pytest.mark.parametrize("page", ["roofline.md", "kv-cache.md", "multi-head.md"])
def test_on_a_phone_code_can_be_read_and_copied(open_page, page):
    page = open_page(address("en", page), viewport=SCREENS["phone"])
    page.add_style_tag(content="* { content-visibility: visible !important }")
    page.locator("pre button").first.wait_for(state="attached")
    assert page.evaluate(COVERED) == 0
    lines = page.evaluate(HANGING)
    assert lines
    assert all(beyond <= 0 for beyond, _, _ in lines)  # they fold, and don't scroll
    assert all(hung >= 0 for _, hung, rows in lines if rows > 1)
    size = page.locator("pre button").first.bounding_box()
    assert min(size["width"], size["height"]) >= 24

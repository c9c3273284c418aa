"""The table of known models in a browser: filtered, sorted and pointed at as a reader does."""

import re
import tomllib
from urllib.parse import parse_qs, urlsplit

import pytest
from mhsite.stories.source import DOCS
from test_site import each_language

from mhattn.costs import known_model, known_models

YEARS = tomllib.loads((DOCS / "data" / "released.toml").read_text("utf-8"))
NEWEST_FIRST = [
    name for year in sorted(YEARS, reverse=True) for name in known_models() if name in YEARS[year]
]
KNOWN = [known_model(name) for name in NEWEST_FIRST]
LONG = 131_072
FIELD, NAMES = "input[type=search]", ".mh-models tbody tr:not([hidden]) .mh-model"
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


def place(language):
    return ("" if language == "en" else "zh/") + "known-models/"


def shown(page):
    """The names of the rows that are shown, in their order."""
    return page.locator(NAMES).evaluate_all("all => all.map(each => each.id)")


def asked(page):
    return parse_qs(urlsplit(page.evaluate("location.href")).query)


def heading(page, column):
    return page.locator(f".mh-models th:has([data-column={column}])")


@each_language
def test_reader_types_into_the_filter(open_page, language):
    page = open_page(place(language))
    assert shown(page) == [model.name for model in KNOWN]
    page.click(FIELD)
    page.keyboard.type("qwen MoE")
    experts = [m.name for m in KNOWN if m.family == "Qwen" and m.mlp and m.mlp.experts]
    assert shown(page) == experts
    said = page.locator(".mh-filter output").inner_text()
    assert str(len(experts)) in said
    assert str(len(KNOWN)) in said
    assert asked(page) == {"filter": ["qwen MoE"]}
    page.fill(FIELD, "mla")
    assert shown(page) == [m.name for m in KNOWN if m.attention == "MLA"]
    page.fill(FIELD, "no such model")
    assert shown(page) == []
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    assert shown(page) == [model.name for model in KNOWN]
    assert asked(page) == {}


def in_order(count, sign):
    """All models by a count, those without one last; of equals, the first in the file first."""
    return sorted(KNOWN, key=lambda m: ((n := count(m)) is None, sign * float(f"{n or 0:.3g}")))


def parameters(active):
    def count(model):
        if model.differs:
            number = model.published_parameters if not active else None
            if active and model.mlp.experts:
                number = model.parameters(active=True)
            return number and number / 1e9
        try:
            return model.parameters(active=active) / 1e9
        except ValueError:
            return None

    return count


def long_cache(model):
    kept = model.kind != "encoder" and not model.learned_positions
    return model.kv_cache_bytes(LONG) / 2**30 if kept else None


COUNTS = {
    "heads": lambda model: model.num_heads,
    "width": lambda model: model.embed_dim,
    "parameters": parameters(active=False),
    "active": parameters(active=True),
    "context": lambda model: model.context,
    "long": long_cache,
}


@pytest.mark.parametrize("column", COUNTS)
def test_a_heading_sorts_the_largest_first_then_the_smallest_then_as_before(open_page, column):
    page = open_page(place("en"))
    before, button = shown(page), heading(page, column).locator("button")
    for sign, word, state in ((-1, "descending", f"-{column}"), (1, "ascending", column)):
        button.click()
        assert heading(page, column).get_attribute("aria-sort") == word
        assert page.locator("th[aria-sort]").count() == 1
        rows = in_order(COUNTS[column], sign)
        values = [COUNTS[column](known_model(name)) for name in shown(page)]
        expected = [COUNTS[column](m) for m in rows]
        assert [v and f"{v:.3g}" for v in values] == [v and f"{v:.3g}" for v in expected]
        assert asked(page) == {"sort": [state]}
    button.click()
    assert shown(page) == before
    assert page.locator("th[aria-sort]").count() == 0
    assert asked(page) == {}


@each_language
def test_keys_sort_and_the_address_keeps_filter_and_order(open_page, language):
    page = open_page(place(language))
    page.click(FIELD)
    page.keyboard.type("gemma")
    page.keyboard.press("Tab")  # to the region, which keys scroll, and on to its headings
    assert page.evaluate("document.activeElement.matches('.mh-models[role=region][aria-label]')")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    gemmas = [m.title for m in KNOWN if m.family == "Gemma"]
    gemmas.sort(key=lambda title: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", title)])
    assert sorted(shown(page)) == sorted(m.name for m in KNOWN if m.family == "Gemma")
    assert [known_model(name).title for name in shown(page)] == gemmas
    page.keyboard.press("Space")
    assert [known_model(name).title for name in shown(page)] == gemmas[::-1]
    before = shown(page)
    page.reload()
    assert shown(page) == before
    assert page.input_value(FIELD) == "gemma"


def test_a_row_of_the_address_is_shown_whatever_is_filtered(open_page):
    page = open_page(place("en") + "?filter=gemma#llama-3.1-8b")
    row = page.locator("[id='llama-3.1-8b']")
    assert row.is_visible()
    box, region = row.bounding_box(), page.locator(".mh-models").bounding_box()
    assert region["y"] < box["y"] < region["y"] + region["height"]


@each_language
@pytest.mark.parametrize("options", [{}, PHONE], ids=["desk", "phone"])
def test_headings_and_names_stay_while_the_table_scrolls(open_page, language, options):
    page = open_page(place(language), **options)
    region = page.locator(".mh-models")
    region.scroll_into_view_if_needed()
    region.evaluate("each => each.scrollTo(300, 1000)")
    assert region.evaluate("each => Math.min(each.scrollLeft, each.scrollTop)") > 0
    box = region.bounding_box()
    head = page.locator(".mh-models th").first.bounding_box()
    assert abs(head["x"] - box["x"]) < 3
    assert abs(head["y"] - box["y"]) < 3
    seen = page.evaluate(
        "([x, y]) => document.elementFromPoint(x, y).closest('td, th').cellIndex",
        [box["x"] + 20, box["y"] + box["height"] / 2],
    )
    assert seen == 0
    assert head["width"] < 0.4 * box["width"]  # the other columns have room
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_on_a_wide_screen_the_table_takes_the_margin(open_page):
    page = open_page(place("en"), viewport={"width": 1600, "height": 900})
    box = page.locator(".mh-models").bounding_box()
    assert box["width"] > 1100
    assert box["x"] + box["width"] <= 1600


def test_without_scripts_it_is_the_plain_table(open_page):
    page = open_page(place("en"), java_script_enabled=False)
    assert page.locator(NAMES).count() == len(KNOWN)
    assert page.locator(".mh-models button, .mh-filter").count() == 0
    assert page.locator(".mh-models").get_attribute("tabindex") == "0"


# The figures


def figure(page, number=0):
    return page.locator(".mh-figure:has(a)").nth(number)


def mark(page, name, number=0):
    """A model's mark; in a figure of lines, its first."""
    links = figure(page, number).locator("a:has(use)")
    to = "(all, to) => all.findIndex(each => each.getAttribute('xlink:href') === to)"
    return links.nth(links.evaluate_all(to, f"#{name}")).locator("use").first


def middle(page, mark):
    mark.scroll_into_view_if_needed()
    box, before = mark.bounding_box(), None
    while box != before:  # the page above it may still grow
        page.wait_for_timeout(200)
        box, before = mark.bounding_box(), box
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def point_at(page, mark):
    """Move the mouse to the middle of a mark, on the way of a hand."""
    x, y = middle(page, mark)
    page.mouse.move(x - 30, y - 40)
    page.mouse.move(x, y, steps=5)


def said(page, number=0):
    return figure(page, number).locator("xpath=following-sibling::output[1]").inner_text()


@each_language
def test_pointing_at_a_mark_names_all_its_models(open_page, language):
    page = open_page(place(language))
    for name in ("t5-11b", "llama-3.1-8b", "deepseek-v4-flash"):
        model = known_model(name)
        at = model.embed_dim, model.num_heads
        same = [m.title for m in KNOWN if (m.embed_dim, m.num_heads) == at]
        point_at(page, mark(page, name))
        assert sorted(re.split(", |、", said(page))) == sorted(same)
    point_at(page, mark(page, "gemma-3-27b", 2))
    assert said(page, 2) == "Gemma 3 27B"


def test_a_click_on_a_mark_leads_to_its_row(open_page):
    page = open_page(place("en") + "?filter=gemma")
    point_at(page, mark(page, "t5-11b"))
    page.mouse.down()
    page.mouse.up()
    assert page.evaluate("location.hash") == "#t5-11b"
    # The row comes back, and into its region, with the next turn of the browser (hashchange).
    page.wait_for_function("""() => {
      const [row, region] = ["[id='t5-11b']", ".mh-models"].map(each =>
        document.querySelector(each).getBoundingClientRect())
      return row.height && region.top < row.top && row.top < region.bottom
    }""")


def test_arrow_keys_go_from_mark_to_mark(open_page):
    page = open_page(place("en"))
    assert figure(page).locator("[tabindex='0'], a:not([tabindex='-1'])").count() == 0
    # From the fold of the code above it, the figure is a few stops further, and a single one.
    page.locator("h2#growth ~ details > summary").first.focus()
    for _ in range(4):
        page.keyboard.press("Tab")
        if figure(page).evaluate("each => each === document.activeElement"):
            break
    first, seen = said(page), []
    assert set(first.split(", ")) <= {model.title for model in KNOWN}
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        seen.append(said(page))
    assert len({first, *seen}) == 6
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    assert said(page) == first
    page.keyboard.press("Enter")
    named = page.evaluate("document.getElementById(location.hash.slice(1)).textContent")
    assert named in first.split(", ")


def test_a_finger_names_first_and_follows_then(open_page):
    page = open_page(place("en"), **PHONE)
    at = middle(page, mark(page, "falcon-7b", 1))
    page.touchscreen.tap(*at)
    assert said(page, 1) == "Falcon 7B"
    assert page.evaluate("location.hash") == ""
    page.touchscreen.tap(*at)
    page.wait_for_function("location.hash === '#falcon-7b'")

"""What the road lets a reader touch says what the tensors of its stories say."""

import pytest
from mhsite.stories.source import LANGUAGES
from mhsite.stories.translation import shown_section
from test_site import address, each_language
from test_widgets import go, said_on

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}


def told_by(story, *sections, language="en"):
    """The names that sections of a story leave behind."""
    namespace = {}
    for name in sections:
        exec(shown_section(f"{story}.pycon:{name}", language).code, namespace)
    return namespace


def shown(number):
    """A number as a widget writes it: whole ones without digits."""
    number = round(float(number), 6)
    text = f"{number:.0f}" if number == int(number) else f"{number:.2f}"
    return text.replace("-", "−").replace("−0.00", "0.00")


def written(row):
    return [shown(number) for number in row.tolist()]


# The output matrix of multi-head.md.

CATS, THEY = 1, 4
PERSON_2, DARK_2 = (5, 1), (7, 3)
WRONG = [(4, 0), (5, 1), (6, 2)]  # heads added before the output matrix


def sums(widget):
    """The three rows below the squares, without their names."""
    rows = widget.locator("tfoot tr")
    return [rows.nth(row).locator("td").all_inner_texts() for row in range(3)]


def square(widget, row, column):
    return widget.locator("tbody tr").nth(row).locator("td[aria-selected]").nth(column)


@pytest.fixture(params=LANGUAGES)
def squares(request, open_page):
    """The page in one language, its squares, and what the story says of the sentence."""
    page = open_page(
        address(request.param, "multi-head.md"), viewport=dict(width=1200, height=1400)
    )
    widget = page.locator("[data-widget=output-matrix]")
    widget.locator("tfoot").wait_for()
    widget.scroll_into_view_if_needed()
    return request.param, page, widget, told_by("multi-head", "sentence", "heads", "out")


def test_squares_begin_as_the_story_has_them(squares):
    _, page, widget, story = squares
    both, W_o, X, Y = (story[name] for name in ("both", "W_o", "X", "Y"))
    chosen = {}
    for word in range(6):
        go(page, widget.locator(".mh-words button").nth(word))
        assert sums(widget) == [written(row) for row in (Y[word], X[word], (X + Y)[word])]
        strip = widget.locator("td.mh-passed").all_inner_texts()
        assert strip == written(both[word])
        chosen[word] = sums(widget)[2]
    assert len({*map(tuple, chosen.values())}) == 6
    on = widget.locator("td[aria-selected]").evaluate_all(
        "all => all.map(each => each.ariaSelected === 'true')"
    )
    assert on == W_o.bool().flatten().tolist()


def test_reader_switches_squares_and_they_becomes_a_person(squares):
    """As the page asks: person 2 of they, then dark 2 of cats, and the numbers that it says."""
    language, page, widget, story = squares
    both, W_o, X, Y = (story[name].clone() for name in ("both", "W_o", "X", "Y"))
    go(page, square(widget, *PERSON_2))
    W_o[PERSON_2] = 1
    person = shown((X + both @ W_o)[THEY, 1])
    assert sums(widget)[2][1] == person
    promised = said_on(
        language, "multi-head.md", (r"becomes a person \((.*?)\)", r"变成了人（(.*?)）")
    )
    assert promised == person != shown((X + Y)[THEY, 1])
    assert square(widget, *PERSON_2).inner_text() == shown(both[THEY, 5])
    page.wait_for_timeout(700)  # what is read out says the square and what came of it
    told = widget.get_by_role("status").inner_text()
    assert told.startswith(widget.locator("tbody th").nth(PERSON_2[0]).inner_text())
    assert told.endswith(widget.locator(".mh-said").inner_text())
    assert person in told
    go(page, widget.locator(".mh-words button").nth(CATS))
    before = sums(widget)[2][3]
    go(page, square(widget, *DARK_2))
    W_o[DARK_2] = 0
    assert sums(widget)[2] == written((X + both @ W_o)[CATS])
    pattern = r"falls from (\d\.\d\d) to (\d\.\d\d)", r"从 (\d\.\d\d) 降到 (\d\.\d\d)"
    assert said_on(language, "multi-head.md", pattern) == (before, sums(widget)[2][3])
    assert "squares=6.2%2C8.4" in page.evaluate("location.search")
    go(page, widget.locator(".md-button"))
    assert sums(widget)[2] == written((X + Y)[CATS])
    assert page.evaluate("location.search") == "?word=2"


def test_keys_reach_every_square_and_make_the_trap(squares):
    """One Tab stop; three squares more are what the page's trap computes."""
    _, page, widget, story = squares
    exec(shown_section("multi-head.pycon:sum").code, story)
    exec(shown_section("multi-head.pycon:trap").code, story)
    assert widget.locator("td[tabindex='0']").count() == 1
    widget.locator("td[tabindex='0']").focus()
    at = PERSON_2
    for row, column in WRONG:
        for key, steps in (("Down", row - at[0]), ("Right", column - at[1])):
            key = key if steps > 0 else {"Down": "Up", "Right": "Left"}[key]
            for _ in range(abs(steps)):
                page.keyboard.press(f"Arrow{key}")
        at = row, column
        page.keyboard.press(" ")
    assert square(widget, *at).evaluate("each => each === document.activeElement")
    for word in (THEY, CATS):
        widget.locator(".mh-words button").nth(word).click()
        mixed = story["X"] + story["mixed"]
        assert sums(widget)[2][:4] == written(mixed[word, :4])
    for key in ["ArrowUp"] * 9 + ["ArrowLeft"] * 9:  # no further than the corner
        widget.locator("td[tabindex='0']").press(key)
    square(widget, 0, 0).press("Enter")
    assert square(widget, 0, 0).get_attribute("aria-selected") == "false"


@each_language
def test_a_finger_switches_a_square(open_page, language):
    page = open_page(address(language, "multi-head.md"), **PHONE)
    widget = page.locator("[data-widget=output-matrix]")
    cell = square(widget, *PERSON_2)
    cell.scroll_into_view_if_needed()
    cell.tap()
    assert cell.get_attribute("aria-selected") == "true"
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    cut = "all => all.filter(each => each.scrollWidth > each.clientWidth + 1).length"
    assert widget.locator("td").evaluate_all(cut) == 0

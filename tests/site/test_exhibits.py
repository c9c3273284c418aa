"""The museum in a browser: chosen by what one sees, searched, and led to as a reader does."""

from urllib.parse import parse_qs, urlsplit

import pytest
from mhsite.pages import exhibits, museum
from mhsite.stories.source import LANGUAGES

EXHIBITS = ".mh-museum > div"
ROWS = ".mh-mistakes tr[id]"
BY_SIGHT = {sight: list(named) for sight, named in exhibits.by_sight().items()}
OTHERS = sum(len(entries) for entries in museum.others().values())


def place(language):
    return "museum/" if language == "en" else "zh/museum/"


def shown(page, what):
    return [each.get_attribute("id") for each in page.locator(what).all() if each.is_visible()]


def asked(page):
    return parse_qs(urlsplit(page.evaluate("location.href")).query)


@pytest.mark.parametrize("language", LANGUAGES)
def test_reader_chooses_what_one_sees_and_types(open_page, language):
    page = open_page(place(language))
    buttons = page.locator(".mh-sights button")
    assert buttons.count() == 1 + len(BY_SIGHT)
    assert shown(page, EXHIBITS) == [name for names in BY_SIGHT.values() for name in names]
    for n, (sight, names) in enumerate(BY_SIGHT.items(), start=1):
        buttons.nth(n).click()
        assert shown(page, EXHIBITS) == names
        assert asked(page) == {"see": [sight]}
        titled = [each for each in shown(page, "article h2") if each in BY_SIGHT]
        assert titled == [sight]
    buttons.nth(0).click()
    page.click(".mh-filter input")
    page.keyboard.type("repeat_interleave(2")
    assert shown(page, EXHIBITS) == ["groups"]
    assert 0 < len(shown(page, ROWS)) < OTHERS
    assert asked(page) == {"find": ["repeat_interleave(2"]}
    assert page.locator(".mh-filter output").inner_text().split()[0] == "1"


def test_what_the_address_names_is_shown_whatever_was_chosen(open_page):
    page = open_page(place("en") + "?see=nan&find=product#groups")
    assert "groups" in shown(page, EXHIBITS)
    assert asked(page) == {}
    row = next(key for entries in museum.others().values() for key in entries).replace(":", "-")
    page = open_page(place("en") + f"?find=nosuchword#{row}")
    assert row in shown(page, ROWS)


def test_a_row_opens_to_show_both_sides(open_page):
    page = open_page(place("en"))
    row = page.locator(ROWS).first
    assert not row.locator(".mh-wrong").is_visible()
    row.locator("summary").click()
    assert row.locator(".mh-wrong code").is_visible()

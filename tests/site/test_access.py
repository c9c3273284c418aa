"""Every page in a browser, visited once: who reads it without colours, a mouse or a wide screen."""

from test_road import CHAPTERS
from test_site import SIDES, address
from visits import each_visit


@each_visit(SIDES)
def test_formulas_fit_a_phone(visits, language, page):
    assert visits(address(language, page))["scrolling formulas"] == []


@each_visit([side for side in SIDES if side[1] in CHAPTERS])
def test_code_of_the_road_fits_a_phone(visits, language, page):
    assert visits(address(language, page))["scrolling code"] == []


@each_visit(SIDES)
def test_keys_reach_an_output_that_scrolls(visits, language, page):
    assert visits(address(language, page))["without keys"] == []


@each_visit(SIDES)
def test_axe_finds_nothing_serious(visits, language, page):
    assert visits(address(language, page))["axe"] == []


def test_copy_buttons_are_no_landmarks(open_page):
    """Material has each in a <nav> without a name: dozens of them on a page."""
    page = open_page("masks/")
    page.wait_for_selector(".md-code__nav", state="attached")
    roles = page.evaluate("[...document.querySelectorAll('.md-code__nav')].map(nav => nav.role)")
    assert set(roles) == {"group"}

"""The built site in a headless browser: what a reader meets."""

import functools
import gzip
import re
from urllib.parse import urlsplit

import pytest
from test_site import PAGES, SIDES, address, blocks, each_language, html, target_file
from visits import each_visit

from mhattn import COLORS

PAGE_LIMIT = 160_000  # bytes over the wire, gzipped


@each_visit(SIDES)
def test_page_is_quiet_stays_home_and_fits_a_phone(visits, language, page):
    found = visits(address(language, page))
    assert found["noise"] == []
    ours = (found["home"], "data:", "blob:")
    assert [url for url in found["requests"] if not url.startswith(ours)] == []
    assert not found["sideways"], found["sideways"]


@functools.cache
def gzipped(file):
    return len(gzip.compress(file.read_bytes()))


@each_visit(SIDES)
def test_pages_are_light(visits, site, language, page):
    """HTML, styles, scripts and fonts of a first visit, gzipped; images apart."""
    found = visits(address(language, page))
    home, urls, weight = found["home"], map(urlsplit, found["first requests"]), 0
    for url in {url._replace(fragment="", query="").geturl() for url in urls}:
        file = target_file(site, url.removeprefix(home)) if url.startswith(home) else None
        if file and file.suffix in (".html", ".css", ".js", ".woff2"):
            weight += gzipped(file)
    assert 20_000 < weight < PAGE_LIMIT, f"{weight / 1000:.1f} kB"


@each_visit(SIDES)
def test_copy_buttons_copy_the_code(visits, site, language, page):
    found, code = visits(address(language, page)), blocks(site, language, page)
    assert found["copied"] == code
    assert found["clicked"] == (code[0] if code else None)  # by a mouse


@pytest.mark.parametrize(
    ("language", "words", "found"),
    [
        ("en", "softmax", "attention/"),
        ("en", "causal mask", "masks/"),
        ("zh", "因果", "zh/masks/"),
        ("zh", "掩码", "zh/masks/"),
        ("zh", "softmax", "zh/scaled-attention/"),
    ],
)
def test_search_finds_the_page(open_page, home, language, words, found):
    page = open_page(address(language, "index.md"))
    page.keyboard.press("/")
    page.wait_for_function("document.activeElement.matches('.md-search__input')")
    page.keyboard.type(words)
    page.wait_for_selector(".md-search-result__link")
    links = page.locator(".md-search-result__link").evaluate_all("links => links.map(a => a.href)")
    assert any(link.startswith(home + found) for link in links), links


@pytest.mark.parametrize("scripts", [True, False])
def test_language_switch_goes_there_and_back(open_page, home, scripts):
    for name in ("masks.md", next(page for page in PAGES if page.startswith("labs/"))):
        page = open_page(address("en", name), java_script_enabled=scripts)
        for language in ("zh", "en"):
            page.click("a.mh-language")
            page.wait_for_url(home + address(language, name))
            assert page.get_attribute("html", "lang").split("-")[0] == language


def scheme(page):
    return page.get_attribute("body", "data-md-color-scheme")


def test_dark_mode_can_be_chosen_and_stays(open_page):
    page = open_page("attention/")
    assert scheme(page) == "default"
    ink = "getComputedStyle(document.querySelector('.mh-figure')).color"
    light = page.evaluate(ink)
    page.click("label[for=__palette_1]:visible")
    assert scheme(page) == "slate"
    assert page.evaluate(ink) != light
    page.reload()
    assert scheme(page) == "slate"
    page.click("label[for=__palette_0]:visible")
    assert scheme(page) == "default"


def test_dark_mode_follows_the_system(open_page):
    assert scheme(open_page("attention/", color_scheme="dark")) == "slate"


CONTRAST = """role => {
    const span = document.querySelector('article').appendChild(document.createElement('span'))
    span.className = role
    const linear = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
    const paint = document.createElement('canvas').getContext('2d')
    const light = color => {
        paint.fillStyle = color
        paint.fillRect(0, 0, 1, 1)
        const [r, g, b] = paint.getImageData(0, 0, 1, 1).data
        return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
    }
    const back = light(getComputedStyle(document.body).backgroundColor)
    const text = light(getComputedStyle(span).color)
    return (Math.max(back, text) + 0.05) / (Math.min(back, text) + 0.05)
}"""


@pytest.mark.parametrize("system", ["light", "dark"])
def test_words_in_a_roles_colour_can_be_read(open_page, system):
    page = open_page("attention/", color_scheme=system)
    contrasts = {role: page.evaluate(CONTRAST, f"mh-{role}") for role in COLORS}
    assert {role: c for role, c in contrasts.items() if not 4.5 <= c < 20} == {}


def page_with(site, selector):
    return next(address("en", page) for page in PAGES if html(site, "en", page).select(selector))


def test_keyboard_reaches_content_and_answers(open_page, site):
    page = open_page(page_with(site, "article details:not(.mh-contents)"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "md-skip focus-visible"
    summary = page.locator("article details:not(.mh-contents) > summary").first
    summary.focus()
    assert not summary.evaluate("each => each.parentElement.open")
    page.keyboard.press("Enter")
    assert summary.evaluate("each => each.parentElement.open")


@each_language
def test_page_reads_without_scripts(open_page, language):
    page = open_page(address(language, "attention.md"), java_script_enabled=False)
    assert page.locator("h1").is_visible()
    assert page.locator("article p:not(.mh-about)").first.is_visible()
    assert page.locator(".katex-display").first.is_visible()
    assert page.locator(".katex-display").first.bounding_box()["height"] > 15
    assert page.locator("svg.mh-figure").first.is_visible()


@each_language
def test_the_sheet_and_its_solution_are_two_pages_of_paper(open_page, language):
    page = open_page(address(language, "by-hand.md"))
    assert page.locator("#lesson").is_visible()
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) == 2
    page.emulate_media(media="print")
    assert [page.locator(part).is_visible() for part in ("#sheet", "#solution")] == [True, True]
    hidden = ("h1", "#lesson", "#now", "article figure", "article .task", ".md-header")
    assert not any(part.is_visible() for name in hidden for part in page.locator(name).all())
    empty = page.locator("#sheet ~ section:has(~ #solution) td:empty:not(:first-child)")
    assert empty.count() > 100
    assert min(cell.bounding_box()["height"] for cell in empty.all()) > 15

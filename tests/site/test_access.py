"""Every page in a browser, opened once: who reads it without colours, a mouse or a wide screen."""

import functools
from pathlib import Path

import pytest
from mhsite import katex
from test_road import ROAD
from test_site import SIDES, address

DESK, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 740}
LAID_OUT = """() => {
    document.querySelectorAll('details').forEach(each => each.open = true)
    document.head.appendChild(document.createElement('style')).textContent =
        '* { content-visibility: visible !important; transition: none !important }'
}"""
# A page is long because its code and formulas repeat a few kinds of words: three of each remain.
THIN_OUT = """() => {
    const seen = {}
    for (const word of document.querySelectorAll('pre span, .katex-html *, .mh-figure text')) {
        if (word.children.length || !word.isConnected) continue
        let kind = ''
        for (let each = word, up = 0; each && up < 5; each = each.parentElement, up++)
            kind += `${each.tagName}.${each.getAttribute('class')} `
        if ((seen[kind] = (seen[kind] ?? 0) + 1) > 3) word.remove()
    }
}"""
VIOLATIONS = """async rules => {
    const { violations } = await axe.run(document, { resultTypes: ['violations'], ...rules })
    return violations.filter(each => ['serious', 'critical'].includes(each.impact))
        .flatMap(({ id, nodes }) => nodes.map(node =>
            `${id}: ${node.html.slice(0, 100)}: ${node.failureSummary}`))
}"""
OF_COLOUR = {"runOnly": ["color-contrast", "link-in-text-block"]}
SCROLLING = """selector => [...document.querySelectorAll(selector)]
    .filter(each => each.checkVisibility() && each.scrollWidth > each.clientWidth)
    .map(each => `${each.scrollWidth} > ${each.clientWidth}: ${each.textContent.slice(0, 200)}`)"""


@functools.cache
def axe():
    """axe-core's script, as package-lock.json beside this file pins it."""
    installed = katex.node_modules(Path(__file__).parent)
    return (installed / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module", params=SIDES, ids=lambda side: "-".join(side))
def side(request):
    return request.param


@pytest.fixture(scope="module")
def page(side, browser, home):
    opened = browser.new_page(viewport=PHONE)
    opened.goto(home + address(*side), wait_until="load")
    yield opened
    opened.close()


def test_formulas_fit_a_phone(page):
    page.set_viewport_size(PHONE)
    page.evaluate(LAID_OUT)
    assert page.evaluate(SCROLLING, ".mh-formula") == []


def test_code_of_the_road_fits_a_phone(side, browser, home):
    if side[1] not in ROAD:
        pytest.skip("its code may scroll")
    opened = browser.new_page(viewport=PHONE)
    opened.goto(home + address(*side), wait_until="load")
    scrolling = opened.evaluate(SCROLLING, ".highlight pre > code, pre.mh-output")
    opened.close()
    assert scrolling == []


def test_axe_finds_nothing_serious(page):
    page.set_viewport_size(DESK)
    page.evaluate(LAID_OUT)
    page.evaluate(THIN_OUT)
    page.evaluate(axe())
    found = {}
    for scheme, rules in (("default", {}), ("slate", OF_COLOUR)):
        if page.get_attribute("body", "data-md-color-scheme") != scheme:
            page.click("[data-md-component=palette] label:visible")
        assert page.get_attribute("body", "data-md-color-scheme") == scheme
        found[scheme] = page.evaluate(VIOLATIONS, rules)
    assert found == {"default": [], "slate": []}

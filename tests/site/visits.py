"""The one visit of a page in a browser, and all that tests want to know of it.

A visit depends on the page, the files that it loads, this module, axe and the browser, and on
nothing else: so what it noted is filed beside the results of stories, and read until one of them
changes. Every run of the tests visits each page in one language, which the commit draws; the slow
tests visit the other.

A visit's first half happens at 360 px in a fresh profile, as a reader's first visit does, with a
look at what a laptop shows first; then all that is folded opens; its second half happens on a desk.
Thinned out for axe, it is no page any more.
"""

import contextlib
import functools
import hashlib
import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import npm_packages
import pytest
from cases import drawn_number, hide, try_all
from filelock import FileLock, Timeout
from mhsite.pages import release
from mhsite.stories import cache
from mhsite.stories.source import LANGUAGES
from playwright.sync_api import Error, TimeoutError

DESK, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 740}
OPEN_TABLES = ":is(.mh-scroll, .md-typeset__scrollwrap):has(table):not(details *)"
LAPTOP = {"width": 1280, "height": 800}
TABLET = {"width": 481, "height": 740}  # the narrowest on which long lines scroll: site.css
AT_REST = "async () => { await document.fonts.ready; await new Promise(requestIdleCallback) }"
LAID_OUT = """() => {
    document.querySelectorAll('details').forEach(each => each.open = true)
    document.head.appendChild(document.createElement('style')).textContent =
        '* { content-visibility: visible !important; transition: none !important }'
}"""
SIDEWAYS = """() => document.documentElement.scrollWidth > innerWidth &&
    [...document.querySelectorAll('body *')]
        .filter(each => each.getBoundingClientRect().right > innerWidth)
        .map(each => each.outerHTML.slice(0, 120)).slice(0, 5)"""
# Where the first picture stands, or what a page has to be touched; what is said and printed before
# it, citations aside. A mark of a heading is no picture.
FIRST = """() => {
    const article = document.querySelector('article')
    const box = each => each.getBoundingClientRect()
    const seen = '.mh-figure, figure svg, img, [data-widget], form'
    const pictures = [...article.querySelectorAll(seen)]
    const first = pictures.find(each => box(each).height > 80 && box(each).width > 150)
    const title = article.querySelector('h1')
    const prose = ':scope > :is(p:not(.mh-about), ul, ol), .mh-output'
    const texts = [...article.querySelectorAll(prose)]
    const said = texts.filter(each => first &&
        title.compareDocumentPosition(each) & each.compareDocumentPosition(first) & 4)
    const words = said.map(each => {
        const copy = each.cloneNode(true)
        copy.querySelectorAll('a[href*=bibliography]').forEach(link => link.remove())
        return copy.textContent
    })
    return { top: first ? Math.round(box(first).top + scrollY) : null,
             bottom: first ? Math.round(box(first).bottom + scrollY) : null,
             before: words.join(' ').trim() }
}"""
# The pictures with text: each text's words, box and size of letters, as they are on the screen.
FIGURES = """() => [...document.querySelectorAll('article svg:has(text)')].map(svg => {
    const box = each => {
        const { left, top, right, bottom } = each.getBoundingClientRect()
        return [left, top, right, bottom].map(side => Math.round(side * 10) / 10)
    }
    const texts = [...svg.querySelectorAll('text')].map(text => {
        const { a, b } = text.getScreenCTM()
        const runs = text.querySelector('tspan') ? [...text.querySelectorAll('tspan')] : [text]
        const sizes = runs.map(each => parseFloat(getComputedStyle(each).fontSize))
        return { words: text.textContent.trim(), box: box(text), turned: Math.abs(b) > 1e-3,
                 size: Math.max(...sizes) * Math.hypot(a, b) }
    })
    const seen = texts.filter(({ words, box: [left, , right] }) => words && right > left)
    return { label: svg.getAttribute('aria-label') ?? '', box: box(svg), texts: seen }
})"""
SCROLLING = """selector => [...document.querySelectorAll(selector)]
    .filter(each => each.checkVisibility() && each.scrollWidth > each.clientWidth)
    .map(each => `${each.scrollWidth} > ${each.clientWidth}: ${each.textContent.slice(0, 200)}`)"""
BUTTON = "section.language-python :is(button[data-md-type=copy], button.md-clipboard)"
ALL_THERE = """([buttons, code]) =>
    document.querySelectorAll(buttons).length == document.querySelectorAll(code).length"""
COPIED = """async ([selector, start, stop]) => {
    const copied = []
    for (const button of [...document.querySelectorAll(selector)].slice(start, stop)) {
        button.click()
        copied.push(await navigator.clipboard.readText())
    }
    return copied
}"""
AT_ONCE = 8  # copies: a gesture lets a page copy for 5 s

# What a reader who points at each cell of each table and map reads below it, and what lights up.
READ = """() => [...document.querySelectorAll('[data-grid]')].map(grid => {
    const { shape } = JSON.parse(grid.dataset.grid)
    if (!shape) return [...grid.tBodies[0].rows].map(row => [...row.cells].slice(1).map(cell => {
        cell.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }))
        const lit = [...grid.querySelectorAll('th.mh-row, th.mh-column')]
        return [grid.parentElement.nextElementSibling.innerText, ...lit.map(each => each.innerText)]
    }))
    const svg = grid.ownerSVGElement
    const [left, top, right, bottom] = grid.dataset.box.split(' ').map(Number)
    const middles = (start, end, count) =>
        Array.from({ length: count }, (_, i) => start + (end - start) * (i + 0.5) / count)
    return middles(top, bottom, shape[0]).map(y => middles(left, right, shape[1]).map(x => {
        const at = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM())
        const [clientX, clientY] = [at.x, at.y]
        svg.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY }))
        const lit = ['text.mh-key', 'text.mh-query'].map(each => svg.querySelector(each))
        return [svg.nextElementSibling.innerText, ...lit.map(each => each?.textContent ?? '␣')]
    }))
})"""

# A page is long because a few kinds of words repeat, in code, formulas, tables, the list of all
# pages: three of each kind remain.
THIN_OUT = """() => {
    const seen = {}
    const words = 'pre span, .katex, .mh-figure text, td, .md-nav__link'
    for (const word of document.querySelectorAll(words)) {
        if (!word.isConnected || word.matches('pre *, svg *') && word.children.length) continue
        let kind = ''
        for (let each = word, up = 0; each && up < 5; each = each.parentElement, up++)
            kind += `${each.tagName}.${each.getAttribute('class')}.${each.getAttribute('style')} `
        if ((seen[kind] = (seen[kind] ?? 0) + 1) > 3) word.remove()
    }
}"""
VIOLATIONS = """async rules => {
    const slight = axe._audit.rules.filter(rule => ['minor', 'moderate'].includes(rule.impact))
    const off = Object.fromEntries(slight.map(rule => [rule.id, { enabled: false }]))
    const options = { resultTypes: ['violations'], ...(rules.runOnly ? rules : { rules: off }) }
    const { violations } = await axe.run(document, options)
    return violations.filter(each => ['serious', 'critical'].includes(each.impact))
        .flatMap(({ id, nodes }) => nodes.map(node =>
            `${id}: ${node.html.slice(0, 100)}: ${node.failureSummary}`))
}"""


@functools.cache
def axe():
    """axe-core's script, as package-lock.json beside this file pins it."""
    return (npm_packages.node_modules() / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def visit(browser, home, place):
    """What happens at the first visit of a page, and what is found there; all plain JSON."""
    context = browser.new_context(viewport=PHONE)
    context.set_default_timeout(20_000)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=home)
    try:
        page, noise, requests, waiting = context.new_page(), [], [], set()
        page.on("console", lambda m: m.type in ("error", "warning") and noise.append(m.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("request", lambda request: (requests.append(request.url), waiting.add(request)))
        for end in ("requestfinished", "requestfailed"):
            page.on(end, lambda request: waiting.discard(request))
        page.goto(home + place, wait_until="load")
        page.evaluate(AT_REST)
        while waiting:
            page.wait_for_timeout(5)
        record = {"home": home, "first requests": [*requests]}
        record |= at_first(page)
        record |= on_a_phone(page)
        record |= on_a_desk(page)
        record |= {"noise": [*noise], "requests": [*requests]}
        chinese = page.get_attribute("html", "lang") != "en"
        return record | {"axe": violations(page, "slate" if chinese else "default")}
    finally:
        context.close()


def at_first(page):
    """Where the first picture stands on a phone and on a laptop, and what stands before it."""
    phone = page.evaluate(FIRST)
    page.set_viewport_size(LAPTOP)
    laptop = page.evaluate(FIRST)
    page.set_viewport_size(PHONE)
    return {"first on a phone": phone, "first on a laptop": laptop}


def on_a_phone(page):
    """What is wider than 360 px; what scrolls where lines are not folded, and no key reaches it."""
    page.evaluate(LAID_OUT)
    found = {
        "scrolling code": page.evaluate(SCROLLING, ".highlight pre > code, pre.mh-output"),
        "sideways": page.evaluate(SIDEWAYS),
        "scrolling formulas": page.evaluate(SCROLLING, ".mh-formula"),
        "figures": page.evaluate(FIGURES),
    }
    page.set_viewport_size(TABLET)
    return found | {"without keys": page.evaluate(SCROLLING, "pre.mh-output:not([tabindex])")}


def on_a_desk(page):
    """What its copy buttons give, and what is said of the cells of its tables and maps."""
    page.set_viewport_size(LAPTOP)
    hidden = page.evaluate(SCROLLING, OPEN_TABLES)
    page.set_viewport_size(DESK)
    with contextlib.suppress(TimeoutError):  # a button that is missing copies nothing
        page.wait_for_function(ALL_THERE, arg=[BUTTON, "section.language-python pre > code"])
    buttons = page.locator(BUTTON)
    clicked, copied = None, []
    if count := buttons.count():
        buttons.first.click()
        clicked = page.evaluate("navigator.clipboard.readText()")
    for start in range(0, count, AT_ONCE):  # each call is a gesture
        copied += page.evaluate(COPIED, [BUTTON, start, start + AT_ONCE])
    cells = page.evaluate(READ)
    return {"clicked": clicked, "copied": copied, "cells": cells, "hidden columns": hidden}


def violations(page, scheme):
    """What axe finds in light or in dark: English pages are seen light, Chinese ones dark.

    Axe takes half of a visit, and no colour depends on the language.
    """
    page.evaluate("document.querySelector('.md-dialog').remove()")  # "copied", for two seconds
    page.evaluate(THIN_OUT)
    page.evaluate(axe())
    if page.get_attribute("body", "data-md-color-scheme") != scheme:
        page.click("[data-md-component=palette] label:visible")
    assert page.get_attribute("body", "data-md-color-scheme") == scheme
    return page.evaluate(VIOLATIONS, {})


# What is filed

KEPT = 4  # states of a page, the newest


def file_of(site, home, url):
    """The file of the site that an address asks for."""
    path = site / unquote(urlsplit(url.removeprefix(home)).path)
    return path / "index.html" if path.is_dir() else path


def state_of(file):
    """The hash of a file, or none where there is none. Of the day of the commit nothing depends."""
    if not file.is_file():
        return None
    day = f"{release.date():%Y-%m-%d}".encode()
    return hashlib.sha256(file.read_bytes().replace(day, b"")).hexdigest()[:32]


class Visits:
    """The records of the visits to a site's pages: those that are filed, and those made now."""

    def __init__(self, browser, home, site):
        self.browser, self.home, self.site = browser, home, site
        lock = (Path(__file__).with_name("package-lock.json")).read_bytes()
        parts = Path(__file__).read_bytes(), lock, browser.version.encode()
        self.visitor = hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
        self.records, self.asked = {}, []

    def __call__(self, place):
        """What was noted on a page; another process may be there just now."""
        self.asked.append(place)
        if place not in self.records:
            with self.lock(place):
                self.records[place] = self.filed(place) or self.made(place)
        return self.records[place]

    def prepare(self, places):
        """Visit what isn't filed, and leave to other processes the pages where they are.

        Where that fails is visited again by the test, which names the page.
        """
        for place in places:
            if place not in self.records:
                with contextlib.suppress(Timeout, Error), self.lock(place, timeout=0):
                    self.records[place] = self.filed(place) or self.made(place)

    def forget(self):
        """Let the pages that were asked for be visited again: a test of them fails."""
        for place in self.asked:
            self.file(place).unlink(missing_ok=True)
            self.records.pop(place, None)

    def folder(self, place):
        return cache.HOME / "visits" / (place.strip("/").replace("/", ".") or "index")

    def file(self, place):
        page = state_of(file_of(self.site, self.home, self.home + place))
        return self.folder(place) / f"{self.visitor}-{page}.json"

    def lock(self, place, timeout=-1):
        self.folder(place).mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder(place) / "lock", timeout=timeout)

    def filed(self, place):
        """The record of a visit to the page as it is now, with all that it loads."""
        try:
            found = json.loads(self.file(place).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        same = all(state_of(self.site / name) == state for name, state in found["files"].items())
        return found["record"] if same else None

    def made(self, place):
        """Visit a page, and file what was noted."""
        record = visit(self.browser, self.home, place)
        ours = [url for url in record["requests"] if url.startswith(self.home)]
        files = {file_of(self.site, self.home, url) for url in ours}
        states = {file.relative_to(self.site).as_posix(): state_of(file) for file in sorted(files)}
        text = json.dumps({"files": states, "record": record})
        file = self.file(place)
        file.write_text(text, encoding="utf-8")
        old = sorted(file.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-KEPT]
        for path in old:
            path.unlink(missing_ok=True)
        return json.loads(text)["record"]


def each_visit(sides):
    """A test of one claim about each of these pages: of the language that the commit draws for it,
    in every run, and of the other one.
    """
    drawn = [side for side in sides if side[0] == LANGUAGES[drawn_number(side[1]) % 2]]
    others = [side for side in sides if side not in drawn]
    tiers = [
        pytest.param(drawn, id="drawn"),
        pytest.param(others, id="others", marks=pytest.mark.slow),
    ]

    def decorate(test):
        @functools.wraps(test)
        def test_of_all(visits, visited, **fixtures):
            from test_site import address

            def attempt(side):
                visits.asked.clear()
                try:
                    test(visits=visits, language=side[0], page=side[1], **fixtures)
                except BaseException:
                    visits.forget()
                    raise

            visits.prepare([address(*side) for side in visited])
            try_all(visited, attempt)

        hide(test_of_all, test, ["language", "page"], "visited")
        return pytest.mark.parametrize("visited", tiers)(test_of_all)

    return decorate

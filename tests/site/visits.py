"""The one visit of a page in a browser, and all that tests want to know of it.

Its first half happens at 360 px in a fresh profile, as a reader's first visit does; then all that
is folded opens; its second half happens on a desk. Thinned out for axe, it is no page any more.
"""

import contextlib
import functools

import npm_packages
from playwright.sync_api import TimeoutError

DESK, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 740}
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
OF_COLOUR = {"runOnly": ["color-contrast", "link-in-text-block"]}


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
        record |= on_a_phone(page)
        record |= on_a_desk(page)
        record |= {"noise": [*noise], "requests": [*requests]}
        return record | {"axe": violations(page)}
    finally:
        context.close()


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
    return {"clicked": clicked, "copied": copied, "cells": page.evaluate(READ)}


def violations(page):
    """What axe finds in light and dark."""
    page.evaluate("document.querySelector('.md-dialog').remove()")  # "copied", for two seconds
    page.evaluate(THIN_OUT)
    page.evaluate(axe())
    found = {}
    for scheme, rules in (("default", {}), ("slate", OF_COLOUR)):
        if page.get_attribute("body", "data-md-color-scheme") != scheme:
            page.click("[data-md-component=palette] label:visible")
        if page.get_attribute("body", "data-md-color-scheme") == scheme:
            found[scheme] = page.evaluate(VIOLATIONS, rules)
    return found

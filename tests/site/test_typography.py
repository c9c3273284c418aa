"""Chinese lines, as a browser breaks them: none begins with a mark, no title is cut in a word."""

import re
from itertools import pairwise

import pytest
from drawn import few_now
from mhsite.engines import with_mkdocs
from test_site import PAGES, address

# Which formulas have the mark behind them on another line; the lines of the title.
LINES = """() => {
    for (const details of document.querySelectorAll('details')) details.open = true
    const alone = []
    let seen = 0
    for (const formula of document.querySelectorAll('article p .katex')) {
        const next = formula.nextSibling
        const mark = next?.nodeType === 3 && next.data.match(/^\\u2060?([，。：；、！？）」])/)
        const parts = [...formula.querySelectorAll('.katex-base')]
        if (!mark || !parts.length || !formula.getClientRects().length) continue
        // One of several parts may be wider than a phone; it is left as it is.
        const tex = formula.querySelector('annotation').textContent
        if (parts.length > 1 && tex.length > 24) continue
        seen += 1
        const range = document.createRange()
        range.setStart(next, mark[0].length - 1)
        range.setEnd(next, mark[0].length)
        const end = [...parts.at(-1).getClientRects()].at(-1)
        if (range.getBoundingClientRect().left < end.right - 3)
            alone.push(formula.textContent.slice(-12) + mark[1])
    }
    const title = document.querySelector('article h1')
    title.querySelectorAll('.headerlink').forEach(link => link.remove())
    const texts = document.createTreeWalker(title, NodeFilter.SHOW_TEXT)
    const lines = ['']
    let top = null
    while (texts.nextNode()) {
        for (let i = 0; i < texts.currentNode.length; i++) {
            const range = document.createRange()
            range.setStart(texts.currentNode, i)
            range.setEnd(texts.currentNode, i + 1)
            const box = range.getBoundingClientRect()
            if (box.height && top !== null && box.top > top + 5) lines.push('')
            if (box.height) top = box.top
            lines[lines.length - 1] += texts.currentNode.data[i]
        }
    }
    return { seen, alone, lines }
}"""


def cut(title, lines):
    """Where lines of a title end within a word, or the next begins with a mark."""
    whole = "".join(lines)
    marked = with_mkdocs.BREAK.sub("|", title)
    places, at = set(), 0
    for sign in marked:
        if sign == "|":
            places.add(at)
        else:
            at += 1
    faults, end = [], 0
    for line, following in pairwise(lines):
        end += len(line)
        within = re.search("[一-鿿]$", line) and re.match("[一-鿿]", following)
        if re.match("[，。：；、！？）]", following) or (within and end not in places):
            faults.append(f"{line}/{following}")
    assert whole == title
    return faults


def test_a_title_that_is_cut_is_seen():
    title = "为什么需要多个注意力头"
    assert cut(title, ["为什么需要多个", "注意力头"]) == []
    assert cut(title, ["为什么需要多个注意", "力头"]) == ["为什么需要多个注意/力头"]
    assert cut("不同吗？多样性", ["不同吗", "？多样性"]) == ["不同吗/？多样性"]


def some(number):
    """A tenth of the pages."""
    return PAGES[number::10]


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("tenth", few_now(range(10), 1, of="typography", name=str))
def test_no_line_begins_with_a_mark_and_no_title_is_cut(open_page, tenth, width):
    faults, seen = {}, 0
    page = open_page("zh/", viewport={"width": width, "height": 800})
    start = page.url
    for name in some(tenth):
        page.goto(start + address("zh", name).removeprefix("zh/"))
        page.evaluate("document.fonts.ready.then(() => 1)")
        found = page.evaluate(LINES)
        seen += found["seen"]
        why = found["alone"] + cut("".join(found["lines"]), found["lines"])
        faults |= {name: why} if why else {}
    assert faults == {}
    assert seen > 0, "no formula has a mark behind it"

"""Every figure, as a phone shows it: its letters can be read, and its axes have names."""

import io
import re
from itertools import combinations

import axes
import matplotlib.pyplot as plt
import pytest
from mhsite.stories import runner
from mhsite.stories.svg import site_svg
from test_site import SIDES, address, each_side, html
from visits import each_visit

LEAST = 9  # CSS pixels of letters at 360 px
EDGE = 2  # CSS pixels that a text's box, which is larger than its letters, may stand out
WORD = {"en": re.compile(r"[a-z]{3}"), "zh": re.compile(r"[a-z]{3}|[一-鿿]")}
PLACE = {
    "en": re.compile(r"\b(left|right|middle|above|below|top|bottom|upper|lower)", re.I),
    "zh": re.compile(r"左|右|[上下中][图排面方]|中间"),
}
# Pages whose figures still have axes named by a symbol or not at all; this list only shrinks.
OWED = set()


def crossing(one, other):
    """Do two texts stand on one another? Boxes are higher than letters, so a part is left out."""
    pads = [min(0.36 * text["size"], 6) for text in (one, other)]
    wide = min(pad if text["turned"] else 1 for pad, text in zip(pads, (one, other), strict=True))
    high = min(1 if text["turned"] else pad for pad, text in zip(pads, (one, other), strict=True))
    (left, top, right, bottom), (start, above, end, below) = one["box"], other["box"]
    return min(right, end) - max(left, start) > wide and min(bottom, below) - max(top, above) > high


def faults(figure):
    """What a reader of a figure at 360 px would stumble over."""
    left, top, right, bottom = figure["box"]
    for text in figure["texts"]:
        (start, above, end, below), words = text["box"], text["words"]
        if min(start - left, above - top, right - end, bottom - below) < -EDGE:
            yield f"outside: {words}"
        if text["size"] < LEAST:
            yield f"{text['size']:.1f} px: {words}"
    for one, other in combinations(figure["texts"], 2):
        if one["words"] != other["words"] and crossing(one, other):
            yield f"{one['words']} on {other['words']}"


def said(language, drawn, caption):
    """What an SVG, with the caption below it, does not say of its axes, panels and maps."""
    found, texts = axes.read(drawn)
    for axis in axes.unnamed(found, texts):
        yield f"no name: {axis.kind} {' '.join(axis.labels)}"
    for axis in found:
        beside = " ".join(axes.names(axis, found, texts))
        if axis.is_numeric and beside and not WORD[language].search(beside):
            yield f"no word: {axis.kind} {beside}"
    if axes.untitled(found, texts) and not PLACE[language].search(caption):
        yield "no title"


@each_visit(SIDES)
def test_figures_can_be_read_on_a_phone(visits, site, language, page):
    found, soup = visits(address(language, page))["figures"], html(site, language, page)
    replaced = soup.select("[data-widget=reading]")  # it takes the place of its figure
    shown = soup.select("article svg.mh-figure:has(text)")
    assert len(found) >= len(shown) - len(replaced)
    bad = {figure["label"][:60]: list(faults(figure)) for figure in found}
    assert {label: why for label, why in bad.items() if why} == {}


@each_side
def test_axes_panels_and_maps_are_named(site, language, page):
    bad = {}
    for figure in html(site, language, page).select("article figure:has(svg.mh-figure)"):
        drawn, caption = figure.select_one("svg.mh-figure"), figure.figcaption
        why = list(said(language, str(drawn), caption.text if caption else ""))
        bad |= {drawn["aria-label"][:60]: why} if why else {}
    assert bad == {} or page in OWED


def saved(width=4.2, **labels):
    """A plot of two panels as the site shows it."""
    written = io.StringIO()
    with plt.rc_context(runner.LOOK):
        figure, panels = plt.subplots(1, 2, figsize=(width, 2), sharey=True, layout="constrained")
        for ax, title in zip(panels, labels.pop("titles", ["one", "two"]), strict=True):
            ax.plot([1, 10, 100], [0, 1, 2])
            ax.set(title=title, xscale="log", **labels)
        panels[1].set_ylabel("")
        figure.savefig(written, format="svg")
        plt.close(figure)
    return site_svg(written.getvalue())


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({"xlabel": "length n", "ylabel": "error"}, []),
        ({"ylabel": "error"}, ["no name: x", "no name: x"]),
        ({"xlabel": "length n"}, ["no name: y"]),
        ({"xlabel": "$n$", "ylabel": "error"}, ["no word: x", "no word: x"]),
        ({"xlabel": "length n", "ylabel": "error", "titles": ["", ""]}, ["no title"]),
    ],
)
def test_what_is_missing_is_seen(labels, why):
    found = list(said("en", saved(**labels), "A caption."))
    assert [each[:10] if each[:2] == "no" and ":" in each else each for each in found] == why

"""Figures fill the column, and their letters have a size that a style sheet can change."""

import io
import re
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
from mhsite.stories import runner, svg
from mhsite.stories.source import DOCS

SPACE = "{http://www.w3.org/2000/svg}"


def drawn(width, **labels):
    """A figure as matplotlib writes it, and as the site shows it."""
    written = io.StringIO()
    with plt.rc_context(runner.LOOK):
        figure, ax = plt.subplots(figsize=(width, 2))
        ax.set(**labels)
        figure.savefig(written, format="svg")
        plt.close(figure)
    text = written.getvalue()
    return ElementTree.fromstring(text), ElementTree.fromstring(svg.site_svg(text))


@pytest.mark.parametrize(("inches", "pixels"), [(2.0, 209), (4.2, 690), (6.0, 690)])
def test_only_a_small_figure_is_narrower_than_the_column(inches, pixels):
    _, shown = drawn(inches)
    assert int(shown.get("width")) == pixels
    assert float(shown.get("viewBox").split()[2]) == pytest.approx(inches * 72, abs=0.1)
    css = (DOCS / "assets" / "site.css").read_text(encoding="utf-8")
    assert f'.mh-figure[width="{svg.COLUMN}"]' in css


def size(element, inherited):
    """The size of an element's letters, from its style."""
    found = re.search(r"font-size: ([\d.]+)(px|em)", element.get("style", ""))
    if found is None:
        return inherited
    return float(found[1]) * (inherited if found[2] == "em" else 1)


def letters(root, inherited):
    """Each text with the size of its letters, and where those of a formula stand."""
    for text in root.iter(f"{SPACE}text"):
        outer = size(text, inherited)
        yield (text.text or "").strip(), outer, text.get("x") and round(float(text.get("x")))
        for span in text.iter(f"{SPACE}tspan"):
            own = size(span, outer)
            places = span.get("x").split()
            yield span.text, own, [float(x.removesuffix("em")) for x in places], places[0][-2:]


def test_letters_stand_where_matplotlib_put_them():
    before, after = drawn(4.2, title="$d_k$ and $QK^T$", xlabel="words")
    ours, theirs = list(letters(after, float(after.get("font-size")))), list(letters(before, 0))
    assert len(ours) == len(theirs) > 10
    for (text, own, at, *unit), (name, points, place, *_) in zip(ours, theirs, strict=True):
        assert text == name
        if not unit and not place:
            continue  # around a formula
        assert own == pytest.approx(points)
        if unit:
            assert unit == ["em"]
            assert [x * own for x in at] == pytest.approx(place, abs=0.15)
        else:
            assert at == place


def test_marks_of_two_colours_share_no_id():
    """A browser takes the first mark of an id on the page, be it another figure's."""
    figures = {}
    for color in ("#123456", "#654321"):
        written = io.StringIO()
        figure, ax = plt.subplots(figsize=(4.2, 2))
        ax.scatter(range(7), range(7), c=color)
        ax.plot(range(5), "o", color=color)
        figure.savefig(written, format="svg")
        plt.close(figure)
        figures[color] = ElementTree.fromstring(svg.site_svg(written.getvalue()))
    marks = {}
    for color, root in figures.items():
        looks = {mark.get("id"): mark.get("style") for mark in root.iterfind(".//{*}defs/{*}path")}
        places = [use for use in root.iter(f"{SPACE}use") if color in looks[use.get(svg.HREF)[1:]]]
        assert len(places) == 7 + 5
        assert not any(use.get("style") for use in places)
        marks[color] = {use.get(svg.HREF) for use in places}
    assert not set.intersection(*marks.values())

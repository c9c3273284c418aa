"""Figures fill the column, and their letters have a size that a style sheet can change."""

import base64
import io
import re
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
from mhsite.stories import runner, svg
from mhsite.stories.source import DOCS
from PIL import Image

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


@pytest.mark.parametrize(("shades", "fewer"), [(5, True), (256, True), (999, False)])
def test_pictures_of_few_colours_are_small_and_the_same(shades, fewer):
    written = io.StringIO()
    numbers = np.random.default_rng(0).integers(shades, size=(37, 53))
    colors = np.zeros((37, 53, 4))
    colors[..., :2] = np.stack(np.divmod(numbers, 32), axis=-1) / 32
    colors[..., 3] = 1 - numbers % 2 / 3  # half of them see-through
    figure = plt.figure(figsize=(4, 3))
    figure.add_axes((0, 0, 1, 1)).imshow(colors, interpolation="nearest")
    figure.savefig(written, format="svg")
    plt.close(figure)
    before, after = written.getvalue(), svg.site_svg(written.getvalue())
    (old, long), (new, short) = (dots(text) for text in (before, after))
    assert np.array_equal(old, new)
    assert len(np.unique(old.reshape(-1, 4), axis=0)) > min(shades, 300) / 2
    assert (short < 0.8 * long) == fewer


def dots(text):
    (image,) = ElementTree.fromstring(text).iter(f"{SPACE}image")
    data = base64.b64decode(image.get(svg.HREF).partition("base64,")[2])
    with Image.open(io.BytesIO(data)) as picture:
        return np.asarray(picture.convert("RGBA")), len(data)


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
        looks = {m.get("id"): m.get("style", "") for m in root.iterfind(".//{*}defs/{*}path")}
        places = [use for use in root.iter(f"{SPACE}use") if color in looks[use.get(svg.HREF)[1:]]]
        assert len(places) == 7 + 5
        assert not any(use.get("style") for use in places)
        marks[color] = {use.get(svg.HREF) for use in places}
    assert not set.intersection(*marks.values())

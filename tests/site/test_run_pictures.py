"""A cell that draws, run in the page: its picture says what the page's own figure says, follows a
change, and lights up under the hand, as do its tables.
"""

import pytest
from mhsite import words
from mhsite.stories.source import LANGUAGES
from test_run_cells import UNFOLD, needs_python, quiet, rewrite, settled  # noqa: F401
from test_site import address

TEXTS = """svg => [...svg.querySelectorAll("text")]
    .map(text => text.textContent.replace(/\\s/g, "")).filter(Boolean).sort()"""
FIGURES = """wanted => [...document.querySelectorAll("figure svg.mh-figure")].some(svg =>
    JSON.stringify((TEXTS)(svg)) === JSON.stringify(wanted))""".replace("TEXTS", TEXTS)
# Of each picture: its page, a piece of its code, and a change with what it changes in the picture.
DRAWN = {
    "masks.md": ("plot_weights(weights, ax=ax", ':.2f}"', ':.1f}"', ["0.02", "0.93"]),
    "by-hand.md": ("[X[:, :4], after]", 'annotate=".1f"', 'annotate=".3f"', ["1.5", "3.0"]),
}


def cell(page, code):
    return page.locator("section.highlight > pre").filter(has_text=code).first


def run(page, code):
    """Press the key of the cell with this code; the cell, and its panel when it has run."""
    pre = cell(page, code)
    key = pre.locator("button.mh-run")
    key.evaluate(UNFOLD)
    key.click()
    return pre, settled(pre)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_drawn_in_the_page(quiet, name, language):  # noqa: F811
    needs_python()
    page = quiet(address(language, name))
    code, old, new, gone = DRAWN[name]
    pre, panel = run(page, code)
    picture = panel.locator("svg.mh-figure")
    texts = picture.evaluate(TEXTS)
    assert set(gone) <= set(texts)
    assert page.evaluate(FIGURES, texts), "the page has no figure with these words and numbers"
    assert picture.get_attribute("aria-label").startswith(words.of(language, "run-output.drawn"))
    panel = rewrite(pre, old, new)
    changed = panel.locator("svg.mh-figure").evaluate(TEXTS)
    assert len(changed) == len(texts)
    assert not set(gone) & set(changed)


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_not_drawn_is_said(quiet, language):  # noqa: F811
    needs_python()
    page = quiet(address(language, "masks.md"))
    pre, _ = run(page, DRAWN["masks.md"][0])
    field = pre.locator("textarea")
    field.fill(field.input_value() + "\nax.contour(weights)")
    field.press("Control+Enter")
    panel = settled(pre)
    note = words.of(language, "run-output.undrawn").format(names="ax.contour")
    assert panel.locator(".mh-note").inner_text() == note
    assert panel.locator("svg.mh-figure").count() == 1


def test_a_new_map_lights_up_as_the_pages_own(quiet):  # noqa: F811
    needs_python()
    page = quiet("masks/")
    _, panel = run(page, DRAWN["masks.md"][0])
    own = page.locator("figure svg:has([data-grid])").first
    lines = [under(page, svg, 4, 1) for svg in (own, panel.locator("svg.mh-figure"))]
    assert lines[0] == lines[1]
    assert "0.93" in lines[1]


def under(page, svg, row, column):
    """The line below a map of six rows and columns, while the mouse is on one of its cells."""
    svg.scroll_into_view_if_needed()
    box = svg.locator("[data-grid]").first.bounding_box()
    x, y = (column + 0.5) * box["width"] / 6, (row + 0.5) * box["height"] / 6
    page.mouse.move(box["x"] + x, box["y"] + y)
    return told(svg)


def told(place):
    """What the line below a map or a table says of the cell under the mouse."""
    line = place.locator("xpath=following-sibling::output[1]")
    line.locator("span.mh-query").wait_for()
    return line.inner_text()


def test_a_new_table_lights_up_as_the_pages_own(quiet):  # noqa: F811
    """And says of a score which products it is the sum of."""
    needs_python()
    page = quiet("masks/")
    pre, _ = run(page, "print(table(hidden")
    panel = rewrite(pre, "digits=0", "digits=1")
    own = pre.locator("xpath=following-sibling::div[contains(@class, 'mh-scroll')][1]")
    lines = []
    for table, shown in (own, "4"), (panel.locator(".mh-scroll"), "4.0"):
        cell = table.locator("tbody tr").nth(4).locator("td").nth(1)
        assert cell.inner_text() == shown
        cell.hover()
        lines.append(told(table))
        assert table.locator("td.mh-row.mh-column").inner_text() == shown
    assert lines[0] == lines[1]
    assert "8·1" in lines[1]

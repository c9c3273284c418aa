"""The small widgets of the course as a reader uses them: lines that are dragged, dots, a matrix."""

import re

import pytest
import torch
from mhsite.stories.translation import shown_section
from test_site import address, each_language

MIDDLE = """line => {
    const { x, y } = line.getPointAtLength(line.getTotalLength() / 2)
        .matrixTransform(line.getScreenCTM())
    return [x, y]
}"""
AT = "each => ['cx', 'cy'].map(name => Number(each.getAttribute(name)))"
CATS, MIA, THEY = 1, 3, 4


def numbers(locator):
    return [float(text) for text in re.findall(r"\d\.\d\d", locator.inner_text())]


@each_language
def test_reader_drags_a_line_thicker_and_they_moves(open_page, language):
    """By the mouse, by keys, by a tap; each time "they" lies where its weights say."""
    page = open_page(address(language, "why-attention.md"))
    widget = page.locator("[data-widget=drag-weights]")
    widget.scroll_into_view_if_needed()
    sliders = widget.get_by_role("slider")
    said, lines = widget.locator(".mh-said"), widget.locator(".mh-line")
    dots = widget.locator("circle:not(.mh-taken, .mh-open)")
    zero, cats, mia = (
        each.evaluate(AT) for each in (widget.locator(".mh-open"), dots.first, dots.last)
    )

    def stands(weights):
        shown = [float(each.get_attribute("aria-valuenow")) for each in sliders.all()]
        assert shown == pytest.approx(weights, abs=0.0051)
        right = [weights[CATS], weights[MIA], weights[CATS], weights[0]]  # animal … dark
        assert numbers(said) == pytest.approx(right, abs=0.0051)
        place = widget.locator("circle.mh-taken").evaluate(AT)
        wanted = [
            start + weights[CATS] * (animal - start) + weights[MIA] * (person - start)
            for start, animal, person in zip(zero, cats, mia, strict=True)
        ]
        assert place == pytest.approx(wanted, abs=0.6)
        widths = [float(line.get_attribute("stroke-width")) for line in lines.all()]
        assert widths.index(max(widths)) == weights.index(max(weights))

    def thicker(word, by):
        x, y = lines.nth(word).evaluate(MIDDLE)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x, y - by, steps=5)
        page.mouse.up()

    mean, chosen = [0.2] * 5, [0, 0.9, 0, 0, 0.1]
    stands(mean)
    thicker(CATS, 42)
    cats_now = float(sliders.nth(CATS).get_attribute("aria-valuenow"))
    assert cats_now > 0.5
    rest = (1 - cats_now) / 4
    stands([rest, cats_now, rest, rest, rest])
    thicker(CATS, 500)  # no thicker than all
    stands([0, 1, 0, 0, 0])
    sliders.nth(CATS).press("-")  # who had nothing gets the same
    stands([0.025, 0.9, 0.025, 0.025, 0.025])
    sliders.nth(MIA).press("End")
    sliders.nth(MIA).press("+")
    stands([0, 0, 0, 1, 0])
    buttons = widget.get_by_role("button")
    buttons.nth(1).click()
    stands(chosen)
    sliders.nth(0).click()  # a tenth more: the others share nine tenths as before
    stands([0.1, 0.81, 0, 0, 0.09])
    buttons.nth(0).click()
    stands(mean)


@each_language
def test_a_finger_drags_a_line_and_the_page_stays(open_page, language):
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
    page = open_page(address(language, "why-attention.md"), **phone)
    widget = page.locator("[data-widget=drag-weights]")
    widget.scroll_into_view_if_needed()
    sliders = widget.get_by_role("slider")
    sliders.nth(CATS).tap()
    assert sliders.nth(CATS).get_attribute("aria-valuenow") == "0.30"
    x, y = widget.locator(".mh-line").nth(CATS).evaluate(MIDDLE)
    before = page.evaluate("scrollY")
    touch = page.context.new_cdp_session(page)
    steps = [("touchStart", 0), *(("touchMove", 12 * step) for step in range(1, 6))]
    for kind, by in steps:
        at = [{"x": x, "y": y - by}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert sliders.nth(CATS).get_attribute("aria-valuenow") == "0.80"
    assert page.evaluate("scrollY") == before
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def of_the_story(name, *sections):
    namespace = {}
    for section in sections:
        exec(shown_section(f"{name}.pycon:{section}").code, namespace)
    return namespace


@each_language
def test_one_head_leaves_one_answer_as_it_nears_the_other(open_page, language):
    """Softmax of both questions' scores, for each factor; two heads have a softmax each."""
    page = open_page(address(language, "why-heads.md"))
    widget = page.locator("[data-widget=two-answers]")
    widget.scroll_into_view_if_needed()
    slider, said = widget.get_by_role("slider"), widget.locator(".mh-said")
    who = torch.tensor([0.0, 4, 0, 0, 0])
    before = torch.tensor([-10.0, -2, 10, 14, 10])  # the row of they in the page's table
    first, second = who.softmax(0)[CATS], before.softmax(0)[MIA]

    def stands(factor):
        row = ((factor * who + before) / 2**0.5).softmax(0)  # its D is 8, not 4
        wanted = [factor, row[CATS], row[MIA], first, second]
        shown = [float(text) for text in re.findall(r"\d\.\d+", said.inner_text())]
        assert shown == pytest.approx([float(x) for x in wanted], abs=0.0051)
        (x, y), ends = widget.locator(".mh-one").evaluate(AT), corners()
        for d, at in enumerate((x, y)):
            there = ends[0][d] + sum(
                share.item() * (end[d] - ends[0][d])
                for share, end in zip(row[[CATS, MIA]], ends[1:], strict=True)
            )
            assert at == pytest.approx(there, abs=0.6)
        return row

    def corners():
        points = widget.locator("polygon").first.get_attribute("points").split()
        return [[float(x) for x in point.split(",")] for point in points]

    slider.wait_for()
    middle = stands(4.0)
    assert abs(middle[CATS] - middle[MIA]) < 0.01
    slider.press("ArrowRight")
    assert stands(4.1)[CATS] > middle[CATS]
    slider.press("End")
    assert stands(6.0)[MIA] < 0.01
    slider.press("Home")
    assert stands(2.0)[CATS] < 0.01
    box = slider.bounding_box()
    page.mouse.click(box["x"] + 0.75 * box["width"], box["y"] + box["height"] / 2)
    factor = float(slider.get_attribute("aria-valuetext"))
    assert 4.8 <= factor <= 5.2
    stands(factor)
    assert f"factor={factor:g}" in page.url


@each_language
def test_reader_chooses_a_word_and_a_matrix(open_page, language):
    """Every word with every matrix: the row that lights up, and the product."""
    page = open_page(address(language, "attention.md"))
    story = of_the_story("attention", "sentence", "ask", "offer")
    X, matrices = story["X"], [story[f"W_{letter}"] for letter in "qkv"]
    widget = page.locator("[data-widget=word-matrix]")
    widget.scroll_into_view_if_needed()
    words, tabs = widget.locator(".mh-words button"), widget.locator(".mh-buttons button")
    body, made = widget.locator("tbody tr"), widget.locator("tfoot tr").first.locator("td")

    def stands(word, matrix):
        W, x = matrices[matrix], X[word]
        grid = [row.split("\t") for row in body.all_inner_texts()]
        shown = [[float(c.replace("−", "-")) for c in row[1:2] + row[3:]] for row in grid]
        assert shown == [[own, *row] for own, row in zip(x.tolist(), W.tolist(), strict=True)]
        product = [float(text) for text in made.all_inner_texts()[2:]]
        assert product == (x @ W).tolist()
        lit = [i for i, row in enumerate(body.all()) if "mh-lit" in row.get_attribute("class")]
        assert lit == [i for i in range(8) if x[i] and W[i].any()]

    words.first.wait_for()
    stands(THEY, 0)
    for word in range(6):
        words.nth(word).click()
        for matrix in (1, 2, 0):
            tabs.nth(matrix).click()
            stands(word, matrix)
            pressed = widget.locator("[aria-pressed=true]")
            assert pressed.count() == 2
    assert widget.locator("tfoot th[scope=col]").count() == 4


def test_the_matrix_fits_a_phone(open_page):
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
    page = open_page("attention/", **phone)
    widget = page.locator("[data-widget=word-matrix]")
    widget.locator(".mh-words button").nth(CATS).tap()
    box, table = widget.bounding_box(), widget.locator("table").bounding_box()
    assert table["x"] + table["width"] <= box["x"] + box["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360

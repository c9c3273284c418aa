"""The small widgets of the course as a reader uses them: lines that are dragged, dots, a matrix."""

import re

import pytest
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

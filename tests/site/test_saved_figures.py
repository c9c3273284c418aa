"""A reader saves figures: what arrives stands alone, and says where it is from."""

import io
import re
from xml.etree import ElementTree

import pytest
from mhsite import words
from mhsite.pages.settings import settings
from PIL import Image
from test_site import PAGES, SIDES, address, each_language, html, source

from mhattn import COLORS

DESK = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
TEXT = "{http://www.w3.org/2000/svg}text"


def save(page, number, kind, language, tmp_path):
    """Press a figure's button as a person does; the name and the bytes of the file that comes."""
    place = page.locator(".mh-save").nth(number)
    place.scroll_into_view_if_needed()
    place.hover()
    name = words.of(language, "figures.as").format(type=kind)
    with page.expect_download() as arriving:
        place.get_by_role("button", name=name, exact=True).click()
    arriving.value.save_as(tmp_path / "saved")
    return arriving.value.suggested_filename, (tmp_path / "saved").read_bytes()


def lines(root):
    """The lines below the figure: texts of the file that are none of the figure."""
    return ["".join(text.itertext()) for text in root.findall(TEXT)]


def rgb(color):
    return "rgb({}, {}, {})".format(*bytes.fromhex(color[1:]))


@each_language
@pytest.mark.parametrize("device", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("kind", ["light", "dark"])
def test_an_svg_stands_alone_in_its_light_colours(open_page, language, device, kind, tmp_path):
    there = address(language, "masks.md")
    page = open_page(there, color_scheme=kind, **device)
    name, saved = save(page, 1, "SVG", language, tmp_path)
    assert name == "masks-hide.svg"
    text = saved.decode("utf-8")
    assert not re.search(r"var\(|currentcolor|class=|data-|mh-quotes", text, re.I)
    root = ElementTree.fromstring(text)
    title = re.sub(r"\s*\{.*", "", source(language, "masks.md").headings[0].title).strip()
    home = settings(language)["site_url"].removesuffix("zh/")
    licence = words.of(language, "page.licence")
    assert lines(root) == [title, f"{home}{there}#hide · {licence}"]
    ground, figure = root[0], root[1]
    assert (ground.get("fill"), ground.get("width")) == ("#fff", root.get("width"))
    ours = page.locator("svg.mh-figure").nth(1)
    assert root.get("aria-label") == ours.get_attribute("aria-label")
    words_there = ours.locator("text").evaluate_all("all => all.map(each => each.textContent)")
    assert ["".join(each.itertext()) for each in figure.iter(TEXT)] == words_there
    # What the page draws in the weights' colour is in it, whatever the page's scheme is.
    drawn = ours.inner_html().count("fill: var(--mh-weights")
    assert text.count(f"fill: {rgb(COLORS['weights'])}") == drawn > 5
    # Letters are those that are seen: on a phone larger than on a desk.
    size = float(ours.evaluate("each => parseFloat(getComputedStyle(each).fontSize)"))
    assert float(figure.get("font-size")) == size


def test_a_wide_figure_has_the_letters_that_are_seen(open_page, tmp_path):
    sizes = []
    for device in (DESK, PHONE):
        page = open_page("masks/", **device)
        saved = save(page, 0, "SVG", "en", tmp_path)[1]
        sizes.append(float(ElementTree.fromstring(saved)[1].get("font-size")))
    assert sizes == [7.2, 10]


@each_language
@pytest.mark.parametrize("name", ["masks.md", "what-heads-do.md", "labs/every-head.md"])
def test_a_png_is_twice_as_large_and_not_blank(open_page, language, name, tmp_path):
    page = open_page(address(language, name), **DESK)
    _, svg = save(page, 0, "SVG", language, tmp_path)
    called, png = save(page, 0, "PNG", language, tmp_path)
    root, image = ElementTree.fromstring(svg), Image.open(io.BytesIO(png)).convert("RGB")
    assert re.fullmatch(r"[\w-]+\.png", called)
    assert image.size == (2 * int(root.get("width")), 2 * int(root.get("height")))
    assert {image.getpixel((x, y)) for x in (0, image.width - 1) for y in (0, 5)} == {(255,) * 3}
    foot = image.crop((0, image.height - 90, image.width, image.height)).convert("L")
    dark = [sum(value < 200 for value in part.tobytes()) for part in (foot, image.convert("L"))]
    assert dark[0] > 300  # the line below it
    assert dark[1] - dark[0] > 3000  # the figure


@each_language
def test_the_other_figures_of_a_page_can_be_saved_too(open_page, site, language, tmp_path):
    """All of a page, folded ones apart: names differ, each is a figure of its own."""
    page = open_page(address(language, "what-heads-do.md"), **DESK)
    count = len(html(site, language, "what-heads-do.md").select("svg.mh-figure"))
    assert page.locator(".mh-save").count() == count > 8
    saved = [save(page, number, "SVG", language, tmp_path) for number in range(count)]
    assert len({name for name, _ in saved}) == len({text for _, text in saved}) == count
    for _, text in saved:
        ElementTree.fromstring(text)
        assert b"var(" not in text


def test_keys_reach_it_and_it_is_seen_then(open_page):
    page = open_page("masks/", **DESK)
    place = page.locator(".mh-save").first
    opacity = "each => getComputedStyle(each).opacity"
    page.mouse.move(0, 0)
    assert place.evaluate(opacity) == "0"
    button = place.get_by_role("button").first
    button.focus()
    assert place.evaluate(opacity) == "1"
    with page.expect_download() as arriving:
        page.keyboard.press("Enter")
    assert arriving.value.suggested_filename == "masks-predict.svg"


def test_a_finger_finds_it(open_page):
    page = open_page("zh/masks/", is_mobile=True, **PHONE)
    for button in page.locator(".mh-save button").all():
        box = button.bounding_box()
        assert min(box["width"], box["height"]) >= 24
    assert page.locator(".mh-save").first.evaluate("each => getComputedStyle(each).opacity") == "1"


def test_nothing_is_loaded_before_and_no_widget_has_it(open_page):
    page = open_page("", **DESK)
    assert page.locator(".mh-save:visible").count() == 0  # the figure gave way to a widget
    page = open_page("masks/", **DESK)
    loaded = "performance.getEntriesByType('resource').map(each => each.name)"
    assert not any("save-figure" in name for name in page.evaluate(loaded))


def test_every_page_with_a_figure_has_the_script(site):
    for language, page in SIDES:
        made = html(site, language, page)
        script = made.select("script[src$='assets/figures.js']")
        assert len(script) == bool(made.select("svg.mh-figure")), page
    assert len(PAGES) > 90

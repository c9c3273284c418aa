"""What the road lets a reader touch says what the tensors of its stories say."""

import pytest
import torch
from mhsite.stories.source import LANGUAGES
from mhsite.stories.translation import shown_section
from test_site import address, each_language
from test_widgets import go, said_on

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}


def told_by(story, *sections, language="en"):
    """The names that sections of a story leave behind."""
    namespace = {}
    for name in sections:
        exec(shown_section(f"{story}.pycon:{name}", language).code, namespace)
    return namespace


def shown(number):
    """A number as a widget writes it: whole ones without digits."""
    number = round(float(number), 6)
    text = f"{number:.0f}" if number == int(number) else f"{number:.2f}"
    return text.replace("-", "−").replace("−0.00", "0.00")


def written(row):
    return [shown(number) for number in row.tolist()]


# The output matrix of multi-head.md.

CATS, THEY = 1, 4
PERSON_2, DARK_2 = (5, 1), (7, 3)
WRONG = [(4, 0), (5, 1), (6, 2)]  # heads added before the output matrix


def sums(widget):
    """The three rows below the squares, without their names."""
    rows = widget.locator("tfoot tr")
    return [rows.nth(row).locator("td").all_inner_texts() for row in range(3)]


def square(widget, row, column):
    return widget.locator("tbody tr").nth(row).locator("td[aria-selected]").nth(column)


@pytest.fixture(params=LANGUAGES)
def squares(request, open_page):
    """The page in one language, its squares, and what the story says of the sentence."""
    page = open_page(
        address(request.param, "multi-head.md"), viewport=dict(width=1200, height=1400)
    )
    widget = page.locator("[data-widget=output-matrix]")
    widget.locator("tfoot").wait_for()
    widget.scroll_into_view_if_needed()
    return request.param, page, widget, told_by("multi-head", "sentence", "heads", "out")


def test_squares_begin_as_the_story_has_them(squares):
    _, page, widget, story = squares
    both, W_o, X, Y = (story[name] for name in ("both", "W_o", "X", "Y"))
    chosen = {}
    for word in range(6):
        go(page, widget.locator(".mh-words button").nth(word))
        assert sums(widget) == [written(row) for row in (Y[word], X[word], (X + Y)[word])]
        strip = widget.locator("td.mh-passed").all_inner_texts()
        assert strip == written(both[word])
        chosen[word] = sums(widget)[2]
    assert len({*map(tuple, chosen.values())}) == 6
    on = widget.locator("td[aria-selected]").evaluate_all(
        "all => all.map(each => each.ariaSelected === 'true')"
    )
    assert on == W_o.bool().flatten().tolist()


def test_reader_switches_squares_and_they_becomes_a_person(squares):
    """As the page asks: person 2 of they, then dark 2 of cats, and the numbers that it says."""
    language, page, widget, story = squares
    both, W_o, X, Y = (story[name].clone() for name in ("both", "W_o", "X", "Y"))
    go(page, square(widget, *PERSON_2))
    W_o[PERSON_2] = 1
    person = shown((X + both @ W_o)[THEY, 1])
    assert sums(widget)[2][1] == person
    promised = said_on(
        language, "multi-head.md", (r"becomes a person \((.*?)\)", r"变成了人（(.*?)）")
    )
    assert promised == person != shown((X + Y)[THEY, 1])
    assert square(widget, *PERSON_2).inner_text() == shown(both[THEY, 5])
    page.wait_for_timeout(700)  # what is read out says the square and what came of it
    told = widget.get_by_role("status").inner_text()
    assert told.startswith(widget.locator("tbody th").nth(PERSON_2[0]).inner_text())
    assert told.endswith(widget.locator(".mh-said").inner_text())
    assert person in told
    go(page, widget.locator(".mh-words button").nth(CATS))
    before = sums(widget)[2][3]
    go(page, square(widget, *DARK_2))
    W_o[DARK_2] = 0
    assert sums(widget)[2] == written((X + both @ W_o)[CATS])
    pattern = r"falls from (\d\.\d\d) to (\d\.\d\d)", r"从 (\d\.\d\d) 降到 (\d\.\d\d)"
    assert said_on(language, "multi-head.md", pattern) == (before, sums(widget)[2][3])
    assert "squares=6.2%2C8.4" in page.evaluate("location.search")
    go(page, widget.locator(".md-button"))
    assert sums(widget)[2] == written((X + Y)[CATS])
    assert page.evaluate("location.search") == "?word=2"


def test_keys_reach_every_square_and_make_the_trap(squares):
    """One Tab stop; three squares more are what the page's trap computes."""
    _, page, widget, story = squares
    exec(shown_section("multi-head.pycon:sum").code, story)
    exec(shown_section("multi-head.pycon:trap").code, story)
    assert widget.locator("td[tabindex='0']").count() == 1
    widget.locator("td[tabindex='0']").focus()
    at = PERSON_2
    for row, column in WRONG:
        for key, steps in (("Down", row - at[0]), ("Right", column - at[1])):
            key = key if steps > 0 else {"Down": "Up", "Right": "Left"}[key]
            for _ in range(abs(steps)):
                page.keyboard.press(f"Arrow{key}")
        at = row, column
        page.keyboard.press(" ")
    assert square(widget, *at).evaluate("each => each === document.activeElement")
    for word in (THEY, CATS):
        widget.locator(".mh-words button").nth(word).click()
        mixed = story["X"] + story["mixed"]
        assert sums(widget)[2][:4] == written(mixed[word, :4])
    for key in ["ArrowUp"] * 9 + ["ArrowLeft"] * 9:  # no further than the corner
        widget.locator("td[tabindex='0']").press(key)
    square(widget, 0, 0).press("Enter")
    assert square(widget, 0, 0).get_attribute("aria-selected") == "false"


@each_language
def test_a_finger_switches_a_square(open_page, language):
    page = open_page(address(language, "multi-head.md"), **PHONE)
    widget = page.locator("[data-widget=output-matrix]")
    cell = square(widget, *PERSON_2)
    cell.scroll_into_view_if_needed()
    cell.tap()
    assert cell.get_attribute("aria-selected") == "true"
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    cut = "all => all.filter(each => each.scrollWidth > each.clientWidth + 1).length"
    assert widget.locator("td").evaluate_all(cut) == 0


# The split of shapes.md.

WAYS = ("right", "wrong")
MIA = 3
BOXES = """all => all.map(each => {
    const { left, top, width, height } = each.querySelector('rect').getBoundingClientRect()
    return [Number(each.dataset.number), left, top, width, height]
})"""


def sheets(numbers, way):
    """The pieces of a table (6, 8) that both heads get, (2, 6, 4)."""
    return numbers.view(2, 6, 4) if way == "wrong" else numbers.view(6, 2, 4).transpose(0, 1)


def split_by(story, way):
    """The weights of both heads, and the outputs put back into a table."""
    X, mask, W_q1, W_q2 = (story[name] for name in ("X", "mask", "W_q1", "W_q2"))
    keys, values = (
        X @ torch.cat([story["W_k1"], story["W_k2"]], 1),
        X @ torch.cat([story["W_v1"]] * 2, 1),
    )
    q, k, v = (sheets(Y, way) for Y in (X @ torch.cat([W_q1, W_q2], 1), keys, values))
    weights = (q @ k.mT / 2).masked_fill(~mask, -torch.inf).softmax(-1)
    outputs = weights @ v
    return weights, outputs.reshape(6, 8) if way == "wrong" else outputs.transpose(0, 1).reshape(
        6, 8
    )


def boxes(widget):
    """Where each number of the table stands, by its number."""
    rows = torch.tensor(widget.locator(".mh-number").evaluate_all(BOXES))
    rows = rows[rows[:, 0].argsort()]
    assert rows[:, 0].tolist() == [*range(48)]
    return rows[:, 1:3], rows[0, 3:]


def frame(widget):
    return int(widget.locator(".mh-count").inner_text()[0])


@pytest.fixture(params=LANGUAGES)
def split(request, open_page):
    size = dict(width=1200, height=1400)
    page = open_page(address(request.param, "shapes.md"), viewport=size, reduced_motion="reduce")
    widget = page.locator("[data-widget=split-heads]")
    widget.locator("svg").wait_for()
    widget.scroll_into_view_if_needed()
    return page, widget, told_by("shapes", "sentence")


@pytest.mark.parametrize("way", WAYS)
def test_numbers_of_the_split_stand_where_pytorch_puts_them(split, way):
    """Frame by frame; expected places and numbers are those of views of tensors."""
    page, widget, story = split
    widget.get_by_role("checkbox").set_checked(way == "wrong")
    next_ = widget.get_by_role("button").nth(1)
    Q = story["X"] @ torch.cat([story["W_q1"], story["W_q2"]], dim=1)
    weights, merged = split_by(story, way)
    texts = widget.locator(".mh-number text")
    order = torch.tensor(widget.locator(".mh-number").evaluate_all(BOXES))[:, 0].int().argsort()

    def numbers():
        found = texts.all_text_contents()
        return [found[i] for i in order]

    first, cell = boxes(widget)
    table = first.view(6, 8, 2)
    assert numbers() == written(Q.flatten())
    torch.testing.assert_close(table.diff(dim=1)[..., 0], cell[0].expand(6, 7))
    torch.testing.assert_close(table.diff(dim=0)[..., 1], cell[1].expand(5, 8))

    next_.click()
    table = boxes(widget)[0].view(6, 8, 2)
    gaps = table.diff(dim=1)[0, :, 0] - cell[0], table.diff(dim=0)[:, 0, 1] - cell[1]
    cut = [(gap > 1).nonzero().flatten().tolist() for gap in gaps]
    assert cut == ([[], [2]] if way == "wrong" else [[3], []])

    next_.click()
    both = boxes(widget)[0][sheets(torch.arange(48).view(6, 8), way)]
    torch.testing.assert_close(both.diff(dim=2)[..., 0], cell[0].expand(2, 6, 3))
    torch.testing.assert_close(both.diff(dim=1)[..., 1], cell[1].expand(2, 5, 4))
    (right, down) = (both[1, 0, 0] - both[0, 0, 0]).tolist()
    assert right > 0 > down
    hidden = (both[1, 3, 0] + cell / 2).tolist()  # it lies behind a number of head 1
    at = "([x, y]) => Number(document.elementFromPoint(x, y).closest('.mh-number').dataset.number)"
    assert page.evaluate(at, hidden) in sheets(torch.arange(48).view(6, 8), way)[0]

    next_.click()
    shades = "all => all.map(each => each.style.getPropertyValue('--weight'))"
    squares_of_heads = widget.locator(".mh-squares-of-heads rect")
    expected = [f"{int(100 * weight + 0.5)}%" for weight in weights.double().flatten().tolist()]
    assert squares_of_heads.evaluate_all(shades) == expected
    assert (
        widget.locator(".mh-squares-of-heads").evaluate("g => getComputedStyle(g).opacity") == "1"
    )

    next_.click()
    assert numbers() == written(merged.flatten())
    torch.testing.assert_close(boxes(widget)[0], first)
    assert (frame(widget), next_.is_disabled()) == (5, True)


def test_reader_steps_through_the_split_and_then_by_view_alone(split):
    """As the page asks, by mouse; the words beside the sheets say whose rows these are."""
    page, widget, story = split
    back, next_ = (widget.get_by_role("button").nth(place) for place in (0, 1))

    def beside():
        return [text for text in widget.locator(".mh-label").all_text_contents() if text]

    words = beside()
    assert len({*words}) == 6
    seen = [widget.locator(".mh-said").inner_text()]
    for number in range(2, 6):
        go(page, next_)
        assert frame(widget) == number
        assert beside() == (words * 2 if number in (3, 4) else words)
        seen.append(widget.locator(".mh-said").inner_text())
    weight = split_by(story, "right")[0][0, THEY, CATS]
    assert shown(weight) in seen[3]
    go(page, widget.get_by_role("checkbox"))
    for _ in range(2):
        go(page, back)
    assert frame(widget) == 3
    assert beside() == [word for word in words for _ in range(2)]
    said = widget.locator(".mh-said").inner_text()
    assert words[MIA] in said
    assert said not in seen
    assert page.evaluate("location.search") == "?frame=3&wrong=1"
    mias = sheets(torch.arange(48).view(6, 8), "wrong")[1, :2].flatten().tolist()
    marked = "all => all.map(each => Number(each.dataset.number)).sort((a, b) => a - b)"
    assert widget.locator(".mh-number.mh-marked").evaluate_all(marked) == mias
    page.wait_for_timeout(700)
    assert widget.get_by_role("status").inner_text().endswith(said)
    assert widget.get_by_role("img").get_attribute("aria-label") == said


@each_language
def test_keys_and_fingers_step_through_the_split(open_page, language):
    page = open_page(address(language, "shapes.md"), **PHONE)
    widget = page.locator("[data-widget=split-heads]")
    next_ = widget.get_by_role("button").nth(1)
    next_.scroll_into_view_if_needed()
    next_.tap()
    assert frame(widget) == 2
    for key, number in zip(
        ["ArrowRight"] * 4 + ["ArrowLeft"] * 5, [3, 4, 5, 5, 4, 3, 2, 1, 1], strict=True
    ):
        page.keyboard.press(key)
        assert frame(widget) == number
    widget.get_by_role("checkbox").focus()
    page.keyboard.press(" ")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("location.search") == "?wrong=1&frame=2"
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


# Two layers of block.md.


def layers_of(story, is_added):
    """What each layer reads, both heads' weights, and what it adds; by PyTorch's own attention."""
    X, mask, steps = story["X"], story["mask"], []
    names = ("W_q1", "W_q2"), ("W_k1", "W_k2"), ("W_v1", "W_v2")
    x = X
    for _ in range(2):
        q, k, v = (torch.stack([x @ story[name] for name in pair]) for pair in names)
        attend = torch.nn.functional.scaled_dot_product_attention
        weights = attend(q, k, torch.eye(6).expand(2, 6, 6), attn_mask=mask)
        heads = attend(q, k, v, attn_mask=mask)
        y = torch.cat([*heads], dim=-1) @ story["W_o"]
        steps.append((x, weights, y))
        x = x + y if is_added else y
    return steps


@pytest.fixture(params=LANGUAGES)
def stream(request, open_page):
    page = open_page(address(request.param, "block.md"), viewport=dict(width=1200, height=1400))
    widget = page.locator("[data-widget=residual]")
    widget.locator("table").wait_for()
    widget.scroll_into_view_if_needed()
    return page, widget, told_by("block", "sentence", "layer", "hand")


def vectors(widget):
    """The three rows of the table: before, what is added, after."""
    rows = widget.locator("tbody tr")
    return [rows.nth(row).locator("td").all_inner_texts() for row in range(3)]


def close(texts, row):
    """Do the numbers say this row? Half of the last digit, and a rounding."""
    found = torch.tensor([float(text.replace("−", "-")) for text in texts])
    torch.testing.assert_close(found, row, atol=0.0051, rtol=0)


def test_two_layers_say_what_the_layer_gives(stream):
    """Every word in both layers, with and without the residual connection."""
    _, widget, story = stream
    layers, words = widget.locator(".mh-layers button"), widget.locator(".mh-words button")
    for is_added in (True, False):
        widget.get_by_role("checkbox").set_checked(is_added)
        for layer, (x, weights, y) in enumerate(layers_of(story, is_added)):
            layers.nth(layer).click()
            for word in range(6):
                words.nth(word).click()
                after = x[word] + y[word] if is_added else y[word]
                for texts, row in zip(vectors(widget), (x[word], y[word], after), strict=True):
                    close(texts, row)
                thick = widget.locator(".mh-arcs").evaluate_all(
                    "all => all.map(arcs => [...arcs.querySelectorAll('path')]"
                    ".map(path => Number(path.getAttribute('stroke-width')) / 8))"
                )
                for arcs, row in zip(thick, weights[:, word].double(), strict=True):
                    expected = [weight for weight in row.tolist() if weight >= 0.005]
                    assert arcs == pytest.approx(expected, abs=0.002)
                head_1 = weights[0, word, : word + 1]
                assert shown(head_1.max()) in widget.locator(".mh-said").inner_text()


def test_reader_goes_to_layer_two_and_takes_the_residual_away(stream):
    """As the page asks, by mouse: dark comes to they, and then its question is gone."""
    page, widget, story = stream
    with_it, without = layers_of(story, True), layers_of(story, False)
    dark, question = 3, 5
    before = float(vectors(widget)[2][dark])
    go(page, widget.locator(".mh-layers button").nth(1))
    _, weights, _ = with_it[1]
    assert float(vectors(widget)[1][dark]) > 1 > before
    said, cats = widget.locator(".mh-said"), widget.locator(".mh-words button").nth(CATS)
    assert cats.inner_text() in said.inner_text()
    assert shown(weights[0, THEY, CATS]) in said.inner_text()
    assert vectors(widget)[2][question] == "1"
    go(page, widget.get_by_role("checkbox"))
    assert vectors(widget)[0][question] == "0"
    each = without[1][1][0, THEY, :5]
    assert (each - each[0]).abs().max() < 1e-6
    assert shown(each[0]) in said.inner_text()
    assert cats.inner_text() not in said.inner_text()
    assert page.evaluate("location.search") == "?layer=2&residual=0"
    page.wait_for_timeout(700)
    assert widget.get_by_role("status").inner_text() == said.inner_text()


@each_language
def test_keys_and_fingers_go_through_two_layers(open_page, language):
    page = open_page(address(language, "block.md"), **PHONE)
    widget = page.locator("[data-widget=residual]")
    second = widget.locator(".mh-layers button").nth(1)
    second.scroll_into_view_if_needed()
    second.tap()
    assert second.get_attribute("aria-pressed") == "true"
    page.keyboard.press("Tab")
    page.keyboard.press(" ")
    assert page.evaluate("location.search") == "?layer=2&residual=0"
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    cut = "all => all.filter(each => each.scrollWidth > each.clientWidth + 1).length"
    assert widget.locator("td").evaluate_all(cut) == 0

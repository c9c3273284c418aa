"""The widgets in a browser: they say what Python says."""

import itertools
import json
import re
from urllib.parse import urljoin

import pytest
import torch
from mhsite.pages.page import read
from mhsite.stories.source import DOCS, LANGUAGES
from mhsite.stories.translation import shown_section
from test_site import SIDES, address, each_language, html
from visits import READ, VIOLATIONS, axe, each_visit

from mhattn import MultiHeadAttention, trace
from mhattn.costs import known_accelerator, known_accelerators

NAMES = ("batch", "query_len", "key_len", "embed_dim", "num_heads", "num_kv_heads", "head_dim")
TRACE = """async ([module, grid]) => {
    const { trace, tuple } = await import(module)
    const rows = ({ name, shape, stride, of }) => [name, tuple(shape), tuple(stride), of]
    return grid.map(settings => {
        try { return trace(settings).map(rows) } catch (error) { return error.message }
    })
}"""


def trace_of(batch, query_len, key_len, embed_dim, num_heads, num_kv_heads, head_dim):
    layer = MultiHeadAttention(embed_dim, num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
    lengths = [length for length in (query_len, key_len) if length is not None]
    return trace(layer, *(torch.zeros(batch, length, embed_dim) for length in lengths))


def in_python(*settings):
    """The steps as rows, or what the error says."""
    try:
        steps = trace_of(*settings)
    except (TypeError, ValueError, RuntimeError) as error:
        return str(error)
    return [[step.name, str(step.shape), str(step.stride), step.of] for step in steps]


def settings_grid():
    """Sizes of 1 and primes, every way to leave something out, and what cannot be."""
    possible = ((1, 2), (1, 5), (None, 1, 11), (1, 23, 24), (1, 2, 6), (None, 1, 3), (None, 1, 7))
    yield from itertools.product(*possible)
    good = (2, 5, 11, 24, 6, 3, 7)
    for place, name in enumerate(NAMES):
        for bad in (0, -3, 2.5, None, 4, 10**4):
            sizes_only = name in ("batch", "query_len", "key_len")
            if (sizes_only and bad in (2.5, None)) or (bad == 10**4 and name != "num_heads"):
                continue  # torch's own words there; or a layer that is too large to build
            yield (*good[:place], bad, *good[place + 1 :])
    yield (0, 5, 0, 23, 5, None, None)  # the first thing wrong is what counts
    yield (0, 5, 0, 24, 6, None, None)
    yield (2, 5, 0, 24, 6, None, None)


@pytest.fixture
def module(home):
    return home + "assets/shape-tracer.js"


def test_shape_tracer_agrees_with_python_over_a_grid(open_page, module):
    grid = list(settings_grid())
    asked = [dict(zip(NAMES, settings, strict=True)) for settings in grid]
    answers = open_page("shapes/").evaluate(TRACE, [module, asked])
    wrong = [
        (settings, answer, expected)
        for settings, answer in zip(grid, answers, strict=True)
        if answer != (expected := in_python(*settings))
    ]
    assert wrong == []
    kinds = {type(answer) for answer in answers}
    assert kinds == {list, str}, "the grid has only possible or only impossible settings"
    assert any("merge" in row and "mix" in row for answer in answers for row in answer)


def table(page):
    rows = page.locator("[data-widget=shape-tracer] tbody tr")
    return rows.evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.innerText))")


@each_language
def test_reader_sets_sizes_and_sees_the_steps(open_page, language):
    page = open_page(address(language, "shapes.md"))
    widget = page.locator("[data-widget=shape-tracer]")
    before = table(page)
    widget.locator("summary").click()
    widget.locator("[name=strides]").check()
    for settings in ((3, 2, 13, 20, 4, 2, None), (1, 1, None, 11, 6, None, 5)):
        for name, value in zip(NAMES, settings, strict=True):
            widget.locator(f"[name={name}]").fill("" if value is None else str(value))
        steps = in_python(*settings)
        shown = [[name, shape, stride] for name, _, shape, stride, _ in table(page)]
        assert shown == [row[:3] for row in steps]
        views = [of for *_, of in steps]
        memory = [row[-1] for row in table(page)]
        own = {"en": "own", "zh": "自有"}[language]
        assert [m == own for m in memory] == [of is None for of in views]
        assert all(of in m for of, m in zip(views, memory, strict=True) if of)
        shown_line = widget.locator("p code").inner_text()
        printed = str(eval(shown_line.removeprefix("print(").removesuffix(")")))
        assert printed == str(trace_of(*settings))
    widget.locator("button").click()
    page.wait_for_timeout(50)
    assert table(page) == before


REFUSALS = {
    ("num_heads", "3"): (
        "8 numbers can’t be cut into 3 equal heads.",
        "8 个数切不成 3 个一样大的头。",
    ),
    ("num_heads", "0"): ("num_heads: 1 or more, please.", "num_heads 至少是 1。"),
    ("embed_dim", "2.5"): ("embed_dim: a whole number, please.", "embed_dim 请填整数。"),
    ("batch", "0"): ("batch: 1 or more, please.", "batch 至少是 1。"),
    ("query_len", "-3"): ("query_len: 1 or more, please.", "query_len 至少是 1。"),
}


@each_language
def test_impossible_sizes_are_refused_in_the_readers_words(open_page, language):
    """The page's own example first; the table before stays, faint, until there is another."""
    page = open_page(address(language, "shapes.md"))
    widget = page.locator("[data-widget=shape-tracer]")
    before = table(page)
    for (name, value), told in REFUSALS.items():
        widget.locator(f"[name={name}]").fill(value)
        assert widget.locator("[role=alert]").inner_text() == told[language == "zh"]
        assert table(page) == before
        assert widget.locator(".mh-old").count() == 1
        widget.locator("[type=reset]").click()
        page.wait_for_selector("[data-widget=shape-tracer] [role=alert]", state="hidden")
    assert widget.locator(".mh-old").count() == 0


def test_axes_multiply_to_the_shape(open_page, module):
    """The letters beside a shape stand for its sizes."""
    sizes = {"B": 2, "L": 5, "S": 11, "E": 23, "H": 6, "H_kv": 3, "D": 7}
    settings = dict(zip(NAMES, (2, 5, 11, 23, 6, 3, 7), strict=True))
    ask = "async ([module, settings]) => (await import(module)).trace(settings)"
    for step in open_page("shapes/").evaluate(ask, [module, settings]):
        product = []
        for axis in step["axes"].split():
            factors = [sizes[letter] for letter in axis.split("·")]
            product.append(factors[0] * (factors[1] if len(factors) > 1 else 1))
        assert product == step["shape"], step["name"]


ATTEND = """async ([module, asked]) => {
    const { attend, heads } = await import(module)
    return asked.map(([queries, keys, options]) => {
        const { weights, outputs } = attend({ queries, keys }, options)
        return [weights, outputs]
    }).concat([[heads().map(head => head.keys), heads().map(head => attend(head).weights)]])
}"""


def heads_of_the_page():
    """The keys and weights of both heads, as the story of the page computes them."""
    namespace = {}
    for name in ("sentence", "arrows", "one"):
        exec(shown_section(f"why-heads.pycon:{name}").code, namespace)
    X, matrices = namespace["X"], (namespace["W_k1"], namespace["W_k2"])
    weights = torch.stack([namespace["A1"], namespace["A2"]])
    return torch.stack([X @ matrix for matrix in matrices]), weights


def test_the_sentence_agrees_with_python(open_page, home):
    """A hundred pairs of queries and keys at random temperatures, with and without the mask."""
    torch.manual_seed(0)
    meaning = torch.zeros(6, 4, dtype=torch.float64)
    meaning[0, 3] = meaning[1, 0] = meaning[1, 2] = meaning[3, 1] = 1
    asked, expected = [], []
    for number in range(100):
        query, key = 6 * torch.randn(2, 6, 4, dtype=torch.float64)
        temperature, causal = 10 ** (4 * torch.rand(()).item() - 2), number % 2 == 0
        scores = query @ key.T / (2 * temperature)
        if causal:
            hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -torch.inf)
        weights = scores.softmax(dim=-1)
        expected.append((weights, weights @ meaning))
        options = {"temperature": temperature, "causal": causal}
        asked.append([query.tolist(), key.tolist(), options])
    page = open_page("why-heads/")
    *answers, own = page.evaluate(ATTEND, [home + "assets/sentence.js", asked])
    for answer, pair in zip(answers, expected, strict=True):
        for found, right in zip(answer, pair, strict=True):
            torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), right)
    for found, right in zip(own, heads_of_the_page(), strict=True):
        torch.testing.assert_close(torch.tensor(found, dtype=right.dtype), right)


@each_language
def test_reader_chooses_a_word_and_edits_a_query(open_page, language):
    page = open_page(address(language, "why-heads.md"))
    widget = page.locator("[data-widget=sentence]")
    first = widget.locator(".mh-weights-table").first
    chosen = first.locator("td.mh-row.mh-column")
    assert chosen.inner_text() == "0.93"  # they, cats
    chosen.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "(0·0 + 0·1 + 8·0 + 0·0) / 2 = 0" in widget.locator(".mh-sum").inner_text()
    widget.locator("fieldset").first.locator("input").nth(1).fill("10")  # asks for a person
    weights = torch.tensor([0.0, 4, 0, 5, 0]).softmax(dim=-1)
    assert chosen.inner_text() == f"{weights[3]:.2f}"
    widget.locator("[name=causal]").uncheck()
    weights = torch.tensor([0.0, 4, 0, 5, 0, 0]).softmax(dim=-1)
    assert chosen.inner_text() == f"{weights[3]:.2f}"
    widget.locator("button[type=reset]").click()
    page.wait_for_timeout(50)
    assert chosen.inner_text() == "0.93"
    widget.locator(".mh-words button").nth(1).click()
    assert first.locator("td.mh-row").all_inner_texts()[:3] == ["0.50", "0.50", "×"]


@each_language
def test_reader_lets_one_head_ask_for_something_else(open_page, language):
    page = open_page(address(language, "attention.md"))
    widget = page.locator("[data-widget=sentence]")
    row = widget.locator("td.mh-row")
    assert row.all_inner_texts() == ["0.02", "0.92", "0.02", "0.02", "0.02", "0.02"]
    assert widget.locator("[name=causal], [name=temperature]").count() == 0
    for number, value in enumerate(("0", "8", "0", "0")):  # asks for a person
        widget.locator("fieldset").first.locator("input").nth(number).fill(value)
    weights = torch.tensor([0.0, 0, 0, 4, 0, 0]).softmax(dim=-1)
    assert row.all_inner_texts() == [f"{weight:.2f}" for weight in weights]


def test_online_softmax_agrees_with_python(open_page, home):
    torch.manual_seed(0)
    rows = [(8 * torch.randn(size, dtype=torch.float64)).tolist() for size in range(1, 60)]
    ask = "async ([module, rows]) => { const m = await import(module); return rows.map(m.steps) }"
    page = open_page("online-softmax/")
    answers = page.evaluate(ask, [home + "assets/online-softmax.js", rows])
    for row, answer in zip(rows, answers, strict=True):
        for number, step in enumerate(answer, 1):
            seen = torch.tensor(row[:number], dtype=torch.float64)
            assert step["largest"] == seen.max().item()
            right = (seen - seen.max()).exp().sum()
            torch.testing.assert_close(torch.tensor(step["total"], dtype=torch.float64), right)


@each_language
def test_reader_steps_through_the_online_softmax(open_page, language):
    page = open_page(address(language, "online-softmax.md"))
    widget = page.locator("[data-widget=online-softmax]")
    rows = widget.locator("tbody tr")
    back, step = (widget.locator("button").nth(place) for place in (0, 1))
    for number in range(1, 6):
        assert rows.count() == number
        assert (back.is_disabled(), step.is_disabled()) == (number == 1, number == 5)
        if number < 5:
            step.click()
    weights = torch.tensor([1.0, 3, 2, 5, 4]).softmax(dim=-1)
    said = widget.locator(".mh-widget-result p").inner_text()
    assert [f"{weight:.4f}" for weight in weights.tolist()] == said.split(":")[1].split()
    back.click()
    assert rows.count() == 4


# Of each table and map of a page: what its numbers are, its queries and keys, and who may see whom.
GRIDS = {
    "attention": ("ask offer", [("score", "Q, K, every")]),
    "masks": (
        "",
        [
            ("shares", "ones / ones.sum(dim=-1, keepdim=True)"),
            ("score", "X @ W_q, X @ W_k, mask"),
            ("weight", "X @ W_q, X @ W_k, mask"),
            ("weight", "X @ W_q, X @ W_k, ~mask"),
        ],
    ),
    "why-heads": (
        "clock arrows both one picture",
        [
            ("map", "rows, heads"),
            ("score", "Q2, K2, every"),
            ("weight", "X @ W_q, X @ W_k, mask"),
        ],
    ),
}
WRITTEN = {
    "en": "query {}, key {}: {}|weight|score|hidden by the mask|, ",
    "zh": "查询“{}”，键“{}”：{}|注意力权重|分数|已被掩码遮住|，",
}


def two_digits(number):
    return f"{round(number, 2):g}".replace("-", "−")


def factor(number):
    return f"({two_digits(number)})" if number < 0 else two_digits(number)


def lines(language, kind, query, key, seen, words):
    """What the page should write below a grid for each of its cells, and what it lights up."""
    whole, weight, score, hidden, comma = WRITTEN[language].split("|")
    scores = (query @ key.T / query.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
    weights = scores.softmax(dim=-1)
    for i, j in itertools.product(range(len(query)), range(len(key))):
        pairs = zip(query[i].tolist(), key[j].tolist(), strict=True)
        terms = " + ".join(f"{factor(q)}·{factor(k)}" for q, k in pairs)
        result = scores[i, j].item()
        sign = "=" if abs(round(result, 2) - result) < 1e-6 else "≈"
        root = {4: "2", 8: "√8"}[query.shape[-1]]
        parts = [f"{weight} {weights[i, j]:.2f}"] if kind == "weight" else []
        total = f"{score} ({terms}) / {root} {sign} {two_digits(result)}"
        parts.append(total if seen[i, j] else hidden)
        yield [whole.format(words[i], words[j], comma.join(parts)), words[j], words[i]]


def plain_lines(language, numbers, words):
    """The same where there are no queries and keys yet."""
    form = {"en": "{}, {}: {:.2f}", "zh": "“{}”，“{}”：{:.2f}"}[language]
    for i, j in itertools.product(range(len(words)), repeat=2):
        yield [form.format(words[i], words[j], numbers[i, j]), words[j], words[i]]


def map_lines(language, numbers, rows, words):
    """The same for a map whose rows are no queries of the sentence: its numbers alone."""
    whole = WRITTEN[language].partition("|")[0]
    for i, j in itertools.product(range(len(rows)), range(len(words))):
        yield [whole.format(rows[i], words[j], f"{numbers[i, j]:.2f}"), words[j], rows[i]]


@each_visit([(language, f"{name}.md") for language in LANGUAGES for name in GRIDS])
def test_every_cell_of_the_road_says_what_python_says(visits, language, page):
    name = page.removesuffix(".md")
    sections, grids = GRIDS[name]
    namespace = {}
    for section in ("sentence", *sections.split()):
        exec(shown_section(f"{name}.pycon:{section}", language).code, namespace)
    every = torch.ones(6, 6, dtype=torch.bool)
    namespace |= {"every": every, "ones": every.tril(), "mask": every.tril()}
    words = namespace["words"]
    found = visits(address(language, page))["cells"]
    for (kind, expression), cells in zip(grids, found, strict=True):
        value = eval(expression, namespace)
        if kind == "shares":
            said = plain_lines(language, value, words)
        elif kind == "map":
            said = map_lines(language, *value, words)
        else:
            said = lines(language, kind, *value, words)
        assert [cell for row in cells for cell in row] == list(said)


def with_grids(site):
    return [side for side in SIDES if html(site, *side).select("[data-grid]")]


def test_only_pages_with_grids_load_their_script(site):
    scripts = {side: len(html(site, *side).select("script[src$='grids.js']")) for side in SIDES}
    gridded = with_grids(site)
    assert scripts == {side: int(side in gridded) for side in SIDES}
    pages = {page for _, page in gridded}
    assert pages > {"attention.md", "masks.md", "why-heads.md", "build-and-train.md"}


@each_visit(SIDES)
def test_every_cell_of_the_site_has_a_query_and_a_key(visits, site, language, page):
    """Each row of a grid has its words, each column its own."""
    wrong, found = {}, visits(address(language, page))["cells"]
    assert len(found) == len(html(site, language, page).select("[data-grid]"))
    for number, rows in enumerate(found):
        keys = [[key for _, key, _ in row] for row in rows]
        queries = [{query for _, _, query in row} for row in rows]
        same = all(row == keys[0] for row in keys) and all(len(row) == 1 for row in queries)
        said = all(query in line and key in line for row in rows for line, key, query in row)
        if not (same and said and all(keys[0])):
            wrong[number] = rows[0]
    assert wrong == {}


def test_a_table_is_one_tab_stop_that_arrow_keys_move_in(open_page):
    page = open_page("attention/")
    table = page.locator("table[data-grid]")
    line = page.locator(".mh-scroll:has([data-grid]) + .mh-cell")
    assert line.inner_text() == "Point at a cell or tap it; arrow keys work too."
    assert page.locator(".mh-scroll:has([data-grid])[tabindex]").count() == 0
    stop = table.locator("[tabindex]")
    stop.focus()
    for key in 4 * ["ArrowDown"] + ["ArrowRight", "ArrowUp", "ArrowDown"]:
        page.keyboard.press(key)
    assert stop.count() == 1
    assert stop.evaluate("each => each === document.activeElement")
    assert line.inner_text() == "query they, key cats: score (0·1 + 0·0 + 8·1 + 0·0) / 2 = 4"
    assert table.locator("td.mh-row").count() == table.locator("td.mh-column").count() == 6
    for key in 9 * ["ArrowDown"] + 9 * ["ArrowRight"]:
        page.keyboard.press(key)
    assert line.inner_text().startswith("query purr, key purr: ")


def test_a_figure_is_one_tab_stop_that_arrow_keys_move_in(open_page):
    page = open_page("masks/")
    figure = page.locator("svg:has([data-grid])")
    line = page.locator("svg:has([data-grid]) + .mh-cell")
    page.locator("table[data-grid] [tabindex]").nth(1).focus()  # the table above it
    for _ in range(9):
        page.keyboard.press("Tab")
        if figure.evaluate("each => each === document.activeElement"):
            break
    assert line.inner_text().startswith("query black, key black: weight 1.00,")
    for key in 4 * ["ArrowDown"] + ["ArrowRight"]:
        page.keyboard.press(key)
    assert line.inner_text().startswith("query they, key cats: weight 0.93,")


def test_arrow_keys_lead_from_a_map_to_the_next(open_page):
    page = open_page("build-and-train/")
    page.locator("svg:has([data-grid])").first.focus()
    line = page.locator("svg:has([data-grid]) + .mh-cell").first
    maps = page.evaluate("[...document.querySelectorAll('[data-grid]')].map(e => e.dataset.grid)")
    first, second, *_ = (json.loads(each)["numbers"][1] for each in maps)
    letters = len(first)
    page.keyboard.press("ArrowDown")
    for _ in range(letters - 1):
        page.keyboard.press("ArrowRight")
    assert line.inner_text() == f"query f, key !: {first[-1]}"
    page.keyboard.press("ArrowRight")
    assert line.inner_text() == f"query f, key O: {second[0]}"
    page.keyboard.press("ArrowLeft")
    assert line.inner_text() == f"query f, key !: {first[-1]}"


@each_language
def test_a_finger_chooses_cells_on_a_phone(open_page, language):
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
    page = open_page(address(language, "masks.md"), **phone)
    page.locator("table[data-grid]").nth(1).locator("tbody tr").nth(4).locator("td").nth(1).tap()
    sums = "(0·1 + 0·0 + 8·1 + 0·0) / 2 = 4"
    assert page.locator(".mh-scroll + .mh-cell").nth(1).inner_text().endswith(sums)
    cells = page.locator("svg [data-grid]")
    cells.scroll_into_view_if_needed()
    place = cells.bounding_box()  # a triangle of colour, as large as the map
    page.touchscreen.tap(
        place["x"] + place["width"] * 1.5 / 6, place["y"] + place["height"] * 4.5 / 6
    )
    assert sums in page.locator("svg + .mh-cell").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("system", ["light", "dark"])
def test_axe_finds_nothing_serious_in_what_is_lit(open_page, system):
    page = open_page("why-heads/", color_scheme=system)
    page.evaluate(READ)
    assert page.locator("th.mh-row").count() == page.locator("th.mh-column").count() == 2
    page.evaluate(axe())
    assert page.evaluate(VIOLATIONS, {}) == []


def test_on_paper_and_without_scripts_there_is_no_line(open_page):
    page = open_page("masks/")
    assert page.locator(".mh-cell").count() == 4
    page.emulate_media(media="print")
    assert not any(line.is_visible() for line in page.locator(".mh-cell").all())
    page = open_page("masks/", java_script_enabled=False)
    assert page.locator(".mh-cell").count() == 0
    assert page.locator(".mh-scroll[tabindex='0'] table[data-grid]").count() == 3


# As a person does it: with the mouse moving on its way, with keys, with a finger.

FIELDS = "fieldset:nth-of-type(1) input"


def middle(locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def go(page, locator):
    """The mouse goes there in a straight line, through all that lies between, and clicks."""
    page.mouse.move(*middle(locator), steps=40)
    page.mouse.down()
    page.mouse.up()


def said_on(language, page, pattern):
    """A number that the prose of a page promises."""
    text = (DOCS / language / page).read_text(encoding="utf-8")
    (found,) = re.findall(pattern[language == "zh"], text)
    return found


PERSON = r"Mia\* gets (0\.\d\d)", r"“米娅”得到 (0\.\d\d)"
LEGENDS = {
    "attention.md": ("query of they", "“它们”的查询"),
    "why-heads.md": ("head 1: query of they", "头 1：“它们”的查询"),
}


@pytest.mark.parametrize("name", LEGENDS)
@each_language
def test_what_is_edited_is_what_was_chosen(open_page, language, name):
    """They is clicked, the mouse crosses the tables to its fields, and 4 is typed at person."""
    page = open_page(address(language, name), viewport={"width": 1200, "height": 1400})
    widget = page.locator("[data-widget=sentence]")
    widget.scroll_into_view_if_needed()
    fields, legend = widget.locator(FIELDS), widget.locator("legend").first
    go(page, widget.locator(".mh-words button").nth(1))  # another word, and back
    go(page, widget.locator(".mh-words button").nth(4))
    for number, value in ((1, "4"), (0, "0"), (2, "0")):
        go(page, fields.nth(number))
        page.keyboard.press("Control+A")
        page.keyboard.type(value)
    assert legend.inner_text() == LEGENDS[name][language == "zh"]
    promised = said_on(language, name, PERSON)
    assert widget.locator("td[aria-selected=true]").inner_text() == promised
    sum_ = widget.locator(".mh-sum").inner_text()
    assert "(0·0 + 4·1 + 0·0 + 0·0) / 2 = 2" in sum_
    assert sum_.endswith(promised)


@each_language
def test_a_larger_number_and_a_lower_temperature_make_it_surer(open_page, language):
    """Why-heads asks what gives her 0.9, then for a lower temperature and the later words."""
    page = open_page(address(language, "why-heads.md"))
    widget = page.locator("[data-widget=sentence]")
    cell = widget.locator("td[aria-selected=true]")
    for number, value in enumerate(("0", "7", "0")):
        widget.locator(FIELDS).nth(number).fill(value)
    assert round(float(cell.inner_text()), 1) == 0.9
    slider = widget.get_by_role("slider", name=re.compile("temperature|温度"))
    slider.focus()
    for _ in range(6):
        page.keyboard.press("ArrowLeft")
    assert float(slider.get_attribute("aria-valuetext")) < 1
    assert float(cell.inner_text()) > 0.95
    purr = widget.locator("table").first.locator("tbody tr").nth(4).locator("td").nth(5)
    slider.evaluate("each => { each.value = 1; each.form.dispatchEvent(new Event('input')) }")
    assert purr.inner_text() == "×"
    widget.locator("[name=causal]").click()
    assert float(purr.inner_text()) > 0


@each_language
def test_half_of_the_query_is_less_sure(open_page, language):
    page = open_page(address(language, "attention.md"))
    widget = page.locator("[data-widget=sentence]")
    cell = widget.locator("td[aria-selected=true]")
    before = float(cell.inner_text())
    widget.locator(FIELDS).nth(2).fill("4")
    weights = torch.tensor([0.0, 2, 0, 0, 0, 0]).softmax(dim=-1)
    assert cell.inner_text() == f"{weights[1]:.2f}" != f"{before:.2f}"


@each_language
def test_reader_hides_and_shows_the_later_words(open_page, language):
    """On masks.md: unchecked, all rows change but the last; love then takes from all words."""
    page = open_page(address(language, "masks.md"))
    widget = page.locator("[data-widget=sentence]")
    rows = widget.locator("tbody").first.locator("tr")
    before = rows.all_inner_texts()
    go_to = widget.locator("[name=causal]")
    go_to.scroll_into_view_if_needed()
    go(page, go_to)
    after = rows.all_inner_texts()
    assert [a != b for a, b in zip(before, after, strict=True)] == [True] * 5 + [False]
    go(page, widget.locator(".mh-words button").nth(2))
    assert widget.locator("td.mh-row").all_inner_texts() == ["0.17"] * 6
    go(page, go_to)
    assert widget.locator("td.mh-row").all_inner_texts() == ["0.33"] * 3 + ["×"] * 3


def test_pointing_shows_a_sum_and_leaving_restores_what_was_chosen(open_page):
    page = open_page("why-heads/", viewport={"width": 1200, "height": 1400})
    widget = page.locator("[data-widget=sentence]")
    widget.scroll_into_view_if_needed()
    sum_, legends = widget.locator(".mh-sum"), widget.locator("legend")
    before = sum_.inner_text(), legends.all_inner_texts()
    cell = widget.locator("table").nth(1).locator("tbody tr").nth(3).locator("td").nth(2)
    page.mouse.move(*middle(cell), steps=20)
    assert sum_.inner_text().startswith("head 2, query Mia, key love: ")
    assert legends.all_inner_texts() == before[1]
    page.mouse.wheel(0, 60)  # what lies below a resting mouse is chosen by nobody
    page.wait_for_timeout(200)
    assert legends.all_inner_texts() == before[1]
    page.mouse.move(5, 5, steps=20)
    assert sum_.inner_text() == before[0]
    go(page, cell)
    page.mouse.move(5, 5, steps=20)
    assert legends.first.inner_text() == "head 2: query of Mia"


@each_language
def test_a_finger_chooses_a_cell_of_the_sentence(open_page, language):
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
    page = open_page(address(language, "why-heads.md"), **phone)
    widget = page.locator("[data-widget=sentence]")
    cell = widget.locator("table").first.locator("tbody tr").nth(4).locator("td").nth(3)
    cell.tap()
    assert cell.get_attribute("aria-selected") == "true"
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_table_shows_again_what_was_chosen_when_the_mouse_has_gone(open_page):
    page = open_page("attention/")
    table, line = page.locator("table[data-grid]"), page.locator(".mh-scroll + .mh-cell")
    cells = table.locator("tbody tr").nth(4).locator("td")
    cells.first.scroll_into_view_if_needed()
    hint = line.inner_text()
    page.mouse.move(*middle(cells.nth(1)), steps=10)
    assert line.inner_text().startswith("query they, key cats: ")
    page.mouse.move(5, 300, steps=10)
    assert line.inner_text() == hint
    assert table.locator(".mh-row, .mh-column").count() == 0
    go(page, cells.nth(1))
    page.mouse.move(*middle(cells.nth(3)), steps=10)
    assert line.inner_text().startswith("query they, key Mia: ")
    page.mouse.move(5, 300, steps=10)
    assert line.inner_text().startswith("query they, key cats: ")


def test_a_map_shows_again_what_was_chosen_when_the_mouse_has_gone(open_page):
    page = open_page("masks/")
    line, map_ = page.locator("svg + .mh-cell"), page.locator("svg [data-grid]")
    map_.scroll_into_view_if_needed()
    box = map_.bounding_box()
    at = [
        (box["x"] + box["width"] * (j + 0.5) / 6, box["y"] + box["height"] * 4.5 / 6)
        for j in (1, 3)
    ]
    page.mouse.click(*at[0])
    page.mouse.move(*at[1], steps=10)
    assert line.inner_text().startswith("query they, key Mia: ")
    page.mouse.move(5, 300, steps=10)
    assert line.inner_text().startswith("query they, key cats: ")


# The picture of the home page.

PRESSED = """() => [...document.querySelectorAll('[data-widget=reading] .mh-words button')]
    .findIndex(each => each.ariaPressed === 'true')"""
THEY = 4


@each_language
def test_the_home_picture_plays_once_and_rests_at_they(open_page, language):
    page = open_page(address(language, "index.md"))
    widget = page.locator("[data-widget=reading]")

    def played():
        seen = []
        for _ in range(35):
            if (word := page.evaluate(PRESSED)) not in seen[-1:]:
                seen.append(word)
            page.wait_for_timeout(200)
        return seen

    first = played()
    assert first == list(range(first[0], THEY + 1))  # each once, and no further
    widget.get_by_role("button").last.click()
    assert played() == [0, 1, 2, 3, 4]


@each_language
def test_a_word_of_the_home_picture_says_its_numbers(open_page, language):
    page = open_page(address(language, "index.md"), reduced_motion="reduce")
    widget = page.locator("[data-widget=reading]")
    said, words = widget.get_by_role("status"), widget.locator(".mh-words button")
    assert page.evaluate(PRESSED) == THEY  # nothing moves
    assert widget.locator(".md-button").count() == 0
    for word, best in ((THEY, (1, 3)), (1, (0, 0))):
        words.nth(word).click()
        weights = heads_of_the_page()[1][:, word]
        assert said.get_attribute("aria-live") == "polite"
        for row, key in zip(weights, best, strict=True):
            assert f"{row[: word + 1].max():.2f}" in said.inner_text()
            assert row.argmax() == key or row[0] == row[1]
        assert words.nth(best[1]).inner_text() in said.inner_text()
    page.reload()
    assert page.evaluate(PRESSED) == 1
    figures = [b for b in read(DOCS / language / "index.md").walk() if b.kind == "figure"]
    assert widget.get_attribute("aria-label") == figures[0].title
    assert page.get_by_role("group", name=figures[0].title).count() == 1


@each_language
def test_reader_drags_through_the_birth_of_a_head(open_page, language):
    """Keys, then the mouse: each step says what the page's story wrote, and its tables too."""
    page = open_page(address(language, "build-and-train.md"))
    url = urljoin(page.url, "../data/build-and-train/birth.json")
    data = page.request.get(url).json()
    widget = page.locator("[data-widget=birth]")
    widget.scroll_into_view_if_needed()
    slider = widget.get_by_role("slider")
    count = len(data["steps"])

    def stands(place):
        share, shown = data["share"][place], data["maps"][place]
        below = [shown[i][i - data["back"]] for i in range(data["back"], len(shown))]
        assert sum(below) / len(below) / 100 == pytest.approx(share, abs=0.006)
        told = widget.locator(".mh-said").inner_text()
        assert {f"{data['loss'][place]:.2f}", f"{share:.2f}"} <= {*re.findall(r"\d\.\d\d", told)}
        assert widget.locator(".mh-writes b").inner_text() == data["writes"][place]
        assert str(data["steps"][place]) in re.findall(
            r"\d+", slider.get_attribute("aria-valuetext")
        )
        shades = "all => all.map(each => each.style.getPropertyValue('--weight'))"
        seen = [f"{row[j]}%" for i, row in enumerate(shown) for j in range(i + 1)]
        assert widget.locator("rect").evaluate_all(shades) == seen

    stands(0)
    slider.focus()
    for key, place in (
        ("ArrowRight", 1),
        ("End", count - 1),
        ("ArrowLeft", count - 2),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        stands(place)
    box = slider.bounding_box()
    page.mouse.move(box["x"] + 8, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    place = int(slider.input_value())
    assert 0.5 < place / (count - 1) < 0.7
    stands(place)
    assert f"step={data['steps'][place]}" in page.evaluate("location.search")
    knob = box["x"] + 8 + (box["width"] - 16) * place / (count - 1)
    dot = widget.locator("circle").bounding_box()
    assert abs(dot["x"] + dot["width"] / 2 - knob) < 4  # the curve's dot stands above it
    cells = [cell.strip() for cell in page.locator("table.mh-output td").all_inner_texts()]
    assert sum(text in cells for text in data["writes"]) >= 5


# Which kernel takes a call.

COLUMNS = {  # of the table in docs/data, by the name that the widget asks for
    "mask": "mask",
    "bias gradient": "biasGradient",
    "window": "window",
    "cap": "cap",
    "sink": "sink",
    "groups": "groups",
    "size of V": "sizeOfV",
    "backward": "backward",
    "lengths": "packed",
    "lse": "lse",
}


def kernels():
    """By kernel: the entry of each property, as the table in docs/data has it."""
    found = {}
    lines = (DOCS / "data" / "texts" / "kernels.tsv").read_text(encoding="utf-8").splitlines()
    for line in lines[1:]:
        kernel, name, entry, *_ = line.split("\t")
        found.setdefault(kernel, {})[name] = entry
    return found


def runs_on(said, capability):
    """Whether a kernel of which the table says this runs on a GPU of this capability, in tenths."""
    if said in ("✓", "Triton"):
        return True
    spans = []
    for part in said.replace(" ", "").split(","):
        low, _, high = part.partition("–")
        tenths = [
            int(end.replace(".x", ".0").rstrip("+").replace(".", "")) for end in (low, high or low)
        ]
        open_end = 999 if part.endswith("+") else tenths[1] + (9 if part.endswith(".x") else 0)
        spans.append((tenths[0], open_end))
    return any(low <= capability <= high for low, high in spans)


def refused(row, capability, bits, wants):
    """What a kernel refuses of a call."""
    learns = "backward" in wants
    kinds = [kind.strip() for kind in row["bits"].split(",")]
    found = {"capability"} if not runs_on(row["capability"], capability) else set()
    if bits not in kinds and (learns or f"{bits}→" not in kinds):
        found.add("bits")
    for name in wants:
        entry = row[name]
        if entry == "–" or (entry.endswith("→") and learns):
            found.add(COLUMNS[name])
        elif name == "backward" and entry[0].isdigit() and not runs_on(entry, capability):
            found.add("backward")
    return sorted(found)


ASK_KERNELS = """async ([module, calls]) => {
    const { takes, rowsOf } = await import(module)
    const words = row => [...row.cells].map(cell => cell.textContent.trim())
    const cells = table => [...table.tBodies[0].rows].map(words)
    const shown = [...document.querySelectorAll('article table.mh-output')].map(cells)
    const rows = rowsOf(shown.filter(lines => lines[0][0] === 'MATH' && lines.length > 6))
    return calls.map(call => Object.fromEntries(Object.entries(rows).map(
        ([kernel, row]) => [kernel, takes(row, call).hinders.sort()])))
}"""


@each_language
def test_which_kernel_takes_a_call_agrees_with_the_table(open_page, home, language):
    table, page = kernels(), open_page(address(language, "kernels.md"))
    wanted = [wants for n in (0, 1, 2) for wants in itertools.combinations(COLUMNS, n)]
    grid = list(itertools.product((70, 75, 80, 86, 89, 90, 100, 120), ("16", "32", "8"), wanted))
    calls = [
        {"capability": tenths / 10, "bits": bits, "wants": [COLUMNS[want] for want in wants]}
        for tenths, bits, wants in grid
    ]
    prefix = home + ("zh/" if language == "zh" else "")
    answers = page.evaluate(ASK_KERNELS, [prefix + "assets/which-kernel.js", calls])
    for asked, answer in zip(grid, answers, strict=True):
        assert answer == {kernel: refused(row, *asked) for kernel, row in table.items()}, asked
    assert {len(answer["FLASH"]) for answer in answers} > {0, 1, 2}


@each_language
def test_a_reader_asks_which_kernel_takes_a_mask_and_groups(open_page, language):
    """As the page says below: a mask and groups leave cuDNN or the formula."""
    page = open_page(address(language, "kernels.md"))
    there(page, "kernels.md")
    widget = page.locator("[data-widget=which-kernel]")
    for name in ("mask", "groups"):
        widget.locator(f"[name={name}]").check()
    takers = widget.locator("tr:not(.mh-off) th[scope=row]").all_inner_texts()
    assert [name for name in takers if name.isupper()] == ["MATH", "CUDNN"]
    widget.locator("[name=gpu]").select_option("7.5")
    left = widget.locator("tr:not(.mh-off) th[scope=row]").all_inner_texts()
    assert left == ["MATH", "flex_attention", "xFormers"]  # xFormers shares keys forwards only
    widget.locator("[name=backward]").check()
    left = widget.locator("tr:not(.mh-off) th[scope=row]").all_inner_texts()
    assert left == ["MATH", "flex_attention"]


# One attention on the roof of a device.

KV_HEADS = {"MHA": 128, "GQA-8": 8, "MQA": 1}


def least(kind, queries, tokens, chip):
    """FLOPs, FLOPs a byte and seconds, with every number counted: 128 heads, two bytes a number."""
    if kind == "MLA":  # a row of 576 numbers, of which 512 are the value; heads as wide
        flops, numbers = 2 * queries * tokens * 128 * (576 + 512), tokens * 576
        numbers += queries * 128 * (576 + 512)
    else:
        flops = 2 * queries * tokens * 128 * (128 + 128)
        numbers = 2 * tokens * KV_HEADS[kind] * 128 + 2 * queries * 128 * 128
    moved = 2 * numbers
    return flops, flops / moved, max(flops / chip.flops, moved / chip.bandwidth)


def test_the_roof_agrees_with_what_is_counted(open_page, home):
    ask = """async ([module, calls]) => {
        const { bound } = await import(module)
        return calls.map(([kind, queries, tokens, chip]) => bound(kind, queries, tokens, chip))
    }"""
    chips = [known_accelerator(name) for name in known_accelerators()]
    grid = itertools.product((*KV_HEADS, "MLA"), (1, 2, 7, 4096), (4096, 131_072), chips)
    calls = [
        ([kind, queries, tokens, {"flops": chip.flops, "bandwidth": chip.bandwidth}], chip)
        for kind, queries, tokens, chip in grid
    ]
    page = open_page("roofline/")
    found = page.evaluate(ask, [home + "assets/roof.js", [call for call, _ in calls]])
    for ((kind, queries, tokens, _), chip), each in zip(calls, found, strict=True):
        flops, intensity, seconds = least(kind, queries, tokens, chip)
        assert each["flops"] == flops
        assert each["intensity"] == pytest.approx(intensity, rel=1e-12)
        assert each["seconds"] == pytest.approx(seconds, rel=1e-12)
        assert each["share"] == pytest.approx(flops / seconds / chip.flops, rel=1e-12)


@each_language
def test_a_reader_drags_until_arithmetic_limits(open_page, language):
    """With keys: MQA takes four new tokens on an H100, MLA one on an H200, as the page says."""
    page = open_page(address(language, "roofline.md"))
    there(page, "roofline.md")
    widget = page.locator("[data-widget=roof]")
    said = widget.locator(".mh-widget-result")
    above = {"en": "above the ridge", "zh": "高于脊点"}[language]
    widget.locator("[name=kind]").select_option("MQA")
    slider = widget.locator("[name=queries]")
    slider.focus()
    steps = 0
    while above not in said.inner_text():
        page.keyboard.press("ArrowRight")
        steps += 1
    assert steps == 2
    widget.locator("[name=kind]").select_option("MLA")
    page.keyboard.press("Home")
    slider.focus()
    page.keyboard.press("Home")
    assert above not in said.inner_text()
    widget.locator("[name=device]").select_option("h200")
    assert above in said.inner_text()


# Every widget.

WIDGETS = {
    "index.md": ("reading", "live-model"),
    "why-attention.md": ("drag-weights",),
    "attention.md": ("word-matrix", "sentence"),
    "masks.md": ("sentence",),
    "why-heads.md": ("two-answers", "sentence"),
    "multi-head.md": ("output-matrix",),
    "shapes.md": ("shape-tracer", "split-heads"),
    "build-and-train.md": ("birth",),
    "block.md": ("residual",),
    "online-softmax.md": ("online-softmax",),
    "kernels.md": ("which-kernel",),
    "roofline.md": ("roof",),
    "known-models.md": ("atlas",),
    "live-model.md": ("live-model",),
    "browse-heads.md": ("browse-heads",),
}
each_page_with_widgets = pytest.mark.parametrize("name", WIDGETS)


def there(page, name):
    """Wait until the widgets of a page stand."""
    for widget in WIDGETS[name]:
        place = page.locator(f"[data-widget={widget}]")
        place.scroll_into_view_if_needed()
        ready = {
            "multi-head.md": "td[aria-selected]",
            "build-and-train.md": "input",
            "live-model.md": ".mh-map-top span",
            "browse-heads.md": ".mh-tokens button",
            "two-answers": "input",
            "which-kernel": "input",
            "roof": "input",
        }
        place.locator(ready.get(widget, ready.get(name, "button"))).first.wait_for()


@each_page_with_widgets
@each_language
def test_without_scripts_there_is_a_picture(open_page, language, name):
    page = open_page(address(language, name), java_script_enabled=False)
    for widget in WIDGETS[name]:
        if widget == "reading":  # there the figure stays
            assert page.locator("figure svg").first.is_visible()
            continue
        picture = page.locator(f"[data-widget={widget}] img")
        picture.scroll_into_view_if_needed()
        assert picture.get_attribute("alt")
        assert picture.bounding_box()["height"] > 60
        answer = page.request.get(urljoin(page.url, picture.get_attribute("src")))
        assert answer.ok
        assert b"<svg" in answer.body()


SMALL = """() => [...document.querySelectorAll(
    '.mh-widget :is(button, input, select, textarea, summary, td[aria-selected])')]
    .filter(each => each.checkVisibility())
    .map(each => each.type === 'checkbox' ? each.closest('label') : each)
    .map(each => [each.getBoundingClientRect(), each])
    .filter(([{ width, height }]) => width < 23.9 || height < 23.9)
    .map(([{ width, height }, each]) => `${width} x ${height}: ${each.outerHTML.slice(0, 90)}`)"""
LIVE_TABLES = ":is([aria-live=polite], [role=status], output):has(table)"


@each_page_with_widgets
def test_widgets_are_for_fingers_and_ears(open_page, name):
    """Targets of 24 px on a phone; what is read out are sentences; all that is set has a name."""
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
    page = open_page(address("en", name), **phone)
    there(page, name)
    assert page.evaluate(SMALL) == []
    assert page.locator(f".mh-widget {LIVE_TABLES}").count() == 0
    for role in ("slider", "spinbutton", "checkbox", "combobox", "textbox", "grid"):
        every = page.locator(".mh-widget").get_by_role(role)
        named = page.locator(".mh-widget").get_by_role(role, name=re.compile(r"\w"))
        assert every.count() == named.count(), role


# What a reader does on a page, what then stands there, and whether the other language shows it too.
DONE = {
    "index.md": (
        "each => each.querySelectorAll('[data-widget=reading] .mh-words button')[1].click()",
        PRESSED,
    ),
    "why-attention.md": (
        "each => each.querySelectorAll('[data-widget=drag-weights] button')[1].click()",
        "() => [...document.querySelectorAll('.mh-line-words b')].map(e => e.textContent)",
    ),
    "attention.md": (
        "each => { type(each.querySelectorAll('fieldset input')[1], 3);"
        " each.querySelectorAll('[data-widget=word-matrix] button')[1].click();"
        " each.querySelectorAll('[data-widget=word-matrix] button')[7].click() }",
        "() => [...document.querySelectorAll('.mh-weights-table td, .mh-product td')]"
        ".map(e => e.textContent)",
    ),
    "why-heads.md": (
        "each => { each.querySelectorAll('td[aria-selected]')[50].click();"
        " type(each.querySelectorAll('fieldset input')[0], 2);"
        " type(each.querySelector('[name=temperature]'), 0.5);"
        " type(each.querySelector('[name=factor]'), 7) }",
        "() => [...document.querySelectorAll('.mh-weights-table td, input')]"
        ".map(e => e.value ?? e.textContent)",
    ),
    "multi-head.md": (
        "each => { each.querySelectorAll('.mh-words button')[1].click();"
        " each.querySelectorAll('td[aria-selected]')[41].click() }",
        "() => [...document.querySelectorAll('.mh-squares td')].map(e => e.textContent)",
    ),
    "shapes.md": (
        "each => { type(each.querySelector('[name=num_heads]'), 4);"
        " type(each.querySelector('[name=num_kv_heads]'), 2);"
        " document.querySelector('[name=wrong]').click();"
        " document.querySelectorAll('[data-widget=split-heads] button')[1].click() }",
        "() => [...document.querySelectorAll('[data-widget] td:nth-child(3), .mh-number')]"
        ".map(e => e.style.transform || e.textContent)",
    ),
    "build-and-train.md": (
        "each => type(each.querySelector('[type=range]'), 5)",
        "() => document.querySelector('[data-widget=birth] input').ariaValueText.match(/\\d+/)[0]",
    ),
    "block.md": (
        "each => { each.querySelectorAll('.mh-layers button')[1].click();"
        " each.querySelector('[name=residual]').click() }",
        "() => [...document.querySelectorAll('.mh-stream td')].map(e => e.textContent)",
    ),
    "online-softmax.md": (
        "each => { type(each.querySelectorAll('fieldset input')[0], 9);"
        " each.querySelectorAll('.mh-buttons button')[1].click() }",
        "() => [...document.querySelectorAll('[data-widget] td')].map(e => e.textContent)",
    ),
    "kernels.md": (
        "each => each.querySelector('[data-widget=which-kernel] [name=groups]').click()",
        "() => [...document.querySelectorAll('[data-widget] :checked')]"
        ".map(e => e.name || e.value)",
    ),
    "roofline.md": (
        "each => type(each.querySelector('[data-widget=roof] [name=queries]'), '3')",
        "() => [...document.querySelectorAll('[data-widget] :is(select, input, b)')]"
        ".map(e => e.value || e.textContent)",
    ),
    "known-models.md": (
        "each => type(each.querySelector('[data-widget=atlas] select[name=two]'), 'kolibri-1')",
        "() => [...document.querySelectorAll('.mh-atlas-name b')].map(e => e.textContent)",
    ),
    "live-model.md": (
        "each => each.querySelector(\"[name='head-1.2']\").click()",
        "() => [...document.querySelectorAll('[type=checkbox]')].map(e => [e.name, e.checked])",
    ),
}
TYPE = """() => { window.type = (field, text) => {
    field.value = text
    for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind, { bubbles: true }))
} }"""


@pytest.mark.parametrize("name", DONE)
def test_the_address_keeps_the_state_and_the_other_language_shows_it(open_page, home, name):
    act, state = DONE[name]
    page = open_page(address("en", name), reduced_motion="reduce")
    there(page, name)
    before = page.evaluate(state)
    page.evaluate(TYPE)
    page.locator("article").evaluate(
        act if name != "index.md" else act.replace("each.", "document.")
    )
    after = page.evaluate(state)
    assert after != before
    page.reload()
    there(page, name)
    assert page.evaluate(state) == after
    page.evaluate("location.hash = '#now'")
    page.locator("a.mh-language").click()
    page.wait_for_url(lambda url: url.startswith(home + address("zh", name)))
    there(page, name)
    assert page.evaluate(state) == after
    assert page.url.endswith("#now")
    page.locator("a.mh-language").click()
    page.wait_for_url(lambda url: "/zh/" not in url)
    there(page, name)
    assert page.evaluate(state) == after


@pytest.mark.parametrize("name", ["attention.md", "why-heads.md", "shapes.md", "online-softmax.md"])
@each_language
def test_an_empty_field_keeps_the_last_result(open_page, language, name):
    page = open_page(address(language, name))
    there(page, name)
    widget = page.locator("[data-widget]:has([type=number])")
    numbers = "each => [...each.querySelectorAll('td')].map(e => e.textContent)"
    before = widget.evaluate(numbers)
    fields = widget.locator("input[type=number]:visible")
    for number in range(fields.count()):
        fields.nth(number).fill("")
        assert widget.evaluate(numbers) == before
        assert not re.search("undefined|None|NaN|null", widget.inner_text())


def test_a_sentence_is_read_out_once_when_the_reader_pauses(open_page):
    page = open_page("why-heads/")
    widget = page.locator("[data-widget=sentence]")
    told = widget.locator(".mh-told")
    changes = "window.said = 0; new MutationObserver(() => said++).observe("
    told_in = "document.querySelector('[data-widget=sentence] .mh-told')"
    page.evaluate(f"{changes}{told_in}, {{ childList: true }})")
    page.wait_for_timeout(800)
    assert told.inner_text() == ""  # nothing before a reader does something
    widget.locator(FIELDS).nth(1).press_sequentially("12345", delay=50)
    page.wait_for_timeout(900)
    assert page.evaluate("said") == 1
    assert told.inner_text() == widget.locator(".mh-sum").inner_text()

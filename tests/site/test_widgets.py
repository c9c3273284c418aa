"""The widgets in a browser: they say what Python says."""

import itertools

import pytest
import torch
from test_site import address, each_language

from mhattn import MultiHeadAttention
from mhattn.tracing import trace

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


@each_language
def test_impossible_sizes_say_what_python_says(open_page, language):
    page = open_page(address(language, "shapes.md"))
    widget = page.locator("[data-widget=shape-tracer]")
    for name, value in (("head_dim", ""), ("num_kv_heads", ""), ("num_heads", "5")):
        widget.locator(f"[name={name}]").fill(value)
    said = widget.locator("[role=alert]").inner_text()
    assert said == in_python(2, 5, None, 23, 5, None, None)
    assert widget.locator("table").count() == 0


def test_without_scripts_the_widget_says_so(open_page):
    page = open_page("shapes/", java_script_enabled=False)
    assert page.locator("[data-widget]").inner_text() == "This needs JavaScript."


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

"""Cells: what a story's section becomes on a page."""

import pytest
import torch
from bs4 import BeautifulSoup
from mhsite.beside import notebook
from mhsite.pages import cells
from mhsite.pages.page import page_paths, read
from mhsite.stories.source import DOCS, LANGUAGES, Section

from mhattn import table


def soup(text, path):
    section = Section(path / "a.pycon", "one", 1, text)
    return BeautifulSoup(cells.shown(section, "en"), "html.parser")


def test_a_cell_ends_where_something_was_printed(tmp_path):
    text = (
        ">>> _ = f(1)\n>>> for i in x:\n...     _ = g(i)\n>>> print(2)\n2\n"
        ">>> def h():\n...     pass\n>>> h()\n"
    )
    found = soup(text, tmp_path).section.find_all(recursive=False)
    assert [piece.text for piece in found] == [
        "f(1)\nfor i in x:\n    g(i)\nprint(2)",
        "2",
        "def h():\n    pass\n\nh()",
    ]
    assert [piece.get("class") for piece in found] == [None, ["mh-output"], None]


@pytest.mark.parametrize("language", LANGUAGES)
def test_code_of_stories_fits_66_columns(language):
    """As pages show it; a Chinese character is as wide as 1.66 others."""
    pages = (read(DOCS / language / path) for path in page_paths(language))
    sections = {b.section for page in pages for b in page.walk() if b.kind == "include"}
    shown = (cells.text(section) for section in sections if section.is_story)
    lines = [line for code in shown for line in code.split("\n")]
    assert len(lines) > 5000
    wide = {line: sum(1.66 if ord(letter) > 0x2E80 else 1 for letter in line) for line in lines}
    assert [line for line, width in wide.items() if width > 66] == []


def test_few_elements():
    code = "a.b(c, [d, 1], e=-2.5) if f else 'g' + \"h\"  # i"
    assert cells._highlighted(code) == (
        'a.b(c, [d, <span class="m">1</span>], e=-<span class="m">2.5</span>) '
        '<span class="k">if</span> f <span class="k">else</span> <span class="s">\'g\'</span> + '
        '<span class="s">"h"</span>  <span class="c"># i</span>'
    )


def test_a_printed_table_is_a_table(tmp_path):
    numbers = torch.tensor([[0.25, 0.75], [1.0, 0.0]])
    text = table(numbers, rows=["the", "<b>"], columns=["x", "y"])
    shown = soup(f">>> print(t)\n{text}\n", tmp_path)
    made = shown.select_one(".mh-scroll[tabindex='0'] > table.mh-output")
    assert [th.text for th in made.select("thead th[scope=col]")] == ["x", "y"]
    assert [th.text for th in made.select("tbody th[scope=row]")] == ["the", "<b>"]
    rows = [[float(td.text) for td in row.select("td")] for row in made.select("tbody tr")]
    assert rows == numbers.tolist()
    assert len(made.select("thead td")) == 1
    assert shown.select("pre.mh-output") == []
    bare = soup(f">>> print(t)\n{table(numbers)}\n", tmp_path)
    assert [th.text for th in bare.select("th")] == ["0", "1"]
    assert len(bare.select("td")) == 4


def test_a_lab_shows_each_table_that_a_cell_prints():
    numbers = table(torch.eye(2), rows=["x", "y"])
    text = f"before\n{numbers}\n\n{numbers}\nafter\n"
    made = BeautifulSoup(cells._outputs(text), "html.parser")
    kinds = [piece["class"][0] for piece in made.find_all(recursive=False)]
    assert kinds == ["mh-output", "mh-scroll", "mh-scroll", "mh-output"]
    assert [pre.text for pre in made.select("pre")] == ["before", "after"]
    assert cells._outputs("") == ""


@pytest.mark.parametrize("text", ["| a | b |", "| a |\n| - |\n", "x\n| a |\n|---|\n| 1 |", "a | b"])
def test_other_outputs_stay_text(tmp_path, text):
    shown = soup(f">>> print(t)\n{text}\n", tmp_path)
    assert shown.select("table") == []
    assert shown.select_one("pre.mh-output").text == text.rstrip("\n")


@pytest.mark.parametrize(
    ("line", "focus"),
    [("x" * 36, None), ("x" * 37, "0"), ("春" * 18, None), ("春" * 18 + "x", "0")],
)
def test_keys_reach_an_output_that_may_scroll(tmp_path, line, focus):
    """What scrolls in a browser is a stop of the keys: test_access.py sees that none lacks it."""
    shown = soup(f">>> print(t)\nshort\n{line}\n", tmp_path)
    assert shown.select_one("pre.mh-output").get("tabindex") == focus


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("1.5 " * 10, ["mh-output", "mh-rows"]),
        ("step      shape         stride           memory", ["mh-output", "mh-rows"]),
        ("1.5 " * 9, ["mh-output"]),  # fits a phone
        ("an error whose message is longer than a phone is wide", ["mh-output"]),
    ],
)
def test_rows_of_columns_are_not_folded(tmp_path, line, kinds):
    shown = soup(f">>> print(t)\n{line.strip()}\n{line.strip()}\n", tmp_path)
    assert shown.select_one("pre.mh-output").get("class") == kinds


@pytest.mark.parametrize(
    ("code", "quiet"),
    [
        ("x = 1", "x = 1"),
        ("print(x)", "print(x)"),
        ("f(x)  # é", "f(x);  # é"),
        ("'é' + f(\n    x\n)  # (L, D)", "'é' + f(\n    x\n);  # (L, D)"),
        ("for i in x:\n    f(i)", "for i in x:\n    f(i)"),
    ],
)
def test_a_notebook_shows_only_what_is_printed(code, quiet):
    assert notebook._quiet(code) == quiet

"""Figures of Chinese notebooks, scripts and copied code have their letters on a reader's machine.

The site's own figures are SVG, whose text the browser draws with its own fonts.
"""

import json
import subprocess
import sys

import pytest
from mhsite.beside import notebook
from mhsite.pages import cells
from mhsite.pages.page import read
from mhsite.stories.source import DOCS

from mhattn.show import use_chinese_font

# One of each kind: pyplot, only a plot of ours, a lab.
pytestmark = pytest.mark.usefixtures("nothing_runs")
PAGES = ["masks", "masks-in-practice", "labs/see-order"]
DRAW = """
import matplotlib.pyplot as plt
assert plt.get_fignums(), "nothing was drawn"
for number in plt.get_fignums():
    plt.figure(number).canvas.draw()
"""
SHOW = "ignore:FigureCanvasAgg is non-interactive"  # plt.show() without a window


def page_of(name):
    return read(DOCS / "zh" / f"{name}.md")


def notebook_code(name):
    made = json.loads(notebook.notebook(page_of(name), "https://host/"))
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    return "\n".join("".join(cell["source"]) for cell in code if cell["id"] != "install")


def script_code(name):
    return notebook.script(page_of(name), "https://host/")


@pytest.mark.parametrize("code_of", [notebook_code, script_code])
@pytest.mark.parametrize("name", PAGES)
def test_no_letter_is_a_box(name, code_of, tmp_path, monkeypatch):
    if use_chinese_font() is None:
        pytest.skip("no Chinese font is installed")
    monkeypatch.setenv("MPLBACKEND", "agg")
    command = [sys.executable, "-W", "error", "-W", SHOW, "-"]
    done = subprocess.run(
        command, input=code_of(name) + DRAW, cwd=tmp_path, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("code", "finds"),
    [
        ("import matplotlib.pyplot as plt\n", True),
        ("from matplotlib import pyplot as plt\n", True),
        ("import torch\nfrom mhattn import plot_weights, table\n", True),
        ("from mhattn.show import (\n    COLORS,\n    plot_heads,\n)\n", True),
        ("import torch\nfrom mhattn import causal_mask\n", False),
        ("# import matplotlib.pyplot\n", False),
    ],
)
def test_the_font_is_looked_for_before_the_first_figure(code, finds):
    before, font, _ = cells.taken_away(code, "zh").partition(cells.CHINESE_FONT)
    assert bool(font) == finds
    assert "plt" not in before or not finds
    assert cells.taken_away(code, "en") == code


def test_every_chinese_page_that_draws_looks_for_one():
    lacking = []
    for path in sorted((DOCS / "zh").rglob("*.md")):
        page = read(path)
        code = script_code(path.relative_to(DOCS / "zh").with_suffix("").as_posix())
        if "plt." in code and page.has_code and cells.CHINESE_FONT not in code:
            lacking.append(page.name)
    assert lacking == []

"""In a page: which tables and maps light up under the hand, and what their cells are made of.

What is made of which vectors is found as the build does it: by the same functions, which the build
puts here (`mhsite.stories.grids`).
"""

import json
import re
from html import escape

import matplotlib
import torch

from mhattn.show import tables

KEYS = QUERY = ZERO = LONGEST = made_of = None  # the build puts its own here

names = {}  # what the page's code has under its names when the cell ends
shown = []  # the tables with headings on both sides since `start`
_write = tables.table


class Grid:
    """Numbers with their headings; of a table, its text as well."""

    def __init__(self, numbers, rows, columns, text="", annotate=None):
        self.numbers, self.text, self.annotate = _floats(numbers), text, annotate
        self.rows, self.columns = list(map(str, rows)), list(map(str, columns))

    def attribute(self):
        """What docs/assets/grids.js reads of a map."""
        if not all(re.fullmatch(r"[^$]+", name) for name in self.rows + self.columns):
            return ""
        about = made_of(self, names) | {"shape": [len(self.rows), len(self.columns)]}
        if self.numbers.numel():
            form = self.annotate or ".2f"
            about["numbers"] = [[format(x, form) for x in row] for row in self.numbers.tolist()]
        return f' data-grid="{escape(json.dumps(about, separators=(",", ":")))}"'


def table(numbers, rows=None, columns=None, digits=2):
    """The package's own; what it wrote is noted."""
    rows, columns = (names and [str(name) for name in names] for names in (rows, columns))
    text = _write(numbers, rows, columns, digits)
    if rows and columns:
        shown.append(Grid(numbers, rows, columns, text))
    return text


def start():
    shown.clear()
    matplotlib.start()


def taken(namespace):
    """What a cell drew since `start`, and of its tables those that light up: None, if nothing."""
    names.clear()
    names.update(namespace)
    drawn = matplotlib.taken() or {"pictures": [], "missing": []}
    lit = {}
    for grid in shown:
        about = made_of(grid, names)
        if about or set(grid.rows) <= set(grid.columns):
            lit[grid.text] = about
    names.clear()
    return drawn | {"grids": lit} if lit or any(drawn.values()) else None


def _floats(numbers):
    """Scores, weights and vectors are floats on two axes; of others nothing is looked for."""
    fits = isinstance(numbers, torch.Tensor) and numbers.is_floating_point() and numbers.ndim == 2
    return numbers.detach().double() if fits else torch.empty(0, 0)


tables.table = table

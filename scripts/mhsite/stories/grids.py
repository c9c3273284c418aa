"""Tables and maps with a row for each query and a column for each key, and what they are made of.

Who points at a cell sees its query, its key, and the sum of products that its score is
(docs/assets/grids.js). The vectors come from the story, as it has them when the section ends: `Q`
and `K`, `query` and `key`, `X @ W_q` and `X @ W_k`, with one ending (`Q2`, `K2`). They are the
grid's if their scores, or the weights that these become, are its numbers, cell by cell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from types import ModuleType

import numpy as np
import torch

from mhattn.show import plots, tables

KEYS = {"Q": "K", "q": "k", "query": "key", "W_q": "W_k"}
CELLS = re.compile(r'<g id="(grid-\d+)">.*?</g>', re.S)
CORNER = re.compile(r"[ML] ([\d.]+) ([\d.]+)")
QUERY = re.compile(rf"({'|'.join(KEYS)})(_?\d*)")
ZERO = 80  # a score that is so far below the largest has no weight that float32 can hold
LONGEST = 8  # numbers of a vector: their products have to fit below a table


@dataclass
class Grid:
    """What a story has shown, with its headings; of a table, its text as well."""

    numbers: torch.Tensor
    rows: list[str]
    columns: list[str]
    text: str = ""
    annotate: str | None = None


@contextmanager
def noted() -> Iterator[list[Grid]]:
    """A list that gets every table and map with headings on both sides that a story makes.

    While the story runs, `table` and `plot_weights` are functions that note what they were given
    and call the package's own. The package does not offer to be listened to: these two are in the
    hash of every filed run whose story draws, and a line more in them would make all of it stale.
    """
    grids: list[Grid] = []

    def table(numbers, rows=None, columns=None, digits=2):
        rows, columns = (names and [str(name) for name in names] for names in (rows, columns))
        text = write(numbers, rows, columns, digits)
        if rows and columns:
            grids.append(Grid(_floats(numbers), rows, columns, text))
        return text

    def plot_weights(weights, *, ax=None, queries=None, keys=None, annotate=None, **others):
        ax = draw(weights, ax=ax, queries=queries, keys=keys, annotate=annotate, **others)
        if queries and keys:
            ax.collections[-1].set_gid(f"grid-{len(grids)}")
            rows, columns = ([str(name) for name in names] for names in (queries, keys))
            grids.append(Grid(_floats(weights), rows, columns, annotate=annotate))
        return ax

    write, draw = tables.table, plots.plot_weights
    with _instead(tables, table), _instead(plots, plot_weights):
        yield grids


@contextmanager
def _instead(module: ModuleType, function: Callable) -> Iterator[None]:
    """Put a function into a module in place of the one that has its name.

    The doors of the package ask the module anew for each import, and `plot_heads` calls what the
    module has: all of them meet this function, whichever way a story imports it.
    """
    name = function.__name__
    own = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, own)


def _floats(numbers) -> torch.Tensor:
    """Scores, weights and vectors are floats on two axes; of others nothing is looked for."""
    if not isinstance(numbers, torch.Tensor | np.ndarray):
        return torch.empty(0, 0)
    numbers = torch.as_tensor(numbers).detach()
    is_grid = numbers.is_floating_point() and numbers.ndim == 2 and not numbers.is_meta
    return numbers.double().cpu() if is_grid else torch.empty(0, 0)


def described(grids: list[Grid], namespace: dict) -> tuple[dict[str, str], dict[str, str]]:
    """The attributes that docs/assets/grids.js reads: of tables by their texts, of maps by ids.

    A table with the same words on both sides, and a map with any, have one without vectors, too.
    """
    tables, maps = {}, {}
    for number, grid in enumerate(grids):
        about = made_of(grid, namespace)
        if grid.text:
            if about or set(grid.rows) <= set(grid.columns):
                tables[grid.text] = _attribute(about)
        elif all(re.fullmatch(r"[^$]+", name) for name in grid.rows + grid.columns):
            about["shape"] = [len(grid.rows), len(grid.columns)]
            if grid.numbers.numel():  # of a mask there are none
                form = grid.annotate or ".2f"
                about["numbers"] = [[format(x, form) for x in row] for row in grid.numbers.tolist()]
            maps[f"grid-{number}"] = _attribute(about)
    return tables, maps


def _attribute(about: dict) -> str:
    text = escape(json.dumps(about, separators=(",", ":")), quote=False).replace("'", "&#39;")
    return f" data-grid='{text}'"


def with_maps(svg: str, maps: dict[str, str]) -> str:
    """Matplotlib's SVG, where each map has its attribute, and the corners of its cells as a box."""

    def replace(cells: re.Match) -> str:
        xs, ys = zip(*(map(float, at.groups()) for at in CORNER.finditer(cells[0])), strict=True)
        box = " ".join(f"{place:.1f}" for place in (min(xs), min(ys), max(xs), max(ys)))
        return cells[0].replace(f' id="{cells[1]}"', f' data-box="{box}"{maps[cells[1]]}', 1)

    return CELLS.sub(lambda cells: replace(cells) if cells[1] in maps else cells[0], svg)


def made_of(grid: Grid, namespace: dict) -> dict:
    """The queries and keys that the numbers are made of, and the cells that are hidden, if any."""
    numbers = grid.numbers
    for query, key in _pairs(namespace):
        if len(grid.columns) == len(query) > len(grid.rows) and {*grid.rows} <= {*grid.columns}:
            query = query[[grid.columns.index(name) for name in grid.rows]]
        scores = query @ key.T / query.shape[-1] ** 0.5
        if scores.shape != numbers.shape:
            continue
        lost = scores < scores.amax(dim=-1, keepdim=True) - ZERO  # no mask needed to be zero
        for kind, hidden in ("score", numbers.isneginf()), ("weight", ~(numbers > 0) & ~lost):
            right = scores.masked_fill(hidden, -torch.inf)
            right = right.softmax(dim=-1) if kind == "weight" else right
            if not hidden.all() and torch.allclose(numbers, right, atol=1e-5, equal_nan=True):
                vectors = {"kind": kind, "queries": _plain(query), "keys": _plain(key)}
                return vectors | ({"hidden": hidden.int().tolist()} if hidden.any() else {})
    return {}


def _pairs(namespace: dict) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Queries ``(L, D)`` and keys ``(S, D)`` under the names that a story gives them."""
    for name, query in namespace.items():
        if match := QUERY.fullmatch(name):
            pair = [query, namespace.get(KEYS[match[1]] + match[2])]
            if match[1] == "W_q":
                pair = [_product(namespace.get("X"), W) for W in pair]
            query, key = map(_floats, pair)
            if 0 < query.shape[-1] == key.shape[-1] <= LONGEST:
                yield query, key


def _product(X, W) -> torch.Tensor | None:
    X, W = _floats(X), _floats(W)
    return X @ W if X.shape[-1] == len(W) else None


def _plain(vectors: torch.Tensor) -> list[list[float]]:
    """Six digits are more than a page writes, and whole numbers need no point."""
    rounded = [[float(f"{number:.6g}") for number in vector] for vector in vectors.tolist()]
    return [[int(x) if x.is_integer() else x for x in vector] for vector in rounded]

"""The figures and the page of a gallery, as texts; nothing is written here.

Used by `mhattn.show.gallery`. Matplotlib is loaded when something is drawn.
"""

import html
import io
import itertools
import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

__all__: list[str] = []  # see mhattn.show.gallery

CELL, WIDTH = 0.17, 13.0  # of a figure, in inches
SMALL, POINTS = 0.4, 24  # of a map in the overview: inches, and cells in each direction
LABELLED = 64  # so many heads have their names beside the matrix


class Layer(NamedTuple):
    """What is known of a layer; each tensor of statistics has a number for each head."""

    name: str
    weights: Tensor  # (H, L, S)
    mask: Tensor  # what its queries could see, (L, S)
    statistics: dict[str, Tensor]
    roles: list[list[str]]


def names_of_heads(layers: Sequence[Layer]) -> list[str]:
    return [f"{i}.{h}" for i, layer in enumerate(layers, 1) for h in range(1, len(layer.roles) + 1)]


def digits(number: float, places: int = 4) -> str:
    return "" if math.isnan(number) else f"{number:z.{places}f}"


def draw_layer(weights: Tensor, queries: Sequence[str], keys: Sequence[str]) -> str:
    from matplotlib.figure import Figure

    from mhattn.show.plots import plot_heads

    H, L, S = weights.shape
    beside, above = (0.3 + 0.075 * max(map(len, labels)) for labels in (queries, keys))
    width, height = max(CELL * S + beside, 1.0), CELL * L + above + 0.3
    columns = min(H, max(1, int(WIDTH / width)))
    rows = math.ceil(H / columns)
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes[H:]:
        ax.remove()
    plot_heads(weights, axes=axes[:H], queries=queries, keys=keys)
    return as_svg(figure)


def draw_overview(layers: Sequence[Layer]) -> str:
    """A column of small maps for each layer, whose number leads to it."""
    from matplotlib.figure import Figure

    from mhattn.show.plots import plot_weights

    columns, rows = len(layers), max(len(layer.weights) for layer in layers)
    L, S = (min(size, POINTS) for size in layers[0].weights.shape[-2:])
    tiles = torch.zeros(rows, L + 1, columns, S + 1)  # with a line between two maps
    for i, layer in enumerate(layers):
        small = F.adaptive_max_pool2d(layer.weights, (L, S))  # (H, L, S)
        tiles[: len(small), :L, i, :S] = small
    side = min(SMALL, WIDTH / columns)
    size = (columns * side + 0.6, rows * side + 0.6)
    ax = Figure(figsize=size, layout="constrained").subplots()
    plot_weights(tiles.flatten(2).flatten(0, 1), ax=ax, vmax=1.0)
    ax.set_aspect("auto")
    ax.hlines([h * (L + 1) - 1 for h in range(1, rows)], *ax.get_xlim(), colors="0.7", lw=0.5)
    ax.vlines([i * (S + 1) - 1 for i in range(1, columns)], *ax.get_ylim(), colors="0.7", lw=0.5)
    ax.set_xticks([i * (S + 1) + S / 2 for i in range(columns)], [*map(str, range(1, columns + 1))])
    ax.set_yticks([h * (L + 1) + L / 2 for h in range(rows)], [*map(str, range(1, rows + 1))])
    ax.set(xlabel="layer", ylabel="head")
    ax.xaxis.set_label_position("top")
    for i, label in enumerate(ax.get_xticklabels(), 1):
        label.set_url(f"#layer-{i}")
    return as_svg(ax.figure)


def draw_similarity(similarity: Tensor, heads: Sequence[str]) -> str:
    from matplotlib.figure import Figure

    from mhattn.show.plots import plot_weights

    size = max(2.5, CELL * min(len(heads), LABELLED) + 0.5)
    ax = Figure(figsize=(size, size), layout="constrained").subplots()
    labels = heads if len(heads) <= LABELLED else None
    plot_weights(similarity, ax=ax, vmax=1.0, queries=labels, keys=labels)
    return as_svg(ax.figure)


def as_svg(figure: Any) -> str:
    """Its text stays text, so any script is drawn by the reader's fonts; its cells are an image."""
    import matplotlib

    for ax in figure.axes:
        ax.title.set_fontsize(9)
        ax.tick_params(labelsize=7.5, pad=1.5)
        ax.tick_params(axis="x", labelrotation=90)
        for label in [*ax.get_xticklabels(), *ax.get_yticklabels()]:
            label.set_parse_math(False)  # a dollar is a token
        for cells in ax.collections:
            cells.set(rasterized=True, antialiased=False)
    file = io.BytesIO()
    options: Any = {"svg.fonttype": "none", "svg.hashsalt": "mhattn"}
    with matplotlib.rc_context(options), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # not in matplotlib's font
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(file, format="svg", dpi=144, transparent=True, metadata=nothing)
    return file.getvalue().decode("utf-8")


def page(
    title: str,
    text: str,
    layers: Sequence[Layer],
    drawn: Sequence[str],
    similarity: Tensor,
    matrix: str,
    overview: str,
) -> str:
    heads = names_of_heads(layers)
    shown = [
        column
        for column in layers[0].statistics
        if column.rpartition("_")[0] not in layers[0].statistics  # beside another
        and any(not layer.statistics[column].isnan().all() for layer in layers)
    ]
    sections = []
    for i, (layer, figure) in enumerate(zip(layers, drawn, strict=True), 1):
        said = " ".join(
            f"Head {h}: {', '.join(roles) or 'no role found'}."
            for h, roles in enumerate(layer.roles, 1)
        )
        alt = f"Attention maps of the {len(layer.roles)} heads of {layer.name}. {said}"
        sections.append(
            f'<section id="layer-{i}"><h2>{i}. {html.escape(layer.name)}</h2>'
            f"{in_page(figure, f'layer-{i}', alt)}{table_of(i, layer, shown)}</section>"
        )
    found = {
        role: [name for name, roles in zip(heads, all_roles(layers), strict=True) if role in roles]
        for role in shown
        if f"{role}_redrawn" in layers[0].statistics
    }
    template = Path(__file__).with_name("gallery.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        title=html.escape(title),
        text=html.escape(text),
        heads=len(heads),
        layers=len(layers),
        by_chance=f"{len(heads) / 100:.1f}",
        roles="".join(
            f'<tr><th scope="row">{role}</th><td>{len(named)}</td><td>{", ".join(named)}</td></tr>'
            for role, named in found.items()
        ),
        overview=in_page(overview, "overview", f"Small maps of all {len(heads)} heads, by layer."),
        links=" ".join(f'<a href="#layer-{i}">{i}</a>' for i in range(1, len(layers) + 1)),
        sections="\n".join(sections),
        matrix=in_page(matrix, "similarity", f"Similarity of each pair of {len(heads)} heads."),
        pairs=most_similar(similarity, heads),
    )


def most_similar(similarity: Tensor, heads: Sequence[str]) -> str:
    pairs = itertools.combinations(range(len(heads)), 2)
    best = sorted(pairs, key=lambda pair: -similarity[pair].item())[:5]
    items = [f"<li>{heads[i]} and {heads[j]}: {similarity[i, j]:.2f}</li>" for i, j in best]
    return f"<p>The most similar:</p><ul>{''.join(items)}</ul>" if items else ""


def all_roles(layers: Sequence[Layer]) -> list[list[str]]:
    return [roles for layer in layers for roles in layer.roles]


def in_page(svg: str, name: str, alt: str) -> str:
    """Inside of the page, with ids of its own."""
    inner = svg[svg.index("<svg") :]
    inner = re.sub(r"\s*<metadata>.*?</metadata>", "", inner, flags=re.S)
    inner = re.sub(r'(\bid="|url\(#|href="#(?!layer-))', rf"\g<1>{name}-", inner)
    label = html.escape(alt)
    inner = inner.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return f'<div class="wide" tabindex="0" role="group" aria-label="{name}">{inner}</div>'


def table_of(number: int, layer: Layer, shown: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{column.replace("_", " ")}</th>' for column in shown)
    rows = []
    for h, roles in enumerate(layer.roles):
        cells = []
        for column in shown:
            texts = [
                f"{what}{digits(layer.statistics[key][h].item(), 2)}"
                for key, what in ((f"{column}_even", "even "), (f"{column}_redrawn", "redrawn "))
                if key in layer.statistics
            ]
            here = digits(layer.statistics[column][h].item(), 2)
            beside = f"<small>{'<br>'.join(texts)}</small>" if here and texts else ""
            cells.append(f"<td>{here}{beside}</td>")
        first = f'<th scope="row">{number}.{h + 1}</th><td>{", ".join(roles)}</td>'
        rows.append(f"<tr>{first}{''.join(cells)}</tr>")
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="statistics of layer {number}">'
        f'<table><thead><tr><th scope="col">head</th><th scope="col">roles</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )

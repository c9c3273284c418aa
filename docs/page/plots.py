"""In a page: the package's colours, and maps of weights on what stands in for matplotlib."""

import grids
from matplotlib import pyplot as plt

__all__ = ["COLORS", "HEAD_COLORS", "NEGATIVE", "plot_heads", "plot_weights"]

COLORS = HEAD_COLORS = NEGATIVE = None  # the build puts the package's own here


def _rows(weights):
    weights = weights.tolist() if hasattr(weights, "tolist") else weights
    return [[float(number) for number in row] for row in weights]


def _largest(rows):
    return max([1.0, *(abs(number) for row in rows for number in row)])


def plot_weights(
    weights, *, ax=None, queries=None, keys=None, annotate=None, vmax=None, color=None, title=None
):
    """Draw one map, as the package's own does."""
    rows = _rows(weights)
    width = len(rows[0]) if rows else 0
    for name, labels, count in (("queries", queries, len(rows)), ("keys", keys, width)):
        if labels is not None and len(labels) != count:
            raise ValueError(f"{name} must be {count} labels, got {len(labels)}")
    if ax is None:
        _, ax = plt.subplots()
    grid = None
    if queries and keys:
        grid = grids.Grid(weights, queries, keys, annotate=annotate)
    ax.cells(rows, float(vmax or _largest(rows)), color or COLORS["weights"], NEGATIVE, grid)
    if annotate is not None:
        for i, row in enumerate(rows):
            for j, number in enumerate(row):
                ax.text(j, i, format(number, annotate), ha="center", va="center")
    ax.set(xlim=(-0.5, width - 0.5), ylim=(len(rows) - 0.5, -0.5), aspect="equal")
    ax.set_xticks([] if keys is None else range(width), keys)
    ax.set_yticks([] if queries is None else range(len(rows)), queries)
    ax.spines[:].set(visible=True, linewidth=0.4)
    ax.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    if title is not None:
        ax.set_title(title)
    return ax


def plot_heads(
    weights, *, axes=None, queries=None, keys=None, titles=None, columns=4, vmax=None, **options
):
    """Draw a map for each head, on one scale."""
    heads = [_rows(head) for head in weights]
    vmax = vmax or max(map(_largest, heads))
    if axes is None:
        columns = min(columns, len(heads))
        rows = -(-len(heads) // columns)
        size = 2.4 * columns, 2.4 * rows
        _, axes = plt.subplots(rows, columns, squeeze=False, figsize=size, layout="constrained")
        for ax in axes.flat[len(heads) :]:
            ax.remove()
        axes = axes.flat[: len(heads)]
    flat = axes.flat if hasattr(axes, "flat") else axes
    for h, (ax, head) in enumerate(zip(flat, weights, strict=True)):
        title = titles[h] if titles is not None else f"head {h + 1}"
        plot_weights(head, ax=ax, queries=queries, keys=keys, vmax=vmax, title=title, **options)
    return axes

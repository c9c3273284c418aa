"""Maps of attention weights: queries down, keys across, zero is the background.

A cell is one colour, drawn as opaque as its number is large; so zero shows the page, and a figure
reads the same in light and in dark. Nothing is saved or shown, and no global style is touched.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

__all__ = ["COLORS", "HEAD_COLORS", "NEGATIVE", "plot_heads", "plot_weights"]

COLORS = {
    "query": "#0072b2",
    "key": "#d55e00",
    "value": "#009e73",
    "weights": "#b0568d",
    "output": "#757575",
}
"""One colour for each role, after Okabe and Ito, https://jfly.uni-koeln.de/color/.

Weights and output fill cells, so black text and white text are read equally well on them: their
relative luminance is 0.18.
"""

NEGATIVE = "#a86800"
"""The colour of numbers below zero; its luminance is 0.18 too."""

HEAD_COLORS = (
    "#7755d4",
    "#90991a",
    "#d40077",
    "#4d99d6",
    "#c975a1",
    "#6f7dff",
    "#cc3311",
    "#616a9f",
)
"""For lines and blocks, one a head, and none of them a role's; the ninth head starts again.

Each has a contrast of 3 to 1 or more against white and against the dark page, and all can be told
apart in simulated protanopia and deuteranopia, the first four best.
"""


def plot_weights(
    weights: Any,
    *,
    ax: Axes | None = None,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    annotate: str | None = None,
    vmax: float | None = None,
    color: str = COLORS["weights"],
    title: str | None = None,
) -> Axes:
    """Draw one map: weights, or scores, whose negative numbers get a second colour.

    Args:
        weights: numbers ``(L, S)``: a tensor on any device and of any dtype, an array or
            nested lists.
        ax: where to draw. Default: a new figure.
        queries: a label for each row. Default: none.
        keys: a label for each column. Default: none.
        annotate: how to write each number into its cell, as ``".2f"``, or ``"z.2f"`` so
            that no zero has a sign. Default: not at all.
        vmax: the absolute value that is drawn opaque. Default: 1, or the largest if larger.
        color: of the numbers above zero.
        title: what stands above the map.

    Returns:
        The Axes that were drawn on.

    Raises:
        ValueError: weights is not ``(L, S)`` or not finite, a label is missing or one too
            many, vmax is not positive, or a number is larger.

    Examples:
        >>> ax = plot_weights([[1.0, 0.0], [0.3, 0.7]], keys=["the", "cat"], annotate=".1f")
        >>> [text.get_text() for text in ax.texts]
        ['1.0', '0.0', '0.3', '0.7']
        >>> plt.close(ax.figure)
    """
    weights = _numbers(weights, "(L, S)", 2)
    vmax = _vmax(weights, vmax)
    _check_labels("queries", queries, len(weights))
    _check_labels("keys", keys, weights.shape[1])
    if ax is None:
        _, ax = plt.subplots()
    ax.add_collection(_cells(weights, vmax, color), autolim=False)
    if annotate is not None:
        for (i, j), number in np.ndenumerate(weights):
            ax.text(j, i, format(number, annotate), ha="center", va="center")
    _frame(ax, weights.shape, queries, keys)
    if title is not None:
        ax.set_title(title)
    return ax


def plot_heads(
    weights: Any,
    *,
    axes: Sequence[Axes] | np.ndarray | None = None,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    annotate: str | None = None,
    vmax: float | None = None,
    color: str = COLORS["weights"],
) -> np.ndarray:
    """Draw a map for each head, in a grid, on one colour scale.

    Args:
        weights: numbers ``(H, L, S)``: a tensor on any device and of any dtype, an array or nested
            lists.
        axes: where to draw, one for each head. Default: a new figure.
        queries: a label for each row of every map.
        keys: a label for each column of every map.
        titles: what stands above each map. Default: ``head 1``, ``head 2``, ...
        columns: how many maps stand side by side in a new figure.
        annotate: how to write each number into its cell, as ``".2f"``, or ``"z.2f"`` so that no
            zero has a sign. Default: not at all.
        vmax: the absolute value that is drawn opaque, the same for all heads. Default: 1, or the
            largest if larger.
        color: of the numbers above zero.

    Returns:
        The Axes, an array ``(H,)``.

    Raises:
        ValueError: weights is not ``(H, L, S)`` or not finite, there are not as many axes
            or titles as heads, columns is less than 1, a label is missing or one too many, vmax
            is not positive, or a number is larger.

    Examples:
        >>> import torch
        >>> axes = plot_heads(torch.rand(3, 5, 7), columns=2)
        >>> [ax.get_title() for ax in axes]
        ['head 1', 'head 2', 'head 3']
        >>> plt.close(axes[0].figure)
    """
    weights = _numbers(weights, "(H, L, S)", 3)
    vmax = _vmax(weights, vmax)
    num_heads = len(weights)
    titles = [f"head {h + 1}" for h in range(num_heads)] if titles is None else titles
    _check_labels("titles", titles, num_heads)
    axes = _grid(num_heads, columns) if axes is None else np.asarray(axes, dtype=object).ravel()
    if len(axes) != num_heads:
        raise ValueError(f"axes must be one for each of {num_heads} heads, got {len(axes)}")
    for ax, head, title in zip(axes, weights, titles, strict=True):
        plot_weights(
            head,
            ax=ax,
            queries=queries,
            keys=keys,
            annotate=annotate,
            vmax=vmax,
            color=color,
            title=title,
        )
    return axes


def _cells(weights: np.ndarray, vmax: float, color: str) -> PolyCollection:
    """A square around each (column, row), its alpha the share of vmax."""
    # Squares, not an image: in an SVG they stay sharp at any size, and a page can tell which cell
    # is under the pointer.
    corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
    rows, columns = np.indices(weights.shape)
    squares = np.stack([columns, rows], axis=-1).reshape(-1, 1, 2) + corners
    colors = np.empty((weights.size, 4))
    colors[:, :3] = np.where(weights.reshape(-1, 1) < 0, to_rgb(NEGATIVE), to_rgb(color))
    colors[:, 3] = np.abs(weights).ravel() / vmax
    return PolyCollection(list(squares), facecolors=colors, edgecolors="none", linewidths=0)


def _frame(
    ax: Axes,
    shape: tuple[int, int],
    queries: Sequence[str] | None,
    keys: Sequence[str] | None,
) -> None:
    num_queries, num_keys = shape
    # The first query stands at the top and keys are named above, so a map is read like a table.
    ax.set(xlim=(-0.5, num_keys - 0.5), ylim=(num_queries - 0.5, -0.5), aspect="equal")
    ax.set_xticks([] if keys is None else range(num_keys), keys)
    ax.set_yticks([] if queries is None else range(num_queries), queries)
    ax.spines[:].set(visible=True, linewidth=0.4)
    ax.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)


def _grid(num_heads: int, columns: int) -> np.ndarray:
    if columns < 1:
        raise ValueError(f"columns must be at least 1, got {columns}")
    columns = min(columns, num_heads)
    rows = math.ceil(num_heads / columns)
    size = (2.4 * columns, 2.4 * rows)
    _, axes = plt.subplots(rows, columns, squeeze=False, figsize=size, layout="constrained")
    for ax in axes.flat[num_heads:]:
        ax.remove()
    return axes.ravel()[:num_heads]


def _numbers(weights: Any, shape: str, ndim: int) -> np.ndarray:
    if hasattr(weights, "detach"):
        # In float64, since NumPy knows no bfloat16.
        weights = weights.detach().double().cpu()
    numbers: np.ndarray = np.asarray(weights, dtype=float)
    if numbers.ndim != ndim or numbers.size == 0:
        raise ValueError(f"weights must be {shape} and not empty, got shape {numbers.shape}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"weights must be finite, got {numbers[~np.isfinite(numbers)][0]}")
    return numbers


def _vmax(weights: np.ndarray, vmax: float | None) -> float:
    largest = float(np.abs(weights).max())
    if vmax is None:
        # At least one, so that maps of shares have one scale, however small their numbers are.
        return max(1.0, largest)
    if not vmax > 0:
        raise ValueError(f"vmax must be positive, got {vmax}")
    if vmax < largest:
        raise ValueError(f"vmax must be at least {largest:g}, the largest number, got {vmax}")
    return vmax


def _check_labels(name: str, labels: Sequence[str] | None, number: int) -> None:
    if labels is not None and len(labels) != number:
        raise ValueError(f"{name} must be {number} labels, got {len(labels)}")

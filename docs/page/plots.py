"""In a page: the package's colours, and maps that are handed to the page instead of drawn."""

import matplotlib
from matplotlib.axes import Axes

__all__ = ["COLORS", "HEAD_COLORS", "NEGATIVE", "plot_heads", "plot_weights"]

COLORS = HEAD_COLORS = NEGATIVE = None  # the build puts the package's own here


def _rows(weights):
    weights = weights.tolist() if hasattr(weights, "tolist") else weights
    return [[float(number) for number in row] for row in weights]


def plot_weights(
    weights, *, ax=None, queries=None, keys=None, annotate=None, vmax=None, color=None, title=None
):
    """Note one map: its numbers, and what stands beside and above them."""
    rows = _rows(weights)
    for name, labels, count in (
        ("queries", queries, len(rows)),
        ("keys", keys, len(rows[0]) if rows else 0),
    ):
        if labels is not None and len(labels) != count:
            raise ValueError(f"{name} must be {count} labels, got {len(labels)}")
    largest = vmax or max([1.0, *(abs(number) for row in rows for number in row)])
    matplotlib.maps.append(
        {
            "rows": rows,
            "queries": list(map(str, queries)) if queries is not None else None,
            "keys": list(map(str, keys)) if keys is not None else None,
            "texts": [[format(x, annotate) for x in row] for row in rows] if annotate else None,
            "largest": float(largest),
            "color": color or COLORS["weights"],
            "title": title,
        }
    )
    return ax if ax is not None else Axes()


def plot_heads(weights, *, axes=None, queries=None, keys=None, titles=None, columns=4, **options):
    """Note a map for each head, on one scale."""
    heads = [_rows(head) for head in weights]
    options["vmax"] = options.get("vmax") or max(
        [1.0, *(abs(number) for head in heads for row in head for number in row)]
    )
    for h, head in enumerate(heads):
        title = titles[h] if titles is not None else f"head {h + 1}"
        plot_weights(head, queries=queries, keys=keys, title=title, **options)
    return axes if axes is not None else matplotlib.Undrawn((len(heads),))

"""Which features of a head rotary positions turn together, and weights from one order to another.

Libraries turn different pairs of a head's features. Scores don't depend on the order of features,
so weights of one library serve another once the rows of the query's and the key's projection are
reordered, head by head.
"""

from typing import Any

import torch
from torch import Tensor

from mhattn.core import checks as check

__all__ = ["reorder_pairs", "rotary_pairs"]

LAYOUTS = ("halves", "neighbours", "whole")
INTEGERS = (torch.int32, torch.int64)


# --8<-- [start:rotary_pairs]
def rotary_pairs(
    head_dim: int,
    turned: int | None = None,
    layout: str = "halves",
    *,
    end: str = "first",
    backwards: bool = False,
) -> Tensor:
    """Which features of a head turn together.

    A pair ``(i, j)`` is turned from ``i`` towards ``j``: feature ``i`` alone becomes
    ``cos`` in ``i`` and ``sin`` in ``j``.

    Args:
        head_dim: width of a head, ``D``.
        turned: how many features are turned, ``T``, even. Default: all.
        layout: ``"halves"``, feature ``i`` of the turned part with ``i + T / 2`` (GPT-NeoX,
            https://github.com/EleutherAI/gpt-neox); ``"neighbours"``, ``2 i`` with ``2 i + 1``
            (Su et al. 2021, https://arxiv.org/abs/2104.09864); ``"whole"``, ``i`` with
            ``i + D / 2`` of the whole head, as `Rotary` does with frequencies of zero.
        end: which features of the head are turned, the ``"first"`` or the ``"last"``.
        backwards: turn the other way, from ``j`` towards ``i``.

    Returns:
        ``(T / 2, 2)`` integers, the fastest pair first.

    Raises:
        TypeError: head_dim or turned is not an integer.
        ValueError: turned is odd, less than 2 or more than head_dim, layout or end is unknown,
            layout is ``"whole"`` and head_dim odd or end ``"last"``.

    Examples:
        >>> rotary_pairs(8, turned=4).tolist()
        [[0, 2], [1, 3]]
        >>> rotary_pairs(8, turned=4, layout="neighbours", end="last").tolist()
        [[4, 5], [6, 7]]
        >>> rotary_pairs(8, turned=4, layout="whole").tolist()
        [[0, 4], [1, 5]]
    """
    turned = head_dim if turned is None else turned
    check.at_least("head_dim", head_dim, 2)
    check.at_least("turned", turned, 2)
    if turned % 2 or turned > head_dim:
        raise ValueError(f"turned must be even and at most head_dim = {head_dim}, got {turned}")
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if end not in ("first", "last"):
        raise ValueError(f"end must be 'first' or 'last', got {end!r}")
    if layout == "whole" and (head_dim % 2 or end == "last"):
        rule = "layout 'whole' needs an even head_dim and end='first'"
        raise ValueError(f"{rule}, got head_dim={head_dim}, end={end!r}")
    first = torch.arange(turned // 2, device="cpu")  # (T / 2,)
    if layout == "neighbours":
        pairs = torch.stack([2 * first, 2 * first + 1], dim=1)  # (T / 2, 2)
    else:
        apart = (turned if layout == "halves" else head_dim) // 2
        pairs = torch.stack([first, first + apart], dim=1)
    pairs = pairs + (head_dim - turned if end == "last" else 0)
    return pairs.flip(1) if backwards else pairs
    # --8<-- [end:rotary_pairs]


# --8<-- [start:reorder_pairs]
def reorder_pairs(weight: Tensor, head_dim: int, source: Tensor, target: Tensor) -> Tensor:
    """Reorder the rows of a query's or key's projection for another order of rotary pairs.

    Apply it to the weight and the bias of both projections, and to what else has one number for
    each feature of a head, such as the weight of a norm of queries. Values and the output stay.
    The layer then gives the same scores where its frequencies are those of the source.

    Args:
        weight: ``(H * D, ...)``, a weight ``(H * D, E)`` or a bias ``(H * D,)``; for keys, ``H``
            is the number of key-value heads.
        head_dim: width of a head, ``D``.
        source: ``(T / 2, 2)``, the pairs that weight was trained with, as from `rotary_pairs`.
        target: ``(T / 2, 2)``, the pairs of the layer that will get it.

    Returns:
        The same shape and dtype, a copy. Features that are not turned keep their order.

    Raises:
        TypeError: weight is not a tensor, head_dim not an integer, or source or target not a
            tensor of integers.
        ValueError: head_dim does not divide the rows, source or target does not name different
            features of a head in pairs, or they differ in how many.

    Examples:
        From Llama's order in transformers to that of its authors:

        >>> halves, neighbours = (rotary_pairs(4, layout=x) for x in ("halves", "neighbours"))
        >>> reorder_pairs(torch.tensor([0.0, 1.0, 2.0, 3.0]), 4, halves, neighbours)
        tensor([0., 2., 1., 3.])
    """
    if not isinstance(weight, Tensor):
        raise TypeError(f"weight must be a tensor, got {type(weight).__name__}")
    check.at_least("head_dim", head_dim, 1)
    if weight.ndim == 0 or weight.shape[0] % head_dim:
        rule = f"head_dim must divide the rows of weight, {tuple(weight.shape)}"
        raise ValueError(f"{rule}, got {head_dim}")
    for name, pairs in (("source", source), ("target", target)):
        check_pairs(name, pairs, head_dim)
    if len(source) != len(target):
        rule = f"source and target must have as many pairs, got {len(source)} and {len(target)}"
        raise ValueError(rule)
    row = torch.empty(head_dim, dtype=torch.int64, device="cpu")  # old row of each new one
    row[with_rest(target, head_dim)] = with_rest(source, head_dim)
    heads = weight.reshape(len(weight) // head_dim, head_dim, *weight.shape[1:])  # (H, D, ...)
    return heads[:, row.to(weight.device)].flatten(0, 1)  # (H * D, ...)


def with_rest(pairs: Tensor, head_dim: int) -> Tensor:
    """All features of a head, ``(D,)``: those of the pairs, then the others in order."""
    features = pairs.flatten().tolist()
    return torch.tensor([*features, *sorted({*range(head_dim)} - {*features})], device="cpu")
    # --8<-- [end:reorder_pairs]


def check_pairs(name: str, pairs: Any, head_dim: int) -> None:
    if not isinstance(pairs, Tensor) or pairs.dtype not in INTEGERS:
        got = pairs.dtype if isinstance(pairs, Tensor) else type(pairs).__name__
        raise TypeError(f"{name} must be a tensor of integers, got {got}")
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"{name} must be (T / 2, 2), got {tuple(pairs.shape)}")
    features = pairs.flatten().tolist()
    if len({*features}) < len(features) or not all(0 <= i < head_dim for i in features):
        rule = f"{name} must name different features from 0 to {head_dim - 1}"
        raise ValueError(f"{rule}, got {pairs.tolist()}")

"""The scale of a layer whose matrices aren't found: read where its scores are made and used."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mhattn.testing.mistakes import Named, scales
from mhattn.testing.subject import Subject

__all__: list[str] = []


class _Products(TorchFunctionMode):
    """Notes what queries and keys give, and what softmax gets."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[Tensor, Tensor, Tensor]] = []
        self.scores: list[Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, result = getattr(func, "__name__", ""), func(*args, **(kwargs or {}))
        if name in ("matmul", "__matmul__", "bmm") and len(args) == 2:
            self.products.append((args[0].detach(), args[1].detach(), result.detach().clone()))
        elif name == "softmax":
            self.scores.append(args[0].detach().clone())
        return result


def scale_of(subject: Subject, inputs: list[Tensor]) -> tuple[float, int] | None:
    """What the products of queries and keys are multiplied by, and the width of a key.

    None where it can't be told: nothing is multiplied, or more is done to the scores than a scale
    and a mask.
    """
    noted = _Products()
    with noted, torch.no_grad():
        subject(*inputs)
    if len(noted.scores) != 1:
        return None
    scores = noted.scores[0].double()
    fits = [p for p in noted.products if p[2].shape == scores.shape and p[2].ndim >= 3]
    if len(fits) != 1:
        return None
    query, key, product = (x.double() for x in fits[0])
    seen = scores > -1e4  # what is hidden has the least number, or -inf
    ratios = scores[seen] / product[seen]
    scale = ratios.median().item()
    # Queries that were scaled before look like unscaled ones, and vectors of length one have
    # another scale by right.
    alone = all((x.norm(dim=d) - 1).abs().max() < 1e-3 for x, d in ((query, -1), (key, -2)))
    gap = (scores - scale * product)[seen].abs().max() / scores[seen].abs().max()
    if alone or not gap < 1e-4 or abs(scale - 1) < 1e-4:
        return None
    return scale, query.shape[-1]


def wrong_scale(subject: Subject, inputs: list[Tensor]) -> tuple[Named, float] | None:
    """A scale that is another than it should be, and what it should be."""
    read = scale_of(subject, inputs)
    if read is None:
        return None
    scale, dim = read
    right = subject.calls.scale or dim**-0.5
    if abs(scale / right - 1) < 1e-3:
        return None
    for name, other in scales(subject, right, dim).items():
        if abs(scale / other - 1) < 1e-3:
            return Named(name), right
    level = "error" if subject.calls.scale else "note"  # whoever says a scale means it
    return Named(f"scale {scale:.4g}", f"scale={scale:.4g}", level), right

"""What a layer multiplies: its scale and its weights, read where they are made and used."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mhattn.testing.mistakes import BY_KEYS, Named, scales
from mhattn.testing.subject import Subject

__all__: list[str] = []


class _Products(TorchFunctionMode):
    """Notes what queries and keys give, and what softmax gets."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[Tensor, Tensor, Tensor]] = []
        self.scores: list[Tensor] = []
        self.fused: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, result = getattr(func, "__name__", ""), func(*args, **(kwargs or {}))
        if name in ("matmul", "__matmul__", "bmm") and len(args) == 2:
            self.products.append((args[0].detach(), args[1].detach(), result.detach().clone()))
        elif name == "einsum" and len(args) == 3:
            self.products.append((args[1].detach(), args[2].detach(), result.detach().clone()))
        elif name == "softmax":
            self.scores.append(args[0].detach().clone())
        elif name == "scaled_dot_product_attention":
            self.fused.append((args, kwargs or {}))
        return result


def used_weights(subject: Subject, inputs: list[Tensor], **asked: Any) -> Tensor | None:
    """The weights that one product multiplies with the values, ``(B, H, L, S)``.

    None where there is no such product, or more than one.
    """
    noted = _Products()
    with noted, torch.no_grad():
        subject(*inputs, **asked)
    shape = (len(inputs[0]), subject.heads, inputs[0].shape[-2], inputs[1].shape[-2])
    count = math.prod(shape)
    found = [
        first.reshape(shape)
        for first, _, _ in noted.products
        if first.shape[-2:] == shape[-2:] and first.numel() == count and (first >= 0).all()
    ]
    if found or len(noted.fused) != 1:
        return found[0] if len(found) == 1 else None
    return _of_fused(*noted.fused[0])


def _of_fused(args: tuple[Any, ...], options: dict[str, Any]) -> Tensor | None:
    """The weights of PyTorch's own attention: what it gives for values that are one for one key."""
    names = ("query", "key", "value", "attn_mask")
    given = dict(zip(names, args, strict=False)) | options
    value = given["value"]
    if len(args) > 4 or value.ndim != 4 or given.get("dropout_p"):
        return None
    keys = value.shape[-2]
    one = torch.eye(keys, dtype=value.dtype, device=value.device)
    given["value"] = one.expand(*value.shape[:2], keys, keys)
    with torch.no_grad():
        return nn.functional.scaled_dot_product_attention(**given)


def largest_product(subject: Subject, inputs: list[Tensor], **asked: Any) -> float:
    """The largest number among a layer's products, that of queries and keys before the scale."""
    noted = _Products()
    with noted, torch.no_grad():
        subject(*inputs, **asked)
    made = [result for _, _, result in noted.products]
    for args, options in noted.fused:
        given = dict(zip(("query", "key"), args, strict=False)) | options
        key = given["key"].repeat_interleave(given["query"].shape[1] // given["key"].shape[1], 1)
        made.append(given["query"] @ key.mT)
    return max((x.abs().max().item() for x in made), default=math.inf)


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


def wrong_scale(subject: Subject) -> tuple[Named, float] | None:
    """A scale that is another than it should be, and what it should be."""
    read = scale_of(subject, subject.draw(6, seed=20))
    if read is None:
        return None
    scale, dim = read
    right = subject.calls.scale or dim**-0.5
    if abs(scale / right - 1) < 1e-3:
        return None
    # In another length the same number has the same name: six keys are no six heads.
    again = scale_of(subject, subject.draw(11, seed=20))
    if again and abs(again[0] / scale - 1) > 1e-3:
        by_keys = abs(scale * 6**0.5 - 1) < 1e-3 and abs(again[0] * 11**0.5 - 1) < 1e-3
        return Named(
            BY_KEYS if by_keys else f"scale {scale:.4g}, and another in longer texts"
        ), right
    for name, other in scales(subject, right, dim).items():
        if abs(scale / other - 1) < 1e-3:
            return Named(name), right
    level = "error" if subject.calls.scale else "note"  # whoever says a scale means it
    return Named(f"scale {scale:.4g}", f"scale={scale:.4g}", level), right

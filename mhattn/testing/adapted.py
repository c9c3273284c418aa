"""A layer in the form that the doctor calls, with what the doctor is told of it."""

import itertools
from typing import Any

import torch
from torch import Tensor, nn

__all__: list[str] = []


class Adapted(nn.Module):
    """A layer, what the doctor is told of it, and the same in words."""

    knows_formula = True  # what it says of scales and positions is known of a class, not guessed

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.how: dict[str, Any] = {}
        self.assumed: list[str] = []


def number(layer: nn.Module, *names: str, kind: Any = int) -> Any:
    """The first of these attributes that is a number, of the layer or of its configuration."""
    # The layer first: its configuration is that of the whole model, in which layers may differ.
    for place, name in itertools.product((layer, getattr(layer, "config", None)), names):
        try:
            value = getattr(place, name, None)
        except Exception:  # some configurations refuse what differs between layers
            continue
        # True is an int in Python, and no number of heads.
        if isinstance(value, kind) and not isinstance(value, bool):
            return value
    return None


def width_of_queries(layer: nn.Module) -> int:
    """What the projection of the queries makes of a token, for all heads, or 0."""
    linears = ((n, m) for n, m in layer.named_children() if isinstance(m, nn.Linear))
    found = [m.out_features for n, m in linears if n in ("to_q", "q_proj", "query", "q")]
    return found[0] if found else 0


def visible(
    mask: Tensor | None, length: int, keys: int, *, causal: bool, window: int | None, on: Tensor
) -> Tensor | None:
    """What each query may see, ``(B, H, L, S)`` or what broadcasts to it; None: everything."""
    seen = mask
    if causal:
        # From the lower right corner: keys of a cache are all earlier than these queries.
        triangle = torch.ones(length, keys, dtype=torch.bool, device=on.device).tril(keys - length)
        if window is not None:
            triangle = triangle.triu(keys - length - window + 1)
        seen = triangle if seen is None else seen & triangle
    if seen is None or seen.ndim == 4:
        return seen
    return seen[None, None] if seen.ndim == 2 else seen[:, None]

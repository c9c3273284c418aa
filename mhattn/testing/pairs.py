"""Which tokens a layer lets see each other, measured: one token is replaced in each sequence."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__: list[str] = []


def seen_pairs(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Of one sequence ``(L, E)``, which outputs move with which tokens, ``(L, L)``."""
    length = len(x)
    # One batch with all of them: a model is run once for it. Equal rows of a batch may be rounded
    # otherwise at another place in it, so each is compared with what stood at its own.
    before = x.expand(length, -1, -1).clone()
    after, places = before.clone(), torch.arange(length, device=x.device)
    after[places, places] = 2 * torch.randn_like(x)
    with torch.no_grad():
        one, other = layer(before), layer(after)
    gap = (one - other).abs().amax(dim=-1).T  # output i, token j
    usual = one.square().mean().sqrt().clamp(min=1e-9)
    return gap / usual > 1e-9


def is_alone(layer: Callable[[Tensor], Tensor], x: Tensor, before: Tensor) -> bool:
    """Whether the first token of ``(B, L, E)`` moves no output but its own."""
    other, rest = x.clone(), torch.ones(x.shape[:2], dtype=torch.bool)
    other[0, 0] += 1
    rest[0, 0] = False
    with torch.no_grad():
        return torch.equal(before[rest], layer(other)[rest])


def is_local(seen: Tensor) -> bool:
    """Whether who sees whom is a window on both sides or before, or parts of a text."""
    if not seen.any():
        return False
    length = len(seen)
    triangle = torch.ones_like(seen).tril()
    is_causal = not (seen & ~triangle).any()
    far = torch.arange(length, device=seen.device)
    far = (far[:, None] - far).abs()
    side = triangle if is_causal else triangle | True
    if torch.equal(seen, (far <= far[seen].max()) & side):
        return True
    # Parts: whoever sees a token sees what that token sees.
    both = seen | seen.T
    linked = (both.double() @ both.double()) > 0
    return torch.equal(linked, both) and torch.equal(seen, both & side)


def is_whole(seen: Tensor) -> bool:
    """Whether all tokens are seen, or all earlier ones."""
    return bool(seen.all()) or torch.equal(seen, torch.ones_like(seen).tril())

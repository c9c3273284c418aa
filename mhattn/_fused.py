"""Names that the layers still import from here."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mhattn import checks as check
from mhattn.functional import repeat_heads as share_heads
from mhattn.fused import four_axes

__all__ = ["allowed_and_blind", "four_axes", "share_heads"]


def allowed_and_blind(
    mask: Tensor | None, is_causal: bool, shape: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Which keys each query may see, and which queries see none: None if there can be none.

    Rows without keys are opened, so that softmax is finite; callers set their result to zero.
    """
    num_queries, num_keys = shape[-2:]
    allowed = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    if is_causal:
        allowed = allowed.tril(num_keys - num_queries)
    if mask is not None:
        check.mask(mask, shape)
        allowed = allowed & mask if is_causal else torch.atleast_2d(mask)
    elif not is_causal or num_queries <= num_keys:
        return allowed, None
    blind = ~allowed.any(dim=-1, keepdim=True)  # (..., L, 1)
    return allowed | blind, blind

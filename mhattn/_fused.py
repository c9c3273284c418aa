"""The way to torch's fused kernels, and what it shares with the written-out formula.

`torch.nn.functional.scaled_dot_product_attention` falls back to the written-out formula, with all
its scores in memory, if it gets fewer or more than four axes, a mask or a bias of three, values of
another width than the keys, rows whose numbers do not lie side by side, or, in float32 on a GPU,
grouped heads. Here each of them is put into a form that stays fused.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mhattn import _checks as check


def allowed_and_blind(
    mask: Tensor | None, is_causal: bool, shape: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Who may see whom, and who is blind: has no key to see; None if nobody can be.

    The blind are let see every key, so that no softmax is over nothing; callers zero the result.
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


# --8<-- [start:softmax]
def softmax(scores: Tensor) -> Tensor:
    """Over the keys; in the scores' own memory, if no gradient needs them.

    Fresh memory for a large table takes more time than the softmax itself.
    """
    if scores.requires_grad:
        return scores.softmax(dim=-1)
    try:
        return torch.softmax(scores, dim=-1, out=scores)
    except RuntimeError:  # torch.vmap and forward-mode gradients know no out
        return scores.softmax(dim=-1)
    # --8<-- [end:softmax]


def share_heads(x: Tensor, query: Tensor) -> Tensor:
    """Repeat each head of a key or value for its group of query heads."""
    if x.shape[:-2] == query.shape[:-2]:
        return x
    return x.repeat_interleave(query.shape[-3] // x.shape[-3], dim=-3)


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    dropout: float,
    bias: Tensor | None = None,
) -> Tensor:
    """`attention` without weights; its arguments have been checked."""
    shape = (*query.shape[:-1], key.shape[-2])  # (..., L, S)
    is_causal = is_causal and shape[-2] > 1  # the last query sees every key
    blind = None
    if bias is not None:
        bias = bias[(None,) * (4 - bias.ndim)].to(query.dtype)  # with three axes, torch falls back
    if mask is not None or (is_causal and (bias is not None or shape[-2] != shape[-1])):
        mask, blind = allowed_and_blind(mask, is_causal, shape, query.device)
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
    if mask is not None:
        if query.ndim > 4 and mask.ndim > 3:
            mask = mask.expand(*shape[:-3], *mask.shape[-3:]).flatten(0, -4)
        is_causal = False
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    options = {"is_causal": is_causal, "scale": scale, "dropout_p": dropout}
    mixed = _put_in_form(query, key, value, mask, options)
    return mixed if blind is None else mixed.masked_fill(blind, 0.0)


# --8<-- [start:form]
def _put_in_form(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict
) -> Tensor:
    """Four axes, one width, each row in one piece; and back."""
    width = max(query.shape[-1], value.shape[-1])
    four = [_widen(four_axes(x), width) for x in (query, key, value)]
    mask = None if mask is None else four_axes(mask)
    mixed = _grouped(*four, mask, options)[..., : value.shape[-1]]
    return mixed.reshape(*query.shape[:-1], value.shape[-1])


def four_axes(x: Tensor) -> Tensor:
    """``(B, H, ..., ...)``, whatever was there; a view unless there are several batches."""
    if x.ndim > 4:
        return x.flatten(0, -4)
    return x[(None,) * (4 - x.ndim)]


def _widen(x: Tensor, width: int) -> Tensor:
    x = x if x.stride(-1) == 1 else x.contiguous()
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))
    # --8<-- [end:form]


# --8<-- [start:grouped]
def _grouped(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict
) -> Tensor:
    """Four axes and one width; heads may be grouped."""
    kv_heads, group = key.shape[1], query.shape[1] // key.shape[1]
    sdpa = F.scaled_dot_product_attention
    if group == 1:
        return sdpa(query, key, value, mask, **options)
    if _is_one_row(mask) and not options["is_causal"]:
        packed = query.unflatten(1, (kv_heads, group))  # (B, H_kv, group, L, D)
        packed = packed.flatten(2, 3)  # (B, H_kv, group * L, D)
        mixed = sdpa(packed, key, value, mask, **options)
        return mixed.unflatten(2, (group, -1)).flatten(1, 2)  # (B, H, L, D)
    if query.is_cuda and query.dtype == torch.float32:
        key, value = share_heads(key, query), share_heads(value, query)
    return sdpa(query, key, value, mask, enable_gqa=True, **options)
    # --8<-- [end:grouped]


def _is_one_row(mask: Tensor | None) -> bool:
    """Whether all queries of all heads may see the same keys."""
    return mask is None or mask.shape[1:3] == (1, 1)

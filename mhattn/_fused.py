"""The way to torch's fused kernels, and what it shares with the written-out formula.

On a CPU, `torch.nn.functional.scaled_dot_product_attention` falls back to the written-out formula,
with all its scores in memory, if it gets fewer or more than four axes, a mask or a bias of three,
values of another width than the keys, or rows whose numbers do not lie side by side; on a GPU, if
it gets grouped heads in float32. Here each of them is put into a form that stays fused.
"""

import functools
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mhattn import _checks as check


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
    if shape[-2] == 1:
        is_causal = False  # the last query sees every key
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
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    mixed = _put_in_form(query, key, value, mask, is_causal, scale, dropout)
    return mixed if blind is None else mixed.masked_fill(blind, 0.0)


# --8<-- [start:form]
def _put_in_form(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
    dropout: float,
) -> Tensor:
    """Four axes, one width, each row in one piece; and back."""
    width = max(query.shape[-1], value.shape[-1])
    q, k, v = (_widen(four_axes(x), width) for x in (query, key, value))
    mask = None if mask is None else four_axes(mask)
    sdpa = functools.partial(F.scaled_dot_product_attention, dropout_p=dropout, scale=scale)
    mixed = _grouped(sdpa, q, k, v, mask, is_causal)[..., : value.shape[-1]]
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
    sdpa: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
) -> Tensor:
    """Four axes and one width; heads may be grouped."""
    kv_heads, group = key.shape[1], query.shape[1] // key.shape[1]
    if group == 1:
        return sdpa(query, key, value, mask, is_causal=is_causal)
    if _is_one_row(mask) and not is_causal:
        packed = query.unflatten(1, (kv_heads, group))  # (B, H_kv, group, L, D)
        packed = packed.flatten(2, 3)  # (B, H_kv, group * L, D)
        mixed = sdpa(packed, key, value, mask)  # (B, H_kv, group * L, D)
        return mixed.reshape(query.shape)  # (B, H, L, D)
    if query.is_cuda and query.dtype == torch.float32:
        key, value = share_heads(key, query), share_heads(value, query)
    return sdpa(query, key, value, mask, is_causal=is_causal, enable_gqa=True)
    # --8<-- [end:grouped]


def _is_one_row(mask: Tensor | None) -> bool:
    """Whether all queries of all heads may see the same keys."""
    return mask is None or mask.shape[1:3] == (1, 1)

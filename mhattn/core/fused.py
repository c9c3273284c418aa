"""Attention by torch's fused kernels, which never hold all scores.

On a CPU, `torch.nn.functional.scaled_dot_product_attention` falls back to the written-out formula,
with all its scores in memory, if it gets fewer or more than four axes, a mask or a bias of three,
values of another width than the keys, or rows whose numbers do not lie side by side; on a GPU, if
it gets grouped heads in float32. Here each of them is put into a form that stays fused.

A function whose name ends in ``_on_gpu`` is called behind ``is_cuda`` alone. What was measured on a
CPU is filed with a hash of the code behind it, and such functions are not in it: they may change
without making those numbers stale.
"""

import functools
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mhattn.core import checks as check
from mhattn.core.masks import causal_mask

__all__ = ["attend_in_groups", "fused_attention"]

Kernel = Callable[..., Tensor]  # torch's function, with scale and dropout
HALF = (torch.bfloat16, torch.float16)
FEW, LARGE = 4, 2**23  # rows; bytes of keys, more than a core keeps near itself
WIDEST = 256  # numbers of a head, in the kernels of a GPU that share keys and values themselves


# --8<-- [start:fused_attention]
def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Mix the values as `attention` does, in a form that torch's kernels take.

    Args:
        query: floats, ``(..., L, D)``; grouped ``(B, H, L, D)``.
        key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend
            (`torch.nn.MultiheadAttention` means the opposite).
        bias: finite floats that broadcast to ``(..., L, S)``, added to the scaled scores.
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query sees
            every key.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.
        dropout: share of the weights set to zero; pass 0 when not training.

    Returns:
        ``(..., L, D_v)``, zeros where there is nothing to attend to.

    Raises:
        TypeError: query, key, value or bias is not a tensor of floats, they differ in dtype, or
            mask is not of booleans.
        ValueError: the shapes do not fit, scale is not positive, or dropout not in [0, 1).

    Examples:
        >>> query, key = torch.tensor([[0.0, math.sqrt(2)]]), torch.eye(2)
        >>> fused_attention(query, key, torch.tensor([[0.0], [10.0]]))
        tensor([[7.3106]])
    """
    check.attention(query, key, value, scale, dropout)
    shape = (*query.shape[:-1], key.shape[-2])  # of the scores: (..., L, S)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if shape[-2] == 1:
        is_causal = False  # the last query sees every key
    mask, blind = one_mask(mask, bias, is_causal, shape, query)
    is_causal = is_causal and mask is None
    width = max(query.shape[-1], value.shape[-1])
    q, k, v = (four_axes(in_rows(x, width)) for x in (query, key, value))
    mixed = attend_in_groups(
        q, k, v, mask=mask, is_causal=is_causal, scale=scale, dropout=dropout
    )  # (B, H, L, width)
    mixed = mixed[..., : value.shape[-1]].reshape(*shape[:-1], value.shape[-1])
    return mixed if blind is None else mixed.masked_fill(blind, 0.0)


def in_rows(x: Tensor, width: int) -> Tensor:
    """The numbers of each row side by side in memory, with zeros up to the width."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))


def four_axes(x: Tensor) -> Tensor:
    """``(B, H, ..., ...)`` from any number of axes; a view unless there are several batches."""
    return x.flatten(0, -4) if x.ndim > 4 else x[(None,) * (4 - x.ndim)]
    # --8<-- [end:fused_attention]


# --8<-- [start:one_mask]
def one_mask(
    mask: Tensor | None,
    bias: Tensor | None,
    is_causal: bool,
    shape: Sequence[int],
    query: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """Join what changes the scores into one argument of four axes.

    Causality is left to the kernel if nothing else changes the scores and L = S. The second result
    marks the queries that see no key, or is None if there can be none. They see all keys in the
    mask, so that softmax is finite; `fused_attention` sets their output to zero.
    """
    blind, (L, S) = None, shape[-2:]
    can_be_blind = mask is not None or (is_causal and L > S)
    if mask is not None:
        check.mask(mask, shape)
    if bias is not None:
        check.bias(bias, shape)
    if is_causal and (mask is not None or bias is not None or L != S):
        causal = causal_mask(L, S, device=query.device)
        mask = causal if mask is None else causal & mask
    if mask is not None and can_be_blind:
        blind = ~torch.atleast_2d(mask).any(dim=-1, keepdim=True)  # (..., L, 1)
        mask = mask | blind
    if bias is not None:
        bias = bias[(None,) * (4 - bias.ndim)].to(query.dtype)  # with three axes, torch falls back
        mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
    if mask is None:
        return None, None
    if len(shape) > 4 and mask.ndim > 3:
        mask = mask.expand(*shape[:-3], *mask.shape[-3:])
    return four_axes(mask), blind
    # --8<-- [end:one_mask]


# --8<-- [start:attend_in_groups]
def attend_in_groups(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Let the query heads of a group share a key and value head, without repeating it.

    The same as torch's function after `repeat_heads`. Which of four ways is taken changes the time
    alone; each is a function of its own.

    Args:
        query: ``(B, H, L, D)``.
        key: ``(B, H_kv, S, D)``.
        value: ``(B, H_kv, S, D)``, as wide as the key.
        mask: four axes that broadcast to ``(B, H, L, S)``: booleans, True: may attend, or floats
            that are added to the scores.
        is_causal: with as many queries as keys, and no mask.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.
        dropout: share of the weights set to zero.

    Returns:
        ``(B, H, L, D)``.

    Examples:
        >>> query, key, value = torch.randn(2, 6, 1, 4), *torch.randn(2, 2, 3, 7, 4)
        >>> repeated = (x.repeat_interleave(2, dim=1) for x in (key, value))
        >>> expected = F.scaled_dot_product_attention(query, *repeated)
        >>> torch.testing.assert_close(attend_in_groups(query, key, value), expected)
    """
    kernel = functools.partial(F.scaled_dot_product_attention, dropout_p=dropout, scale=scale)
    group = query.shape[1] // key.shape[1]
    same_keys = mask is None or mask.shape[1:3] == (1, 1)  # for all queries of all heads
    in_kernel = query.is_cuda and takes_groups_on_gpu(query, mask)
    if group == 1 and query.shape[2] == 1 and query.is_cpu and query.dtype in HALF:
        return one_row_as_two(kernel, query, key, value, mask)
    if group == 1:
        return kernel(query, key, value, mask, is_causal=is_causal)
    if same_keys and not is_causal and not in_kernel:
        return group_as_rows(kernel, query, key, value, mask, scale, dropout)
    return group_by_the_kernel(kernel, query, key, value, mask, is_causal)


def one_row_as_two(
    kernel: Kernel, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> Tensor:
    """In half precision on a CPU, one row takes torch longer than two: compute it twice."""
    return kernel(query.expand(-1, -1, 2, -1), key, value, mask)[:, :, :1]  # (B, H, 1, D)


def group_as_rows(
    kernel: Kernel,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float | None,
    dropout: float,
) -> Tensor:
    """The queries of a group become the rows of one product, since all of them see the same."""
    kv_heads, group = key.shape[1], query.shape[1] // key.shape[1]
    rows = query.unflatten(1, (kv_heads, group))  # (B, H_kv, group, L, D)
    rows = rows.flatten(2, 3)  # (B, H_kv, group * L, D)
    few = rows.shape[2] <= FEW and key.is_cpu and key.dtype == torch.float32
    if few and key.nbytes >= LARGE:
        mixed = two_products(rows, key, value, mask, scale, dropout)
    elif query.is_cuda:
        few = query.shape[2] <= FEW
        mixed = rows_on_gpu(kernel, rows, key, value, mask, scale, few and dropout == 0.0)
    else:
        mixed = kernel(rows, key, value, mask)  # (B, H_kv, group * L, D)
    return mixed.reshape(query.shape)  # (B, H, L, D)


def group_by_the_kernel(
    kernel: Kernel,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
) -> Tensor:
    """The kernel shares the heads itself, but for what no kernel of a GPU shares."""
    if query.is_cuda:
        key, value = repeated_on_gpu(query, key, value)
    return kernel(query, key, value, mask, is_causal=is_causal, enable_gqa=True)


def takes_groups_on_gpu(query: Tensor, mask: Tensor | None) -> bool:
    """FlashAttention and cuDNN read a shared head once, if there is no mask."""
    return mask is None and query.dtype in HALF and query.shape[-1] <= WIDEST


def repeated_on_gpu(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """For float32 and for wide heads there is only a kernel that wants each head's own keys."""
    if query.dtype in HALF and query.shape[-1] <= WIDEST:
        return key, value
    group = query.shape[1] // key.shape[1]
    return key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)


def rows_on_gpu(
    kernel: Kernel,
    rows: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float | None,
    is_step: bool,
) -> Tensor:
    """By the kernel, but a step with heads too wide for the fast ones, as the latents of MLA.

    Those go to a kernel that walks along the keys on one multiprocessor. Of two products all
    multiprocessors have a share; the scores are in float32, as in a kernel.
    """
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (rows, key, value))
    if rows.dtype not in HALF or rows.shape[-1] <= WIDEST or not is_step or learns:
        return kernel(rows, key, value, mask)
    scale = 1 / math.sqrt(rows.shape[-1]) if scale is None else scale
    flat, keys = rows.flatten(0, 1), key.flatten(0, 1)  # (B * H_kv, ..., D)
    scores = torch.bmm(flat, keys.mT, out_dtype=torch.float32) * scale
    scores = scores.view(*rows.shape[:3], -1)  # (B, H_kv, group * L, S)
    if mask is not None:
        hides = mask.dtype == torch.bool
        scores = torch.where(mask, scores, -math.inf) if hides else scores + mask
    return scores.softmax(dim=-1).to(value.dtype) @ value


def two_products(
    rows: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The formula as it stands, for few rows: their scores take little memory.

    The keys stand on the left. BLAS may take half as long for many rows times few columns.
    """
    scale = 1 / math.sqrt(rows.shape[-1]) if scale is None else scale
    scores = (key @ (rows * scale).mT).mT  # (B, H_kv, group * L, S)
    if mask is not None:
        hidden = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -math.inf) if hidden else scores + mask
    return F.dropout(scores.softmax(dim=-1), dropout) @ value
    # --8<-- [end:attend_in_groups]

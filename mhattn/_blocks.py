"""Attention in windows of keys, block by block, and to the strided keys outside of them."""

import functools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from mhattn._fused import share_heads
from mhattn.functional import attention

SHORTEST_BLOCK = 32  # with fewer queries at a time, products are too small to be fast


# --8<-- [start:attend_in_windows]
def attend_in_windows(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    attend: Callable[..., Tensor],
    *,
    is_causal: bool,
    mask: Tensor | None = None,
) -> Tensor:
    """Cut the queries into blocks; each attends to what its windows reach."""
    L, lead = query.shape[-2], query.shape[:-2]
    back, ahead = window - 1, 0 if is_causal else window - 1
    unseen = max(0, key.shape[-2] - L - back)  # keys before all windows
    key, value = key[..., unseen:, :], value[..., unseen:, :]
    S = key.shape[-2]
    if mask is not None:
        mask = mask.expand(*lead, 1, unseen + S)[..., unseen:]
        mask = mask.reshape(-1, S)  # (B * H, S)
    inputs = (share_heads(x, query) for x in (query, key, value))
    query, key, value = map(_three_axes, inputs)  # (B * H, L or S, D)
    if torch.compiler.is_compiling():
        output = _gathered(query, key, value, window, attend, mask, ahead)
        return output.reshape(*lead, L, output.shape[-1])
    outputs = []
    for begin, n, rows in _parts(L, S, window, ahead):
        end = begin + n * rows
        low = max(0, begin + S - L - back)
        high = min(S, end + S - L + ahead)
        columns = high - low if n == 1 else rows + back + ahead  # keys of a block
        cut = functools.partial(_pieces, low=low, high=high, size=columns, step=rows)
        q = query[:, begin:end].unflatten(1, (n, rows))  # (B * H, n, rows, D)
        k, v = cut(key), cut(value)  # (B * H, n, columns, D)
        distance = _distance(rows, columns, begin + S - L - low, q.device)
        seen = (distance <= back) & (distance >= -ahead)
        if mask is not None:
            seen = seen & cut(mask[..., None]).mT  # (B * H, n, rows, columns)
        outputs.append(attend(q, k, v, mask=seen).flatten(1, 2))
    output = torch.cat(outputs, dim=1)  # (B * H, L, D_v)
    return output.reshape(*lead, L, output.shape[-1])


def _gathered(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    attend: Callable[..., Tensor],
    mask: Tensor | None,
    ahead: int,
) -> Tensor:
    """The same with one kind of block, so that one compiled graph serves all lengths."""
    L, S, rows = query.shape[1], key.shape[1], max(SHORTEST_BLOCK, window // 2)
    block = torch.arange(L // rows + 2, device=query.device)[:, None] * rows  # at least two
    row = block + torch.arange(rows, device=query.device)  # (n, rows)
    column = block + torch.arange(rows + window - 1 + ahead, device=query.device)
    column = column + (S - L) - (window - 1)  # (n, columns)
    distance = row[:, :, None] + (S - L) - column[:, None]  # (n, rows, columns)
    seen = (distance < window) & (distance >= -ahead) & ((column >= 0) & (column < S))[:, None]
    row, column = row.clamp(max=L - 1), column.clamp(min=0, max=S - 1)
    if mask is not None:
        seen = seen & mask[:, column][:, :, None]  # (B * H, n, rows, columns)
    output = attend(query[:, row], key[:, column], value[:, column], mask=seen)
    return output.flatten(1, 2)[:, :L]  # (B * H, L, D_v)


def _parts(L: int, S: int, window: int, ahead: int) -> list[tuple[int, int, int]]:
    """Where parts of the queries begin, how many blocks they are, and of how many queries each.

    In the middle part, all blocks reach equally many keys. The windows of the first part begin
    before the first key, those of the last one may end behind the last key: they are one block.
    """
    block = max(SHORTEST_BLOCK, window // 2)
    start = min(max(0, window - 1 - (S - L)), L)
    blocks = max(0, (L - ahead - start) // block)
    stop = start + blocks * block
    parts = [(0, 1, start), (start, blocks, block), (stop, 1, L - stop)]
    return [part for part in parts if part[1] * part[2] > 0]
    # --8<-- [end:attend_in_windows]


def _pieces(x: Tensor, low: int, high: int, size: int, step: int) -> Tensor:
    """Overlapping pieces of one stretch of positions, as a view."""
    return x[:, low:high].unfold(1, size, step).mT


def _distance(rows: int, columns: int, shift: int, device: torch.device) -> Tensor:
    """How many positions each key of a block lies before each query."""
    row, column = (torch.arange(n, device=device) for n in (rows, columns))
    return row[:, None] + shift - column


def _three_axes(x: Tensor) -> Tensor:
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])


# --8<-- [start:attend_with_log_sum]
def attend_with_log_sum(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float
) -> Tensor:
    """With the log-sum-exp of the scores as a last column.

    One head after another: its blocks are views, which a product over all heads would copy.
    """
    hide = torch.zeros_like(mask, dtype=query.dtype)
    hide = hide.masked_fill(~mask, -math.inf)
    hide = hide.expand(*query.shape[:3], key.shape[2])
    outputs = []
    for hidden, q, k, v in zip(hide, query, key, value, strict=True):
        scores = torch.baddbmm(hidden, q, k.mT, alpha=scale)  # (n, L, S)
        top = scores.detach().amax(dim=-1, keepdim=True)
        terms = scores.sub_(top).exp_()
        total = terms.sum(dim=-1, keepdim=True)  # (n, L, 1)
        output, log_sum = (terms @ v).div_(total), top + total.log()
        outputs.append(torch.cat([output, log_sum], dim=-1))
    return torch.stack(outputs)  # (B * H, n, L, D_v + 1)
    # --8<-- [end:attend_with_log_sum]


# --8<-- [start:attend_far]
def attend_far(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_sum: Tensor,
    window: int,
    stride: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Attend to the stride, and to one key that stands for the window.

    Positions with the same remainder by the stride see each other and nobody else. So write the
    sequence as rows of ``stride`` positions: what remains is causal attention down each column.
    Query row ``r`` sees the key rows up to ``r - near``, and a row before the first, the keys
    that stand for the window: their score is the log-sum-exp of the window's scores. Widths
    are made divisible by 8, or the kernel would not stay fused on a GPU.
    """
    (L, D), (S, D_v) = query.shape[-2:], value.shape[-2:]
    near = -(-window // stride)  # the last rows, all in the window
    far = -(-S // stride) - near  # rows that the last query sees
    if far < 1:
        return value[..., :0, :], log_sum[..., :0, :]
    first = max(near - 1, (S - L) // stride)  # row of the first query
    skip, fill = first * stride - (S - L), -S % stride
    query = torch.cat([query, log_sum], dim=-1)
    key, value = (x[..., : far * stride, :] for x in (key, value))
    query = F.pad(query, (0, 7 - D % 8, -skip, fill))
    key = F.pad(key, (0, 8 - D % 8, stride, 0))
    value = F.pad(value, (0, 8 - D_v % 8, stride, 0))
    key[..., :stride, D] = 1 / scale
    value[..., stride:, D_v] = 1.0  # becomes the share of the stride
    inputs = [
        x.unflatten(-2, (-1, stride)).transpose(-3, -2) for x in (query, key, value)
    ]  # (..., stride, rows, D + ...)
    output = attention(*inputs, is_causal=True, scale=scale)
    output = output[..., : D_v + 1].transpose(-3, -2).flatten(-3, -2)
    output = output[..., max(0, -skip) : output.shape[-2] - fill, :]
    return output[..., :D_v], output[..., D_v:]
    # --8<-- [end:attend_far]

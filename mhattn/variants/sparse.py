"""Attention to a few keys of each query, at the cost of those few.

`local_attention` and `strided_attention` return what `attention` returns with a mask, up to
rounding, without computing the scores that the mask would hide. As in `mhattn.core.masks`, query
``i`` stands at position ``i + (S - L)``.
"""

import functools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from mhattn.core.functional import attention, repeat_heads
from mhattn.core.steps import step
from mhattn.variants import checks as check

__all__ = ["local_attention", "strided_attention"]

SHORTEST_BLOCK = 32  # with fewer queries at a time, products are too small to be fast


# --8<-- [start:local_attention]
def local_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attend to the keys nearby, block by block.

    What `attention` returns with ``window_mask(L, S, window)``, and with ``is_causal`` for a
    sliding window: the own position and the ``window - 1`` before it. FLOPs and memory grow
    with ``L * window``.

    Args:
        query: floats, ``(..., L, D)``; grouped ``(B, H, L, D)``.
        key: floats, ``(..., S, D)``, at least as long; grouped ``(B, H_kv, S, D)``.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        window: keys less than this far away are seen; 1 is the own position only.
        mask: booleans that broadcast to ``(..., 1, S)``, as from `padding_mask`: keys that
            queries may attend to, the same for all queries of a head.
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query sees
            every key.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.

    Returns:
        ``(..., L, D_v)``, zeros where there is nothing to attend to.

    Raises:
        TypeError: query, key or value is not a tensor of floats, window not an integer, or
            mask not of booleans.
        ValueError: the shapes do not fit, there are more queries than keys, window is less
            than 1, or scale is not positive and finite.

    Examples:
        All scores are equal, so each output is the mean of the last two values.

        >>> x, value = torch.zeros(4, 1), torch.tensor([[0.0], [2.0], [4.0], [6.0]])
        >>> local_attention(x, x, value, window=2, is_causal=True).flatten()
        tensor([0., 1., 3., 5.])
    """
    check_inputs(query, key, value, window, scale)
    if mask is not None:
        check.mask(mask, (*query.shape[:-2], 1, key.shape[-2]), "(..., 1, S)")
    if not query.numel():
        return attention(query, key, value)
    attend = functools.partial(attention, scale=scale)
    return attend_in_windows(query, key, value, window, attend, is_causal=is_causal, mask=mask)
    # --8<-- [end:local_attention]


step(local_attention, "mix", in_blocks=True)


# --8<-- [start:strided_attention]
def strided_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    stride: int,
    *,
    is_causal: bool = True,
    scale: float | None = None,
) -> Tensor:
    """Attend to the last few positions, and to every stride-th one before them; causal.

    The strided pattern of Child et al. (2019), https://arxiv.org/abs/1904.10509, in one head.
    It is what `attention` returns with ``is_causal`` and ``window_mask(L, S, window) |
    strided_mask(L, S, stride)``, computed in float32 at least. FLOPs grow with
    ``L * (window + S / stride)``, memory with ``L * window + S``.

    Args:
        query: floats, ``(..., L, D)``; grouped ``(B, H, L, D)``.
        key: floats, ``(..., S, D)``, at least as long; grouped ``(B, H_kv, S, D)``.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        window: how many of the last positions are seen; 1 is the own position only.
        stride: how far apart the positions are that are seen before those.
        is_causal: must be True: no query sees a key that comes later.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.

    Returns:
        ``(..., L, D_v)``.

    Raises:
        TypeError: query, key or value is not a tensor of floats, or window or stride not an
            integer.
        ValueError: the shapes do not fit, there are more queries than keys, window or stride
            is less than 1, is_causal is False, or scale is not positive and finite.

    Examples:
        All scores are equal; the last query sees positions 5 and 4, and by the stride 2.

        >>> x, value = torch.zeros(6, 1), torch.tensor([[0.0], [0], [8], [0], [2], [5]])
        >>> strided_attention(x, x, value, window=2, stride=3)[-1]
        tensor([5.])
    """
    check_inputs(query, key, value, window, scale)
    check.at_least("stride", stride, 1)
    if not is_causal:
        raise ValueError(f"with a stride, is_causal must be True, got {is_causal}")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if query.shape[-2] == 1 or not query.numel():
        return strided_step(query, key, value, window, stride, scale)
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v = (repeat_heads(x, query).to(wide) for x in (query, key, value))
    attend = functools.partial(attend_with_log_sum, scale=scale)
    near = attend_in_windows(q, k, v, window, attend, is_causal=True)  # (..., L, D_v + 1)
    near, log_sum = near.split([v.shape[-1], 1], dim=-1)
    far, share = attend_far(q, k, v, log_sum, window, stride, scale)
    alone = near.shape[-2] - far.shape[-2]  # queries that see nothing but their window
    both = torch.addcmul(far, 1 - share, near[..., alone:, :])
    return torch.cat([near[..., :alone, :], both], dim=-2).to(query.dtype)
    # --8<-- [end:strided_attention]


step(strided_attention, "mix", in_blocks=True)


def strided_step(
    query: Tensor, key: Tensor, value: Tensor, window: int, stride: int, scale: float
) -> Tensor:
    """For a single query, at the last position: take out the keys that it sees."""
    last = key.shape[-2] - 1
    far = slice(last % stride, max(0, last - window + 1), stride)
    seen = [torch.cat([x[..., far, :], x[..., -window:, :]], dim=-2) for x in (key, value)]
    return attention(query, *seen, scale=scale)


def check_inputs(
    query: Tensor, key: Tensor, value: Tensor, window: int, scale: float | None
) -> None:
    check.query_and_key(query, key)
    check.value(value, key)
    check.no_longer_than_key(query, key)
    check.at_least("window", window, 1)
    check.scale(scale)


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
    inputs = (repeat_heads(x, query) for x in (query, key, value))
    query, key, value = map(three_axes, inputs)  # (B * H, L or S, D)
    if torch.compiler.is_compiling():
        output = gather_windows(query, key, value, window, attend, mask, ahead)
        return output.reshape(*lead, L, output.shape[-1])
    outputs = []
    for begin, n, rows in parts_of_blocks(L, S, window, ahead):
        end = begin + n * rows
        low = max(0, begin + S - L - back)
        high = min(S, end + S - L + ahead)
        columns = high - low if n == 1 else rows + back + ahead  # keys of a block
        cut = functools.partial(overlapping_pieces, low=low, high=high, size=columns, step=rows)
        q = query[:, begin:end].unflatten(1, (n, rows))  # (B * H, n, rows, D)
        k, v = cut(key), cut(value)  # (B * H, n, columns, D)
        distance = distances(rows, columns, begin + S - L - low, q.device)
        seen = (distance <= back) & (distance >= -ahead)
        if mask is not None:
            seen = seen & cut(mask[..., None]).mT  # (B * H, n, rows, columns)
        outputs.append(attend(q, k, v, mask=seen).flatten(1, 2))
    output = torch.cat(outputs, dim=1)  # (B * H, L, D_v)
    return output.reshape(*lead, L, output.shape[-1])


def gather_windows(
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


def parts_of_blocks(L: int, S: int, window: int, ahead: int) -> list[tuple[int, int, int]]:
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


def overlapping_pieces(x: Tensor, low: int, high: int, size: int, step: int) -> Tensor:
    """Overlapping pieces of one stretch of positions, as a view."""
    return x[:, low:high].unfold(1, size, step).mT


def distances(rows: int, columns: int, shift: int, device: torch.device) -> Tensor:
    """How many positions each key of a block lies before each query."""
    row, column = (torch.arange(n, device=device) for n in (rows, columns))
    return row[:, None] + shift - column


def three_axes(x: Tensor) -> Tensor:
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

    Positions with the same remainder by the stride see one another and no others. So write the
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

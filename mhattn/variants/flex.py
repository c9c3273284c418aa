"""Masks and biases as functions of indices, for `torch.nn.attention.flex_attention`.

A mask function takes ``(b, h, i, j)``, batch, head, query and key, and says whether the query may
see the key. A score function takes the score before them and returns another. They mean what the
tensors of `mhattn.core.masks` and `mhattn.core.positions` mean: query ``i`` stands at position
``i + (S - L)``. Mask functions combine with torch's ``and_masks`` and ``or_masks``.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, and_masks

from mhattn.core import checks as check
from mhattn.core.positions import Alibi

__all__ = [
    "alibi_mod",
    "causal_mod",
    "padding_mod",
    "strided_mod",
    "window_block_mask",
    "window_mod",
]

# They are compiled into the kernel and called with tensors of indices: no `if`, `and` or `or` on
# these.
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


# --8<-- [start:causal_mod]
def causal_mod(L: int, S: int) -> MaskMod:
    """Let each query see its own position and those before it, as `causal_mask`.

    Args:
        L: number of queries.
        S: number of keys.

    Returns:
        A mask function; True where ``j <= i + (S - L)``, so the last query sees every key.

    Raises:
        TypeError: L or S is not an integer.
        ValueError: L or S is negative.

    Examples:
        >>> mask_mod = causal_mod(2, 4)
        >>> mask_mod(0, 0, torch.tensor(0), torch.arange(4)).tolist()
        [True, True, True, False]
    """
    ahead = ahead_of(L, S)

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i + ahead >= j

    return mask_mod
    # --8<-- [end:causal_mod]


# --8<-- [start:window_mod]
def window_mod(L: int, S: int, window: int) -> MaskMod:
    """Let each query see only the keys near its own position, as `window_mask`.

    Args:
        L: number of queries.
        S: number of keys.
        window: keys less than this far away are seen; 1 is the own position only.

    Returns:
        A mask function; True where ``|i + (S - L) - j| < window``.

    Raises:
        TypeError: L, S or window is not an integer.
        ValueError: L or S is negative, or window is less than 1.

    Examples:
        >>> mask_mod = window_mod(4, 4, window=2)
        >>> mask_mod(0, 0, torch.tensor(1), torch.arange(4)).tolist()
        [True, True, True, False]
    """
    ahead = ahead_of(L, S)
    check.at_least("window", window, 1)

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i + ahead - j).abs() < window

    return mask_mod
    # --8<-- [end:window_mod]


# --8<-- [start:strided_mod]
def strided_mod(L: int, S: int, stride: int) -> MaskMod:
    """Let each query see every stride-th position, counted from its own, as `strided_mask`.

    Args:
        L: number of queries.
        S: number of keys.
        stride: how far apart the seen positions are; 1 is all of them.

    Returns:
        A mask function; True where ``i + (S - L) - j`` is a multiple of ``stride``.

    Raises:
        TypeError: L, S or stride is not an integer.
        ValueError: L or S is negative, or stride is less than 1.

    Examples:
        >>> mask_mod = strided_mod(4, 4, stride=2)
        >>> mask_mod(0, 0, torch.tensor(3), torch.arange(4)).tolist()
        [False, True, False, True]
    """
    ahead = ahead_of(L, S)
    check.at_least("stride", stride, 1)

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i + ahead - j).abs() % stride == 0

    return mask_mod
    # --8<-- [end:strided_mod]


# --8<-- [start:padding_mod]
def padding_mod(lengths: Tensor, S: int) -> MaskMod:
    """Hide the padding behind each sequence's own keys, as `padding_mask`.

    Args:
        lengths: integers in 0..S, how many keys are real: ``(B,)``, one number for a
            sequence, or ``(B, L)``, one for each query.
        S: number of keys, padding included.

    Returns:
        A mask function; True where ``j < length``.

    Raises:
        TypeError: lengths is not a tensor of integers, or S not an integer.
        ValueError: lengths does not have one or two axes, or is not within 0..S.

    Examples:
        >>> mask_mod = padding_mod(torch.tensor([1, 3]), S=4)
        >>> mask_mod(torch.tensor(1), 0, 0, torch.arange(4)).tolist()
        [True, True, True, False]
    """
    check.at_least("S", S, 0)
    check.lengths(lengths, S)

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j < lengths[(b, i)[: lengths.ndim]]

    return mask_mod
    # --8<-- [end:padding_mod]


# --8<-- [start:alibi_mod]
def alibi_mod(
    alibi: Alibi, L: int, S: int, *, device: torch.device | str | None = None
) -> ScoreMod:
    """Subtract from each score a multiple of the distance, as `Alibi`.

    Args:
        alibi: knows the slope of each head.
        L: number of queries.
        S: number of keys.
        device: where the scores will be.

    Returns:
        A score function.

    Raises:
        TypeError: L or S is not an integer.
        ValueError: L or S is negative.

    Examples:
        >>> score_mod = alibi_mod(Alibi(num_heads=4), 3, 3)
        >>> score_mod(torch.tensor(1.0), 0, 0, torch.tensor(2), torch.arange(3))
        tensor([0.5000, 0.7500, 1.0000])
    """
    ahead = ahead_of(L, S)
    slopes = torch.tensor(alibi.slopes, dtype=torch.float64, device=device)  # (H,)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score - slopes[h].to(score.dtype) * (i + ahead - j).abs()

    return score_mod
    # --8<-- [end:alibi_mod]


# --8<-- [start:window_block_mask]
def window_block_mask(
    L: int,
    S: int,
    window: int | None = None,
    *,
    is_causal: bool = False,
    block_size: int = 128,
    device: torch.device | str | None = None,
) -> BlockMask:
    """Say which blocks of scores a window or causal attention needs, without looking at scores.

    What ``create_block_mask`` finds by asking the mask function about every query and key.
    Here, a block is its range of distances, from its nearest pair to its farthest: absent if
    it does not meet the range that may be seen, full if it lies inside. Memory grows with the
    square of the number of blocks. FlexAttention is described by Dong et al. (2024),
    https://arxiv.org/abs/2412.05496.

    Args:
        L: number of queries.
        S: number of keys.
        window: keys less than this far away are seen. Default: all of them.
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``.
        block_size: queries and keys of a block.
        device: where the block mask is made.

    Returns:
        A block mask for any batch and head, with its mask function.

    Raises:
        TypeError: L, S, window or block_size is not an integer.
        ValueError: L, S, window or block_size is less than 1.

    Examples:
        Computed blocks of each row: the one on the diagonal and two before.

        >>> block_mask = window_block_mask(1024, 1024, window=256, is_causal=True)
        >>> block_mask.to_dense().sum(dim=-1).tolist()
        [[[1, 2, 3, 3, 3, 3, 3, 3]]]
    """
    numbers = {"L": L, "S": S, "window": 1 if window is None else window, "block_size": block_size}
    for name, number in numbers.items():
        check.at_least(name, number, 1)
    most = L + S if window is None else window - 1  # distances from least to most are seen
    least = 0 if is_causal else -most
    row, column = (torch.arange(0, n, block_size, device=device) for n in (L, S))
    row_end, column_end = (row + block_size).clamp(max=L), (column + block_size).clamp(max=S)
    nearest = row[:, None] + (S - L) - (column_end - 1)  # (rows, columns), in blocks
    farthest = row_end[:, None] - 1 + (S - L) - column
    whole = (row_end - row == block_size)[:, None] & (column_end - column == block_size)
    full = (nearest >= least) & (farthest <= most) & whole
    partial = (nearest <= most) & (farthest >= least) & ~full
    mods = [causal_mod(L, S)] if is_causal else []
    mods += [] if window is None else [window_mod(L, S, window)]
    return BlockMask.from_kv_blocks(
        *counts_and_places(partial),
        *counts_and_places(full),
        BLOCK_SIZE=block_size,
        mask_mod=and_masks(*mods),
        seq_lengths=(L, S),
    )


def counts_and_places(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row has, and their columns in front of all the others."""
    blocks = blocks.int()[None, None]  # (1, 1, rows, columns)
    places = blocks.argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(dim=-1, dtype=torch.int32), places.int()
    # --8<-- [end:window_block_mask]


# --8<-- [start:ahead_of]
def ahead_of(L: int, S: int) -> int:
    """How far query ``i`` stands after key ``i``."""
    check.at_least("L", L, 0)
    check.at_least("S", S, 0)
    return S - L
    # --8<-- [end:ahead_of]

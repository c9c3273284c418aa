"""Boolean masks, True = may attend, that broadcast to ``(B, H, L, S)``.

Masks combine with ``&`` (both must allow it) and ``|`` (either is enough). When there are fewer
queries than keys, the queries are the last positions, as in decoding: query ``i`` stands at
position ``i + (S - L)``, and the last query beside the last key.
"""

import torch
from torch import Tensor

from mhattn.core import checks as check

__all__ = ["causal_mask", "padding_mask", "sink_mask", "strided_mask", "window_mask"]


# --8<-- [start:causal_mask]
def causal_mask(
    L: int, S: int | None = None, *, device: torch.device | str | None = None
) -> Tensor:
    """Let each query see its own position and those before it.

    Args:
        L: number of queries.
        S: number of keys. Default: ``L``.
        device: where the mask is made.

    Returns:
        ``(L, S)``; True where ``j <= i + (S - L)``, so the last query sees every key.

    Raises:
        TypeError: L or S is not an integer.
        ValueError: L or S is negative.

    Examples:
        >>> causal_mask(2, 4).int()
        tensor([[1, 1, 1, 0],
                [1, 1, 1, 1]], dtype=torch.int32)
    """
    S = L if S is None else S
    check.lengths_of_table(L, S)
    position = torch.arange(S - L, S, device=device)[:, None]  # of each query: (L, 1)
    return torch.arange(S, device=device) <= position  # (L, S)
    # --8<-- [end:causal_mask]


# --8<-- [start:padding_mask]
def padding_mask(lengths: Tensor, S: int) -> Tensor:
    """Hide the padding behind each sequence's own keys.

    Args:
        lengths: integers in 0..S, how many keys are real: ``(B,)``, one number for a
            sequence, or ``(B, L)``, one for each query.
        S: number of keys, padding included.

    Returns:
        ``(B, 1, 1, S)`` or ``(B, 1, L, S)``, on the device of ``lengths``; True where
        ``j < length``.

    Raises:
        TypeError: lengths is not a tensor of integers, or S not an integer.
        ValueError: lengths does not have one or two axes, or is not within 0..S.

    Examples:
        >>> padding_mask(torch.tensor([1, 3]), S=3).int()
        tensor([[[[1, 0, 0]]],
        <BLANKLINE>
        <BLANKLINE>
                [[[1, 1, 1]]]], dtype=torch.int32)
    """
    check.at_least("S", S, 0)
    check.lengths(lengths, S)
    if lengths.ndim == 1:
        lengths = lengths[:, None]  # (B, 1)
    return torch.arange(S, device=lengths.device) < lengths[:, None, :, None]  # (B, 1, 1 or L, S)
    # --8<-- [end:padding_mask]


# --8<-- [start:window_mask]
def window_mask(L: int, S: int, window: int, *, device: torch.device | str | None = None) -> Tensor:
    """Let each query see only the keys near its own position.

    The window is counted as in models with a sliding window: ``window_mask(L, S, window) &
    causal_mask(L, S)`` lets a query see ``window`` keys, its own position and the ``window - 1``
    before it. Alone, the window reaches as far to the other side.

    Args:
        L: number of queries.
        S: number of keys.
        window: keys less than this far away are seen; 1 is the own position only.
        device: where the mask is made.

    Returns:
        ``(L, S)``; True where ``|i + (S - L) - j| < window``.

    Raises:
        TypeError: L, S or window is not an integer.
        ValueError: L or S is negative, or window is less than 1.

    Examples:
        >>> window_mask(4, 4, window=2).int()
        tensor([[1, 1, 0, 0],
                [1, 1, 1, 0],
                [0, 1, 1, 1],
                [0, 0, 1, 1]], dtype=torch.int32)
    """
    check.at_least("window", window, 1)
    check.lengths_of_table(L, S)
    position = torch.arange(S - L, S, device=device)[:, None]  # of each query: (L, 1)
    return (position - torch.arange(S, device=device)).abs() < window  # (L, S)
    # --8<-- [end:window_mask]


# --8<-- [start:strided_mask]
def strided_mask(
    L: int, S: int, stride: int, *, device: torch.device | str | None = None
) -> Tensor:
    """Let each query see every stride-th position, counted from its own.

    Args:
        L: number of queries.
        S: number of keys.
        stride: how far apart the seen positions are; 1 is all of them.
        device: where the mask is made.

    Returns:
        ``(L, S)``; True where ``i + (S - L) - j`` is a multiple of ``stride``.

    Raises:
        TypeError: L, S or stride is not an integer.
        ValueError: L or S is negative, or stride is less than 1.

    Examples:
        >>> strided_mask(4, 4, stride=2).int()
        tensor([[1, 0, 1, 0],
                [0, 1, 0, 1],
                [1, 0, 1, 0],
                [0, 1, 0, 1]], dtype=torch.int32)
    """
    check.at_least("stride", stride, 1)
    check.lengths_of_table(L, S)
    position = torch.arange(S - L, S, device=device)[:, None]  # of each query: (L, 1)
    return (position - torch.arange(S, device=device)) % stride == 0  # (L, S)
    # --8<-- [end:strided_mask]


# --8<-- [start:sink_mask]
def sink_mask(L: int, S: int, sinks: int, *, device: torch.device | str | None = None) -> Tensor:
    """Let each query see the first keys, wherever it stands.

    With a window, these are its attention sinks (Xiao et al. 2024,
    https://arxiv.org/abs/2309.17453): ``window_mask(L, S, window) | sink_mask(L, S, sinks)``,
    and ``is_causal``.

    Args:
        L: number of queries.
        S: number of keys.
        sinks: how many of the first keys are seen.
        device: where the mask is made.

    Returns:
        ``(L, S)``; True where ``j < sinks``.

    Raises:
        TypeError: L, S or sinks is not an integer.
        ValueError: one of them is negative.

    Examples:
        >>> (causal_mask(4) & (window_mask(4, 4, window=2) | sink_mask(4, 4, sinks=1))).int()
        tensor([[1, 0, 0, 0],
                [1, 1, 0, 0],
                [1, 1, 1, 0],
                [1, 0, 1, 1]], dtype=torch.int32)
    """
    for name, number in {"L": L, "S": S, "sinks": sinks}.items():
        check.at_least(name, number, 0)
    return (torch.arange(S, device=device) < sinks).expand(L, S)
    # --8<-- [end:sink_mask]

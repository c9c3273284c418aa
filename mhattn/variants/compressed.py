"""Attention that keeps one entry for several tokens, and reads one row as key and value.

As in DeepSeek-V4 (2026): behind a window of single tokens, blocks of tokens are mixed into one
entry each, and an indexer may choose among these. All heads read the same rows and entries, as
keys and as values. As in `mhattn.core.masks`, query ``i`` stands at position ``i + (S - L)``.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from mhattn.core import checks as check
from mhattn.core.functional import masked_softmax
from mhattn.core.positions import Rotary
from mhattn.core.steps import step
from mhattn.variants.topk import top_key_mask

__all__ = ["compress_rows", "compressed_attention", "compressed_mask"]


# --8<-- [start:compress_rows]
def compress_rows(rows: Tensor, gates: Tensor, bias: Tensor, *, overlap: bool = False) -> Tensor:
    """Mix the rows of each complete block of tokens into one entry, feature by feature.

    The weights are a softmax over the tokens of a block, of ``gates + bias``, with a softmax of
    its own for each feature. With an overlap, a token has two rows side by side: the first is for
    the next block, the second for its own, so that an entry mixes two blocks of tokens.

    Args:
        rows: floats, ``(..., L, D)``; with an overlap ``(..., L, 2 D)``.
        gates: floats, the same shape.
        bias: floats, ``(block, D)`` or ``(block, 2 D)``: one for each place in a block.
        overlap: whether the first half of the features goes to the next block. The first block
            has none before it, and mixes its own rows alone.

    Returns:
        ``(..., L // block, D)``. Tokens behind the last complete block are left out.

    Raises:
        TypeError: rows, gates or bias is not a tensor of floats.
        ValueError: the shapes do not fit, or with an overlap their last axis is odd.

    Examples:
        Blocks of two, equal gates; the fifth token waits for a sixth.

        >>> rows = torch.tensor([[1.0], [3.0], [5.0], [9.0], [7.0]])
        >>> compress_rows(rows, torch.zeros(5, 1), torch.zeros(2, 1))
        tensor([[2.],
                [7.]])
    """
    check_blocks(rows, gates, bias, overlap)
    block = bias.shape[0]
    count = rows.shape[-2] // block
    rows, gates = (x[..., : count * block, :].unflatten(-2, (count, block)) for x in (rows, gates))
    gates = gates + bias  # (..., N, block, D or 2 D)
    if overlap:
        (early, rows), (early_gates, gates) = rows.chunk(2, dim=-1), gates.chunk(2, dim=-1)
        one_later = (0, 0, 0, 0, 1, 0)  # what a block leaves to the next
        early = F.pad(early, one_later)[..., :count, :, :]
        early_gates = F.pad(early_gates, one_later, value=-torch.inf)[..., :count, :, :]
        rows = torch.cat([early, rows], dim=-2)  # (..., N, 2 block, D)
        gates = torch.cat([early_gates, gates], dim=-2)
    return (gates.softmax(dim=-2) * rows).sum(dim=-2)  # (..., N, D)
    # --8<-- [end:compress_rows]


def compressed_mask(
    L: int,
    S: int,
    N: int,
    *,
    window: int,
    block: int,
    start: int = 0,
    scores: Tensor | None = None,
    k: int | None = None,
) -> Tensor:
    """Let each query see a window of tokens, and entries of blocks that are complete by then.

    Args:
        L: number of queries.
        S: number of single tokens, the last of which are the queries'.
        N: number of entries, from the beginning of the sequence.
        window: how many tokens a query sees, itself included.
        block: how many tokens an entry is for.
        start: the position of the first single token, if those before it are no longer kept.
        scores: floats, ``(..., L, N)``, by which entries are chosen. Default: all are seen.
        k: how many entries each query keeps.

    Returns:
        Booleans, ``(..., L, S + N)``: tokens, then entries. True: may attend.

    Raises:
        TypeError: a number is not an integer, or scores is not a tensor of floats.
        ValueError: a number is too small, there are more entries than complete blocks, or one of
            scores and k is given without the other.

    Examples:
        A window of two, blocks of two. The second entry is complete with the fourth token.

        >>> compressed_mask(4, 4, 2, window=2, block=2).int()
        tensor([[1, 0, 0, 0, 0, 0],
                [1, 1, 0, 0, 1, 0],
                [0, 1, 1, 0, 1, 0],
                [0, 0, 1, 1, 1, 1]], dtype=torch.int32)
    """
    check_sizes(L, S, N, window, block, start)
    if (scores is None) != (k is None):
        given = "k" if scores is None else "scores"
        raise ValueError(f"scores and k must be given together, got only {given}")
    device = None if scores is None else scores.device
    own = torch.arange(start + S - L, start + S, device=device)[:, None]  # of the queries
    token = torch.arange(start, start + S, device=device)
    near = (token <= own) & (token > own - window)  # (L, S)
    complete = torch.arange(N, device=device) < (own + 1) // block  # (L, N)
    if scores is not None and k is not None:
        check.floats("scores", scores)
        if tuple(scores.shape[-2:]) != (L, N):
            raise ValueError(
                f"scores must be (..., L, N) = (..., {L}, {N}), got {tuple(scores.shape)}"
            )
        complete = top_key_mask(scores, k, mask=complete)  # (..., L, N)
    return torch.cat([near.expand(*complete.shape[:-2], L, S), complete], dim=-1)


# --8<-- [start:compressed_attention]
def compressed_attention(
    query: Tensor,
    row: Tensor,
    entry: Tensor,
    mask: Tensor,
    rotary: Rotary,
    *,
    block: int,
    start: int = 0,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attend to tokens and to entries, each of which is key and value at once.

    Queries, rows and entries are turned by their positions; that of an entry is its block's first.
    Since the values are turned as well, the output is turned back by the query's position. What
    remains of a value's turn is its distance from the query.

    Args:
        query: floats, ``(B, H, L, D)``, not turned.
        row: floats, ``(B, 1, S, D)``, not turned: one for each token.
        entry: floats, ``(B, 1, N, D)``, not turned, such as `compress_rows` returns.
        mask: booleans that broadcast to ``(B, H, L, S + N)``, as `compressed_mask` returns.
        rotary: turns ``D`` features; those whose frequency is 0 stay.
        block: how many tokens an entry is for.
        start: the position of the first row.
        sinks: floats, ``(H,)``: a score for each head that takes weight and gives no value.

    Returns:
        ``(B, H, L, D)``, zeros where there is nothing to attend to.

    Raises:
        TypeError: query, row, entry or sinks is not a tensor of floats, or mask not of booleans.
        ValueError: the shapes do not fit, or there are more entries than complete blocks.

    Examples:
        One entry of two tokens, far behind the window: all weight is on it and the query's own row.

        >>> query, row = torch.zeros(1, 1, 1, 2), torch.full((1, 1, 1, 2), 3.0)
        >>> mask = compressed_mask(1, 1, 1, window=1, block=2, start=8)
        >>> still = Rotary(2, frequencies=torch.zeros(1))
        >>> entry = torch.ones(1, 1, 1, 2)
        >>> compressed_attention(query, row, entry, mask, still, block=2, start=8)
        tensor([[[[2., 2.]]]])
    """
    check_rows(query, row, entry, sinks, block, start)
    L, S, N = query.shape[-2], row.shape[-2], entry.shape[-2]
    check.mask(mask, (*query.shape[:-1], S + N))
    own = torch.arange(start + S - L, start + S, device=query.device)
    query = rotary.rotate(query, positions=own)
    row = rotary.rotate(row, start)
    entry = rotary.rotate(entry, positions=block * torch.arange(N, device=query.device))
    seen = torch.cat([row, entry], dim=-2)  # (B, 1, S + N, D): keys and values
    scores = query @ seen.mT / query.shape[-1] ** 0.5  # (B, H, L, S + N)
    mask = mask.expand(scores.shape)
    if sinks is not None:  # one more key, which every query sees
        scores = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:-1], 1)], dim=-1)
        mask = F.pad(mask, (0, 1), value=True)
    weights = masked_softmax(scores, mask)[..., : S + N]
    return rotary.rotate(weights @ seen, positions=-own)
    # --8<-- [end:compressed_attention]


step(compressed_attention, "mix", in_blocks=True)


def check_blocks(rows: Tensor, gates: Tensor, bias: Tensor, overlap: bool) -> None:
    for name, x in {"rows": rows, "gates": gates, "bias": bias}.items():
        check.floats(name, x)
        check.axes(name, x, 2, exactly=name == "bias")
    if gates.shape != rows.shape:
        raise ValueError(f"gates must be {tuple(rows.shape)} as rows, got {tuple(gates.shape)}")
    if bias.shape[0] < 1 or bias.shape[1] != rows.shape[-1]:
        rule = f"bias must be (block, {rows.shape[-1]}), block at least 1"
        raise ValueError(f"{rule}, got {tuple(bias.shape)}")
    if overlap and rows.shape[-1] % 2:
        got = rows.shape[-1]
        raise ValueError(f"with overlap, the last axis of rows must be even, got {got}")


def check_sizes(L: int, S: int, N: int, window: int, block: int, start: int) -> None:
    for name, number in {"L": L, "window": window, "block": block}.items():
        check.at_least(name, number, 1)
    check.at_least("S", S, L)
    check.at_least("N", N, 0)
    check.at_least("start", start, 0)
    if (complete := (start + S) // block) < N:
        rule = f"N must be at most the number of complete blocks, {complete}"
        raise ValueError(f"{rule}, got {N}")


def check_rows(
    query: Tensor, row: Tensor, entry: Tensor, sinks: Tensor | None, block: int, start: int
) -> None:
    check.floats("query", query)
    check.axes("query", query, 4, exactly=True)
    B, H, L, D = query.shape
    for name, x in {"row": row, "entry": entry}.items():
        check.floats(name, x)
        if x.ndim != 4 or (x.shape[0], x.shape[1], x.shape[3]) != (B, 1, D):
            raise ValueError(f"{name} must be ({B}, 1, any, {D}), got {tuple(x.shape)}")
    check_sizes(L, row.shape[-2], entry.shape[-2], 1, block, start)
    if sinks is None:
        return
    if not sinks.is_floating_point():
        raise TypeError(f"sinks must be a tensor of floats, got {sinks.dtype}")
    if tuple(sinks.shape) != (H,):
        raise ValueError(f"sinks must be (H,) = ({H},), got {tuple(sinks.shape)}")

"""Attention that never holds the whole table of scores: two running sums and their merge.

The output for a query is ``sum(e^s v) / sum(e^s)`` over the keys' scores ``s`` and values ``v``.
`Sums` holds both sums for some of the keys, `merge_sums` adds them up, and `tiled_attention` does
so tile by tile. B batch, H heads, L queries, S keys, D head_dim; ... is mostly (B, H).
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from mhattn.core import checks as check
from mhattn.core.functional import attention_scores, repeat_heads
from mhattn.core.steps import step

__all__ = ["Sums", "block_sums", "merge_sums", "tiled_attention", "tiles"]


# --8<-- [start:Sums]
@dataclass(frozen=True, eq=False)
class Sums:
    """Attention over some keys as two sums, in units of ``e^largest``.

    These are the running statistics of the online softmax (Milakov and Gimelshein 2018,
    https://arxiv.org/abs/1805.02867), and the output before it is divided.

    Attributes:
        largest: the largest score, ``-inf`` where no key may be seen: ``(..., L, 1)``.
        total: ``sum(e^(s - largest))``, from 1 to the number of keys, or 0: ``(..., L, 1)``.
        mixed: ``sum(e^(s - largest) v)``: ``(..., L, D_v)``.
    """

    largest: Tensor
    total: Tensor
    mixed: Tensor

    @classmethod
    def over_nothing(cls, query: Tensor, value: Tensor) -> Self:
        """The sums over no keys, which change nothing when they are merged with others.

        Args:
            query: ``(..., L, D)``.
            value: ``(..., S, D_v)``.

        Returns:
            Zeros with the largest score ``-inf``, in float32 at least.

        Examples:
            >>> Sums.over_nothing(torch.zeros(1, 2), torch.zeros(5, 3)).output
            tensor([[0., 0., 0.]])
        """
        wide = torch.promote_types(query.dtype, torch.float32)
        zero = query.new_zeros(*query.shape[:-1], 1, dtype=wide)  # (..., L, 1)
        return cls(zero - math.inf, zero, zero.expand(*query.shape[:-1], value.shape[-1]))

    @property
    def output(self) -> Tensor:
        """Attention over these keys, zeros if none: ``(..., L, D_v)``."""
        return self.mixed / self.total.masked_fill(self.total == 0, 1.0)

    @property
    def log_sum_exp(self) -> Tensor:
        """``log(sum(e^s))``, ``-inf`` without keys: ``(..., L, 1)``."""
        return self.largest + self.total.log()
        # --8<-- [end:Sums]


# --8<-- [start:block_sums]
def block_sums(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Sums:
    """Take the two sums over one block of keys, in float32 at least.

    Args:
        query: floats, ``(..., L, D)``.
        key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.

    Returns:
        The sums over these keys, whose ``output`` is attention over them alone.

    Raises:
        TypeError: query, key or value is not a tensor of floats, they differ in dtype, or mask is
            not of booleans.
        ValueError: the shapes do not fit, or scale is not positive and finite.

    Examples:
        The scores are 0 and log 3, so the exponentials are 1 and 3: in units of 3, 1/3 and 1.

        >>> query, key = torch.tensor([[1.0]]), torch.tensor([[0.0], [math.log(3)]])
        >>> sums = block_sums(query, key, value=torch.tensor([[3.0], [6.0]]))
        >>> sums.total, sums.mixed, sums.output
        (tensor([[1.3333]]), tensor([[7.]]), tensor([[5.2500]]))
    """
    check.attention(query, key, value, scale)
    wide = torch.promote_types(query.dtype, torch.float32)
    query, key, value = query.to(wide), key.to(wide), value.to(wide)
    scores = attention_scores(query, key, scale)  # (..., L, S)
    if mask is not None:
        check.mask(mask, scores.shape)
        scores = scores.masked_fill(~mask, -math.inf)
    largest = scores.detach().amax(dim=-1, keepdim=True)  # (..., L, 1)
    unit = largest.masked_fill(largest == -math.inf, 0.0)  # -inf - -inf is NaN
    exponentials = (scores - unit).exp()  # (..., L, S)
    total = exponentials.sum(dim=-1, keepdim=True)  # (..., L, 1)
    mixed = exponentials @ repeat_heads(value, query)  # (..., L, D_v)
    return Sums(largest, total, mixed)
    # --8<-- [end:block_sums]


# --8<-- [start:merge_sums]
def merge_sums(a: Sums, b: Sums) -> Sums:
    """Add the sums over two sets of keys, in units of the larger maximum.

    Args:
        a: sums over some keys.
        b: sums over other keys, for the same queries.

    Returns:
        The sums over all of these keys. The order does not matter, but for rounding.

    Examples:
        >>> query, key, value = torch.randn(2, 4), torch.randn(6, 4), torch.randn(6, 3)
        >>> left, right = (block_sums(query, key[i], value[i]) for i in (slice(4), slice(4, 6)))
        >>> whole = block_sums(query, key, value)
        >>> torch.testing.assert_close(merge_sums(left, right).output, whole.output)
    """
    largest = torch.maximum(a.largest, b.largest)  # (..., L, 1)
    unit = largest.masked_fill(largest == -math.inf, 0.0)  # -inf - -inf is NaN
    from_a, from_b = (a.largest - unit).exp(), (b.largest - unit).exp()
    total = from_a * a.total + from_b * b.total
    return Sums(largest, total, from_a * a.mixed + from_b * b.mixed)
    # --8<-- [end:merge_sums]


# --8<-- [start:tiles]
def tiles(
    num_queries: int,
    num_keys: int,
    block_size: int,
    *,
    is_causal: bool = False,
) -> list[tuple[slice, list[slice]]]:
    """Cut the scores into tiles, without those that causality hides entirely.

    Args:
        num_queries: rows of the table.
        num_keys: columns of the table.
        block_size: rows and columns of a tile; less at the edges.
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query sees
            every key.

    Returns:
        For each block of queries the blocks of keys that it needs.

    Raises:
        TypeError: a size is not an integer.
        ValueError: num_queries or num_keys is negative, or block_size less than 1.

    Examples:
        >>> for rows, blocks in tiles(4, 4, block_size=2, is_causal=True):
        ...     print(rows, blocks)
        slice(0, 2, None) [slice(0, 2, None)]
        slice(2, 4, None) [slice(0, 2, None), slice(2, 4, None)]
    """
    check.at_least("num_queries", num_queries, 0)
    check.at_least("num_keys", num_keys, 0)
    check.at_least("block_size", block_size, 1)

    def blocks(length: int) -> list[slice]:
        starts = range(0, length, block_size)
        return [slice(i, min(i + block_size, length)) for i in starts]

    cut = []
    for rows in blocks(num_queries):
        past = rows.stop + num_keys - num_queries  # of the last of them
        seen = min(past, num_keys) if is_causal else num_keys
        cut.append((rows, blocks(seen)))
    return cut
    # --8<-- [end:tiles]


# --8<-- [start:tiled_attention]
def tiled_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    block_size: int = 64,
) -> Tensor:
    """Mix the values as `attention` does, one tile of the scores at a time.

    The same function of real numbers, up to rounding, in memory that grows with ``L + S``
    and not with ``L S`` (gradients aside: autograd keeps every tile). It is the forward pass
    of FlashAttention (Dao et al. 2022, https://arxiv.org/abs/2205.14135), written to be read.
    `torch.compile` writes out its loop over the tiles, so it makes one graph for each length.

    Args:
        query: floats, ``(..., L, D)``.
        key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend.
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.
        block_size: how many queries and keys meet in one tile.

    Returns:
        ``(..., L, D_v)``, dtype of ``query``, zeros where there is nothing to attend to.

    Raises:
        TypeError: query, key or value is not a tensor of floats, mask not of booleans, or
            block_size not an integer.
        ValueError: the shapes do not fit, scale is not positive, or block_size less than 1.

    Examples:
        >>> query, key = torch.tensor([[0.0, math.sqrt(2)]]), torch.eye(2)
        >>> tiled_attention(query, key, torch.tensor([[0.0], [10.0]]), block_size=1)
        tensor([[7.3106]])
    """
    check.attention(query, key, value, scale)
    L, S = query.shape[-2], key.shape[-2]
    if mask is not None:
        check.mask(mask, (*query.shape[:-1], S))
        mask = mask.expand(*query.shape[:-1], S)  # a view, whatever its size
    position = torch.arange(S - L, S, device=query.device)[:, None]  # of each query: (L, 1)
    index = torch.arange(S, device=query.device)  # of each key: (S,)
    output = [query.new_empty(*query.shape[:-2], 0, value.shape[-1])]
    for rows, blocks in tiles(L, S, block_size, is_causal=is_causal):
        queries = query[..., rows, :]
        sums = Sums.over_nothing(queries, value)
        for block in blocks:
            seen = None if mask is None else mask[..., rows, block]
            if is_causal:
                past = index[block] <= position[rows]
                seen = past if seen is None else past & seen
            tile = queries, key[..., block, :], value[..., block, :]
            sums = merge_sums(sums, block_sums(*tile, mask=seen, scale=scale))
        output.append(sums.output.to(query.dtype))
    return torch.cat(output, dim=-2)  # (..., L, D_v)
    # --8<-- [end:tiled_attention]


step(tiled_attention, "mix", in_blocks=True)

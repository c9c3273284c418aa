"""The fast forms of `mhattn.relative`: a block of queries at a time.

Nothing of the size of all scores is kept. In training, a block is computed again for its gradient.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mhattn import checks as check
from mhattn.functional import masked_softmax, repeat_heads
from mhattn.fused import four_axes, fused_attention

__all__: list[str] = []  # called by the classes in `mhattn.relative`

ROOM = 2**18  # scores of a block on a CPU: 1 MiB in float32
ROOM_ELSEWHERE = 2**26
ROWS = 1024  # queries that the fused kernel gets at a time
CAUSAL_ROWS = 256  # fewer, so that more of the hidden keys can be left out
Slices = tuple[slice, ...]


def attend_block(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    key_vectors: Tensor,
    value_vectors: Tensor,
    first: int,
    is_causal: bool,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Scores, weights and output of neighbouring queries, the first beside key ``first``."""
    reach = len(key_vectors) // 2
    scores = query @ key.mT  # (..., L, S)
    add_by_distance(scores, query @ key_vectors.T, first)
    if mask is not None:
        weights = masked_softmax(scores, mask, is_causal=is_causal)
    else:
        if is_causal:  # the last query stands beside the last key
            L = query.shape[-2]
            later = torch.ones(L, L, dtype=torch.bool, device=query.device).triu(1)
            scores[..., -L:].masked_fill_(later, -torch.inf)
        weights = scores.softmax(dim=-1)
    weights = F.dropout(weights, dropout)
    output = weights @ value  # (..., L, D)
    return output + sum_by_distance(weights, reach, first) @ value_vectors, weights


def add_by_distance(scores: Tensor, by_distance: Tensor, first: int) -> None:
    """Add ``(..., L, 2 reach + 1)`` to ``(..., L, S)``, each number to the keys at its distance.

    Softmax doesn't see what is the same in a whole row, so the number of the keys far behind
    is taken from all others instead.

    One query further on, a key's distance is one less: the numbers of a key lie on a slant. Read
    the table as one long row, from its L-th number on, and cut it again into rows that are one
    shorter: each begins one number earlier in its old row, so the slant stands upright::

        a b c d                         c d e
        e f g h      from c, by three   f g h
        i j k l                         i j k

    What a row borrowed from the next (e) is beyond the keys that are near. Nothing is copied.
    """
    L, reach = scores.shape[-2], by_distance.shape[-1] // 2
    by_distance = by_distance - by_distance[..., :1]
    start, end, cut = _near(scores, reach, first)
    behind, near, ahead = by_distance.split([1, 2 * reach - 1, 1], dim=-1)  # (..., L, 1 or near)
    behind, ahead = (x.expand(*x.shape[:-1], L) for x in (behind, ahead))  # (..., L, L)
    slanted = torch.cat([behind[..., 1:], near, ahead], dim=-1)  # (..., L, 2 (L + reach) - 2)
    width = slanted.shape[-1]
    upright = slanted.flatten(-2)[..., L - 1 : L * width - 1].unflatten(-1, (L, width - 1))
    # upright: (..., L, 2 (L + reach) - 3), column c belongs to key first - reach + 1 + c
    scores[..., start:end].add_(upright[..., cut])
    scores[..., end:].add_(ahead[..., :1])


def sum_by_distance(weights: Tensor, reach: int, first: int) -> Tensor:
    """Sum ``(..., L, S)`` into ``(..., L, 2 reach + 1)``: how much each distance got."""
    L = weights.shape[-2]
    start, end, cut = _near(weights, reach, first)
    width = 2 * (L + reach) - 2
    upright = F.pad(weights[..., start:end], (cut.start, width - 1 - cut.stop))
    slanted = F.pad(upright.flatten(-2), (L - 1, 1)).unflatten(-1, (L, width))
    behind, near, ahead = slanted.split([L - 1, 2 * reach - 1, L], dim=-1)
    behind = behind.sum(-1, keepdim=True) + weights[..., :start].sum(-1, keepdim=True)
    ahead = ahead.sum(-1, keepdim=True) + weights[..., end:].sum(-1, keepdim=True)
    return torch.cat([behind, near, ahead], dim=-1)


def _near(scores: Tensor, reach: int, first: int) -> tuple[int, int, slice]:
    """The keys that are nearer than ``reach`` to any query: where they start and end.

    And which of them exist, if counted from ``first - reach + 1``.
    """
    L, S = scores.shape[-2:]
    low, high = first - reach + 1, first + L + reach - 1
    start = min(max(low, 0), S)
    end = max(min(high, S), start)
    return start, end, slice(start - low, end - low)


def by_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    vectors: Sequence[Tensor],
    is_causal: bool,
    dropout: float,
    return_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """`attend_block` for all queries; in training, blocks are computed again when needed."""
    shape, S = query.shape, key.shape[-2]
    key, value = repeat_heads(key, query), repeat_heads(value, query)
    mask = None if mask is None else _for_heads(mask, (*shape[:-1], S))
    query, key, value = map(four_axes, (query, key, value))  # (B, H, L or S, D)
    B, H, L, _ = query.shape
    room = _room(query)
    at_once = min(max(32, room // S), 128)  # queries
    of_a_head = max(1, min(at_once, L) * S)  # scores
    heads = max(1, room // of_a_head)
    sizes = max(1, room // (max(1, min(heads, H)) * of_a_head)), heads, at_once
    run = _again_if_trained(query, key, value, *vectors)
    output = query.new_zeros(query.shape)
    weights = query.new_zeros(B, H, L, S) if return_weights else None
    for here, rows, seen in _blocks((B, H, L), S, is_causal, sizes):
        inputs = query[*here, rows], key[*here, :seen], value[*here, :seen]
        hidden = None if mask is None else _cut(mask[here], rows, seen)
        first = S - L + rows.start
        mixed, shares = run(attend_block, *inputs, hidden, *vectors, first, is_causal, dropout)
        output[*here, rows] = mixed
        if weights is not None:
            weights[*here, rows, :seen] = shares
    return output.view(shape), None if weights is None else weights.view(*shape[:-1], S)


# --8<-- [start:backwards]
def backwards(table: Tensor, first: int, last: int, S: int) -> Tensor:
    """The biases of the queries from position ``last`` down to ``first``, as a view.

    One query further back, every distance is one more: its row is the same stretch of the table,
    one number further on. Both strides are 1, and nothing is copied.
    """
    zero = table.shape[-1] // 2  # where distance 0 stands
    stretch = table[:, zero - last : zero - first + S]
    return stretch.unfold(-1, S, 1)  # (H, last - first + 1, S)
    # --8<-- [end:backwards]


def with_bias(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    bias: Tensor,
    is_causal: bool,
    scale: float | None,
    dropout: float,
) -> Tensor:
    """Attend, with `backwards` biases: without a mask, the queries go backwards as well."""
    if mask is None:  # causality is in the table
        bias = bias.contiguous() if query.is_cuda else bias  # kernels there want aligned rows
        query = query.flip(-2)
        mixed = fused_attention(query, key, value, bias=bias, scale=scale, dropout=dropout)
        return mixed.flip(-2)
    return fused_attention(
        query,
        key,
        value,
        mask=mask,
        bias=bias.flip(-2),  # a copy, of this block
        is_causal=is_causal,
        scale=scale,
        dropout=dropout,
    )


def biased_by_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    table: Tensor,
    is_causal: bool,
    scale: float | None,
    dropout: float,
) -> Tensor:
    """`with_bias` for all queries, so that only a block of them is turned round at a time."""
    shape, S = query.shape, key.shape[-2]
    mask = None if mask is None else _for_heads(mask, (*shape[:-1], S))
    query, key, value = map(four_axes, (query, key, value))
    (B, H, L, D), group = query.shape, query.shape[1] // key.shape[1]
    if is_causal and mask is None:
        distance = torch.arange(table.shape[-1], device=table.device) - table.shape[-1] // 2
        table = table.masked_fill(distance > 0, -math.inf)
    at_once = CAUSAL_ROWS if is_causal else ROWS  # queries
    of_a_group = max(1, B * min(at_once, L) * D * group)  # numbers in its queries
    heads = max(1, _room(query) // 4 // of_a_group) * group
    run = _again_if_trained(table)
    output = query.new_zeros(B, H, L, value.shape[-1])
    sizes = max(1, B), heads, at_once
    for here, rows, seen in _blocks((B, H, L), S, is_causal, sizes):
        shared = here[0], slice(here[1].start // group, here[1].stop // group)
        inputs = query[*here, rows], key[*shared, :seen], value[*shared, :seen]
        hidden = None if mask is None else _cut(mask[here], rows, seen)
        bias = backwards(table[here[1]], S - L + rows.start, S - L + rows.stop - 1, seen)
        mixed = run(with_bias, *inputs, hidden, bias, is_causal, scale, dropout)
        output[*here, rows] = mixed
    return output.view(*shape[:-1], value.shape[-1])


def _blocks(
    lengths: Sequence[int], S: int, is_causal: bool, sizes: Sequence[int]
) -> Iterator[tuple[Slices, slice, int]]:
    """Sequences and heads, queries, and how many keys these need."""
    L = lengths[-1]
    blind = max(0, L - S) if is_causal else 0  # queries before the first key
    starts = (0, 0, blind)
    triples = zip(starts, lengths, sizes, strict=True)
    for begins in itertools.product(*(range(*triple) for triple in triples)):
        ends = (min(i + size, n) for i, size, n in zip(begins, sizes, lengths, strict=True))
        *here, rows = map(slice, begins, ends)
        yield tuple(here), rows, S - L + rows.stop if is_causal else S


def _room(x: Tensor) -> int:
    return ROOM if x.device.type == "cpu" else ROOM_ELSEWHERE


def _again_if_trained(*inputs: Tensor) -> Callable[..., Any]:
    """Call a function, with activation checkpointing if gradients will be needed."""
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return functools.partial(checkpoint, use_reentrant=False)
    return lambda function, *arguments: function(*arguments)


def _for_heads(mask: Tensor, shape: Sequence[int]) -> Tensor:
    """Expand over batch and heads; keep a query axis of size 1."""
    check.mask(mask, shape)
    mask = torch.atleast_2d(mask)
    return four_axes(mask.expand(*shape[:-2], *mask.shape[-2:]))


def _cut(mask: Tensor, rows: slice, seen: int) -> Tensor:
    """The part of a mask for some queries and the first keys, where it differs between them."""
    mask = mask if mask.shape[-2] == 1 else mask[..., rows, :]
    return mask if mask.shape[-1] == 1 else mask[..., :seen]

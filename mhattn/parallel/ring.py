"""One long sequence on several processes: each holds some of its tokens.

Three ways for the queries to meet all keys: keys and values go round in a ring (Liu et al. 2023,
https://arxiv.org/abs/2310.01889), tokens and heads change places (Jacobs et al. 2023,
https://arxiv.org/abs/2309.14509), or, for a few queries, each process sums over its own keys. B
batch, H heads, L tokens of this rank, S keys, D head_dim.
"""

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mhattn.core import checks as check
from mhattn.core.functional import attention, attention_scores, repeat_heads
from mhattn.parallel.local import agree, alike, checksum, note
from mhattn.parallel.places import Places, meet
from mhattn.variants.tiled import Sums, block_sums, merge_sums

__all__ = ["exchange_attention", "ring_attention", "split_attention"]


def pass_on(block: Tensor, received: Tensor, group: Any) -> Tensor:
    """Send to the next rank, receive from the one before; all at the same time."""
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if world_size == 1:
        return block
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    both = [  # NCCL would send first, and wait for ranks that all send, unless it gets both at once
        dist.P2POp(dist.isend, block.contiguous(), group=group, group_peer=after),
        dist.P2POp(dist.irecv, received, group=group, group_peer=before),
    ]
    for each in dist.batch_isend_irecv(both):
        each.wait()
    return received


# --8<-- [start:Ring]
class Ring(torch.autograd.Function):
    """Forward: keys and values go round. Backward: once more, and their gradients with them."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, places: Places, group: Any):  # type: ignore[no-untyped-def]
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        sums, block = Sums.over_nothing(query, value), torch.stack([key, value])
        for step in range(ranks):
            owner = (rank - step) % ranks  # whose keys are here now
            mask = places.mask(rank, owner)
            if mask.any():
                sums = merge_sums(sums, sums_over(query, block, mask, places.added(owner)))
            if step < ranks - 1:
                note(f"ring attention: step {step + 1} of {ranks - 1} forward")
                owner = (owner - 1) % ranks
                block = pass_on(block, empty_block(block, places, owner), group)
        output = sums.output.to(query.dtype)  # (B, H, L, D)
        ctx.save_for_backward(query, key, value, output, sums.log_sum_exp)
        ctx.places, ctx.group = places, group
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor):  # type: ignore[no-untyped-def]
        query, key, value, output, log_sum_exp = ctx.saved_tensors
        rank, ranks = dist.get_rank(ctx.group), dist.get_world_size(ctx.group)
        wide = log_sum_exp.dtype
        along = (grad.to(wide) * output.to(wide)).sum(dim=-1, keepdim=True)  # (B, H, L, 1)
        query_grad = torch.zeros_like(query, dtype=wide)
        block = torch.stack([key, value])
        block_grad = torch.zeros_like(block, dtype=wide)
        for step in range(ranks):
            owner = (rank - step) % ranks
            mask = ctx.places.mask(rank, owner)
            if mask.any():
                given = (query.to(wide), grad.to(wide), along, log_sum_exp)
                parts = block_gradients(given, block.to(wide), mask, ctx.places.added(owner))
                query_grad += parts[0]
                block_grad += torch.stack(parts[1:])
            note(f"ring attention: step {step + 1} of {ranks} backward")
            owner = (owner - 1) % ranks
            if step < ranks - 1:
                block = pass_on(block, empty_block(block, ctx.places, owner), ctx.group)
            block_grad = pass_on(block_grad, empty_block(block_grad, ctx.places, owner), ctx.group)
        key_grad, value_grad = block_grad.to(key.dtype)  # home again
        return query_grad.to(query.dtype), key_grad, value_grad, None, None
        # --8<-- [end:Ring]


def empty_block(block: Tensor, places: Places, owner: int) -> Tensor:
    """Room for the keys and values of another rank, which may hold more tokens or fewer."""
    return block.new_empty(*block.shape[:3], len(places.positions[owner]), block.shape[4])


def sums_over(query: Tensor, block: Tensor, mask: Tensor, bias: Tensor | None) -> Sums:
    """The sums over one block of keys, with what is added to their scores."""
    if bias is None:
        return block_sums(query, *block, mask=mask)
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = attention_scores(query.to(wide), block[0].to(wide)) + bias.to(wide)
    scores = scores.masked_fill(~mask, -math.inf)  # (B, H, L, S)
    largest = scores.amax(dim=-1, keepdim=True)
    exponentials = (scores - largest.masked_fill(largest == -math.inf, 0.0)).exp()
    mixed = exponentials @ repeat_heads(block[1].to(wide), query)
    return Sums(largest, exponentials.sum(dim=-1, keepdim=True), mixed)


# --8<-- [start:block_gradients]
def block_gradients(
    given: tuple[Tensor, ...], block: Tensor, mask: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of one block from the log-sum-exp of the whole row: no table is kept."""
    groups = block.shape[2]
    query, grad, along, log_sum_exp = (x.unflatten(1, (groups, -1)) for x in given)
    key, value = block[0][:, :, None], block[1][:, :, None]  # (B, G, 1, S, D)
    scale = 1 / math.sqrt(query.shape[-1])
    scores = query @ key.mT * scale  # (B, G, H / G, L, S)
    if bias is not None:
        scores = scores + in_groups(bias, groups)
    scores = scores.masked_fill(~in_groups(mask, groups), -math.inf)
    weights = (scores - log_sum_exp.masked_fill(log_sum_exp == -math.inf, 0.0)).exp()
    score_grad = weights * (grad @ value.mT - along) * scale
    query_grad = (score_grad @ key).flatten(1, 2)
    return query_grad, (score_grad.mT @ query).sum(dim=2), (weights.mT @ grad).sum(dim=2)
    # --8<-- [end:block_gradients]


def in_groups(x: Tensor, groups: int) -> Tensor:
    """``(..., H or 1, L, S)`` so that it goes with scores ``(B, G, H / G, L, S)``."""
    if x.ndim < 3:
        return x
    return x[..., None, :, :] if x.shape[-3] == 1 else x.unflatten(-3, (groups, -1))


def ring_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    positions: Tensor | None = None,
    documents: Tensor | None = None,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """Attend to the keys of all ranks, which go round in a ring, block by block.

    Args:
        query: ``(B, H, L, D)``, of the tokens of this rank; L may differ from rank to rank.
        key: ``(B, H_kv, L, D)``.
        value: ``(B, H_kv, L, D)``.
        is_causal: a query sees the keys whose position is not after its own.
        positions: of this rank's tokens, integers ``(L,)``, as `held_tokens` has them. Default: the
            ranks hold the sequence in their order.
        documents: of which document each token is, integers ``(L,)``: a query sees its own only.
        mask: booleans that broadcast to ``(B, H, L, S)``, rows of this rank's queries, and a column
            for each token of the whole text, in its order. True: may attend.
        bias: floats of that shape, which are added to the scores, without gradients.
        group: the processes. Default: all of them.

    Returns:
        ``(B, H, L, D)``; its gradients, too, are those of one process.

    Raises:
        TypeError: an input is not a tensor of floats, or they differ in dtype, or mask is not of
            booleans.
        ValueError: shapes do not fit, bias needs gradients, or ranks differ in what has to be
            equal.
        RuntimeError: there is no process group, or another process has gone.

    Examples:
        On one process the ring has one block; `run` calls it on several.

        >>> from mhattn.parallel import run
        >>> ones = torch.ones(1, 2, 3, 4)
        >>> run(ring_attention, 1, ones, ones, ones)[0].shape
        torch.Size([1, 2, 3, 4])
    """
    given = {"is_causal": is_causal, "positions": positions, "documents": documents}
    given |= {"mask": mask, "bias": bias}
    places = meet("ring attention", (query, key, value), given, group)
    output: Tensor = Ring.apply(query, key, value, places, group)  # type: ignore[no-untyped-call]
    return output


# --8<-- [start:Exchange]
class Exchange(torch.autograd.Function):
    """Tokens for heads: what comes has all tokens of some heads. Backward is the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lengths: list[int], to_heads: bool, group: Any):  # type: ignore[no-untyped-def]
        ctx.lengths, ctx.to_heads, ctx.group = lengths, to_heads, group
        return exchange(x, lengths, to_heads, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor):  # type: ignore[no-untyped-def]
        return exchange(grad, ctx.lengths, not ctx.to_heads, ctx.group), None, None, None


def exchange(x: Tensor, lengths: list[int], to_heads: bool, group: Any) -> Tensor:
    """``(B, H, L, D)`` to ``(B, H / n, sum of all L, D)``, or back: one all-to-all."""
    ranks, rank = len(lengths), dist.get_rank(group)
    heads = x.shape[1] // ranks if to_heads else x.shape[1]
    parts = x.split(heads, dim=1) if to_heads else x.split(lengths, dim=2)
    sizes = lengths if to_heads else [lengths[rank]] * ranks
    shapes = [(x.shape[0], heads, size, x.shape[3]) for size in sizes]
    received = x.new_empty(sum(math.prod(shape) for shape in shapes))
    sent = torch.cat([part.flatten() for part in parts])
    splits = [math.prod(shape) for shape in shapes], [part.numel() for part in parts]
    note("all-to-all: " + ("tokens to heads" if to_heads else "heads to tokens"))
    dist.all_to_all_single(received, sent, *splits, group=group)
    pieces = [p.view(s) for p, s in zip(received.split(splits[0]), shapes, strict=True)]
    return torch.cat(pieces, dim=2 if to_heads else 1)
    # --8<-- [end:Exchange]


def exchange_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    positions: Tensor | None = None,
    documents: Tensor | None = None,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    group: dist.ProcessGroup | None = None,
    ring: dist.ProcessGroup | None = None,
) -> Tensor:
    """Attend with some heads over all tokens: an all-to-all before, and one after (Ulysses).

    Args:
        query: ``(B, H, L, D)``, of the tokens of this rank; L may differ from rank to rank.
        key: ``(B, H_kv, L, D)``.
        value: ``(B, H_kv, L, D)``.
        is_causal: a query sees the keys whose position is not after its own.
        positions: of this rank's tokens, integers ``(L,)``. Default: the ranks hold the sequence
            in their order.
        documents: of which document each token is, integers ``(L,)``: a query sees its own only.
        mask: booleans that broadcast to ``(B, H, L, S)``, rows of this rank's queries, and a column
            for each token of the whole text, in its order. True: may attend. Its rows are sent.
        bias: floats of that shape, which are added to the scores, without gradients.
        group: the processes that change tokens for heads. Default: all of them.
        ring: processes of other groups with the same heads, whose keys come round in a ring then
            (`ring_attention`). With ``positions``; a mask or bias goes in one of both ways only.

    Returns:
        ``(B, H, L, D)``; its gradients, too, are those of one process.

    Raises:
        TypeError: an input is not a tensor of floats, or they differ in dtype, or mask is not of
            booleans.
        ValueError: shapes do not fit, the number of processes does not divide the heads, bias needs
            gradients, there is a ring without positions or with a mask or a bias, or ranks differ
            in what has to be equal.
        RuntimeError: there is no process group, or another process has gone.

    Examples:
        >>> from mhattn.parallel import run
        >>> ones = torch.ones(1, 2, 3, 4)
        >>> run(exchange_attention, 1, ones, ones, ones)[0].shape
        torch.Size([1, 2, 3, 4])
    """
    if ring is not None and (positions is None or mask is not None or bias is not None):
        raise ValueError("ring needs positions, and neither mask nor bias")
    given = {"is_causal": is_causal, "positions": positions, "documents": documents}
    given |= {"mask": mask, "bias": bias}
    places = meet("attention by all-to-all", (query, key, value), given, group)
    ranks = len(places.positions)
    for name, heads in {"num_heads": query.shape[1], "num_kv_heads": key.shape[1]}.items():
        if heads % ranks:
            raise ValueError(f"the number of processes, {ranks}, must divide {name}, got {heads}")
    lengths = [len(each) for each in places.positions]
    parts = [Exchange.apply(x, lengths, True, group) for x in (query, key, value)]  # type: ignore[no-untyped-call]
    whole = all_here(places, lengths, group)
    heads_here: Any
    if ring is None:
        heads_here = attention(*parts, mask=whole.mask(0, 0), bias=whole.added(0))
    else:
        documents = None if whole.documents is None else whole.documents[0]
        held = {"positions": whole.positions[0], "documents": documents}
        heads_here = ring_attention(*parts, is_causal=is_causal, group=ring, **held)  # type: ignore[arg-type]
    output: Tensor = Exchange.apply(heads_here, lengths, False, group)  # type: ignore[no-untyped-call]
    return output


def all_here(places: Places, lengths: list[int], group: Any) -> Places:
    """Of a process that has all tokens of some heads: the rows of tables come from the others."""
    tables = []
    for x in (places.seen, places.bias):
        if x is not None:
            x = x.expand(-1, len(lengths), -1, -1) if x.shape[1] == 1 else x
            sent = x.to(torch.uint8) if x.dtype == torch.bool else x
            x = exchange(sent, lengths, True, group).to(x.dtype)  # (B or 1, H / n or 1, S, S)
        tables.append(x)
    documents = None if places.documents is None else [torch.cat(places.documents)]
    return Places([torch.cat(places.positions)], documents, places.is_causal, *tables)


# --8<-- [start:split_attention]
def split_attention(
    query: Tensor, key: Tensor, value: Tensor, *, group: dist.ProcessGroup | None = None
) -> Tensor:
    """Attend with the same queries on all ranks to keys that are shared out, as in decoding.

    Each rank sums over its own keys, in units of its own largest score; a maximum and a sum over
    all ranks bring the sums into the same units. Without gradients.

    Args:
        query: ``(B, H, L, D)``, the same on all ranks.
        key: ``(B, H_kv, S, D)``, of the keys of this rank; S may be 0.
        value: ``(B, H_kv, S, D)``.
        group: the processes. Default: all of them.

    Returns:
        ``(B, H, L, D)``, the same on all ranks.

    Raises:
        TypeError: an input is not a tensor of floats, or they differ in dtype.
        ValueError: shapes do not fit, or ranks differ in what has to be equal: the query, too.
        RuntimeError: there is no process group, or another process has gone.

    Examples:
        >>> from mhattn.parallel import run
        >>> ones = torch.ones(1, 2, 3, 4)
        >>> run(split_attention, 1, ones[:, :, :1], ones, ones)[0].shape
        torch.Size([1, 2, 1, 4])
    """
    same: dict[str, Any] = {}
    own, problem = None, None
    try:
        check_split(query, key, value)
        same = {"dtype": query.dtype, "shape of the query": tuple(query.shape)}
        same["H_kv"], own = key.shape[1], (key.shape[2], checksum(query))
    except (TypeError, ValueError) as error:
        problem = error
    found = agree("split attention", same, own, group, problem=problem)
    lengths = [each[0] for each in found]
    if not sum(lengths):
        raise ValueError(f"key must have tokens on some rank, got {lengths}")
    alike("query", [each[1] for each in found])
    with torch.no_grad():
        sums = block_sums(query, key, value) if key.shape[2] else Sums.over_nothing(query, value)
        note("split attention: the largest score of all ranks")
        largest = sums.largest.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        both = torch.cat([sums.mixed, sums.total], dim=-1) * (sums.largest - largest).exp()
        note("split attention: the sums of all ranks")
        dist.all_reduce(both, group=group)
        return (both[..., :-1] / both[..., -1:]).to(query.dtype)
    # --8<-- [end:split_attention]


def check_split(query: Tensor, key: Tensor, value: Tensor) -> None:
    """This rank's tensors; its keys may be none."""
    for name, x in {"query": query, "key": key, "value": value}.items():
        check.floats(name, x)
        check.axes(name, x, 4, exactly=True)
    if key.shape[2]:
        check.attention(query, key, value, None)

"""One long sequence on several processes: each holds some of its tokens.

Three ways for the queries to meet all keys: keys and values go round in a ring (Liu et al. 2023,
https://arxiv.org/abs/2310.01889), tokens and heads change places (Jacobs et al. 2023,
https://arxiv.org/abs/2309.14509), or, for a few queries, each process sums over its own keys. B
batch, H heads, L tokens of this rank, S keys, D head_dim.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from mhattn.core import checks as check
from mhattn.core.functional import attention
from mhattn.parallel.local import agree, note
from mhattn.variants.tiled import Sums, block_sums, merge_sums

__all__ = ["exchange_attention", "held_tokens", "ring_attention", "split_attention"]


# --8<-- [start:held_tokens]
def held_tokens(length: int, world_size: int, rank: int, *, order: str = "blocks") -> Tensor:
    """Which tokens of a sequence a rank holds.

    Args:
        length: of the whole sequence; it need not be a multiple of anything.
        world_size: number of processes.
        rank: of this one.
        order: ``"blocks"``, one run of tokens each; ``"zigzag"``, two runs, one from the beginning
            and its mirror from the end; ``"stripes"``, every world_size-th token (Brandon et al.
            2023, https://arxiv.org/abs/2311.09431).

    Returns:
        Their positions, integers ``(L,)``.

    Raises:
        TypeError: length, world_size or rank is not an integer.
        ValueError: order is another word, or rank not one of the processes.

    Examples:
        >>> [held_tokens(8, 2, rank, order="zigzag").tolist() for rank in range(2)]
        [[0, 1, 6, 7], [2, 3, 4, 5]]
    """
    for name, size in {"length": length, "world_size": world_size}.items():
        check.at_least(name, size, 1)
    check.at_least("rank", rank, 0)
    if rank >= world_size:
        raise ValueError(f"rank must be less than world_size, {world_size}, got {rank}")
    tokens = torch.arange(length)
    if order == "blocks":
        return tokens.tensor_split(world_size)[rank]
    if order == "zigzag":
        runs = tokens.tensor_split(2 * world_size)
        return torch.cat([runs[rank], runs[2 * world_size - 1 - rank]])
    if order == "stripes":
        return tokens[rank::world_size]
    raise ValueError(f"order must be 'blocks', 'zigzag' or 'stripes', got {order!r}")
    # --8<-- [end:held_tokens]


class Places(NamedTuple):
    """Where the tokens of each rank stand, and what a query may see."""

    positions: list[Tensor]
    documents: list[Tensor] | None
    is_causal: bool

    def mask(self, rank: int, other: int) -> Tensor:
        """``(L, S)``: which keys of the other rank the queries of this rank may see."""
        query, key = self.positions[rank][:, None], self.positions[other]
        seen = key <= query if self.is_causal else torch.ones_like(key <= query)
        if self.documents is not None:
            seen = seen & (self.documents[rank][:, None] == self.documents[other])
        return seen


def meet(
    plan: str, parts: tuple[Tensor, Tensor, Tensor], places: dict[str, Any], group: Any
) -> Places:
    """Check the tensors, compare with the other ranks, and learn where their tokens stand."""
    query, key, value = parts
    check.attention(query, key, value, None)
    length = key.shape[2]
    if query.shape[2] != length or value.shape != key.shape:
        got = [tuple(part.shape) for part in parts]
        raise ValueError(f"query, key and value must have the same tokens and head_dim, got {got}")
    for name in ("positions", "documents"):
        if places[name] is not None and places[name].shape != (length,):
            got_shape = tuple(places[name].shape)
            raise ValueError(f"{name} must be of shape {(length,)}, got {got_shape}")
    same = {
        "dtype": query.dtype,
        "sizes of the query": (*query.shape[:2], query.shape[3]),
        "sizes of the key": (*key.shape[:2], key.shape[3]),
        "is_causal": places["is_causal"],
        "with positions": places["positions"] is not None,
        "with documents": places["documents"] is not None,
    }
    all_own = agree(plan, same, (length, places["positions"], places["documents"]), group)
    starts = [sum(own[0] for own in all_own[:rank]) for rank in range(len(all_own))]
    positions = [
        torch.arange(start, start + own[0]) if own[1] is None else own[1]
        for start, own in zip(starts, all_own, strict=True)
    ]
    documents = None if places["documents"] is None else [own[2] for own in all_own]
    return Places(positions, documents, places["is_causal"])


def pass_on(block: Tensor, received: Tensor, group: Any) -> Tensor:
    """Send to the next rank, receive from the one before; all at the same time."""
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if world_size == 1:
        return block
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    ahead = dist.isend(block.contiguous(), group=group, group_dst=after)
    behind = dist.irecv(received, group=group, group_src=before)
    if ahead is None or behind is None:
        raise RuntimeError("this process must be one of the group that the ring is made of")
    ahead.wait()
    behind.wait()
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
                sums = merge_sums(sums, block_sums(query, *block, mask=mask))
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
                parts = block_gradients(given, block.to(wide), mask)
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


# --8<-- [start:block_gradients]
def block_gradients(
    given: tuple[Tensor, ...], block: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of one block from the log-sum-exp of the whole row: no table is kept."""
    groups = block.shape[2]
    query, grad, along, log_sum_exp = (x.unflatten(1, (groups, -1)) for x in given)
    key, value = block[0][:, :, None], block[1][:, :, None]  # (B, G, 1, S, D)
    scale = 1 / math.sqrt(query.shape[-1])
    scores = (query @ key.mT * scale).masked_fill(~mask, -math.inf)  # (B, G, H / G, L, S)
    weights = (scores - log_sum_exp.masked_fill(log_sum_exp == -math.inf, 0.0)).exp()
    score_grad = weights * (grad @ value.mT - along) * scale
    query_grad = (score_grad @ key).flatten(1, 2)
    return query_grad, (score_grad.mT @ query).sum(dim=2), (weights.mT @ grad).sum(dim=2)
    # --8<-- [end:block_gradients]


def ring_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    positions: Tensor | None = None,
    documents: Tensor | None = None,
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
        group: the processes. Default: all of them.

    Returns:
        ``(B, H, L, D)``; its gradients, too, are those of one process.

    Raises:
        TypeError: an input is not a tensor of floats, or they differ in dtype.
        ValueError: shapes do not fit, or ranks differ in what has to be equal.
        RuntimeError: there is no process group, or another process has gone.

    Examples:
        On one process the ring has one block; `run` calls it on several.

        >>> from mhattn.parallel import run
        >>> ones = torch.ones(1, 2, 3, 4)
        >>> run(ring_attention, 1, ones, ones, ones)[0].shape
        torch.Size([1, 2, 3, 4])
    """
    given = {"is_causal": is_causal, "positions": positions, "documents": documents}
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
    group: dist.ProcessGroup | None = None,
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
        group: the processes. Default: all of them.

    Returns:
        ``(B, H, L, D)``; its gradients, too, are those of one process.

    Raises:
        TypeError: an input is not a tensor of floats, or they differ in dtype.
        ValueError: shapes do not fit, the number of processes does not divide the heads, or ranks
            differ in what has to be equal.
        RuntimeError: there is no process group, or another process has gone.

    Examples:
        >>> from mhattn.parallel import run
        >>> ones = torch.ones(1, 2, 3, 4)
        >>> run(exchange_attention, 1, ones, ones, ones)[0].shape
        torch.Size([1, 2, 3, 4])
    """
    given = {"is_causal": is_causal, "positions": positions, "documents": documents}
    places = meet("attention by all-to-all", (query, key, value), given, group)
    ranks = len(places.positions)
    for name, heads in {"num_heads": query.shape[1], "num_kv_heads": key.shape[1]}.items():
        if heads % ranks:
            raise ValueError(f"the number of processes, {ranks}, must divide {name}, got {heads}")
    lengths = [len(each) for each in places.positions]
    parts = [Exchange.apply(x, lengths, True, group) for x in (query, key, value)]  # type: ignore[no-untyped-call]
    whole = Places(
        [torch.cat(places.positions)],
        None if places.documents is None else [torch.cat(places.documents)],
        is_causal,
    )
    heads_here: Any = attention(*parts, mask=whole.mask(0, 0))
    output: Tensor = Exchange.apply(heads_here, lengths, False, group)  # type: ignore[no-untyped-call]
    return output


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
        ValueError: shapes do not fit, or ranks differ in what has to be equal.
        RuntimeError: there is no process group, or another process has gone.

    Examples:
        >>> from mhattn.parallel import run
        >>> ones = torch.ones(1, 2, 3, 4)
        >>> run(split_attention, 1, ones[:, :, :1], ones, ones)[0].shape
        torch.Size([1, 2, 1, 4])
    """
    same = {"dtype": query.dtype, "shape of the query": tuple(query.shape)}
    lengths = agree("split attention", same | {"H_kv": key.shape[1]}, key.shape[2], group)
    if not sum(lengths):
        raise ValueError(f"key must have tokens on some rank, got {lengths}")
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

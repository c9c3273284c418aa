"""Where the tokens of each process stand in the text, and which keys a query may see."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mhattn.core import checks as check
from mhattn.parallel.local import agree

__all__ = ["held_tokens"]


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
    """Where the tokens of each rank stand, and what the queries of this rank may see."""

    positions: list[Tensor]
    documents: list[Tensor] | None
    is_causal: bool
    seen: Tensor | None  # (B or 1, H or 1, L, all tokens), in the order of the text
    bias: Tensor | None  # the same

    def mask(self, rank: int, other: int) -> Tensor:
        """``(..., L, S)``: which keys of the other rank the queries of this rank may see."""
        query, key = self.positions[rank][:, None], self.positions[other]
        seen = key <= query if self.is_causal else torch.ones_like(key <= query)
        if self.documents is not None:
            seen = seen & (self.documents[rank][:, None] == self.documents[other])
        return seen if self.seen is None else seen & self.seen[..., self.positions[other]]

    def added(self, other: int) -> Tensor | None:
        """``(..., L, S)``: what is added to the scores of the keys of the other rank."""
        return None if self.bias is None else self.bias[..., self.positions[other]]


def meet(
    plan: str, parts: tuple[Tensor, Tensor, Tensor], given: dict[str, Any], group: Any
) -> Places:
    """Check the tensors, compare with the other ranks, and learn where their tokens stand."""
    same: dict[str, Any] = {}
    own, problem = None, None
    try:
        same, own = facts(parts, given)
    except (TypeError, ValueError) as error:
        problem = error
    all_own = agree(plan, same, own, group, problem=problem)
    device = parts[0].device
    starts = [sum(each[0] for each in all_own[:rank]) for rank in range(len(all_own))]
    positions = [
        (torch.arange(start, start + length) if stand is None else stand).to(device)
        for start, (length, stand, _) in zip(starts, all_own, strict=True)
    ]
    documents = None if given["documents"] is None else [each[2].to(device) for each in all_own]
    tables = {name: given[name] for name in ("mask", "bias") if given[name] is not None}
    for name, table in tables.items():
        in_order = torch.cat(positions).sort().values
        if table.shape[-1] != len(in_order):
            rule = f"{name} must have a column for each of {len(in_order)} tokens"
            raise ValueError(f"{rule}, got {table.shape[-1]}")
        if in_order.tolist() != list(range(len(in_order))):
            rule = "positions must be 0, 1, 2 and so on, each on one rank, with a mask or a bias"
            raise ValueError(f"{rule}, got {in_order.tolist()[:8]}")
    if documents is None:
        not_the_same(positions)
    rows = {name: all_rows(x, parts[0].shape[2]) for name, x in tables.items()}
    return Places(positions, documents, given["is_causal"], rows.get("mask"), rows.get("bias"))


def not_the_same(positions: list[Tensor]) -> None:
    """A token of two ranks would count twice: somebody has asked for those of another rank."""
    for rank, own in enumerate(positions):
        for other in range(rank):
            both = own[torch.isin(own, positions[other])]
            if len(both):
                got = f"{both.tolist()[:8]} on rank {other} and on rank {rank}"
                raise ValueError(f"positions must differ from rank to rank, got {got}")


def facts(parts: tuple[Tensor, ...], given: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """What has to be the same on all ranks, and what is this rank's own."""
    query, key, value = parts
    check.attention(query, key, value, None)
    length = key.shape[2]
    if query.shape[2] != length or value.shape != key.shape:
        got = [tuple(part.shape) for part in parts]
        raise ValueError(f"query, key and value must have the same tokens and head_dim, got {got}")
    for name in ("positions", "documents"):
        x = given[name]
        if x is None:
            continue
        if not isinstance(x, Tensor) or x.dtype not in check.INTEGERS:
            got_kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"{name} must be a tensor of integers, got {got_kind}")
        if x.shape != (length,):
            raise ValueError(f"{name} must be of shape {(length,)}, got {tuple(x.shape)}")
    same: dict[str, Any] = {
        "dtype": query.dtype,
        "sizes of the query": (*query.shape[:2], query.shape[3]),
        "sizes of the key": (*key.shape[:2], key.shape[3]),
        "is_causal": given["is_causal"],
        "with positions": given["positions"] is not None,
        "with documents": given["documents"] is not None,
    }
    checks: dict[str, Callable[..., None]] = {"mask": check.mask, "bias": check.bias}
    for name, checked in checks.items():
        x = given[name]
        same[f"sizes of the {name}"] = None if x is None else leading(x)
        if x is not None:
            checked(x, (*query.shape[:3], x.shape[-1] if x.ndim else 0))
    if given["bias"] is not None and given["bias"].requires_grad:
        raise ValueError("bias must not need gradients, got requires_grad=True")
    # Sent through the memory of this process: another one's GPU has another number.
    sent = [
        None if given[name] is None else given[name].cpu() for name in ("positions", "documents")
    ]
    return same, (length, *sent)


def leading(x: Tensor) -> tuple[int, ...]:
    """The sizes for batch and heads, and the number of all keys."""
    return (*((1, 1, *x.shape[:-2])[-2:]), x.shape[-1])


def all_rows(x: Tensor, length: int) -> Tensor:
    """A row for each query: ``(B or 1, H or 1, L, all tokens)``."""
    x = x[(None,) * (4 - x.ndim)]
    return x.expand(-1, -1, length, -1)

"""What processes send each other: counted as it is sent, and in closed form."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mhattn.core import checks as check

__all__ = ["SentBytes", "exchange_bytes", "ring_bytes", "visible_scores"]

# The operations that hand tensors to the network, and what we call them.
NAMES = {
    "send": "send",
    "all_reduce": "all-reduce",
    "allreduce_": "all-reduce",
    "alltoall_base_": "all-to-all",
}


class SentBytes(TorchDispatchMode):
    """Counts the bytes that this process hands to the network, by kind of operation.

    An all-reduce is counted by the size of its tensor; what goes over the wire depends on how it
    is done, at least ``2 (n - 1) / n`` times as much on each of n processes.

    Examples:
        >>> with SentBytes() as sent:
        ...     _ = torch.ones(3) + 1
        >>> sent.total
        {}
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = func._schema.name.partition("::")
        if namespace in ("c10d", "_c10d_functional") and name in NAMES:
            # An all-to-all names first what it writes to, then what it sends.
            tensors = args[1] if name == "alltoall_base_" else args[0]
            listed = [tensors] if isinstance(tensors, Tensor) else tensors
            kind = NAMES[name]
            self.total[kind] = self.total.get(kind, 0) + sum(x.nbytes for x in listed)
        return func(*args, **(kwargs or {}))


def ring_bytes(lengths: Sequence[int], sizes: tuple[int, int, int], itemsize: int) -> list[int]:
    """Bytes that each rank sends in `ring_attention`, forward.

    Args:
        lengths: tokens of each rank.
        sizes: B, H_kv and D.
        itemsize: bytes of a number.

    Returns:
        For each rank: it passes on the keys and values of all ranks but the next one.

    Raises:
        TypeError: itemsize is not an integer.
        ValueError: itemsize is less than 1.

    Examples:
        >>> ring_bytes([4, 4], (1, 2, 8), 4)
        [512, 512]
    """
    check.at_least("itemsize", itemsize, 1)
    # A key and a value.
    token = 2 * sizes[0] * sizes[1] * sizes[2] * itemsize
    ranks = len(lengths)
    return [(sum(lengths) - lengths[(rank + 1) % ranks]) * token for rank in range(ranks)]


def exchange_bytes(
    lengths: Sequence[int], sizes: tuple[int, int, int, int], itemsize: int
) -> list[int]:
    """Bytes that each rank hands to the four all-to-alls of `exchange_attention`, forward.

    Args:
        lengths: tokens of each rank.
        sizes: B, H, H_kv and D.
        itemsize: bytes of a number.

    Returns:
        For each rank; of them it keeps one n-th for itself, on n processes.

    Raises:
        TypeError: itemsize is not an integer.
        ValueError: itemsize is less than 1.

    Examples:
        >>> exchange_bytes([4, 4], (1, 2, 2, 8), 4)
        [1024, 1024]
    """
    check.at_least("itemsize", itemsize, 1)
    batch, heads, kv_heads, head_dim = sizes
    # Out go queries, keys and values of its own tokens, all heads; back, outputs of its own heads,
    # all tokens.
    there = (heads + 2 * kv_heads) * batch * head_dim * itemsize
    back = heads // len(lengths) * sum(lengths) * batch * head_dim * itemsize
    return [length * there + back for length in lengths]


def visible_scores(positions: Sequence[Tensor]) -> Tensor:
    """How many scores each rank computes in each step of a causal ring, if it skips the hidden.

    Args:
        positions: for each rank, where its tokens stand, as `held_tokens` has them.

    Returns:
        Integers ``(ranks, steps)``.

    Examples:
        >>> visible_scores([torch.tensor([0, 1]), torch.tensor([2, 3])])
        tensor([[3, 0],
                [3, 4]])
    """
    ranks = len(positions)
    rows = [
        [
            int((positions[(rank - step) % ranks] <= positions[rank][:, None]).sum())
            for step in range(ranks)
        ]
        for rank in range(ranks)
    ]
    return torch.tensor(rows)

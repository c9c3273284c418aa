"""Linear attention in chunks: what `mhattn.linear` does once its arguments have been checked.

Keys come as three tensors: the keys, their values, and beside each value a 1, or a 0 if the key is
hidden. What the features multiply the values by, they multiply the 1 by as well, so the last column
of every sum is its denominator.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from mhattn import checks as check

FeatureMap = Callable[[Tensor], Tensor]


# --8<-- [start:see_all]
def see_all(
    query: Tensor,
    keys: Sequence[Tensor],
    state: Tensor,
    features: FeatureMap,
    chunk_size: int,
) -> tuple[list[Tensor], Tensor]:
    """First add up all the keys and values, then answer the queries."""
    for k, v, one in chunks(chunk_size, *keys):
        v = torch.cat([v, one], dim=-1)  # (..., C, D_v + 1)
        state = state + features(k).mT @ v  # (..., D_phi, D_v + 1)
    queries = chunks(chunk_size, query)
    return [divide(features(q) @ state) for (q,) in queries], state
    # --8<-- [end:see_all]


# --8<-- [start:side_by_side]
def side_by_side(
    query: Tensor,
    keys: Sequence[Tensor],
    state: Tensor,
    features: FeatureMap,
    chunk_size: int,
) -> tuple[list[Tensor], Tensor]:
    """A table within each chunk, the state for all keys before it."""
    outputs = []
    for q, k, v, one in chunks(chunk_size, query, *keys):
        phi_q, phi_k = features(q), features(k)  # (..., C, D_phi)
        v = torch.cat([v, one], dim=-1)  # (..., C, D_v + 1)
        table = (phi_q @ phi_k.mT).tril()  # (..., C, C)
        outputs.append(divide(phi_q @ state + table @ v))  # (..., C, D_v)
        state = state + phi_k.mT @ v  # (..., D_phi, D_v + 1)
    return outputs, state
    # --8<-- [end:side_by_side]


def causal(
    query: Tensor,
    keys: Sequence[Tensor],
    state: Tensor,
    features: FeatureMap,
    chunk_size: int,
) -> tuple[list[Tensor], Tensor]:
    """The last query stands beside the last key; what has no partner comes first."""
    surplus = query.shape[-2] - keys[0].shape[-2]
    early, ahead = max(0, surplus), max(0, -surplus)
    prefix, keys = [x[..., :ahead, :] for x in keys], [x[..., ahead:, :] for x in keys]
    before, state = see_all(query[..., :early, :], prefix, state, features, chunk_size)
    outputs, state = side_by_side(query[..., early:, :], keys, state, features, chunk_size)
    return before + outputs, state


# --8<-- [start:divide]
def divide(mixed: Tensor) -> Tensor:
    """By the last column: what the 1 beside each value became."""
    return mixed[..., :-1] / not_zero(mixed[..., -1:])
    # --8<-- [end:divide]


def not_zero(total: Tensor) -> Tensor:
    """A row without any weight stays a row of zeros."""
    return total.masked_fill(total == 0, 1.0)


def chunks(size: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same positions of each tensor, some at a time.

    By ``split``, whose backward pass puts all pieces together at once. The gradient of a slice is
    as long as the whole sequence, and one for each chunk would make training quadratic again.
    """
    if tensors[0].shape[-2]:
        yield from zip(*(x.split(size, dim=-2) for x in tensors), strict=True)


def hide(
    value: Tensor, mask: Tensor | None, shape: Sequence[int], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Values, zero where their key is hidden, and what stands beside them."""
    one = torch.ones(1, 1, dtype=dtype, device=value.device)
    if mask is not None:
        check.mask_of_keys(mask, shape)
        seen = torch.atleast_2d(mask).mT  # (..., S, 1)
        value, one = value.masked_fill(~seen, 0.0), seen.to(dtype)
    return value, one.expand(*value.shape[:-1], 1)


def first_state(state: Tensor | None, shape: Sequence[int], like: Tensor) -> Tensor:
    """Nothing seen yet, or what an earlier call has seen."""
    if state is None:
        return like.new_zeros(shape)
    check.state(state, shape)
    return state.to(like.dtype)

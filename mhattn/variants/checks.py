"""Checks of arguments that only variants take; the others are passed on from `mhattn.core.checks`.

A module that needs one of them imports this one as ``check`` and finds both kinds here.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mhattn.core.checks import (
    at_least as at_least,
    at_most as at_most,
    attention as attention,
    axes,
    cache_is_causal as cache_is_causal,
    dropout as dropout,
    fits as fits,
    floats as floats,
    got_shapes,
    heads as heads,
    last_axis as last_axis,
    mask as mask,
    pair_of_positions as pair_of_positions,
    pairs as pairs,
    query_and_key as query_and_key,
    same_dtype,
    scale as scale,
    sequence as sequence,
    value as value,
)

__all__: list[str] = []  # each check is for one function of the package


def vectors(key_vectors: Any, value_vectors: Any, query: Tensor, value: Tensor) -> None:
    floats("key_vectors", key_vectors)
    floats("value_vectors", value_vectors)
    rows = key_vectors.shape[0]
    for name, x, width in (
        ("key_vectors", key_vectors, query.shape[-1]),
        ("value_vectors", value_vectors, value.shape[-1]),
    ):
        if tuple(x.shape) != (rows, width) or rows % 2 == 0:
            rule = f"(2 k + 1, {width}), as many rows as the other's"
            raise ValueError(f"{name} must be {rule}, got {tuple(x.shape)}")


def latents(query: Any, kept: Any, k_b: Tensor, v_b: Tensor) -> None:
    floats("query", query)
    axes("query", query, 4, exactly=True)
    floats("kept", kept)
    axes("kept", kept, 4, exactly=True)
    for name, x in (("k_b", k_b), ("v_b", v_b)):
        axes(name, x, 3, exactly=True)
        if (x.shape[0], x.shape[-1]) != (query.shape[1], k_b.shape[-1]):
            rule = f"(H={query.shape[1]}, ..., R={k_b.shape[-1]})"
            raise ValueError(f"{name} must be {rule}, got {tuple(x.shape)}")
    turned = query.shape[-1] - k_b.shape[1]
    for name, x in (("kept", kept), ("k_b", k_b), ("v_b", v_b)):
        same_dtype(name, x, "query", query)
    if turned < 0:
        rule = f"at least D={k_b.shape[1]} wide, as k_b"
        raise ValueError(f"query must be {rule}, got {tuple(query.shape)}")
    row = (query.shape[0], 1, kept.shape[2], k_b.shape[-1] + turned)
    if tuple(kept.shape) != row:
        letters = f"(B, 1, S, R + D_R) = ({row[0]}, 1, S, {row[-1]})"
        raise ValueError(f"kept must be {letters}, got {tuple(kept.shape)}")


def no_longer_than_key(query: Tensor, key: Tensor) -> None:
    if query.shape[-2] > key.shape[-2]:
        raise ValueError(f"query must not be longer than key, {got_shapes(query=query, key=key)}")


def as_long_as_key(query: Tensor, key: Tensor) -> None:
    if query.shape[-2] != key.shape[-2]:
        raise ValueError(f"query must be as long as key, {got_shapes(query=query, key=key)}")


def state(state: Any, shape: Sequence[int]) -> None:
    floats("state", state)
    if state.shape != torch.Size(shape):
        rule = f"(..., D_phi, D_v + 1) = {tuple(shape)}"
        raise ValueError(f"state must be {rule}, got {tuple(state.shape)}")


def mask_of_keys(x: Any, shape: Sequence[int]) -> None:
    mask(x, shape)
    if x.ndim > 1 and x.shape[-2] > 1:
        rule = "the same for all queries, (..., 1, S): the keys are added up once for all of them"
        raise ValueError(f"mask must be {rule}, got {tuple(x.shape)}")


def distances(distance: Tensor, what: str, most: int) -> None:
    if torch.compiler.is_compiling():
        return  # a graph cannot ask for numbers
    wrong = distance[distance.abs() >= most]
    if len(wrong):
        raise ValueError(f"positions must be less than {what}={most} apart, got {wrong[0].item()}")

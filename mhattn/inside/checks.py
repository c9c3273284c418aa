"""Checks of weights, patterns and matrices; the others are passed on from `mhattn.core.checks`.

`weights` and `matrices` look at a tensor's data, which makes a GPU wait; `torch.compile` leaves the
first one out.
"""

import math
from typing import Any

import torch
from torch import Tensor

from mhattn.core.checks import (
    at_least as at_least,
    axes as axes,
    broadcasts,
    floats as floats,
    fraction as fraction,
    got_shapes,
    integers,
    kind,
    last_axis as last_axis,
    lengths_of_table as lengths_of_table,
    mask,
)

__all__: list[str] = []  # each check is for one function of the package


def weights(weights: Any, given: Any) -> None:
    floats("weights", weights)
    if given is not None:
        mask(given, weights.shape)
    if torch.compiler.is_compiling():
        return  # a graph cannot ask for numbers
    x = weights.detach().to(torch.promote_types(weights.dtype, torch.float32))
    sums = (x if given is None else x * given).sum(dim=-1)
    wrong = ~((sums - 1).abs() < 0.01)  # NaN is wrong, too
    if given is not None:
        wrong &= given.any(dim=-1)
    if wrong.any():
        hint = "dropout? another mask?"
        got = f"got {sums[wrong][0]:.4g} ({hint})"
        raise ValueError(f"weights must sum to 1 over what each query sees, {got}")


def pattern(name: str, pattern: Any, weights: Any) -> None:
    floats("weights", weights)
    if not isinstance(pattern, Tensor) or pattern.dtype != torch.bool:
        raise TypeError(f"{name} must be a tensor of booleans, got {kind(pattern)}")
    axes(name, pattern, 2)
    broadcasts(name, pattern, weights.shape)


def tokens_of_keys(tokens: Any, num_queries: int, num_keys: int) -> None:
    integers("tokens", tokens)
    if tokens.ndim != 2 or tokens.shape[-1] != num_keys:
        raise ValueError(f"tokens must be (B, S={num_keys}), got {tuple(tokens.shape)}")
    if num_queries > num_keys:
        raise ValueError(f"with tokens, L must be at most S={num_keys}, got {num_queries}")


def rate(rate: float, draws: int) -> int:
    """How many of the draws and the truth together are at most that share of them."""
    if not 0 < rate < 1:
        raise ValueError(f"rate must be between 0 and 1, got {rate}")
    at_least("draws", draws, 1)
    allowed = math.floor(rate * (draws + 1) + 1e-9)
    if allowed < 1:
        raise ValueError(f"draws must be at least 1 / rate - 1 = {1 / rate - 1:g}, got {draws}")
    return allowed


def matrices(name: str, x: Any, number: int = 2, *, exactly: bool = False) -> None:
    floats(name, x)
    axes(name, x, number, exactly=exactly)
    if x.numel() == 0:
        raise ValueError(f"{name} must not be empty, got shape {tuple(x.shape)}")
    for extreme in x.aminmax():  # NaN if there is one
        if not math.isfinite(extreme):
            raise ValueError(f"{name} must be finite, got {extreme.item()}")


def same_size(axis: int, letter: str, **pair: Tensor) -> None:
    one, other = pair.values()
    if one.shape[axis] != other.shape[axis]:
        raise ValueError(f"{' and '.join(pair)} must have the same {letter}, {got_shapes(**pair)}")

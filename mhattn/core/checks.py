"""Checks of arguments: each error names the argument, the rule and the value.

Used as ``check.mask(mask, shape)``, so the source that a page shows can be copied. Of these checks
only `lengths` looks at a tensor's data, which makes a GPU wait; `torch.compile` leaves that out.
What only other rooms check is in modules of the same name there.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.costs import integers as sizes
from mhattn.costs.integers import divides as divides

__all__: list[str] = []  # each check is for one function of the package

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def floats(name: str, x: Any) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"{name} must be a tensor of floats, got {kind(x)}")
    axes(name, x, 2)


def query_and_key(query: Any, key: Any) -> None:
    floats("query", query)
    floats("key", key)
    got = functools.partial(got_shapes, query=query, key=key)
    same_dtype("key", key, "query", query)
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key must have the same last axis, {got()}")
    if 0 in key.shape[-2:]:
        raise ValueError(f"key must have at least one position and D >= 1, {got()}")
    if query.shape[:-2] == key.shape[:-2]:
        return
    if not query.ndim == key.ndim >= 4 or query.shape[:-3] != key.shape[:-3]:
        raise ValueError(f"query and key must have the same axes before the heads, {got()}")
    if key.shape[-3] == 0 or query.shape[-3] % key.shape[-3]:
        raise ValueError(f"the key's heads must divide the query's, {got()}")


def scores(query: Any, key: Any, factor: float | None) -> None:
    query_and_key(query, key)
    scale(factor)


def attention(query: Any, key: Any, values: Any, factor: float | None, share: float = 0.0) -> None:
    query_and_key(query, key)
    value(values, key)
    scale(factor)
    dropout(share)


def value(value: Any, key: Tensor) -> None:
    floats("value", value)
    same_dtype("value", value, "key", key)
    if value.shape[:-1] != key.shape[:-1]:
        got = got_shapes(key=key, value=value)
        raise ValueError(f"key and value must have the same axes but the last, {got}")


def grad_output(grad_output: Any, shape: Sequence[int]) -> None:
    floats("grad_output", grad_output)
    if grad_output.shape != torch.Size(shape):
        rule = f"the output's shape, (..., L, D_v) = {tuple(shape)}"
        raise ValueError(f"grad_output must have {rule}, got {tuple(grad_output.shape)}")


def mask(mask: Any, shape: Sequence[int], letters: str = "(..., L, S)") -> None:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"mask must be a tensor of booleans, True = may attend, got {kind(mask)}")
    try:
        broadcasts("mask", mask, shape, letters)
    except ValueError as error:
        if len(shape) != 4:
            raise
        if mask.ndim == 2 and mask.shape == (shape[0], shape[-1]):
            hint = "; for one row a sequence, (B, S), pass mask[:, None, None] or padding_mask()"
            raise ValueError(f"{error}{hint}") from None
        if mask.ndim == 3 and mask.shape[0] == shape[0]:
            hint = "; for one table a sequence, (B, L, S), pass mask[:, None]"
            raise ValueError(f"{error}{hint}") from None
        raise


def integers(name: str, x: Any) -> None:
    if not isinstance(x, Tensor) or x.dtype not in INTEGERS:
        raise TypeError(f"{name} must be a tensor of integers, got {kind(x)}")


def bias(bias: Any, shape: Sequence[int]) -> None:
    if not isinstance(bias, Tensor) or not bias.is_floating_point():
        raise TypeError(f"bias must be a tensor of floats, got {kind(bias)}")
    broadcasts("bias", bias, shape)


def scale(scale: float | None) -> None:
    if scale is not None and not 0 < scale < math.inf:
        raise ValueError(f"scale must be positive and finite, got {scale}")


def cache_is_causal(cache: Any, is_causal: bool) -> None:
    if cache is not None and not is_causal:
        raise ValueError(f"with a cache, is_causal must be True, got {is_causal}")


def only_without_key(**given: Any) -> None:
    for name, x in given.items():
        if x is not None:
            raise ValueError(f"with {name}, key must be None or the query, got another tensor")


def dropout(dropout: float) -> None:
    fraction("dropout", dropout)


def axes(name: str, x: Tensor, number: int, *, exactly: bool = False) -> None:
    if x.ndim < number or (exactly and x.ndim > number):
        rule = f"{number} axes" if exactly else f"at least {number} axes"
        raise ValueError(f"{name} must have {rule}, got shape {tuple(x.shape)}")


def fraction(name: str, number: float) -> None:
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be in [0, 1), got {number}")


def sequence(name: str, x: Any, width_name: str, width: int, proj: nn.Module | None = None) -> None:
    floats(name, x)
    if x.ndim != 3 or x.shape[-1] != width:
        rule = f"(batch, length, {width_name}={width})"
        raise ValueError(f"{name} must be {rule}, got shape {tuple(x.shape)}")
    if type(proj) is nn.Linear:  # others may take what they like
        same_dtype(name, x, "the layer's parameters", proj.weight)


def same_dtype(name: str, x: Tensor, others: str, other: Tensor) -> None:
    if x.dtype != other.dtype and not _autocast(x):  # which makes them the same
        raise TypeError(f"{name} must be {other.dtype} as {others}, got {x.dtype}")


def _autocast(x: Tensor) -> bool:
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def at_least(name: str, number: int, least: int) -> None:
    if not isinstance(number, torch.SymInt):  # a length inside of a graph
        sizes.at_least(name, number, least)


def lengths_of_table(L: int, S: int) -> None:
    at_least("L", L, 0)
    at_least("S", S, 0)


def at_most(name: str, number: int, what: str, most: int) -> None:
    if number > most:
        raise ValueError(f"{name} must have at most {what}={most} positions, got {number}")


def heads(query: Tensor, num_heads: int) -> None:
    if query.ndim < 3 or query.shape[-3] != num_heads:
        got = tuple(query.shape)
        raise ValueError(f"query must be (..., H={num_heads}, L, D), got {got}")


def last_axis(name: str, x: Tensor, what: str, size: int) -> None:
    if x.shape[-1] != size:
        raise ValueError(f"{name} must have {what}={size} last, got {tuple(x.shape)}")


def pairs(name: str, number: int, base: float) -> None:
    at_least(name, number, 2)
    if number % 2:
        raise ValueError(f"{name} must be even, got {number}")
    if not base > 1:
        raise ValueError(f"base must be greater than 1, got {base}")


def positions(positions: Any, x: Tensor, name: str = "positions") -> None:
    integers(name, positions)
    shape = x.shape[0], x.shape[-2]
    if tuple(positions.shape) not in (shape[1:], (1, *shape[1:]), shape):
        rule = f"(L,) = {shape[1:]} or (B, L) = {shape}"
        raise ValueError(f"{name} must be {rule}, got {tuple(positions.shape)}")


def rows(rows: Any) -> None:
    integers("rows", rows)
    axes("rows", rows, 1, exactly=True)


def pair_of_positions(pair: tuple[Any, Any] | None, query: Tensor, key: Tensor) -> None:
    if pair is not None:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            rule = "a pair of tensors, of the queries and of the keys"
            got = f"a tensor of shape {tuple(pair.shape)}" if isinstance(pair, Tensor) else pair
            raise TypeError(f"positions must be {rule}, got {got}")
        positions(pair[0], query, "positions of queries")
        positions(pair[1], key, "positions of keys")


def lengths(lengths: Any, num_keys: int) -> None:
    integers("lengths", lengths)
    if lengths.ndim not in (1, 2):
        raise ValueError(f"lengths must have 1 or 2 axes, got shape {tuple(lengths.shape)}")
    if torch.compiler.is_compiling():
        return  # a graph cannot ask for numbers
    wrong = lengths[(lengths < 0) | (lengths > num_keys)]
    if len(wrong):
        raise ValueError(f"lengths must be in 0..S = 0..{num_keys}, got {wrong[0].item()}")


def broadcasts(name: str, x: Tensor, shape: Sequence[int], letters: str = "(..., L, S)") -> None:
    if not fits(x.shape, shape):
        rule = f"broadcast to {letters} = {tuple(shape)}"
        raise ValueError(f"{name} must {rule}, got {tuple(x.shape)}")


def fits(given: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a tensor of the first shape can be expanded to the second."""
    axes = range(1, len(given) + 1)  # from the end; `zip` of two lengths can't be compiled
    return len(given) <= len(shape) and all(given[-a] in (1, shape[-a]) for a in axes)


def kind(x: Any) -> str:
    return str(x.dtype) if isinstance(x, Tensor) else type(x).__name__


def got_shapes(**tensors: Tensor) -> str:
    return "got " + " and ".join(f"{name} {tuple(x.shape)}" for name, x in tensors.items())

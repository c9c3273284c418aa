"""Tensors out of nothing: zeros, ranges, identity."""

import math
from array import array
from typing import Any

from torch import _state
from torch._dtypes import INT64, default, keep
from torch._elementwise import _kind_of
from torch._shapes import sizes
from torch._tensor import Tensor, new, tensor

__all__ = ["arange", "empty", "eye", "full", "linspace", "ones", "zeros"]


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **_: Any,
) -> Tensor:
    shape = sizes(size) if isinstance(size, tuple) else sizes((size,))
    if isinstance(fill_value, Tensor):
        dtype, fill_value = dtype or fill_value.dtype, fill_value.item()
    kind = dtype or _kind_of(fill_value)
    place = _state.device_of(device)
    if any(n < 0 for n in shape):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {shape}")
    if place is not None:
        made = new(None, shape, kind, place)
    else:
        made = new(keep(kind, [fill_value], cast=True) * math.prod(shape), shape, kind)
    return made.requires_grad_() if requires_grad else made


def zeros(*size: Any, dtype: Any = None, **more: Any) -> Tensor:
    more.pop("out", None)
    return full(
        tuple(sizes(more.pop("size", size) if size == () else size)),
        0,
        dtype=dtype or default(),
        **more,
    )


def ones(*size: Any, dtype: Any = None, **more: Any) -> Tensor:
    return full(
        tuple(sizes(more.pop("size", size) if size == () else size)),
        1,
        dtype=dtype or default(),
        **more,
    )


def empty(
    *size: Any, dtype: Any = None, memory_format: Any = None, pin_memory: bool = False, **more: Any
) -> Tensor:
    return zeros(*size, dtype=dtype, **more)


def _like(make: Any) -> Any:
    def like(
        x: Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **more: Any
    ) -> Tensor:
        return make(*x.shape, dtype=dtype or x.dtype, device=device or x.device, **more)

    return like


zeros_like, ones_like, empty_like = _like(zeros), _like(ones), _like(empty)


def full_like(
    x: Tensor, fill_value: Any, *, dtype: Any = None, device: Any = None, **more: Any
) -> Tensor:
    return full(
        tuple(x.shape), fill_value, dtype=dtype or x.dtype, device=device or x.device, **more
    )


def arange(
    *ends: Any,
    start: Any = 0,
    end: Any = None,
    step: Any = 1,
    dtype: Any = None,
    device: Any = None,
    **more: Any,
) -> Tensor:
    if len(ends) == 1:
        end = ends[0]
    elif ends:
        start, end, step = (*ends, step)[:3]
    start, end, step = (x.item() if isinstance(x, Tensor) else x for x in (start, end, step))
    whole = all(isinstance(x, int) for x in (start, end, step))
    kind = dtype or (INT64 if whole else default())
    count = max(0, math.ceil((end - start) / step))
    numbers: Any = range(start, end, step) if whole else [start + i * step for i in range(count)]
    place = _state.device_of(device)
    made = new(keep(kind, numbers, cast=True) if place is None else None, (count,), kind, place)
    return made.requires_grad_() if more.get("requires_grad") else made


def linspace(
    start: float, end: float, steps: int, *, dtype: Any = None, device: Any = None
) -> Tensor:
    kind = dtype or default()
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    step = step if kind.code == "d" else array("f", [step])[0]
    half = steps // 2
    numbers = [start + step * i if i < half else end - step * (steps - i - 1) for i in range(steps)]
    return new(keep(kind, numbers, cast=True), (steps,), kind)


def logspace(
    start: float, end: float, steps: int, base: float = 10.0, *, dtype: Any = None
) -> Tensor:
    kind = dtype or default()
    return new([base**power for power in linspace(start, end, steps).tolist()], (steps,), kind)


def eye(
    n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, **more: Any
) -> Tensor:
    m = n if m is None else m
    made = zeros(n, m, dtype=dtype, device=device)
    if made._data is not None:
        for i in range(min(n, m)):
            made._data[i * (m + 1)] = 1
    return made.requires_grad_() if more.get("requires_grad") else made


def as_tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    return tensor(data, dtype=dtype, device=device)


def scalar_tensor(number: Any, *, dtype: Any = None) -> Tensor:
    return tensor(number, dtype=dtype or default())


def tril_indices(row: int, col: int, offset: int = 0) -> Tensor:
    pairs = [(i, j) for i in range(row) for j in range(col) if j <= i + offset]
    return new([i for i, _ in pairs] + [j for _, j in pairs], (2, len(pairs)), INT64)


def triu_indices(row: int, col: int, offset: int = 0) -> Tensor:
    pairs = [(i, j) for i in range(row) for j in range(col) if j >= i + offset]
    return new([i for i, _ in pairs] + [j for _, j in pairs], (2, len(pairs)), INT64)


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    lines = (
        list(tensors[0])
        if len(tensors) == 1 and not isinstance(tensors[0], Tensor)
        else list(tensors)
    )
    if indexing == "xy":
        lines[:2] = lines[1::-1]
    shape = [len(line) for line in lines]
    found = [
        line.reshape([-1 if d == i else 1 for d in range(len(lines))]).expand(*shape)
        for i, line in enumerate(lines)
    ]
    if indexing == "xy":
        found = [x.transpose(0, 1) for x in found]
        found[:2] = found[1::-1]
    return tuple(found)


def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    import itertools

    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(x.tolist(), r))
    return new([number for row in rows for number in row], (len(rows), r), x.dtype)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    import itertools

    rows = list(itertools.product(*(x.tolist() for x in tensors)))
    return new(
        [number for row in rows for number in row], (len(rows), len(tensors)), tensors[0].dtype
    )

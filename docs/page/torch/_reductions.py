"""Many numbers to one: sums, means, the largest, in order, along one axis or several."""

import math
import operator
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from torch import _kernels
from torch._autograd import record
from torch._dtypes import BOOL, INT64, dtype
from torch._elementwise import binary, cast, is_close, unary, where
from torch._shapes import axis, expand, permute, reshape
from torch._tensor import Tensor, new

__all__ = ["rows_of", "softmax"]


class Pair(tuple):
    """Values and where they stand: what `max` of an axis, `sort`, `topk` give."""

    values = property(lambda self: self[0])
    indices = property(lambda self: self[1])
    kind = "max"

    def __new__(cls, values: Tensor, indices: Tensor, kind: str) -> "Pair":
        made = super().__new__(cls, (values, indices))
        made.kind = kind
        return made

    def __repr__(self) -> str:
        return f"torch.return_types.{self.kind}(\nvalues={self[0]!r},\nindices={self[1]!r})"


def dims_of(dim: Any, ndim: int) -> list[int]:
    """The axes that are meant; None or an empty list: all."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return list(range(ndim))
    return [axis(int(d), ndim) for d in ([dim] if isinstance(dim, int) else dim)]


def rows_of(x: Tensor, dims: Sequence[int]) -> tuple[list[array], int]:
    """The numbers that are to become one, for each result in turn."""
    flat = x.flat()
    m = math.prod(x.shape[d] for d in dims)
    if not flat:  # as many rows without numbers as there are results
        return [flat] * math.prod(s for d, s in enumerate(x.shape) if d not in dims), m
    if sorted(dims) == list(range(x.ndim - len(dims), x.ndim)):
        return [flat[i : i + m] for i in range(0, len(flat), m)], m
    if len(dims) == 1:
        inner = math.prod(x.shape[dims[0] + 1 :])
        found: list[array] = []
        for o in range(0, len(flat), m * inner):
            block = flat[o : o + m * inner]
            found += [block[j::inner] for j in range(inner)]
        return found, m
    rest = [d for d in range(x.ndim) if d not in dims]
    return rows_of(permute(x.detach(), [*rest, *dims]), range(len(rest), x.ndim))


def _shape(x: Tensor, dims: Sequence[int], keepdim: bool) -> list[int]:
    return [1 if d in dims else size for d, size in enumerate(x.shape) if keepdim or d not in dims]


def _wide(g: Tensor, x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    """A gradient of a reduced result, back in the shape that was reduced."""
    if not keepdim:
        g = reshape(g, _shape(x, dims, True))
    return expand(g, x.shape)


def _reduce(
    x: Tensor, dim: Any, keepdim: bool, function: Callable[[Any], Any], kind: dtype
) -> tuple[Tensor, list[int]]:
    dims = dims_of(dim, x.ndim)
    if x._data is None:
        return new(None, _shape(x, dims, keepdim), kind, x._device), dims
    rows, _ = rows_of(x, dims)
    return new([function(row) for row in rows], _shape(x, dims, keepdim), kind), dims


def sum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: dtype | None = None) -> Tensor:
    kind = dtype or (x.dtype if x.dtype.is_floating_point else INT64)
    x = cast(x, kind) if kind.is_floating_point else x
    dims = dims_of(dim, x.ndim)
    if (
        x._data is not None
        and x.numel()
        and sorted(dims) == list(range(x.ndim - len(dims), x.ndim))
    ):
        numbers = _kernels.sum_rows(x.flat(), math.prod(x.shape[d] for d in dims))
        made = new(numbers, _shape(x, dims, keepdim), kind)
    elif (
        x._data is not None and x.numel() and sorted(dims) == list(range(len(dims)))
    ):  # of rows: all rows added
        m = math.prod(x.shape[d] for d in dims)
        made = new(_kernels.sum_along(x.flat(), m, x.numel() // m), _shape(x, dims, keepdim), kind)
    elif x._data is not None and x.numel() and len(dims) == 1:
        inner = math.prod(x.shape[dims[0] + 1 :])
        made = new(
            _kernels.sum_along(x.flat(), x.shape[dims[0]], inner), _shape(x, dims, keepdim), kind
        )
    else:
        made, dims = _reduce(x, dims, keepdim, _total, kind)
    return record(made, "Sum", (x,), lambda g: (_wide(g, x, dims, keepdim),))


_total = __builtins__["sum"] if isinstance(__builtins__, dict) else __builtins__.sum


def mean(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: dtype | None = None
) -> Tensor:
    x = x if dtype is None else cast(x, dtype)
    if not x.dtype.is_floating_point:
        names = {"int64": "Long", "bool": "Bool", "int32": "Int", "uint8": "Byte"}
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point "
            "or complex dtype. Got: " + names.get(x.dtype.name, x.dtype.name)
        )
    dims = dims_of(dim, x.ndim)
    count = math.prod(x.shape[d] for d in dims)
    made, dims = _reduce(
        x, dims, keepdim, lambda row: _total(row) / count if count else math.nan, x.dtype
    )
    return record(made, "Mean", (x,), lambda g: (_wide(g, x, dims, keepdim) / count,))


def prod(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: dtype | None = None
) -> Tensor:
    kind = dtype or (x.dtype if x.dtype.is_floating_point else INT64)
    made, dims = _reduce(x, dim, keepdim, math.prod, kind)

    def back(g: Tensor) -> tuple[Tensor]:
        others = [
            math.prod(row[:i] + row[i + 1 :])
            for row in rows_of(x, dims)[0]
            for i in range(len(row))
        ]
        rest = [d for d in range(x.ndim) if d not in dims]
        order = [*rest, *dims]
        slopes = permute(
            new(others, [x.shape[d] for d in order], x.dtype),
            [order.index(d) for d in range(x.ndim)],
        )
        return (_wide(g, x, dims, keepdim) * slopes,)

    return record(made, "Prod", (x,), back)


def var(
    x: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Tensor:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    less = int(unbiased) if correction is None else correction
    dims = dims_of(dim, x.ndim)
    count = math.prod(x.shape[d] for d in dims)

    def spread(row: array) -> float:
        middle = _total(row) / count
        over = _total([(number - middle) ** 2 for number in row])
        return over / (count - less) if count > less else math.nan

    made, _ = _reduce(x, dims, keepdim, spread, x.dtype)

    def back(g: Tensor) -> tuple[Tensor]:
        off = x - mean(x, dims, True)
        return (_wide(g, x, dims, keepdim) * off * (2 / (count - less)),)

    return record(made, "Var", (x,), back)


def std(
    x: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Tensor:
    spread = var(x, dim, unbiased, keepdim, correction=correction)
    made = unary("sqrt", spread.detach())

    def back(g: Tensor) -> tuple[Tensor]:
        return (where(made == 0, 0.0, g / (2 * made)),)

    made = record(made, "Std", (spread,), back)
    if made._node is not None:
        made._node._name = "StdBackward0"
    return made


def all_(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _reduce(x, dim, keepdim, lambda row: 0 not in row, BOOL)[0]


def any_(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _reduce(x, dim, keepdim, _some, BOOL)[0]


def _some(row: array) -> bool:
    return row.count(0) < len(row)


def _largest(row: Any) -> Any:
    found = max(row)
    return found if found == found and not _nan(row) else math.nan


def _least(row: Any) -> Any:
    found = min(row)
    return found if found == found and not _nan(row) else math.nan


def _nan(row: Any) -> bool:
    """Whether a row of floats holds one that is no number: their sum then is none, or infinities
    meet.
    """
    if not isinstance(row[0], float):
        return False
    total = _total(row)
    return total != total and any(number != number for number in row)


def _refuse_none(name: str, x: Tensor, dim: Any) -> None:
    """Of no numbers none is the largest: the errors of torch."""
    if x.numel():
        return
    if dim is None or dim == ():
        wanted = f"{name}(): Expected reduction dim to be specified for input.numel() == 0."
        if name.startswith("arg"):
            raise IndexError(wanted)
        raise RuntimeError(f"{wanted} Specify the reduction dim with the 'dim' argument.")
    for each in dims_of(dim, x.ndim):
        if not x.shape[each]:
            raise IndexError(f"{name}(): Expected reduction dim {each} to have non-zero size.")


def amax(
    x: Tensor, dim: Any = None, keepdim: bool = False, least: bool = False, name: str = ""
) -> Tensor:
    _refuse_none(name or ("amin" if least else "amax"), x, dim)
    made, dims = _reduce(x, dim, keepdim, _least if least else _largest, x.dtype)

    def back(g: Tensor) -> tuple[Tensor]:
        top = _wide(made, x, dims, keepdim)
        ours = cast(x.detach() == top, g.dtype)
        return (_wide(g, x, dims, keepdim) * ours / sum(ours, dims, True),)

    return record(made, "Amin" if least else "Amax", (x,), back)


def amin(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return amax(x, dim, keepdim, least=True)


def _place(row: Any, best: Any) -> int:
    return (
        row.index(best)
        if best == best
        else next(i for i, number in enumerate(row) if number != number)
    )


def max_(x: Tensor, dim: Any = None, keepdim: bool = False, least: bool = False) -> Any:
    if isinstance(dim, Tensor):
        return binary("minimum" if least else "maximum", x, dim)
    if dim is None:
        made = amax(x, None, False, least, "min" if least else "max")
        if made._node is not None:
            made._node._name = "MinBackward1" if least else "MaxBackward1"
        return made
    _refuse_none("min" if least else "max", x, dim)
    where_ = argmax(x, dim, True, least)
    values = gather(x, dim, where_)
    if not keepdim:
        values, where_ = values.squeeze(dim), where_.squeeze(dim)
    return Pair(values, where_, "min" if least else "max")


def min_(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return max_(x, dim, keepdim, least=True)


def argmax(x: Tensor, dim: Any = None, keepdim: bool = False, least: bool = False) -> Tensor:
    best = _least if least else _largest
    _refuse_none("argmin" if least else "argmax", x, dim)
    return _reduce(x, dim, keepdim, lambda row: _place(row, best(row)), INT64)[0]


def argmin(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return argmax(x, dim, keepdim, least=True)


def median(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None:
        return _reduce(x, None, False, lambda row: sorted(row)[(len(row) - 1) // 2], x.dtype)[0]
    values, places = sort(x, dim)
    middle = new([(x.shape[dim] - 1) // 2], (1,), INT64)
    values, places = values.index_select(dim, middle), places.index_select(dim, middle)
    return Pair(*(each if keepdim else each.squeeze(dim) for each in (values, places)), "median")


def quantile(x: Tensor, q: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    shares = q.tolist() if isinstance(q, Tensor) and q.ndim else [float(q)]

    def at(row: Any, share: float) -> float:
        ordered, place = sorted(row), share * (len(row) - 1)
        low = int(place)
        high = min(low + 1, len(row) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    from torch._shapes import stack

    found = [
        _reduce(x, dim, keepdim, lambda row, s=share: at(row, s), x.dtype)[0] for share in shares
    ]
    return stack(found) if isinstance(q, Tensor) and q.ndim else found[0]


def norm(
    x: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    x = x if dtype is None else cast(x, dtype)
    if p in ("fro", 2, 2.0, None):
        made, dims = _reduce(
            x, dim, keepdim, lambda row: math.sqrt(_total(map(operator.mul, row, row))), x.dtype
        )

        def back(g: Tensor) -> tuple[Tensor]:
            whole = _wide(made, x, dims, keepdim)
            return (where(whole == 0, 0.0, _wide(g, x, dims, keepdim) * x / whole),)

        return record(made, "LinalgVectorNorm", (x,), back)
    if p == math.inf:
        return amax(x.abs(), dim, keepdim)
    if p == 0:
        return cast(sum(x != 0, dim, keepdim), x.dtype)
    return sum(x.abs() ** p, dim, keepdim) ** (1 / p)


# along an axis, as many as before


def _along(
    x: Tensor, dim: int, function: Callable[[array], Any], kind: dtype, size: int | None = None
) -> Tensor:
    """Each row along the axis becomes another row, of `size` numbers."""
    at = axis(dim, x.ndim)
    if not x.ndim:
        return reshape(_along(reshape(x, 1), 0, function, kind), ())
    rows, m = rows_of(x, [at])
    m = m if size is None else size
    out: list[Any] = []
    for row in rows:
        out += function(row)
    lead = [d for d in range(x.ndim) if d != at]
    made = new(out, [*(x.shape[d] for d in lead), m], kind)
    return (
        made
        if at == x.ndim - 1
        else permute(made, [*range(at), x.ndim - 1, *range(at, x.ndim - 1)]).contiguous()
    )


def softmax(
    x: Tensor,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: dtype | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    if out is not None:
        out.write(softmax(x.detach(), dim, dtype=dtype).flat())
        return out
    x = x if dtype is None else cast(x, dtype)
    if not x.dtype.is_floating_point:
        kind = _plain(x.dtype)
        raise NotImplementedError(f'"softmax_lastdim_kernel_impl" not implemented for {kind!r}')
    at = axis(-1 if dim is None else dim, x.ndim)
    if x._data is None:
        return new(None, x.shape, x.dtype, x._device)
    if x.ndim and at == x.ndim - 1 and x.numel():
        made = new(_kernels.softmax_rows(x.flat(), x.shape[-1]), x.shape, x.dtype)
    else:
        made = _along(x, at, lambda row: _kernels.softmax_rows(row, len(row)), x.dtype)

    def back(g: Tensor) -> tuple[Tensor]:
        product = g * made
        return (product - made * sum(product, at, True),)

    return record(made, "Softmax", (x,), back)


def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    dims = dims_of(dim, x.ndim)
    if x._data is not None and x.numel() and len(dims) == 1:
        inner = math.prod(x.shape[dims[0] + 1 :])
        made = new(
            _kernels.logsumexp_along(x.flat(), x.shape[dims[0]], inner),
            _shape(x, dims, keepdim),
            x.dtype,
        )
    else:

        def one(row: array) -> float:
            return _kernels.logsumexp_along(row, len(row), 1)[0]

        made, dims = _reduce(x, dim, keepdim, one, x.dtype)

    def back(g: Tensor) -> tuple[Tensor]:
        return (_wide(g, x, dims, keepdim) * (x - _wide(made, x, dims, keepdim)).exp(),)

    return record(made, "Logsumexp", (x,), back)


def log_softmax(
    x: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None
) -> Tensor:
    x = x if dtype is None else cast(x, dtype)
    at = axis(-1 if dim is None else dim, x.ndim)
    whole = logsumexp(x.detach(), at, True)
    made = x.detach() - whole

    def back(g: Tensor) -> tuple[Tensor]:
        return (g - made.exp() * sum(g, at, True),)

    return record(made, "LogSoftmax", (x,), back)


def cumsum(x: Tensor, dim: int, *, dtype: dtype | None = None) -> Tensor:
    kind = dtype or (x.dtype if x.dtype.is_floating_point else INT64)
    made = _along(x, dim, accumulate, kind)
    return record(made, "Cumsum", (x,), lambda g: (g.flip(dim).cumsum(dim).flip(dim),))


def cumprod(x: Tensor, dim: int, *, dtype: dtype | None = None) -> Tensor:
    kind = dtype or (x.dtype if x.dtype.is_floating_point else INT64)
    made = _along(x, dim, lambda row: accumulate(row, operator.mul), kind)
    return record(
        made, "Cumprod", (x,), lambda g: ((g * made).flip(dim).cumsum(dim).flip(dim) / x,)
    )


def cummax(x: Tensor, dim: int) -> Pair:
    def places(row: array) -> list[int]:
        best, found = 0, []
        for i, number in enumerate(row):
            best = i if number >= row[best] else best
            found.append(best)
        return found

    where_ = _along(x, dim, places, INT64)
    return Pair(gather(x, dim, where_), where_, "cummax")


def diff(x: Tensor, n: int = 1, dim: int = -1) -> Tensor:
    for _ in range(n):
        size = x.shape[axis(dim, x.ndim)]
        after, before = x.narrow(dim, 1, size - 1), x.narrow(dim, 0, size - 1)
        x = binary("ne", after, before) if x.dtype is BOOL else after - before
    return x


def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    def order(row: array) -> list[int]:
        numbers = row.tolist()
        if numbers and isinstance(
            numbers[0], float
        ):  # what is no number comes last, as the largest
            numbers = [math.inf if number != number else number for number in numbers]
        return sorted(range(len(numbers)), key=numbers.__getitem__, reverse=descending)

    return _along(x, dim, order, INT64)


def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Pair:
    places = argsort(x, dim, descending)
    return Pair(gather(x, dim, places), places, "sort")


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    size = x.shape[axis(dim, x.ndim)] if x.ndim else 1
    if k > size:
        raise RuntimeError("selected index k out of range")
    places = argsort(x, dim, largest).narrow(dim, 0, k).contiguous() if x.ndim else argsort(x, 0)
    return Pair(gather(x, dim, places), places, "topk")


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    if not x.ndim:
        return x.clone()
    places = gathered(x.shape, dim, index)
    flat = x.flat()
    made = new([flat[i] for i in places], index.shape, x.dtype)

    def back(g: Tensor) -> tuple[Tensor]:
        whole = array(g.dtype.code, bytes(x.numel() * array(g.dtype.code).itemsize))
        for i, number in zip(places, g.flat(), strict=True):
            whole[i] += number
        return (new(whole, x.shape, g.dtype),)

    return record(made, "Gather", (x,), back)


def gathered(shape: Sequence[int], dim: int, index: Tensor) -> list[int]:
    """Where, among flat numbers of the shape, each entry of the index points along the axis."""
    from torch._tensor import contiguous_strides, positions

    at = axis(dim, len(shape))
    if index.ndim != len(shape):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    for d in range(len(shape)):
        if d != at and index.shape[d] > shape[d]:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(index.shape)} to be "
                "no larger than self "
                f"{list(shape)} apart from dimension {at}"
            )
    strides = list(contiguous_strides(tuple(shape)))
    step, size = strides[at], shape[at]
    strides[at] = 0
    entries = index.flat()
    if entries and not (min(entries) >= 0 and max(entries) < size):
        wrong = next(i for i in entries if not 0 <= i < size)
        raise IndexError(f"index {wrong} is out of bounds for dimension {at} with size {size}")
    return [
        start + step * i for start, i in zip(positions(index.shape, strides), entries, strict=True)
    ]


def scatter(x: Tensor, dim: int, index: Tensor, src: Any, add: bool = False) -> Tensor:
    places = gathered(x.shape, dim, index)
    whole = array(x.dtype.code, x.flat())
    if isinstance(src, Tensor):
        from torch._tensor import contiguous_strides, positions

        given = src.flat()
        numbers = [given[i] for i in positions(index.shape, contiguous_strides(src.shape))]
    else:
        numbers = [src] * len(places)
    for i, number in zip(places, numbers, strict=True):
        whole[i] = whole[i] + number if add else number
    made = new(whole, x.shape, x.dtype)

    def back(g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        kept = g if add else scatter(g, dim, index, 0)
        return kept, gather(g, dim, index) if isinstance(src, Tensor) else None

    return record(made, "Scatter", (x, src), back)


# of whole tensors


def nonzero(x: Tensor, *, as_tuple: bool = False) -> Any:
    strides = [math.prod(x.shape[d + 1 :]) for d in range(x.ndim)]
    at = [i for i, number in enumerate(x.flat()) if number]
    columns = [
        [(i // step) % size for i in at] for step, size in zip(strides, x.shape, strict=True)
    ]
    if as_tuple:
        return tuple(new(column, (len(at),), INT64) for column in columns)
    return new([i for place in zip(*columns, strict=True) for i in place], (len(at), x.ndim), INT64)


def unique(
    x: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: Any = None,
) -> Any:
    if dim is not None:
        from torch._state import lacking

        raise lacking("unique(dim=…)")
    flat = x.flat().tolist()
    found = list(dict.fromkeys(__import__("builtins").sorted(flat)))
    result = [new(found, (len(found),), x.dtype)]
    if return_inverse:
        place = {number: i for i, number in enumerate(found)}
        result.append(new([place[number] for number in flat], x.shape, INT64))
    if return_counts:
        result.append(new([flat.count(number) for number in found], (len(found),), INT64))
    return result[0] if len(result) == 1 else tuple(result)


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    numbers = x.flat().tolist()
    counts: list[Any] = [0] * max(minlength, max(numbers, default=-1) + 1)
    for i, share in zip(
        numbers, weights.flat() if weights is not None else [1] * len(numbers), strict=True
    ):
        counts[i] += share
    return new(counts, (len(counts),), INT64 if weights is None else weights.dtype)


def equal(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    return all(map(operator.eq, a.flat(), b.flat()))


def allclose(
    a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{_plain(a.dtype)} did not match {_plain(b.dtype)}")
    return all(is_close(a, b, rtol, atol, equal_nan))


def _plain(kind: dtype) -> str:
    return {"float32": "Float", "float64": "Double", "int64": "Long"}.get(
        kind.name, kind.name.capitalize()
    )


def isclose(
    a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    from torch._shapes import broadcast_shapes

    return new(is_close(a, b, rtol, atol, equal_nan), broadcast_shapes(a.shape, b.shape), BOOL)


def isin(x: Tensor, among: Any) -> Tensor:
    known = set(among.flat() if isinstance(among, Tensor) else [among])
    return new([number in known for number in x.flat()], x.shape, BOOL)


def searchsorted(ordered: Tensor, values: Tensor, *, right: bool = False) -> Tensor:
    from bisect import bisect_left, bisect_right

    line, find = ordered.flat().tolist(), bisect_right if right else bisect_left
    return new([find(line, number) for number in values.flat()], values.shape, INT64)

"""The loops over numbers, and nothing else: what a page may have done by something faster.

Each function takes flat arrays (`array.array`, of the type codes of `_dtypes`) and gives a flat
array or list. Everything that knows of shapes, types and gradients stands elsewhere, so a page
that has JavaScript or WebAssembly over the same memory says `register("matmul_rows", f)`; Pyodide
hands out an array's buffer without a copy. What isn't registered is done here. A function that is
registered may return None: it has declined, since there are too few numbers to be worth a call,
and Python's own loop runs.
"""

import math
import operator
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

__all__ = [
    "add_rows",
    "binary",
    "choose",
    "has",
    "joined",
    "logsumexp_along",
    "matmul_rows",
    "norm_rows",
    "normal_blocks",
    "register",
    "scalar",
    "softmax_rows",
    "strided",
    "sum_along",
    "sum_rows",
    "unary",
]

_FAST: dict[str, Callable[..., Any]] = {}
KNOWN = {
    "matmul_rows",
    "unary",
    "binary",
    "scalar",
    "softmax_rows",
    "strided",
    "choose",
    "sum_rows",
    "sum_along",
    "logsumexp_along",
    "add_rows",
    "norm_rows",
    "normal_blocks",
}
_dot: Callable[[Any, Any], float] = getattr(math, "sumprod", None) or (
    lambda a, b: sum(map(operator.mul, a, b))
)


def register(name: str, function: Callable[..., Any] | None) -> None:
    """Have a kernel done by this function, with the arguments of the one here; None: by Python
    again.
    """
    if name not in KNOWN:
        raise ValueError(f"no kernel is called {name!r}; there are {', '.join(sorted(KNOWN))}")
    if function is None:
        _FAST.pop(name, None)
    else:
        _FAST[name] = function


def _fast(name: str, *arguments: Any) -> Any:
    return _FAST[name](*arguments) if name in _FAST else None


def matmul_rows(a: array, b: array, n: int, k: int, m: int, count: int = 1) -> Sequence[Any]:
    """`count` products, one behind the other: a is count × (n, k), b is count × (k, m), row by
    row.
    """
    done = _fast("matmul_rows", a, b, n, k, m, count)
    if done is not None:
        return done
    out: list[Any] = []
    integers = a.typecode not in "fd"
    dot = (lambda r, c: sum(map(operator.mul, r, c))) if integers else _dot
    for at in range(count):
        left, right = (
            a[at * n * k : (at + 1) * n * k].tolist(),
            b[at * k * m : (at + 1) * k * m].tolist(),
        )
        columns = [right[j::m] for j in range(m)]
        for i in range(0, n * k, k) if k else repeat(0, n):
            row = left[i : i + k]
            out += [dot(row, column) for column in columns]
    return out


def has(name: str) -> bool:
    """Whether somebody registered this kernel."""
    return name in _FAST


def normal_blocks(words: array, mean: float, std: float) -> array | None:
    """Blocks of 16 random words as blocks of 16 normal numbers: eight radii, eight angles.

    The share of a word is that of its last 24 bits in 2**24. Radii are sqrt(-2 log(1 - share)) of
    the first eight, angles 2 pi share of the last eight; then eight cosines, eight sines.
    """
    return _fast("normal_blocks", words, mean, std)


def strided(data: array, shape: tuple[int, ...], strides: tuple[int, ...], start: int) -> array:
    """The numbers of a view, row by row: along each axis as many as its size, its stride apart."""
    done = _fast("strided", data, shape, strides, start)
    if done is not None:
        return done
    shape, strides = joined(shape, strides)
    m, step = shape[-1], strides[-1]
    starts = _starts(shape[:-1], strides[:-1])
    if m < 4:
        inner = range(0, m * step, step) if step else [0] * m
        return array(data.typecode, [data[start + at + i] for at in starts for i in inner])
    out = array(data.typecode)
    if not step:
        for at in starts:
            out += data[start + at : start + at + 1] * m
        return out
    reach = (m - 1) * step + 1
    for at in starts:
        out += data[start + at : start + at + reach : step]
    return out


@lru_cache(256)
def _starts(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    found = [0]
    for size, stride in zip(shape, strides, strict=True):
        steps = [stride * i for i in range(size)]
        found = [at + step for at in found for step in steps]
    return found


@lru_cache(1024)
def joined(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Neighbouring axes that are passed through in one go, as one."""
    sizes, steps = [1], [0]
    for size, step in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if sizes[-1] == 1:
            sizes[-1], steps[-1] = size, step
        elif steps[-1] == size * step:
            sizes[-1], steps[-1] = sizes[-1] * size, step
        else:
            sizes.append(size)
            steps.append(step)
    return tuple(sizes), tuple(steps)


def choose(condition: array, a: Any, b: Any) -> Iterable[Any]:
    """For each place the number of a, or that of b, either of which may be a single number."""
    done = _fast("choose", condition, a, b)
    if done is not None:
        return done
    if not isinstance(a, array):
        others = b if isinstance(b, array) else repeat(b, len(condition))
        return [a if c else y for c, y in zip(condition, others, strict=True)]
    if not isinstance(b, array):
        return [x if c else b for c, x in zip(condition, a, strict=True)]
    return [x if c else y for c, x, y in zip(condition, a, b, strict=True)]


def sum_rows(a: array, m: int) -> Sequence[Any]:
    """The sum of each m numbers."""
    done = _fast("sum_rows", a, m)
    return done if done is not None else [sum(a[i : i + m]) for i in range(0, len(a), m)]


def sum_along(a: array, m: int, inner: int) -> Sequence[Any]:
    """The sums along an axis of m numbers that stand `inner` apart."""
    done = _fast("sum_along", a, m, inner)
    return done if done is not None else [sum(row) for row in _rows(a, m, inner)]


def _rows(a: array, m: int, inner: int) -> Iterable[array]:
    for start in range(0, len(a), m * inner):
        block = a[start : start + m * inner]
        for j in range(inner):
            yield block[j::inner]


def logsumexp_along(a: array, m: int, inner: int) -> Sequence[float]:
    """The logarithm of the sum of powers of e, along an axis of m numbers that stand `inner`
    apart.
    """
    done = _fast("logsumexp_along", a, m, inner)
    if done is not None:
        return done
    out, exp = [], math.exp
    for row in _rows(a, m, inner):
        top = max(row)
        finite = math.isfinite(top)
        out.append(top + math.log(sum([exp(x - top) for x in row])) if finite else top)
    return out


def add_rows(whole: array, places: Sequence[int], rows: array, m: int) -> None:
    """Add to the row of m numbers at each place the next of these rows."""
    if _fast("add_rows", whole, places, rows, m):
        return
    for at, i in enumerate(places):
        part = rows[at * m : at * m + m]
        whole[i * m : i * m + m] = array(
            whole.typecode, map(operator.add, whole[i * m : i * m + m], part)
        )


def norm_rows(a: array, m: int, eps: float) -> tuple[Sequence[float], Sequence[float]]:
    """Each row of m numbers around 0, with a variance of 1, and the factor of each row."""
    done = _fast("norm_rows", a, m, eps)
    if done is not None:
        return done
    normed: list[float] = []
    scales: list[float] = []
    for at in range(0, len(a), m):
        row = a[at : at + m]
        middle = sum(row) / m
        off = [x - middle for x in row]
        scale = 1 / math.sqrt(sum([x * x for x in off]) / m + eps)
        scales.append(scale)
        normed += [x * scale for x in off]
    return normed, scales


def softmax_rows(a: array, m: int) -> Sequence[float]:
    """The softmax of each row of m numbers."""
    done = _fast("softmax_rows", a, m)
    if done is not None:
        return done
    out: list[float] = []
    exp = math.exp
    for i in range(0, len(a), m):
        row = a[i : i + m]
        top = max(row)
        if top != top or top in (math.inf, -math.inf) or any(map(operator.ne, row, row)):
            out += [math.nan] * m
            continue
        powers = [exp(x - top) for x in row]
        whole = sum(powers)
        out += [x / whole for x in powers]
    return out


def binary(name: str, a: array, b: array) -> Iterable[Any]:
    """One number for each pair."""
    done = _fast("binary", name, a, b)
    if done is not None:
        return done
    function, careful = BINARY[name]
    if careful is None:
        return map(function, a, b)
    try:
        return list(map(function, a, b))
    except (ArithmeticError, ValueError):
        return [careful(x, y) for x, y in zip(a, b, strict=True)]


def scalar(name: str, a: array, number: Any, reverse: bool = False) -> Iterable[Any]:
    """One number for each pair of an entry and the number, which stands on the left if it is
    reversed.
    """
    done = _fast("scalar", name, a, number, reverse)
    if done is not None:
        return done
    function, careful = BINARY[name]
    pair = (repeat(number), a) if reverse else (a, repeat(number, len(a)))
    if careful is None:
        return map(function, *pair)
    try:
        return list(map(function, *pair))
    except (ArithmeticError, ValueError):
        return [careful(number, x) if reverse else careful(x, number) for x in a]


def unary(name: str, a: array) -> Iterable[Any]:
    """One number for each."""
    done = _fast("unary", name, a)
    if done is not None:
        return done
    function, careful = UNARY[name]
    if careful is None:
        return map(function, a)
    try:
        return list(map(function, a))
    except (ArithmeticError, ValueError):
        return [careful(x) for x in a]


# What C's functions give where Python's raise


def _divide(x: float, y: float) -> float:
    if y:
        return x / y
    return math.nan if x == 0 or x != x else math.copysign(math.inf, x) * math.copysign(1, y)


def _floor_divide(x: float, y: float) -> float:
    return x // y if y else _divide(x, y)


def _remainder(x: float, y: float) -> float:
    try:
        return x % y
    except (ArithmeticError, ValueError):
        return math.nan


def _power(x: float, y: float) -> float:
    try:
        found = x**y
        return math.nan if isinstance(found, complex) else found
    except ZeroDivisionError:
        odd = y == int(y) and int(y) % 2
        return math.copysign(math.inf, x) if odd else math.inf
    except OverflowError:
        return math.copysign(math.inf, x) if y == int(y) and int(y) % 2 else math.inf


def _real_power(x: float, y: float) -> float:
    found = x**y
    if isinstance(found, complex):
        raise ValueError
    return found


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _log(function: Callable[[float], float]) -> Callable[[float], float]:
    def careful(x: float) -> float:
        if x > 0 or x != x:
            return function(x)
        return -math.inf if x == 0 else math.nan

    return careful


def _log1p(x: float) -> float:
    return math.log1p(x) if x > -1 or x != x else -math.inf if x == -1 else math.nan


def _or_nan(function: Callable[[float], float]) -> Callable[[float], float]:
    def careful(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.copysign(math.inf, x)
        except ValueError:
            return math.nan

    return careful


def _rounded(function: Callable[[float], Any]) -> Callable[[float], float]:
    def careful(x: float) -> float:
        return math.copysign(float(function(x)), x) if math.isfinite(x) else x

    return careful


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0 if x == x else x


def _sign(x: float) -> float:
    return (x > 0) - (x < 0) if x == x else x


def _maximum(x: float, y: float) -> float:
    return x if x != x or x > y else y


def _minimum(x: float, y: float) -> float:
    return x if x != x or x < y else y


def _rsqrt(x: float) -> float:
    return 1 / math.sqrt(x)


def _careful_rsqrt(x: float) -> float:
    return _rsqrt(x) if x > 0 else math.nan if x else math.copysign(math.inf, x)


def _gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x * 0.7071067811865476))


def _gelu_slope(x: float) -> float:
    return (
        0.5 * (1 + math.erf(x * 0.7071067811865476))
        + x * math.exp(-0.5 * x * x) * 0.3989422804014327
    )


def _relu(x: float) -> float:
    return 0.0 if x <= 0 else x


def _softplus(x: float) -> float:
    return x if x > 20 else math.log1p(math.exp(x))


def _entr(x: float) -> float:
    return -x * math.log(x) if x > 0 else 0.0 if x == 0 else -math.inf if x < 0 else x


def _square(x: Any) -> Any:
    return x * x


UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any] | None]] = {
    "neg": (operator.neg, None),
    "abs": (abs, None),
    "exp": (math.exp, _exp),
    "expm1": (math.expm1, _or_nan(math.expm1)),
    "exp2": (lambda x: 2.0**x, lambda x: _power(2.0, x)),
    "log": (math.log, _log(math.log)),
    "log2": (math.log2, _log(math.log2)),
    "log10": (math.log10, _log(math.log10)),
    "log1p": (math.log1p, _log1p),
    "sqrt": (math.sqrt, _or_nan(math.sqrt)),
    "rsqrt": (_rsqrt, _careful_rsqrt),
    "reciprocal": (lambda x: 1 / x, lambda x: _divide(1.0, x)),
    "square": (_square, None),
    "sin": (math.sin, _or_nan(math.sin)),
    "cos": (math.cos, _or_nan(math.cos)),
    "tan": (math.tan, _or_nan(math.tan)),
    "asin": (math.asin, _or_nan(math.asin)),
    "acos": (math.acos, _or_nan(math.acos)),
    "atan": (math.atan, None),
    "sinh": (math.sinh, _or_nan(math.sinh)),
    "cosh": (math.cosh, lambda x: math.inf),
    "tanh": (math.tanh, None),
    "erf": (math.erf, None),
    "sigmoid": (_sigmoid, None),
    "sign": (_sign, None),
    "relu": (_relu, None),
    "gelu": (_gelu, None),
    "gelu_slope": (_gelu_slope, None),
    "softplus": (_softplus, None),
    "entr": (_entr, None),
    "floor": (_rounded(math.floor), None),
    "ceil": (_rounded(math.ceil), None),
    "round": (_rounded(round), None),
    "trunc": (_rounded(math.trunc), None),
    "logical_not": (operator.not_, None),
    "isnan": (lambda x: x != x, None),
    "isinf": (lambda x: x in (math.inf, -math.inf), None),
    "isneginf": (lambda x: x == -math.inf, None),
    "isposinf": (lambda x: x == math.inf, None),
    "isfinite": (math.isfinite, None),
    "invert": (operator.invert, None),
}

BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any] | None]] = {
    "add": (operator.add, None),
    "sub": (operator.sub, None),
    "mul": (operator.mul, None),
    "div": (operator.truediv, _divide),
    "floor_divide": (operator.floordiv, _floor_divide),
    "remainder": (operator.mod, _remainder),
    "fmod": (math.fmod, lambda x, y: math.nan),
    "pow": (_real_power, _power),
    "atan2": (math.atan2, None),
    "maximum": (_maximum, None),
    "minimum": (_minimum, None),
    "eq": (operator.eq, None),
    "ne": (operator.ne, None),
    "lt": (operator.lt, None),
    "le": (operator.le, None),
    "gt": (operator.gt, None),
    "ge": (operator.ge, None),
    "and": (operator.and_, None),
    "or": (operator.or_, None),
    "xor": (operator.xor, None),
    "lshift": (operator.lshift, None),
    "rshift": (operator.rshift, None),
    "logical_and": (lambda x, y: bool(x) and bool(y), None),
    "logical_or": (lambda x, y: bool(x) or bool(y), None),
    "logical_xor": (lambda x, y: bool(x) != bool(y), None),
}

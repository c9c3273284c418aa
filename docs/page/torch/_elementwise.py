"""Number by number: arithmetic, comparisons, functions, and what type comes out."""

import math
from array import array
from collections.abc import Callable
from typing import Any

from torch import _kernels
from torch._autograd import record
from torch._dtypes import BOOL, INT64, default, dtype, keep, promote_types
from torch._shapes import broadcast_shapes, flat_of, sum_to
from torch._tensor import Tensor, new, tensor

__all__ = ["binary", "cast", "clone", "result_type", "unary", "where"]

COMPARED = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"}
ASKED = {"isnan", "isinf", "isneginf", "isposinf", "isfinite", "logical_not"}
KEEPS_INTEGERS = {
    "neg",
    "abs",
    "square",
    "sign",
    "relu",
    "floor",
    "ceil",
    "round",
    "trunc",
    "invert",
}


def _kind_of(number: Any) -> dtype:
    return BOOL if isinstance(number, bool) else INT64 if isinstance(number, int) else default()


def result_type(*values: Any) -> dtype:
    """The type of a result: of tensors with axes first, then of those without, then of Python's
    numbers.
    """
    groups: list[list[dtype]] = [[], [], []]
    for value in values:
        if isinstance(value, Tensor):
            groups[0 if value.ndim else 1].append(value.dtype)
        else:
            groups[2].append(_kind_of(value))
    found: dtype | None = None
    for group in groups:
        for kind in group:
            if found is None:
                found = kind
            elif (
                group is groups[0]
                or (group is groups[1] and not groups[0])
                or _category(kind) > _category(found)
            ):
                found = promote_types(found, kind)
    return found or default()


def _category(kind: dtype) -> int:
    return 0 if kind is BOOL else 1 if not kind.is_floating_point else 2


def _out_kind(name: str, a: Any, b: Any) -> dtype:
    kind = result_type(a, b)
    if name in COMPARED:
        return BOOL
    if name in ("div", "atan2") and not kind.is_floating_point:
        return default()
    if name == "sub" and kind is BOOL:
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` "
            "or `logical_xor()` "
            "operator instead."
        )
    return kind


def binary(name: str, a: Any, b: Any) -> Tensor:
    """A result for each pair, broadcast; one of the two may be a number of Python."""
    kind = _out_kind(name, a, b)
    first, second = isinstance(a, Tensor), isinstance(b, Tensor)
    shape = (
        broadcast_shapes(a.shape, b.shape) if first and second else a.shape if first else b.shape
    )
    missing = a if first and a._data is None else b if second and b._data is None else None
    if missing is not None:
        return new(None, shape, kind, missing._device)
    if not second or (not b.ndim and first and a.ndim):
        numbers = _kernels.scalar(name, a.flat(), _number(b, a))
    elif not first or (not a.ndim and b.ndim):
        numbers = _kernels.scalar(name, b.flat(), _number(a, b), True)
    else:
        numbers = _kernels.binary(name, flat_of(a, shape), flat_of(b, shape))
    if not kind.is_floating_point and kind is not BOOL and name in ("floor_divide", "pow"):
        numbers = map(int, numbers)
    if kind is BOOL and name in ("add", "mul", "maximum", "minimum"):
        numbers = map(bool, numbers)
    made = new(numbers, shape, kind)
    slope = BINARY_SLOPES.get(name)
    if slope is None:
        return made
    return record(made, name.capitalize(), (a, b), lambda g: slope(g, a, b, made))


def _number(value: Any, other: Tensor) -> Any:
    """A single number as the tensor beside it takes it: rounded, if that has 32 bits or fewer."""
    number = value.item() if isinstance(value, Tensor) else value
    if isinstance(number, bool):
        number = int(number)
    wide = isinstance(value, Tensor) and not value.ndim and not other.ndim
    if isinstance(number, float) and other.dtype.code == "f" and not wide:
        return array("f", [number])[0]
    return number


def _fit(g: Tensor, x: Any) -> Tensor | None:
    """The gradient in the shape and type of what it is for."""
    if not isinstance(x, Tensor) or not x.requires_grad:
        return None
    return cast(sum_to(g, x.shape), x.dtype)


def _needs(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _mul_slope(g: Tensor, a: Any, b: Any, made: Tensor) -> Any:
    return _fit(g * b, a) if _needs(a) else None, _fit(g * a, b) if _needs(b) else None


def _div_slope(g: Tensor, a: Any, b: Any, made: Tensor) -> Any:
    return _fit(g / b, a) if _needs(a) else None, _fit(-g * (a / b) / b, b) if _needs(b) else None


def _pow_slope(g: Tensor, a: Any, b: Any, made: Tensor) -> Any:
    one = two = None
    if _needs(a):
        one = g * 0 if not isinstance(b, Tensor) and b == 0 else g * (b * a ** (b - 1))
    if _needs(b):
        base = a if isinstance(a, Tensor) else tensor(float(a))
        two = g * where(made == 0, 0.0, made * unary("log", base))
    return _fit(one, a) if one is not None else None, _fit(two, b) if two is not None else None


def _extreme_slope(g: Tensor, a: Any, b: Any, made: Tensor) -> Any:
    first, second = cast(made == a, g.dtype), cast(made == b, g.dtype)
    both = first + second
    return _fit(g * first / both, a), _fit(g * second / both, b)


BINARY_SLOPES: dict[str, Callable[[Tensor, Any, Any, Tensor], Any]] = {
    "add": lambda g, a, b, made: (_fit(g, a), _fit(g, b)),
    "sub": lambda g, a, b, made: (_fit(g, a), _fit(-g, b) if _needs(b) else None),
    "mul": _mul_slope,
    "div": _div_slope,
    "pow": _pow_slope,
    "maximum": _extreme_slope,
    "minimum": _extreme_slope,
    "remainder": lambda g, a, b, made: (_fit(g, a), None),
}

UNARY_SLOPES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "neg": lambda g, x, y: -g,
    "abs": lambda g, x, y: g * unary("sign", x),
    "exp": lambda g, x, y: g * y,
    "expm1": lambda g, x, y: g * (y + 1),
    "exp2": lambda g, x, y: g * y * math.log(2),
    "log": lambda g, x, y: g / x,
    "log2": lambda g, x, y: g / (x * math.log(2)),
    "log10": lambda g, x, y: g / (x * math.log(10)),
    "log1p": lambda g, x, y: g / (x + 1),
    "sqrt": lambda g, x, y: g / (2 * y),
    "rsqrt": lambda g, x, y: -0.5 * g * y * y * y,
    "reciprocal": lambda g, x, y: -g * y * y,
    "square": lambda g, x, y: g * (2.0 * x),
    "sin": lambda g, x, y: g * unary("cos", x),
    "cos": lambda g, x, y: -g * unary("sin", x),
    "tan": lambda g, x, y: g * (1 + y * y),
    "asin": lambda g, x, y: g * unary("rsqrt", 1 - x * x),
    "acos": lambda g, x, y: -g * unary("rsqrt", 1 - x * x),
    "atan": lambda g, x, y: g / (1 + x * x),
    "sinh": lambda g, x, y: g * unary("cosh", x),
    "cosh": lambda g, x, y: g * unary("sinh", x),
    "tanh": lambda g, x, y: g * (1 - y * y),
    "erf": lambda g, x, y: g * (1.1283791670955126 * unary("exp", -x * x)),
    "sigmoid": lambda g, x, y: g * y * (1 - y),
    "relu": lambda g, x, y: where(y > 0, g, 0.0),
    "gelu": lambda g, x, y: g * unary("gelu_slope", x),
    "softplus": lambda g, x, y: g * unary("sigmoid", x),
    "entr": lambda g, x, y: -g * (unary("log", x) + 1),
    **{name: (lambda g, x, y: g * 0) for name in ("sign", "floor", "ceil", "round", "trunc")},
}


def unary(name: str, x: Tensor) -> Tensor:
    """A result for each number."""
    kind = x.dtype
    if name in ASKED:
        kind = BOOL
    elif not kind.is_floating_point and name not in KEEPS_INTEGERS:
        kind = default()
    if x._data is None:
        return new(None, x.shape, kind, x._device)
    if not x.dtype.is_floating_point and name in ("floor", "ceil", "round", "trunc"):
        return clone(x)
    if name == "neg" and kind is BOOL:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
            "invert a mask, use "
            "the `~` or `logical_not()` operator instead."
        )
    made = new(
        _kernels.unary("logical_not" if name == "invert" and kind is BOOL else name, x.flat()),
        x.shape,
        kind,
    )
    slope = UNARY_SLOPES.get(name)
    if slope is None:
        return made
    return record(made, name.capitalize(), (x,), lambda g: (slope(g, x, made),))


def cast(x: Tensor, kind: dtype) -> Tensor:
    """The numbers as another type."""
    if x.dtype is kind:
        return x
    if x._data is None:
        return new(None, x.shape, kind, x._device)
    before = x.dtype
    whole = before.is_floating_point and not kind.is_floating_point
    numbers = x.flat()
    if whole and kind is not BOOL:
        made = new(keep(kind, [_truncated(number, kind) for number in numbers]), x.shape, kind)
    else:
        made = new(keep(kind, numbers, cast=whole or kind is BOOL), x.shape, kind)
    return (
        record(made, "ToCopy", (x,), lambda g: (cast(g, before),))
        if kind.is_floating_point
        else made
    )


def _truncated(number: float, kind: dtype) -> int:
    """As C does, and for what has no integer, the least one."""
    try:
        return int(number)
    except (OverflowError, ValueError):
        return -(1 << 8 * kind.itemsize - 1) if kind.is_signed else 0


def clone(x: Tensor, memory_format: Any = None) -> Tensor:
    made = new(None if x._data is None else x.flat()[:], x.shape, x.dtype, x._device)
    if x.ndim > 1 and x._data is not None and not x.is_contiguous() and 0 not in x._strides:
        ordered = _kept_order(x)  # as torch, a copy of what is dense has its strides
        made = made if ordered is None else ordered
    return record(made, "Clone", (x,), lambda g: (g,))


def _kept_order(x: Tensor) -> Tensor | None:
    order = sorted(range(x.ndim), key=lambda d: (-x._strides[d], d))
    step = 1
    for d in reversed(order):
        if x._strides[d] != step and x.shape[d] != 1:
            return None
        step *= x.shape[d]
    copied = x._data[x._offset : x._offset + step]
    return Tensor(copied, x.shape, x.dtype, x._strides)


def where(condition: Tensor, a: Any = None, b: Any = None) -> Any:
    if a is None:
        return condition.nonzero(as_tuple=True)
    kind = result_type(a, b)
    parts = [x if isinstance(x, Tensor) else tensor(x, dtype=kind) for x in (a, b)]
    shape = broadcast_shapes(condition.shape, *(x.shape for x in parts))
    first, second = (flat_of(x, shape) if x.ndim else x.item() for x in parts)
    made = new(_kernels.choose(flat_of(condition, shape), first, second), shape, kind)
    return record(
        made,
        "Where",
        (a, b),
        lambda g: (_fit(where(condition, g, 0.0), a), _fit(where(condition, 0.0, g), b)),
    )


def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    if mask.dtype is not BOOL:
        raise RuntimeError(
            "masked_fill_ only supports boolean masks, but got mask with dtype "
            f"{_plain(mask.dtype)}"
        )
    number = value.item() if isinstance(value, Tensor) else value
    shape = broadcast_shapes(x.shape, mask.shape)
    if x._data is None:
        return new(None, shape, x.dtype, x._device)
    made = new(_kernels.choose(flat_of(mask, shape), number, flat_of(x, shape)), shape, x.dtype)
    given = value if isinstance(value, Tensor) else None

    def back(g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return _fit(where(mask, 0.0, g), x), None if given is None else _fit(
            where(mask, g, 0.0), given
        )

    return record(made, "MaskedFill", (x, given), back)


def _plain(kind: dtype) -> str:
    """The type as torch's own errors spell it."""
    names = {
        "float32": "float",
        "float64": "double",
        "int64": "long int",
        "int32": "int",
        "uint8": "unsigned char",
    }
    return names.get(kind.name, kind.name)


def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    low, high = min, max
    kind = result_type(x, *(each for each in (low, high) if each is not None))
    made = x
    if low is not None:
        made = binary("maximum", made, low)
    if high is not None:
        made = binary("minimum", made, high)
    data = new(made.flat()[:], made.shape, kind)

    def back(g: Tensor) -> tuple[Tensor | None]:
        return (_fit(where(data == x.detach(), g, 0.0), x),)

    return record(data, "Clamp", (x,), back)


def lerp(a: Tensor, b: Tensor, weight: Any) -> Tensor:
    return a + weight * (b - a)


def round_(x: Tensor, *, decimals: int = 0) -> Tensor:
    if not decimals:
        return unary("round", x)
    power = 10.0 ** abs(decimals)
    scaled = unary("round", x * power if decimals > 0 else x / power)
    return scaled / power if decimals > 0 else scaled * power


def is_close(a: Tensor, b: Tensor, rtol: float, atol: float, equal_nan: bool) -> list[bool]:
    """Pair by pair, whether they are as close as asked."""
    shape = broadcast_shapes(a.shape, b.shape)
    found = []
    for x, y in zip(flat_of(a, shape), flat_of(b, shape), strict=True):
        near = x == y or (
            abs(x - y) <= atol + rtol * abs(y) and math.isfinite(y) and math.isfinite(x)
        )
        found.append(near or (equal_nan and x != x and y != y))
    return found


def floor_divide(a: Any, b: Any, rounding_mode: str | None = "floor") -> Tensor:
    if rounding_mode is None:
        return binary("div", a, b)
    if rounding_mode == "floor":
        return binary("floor_divide", a, b)
    kind = result_type(a, b)
    return cast(unary("trunc", binary("div", a, b)), kind)

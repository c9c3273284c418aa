"""Types of numbers: how each is kept in an `array.array`, rounded, and mixed with others."""

import struct
from array import array
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["DTYPES", "default", "dtype", "keep", "promote_types", "set_default"]


class dtype:
    """One type. 16-bit floats are kept as 32-bit ones that have been rounded: there is no array
    of them.
    """

    def __init__(
        self,
        name: str,
        code: str,
        itemsize: int,
        rank: int,
        shorten: Callable[[array], array] | None = None,
    ):
        self.name, self.code, self.itemsize, self.rank, self.shorten = (
            name,
            code,
            itemsize,
            rank,
            shorten,
        )
        self.is_floating_point = rank >= 20
        self.is_complex = False
        self.is_signed = name not in ("uint8", "bool")

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _by_name, (self.name,)


def _by_name(name: str) -> dtype:
    return DTYPES[name]


def _half(numbers: array) -> array:
    """Rounded to float16; what is too large for it is infinite, which `struct` refuses to write."""
    top, form = 65520.0, f"{len(numbers)}e"
    if any(not -top < x < top for x in numbers):
        infinite = float("inf")
        numbers = array(
            "f", (infinite if x >= top else -infinite if x <= -top else x for x in numbers)
        )
    return array("f", struct.unpack(form, struct.pack(form, *numbers)))


def _brain(numbers: array) -> array:
    """Rounded to bfloat16: to the nearest of the upper 16 bits, halves to the even one."""
    bits = array("I", numbers.tobytes())
    rounded = (
        (x + 0x7FFF + ((x >> 16) & 1)) & 0xFFFF0000
        if x & 0x7F800000 != 0x7F800000
        else x & 0xFFFF0000
        for x in bits
    )
    return array("f", array("I", rounded).tobytes())


DTYPES = {
    each.name: each
    for each in (
        dtype("bool", "B", 1, 0),
        dtype("uint8", "B", 1, 10),
        dtype("int8", "b", 1, 11),
        dtype("int16", "h", 2, 12),
        dtype("int32", "i", 4, 13),
        dtype("int64", "q", 8, 14),
        dtype("float16", "f", 2, 20, _half),
        dtype("bfloat16", "f", 2, 21, _brain),
        dtype("float32", "f", 4, 22),
        dtype("float64", "d", 8, 23),
    )
}
BOOL, INT64, FLOAT32, FLOAT64 = (DTYPES[name] for name in ("bool", "int64", "float32", "float64"))
_DEFAULT = [FLOAT32]


def default() -> dtype:
    """The type of floats whose type nobody named."""
    return _DEFAULT[0]


def set_default(kind: dtype) -> None:
    """Choose it."""
    if not kind.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {kind}")
    _DEFAULT[0] = kind


def promote_types(a: dtype, b: dtype) -> dtype:
    """The smallest type that holds both."""
    if a is b:
        return a
    low, high = sorted((a, b), key=lambda each: each.rank)
    if low.name == "uint8" and high.name == "int8":
        return DTYPES["int16"]
    if low.name == "float16" and high.name == "bfloat16":
        return FLOAT32
    return high


def keep(kind: dtype, numbers: Iterable[Any], cast: bool = False) -> array:
    """The numbers as this type keeps them; `cast` if they may be of another kind."""
    if cast:
        if kind is BOOL:
            return array("B", map(bool, numbers))
        if not kind.is_floating_point:
            numbers = map(int, numbers)
    if kind.code not in "fd" and not isinstance(numbers, (array, list, range)):
        numbers = list(numbers)  # it may be gone through twice
    try:
        found = (
            numbers
            if isinstance(numbers, array) and numbers.typecode == kind.code
            else array(kind.code, numbers)
        )
    except OverflowError:  # integers go round, as in C
        bits = 8 * kind.itemsize
        least = -(1 << bits - 1) if kind.is_signed else 0
        found = array(kind.code, ((int(x) - least) % (1 << bits) + least for x in numbers))
    return kind.shorten(found) if kind.shorten else found

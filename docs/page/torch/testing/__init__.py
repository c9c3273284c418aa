"""`torch.testing`: `assert_close`, with torch's message."""

import math
from array import array
from typing import Any

from torch._elementwise import is_close
from torch._tensor import Tensor, tensor

__all__ = ["assert_close"]

TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Any = None,
) -> None:
    """Nothing, if both are alike; otherwise an AssertionError that says how far they are apart."""
    if isinstance(actual, (list, tuple)) and isinstance(expected, (list, tuple)):
        if len(actual) != len(expected):
            raise AssertionError(
                f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
            )
        for a, b in zip(actual, expected, strict=True):
            assert_close(
                a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype, msg=msg
            )
        return
    scalar = not isinstance(actual, Tensor)
    a, b = (x if isinstance(x, Tensor) else tensor(x) for x in (actual, expected))
    found = _difference(a.detach(), b.detach(), rtol, atol, equal_nan, check_dtype, scalar)
    if found is not None:
        raise AssertionError(msg(found) if callable(msg) else msg or found)


def _difference(
    a: Tensor, b: Tensor, rtol: Any, atol: Any, equal_nan: bool, check_dtype: bool, scalar: bool
) -> str | None:
    if a.shape != b.shape:
        return f"The values for attribute 'shape' do not match: {a.shape} != {b.shape}."
    if check_dtype and a.dtype is not b.dtype and not scalar:
        return f"The values for attribute 'dtype' do not match: {a.dtype} != {b.dtype}."
    if (rtol is None) != (atol is None):
        raise ValueError(
            "Either none or both 'rtol' and 'atol' have to be specified together, but got "
            f"{rtol=} and {atol=}."
        )
    if rtol is None:
        pairs = [TOLERANCES.get(x.dtype.name, (0.0, 0.0)) for x in (a, b)]
        rtol, atol = max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    near = is_close(a, b, rtol, atol, equal_nan)
    if all(near):
        return None
    return _words(a, b, near, rtol, atol, scalar)


def _words(a: Tensor, b: Tensor, near: list[bool], rtol: float, atol: float, scalar: bool) -> str:
    pairs = list(zip(a.flat(), b.flat(), strict=True))
    far = [abs(x - y) for x, y in pairs]
    ratio = [
        gap / abs(y) if y else (math.inf if gap else 0.0)
        for gap, (_, y) in zip(far, pairs, strict=True)
    ]
    if a.dtype.code == "f":  # the differences are of the tensor's own type
        far, ratio = array("f", far).tolist(), array("f", ratio).tolist()
    for i, fine in enumerate(near):
        if fine:
            far[i], ratio[i] = 0.0, 0.0
    exact = not rtol and not atol
    kind = "equal" if exact else "close"
    if scalar or (a.numel() == 1 and not a.ndim):
        word = "Scalars"
        x, y = pairs[0]
        allowed = "" if exact else f" (up to {atol} allowed)"
        percent = "" if exact else f" (up to {rtol} allowed)"
        if exact:
            return (
                f"{word} are not equal!\n\nExpected {y} but got {x}.\nAbsolute difference: "
                f"{far[0]}\nRelative difference: {ratio[0]}"
            )
        return (
            f"{word} are not close!\n\nExpected {y} but got {x}.\nAbsolute difference: "
            f"{far[0]}{allowed}\n"
            f"Relative difference: {ratio[0]}{percent}"
        )
    wrong = near.count(False)
    lines = [
        f"Tensor-likes are not {kind}!",
        "",
        f"Mismatched elements: {wrong} / {a.numel()} ({wrong / a.numel():.1%})",
    ]
    for name, gaps, allowed in ("absolute", far, atol), ("relative", ratio, rtol):
        worst = max(range(len(gaps)), key=lambda i: gaps[i] if gaps[i] == gaps[i] else math.inf)
        place = _place(worst, a.shape)
        limit = "" if exact else f" (up to {allowed} allowed)"
        lines.append(f"Greatest {name} difference: {gaps[worst]} at index {place}{limit}")
    return "\n".join(lines)


def _place(i: int, shape: Any) -> tuple[int, ...]:
    found = []
    for size in reversed(shape):
        found.append(i % size)
        i //= size
    return tuple(reversed(found))

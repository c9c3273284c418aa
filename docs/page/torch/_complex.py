"""Complex numbers as pairs of tensors: enough to turn pairs of numbers, as rotary positions do.

Gradients go through the two parts. What is computed from one, beyond sums, products and parts, is
lacking.
"""

from typing import Any

from torch import _state
from torch._tensor import Tensor

__all__ = ["FUNCTIONS", "Complex"]

# Of a whole complex tensor, each part has the same done to it.
ALIKE = [
    *("reshape", "view", "unsqueeze", "squeeze", "transpose", "permute", "expand", "flatten"),
    *("unflatten", "clone", "detach", "contiguous", "__getitem__"),
]


class Complex:
    """A tensor of complex numbers: its real and its imaginary part, of one shape."""

    def __init__(self, real: Tensor, imag: Tensor):
        self.real, self.imag = real, imag

    shape = property(lambda self: self.real.shape)
    ndim = property(lambda self: self.real.ndim)
    device = property(lambda self: self.real.device)

    def size(self, *axis: int) -> Any:
        return self.real.size(*axis)

    def is_complex(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self.real)

    def __mul__(self, other: Any) -> "Complex":
        a, b = self.real, self.imag
        c, d = _parts(other)
        return Complex(a * c, b * c) if d is None else Complex(a * c - b * d, a * d + b * c)

    def __add__(self, other: Any) -> "Complex":
        c, d = _parts(other)
        if d is None:
            return Complex(self.real + c, self.imag + 0 * c)
        return Complex(self.real + c, self.imag + d)

    __rmul__, __radd__ = __mul__, __add__

    def __neg__(self) -> "Complex":
        return Complex(-self.real, -self.imag)

    def __sub__(self, other: Any) -> "Complex":
        return self + -other

    def conj(self) -> "Complex":
        return Complex(self.real, -self.imag)

    def abs(self) -> Tensor:
        return (self.real * self.real + self.imag * self.imag).sqrt()

    __abs__ = abs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise _state.lacking(f"{name} of complex numbers")


def _alike(name: str) -> Any:
    def done(self: Complex, *where: Any, **named: Any) -> Complex:
        parts = (getattr(part, name)(*where, **named) for part in (self.real, self.imag))
        return Complex(*parts)

    return done


for _name in ALIKE:
    setattr(Complex, _name, _alike(_name))


def _parts(number: Any) -> tuple[Any, Any]:
    """A number's real and imaginary part; of a real one, None."""
    if isinstance(number, Complex | complex):
        return number.real, number.imag
    return number, None


def polar(abs: Tensor, angle: Tensor) -> Complex:
    return Complex(abs * angle.cos(), abs * angle.sin())


def view_as_complex(input: Tensor) -> Complex:
    if input.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    return Complex(input[..., 0], input[..., 1])


def view_as_real(input: Complex) -> Tensor:
    from torch import stack

    return stack([input.real, input.imag], dim=-1)


FUNCTIONS = {
    "complex": Complex,
    "polar": polar,
    "view_as_complex": view_as_complex,
    "view_as_real": view_as_real,
}

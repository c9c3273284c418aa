"""Numbers of few bits in place of keys and values: a smaller cache, not quite the same."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mhattn import checks as check

__all__ = ["Quantised", "quantise"]


# --8<-- [start:Quantised]
@dataclass(frozen=True)
class Quantised:
    """Numbers as whole steps above the smallest of their group.

    Attributes:
        codes: steps, from 0 to ``2**bits - 1``, in the shape of the numbers; each in a byte of
            its own here, where a cache would pack 8 bits of them into one.
        step: size of a step, for each group: the same shape, but one for each group on ``dim``;
            float16.
        low: where each group begins: its smallest number or just below; as ``step``.
        bits: of a code.
        dim: axis along which numbers are grouped.
        dtype: of the numbers.
    """

    codes: Tensor
    step: Tensor
    low: Tensor
    bits: int
    dim: int
    dtype: torch.dtype

    def restore(self) -> Tensor:
        """Compute the numbers back, each at most half a step off, and rounded to their dtype.

        Returns:
            Shape and dtype of the numbers.
        """
        wide = torch.promote_types(self.dtype, torch.float32)
        groups = self.codes.unflatten(self.dim, (self.step.shape[self.dim], -1))
        step, low = (x.to(wide).unsqueeze(self.dim + 1) for x in (self.step, self.low))
        restored: Tensor = groups * step + low
        return restored.flatten(self.dim, self.dim + 1).to(self.dtype)

    @property
    def bits_per_number(self) -> float:
        """Bits of a packed code, and its share of the group's step and low, 16 bits each."""
        group = self.codes.shape[self.dim] // self.step.shape[self.dim]
        return self.bits + 8 * (self.step.itemsize + self.low.itemsize) / group
        # --8<-- [end:Quantised]


# --8<-- [start:quantise]
def quantise(x: Tensor, bits: int, *, dim: int = -1, group: int | None = None) -> Quantised:
    """Round numbers to ``2**bits`` equal steps from the smallest to the largest of their group.

    Liu et al. (2024), https://arxiv.org/abs/2402.02750, group keys along the tokens, so that each
    channel has steps of its own, and values along the channels.

    Smallest number and step are kept in float16. The one is rounded down and the other up, so that
    the steps reach all numbers of the group, and each is at most half a step from one. Codes have
    no gradient.

    Args:
        x: floats, at least two axes; finite, and of a size that float16 can hold.
        bits: from 1 to 8.
        dim: axis along which neighbours form a group.
        group: how many numbers form one; it divides the axis. Default: all.

    Returns:
        Codes, and what turns them back into numbers.

    Raises:
        TypeError: x is not a tensor of floats, or bits or group not an integer.
        ValueError: x has one axis, is not finite or too large for steps in float16, bits is not
            from 1 to 8, dim is no axis of x, or group does not divide the axis.

    Examples:
        >>> stored = quantise(torch.tensor([[1.0, 1.4, 2.0, 4.0]]), bits=2)
        >>> stored.codes
        tensor([[0, 0, 1, 3]], dtype=torch.uint8)
        >>> stored.restore()
        tensor([[1., 1., 2., 4.]])
    """
    check.floats("x", x)
    check.at_least("bits", bits, 1)
    if bits > 8:
        raise ValueError(f"bits must be at most 8, got {bits}")
    if not -x.ndim <= dim < x.ndim:
        raise ValueError(f"dim must be an axis of x, which has {x.ndim}, got {dim}")
    dim %= x.ndim
    group = x.shape[dim] if group is None else group
    check.at_least("group", group, 1)
    check.divides("group", group, f"axis {dim} of x", x.shape[dim])
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    groups = wide.unflatten(dim, (-1, group))
    smallest, largest = groups.aminmax(dim=dim + 1, keepdim=True)
    low = -rounded_up(-smallest)
    step = rounded_up((largest - low) / (2**bits - 1))
    check_range(x, bits, low, step)
    even = torch.where(step > 0, step, 1)  # a group of equal numbers
    codes = ((groups - low) / even).round().to(torch.uint8).flatten(dim, dim + 1)
    step, low = (y.squeeze(dim + 1) for y in (step, low))
    return Quantised(codes, step, low, bits, dim, x.dtype)


def rounded_up(x: Tensor) -> Tensor:
    """The smallest float16 that is no smaller than x: half a place more if the nearest is."""
    nearest = x.to(torch.float16)
    half = (x.abs() * 2**-11).clamp(min=2**-25)  # 11 bits, and places of 2^-24 near zero
    return torch.where(nearest < x, (x + half).to(torch.float16), nearest)


def check_range(x: Tensor, bits: int, *held: Tensor) -> None:
    if not all(y.isfinite().all() for y in held):
        low, high = (y.item() for y in x.detach().aminmax())
        rule = "x must be finite, and its smallest numbers and steps at most 65504, as in float16"
        raise ValueError(f"{rule}, got {low:g} to {high:g} in {bits} bits")
    # --8<-- [end:quantise]

"""Numbers of few bits in place of keys and values: a smaller cache, not quite the same."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mhattn.core import checks as check

__all__ = ["Quantised", "quantise"]


# --8<-- [start:Quantised]
@dataclass(frozen=True)
class Quantised:
    """Numbers as whole steps above the smallest of their group.

    Attributes:
        codes: steps, from 0 to ``2**bits - 1``, in the shape of the numbers.
        step: size of a step, for each group: the same shape, but one for each group on ``dim``.
        low: the smallest number of each group, in the shape of ``step``.
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
        """Compute the numbers back, each at most half a step off.

        Returns:
            Shape and dtype of the numbers.
        """
        groups = self.codes.unflatten(self.dim, (self.step.shape[self.dim], -1))
        step, low = (x.unsqueeze(self.dim + 1) for x in (self.step, self.low))
        restored: Tensor = groups * step + low
        return restored.flatten(self.dim, self.dim + 1).to(self.dtype)

    @property
    def bits_per_number(self) -> float:
        """Bits of a code, and its share of the group's step and smallest number, 16 bits each."""
        return self.bits + 32 * self.step.numel() / self.codes.numel()
        # --8<-- [end:Quantised]


# --8<-- [start:quantise]
def quantise(x: Tensor, bits: int, *, dim: int = -1, group: int | None = None) -> Quantised:
    """Round numbers to ``2**bits`` equal steps from the smallest to the largest of their group.

    Liu et al. (2024), https://arxiv.org/abs/2402.02750, group keys along the tokens, so that each
    channel has steps of its own, and values along the channels.

    Args:
        x: floats, at least two axes.
        bits: from 1 to 8.
        dim: axis along which neighbours form a group.
        group: how many numbers form one; it divides the axis. Default: all.

    Returns:
        Codes, and what turns them back into numbers.

    Raises:
        TypeError: x is not a tensor of floats, or bits or group not an integer.
        ValueError: x has one axis, bits is not from 1 to 8, dim is no axis of x, or group does
            not divide the axis.

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
    groups = x.float().unflatten(dim, (-1, group))
    low, high = groups.aminmax(dim=dim + 1, keepdim=True)
    step = (high - low) / (2**bits - 1)
    even = torch.where(step > 0, step, 1)  # a group of equal numbers
    codes = ((groups - low) / even).round().to(torch.uint8).flatten(dim, dim + 1)
    step, low = (y.squeeze(dim + 1) for y in (step, low))
    return Quantised(codes, step, low, bits, dim, x.dtype)
    # --8<-- [end:quantise]

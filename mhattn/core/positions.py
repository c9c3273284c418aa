"""How attention learns where its tokens stand.

Attention itself does not know the order of its keys. Positions enter before the first layer, by
`sinusoidal_positions` that are added to the input; or inside each layer, by a `Position`, which
turns queries and keys, adds to their scores, or both. Query ``i`` of ``L`` stands beside key
``i + (S - L)``, as everywhere in this package, unless positions are given: for sequences that are
padded on the left, or several in one.
"""

import math
from collections.abc import Callable
from typing import Any, Self
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from mhattn.core import checks as check
from mhattn.core.frequencies import rotary_frequencies
from mhattn.core.steps import step

__all__ = ["Alibi", "Position", "Rotary", "sinusoidal_positions"]

Attended = Tensor | tuple[Tensor, Tensor]
Positions = tuple[Tensor, Tensor]
KEPT = 4096  # positions whose cosines and sines are kept, once for all layers


# --8<-- [start:sinusoidal_positions]
def sinusoidal_positions(
    length: int,
    dim: int,
    start: int = 0,
    base: float = 10_000.0,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """One vector for each position, to be added to the tokens.

    Features ``2 i`` and ``2 i + 1`` are the sine and the cosine of an angle that grows by
    ``base ** (-2 i / dim)`` radians a position (Vaswani et al. 2017, section 3.5,
    https://arxiv.org/abs/1706.03762). For tokens that stand elsewhere, take rows of the table:
    ``sinusoidal_positions(length, dim)[positions]``.

    Args:
        length: number of positions.
        dim: width of the model, even.
        start: the first position.
        base: the slowest pair takes almost ``2 pi base`` positions for a turn.
        device: where the result is put.
        dtype: of the result. Default: torch's default.

    Returns:
        ``(length, dim)``, which broadcasts to ``(B, L, E)``.

    Raises:
        TypeError: length, dim or start is not an integer.
        ValueError: length or start is negative, dim is odd or less than 2, or base is not
            greater than 1.

    Examples:
        >>> sinusoidal_positions(length=2, dim=4)
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    check.at_least("length", length, 0)
    check.at_least("start", start, 0)
    check.pairs("dim", dim, base)
    positions = torch.arange(start, start + length, device="cpu")
    angles = positions[:, None] * rotary_frequencies(dim, base)  # (L, E / 2)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (L, E / 2, 2)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    device = torch.get_default_device() if device is None else device
    return table.flatten(-2).to(device, dtype)  # (L, E)
    # --8<-- [end:sinusoidal_positions]


class Position(nn.Module):
    """Base class; by itself it does nothing, and attention stays blind to positions.

    A position turns queries and keys by `rotate`, and adds to their scores by `bias_for`. If it
    changes more than these, it has an ``attend`` like `attention`, which the layer calls instead.

    Examples:
        >>> x = torch.randn(1, 2, 5, 4)
        >>> Position().rotate(x) is x, Position().bias_for(x, x)
        (True, None)
    """

    attend: Callable[..., Attended] | None = None

    def __init__(self) -> None:
        super().__init__()

    def reset_parameters(self) -> None:
        """Compute anew what the class keeps, as after `torch.nn.Module.to_empty`."""

    def rotate(self, x: Tensor, start: int = 0, *, positions: Tensor | None = None) -> Tensor:
        """Change queries or keys by their own positions.

        Args:
            x: ``(B, H, L, D)``.
            start: position of the first of them; the others follow one by one.
            positions: integers ``(L,)`` or ``(B, L)``, the position of each, instead of start.

        Returns:
            The same shape; here, x itself.

        Examples:
            >>> x = torch.randn(1, 2, 5, 4)
            >>> Position().rotate(x, start=3) is x
            True
        """
        return x

    # --8<-- [start:move]
    def move(self, x: Tensor, by: int) -> Tensor:
        """Move queries or keys on, all by the same number of positions.

        Args:
            x: ``(B, H, L, D)``, as `rotate` gave them.
            by: how many positions later they will stand.

        Returns:
            What `rotate` would have given there: turns add up. Here, x itself.

        Examples:
            >>> rotary, x = Rotary(4), torch.randn(1, 2, 5, 4)
            >>> moved = rotary.move(rotary.rotate(x, start=3), by=20)
            >>> torch.allclose(moved, rotary.rotate(x, start=23), atol=1e-6)
            True
        """
        return self.rotate(x.unsqueeze(-2), by).squeeze(-2)  # each alone, as the first of one
        # --8<-- [end:move]

    def bias_for(
        self, query: Tensor, key: Tensor, *, positions: Positions | None = None
    ) -> Tensor | None:
        """What the positions of these queries and keys add to their scores.

        Args:
            query: floats, ``(..., H, L, D)``.
            key: floats, ``(..., H_kv, S, D)``.
            positions: of the queries, ``(L,)`` or ``(B, L)``, and of the keys, ``(S,)`` or
                ``(B, S)``. Default: the last query stands beside the last key.

        Returns:
            The ``bias`` of `attention`; here, None.

        Examples:
            >>> x = torch.randn(1, 2, 5, 4)
            >>> Position().bias_for(x, x) is None
            True
        """
        return None


# --8<-- [start:Rotary]
class Rotary(Position):
    """Turn each pair of features by an angle that grows with the position.

    The dot product of a query and a key then depends on how far apart they are, and not on
    where they stand (Su et al. 2021, https://arxiv.org/abs/2104.09864). Feature ``i`` is
    turned together with feature ``i + D / 2``, at ``base ** (-2 i / D)`` radians a position.

    Angles are counted in integers of 64 bits, of which 2**64 are a whole turn. Products with a
    position drop whole turns by overflowing, so an angle is as exact at position 1,000,000 as at
    1, on devices without float64 too.

    Args:
        head_dim: width of a head, even.
        base: the slowest pair takes almost ``2 pi base`` positions for a turn.
        frequencies: radians from one position to the next, ``(D / 2,)``, instead of those of the
            base: slower ones from `mhattn.core.frequencies` for sequences longer than in
            training, or zeros for pairs that are not turned (partial rotary positions).
        device: where the angles are kept.

    Raises:
        TypeError: head_dim is not an integer, or frequencies not a tensor of floats.
        ValueError: head_dim is odd or less than 2, base is not greater than 1, or frequencies are
            not ``(D / 2,)``, each from 0 to less than pi.

    Examples:
        >>> rotary = Rotary(head_dim=2)
        >>> rotary.rotate(torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]]))
        tensor([[[[1.0000, 0.0000],
                  [0.5403, 0.8415]]]])
    """

    steps: Tensor

    def __init__(
        self,
        head_dim: int,
        base: float = 10_000.0,
        *,
        frequencies: Tensor | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        from_base = rotary_frequencies(head_dim, base)
        self.head_dim = head_dim
        self.base = base
        self.frequencies = from_base if frequencies is None else checked(frequencies, head_dim)
        steps = torch.empty(head_dim // 2, dtype=torch.int64, device=device)
        self.register_buffer("steps", steps, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Compute the angles from one position to the next anew."""
        self.steps.copy_(steps_of(self.frequencies))
        self.table = shared_table(self.frequencies, self.steps.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Take the table of the device that the layer goes to."""
        module: Any = super()
        module._apply(fn, recurse)
        self.table = shared_table(self.frequencies, self.steps.device)
        return self

    def rotate(self, x: Tensor, start: int = 0, *, positions: Tensor | None = None) -> Tensor:
        """Turn queries or keys.

        Args:
            x: ``(B, H, L, D)``.
            start: position of the first of them; the others follow one by one.
            positions: integers ``(L,)`` or ``(B, L)``, the position of each, instead of start.

        Returns:
            The same shape and dtype; no vector gets longer or shorter.

        Raises:
            TypeError: x is not a tensor of floats, or positions not one of integers.
            ValueError: the last axis of x is not head_dim, or positions do not fit.

        Examples:
            >>> x = torch.randn(1, 2, 5, 8)
            >>> later = Rotary(8).rotate(x, start=3)[..., :2, :]
            >>> torch.allclose(later, Rotary(8).rotate(x[..., :2, :], start=3))
            True
        """
        check.floats("x", x)
        check.last_axis("x", x, "head_dim", self.head_dim)
        cos, sin = self._cos_and_sin(x, start, positions)  # (L, D) or (B, 1, L, D)
        wide = x if x.dtype == cos.dtype else x.to(cos.dtype)
        across = wide.roll(self.head_dim // 2, -1)  # the other feature of each pair
        turned = torch.addcmul(wide * cos, across, sin)  # (B, H, L, D)
        return turned if turned.dtype == x.dtype else turned.to(x.dtype)

    def _cos_and_sin(
        self, x: Tensor, start: int, positions: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Of the angle of each feature; the sine of the first half with a minus."""
        end, wide = start + x.shape[-2], torch.promote_types(x.dtype, torch.float32)
        if positions is not None:
            check.positions(positions, x)
        elif (
            torch.compiler.is_compiling()
            or wide == torch.float64
            or not 0 <= start <= end <= KEPT
            or self.table.cos.device != x.device
        ):
            positions = torch.arange(start, end, device=x.device)
        else:
            return self.table.rows(start, end)
        angles = angles_at(positions, self.steps, wide)
        return for_both_halves(angles[:, None] if angles.ndim == 3 else angles)

    def extra_repr(self) -> str:
        names = [f"head_dim={self.head_dim}", f"base={self.base}"]
        if not self.frequencies.equal(rotary_frequencies(self.head_dim, self.base)):
            low, high = self.frequencies.min(), self.frequencies.max()
            names[1] = f"frequencies from {low:.3g} to {high:.3g}"
        return ", ".join(names)
        # --8<-- [end:Rotary]


step(Rotary.rotate, "turn {}")


class RotaryTable:
    """Cosines and sines of the first positions, ``(KEPT, D)`` each, in float32.

    Layers with the same frequencies on the same device hold the same one, and so do their copies.
    It is no buffer: neither a dtype nor an empty memory reaches it.
    """

    def __init__(self, frequencies: Tensor, device: torch.device) -> None:
        self.made_of = frequencies, device
        places = torch.arange(KEPT, device="cpu")
        angles = angles_at(places, steps_of(frequencies), torch.float64)
        self.cos, self.sin = (x.to(device, torch.float32) for x in for_both_halves(angles))
        self.last = 0, KEPT, self.cos, self.sin

    def rows(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of these positions; the last ones are asked for by each layer."""
        if self.last[:2] != (start, end):
            self.last = start, end, self.cos[start:end], self.sin[start:end]
        return self.last[2:]

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return shared_table, self.made_of


TABLES: WeakValueDictionary[tuple[Any, ...], RotaryTable] = WeakValueDictionary()


def shared_table(frequencies: Tensor, device: torch.device) -> RotaryTable:
    """The one that a layer has already, or a new one."""
    if type(frequencies) is not Tensor:  # has no numbers, as in torch's FakeTensorMode
        return RotaryTable(frequencies, device)
    key = device, *frequencies.tolist()
    table = TABLES.get(key)
    if table is None:
        with torch.inference_mode(False), torch.no_grad():
            table = TABLES[key] = RotaryTable(frequencies, device)
    return table


def steps_of(frequencies: Tensor) -> Tensor:
    """From one position to the next, in units of which 2**64 are a whole turn."""
    turns = frequencies / (2 * math.pi)
    return (turns * 2.0**64).to(torch.int64)


def checked(frequencies: Any, head_dim: int) -> Tensor:
    """In float64 and on the CPU, as those of a base."""
    if not isinstance(frequencies, Tensor) or not frequencies.is_floating_point():
        got = frequencies.dtype if isinstance(frequencies, Tensor) else type(frequencies).__name__
        raise TypeError(f"frequencies must be a tensor of floats, got {got}")
    if frequencies.shape != (head_dim // 2,):
        rule = f"frequencies must be (head_dim / 2,) = ({head_dim // 2},)"
        raise ValueError(f"{rule}, got {tuple(frequencies.shape)}")
    wide = frequencies.detach().to("cpu", torch.float64)
    if not ((wide >= 0) & (wide < math.pi)).all():
        raise ValueError(f"frequencies must be from 0 to less than pi, got {wide.tolist()}")
    return wide


def for_both_halves(angles: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines for each feature, ``(..., D)``, and sines for the other of its pair."""
    cos, sin = angles.cos(), angles.sin()  # (..., D / 2)
    return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)


def angles_at(positions: Tensor, steps: Tensor, dtype: torch.dtype) -> Tensor:
    """In radians, from half a turn back to half a turn ahead: the sign is the integer's own."""
    return (positions[..., None] * steps).to(dtype) * (math.pi / 2**63)


# --8<-- [start:Alibi]
class Alibi(Position):
    """Subtract from each score a multiple of the distance between query and key.

    The multiple, the slope, is fixed and differs from head to head: ``2 ** (-8 h / H)`` for the
    heads ``h`` from 1 to ``H`` (Press, Smith and Lewis 2022, https://arxiv.org/abs/2108.12409).
    If ``H`` is not a power of two, the paper's code is followed: the slopes of the next smaller
    power of two, then every other slope of the next larger. The paper is about causal
    attention; here, the distance to a key that comes later counts as much as to an earlier one.

    Args:
        num_heads: heads of the query.
        device: where the slopes are kept.

    Raises:
        TypeError: num_heads is not an integer.
        ValueError: num_heads is less than 1.

    Examples:
        >>> Alibi(num_heads=4).slopes
        [0.25, 0.0625, 0.015625, 0.00390625]
    """

    steps: Tensor

    def __init__(self, num_heads: int, *, device: torch.device | str | None = None) -> None:
        super().__init__()
        check.at_least("num_heads", num_heads, 1)
        power = 2 ** (num_heads.bit_length() - 1)  # the largest that is not above num_heads
        slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
        between = [2 ** (-4 * h / power) for h in range(1, 2 * power, 2)]
        self.num_heads = num_heads
        self.slopes = (slopes + between)[:num_heads]
        steps = torch.empty(num_heads, dtype=torch.int64, device=device)
        self.register_buffer("steps", steps, persistent=False)  # slopes, in units of 2**-62
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Put the slopes on the device anew."""
        steps = [int(slope * 2**62) for slope in self.slopes]
        self.steps.copy_(torch.tensor(steps, device="cpu"))

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}"

    def bias(
        self,
        L: int,
        S: int,
        *,
        positions: Positions | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """What is added to the scores.

        Args:
            L: number of queries.
            S: number of keys.
            positions: integers, of the queries, ``(L,)`` or ``(B, L)``, and of the keys, ``(S,)``
                or ``(B, S)``. Default: the last query stands beside the last key.
            dtype: of the result. Default: torch's default.

        Returns:
            ``(H, L, S)``, or with positions of each sequence ``(B, H, L, S)``; nowhere above zero.

        Examples:
            >>> Alibi(num_heads=1).bias(2, 3) * 2**8
            tensor([[[-1.,  0., -1.],
                     [-2., -1.,  0.]]])
        """
        dtype = torch.get_default_dtype() if dtype is None else dtype
        slopes = self.steps.to(dtype) * 2.0**-62  # (H,)
        distance = distances(L, S, positions, self.steps.device)  # (L, S) or (B, 1, L, S)
        return slopes[:, None, None] * -distance.abs()

    def bias_for(self, query: Tensor, key: Tensor, *, positions: Positions | None = None) -> Tensor:
        """What is added to the scores of these queries and keys, in float32 at least.

        Args:
            query: ``(..., H, L, D)``.
            key: floats, ``(..., H_kv, S, D)``.
            positions: integers, of the queries, ``(L,)`` or ``(B, L)``, and of the keys, ``(S,)``
                or ``(B, S)``. Default: the last query stands beside the last key.

        Returns:
            ``(H, L, S)``, or with positions of each sequence ``(B, H, L, S)``.

        Raises:
            TypeError: query or key is not a tensor of floats, or positions are not integers.
            ValueError: the shapes do not fit, there are not num_heads heads, or positions do not
                fit.

        Examples:
            >>> query, key = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 4)
            >>> Alibi(num_heads=1).bias_for(query, key) * 2**8
            tensor([[[-1.,  0., -1.],
                     [-2., -1.,  0.]]])
        """
        check.query_and_key(query, key)
        check.heads(query, self.num_heads)
        check.pair_of_positions(positions, query, key)
        wide = torch.promote_types(query.dtype, torch.float32)
        return self.bias(query.shape[-2], key.shape[-2], positions=positions, dtype=wide)
        # --8<-- [end:Alibi]


def side_by_side(L: int, S: int, device: torch.device) -> Positions:
    """Of queries and keys, the last query beside the last key."""
    return torch.arange(S - L, S, device=device), torch.arange(S, device=device)


def distances(L: int, S: int, positions: Positions | None, device: torch.device) -> Tensor:
    """How many positions each key lies behind each query: ``(L, S)`` or ``(B, 1, L, S)``."""
    query, key = side_by_side(L, S, device) if positions is None else positions
    distance = key[..., None, :] - query[..., :, None]  # (..., L, S)
    return distance[:, None] if distance.ndim == 3 else distance

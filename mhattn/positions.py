"""How attention hears of positions.

Attention itself does not know the order of its keys. It can be told before the first layer, by
`sinusoidal_positions` that are added to the input; or inside each layer, by a `Position`, which
turns queries and keys, changes scores, or both. Query ``i`` of ``L`` stands beside key
``i + (S - L)``, as everywhere in this package.
"""

from typing import Any

import torch
from torch import Tensor, nn

from mhattn import _checks as check
from mhattn.functional import attention

__all__ = ["Alibi", "Position", "Rotary", "sinusoidal_positions"]


# --8<-- [start:sinusoidal_positions]
def sinusoidal_positions(length: int, dim: int, start: int = 0, base: float = 10_000.0) -> Tensor:
    """One vector for each position, to be added to the tokens.

    Features ``2 i`` and ``2 i + 1`` are the sine and the cosine of an angle that grows by
    ``base ** (-2 i / dim)`` radians a position (Vaswani et al. 2017, section 3.5,
    https://arxiv.org/abs/1706.03762).

    Args:
        length: number of positions.
        dim: width of the model, even.
        start: the first position.
        base: the slowest pair takes almost ``2 pi base`` positions for a turn.

    Returns:
        ``(length, dim)``, which broadcasts to ``(B, L, E)``; torch's default dtype.

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
    angles = _angles(torch.arange(start, start + length), dim, base)  # (L, E / 2)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (L, E / 2, 2)
    return table.flatten(-2).to(torch.get_default_dtype())  # (L, E)
    # --8<-- [end:sinusoidal_positions]


class Position(nn.Module):
    """Says nothing of positions; what does is derived from it.

    Examples:
        >>> x = torch.randn(1, 2, 5, 4)
        >>> torch.equal(Position().attend(x, x, x), attention(x, x, x))
        True
    """

    def __init__(self) -> None:
        super().__init__()

    def rotate(self, x: Tensor, start: int) -> Tensor:
        """Change queries or keys by their own positions.

        Args:
            x: ``(B, H, L, D)``.
            start: position of the first of them.

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
            by: how many positions later they shall stand.

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

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, **options: Any
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend, with what the positions of queries and keys have to say to each other.

        Args:
            query: as in `attention`; as `rotate` gave it.
            key: as in `attention`; as `rotate` gave it.
            value: as in `attention`.
            mask: as in `attention`.
            **options: the other arguments of `attention`.

        Returns:
            What `attention` returns.

        Examples:
            >>> x = torch.randn(1, 2, 5, 4)
            >>> Position().attend(x, x, x).shape
            torch.Size([1, 2, 5, 4])
        """
        return attention(query, key, value, mask, **options)


# --8<-- [start:Rotary]
class Rotary(Position):
    """Turn each pair of features by an angle that grows with the position.

    The dot product of a query and a key then depends on how far apart they are, and not on
    where they stand (Su et al. 2021, https://arxiv.org/abs/2104.09864). Feature ``i`` is
    turned together with feature ``i + D / 2``, at ``base ** (-2 i / D)`` radians a position.

    Args:
        head_dim: width of a head, even.
        base: the slowest pair takes almost ``2 pi base`` positions for a turn.

    Raises:
        TypeError: head_dim is not an integer.
        ValueError: head_dim is odd or less than 2, or base is not greater than 1.

    Examples:
        >>> rotary = Rotary(head_dim=2)
        >>> rotary.rotate(torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]]), start=0)
        tensor([[[[1.0000, 0.0000],
                  [0.5403, 0.8415]]]])
    """

    def __init__(self, head_dim: int, base: float = 10_000.0) -> None:
        super().__init__()
        check.pairs("head_dim", head_dim, base)
        self.head_dim = head_dim
        self.base = base

    def rotate(self, x: Tensor, start: int) -> Tensor:
        """Turn queries or keys.

        Args:
            x: ``(B, H, L, D)``.
            start: position of the first of them.

        Returns:
            The same shape and dtype; every vector is as long as before.

        Raises:
            TypeError: x is not a tensor of floats.
            ValueError: the last axis of x is not head_dim.

        Examples:
            >>> x = torch.randn(1, 2, 5, 8)
            >>> later = Rotary(8).rotate(x, start=3)[..., :2, :]
            >>> torch.allclose(later, Rotary(8).rotate(x[..., :2, :], start=3))
            True
        """
        check.floats("x", x)
        check.last_axis("x", x, "head_dim", self.head_dim)
        wide = torch.promote_types(x.dtype, torch.float32)
        positions = torch.arange(start, start + x.shape[-2], device=x.device)
        angles = _angles(positions, self.head_dim, self.base)  # (L, D / 2)
        cos, sin = angles.cos().to(wide), angles.sin().to(wide)
        first, second = x.to(wide).chunk(2, dim=-1)  # (B, H, L, D / 2) each
        turned = first * cos - second * sin, second * cos + first * sin
        return torch.cat(turned, dim=-1).to(x.dtype)  # (B, H, L, D)
        # --8<-- [end:Rotary]


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

    Raises:
        TypeError: num_heads is not an integer.
        ValueError: num_heads is less than 1.

    Examples:
        >>> Alibi(num_heads=4).slopes
        [0.25, 0.0625, 0.015625, 0.00390625]
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        check.at_least("num_heads", num_heads, 1)
        power = 2 ** (num_heads.bit_length() - 1)  # the largest that is not above num_heads
        slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
        between = [2 ** (-4 * h / power) for h in range(1, 2 * power, 2)]
        self.num_heads = num_heads
        self.slopes = (slopes + between)[:num_heads]

    def bias(
        self,
        L: int,
        S: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """What is added to the scores.

        Args:
            L: number of queries.
            S: number of keys.
            dtype: of the result. Default: torch's default.
            device: where it is made.

        Returns:
            ``(H, L, S)``, nowhere above zero.

        Examples:
            >>> Alibi(num_heads=1).bias(2, 3) * 2**8
            tensor([[[-1.,  0., -1.],
                     [-2., -1.,  0.]]])
        """
        slopes = torch.tensor(self.slopes, dtype=dtype, device=device)[:, None, None]  # (H, 1, 1)
        query = torch.arange(S - L, S, device=device)[:, None]  # (L, 1)
        key = torch.arange(S, device=device)  # (S,)
        return slopes * -(query - key).abs()  # (H, L, S)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, **options: Any
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend, less to what is far.

        Args:
            query: ``(B, H, L, D)``.
            key: as in `attention`.
            value: as in `attention`.
            mask: as in `attention`.
            **options: the other arguments of `attention`.

        Returns:
            What `attention` returns.

        Raises:
            TypeError: as `attention`.
            ValueError: as `attention`, or there are not num_heads heads.
        """
        check.query_and_key(query, key)
        check.heads(query, self.num_heads)
        wide = torch.promote_types(query.dtype, torch.float32)
        bias = self.bias(query.shape[-2], key.shape[-2], dtype=wide, device=query.device)
        return attention(query, key, value, mask, bias=bias, **options)
        # --8<-- [end:Alibi]


# --8<-- [start:angles]
def _angles(positions: Tensor, dim: int, base: float) -> Tensor:
    """How far each pair of features has turned at each position, in radians."""
    pairs = torch.arange(0, dim, 2, dtype=torch.float64, device=positions.device)  # (dim / 2,)
    return positions[:, None] * base ** (-pairs / dim)  # (L, dim / 2)
    # --8<-- [end:angles]

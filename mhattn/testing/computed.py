"""Attention computed from a layer's own parts: as it should be, or with one thing otherwise."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mhattn.testing.probes import spread
from mhattn.testing.projections import Applied, Parts

__all__: list[str] = []


@dataclass(frozen=True)
class Rotary:
    """How queries and keys are turned.

    Args:
        layout: ``"halves"`` or ``"interleaved"``.
        base: of the frequencies.
        turned: how many features of a head, the first ones. Default: all.
        whole: features that the frequencies are spread over. Default: those that are turned.
        backwards: whether later places are turned to the other side.
    """

    layout: str
    base: float
    turned: int | None = None
    whole: int | None = None
    backwards: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """Turn ``(..., L, D)``."""
        x, rest = x[..., : self.turned], x[..., self.turned or x.shape[-1] :]
        length, dim = x.shape[-2:]
        places = torch.arange(0, dim, 2, dtype=torch.float64, device=x.device)
        speeds = self.base ** -(places / (self.whole or dim))
        angles = torch.arange(length, dtype=torch.float64, device=x.device)[:, None] * speeds
        cos, sin = angles.cos(), angles.sin() * (-1 if self.backwards else 1)
        if self.layout == "halves":
            one, other = x.chunk(2, dim=-1)
            return torch.cat([one * cos - other * sin, other * cos + one * sin, rest], dim=-1)
        one, other = x[..., ::2], x[..., 1::2]
        pairs = torch.stack([one * cos - other * sin, other * cos + one * sin], dim=-1)
        return torch.cat([pairs.flatten(-2), rest], dim=-1)


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """What ALiBi subtracts from the scores for each step between query and key, by heads."""
    # Of a number of heads that is no power of two, the paper's code takes every other slope of the
    # next larger one for the rest.
    power = 2 ** (heads.bit_length() - 1)
    first = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-4 * h / power) for h in range(1, 2 * power, 2)]
    return tuple((first + between)[:heads])


@dataclass(frozen=True)
class Formula:
    """Softmax(QK^T / sqrt(D)) V, or with one thing otherwise."""

    scale: float
    softmax: int | None = -1
    groups: str = "repeat"
    split: str = "heads"
    merge: str = "heads"
    order: str = "qkv"
    rotary: Rotary | None = None
    slopes: tuple[float, ...] = ()  # of each head, subtracted for each step of distance
    out: bool = True
    cap: float | None = None  # cap * tanh(scores / cap)
    clip: float | None = None
    sigmoid: bool = False
    weights_transposed: bool = False
    transposed: bool = False  # the output matrix
    keys_of: tuple[int, int] | None = None  # a head, and the head whose keys it reads
    sink_without_maximum: bool = False

    def __call__(
        self, parts: Parts, heads: tuple[int, int], seen: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The output, ``(B, L, E)`` or ``(B, H, L, D)``, and the weights ``(B, H, L, S)``."""
        q, k, v = self._heads(parts, heads)
        scores = self._scores(q, k)
        if seen is not None:
            scores = scores.masked_fill(~seen, -torch.inf)
        weights = self._weights(scores, parts.sinks)
        mixed = (weights.mT if self.weights_transposed else weights) @ v
        if not parts.is_flat:
            return mixed, weights
        flat = mixed.transpose(1, 2).flatten(2)
        if self.merge == "view":
            flat = mixed.reshape(flat.shape)
        elif self.merge == "features":
            flat = mixed.permute(0, 2, 3, 1).flatten(2)
        out = parts.out
        if self.transposed and isinstance(out, Applied):
            out = replace(out, is_transposed=True)
        return (out(flat) if self.out else flat), weights

    def _heads(self, parts: Parts, heads: tuple[int, int]) -> list[Tensor]:
        """Queries, keys and values of each head, ``(B, H, L, D)``."""
        given = dict(zip("qkv", parts.three, strict=True))
        # In float64: what differs from it is the layer's rounding, and not that of the formula.
        q, k, v = (given[name].double() for name in self.order)
        if parts.is_flat:
            numbers = (heads[0], heads[1], heads[1])
            q, k, v = (_split(x, n, self.split) for x, n in zip((q, k, v), numbers, strict=True))
        if self.rotary:
            q, k = self.rotary(q), self.rotary(k)
        q, k = (norm(x) for norm, x in zip(parts.norms, (q, k), strict=True))
        k, v = (spread(x, q.shape[1], self.groups) for x in (k, v))
        if self.keys_of:
            k = k.clone()
            k[:, self.keys_of[0]] = k[:, self.keys_of[1]]
        return [q, k, v]

    def _scores(self, q: Tensor, k: Tensor) -> Tensor:
        scores = q @ k.mT * self.scale
        if self.slopes:
            places = [torch.arange(x.shape[-2], device=x.device) for x in (q, k)]
            slopes = torch.tensor(self.slopes, dtype=q.dtype, device=q.device)
            scores = scores - slopes[:, None, None] * (places[0][:, None] - places[1]).abs()
        if self.cap:
            scores = self.cap * (scores / self.cap).tanh()
        return scores.clamp(-self.clip, self.clip) if self.clip else scores

    def _weights(self, scores: Tensor, sinks: Tensor | None) -> Tensor:
        if self.sigmoid:
            return scores.sigmoid()
        if self.softmax is None:
            return scores
        if sinks is None or self.softmax != -1:
            # A query that sees nothing has NaN for weights, and here zeros: what it gets is another
            # check's matter.
            return scores.softmax(self.softmax).nan_to_num()
        sink = sinks[:, None, None].to(scores).expand(*scores.shape[:-1], 1)
        if self.sink_without_maximum:
            sink = sink + scores.amax(-1, keepdim=True)
        return torch.cat([scores, sink], dim=-1).softmax(-1)[..., :-1]


def _split(x: Tensor, heads: int, how: str) -> Tensor:
    batch, length, width = x.shape
    if how == "view":
        return x.reshape(batch, heads, length, width // heads)
    if how == "features":
        return x.view(batch, length, width // heads, heads).permute(0, 3, 1, 2)
    return x.view(batch, length, heads, width // heads).transpose(1, 2)

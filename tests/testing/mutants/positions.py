"""Positions: rotary, learned, and by distance."""

import torch
from bases import Attend, Decoder, Layer

from mutants.registry import broken


@broken("rotary: pairs of neighbours, not halves", "formula", says="rotary")
class Interleaved(Decoder):
    def rotate(self, x, angles):
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


@broken("rotary: frequencies of one layout, pairs of the other", "relative formula")
class Mixed(Decoder):
    def rotate(self, x, angles):
        angles = torch.cat([angles, angles], dim=-1)
        turned = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
        return x * angles.cos().to(x.dtype) + turned * angles.sin().to(x.dtype)


@broken("rotary: another base", "formula")
class OtherBase(Decoder):
    base = 500.0


@broken("rotary: turned the other way", "formula")
class OtherWay(Decoder):
    def angles(self, positions, dtype):
        return -super().angles(positions, dtype)


@broken("rotary: queries are turned the other way", "relative formula")
class QueriesOtherWay(Decoder):
    def turn(self, q, k, v, positions):
        angles = self.angles(positions, q.dtype)
        return self.rotate(q, -angles), self.rotate(k, angles), v


@broken("rotary: the values are turned too", "relative formula")
class ValuesTurned(Decoder):
    def turn(self, q, k, v, positions):
        q, k, v = super().turn(q, k, v, positions)
        return q, k, self.rotate(v, self.angles(positions, v.dtype))


@broken("rotary: only the queries are turned", "relative formula")
class QueriesOnly(Decoder):
    def turn(self, q, k, v, positions):
        return self.rotate(q, self.angles(positions, q.dtype)), k, v


@broken("rotary: only the keys are turned", "relative formula")
class KeysOnly(Decoder):
    def turn(self, q, k, v, positions):
        return q, self.rotate(k, self.angles(positions, k.dtype)), v


@broken("rotary: the position of the head, not of the token", "formula relative")
class ByHead(Decoder):
    def turn(self, q, k, v, positions):
        def one(x):
            heads = torch.arange(x.shape[1])
            return self.rotate(x, self.angles(heads, x.dtype)[:, None])

        return one(q), one(k), v


@broken("rotary: the position of the sequence, not of the token", "formula batch relative")
class ByBatch(Decoder):
    def turn(self, q, k, v, positions):
        places = torch.arange(q.shape[0])[:, None].expand(-1, q.shape[2])
        return super().turn(q, k, v, places)


@broken("rotary: whole-number exponents", "formula")
class WholeExponents(Decoder):
    def angles(self, positions, dtype):
        steps = self.base ** -(torch.arange(0, self.head_dim, 2) // self.head_dim).double()
        found = positions[..., None].double() * steps
        return (found if found.ndim == 2 else found[:, None]).to(dtype)


@broken("rotary: exponents of the whole width", "formula")
class WidthOfModel(Decoder):
    def angles(self, positions, dtype):
        steps = self.base ** (-torch.arange(0, self.head_dim, 2).double() / self.embed_dim)
        found = positions[..., None].double() * steps
        return (found if found.ndim == 2 else found[:, None]).to(dtype)


@broken("rotary: the factor 2 is missing in the exponent", "formula")
class HalfExponents(Decoder):
    def angles(self, positions, dtype):
        half = self.head_dim // 2
        steps = self.base ** (-torch.arange(half).double() / self.head_dim)
        found = positions[..., None].double() * steps
        return (found if found.ndim == 2 else found[:, None]).to(dtype)


@broken("rotary: the queries are one position ahead", "formula")
class QueriesAhead(Decoder):
    def turn(self, q, k, v, positions):
        _, k, v = super().turn(q, k, v, positions)
        return self.rotate(q, self.angles(positions + 1, q.dtype)), k, v


@broken("rotary: the slowest pairs stand still", "formula")
class Partial(Decoder):
    def angles(self, positions, dtype):
        angles = super().angles(positions, dtype).clone()
        angles[..., angles.shape[-1] // 2 :] = 0
        return angles


@broken("rotary: angles in the layer's own precision", "positions-half half")
class HalfAngles(Decoder):
    def angles(self, positions, dtype):
        steps = self.base ** (-torch.arange(0, self.head_dim, 2).double() / self.head_dim)
        found = positions[..., None].to(dtype) * steps.to(dtype)
        return (found if found.ndim == 2 else found[:, None]).to(
            torch.promote_types(dtype, torch.float32)
        )


@broken("rotary: positions in the layer's own precision", "positions-half half")
class HalfPositions(Decoder):
    def turn(self, q, k, v, positions):
        return super().turn(q, k, v, positions.to(q.dtype))


@broken("rotary: given positions are ignored", "relative packing formula")
class IdsIgnored(Decoder):
    def positions(self, x, position_ids, cache):
        return super().positions(x, None, cache)


@broken("rotary: the first sequence's positions for all", "relative batch formula")
class FirstIds(Decoder):
    def positions(self, x, position_ids, cache):
        found = super().positions(x, position_ids, cache)
        return found[0] if found.ndim == 2 else found


@broken("rotary: the table ends; later positions stand still", "relative formula positions-half")
class TableEnds(Decoder):
    def angles(self, positions, dtype):
        return super().angles(positions.clamp(max=31), dtype)


@broken("rotary: only the first head is turned", "formula")
class FirstHead(Decoder):
    def rotate(self, x, angles):
        return torch.cat([super().rotate(x[:, :1], angles), x[:, 1:]], dim=1)


@broken("rotary: turned before heads are cut", "formula")
class BeforeCut(Decoder):
    def rotate(self, x, angles):
        flat = x.transpose(1, 2).flatten(-2)  # (B, L, H * D)
        steps = self.base ** (-torch.arange(0, flat.shape[-1], 2).double() / flat.shape[-1])
        places = angles[..., 0] if angles.ndim == 2 else angles[:, 0, :, 0]
        wide = (places[..., None].double() * steps).to(angles.dtype)
        cos, sin = wide.cos(), wide.sin()
        a, b = flat.chunk(2, dim=-1)
        turned = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)
        return turned.unflatten(-1, (x.shape[1], -1)).transpose(1, 2)


@broken("rotary: sine and cosine change places", "formula")
class SineForCosine(Decoder):
    def rotate(self, x, angles):
        return super().rotate(x, torch.pi / 2 - angles)


@broken("rotary: the heads grow", "formula")
class Grows(Decoder):
    def rotate(self, x, angles):
        a, b = x.chunk(2, dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return torch.cat([a * cos + b * sin, a * sin + b * cos], dim=-1)


class Slopes(Layer):
    """Causal self-attention, ALiBi by the positions that are given."""

    def forward(self, x, position_ids=None):
        q, k, v = self.project(x, x, x)
        places = (
            torch.arange(x.shape[1])[None]
            if position_ids is None
            else torch.atleast_2d(position_ids)
        )
        slopes = 2.0 ** -torch.arange(1, self.num_heads + 1)
        bias = slopes.view(-1, 1, 1) * self.by_distance(places)[:, None]
        mixed, _ = self.attend(q, k, v, self.causal(x.shape[1], x.shape[1]), bias.to(x.dtype))
        return self.out(self.merge(mixed))

    def by_distance(self, places):
        return places[:, None, :] - places[:, :, None]


ALIBI = {"causal": True, "positions": "relative", "weights": False, "mask_heads": None}


@broken("alibi: by the product of positions", "relative", **ALIBI)
class ByProduct(Slopes):
    def by_distance(self, places):
        return -0.1 * places[:, None, :] * places[:, :, None]


@broken("alibi: the square of the key's position", "relative", **ALIBI)
class BySquare(Slopes):
    def by_distance(self, places):
        return -0.1 * (places[:, None, :] ** 2).expand(-1, places.shape[1], -1)


@broken("alibi: given positions are ignored", "relative", **ALIBI)
class AlibiIds(Slopes):
    def forward(self, x, position_ids=None):
        return super().forward(x)


class Learned(Layer):
    """Self-attention to which a learned vector of each position is added."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.table = torch.nn.Parameter(torch.randn(64, self.embed_dim))

    def forward(self, x, is_causal=False):
        return super().forward(x + self.place(x), is_causal=is_causal)

    def place(self, x):
        return self.table[: x.shape[1]]


ABSOLUTE = {"positions": "absolute", "weights": False, "mask_heads": None}


@broken("learned positions along the batch", "batch", **ABSOLUTE)
class AlongBatch(Learned):
    def place(self, x):
        return self.table[: x.shape[0], None]


@broken("learned positions that end with the future's length", "future", **ABSOLUTE)
class FromTheEnd(Learned):
    def place(self, x):
        return self.table[: x.shape[1]] + 0.2 * x.mean(dim=1, keepdim=True)


class Distances(Attend):
    """Causal, a bias by distance that is built in."""

    def __call__(self, query, key, value, is_causal=False):
        L, S = query.shape[-2], key.shape[-2]
        seen = self.causal(L, S) if is_causal else None
        return self.attend(query, key, value, seen, self.bias(L, S))[0]

    def bias(self, L, S):
        """Query ``i`` stands beside key ``i + S - L``."""
        return -0.5 * (torch.arange(S) - torch.arange(S - L, S)[:, None]).abs()


@broken("distances from the upper left corner", "corner", positions="relative", mask_heads=None)
class FromUpperLeft(Distances):
    def bias(self, L, S):
        return -0.5 * (torch.arange(S) - torch.arange(L)[:, None]).abs()

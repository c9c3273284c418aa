"""Random numbers, bit for bit those of torch on a CPU (measured there with AVX2).

The generator is the Mersenne Twister, which Python's `random` has as well, only seeded in another
way: so its state is set here, and all words that a tensor needs come from one `getrandbits`. What
torch then makes of the words is rewritten here: fewer than 16 normal numbers take one path, 16 and
more another, in blocks of 16, with logarithm, sine and cosine of its own. Normal numbers of 16
bits, 16 and more of them, are the only ones that differ from torch's.
"""

import math
import random
import time
from array import array
from collections.abc import Sequence
from typing import Any

from torch import _kernels, _state
from torch._dtypes import FLOAT32, FLOAT64, INT64, default, dtype, keep
from torch._shapes import sizes
from torch._tensor import Tensor, new, positions

__all__ = ["Generator", "default_generator", "manual_seed"]

CHUNK = 1 << 14
EXACT = 1 << 16  # up to so many in torch's own roundings; for more that would take seconds


class Generator:
    """A source of random words with a state of its own."""

    def __init__(self, device: Any = "cpu"):
        self.device = _state.device(str(device))
        self._twister = random.Random()
        self.manual_seed(67280421310721)

    def manual_seed(self, seed: int) -> "Generator":
        seed = int(seed) % (1 << 64)
        self._seed = seed
        word = seed & 0xFFFFFFFF
        words = [word]
        for i in range(1, 624):
            word = (1812433253 * (word ^ (word >> 30)) + i) & 0xFFFFFFFF
            words.append(word)
        self._twister.setstate((3, (*words, 624), None))
        self._normal: float | None = None
        return self

    def initial_seed(self) -> int:
        return self._seed

    def seed(self) -> int:
        self.manual_seed(time.time_ns())
        return self._seed

    def get_state(self) -> Any:
        return self._twister.getstate(), self._normal, self._seed

    def set_state(self, state: Any) -> "Generator":
        words, self._normal, self._seed = state
        self._twister.setstate(words)
        return self

    def words(self, n: int) -> array:
        """The next n words of 32 bits."""
        if not n:
            return array("I")
        return array("I", self._twister.getrandbits(32 * n).to_bytes(4 * n, "little"))

    def wide(self, n: int) -> list[int]:
        """The next n words of 64 bits: of two words, the first is the upper half."""
        words = self.words(2 * n)
        return [(high << 32) | low for high, low in zip(words[::2], words[1::2], strict=True)]

    def shares(self, n: int, kind: dtype) -> list[float]:
        """Numbers from 0 to 1, without 1."""
        if kind is FLOAT64:
            return [(word & 0x1FFFFFFFFFFFFF) * 2.0**-53 for word in self.wide(n)]
        return [(word & 0xFFFFFF) * 2.0**-24 for word in self.words(n)]


default_generator = Generator()
default_generator.seed()


def _of(generator: Generator | None) -> Generator:
    return default_generator if generator is None else generator


def manual_seed(seed: int) -> Generator:
    return default_generator.manual_seed(seed)


# normal numbers


def _single(values: list[float]) -> list[float]:
    return array("f", values).tolist()


def _logarithm(x: list[float]) -> list[float]:
    """The natural logarithm as torch's vectors of eight floats compute it (Cephes), rounded after
    each step.
    """
    mantissas, exponents = [], []
    for number in x:
        mantissa, exponent = math.frexp(number)  # from 0.5 to 1
        if mantissa < array("f", [0.707106781186547524])[0]:
            mantissa, exponent = 2 * mantissa, exponent - 1
        mantissas.append(mantissa - 1)
        exponents.append(float(exponent))
    z = _single([m * m for m in mantissas])
    y = [_LOG[0]] * len(x)
    for factor in _LOG[1:]:
        y = _single([a * m + factor for a, m in zip(y, mantissas, strict=True)])
    y = _single([a * m for a, m in zip(y, mantissas, strict=True)])
    small, large = _LN2
    y = _single(
        [a * b + t for a, b, t in zip(y, z, _single([e * small for e in exponents]), strict=True)]
    )
    y = _single([a - b * 0.5 for a, b in zip(y, z, strict=True)])
    total = _single([m + a for m, a in zip(mantissas, y, strict=True)])
    return _single([e * large + a for e, a in zip(exponents, total, strict=True)])


def _fused(a: float, b: float, c: float) -> float:
    """a * b + c, rounded once, as processors do it where Python before 3.13 cannot."""
    product, high = a * b, 134217729.0
    a1 = a * high - (a * high - a)
    b1 = b * high - (b * high - b)
    below = ((a1 * b1 - product) + a1 * (b - b1) + (a - a1) * b1) + (a - a1) * (b - b1)
    total = product + c
    part = total - product
    return total + ((product - (total - part)) + (c - part) + below)


_fma: Any = getattr(math, "fma", _fused)


def _floats(*values: float) -> tuple[float, ...]:
    return tuple(array("f", values))


_LOG = _floats(
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_LN2 = _floats(-2.12194440e-4, 0.693359375)
_SIN = _floats(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = _floats(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_PI4 = _floats(-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)
_FOPI = _floats(1.27323954473516)[0]


def _turned(x: list[float]) -> tuple[list[float], list[float]]:
    """Sine and cosine in the same manner, of angles that aren't negative."""
    octants = [(int(v) + 1) & ~1 for v in _single([v * _FOPI for v in x])]
    for part in _PI4:
        x = _single([v + o * part for v, o in zip(x, octants, strict=True)])
    z = _single([v * v for v in x])
    cosine = [_COS[0]] * len(x)
    for factor in _COS[1:]:
        cosine = _single([a * b + factor for a, b in zip(cosine, z, strict=True)])
    cosine = _single([a * b for a, b in zip(cosine, z, strict=True)])
    cosine = _single([a * b - b * 0.5 for a, b in zip(cosine, z, strict=True)])
    cosine = _single([a + 1 for a in cosine])
    sine = [_SIN[0]] * len(x)
    for factor in _SIN[1:]:
        sine = _single([a * b + factor for a, b in zip(sine, z, strict=True)])
    sine = _single([a * b for a, b in zip(sine, z, strict=True)])
    sine = _single([a * v + v for a, v in zip(sine, x, strict=True)])
    sines, cosines = [], []
    for s, c, octant in zip(sine, cosine, octants, strict=True):
        first, second = (c, s) if octant & 2 else (s, c)
        sines.append(-first if octant & 4 else first)
        cosines.append(-second if (octant + 2) & 4 else second)
    return sines, cosines


def _blocks(shares: list[float], mean: float, std: float, kind: dtype) -> list[float]:
    """Blocks of 16 numbers from 0 to 1 as blocks of 16 normal ones (Box and Muller): eight radii,
    eight angles.
    """
    first = [1 - share for at in range(0, len(shares), 16) for share in shares[at : at + 8]]
    second = [share for at in range(0, len(shares), 16) for share in shares[at + 8 : at + 16]]
    if kind is FLOAT32 and len(shares) <= EXACT:
        double_pi = _floats(2 * math.pi)[0]
        radii = _single([math.sqrt(v) for v in _single([-2 * v for v in _logarithm(first)])])
        sines, cosines = _turned(_single([double_pi * share for share in second]))
        mean, std = _floats(mean, std)
        ups = [
            _single([r * w for r, w in zip(radii, waves, strict=True)])
            for waves in (cosines, sines)
        ]
        ups = [_single([v * std + mean for v in up]) for up in ups]
    else:
        radii = [math.sqrt(-2 * math.log(share)) for share in first]
        angles = [2 * math.pi * share for share in second]
        ups = [
            [r * wave(a) for r, a in zip(radii, angles, strict=True)]
            for wave in (math.cos, math.sin)
        ]
        if mean or std != 1:
            ups = [[_fma(v, std, mean) for v in up] for up in ups]
    out: list[float] = []
    for at in range(0, len(first), 8):
        out += ups[0][at : at + 8]
        out += ups[1][at : at + 8]
    return out


def normal(
    n: int, kind: dtype, generator: Generator | None, mean: float = 0.0, std: float = 1.0
) -> array:
    """n normal numbers."""
    source = _of(generator)
    if n < 16:
        return keep(kind, [_fma(_one(source), std, mean) for _ in range(n)])
    whole, out = n - n % 16, array(kind.code)
    for at in range(0, whole, CHUNK):  # a part at a time: millions of Python's numbers fill a page
        count = min(CHUNK, whole - at)
        done = None
        if kind is FLOAT32 and n > EXACT and _kernels.has("normal_blocks"):
            done = _kernels.normal_blocks(source.words(count), mean, std)
        if done is None:
            wide = kind if n <= EXACT else FLOAT64
            done = array(kind.code, _blocks(source.shares(count, kind), mean, std, wide))
        out += done
    if n % 16:  # the last 16 anew, over what is there
        source.shares(n % 16, kind)
        out = out[: n - 16] + array(kind.code, _blocks(source.shares(16, kind), mean, std, kind))
    return keep(kind, out)


def _one(source: Generator) -> float:
    """One normal number; every second one was kept from the one before."""
    if source._normal is not None:
        found, source._normal = source._normal, None
        return found
    first, second = source.shares(2, FLOAT64)
    radius, angle = math.sqrt(-2 * math.log1p(-second)), 2 * math.pi * first
    source._normal = radius * math.sin(angle)
    return radius * math.cos(angle)


# what fills a tensor


def normal_(
    x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    if x._data is None:
        return x
    if x.is_contiguous():
        x.write(normal(x.numel(), x.dtype, generator, float(mean), float(std)))
    else:
        source = _of(generator)
        _put(
            x,
            keep(x.dtype, [_fma(_one(source), float(std), float(mean)) for _ in range(x.numel())]),
        )
    return x


def _put(x: Tensor, numbers: array) -> None:
    """Into its memory from front to back, which for a turned tensor isn't row by row."""
    if x.is_contiguous():
        x.write(numbers)
        return
    for at, number in zip(
        sorted(positions(x.shape, x.stride(), x.storage_offset())), numbers, strict=True
    ):
        x._data[at] = number


def uniform_(
    x: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    if x._data is not None:
        shares = _of(generator).shares(x.numel(), x.dtype)
        if x.dtype is FLOAT64:
            _put(x, keep(x.dtype, [share * (b - a) + a for share in shares]))
        else:
            low, high = _floats(a, b)
            width = _floats(high - low)[0]
            _put(x, keep(x.dtype, [share * width + low for share in shares]))
    return x


def bernoulli(chances: Sequence[float], kind: dtype, generator: Generator | None) -> list[bool]:
    """Each true with its own chance."""
    shares = _of(generator).shares(len(chances), kind if kind is FLOAT64 else FLOAT32)
    return [share < chance for share, chance in zip(shares, chances, strict=True)]


def kept(n: int, chance: float, generator: Generator | None = None) -> list[bool]:
    """n times true with one chance."""
    return [share < chance for share in _of(generator).shares(n, FLOAT64)]


def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    raise _state.lacking("Tensor.exponential_")


def integers(n: int, low: int, high: int, generator: Generator | None) -> list[int]:
    """n integers from low, below high."""
    span = high - low
    if span >= 1 << 28:
        return [word % span + low for word in _of(generator).wide(n)]
    return [word % span + low for word in _of(generator).words(n)]


# what makes one


def _made(asked: tuple[Any, ...], dtype: Any, device: Any, kind: dtype | None = None) -> Tensor:
    from torch._factories import zeros

    return zeros(*sizes(asked), dtype=dtype or kind or default(), device=device)


def randn(
    *size: Any,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    made = normal_(_made(size, dtype, device), generator=generator)
    return made.requires_grad_() if requires_grad else made


def rand(
    *size: Any,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    made = uniform_(_made(size, dtype, device), generator=generator)
    return made.requires_grad_() if requires_grad else made


def randint(
    low: Any,
    high: Any = None,
    size: Any = None,
    *,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    if size is None:
        low, high, size = 0, low, high
    if int(high) <= int(low):
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    kind = dtype or INT64
    count = math.prod(size)
    return new(keep(kind, integers(count, int(low), int(high), generator)), tuple(size), kind)


def randperm(n: int, *, generator: Any = None, dtype: Any = None, device: Any = None) -> Tensor:
    order = list(range(n))
    for i, word in enumerate(_of(generator).words(max(n - 1, 0))):
        j = i + word % (n - i)
        order[i], order[j] = order[j], order[i]
    return new(order, (n,), dtype or INT64)


def randn_like(
    x: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    return randn(*x.shape, dtype=dtype or x.dtype, generator=generator, requires_grad=requires_grad)


def rand_like(x: Tensor, *, dtype: Any = None, device: Any = None, generator: Any = None) -> Tensor:
    return rand(*x.shape, dtype=dtype or x.dtype, generator=generator)


def randint_like(x: Tensor, low: int, high: int | None = None, *, dtype: Any = None) -> Tensor:
    return randint(*((0, low) if high is None else (low, high)), x.shape, dtype=dtype or x.dtype)


def normal_of(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None) -> Tensor:
    if size is not None:
        return normal_(_made((size,), None, None), float(mean), float(std), generator=generator)
    shape = mean.shape if isinstance(mean, Tensor) else std.shape
    return randn(*shape, generator=generator) * std + mean


def bernoulli_of(x: Tensor, p: float | None = None, *, generator: Any = None) -> Tensor:
    if p is not None:
        return new(map(float, kept(x.numel(), p, generator)), x.shape, x.dtype)
    return new(map(float, bernoulli(x.flat(), x.dtype, generator)), x.shape, x.dtype)


def bernoulli_(x: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    x.write(keep(x.dtype, map(int, kept(x.numel(), float(p), generator))))
    return x


def random_(x: Tensor, low: int = 0, high: int | None = None, *, generator: Any = None) -> Tensor:
    if high is None:
        low, high = (0, low) if low else (0, 1 << 24)
    x.write(keep(x.dtype, integers(x.numel(), low, high, generator)))
    return x


def multinomial(
    x: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    raise _state.lacking("multinomial")


class fork_rng:
    """What is drawn inside leaves the generator as it was."""

    def __init__(self, *_: Any, **__: Any):
        pass

    def __enter__(self) -> None:
        self.state = default_generator.get_state()

    def __exit__(self, *_: object) -> None:
        default_generator.set_state(self.state)

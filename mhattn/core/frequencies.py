"""How fast each pair of features turns in rotary positions, and ways to slow the pairs down.

A model that was trained on short sequences has not seen the angles of long distances. Turning
more slowly brings them back into the known range; the functions here differ in which pairs they
slow down. Position interpolation needs no function: ``rotary_frequencies(head_dim, base) / factor``
(Chen et al. 2023, https://arxiv.org/abs/2306.15595).
"""

import math

import torch
from torch import Tensor

from mhattn.core import checks as check

__all__ = [
    "llama3_frequencies",
    "ntk_base",
    "rotary_frequencies",
    "yarn_frequencies",
    "yarn_scale",
]


# --8<-- [start:rotary_frequencies]
def rotary_frequencies(head_dim: int, base: float = 10_000.0) -> Tensor:
    """How far each pair of features turns from one position to the next.

    Pair ``c`` turns by ``base ** (-2 c / D)`` radians (Su et al. 2021,
    https://arxiv.org/abs/2104.09864).

    Args:
        head_dim: number of features, ``D``, even.
        base: the slowest pair takes almost ``2 pi base`` positions for a turn.

    Returns:
        ``(D / 2,)`` in float64, the fastest first.

    Raises:
        TypeError: head_dim is not an integer.
        ValueError: head_dim is odd or less than 2, or base is not greater than 1.

    Examples:
        >>> rotary_frequencies(4, base=100.0)
        tensor([1.0000, 0.1000], dtype=torch.float64)
    """
    check.pairs("head_dim", head_dim, base)
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float64, device="cpu")  # (D / 2,)
    return base ** (-pairs / head_dim)
    # --8<-- [end:rotary_frequencies]


# --8<-- [start:ntk_base]
def ntk_base(base: float, factor: float, head_dim: int) -> float:
    """The base with which the slowest pair is ``factor`` times as slow, and the fastest as fast.

    Known as NTK-aware scaling. The pairs in between are slowed down the more, the slower they are.

    Args:
        base: the base of the training.
        factor: how many times longer the sequences get, at least 1.
        head_dim: width of a head, even, at least 4: the only pair of two is the fastest.

    Returns:
        A base for `rotary_frequencies` or `mhattn.Rotary`.

    Raises:
        TypeError: head_dim is not an integer.
        ValueError: head_dim is odd or less than 4, base is not greater than 1, or factor is less
            than 1.

    Examples:
        >>> slower = rotary_frequencies(8, ntk_base(100.0, 4, 8))
        >>> rotary_frequencies(8, 100.0) / slower
        tensor([1.0000, 1.5874, 2.5198, 4.0000], dtype=torch.float64)
    """
    check.pairs("head_dim", head_dim, base)
    check.at_least("head_dim", head_dim, 4)
    check_factor(factor)
    return float(base * factor ** (head_dim / (head_dim - 2)))
    # --8<-- [end:ntk_base]


# --8<-- [start:yarn_frequencies]
def yarn_frequencies(
    head_dim: int,
    base: float,
    factor: float,
    length: float,
    *,
    slow: float = 1.0,
    fast: float = 32.0,
    whole_pairs: bool = True,
) -> Tensor:
    """Slow down the slow pairs and leave the fast ones, with a ramp in between.

    A pair that makes fewer than ``slow`` turns in the training is slowed down by the whole
    factor, one that makes more than ``fast`` not at all. In between, the share of the factor
    grows evenly from pair to pair: YaRN (Peng et al. 2023, https://arxiv.org/abs/2309.00071), as
    in the authors' code. To YaRN belongs `yarn_scale`, too.

    Args:
        head_dim: width of a head, even.
        base: the base of the training.
        factor: how many times longer the sequences get, at least 1.
        length: tokens in a sequence of the training.
        slow: turns in the training.
        fast: turns in the training, more than slow.
        whole_pairs: whether the ramp begins and ends at a pair, and not between two. With many
            pairs this changes little.

    Returns:
        ``(D / 2,)`` in float64, for `mhattn.Rotary`.

    Raises:
        TypeError: head_dim is not an integer.
        ValueError: head_dim is odd or less than 2, base is not greater than 1, factor is less than
            1, or length, slow and fast are not positive, finite and in order.

    Examples:
        >>> slower = yarn_frequencies(16, 10_000.0, factor=8, length=4096)
        >>> rotary_frequencies(16) / slower
        tensor([1.0000, 1.0000, 1.0000, 1.2800, 1.7778, 2.9091, 8.0000, 8.0000],
               dtype=torch.float64)
    """
    frequencies = rotary_frequencies(head_dim, base)
    check_factor(factor)
    check_turns(length, slow, fast)

    def pair_that_makes(turns: float) -> float:  # a whole number or one between two
        return head_dim * math.log(length / (2 * math.pi * turns)) / (2 * math.log(base))

    first, last = pair_that_makes(fast), pair_that_makes(slow)
    if whole_pairs:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    pairs = torch.arange(head_dim // 2, dtype=torch.float64, device="cpu")
    if first < last:
        share = ((pairs - first) / (last - first)).clamp(0, 1)
    else:  # the ramp lies before the first pair, or far behind the last
        share = torch.full_like(pairs, float(last <= 0))
    return frequencies / factor * share + frequencies * (1 - share)
    # --8<-- [end:yarn_frequencies]


# --8<-- [start:yarn_scale]
def yarn_scale(head_dim: int, factor: float) -> float:
    """By what YaRN multiplies the scores: attention gets sharper as sequences get longer.

    Queries and keys of a longer sequence are multiplied by ``0.1 log(factor) + 1``, so the scores
    by its square (Peng et al. 2023, https://arxiv.org/abs/2309.00071).

    Args:
        head_dim: width of a head.
        factor: how many times longer the sequences get, at least 1.

    Returns:
        The ``scale`` of `mhattn.attention`.

    Raises:
        TypeError: head_dim is not an integer.
        ValueError: head_dim is less than 1, or factor is less than 1.

    Examples:
        >>> yarn_scale(16, factor=1), round(yarn_scale(16, factor=8), 4)
        (0.25, 0.3648)
    """
    check.at_least("head_dim", head_dim, 1)
    check_factor(factor)
    return (0.1 * math.log(factor) + 1) ** 2 / math.sqrt(head_dim)
    # --8<-- [end:yarn_scale]


# --8<-- [start:llama3_frequencies]
def llama3_frequencies(
    head_dim: int,
    base: float,
    factor: float,
    length: float,
    *,
    slow: float = 1.0,
    fast: float = 4.0,
) -> Tensor:
    """As `yarn_frequencies`, with a ramp that is even in the number of turns: Llama 3.1.

    Args:
        head_dim: width of a head, even.
        base: the base of the training.
        factor: how many times longer the sequences get, at least 1.
        length: tokens in a sequence of the training.
        slow: turns in the training; slower pairs get the whole factor.
        fast: turns in the training, more than slow; faster pairs are left as they are.

    Returns:
        ``(D / 2,)`` in float64, for `mhattn.Rotary`.

    Raises:
        TypeError: head_dim is not an integer.
        ValueError: head_dim is odd or less than 2, base is not greater than 1, factor is less than
            1, or length, slow and fast are not positive, finite and in order.

    Examples:
        >>> slower = llama3_frequencies(8, 10_000.0, factor=8, length=100)
        >>> rotary_frequencies(8) / slower
        tensor([1.0000, 3.3609, 8.0000, 8.0000], dtype=torch.float64)
    """
    frequencies = rotary_frequencies(head_dim, base)
    check_factor(factor)
    check_turns(length, slow, fast)
    turns = length * frequencies / (2 * math.pi)  # (D / 2,)
    kept = ((turns - slow) / (fast - slow)).clamp(0, 1)
    return frequencies * kept + frequencies / factor * (1 - kept)
    # --8<-- [end:llama3_frequencies]


def check_factor(factor: float) -> None:
    # "not >=" instead of "<", here and below: so NaN is refused as well.
    if not factor >= 1:
        raise ValueError(f"factor must be at least 1, got {factor}")


def check_turns(length: float, slow: float, fast: float) -> None:
    if not length > 0:
        raise ValueError(f"length must be greater than 0, got {length}")
    # Infinity would treat all pairs alike, or raise an error of `math` that names no argument.
    if math.inf in (length, fast):
        raise ValueError(f"length and fast must be finite, got {length} and {fast}")
    if not 0 < slow < fast:
        raise ValueError(f"slow and fast must be in order and positive, got {slow} and {fast}")

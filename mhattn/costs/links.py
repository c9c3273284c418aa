"""How fast machines send to each other, by data sheets, and what a sum over all of them takes.

The numbers stand in ``links.toml`` beside this file. Nothing here needs torch.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mhattn.costs import integers as check

__all__ = ["Link", "all_reduce_nanoseconds", "known_link", "known_links"]


@dataclass(frozen=True)
class Link:
    """What connects one machine to the others.

    Attributes:
        name: what `known_link` finds it by.
        title: what people call it.
        version: which of the versions that share this name.
        bandwidth: bytes a second out of one machine, at most; as many come in meanwhile.
        source: the address of the data sheet.
        latency: nanoseconds until a small message has arrived. 0: not measured, not counted.
        latency_source: where that was read. None: it was not.
    """

    name: str
    title: str
    version: str
    bandwidth: int
    source: str
    latency: int = 0
    latency_source: str | None = None


def known_links() -> tuple[str, ...]:
    """The names of all links whose data sheet was read.

    Returns:
        What `known_link` takes.

    Examples:
        >>> known_links()[:2]
        ('nvlink-3', 'nvlink-4')
    """
    return tuple(_links())


def known_link(name: str) -> Link:
    """Find a link by its name.

    Args:
        name: one of `known_links`.

    Returns:
        Its bandwidth and latency.

    Raises:
        TypeError: name is not a string.
        ValueError: there is no such link.

    Examples:
        >>> known_link("nvlink-4").bandwidth // 10**9
        450
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {type(name).__name__}")
    if name not in _links():
        raise ValueError(f"name must be one of {', '.join(_links())}, got {name!r}")
    return _links()[name]


# --8<-- [start:all_reduce_nanoseconds]
def all_reduce_nanoseconds(
    size: int, ranks: int, near: Link, far: Link | None = None, together: int = 8
) -> int:
    """Least time until each of some machines has the sum of all their tensors.

    In two rounds: each gives every other one a piece of its tensor and adds up the pieces that it
    gets, then each gives every other one its sum. A round takes one latency, and the time to
    send (n - 1) / n of the tensor. With more than ``together`` machines, those that are near each
    other first add up among themselves; each then has 1 / together of the sum, which it adds
    up with those far away that have the same part; then those near each other share it.

    Args:
        size: bytes of each machine's tensor.
        ranks: number of machines.
        near: the link between up to ``together`` machines.
        far: the link between groups of so many. Default: as near.
        together: how many machines are near each other.

    Returns:
        Nanoseconds, each two rounds rounded down. Of one machine, 0.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is too small, or ``together`` does not divide a larger ``ranks``.

    Examples:
        >>> all_reduce_nanoseconds(2**20, 8, known_link("nvlink-4"))
        10737
    """
    check.at_least("size", size, 0)
    check.positive(ranks=ranks, together=together)
    inner = min(ranks, together)
    if ranks % inner:
        raise ValueError(f"together must divide ranks, {ranks}, got {together}")
    outer = ranks // inner
    total = _two_rounds(size, inner, near)
    return total + _two_rounds(-(-size // inner), outer, near if far is None else far)
    # --8<-- [end:all_reduce_nanoseconds]


def _two_rounds(size: int, ranks: int, link: Link) -> int:
    # A machine alone sends nothing, so no latency passes either.
    if ranks == 1:
        return 0
    # In whole numbers to the last division: the product of a tensor and 10^9 would lose its last
    # digits in a float.
    sent = 2 * (ranks - 1) * size * 10**9
    return 2 * link.latency + sent // (ranks * link.bandwidth)


# Read once, as the accelerators are.
@cache
def _links() -> dict[str, Link]:
    text = Path(__file__).with_name("links.toml").read_text(encoding="utf-8")
    return {name: Link(name, **row) for name, row in tomllib.loads(text).items()}

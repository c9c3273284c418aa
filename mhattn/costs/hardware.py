"""What an accelerator can do at most, by its maker.

The numbers stand in ``hardware.toml`` beside this file. Nothing here needs torch.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Accelerator", "known_accelerator", "known_accelerators"]


@dataclass(frozen=True)
class Accelerator:
    """The peaks of one accelerator.

    They hold at its highest clock; what a program reaches is less.

    Attributes:
        name: what `known_accelerator` finds it by.
        title: what people call it.
        version: which of the versions that share this name.
        flops: FLOPs a second, for dense products in bfloat16.
        bandwidth: bytes a second, from and to its memory.
        memory: bytes.
        source: the address at which these numbers were read.
        float32_flops: FLOPs a second in float32, outside of the matrix units. None: not read.
        maker: who makes it.
        source_kind: ``"maker"``, its data sheet, documentation or own code; ``"quoted"``, what
            others wrote down of it.
        more_sources: further addresses, of what the first does not give.
    """

    name: str
    title: str
    version: str
    # Whole numbers, as everywhere in `mhattn.costs`: a quotient is rounded once, where it is asked
    # for.
    flops: int
    bandwidth: int
    memory: int
    source: str
    float32_flops: int | None = None
    maker: str = ""
    source_kind: str = "maker"
    more_sources: tuple[str, ...] = ()

    @property
    def ridge(self) -> float:
        """FLOPs a byte at which arithmetic and memory are both busy, in bfloat16."""
        return self.flops / self.bandwidth


def known_accelerators() -> tuple[str, ...]:
    """The names of all accelerators whose numbers could be read.

    Returns:
        What `known_accelerator` takes.

    Examples:
        >>> known_accelerators()[:3]
        ('a100', 'a800', 'h100')
    """
    return tuple(_accelerators())


def known_accelerator(name: str) -> Accelerator:
    """Find an accelerator by its name.

    Args:
        name: one of `known_accelerators`.

    Returns:
        Its peaks.

    Raises:
        TypeError: name is not a string.
        ValueError: there is no such accelerator.

    Examples:
        >>> round(known_accelerator("a100").ridge)
        153
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {type(name).__name__}")
    if name not in _accelerators():
        # All names: nobody can guess how they are spelt here.
        names = ", ".join(_accelerators())
        raise ValueError(f"name must be one of {names}, got {name!r}")
    return _accelerators()[name]


# Read once: an estimate for a hundred lengths asks for the same chip a hundred times.
@cache
def _accelerators() -> dict[str, Accelerator]:
    text = Path(__file__).with_name("hardware.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)
    for row in rows.values():
        row["more_sources"] = tuple(row.get("more_sources", ()))
    return {name: Accelerator(name, **row) for name, row in rows.items()}

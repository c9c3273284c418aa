"""The list of mutants: a right thing, what is broken in it, and the check that has to find it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MUTANTS: list["Mutant"] = []


@dataclass(frozen=True)
class Mutant:
    """One broken function or layer.

    Attributes:
        name: what is wrong with it.
        kind: its class.
        right: the class with nothing broken; both draw the same parameters.
        sizes: what both are built with.
        found_by: checks, of which one must find it.
        says: words that one of its findings must have.
        how: what `check_attention` is called with.
    """

    name: str
    kind: type
    right: type
    sizes: dict[str, Any]
    found_by: tuple[str, ...]
    says: str = ""
    how: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """A new one."""
        return self.kind(**self.sizes)


def broken(
    name: str,
    found_by: str,
    *,
    says: str = "",
    sizes: dict[str, Any] | None = None,
    **how: Any,
) -> Callable[[type], type]:
    """Enter a subclass of a right class; ``sizes`` are both classes' arguments."""

    def enter(cls: type) -> type:
        right = cls.__mro__[1]
        asked = how_of(right) | how
        MUTANTS.append(Mutant(name, cls, right, sizes or {}, tuple(found_by.split()), says, asked))
        return cls

    return enter


def how_of(right: type) -> dict[str, Any]:
    """What the doctor has to be told of a right class, besides what its signature says."""
    import bases

    for kind, how in {
        bases.Windowed: {"num_heads": 3, "causal": True, "window": 4},
        bases.Attend: {"num_heads": 3, "mask_heads": "B,H,L,S"},
        bases.Packed: {"causal": True, "positions": "absolute"},
        bases.TupleDecoder: {"causal": True, "cache": "past", "positions": "rotary"},
        bases.Decoder: {"causal": True, "new_cache": bases.Cache, "positions": "rotary"},
        bases.Fused: {"mask_heads": "B,H,L,S"},
        bases.Layer: {"mask_heads": "B,H,L,S", "weights": "need_weights"},
    }.items():
        if issubclass(right, kind):
            return dict(how)
    return {}

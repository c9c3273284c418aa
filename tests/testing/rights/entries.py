"""The list of right layers, and the sizes that they share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

E, H, G, D = 48, 6, 2, 8
SIZES = {"embed_dim": E, "num_heads": H}
RIGHT: dict[str, "Right"] = {}


@dataclass(frozen=True)
class Right:
    """One right layer: how it is built, and what `check_attention` is called with."""

    make: Callable[[], Any]
    how: dict[str, Any] = field(default_factory=dict)


def right(name: str, **how: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def enter(make: Callable[[], Any]) -> Callable[[], Any]:
        RIGHT[name] = Right(make, how)
        return make

    return enter


def entered(name: str, make: Callable[[], Any], **how: Any) -> None:
    RIGHT[name] = Right(make, how)

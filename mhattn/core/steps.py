"""Which functions are steps of a trace: each says so beside itself; `mhattn.inside.trace` reads it.

A function that attends is followed by ``step(its_name, "mix")``. It is known by its code object,
which is what Python reports of a call, so nothing is wrapped and a call costs what it did.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

__all__: list[str] = []  # for modules of the package that attend


@dataclass(frozen=True)
class Step:
    """How a trace tells of a function.

    Attributes:
        name: of the step; ``{}`` becomes q, k or v, which the function's argument ``x`` came from.
        in_blocks: it calls other steps block by block, or in a layout of its own, and is one step.
        beside: it computes its weights by itself, and returns them beside the result.
    """

    name: str
    in_blocks: bool = False
    beside: bool = False


STEPS: dict[CodeType, Step] = {}


def step(
    function: Callable[..., Any], name: str, *, in_blocks: bool = False, beside: bool = False
) -> None:
    """Let a trace name what a function returns."""
    STEPS[function.__code__] = Step(name, in_blocks, beside)

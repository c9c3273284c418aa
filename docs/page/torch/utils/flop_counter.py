"""`torch.utils.flop_counter`: two operations for each product of two numbers, counted where
matrices are multiplied.
"""

from typing import Any

from torch import _state

flop_registry: dict[Any, Any] = {}


class FlopCounterMode:
    """Counts what is multiplied inside."""

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: Any = None
    ):
        self.count: int | None = None

    def __enter__(self) -> "FlopCounterMode":
        self.start, self.count = _state.flops[0], None
        return self

    def __exit__(self, *_: object) -> None:
        self.count = _state.flops[0] - self.start

    def get_total_flops(self) -> int:
        return _state.flops[0] - self.start if self.count is None else self.count

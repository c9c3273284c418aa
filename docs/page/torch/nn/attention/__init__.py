"""`torch.nn.attention`: which kernel computes attention. Here there is one, which takes what two
of torch's take.
"""

import enum
from typing import Any

from torch.nn import functional

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """Ways to compute it."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


class sdpa_kernel:
    """Only these, inside."""

    def __init__(self, backends: Any, set_priority: bool = False):
        self.chosen = {backends} if isinstance(backends, SDPBackend) else set(backends)

    def __enter__(self) -> None:
        self.before = functional.KERNELS[0]
        functional.KERNELS[0] = self.chosen

    def __exit__(self, *_: object) -> None:
        functional.KERNELS[0] = self.before


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    from torch import _finder

    if name in ("flex_attention", "bias", "varlen"):
        import importlib

        return importlib.import_module(f"torch.nn.attention.{name}")
    return _finder.placeholder(f"nn.attention.{name}")

"""`torch.cuda`: a page has no such device."""

from typing import Any

from torch import _state


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise _state.lacking(f"cuda.{name}")

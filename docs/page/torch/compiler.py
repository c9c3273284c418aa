"""`torch.compiler`: nothing is compiled in a page."""

from typing import Any

from torch import _state


def is_compiling() -> bool:
    return False


def disable(fn: Any = None, **_: Any) -> Any:
    return fn if fn is not None else lambda function: function


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise _state.lacking(f"compiler.{name}")

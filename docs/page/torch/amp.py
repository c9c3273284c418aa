"""`torch.amp`: products of matrices in bfloat16, and no other device."""

from typing import Any

from torch import _state


class autocast:
    """Products inside are computed in bfloat16."""

    def __init__(
        self,
        device_type: str = "cpu",
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool = True,
    ):
        from torch._dtypes import DTYPES

        self.kind = (dtype or DTYPES["bfloat16"]) if enabled else None

    def __enter__(self) -> None:
        self.before = _state.cast_to[0]
        _state.cast_to[0] = self.kind

    def __exit__(self, *_: object) -> None:
        _state.cast_to[0] = self.before


def is_autocast_available(device_type: str) -> bool:
    return device_type == "cpu"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise _state.lacking(f"amp.{name}")

"""`torch.utils`."""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    from torch import _finder

    if name.startswith("__"):
        raise AttributeError(name)
    if _finder.known(f"torch.utils.{name}"):
        return importlib.import_module(f"torch.utils.{name}")
    raise AttributeError(name)

"""Hooks on all modules at once."""

from typing import Any

from torch.nn import _module
from torch.nn._module import Module as Module

__all__ = ["Module", "register_module_forward_hook", "register_module_forward_pre_hook"]


def register_module_forward_pre_hook(hook: Any) -> Any:
    handle = _module._Handle(_module.GLOBAL_BEFORE)
    _module.GLOBAL_BEFORE[handle.key] = hook
    return handle


def register_module_forward_hook(
    hook: Any, *, with_kwargs: bool = False, always_call: bool = False
) -> Any:
    handle = _module._Handle(_module.GLOBAL_AFTER)
    _module.GLOBAL_AFTER[handle.key] = hook
    return handle

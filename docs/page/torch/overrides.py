"""`torch.overrides`: a mode that sees every function of torch that is called inside of it.

Nothing is asked of it at other times: when the first mode begins, the functions are put aside for
ones that report, and when a
mode is told of a call, they are put back until it has answered.
"""

import functools
from typing import Any

from torch import _state

__all__ = ["TorchFunctionMode"]

_MODES: list[Any] = []
_PLACES: list[tuple[Any, str, Any, Any]] = []  # where, the name, what stands there, what reports


def _reporting(function: Any) -> Any:
    @functools.wraps(function)
    def reports(*args: Any, **named: Any) -> Any:
        mode = _MODES.pop()
        _stand(plain=not _MODES)
        try:
            return mode.__torch_function__(function, (), args, named)
        finally:
            _MODES.append(mode)
            _stand(plain=False)

    return reports


def _collect() -> None:
    import torch
    from torch import _methods, special
    from torch.nn import functional

    makes = [
        "zeros",
        "ones",
        "full",
        "empty",
        "arange",
        "randn",
        "rand",
        "tensor",
        "eye",
        "linspace",
        "where",
        "cat",
        "stack",
        "matmul",
        "einsum",
        "zeros_like",
        "ones_like",
    ]
    known = {*_methods.FUNCTIONS, *makes}
    shown = [(torch, name) for name in known if name in vars(torch)]
    shown += [
        (functional, name)
        for name, value in vars(functional).items()
        if callable(value) and not name.startswith("_")
    ]
    shown += [(special, name) for name in ("softmax", "entr", "expit", "logsumexp")]
    methods = {*_methods.FUNCTIONS, *_methods.METHODS} - {"where", "requires_grad_"}
    operators = [
        name
        for name in vars(torch.Tensor)
        if name.strip("_") in _OPERATORS and name.startswith("__")
    ]
    shown += [
        (torch.Tensor, name)
        for name in (*methods, *operators)
        if callable(vars(torch.Tensor).get(name))
    ]
    for place, name in shown:
        value = vars(place)[name]
        if not isinstance(value, type) and (
            place is not functional or getattr(value, "__module__", "").startswith("torch")
        ):
            _PLACES.append((place, name, value, _reporting(value)))


_OPERATORS = {
    side + name
    for side in ("", "r", "i")
    for name in [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "and",
        "or",
        "xor",
        "getitem",
        "setitem",
        "neg",
        "invert",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
    ]
}
_plain = [True]


def _stand(plain: bool) -> None:
    if plain == _plain[0]:
        return
    _plain[0] = plain
    for place, name, value, reports in _PLACES:
        setattr(place, name, value if plain else reports)


class TorchFunctionMode:
    """Derived from, with a `__torch_function__` of its own."""

    def __init__(self) -> None:
        pass

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> Any:
        if not _PLACES:
            _collect()
        _MODES.append(self)
        _stand(plain=False)
        return self

    def __exit__(self, *_: object) -> None:
        _MODES.remove(self)
        _stand(plain=not _MODES)


def is_tensor_like(value: Any) -> bool:
    from torch import Tensor

    return isinstance(value, Tensor)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise _state.lacking(f"overrides.{name}")

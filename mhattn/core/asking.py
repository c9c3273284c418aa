"""How a layer calls what it attends with: where a function that takes less is adapted."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from mhattn.core.positions import Attended

__all__: list[str] = []  # called by the layer


# A named tuple: nothing can change it on its way, and its fields are the list of what can be asked.
class Asked(NamedTuple):
    """What a call asks of ``attend``, beside query, key and value; the defaults ask for nothing."""

    mask: Tensor | None = None
    bias: Tensor | None = None
    is_causal: bool = False
    dropout: float = 0
    return_weights: bool = False


class Attend(Protocol):
    """How a layer calls ``attend``: as it can call `attention`."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None,
        bias: Tensor | None,
        is_causal: bool,
        dropout: float,
        return_weights: bool,
    ) -> Attended: ...


# --8<-- [start:taking_all]
def taking_all(attend: Callable[..., Attended], takes: frozenset[str], **fixed: Any) -> Attend:
    """The same, and in front of one that takes less than `Asked` has, what refuses the rest.

    `attention` takes all. Of another function, only what it takes can be asked.
    """
    call: Attend = functools.partial(attend, **fixed) if fixed else attend
    if all(name in takes for name in Asked._fields):
        return call

    def takes_less(query: Tensor, key: Tensor, value: Tensor, **asked: Any) -> Attended:
        for name, x in asked.items():
            if name not in takes and (isinstance(x, Tensor) or x):
                rule = f"{name} must be {Asked._field_defaults[name]}"
                got = "a tensor" if isinstance(x, Tensor) else x
                raise ValueError(f"{rule} with attend={name_of(attend)}, got {got}")
        taken = {name: x for name, x in asked.items() if name in takes}
        return call(query, key, value, **taken)

    return takes_less
    # --8<-- [end:taking_all]


def arguments_of(attend: Callable[..., Attended]) -> frozenset[str]:
    """Names of the arguments that it takes."""
    try:
        # The signature of a module is that of its `forward`: `__call__` takes anything.
        function = attend.forward if isinstance(attend, nn.Module) else attend
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        got = type(attend).__name__
        raise TypeError(f"attend must be a function with known arguments, got {got}") from None
    # A wrapper that passes on `**kwargs` is trusted to pass on all of them.
    any_name = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return frozenset(parameters) | (frozenset(Asked._fields) if any_name else frozenset())


def name_of(attend: Callable[..., Attended]) -> str:
    """As it would be written, with what `functools.partial` has fixed."""
    if isinstance(attend, functools.partial):
        fixed = (f"{key}={getattr(x, '__name__', x)}" for key, x in attend.keywords.items())
        return f"{name_of(attend.func)}({', '.join(fixed)})"
    return getattr(attend, "__name__", type(attend).__name__)

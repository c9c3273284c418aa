"""`torch.func`: a module with other parameters, and a function of many at once, one after the
other here.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import _state
from torch._shapes import movedim, stack
from torch._tensor import Tensor
from torch.nn import Module

__all__ = ["functional_call", "stack_module_state", "vmap"]


def functional_call(
    module: Module, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: Any = None, **_: Any
) -> Any:
    """Call a module as if its parameters were these."""
    given: dict[str, Tensor] = {}
    for each in (
        [parameter_and_buffer_dicts]
        if isinstance(parameter_and_buffer_dicts, dict)
        else parameter_and_buffer_dicts
    ):
        given |= each
    kept: list[tuple[dict[str, Any], str, Any]] = []
    same = {}  # a parameter that has two names is replaced under both
    for name, value in [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]:
        if name in given:
            same[id(value)] = given[name]
    for owner in module.modules():
        for group in owner._parameters, owner._buffers:
            for name, value in group.items():
                if value is not None and id(value) in same:
                    kept.append((group, name, value))
    for group, name, value in kept:
        group[name] = same[id(value)]
    try:
        args = () if args is None else args if isinstance(args, tuple) else (args,)
        return module(*args, **(kwargs or {}))
    finally:
        for group, name, value in kept:
            group[name] = value


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and buffers of modules that are alike, one above the other."""
    params = {
        name: stack(
            [dict(model.named_parameters())[name].detach() for model in models]
        ).requires_grad_(value.requires_grad)
        for name, value in models[0].named_parameters()
    }
    buffers = {
        name: stack([dict(model.named_buffers())[name] for model in models])
        for name, _ in models[0].named_buffers()
    }
    return params, buffers


def _each(value: Any, dim: Any, i: int) -> Any:
    """The i-th part of a tensor, or of all tensors in lists and dictionaries."""
    if dim is None:
        return value
    if isinstance(value, dict):
        return {
            name: _each(part, dim[name] if isinstance(dim, dict) else dim, i)
            for name, part in value.items()
        }
    if isinstance(value, (list, tuple)):
        dims = dim if isinstance(dim, (list, tuple)) else [dim] * len(value)
        return type(value)(_each(part, d, i) for part, d in zip(value, dims, strict=True))
    return value.select(dim, i) if isinstance(value, Tensor) else value


def _count(value: Any, dim: Any) -> int | None:
    if dim is None:
        return None
    if isinstance(value, Tensor):
        return value.shape[dim]
    parts = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, (list, tuple))
        else ()
    )
    dims = (
        dim.values()
        if isinstance(dim, dict)
        else dim
        if isinstance(dim, (list, tuple))
        else [dim] * len(parts)
    )
    return next((n for n in map(_count, parts, dims) if n is not None), None)


def _together(results: list[Any], dim: int) -> Any:
    if isinstance(results[0], (tuple, list)):
        return type(results[0])(_together(list(part), dim) for part in zip(*results, strict=True))
    if isinstance(results[0], dict):
        return {name: _together([each[name] for each in results], dim) for name in results[0]}
    made = stack(results)
    return made if dim == 0 else movedim(made, 0, dim)


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: int = 0,
    randomness: str = "error",
    **_: Any,
) -> Any:
    """The function of each part, one after the other."""

    def mapped(*args: Any, **named: Any) -> Any:
        dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
        count = next(n for n in map(_count, args, dims) if n is not None)
        results = [
            func(*(_each(arg, dim, i) for arg, dim in zip(args, dims, strict=True)), **named)
            for i in range(count)
        ]
        return _together(results, out_dims)

    return mapped


def grad(func: Callable[..., Tensor], argnums: int = 0) -> Any:
    """The gradient of a function by one of its arguments."""

    def slope(*args: Any, **named: Any) -> Tensor:
        from torch._autograd import grad as of

        given = list(args)
        given[argnums] = args[argnums].detach().requires_grad_()
        return of(func(*given, **named), given[argnums])[0]

    return slope


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise _state.lacking(f"func.{name}")

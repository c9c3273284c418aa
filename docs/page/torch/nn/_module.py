"""The class that layers are made from."""

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

from torch import _state
from torch._methods import _kind
from torch._tensor import Tensor, _rebuilt, tensor

__all__ = ["Module", "Parameter"]


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class Parameter(Tensor):
    """A tensor that a module lists and an optimiser changes."""

    _is_param = True

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> "Parameter":
        data = tensor([]) if data is None else data
        made = object.__new__(cls)
        Tensor.__init__(
            made, data._data, data.shape, data.dtype, data._strides, data._offset, data._device
        )
        if requires_grad:
            made.requires_grad_()
        return made

    def __init__(self, data: Any = None, requires_grad: bool = True):
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> "Parameter":
        if id(self) not in memo:
            data = None if self._data is None else self.flat()[:]
            copied = _rebuilt(
                type(self), data, tuple(self.shape), self.dtype, self.requires_grad, self._device
            )
            copied.grad = None if self.grad is None else self.grad.clone()
            memo[id(self)] = copied
        return memo[id(self)]


class _Handle:
    """Takes a hook away again."""

    def __init__(self, hooks: dict[int, Any]):
        self.hooks, self.key = hooks, next(_Handle.count)

    count = iter(range(1 << 60))

    def remove(self) -> None:
        self.hooks.pop(self.key, None)

    def __enter__(self) -> "_Handle":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


GLOBAL_BEFORE: dict[int, Any] = OrderedDict()
GLOBAL_AFTER: dict[int, Any] = OrderedDict()


class Module:
    """Parameters, buffers and modules below it, under names."""

    training = True
    call_super_init = False
    dump_patches = False
    _version = 1

    def __init__(self, *args: Any, **named: Any):
        make = object.__setattr__
        for name in [
            "_parameters",
            "_buffers",
            "_modules",
            "_forward_hooks",
            "_forward_pre_hooks",
            "_backward_hooks",
            "_forward_hooks_with_kwargs",
            "_forward_pre_hooks_with_kwargs",
            "_load_state_dict_pre_hooks",
            "_load_state_dict_post_hooks",
            "_state_dict_hooks",
            "_state_dict_pre_hooks",
            "_forward_hooks_always_called",
            "_backward_pre_hooks",
        ]:
            make(self, name, OrderedDict())
        make(self, "training", True)
        make(self, "_non_persistent_buffers_set", set())

    def forward(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **named: Any) -> Any:
        if not (self._forward_hooks or self._forward_pre_hooks or GLOBAL_BEFORE or GLOBAL_AFTER):
            return self.forward(*args, **named)
        for key, hook in [*GLOBAL_BEFORE.items(), *self._forward_pre_hooks.items()]:
            if key in self._forward_pre_hooks_with_kwargs:
                found = hook(self, args, named)
                args, named = (
                    args if found is None else found[0],
                    named if found is None else found[1],
                )
            else:
                found = hook(self, args)
                args = args if found is None else found if isinstance(found, tuple) else (found,)
        result = self.forward(*args, **named)
        for key, hook in [*GLOBAL_AFTER.items(), *self._forward_hooks.items()]:
            more = (
                (args, named, result) if key in self._forward_hooks_with_kwargs else (args, result)
            )
            found = hook(self, *more)
            result = result if found is None else found
        return result

    # names

    def __getattr__(self, name: str) -> Any:
        for kind in ("_parameters", "_buffers", "_modules"):
            among = self.__dict__.get(kind, ())
            if name in among:
                return among[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        groups = self.__dict__
        if "_parameters" not in groups:
            if isinstance(value, (Parameter, Module)):
                what = "module" if isinstance(value, Module) else "parameters"
                raise AttributeError(f"cannot assign {what} before Module.__init__() call")
            object.__setattr__(self, name, value)
            return
        home = (
            "_parameters"
            if isinstance(value, Parameter)
            else "_modules"
            if isinstance(value, Module)
            else None
        )
        if home is not None:
            for other in ("_parameters", "_buffers", "_modules"):
                if other != home:
                    groups[other].pop(name, None)
            groups.pop(name, None)
            groups[home][name] = value
            return
        if name in self._parameters:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_full_type(value)}' as parameter '{name}' "
                    "(torch.nn.Parameter or None expected)"
                )
            self._parameters[name] = None
        elif name in self._modules and value is None:
            self._modules[name] = None
        elif name in self._modules:
            raise TypeError(
                f"cannot assign '{_full_type(value)}' as child module '{name}' (torch.nn.Module "
                "or None expected)"
            )
        elif name in self._buffers and (value is None or isinstance(value, Tensor)):
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        for kind in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__[kind]:
                del self.__dict__[kind][name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def register_parameter(self, name: str, param: Any) -> None:
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        self._buffers[name] = tensor
        if not persistent:
            self._non_persistent_buffers_set.add(name)

    def register_module(self, name: str, module: Any) -> None:
        self.add_module(name, module)

    def add_module(self, name: str, module: Any) -> None:
        self._modules[name] = module

    def get_submodule(self, target: str) -> "Module":
        found: Any = self
        for part in target.split(".") if target else []:
            if part not in found._modules:
                raise AttributeError(f"{type(found).__name__} has no attribute `{part}`")
            found = found._modules[part]
        return found

    def set_submodule(self, target: str, module: "Module", strict: bool = False) -> None:
        path, _, name = target.rpartition(".")
        self.get_submodule(path)._modules[name] = module

    def get_parameter(self, target: str) -> Parameter:
        path, _, name = target.rpartition(".")
        return self.get_submodule(path)._parameters[name]

    def get_buffer(self, target: str) -> Tensor:
        path, _, name = target.rpartition(".")
        return self.get_submodule(path)._buffers[name]

    # what is in it

    def named_modules(
        self, memo: Any = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[Any]:
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(
                    memo, prefix + ("." if prefix else "") + name, remove_duplicate
                )

    def modules(self, remove_duplicate: bool = True) -> Iterator["Module"]:
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, "Module"]]:
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator["Module"]:
        for _, module in self.named_children():
            yield module

    def _named(
        self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        own = [(prefix, self)]
        for start, module in (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else own
        ):
            for name, value in module.__dict__[kind].items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield start + ("." if start else "") + name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[Any]:
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[Any]:
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # all at once

    def train(self, mode: bool = True) -> "Module":
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> "Module":
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> "Module":
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self.parameters():
            parameter.grad = None if set_to_none or parameter.grad is None else parameter.grad * 0

    def apply(self, fn: Callable[["Module"], Any]) -> "Module":
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Module":
        for module in self.modules():
            for value in module._parameters.values():
                if value is not None:
                    value.data = fn(value.detach())
                    value.grad = None if value.grad is None else fn(value.grad)
            for name, value in module._buffers.items():
                module._buffers[name] = None if value is None else fn(value)
        return self

    def to(self, *asked: Any, **named: Any) -> "Module":
        kind, place = _kind(*asked, **named)
        return self._apply(
            lambda x: x.to(
                *([kind] if kind is not None and x.is_floating_point() else []), device=place
            )
        )

    def _floats(self, name: str) -> "Module":
        return self._apply(lambda x: getattr(x, name)() if x.is_floating_point() else x)

    def float(self) -> "Module":
        return self._floats("float")

    def double(self) -> "Module":
        return self._floats("double")

    def half(self) -> "Module":
        return self._floats("half")

    def bfloat16(self) -> "Module":
        return self._floats("bfloat16")

    def cpu(self) -> "Module":
        return self

    def compile(self, *_: Any, **__: Any) -> None:
        raise _state.lacking("nn.Module.compile")

    # hooks

    def _hook(self, name: str, hook: Any, with_kwargs: bool, prepend: bool) -> _Handle:
        hooks = self.__dict__[name]
        handle = _Handle(hooks)
        hooks[handle.key] = hook
        if with_kwargs:
            self.__dict__[name + "_with_kwargs"][handle.key] = True
        if prepend:
            hooks.move_to_end(handle.key, last=False)
        return handle

    def register_forward_hook(
        self,
        hook: Any,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> _Handle:
        return self._hook("_forward_hooks", hook, with_kwargs, prepend)

    def register_forward_pre_hook(
        self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False
    ) -> _Handle:
        return self._hook("_forward_pre_hooks", hook, with_kwargs, prepend)

    def register_full_backward_hook(self, hook: Any, prepend: bool = False) -> _Handle:
        raise _state.lacking("nn.Module.register_full_backward_hook")

    def register_load_state_dict_pre_hook(self, hook: Any) -> _Handle:
        return self._hook(
            "_load_state_dict_pre_hooks", lambda *args: hook(self, *args), False, False
        )

    def _register_load_state_dict_pre_hook(self, hook: Any, with_module: bool = False) -> _Handle:
        return self._hook(
            "_load_state_dict_pre_hooks",
            (lambda *args: hook(self, *args)) if with_module else hook,
            False,
            False,
        )

    def register_load_state_dict_post_hook(self, hook: Any) -> _Handle:
        return self._hook("_load_state_dict_post_hooks", hook, False, False)

    def register_state_dict_post_hook(self, hook: Any) -> _Handle:
        return self._hook("_state_dict_hooks", hook, False, False)

    _register_state_dict_hook = register_state_dict_post_hook

    # its numbers

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        found = OrderedDict() if destination is None else destination
        self._save_to_state_dict(found, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            hook(self, found, prefix, {})
        return found

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, value in self._parameters.items():
            if value is not None:
                destination[prefix + name] = value if keep_vars else value.detach()
        for name, value in self._buffers.items():
            if value is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = value if keep_vars else value.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + "_extra_state"] = self.get_extra_state()

    def get_extra_state(self) -> Any:
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called."
        )

    def set_extra_state(self, state: Any) -> None:
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called."
        )

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        state, missing, unexpected, errors = OrderedDict(state_dict), [], [], []

        def fill(module: "Module", prefix: str) -> None:
            module._load_from_state_dict(
                state,
                prefix,
                {"assign_to_params_buffers": assign},
                True,
                missing,
                unexpected,
                errors,
            )
            for name, child in module._modules.items():
                if child is not None:
                    fill(child, f"{prefix}{name}.")
            found = _IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                hook(module, found)

        fill(self, "")
        if strict:
            for names, what in (unexpected, "Unexpected"), (missing, "Missing"):
                if names:
                    listed = ", ".join(f'"{name}"' for name in names)
                    errors.insert(0, f"{what} key(s) in state_dict: {listed}. ")
        if errors:
            listed = "\n\t".join(errors)
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}"
            )
        return _IncompatibleKeys(missing, unexpected)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for hook in self._load_state_dict_pre_hooks.values():
            hook(
                state_dict,
                prefix,
                local_metadata,
                strict,
                missing_keys,
                unexpected_keys,
                error_msgs,
            )
        buffers = {
            k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set
        }
        own = {
            name: value
            for name, value in {**self._parameters, **buffers}.items()
            if value is not None
        }
        for name, value in own.items():
            given = state_dict.get(prefix + name)
            if given is None:
                missing_keys.append(prefix + name)
            elif given.shape != value.shape:
                error_msgs.append(
                    f"size mismatch for {prefix + name}: copying a param with shape "
                    f"{given.shape} from checkpoint, the "
                    f"shape in current model is {value.shape}."
                )
            elif local_metadata.get("assign_to_params_buffers"):
                value.data = given
            else:
                from torch._autograd import no_grad

                with no_grad():
                    value.copy_(given)
        extra = type(self).set_extra_state is not Module.set_extra_state
        if extra and prefix + "_extra_state" in state_dict:
            self.set_extra_state(state_dict[prefix + "_extra_state"])
        for key in state_dict:
            if key.startswith(prefix):
                first, dot, _ = key[len(prefix) :].partition(".")
                if not (
                    first in self._modules
                    if dot
                    else first in own or (extra and first == "_extra_state")
                ):
                    unexpected_keys.append(key)

    # in words

    def extra_repr(self) -> str:
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        inner = []
        for name, module in self._modules.items():
            first, *rest = repr(module).split("\n")
            inner.append("\n".join([f"({name}): {first}", *("  " + line for line in rest)]))
        whole = lines + inner
        if not whole:
            return f"{self._get_name()}()"
        if len(lines) == 1 and not inner:
            return f"{self._get_name()}({lines[0]})"
        return f"{self._get_name()}(\n  " + "\n  ".join(whole) + "\n)"


def _full_type(value: Any) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    return "torch.FloatTensor" if kind is Tensor and value.dtype.name == "float32" else name

"""How a model calls its attention: with which arguments, at any number of sequences and tokens."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from mhattn.testing.subject import Skip, tensors_of

__all__: list[str] = []

SOFTMAXES = (torch.softmax, torch.special.softmax, F.softmax, Tensor.softmax)
Sizes = tuple[int, int, int]  # heads of queries, heads of keys, width of a head; 0: not known
Product = tuple[Sizes, int]  # and how many keys


@dataclass(frozen=True)
class Call:
    """The first call of a layer: its name in the model, and what it was given, by name."""

    name: str
    layer: nn.Module
    given: dict[str, Any]
    sizes: Sizes = (0, 0, 0)
    keys: int = 0

    @property
    def is_fused(self) -> bool:
        """Whether it called PyTorch's fused function: a softmax doesn't say how wide heads are."""
        return self.sizes[2] > 0

    def __deepcopy__(self, known: Any) -> "Call":
        """Itself: a copy of a layer is called with the same."""
        return self


class Products(TorchFunctionMode):
    """Tells of each product of attention that runs: its heads, and how wide they are."""

    def __init__(self, note: Callable[[Sizes, int], None]) -> None:
        super().__init__()
        self.note = note

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            query, key = (*args, *(kwargs[n] for n in ("query", "key") if n in kwargs))[:2]
            heads, groups = (query.shape[1], key.shape[1]) if query.ndim == 4 else (1, 1)
            self.note((heads, groups, query.shape[-1]), key.shape[-2])
        elif func in SOFTMAXES:
            x = (*args, kwargs.get("input"))[0]
            if isinstance(x, Tensor) and x.ndim >= 3:
                self.note((x.shape[1] if x.ndim == 4 else 0, 0, 0), x.shape[-1])
        return func(*args, **kwargs)


class Reached(Exception):
    """The layer that was waited for has been called."""


@dataclass
class Watched:
    """A model and inputs of it, of which other numbers of sequences and tokens are made."""

    model: nn.Module
    inputs: tuple[Any, ...]
    options: dict[str, Any]
    uncalled: nn.Module = field(default_factory=nn.Identity)  # a copy from before the first call
    known: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def __deepcopy__(self, known: Any) -> "Watched":
        """Itself: whoever copies a layer does not mean the model around it."""
        return self

    def calls(self) -> list[Call]:
        """The first call of each layer that attends, in their order."""
        modules = dict(self.model.named_modules())
        running: list[str] = []
        opened: dict[str, tuple[Any, Any]] = {}
        sizes: dict[str, tuple[Sizes, int]] = {}

        def note(found: Sizes, keys: int) -> None:
            # Softmax may be a module of its own: attention is what has parameters around it.
            owners = (n for n in reversed(running) if any(True for _ in modules[n].parameters()))
            if (owner := next(owners, None)) is not None:
                sizes.setdefault(owner, (found, keys))

        def begins(name: str, given: tuple[Any, Any]) -> None:
            running.append(name)
            opened.setdefault(name, given)
            if isinstance(modules[name], nn.MultiheadAttention):
                # Its product runs in a function of its own.
                key = bound(modules[name], *given)["key"]
                first = bool(getattr(modules[name], "batch_first", True))
                sizes.setdefault(name, ((0, 0, 0), key.shape[int(first)]))

        with self._hooks(modules, begins, running), Products(note):
            self.model(*self.inputs, **self.options)
        for name in opened:
            if _is_called_attention(modules[name]) and not any(_inside(n, name) for n in sizes):
                sizes[name] = ((0, 0, 0), 0)
        # A part of attention that weighs as well, such as an indexer, is examined with its whole.
        parts = {n for n in sizes for other in sizes if n != other and _inside(n, other)}
        return [
            Call(name, modules[name], bound(modules[name], *opened[name]), *sizes[name])
            for name in opened
            if name in sizes
            and name not in parts
            and _attends(modules[name], *opened[name], sizes[name][1])
        ]

    def at(self, name: str, changes: list[tuple[int, int, int]]) -> dict[str, Any]:
        """What a layer is given when axes of the model's inputs have other sizes.

        Args:
            name: of the layer.
            changes: of an axis, its size, and the size that it gets.
        """
        key = (name, *changes)
        if key not in self.known:
            self.known[key] = self._reached(name, changes)
        return self.known[key]

    def runs(self, changes: list[tuple[int, int, int]]) -> bool:
        """Whether the whole model takes inputs of other sizes."""
        key = ("", *changes)
        if key not in self.known:
            inputs, options = resized((self.inputs, self.options), changes)
            try:
                with torch.no_grad():
                    self.model(*inputs, **options)
            except Exception:  # whatever the model raises
                self.known[key] = {}
            else:
                self.known[key] = {"runs": True}
        return bool(self.known[key])

    def _reached(self, name: str, changes: list[tuple[int, int, int]]) -> dict[str, Any]:
        inputs, options = resized((self.inputs, self.options), changes)
        found: list[dict[str, Any]] = []
        module = self.model.get_submodule(name)

        def reached(module: nn.Module, args: Any, kwargs: Any) -> None:
            found.append(bound(module, args, kwargs))
            raise Reached

        handle = module.register_forward_pre_hook(reached, with_kwargs=True)
        try:
            with torch.no_grad():
                self.model(*inputs, **options)
        except Reached:
            return found[0]
        except Exception as error:
            told = f"{type(error).__name__}: {error}".splitlines()[0]
            raise Skip(f"the model takes no such inputs: {told}"[:110]) from error
        finally:
            handle.remove()
        raise Skip("the model doesn't call it with such inputs")

    @contextmanager
    def _hooks(
        self,
        modules: dict[str, nn.Module],
        begins: Callable[[str, tuple[Any, Any]], None],
        running: list[str],
    ) -> Iterator[None]:

        def ended(module: nn.Module, args: Any, out: Any) -> None:
            running.pop()

        with ExitStack() as stack:
            for name, module in modules.items():
                handles = [
                    module.register_forward_pre_hook(
                        lambda m, args, kwargs, name=name: begins(name, (args, kwargs)),
                        with_kwargs=True,
                    ),
                    module.register_forward_hook(ended, always_call=True),
                ]
                for handle in handles:
                    stack.callback(handle.remove)
            yield


def bound(module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments of a call by their names."""
    takes = inspect.signature(module.forward)
    given = dict(takes.bind(*args, **kwargs).arguments)
    for parameter in takes.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= given.pop(parameter.name, {})
    return given


def resized(value: Any, changes: list[tuple[int, int, int]]) -> Any:
    """The same with other sizes of some axes: what is there is repeated, or cut."""
    if isinstance(value, Tensor):
        for axis, old, new in changes:
            if value.ndim > axis and value.shape[axis] == old:
                places = torch.arange(new, device=value.device) % old
                value = value.index_select(axis, places)
        return value
    if isinstance(value, dict):
        return {key: resized(each, changes) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(resized(each, changes) for each in value)
    return value


def axes_of(value: Any, axis: int) -> set[int]:
    """The sizes of one axis of all tensors among a model's inputs."""
    return {x.shape[axis] for x in tensors_of(value) if x.ndim > axis}


def _is_called_attention(module: nn.Module) -> bool:
    """Whether a class has attention in its name, and three matrices of its own."""
    weights = [getattr(cast(Any, m), "weight", None) for m in module.children()]
    matrices = [p for p in weights if isinstance(p, Tensor) and p.ndim == 2]
    return "attention" in type(module).__name__.lower() and len(matrices) >= 3


def _attends(module: nn.Module, args: Any, kwargs: Any, keys: int) -> bool:
    """Whether a module that weighs is attention: by its name, or by what it weighs."""
    kind = type(module).__name__.lower()
    if "residual" in kind:
        return False
    if "att" in kind or isinstance(module, nn.MultiheadAttention):
        return True
    given = [x for x in tensors_of([*args, kwargs]) if x.ndim in (3, 4) and x.is_floating_point()]
    # A router weighs as well, and what it weighs are experts.
    return any(x.shape[1:-1].numel() <= keys or keys in x.shape[:2] for x in given)


def _inside(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}." if outer else "")

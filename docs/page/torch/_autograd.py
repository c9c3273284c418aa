"""Gradients: what each result was made of, and the way back."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import _state
from torch._tensor import Tensor, new

__all__ = [
    "Node",
    "backward",
    "enable_grad",
    "grad",
    "inference_mode",
    "no_grad",
    "record",
    "set_grad_enabled",
]


class Node:
    """One operation that was done: where its inputs came from, and how a gradient goes back to
    them.
    """

    def __init__(
        self, name: str, inputs: Sequence[Any], back: Callable[[Tensor], Sequence[Tensor | None]]
    ):
        self._name, self.back = name, back
        self.edges = [_edge(each) for each in inputs]
        self.hooks: list[Any] = []
        self.kept: list[Tensor] = []

    def name(self) -> str:
        return self._name

    @property
    def next_functions(self) -> tuple[Any, ...]:
        return tuple((edge, 0) for edge in self.edges)

    def __repr__(self) -> str:
        return f"<{self._name} object at {hex(id(self))}>"


def _edge(value: Any) -> Any:
    """Where a gradient of this input goes: to its node, or to the leaf itself."""
    if not isinstance(value, Tensor):
        return None
    if value._node is not None:
        return value._node
    return value if value.requires_grad_flag else None


def record(
    result: Tensor,
    name: str,
    inputs: Sequence[Any],
    back: Callable[[Tensor], Sequence[Tensor | None]],
) -> Tensor:
    """Note how the result was made, if anybody will ask for gradients."""
    if _state.grad[0]:
        for each in inputs:
            if isinstance(each, Tensor) and (each.requires_grad_flag or each._node is not None):
                result._node = Node(name + "Backward0", inputs, back)
                break
    return result


def _order(roots: Sequence[Any]) -> list[Any]:
    """All nodes behind these, each before what it was made of."""
    seen: set[int] = set()
    done: list[Any] = []
    stack: list[tuple[Any, bool]] = [(root, False) for root in roots if root is not None]
    while stack:
        node, left = stack.pop()
        if left:
            done.append(node)
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.append((node, True))
        if isinstance(node, Node):
            stack += [
                (edge, False) for edge in node.edges if edge is not None and id(edge) not in seen
            ]
    done.reverse()
    return done


def _run(outputs: Sequence[Tensor], grads: Sequence[Any], graph: bool) -> dict[int, Tensor]:
    """The gradient at each node and leaf behind the outputs."""
    found: dict[int, Tensor] = {}
    roots = []
    for output, given in zip(outputs, grads, strict=True):
        edge = _edge(output)
        if edge is None:
            raise RuntimeError(
                "element 0 of tensors does not require grad and does not have a grad_fn"
            )
        if given is None:
            if output.numel() != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            given = new([1.0] * output.numel(), output.shape, output.dtype)
        found[id(edge)] = given if id(edge) not in found else found[id(edge)] + given
        roots.append(edge)
    before = _state.grad[0]
    _state.grad[0] = graph
    try:
        for node in _order(roots):
            gradient = found.get(id(node))
            if gradient is None:
                continue
            for hook in (
                list(node.hooks)
                if isinstance(node, Node)
                else list(getattr(node, "leaf_hooks", ()))
            ):
                changed = hook(gradient)
                gradient = gradient if changed is None else changed
            found[id(node)] = gradient
            if not isinstance(node, Node):
                continue
            for tensor in node.kept:
                tensor.grad = gradient if tensor.grad is None else tensor.grad + gradient
            if node.back is None:
                raise RuntimeError(
                    "Trying to backward through the graph a second time (or directly access "
                    "saved tensors after they "
                    "have already been freed). Saved intermediate values of the graph are freed "
                    "when you call "
                    ".backward() or autograd.grad(). Specify retain_graph=True if you need to "
                    "backward through the "
                    "graph a second time or if you need to access saved tensors after calling "
                    "backward."
                )
            for edge, part in zip(node.edges, node.back(gradient), strict=True):
                if edge is not None and part is not None:
                    found[id(edge)] = part if id(edge) not in found else found[id(edge)] + part
    finally:
        _state.grad[0] = before
    return found


def _forget(outputs: Sequence[Tensor]) -> None:
    for node in _order([_edge(output) for output in outputs]):
        if isinstance(node, Node):
            node.back = None  # type: ignore[assignment]


def _given(grads: Any, outputs: Sequence[Tensor]) -> list[Any]:
    """A gradient for each output; None where none was given."""
    found = [grads] if grads is None or isinstance(grads, Tensor) else list(grads)
    return found if len(found) == len(outputs) else [None] * len(outputs)


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Add to each leaf's `grad` what it gets."""
    outputs = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    found = _run(outputs, _given(grad_tensors, outputs), create_graph)
    for node in _order([_edge(output) for output in outputs]):
        if not isinstance(node, Node) and id(node) in found:
            part = found[id(node)]
            if node.grad is None:
                node.grad = part if create_graph else new(part.flat()[:], part.shape, part.dtype)
            else:
                node.grad = node.grad + part if create_graph else node.grad.detach() + part.detach()
            for hook in getattr(node, "accumulated_hooks", ()):
                hook(node)
    if not (create_graph if retain_graph is None else retain_graph):
        _forget(outputs)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of outputs by inputs."""
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    found = _run(outputs, _given(grad_outputs, outputs), create_graph)
    results = []
    for each in inputs:
        edge = _edge(each)
        if edge is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
        part = found.get(id(edge))
        if part is None and materialize_grads:
            part = new([0.0] * each.numel(), each.shape, each.dtype)
        if part is None and not allow_unused:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. "
                "Set allow_unused=True "
                "if this is the desired behavior."
            )
        results.append(part)
    if not (create_graph if retain_graph is None else retain_graph):
        _forget(outputs)
    return tuple(results)


class _Switch:
    """Gradients on or off: with `with`, or above a function."""

    mode = False

    def __new__(cls, function: Any = None) -> Any:
        made = object.__new__(cls)
        return made(function) if callable(function) else made

    def __enter__(self) -> None:
        self.before = _state.grad[0]
        _state.grad[0] = self.mode

    def __exit__(self, *_: object) -> None:
        _state.grad[0] = self.before

    def __call__(self, function: Any) -> Any:
        from functools import wraps

        @wraps(function)
        def inside(*args: Any, **named: Any) -> Any:
            with type(self)():
                return function(*args, **named)

        return inside


class no_grad(_Switch):
    """Nothing is noted for gradients."""


class enable_grad(_Switch):
    """It is."""

    mode = True


class inference_mode(_Switch):
    """As no_grad; whether somebody may write into the results later is not watched."""

    def __new__(cls, mode: Any = True) -> Any:
        made = object.__new__(cls)
        made.mode = False if callable(mode) or mode else _state.grad[0]
        return made(mode) if callable(mode) else made


class set_grad_enabled:
    """Gradients as said, from now on, or for a `with`."""

    def __init__(self, mode: bool):
        self.before = _state.grad[0]
        _state.grad[0] = bool(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _state.grad[0] = self.before

"""The direct way of a head to the logits: through sums, factors and norms of the residual stream.

A model is called with all else held: parts that have weights return what they returned, and norms
divide by what they divided by. What is left is linear in the heads, so one backward pass says what
each of them adds, whatever the model's blocks look like.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from mhattn.inside.importance import edit_heads
from mhattn.inside.layers import AttentionLayer, projection_of
from mhattn.inside.observe import projection_called

__all__: list[str] = []

Held = dict[nn.Module, list[Any]]


class DirectWays:
    """Calls of a model, of which the first says what the others hold.

    Attributes:
        heads: in front of the output projection, of each call of a layer, ``(B, L, H, D)``; the
            leaves of the graph.
        stream: what the last norm was given, ``(B, L, E)``.
        unknown: classes of norms that do something else than dividing by a size.
    """

    def __init__(self, model: nn.Module, layers: Sequence[AttentionLayer], norm: nn.Module) -> None:
        self.model, self.layers, self.norm = model, layers, norm
        self.projections = [projection_of(layer) for layer in layers]
        self.heads: list[Tensor] = []
        self.held: Held = {}
        self.stream = torch.empty(0)
        self.unknown: set[str] = set()

    def call(
        self, inputs: Sequence[Any], options: Mapping[str, Any], factors: Sequence[Tensor] = ()
    ) -> Tensor:
        """What the last norm returns, ``(B, L, E)``.

        With factors, ``(H,)`` of each call of a layer: what it had returned if each head had been
        multiplied by its own, and nothing else had changed.
        """
        given: list[tuple[Tensor, Tensor]] = []  # to the last norm, and what it returned
        turn = iter(range(len(factors)))

        def edit(heads: Tensor) -> Tensor:
            if not factors:
                self.heads.append(heads.detach().requires_grad_())
                return self.heads[-1]
            place = next(turn)
            return self.heads[place].detach() * factors[place].to(heads.dtype)[:, None]

        def normed(module: nn.Module, args: Any, result: Tensor) -> None:
            given.append((args[0], result))

        with ExitStack() as stack:
            stack.enter_context(without_gradients(self.model))
            self.hold(stack, again=bool(factors))
            stack.callback(self.norm.register_forward_hook(normed).remove)
            for layer, projection in zip(self.layers, self.projections, strict=True):
                stack.enter_context(projection_called(layer))
                stack.enter_context(edit_heads(projection, layer.num_heads, edit))
            self.model(*inputs, **options)
        if len(given) != 1:
            raise ValueError(f"norm must be called once by the model, got {len(given)} times")
        if not factors:
            self.stream = given[0][0]
            if not self.stream.requires_grad:
                raise ValueError("norm must read the stream that heads add to, got another input")
        return given[0][1]

    def hold(self, stack: ExitStack, *, again: bool) -> None:
        """Hooks on all parts that have weights, and on all norms.

        Not on attention: its only way to the stream are its heads, which are leaves. Nor on what
        is around it, through which the stream flows.
        """
        around = {
            self.model.get_submodule(layer.name[:end])
            for layer in self.layers
            for end in [0, *(i for i, letter in enumerate(layer.name) if letter == "."), None]
        }
        for module in self.model.modules():
            if module in around or module in self.projections:
                continue
            if has_matrix(module):
                hook: Callable[..., Any] = OutputHeld(self.held, again)
            elif "norm" in type(module).__name__.lower():
                hook = SizeHeld(self.held, again, self.unknown)
            else:
                continue
            stack.callback(module.register_forward_hook(hook).remove)


class OutputHeld:
    """A part of the model returns what it returned, whatever it is given."""

    def __init__(self, held: Held, again: bool) -> None:
        self.held, self.again, self.turn = held, again, 0

    def __call__(self, module: nn.Module, args: Any, result: Any) -> Any:
        if not self.again:
            self.held.setdefault(module, []).append(copied(result))
        self.turn += 1
        # A copy once more: what a part returns may be added to in place, as in Falcon.
        return copied(self.held[module][self.turn - 1])


def copied(result: Any) -> Any:
    return tree_map_only(Tensor, lambda x: x.detach().clone(), result)


class Line(NamedTuple):
    """A norm with its divisor held: ``(x - mean) * slope + bias``."""

    centred: bool
    slope: Tensor
    bias: Tensor | float

    def __call__(self, x: Tensor) -> Tensor:
        x = x.to(self.slope.dtype)
        return (x - x.mean(dim=-1, keepdim=True) if self.centred else x) * self.slope + self.bias


class SizeHeld:
    """A norm divides by what it divided by."""

    def __init__(self, held: Held, again: bool, unknown: set[str]) -> None:
        self.held, self.again, self.turn, self.unknown = held, again, 0, unknown

    def __call__(self, module: nn.Module, args: Any, result: Any) -> Any:
        x: Any = args[0] if args else None
        kept = self.held.setdefault(module, [])
        if not self.again:
            is_of_stream = isinstance(x, Tensor) and isinstance(result, Tensor) and x.requires_grad
            kept.append(line_of(module, x, result) if is_of_stream else None)
            if is_of_stream and kept[-1] is None:
                self.unknown.add(type(module).__name__)
        line: Line | None = kept[self.turn]
        self.turn += 1
        if line is None:
            return result
        straight = line(x)
        if self.again:
            return straight.to(result.dtype)
        return result.detach() + (straight - straight.detach()).to(result.dtype)


@torch.no_grad()
def line_of(norm: nn.Module, x: Tensor, result: Tensor) -> Line | None:
    """The line that a norm is, if its divisor is held; None if it is another function."""
    wide = torch.promote_types(x.dtype, torch.float32)
    x, result = x.to(wide), result.to(wide)
    known = ~result.isnan()  # rows of padding may be anything
    # transformers calls it variance_epsilon; torch's RMSNorm takes that of the dtype by default.
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    eps = torch.finfo(wide).eps if eps is None else eps
    gain, bias = getattr(norm, "weight", None), getattr(norm, "bias", None)
    bias = 0.0 if bias is None else bias.to(wide)
    found: list[tuple[float, Line]] = []
    for centred in (False, True):
        flat = x - x.mean(dim=-1, keepdim=True) if centred else x
        divisor = (flat.square().mean(dim=-1, keepdim=True) + eps).sqrt()
        # A class called a norm may add one to its gain, as Gemma's does.
        for gains in [1.0] if gain is None else [gain.to(wide), 1 + gain.to(wide)]:
            line = Line(centred, (gains / divisor).nan_to_num(0.0), bias)
            found.append(((line(x) - result)[known].abs().max().item(), line))
    error, best = min(found, key=lambda each: each[0])
    # Half precision may lose up to 2 %.
    return best if error <= 0.02 * result[known].abs().max() else None


def has_matrix(module: nn.Module) -> bool:
    """Whether a part mixes features by weights of its own."""
    own: list[Any] = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    own.append(getattr(module, "weight", None))  # a parametrized one lies in another module
    return any(isinstance(x, Tensor) and x.ndim > 1 for x in own)


@contextmanager
def without_gradients(model: nn.Module) -> Iterator[None]:
    """Its parameters need none, so no activations are kept for them."""
    needed = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in needed:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in needed:
            parameter.requires_grad_(True)

"""What each step of a forward pass does to the shape.

Nothing is computed a second time and nothing is patched: `trace` runs the module and lets Python
report what `split_heads`, `attention_scores` and the others return on the way.
"""

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.core.steps import STEPS

__all__ = ["Trace", "TraceStep", "trace"]


@dataclass(frozen=True, eq=False)
class TraceStep:
    """One tensor on the way from input to output.

    Attributes:
        name: what made it, as ``q_proj``, ``split q`` or ``scores``; inputs keep their own.
        tensor: the tensor itself.
        of: the step whose memory it shares, or None if it has memory of its own.
    """

    name: str
    tensor: Tensor
    of: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each axis."""
        return tuple(self.tensor.shape)

    @property
    def stride(self) -> tuple[int, ...]:
        """How many numbers further in memory the next entry of each axis lies."""
        return self.tensor.stride()

    @property
    def is_view(self) -> bool:
        """Whether it shares its memory with an earlier step."""
        return self.of is not None

    @property
    def is_contiguous(self) -> bool:
        """Whether it lies in memory row after row, without jumps."""
        return self.tensor.is_contiguous()


@dataclass(frozen=True, eq=False)
class Trace:
    """The steps in order; printed, they are a table.

    ``trace["scores"]`` and ``trace[3]`` are steps, ``trace.steps`` is all of them.

    Attributes:
        steps: from the inputs to the output.
    """

    steps: tuple[TraceStep, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[TraceStep]:
        return iter(self.steps)

    def __getitem__(self, which: int | str) -> TraceStep:
        if isinstance(which, int):
            return self.steps[which]
        for step in self.steps:
            if step.name == which:
                return step
        raise KeyError(f"no step {which!r}, only {', '.join(step.name for step in self)}")

    def __str__(self) -> str:
        rows = [("step", "shape", "stride", "memory")]
        for step in self:
            memory = f"view of {step.of}" if step.is_view else "own"
            rows.append((step.name, str(step.shape), str(step.stride), memory))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines)


def trace(module: nn.Module, *inputs: Any, **kwargs: Any) -> Trace:
    """Run a module once and list what each step made of the shape.

    Where a layer can return its weights they are asked for, so attention runs as the formula is
    written, not in a fused kernel that never has them. The steps carry no gradients.

    Attention in blocks, to chosen keys, or by a state has no table of weights: what it gives is
    one step, ``mix``. With a soft cap, ``scores`` are those before it.

    Args:
        module: a layer of this package, with any position.
        *inputs: what its forward takes.
        **kwargs: what its forward takes by name.

    Returns:
        The inputs, and each step to the output.

    Raises:
        TypeError: module is not a `torch.nn.Module`.
        ValueError: its forward pass calls nothing of this package, or an input is empty.

    Examples:
        >>> from mhattn import MultiHeadAttention
        >>> print(trace(MultiHeadAttention(12, 3), torch.zeros(2, 5, 12)))
        step      shape         stride          memory
        query     (2, 5, 12)    (60, 12, 1)     own
        q_proj    (2, 5, 12)    (60, 12, 1)     own
        split q   (2, 3, 5, 4)  (60, 4, 12, 1)  view of q_proj
        k_proj    (2, 5, 12)    (60, 12, 1)     own
        split k   (2, 3, 5, 4)  (60, 4, 12, 1)  view of k_proj
        v_proj    (2, 5, 12)    (60, 12, 1)     own
        split v   (2, 3, 5, 4)  (60, 4, 12, 1)  view of v_proj
        scores    (2, 3, 5, 5)  (75, 25, 5, 1)  own
        weights   (2, 3, 5, 5)  (75, 25, 5, 1)  own
        mix       (2, 3, 5, 4)  (60, 20, 4, 1)  own
        merge     (2, 5, 12)    (60, 12, 1)     own
        out_proj  (2, 5, 12)    (60, 12, 1)     own
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    recorder = _Recorder(module)
    signature = inspect.signature(module.forward)
    can = getattr(module, "takes", signature.parameters)
    if "return_weights" in signature.parameters and "return_weights" in can:
        kwargs["return_weights"] = True
    call = signature.bind(*inputs, **kwargs)
    leaves: dict[int, Tensor] = {}
    for name, argument in call.arguments.items():
        if isinstance(argument, Tensor) and argument.is_floating_point():
            if argument.numel() == 0:
                raise ValueError(f"{name} must not be empty, got shape {tuple(argument.shape)}")
            leaf = leaves.setdefault(id(argument), argument.detach().requires_grad_())
            call.arguments[name] = leaf
            recorder.add(name, leaf)
    with torch.enable_grad(), _profiled(recorder):  # without, scores are overwritten by weights
        module(*call.args, **call.kwargs)
    if not recorder.knows_a_step:
        got = type(module).__name__
        raise ValueError(f"module must call functions of mhattn, got {got}")
    return Trace(tuple(replace(step, tensor=step.tensor.detach()) for step in recorder.steps))


class _Recorder:
    """Called by `sys.setprofile` for every Python function; keeps what belongs to the trace."""

    def __init__(self, module: nn.Module) -> None:
        self.children = {id(child): name for name, child in module.named_children()}
        self.steps: list[TraceStep] = []
        self.knows_a_step = False
        self.before_blocks = 0

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        step = STEPS.get(frame.f_code)
        if event == "call" and step and step.in_blocks:
            self.before_blocks = len(self.steps)
        if event != "return" or result is None:
            return
        if step and step.in_blocks:
            # What it called for each block is no step of the layer: one table for each block.
            del self.steps[self.before_blocks :]
        if frame.f_code.co_name == "forward":
            child = id(frame.f_locals.get("self"))
            if child in self.children and isinstance(result, Tensor):
                self.add(self.children[child], result)
        elif step:
            self.knows_a_step = True
            tensor = result[0] if isinstance(result, tuple) else result
            if step.beside and isinstance(result, tuple):
                self.add("weights", result[1])
            if tensor is not frame.f_locals.get("x"):  # repeating may have nothing to do
                self.add(step.name.format(self.letter(frame) if "{" in step.name else ""), tensor)

    def letter(self, frame: FrameType) -> str:
        """q, k or v: what the function's argument ``x`` came from, as ``split q`` or ``turn k``."""
        return (self.owner(frame.f_locals["x"]) or "x").split()[-1][0]

    def owner(self, tensor: Tensor) -> str | None:
        """The latest step that shares the tensor's memory."""
        memory = tensor.untyped_storage().data_ptr()
        for step in reversed(self.steps):
            if memory and memory == step.tensor.untyped_storage().data_ptr():
                return step.name
        return None

    def add(self, name: str, tensor: Tensor) -> None:
        if not any(tensor is step.tensor for step in self.steps):
            self.steps.append(TraceStep(name, tensor, self.owner(tensor)))


@contextmanager
def _profiled(recorder: _Recorder) -> Iterator[None]:
    previous = sys.getprofile()
    sys.setprofile(recorder)
    try:
        yield
    finally:
        sys.setprofile(previous)

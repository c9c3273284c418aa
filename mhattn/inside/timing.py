"""What a call takes: seconds, bytes and FLOPs."""

import contextlib
import functools
import json
import math
import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from timeit import timeit
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

__all__ = ["Flops", "held_bytes", "measure_flops", "measure_seconds", "peak_bytes"]


# --8<-- [start:measure_seconds]
def measure_seconds(
    functions: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 20,
    block_seconds: float = 0.02,
    num_threads: int = 1,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> dict[str, list[float]]:
    """Time several functions against each other.

    In every round each function has its turn, in random order, so that a machine that slows
    down for a while slows all of them. A turn calls the function as often as fits into
    ``block_seconds``, at least once, and waits for the GPU if there is one.

    Args:
        functions: what to call, without arguments, under a name each.
        rounds: turns of each function.
        block_seconds: how long a turn should last.
        num_threads: of torch on the CPU.
        seed: of the order.
        device: the GPU that is waited for. Default: torch's current one, if there is one.

    Returns:
        For each name the seconds of one call, round by round. Two lists at the same place
        were measured close together: divide them pair by pair to compare.

    Raises:
        ValueError: functions is empty, or rounds or num_threads is less than 1.

    Examples:
        >>> x = torch.ones(8, 8)
        >>> seconds = measure_seconds({"product": lambda: x @ x}, rounds=3, block_seconds=0.001)
        >>> len(seconds["product"])
        3
    """
    if not functions:
        raise ValueError("functions must name at least one function, got none")
    for name, number in (("rounds", rounds), ("num_threads", num_threads)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    order, shuffle = list(functions), random.Random(seed).shuffle
    threads_before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        for function in functions.values():
            function()  # warm up
        once = {name: seconds_per_call(call, 1, device) for name, call in functions.items()}
        for _ in range(rounds):
            shuffle(order)
            for name in order:
                calls = max(1, round(block_seconds / once[name]))
                seconds[name].append(seconds_per_call(functions[name], calls, device))
    finally:
        torch.set_num_threads(threads_before)
    return seconds
    # --8<-- [end:measure_seconds]


def peak_bytes(function: Callable[[], Any], device: torch.device | str = "cpu") -> int:
    """Count the most bytes that a call's tensors take at any one time.

    On the CPU every request to torch's allocator is added up, so the number is exact and does
    not depend on what else the machine does. On a GPU it is what the allocator gave out, which
    rounds each request up; there, the function is called twice, and the second call is counted:
    in a first one, torch's libraries take memory that they keep. Counted are the result and
    everything on the way to it; what was there before is not.

    Args:
        function: what to call, without arguments.
        device: where it allocates.

    Returns:
        Bytes.

    Raises:
        ValueError: device is neither a CPU nor a CUDA device.

    Examples:
        Two vectors of 1000 floats, 4 bytes each: the argument of the last step and its result.

        >>> peak_bytes(lambda: torch.ones(1000).exp().exp())
        8000
    """
    device = _checked(device)
    if device.type == "cuda":
        function()
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    alive = peak = 0
    for requested in _traced(function):
        alive += requested
        peak = max(peak, alive)
    return peak


def held_bytes(function: Callable[[], Any], device: torch.device | str = "cpu") -> int:
    """Count the bytes that stay allocated after a call, as long as its result lives.

    After a forward pass, these are its output and what is kept for the backward pass, whoever keeps
    it: also `torch.utils.checkpoint` under a policy, which hooks on saved tensors do not see.

    Args:
        function: what to call, without arguments.
        device: where it allocates.

    Returns:
        Bytes, counted as in `peak_bytes`.

    Raises:
        ValueError: device is neither a CPU nor a CUDA device.

    Examples:
        The first exponential is kept for the gradient, the second is the result as well.

        >>> x = torch.ones(1000, requires_grad=True)
        >>> held_bytes(lambda: x.exp().exp()), held_bytes(lambda: x.detach().exp().exp())
        (8000, 4000)
    """
    device = _checked(device)
    if device.type == "cuda":
        function()
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        result = function()
        held = torch.cuda.memory_allocated(device) - before
        del result
        return held
    return sum(_traced(function))


class Flops(NamedTuple):
    """What `measure_flops` returns.

    Attributes:
        total: FLOPs of the whole call.
        by_operator: the same by the operator that needed them, without those that needed none:
            ``mm``, ``bmm``, or the name of a fused kernel.
    """

    total: int
    by_operator: dict[str, int]


# --8<-- [start:measure_flops]
def measure_flops(fn: Callable[..., Any], *inputs: Any) -> Flops:
    """Count the FLOPs of a call's products of matrices, as they were computed.

    The call is made once. Each operator that reaches torch's dispatcher is counted by its shapes,
    with the formulas of `torch.utils.flop_counter.FlopCounterMode`, and with others for what that
    leaves out: the fused attention of the CPU, the fast paths of `torch.nn.MultiheadAttention` and
    `torch.nn.TransformerEncoderLayer`, FlexAttention, products with vectors. What ``fn`` does
    backwards is counted as well. On the device ``"meta"`` nothing is computed, only counted.

    - A multiplication and its addition are two FLOPs. Softmax, norms, masks, biases and all else
      that works on single numbers are left out, as in `mhattn.costs.attention`.
    - A complex multiplication and its addition are eight FLOPs: four times as many real ones. An
      FFT is no product of matrices and counts nothing, although a convolution may be made of it.
    - A mixture of experts counts each token once for each expert that takes it.
    - A fused kernel counts ``L * S`` scores, whatever it is told to hide: with ``is_causal`` and
      ``L == S`` it needs ``(L + 1) / (2 * L)`` of the number below its name.
    - The backward pass of a fused kernel is five products, not four: it computes the scores again,
      because the forward pass has not kept them.
    - A compiled function is counted as it is written, without `torch.compile`.

    Args:
        fn: what to call.
        *inputs: its arguments.

    Returns:
        The total, and what each operator took of it.

    Raises:
        TypeError: fn can't be called.
        ValueError: an operator that multiplies matrices has no formula, or gets a sparse or nested
            tensor, as in a `torch.nn.TransformerEncoder` that pads, in evaluation, unless it was
            made with ``enable_nested_tensor=False``. The call ends there; the error names the
            module.

    Examples:
        >>> x, y = torch.randn(2, 3), torch.randn(3, 5, requires_grad=True)
        >>> measure_flops(torch.matmul, x, y) == (2 * 2 * 3 * 5, {"mm": 60})
        True

        The gradient of one matrix is one more product.

        >>> measure_flops(lambda: (x @ y).sum().backward()).total
        120
    """
    if not callable(fn):
        raise TypeError(f"fn must be a function, got {type(fn).__name__}")
    counter = CountFlops()  # type: ignore[no-untyped-call]
    with torch.compiler.set_stance("force_eager"), inside_of_modules(counter._inside), counter:
        fn(*inputs)
    by_operator = {name: count for name, count in counter.counts.items() if count}
    return Flops(sum(by_operator.values()), by_operator)


class CountFlops(TorchDispatchMode):
    """Sees each operator before it runs: one made of others is taken apart, the rest counted."""

    supports_higher_order_operators = True

    @functools.cached_property
    def counts(self) -> Counter[str]:
        return Counter()

    @functools.cached_property
    def _inside(self) -> list[nn.Module]:
        """The modules whose forward pass is under way, the outermost first."""
        return []

    def _where(self) -> str:
        """Who calls an operator, as `torch.nn.Module.named_modules` names it."""
        if not self._inside:
            return ""
        outer, inner = self._inside[0], self._inside[-1]
        names = {module: name for name, module in outer.named_modules()}
        return f" in {names.get(inner) or type(inner).__name__}"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        operator = getattr(func, "_overloadpacket", func)  # without the kind of its arguments
        formula = FORMULAS.get(operator) or flop_registry.get(operator)
        multiplies = formula is not None or MULTIPLIES.search(str(operator)) is not None
        tensors = (x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor))
        for x in tensors:
            if x.is_nested or (multiplies and x.layout != torch.strided):
                kind = "nested" if x.is_nested else x.layout
                got = f"{kind} in {operator}{self._where()}"
                raise ValueError(f"fn must multiply dense tensors, got {got}")
        if formula is None and isinstance(func, torch._ops.OpOverload):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if multiplies and formula is None:
            got = f"{operator}{self._where()}"
            raise ValueError(f"fn must multiply by operators with a formula, got {got}")
        result = func(*args, **kwargs)
        if formula is not None:
            name = getattr(operator, "__name__", str(operator))
            tensors = (x for x in tree_leaves(result) if isinstance(x, Tensor))
            real = 4 if any(x.is_complex() for x in tensors) else 1
            self.counts[name] += real * formula(*args, **kwargs, out_val=result)
        return result

    # --8<-- [end:measure_flops]


@contextlib.contextmanager
def inside_of_modules(inside: list[nn.Module]) -> Iterator[None]:
    """Keep a list of the modules whose forward pass is under way."""

    def enter(module: nn.Module, _: Any) -> None:
        inside.append(module)

    def leave(*_: Any) -> None:
        inside.pop()

    hooks = [
        register_module_forward_pre_hook(enter),
        register_module_forward_hook(leave, always_call=True),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


# --8<-- [start:formulas]
def attention_flops(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    """Scores and mix, for each query head: ``(B, H, L, D)``, ``(B, H_kv, S, D)`` and D_v."""
    scores: int = math.prod(query.shape[:-1]) * key.shape[-2]
    return 2 * scores * (query.shape[-1] + value.shape[-1])


def attention_backward_flops(
    grad_output: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> int:
    """The scores again, and a gradient for each of the four factors."""
    scores: int = math.prod(query.shape[:-1]) * key.shape[-2]
    return 2 * scores * (3 * query.shape[-1] + 2 * value.shape[-1])


def flex_backward_flops(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    return attention_backward_flops(query, query, key, value)


def torch_layer_flops(x: Tensor, *_: Any, **__: Any) -> int:
    """The fast path of `torch.nn.MultiheadAttention`, which is self-attention: ``(B, L, E)``."""
    B, L, E = x.shape
    return 8 * B * L * E * E + 4 * B * L * L * E


def torch_block_flops(x: Tensor, *options: Any, **_: Any) -> int:
    """The fast path of `torch.nn.TransformerEncoderLayer`: the layer and two matrices."""
    tokens, up = math.prod(x.shape[:-1]), options[13]
    return torch_layer_flops(x) + 2 * tokens * 2 * int(up.numel())


def convolution_backward_flops(
    grad_output: Tensor, x: Tensor, weight: Tensor, *options: Any, **_: Any
) -> int:
    """As much as forwards, for each of the two gradients that is asked for; groups or not."""
    transposed, asked = options[4], options[7]
    places: int = math.prod((x if transposed else grad_output).shape[2:])
    return 2 * x.shape[0] * places * weight.numel() * int(sum(asked[:2]))


def vector_flops(left: Tensor, *_: Any, **__: Any) -> int:
    """A matrix and a vector, or two vectors: each number of the left one is needed once."""
    return 2 * left.numel()


def added_flops(start: Tensor, left: Tensor, right: Tensor, *_: Any, **__: Any) -> int:
    """A product that is added to ``start``."""
    return 2 * left.numel() * (right.shape[-1] if right.ndim > 1 else 1)


def grouped_flops(left: Tensor, right: Tensor, *_: Any, **__: Any) -> int:
    """Each expert's rows times its matrix, or, for the gradient, its rows times its columns."""
    rows = left.numel() // (len(left) if left.ndim > right.ndim else 1)
    return 2 * rows * right.shape[-1]


_aten, _higher = torch.ops.aten, torch.ops.higher_order
_fused = [f"flash_attention{end}" for end in ("", "_for_cpu")] + ["efficient_attention"]
_fused += ["cudnn_attention", "fused_attention_overrideable"]
FORMULAS: dict[Any, Callable[..., int]] = {
    _aten._native_multi_head_attention: torch_layer_flops,
    _aten._transformer_encoder_layer_fwd: torch_block_flops,
    _aten.convolution_backward: convolution_backward_flops,  # torch's is wrong for groups
    **dict.fromkeys([_aten.mv, _aten.dot, _aten.vdot], vector_flops),
    **dict.fromkeys([_aten.addmv, _aten.addbmm, _aten._addmm_activation], added_flops),
    **dict.fromkeys([_aten.addmm_, _aten.addmv_, _aten.addbmm_, _aten.baddbmm_], added_flops),
    **dict.fromkeys([_aten._grouped_mm, _aten._scaled_grouped_mm], grouped_flops),
    _higher.flex_attention: attention_flops,
    _higher.flex_attention_backward: flex_backward_flops,
}
for _name in _fused:
    for _end, _formula in (("", attention_flops), ("_backward", attention_backward_flops)):
        if hasattr(_aten, f"_scaled_dot_product_{_name}{_end}"):  # as this version of torch has it
            FORMULAS[getattr(_aten, f"_scaled_dot_product_{_name}{_end}")] = _formula
MULTIPLIES = re.compile(  # by its name; without a formula its products would count as nothing
    r"(?:^|[._])(?:\w*mm|\w*mv|\w*matmul|v?dot|(?:bi|tri)?linear(?!_comb)|attention|attn|rnn|gru|lstm|"
    r"conv(?:\d\w*|olution)?|cdist)(?!_cell)(?:[._]|$)|linalg_(?!vector_norm|check|cross|diag)"
)
# --8<-- [end:formulas]


# --8<-- [start:seconds_per_call]
def seconds_per_call(
    function: Callable[[], Any], calls: int, device: torch.device | str | None = None
) -> float:
    """The mean time of one call out of several."""

    def wait() -> None:
        if torch.cuda.is_available() and (device is None or torch.device(device).type == "cuda"):
            torch.cuda.synchronize(device)

    def all_calls() -> None:
        for _ in range(calls):
            function()
        wait()

    wait()
    return timeit(all_calls, number=1) / calls
    # --8<-- [end:seconds_per_call]


def _checked(device: torch.device | str) -> torch.device:
    device = torch.device(device)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be a CPU or a CUDA device, got {str(device)!r}")
    return device


def _traced(function: Callable[[], Any]) -> list[int]:
    """What a call asked of the CPU's allocator until its result was there."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch's profiler writes to stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        result = function()
    del result
    return _requests(profiled)


def _requests(profiled: profile) -> list[int]:
    """What was asked of the CPU's allocator, in order; negative: given back."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    memory = [event for event in events if event["name"] == "[memory]"]
    memory = [event for event in memory if event["args"]["Device Type"] == 0]
    memory.sort(key=lambda event: (event["ts"], event["args"]["Ev Idx"]))
    return [event["args"]["Bytes"] for event in memory]

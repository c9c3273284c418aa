"""How long calls take on any device, and by which kernels torch attends in them.

On a CPU it is the package's `measure_seconds`. A GPU has a clock of its own: what is timed are the
kernels of a call, not the Python that launches them. For that, a call is recorded once as a CUDA
graph and played again; before each time, the L2 cache is overwritten, as it would be by the
other layers of a model.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from mhattn.inside import measure_seconds

Call = Callable[[], Any]
Name = TypeVar("Name", bound=Hashable)
MOST = 1000  # calls in one turn
HALF = 2e-2  # what a vector in half precision may be wrong by, as a part of its length
SDPA = "scaled_dot_product_"
noted: dict[str, Any] = {}  # what is found out on the way, for the provenance; see `measure.py`


def times(
    calls: Mapping[Name, Call],
    *,
    rounds: int,
    device: str = "cpu",
    num_threads: int = 1,
    block_seconds: float = 0.02,
) -> dict[Name, list[float]]:
    """Seconds of one call, round by round, in each round in random order."""
    note_kernels(calls)
    if torch.device(device).type != "cuda":
        named: Any = calls
        options: Any = {"num_threads": num_threads, "block_seconds": block_seconds}
        return measure_seconds(named, rounds=rounds, device=device, **options)
    seconds: dict[Name, list[float]] = {name: [] for name in calls}
    ready = {name: replayed(name, call) for name, call in calls.items()}
    size = 2 * torch.cuda.get_device_properties(device).L2_cache_size
    spare = torch.empty(size, dtype=torch.int8, device=device)
    once = {name: on_gpu(run, spare, 3) for name, run in ready.items()}
    order, shuffle = list(calls), random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            count = round(block_seconds / max(once[name], 1e-6))
            seconds[name].append(on_gpu(ready[name], spare, min(MOST, max(1, count))))
    ready.clear()  # each graph has memory of its own
    torch.cuda.empty_cache()
    return seconds


def on_gpu(run: Call, spare: Tensor, calls: int) -> float:
    """The mean time of one call out of several, by the clock of the GPU, each with an empty L2.

    While the GPU overwrites its cache, the next launch is on its way: it isn't timed.
    """
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]
    for start, end in pairs:
        spare.zero_()
        start.record()
        run()
        end.record()
    torch.cuda.synchronize(spare.device)
    return sum(start.elapsed_time(end) for start, end in pairs) / 1000 / calls


def replayed(name: Hashable, call: Call) -> Call:
    """A call's kernels as a CUDA graph, or the call itself where it can't be one, which is noted.

    It can't if it waits for the GPU, as what asks for a number does.
    """
    side, mode = torch.cuda.Stream(), torch.cuda.get_sync_debug_mode()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is made in the first calls, a graph can't make
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        call()
        torch.cuda.set_sync_debug_mode(mode)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:
        noted.setdefault("launched", set()).add(told(name))
        return call
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    return graph.replay


def check_equal(calls: Mapping[Any, Call], *, rtol: float = 1e-3, atol: float = 1e-4) -> None:
    """All return the same, or nothing is timed."""
    first, *others = calls.values()
    expected = first()
    for other in others:
        check_close(other(), expected, rtol=rtol, atol=atol)


def check_close(found: Tensor, expected: Tensor, *, rtol: float, atol: float) -> None:
    """Up to rounding; in half precision, the vectors of a tensor are compared by their lengths.

    Each number there may be wrong by a large part of itself, where it is a small difference of
    large ones. A vector may not: a factor of 0.97 is found.
    """
    if expected.dtype not in (torch.bfloat16, torch.float16):
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)
        return
    length = expected.float().norm(dim=-1).clamp(min=1e-6)
    error = (found.float() - expected.float()).norm(dim=-1) / length
    torch.testing.assert_close(error, torch.zeros_like(error), rtol=0, atol=HALF)


def note_kernels(calls: Mapping[Any, Call]) -> None:
    """Look which of torch's kernels for attention each call runs."""
    for name, call in calls.items():
        noted.setdefault("kernels", {}).setdefault(told(name), set()).update(kernels(call))


def kernels(call: Call) -> set[str]:
    """The names of torch's operators in which a call attends; none: it is written out."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch's profiler writes to stderr
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        call()
    names = {event.name.partition("::_")[2] for event in profiled.events()}
    names = {name for name in names if "att" in name and not name.endswith("_backward")}
    outer = {name for name in names if name.startswith(SDPA)}  # and what these call is left out
    return {name.removeprefix(SDPA) for name in outer or names}


def told(name: Any) -> str:
    """A call's name; of several parts, one after another."""
    parts = name if isinstance(name, tuple) else (name,)
    return " ".join(str(part).removeprefix("torch.") for part in parts)


def of_provenance() -> dict[str, Any]:
    """What was noted, in a form that can be filed; it is forgotten here."""
    named = {name: ", ".join(sorted(found)) for name, found in noted.pop("kernels", {}).items()}
    launched = sorted(noted.pop("launched", ()))
    noted.clear()
    about: dict[str, Any] = {"kernels": {name: found for name, found in named.items() if found}}
    about["launched"] = launched  # one by one, not as a graph
    return {key: value for key, value in about.items() if value}

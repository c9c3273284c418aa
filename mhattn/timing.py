"""What a call takes: seconds and bytes, measured side by side."""

import json
import os
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from timeit import timeit
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

__all__ = ["measure_seconds", "peak_bytes"]


# --8<-- [start:measure_seconds]
def measure_seconds(
    functions: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 20,
    block_seconds: float = 0.02,
    num_threads: int = 1,
    seed: int = 0,
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
        once = {name: seconds_per_call(function, 1) for name, function in functions.items()}
        for _ in range(rounds):
            shuffle(order)
            for name in order:
                calls = max(1, round(block_seconds / once[name]))
                seconds[name].append(seconds_per_call(functions[name], calls))
    finally:
        torch.set_num_threads(threads_before)
    return seconds
    # --8<-- [end:measure_seconds]


def peak_bytes(function: Callable[[], Any], device: torch.device | str = "cpu") -> int:
    """Count the most bytes that a call's tensors take at any one time.

    On the CPU every request to torch's allocator is added up, so the number is exact and does
    not depend on what else the machine does. On a GPU it is what the allocator gave out, which
    rounds each request up. Counted are the result and everything on the way to it; what was
    there before is not.

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
    device = torch.device(device)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be a CPU or a CUDA device, got {str(device)!r}")
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch's profiler writes to stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        result = function()
    del result
    alive = peak = 0
    for requested in _requests(profiled):
        alive += requested
        peak = max(peak, alive)
    return peak


# --8<-- [start:seconds_per_call]
def seconds_per_call(function: Callable[[], Any], calls: int) -> float:
    """The mean time of one call out of several."""

    def all_calls() -> None:
        for _ in range(calls):
            function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return timeit(all_calls, number=1) / calls
    # --8<-- [end:seconds_per_call]


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

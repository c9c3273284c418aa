"""Processes of this machine that compute together: they start, agree, and end together.

`run` starts the processes; each calls one function, in a process group over gloo, or, each on a GPU
of its own, over NCCL. Whoever dies ends the others, and the error names the rank and what it was
doing.
"""

import importlib
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mhattn.core import checks as check

__all__ = ["agree", "note", "run"]

START = 600.0  # seconds that a busy machine may take until all have loaded PyTorch
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
LOCAL = {"linux": "lo", "darwin": "lo0"}  # the interface that leads back to this machine


def note(doing: str) -> None:
    """Write down what this process does next, for whoever has to say where it died.

    Args:
        doing: a few words. Outside of `run` they are written nowhere.

    Examples:
        >>> note("all-reduce of the outputs")
    """
    file = os.environ.get("MHATTN_DOING")
    if file:
        Path(file).write_text(doing, encoding="utf-8")


# --8<-- [start:agree]
def agree(
    plan: str,
    same: dict[str, Any],
    own: Any = None,
    group: dist.ProcessGroup | None = None,
    *,
    problem: Exception | None = None,
) -> list[Any]:
    """Compare on all ranks what has to be equal, before anything is sent that could hang.

    Args:
        plan: what all of them are about to do.
        same: names and values that are to be equal on all ranks.
        own: what may differ, as the number of tokens that this rank holds.
        group: the processes. Default: all of them.
        problem: why this rank cannot take part. It is raised here, and a ValueError that names the
            rank is raised on the others, so that nobody waits.

    Returns:
        ``own`` of each rank, in their order.

    Raises:
        ValueError: two ranks differ; the error names both, and what each of them has. Or another
            rank has a problem.

    Examples:
        >>> agree("ring attention", {"dtype": "float32"}, own=5)  # a process alone
        [5]
    """
    if not dist.is_initialized():
        stop(problem)
        return [own]
    note(f"{plan}: compare with the other ranks")
    told = None if problem is None else f"{type(problem).__name__}: {problem}"
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, ({"plan": plan, **same}, own, told), group=group)
    stop(problem)
    for rank, (_, _, reason) in enumerate(found):
        if reason is not None:
            raise ValueError(f"rank {rank} cannot take part in {plan}: {reason}")
    first = found[0][0]
    for rank, (facts, _, _) in enumerate(found):
        for name in first:
            if facts.get(name) != first[name]:
                got = f"{first[name]} on rank 0 and {facts.get(name)} on rank {rank}"
                raise ValueError(f"{name} must be the same on all ranks, got {got}")
    return [theirs for _, theirs, _ in found]
    # --8<-- [end:agree]


def stop(problem: Exception | None) -> None:
    if problem is not None:
        raise problem


def checksum(x: torch.Tensor) -> tuple[Any, ...]:
    """What tells two tensors apart without sending them."""
    x, wide = x.detach(), x.detach().double()
    return tuple(x.shape), str(x.dtype), float(wide.sum()), float(wide.square().sum())


def alike(name: str, found: list[tuple[Any, ...]]) -> None:
    """That the checksums of all ranks are the same, but for rounding."""
    for rank, (shape, dtype, *sums) in enumerate(found):
        near = 1e-3 * (1 + math.sqrt(found[0][3] * math.prod(shape)))
        apart = max(abs(a - b) for a, b in zip(sums, found[0][2:], strict=True))
        if (shape, dtype) != found[0][:2] or apart > near:
            got = f"sums {found[0][2:]} on rank 0 and {tuple(sums)} on rank {rank}"
            if (shape, dtype) != found[0][:2]:
                got = f"{found[0][:2]} on rank 0 and {(shape, dtype)} on rank {rank}"
            raise ValueError(f"{name} must be the same on all ranks, got {got}")


def kind_of_device() -> str:
    """Where the processes compute: on GPUs if they talk through NCCL."""
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def run(
    function: Callable[..., Any],
    world_size: int,
    *args: Any,
    seconds: float = 120.0,
    device: str = "cpu",
) -> list[Any]:
    """Call a function in several processes of this machine, one thread each, and wait for all.

    Args:
        function: of a module that can be imported; ``torch.distributed`` is ready in it.
        world_size: how many processes.
        *args: what each of them is given; tensors and plain values.
        seconds: after how long all are ended, once all of them have started.
        device: ``"cuda"`` for a GPU for each process, where its new tensors are, and NCCL.

    Returns:
        What the function returned, rank by rank.

    Raises:
        TypeError: function can't be imported by others, or world_size is not an integer.
        ValueError: world_size is less than 1, device another word, or there are fewer GPUs.
        RuntimeError: a process failed or died, named with what it was doing; the others were ended.
        TimeoutError: they took longer than that; what each was doing is named.

    Examples:
        >>> import math
        >>> run(math.factorial, 1, 4)
        [24]
    """
    check.at_least("world_size", world_size, 1)
    if device not in BACKENDS:
        raise ValueError(f"device must be 'cpu' or 'cuda', got {device!r}")
    gpus = torch.cuda.device_count()
    if device == "cuda" and gpus < world_size:
        raise ValueError(f"there must be {world_size} GPUs for as many processes, got {gpus}")
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None)
    if module in (None, "__main__", "builtins") or "<" in name:
        got = f"{module}.{name}"
        raise TypeError(f"function must be of a module that others can import, got {got}")
    with tempfile.TemporaryDirectory() as folder:
        told = {"call": (module, name), "args": args, "device": device}
        torch.save(told, Path(folder, "call"))
        started = [start(folder, rank, world_size) for rank in range(world_size)]
        try:
            watch(started, Path(folder), seconds)
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                process.wait()
        files = [Path(folder, f"result-{rank}") for rank in range(world_size)]
        return [torch.load(file, map_location="cpu", weights_only=False) for file in files]


def start(folder: str, rank: int, world_size: int) -> subprocess.Popen[bytes]:
    """One process. It finds the others through a file, so no port can be taken."""
    code = f"from mhattn.parallel.local import join; join({folder!r}, {rank}, {world_size})"
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    environment = {**os.environ, "PYTHONPATH": paths, **settings(folder, rank)}
    with Path(folder, f"output-{rank}").open("wb") as output:
        command = [sys.executable, "-c", code]
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output)


def settings(folder: str, rank: int) -> dict[str, str]:
    """What a process of `run` has in its environment."""
    own = {"MHATTN_DOING": str(Path(folder, f"doing-{rank}")), "OMP_NUM_THREADS": "1"}
    if sys.platform in LOCAL:
        own["GLOO_SOCKET_IFNAME"] = LOCAL[sys.platform]
    return own


def watch(started: list[subprocess.Popen[bytes]], folder: Path, seconds: float) -> None:
    """Until all have ended well; one that has not is reason enough to end the others."""
    end = time.monotonic() + seconds + START
    there = False
    while any(process.poll() is None for process in started):
        if not there and all((folder / f"doing-{rank}").exists() for rank in range(len(started))):
            there, end = True, time.monotonic() + seconds
        if any(process.poll() for process in started):
            time.sleep(0.3)  # whoever lost it as a partner fails soon after: see who was first
            break
        if time.monotonic() > end:
            what = "; ".join(f"rank {r}: {doing(folder, r)}" for r in range(len(started)))
            raise TimeoutError(f"{len(started)} processes took too long; {what}")
        time.sleep(0.02)
    failed = {rank: process.poll() for rank, process in enumerate(started) if process.poll()}
    if not failed:
        return
    raise RuntimeError(reason(failed, folder))


def reason(failed: dict[int, int | None], folder: Path) -> str:
    """Which rank was the first, and what it was doing: one that was killed, or the oldest error."""
    killed = [rank for rank, code in failed.items() if not Path(folder, f"error-{rank}").exists()]
    if killed:
        rank = killed[0]
        return f"rank {rank} died (exit code {failed[rank]}) in: {doing(folder, rank)}"
    rank = min(failed, key=lambda rank: Path(folder, f"error-{rank}").stat().st_mtime_ns)
    text = Path(folder, f"error-{rank}").read_text(encoding="utf-8")
    return f"rank {rank} failed in: {doing(folder, rank)}\n{text}"


def doing(folder: Path, rank: int) -> str:
    file = folder / f"doing-{rank}"
    return (file.read_text(encoding="utf-8") if file.exists() else "") or "starting"


def same_world_size(store: Any, rank: int, world_size: int) -> None:
    """Compare how many each thinks that they are: `init_process_group` waits for all in silence."""
    store.set(f"world_size of {rank}", str(world_size))
    for other in range(world_size):
        theirs = int(store.get(f"world_size of {other}"))
        if theirs != world_size:
            got = f"{world_size} on rank {rank} and {theirs} on rank {other}"
            raise ValueError(f"world_size must be the same on all ranks, got {got}")


def use_gpu(rank: int) -> None:
    """What this process makes from now on is on the GPU of its own."""
    torch.cuda.set_device(rank)
    torch.set_default_device("cuda")


def join(folder: str, rank: int, world_size: int) -> None:
    """What a process does: join the group, call the function, leave its result or its error."""
    try:
        told = torch.load(Path(folder, "call"), weights_only=False)
        module, name = told["call"]
        function: Any = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        torch.set_num_threads(1)
        options: dict[str, Any] = {"rank": rank, "world_size": world_size}
        device = told.get("device", "cpu")
        if device == "cuda":
            use_gpu(rank)
        store: Any = torch.distributed.FileStore(str(Path(folder, "store")), world_size)  # type: ignore[attr-defined]
        note("meet the other ranks")
        same_world_size(store, rank, world_size)
        limit = timedelta(seconds=300)
        dist.init_process_group(BACKENDS[device], store=store, timeout=limit, **options)
        note(f"run {name}")
        result = function(*told["args"])
        torch.save(result, Path(folder, f"result-{rank}"))
        note("wait for the other ranks to end")
        dist.barrier()
        sys.stdout.flush()
        os._exit(0)  # a thread of gloo's may abort an interpreter that ends after another rank has
    except BaseException:
        Path(folder, f"error-{rank}").write_text(traceback.format_exc(), encoding="utf-8")
        os._exit(1)  # no waiting for partners who are gone

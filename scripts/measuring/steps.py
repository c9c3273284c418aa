"""Benchmarks of what a server does: what launching a step costs, what other requests change."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from measuring.clock import replayed
from measuring.rounds import (
    EMBED_DIM,
    GPU_EMBED_DIM,
    anywhere,
    benchmark,
    interval,
    number_type,
    ratios,
    sizes,
)
from measuring.variants import remembered, step
from mhattn import MultiHeadAttention, attention
from mhattn.inside import measure_seconds

BATCHES = (2, 8, 32)


def size_of(device: str) -> tuple[int, int]:
    return (EMBED_DIM, 8) if device == "cpu" else (GPU_EMBED_DIM, 32)


@anywhere
@benchmark
def launches(rounds: int, device: str = "cpu") -> dict:
    """One token through one layer with a cache, with the Python that launches it; needs a compiler.

    As it stands, compiled, and on a GPU as one graph; these are the times of a reader's own clock.
    """
    # One thread: what is measured is the Python that launches a step, not the share of cores.
    torch.set_num_threads(1)
    width, heads = size_of(device)
    made: Any = {"dtype": number_type(device), "device": device}
    layer = MultiHeadAttention(width, heads, bias=False, **made)
    x = torch.randn(1, 1, width, **made)
    rows = []
    for cached in (128, 1024, 8192):
        # Each length is compiled as if it were the first: of one function, only a few versions are
        # compiled, and the rest would run as it stands.
        torch.compiler.reset()
        cache = remembered(layer, 1, cached)
        call = partial(step, layer, x, cache, cached)
        fast = partial(step, torch.compile(layer, dynamic=False), x, cache, cached)
        torch.testing.assert_close(fast(), call(), rtol=1e-2, atol=1e-3)
        calls: dict[str, Callable[[], Any]] = {"eager": call, "compiled": fast}
        if device != "cpu":
            calls["graph"] = replayed(("graph", cached), call)
        seconds = measure_seconds(calls, rounds=rounds, device=device)
        best = seconds.get("graph", seconds["compiled"])
        cells = [interval(seconds[way]) if way in seconds else "–" for way in ("compiled", "graph")]
        rows.append([cached, interval(seconds["eager"]), *cells, ratios(seconds["eager"], best)])
    columns = ["cached", "eager", "compiled", "graph", "ratio"]
    return {
        "provenance": sizes(device, E=width, h=heads),
        "columns": columns,
        "units": dict.fromkeys(columns[1:4], "seconds"),
        "rows": rows,
    }


def of_one_request(made: Any) -> dict[str, Callable[[int], tuple[Callable, list[Tensor]]]]:
    """What a server computes: for a batch of so many, the function and all that it is given.

    The first request comes first in each tensor, with the same numbers in every batch.
    """
    width, heads = size_of(made["device"])
    weight = torch.randn(width, width, **made) / width**0.5
    most = max(BATCHES)

    def prefill(batch: int) -> tuple[Callable, list[Tensor]]:
        return partial(attention, is_causal=True), list(long[:, :batch, :, :256])

    def decode(batch: int) -> tuple[Callable, list[Tensor]]:
        query, key, value = long[:, :batch]
        return attention, [query[:, :, -1:], key, value]

    def product(tokens: int, batch: int) -> tuple[Callable, list[Tensor]]:
        return lambda x: F.linear(x, weight), [rows[:batch, :tokens]]

    # Drawn once for the largest batch, of which the smaller ones are the beginning.
    long = torch.randn(3, most, heads, 2048, width // heads, **made)
    rows = torch.randn(most, 256, width, **made)
    return {
        "`F.linear`, 1": partial(product, 1),
        "`F.linear`, 256": partial(product, 256),
        "SDPA, 1": decode,
        "SDPA, 256": prefill,
    }


@anywhere
@benchmark
def other_requests(rounds: int, device: str = "cpu") -> dict:
    """Which share of a request's numbers has other bits in a batch than alone.

    Counted over new random numbers in each round; the same call twice gives the same bits, or it is
    an error.
    """
    torch.set_num_threads(1)
    found: dict[tuple[str, str], list[list[float]]] = {}
    for _, dtype in itertools.product(range(rounds), (torch.float32, torch.bfloat16)):
        calls = of_one_request({"dtype": dtype, "device": device})
        for name, of_batch in calls.items():
            run, inputs = of_batch(1)
            alone = run(*inputs)
            # A kernel that gives other bits each time would be counted as if other requests had
            # done it.
            if not alone.equal(run(*inputs)):
                raise AssertionError(f"{name} gives other bits each time, without other requests")
            shares = found.setdefault((str(dtype)[6:], name), [[] for _ in BATCHES])
            for share, batch in zip(shares, BATCHES, strict=True):
                run, inputs = of_batch(batch)
                share.append((run(*inputs)[:1] != alone).double().mean().item())
    width, heads = size_of(device)
    return {
        "provenance": sizes(device, E=width, h=heads),
        "columns": ["numbers", "call", *(f"B = {batch}" for batch in BATCHES)],
        "units": {},
        "rows": [[*key, *map(interval, shares)] for key, shares in found.items()],
    }

"""Benchmarks of the package's own ways of computing the same, and of torch's beside them."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch._inductor.utils import fresh_cache
from torch.nn.attention.flex_attention import (
    BlockMask,
    and_masks,
    create_block_mask,
    flex_attention,
    or_masks,
)

from measuring.clock import check_close, check_equal, times
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
from mhattn import attention, merge_heads, split_heads
from mhattn.inside import circuit_core, measure_seconds, peak_bytes, spectrum
from mhattn.variants import (
    LearnedBias,
    RelativePosition,
    causal_mod,
    linear_attention,
    local_attention,
    strided_attention,
    strided_mod,
    window_block_mask,
    window_mod,
)

LONGEST, GPU_LONGEST = 16384, 65536  # texts of linear_time


def one_by_one(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Each head by itself, then all side by side; tensors are ``(B, H, L, D)``.

    A head keeps its axis: without it, torch takes a slower path.
    """
    heads = zip(*(x.split(1, dim=1) for x in (query, key, value)), strict=True)
    return torch.cat([attention(*head) for head in heads], dim=1)


@anywhere
@benchmark
def serial_heads(rounds: int, device: str = "cpu") -> dict:
    """The heads of one layer one after another, and all at once, at equal width."""
    rows, on_cpu = [], device == "cpu"
    width = EMBED_DIM if on_cpu else GPU_EMBED_DIM
    made: Any = {"dtype": number_type(device), "device": device}
    for length in (32, 256, 1024) if on_cpu else (256, 1024, 4096):
        x = torch.randn(3, 1, length, width, **made)
        for num_heads in (1, 2, 8, 32) if on_cpu else (16, 32, 64):
            heads = [split_heads(tensor, num_heads) for tensor in x]
            calls = {
                "serial": lambda heads=heads: merge_heads(one_by_one(*heads)),
                "parallel": lambda heads=heads: merge_heads(attention(*heads)),
            }
            check_equal(calls, rtol=1.3e-6, atol=1e-5)
            seconds = times(calls, rounds=rounds, device=device)
            serial, parallel = seconds["serial"], seconds["parallel"]
            ratio = ratios(serial, parallel)
            rows.append([length, num_heads, interval(serial), interval(parallel), ratio])
    return {
        "provenance": sizes(device, E=width),
        "columns": ["length", "heads", "serial", "parallel", "ratio"],
        "units": {"serial": "seconds", "parallel": "seconds"},
        "rows": rows,
    }


@anywhere
@benchmark
def linear_time(rounds: int, device: str = "cpu") -> dict:
    """Linear attention against the fused softmax attention, 8 heads of 64, over growing lengths.

    On a GPU 32 heads of 128, and longer.
    """
    rows = []
    num_heads, size = (8, 64) if device == "cpu" else (32, 128)
    longest = LONGEST if device == "cpu" else GPU_LONGEST
    made: Any = {"dtype": number_type(device), "device": device}
    for keys, is_causal in (("j ≤ n", False), ("j ≤ i", True)):
        for length in (longest >> 8, longest >> 6, longest >> 4, longest >> 2, longest):
            heads = torch.randn(3, 1, num_heads, length, size, **made)
            calls = {
                name: lambda run=run, heads=heads, is_causal=is_causal: run(
                    *heads, is_causal=is_causal
                )
                for name, run in (("softmax", attention), ("linear", linear_attention))
            }
            seconds = times(calls, rounds=rounds, device=device)
            softmax, linear = seconds["softmax"], seconds["linear"]
            ratio = ratios(linear, softmax)
            rows.append([keys, length, interval(softmax), interval(linear), ratio])
    columns = ["keys", "length", "softmax", "linear", "ratio"]
    return {
        "provenance": sizes(device, h=num_heads, d_k=size),
        "columns": columns,
        "units": dict.fromkeys(columns[2:4], "seconds"),
        "rows": rows,
    }


def flex_patterns(n: int, device: str) -> dict[str, tuple[BlockMask, Callable[..., torch.Tensor]]]:
    """For each pattern its block mask, and the package's own way to compute it."""
    near, far = window_mod(n, n, 64), strided_mod(n, n, 64)
    both = and_masks(causal_mod(n, n), or_masks(near, far))
    return {
        "j ≤ i": (
            window_block_mask(n, n, is_causal=True, device=device),
            lambda *x: attention(*x, is_causal=True),
        ),
        "w = 64": (
            window_block_mask(n, n, 64, is_causal=True, device=device),
            lambda *x: local_attention(*x, 64, is_causal=True),
        ),
        "w = r = 64": (
            create_block_mask(both, None, None, n, n, device=device),
            lambda *x: strided_attention(*x, 64, 64),
        ),
    }


@anywhere
@benchmark
def flex(rounds: int, device: str = "cpu") -> dict:
    """Compiled FlexAttention against the package, 8 heads of 64; needs a compiler.

    On a GPU 32 heads, and longer.
    """
    torch.set_num_threads(1)  # what is compiled for more threads is compiled again for one
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)  # never falls back
    rows, num_heads = [], 8 if device == "cpu" else 32
    made: Any = {"dtype": number_type(device), "device": device}
    for length in (1024, 4096) if device == "cpu" else (4096, 16384):
        heads = torch.randn(3, 1, num_heads, length, 64, **made)
        for pattern, (block_mask, ours) in flex_patterns(length, device).items():
            calls = {
                "ours": lambda ours=ours, heads=heads: ours(*heads),
                "flex": lambda heads=heads, block_mask=block_mask: compiled(
                    *heads, block_mask=block_mask
                ),
            }
            try:
                output = calls["flex"]()
            except torch._dynamo.exc.TorchDynamoException as error:
                why = "the benchmark flex needs a C++ compiler that torch.compile can use"
                raise RuntimeError(why) from error
            check_close(output, calls["ours"](), rtol=0, atol=1e-5)
            seconds = times(calls, rounds=rounds, device=device)
            package, function = seconds["ours"], seconds["flex"]
            ratio = ratios(function, package)
            rows.append([pattern, length, interval(package), interval(function), ratio])
    return {
        "provenance": sizes(device, h=num_heads, d_k=64),
        "columns": ["pattern", "length", "ours", "flex", "ratio"],
        "units": {"ours": "seconds", "flex": "seconds"},
        "rows": rows,
    }


@benchmark
def block_mask(rounds: int) -> dict:
    """Bytes of making a block mask in three ways, and seconds of compiling; needs a compiler.

    Bytes are counted, so once is enough; compiling is timed in each round, with empty caches.
    """

    def near(b, h, i, j):
        return (i >= j) & (i - j < 12)

    def compile_for(n: int) -> tuple[Callable[[], BlockMask], float]:
        torch.compiler.reset()
        compiled = torch.compile(create_block_mask, dynamic=False, fullgraph=True)
        with fresh_cache():
            start = perf_counter()
            compiled(near, None, None, n, n, "cpu")
            return lambda: compiled(near, None, None, n, n, "cpu"), perf_counter() - start

    compile_for(256)  # imports the compiler
    rows = []
    for n in (1024, 4096, 16384):
        compiled, *seconds = compile_for(n)
        for _ in range(1, rounds):
            compiled, again = compile_for(n)
            seconds.append(again)
        ways = {
            "as it stands": lambda n=n: create_block_mask(near, None, None, n, n, "cpu"),
            "compiled": compiled,
            "derived": lambda n=n: window_block_mask(n, n, 12, is_causal=True),
        }
        tables = [way().to_dense() for way in ways.values()]
        if not all(table.equal(tables[0]) for table in tables):
            raise AssertionError(f"the three block masks of {n} tokens differ")
        rows.append([n, *map(peak_bytes, ways.values()), interval(seconds)])
    columns = ["n", "as it stands", "compiled", "derived", "compiling"]
    units = dict.fromkeys(columns[1:4], "bytes") | {"compiling": "seconds"}
    return {"columns": columns, "units": units, "rows": rows}


@benchmark
def learned_bias(rounds: int) -> dict:
    """A bias for each distance from its table, against one that is stored, 8 heads of 64."""
    rows = []
    for length in (256, 1024, 4096):
        heads = torch.randn(3, 1, 8, length, 64)
        position = LearnedBias(8, length)
        nn.init.normal_(position.table)
        stored = position.bias(length, length)[None].contiguous()
        calls = {
            "plain": lambda heads=heads: attention(*heads),
            "stored": lambda heads=heads, stored=stored: attention(*heads, bias=stored),
            "table": lambda heads=heads, position=position: position.attend(*heads),
        }
        torch.testing.assert_close(calls["table"](), calls["stored"]())
        seconds = measure_seconds(calls, rounds=rounds)
        ratio = ratios(seconds["table"], seconds["stored"])
        rows.append([length, *(interval(seconds[name]) for name in calls), ratio])
    columns = ["length", "plain", "stored", "table", "ratio"]
    return {"columns": columns, "units": dict.fromkeys(columns[1:4], "seconds"), "rows": rows}


def vector_of_each_pair(
    position: RelativePosition, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """What `position` does, with a vector for each query and key, ``(L, S, D)``."""
    places, reach = torch.arange(query.shape[-2]), position.max_distance
    index = (places - places[:, None]).clamp(-reach, reach) + reach
    scores = torch.einsum("bhid,ijd->bhij", query, position.key_vectors[index])
    weights = ((query @ key.mT + scores) * query.shape[-1] ** -0.5).softmax(dim=-1)
    values = torch.einsum("bhij,ijd->bhid", weights, position.value_vectors[index])
    return weights @ value + values


@benchmark
def relative(rounds: int) -> dict:
    """Vectors for keys and values by distance, 8 heads of 64, distances up to 16."""
    rows = []
    for length in (256, 1024, 4096):
        heads = torch.randn(3, 1, 8, length, 64)
        position = RelativePosition(64, 16)
        calls = {
            "plain": lambda heads=heads: attention(*heads),
            "pairs": lambda heads=heads, p=position: vector_of_each_pair(p, *heads),
            "distances": lambda heads=heads, p=position: p.attend(*heads),
        }
        if length <= 1024:
            torch.testing.assert_close(calls["distances"](), calls["pairs"](), atol=1e-4, rtol=1e-4)
        else:  # would take gigabytes
            del calls["pairs"]
        seconds = measure_seconds(calls, rounds=rounds)
        ratio = {name: ratios(seconds[name], seconds["plain"]) for name in calls}
        times = (interval(seconds[name]) for name in ("plain", "distances"))
        rows.append([length, *times, ratio["distances"], ratio.get("pairs", "–")])
    columns = ["length", "plain", "distances", "ratio", "pairs"]
    return {"columns": columns, "units": dict.fromkeys(columns[1:3], "seconds"), "rows": rows}


@anywhere
@benchmark
def circuits(rounds: int, device: str = "cpu") -> dict:
    """The singular values of a head's QK circuit, head size 64, without and with the product."""
    rows = []
    for width in (256, 512, 1024):
        query, key = torch.randn(2, 64, width, device=device) / width**0.5
        calls = {
            "product": lambda q=query, k=key: torch.linalg.svdvals(q.T @ k),
            "core": lambda q=query, k=key: spectrum(circuit_core(q, k)).singular_values,
        }
        try:
            values, expected = calls["core"](), calls["product"]()[:64]
        except torch.linalg.LinAlgError as error:  # one of a GPU's solvers may not converge
            print(f"circuits, width {width}: {error}")
            rows.append([width, "–", "–", "–"])
            continue
        largest = expected.max()  # solvers of a GPU round more, always by a part of the largest
        atol = 1e-5 if device == "cpu" else 1e-4
        torch.testing.assert_close(values / largest, expected / largest, atol=atol, rtol=1e-4)
        seconds = times(calls, rounds=rounds, device=device)
        ratio = ratios(seconds["product"], seconds["core"])
        rows.append([width, *(interval(seconds[name]) for name in calls), ratio])
    columns = ["width", "product", "core", "ratio"]
    return {"columns": columns, "units": dict.fromkeys(columns[1:3], "seconds"), "rows": rows}

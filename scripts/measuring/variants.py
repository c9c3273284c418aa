"""Benchmarks of seven kinds of attention, in layers of one width: seconds, bytes, tokens a second.

`python scripts/measure.py variants --rounds 3` measures all that the page variants-compared shows,
with `--device cuda` on a GPU. Rounds of the decode benchmark are short; it can have more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from measuring.rounds import EMBED_DIM, anywhere, benchmark, quartiles
from mhattn import KVCache, MultiHeadAttention
from mhattn.core import LinearState
from mhattn.inside import measure_seconds, peak_bytes
from mhattn.variants import LatentAttention, linear_attention, local_attention, strided_attention

HEADS, WINDOW, STRIDE = 8, 128, 64
LATENT = {"kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
LENGTHS, CACHED, BATCHES = (256, 1024, 4096), (1024, 8192), (1, 16)
DTYPES = (torch.float32, torch.bfloat16)
CPU_TOKENS = 4096  # in one call; others would take many seconds
ALL_THREADS = torch.get_num_threads()
Call = Callable[[nn.Module, Tensor], Any]


def layers(dtype: torch.dtype, device: str) -> dict[str, nn.Module]:
    """One layer of each kind, all of one width, with eight heads and without biases."""
    made: dict[str, Any] = {"dtype": dtype, "device": device}
    heads = partial(MultiHeadAttention, EMBED_DIM, HEADS, bias=False, **made)
    window = partial(local_attention, window=WINDOW)
    strided = partial(strided_attention, window=STRIDE, stride=STRIDE)
    return {
        "MHA": heads(),
        "GQA": heads(num_kv_heads=2),
        "MQA": heads(num_kv_heads=1),
        "MLA": LatentAttention(EMBED_DIM, HEADS, **LATENT, **made),
        "window": heads(attend=window),
        "strided": heads(attend=strided),
        "linear": heads(attend=linear_attention),
    }


def forward(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x, is_causal=True)


def training(layer: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """Forward and backward, to the input and all parameters."""
    with torch.enable_grad():
        x = x.requires_grad_()
        output = layer(x, is_causal=True)
        return torch.autograd.grad(output, [x, *layer.parameters()], torch.ones_like(output))


def settings(device: str) -> list[tuple[torch.dtype, int, int]]:
    """Type of the numbers, threads, batch; on a GPU the threads have no say."""
    threads = sorted({1, ALL_THREADS}) if device == "cpu" else [1]
    return list(itertools.product(DTYPES, threads, BATCHES))


def labels(dtype: torch.dtype, threads: int, batch: int, kind: str) -> list:
    return [str(dtype).removeprefix("torch."), threads, batch, kind]


def about(asked: Iterable[tuple[torch.dtype, int, int]]) -> dict:
    """What overwrites the provenance: how many threads the rows have."""
    threads = sorted({threads for _, threads, _ in asked})
    return {"threads": threads[0] if len(threads) == 1 else ", ".join(map(str, threads))}


def lengths(batch: int, device: str) -> tuple[int, ...]:
    """A processor gets no more tokens at once than it computes in seconds."""
    most = CPU_TOKENS // batch if device == "cpu" else max(LENGTHS)
    return tuple(length for length in LENGTHS if length <= most)


def over_lengths(
    call: Call, rounds: int, device: str, asked: Sequence[tuple[torch.dtype, int, int]]
) -> dict:
    """Seconds of ``call``: a row for each kind in each setting, a column for each length."""
    rows = []
    for dtype, threads, batch in asked:
        kinds = layers(dtype, device)
        found = {kind: labels(dtype, threads, batch, kind) for kind in kinds}
        for length in lengths(batch, device):
            x = torch.randn(batch, length, EMBED_DIM, dtype=dtype, device=device)
            calls = {kind: partial(call, layer, x) for kind, layer in kinds.items()}
            seconds = measure_seconds(calls, rounds=rounds, num_threads=threads)
            for kind, row in found.items():
                row.append(quartiles(seconds[kind]))
        rows += [row + ["–"] * (4 + len(LENGTHS) - len(row)) for row in found.values()]
    columns = [f"n = {length}" for length in LENGTHS]
    return {
        "provenance": about(asked),
        "columns": ["type", "threads", "batch", "kind", *columns],
        "units": dict.fromkeys(columns, "seconds"),
        "rows": rows,
    }


@anywhere
@benchmark
def variants_forward(rounds: int, device: str = "cpu") -> dict:
    """A causal forward pass, without gradients."""
    return over_lengths(forward, rounds, device, settings(device))


@anywhere
@benchmark
def variants_training(rounds: int, device: str = "cpu") -> dict:
    """Forward and backward: of one sequence, with one thread."""
    return over_lengths(training, rounds, device, [(dtype, 1, 1) for dtype in DTYPES])


@anywhere
@benchmark
def variants_memory(rounds: int, device: str = "cpu") -> dict:
    """Parameters, and bytes at the peak of both passes: counted, so one round is enough."""
    rows = []
    for dtype in DTYPES:
        for kind, layer in layers(dtype, device).items():
            row = [str(dtype).removeprefix("torch."), kind]
            row.append(sum(p.numel() for p in layer.parameters()))
            for call, length in itertools.product((forward, training), LENGTHS):
                x = torch.randn(1, length, EMBED_DIM, dtype=dtype, device=device)
                row.append(peak_bytes(partial(call, layer, x), device))
            rows.append(row)
    columns = [f"{pass_}, n = {n}" for pass_ in ("forward", "training") for n in LENGTHS]
    units = dict.fromkeys(columns, "bytes")
    return {"columns": ["type", "kind", "parameters", *columns], "units": units, "rows": rows}


def remembered(layer: nn.Module, batch: int, length: int) -> KVCache | LinearState:
    """What a layer keeps of so many tokens, with room for one more: one random token many times."""
    like = next(layer.parameters())
    made: dict[str, Any] = {"dtype": like.dtype, "device": like.device}
    if isinstance(layer, LatentAttention):
        cache = KVCache(max_len=length + 1)
        width = layer.kv_lora_rank + layer.qk_rope_head_dim
        kept = torch.randn(width, **made).expand(batch, 1, length, -1)
        cache.append(kept, kept[..., :0])
        return cache
    if layer.attend is linear_attention:
        state = LinearState()
        layer(torch.randn(batch, 64, EMBED_DIM, **made), is_causal=True, cache=state)
        return state
    if isinstance(layer.attend, partial):  # with a window; more tokens than that are not kept
        cache, length = KVCache(window=WINDOW), WINDOW
    else:
        cache = KVCache(max_len=length + 1)
    key, value = torch.randn(2, layer.head_dim, **made)
    shape = batch, layer.num_kv_heads, length, layer.head_dim
    cache.append(key.expand(shape), value.expand(shape))
    return cache


def step(layer: nn.Module, x: Tensor, cache: KVCache | LinearState, length: int) -> Tensor:
    """One token more; then it is forgotten, so that the next step is the same."""
    output = layer(x, is_causal=True, cache=cache)
    if isinstance(cache, KVCache) and cache.window is None:
        cache.crop(length)
    return output


def steps(
    kinds: Mapping[str, nn.Module], batch: int, length: int
) -> dict[str, Callable[[], Tensor]]:
    """A step of each kind; that with a stride keeps all tokens, to use a few: it is left out."""
    like = next(kinds["MHA"].parameters())
    x = torch.randn(batch, 1, EMBED_DIM, dtype=like.dtype, device=like.device)
    return {
        kind: partial(step, layer, x, remembered(layer, batch, length), length)
        for kind, layer in kinds.items()
        if kind != "strided"
    }


@anywhere
@benchmark
def variants_decode(rounds: int, device: str = "cpu") -> dict:
    """Tokens a second of generating, all sequences together, with so many tokens in the cache."""
    rows = []
    for setting in settings(device):
        dtype, threads, batch = setting
        kinds = layers(dtype, device)
        found: dict[str, list[list[float]]] = {kind: [] for kind in kinds if kind != "strided"}
        for length in CACHED:
            calls = steps(kinds, batch, length)
            seconds = measure_seconds(calls, rounds=rounds, num_threads=threads)
            for kind in calls:
                found[kind].append(quartiles([batch / t for t in seconds[kind]]))
        rows += [[*labels(*setting, kind), *rates] for kind, rates in found.items()]
    return {
        "provenance": about(settings(device)),
        "columns": ["type", "threads", "batch", "kind", *(f"S = {length}" for length in CACHED)],
        "units": {},
        "rows": rows,
    }

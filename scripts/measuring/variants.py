"""Benchmarks of seven kinds of attention, in layers of one width: seconds, bytes, tokens a second.

`python scripts/measure.py variants` measures all that the page variants-compared shows, with
`--device cuda` on a GPU, where layers are larger and texts longer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from measuring.clock import times
from measuring.rounds import EMBED_DIM, GPU_EMBED_DIM, anywhere, benchmark, interval, sizes
from mhattn import KVCache, MultiHeadAttention
from mhattn.core import LinearState
from mhattn.inside import peak_bytes
from mhattn.variants import LatentAttention, linear_attention, local_attention, strided_attention


class Sizes(NamedTuple):
    """Of the layers and of what they are given."""

    width: int
    heads: int
    grouped: int  # heads of keys and values in GQA
    latent: Mapping[str, int]
    window: int
    stride: int
    lengths: tuple[int, ...]
    cached: tuple[int, ...]
    batches: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]
    tokens: int  # in one call; more would take too long, or too much memory


LATENT = {"kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
GPU_LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
BOTH = (torch.float32, torch.bfloat16)
SIZES = {
    "cpu": Sizes(
        *(EMBED_DIM, 8, 2, LATENT, 128, 64),
        *((256, 1024, 4096), (1024, 8192), (1, 16), BOTH, 4096),
    ),
    "gpu": Sizes(
        *(GPU_EMBED_DIM, 32, 8, GPU_LATENT, 1024, 128),
        *((1024, 4096, 16384), (8192, 32768), (1, 16), (torch.bfloat16,), 65536),
    ),
}
ALL_THREADS = torch.get_num_threads()
Call = Callable[[nn.Module, Tensor], Any]


def of(device: str) -> Sizes:
    return SIZES["cpu" if device == "cpu" else "gpu"]


def layers(dtype: torch.dtype, device: str) -> dict[str, nn.Module]:
    """One layer of each kind, all of one width, with as many heads and without biases."""
    made: dict[str, Any] = {"dtype": dtype, "device": device}
    size = of(device)
    heads = partial(MultiHeadAttention, size.width, size.heads, bias=False, **made)
    window = partial(local_attention, window=size.window)
    strided = partial(strided_attention, window=size.stride, stride=size.stride)
    return {
        "MHA": heads(),
        "GQA": heads(num_kv_heads=size.grouped),
        "MQA": heads(num_kv_heads=1),
        "MLA": LatentAttention(size.width, size.heads, **size.latent, **made),
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
    return list(itertools.product(of(device).dtypes, threads, of(device).batches))


def labels(dtype: torch.dtype, threads: int, batch: int, kind: str) -> list:
    return [str(dtype).removeprefix("torch."), threads, batch, kind]


def about(asked: Iterable[tuple[torch.dtype, int, int]], device: str) -> dict:
    """What overwrites the provenance: the sizes, and how many threads the rows have."""
    threads, size = sorted({threads for _, threads, _ in asked}), of(device)
    told = sizes(device, E=size.width, h=size.heads)
    return told | {"threads": threads[0] if len(threads) == 1 else ", ".join(map(str, threads))}


def lengths(batch: int, device: str) -> tuple[int, ...]:
    """A device gets no more tokens at once than it computes in seconds."""
    most = of(device).tokens // batch
    return tuple(length for length in of(device).lengths if length <= most)


def over_lengths(
    call: Call, rounds: int, device: str, asked: Sequence[tuple[torch.dtype, int, int]]
) -> dict:
    """Seconds of ``call``: a row for each kind in each setting, a column for each length."""
    rows = []
    for dtype, threads, batch in asked:
        kinds = layers(dtype, device)
        found = {kind: labels(dtype, threads, batch, kind) for kind in kinds}
        for length in lengths(batch, device):
            x = torch.randn(batch, length, of(device).width, dtype=dtype, device=device)
            calls = {kind: partial(call, layer, x) for kind, layer in kinds.items()}
            seconds = times(calls, rounds=rounds, device=device, num_threads=threads)
            for kind, row in found.items():
                row.append(interval(seconds[kind]))
        rows += [row + ["–"] * (4 + len(of(device).lengths) - len(row)) for row in found.values()]
    columns = [f"n = {length}" for length in of(device).lengths]
    return {
        "provenance": about(asked, device),
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
    return over_lengths(training, rounds, device, [(dtype, 1, 1) for dtype in of(device).dtypes])


@anywhere
@benchmark
def variants_memory(rounds: int, device: str = "cpu") -> dict:
    """Parameters, and bytes at the peak of both passes: counted, so one round is enough."""
    rows, size = [], of(device)
    for dtype in size.dtypes:
        for kind, layer in layers(dtype, device).items():
            row = [str(dtype).removeprefix("torch."), kind]
            row.append(sum(p.numel() for p in layer.parameters()))
            for call, length in itertools.product((forward, training), size.lengths):
                x = torch.randn(1, length, size.width, dtype=dtype, device=device)
                row.append(peak_bytes(partial(call, layer, x), device))
            rows.append(row)
    columns = [f"{pass_}, n = {n}" for pass_ in ("forward", "training") for n in size.lengths]
    return {
        "provenance": sizes(device, E=size.width, h=size.heads),
        "columns": ["type", "kind", "parameters", *columns],
        "units": dict.fromkeys(columns, "bytes"),
        "rows": rows,
    }


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
        layer(torch.randn(batch, 64, layer.q_proj.in_features, **made), is_causal=True, cache=state)
        return state
    if isinstance(layer.attend, partial):  # with a window; more tokens than that are not kept
        length = layer.attend.keywords["window"]
        cache = KVCache(window=length)
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
    x = torch.randn(batch, 1, kinds["MHA"].q_proj.in_features, dtype=like.dtype, device=like.device)
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
        for length in of(device).cached:
            calls = steps(kinds, batch, length)
            seconds = times(calls, rounds=rounds, device=device, num_threads=threads)
            for kind in calls:
                found[kind].append(interval([batch / t for t in seconds[kind]]))
        rows += [[*labels(*setting, kind), *rates] for kind, rates in found.items()]
    return {
        "provenance": about(settings(device), device),
        "columns": ["type", "threads", "batch", "kind", *(f"S = {n}" for n in of(device).cached)],
        "units": {},
        "rows": rows,
    }

"""Benchmarks of the package beside others, each with outputs checked equal before any is timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from mhsite.folders import DOCS, ROOT
from mhsite.stories import models
from torch import Tensor, nn

from measuring import peers as builders
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
from mhattn import (
    KVCache,
    MultiHeadAttention,
    attention,
    causal_mask,
    pack_linears,
    strided_mask,
    window_mask,
)
from mhattn.costs import attention_cost
from mhattn.inside import measure_seconds, peak_bytes
from mhattn.models import load_gguf
from mhattn.variants import local_attention, strided_attention

ROUNDING = 2.0**-24  # of a float32: the largest error, relative to the number
HEADS, LENGTHS = 8, (128, 1024, 4096)
GPU_HEADS, GPU_LENGTHS = 32, (512, 2048, 8192)
KEEP = {"MALLOC_MMAP_THRESHOLD_": str(2**33), "MALLOC_TRIM_THRESHOLD_": str(2**33)}
Call = Callable[[], Any]


def timed(calls: Mapping[str, Call], rounds: int, device: str = "cpu") -> dict[str, list[float]]:
    check_equal(calls)
    return times(calls, rounds=rounds, device=device)


def all_layers(ours: MultiHeadAttention) -> dict[str, nn.Module]:
    """Ours, and everybody's with the same weights; by hand comes first."""
    return {
        "`scaled_dot_product_attention`": builders.sdpa(ours),
        "`mhattn.MultiHeadAttention`": ours,
        "`torch.nn.MultiheadAttention`": builders.torch_module(ours),
        "transformers, `sdpa`": builders.bert(ours, "sdpa"),
        "transformers, `eager`": builders.bert(ours, "eager"),
        "x-transformers, `flash=True`": builders.x_transformers(ours, flash=True),
        "x-transformers, `flash=False`": builders.x_transformers(ours),
        "`scores.softmax(-1) @ value`": builders.naive(ours),
    }


def layer_calls(
    layers: Mapping[str, nn.Module], length: int, training: bool, device: str = "cpu"
) -> dict[str, Call]:
    """Forward passes, or forward and backward down to the parameters and the input."""
    weight = next(iter(layers.values())).out_proj.weight
    made: Any = {"dtype": weight.dtype, "device": device}
    x = torch.randn(1, length, len(weight), requires_grad=training, **made)
    if not training:
        return {name: lambda layer=layer: layer(x) for name, layer in layers.items()}
    output_grad = torch.randn(1, length, len(weight), **made)

    def both(layer: nn.Module) -> Tensor:
        with torch.enable_grad():
            wanted = [x, *layer.parameters()]
            return torch.autograd.grad(layer(x), wanted, output_grad)[0]

    return {name: lambda layer=layer: both(layer) for name, layer in layers.items()}


def beside_by_hand(
    layers: Mapping[str, nn.Module], rounds: int, training: bool, device: str
) -> dict:
    """A row for each layer: its time over that of SDPA by hand, at each length.

    Gradients are compared in float32: in half precision, those of the written-out form are off by
    hundredths of their length, the more the longer the text.
    """
    by_hand, *others = layers
    lengths = LENGTHS if device == "cpu" else GPU_LENGTHS
    if device != "cpu":
        for layer in layers.values():
            layer.to(device)
        check_equal(layer_calls(layers, lengths[0], training, device))
        for layer in layers.values():
            layer.to(number_type(device))
    rows: dict[str, list] = {name: [name] for name in others}
    for length in lengths:
        calls = layer_calls(layers, length, training, device)
        if device == "cpu" or not training:
            check_equal(calls)
        seconds = times(calls, rounds=rounds, device=device)
        for name, row in rows.items():
            row.append(ratios(seconds[name], seconds[by_hand]))
    return {
        "provenance": sizes(device, E=GPU_EMBED_DIM, h=GPU_HEADS),
        "columns": ["layer", *(f"n = {length}" for length in lengths)],
        "units": {},
        "rows": list(rows.values()),
    }


def random_layer(device: str = "cpu") -> MultiHeadAttention:
    """With biases that are not zero, so that a lost one shows; of the size that a device gets."""
    size = (EMBED_DIM, HEADS) if device == "cpu" else (GPU_EMBED_DIM, GPU_HEADS)
    layer = MultiHeadAttention(*size)
    for parameter in layer.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter)
    return layer


@anywhere
@benchmark
def peers(rounds: int, device: str = "cpu") -> dict:
    """One layer, forward, as different libraries do it."""
    torch.set_num_threads(1)  # what is compiled for more threads is compiled again for one
    layers = all_layers(random_layer(device).eval())
    ours = layers["`mhattn.MultiHeadAttention`"]
    if device == "cpu":
        layers["`mhattn.pack_linears`"] = pack_linears(ours)
    layers["`flex_attention`"] = builders.flex(ours)
    return beside_by_hand(layers, rounds, training=False, device=device)


@anywhere
@benchmark
def peers_training(rounds: int, device: str = "cpu") -> dict:
    """The same, forward and backward; FlexAttention has no backward pass on a CPU."""
    layers = all_layers(random_layer(device))
    if device != "cpu":
        layers["`flex_attention`"] = builders.flex(layers["`mhattn.MultiHeadAttention`"])
    return beside_by_hand(layers, rounds, training=True, device=device)


@benchmark
def peers_weights(rounds: int) -> dict:
    """With the weights returned: ours and torch's."""
    ours = random_layer().eval()
    theirs = ours.to_torch()
    rows = []
    for length in LENGTHS:
        x = torch.randn(1, length, EMBED_DIM)
        calls = {
            "ours": lambda x=x: ours(x, return_weights=True),
            "theirs": lambda x=x: theirs(x, x, x, average_attn_weights=False),
        }
        for found, expected in zip(*(call() for call in calls.values()), strict=True):
            check_close(found, expected, rtol=1e-3, atol=1e-4)  # outputs, then weights
        seconds = times(calls, rounds=rounds)
        both = seconds["ours"], seconds["theirs"]
        rows.append([length, *map(interval, both), ratios(*both)])
    columns = ["length", "ours", "theirs", "ratio"]
    return {"columns": columns, "units": dict.fromkeys(columns[1:3], "seconds"), "rows": rows}


@anywhere
@benchmark
def peak_memory(rounds: int, device: str = "cpu") -> dict:
    """Bytes of a forward pass at their peak: counted, not measured, so one round is enough."""
    made: Any = {"dtype": number_type(device), "device": device}
    ours = random_layer().eval()
    naive = builders.naive(ours).to(**made)
    ours.to(**made)
    rows = []
    for length in (512, 1024, 2048, 4096, 8192):
        x = torch.randn(1, length, EMBED_DIM, **made)
        fused, written = (peak_bytes(lambda f=f, x=x: f(x), device) for f in (ours, naive))
        rows.append([length, fused, written, float(f"{written / fused:.4g}")])
    return {
        "provenance": sizes(device, E=EMBED_DIM, h=HEADS),
        "columns": ["length", "fused", "written out", "ratio"],
        "units": {"fused": "bytes", "written out": "bytes"},
        "rows": rows,
    }


@benchmark
def machine_limit(rounds: int) -> dict:
    """FLOPs a second of large products, by BLAS and by oneDNN, and of our layer."""
    size, layer = 2048, random_layer().eval()
    a, b = torch.randn(2, size, size) / size**0.5
    packed = b.to_mkldnn()
    products: dict[tuple[str, int], Call] = {
        ("BLAS", size): lambda: F.linear(a, b),
        ("oneDNN", size): lambda: F.linear(a.to_mkldnn(), packed).to_dense(),
    }
    check_equal(products)
    calls, flops = dict(products), dict.fromkeys(products, 2 * size**3)
    for n in LENGTHS:
        x, key = torch.randn(1, n, EMBED_DIM), ("`MultiHeadAttention`", n)
        calls[key] = lambda x=x: layer(x)
        sizes = {"embed_dim": EMBED_DIM, "num_heads": HEADS, "query_len": n, "key_len": n}
        flops[key] = attention_cost(**sizes).flops
    seconds = measure_seconds(calls, rounds=rounds)
    rates = {key: [flops[key] / t for t in seconds[key]] for key in calls}
    best = max(products, key=lambda key: interval(rates[key])[0])
    rows = [[*key, interval(rate), ratios(rate, rates[best])] for key, rate in rates.items()]
    columns = ["call", "n", "rate", "share"]
    return {"columns": columns, "units": {"rate": "flops_per_second"}, "rows": rows}


@benchmark
def cache_append(rounds: int) -> dict:
    """A step with a cache of 8192 tokens: none appended, in place, and by a copy of all."""
    query, key, value = torch.randn(3, 1, 32, 1, 64)
    old = torch.randn(2, 1, 32, 8191, 64)
    held = [torch.cat([x, y], dim=2) for x, y in zip(old, (key, value), strict=True)]
    cache = KVCache(max_len=2 * 8192)
    cache.append(*torch.zeros(2, 1, 32, cache.max_len, 64))  # no page is new to a later step
    cache.reset()
    cache.append(*old)

    def in_place() -> Tensor:
        if len(cache) == cache.max_len:
            cache.reset()
            cache.append(*old)
        keys, values = cache.append(key, value)
        return attention(query, keys[:, :, -8192:], values[:, :, -8192:])

    def by_copy() -> Tensor:
        pairs = zip(old, (key, value), strict=True)
        return attention(query, *(torch.cat(pair, dim=2) for pair in pairs))

    calls = {
        "–": lambda: attention(query, *held),
        "`KVCache.append`": in_place,
        "`torch.cat`": by_copy,
    }
    seconds = timed(calls, rounds)
    rows = [[name, interval(s), ratios(s, seconds["–"])] for name, s in seconds.items()]
    return {
        "columns": ["append", "seconds", "ratio"],
        "units": {"seconds": "seconds"},
        "rows": rows,
    }


@anywhere
@benchmark
def sparse_time(rounds: int, device: str = "cpu") -> dict:
    """A causal window of 64, alone and with a stride of 32, against SDPA with a mask."""
    rows = []
    for stride in (None, 32):
        for length in (4096, 16384):
            heads = torch.randn(3, 1, HEADS, length, 64, dtype=number_type(device), device=device)
            mask = window_mask(length, length, 64, device=device)
            run = lambda *x: local_attention(*x, 64, is_causal=True)  # noqa: E731
            if stride is not None:
                mask = mask | strided_mask(length, length, stride, device=device)
                run = lambda *x, r=stride: strided_attention(*x, 64, r)  # noqa: E731
            mask = mask & causal_mask(length, device=device)
            calls = {
                "masked": lambda h=heads, m=mask: F.scaled_dot_product_attention(*h, m),
                "blocks": lambda h=heads, run=run: run(*h),
            }
            seconds = timed(calls, rounds, device)
            both = seconds["masked"], seconds["blocks"]
            rows.append([stride or "–", length, *map(interval, both), ratios(*both[::-1])])
    return {
        "provenance": sizes(device),
        "columns": ["stride", "length", "masked", "blocks", "ratio"],
        "units": {"masked": "seconds", "blocks": "seconds"},
        "rows": rows,
    }


@benchmark
def language_model(rounds: int) -> dict:
    """SmolLM2 in our layers and in transformers' model: the largest differences in each text."""
    torch.set_num_threads(1)
    path = next(models.fetch(model) for model in models.known() if model.path.suffix == ".gguf")
    (ours, tokenizer), theirs = load_gguf(path), builders.llama_from_gguf(path)
    text = (DOCS / "data" / "texts" / "alice.en.txt").read_text(encoding="utf-8")
    tokens = torch.tensor(tokenizer.encode(text).ids)
    rows: list[list] = [["`logits`", [], []], ["`weights`", [], []]]
    for piece in tokens[: rounds * 128].view(rounds, 1, 128):
        expected = theirs(piece, output_attentions=True)
        weights = torch.stack(expected.attentions, dim=1)  # (1, layers, H, L, S)
        pairs = zip(ours(piece, return_weights=True), (expected.logits, weights), strict=True)
        for row, (found, wanted) in zip(rows, pairs, strict=True):
            difference = (found - wanted).abs().max().item()
            row[1].append(difference)
            row[2].append(difference / (wanted.abs().max().item() * ROUNDING))
    columns = ["compared", "difference", "roundings"]
    return {
        "columns": columns,
        "units": {},
        "rows": [[name, *map(interval, measured)] for name, *measured in rows],
    }


@benchmark
def allocator(rounds: int) -> dict:
    """Ours and the written-out form with fresh memory for every table, and with memory kept."""
    rows = []
    for kept, more in (("–", {}), ("✓", KEEP)):
        others = {name: value for name, value in os.environ.items() if name not in KEEP}
        command = [sys.executable, "-m", "measuring.comparisons", str(rounds)]
        done = subprocess.run(
            command,
            cwd=ROOT / "scripts",
            env=others | more,
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        for length, *both in json.loads(done.stdout):
            rows.append([kept, length, *map(interval, both), ratios(*both[::-1])])
    columns = ["kept", "length", "fused", "written out", "ratio"]
    return {"columns": columns, "units": dict.fromkeys(columns[2:4], "seconds"), "rows": rows}


def under_this_allocator(rounds: int) -> list[list]:
    """What `allocator` runs in processes of their own, since malloc reads its settings once."""
    torch.manual_seed(0)
    ours = random_layer().eval()
    layers = {"fused": ours, "written out": builders.naive(ours)}
    found = []
    with torch.no_grad():
        for length in (1024, 4096):
            seconds = timed(layer_calls(layers, length, training=False), rounds)
            found.append([length, *seconds.values()])
    return found


if __name__ == "__main__":
    print(json.dumps(under_this_allocator(int(sys.argv[1]))))

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
from mhsite import models
from mhsite.source import DOCS, ROOT
from torch import Tensor, nn

from measuring import peers as builders
from measuring.rounds import EMBED_DIM, anywhere, benchmark, quartiles, ratios
from mhattn import (
    KVCache,
    MultiHeadAttention,
    attention,
    causal_mask,
    pack_linears,
    strided_mask,
    window_mask,
)
from mhattn.core.fused import two_products
from mhattn.costs import attention_cost, latent_multiplications
from mhattn.inside import measure_seconds, peak_bytes
from mhattn.models import load_gguf
from mhattn.variants import latent_attention, local_attention, strided_attention

ROUNDING = 2.0**-24  # of a float32: the largest error, relative to the number
HEADS, LENGTHS = 8, (128, 1024, 4096)
KEEP = {"MALLOC_MMAP_THRESHOLD_": str(2**33), "MALLOC_TRIM_THRESHOLD_": str(2**33)}
Call = Callable[[], Any]


def check_equal(calls: Mapping[Any, Call], atol: float = 1e-4) -> None:
    """All return the same, or nothing is timed."""
    first, *others = calls.values()
    expected = first()
    for other in others:
        torch.testing.assert_close(other(), expected, rtol=1e-3, atol=atol)


def timed(calls: Mapping[str, Call], rounds: int) -> dict[str, list[float]]:
    check_equal(calls)
    return measure_seconds(calls, rounds=rounds)


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


def layer_calls(layers: Mapping[str, nn.Module], length: int, training: bool) -> dict[str, Call]:
    """Forward passes, or forward and backward down to the parameters and the input."""
    x = torch.randn(1, length, EMBED_DIM, requires_grad=training)
    if not training:
        return {name: lambda layer=layer: layer(x) for name, layer in layers.items()}
    output_grad = torch.randn(1, length, EMBED_DIM)

    def both(layer: nn.Module) -> Tensor:
        with torch.enable_grad():
            wanted = [x, *layer.parameters()]
            return torch.autograd.grad(layer(x), wanted, output_grad)[0]

    return {name: lambda layer=layer: both(layer) for name, layer in layers.items()}


def beside_by_hand(layers: Mapping[str, nn.Module], rounds: int, training: bool) -> dict:
    """A row for each layer: its time over that of SDPA by hand, at each length."""
    by_hand, *others = layers
    rows: dict[str, list] = {name: [name] for name in others}
    for length in LENGTHS:
        seconds = timed(layer_calls(layers, length, training), rounds)
        for name, row in rows.items():
            row.append(ratios(seconds[name], seconds[by_hand]))
    columns = ["layer", *(f"n = {length}" for length in LENGTHS)]
    return {"columns": columns, "units": {}, "rows": list(rows.values())}


def random_layer() -> MultiHeadAttention:
    """With biases that are not zero, so that a lost one shows."""
    layer = MultiHeadAttention(EMBED_DIM, HEADS)
    for parameter in layer.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter)
    return layer


@benchmark
def peers(rounds: int) -> dict:
    """One layer, forward, as different libraries do it."""
    torch.set_num_threads(1)  # what is compiled for more threads is compiled again for one
    layers = all_layers(random_layer().eval())
    ours = layers["`mhattn.MultiHeadAttention`"]
    layers["`mhattn.pack_linears`"] = pack_linears(ours)
    layers["`flex_attention`"] = builders.flex(ours)
    return beside_by_hand(layers, rounds, training=False)


@benchmark
def peers_training(rounds: int) -> dict:
    """The same, forward and backward; FlexAttention has no backward pass on a CPU."""
    return beside_by_hand(all_layers(random_layer()), rounds, training=True)


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
        seconds = timed(calls, rounds)
        both = seconds["ours"], seconds["theirs"]
        rows.append([length, *map(quartiles, both), ratios(*both)])
    columns = ["length", "ours", "theirs", "ratio"]
    return {"columns": columns, "units": dict.fromkeys(columns[1:3], "seconds"), "rows": rows}


@benchmark
def peak_memory(rounds: int) -> dict:
    """Bytes of a forward pass at their peak: counted, not measured, so one round is enough."""
    ours = random_layer().eval()
    naive = builders.naive(ours)
    rows = []
    for length in (512, 1024, 2048, 4096, 8192):
        x = torch.randn(1, length, EMBED_DIM)
        fused, written = (peak_bytes(lambda f=f, x=x: f(x)) for f in (ours, naive))
        rows.append([length, fused, written, float(f"{written / fused:.4g}")])
    columns = ["length", "fused", "written out", "ratio"]
    return {"columns": columns, "units": dict.fromkeys(columns[1:3], "bytes"), "rows": rows}


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
    best = max(products, key=lambda key: quartiles(rates[key])[0])
    rows = [[*key, quartiles(rate), ratios(rate, rates[best])] for key, rate in rates.items()]
    columns = ["call", "n", "rate", "share"]
    return {"columns": columns, "units": {"rate": "flops_per_second"}, "rows": rows}


def roofline_calls(
    cached: int = 8192, side: int = 2048, lengths: tuple[int, ...] = (64, 512, 2048)
) -> dict[tuple[str, Any], tuple[Call, int, int]]:
    """Calls with their FLOPs and the bytes that they must read or write at least once.

    Every decode step reads caches of 128 MiB, far more than a processor keeps near itself: the
    fewer heads a cache has, the more sequences there are.
    """
    heads, size = 32, 64
    numbers = 2 * heads * cached * size
    row, a, b = torch.randn(numbers), *torch.randn(2, side, side)
    calls: dict[tuple[str, Any], tuple[Call, int, int]] = {
        ("`x.sum()`", "–"): (row.sum, numbers, row.nbytes),
        ("`F.linear`", side): (lambda: F.linear(a, b), 2 * side**3, 3 * a.nbytes),
    }

    def attend(name: str, batch: int, kv_heads: int, queries: int, keys: int) -> None:
        query = torch.randn(batch, heads, queries, size)
        kept = torch.randn(2, batch, kv_heads, keys, size)
        sizes = {"query_len": queries, "key_len": keys, "batch": batch, "num_kv_heads": kv_heads}
        cost = attention_cost(heads * size, heads, **sizes)
        flops = cost["scores"].flops + cost["mix"].flops
        moved = 2 * query.nbytes + kept.nbytes
        calls[name, queries] = lambda: attention(query, *kept), flops, moved

    for name, kv_heads in (("MHA", 32), ("GQA-8", 8), ("MQA", 1)):
        attend(name, heads // kv_heads, kv_heads, 1, cached)
    latent = {"kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
    batch = numbers // (cached * (128 + 32))
    query, kept = torch.randn(batch, heads, 1, 64 + 32), torch.randn(batch, 1, cached, 128 + 32)
    key_up, value_up = torch.randn(2, heads, size, 128)
    each = latent_multiplications(1, cached, **latent, v_head_dim=size, absorb=True)
    output = 4 * batch * heads * size
    moved = query.nbytes + kept.nbytes + key_up.nbytes + value_up.nbytes + output
    calls["MLA", 1] = (
        lambda: latent_attention(query, kept, key_up, value_up, absorb=True),
        2 * batch * heads * each,
        moved,
    )
    for length in lengths:
        attend("MHA", 1, heads, length, length)
    return calls


@benchmark
def roofline(rounds: int) -> dict:
    """FLOPs and bytes a second of decode and prefill, beside those of a product and of a sum."""
    torch.set_num_threads(1)
    counted = roofline_calls()
    seconds = measure_seconds({key: call for key, (call, *_) in counted.items()}, rounds=rounds)
    rates = {key: [counted[key][1] / t for t in seconds[key]] for key in counted}
    traffic = {key: [counted[key][2] / t for t in seconds[key]] for key in counted}
    read, product, *_ = counted
    rows = []
    for key, (_, flops, moved) in counted.items():
        intensity = flops / moved
        roof = [min(p, intensity * w) for p, w in zip(rates[product], traffic[read], strict=True)]
        numbers = quartiles(rates[key]), quartiles(traffic[key]), ratios(rates[key], roof)
        rows.append([*key, float(f"{intensity:.4g}"), *numbers])
    columns = ["call", "queries", "intensity", "rate", "traffic", "share"]
    units = {"rate": "flops_per_second", "traffic": "bytes_per_second"}
    return {"columns": columns, "units": units, "rows": rows}


@anywhere
@benchmark
def decode(rounds: int, device: str = "cpu") -> dict:
    """One new token, 32 query heads, 8192 tokens in the cache, fewer and fewer of its heads.

    All beside SDPA with 32 heads in float32.
    """
    query = torch.randn(1, 32, 1, 64, device=device)
    whole = torch.randn(2, 1, 32, 8192, 64, device=device)
    calls: dict[Any, Call] = {}
    for dtype in (torch.float32, torch.bfloat16):
        for heads in (32, 8, 1):
            pair = query.to(dtype), *whole[:, :, :heads].to(dtype).contiguous()
            ways: dict[Any, Call] = {
                (dtype, heads, "ours"): lambda pair=pair: attention(*pair),
                (dtype, heads, "sdpa"): lambda pair=pair: by_enable_gqa(*pair),
                (dtype, heads, "products"): lambda pair=pair: by_products(*pair),
            }
            check_equal(ways, atol=1e-4 if dtype == torch.float32 else 1e-2)
            calls |= ways
    seconds = measure_seconds(calls, rounds=rounds)
    full = seconds[torch.float32, 32, "sdpa"]
    rows = []
    for dtype, heads, way in calls:
        if way == "ours":
            times = [seconds[dtype, heads, way] for way in ("ours", "sdpa", "products")]
            name = str(dtype).removeprefix("torch.")
            rows.append([name, heads, quartiles(times[0]), *(ratios(t, full) for t in times)])
    columns = ["numbers", "heads", "seconds", "ours", "enable_gqa", "products"]
    return {"columns": columns, "units": {"seconds": "seconds"}, "rows": rows}


def by_enable_gqa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def by_products(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """With the query heads of a group as rows, as if there were few of them and many keys."""
    rows = query.unflatten(1, (key.shape[1], -1)).flatten(2, 3)  # (B, H_kv, group, D)
    return two_products(rows, key, value).reshape(query.shape)


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
    rows = [[name, quartiles(s), ratios(s, seconds["–"])] for name, s in seconds.items()]
    return {
        "columns": ["append", "seconds", "ratio"],
        "units": {"seconds": "seconds"},
        "rows": rows,
    }


@benchmark
def sparse_time(rounds: int) -> dict:
    """A causal window of 64, alone and with a stride of 32, against SDPA with a mask."""
    rows = []
    for stride in (None, 32):
        for length in (4096, 16384):
            heads = torch.randn(3, 1, HEADS, length, 64)
            mask = window_mask(length, length, 64)
            run = lambda *x: local_attention(*x, 64, is_causal=True)  # noqa: E731
            if stride is not None:
                mask = mask | strided_mask(length, length, stride)
                run = lambda *x, r=stride: strided_attention(*x, 64, r)  # noqa: E731
            mask = mask & causal_mask(length)
            calls = {
                "masked": lambda h=heads, m=mask: F.scaled_dot_product_attention(*h, m),
                "blocks": lambda h=heads, run=run: run(*h),
            }
            seconds = timed(calls, rounds)
            both = seconds["masked"], seconds["blocks"]
            rows.append([stride or "–", length, *map(quartiles, both), ratios(*both[::-1])])
    columns = ["stride", "length", "masked", "blocks", "ratio"]
    return {"columns": columns, "units": dict.fromkeys(columns[2:4], "seconds"), "rows": rows}


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
        "rows": [[name, *map(quartiles, measured)] for name, *measured in rows],
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
            rows.append([kept, length, *map(quartiles, both), ratios(*both[::-1])])
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

"""Benchmarks of attention itself, without layers around it: all its kernels, on any device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from measuring.clock import check_equal, kernels, times
from measuring.rounds import anywhere, benchmark, interval, number_type, ratios, sizes
from mhattn import attention
from mhattn.core.fused import two_products
from mhattn.costs import attention_cost, latent_multiplications
from mhattn.variants import latent_attention

Call = Callable[[], Any]


class Roof(NamedTuple):
    """Sizes of the calls below a roof.

    Every decode step reads far more than a processor keeps near itself: 128 MiB on a CPU, 2 GiB on
    a GPU. The fewer heads a cache has, the more sequences there are.
    """

    cached: int = 8192
    sequences: int = 1  # with 32 heads in the cache
    head_dim: int = 64
    side: int = 2048
    lengths: tuple[int, ...] = (64, 512, 2048)
    latent: tuple[int, int] = (128, 32)  # the latent, and the part with positions


ON_CPU, ON_GPU = Roof(), Roof(32768, 4, 128, 8192, (64, 512, 2048, 8192), (512, 64))
HEADS = 32


def roofline_calls(
    roof: Roof = ON_CPU, device: str = "cpu"
) -> dict[tuple[str, Any], tuple[Call, int, int]]:
    """Calls with their FLOPs and the bytes that they must read or write at least once."""
    made: Any = {"dtype": number_type(device), "device": device}
    size, numbers = roof.head_dim, 2 * HEADS * roof.cached * roof.head_dim * roof.sequences
    row, a, b = torch.randn(numbers, **made), *torch.randn(2, roof.side, roof.side, **made)
    calls: dict[tuple[str, Any], tuple[Call, int, int]] = {
        ("`x.sum()`", "–"): (row.sum, numbers, row.nbytes),
        ("`F.linear`", roof.side): (lambda: F.linear(a, b), 2 * roof.side**3, 3 * a.nbytes),
    }

    def attend(name: str, batch: int, kv_heads: int, queries: int, keys: int) -> None:
        query = torch.randn(batch, HEADS, queries, size, **made)
        kept = torch.randn(2, batch, kv_heads, keys, size, **made)
        counts = {"query_len": queries, "key_len": keys, "batch": batch, "num_kv_heads": kv_heads}
        cost = attention_cost(HEADS * size, HEADS, **counts)
        flops = cost["scores"].flops + cost["mix"].flops
        moved = 2 * query.nbytes + kept.nbytes
        calls[name, queries] = lambda: attention(query, *kept), flops, moved

    for name, kv_heads in (("MHA", HEADS), ("GQA-8", 8), ("MQA", 1)):
        attend(name, roof.sequences * HEADS // kv_heads, kv_heads, 1, roof.cached)
    calls["MLA", 1] = latent_call(roof, numbers // (roof.cached * sum(roof.latent)), made)
    for length in roof.lengths:
        attend("MHA", 1, HEADS, length, length)
    return calls


def latent_call(roof: Roof, batch: int, made: Mapping[str, Any]) -> tuple[Call, int, int]:
    """A decode step from a cache of latents, with its FLOPs and bytes."""
    size, (rank, turned) = roof.head_dim, roof.latent
    query = torch.randn(batch, HEADS, 1, size + turned, **made)
    kept = torch.randn(batch, 1, roof.cached, rank + turned, **made)
    key_up, value_up = torch.randn(2, HEADS, size, rank, **made)
    latent = {"kv_lora_rank": rank, "qk_nope_head_dim": size, "qk_rope_head_dim": turned}
    each = latent_multiplications(1, roof.cached, **latent, v_head_dim=size, absorb=True)
    output = query.element_size() * batch * HEADS * size
    moved = query.nbytes + kept.nbytes + key_up.nbytes + value_up.nbytes + output
    call = lambda: latent_attention(query, kept, key_up, value_up, absorb=True)  # noqa: E731
    return call, 2 * batch * HEADS * each, moved


@anywhere
@benchmark
def roofline(rounds: int, device: str = "cpu") -> dict:
    """FLOPs and bytes a second of decode and prefill, beside those of a product and of a sum."""
    torch.set_num_threads(1)
    roof = ON_CPU if device == "cpu" else ON_GPU
    counted = roofline_calls(roof, device)
    calls = {key: call for key, (call, *_) in counted.items()}
    seconds = times(calls, rounds=rounds, device=device)
    rates = {key: [counted[key][1] / t for t in seconds[key]] for key in counted}
    traffic = {key: [counted[key][2] / t for t in seconds[key]] for key in counted}
    read, product, *_ = counted
    rows = []
    for key, (_, flops, moved) in counted.items():
        intensity = flops / moved
        limits = zip(rates[product], traffic[read], strict=True)
        most = [min(p, intensity * w) for p, w in limits]
        numbers = interval(rates[key]), interval(traffic[key]), ratios(rates[key], most)
        rows.append([*key, float(f"{intensity:.4g}"), *numbers])
    return {
        "provenance": sizes(device, S=roof.cached, h=HEADS, d_k=roof.head_dim),
        "columns": ["call", "queries", "intensity", "rate", "traffic", "share"],
        "units": {"rate": "flops_per_second", "traffic": "bytes_per_second"},
        "rows": rows,
    }


@anywhere
@benchmark
def decode(rounds: int, device: str = "cpu") -> dict:
    """One new token, 32 query heads, 8192 tokens in the cache, fewer and fewer of its heads.

    All beside SDPA with 32 heads in float32. On a GPU, 4 sequences with 32768 tokens each.
    """
    batch, cached, size = (1, 8192, 64) if device == "cpu" else (4, 32768, 128)
    query = torch.randn(batch, HEADS, 1, size, device=device)
    whole = torch.randn(2, batch, HEADS, cached, size, device=device)
    calls: dict[Any, Call] = {}
    for dtype in (torch.float32, torch.bfloat16):
        for heads in (32, 8, 1):
            pair = query.to(dtype), *whole[:, :, :heads].to(dtype).contiguous()
            ways: dict[Any, Call] = {
                (dtype, heads, "ours"): lambda pair=pair: attention(*pair),
                (dtype, heads, "sdpa"): lambda pair=pair: by_enable_gqa(*pair),
                (dtype, heads, "products"): lambda pair=pair: by_products(*pair),
            }
            check_equal(ways)
            calls |= ways
    seconds = times(calls, rounds=rounds, device=device)
    full = seconds[torch.float32, 32, "sdpa"]
    rows = []
    for dtype, heads, way in calls:
        if way == "ours":
            found = [seconds[dtype, heads, way] for way in ("ours", "sdpa", "products")]
            name = str(dtype).removeprefix("torch.")
            rows.append([name, heads, interval(found[0]), *(ratios(t, full) for t in found)])
    about = {"sizes": f"B = {batch}, S = {cached}, d_k = {size}"} if device != "cpu" else {}
    columns = ["numbers", "heads", "seconds", "ours", "enable_gqa", "products"]
    units = {"seconds": "seconds"}
    return {"provenance": about, "columns": columns, "units": units, "rows": rows}


def by_enable_gqa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def by_products(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """With the query heads of a group as rows, as if there were few of them and many keys."""
    rows = query.unflatten(1, (key.shape[1], -1)).flatten(2, 3)  # (B, H_kv, group, D)
    return two_products(rows, key, value).reshape(query.shape)


BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def asked(made: Mapping[str, Any]) -> dict[str, Call]:
    """SDPA with one argument after another that some of its backends don't take."""
    on_cpu = made["device"] == "cpu"
    heads, n, size = (8, 1024, 64) if on_cpu else (32, 4096, 128)
    query, key, value = torch.randn(3, 1, heads, n, size, **made)
    hidden = torch.ones(n, n, dtype=torch.bool, device=made["device"]).tril()
    bias = torch.randn(1, heads, n, n, **made)
    few = key[:, :2].contiguous(), value[:, :2].contiguous()
    wide = torch.randn(3, 1, 2, n, 512, **made)

    def sdpa(*heads: Tensor, **options: Any) -> Call:
        return lambda: F.scaled_dot_product_attention(*heads, **options)

    return {
        "–": sdpa(query, key, value),
        "`is_causal=True`": sdpa(query, key, value, is_causal=True),
        "`attn_mask=mask`": sdpa(query, key, value, attn_mask=hidden),
        "`attn_mask=bias`": sdpa(query, key, value, attn_mask=bias),
        "`bias.requires_grad_()`": sdpa(query, key, value, attn_mask=bias.clone().requires_grad_()),
        "`enable_gqa=True`": sdpa(query, *few, enable_gqa=True),
        "`head_dim=512`": sdpa(*wide),
        "`L=1`": sdpa(query[:, :, -1:], key, value),
    }


def only(backend: SDPBackend, call: Call) -> Call:
    """The call with one backend and no other."""

    def restricted() -> Tensor:
        with sdpa_kernel(backend), torch.enable_grad():
            return call()

    return restricted


def takes(call: Call) -> bool:
    """Whether the backend of a call can do it; torch warns of each reason why not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except RuntimeError:
            return False
    return True


@anywhere
@benchmark
def sdpa_backends(rounds: int, device: str = "cpu") -> dict:
    """Which backends of SDPA take which argument, how long each takes, and which one torch runs."""
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for argument, call in asked({"dtype": dtype, "device": device}).items():
            calls = {name: only(backend, call) for name, backend in BACKENDS.items()}
            calls = {name: run for name, run in calls.items() if takes(run)}
            with torch.enable_grad():
                chosen = ", ".join(f"`{name}`" for name in sorted(kernels(call))) or "–"
            seconds = times(calls, rounds=rounds, device=device) if calls else {}
            cells = [interval(seconds[name]) if name in seconds else "–" for name in BACKENDS]
            rows.append([str(dtype).removeprefix("torch."), argument, chosen, *cells])
    columns = ["numbers", "argument", "chosen", *BACKENDS]
    return {"columns": columns, "units": dict.fromkeys(BACKENDS, "seconds"), "rows": rows}


PACKED = {"equal": (256,) * 8, "unequal": (1024, 512, 256, 128, 64, 32, 16, 16)}
LONGER = 16  # on a GPU


def packed_calls(lengths: tuple[int, ...], device: str) -> dict[str, Call]:
    """Causal attention within each of several texts, all their tokens ``(1, H, tokens, D)``."""
    made: Any = {"dtype": number_type(device), "device": device}
    heads, size = (8, 64) if device == "cpu" else (32, 128)
    whole = torch.randn(3, 1, heads, sum(lengths), size, **made)
    text = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).to(device)
    same = (text == text[:, None]).tril()
    parts = [x.split(lengths, dim=-2) for x in whole]
    padded = torch.zeros(3, len(lengths), heads, max(lengths), size, **made)
    for x, pieces in zip(padded, parts, strict=True):
        for row, piece in zip(x, pieces, strict=True):
            row[:, : piece.shape[-2]] = piece[0]

    def unpadded() -> Tensor:
        output = F.scaled_dot_product_attention(*padded, is_causal=True)  # padding comes last
        cut = [row[:, :length] for row, length in zip(output, lengths, strict=True)]
        return torch.cat(cut, dim=-2)[None]

    def one_by_one() -> Tensor:
        texts = zip(*parts, strict=True)
        return torch.cat(
            [F.scaled_dot_product_attention(*x, is_causal=True) for x in texts], dim=-2
        )

    near = create_block_mask(
        lambda b, h, i, j: (i >= j) & (text[i] == text[j]), None, None, *same.shape, device=device
    )
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    calls: dict[str, Call] = {
        "padded": unpadded,
        "masked": lambda: F.scaled_dot_product_attention(*whole, attn_mask=same),
        "one by one": one_by_one,
        "flex": lambda: compiled(*whole, block_mask=near),
    }
    return calls | ({} if device == "cpu" else {"varlen": varlen_call(whole, lengths)})


def varlen_call(whole: Tensor, lengths: tuple[int, ...]) -> Call:
    """torch's function for texts of many lengths, which only a GPU has."""
    from torch.nn.attention.varlen import varlen_attn

    ends = torch.tensor([0, *lengths]).cumsum(0).to(whole.device, torch.int32)
    query, key, value = (x[0].transpose(0, 1).contiguous() for x in whole)  # (tokens, H, D)
    longest = max(lengths)

    def call() -> Tensor:
        causal = {"window_size": (-1, 0)}
        found = varlen_attn(query, key, value, ends, ends, longest, longest, **causal)
        return found.transpose(0, 1)[None]

    return call


@anywhere
@benchmark
def packing(rounds: int, device: str = "cpu") -> dict:
    """Several texts in one tensor, attended causally each by itself; needs a compiler."""
    torch.set_num_threads(1)
    ways = ["padded", "masked", "one by one", "flex", "varlen"]
    rows = []
    for kind, short in PACKED.items():
        lengths = tuple(n * (1 if device == "cpu" else LONGER) for n in short)
        calls = packed_calls(lengths, device)
        check_equal(calls)
        seconds = times(calls, rounds=rounds, device=device)
        cells = [interval(seconds[way]) if way in seconds else "–" for way in ways]
        rows.append([kind, max(lengths), sum(lengths), *cells])
    return {
        "provenance": sizes(device, h=32, d_k=128),
        "columns": ["lengths", "longest", "tokens", *ways],
        "units": dict.fromkeys(ways, "seconds"),
        "rows": rows,
    }

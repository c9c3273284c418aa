"""What published counters of FLOPs see of one attention layer, beside the count by hand.

They are no dependency of the site: `pip install fvcore thop ptflops calflops deepspeed`, in an
environment of its own, then `python scripts/measure.py counters`. A column whose package is not
installed is filled with dashes. Nothing is timed, so every machine finds the same.
"""

from __future__ import annotations

import contextlib
import copy
import io
import re
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as imported
from torch.utils.flop_counter import FlopCounterMode

from measuring.rounds import EMBED_DIM, benchmark
from mhattn import MultiHeadAttention
from mhattn.costs import attention_cost
from mhattn.inside import measure_flops

HEADS, LENGTH = 8, 128
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class Layer(nn.Module):
    """Four projections around ``attend``."""

    def __init__(self, attend: Attend, num_kv_heads: int = HEADS) -> None:
        super().__init__()
        self.attend, self.num_kv_heads = attend, num_kv_heads
        width = num_kv_heads * EMBED_DIM // HEADS
        self.q_proj, self.out_proj = (nn.Linear(EMBED_DIM, EMBED_DIM) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(EMBED_DIM, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        heads = [
            projected.unflatten(-1, (-1, EMBED_DIM // HEADS)).transpose(1, 2)
            for projected in (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        ]  # (B, H, L, D)
        return self.out_proj(self.attend(*heads).transpose(1, 2).flatten(-2))


class OfTorch(nn.Module):
    """PyTorch's layer, as self-attention."""

    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(EMBED_DIM, HEADS, batch_first=True)
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x, x, need_weights=self.need_weights)[0]


# The same attention in two spellings: counters that replace functions see `torch.matmul`, but not
# `@`.
def by_function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = torch.matmul(query, key.transpose(-2, -1)) / query.shape[-1] ** 0.5
    return torch.matmul(scores.softmax(dim=-1), value)


def by_sign(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    return scores.softmax(dim=-1) @ value


def fused(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool = False) -> Tensor:
    """Looked up when it is called, since some counters replace it with their own."""
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=enable_gqa)


def layers() -> dict[str, tuple[nn.Module, int]]:
    """Each with the number of its KV heads; in training, unless it says otherwise."""
    module = "`nn.MultiheadAttention`"
    return {
        "`torch.matmul`": (Layer(by_function), HEADS),
        "`@`": (Layer(by_sign), HEADS),
        "`F.scaled_dot_product_attention`": (Layer(fused), HEADS),
        "`from … import scaled_dot_product_attention`": (Layer(imported), HEADS),
        "`enable_gqa=True`": (Layer(partial(fused, enable_gqa=True), num_kv_heads=2), 2),
        module: (OfTorch(need_weights=False), HEADS),
        f"{module}, `need_weights=True`": (OfTorch(need_weights=True), HEADS),
        f"{module}, `eval()`": (OfTorch(need_weights=False).eval(), HEADS),
        "`mhattn.MultiHeadAttention`": (MultiHeadAttention(EMBED_DIM, HEADS), HEADS),
    }


def with_fvcore(layer: nn.Module, x: Tensor) -> float:
    from fvcore.nn import FlopCountAnalysis

    analysis = FlopCountAnalysis(layer, x).unsupported_ops_warnings(False)
    return analysis.uncalled_modules_warnings(False).total()


def with_thop(layer: nn.Module, x: Tensor) -> float:
    import thop

    return thop.profile(layer, (x,), verbose=False)[0]


def with_ptflops(layer: nn.Module, x: Tensor) -> float:
    from ptflops import get_model_complexity_info

    options: dict[str, Any] = {"as_strings": False, "print_per_layer_stat": False}
    options |= {"backend": "pytorch", "input_constructor": lambda _: {"x": x}}
    # A new module is in training, whatever the layer in it is.
    named = WithX(layer).train(layer.training)
    return get_model_complexity_info(named, tuple(x.shape[1:]), **options)[0]


class WithX(nn.Module):
    """ptflops passes inputs by name; layers call theirs ``x``, ``input`` or ``query``."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def with_calflops(layer: nn.Module, x: Tensor) -> float:
    from calflops import calculate_flops

    options = {"print_results": False, "print_detailed": False, "output_as_string": False}
    return calculate_flops(model=layer, args=[x], **options)[0]


def with_deepspeed(layer: nn.Module, x: Tensor) -> float:
    from deepspeed.profiling.flops_profiler import get_model_profile

    options = {"print_profile": False, "detailed": False, "as_string": False}
    return get_model_profile(layer, args=(x,), **options)[0]


def with_torch(layer: nn.Module, x: Tensor) -> float:
    with FlopCounterMode(display=False) as counter:
        layer(x)
    return counter.get_total_flops()


COUNTERS: dict[str, Callable[[nn.Module, Tensor], float]] = {
    "fvcore": with_fvcore,
    "thop": with_thop,
    "ptflops": with_ptflops,
    "calflops": with_calflops,
    "deepspeed": with_deepspeed,
    "torch": with_torch,
}
MACS = {"fvcore", "thop", "ptflops"}  # what they return, whatever they call it


def installed() -> dict[str, str]:
    """The versions of those that are there."""
    found = {}
    for name in COUNTERS:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def reported(name: str, layer: nn.Module, x: Tensor) -> float:
    """The number that a counter returns; it prints and warns as it likes."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
        torch.set_grad_enabled(layer.training),
    ):
        warnings.simplefilter("ignore")
        # A copy: some counters leave hooks and buffers in the layer that the next one would find.
        return COUNTERS[name](copy.deepcopy(layer), x)


def ours(layer: nn.Module, x: Tensor) -> int:
    with torch.set_grad_enabled(layer.training):
        return measure_flops(layer, x).total


@benchmark
def counters(rounds: int) -> dict:
    """What each counter finds of the FLOPs by hand; where it returns MACs, twice that.

    The first row is the number of a single linear layer as it is returned.
    """
    there = installed()
    x, linear = torch.randn(1, LENGTH, EMBED_DIM), nn.Linear(EMBED_DIM, EMBED_DIM)

    def row(label: str, layer: nn.Module, flops: int, doubled: set[str]) -> list:
        found: list[str | float] = [label]
        for name in COUNTERS:
            twice = 2 if name in doubled else 1
            share = twice * reported(name, layer, x) / flops if name in there else "–"
            found.append(share if isinstance(share, str) else round(share, 3))
        return [*found, ours(layer, x) / flops]

    rows = [row("`nn.Linear`", linear, 2 * LENGTH * EMBED_DIM**2, doubled=set())]
    for label, (layer, num_kv_heads) in layers().items():
        sizes = {"query_len": LENGTH, "num_kv_heads": num_kv_heads}
        rows.append(row(label, layer, attention_cost(EMBED_DIM, HEADS, **sizes).flops, MACS))
    # Without what a version says of its build, as in 2.9.0+cpu.
    short = [re.match(r"[\d.]*\d", there.get(name, "0"))[0] for name in COUNTERS]
    rows.append(["`version`", *("–" if number == "0" else number for number in short), "–"])
    columns = [f"{name} {there.get(name, '')}".strip() for name in COUNTERS]
    return {"columns": ["layer", *columns, "measure_flops"], "units": {}, "rows": rows}

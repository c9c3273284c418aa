"""One layer or one text on several processes of this machine: bytes, time, and what a model says.

Bytes are counted as they are sent and must be those of the formula, or nothing is filed. The model
of the time knows four numbers, which are measured in the same processes: the call on one process,
how long the ranks take to compare their plans, a message's latency, and the link's bandwidth.
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from measuring.rounds import benchmark, interval
from mhattn import MultiHeadAttention
from mhattn.costs import Link, all_reduce_nanoseconds
from mhattn.parallel import (
    SentBytes,
    agree,
    exchange_bytes,
    held_tokens,
    ring_bytes,
    run,
    share_heads,
    share_latent_heads,
    split_attention,
)
from mhattn.parallel.compare import way_to_attend
from mhattn.parallel.ring import pass_on
from mhattn.variants import LatentAttention

PROCESSES = (1, 2, 4)
LENGTH, HEADS, GROUPS, HEAD_DIM = 1024, 8, 4, 64  # L, H, H_kv, D
WIDTH, CACHED, ITEM = HEADS * HEAD_DIM, 32768, 4  # E, keys of a query, bytes of a number
LATENT = {"kv_lora_rank": 128, "qk_nope_head_dim": 48, "qk_rope_head_dim": 16}
SMALL, LARGE = 2, 2**20  # numbers of a message
CALLS = 3  # in a round
Call = Callable[[], Any]


def benchmark_of(plans: dict[str, Any], rounds: int) -> dict:
    """A row for each plan and number of processes."""
    names = list(plans)
    found = {n: run(measure_here, n, names, rounds, seconds=3600.0) for n in PROCESSES}
    rows = []
    for name in names:
        alone = statistics.median(found[1][0]["seconds"][name])
        for n, ranks in found.items():
            formula = [plans[name].bytes(n, rank) for rank in range(n)]
            counted = [each["bytes"][name] for each in ranks]
            if counted != formula:
                raise AssertionError(f"{name} on {n}: sent {counted}, the formula says {formula}")
            seconds = ranks[0]["seconds"][name]
            model = plans[name].seconds(n, alone, ranks[0]["link"])
            if n == 1:  # what the model begins with
                rows.append([name, n, "–", "–", interval(seconds), "–"])
                continue
            row = [name, n, max(counted), float(f"{model:.4g}"), interval(seconds)]
            rows.append([*row, interval([each / model for each in seconds])])
    columns = ["call", "processes", "bytes", "model", "measured", "ratio"]
    units = {"bytes": "bytes", "model": "seconds", "measured": "seconds"}
    return {"columns": columns, "units": units, "rows": rows}


@benchmark
def shared_heads(rounds: int) -> dict:
    """A layer whose heads are shared out: forward, and with gradients; a latent layer's forward."""
    return benchmark_of(HEAD_PLANS, rounds)


@benchmark
def shared_tokens(rounds: int) -> dict:
    """A text that is shared out, causal: ring, zigzag, all-to-all, both; and split keys."""
    return benchmark_of(TOKEN_PLANS, rounds)


def measure_here(names: list[str], rounds: int) -> dict[str, Any]:
    """What each process does: bytes of one call, then rounds of all plans in random order."""
    torch.manual_seed(0)
    calls = {name: (HEAD_PLANS | TOKEN_PLANS)[name].prepare() for name in names}
    sent = {}
    for name, call in calls.items():
        call()  # the first of a layer compares its inputs
        with SentBytes() as counted:
            call()
        sent[name] = sum(counted.total.values())
    links = {
        "agree": lambda: agree("measure", {"dtype": "float32"}),
        "small": partial(around, torch.zeros(SMALL)),
        "large": partial(around, torch.zeros(LARGE)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in [*calls, *links]}
    order, shuffle = [*calls, *links], random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)  # the same on all ranks
        for name in order:
            seconds[name].append(slowest((calls | links)[name]))
    small, large, compare = (statistics.median(seconds.pop(n)) for n in ("small", "large", "agree"))
    rate = (LARGE - SMALL) * ITEM / max(large - small, 1e-9)
    here = Link("here", "gloo", "", int(rate), "", int(small * 1e9))
    return {"bytes": sent, "seconds": seconds, "link": {"link": here, "agree": compare}}


def around(x: Tensor) -> Tensor:
    """To the next rank, all at once, as in a ring."""
    return pass_on(x, torch.empty_like(x), None)


def slowest(call: Call) -> float:
    """Seconds of one call, from when all ranks are ready until the last of them has its result."""
    dist.barrier()
    start = perf_counter()
    for _ in range(CALLS):
        call()
    own = torch.tensor((perf_counter() - start) / CALLS, dtype=torch.float64)
    dist.all_reduce(own, dist.ReduceOp.MAX)
    return own.item()


def crowded(active: int) -> float:
    """How often a core has to be shared by so many processes that compute."""
    return max(1.0, active / (os.cpu_count() or 1))


def all_reduce(size: int, n: int, link: Link) -> float:
    return all_reduce_nanoseconds(size, n, link) / 1e9


class Heads:
    """The heads of a layer are shared out; its output is an all-reduce."""

    def __init__(self, training: bool = False, latent: bool = False) -> None:
        self.training, self.latent = training, latent
        self.sums = 4 if training else 1  # forward; backward, each projection adds up its own
        self.size = LENGTH * WIDTH * ITEM

    def prepare(self) -> Call:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        layer: Any
        if self.latent:
            layer = share_latent_heads(LatentAttention(WIDTH, HEADS, **LATENT), mesh)
        else:
            layer = share_heads(MultiHeadAttention(WIDTH, HEADS), mesh)
        x = torch.randn(1, LENGTH, WIDTH, requires_grad=self.training)

        def call() -> None:
            with torch.set_grad_enabled(self.training):
                output = layer(x, is_causal=True)
                if self.training:
                    output.sum().backward()

        return call

    def bytes(self, n: int, rank: int) -> int:
        """DTensor sends nothing on one process; our own sum of a latent layer is called there."""
        return self.sums * self.size if n > 1 or self.latent else 0

    def seconds(self, n: int, alone: float, found: dict[str, Any]) -> float:
        send = self.sums * all_reduce(self.size, n, found["link"])
        return alone * crowded(n) / n + send


class Tokens:
    """The tokens of a text are shared out, in zigzag or in blocks."""

    def __init__(self, way: str, order: str = "zigzag") -> None:
        self.way, self.order = way, order

    def prepare(self) -> Call:
        n, rank = dist.get_world_size(), dist.get_rank()
        own, attend = held_tokens(LENGTH, n, rank, order=self.order), way_to_attend(self.way)
        parts = [torch.randn(1, h, len(own), HEAD_DIM) for h in (HEADS, GROUPS, GROUPS)]

        def call() -> Tensor:
            with torch.no_grad():
                return attend(*parts, is_causal=True, positions=own)

        return call

    def groups(self, n: int) -> tuple[int, int]:
        """Processes that change tokens for heads, and how many such groups form a ring."""
        inner = {"ring": 1, "exchange": n, "both": 2 - n % 2}[self.way]
        return inner, n // inner

    def bytes(self, n: int, rank: int) -> int:
        return sum(self.parts(n, rank))

    def parts(self, n: int, rank: int) -> tuple[int, int]:
        """Bytes of the all-to-alls, and of the ring, which has some of the heads."""
        inner, _ = self.groups(n)
        lengths = [len(held_tokens(LENGTH, n, each, order=self.order)) for each in range(n)]
        groups = [lengths[i : i + inner] for i in range(0, n, inner)]
        sizes = (1, HEADS, GROUPS, HEAD_DIM)
        exchange, ring = 0, 0
        if self.way != "ring":
            exchange = exchange_bytes(groups[rank // inner], sizes, ITEM)[rank % inner]
        if self.way != "exchange":
            wholes = [sum(group) for group in groups]
            ring = ring_bytes(wholes, (1, GROUPS // inner, HEAD_DIM), ITEM)[rank // inner]
        return exchange, ring

    def seconds(self, n: int, alone: float, found: dict[str, Any]) -> float:
        """Ours computes each block that isn't hidden entirely: in zigzag there is none."""
        exchange, ring = self.parts(n, 0)
        inner, outer = self.groups(n)
        active = range(n, 0, -1) if self.order == "blocks" else [n] * n  # step by step
        compute = alone * sum(crowded(each) for each in active) / n**2
        link, compare = found["link"], found["agree"] * (2 if self.way == "both" else 1)
        sent = exchange * (inner - 1) / inner + ring  # each keeps its own part
        messages = 4 * (inner > 1) + outer - 1
        return compute + (n > 1) * compare + messages * link.latency / 1e9 + sent / link.bandwidth


class Split:
    """A query on all processes, and the keys shared out."""

    size = HEADS * (1 + HEAD_DIM + 1) * ITEM  # the largest score; the values, and the sum

    def prepare(self) -> Call:
        query = torch.ones(1, HEADS, 1, HEAD_DIM)
        own = CACHED // dist.get_world_size()
        key, value = torch.randn(2, 1, GROUPS, own, HEAD_DIM)
        return lambda: split_attention(query, key, value)

    def bytes(self, n: int, rank: int) -> int:
        return self.size

    def seconds(self, n: int, alone: float, found: dict[str, Any]) -> float:
        link = found["link"]
        send = sum(all_reduce(HEADS * each * ITEM, n, link) for each in (1, HEAD_DIM + 1))
        return alone * crowded(n) / n + send + (n > 1) * found["agree"]


HEAD_PLANS: dict[str, Any] = {
    "`share_heads`": Heads(),
    "`share_heads`, `backward`": Heads(training=True),
    "`share_latent_heads`": Heads(latent=True),
}
TOKEN_PLANS: dict[str, Any] = {
    "`ring_attention`, `blocks`": Tokens("ring", "blocks"),
    "`ring_attention`, `zigzag`": Tokens("ring"),
    "`exchange_attention`": Tokens("exchange"),
    "`exchange_attention`, `ring`": Tokens("both"),
    "`split_attention`": Split(),
}

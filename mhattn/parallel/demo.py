"""Several processes and one give the same: run it with torchrun.

``python -m torch.distributed.run --standalone --nproc-per-node 2 -m mhattn.parallel.demo``

On GPUs, one for each process, it ends in ``… -m mhattn.parallel.demo cuda``.
"""

import argparse
import os
import re
import sys

import torch
import torch.distributed as dist

from mhattn.parallel.bytes import exchange_bytes, ring_bytes
from mhattn.parallel.compare import compare_heads, compare_tokens, join_group
from mhattn.parallel.equalities import compare_all
from mhattn.parallel.local import BACKENDS
from mhattn.parallel.places import held_tokens

__all__: list[str] = []  # it is a command

STARTED_WITH = "python -m torch.distributed.run --standalone --nproc-per-node 2"
NAME = "mhattn.parallel.demo"
# What torchrun tells each process of its group. Without them there is nobody to meet.
GROUP = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def sent_and_formula() -> dict[str, tuple[int, int]]:
    """By plan: the bytes that this process hands to the network forward, counted and by formula."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    batch, heads, length, item = 2, 24, 61, 4
    lengths = [len(held_tokens(length, ranks, each)) for each in range(ranks)]
    tokens = {
        "ring": ring_bytes(lengths, (batch, heads, 8), item)[rank],
        "split keys": batch * heads * (1 + 8 + 1) * item,  # a maximum; values and their total
    }
    if heads % ranks == 0:
        tokens["all-to-all"] = exchange_bytes(lengths, (batch, heads, heads, 8), item)[rank]
    output = batch * 7 * 2 * heads * item if ranks > 1 else 0  # DTensor sends nothing alone
    found = {"heads": (sum(compare_heads(heads, heads)["forward"].values()), output)}
    for name, formula in tokens.items():
        way = {"split keys": "split", "all-to-all": "exchange"}.get(name, name)
        each = compare_tokens(way, "blocks", length, (batch, heads, heads))
        found[name] = sum(each["forward"].values()), formula
    return found


def everything() -> None:
    """The table of equalities, and bytes beside their formula, which rank 0 prints."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    if rank == 0:
        print(f"{ranks} processes beside one: the difference, as a share of what rounding allows")
    for name, apart in compare_all().items():
        if not isinstance(apart, str) and apart > 1:
            raise RuntimeError(f"rank {rank}: {name} differs {apart:.0f} times as much as rounding")
        if rank == 0:
            how = f"refused: {apart}" if isinstance(apart, str) else f"{apart:.3f}"
            print(f"{name:36}{how}", flush=True)
    for name, (sent, formula) in sent_and_formula().items():
        if sent != formula:
            raise RuntimeError(f"rank {rank}: {name} sent {sent} bytes, the formula says {formula}")
        if rank == 0:
            print(f"{name + ', forward':36}{sent:,} bytes, as the formula says", flush=True)


def device_asked() -> str:
    """The device of the command line, or an end with help: the group is torchrun's to start."""
    parser = argparse.ArgumentParser(
        prog=NAME,
        usage=f"{STARTED_WITH} -m {NAME} [cpu | cuda]",
        description="Compare every plan of mhattn.parallel with one process, and count the bytes "
        "that it sends. The first difference beyond rounding, or wrong count, ends it.",
    )
    kinds = "where the processes compute; cuda: a GPU for each process (default: cpu)"
    parser.add_argument("device", nargs="?", default="cpu", choices=sorted(BACKENDS), help=kinds)
    device: str = parser.parse_args().device
    if missing := [name for name in GROUP if name not in os.environ]:
        parser.error(
            "it runs on several processes, which torchrun starts: use the line above. "
            f"torchrun sets {', '.join(GROUP)}; not set here: {', '.join(missing)}."
        )
    return device


def reason_of(error: Exception) -> str:
    """What became of a rank. One whose partner has died is no culprit: torchrun names the first."""
    if isinstance(error, dist.DistError) or re.search("gloo|nccl", str(error), re.I):
        return f"lost another rank, which torchrun names below as the root cause: {error}"
    return f"failed: {error}"


def main() -> None:
    """Join the group that torchrun prepares, show everything, leave."""
    device = device_asked()
    torch.set_num_threads(1)  # the processes share the cores
    join_group(device)
    try:
        everything()
    except Exception as error:
        # torchrun prints one rank's traceback: each says its own reason first.
        print(f"rank {dist.get_rank()} {reason_of(error)}", file=sys.stderr, flush=True)
        raise
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

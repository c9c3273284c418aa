"""What the processes of test_kills.py do: one plan without end, until one of them is killed."""

import os
import signal
import threading
import time
from pathlib import Path

import torch
import torch._dynamo  # which a dispatch mode would load in every process
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from mhattn import MultiHeadAttention
from mhattn.parallel import (
    exchange_attention,
    held_tokens,
    local,
    ring_attention,
    share_heads,
    share_latent_heads,
    split_attention,
)
from mhattn.parallel.compare import way_to_attend
from mhattn.parallel.local import kind_of_device
from mhattn.variants import LatentAttention

NAMESPACES = ("c10d", "_c10d_functional")  # of torch's collectives
WAITING = ("wait_tensor", "_wrap_tensor_autograd")  # and send nothing


def begin(folder, rank, world_size):
    """A process that was forked does what one does that was started."""
    with Path(folder, f"output-{rank}").open("wb") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    os.environ |= local.settings(folder, rank)
    local.join(folder, rank, world_size)


def endless(plan, file, victim, number, moment, signum):
    """A plan again and again; the victim ends at its n-th collective, the others never."""
    with Stop(file, dist.get_rank() == victim, number, moment, signum):
        work = PLANS[plan]()
        while True:
            work()


class Stop(TorchDispatchMode):
    """Counts the collectives. Within its last, the victim waits, since the others come late."""

    def __init__(self, file, is_victim, number, moment, signum):
        super().__init__()
        self.left, self.is_victim, self.moment = number, is_victim, moment
        self.file, self.signum = file, signum

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        namespace, _, name = func._schema.name.partition("::")
        if namespace in NAMESPACES and name not in WAITING:
            self.left -= 1
            if self.left == 0 and self.is_victim:
                self.end(name)
            elif self.left == 0 and self.moment == "within":
                time.sleep(60)  # and longer than the victim lives
        return func(*args, **(kwargs or {}))

    def end(self, name):
        def die():
            Path(self.file).write_text(f"{time.time()} {name}", encoding="utf-8")
            os.kill(os.getpid(), self.signum)
            signal.pause()

        if self.moment == "before":
            die()
        else:
            threading.Timer(0.2, die).start()


def ring():
    x = torch.randn(1, 12, 8, 4, requires_grad=True)
    return lambda: ring_attention(x, x, x, is_causal=True).sum().backward()


def exchange():
    x = torch.randn(1, 12, 8, 4, requires_grad=True)
    return lambda: exchange_attention(x, x, x, is_causal=True).sum().backward()


def both():
    x = torch.randn(1, 12, 8, 4, requires_grad=True)
    own = held_tokens(8 * dist.get_world_size(), dist.get_world_size(), dist.get_rank())
    attend = way_to_attend("both")
    return lambda: attend(x, x, x, is_causal=True, positions=own).sum().backward()


def split():
    query, keys = torch.ones(1, 12, 1, 4), torch.randn(1, 12, 8, 4)
    return lambda: split_attention(query, keys, keys)


def heads(groups=12):
    torch.manual_seed(0)
    mesh = dist.device_mesh.init_device_mesh(kind_of_device(), (dist.get_world_size(),))
    layer = share_heads(MultiHeadAttention(24, 12, num_kv_heads=groups), mesh)
    x = torch.randn(2, 5, 24, requires_grad=True)
    return lambda: layer(x, is_causal=True).sum().backward()


def copied():
    return heads(groups=1)


def latent():
    torch.manual_seed(0)
    mesh = dist.device_mesh.init_device_mesh(kind_of_device(), (dist.get_world_size(),))
    sizes = {"kv_lora_rank": 6, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2}
    layer, x = share_latent_heads(LatentAttention(10, 12, **sizes), mesh), torch.randn(2, 5, 10)
    x.requires_grad_()
    return lambda: layer(x, is_causal=True).sum().backward()


PLANS = {each.__name__: each for each in (ring, exchange, both, split, heads, copied, latent)}

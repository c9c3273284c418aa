"""Several processes and one give the same: run it with torchrun.

``python -m torch.distributed.run --standalone --nproc-per-node 2 -m mhattn.parallel.demo``

On GPUs, one for each process, it ends in ``… -m mhattn.parallel.demo cuda``.
"""

import copy
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from mhattn.core.functional import attention
from mhattn.core.modules import MultiHeadAttention
from mhattn.parallel.bytes import SentBytes, exchange_bytes, ring_bytes
from mhattn.parallel.heads import share_heads
from mhattn.parallel.local import BACKENDS, kind_of_device, note, use_gpu
from mhattn.parallel.places import held_tokens
from mhattn.parallel.ring import exchange_attention, ring_attention, split_attention

__all__ = ["compare_heads", "compare_tokens"]


def difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, over the largest number, or over one if all are smaller."""
    ours, theirs = ours.detach(), theirs.detach()
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1.0))


# --8<-- [start:compare_heads]
def compare_heads(
    num_heads: int = 12, num_kv_heads: int = 12, length: int = 7, steps: int = 0
) -> dict[str, Any]:
    """A layer whose heads are shared out, beside the same layer on one process.

    Args:
        num_heads: heads of the query.
        num_kv_heads: heads of the key and value.
        length: tokens of the text.
        steps: of training before the comparison, on both.

    Returns:
        Largest relative differences of ``output``, of the input's ``gradient`` and of the
        ``weights`` gradients; ``heads`` and ``kv_heads`` of this process; the bytes that
        ``forward`` and ``backward`` handed to the network.

    Examples:
        >>> from mhattn.parallel import run
        >>> run(compare_heads, 1, 4, 2)[0]["heads"]
        4
    """
    torch.manual_seed(0)
    width = 2 * num_heads
    whole = MultiHeadAttention(width, num_heads, num_kv_heads=num_kv_heads)
    x = torch.randn(2, length, width)  # (B, L, E)
    goal = torch.randn(2, length, width)
    mesh = init_device_mesh(kind_of_device(), (dist.get_world_size(),))
    shared = share_heads(copy.deepcopy(whole), mesh)
    for layer in (whole, shared):
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(steps):
            loss = (layer(x, is_causal=True) - goal).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        optimizer.zero_grad()
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    expected = whole(inputs[0], is_causal=True)
    note("heads shared out: forward")
    with SentBytes() as forward:
        output = shared(inputs[1], is_causal=True)
    (expected * goal).sum().backward()
    note("heads shared out: backward")
    with SentBytes() as backward:
        (output * goal).sum().backward()
    own, theirs = gathered(shared.q_proj.weight.grad), gradient(whole.q_proj.weight)
    keys = gathered(shared.k_proj.weight.grad)
    copies = keys.shape[0] // (2 * num_kv_heads)  # of each head of keys
    keys = keys.unflatten(0, (num_kv_heads, copies, 2))[:, 0].flatten(0, 1)
    return {
        "output": difference(output, expected),
        "gradient": difference(gradient(inputs[1]), gradient(inputs[0])),
        "weights": max(difference(own, theirs), difference(keys, gradient(whole.k_proj.weight))),
        "heads": shared.num_heads,
        "kv_heads": shared.num_kv_heads,
        "forward": forward.total,
        "backward": backward.total,
    }
    # --8<-- [end:compare_heads]


def way_to_attend(way: str) -> Callable[..., Tensor]:
    """How tokens that are shared out meet; both: pairs change tokens for heads, and form a ring."""
    if way == "both":
        inner = 2 - dist.get_world_size() % 2  # an odd number of processes is a ring only
        sizes = (dist.get_world_size() // inner, inner)
        mesh = init_device_mesh(kind_of_device(), sizes, mesh_dim_names=("ring", "exchange"))
        groups = {name: mesh[name].get_group() for name in ("ring", "exchange")}
        return partial(exchange_attention, group=groups["exchange"], ring=groups["ring"])
    return {"ring": ring_attention, "exchange": exchange_attention}[way]


def gradient(x: Tensor) -> Tensor:
    assert x.grad is not None
    return x.grad


def gathered(x: Any) -> Tensor:
    return x.full_tensor() if isinstance(x, DTensor) else x


# --8<-- [start:compare_tokens]
def compare_tokens(
    way: str = "ring", order: str = "blocks", length: int = 13, sizes: tuple[int, ...] = (2, 12, 12)
) -> dict[str, Any]:
    """Attention over tokens that are shared out, beside attention on one process.

    Args:
        way: ``"ring"``, ``"exchange"``, ``"both"``, or ``"split"``, one query over split keys.
        order: which tokens a rank holds, as in `held_tokens`.
        length: tokens of the text.
        sizes: B, H and H_kv.

    Returns:
        Largest relative differences of ``output`` and ``gradient``, the ``tokens`` of this rank,
        and the bytes that ``forward`` and ``backward`` handed to the network.

    Raises:
        ValueError: way is another word.

    Examples:
        >>> from mhattn.parallel import run
        >>> run(compare_tokens, 1, "ring")[0]["tokens"]
        13
    """
    if way not in ("ring", "exchange", "both", "split"):
        raise ValueError(f"way must be 'ring', 'exchange', 'both' or 'split', got {way!r}")
    torch.manual_seed(0)
    batch, heads, kv_heads = sizes
    whole = [torch.randn(batch, h, length, 8) for h in (heads, kv_heads, kv_heads)]
    own = held_tokens(length, dist.get_world_size(), dist.get_rank(), order=order)
    if way == "split":
        expected = attention(whole[0][:, :, -1:], *whole[1:])
        with SentBytes() as forward:
            output = split_attention(whole[0][:, :, -1:], *(x[:, :, own] for x in whole[1:]))
        found = {"output": difference(output, expected), "gradient": 0.0}
        return found | {"tokens": len(own), "forward": forward.total, "backward": {}}
    goal = torch.randn(batch, heads, length, 8)
    parts = [x[:, :, own].requires_grad_() for x in whole]
    whole = [x.requires_grad_() for x in whole]
    expected = attention(*whole, is_causal=True)
    (expected * goal).sum().backward()
    attend = way_to_attend(way)
    with SentBytes() as forward:
        output = attend(*parts, is_causal=True, positions=own)
    with SentBytes() as backward:
        (output * goal[:, :, own]).sum().backward()
    grads = [(gradient(part), gradient(x)[:, :, own]) for part, x in zip(parts, whole, strict=True)]
    return {
        "output": difference(output, expected[:, :, own]),
        "gradient": max(difference(ours, theirs) for ours, theirs in grads),
        "tokens": len(own),
        "forward": forward.total,
        "backward": backward.total,
    }
    # --8<-- [end:compare_tokens]


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
    from mhattn.parallel.equalities import compare_all

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


def main() -> None:
    """Join the group that torchrun prepares, show everything, leave."""
    torch.set_num_threads(1)
    device = "cuda" if sys.argv[1:] == ["cuda"] else "cpu"
    if device == "cuda":
        use_gpu(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(BACKENDS[device], timeout=timedelta(seconds=30))
    try:
        everything()
    except Exception as error:
        print(f"rank {dist.get_rank()} failed: {error}", file=sys.stderr, flush=True)
        raise
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

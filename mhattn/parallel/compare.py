"""A layer whose heads are shared out, and a text whose tokens are, beside one process.

Each function is called by all processes, as `mhattn.parallel.run` does; processes that torchrun has
started call `join_group` first.
"""

import copy
import os
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
from mhattn.parallel.bytes import SentBytes
from mhattn.parallel.heads import share_heads
from mhattn.parallel.local import BACKENDS, kind_of_device, note, use_gpu
from mhattn.parallel.places import held_tokens
from mhattn.parallel.ring import exchange_attention, ring_attention, split_attention

__all__ = ["compare_heads", "compare_tokens"]


def join_group(device: str) -> None:
    """Join the group that torchrun prepares; on GPUs, each process with its own."""
    if device == "cuda":
        use_gpu(int(os.environ["LOCAL_RANK"]))
    # A rank that never comes is told after half a minute; by default, after ten or thirty.
    dist.init_process_group(BACKENDS[device], timeout=timedelta(seconds=30))


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

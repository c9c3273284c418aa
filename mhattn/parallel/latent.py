"""A layer that keeps latents, on several processes: its heads are shared out, its cache is not.

What all heads share (the latents and the turned key) is computed by every process, so each keeps
the whole cache; see section 2.1 of https://arxiv.org/abs/2405.04434 for the layer.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from mhattn.parallel.heads import check_first_input, refuse_to_begin_anew
from mhattn.parallel.local import agree, checksum, note
from mhattn.variants.latent import LatentAttention

__all__ = ["share_latent_heads"]


# --8<-- [start:share_latent_heads]
def share_latent_heads(layer: LatentAttention, mesh: DeviceMesh) -> LatentAttention:
    """Leave each process its share of a latent layer's heads; the cache stays whole on each.

    Cut are the matrices that lead to the heads' queries, keys and values, and the output's. What
    makes the latents is the same everywhere, and so are its gradients.

    Args:
        layer: the same on all processes; it is changed.
        mesh: the processes, one axis, from `torch.distributed.device_mesh.init_device_mesh`.

    Returns:
        The layer, whose ``num_heads`` are those of this process.

    Raises:
        TypeError: layer is not a `LatentAttention`, or mesh not a `DeviceMesh`.
        ValueError: the processes do not divide the heads, its heads are shared out already, or the
            layers of two processes differ.

    Examples:
        >>> from torch.distributed.device_mesh import init_device_mesh
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> sizes = {"kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2}
        >>> layer = LatentAttention(12, num_heads=3, **sizes)
        >>> share_latent_heads(layer, init_device_mesh("cpu", (1,))).num_heads
        3
        >>> dist.destroy_process_group()
    """
    if not isinstance(layer, LatentAttention):
        raise TypeError(f"layer must be a LatentAttention, got {type(layer).__name__}")
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"mesh must be a DeviceMesh, got {type(mesh).__name__}")
    ranks, rank, group = mesh.size(), mesh.get_local_rank(), mesh.get_group()
    if "reset_parameters" in layer.__dict__:
        raise ValueError(f"layer must be whole, got one of {ranks} shares of its heads")
    if layer.num_heads % ranks:
        rule = f"the number of processes, {ranks}, must divide num_heads"
        raise ValueError(f"{rule}, got {layer.num_heads}")
    weights = {name: checksum(x) for name, x in layer.state_dict().items()}
    agree("latent heads shared out", {"layer": str(layer), **weights}, None, group)
    to_queries = layer.q_proj if layer.q_lora_rank is None else layer.q_b_proj
    for proj in (to_queries, layer.k_b_proj, layer.v_b_proj):
        keep_share(proj, proj.weight.detach().chunk(ranks, dim=0)[rank])
    keep_share(layer.out_proj, layer.out_proj.weight.detach().chunk(ranks, dim=1)[rank])
    layer.num_heads //= ranks
    layer.__dict__["reset_parameters"] = refuse_to_begin_anew

    copied: Callable[..., Tensor] = Copied.apply
    added_up: Callable[..., Tensor] = Summed.apply
    to_queries.register_forward_pre_hook(lambda _, args: (copied(args[0], group),))
    for shared in (layer.kv_a_layernorm, layer.k_rope_proj):
        shared.register_forward_hook(lambda _, args, output: copied(output, group))
    layer.out_proj.register_forward_hook(lambda _, args, output: added_up(output, group))
    check_first_input(layer, group)
    return layer
    # --8<-- [end:share_latent_heads]


def keep_share(proj: nn.Linear, weight: Tensor) -> None:
    """Replace the matrix by a part of it."""
    # A copy, for a slice would keep the whole matrix in memory.
    proj.weight = nn.Parameter(weight.clone())
    proj.out_features, proj.in_features = weight.shape


# --8<-- [start:Copied]
class Copied(torch.autograd.Function):
    """What all ranks have, and each uses for its heads: the gradient is the sum over the ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor):  # type: ignore[no-untyped-def]
        return summed(grad, ctx.group), None


class Summed(torch.autograd.Function):
    """Each rank has a term of the sum; the gradient of every term is that of the sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        return summed(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor):  # type: ignore[no-untyped-def]
        return grad, None
        # --8<-- [end:Copied]


def summed(x: Tensor, group: Any) -> Tensor:
    note("latent heads shared out: a sum over all ranks")
    # A copy, as `all_reduce` writes into what it is given, which may be a gradient that others
    # hold; and contiguous, since gradients of sums have strides of 0.
    x = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(x, group=group)
    return x

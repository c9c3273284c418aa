"""One layer on several processes: each has some of the heads (tensor parallelism).

Columns of the query, key and value projections, rows of the output's, one all-reduce: Shoeybi et
al. 2019, https://arxiv.org/abs/1909.08053. PyTorch's DTensor cuts the matrices and reduces.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from mhattn.core.modules import MultiHeadAttention
from mhattn.parallel.local import agree, alike, checksum, note

__all__ = ["share_heads"]


# --8<-- [start:share_heads]
def share_heads(layer: MultiHeadAttention, mesh: DeviceMesh) -> MultiHeadAttention:
    """Leave each process its share of the heads; the layer is called as before.

    With fewer heads of keys than processes, each is copied to several of them, and the gradients
    of the copies are added up. The first call compares the inputs of all processes, which have to
    be the same.

    Args:
        layer: the same on all processes; it is changed. Its position, and what attends, treat all
            heads alike and have no parameters.
        mesh: the processes, one axis, from `torch.distributed.device_mesh.init_device_mesh`.

    Returns:
        The layer, whose ``num_heads`` and ``num_kv_heads`` are those of this process.

    Raises:
        TypeError: layer is not a `MultiHeadAttention`, or mesh not a `DeviceMesh`.
        ValueError: the processes do not divide the heads, or the heads of keys neither divide
            the processes nor are divided by them, the layer drops weights (each process would
            draw the same ones for other heads), its position or what attends differs from head to
            head or has parameters, its heads are shared out already, or the layers of two
            processes differ.

    Examples:
        A process alone keeps all heads; `mhattn.parallel.demo` starts more.

        >>> from torch.distributed.device_mesh import init_device_mesh
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> mesh = init_device_mesh("cpu", (1,))
        >>> share_heads(MultiHeadAttention(embed_dim=8, num_heads=4), mesh).num_heads
        4
        >>> dist.destroy_process_group()
    """
    if not isinstance(layer, MultiHeadAttention):
        raise TypeError(f"layer must be a MultiHeadAttention, got {type(layer).__name__}")
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"mesh must be a DeviceMesh, got {type(mesh).__name__}")
    if hasattr(layer, "kv_copies"):
        raise ValueError(f"layer must be whole, got one of {mesh.size()} shares of its heads")
    ranks, groups = mesh.size(), layer.num_kv_heads
    if layer.num_heads % ranks:
        rule = f"the number of processes, {ranks}, must divide num_heads"
        raise ValueError(f"{rule}, got {layer.num_heads}")
    if groups % ranks and ranks % groups:
        rule = f"num_kv_heads must divide the number of processes, {ranks}, or be divided by it"
        raise ValueError(f"{rule}, got {groups}")
    if layer.dropout:
        raise ValueError(f"layer must not drop weights, got dropout={layer.dropout}")
    check_parts(layer)
    weights = {name: checksum(x) for name, x in layer.state_dict().items()}
    agree("heads shared out", {"layer": str(layer), **weights}, None, mesh.get_group())
    copies = max(1, ranks // groups)
    if copies > 1:
        copy_heads(layer, copies)
    names = ["q_proj", "k_proj", "v_proj"]
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in names}
    plan["out_proj"] = RowwiseParallel()
    note("heads shared out: cut the matrices")
    parallelize_module(layer, mesh, plan)
    layer.num_heads //= ranks
    layer.num_kv_heads = max(1, groups // ranks)
    if copies > 1:
        add_up_gradients(layer, mesh, copies)
    layer.__dict__ |= {"kv_copies": copies, "reset_parameters": refuse_to_begin_anew}
    check_first_input(layer, mesh.get_group())
    note_each_call(layer)
    return layer
    # --8<-- [end:share_heads]


def check_parts(layer: MultiHeadAttention) -> None:
    """What differs from head to head would be that of other heads; a gradient would be a part."""
    for name in ("position", "attend"):
        part = getattr(layer, name)
        if not isinstance(part, nn.Module):
            continue
        # ALiBi has a slope for each head, and a share of the layer would take those of the first
        # heads.
        if hasattr(part, "num_heads") or next(part.parameters(), None) is not None:
            rule = f"layer.{name} must treat all heads alike and have no parameters"
            raise ValueError(f"{rule}, got {type(part).__name__}")


def check_first_input(layer: nn.Module, group: Any) -> None:
    """At the first call, compare the inputs of all ranks: other inputs would be summed as well."""

    def compare(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Once: to compare, every process has to hear of all others.
        handle.remove()
        given = {str(place): x for place, x in enumerate(args)} | kwargs
        tensors = {name: checksum(x) for name, x in given.items() if isinstance(x, torch.Tensor)}
        numbers = {name: x for name, x in given.items() if isinstance(x, bool | int | float)}
        options = {name: x for name, x in numbers.items() if x is not False}  # as if not given
        same = {"inputs": [(name, *sums[:2]) for name, sums in tensors.items()], "options": options}
        found = agree("the first call", same, tensors, group)
        for name in tensors:
            alike(f"input {name}", [each[name] for each in found])

    handle = layer.register_forward_pre_hook(compare, with_kwargs=True)


def note_each_call(layer: nn.Module) -> None:
    """Forward or backward: DTensor's own all-reduces say nothing of what they are for."""

    def before(layer: nn.Module, args: tuple[Any, ...]) -> None:
        note("heads shared out: forward")

    def after(layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        # A backward pass reaches a layer first where its output gets a gradient.
        if first.requires_grad:
            first.register_hook(lambda grad: note("heads shared out: backward"))

    layer.register_forward_pre_hook(before)
    layer.register_forward_hook(after)


# --8<-- [start:copies]
def copy_heads(layer: MultiHeadAttention, copies: int) -> None:
    """Each head of keys and values as often as it is needed, one beside the other."""
    for proj in (layer.k_proj, layer.v_proj):
        for name, old in list(proj.named_parameters()):
            heads = old.detach().unflatten(0, (layer.num_kv_heads, -1))  # (G, D, ...)
            setattr(proj, name, nn.Parameter(heads.repeat_interleave(copies, 0).flatten(0, 1)))
        proj.out_features *= copies


def refuse_to_begin_anew() -> None:
    """Each process would draw numbers for its share as if it were the whole."""
    rule = "a layer must be initialised before its heads are shared out, with one seed for all"
    raise ValueError(f"{rule}, got reset_parameters() after it")


def copies_of(layer: nn.Module, part: str) -> int:
    """How many processes have the same head, in that part of a layer that is shared out."""
    copies: int = getattr(layer, "kv_copies", 1) if part in ("k_proj", "v_proj") else 1
    return copies


def add_up_gradients(layer: MultiHeadAttention, mesh: DeviceMesh, copies: int) -> None:
    """The gradient of a head that was copied is the sum over its copies."""
    first = mesh.get_local_rank() // copies * copies
    groups = [list(range(g, g + copies)) for g in range(0, mesh.size(), copies)]
    everybody = dist.get_process_group_ranks(mesh.get_group())
    made = {g[0]: dist.new_group([everybody[rank] for rank in g]) for g in groups}

    def add(parameter: Any) -> None:
        note("heads shared out: add up the gradients of copies")
        dist.all_reduce(parameter.grad.to_local(), group=made[first])

    for proj in (layer.k_proj, layer.v_proj):
        for parameter in proj.parameters():
            parameter.register_post_accumulate_grad_hook(add)
    # --8<-- [end:copies]

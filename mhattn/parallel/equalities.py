"""What several processes compute, beside one process: every plan, every mask, training, decoding.

Each function is called by all processes, as `mhattn.parallel.run` does.
"""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from mhattn.core.cache import KVCache
from mhattn.core.functional import attention, merge_heads, split_heads
from mhattn.core.modules import MultiHeadAttention
from mhattn.core.positions import Alibi, Rotary
from mhattn.parallel.checkpoints import load_shares, save_shares
from mhattn.parallel.compare import (
    compare_heads,
    compare_tokens,
    difference,
    gathered,
    gradient,
    way_to_attend,
)
from mhattn.parallel.heads import share_heads
from mhattn.parallel.latent import share_latent_heads
from mhattn.parallel.local import kind_of_device
from mhattn.parallel.places import held_tokens
from mhattn.parallel.ring import split_attention
from mhattn.variants.latent import LatentAttention

__all__ = [
    "compare_all",
    "compare_context_parallel",
    "compare_decoding",
    "compare_latent",
    "compare_rounded",
    "compare_seen",
    "compare_training",
    "train_on",
]

# All sizes differ, so that no axis passes for another.
LATENT: dict[str, Any] = {
    "kv_lora_rank": 6,
    "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 2,
    "v_head_dim": 5,
    "q_lora_rank": 7,
}


def own_tokens(length: int) -> Tensor:
    return held_tokens(length, dist.get_world_size(), dist.get_rank(), order="zigzag")


# --8<-- [start:compare_seen]
def compare_seen(way: str, kind: str, dtype: torch.dtype = torch.float32) -> dict[str, float]:
    """A mask, documents or a bias over tokens that are shared out, beside one process.

    Args:
        way: ``"ring"`` or ``"exchange"``.
        kind: ``"mask"``, of each head its own; ``"documents"``; or ``"bias"``, that of ALiBi.
        dtype: of query, key and value.

    Returns:
        Differences of ``output`` and ``gradient`` from float64 on one process, and what is
        ``allowed``: twice the difference of one process with that dtype, and 1e-5.

    Examples:
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> found = compare_seen("ring", "mask")  # alone
        >>> found["gradient"] < found["allowed"]
        True
        >>> dist.destroy_process_group()
    """
    torch.manual_seed(1)
    L, H = 17, 24
    whole = [torch.randn(2, H, L, 4, dtype=dtype) for _ in range(3)]
    goal, own = torch.randn(2, H, L, 4, dtype=dtype), own_tokens(L)
    places = torch.arange(L)
    document = places // 6
    tables: dict[str, Tensor] = {
        "mask": (torch.rand(2, H, L, L) < 0.6) & (places > 2)[:, None],  # three see nothing
        "documents": document[:, None] == document,
        "bias": Alibi(H).bias(L, L, dtype=torch.float32),
    }
    name = "bias" if kind == "bias" else "mask"
    table = {name: tables[kind]}
    ours = {kind: document[own] if kind == "documents" else tables[kind][..., own, :]}
    wide = {name: tables[kind].double() if name == "bias" else tables[kind]}
    exact = with_gradients(attention, [x.double() for x in whole], goal.double(), **wide)
    if name == "bias":
        table = {"bias": table["bias"].to(dtype)}
    alone = with_gradients(attention, whole, goal, **table)
    parts, aims = [x[:, :, own] for x in whole], goal[:, :, own]
    found = with_gradients(way_to_attend(way), parts, aims, positions=own, **ours)
    wrong = [difference(x.double(), y[:, :, own]) for x, y in zip(found, exact, strict=True)]
    usual = [difference(x.double(), y) for x, y in zip(alone, exact, strict=True)]
    return {"output": wrong[0], "gradient": max(wrong[1:]), "allowed": 2 * max(usual) + 1e-5}
    # --8<-- [end:compare_seen]


def with_gradients(
    attend: Callable[..., Any], parts: list[Tensor], goal: Tensor, **asked: Any
) -> list[Tensor]:
    """The output, and the gradients of query, key and value."""
    leaves = [x.detach().clone().requires_grad_() for x in parts]
    output = attend(*leaves, **asked)
    # A random goal: under a plain sum, all outputs have one gradient, and tokens that were mixed up
    # would not show.
    (output * goal).sum().backward()
    return [output.detach(), *(gradient(x) for x in leaves)]


# --8<-- [start:compare_training]
def compare_training(way: str = "ring", steps: int = 50) -> dict[str, float]:
    """A layer that each process trains on its tokens, beside one process with all tokens.

    `ring_attention` or `exchange_attention` is what attends in the layer; rotary positions are
    those in the whole text. After each step the processes add up the gradients of the weights.

    Args:
        way: ``"ring"``, ``"exchange"`` or ``"both"``.
        steps: of training.

    Returns:
        The largest difference of the ``weights`` at the end.

    Examples:
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> compare_training("ring", 2)["weights"] < 1e-5  # alone
        True
        >>> dist.destroy_process_group()
    """
    torch.manual_seed(0)
    whole = MultiHeadAttention(48, 24, position=Rotary(2))
    x, goal = torch.randn(2, 19, 48), torch.randn(2, 19, 48)  # (B, L, E)
    own = own_tokens(19)
    shared = copy.deepcopy(whole)
    shared.attend = partial(way_to_attend(way), positions=own)
    for layer, tokens in ((whole, torch.arange(19)), (shared, own)):
        optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        for _ in range(steps):
            output = layer(x[:, tokens], is_causal=True, positions=tokens)
            loss = (output - goal[:, tokens]).square().sum() / goal.numel()
            optimizer.zero_grad()
            loss.backward()
            if layer is shared:
                for parameter in layer.parameters():
                    dist.all_reduce(parameter.grad)
            optimizer.step()
    pairs = zip(shared.parameters(), whole.parameters(), strict=True)
    return {"weights": max(difference(ours, theirs) for ours, theirs in pairs)}
    # --8<-- [end:compare_training]


# --8<-- [start:compare_decoding]
def compare_decoding(steps: int = 50, way: str = "split") -> dict[str, Any]:
    """Token after token with caches on all processes, beside one process and its cache.

    With split keys the processes take turns: each new token's key and value stay on one of them.
    With shared heads each keeps the keys of its own heads, or of a latent layer all latents.

    Args:
        steps: how many tokens.
        way: ``"split"``, ``"heads"`` or ``"latent"``.

    Returns:
        The largest difference of an ``output``, and the keys that this process ``holds``.

    Raises:
        ValueError: way is another word.

    Examples:
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> compare_decoding(3)["holds"]  # alone
        3
        >>> dist.destroy_process_group()
    """
    if way not in ("split", "heads", "latent"):
        raise ValueError(f"way must be 'split', 'heads' or 'latent', got {way!r}")
    torch.manual_seed(0)
    groups = 8 if way == "split" else 24
    layer: Any = MultiHeadAttention(48, 24, num_kv_heads=groups, position=Rotary(2))
    shared, whole, own, wrong = copy.deepcopy(layer), KVCache(steps), KVCache(steps), []
    mesh = init_device_mesh(kind_of_device(), (dist.get_world_size(),))
    if way == "heads":
        shared = share_heads(shared, mesh)
    if way == "latent":
        layer = LatentAttention(48, 24, **LATENT)
        shared = share_latent_heads(copy.deepcopy(layer), mesh)
    with torch.no_grad():
        for step in range(steps):
            x = torch.randn(2, 1, 48)  # (B, 1, E)
            expected = layer(x, is_causal=True, cache=whole)
            if way == "split":
                output = one_token(shared, x, step, own)
            else:
                output = shared(x, is_causal=True, cache=own)
            wrong.append(difference(output, expected))
    return {"output": max(wrong), "holds": len(own)}


def one_token(layer: Any, x: Tensor, step: int, cache: KVCache) -> Tensor:
    """A step of the layer, whose key and value stay on one process; all ask their own keys."""
    query, key, value = (
        split_heads(proj(x), heads)
        for proj, heads in (
            (layer.q_proj, layer.num_heads),
            (layer.k_proj, layer.num_kv_heads),
            (layer.v_proj, layer.num_kv_heads),
        )
    )
    query, key = (layer.position.rotate(part, step) for part in (query, key))
    new = 1 if step % dist.get_world_size() == dist.get_rank() else 0
    key, value = cache.append(key[:, :, :new], value[:, :, :new])  # (B, H_kv, S, D)
    output: Tensor = layer.out_proj(merge_heads(split_attention(query, key, value)))
    return output
    # --8<-- [end:compare_decoding]


# --8<-- [start:compare_latent]
def compare_latent(steps: int = 0) -> dict[str, Any]:
    """A latent layer whose heads are shared out, beside the same layer on one process.

    Args:
        steps: of training before the comparison, on both.

    Returns:
        Largest relative differences of ``output``, of the input's ``gradient`` and of the
        ``weights`` gradients, the bytes of this process's ``cache`` and of that of ``one``.

    Examples:
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> found = compare_latent()  # alone
        >>> found["cache"] == found["one"]
        True
        >>> dist.destroy_process_group()
    """
    torch.manual_seed(0)
    ranks, rank = dist.get_world_size(), dist.get_rank()
    whole = LatentAttention(10, 24, **LATENT)
    mesh = init_device_mesh(kind_of_device(), (ranks,))
    shared = share_latent_heads(copy.deepcopy(whole), mesh)
    x, goal = torch.randn(2, 2, 7, 10)  # (B, L, E)
    for layer in (whole, shared):
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            (layer(x, is_causal=True) - goal).square().mean().backward()
            optimizer.step()
        optimizer.zero_grad()
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    caches = KVCache(7), KVCache(7)
    outputs = []
    for layer, x, cache in zip((whole, shared), inputs, caches, strict=True):
        outputs.append(layer(x, is_causal=True))
        outputs[-1].square().sum().backward()
        with torch.no_grad():
            layer(x, is_causal=True, cache=cache)
    wrong = []
    for name, x in shared.named_parameters():
        theirs = gradient(whole.get_parameter(name))
        cut = next((d for d in (0, 1) if theirs.shape[d % theirs.dim()] != x.shape[d % x.dim()]), 0)
        parts = theirs.chunk(ranks, dim=cut) if x.shape != theirs.shape else [theirs] * ranks
        wrong.append(difference(gradient(x), parts[rank]))
    return {
        "output": difference(outputs[1], outputs[0]),
        "gradient": difference(gradient(inputs[1]), gradient(inputs[0])),
        "weights": max(wrong),
        "cache": caches[1].nbytes,
        "one": caches[0].nbytes,
    }
    # --8<-- [end:compare_latent]


def compare_rounded(way: str, dtype: torch.dtype = torch.bfloat16) -> dict[str, float]:
    """Heads or keys that are shared out in half precision, and one process, both from float64.

    Args:
        way: ``"heads"``, ``"latent"`` or ``"split"``.
        dtype: of weights and inputs.

    Returns:
        How far ``output`` and the input's ``gradient`` are from those of float64, and what is
        ``allowed``: twice as far as one process is.

    Examples:
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> found = compare_rounded("heads")  # alone
        >>> found["output"] < found["allowed"]
        True
        >>> dist.destroy_process_group()
    """
    torch.manual_seed(2)
    mesh = init_device_mesh(kind_of_device(), (dist.get_world_size(),))
    if way == "split":
        query, key, value = (torch.randn(2, 24, n, 8, dtype=dtype) for n in (1, 61, 61))
        own = own_tokens(61)
        exact = [attention(query.double(), key.double(), value.double())]
        alone = [attention(query, key, value)]
        found = [split_attention(query, key[:, :, own], value[:, :, own])]
    else:
        latent = LatentAttention(48, 24, **LATENT)
        layer: Any = latent if way == "latent" else MultiHeadAttention(48, 24, position=Rotary(2))
        layer = layer.to(dtype)
        share: Any = share_latent_heads if way == "latent" else share_heads
        shared = share(copy.deepcopy(layer), mesh)
        x, goal = torch.randn(2, 2, 19, 48, dtype=dtype)  # (B, L, E)
        # Both are compared with float64: of two results in half precision, neither is the truth.
        exact = layer_gradients(copy.deepcopy(layer).double(), x.double(), goal.double())
        alone, found = (layer_gradients(each, x, goal) for each in (layer, shared))
    wrong, usual = (
        [difference(each.double(), y) for each, y in zip(some, exact, strict=True)]
        for some in (found, alone)
    )
    return {"output": wrong[0], "gradient": max(wrong[1:], default=0.0)} | {
        "allowed": 2 * max(usual) + 1e-5
    }


def layer_gradients(layer: Any, x: Tensor, goal: Tensor) -> list[Tensor]:
    """The output of a layer, and the gradient of its input."""
    x = x.clone().requires_grad_()
    output = layer(x, is_causal=True)
    (output * goal).sum().backward()
    return [output.detach(), gradient(x)]


# --8<-- [start:train_on]
def train_on(
    before: int,
    steps: int,
    source: str | Path | None = None,
    target: str | Path | None = None,
    num_kv_heads: int = 4,
) -> dict[str, float]:
    """Train a layer on, from a checkpoint and to another, beside one process that never stopped.

    Args:
        before: steps that the checkpoint has behind it.
        steps: to train now.
        source: of `save_shares`. Default: begin.
        target: where to save the layer at the end. Default: nowhere.
        num_kv_heads: heads of the key and value, of 12.

    Returns:
        The largest difference of the ``weights`` from those of ``before + steps`` steps.

    Examples:
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> train_on(0, 3)["weights"] < 1e-5  # alone
        True
        >>> dist.destroy_process_group()
    """
    torch.manual_seed(0)
    whole = MultiHeadAttention(24, 12, num_kv_heads=num_kv_heads)
    x, goal = torch.randn(2, 7, 24), torch.randn(2, 7, 24)
    mesh = init_device_mesh(kind_of_device(), (dist.get_world_size(),))
    shared = share_heads(copy.deepcopy(whole), mesh)
    for layer, number in ((whole, before + steps), (shared, steps)):
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
        if layer is shared and source is not None:
            load_shares(source, layer, optimizer)
        for _ in range(number):
            optimizer.zero_grad()
            (layer(x, is_causal=True) - goal).square().mean().backward()
            optimizer.step()
    if target is not None:
        save_shares(target, shared, optimizer)
    projections = ("q_proj", "out_proj")
    pairs = [(getattr(shared, name), getattr(whole, name)) for name in projections]
    return {"weights": max(difference(gathered(a.weight), b.weight) for a, b in pairs)}
    # --8<-- [end:train_on]


def plans() -> dict[str, Callable[[], dict[str, Any]]]:
    """What `compare_all` calls, by the names of its table."""
    exchanged = (2, 24, 24)  # B, H, H_kv
    half = torch.bfloat16
    return {
        "heads": lambda: compare_heads(24, 24),
        "heads, 8 heads of keys": lambda: compare_heads(24, 8),
        "heads, 1 head of keys": lambda: compare_heads(24, 1),
        "heads, 50 steps of training": lambda: compare_heads(24, 24, steps=50),
        "heads, 1 head of keys, 50 steps": lambda: compare_heads(24, 1, steps=50),
        "heads, bfloat16": lambda: compare_rounded("heads"),
        "heads, 50 tokens": lambda: compare_decoding(way="heads"),
        "heads of a latent layer": compare_latent,
        "heads of a latent layer, bfloat16": lambda: compare_rounded("latent"),
        "heads of a latent layer, 50 steps": lambda: compare_latent(50),
        "heads of a latent layer, 50 tokens": lambda: compare_decoding(way="latent"),
        "ring": lambda: compare_tokens("ring", "zigzag", 61),
        "ring, a mask": lambda: compare_seen("ring", "mask"),
        "ring, documents": lambda: compare_seen("ring", "documents"),
        "ring, ALiBi": lambda: compare_seen("ring", "bias"),
        "ring, bfloat16": lambda: compare_seen("ring", "documents", half),
        "ring, 50 steps of training": lambda: compare_training("ring"),
        "all-to-all": lambda: compare_tokens("exchange", "zigzag", 61, exchanged),
        "all-to-all, a mask": lambda: compare_seen("exchange", "mask"),
        "all-to-all, documents": lambda: compare_seen("exchange", "documents"),
        "all-to-all, ALiBi": lambda: compare_seen("exchange", "bias"),
        "all-to-all, bfloat16": lambda: compare_seen("exchange", "documents", half),
        "all-to-all, 50 steps of training": lambda: compare_training("exchange"),
        "both ways": lambda: compare_tokens("both", "zigzag", 61, exchanged),
        "both ways, 50 steps of training": lambda: compare_training("both"),
        "split keys": lambda: compare_tokens("split", "blocks", 61),
        "split keys, bfloat16": lambda: compare_rounded("split"),
        "split keys, 50 tokens": compare_decoding,
    }


def compare_all() -> dict[str, Any]:
    """Every plan beside one process.

    Returns:
        By the name of each: how far it is from one process, as a share of what rounding allows,
        which is less than 1; or why it is refused.

    Examples:
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> max(compare_all().values()) < 1  # alone
        True
        >>> dist.destroy_process_group()
    """
    found: dict[str, Any] = {}
    for name, compare in plans().items():
        try:
            each = compare()
        except ValueError as error:
            # A plan that so many processes can't follow is refused in words: they belong into the
            # table.
            found[name] = str(error)
        else:
            apart = max(each.get(kind, 0.0) for kind in ("output", "gradient", "weights"))
            # Fifty steps of training or decoding add up their rounding.
            found[name] = apart / each.get("allowed", 1e-4 if "50" in name else 2e-5)
    return found


# --8<-- [start:compare_context_parallel]
def compare_context_parallel() -> dict[str, Any]:
    """PyTorch's own ``context_parallel``, which is an experiment, beside one process.

    Returns:
        The largest difference of its ``output`` without a mask, the ``tokens`` of this process, and
        what it says to a ``causal`` one: the name of an error, or the largest difference.

    Examples:
        >>> from mhattn.parallel import run
        >>> run(compare_context_parallel, 1)[0]["output"] < 1e-5
        True
    """
    from torch.distributed.tensor.experimental import context_parallel

    torch.manual_seed(0)
    whole = [torch.randn(1, 2, 16, 8) for _ in range(3)]
    place = torch.arange(16)
    mesh = init_device_mesh(kind_of_device(), (dist.get_world_size(),))
    found: dict[str, Any] = {}
    for name in ("output", "causal"):
        asked: Any = {"is_causal": name == "causal"}
        expected = attention(*whole, is_causal=name == "causal")
        buffers: Any = [*(x.clone() for x in whole), place.clone()]
        try:
            with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2, 2, 2, 0]):
                found["tokens"] = buffers[3].tolist()
                output = torch.nn.functional.scaled_dot_product_attention(*buffers[:3], **asked)
                found[name] = difference(output, expected[:, :, buffers[3]])
        except (NotImplementedError, RuntimeError) as error:
            found[name] = type(error).__name__
    return found
    # --8<-- [end:compare_context_parallel]

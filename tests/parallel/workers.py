"""What the processes of test_parallel.py do."""

import copy
import math
import os
import random
import signal
import threading

import pytest
import torch
import torch.distributed as dist

from mhattn import Alibi, KVCache, MultiHeadAttention, Rotary, attention
from mhattn.parallel import (
    agree,
    checkpoints,
    compare_all,
    compare_heads,
    compare_tokens,
    exchange_attention,
    held_tokens,
    note,
    ring_attention,
    share_heads,
    share_latent_heads,
    split_attention,
    train_on,
)
from mhattn.parallel.compare import difference, gathered
from mhattn.parallel.equalities import LATENT, with_gradients
from mhattn.parallel.local import kind_of_device
from mhattn.variants import LatentAttention, RelativePosition


def everything():
    """All that gives the same as one process, and the refusals, in one start of the processes."""
    ranks = dist.get_world_size()
    found = {"all": compare_all(), "shapes": shapes(), "begun": begun(), "held": held()}
    found |= {"head shapes": head_shapes(), "decoded": decoded()}
    for heads, groups in ((12, 12), (24, 24), (24, 1), (24, 2), (12, 4)):
        if (groups % ranks == 0 or ranks % groups == 0) and heads % ranks == 0:
            found["heads", heads, groups] = compare_heads(heads, groups)
    for order in ("blocks", "zigzag", "stripes"):
        for length in (ranks, 13, 29):
            sizes = (2, 6, 3)
            found["ring", order, length] = compare_tokens("ring", order, length, sizes)
    found["exchange", "blocks"] = compare_tokens("exchange", "blocks", 23, (1, 24, 24))
    for length in (max(1, ranks - 1), 31):
        found["split", length] = compare_tokens("split", "blocks", length)
    if ranks % 2 == 0:
        found["both"] = both_ways()
    return found


def shapes(number=12):
    """Random shapes, masks and places: the largest difference of outputs and gradients."""
    draw, ranks = random.Random(5), dist.get_world_size()
    wrong = []
    for trial in range(number):
        torch.manual_seed(trial)
        way = draw.choice([ring_attention, exchange_attention])
        groups = draw.randint(1, 3) * (ranks if way is exchange_attention else 1)
        heads, batch, width = groups * draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 7)
        length = draw.randint(ranks + 1, 23)
        is_causal, masked, added = (draw.random() < 0.5 for _ in range(3))
        order = torch.randperm(length)  # any tokens on any rank, at least one
        cuts = sorted(draw.sample(range(1, length), ranks - 1))
        own = order.tensor_split(cuts)[dist.get_rank()]
        whole = [torch.randn(batch, h, length, width) for h in (heads, groups, groups)]
        goal = torch.randn(batch, heads, length, width)
        table = torch.rand(draw.choice([1, batch]), draw.choice([1, heads]), length, length)
        asked = {"mask": table < 0.7} if masked else {}
        asked |= {"bias": table} if added else {}
        parts = {name: x[..., own, :] for name, x in asked.items()}
        seen = {"mask": table < (0.7 if masked else 2)}
        if is_causal:
            seen["mask"] = seen["mask"] & torch.ones(length, length).tril().bool()
        exact = with_gradients(attention, whole, goal, **asked | seen)
        pieces, aim = [x[:, :, own] for x in whole], goal[:, :, own]
        found = with_gradients(way, pieces, aim, is_causal=is_causal, positions=own, **parts)
        pairs = zip(found, exact, strict=True)
        wrong += [difference(ours, theirs[:, :, own]) for ours, theirs in pairs]
    return max(wrong)


def head_shapes(number=12):
    """Random layers and calls, heads shared out: outputs, gradients of inputs and of weights.

    In float64: with so large weights, float32 rounds more than other tests allow.
    """
    draw, ranks = random.Random(7), dist.get_world_size()
    mesh = dist.device_mesh.init_device_mesh(kind_of_device(), (ranks,))
    wrong = []
    for trial in range(number):
        torch.manual_seed(trial)
        fewer = [n for n in range(1, ranks) if ranks % n == 0]
        groups = draw.choice([*fewer, ranks, 2 * ranks])
        heads = math.lcm(groups, ranks) * draw.randint(1, 2)
        width, head_dim, cross = draw.randint(1, 9), 2 * draw.randint(1, 3), draw.random() < 0.4
        options = {"kdim": 5, "vdim": 7} if cross else {"position": Rotary(head_dim)}
        sizes = {"num_kv_heads": groups, "head_dim": head_dim, "bias": draw.random() < 0.6}
        whole = MultiHeadAttention(width, heads, **sizes, **options, dtype=torch.float64)
        for parameter in whole.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        batch, length, keys = (draw.randint(1, 6) for _ in range(3))
        shapes = [(length, width), (keys, 5), (keys, 7)] if cross else [(length, width)]
        inputs = [torch.randn(batch, *shape, dtype=torch.float64) for shape in shapes]
        asked = {"is_causal": draw.random() < 0.5}
        if draw.random() < 0.6:
            seen = keys if cross else length
            asked["mask"] = torch.rand(draw.choice([1, batch]), 1, length, seen) < 0.7
        shared = share_heads(copy.deepcopy(whole), mesh)
        exact, found = (called(layer, inputs, asked) for layer in (whole, shared))
        wrong += [difference(ours, theirs) for ours, theirs in zip(found, exact, strict=True)]
        for name, parameter in shared.named_parameters():
            ours, theirs = gathered(parameter.grad), whole.get_parameter(name).grad
            copies = ours.numel() // theirs.numel()
            if copies > 1:  # each of them has the gradient of the head
                ours = ours.unflatten(0, (groups, copies, head_dim))
                theirs = theirs.unflatten(0, (groups, 1, head_dim)).expand_as(ours)
            wrong.append(difference(ours, theirs))
    return max(wrong)


def called(layer, inputs, asked):
    """The output, and the gradients of the inputs."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    output = layer(*leaves, **asked)
    output.square().sum().backward()
    return [output.detach(), *(x.grad for x in leaves)]


def decoded(tokens=50):
    """Token by token where heads of keys are copied; each rank keeps those that it needs."""
    ranks = dist.get_world_size()
    mesh = dist.device_mesh.init_device_mesh(kind_of_device(), (ranks,))
    wrong = []
    for groups in (1, 2, 8):
        if groups % ranks and ranks % groups:
            continue
        torch.manual_seed(groups)
        whole = MultiHeadAttention(12, 24, head_dim=2, num_kv_heads=groups, position=Rotary(2))
        shared = share_heads(copy.deepcopy(whole), mesh)
        caches = [KVCache(tokens) for _ in range(2)]
        for x in torch.randn(tokens, 3, 1, 12):
            with torch.no_grad():
                both = zip((shared, whole), caches, strict=True)
                wrong.append(
                    difference(*(layer(x, is_causal=True, cache=own) for layer, own in both))
                )
        assert caches[0].nbytes * groups == caches[1].nbytes * max(1, groups // ranks)
    return max(wrong)


def begun():
    """A layer that was initialised and then shared out: its numbers, all of them."""
    torch.manual_seed(11)
    mesh = dist.device_mesh.init_device_mesh(kind_of_device(), (dist.get_world_size(),))
    layer = share_heads(MultiHeadAttention(24, 24), mesh)
    with pytest.raises(ValueError, match=r"must be initialised before its heads are shared out"):
        layer.reset_parameters()
    return layer.q_proj.weight.full_tensor().detach().cpu()


def held():
    """How many numbers this rank has of the matrices of layers whose heads are shared out."""
    ranks = dist.get_world_size()
    mesh = dist.device_mesh.init_device_mesh(kind_of_device(), (ranks,))
    found = {}
    for groups in (24, 8, 2, 1):
        if groups % ranks == 0 or ranks % groups == 0:
            torch.manual_seed(5)
            sizes = {"num_kv_heads": groups, "head_dim": 3, "bias": False}
            found[groups] = numbers(share_heads(MultiHeadAttention(10, 24, **sizes), mesh))
    for latents in (7, None):  # those that queries are computed from
        torch.manual_seed(5)
        layer = LatentAttention(10, 24, **LATENT | {"q_lora_rank": latents})
        found["latent", latents] = numbers(share_latent_heads(layer, mesh))
    return found


def numbers(layer):
    parts = [getattr(x, "to_local", lambda x=x: x)() for x in layer.parameters()]
    return sum(part.numel() for part in parts if part.ndim == 2)


def both_ways():
    """All-to-all in groups of two, a ring between the groups."""
    torch.manual_seed(7)
    ranks = dist.get_world_size()
    names = {"mesh_dim_names": ("ring", "exchange")}
    mesh = dist.device_mesh.init_device_mesh(kind_of_device(), (ranks // 2, 2), **names)
    groups = {"group": mesh["exchange"].get_group(), "ring": mesh["ring"].get_group()}
    own = held_tokens(21, ranks, dist.get_rank(), order="zigzag")
    which = torch.arange(21) // 8
    mask = (which[:, None] == which) & torch.ones(21, 21).tril().bool()
    whole, goal = [torch.randn(2, h, 21, 4) for h in (6, 2, 2)], torch.randn(2, 6, 21, 4)
    exact = with_gradients(attention, whole, goal, mask=mask)
    asked = {"is_causal": True, "positions": own, "documents": which[own], **groups}
    parts = [x[:, :, own] for x in whole]
    found = with_gradients(exchange_attention, parts, goal[:, :, own], **asked)
    pairs = zip(found, exact, strict=True)
    return max(difference(ours, theirs[:, :, own]) for ours, theirs in pairs)


def refusals():
    """What two ranks disagree on is an error on both, and nothing hangs after it."""
    rank = dist.get_rank()
    ones = torch.ones(1, 2, 3, 4)
    with pytest.raises(ValueError, match=r"dtype must be the same .*32 on rank 0 and .*64 on"):
        ring_attention(*[ones.to([torch.float32, torch.float64][rank])] * 3)
    with pytest.raises(ValueError, match=r"sizes of the query must .* \(1, 2, 4\) .* \(1, 4, 4\)"):
        ring_attention(ones.repeat(1, 1 + rank, 1, 1), ones, ones)
    with pytest.raises(ValueError, match=r"plan must be .* ring attention on rank 0 and attention"):
        (exchange_attention if rank else ring_attention)(ones, ones, ones)
    with pytest.raises(ValueError, match=r"is_causal must .* False on rank 0 and True on rank 1"):
        ring_attention(ones, ones, ones, is_causal=bool(rank))
    with pytest.raises(ValueError, match=r"processes, 2, must divide num_kv_heads, got 1"):
        exchange_attention(ones, ones[:, :1], ones[:, :1])
    with pytest.raises(ValueError, match=r"key must have tokens on some rank, got \[0, 0\]"):
        split_attention(ones, ones[:, :, :0], ones[:, :, :0])
    mesh = dist.device_mesh.init_device_mesh(kind_of_device(), (2,))
    with pytest.raises(ValueError, match=r"processes, 2, must divide num_heads, got 3"):
        share_heads(MultiHeadAttention(6, 3), mesh)
    with pytest.raises(ValueError, match=r"must not drop weights, got dropout=0\.5"):
        share_heads(MultiHeadAttention(6, 2, dropout=0.5), mesh)
    for name, part in {"Alibi": Alibi(2), "RelativePosition": RelativePosition(3, 4)}.items():
        with pytest.raises(ValueError, match=rf"position must treat all heads alike.*got {name}"):
            share_heads(MultiHeadAttention(6, 2, position=part), mesh)
    for wrong in (ones.double(), ones[..., :2], ones.repeat(2, 1, 1, 1), None):
        with pytest.raises(
            (TypeError, ValueError), match=["rank 1 cannot take part in split", "key"][rank]
        ):
            split_attention(ones[:, :, :1], wrong if rank else ones, wrong if rank else ones)
    with pytest.raises(ValueError, match=r"query must be the same on all ranks, got sums"):
        split_attention(ones[:, :, :1] + rank, ones, ones)
    with pytest.raises(
        ValueError, match=["rank 1 cannot take part in ring", "positions must"][rank]
    ):
        ring_attention(ones, ones, ones, positions=torch.arange(3 + rank))
    with pytest.raises(ValueError, match=r"positions must be 0, 1, 2 and so on.* \[0, 1, 1, 2, 2"):
        ring_attention(
            ones, ones, ones, positions=torch.arange(3) + rank, mask=torch.ones(3, 6) > 0
        )
    with pytest.raises(
        ValueError, match=r"positions must differ .* \[0, 1, 2\] on rank 0 and on ra"
    ):
        ring_attention(ones, ones, ones, is_causal=True, positions=held_tokens(6, 2, 0))
    with pytest.raises(ValueError, match=r"must differ from rank to rank, got \[2\] on rank 0 and"):
        ring_attention(ones, ones, ones, positions=torch.arange(3) + 2 * rank)
    for wrong in ([0, 1, 2], torch.zeros(3)):
        with pytest.raises(
            (TypeError, ValueError),
            match=["positions must be a tensor of integers, got", "rank 0 cannot take"][rank],
        ):
            ring_attention(ones, ones, ones, positions=held_tokens(6, 2, 1) if rank else wrong)
    with pytest.raises(ValueError, match=r"sizes of the mask must .* \(1, 1, 6\) .* \(1, 1, 7\)"):
        ring_attention(ones, ones, ones, mask=torch.ones(3, 6 + rank) > 0)
    with pytest.raises(ValueError, match=r"mask must have a column for each of 6 tokens, got 5"):
        exchange_attention(ones, ones, ones, mask=torch.ones(3, 5) > 0)
    with pytest.raises(ValueError, match=r"bias must not need gradients"):
        ring_attention(ones, ones, ones, bias=torch.ones(3, 6, requires_grad=True))
    with pytest.raises(ValueError, match=r"ring needs positions, and neither mask nor bias"):
        exchange_attention(ones, ones, ones, ring=dist.group.WORLD)
    torch.manual_seed(0)
    shared = share_heads(MultiHeadAttention(6, 2), mesh)
    with pytest.raises(ValueError, match=r"input 0 must be the same on all ranks, got sums"):
        shared(torch.ones(1, 5, 6) * (1 + rank))
    with pytest.raises(ValueError, match=r"layer must be whole, got one of 2 shares"):
        share_heads(shared, mesh)
    torch.manual_seed(0)
    shared = share_heads(MultiHeadAttention(6, 2), mesh)
    with pytest.raises(
        ValueError, match=r"options must .* \{\} on rank 0 and \{'is_causal': True\}"
    ):
        shared(torch.ones(1, 5, 6), is_causal=bool(rank))
    sizes = {"kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2}
    with pytest.raises(ValueError, match=r"processes, 2, must divide num_heads, got 3"):
        share_latent_heads(LatentAttention(12, 3, **sizes), mesh)
    torch.manual_seed(rank)
    with pytest.raises(ValueError, match=r"q_proj\.weight must be the same on all ranks"):
        share_latent_heads(LatentAttention(12, 2, **sizes), mesh)
    torch.manual_seed(0)
    latent = share_latent_heads(LatentAttention(12, 2, **sizes), mesh)
    with pytest.raises(ValueError, match=r"layer must be whole, got one of 2 shares"):
        share_latent_heads(latent, mesh)
    with pytest.raises(ValueError, match=r"must be initialised before its heads are shared out"):
        latent.reset_parameters()
    with pytest.raises(TypeError, match=r"mesh must be a DeviceMesh, got NoneType"):
        share_latent_heads(LatentAttention(12, 2, **sizes), None)
    torch.manual_seed(rank)
    with pytest.raises(ValueError, match=r"q_proj\.weight must be the same on all ranks"):
        share_heads(MultiHeadAttention(6, 2), mesh)
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"layer must be the same on all ranks"):
        share_heads(MultiHeadAttention(8, 2, num_kv_heads=1 + rank), mesh)
    assert agree("end", {}, rank) == [0, 1]
    return "all refused"


def stopped_save(folder):
    """Rank 0 is killed when the numbers are written, before the checkpoint has its name."""
    if dist.get_rank() == 0:
        checkpoints.digest = lambda file: os.kill(os.getpid(), signal.SIGKILL)
    train_on(0, 1, None, folder)


def fail(rank):
    note("think")
    if dist.get_rank() == rank:
        raise ArithmeticError("no number")
    dist.barrier()


def sleep():
    if dist.get_rank() == 1:
        note("sleep")
        threading.Event().wait(60)
    dist.barrier()

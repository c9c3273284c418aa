"""What the processes of test_parallel.py do."""

import os
import signal
import threading

import pytest
import torch
import torch.distributed as dist

from mhattn import MultiHeadAttention, attention
from mhattn.parallel import (
    agree,
    compare_heads,
    compare_tokens,
    exchange_attention,
    held_tokens,
    note,
    ring_attention,
    share_heads,
    split_attention,
)


def everything():
    """All that gives the same as one process, and the refusals, in one start of the processes."""
    ranks = dist.get_world_size()
    found = {}
    for heads, groups in ((12, 12), (24, 24), (24, 1), (24, 2), (12, 4)):
        if (groups % ranks == 0 or ranks % groups == 0) and heads % ranks == 0:
            found["heads", heads, groups] = compare_heads(heads, groups)
    found["trained"] = compare_heads(24, 24, 5, steps=50)
    for order in ("blocks", "zigzag", "stripes"):
        for length in (ranks, 13, 29):
            sizes = (2, 6, 3)
            found["ring", order, length] = compare_tokens("ring", order, length, sizes)
    for order in ("blocks", "zigzag"):
        sizes = (1, 24, 24)
        found["exchange", order] = compare_tokens("exchange", order, 23, sizes)
    for length in (max(1, ranks - 1), 31):
        found["split", length] = compare_tokens("split", "blocks", length)
    found["documents"] = documents()
    found["half"] = half()
    return found


def documents():
    """Packed documents over the ring and the all-to-all, beside a mask on one process."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 24, 17, 4) for _ in range(3))
    which = torch.tensor([0] * 5 + [1] * 7 + [2] * 5)
    expected = attention(q, k, v, mask=which[:, None] == which)
    own = held_tokens(17, dist.get_world_size(), dist.get_rank())
    parts = [x[:, :, own] for x in (q, k, v)]
    outputs = [f(*parts, documents=which[own]) for f in (ring_attention, exchange_attention)]
    wrong = max(float((out - expected[:, :, own]).abs().max()) for out in outputs)
    return {"output": wrong, "gradient": 0.0}


def half():
    """In bfloat16 the ring sums in float32: as near to the exact output as one process."""
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 6, 40, 8, dtype=torch.bfloat16) for _ in range(3))
    own = held_tokens(40, dist.get_world_size(), dist.get_rank())
    exact = attention(q.double(), k.double(), v.double())[:, :, own]
    ours = ring_attention(*(x[:, :, own] for x in (q, k, v)))
    assert ours.dtype == torch.bfloat16
    return {"output": float((ours - exact).abs().max() / exact.abs().max()) / 1e4, "gradient": 0.0}


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
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    with pytest.raises(ValueError, match=r"processes, 2, must divide num_heads, got 3"):
        share_heads(MultiHeadAttention(6, 3), mesh)
    with pytest.raises(ValueError, match=r"must not drop weights, got dropout=0\.5"):
        share_heads(MultiHeadAttention(6, 2, dropout=0.5), mesh)
    torch.manual_seed(rank)
    with pytest.raises(ValueError, match=r"q_proj\.weight must be the same on all ranks"):
        share_heads(MultiHeadAttention(6, 2), mesh)
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"layer must be the same on all ranks"):
        share_heads(MultiHeadAttention(8, 2, num_kv_heads=1 + rank), mesh)
    assert agree("end", {}, rank) == [0, 1]
    return "all refused"


def endless(victim, after):
    """Ring after ring, until the victim is killed at a moment of its own."""
    if dist.get_rank() == victim:
        threading.Timer(after, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    x = torch.randn(1, 2, 8, 4, requires_grad=True)
    while True:
        ring_attention(x, x, x, is_causal=True).sum().backward()


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

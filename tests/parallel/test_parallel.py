"""Several processes give what one gives, to rounding; and whoever dies ends the others."""

import random
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
import workers

from mhattn.parallel import (
    exchange_bytes,
    held_tokens,
    ring_bytes,
    run,
    share_heads,
    visible_scores,
)

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch has no gloo"
)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, pytest.param(8, marks=pytest.mark.nightly)])
def test_several_processes_give_what_one_gives(ranks):
    results = run(workers.everything, ranks)
    assert len(results) == ranks
    for rank, found in enumerate(results):
        for name, each in found.items():
            assert each["output"] < 1e-5, (rank, name)
            assert each["gradient"] < 1e-5, (rank, name)
            assert each.get("weights", 0) < 1e-5, (rank, name)
        check_bytes(ranks, rank, found)


def check_bytes(ranks, rank, found):
    """What was sent, beside the closed forms."""
    for (_, order, length), each in ((n, e) for n, e in found.items() if n[0] == "ring"):
        lengths = [len(held_tokens(length, ranks, r, order=order)) for r in range(ranks)]
        assert each["tokens"] == lengths[rank]
        expected = ring_bytes(lengths, (2, 3, 8), 4)[rank]
        assert sum(each["forward"].values()) == expected
        block = 2 * 2 * 3 * 8 * 4  # backward: keys and values again, their gradients all round
        back = expected + (ranks > 1) * sum(lengths) * block
        assert sum(each["backward"].values()) == back
    lengths = [len(held_tokens(23, ranks, r)) for r in range(ranks)]
    sent = found["exchange", "blocks"]["forward"]["all-to-all"]
    assert sent == exchange_bytes(lengths, (1, 24, 24, 8), 4)[rank]
    for heads in (12, 24):
        if ("heads", heads, heads) in found and ranks > 1:
            each = found["heads", heads, heads]
            assert each["heads"] == heads // ranks
            output = 2 * 7 * 2 * heads * 4  # B, L, E, bytes
            assert each["forward"] == {"all-reduce": output}
            assert each["backward"] == {"all-reduce": 3 * output}
    if ranks in (2, 4):
        assert found["heads", 24, 1]["kv_heads"] == 1


def test_what_ranks_disagree_on_is_refused_before_it_hangs():
    assert run(workers.refusals, 2) == ["all refused"] * 2


def kill(seed):
    ranks = random.Random(seed).choice([2, 3])
    victim = random.Random(seed + 1).randrange(ranks)
    began, after = time.monotonic(), 0.3 * random.Random(seed + 2).random()
    pattern = rf"^rank {victim} died \(exit code -9\) in: (ring attention|run endless)"
    with pytest.raises(RuntimeError, match=pattern):
        run(workers.endless, ranks, victim, after)
    assert time.monotonic() - began < 300  # most of it is starting Python


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
@pytest.mark.parametrize("seed", range(2))
def test_a_killed_rank_ends_the_others_and_is_named(seed):
    kill(seed)


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
@pytest.mark.parametrize("seed", range(100, 150))
def test_fifty_kills(seed):
    kill(seed)


def test_an_error_names_the_rank_and_what_it_did():
    with pytest.raises(RuntimeError, match=r"(?s)^rank 1 failed in: think\n.*no number"):
        run(workers.fail, 2, 1)


def test_whoever_waits_too_long_is_ended():
    with pytest.raises(TimeoutError, match=r"2 processes took too long; rank 0: .*; rank 1: sleep"):
        run(workers.sleep, 2, seconds=20)


def test_a_function_that_others_cannot_import_is_refused():
    with pytest.raises(TypeError, match=r"function must be of a module that others can import"):
        run(lambda: 0, 1)
    with pytest.raises(ValueError, match=r"world_size must be at least 1, got 0"):
        run(workers.sleep, 0)


def test_the_demo_runs_under_torchrun():
    command = "torch.distributed.run --standalone --nproc-per-node 2 -m mhattn.parallel.demo"
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], capture_output=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line[:26].strip() for line in lines[2:]] == [
        "heads shared out",
        "grouped heads shared out",
        "one head of keys, copied",
        "50 steps of training",
        "ring, blocks",
        "ring, zigzag",
        "all-to-all",
        "one query, split keys",
    ]


@pytest.mark.parametrize("order", ["blocks", "zigzag", "stripes"])
@pytest.mark.parametrize(("length", "ranks"), [(1, 1), (13, 4), (3, 5), (64, 8)])
def test_every_token_has_one_rank(order, length, ranks):
    held = [held_tokens(length, ranks, rank, order=order) for rank in range(ranks)]
    assert torch.cat(held).sort().values.tolist() == list(range(length))
    assert int(visible_scores(held).sum()) == length * (length + 1) // 2


def test_zigzag_shares_the_work_equally():
    held = [held_tokens(64, 4, rank, order="zigzag") for rank in range(4)]
    work = visible_scores(held).sum(dim=1)
    assert work.unique().tolist() == [64 * 65 // 2 // 4]


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"order must be 'blocks', 'zigzag' or 'stripes', got 'x'"):
        held_tokens(4, 2, 0, order="x")
    with pytest.raises(ValueError, match=r"rank must be less than world_size, 2, got 2"):
        held_tokens(4, 2, 2)
    with pytest.raises(TypeError, match=r"layer must be a MultiHeadAttention, got int"):
        share_heads(3, None)

"""Several processes give what one gives, to rounding; and whoever fails ends the others.

Each process loads PyTorch first. Plain `pytest` starts two, which compute everything; what other
numbers of processes do, and how they fail, is in ``pytest -m slow``.
"""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
import workers
from torch.distributed.device_mesh import init_device_mesh as init_mesh

from mhattn import MultiHeadAttention
from mhattn.costs import (
    LatentSizes,
    MlpSizes,
    Replica,
    known_accelerator,
    known_link,
    known_model,
)
from mhattn.parallel import (
    compare_context_parallel,
    compare_decoding,
    compare_tokens,
    demo,
    equalities,
    exchange_bytes,
    held_tokens,
    load_shares,
    local,
    ring_bytes,
    run,
    save_shares,
    share_heads,
    train_on,
    visible_scores,
)

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch has no gloo"
)


def on_gpus(ranks):
    few = torch.cuda.device_count() < ranks
    skip = pytest.mark.skipif(few, reason=f"not {ranks} GPUs")
    return pytest.param("cuda", ranks, marks=[skip, pytest.mark.slow])


@pytest.mark.parametrize(
    ("device", "ranks"),
    [
        ("cpu", 2),
        *(pytest.param("cpu", ranks, marks=pytest.mark.slow) for ranks in (1, 3, 4)),
        pytest.param("cpu", 8, marks=pytest.mark.nightly),
        *(on_gpus(ranks) for ranks in (1, 2, 3, 4, 8)),
    ],
)
def test_several_processes_give_what_one_gives(device, ranks):
    results = run(workers.everything, ranks, seconds=600.0, device=device)
    assert len(results) == ranks
    torch.manual_seed(11)
    begun = MultiHeadAttention(24, 24, device=device).q_proj.weight.cpu()
    for rank, found in enumerate(results):
        assert torch.equal(found.pop("begun"), begun)
        check_held(ranks, found.pop("held"))
        for name, apart in found.pop("all").items():
            if name == "heads, 8 heads of keys" and ranks == 3:
                assert apart.startswith("num_kv_heads must divide the number of processes, 3,")
            else:
                assert apart < 1, (rank, name)
        assert found.pop("head shapes") < 1e-12  # float64
        for name in ("shapes", "decoded", "both"):
            assert found.pop(name, 0.0) < 2e-5, (rank, name)
        for name, each in found.items():
            assert each["output"] < 1e-5, (rank, name)
            assert each["gradient"] < 1e-5, (rank, name)
            assert each.get("weights", 0) < 1e-5, (rank, name)
        check_bytes(ranks, rank, found)


def check_held(ranks, found):
    """What a rank has of the matrices, beside what `Replica` counts, whose rest is empty here."""
    chip, link = known_accelerator("h100"), known_link("nvlink-4")
    assert len(found) >= 4
    for sizes, numbers in found.items():
        model = replace(known_model("llama-3.1-8b"), layers=1, embed_dim=10, num_heads=24)
        model = replace(model, mlp=MlpSizes(2), vocabulary=0)
        if isinstance(sizes, int):
            model = replace(model, num_kv_heads=sizes, head_dim=3)
        else:
            latent = LatentSizes(**equalities.LATENT | {"q_lora_rank": sizes[1]})
            model = replace(model, num_kv_heads=24, head_dim=5, latent=latent)
        replica = Replica(model, chip, link, tensor=ranks, weight_bits=8)
        assert replica.weight_bytes == numbers, sizes


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


several_processes = pytest.mark.slow
both_devices = pytest.mark.parametrize(("device", "ranks"), [("cpu", 2), on_gpus(2)])


@several_processes
@both_devices
def test_what_ranks_disagree_on_is_refused_before_it_hangs(device, ranks):
    assert run(workers.refusals, ranks, device=device) == ["all refused"] * 2


@several_processes
def test_an_error_names_the_rank_and_what_it_did():
    with pytest.raises(RuntimeError, match=r"(?s)^rank 1 failed in: think\n.*no number"):
        run(workers.fail, 2, 1)


@several_processes
def test_whoever_waits_too_long_is_ended():
    with pytest.raises(TimeoutError, match=r"2 processes took too long; rank 0: .*; rank 1: sleep"):
        run(workers.sleep, 2, seconds=20)


def test_a_function_that_others_cannot_import_is_refused():
    with pytest.raises(TypeError, match=r"function must be of a module that others can import"):
        run(lambda: 0, 1)
    with pytest.raises(ValueError, match=r"world_size must be at least 1, got 0"):
        run(workers.sleep, 0)
    with pytest.raises(ValueError, match=r"device must be 'cpu' or 'cuda', got 'tpu'"):
        run(workers.sleep, 1, device="tpu")
    with pytest.raises(ValueError, match=r"there must be 99 GPUs for as many processes, got \d"):
        run(workers.sleep, 99, device="cuda")


@several_processes
def test_the_demo_runs_under_torchrun():
    command = "torch.distributed.run --standalone --nproc-per-node 2 -m mhattn.parallel.demo"
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], capture_output=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    equal, sent = lines[1:-4], lines[-4:]
    assert len(equal) == 28
    assert all(float(line[36:]) < 1 for line in equal)
    counted = {line[:36].strip(): line[36:] for line in sent}
    assert {name: int(said.split()[0].replace(",", "")) for name, said in counted.items()} == {
        "heads, forward": 2 * 7 * 48 * 4,  # B, L, E, bytes
        "ring, forward": 31 * 2 * 2 * 24 * 8 * 4,  # tokens of rank 0; keys and values; B, H, D
        "split keys, forward": 2 * 24 * (1 + 8 + 1) * 4,
        "all-to-all, forward": (31 * 3 * 24 + 61 * 12) * 2 * 8 * 4,  # out, and back to all
    }


@several_processes
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_under_torchrun_the_first_that_died_is_named_and_no_survivor_is():
    """A rank kills itself in the middle; the others lose it, and say so."""
    code = """
import os, sys, torch.distributed as dist
from mhattn.parallel import demo
def everything():
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), 9)
    dist.barrier()
demo.everything = everything
demo.main()
"""
    command = "torch.distributed.run --standalone --nproc-per-node 3 --no-python"
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), sys.executable, "-c", code],
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode != 0
    cause = done.stderr.partition("Root Cause (first observed failure):")[2]
    assert re.search(r"rank +: 1 ", cause), done.stderr
    said = re.findall(r"^rank (\d) (failed|lost another rank)", done.stderr, re.M)
    assert said, "the others ended without a word"
    assert {how for rank, how in said if rank != "1"} == {"lost another rank"}


def test_what_became_of_a_rank_is_its_own_reason_or_another_ranks_death():
    own, lost = ValueError("num_heads"), RuntimeError("[gloo/transport/tcp/pair.cc:547] Read error")
    assert demo.reason_of(own) == "failed: num_heads"
    assert demo.reason_of(lost).startswith("lost another rank, which torchrun names below")
    assert demo.reason_of(dist.DistBackendError("x")).startswith("lost another rank")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "it runs on several processes, which torchrun starts: use the line above"),
        (["gpu"], 2, "invalid choice: 'gpu'"),
        (["--help"], 0, "Compare every plan of mhattn.parallel with one process"),
    ],
)
def test_the_demo_alone_says_how_to_start_it(arguments, code, said):
    command = [sys.executable, "-m", "mhattn.parallel.demo", *arguments]
    alone = {name: value for name, value in os.environ.items() if name not in demo.GROUP}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=alone)
    assert done.returncode == code
    told = done.stdout + done.stderr
    assert said in " ".join(told.split())
    assert "python -m torch.distributed.run --standalone --nproc-per-node 2" in told
    assert "Traceback" not in told


@several_processes
def test_others_read_what_two_processes_wrote(tmp_path):
    """Adam goes on where it was: with other numbers of processes, to the same weights."""
    for groups, ranks in ((1, 4), (2, 4), (4, 1)):
        folder = tmp_path / f"{groups}"
        run(train_on, 2, 0, 10, None, folder, groups)
        for found in run(train_on, ranks, 10, 10, folder, None, groups):
            assert found["weights"] < 1e-5
    layer = MultiHeadAttention(24, 12, num_kv_heads=1)
    load_shares(tmp_path / "1", layer)  # without any process group
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert train_on(10, 0, tmp_path / "1", None, 1)["weights"] < 1e-5
        shared = share_heads(MultiHeadAttention(24, 12, num_kv_heads=1), init_mesh("cpu", (1,)))
        load_shares(tmp_path / "1", shared)
        assert torch.equal(shared.v_proj.weight.full_tensor(), layer.v_proj.weight)
    finally:
        dist.destroy_process_group()


@several_processes
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_a_checkpoint_that_was_stopped_has_no_name(tmp_path):
    folder = tmp_path / "step-1"
    with pytest.raises(RuntimeError, match=r"^rank 0 died \(exit code -9\) in: save a checkpoint"):
        run(workers.stopped_save, 2, folder)
    assert [each.name for each in tmp_path.iterdir()] == ["step-1.unfinished"]
    layer = MultiHeadAttention(24, 12, num_kv_heads=4)
    for place in (folder, tmp_path / "step-1.unfinished"):
        with pytest.raises(ValueError, match=r"must hold a finished checkpoint, got .* without fi"):
            load_shares(place, layer)
    save_shares(folder, layer)  # over what was left behind
    assert [each.name for each in tmp_path.iterdir()] == ["step-1"]


def test_files_that_were_cut_off_or_are_of_another_layer_are_refused(tmp_path):
    layer = MultiHeadAttention(8, 4)
    save_shares(tmp_path / "a", layer)
    with pytest.raises(ValueError, match=r"folder must not exist, got .*a"):
        save_shares(tmp_path / "a", layer)
    with pytest.raises(ValueError, match=r"must hold layer.q_proj.weight of shape \(12, 12\), got"):
        load_shares(tmp_path / "a", MultiHeadAttention(12, 4))
    save_shares(tmp_path / "b", MultiHeadAttention(8, 4, bias=False))
    with pytest.raises(ValueError, match=r"layer.q_proj.bias of shape \(8,\), got none"):
        load_shares(tmp_path / "b", layer)
    with pytest.raises(TypeError, match=r"layer must be a MultiHeadAttention, got int"):
        save_shares(tmp_path / "c", 3)
    before = layer.q_proj.weight.clone()
    file = next(file for file in (tmp_path / "a").iterdir() if file.suffix == ".distcp")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"must hold the files that were written, got another __"):
        load_shares(tmp_path / "a", layer)
    assert torch.equal(layer.q_proj.weight, before)


@several_processes
def test_different_numbers_of_processes_are_refused(tmp_path):
    torch.save({"call": ("workers", "sleep"), "args": ()}, tmp_path / "call")
    started = [local.start(str(tmp_path), rank, 2 + rank) for rank in range(2)]
    for process in started:
        assert process.wait(300) == 1
    texts = [(tmp_path / f"error-{rank}").read_text() for rank in range(2)]
    assert "world_size must be the same on all ranks, got 2 on rank 0 and 3 on rank 1" in texts[0]
    assert "world_size must be the same on all ranks, got 3 on rank 1 and 2 on rank 0" in texts[1]


@pytest.mark.nightly
def test_what_pytorch_has_of_its_own():
    """Causal attention over split tokens needs a kernel that PyTorch 2.13 has for GPUs only."""
    for rank, found in enumerate(run(compare_context_parallel, 2, seconds=600.0)):
        assert found["output"] < 1e-5
        assert found["tokens"] == held_tokens(16, 2, rank, order="zigzag").tolist()
        assert found["causal"] in ("NotImplementedError", "RuntimeError") or found["causal"] < 1e-5


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
    with pytest.raises(TypeError, match=r"mesh must be a DeviceMesh, got int"):
        share_heads(MultiHeadAttention(8, 4), 2)
    with pytest.raises(ValueError, match=r"way must be 'ring', .*, 'both' or 'split', got 'x'"):
        compare_tokens("x")
    with pytest.raises(ValueError, match=r"way must be 'split', 'heads' or 'latent', got 'x'"):
        compare_decoding(3, "x")

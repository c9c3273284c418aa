import os
import subprocess
import sys
import time
from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from mhattn.inside import held_bytes, measure_seconds, peak_bytes, timing

FLOAT = 4  # bytes


@pytest.fixture
def pass_time(monkeypatch):
    """Moves a clock that nothing else moves, so that a busy machine changes no result."""
    passed = []

    def timeit(call, number):
        before = len(passed)
        call()
        return sum(passed[before:])

    monkeypatch.setattr(timing, "timeit", timeit)
    return passed.append


def test_each_function_has_its_turn_in_every_round():
    turns = []
    functions = {name: lambda name=name: turns.append(name) for name in "abc"}
    seconds = measure_seconds(functions, rounds=7, block_seconds=0)
    assert {name: len(of) for name, of in seconds.items()} == {"a": 7, "b": 7, "c": 7}
    rounds = [turns[-21:][start : start + 3] for start in range(0, 21, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in rounds)
    assert len({tuple(turn) for turn in rounds}) > 1, "always in the same order"


def test_seconds_are_those_of_one_call(pass_time):
    functions = {"short": lambda: pass_time(0.002), "long": lambda: pass_time(0.03)}
    seconds = measure_seconds(functions, rounds=3, block_seconds=0.01)
    assert seconds == {"short": pytest.approx([0.002] * 3), "long": pytest.approx([0.03] * 3)}


def test_the_clock_is_that_of_the_machine():
    def take_a_while():
        start = time.perf_counter()
        while time.perf_counter() < start + 0.002:
            pass

    measured = measure_seconds({"": take_a_while}, rounds=1, block_seconds=0.01)
    assert measured[""][0] >= 0.002


def test_threads_are_set_and_set_back():
    before, seen = torch.get_num_threads(), set()

    def fail_at_last():
        seen.add(torch.get_num_threads())
        if len(seen) == 2:
            raise RuntimeError

    measure_seconds({"": fail_at_last}, rounds=1, num_threads=3)
    with pytest.raises(RuntimeError):
        measure_seconds({"": fail_at_last}, rounds=1, num_threads=5)
    assert seen == {3, 5}
    assert torch.get_num_threads() == before


def test_a_turn_lasts_as_long_as_asked(pass_time):
    turns = []
    functions = {"short": lambda: turns.append(pass_time(0.001))}
    measure_seconds(functions, rounds=1, block_seconds=0.05)
    assert len(turns) == 1 + 1 + 50  # warm-up, one to time, the turn


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"functions": {}}, "functions must name at least one function, got none"),
        ({"functions": {"a": int}, "rounds": 0}, "rounds must be at least 1, got 0"),
        ({"functions": {"a": int}, "num_threads": 0}, "num_threads must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_timed(arguments, text):
    with pytest.raises(ValueError, match=text):
        measure_seconds(**arguments)


def several():
    first = torch.empty(1009)
    second = torch.empty(2003)
    del first
    third = torch.empty(503)
    return second, third


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        (lambda: None, 0),
        (lambda: torch.empty(1009), 1009),
        (lambda: [torch.empty(1009) for _ in range(3)], 3 * 1009),
        (lambda: [torch.empty(1009).numel() for _ in range(3)], 1009),
        (several, 1009 + 2003),
        (lambda: torch.empty(7, 11).T, 7 * 11),  # a view costs nothing
    ],
)
def test_peak_bytes_by_hand(function, numbers):
    assert peak_bytes(function) == FLOAT * numbers


def test_peak_bytes_does_not_count_what_was_there():
    x = torch.randn(101, 103)
    assert peak_bytes(lambda: x.mul_(2)) < 100  # a scalar or two
    assert peak_bytes(lambda: x @ x.T) == FLOAT * 101 * 101


def test_peak_bytes_sees_inside_an_operation_and_the_backward_pass():
    x = torch.randn(101, 103, requires_grad=True)
    forward = peak_bytes(lambda: x.exp().sum())
    both = peak_bytes(lambda: x.exp().sum().backward())
    assert forward >= FLOAT * 101 * 103
    assert both >= 2 * FLOAT * 101 * 103


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        (lambda: None, 0),
        (lambda: torch.empty(1009).numel(), 0),
        (lambda: [torch.empty(1009) for _ in range(3)], 3 * 1009),
        (several, 503 + 2003),
        (lambda: torch.empty(7, 11).T, 7 * 11),
    ],
)
def test_held_bytes_by_hand(function, numbers):
    assert held_bytes(function) == FLOAT * numbers


def test_held_bytes_are_the_output_and_what_is_kept_for_the_backward_pass():
    x, w = torch.randn(101, 103, requires_grad=True), torch.randn(103, 107, requires_grad=True)
    output = FLOAT * 101 * 107
    assert held_bytes(lambda: x @ w) == output  # its factors were there
    assert held_bytes(lambda: (x @ w).exp()) == output  # kept, and the result
    assert held_bytes(lambda: (x @ w).exp().sin()) == 2 * output
    with torch.no_grad():
        assert held_bytes(lambda: (x @ w).exp().sin()) == output


def test_held_bytes_sees_what_a_policy_saves():
    x, w = torch.randn(101, 103, requires_grad=True), torch.randn(103, 107, requires_grad=True)
    options = {"use_reentrant": False, "preserve_rng_state": False}
    product, result = FLOAT * 101 * 107, FLOAT * 101 * 107

    def saving(*operators):
        policy = partial(create_selective_checkpoint_contexts, list(operators))
        return lambda: checkpoint(lambda: (x @ w).sin().exp(), context_fn=policy, **options)

    assert held_bytes(saving()) == result
    assert held_bytes(saving(torch.ops.aten.mm.default)) == product + result
    assert held_bytes(lambda: (x @ w).sin().exp()) == product + result
    many = saving(torch.ops.aten.mm.default, torch.ops.aten.sin.default)
    assert held_bytes(many) == 2 * product + result


def test_held_bytes_refuses_other_devices():
    with pytest.raises(ValueError, match="device must be a CPU or a CUDA device, got 'meta'"):
        held_bytes(lambda: None, "meta")


SILENT = """
import torch
from mhattn.inside import peak_bytes
print(len({peak_bytes(lambda: torch.randn(31, 37).softmax(-1)) for _ in range(3)}))
"""


def test_peak_bytes_is_silent_and_repeatable():
    """In a process whose profiler nobody has used yet: what it writes is settled then."""
    there = {name: value for name, value in os.environ.items() if name != "KINETO_LOG_LEVEL"}
    command = [sys.executable, "-c", SILENT]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=there, check=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_peak_bytes_refuses_other_devices():
    with pytest.raises(ValueError, match="device must be a CPU or a CUDA device, got 'meta'"):
        peak_bytes(lambda: None, "meta")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_peak_bytes_on_a_gpu():
    size = 1 << 20
    found = peak_bytes(lambda: torch.empty(size, device="cuda").exp(), "cuda")
    assert found == 2 * FLOAT * size
    assert held_bytes(lambda: torch.empty(size, device="cuda").exp(), "cuda") == FLOAT * size


@pytest.fixture
def gpu(monkeypatch):
    """What torch.cuda is asked, of a GPU whose first call takes 8 MiB more, and keeps them."""
    done, taken = [], [0, 0]  # now, at the peak

    def call():
        done.append("call")
        taken[0] += (8 << 20) * (done.count("call") == 1) + 24
        taken[1] = taken[0] + 100

    def reset(device):
        taken[1] = taken[0]

    fakes = {
        "is_available": lambda: True,
        "synchronize": lambda device=None: done.append(f"wait for {device}"),
        "reset_peak_memory_stats": reset,
        "memory_allocated": lambda device: taken[0],
        "max_memory_allocated": lambda device: taken[1],
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return done, call


@pytest.mark.parametrize(("count", "found"), [(peak_bytes, 124), (held_bytes, 24)])
def test_what_a_library_takes_once_on_a_gpu_is_not_counted(gpu, count, found):
    done, call = gpu
    assert count(call, "cuda:1") == found
    assert done[:3] == ["call", "wait for cuda:1", "call"]


@pytest.mark.parametrize(
    ("device", "waits"), [(None, "wait for None"), ("cuda:1", "wait for cuda:1"), ("cpu", None)]
)
def test_the_gpu_that_is_timed_is_waited_for(gpu, device, waits):
    done, call = gpu
    measure_seconds({"a": call}, rounds=1, block_seconds=0, device=device)
    assert [each for each in done if each != "call"] == ([waits] * 4 if waits else [])

"""A rank is killed at a random point: the others end within seconds, and the error names it.

One kill is in every test run, of processes that are started as `run` starts them. Fifty are slow
tests, several at a time; so that they cost half a minute, their processes are forked from one that
has loaded PyTorch already. At night there are fifty more of the first kind.
"""

import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import torch.distributed as dist
import victims

from mhattn.parallel import local, run

pytestmark = [
    pytest.mark.skipif(
        not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch has no gloo"
    ),
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals"),
]
START = local.start
SECONDS = 15  # until all have ended; a machine that does ten other things is slow
SAID = {  # what an error says that a rank was doing, by the collective in which it died
    "allgather_": r"[\w :-]+: compare with the other ranks",
    "send": r"ring attention: step \d of \d (forward|backward)",
    "recv_": r"ring attention: step \d of \d (forward|backward)",
    "alltoall_base_": r"all-to-all: (tokens to heads|heads to tokens)",
    "allreduce_": r"(split attention: the (largest score|sums) of all ranks"
    r"|latent heads shared out: a sum over all ranks"
    r"|heads shared out: add up the gradients of copies)",
    "all_reduce": r"heads shared out: (forward|backward)",
    "broadcast_": r"heads shared out: cut the matrices",
    "scatter_": r"heads shared out: cut the matrices",
}


class Kill(NamedTuple):
    """What is drawn of a kill."""

    plan: str
    ranks: int
    victim: int
    signum: int
    moment: str  # at any time, or before or within a collective
    number: int  # which collective
    after: float  # seconds after the start, at any time


def drawn(seed, longest):
    draw = random.Random(seed)
    ranks = draw.choice([2, 3, 4])
    return Kill(
        draw.choice(list(victims.PLANS)),
        ranks,
        draw.randrange(ranks),
        draw.choice([signal.SIGKILL, signal.SIGTERM]),
        draw.choice(["any time", "before", "within"]),
        draw.randint(1, 40),
        longest * draw.random(),
    )


class Forked:
    """A process of the fork server, with what `run` needs of a `subprocess.Popen`."""

    server = multiprocessing.get_context("forkserver") if sys.platform != "win32" else None
    lock = threading.Lock()  # multiprocessing looks after the processes of other threads, too

    def __init__(self, folder, rank, world_size):
        self.process = self.server.Process(target=victims.begin, args=(folder, rank, world_size))
        with self.lock:
            self.process.start()
        self.pid = self.process.pid

    def poll(self):
        with self.lock:
            return self.process.exitcode

    def wait(self):
        while self.poll() is None:
            time.sleep(0.01)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def send_signal(self, signum):
        os.kill(self.pid, signum)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder for what processes leave behind, which is nothing, and one for our own notes."""
    for name in ("left", "noted"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "left"))
    yield tmp_path / "noted"
    assert not list((tmp_path / "left").iterdir())


@pytest.fixture
def forked(monkeypatch):
    """Processes cost a fork instead of seconds; several threads may start theirs."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    Forked.server.set_forkserver_preload(["victims"])
    first = Forked.server.Process(target=os.getpid)  # before the folder of temporary files moves
    first.start()
    first.join()
    yield Forked
    multiprocessing.forkserver._forkserver._stop()  # others fork from what they loaded


def kill(seed, place, start, longest):
    """Kill one of several processes; what was drawn, what the error says, seconds until the end."""
    found = drawn(seed, longest)
    file = place / f"{seed}"
    started = []

    def begin(folder, rank, world_size):
        process = start(folder, rank, world_size)
        started.append(process)
        if rank == found.victim and found.moment == "any time":
            timer = threading.Timer(found.after, end, [process])
            timer.daemon = True
            timer.start()
        return process

    def end(process):
        file.write_text(f"{time.time()} any", encoding="utf-8")
        process.send_signal(found.signum)

    BEGIN.own = begin
    number = 0 if found.moment == "any time" else found.number
    args = (found.plan, str(file), found.victim, number, found.moment, found.signum)
    with pytest.raises(RuntimeError) as error:
        run(victims.endless, found.ranks, *args)
    when, collective = file.read_text(encoding="utf-8").split()
    seconds = time.time() - float(when)
    pattern = SAID.get(collective, r"[a-z][\w :-]+")
    said = rf"rank {found.victim} died \(exit code -{found.signum}\) in: {pattern}"
    assert re.fullmatch(said, str(error.value)), (found, collective, str(error.value))
    assert (collective in SAID) == (found.moment != "any time")
    assert seconds < SECONDS, found
    assert not any(running(process.pid) for process in started)
    return found, collective, str(error.value), seconds


def running(pid):
    """Whether this process is still there, with the ports that it holds."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


BEGIN = threading.local()  # how the processes of this thread are started


@pytest.fixture(autouse=True)
def begin_as_asked(monkeypatch):
    monkeypatch.setattr(local, "start", lambda *args: BEGIN.own(*args))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="PyTorch forks well on Linux only")
def test_fifty_kills_at_random_points(forked, place, record_property):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda seed: kill(seed, place, forked, 2.0), range(50)))
    for (plan, ranks, _, signum, moment, *_), _, said, seconds in found:
        line = f"{plan:9}{ranks} {signal.Signals(signum).name} {moment:9}{seconds:5.2f} s  {said}"
        print(line)
    kinds = {(each.signum, each.moment) for each, *_ in found}
    assert len(kinds) == 6
    assert {each.plan for each, *_ in found} == set(victims.PLANS)
    assert {each.ranks for each, *_ in found} == {2, 3, 4}
    record_property("seconds until the end, at most", max(seconds for *_, seconds in found))


@pytest.mark.parametrize(
    "seed",
    [
        1,
        pytest.param(2, marks=pytest.mark.slow),
        *(pytest.param(n, marks=pytest.mark.nightly) for n in range(100, 150)),
    ],
)
def test_a_rank_that_was_started_by_run_is_killed(seed, place, record_property):
    record_property("seconds until the end", kill(seed, place, START, 8.0)[-1])

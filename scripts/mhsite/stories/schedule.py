"""Run stories and labs, each in a process of its own, and file what they gave.

A story is a doctest (docs/stories/*.pycon): what it prints must be what its file says. A lab
(docs/labs/*.py) prints freely. A section that leaves a figure open yields that figure. What a story
writes into the folder that the variable MHATTN_FILES names is filed with them, and published under
data/ for its page. `keys` says where results are filed, `runner` does the running.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from mhsite.stories import cache, child_processes, keys, models, story_process
from mhsite.stories.source import ROOT, STORIES, SourceError

# Elsewhere a process cannot be forked, or not once it has loaded torch.
START = "forkserver" if sys.platform == "linux" else "spawn"
LIGHT = [
    "matplotlib.pyplot",
    "mhsite.stories.story_process",
    "mhsite.stories.runner",
]  # what the fork server loads
HEAVY = ["torch", *LIGHT, "mhsite.stories.grids", "mhsite.stories.with_torch"]
GUESS = re.compile(r"\b(?:backward|train\w*|epochs|steps|gguf)\b")


def prepare_environment() -> None:
    """What the fork server and its children need: this tree's package, and no window."""
    path = [str(ROOT), str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")]
    if not path[2].startswith(os.pathsep.join(path[:2])):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    os.environ["MPLBACKEND"] = "Agg"
    os.environ["KINETO_LOG_LEVEL"] = "99"  # or torch's profiler writes to stderr


def expected_seconds(story: Path) -> float:
    """As long as last time; of a story that never ran here, what its text lets one guess."""
    if (took := cache.seconds(story)) is not None:
        return took
    text = story.read_text(encoding="utf-8")
    return len(GUESS.findall(text)) + len(text) / 10_000


def longest_first(stories: Iterable[Path]) -> list[Path]:
    """The order in which no core waits for a long story at the end."""
    return sorted(stories, key=lambda story: (-expected_seconds(story), story.name))


class Done(NamedTuple):
    """A story that has ended: where its results are, or what is wrong with it."""

    story: Path
    place: Path
    error: str


class Run:
    """A run of several stories, some of them at once.

    Args:
        todo: the stories, the next one first.
        device: of labs; torch's default there.
        lenient: whether a story that prints something else than its file says is filed, with its
            differences; who is not lenient runs it again.
        jobs: how many at once. Default: one a core.
        start: how a process starts, ``forkserver``, ``spawn`` or ``fork``.
        behind: whether everything else on this machine comes first.
    """

    def __init__(
        self,
        todo: Iterable[Path],
        device: str = "cpu",
        *,
        lenient: bool = False,
        jobs: int | None = None,
        start: str = START,
        behind: bool = False,
    ):
        self.todo, self.device, self.lenient, self.behind = list(todo), device, lenient, behind
        self.environment = keys.environment(device)
        self.without: dict[str, str] = {}  # why a model cannot be had
        self.jobs, self.lock, self.stopped = jobs or os.cpu_count() or 1, threading.Lock(), False
        self.running: dict[Any, tuple[Path, Path, Any]] = {}  # story, place, process by its answer
        prepare_environment()
        self.context = multiprocessing.get_context(start)
        if start == "forkserver":
            package = keys.package()
            heavy = any(keys.needs_torch(story, package) for story in self.todo)
            self.context.set_forkserver_preload(HEAVY if heavy else LIGHT)

    def first(self, names: Iterable[str]) -> None:
        """Run the stories of these names before all others that have not begun."""
        names = list(names)
        with self.lock:
            self.todo.sort(key=lambda story: story.stem not in names)

    def add(self, stories: Iterable[Path]) -> None:
        """Run these as well, as they are now, in this order."""
        with self.lock:
            self.todo = list(dict.fromkeys([*stories, *self.todo]))

    def stop(self) -> None:
        """End it; `finished` then comes to its end, and nothing half written is left."""
        self.stopped = True

    def finished(self) -> Iterator[Done]:
        """Run them; each story as it ends."""
        try:
            while not self.stopped:
                yield from self._start_next()
                if not self.running:
                    break
                for answer in wait(list(self.running), timeout=0.2):
                    yield self._outcome(answer)
        finally:
            self._end()

    def _start_next(self) -> Iterator[Done]:
        """Fill the free cores; those that lack a model which could not be had fail here."""
        while len(self.running) < self.jobs and not self.stopped:
            with self.lock:
                busy = {title for story, *_ in self.running.values() for title in _lacked(story)}
                free = (story for story in self.todo if not busy & _lacked(story))
                if (story := next(free, None)) is None:
                    return
                self.todo.remove(story)
            place = keys.result_folder(story, keys.package(), self.environment)
            if known := [self.without[title] for title in _lacked(story) & {*self.without}]:
                yield Done(story, place, f"{story}: cannot run: {known[0]}")
            else:
                self._start(story, place)

    def _start(self, story: Path, place: Path) -> None:
        cache.prepare(place)
        answer, theirs = self.context.Pipe(duplex=False)
        arguments = story, place, self.device, self.lenient, self.behind, theirs
        process = self.context.Process(target=story_process.run_alone, args=arguments)
        process.start()
        theirs.close()
        self.running[answer] = story, place, process

    def _outcome(self, answer) -> Done:
        story, place, process = self.running.pop(answer)
        try:
            error, lacked = answer.recv()
        except EOFError:
            process.join()
            how = f"ended with exit code {process.exitcode}, without a result"
            error, lacked = f"{story}: its process {how}", []
        process.join()
        if error:
            cache.clear(place, process.pid)
        self.without |= dict.fromkeys(lacked, error)
        return Done(story, place, f"{story}: cannot run: {error}" if lacked else error)

    def _end(self) -> None:
        """End all at once: deep in a computation, a process would hear of it late, so kill it."""
        for *_, process in self.running.values():
            process.terminate()
        wait([process.sentinel for *_, process in self.running.values()], timeout=0.3)
        for _, place, process in self.running.values():
            process.kill()
            process.join()
            cache.clear(place, process.pid)
        self.running.clear()


def _lacked(story: Path) -> set[str]:
    """The titles of the models that a story needs and that are not there."""
    return {model.title for model in models.needed_by(story) if not model.path.is_file()}


def run_stories(
    chosen: list[Path],
    device: str,
    *,
    force: bool = False,
    lenient: bool = False,
    jobs: int | None = None,
    start: str = START,
) -> list[str]:
    """Run what is missing or stale, or with ``force`` all; the errors, one text a failed story."""
    package, here = keys.package(), keys.environment(device)
    folders = {story: keys.result_folder(story, package, here) for story in chosen}
    todo = [s for s, folder in folders.items() if not cache.is_done(folder, lenient=lenient)]
    if force:
        todo = list(chosen)
    run = Run(longest_first(todo), device, lenient=lenient, jobs=jobs, start=start)
    if force:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
    errors = {}
    with tqdm(total=len(todo), desc="stories", disable=None) as bar:
        for done in run.finished():
            errors |= {done.story: done.error} if done.error else {}
            bar.update()
    return [errors[story] for story in chosen if story in errors]


def run_arithmetic(command: list[str]) -> list[str]:
    """Run a command under each kind of arithmetic, which torch reads when it is imported."""
    failed = []
    others = {name: value for name, value in os.environ.items() if name not in keys.SETTINGS}
    for kind, settings in keys.ARITHMETIC.items():
        print(f"{kind}:", *(f"{name}={value}" for name, value in settings.items()), flush=True)
        failed += [kind] * bool(child_processes.run(command, env=others | settings))
    return [f"not the same under every arithmetic: see {', '.join(failed)}"] * bool(failed)


def choose(names: list[str]) -> list[Path]:
    """The stories and labs of these names, or all."""
    known = {story.stem: story for story in keys.all_stories()}
    for name in names:
        if name not in known:
            raise SourceError(f"there is no story {STORIES / name}.pycon")
    return [known[name] for name in names or known]


def rewrite(name: str) -> None:
    """Put what a story prints now into its file."""
    prepare_environment()
    story = STORIES / f"{name}.pycon"
    if not story.is_file():
        raise SourceError(f"there is no story {story}")
    for model in models.needed_by(story):
        models.fetch(model)
    from mhsite.stories import runner

    runner.rewrite(story)

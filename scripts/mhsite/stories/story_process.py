"""A story's own process: it runs the story, files what that gave, and leaves nothing half done."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path

from mhsite.stories import cache, keys, models
from mhsite.stories.source import SourceError


def run_alone(story: Path, folder: Path, device: str, lenient: bool, behind: bool, answer) -> None:
    """In a process of its own: run a story beside ``folder``, then rename it into place.

    Sent are what is wrong, or nothing, and the titles of the models that could not be had.
    """
    end_with_parent()
    draft, lacked, error = None, [], ""
    try:
        if behind and hasattr(os, "nice"):
            os.nice(10)
        for model in models.needed_by(story):
            lacked = [model.title]
            models.fetch(model)
            lacked = []
        draft = Path(tempfile.mkdtemp(prefix=f".draft-{os.getpid()}-", dir=folder.parent))
        error = file_run(story, draft, folder, device, lenient)
    except SourceError as why:
        error = why.message
    except OSError as why:
        error = f"{story}: the results cannot be written: {why}"
    finally:
        if draft:
            shutil.rmtree(draft, ignore_errors=True)
    with suppress(OSError):  # who asked may be gone
        answer.send((error, lacked))


def file_run(story: Path, draft: Path, folder: Path, device: str, lenient: bool) -> str:
    """Run a story and file what it gave; where it differs from its file, unless ``lenient``."""
    package, start = keys.package(), time.monotonic()
    heavy = keys.needs_torch(story, package)
    run = _runner(heavy)
    before = set(sys.modules)
    different = run(story, draft, device, heavy=heavy)
    loaded = set(sys.modules) - before
    if unseen := keys.unseen(story, package, loaded):
        raise SourceError(f"imports mhattn.{unseen[0]} where no import names it", story)
    if "torch" in loaded and not heavy:
        raise SourceError("imports torch where no import names it", story)
    took = round(time.monotonic() - start, 1)
    about = {"environment": keys.environment(device), "seconds": took}
    (draft / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
    cache.sign(draft)
    if different and not lenient:
        return "\n".join(different)
    cache.put(draft, folder)
    return ""


def _runner(heavy: bool) -> Callable[..., list[str]]:
    """What runs a story, with the modules that it takes from the package itself."""
    from mhsite.stories.runner import run

    if heavy:
        importlib.import_module("mhsite.stories.grids")
        importlib.import_module("mhsite.stories.with_torch")
    return run


def end_with_parent() -> None:
    """End, and leave nothing behind, when told to or when whoever started this process is gone.

    Ctrl-C goes to every process in a terminal; the one that started this will end it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if parent := parent_process():
        ends = threading.Thread(target=_when_gone, args=[parent.sentinel], daemon=True)
        ends.start()


def _when_gone(sentinel) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)

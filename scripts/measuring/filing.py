"""Where a measurement goes, and what is noted of the machine that made it."""

from __future__ import annotations

import inspect
import json
import os
import platform
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
from mhsite.pages.measured import FOLDER, OF_MEDIAN, folder
from mhsite.stories import fingerprints
from mhsite.stories.source import ROOT

from measuring import machine


def commit() -> str:
    """The commit that is measured, and whether there was more than that; measurements aside."""
    # The file that is being written doesn't make the measured code another.
    others = [".", ":!docs/data/measured"]
    asked = ["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", *others]
    options = {"capture_output": True, "encoding": "utf-8", "check": True, "cwd": ROOT}
    head, changed = (subprocess.run(["git", *a], **options).stdout.strip() for a in asked)
    return head + ("-dirty" if changed else "")


def provenance(rounds: int, benchmark: Callable, device: str = "cpu") -> dict:
    """What the numbers are made with, and by which code; ``device`` is torch's name of it.

    To be asked before the work, when nothing else has loaded the machine yet.
    """
    code = Path(str(inspect.getsourcefile(benchmark)))
    text, where = code.read_text(encoding="utf-8"), torch.device(device)
    about = {"device": machine.processor(), "cores": os.cpu_count()}
    whole = machine.of_processor()
    if where.type != "cpu":
        versions = {"cuda": torch.version.cuda, "hip": torch.version.hip}  # one of them
        # The processor that launches kernels decides how long a short one takes: it is noted beside
        # the GPU.
        about = {"device": torch.cuda.get_device_name(where), "host": machine.processor()}
        about |= {name: number for name, number in versions.items() if number}
        whole = machine.of_gpu(where)
    return about | {
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "versions": machine.versions(),
        "commit": commit(),
        "code": code.relative_to(ROOT).as_posix(),
        "hash": fingerprints.fingerprint(text, benchmark.__name__, where.type != "cpu"),
        "date": datetime.now(UTC).date().isoformat(),
        "rounds": rounds,
        "interval": OF_MEDIAN,
        "machine": whole,
        "state": machine.state(where),
    }


def write(name: str, found: dict) -> Path:
    """One row a line, in the folder of its device; the file appears whole or not at all."""
    rows = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in found["rows"])
    head = json.dumps({k: v for k, v in found.items() if k != "rows"}, indent=2, ensure_ascii=False)
    text = head.removesuffix("\n}") + f',\n  "rows": [\n    {rows}\n  ]\n}}\n'
    place = FOLDER / folder(found["provenance"])
    place.mkdir(parents=True, exist_ok=True)
    # A draft of this process's own, renamed when it is whole: who is interrupted leaves the old
    # file.
    draft = place / f".{name}.{os.getpid()}"
    draft.write_text(text, encoding="utf-8", newline="\n")
    return draft.replace(place / f"{name}.json")

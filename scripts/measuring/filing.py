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
from mhsite import slices
from mhsite.measured import FOLDER, slug
from mhsite.source import ROOT


def processor() -> str:
    """In the maker's words."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """The commit that is measured, and whether there was more than that; measurements aside."""
    others = [".", ":!docs/data/measured"]
    asked = ["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", *others]
    options = {"capture_output": True, "encoding": "utf-8", "check": True, "cwd": ROOT}
    head, changed = (subprocess.run(["git", *a], **options).stdout.strip() for a in asked)
    return head + ("-dirty" if changed else "")


def provenance(rounds: int, benchmark: Callable, device: str = "cpu") -> dict:
    """What the numbers were made with, and by which code; ``device`` is torch's name of it."""
    code = Path(str(inspect.getsourcefile(benchmark)))
    text = code.read_text(encoding="utf-8")
    about = {"device": processor(), "cores": os.cpu_count()}
    if device != "cpu":
        name = torch.cuda.get_device_name(device)
        about = {"device": name, "cuda": torch.version.cuda, "host": processor()}
    return about | {
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit(),
        "code": code.relative_to(ROOT).as_posix(),
        "hash": slices.fingerprint(text, benchmark.__name__),
        "date": datetime.now(UTC).date().isoformat(),
        "rounds": rounds,
    }


def write(name: str, found: dict) -> Path:
    """One row a line, in the folder of its device; the file appears whole or not at all."""
    rows = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in found["rows"])
    head = json.dumps({k: v for k, v in found.items() if k != "rows"}, indent=2, ensure_ascii=False)
    text = head.removesuffix("\n}") + f',\n  "rows": [\n    {rows}\n  ]\n}}\n'
    folder = FOLDER / slug(found["provenance"]["device"])
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{name}.{os.getpid()}"
    draft.write_text(text, encoding="utf-8", newline="\n")
    return draft.replace(folder / f"{name}.json")

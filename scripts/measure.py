"""Measure what depends on the machine, and file it for the pages that show it.

`python scripts/measure.py` writes docs/data/measured/<device>/<name>.json for every benchmark of
benchmarks.py, comparisons.py, counters.py and variants.py; with names, only those, where
`variants` is all whose names begin so. `--device cuda` measures on the GPU, all that don't need a
CPU. A page shows one by `<!-- measured NAME | heading | … -->`, with a table for each device.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import benchmarks  # noqa: F401, registers its benchmarks
import comparisons  # noqa: F401, and these
import counters  # noqa: F401, and these
import torch
import variants  # noqa: F401, and these
from mhsite.measured import FOLDER, slug
from mhsite.source import ROOT
from rounds import ANYWHERE, BENCHMARKS


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


def provenance(rounds: int, device: str = "cpu") -> dict:
    """What the numbers were made with; ``device`` is torch's name of it."""
    about = {"device": processor(), "cores": os.cpu_count()}
    if device != "cpu":
        name = torch.cuda.get_device_name(device)
        about = {"device": name, "cuda": torch.version.cuda, "host": processor()}
    return about | {
        "threads": 1,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit(),
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(BENCHMARKS)}; default: all")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--device", default="cpu", help="of torch, as cuda or cuda:1")
    options = parser.parse_args()
    there = BENCHMARKS if options.device == "cpu" else ANYWHERE
    names = []
    for asked in options.names:
        found = (
            [asked] if asked in there else [name for name in there if name.startswith(f"{asked}-")]
        )
        if not found:
            on = f" on {options.device}" if asked in BENCHMARKS else ""
            parser.error(f"there is no benchmark {asked!r}{on}, only {', '.join(there)}")
        names += found
    for name in names or there:
        torch.manual_seed(0)
        with torch.no_grad():
            where = [options.device] if name in ANYWHERE else []
            measured = BENCHMARKS[name](options.rounds, *where)
        about = provenance(options.rounds, options.device) | measured.pop("provenance", {})
        path = write(name, {"provenance": about, **measured})
        print(f"{name}: {len(measured['rows'])} rows, filed under {path.parent.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

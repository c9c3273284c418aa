"""Measure what depends on the machine, and file it for the pages that show it.

`python scripts/measure.py` writes docs/data/measured/<name>.json for every benchmark of
benchmarks.py, comparisons.py and counters.py; with names, only those. A page shows one by
`<!-- measured NAME | heading | … -->`.
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
from mhsite.source import DOCS, ROOT
from rounds import BENCHMARKS

FOLDER = DOCS / "data" / "measured"


def device_name() -> str:
    """The processor in the maker's words."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """The commit that is measured, and whether there was more than that; measurements aside."""
    others = f":!{FOLDER.relative_to(ROOT).as_posix()}"
    asked = ["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", ".", others]
    options = {"capture_output": True, "encoding": "utf-8", "check": True, "cwd": ROOT}
    head, changed = (subprocess.run(["git", *a], **options).stdout.strip() for a in asked)
    return head + ("-dirty" if changed else "")


def provenance(rounds: int) -> dict:
    """What the numbers were made with."""
    return {
        "device": device_name(),
        "threads": 1,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "rounds": rounds,
    }


def write(name: str, found: dict) -> None:
    """One row a line; the file appears whole or not at all."""
    rows = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in found["rows"])
    head = json.dumps({k: v for k, v in found.items() if k != "rows"}, indent=2, ensure_ascii=False)
    text = head.removesuffix("\n}") + f',\n  "rows": [\n    {rows}\n  ]\n}}\n'
    FOLDER.mkdir(exist_ok=True)
    draft = FOLDER / f".{name}.{os.getpid()}"
    draft.write_text(text, encoding="utf-8", newline="\n")
    draft.replace(FOLDER / f"{name}.json")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(BENCHMARKS)}; default: all")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    for name in options.names:
        if name not in BENCHMARKS:
            parser.error(f"there is no benchmark {name!r}, only {', '.join(BENCHMARKS)}")
    for name in options.names or BENCHMARKS:
        torch.manual_seed(0)
        with torch.no_grad():
            measured = BENCHMARKS[name](options.rounds)
        write(name, {"provenance": provenance(options.rounds), **measured})
        print(f"{name}: {len(measured['rows'])} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())

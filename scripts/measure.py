"""Measure what depends on the machine, and file it for the pages that show it.

`python scripts/measure.py` writes docs/data/measured/<device>/<name>.json for every benchmark of
scripts/measuring; with names, only those, where `variants` is all whose names begin so.
`--device cuda` measures on the GPU, all that don't need a CPU. A page shows one by
`<!-- measured NAME | heading | … -->`, with a table for each device.
"""

from __future__ import annotations

import argparse
import inspect
import sys

import torch
from measuring import benchmarks, comparisons, counters, variants  # noqa: F401, register theirs
from measuring.filing import provenance, write
from measuring.rounds import ANYWHERE, BENCHMARKS


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
        code = inspect.getsourcefile(BENCHMARKS[name])
        about = provenance(options.rounds, code, options.device) | measured.pop("provenance", {})
        path = write(name, {"provenance": about, **measured})
        print(f"{name}: {len(measured['rows'])} rows, filed under {path.parent.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

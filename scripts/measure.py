"""Measure what depends on the machine, and file it for the pages that show it.

`python scripts/measure.py` writes docs/data/measured/<device>/<name>.json for every benchmark of
scripts/measuring; with names, only those, where `variants` is all whose names begin so.
`--device cuda` measures on the GPU, all that don't need a CPU. A page shows one by
`<!-- measured NAME | heading | … -->`, with a table for each device.

`python scripts/measure.py STORY:FUNCTION --seeds 5` runs an experiment that trains too long
for a build, `def FUNCTION(seed)` of that story, for the seeds 0 to 4, and files what it returns in
docs/data/runs/STORY.json; `STORY:` runs all that are filed there again. `STORY:FUNCTION --again 3`
files nothing: it runs the seed 3 again and prints the largest differences from what is filed.

`--wild` examines all attention of public libraries anew, 15 minutes of one core, and files what the
doctor says in docs/data/texts/doctor-in-the-wild.json.

`--claims 20` draws twenty conclusions of the pages by lot, tries each again with a seed that nobody
has seen, and files in docs/data/claims what came of them; `--claim NAME` tries one. It fails if one
fell.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections.abc import Iterable

import torch
from measuring import (  # noqa: F401
    benchmarks,
    claims,
    clock,
    comparisons,
    counters,
    kernels,
    processes,
    runs,
    steps,
    variants,
    wild,
)
from measuring.filing import provenance, write
from measuring.machine import checked
from measuring.rounds import ANYWHERE, BENCHMARKS, rank
from mhsite.stories.source import SourceError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    known = f"of {', '.join(BENCHMARKS)}, or STORY:FUNCTION; default: all benchmarks"
    parser.add_argument("names", nargs="*", help=known)
    parser.add_argument("--seeds", type=int, help="of a STORY:FUNCTION; default: as before")
    parser.add_argument("--again", type=int, metavar="SEED", help="compare this seed of each run")
    parser.add_argument("--relative", type=float, default=0.0, help="share left out by --again")
    parser.add_argument("--rounds", type=int, default=20, help="at least 6; default: 20")
    parser.add_argument("--device", default="cpu", help="of torch, as cuda or cuda:1")
    parser.add_argument("--claims", type=int, metavar="N", help="try so many claims, drawn by lot")
    parser.add_argument("--claim", action="append", default=[], metavar="NAME", help="try this one")
    parser.add_argument("--lot", type=int, help="draw the same claims and seeds as another did")
    parser.add_argument("--wild", action="store_true", help="examine public libraries anew")
    parser.add_argument("--jobs", type=int, default=1, help="claims or models at a time")
    options = parser.parse_args()
    try:
        if options.claims is not None or options.claim:
            return attempts(options)
        if options.wild:
            print(f"filed {wild.sweep(options.jobs).name}")
            return 0
        rank(options.rounds)
        there = BENCHMARKS if checked(options.device).type == "cpu" else ANYWHERE
        stories = [name for name in options.names if ":" in name]
        names = [name for asked in options.names if ":" not in asked for name in like(asked, there)]
        for asked in stories if options.again is not None else []:
            gaps = runs.differences(asked, options.again, options.relative)
            print(f"{asked}, seed {options.again}: numbers {gaps[0]:.3g} weights {gaps[1]:.3g}")
        for asked in stories if options.again is None else []:
            print(f"filed {runs.again(asked, options.seeds).name}")
    except (SourceError, ValueError) as error:
        parser.error(str(error))
    failed = False
    for name in names or ([] if stories else there):
        try:
            print(measure(name, options.rounds, options.device))
        except (RuntimeError, AssertionError):  # the others can still be measured
            traceback.print_exc()
            failed = True
    return int(failed)


def attempts(options: argparse.Namespace) -> int:
    """Try claims, file what came of them, and say which fell."""
    lot = random.SystemRandom().randrange(10**6) if options.lot is None else options.lot
    drawn = claims.lots(options.claims, lot) if options.claims is not None else []
    draw = random.Random(lot)
    drawn += [(name, draw.randrange(*claims.FRESH)) for name in options.claim]
    fell = []
    for name, seed, trial in claims.tried(drawn, options.jobs):
        try:
            found = trial.result()
        except Exception:  # the others can still be tried
            traceback.print_exc()
            fell.append(name)
            continue
        claims.file(name, {"lot": lot} | found)
        said = "holds" if found["holds"] else "FELL"
        print(f"{said} {name}, seed {seed}, {found['seconds']} s: {found['numbers']}", flush=True)
        fell += [] if found["holds"] else [name]
    print(f"lot {lot}: {len(drawn) - len(fell)} of {len(drawn)} hold")
    return int(bool(fell))


def like(asked: str, there: Iterable[str]) -> list[str]:
    """The benchmark of this name, or those whose names begin so."""
    found = [asked] if asked in there else [name for name in there if name.startswith(f"{asked}-")]
    if not found:
        where = " on this device" if asked in BENCHMARKS else ""
        raise ValueError(f"there is no benchmark {asked!r}{where}, only {', '.join(there)}")
    return found


def measure(name: str, rounds: int, device: str) -> str:
    """Run a benchmark, with one thread unless it says otherwise, and file it."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    about = provenance(rounds, BENCHMARKS[name], device)  # before the work loads the machine
    clock.of_provenance()
    with torch.no_grad():
        measured = BENCHMARKS[name](rounds, *([device] if name in ANYWHERE else []))
    about |= {"threads": torch.get_num_threads()} | measured.pop("provenance", {})
    noted = clock.of_provenance()
    about["state"] |= {"launched": noted.pop("launched")} if "launched" in noted else {}
    path = write(name, {"provenance": about | noted, **measured})
    return f"{name}: {len(measured['rows'])} rows, filed under {path.parent.name}"


if __name__ == "__main__":
    sys.exit(main())

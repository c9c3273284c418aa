"""``python tests/testing/missed.py [words]`` prints what the doctor misses and where it errs.

Without words, it examines all mutants, and the right layers of which it is told what isn't so.
``--count N`` examines N mutants, drawn by lot, and all right layers, with three seeds and two sizes
of each, and files what came out in docs/data/texts/doctor-kinds.tsv: half an hour of one core.
"""

import inspect
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from mutants import MUTANTS, Mutant
from rights import RIGHT, WRONG

from mhattn.testing import Finding, Report, check_attention

KINDS = Path(__file__).parents[2] / "docs/data/texts/doctor-kinds.tsv"
SEEDS = 1, 2, 3
HEADS = "num_heads", "num_kv_heads"


def examined(mutant: Mutant, seed: int = 0, factor: int = 1, **only: tuple[str, ...]) -> Report:
    """The report of a mutant, by all checks or by some; with ``factor`` times as many heads."""
    torch.manual_seed(seed)
    wider, how = larger(mutant, factor)
    return check_attention(mutant.kind(**mutant.sizes | wider), **mutant.how | how | only)


def larger(mutant: Mutant, factor: int) -> tuple[dict[str, int], dict[str, Any]]:
    """What a mutant is built with and told where it has more heads of the same size."""
    asked = inspect.signature(mutant.kind.__init__).parameters
    known = {name: p.default for name, p in asked.items()} | mutant.sizes
    known = {
        name: known[name] for name in ("embed_dim", *HEADS) if isinstance(known.get(name), int)
    }
    told = {name: mutant.how[name] * factor for name in HEADS if name in mutant.how}
    if factor == 1 or not known:  # a function has no size of its own: it is told how many heads
        return {}, told if factor > 1 else {}
    return {name: size * factor for name, size in known.items()}, told


def count(number: int) -> None:
    """Of each kind of mistake: how often it was found, and for its own reason; right layers."""
    rows = {check: Counter() for check in sorted({m.found_by[0] for m in MUTANTS})}
    for mutant in sorted(random.Random(0).sample(MUTANTS, number), key=lambda m: m.name):
        row = rows[mutant.found_by[0]]
        row["mistakes"] += 1
        for seed in SEEDS:
            for factor in (1, 2):
                report = examined(mutant, seed, factor)
                row["runs"] += 1
                row["found"] += not report.ok
                row["named"] += bool(reasons(mutant, report))
                row["first"] += bool(reasons(mutant, report)[:1] == report.errors[:1] != [])
                if report.ok:
                    print(f"MISSED {mutant.name}, seed {seed}, {factor} x", flush=True)
    right = Counter(mistakes=len(RIGHT))
    for name, each in RIGHT.items():
        for seed in SEEDS:
            torch.manual_seed(seed)
            report = check_attention(each.make(), **each.how)
            right["runs"] += 1
            right["found"] += not report.ok
            if not report.ok:
                print(f"ACCUSED {name}, seed {seed}: {report.errors[0]}", flush=True)
    columns = "mistakes", "runs", "found", "named", "first"
    lines = ["\t".join(["kind", *columns])]
    for kind, row in (rows | {"right": right}).items():
        if row["runs"]:
            lines.append("\t".join([kind, *(str(row[column]) for column in columns)]))
    KINDS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def reasons(mutant: Mutant, report: Report) -> list[Finding]:
    """The findings of the checks that should find it."""
    return [finding for finding in report.errors if finding.check in mutant.found_by]


def wrong() -> None:
    for name, (make, how, found_by) in WRONG.items():
        torch.manual_seed(0)
        try:
            report = check_attention(make(), **how)
        except Exception as error:
            print(f"RAISED {name}: {type(error).__name__}: {str(error)[:200]}")
            continue
        names = [finding.check for finding in report.errors]
        if not set(names) & set(found_by.split()):
            print(f"TOLD WRONG, NOT SAID {name}: wanted {found_by}, got {names}")


def missed(mutant: Mutant) -> bool:
    """Print what is not as wanted of a mutant's report; whether there is something."""
    start = time.process_time()
    try:
        report = examined(mutant)
    except Exception as error:
        print(f"RAISED {mutant.name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        return True
    took, named = time.process_time() - start, reasons(mutant, report)
    where = f"{mutant.kind.__module__}.{mutant.kind.__name__}"
    wanted = f"{mutant.name} ({where}), wanted {mutant.found_by}"
    if not report.errors:
        print(f"MISSED {wanted}; {took:.1f} s")
    elif not named:
        print(f"OTHER {wanted}, got {[finding.check for finding in report.errors]}; {took:.1f} s")
    elif mutant.says not in " ".join(str(finding) for finding in named):
        print(f"UNSAID {wanted}: {mutant.says!r} not in {[finding.got for finding in named]}")
    else:
        return False
    for name in mutant.found_by:
        if name in report.skipped:
            print(f"    {name} skipped: {report.skipped[name]}", flush=True)
    return True


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["--count"]:
        return count(int(words[1]))
    if not words:
        wrong()
    asked = [mutant for mutant in MUTANTS if all(word in mutant.name for word in words)]
    number = sum(map(missed, asked))
    print(f"{len(asked)} mutants, {number} not as wanted")


if __name__ == "__main__":
    main()

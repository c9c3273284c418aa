"""``python tests/testing/missed.py [words]`` prints what the doctor misses and where it errs.

Without words, it examines all mutants, and the right layers of which it is told what isn't so.
"""

import sys
import time

import torch
from mutants import MUTANTS, Mutant
from rights import WRONG

from mhattn.testing import Finding, Report, check_attention


def examined(mutant: Mutant, **only: tuple[str, ...]) -> Report:
    """The report of a mutant, by all checks or by some."""
    torch.manual_seed(0)
    return check_attention(mutant.make(), **mutant.how | only)


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
    if not words:
        wrong()
    asked = [mutant for mutant in MUTANTS if all(word in mutant.name for word in words)]
    number = sum(map(missed, asked))
    print(f"{len(asked)} mutants, {number} not as wanted")


if __name__ == "__main__":
    main()

"""``python tests/testing/right.py [words]`` examines right layers and prints one line for each."""

import sys
import time

import torch
from rights import RIGHT

from mhattn.testing import check_attention


def main() -> None:
    """Examine all, or those whose names have the words given."""
    for name, each in RIGHT.items():
        if not all(word in name for word in sys.argv[1:]):
            continue
        torch.manual_seed(0)
        start = time.perf_counter()
        try:
            report = check_attention(each.make(), **each.how)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}")
            continue
        took = time.perf_counter() - start
        verdict = "ok" if report.ok else "FALSE ALARM"
        print(f"{name}: {verdict}, {took:.1f} s, {len(report.checked)} checks")
        for finding in report.findings:
            print(
                "   ",
                finding.level,
                finding.check,
                "|",
                finding.did,
                "|",
                finding.got,
                "|",
                finding.case,
            )


if __name__ == "__main__":
    main()

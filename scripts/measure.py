"""Measure what depends on the machine, and file it for the pages that show it.

`python scripts/measure.py` writes docs/data/measured/<name>.json for every benchmark below;
with names, only those. A page shows one by `<!-- measured NAME | heading | … -->`.
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

import comparisons  # noqa: F401, registers its benchmarks
import torch
from rounds import BENCHMARKS, EMBED_DIM, benchmark, quartiles, ratios
from snippets import DOCS, ROOT
from torch import nn

from mhattn import (
    MultiHeadAttention,
    attention,
    linear_attention,
    merge_heads,
    split_heads,
)
from mhattn.timing import measure_seconds

FOLDER = DOCS / "data" / "measured"


def one_by_one(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Each head by itself, then all side by side; tensors are ``(B, H, L, D)``.

    A head keeps its axis: without it, torch takes a slower path.
    """
    heads = zip(*(x.split(1, dim=1) for x in (query, key, value)), strict=True)
    return torch.cat([attention(*head) for head in heads], dim=1)


@benchmark
def serial_heads(rounds: int) -> dict:
    """The heads of one layer one after another, and all at once, at equal width."""
    rows = []
    for length in (32, 256, 1024):
        x = torch.randn(3, 1, length, EMBED_DIM)
        for num_heads in (1, 2, 8, 32):
            heads = [split_heads(tensor, num_heads) for tensor in x]
            calls = {
                "serial": lambda heads=heads: merge_heads(one_by_one(*heads)),
                "parallel": lambda heads=heads: merge_heads(attention(*heads)),
            }
            torch.testing.assert_close(calls["serial"](), calls["parallel"]())
            seconds = measure_seconds(calls, rounds=rounds)
            serial, parallel = seconds["serial"], seconds["parallel"]
            ratio = ratios(serial, parallel)
            rows.append([length, num_heads, quartiles(serial), quartiles(parallel), ratio])
    columns = ["length", "heads", "serial", "parallel", "ratio"]
    return {"columns": columns, "units": {"serial": "seconds", "parallel": "seconds"}, "rows": rows}


@benchmark
def layers(rounds: int) -> dict:
    """Attention, convolution and recurrence of one width, over growing lengths."""
    width = EMBED_DIM
    convolution = nn.Conv1d(width, width, kernel_size=3, padding=1)
    recurrence = nn.RNN(width, width, batch_first=True)
    kinds = {
        "multi": MultiHeadAttention(width, 8),
        "single": MultiHeadAttention(width, 1),
        "convolution": lambda x: convolution(x.mT).mT,
        "recurrence": lambda x: recurrence(x)[0],
    }
    rows = []
    for length in (64, 256, 1024, 4096):
        x = torch.randn(1, length, width)
        calls = {name: lambda layer=layer, x=x: layer(x) for name, layer in kinds.items()}
        seconds = measure_seconds(calls, rounds=rounds)
        rows.append([length, *(quartiles(seconds[name]) for name in kinds)])
    return {
        "columns": ["length", *kinds],
        "units": dict.fromkeys(kinds, "seconds"),
        "rows": rows,
    }


@benchmark
def linear_time(rounds: int) -> dict:
    """Linear attention against the fused softmax attention, 8 heads of 64, over growing lengths."""
    rows = []
    for keys, is_causal in (("j ≤ n", False), ("j ≤ i", True)):
        for length in (64, 256, 1024, 4096, 16384):
            heads = torch.randn(3, 1, 8, length, 64)
            calls = {
                name: lambda run=run, heads=heads, is_causal=is_causal: run(
                    *heads, is_causal=is_causal
                )
                for name, run in (("softmax", attention), ("linear", linear_attention))
            }
            seconds = measure_seconds(calls, rounds=rounds)
            softmax, linear = seconds["softmax"], seconds["linear"]
            ratio = ratios(linear, softmax)
            rows.append([keys, length, quartiles(softmax), quartiles(linear), ratio])
    columns = ["keys", "length", "softmax", "linear", "ratio"]
    return {"columns": columns, "units": dict.fromkeys(columns[2:4], "seconds"), "rows": rows}


def device_name() -> str:
    """The processor in the maker's words."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """The commit that is measured, and whether there was more than that; measurements aside."""
    others = f":!{FOLDER.relative_to(ROOT)}"
    asked = ["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", ".", others]
    options = {"capture_output": True, "text": True, "check": True, "cwd": ROOT}
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
    draft.write_text(text, encoding="utf-8")
    draft.rename(FOLDER / f"{name}.json")


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

"""What `check_model` says of the attention in public libraries, for docs/data/texts.

`python scripts/measure.py --wild` builds each model small, has each in a process of its own, with a
limit of time and of memory, and files a row for it: what was found, assumed and skipped in each
kind of layer. Whoever stops it and starts it again goes on where it was, as long as the doctor is
the same. A changed doctor makes the file no wrong one: a test examines models that the commit draws
again, and compares.

The programs of the folder upstream run as well: what they print is filed beside the rows.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import platform
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import torch
from mhsite.stories import schedule
from mhsite.stories.meaning import hash_of, of_module
from mhsite.stories.source import DOCS, ROOT, SourceError

from measuring.machine import processor
from measuring.wild_models import built, catalogue
from mhattn.lessons.files import cache_folder
from mhattn.testing.models import ModelReport, check_model
from mhattn.testing.report import Finding, Report

FILE = DOCS / "data" / "texts" / "doctor-in-the-wild.json"
UPSTREAM = ROOT / "upstream"
LIMIT = 90  # seconds of CPU time a model
LONGEST = 10 * LIMIT  # of a clock on the wall, for a model that waits
MEMORY = 9 << 30  # bytes a model
PRINTED = re.compile(r"^(.+?): +(-?[\d.]+(?:e[+-]?\d+)?)$", re.MULTILINE)
# Loaded once for all: they take longer than most models.
PRELOADED = ["torch", "transformers.models.auto.modeling_auto", "x_transformers", "measuring.wild"]
TOO_LONG = (-24, -9)  # SIGXCPU, SIGKILL
Row = dict[str, Any]


def examined(library: str, name: str) -> Row:
    """The row of one model: built or not and why, findings, and its kinds of layers."""
    row: Row = {"library": library, "model": name, "why": "", "findings": [], "kinds": []}
    torch.set_num_threads(1)
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model, inputs, options = built(library, name)
        except Exception as error:  # whatever somebody else's class may raise
            return row | {"built": False, "why": _told(error)}
        row |= {"built": True, "class": type(model).__name__}
        try:
            torch.manual_seed(0)
            report = check_model(model, *inputs, **options)
        except Exception as error:
            return row | {"why": _told(error), "seconds": _since(begin)}
    row["findings"] = [_finding(each) for each in report.findings]
    row["kinds"] = [_kind(report, first, model) for first in report.layers]
    return row | {"seconds": _since(begin)}


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _since(begin: float) -> float:
    return round(time.process_time() - begin, 1)


def _finding(finding: Finding) -> list[str]:
    return [finding.level, finding.check, finding.got]


def _kind(report: ModelReport, first: str, model: torch.nn.Module) -> Row:
    """One kind of layer: its class, how many layers there are, and what was found."""
    row = {"layer": first, "class": type(model.get_submodule(first)).__name__}
    row["layers"] = len(report.layers[first])
    if first in report.unexamined:
        return row | {"verdict": "unexamined", "why": report.unexamined[first]}
    found = report.reports[first]
    reasons: dict[str, list[str]] = {}
    for check, why in found.skipped.items():
        reasons.setdefault(why, []).append(check)
    return row | {
        "verdict": _verdict(report, first, found),
        "findings": [_finding(each) for each in found.findings],
        "checked": len(found.checked),
        "skipped": {why: " ".join(checks) for why, checks in reasons.items()},
        "assumed": found.assumed,
    }


def _verdict(report: ModelReport, first: str, found: Report) -> str:
    """A finding of the whole model counts for the kind that it names, or else for all."""
    whole = [each.got for each in report.findings if each.level == "error"]
    named = [n for n in report.layers if any(_names(got, report.layers[n]) for got in whole)]
    if found.errors or (whole and first in (named or report.layers)):
        return "mistake"
    if found.findings:
        return "note"
    return "formula" if "formula" in found.checked else "ok"


def _names(got: str, layers: list[str]) -> bool:
    return any(got.endswith(f" {layer}") for layer in layers)


# One process a model


def _answer(library: str, name: str, connection: Connection) -> None:
    with contextlib.suppress(ImportError, ValueError):
        import resource  # elsewhere than on Windows

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    connection.send(examined(library, name))


class Running(NamedTuple):
    """A model that is being examined, and since when."""

    library: str
    model: str
    process: Any
    begin: float

    def row(self, connection: Connection, is_ready: bool) -> Row | None:
        """Its row, or that of a model whose process has ended without one; None: not yet."""
        if is_ready:
            with contextlib.suppress(EOFError):
                return connection.recv()
        elif time.monotonic() - self.begin < LONGEST:
            return None
        self.process.kill() if not is_ready else None
        self.process.join()
        told = f"its process ended with {self.process.exitcode}"
        told = f"took more than {LIMIT} s" if self.process.exitcode in TOO_LONG else told
        row: Row = {"library": self.library, "model": self.model, "why": told}
        return row | {"findings": [], "kinds": [], "built": True}


def rows(asked: list[tuple[str, str]], jobs: int = 1) -> Iterator[Row]:
    """Rows of models as they are done; of one that takes too long or too much, with the reason."""
    schedule.prepare_environment()
    context: Any = multiprocessing.get_context(schedule.START)
    if schedule.START == "forkserver":
        context.set_forkserver_preload(PRELOADED)
    left, running = list(asked), dict[Connection, Running]()
    while left or running:
        while left and len(running) < jobs:
            library, name = left.pop(0)
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_answer, args=(library, name, there))
            process.start()
            there.close()
            running[here] = Running(library, name, process, time.monotonic())
        ready = wait(list(running), timeout=0.5)
        for here, model in list(running.items()):
            if (row := model.row(here, here in ready)) is not None:
                model.process.join()
                del running[here]
                yield row


# The file


def own_hash() -> str:
    """Of these two modules: what the rows are made with, the doctor apart."""
    here = Path(__file__).parent
    names = ("wild.py", "wild_models.py")
    return hash_of(of_module((here / name).read_text("utf-8")).code for name in names)[:16]


def filed() -> dict[str, Any]:
    """What is filed: about, programs, rows."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def numbers(text: str) -> dict[str, float]:
    """The numbers that a program prints, by the words before them."""
    return {name: float(number) for name, number in PRINTED.findall(text)}


def printed(program: Path) -> dict[str, float]:
    """What a program of the folder upstream prints, as long as it shows its mistake."""
    command = [sys.executable, "-W", "ignore", str(program)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=LIMIT)
    if done.returncode != 1:
        raise SourceError(f"must end with 1, got {done.returncode}: {done.stderr[-300:]}", program)
    return numbers(done.stdout)


def sweep(jobs: int = 1) -> Path:
    """Examine every model, run every program, and file what came of it."""
    draft = cache_folder() / f"wild-{own_hash()}-{doctors_hash()}.jsonl"
    draft.parent.mkdir(parents=True, exist_ok=True)
    known = {(row["library"], row["model"]): row for row in _known(draft)}
    wanted = catalogue()
    asked = [each for each in wanted if each not in known]
    with draft.open("a", encoding="utf-8") as file:
        for number, row in enumerate(rows(asked, jobs), 1):
            known[row["library"], row["model"]] = row
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            print(f"{number}/{len(asked)} {row['library']} {row['model']}", file=sys.stderr)
    write([known[each] for each in wanted])
    draft.unlink()
    return FILE


def _known(draft: Path) -> list[Row]:
    """Rows that the same code gave: those that are filed, and those of a run that was stopped."""
    found = []
    if FILE.is_file():
        before = filed()
        hashes = before["about"]["code"], before["about"]["doctor"]
        found = before["rows"] if hashes == (own_hash(), doctors_hash()) else []
    if draft.is_file():
        found += [json.loads(line) for line in draft.read_text(encoding="utf-8").splitlines()]
    return found


def doctors_hash() -> str:
    """Of the doctor's own modules."""
    texts = [p.read_bytes() for p in sorted((ROOT / "mhattn" / "testing").glob("*.py"))]
    return hash_of(texts)[:16]


def write(found: list[Row]) -> None:
    """One row a line; the file appears whole or not at all."""
    libraries = ("torch", "transformers", "x-transformers")
    about = {
        "versions": {name: version(name) for name in libraries},
        "python": platform.python_version(),
        "device": processor(),
        "date": datetime.now(UTC).date().isoformat(),
        "code": own_hash(),
        "doctor": doctors_hash(),
    }
    programs = {p.stem: printed(p) for p in sorted(UPSTREAM.glob("*.py"))}
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in found)
    head = json.dumps({"about": about, "programs": programs}, ensure_ascii=False, indent=1)
    draft = FILE.with_name(f".{FILE.name}.{os.getpid()}")
    text = head.removesuffix("\n}") + f',\n "rows": [\n{lines}\n]}}\n'
    draft.write_text(text, encoding="utf-8", newline="\n")
    draft.replace(FILE)

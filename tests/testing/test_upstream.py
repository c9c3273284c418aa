"""The reports in the folder upstream are true of the libraries as they are pinned."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from cases import ROOT, every
from drawn import few_now
from measuring import wild

UPSTREAM = ROOT / "upstream"
PROGRAMS = sorted(path.stem for path in UPSTREAM.glob("*.py"))
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in UPSTREAM.glob("*.md")}
REPORTS = sorted(set(TEXTS) - {"README"})
QUOTED = re.compile(r"`([\w./]+\.py)`,\s+line (\d+)(?: reads)?: `([^`]+)`")


@pytest.mark.parametrize("program", few_now(PROGRAMS, 1, of="upstream", name=str))
def test_a_program_still_shows_the_mistake(program):
    """Exit code 1; and it prints what the page about it shows, in the order of magnitude."""
    command = [sys.executable, "-W", "ignore", UPSTREAM / f"{program}.py"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 1, f"mended upstream? {done.stdout}{done.stderr[-900:]}"
    now = wild.numbers(done.stdout)
    filed = wild.filed()["programs"][program]
    assert list(now) == list(filed)
    for name, number in filed.items():
        # What is mended differs by rounding, which is not the same on each processor.
        if max(number, now[name]) > 1e-4:
            assert now[name] == pytest.approx(number, rel=0.1), name


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_needs_the_library_alone(program):
    text = (UPSTREAM / f"{program}.py").read_text(encoding="utf-8")
    assert "mhattn" not in text
    assert "Exit 1 while" in text.split('"""')[1]


def test_every_program_has_its_report_and_its_row():
    assert REPORTS == PROGRAMS
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) ", TEXTS["README"], re.MULTILINE)
    assert sorted(rows) == [(name, name) for name in PROGRAMS]


@every("report", REPORTS)
def test_a_report_has_its_parts_and_names_the_pinned_versions(report):
    text = TEXTS[report]
    parts = re.findall(r"^\*\*([\w ]+)\.\*\* ", text, re.MULTILINE)
    assert parts == ["Versions", "What happens", "Expected", "Program", "Cause", "Cure"]
    assert f"`{report}.py`" in text
    for library, number in re.findall(r"\b(torch|transformers) (\d+\.\d+\.\d+)", text):
        assert version(library).split("+")[0] == number


@every("report", REPORTS)
def test_quoted_lines_are_in_the_library_at_the_place_that_is_named(report):
    found = QUOTED.findall(TEXTS[report])
    assert found, "a report names the line"
    for file, number, code in found:
        lines = (Path(torch.__file__).parents[1] / file).read_text(encoding="utf-8").splitlines()
        assert code in lines[int(number) - 1], f"{file}:{number}"

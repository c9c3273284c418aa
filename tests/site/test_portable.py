"""The same on every machine: other processors' arithmetic, other systems' processes and text."""

import ast
import os
import shutil
import subprocess
import sys

import pytest
from drawn import few_now
from mhsite.engines import publish
from mhsite.stories import keys
from mhsite.stories.source import LABS, ROOT

# Arithmetic

SAMPLE = ["attention", "masks", "shapes"]  # cheap ones, one of them in every run; all nightly


def run_stories(root, *arguments, **environment):
    command = [sys.executable, root / "scripts" / "stories.py", *arguments]
    if root != ROOT:
        environment["MHATTN_CACHE"] = str(root / ".cache")
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", env=os.environ | environment
    )


def assert_same(*names):
    """Only what has no result yet is run: results of each arithmetic are filed apart."""
    done = run_stories(ROOT, "--arithmetic", *names)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("story", few_now(SAMPLE, 1, of="arithmetic", name=str))
def test_sample_prints_the_same_under_every_arithmetic(story):
    assert_same(story)


@pytest.mark.nightly
def test_every_story_prints_the_same_under_every_arithmetic(trained):
    assert_same()


SUM = """\
# --8<-- [start:sum]
>>> import torch
>>> numbers = torch.linspace(0, 1, 1_000_003)
>>> print(f"{(numbers / 3).sum():.0f}")
166667
>>> print((numbers / 3).sum().item(), (numbers @ numbers).item())
1.0

# --8<-- [end:sum]
"""
THREADS = """\
# --8<-- [start:threads]
>>> import torch
>>> print(torch.get_num_threads() == 1)
True
>>> print(torch.get_default_dtype())
torch.float32

# --8<-- [end:threads]
"""
GOOD = "# --8<-- [start:good]\n>>> print(1 + 1)\n2\n\n# --8<-- [end:good]\n"


@pytest.fixture
def project(tmp_path):
    """This project with other stories and no pages."""
    for name in ("scripts", "mhattn"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    (tmp_path / "docs" / "stories").mkdir(parents=True)
    (tmp_path / "docs" / "stories" / "good.pycon").write_text(GOOD, encoding="utf-8")
    return tmp_path


def add_story(project, name, text):
    path = project / "docs" / "stories" / f"{name}.pycon"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_story_that_rounding_decides_fails(project):
    """A sum's last digits, as this machine prints them: some other kind adds in another order."""
    path = add_story(project, "sum", SUM)
    assert run_stories(project, "--rewrite", "sum").returncode == 0
    done = run_stories(project, "--arithmetic", "sum")
    assert done.returncode == 1
    said = done.stdout.splitlines()
    differing = said[-1].removeprefix("not the same under every arithmetic: see ").split(", ")
    assert set(differing) <= keys.ARITHMETIC.keys() - {"native"}
    for kind, settings in keys.ARITHMETIC.items():
        heading = " ".join([f"{kind}:", *(f"{name}={value}" for name, value in settings.items())])
        below = said[said.index(heading) + 1]
        assert below.startswith(f"{path}:6: in section 'sum'") == (kind in differing)
    assert f"{path}:4: " not in done.stdout, "a rounded sum is the same"


@pytest.mark.slow
def test_a_story_that_threads_decide_fails_and_a_good_one_passes(project):
    path = add_story(project, "threads", THREADS)
    done = run_stories(project, "--arithmetic", "good")
    assert done.returncode == 0, done.stdout
    done = run_stories(project, "--arithmetic")
    assert done.returncode == 1
    assert done.stdout.count("in section 'threads'") == 1
    expected = f"""\
two threads: MHATTN_THREADS=2 OMP_WAIT_POLICY=PASSIVE
{path}:3: in section 'threads'
    print(torch.get_num_threads() == 1)
expected
    True
got
    False
"""
    assert expected in done.stdout


# Processes


@pytest.mark.parametrize(
    "start",
    [
        pytest.param([], id="as here"),
        pytest.param(["--start", "spawn"], id="spawn", marks=pytest.mark.slow),
    ],
)
def test_stories_run_however_processes_start(project, start):
    """Windows and macOS get spawn. Symbols can be printed whatever the machine's encoding."""
    path = add_story(project, "square", GOOD.replace("1 + 1", '"E²"').replace("good", "square"))
    done = run_stories(project, *start, PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert done.stdout == (
        f"{path}:2: in section 'square'\n    print(\"E²\")\nexpected\n    2\ngot\n    E²\n"
    )
    run_stories(project, "--rewrite", "square")
    done = run_stories(project, *start)
    assert (done.returncode, done.stdout) == (0, "")


def test_asking_for_a_process_does_not_end_it(monkeypatch):
    """Where signal 0 is Ctrl-C none is sent."""
    assert publish.is_running(str(os.getpid())) is True
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "kill", None)
    assert publish.is_running(str(os.getpid())) is True


# Text

PYTHON = sorted(
    path
    for folder in (ROOT / "scripts", ROOT / "mhattn", ROOT / "tests", LABS)
    for path in folder.glob("*.py")
)


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_text_is_read_and_written_in_a_named_encoding(path):
    """The default is the machine's own: not UTF-8 on many a Windows."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert [f"line {call.lineno}: {ast.unparse(call)}" for call in calls if guesses(call)] == []


def guesses(call):
    """Does it turn bytes into text without saying how?"""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if "encoding" in options or None in options:
        return False
    if name in ("read_text", "write_text"):
        return len(call.args) < (1 if name == "read_text" else 2)
    if name == "open" and isinstance(call.func, ast.Name | ast.Attribute):
        mode = [ast.literal_eval(a) for a in call.args if isinstance(a, ast.Constant)]
        return not any("b" in str(value) for value in mode[-1:])
    return options.get("text") == "True" or options.get("universal_newlines") == "True"


@pytest.mark.parametrize(
    ("code", "guessed"),
    [
        ("path.read_text()", True),
        ("path.read_text('utf-8')", False),
        ("path.write_text(text)", True),
        ("path.write_text(text, encoding='utf-8')", False),
        ("open(name)", True),
        ("path.open('a')", True),
        ("open(name, 'rb')", False),
        ("subprocess.run(command, text=True)", True),
        ("subprocess.run(command, text=True, encoding='utf-8')", False),
    ],
)
def test_what_a_named_encoding_is(code, guessed):
    assert guesses(ast.parse(code).body[0].value) == guessed

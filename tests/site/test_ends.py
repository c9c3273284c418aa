"""Whoever ends a build or a run of stories ends all that it started, and no story begins then."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from mhsite.stories.source import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")

STORY = """\
# --8<-- [start:waits]
>>> import os, time
>>> with open(os.environ["STORY_LOG"], "a", encoding="utf-8") as log:
...     _ = log.write("begun\\n")
>>> time.sleep(300)

# --8<-- [end:waits]
"""


@pytest.fixture
def project(tmp_path):
    """This project with three stories that last, of which two run at once."""
    for name in ("scripts", "mhattn"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    (tmp_path / "docs" / "stories").mkdir(parents=True)
    for name in ("one", "two", "three"):
        (tmp_path / "docs" / "stories" / f"{name}.pycon").write_text(STORY, encoding="utf-8")
    return tmp_path


def begun(project):
    """How many stories have begun."""
    log = project / "log"
    return log.read_text(encoding="utf-8").count("begun") if log.exists() else 0


def running(group):
    """What of a group of processes has not ended."""
    done = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, encoding="utf-8")
    lines = [line.split(None, 2) for line in done.stdout.splitlines()]
    return [line for line in lines if line[0] == str(group) and not line[1].startswith("Z")]


def wait_until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


STORIES = ("scripts/stories.py", "--jobs", "2")
# As a test starts a build: who is killed while it waits has no time to tell anybody.
WAITS = """\
import subprocess, sys
from mhsite.stories import child_processes
subprocess.run([sys.executable, *sys.argv[1:]], env=child_processes.environment())
"""


def hear_ctrl_c():
    """Also where the tests themselves run behind a shell, which then has them ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("command", "how"),
    [
        pytest.param(("scripts/build.py", "--jobs", "2"), signal.SIGTERM, id="build told to end"),
        pytest.param(STORIES, signal.SIGTERM, id="stories told to end", marks=pytest.mark.slow),
        pytest.param(STORIES, signal.SIGINT, id="Ctrl-C", marks=pytest.mark.slow),
        pytest.param(STORIES, signal.SIGKILL, id="stories killed", marks=pytest.mark.slow),
        pytest.param(
            ("scripts/build.py", "--jobs", "2"),
            signal.SIGKILL,
            id="build killed",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("-c", WAITS, *STORIES), signal.SIGKILL, id="starter killed", marks=pytest.mark.slow
        ),
    ],
)
def test_nothing_runs_on(project, command, how):
    environment = os.environ | {"STORY_LOG": str(project / "log")}
    environment |= {"MHATTN_CACHE": str(project / ".cache"), "PYTHONPATH": str(project / "scripts")}
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=project,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=hear_ctrl_c,
    )
    try:
        wait_until(lambda: begun(project) == 2)
        if how == signal.SIGINT:  # a terminal sends it to all
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        process.wait(timeout=60)
        wait_until(lambda: not running(process.pid))
    finally:
        if running(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode != 0
    assert begun(project) == 2, "the third began"
    if how != signal.SIGKILL:
        assert not list((project / ".cache").rglob(".draft-*"))

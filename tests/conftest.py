import fcntl
import os
import subprocess
import sys

import matplotlib
import pytest
import stories
import torch
from snippets import ROOT


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def no_window():
    matplotlib.use("agg")


@pytest.fixture(autouse=True)
def no_figure_left():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture(scope="session")
def story_run():
    """The run of all stories whose results were missing or stale."""
    command = [sys.executable, ROOT / "scripts" / "stories.py"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="session")
def story_results(story_run):
    """For each story, the folder with its figures and outputs."""
    assert story_run.returncode == 0, story_run.stdout + story_run.stderr
    return stories.results()


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site, built once: by the first of several test processes that comes here."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "built" / "site"
    with open(shared / "site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            command = [sys.executable, ROOT / "scripts" / "build.py", "--site-dir", folder]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    return folder

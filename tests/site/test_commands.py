"""What the commands in scripts/ refuse, in one line, before they do anything."""

import os
import subprocess
import sys
from pathlib import Path

import build
import pages
import pytest
from mhsite.stories.source import DOCS, ROOT


def refused(name, *options, cwd):
    """What a command says at last, when it ends without success and without a traceback."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "scripts")])}
    command = [sys.executable, ROOT / "scripts" / name, *options]
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8", timeout=60
    )
    assert done.returncode in (1, 2), done.stdout
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    return said.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("build.py", ["--jobs", "0"], "--jobs must be at least 1, got 0"),
        ("build.py", ["--offline", "no/where.zip"], "--offline: there is no folder {}/no"),
        ("build.py", ["--offline", "here"], "--offline must name a file, and here is a folder"),
        ("build.py", ["--site-dir", "a-file"], "--site-dir: a-file is no folder"),
        ("stories.py", ["--jobs", "-1"], "--jobs must be at least 1, got -1"),
        (
            "pages.py",
            ["--fix", str(DOCS / "zh" / "nosuch.md")],
            f"{DOCS / 'zh' / 'nosuch.md'}: there is no such page",
        ),
        (
            "pages.py",
            ["--fix", "a-file"],
            "{}/a-file: a page lies in docs/en or docs/zh, this one does not",
        ),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(tmp_path, name, options, why):
    (tmp_path / "here").mkdir()
    (tmp_path / "a-file").touch()
    assert refused(name, *options, cwd=tmp_path).endswith(why.format(tmp_path.resolve()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-file", "here"]


def test_a_page_whose_twin_is_missing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    (tmp_path / "zh").mkdir()
    (tmp_path / "zh" / "new.md").write_text("# 新\n", encoding="utf-8")
    with pytest.raises(pages.SourceError, match=r"en/new\.md: there is no such page"):
        pages.fix(tmp_path / "zh" / "new.md")


def test_the_site_and_the_zip_lie_where_the_caller_says(tmp_path, monkeypatch):
    """Not below the clone, in which the parts of the build run."""
    ran, zipped = [], []

    def run(command, **options):
        ran.append((list(map(str, command)), options["cwd"]))
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["build.py", "--offline", "z.zip", "--site-dir", "x"])
    monkeypatch.setattr(build.child_processes, "run", run)
    monkeypatch.setattr(build.child_processes, "end_with_starter", lambda: None)
    monkeypatch.setattr(build.offline, "write", lambda *paths: zipped.append(paths))
    assert build.main() == 0
    command, folder = ran[-1]
    assert folder == ROOT
    assert command[-2:] == ["--site-dir", str(tmp_path / "x")]
    ((site, archive),) = zipped
    assert site == tmp_path / "x"
    assert archive.absolute() == Path.cwd() / "z.zip"

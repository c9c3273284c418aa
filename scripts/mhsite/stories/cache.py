"""The folder that all clones of this project share: results of stories, and trained models.

It is that of `mhattn.lessons.files`, which the variable MHATTN_CACHE moves. A result lies there
whole or not at all: what a run wrote, and a manifest with the hash of each file.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mhattn.lessons.files import cache_folder
from mhsite.stories.source import SourceError, sections

HOME = cache_folder()
KEPT = 32  # contents of a story, and environments of a content, the newest first
REMEMBERED = 4096  # small files in a folder of them, the newest


class CannotWrite(SourceError):
    """The folder of results cannot be made, or nothing can be written there."""


def results() -> Path:
    """Where results lie: ``<story>/<hash of the content>/<hash of the environment>``."""
    return HOME / "stories"


def is_whole(folder: Path) -> bool:
    """Does the folder hold just the files, byte for byte, that its run wrote?"""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        return manifest == file_hashes(folder)
    except (OSError, ValueError):
        return False


def file_hashes(folder: Path) -> dict[str, str]:
    """The hash of each file but the manifest."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {
        name: file_hash(path)
        for name, path in files.items()
        if path.is_file() and name != "manifest.json"
    }


def file_hash(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sign(folder: Path) -> None:
    """Write the manifest: from now on the folder is whole."""
    manifest = json.dumps(file_hashes(folder), indent=1)
    (folder / "manifest.json").write_text(manifest, encoding="utf-8")


def differences(folder: Path, story: Path) -> list[str]:
    """Where a story, in the run that is filed here, printed something else than its file says.

    Its lines may have moved since, so filed is which example of which section printed what.
    """
    filed = _differing(folder)
    now = sections(story) if filed else {}
    return [
        now[name].difference(number, printed)
        for name, number, printed in filed
        if name in now and number < len(now[name].examples())  # or it has just changed
    ]


def _differing(folder: Path) -> list[tuple[str, int, str]]:
    return json.loads((folder / "differences.json").read_text(encoding="utf-8"))


def remembered(room: str, name: str, make: Callable[[], dict]) -> dict:
    """What was made under this name before, in a small file; or what is made now, then filed."""
    path = HOME / room / name
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        made = make()
    with suppress(OSError):  # without the file it is made anew
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as draft:
            json.dump(made, draft)
        os.replace(draft.name, path)
    return made


def about(folder: Path) -> dict:
    """How a result came to be: its ``environment``, and the ``seconds`` that it took."""
    try:
        return json.loads((folder / "about.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def is_done(folder: Path, *, lenient: bool) -> bool:
    """Is it filed, and as its file says? A lenient reader takes it with differences as well."""
    return is_whole(folder) and (lenient or not _differing(folder))


def of_any_environment(folder: Path) -> Path | None:
    """A whole result of the same content from another environment, the newest."""
    return next((other for other in _newest(folder.parent) if is_whole(other)), None)


def seconds(story: Path) -> float | None:
    """How long a story took when it was filed last, whatever it said then."""
    for content in _newest(results() / story.stem):
        for folder in _newest(content):
            if took := about(folder).get("seconds"):
                return took
    return None


def older(story: Path, name: str) -> Path | None:
    """A file of the story's newest result, whatever the story said then, that has it."""
    found = results().glob(f"{story.stem}/*/*/{name}")
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def put(draft: Path, folder: Path) -> None:
    """Rename the draft into place, unless another build was faster."""
    if is_done(folder, lenient=False):
        return
    shutil.rmtree(folder, ignore_errors=True)
    try:
        draft.rename(folder)
    except OSError:
        if not is_whole(folder):
            raise


def prepare(folder: Path) -> None:
    """Make a result's parent, and clear away what old versions left there."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for parent in (folder.parent, folder.parent.parent):
            for path in _newest(parent, hidden=True)[KEPT:]:
                shutil.rmtree(path, ignore_errors=True)
        for room in (HOME / "meanings", HOME / "translations"):
            for path in _newest(room, hidden=True)[REMEMBERED:]:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise CannotWrite(f"the results cannot be written: {error}", results()) from None
    if not os.access(folder.parent, os.W_OK):
        raise CannotWrite("the results cannot be written: no permission", folder.parent)


def clear(folder: Path, process: int) -> None:
    """Remove what a process that was ended left half written beside a result."""
    for draft in folder.parent.glob(f".draft-{process}-*"):
        shutil.rmtree(draft, ignore_errors=True)
    for parent in (folder.parent, folder.parent.parent):
        try:
            parent.rmdir()  # unless there are results
        except OSError:
            return


def _newest(folder: Path, *, hidden: bool = False) -> list[Path]:
    """The folders in a folder, the newest first, without drafts."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if hidden or not path.name.startswith(".")]
    return sorted(found, key=_time, reverse=True)


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another build has just removed it
        return 0.0

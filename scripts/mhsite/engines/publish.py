"""Put a finished site in the place of the old one: it appears whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path


def draft(final: Path) -> Path:
    """Where this process builds a site, beside its place."""
    return final.with_name(f".{final.name}.{os.getpid()}")


def replace(final: Path, draft: Path) -> None:
    """Put the draft in the site's place; whatever was there goes."""
    old = draft.with_name(f"{draft.name}.old")
    while draft.exists():
        shutil.rmtree(old, ignore_errors=True)
        with suppress(FileNotFoundError):
            final.rename(old)
        try:
            draft.rename(final)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise  # else another build has just put its site there: once more
    shutil.rmtree(old, ignore_errors=True)
    for left in final.parent.glob(f".{final.name}.*"):  # from builds that were killed
        if not is_running(left.name.removeprefix(f".{final.name}.").split(".")[0]):
            shutil.rmtree(left, ignore_errors=True)


def is_running(pid: str) -> bool:
    if sys.platform == "win32":  # there this signal is Ctrl-C; what was left stays
        return True
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True

"""Commands that end with the process that started them, also when that one is killed outright.

A build starts the stories, and a test starts a build. A signal reaches only the process that it is
sent to; without this, stories would go on for minutes after whoever wanted them has gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

STARTED_BY = "MHATTN_STARTED_BY"  # the id of the process that a command ends with
PAUSE = 0.3  # seconds between two looks at who the parent is


def environment() -> dict[str, str]:
    """The environment of a command that ends with this process."""
    return os.environ | {STARTED_BY: str(os.getpid())}


def run(command: Sequence[str | Path], **options: Any) -> int:
    """Run a command, and return its exit code; when this process ends, so does the command."""
    options["env"] = options.get("env", os.environ) | {STARTED_BY: str(os.getpid())}
    with subprocess.Popen(command, **options) as process:
        try:
            return process.wait()
        except BaseException:  # SystemExit by a signal as well
            process.terminate()
            raise


def end_with_starter() -> None:
    """End in good order when told to, and when whoever started this with `environment` is gone.

    The variable is for this process alone: it has another parent than the processes that it starts.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if starter := os.environ.pop(STARTED_BY, ""):
        threading.Thread(target=_watch, args=[int(starter)], daemon=True).start()


def _watch(starter: int) -> None:
    # Whose parent is gone is given another one; on Windows it keeps the number, and nothing ends.
    while os.getppid() == starter:
        time.sleep(PAUSE)
    os.kill(os.getpid(), signal.SIGTERM)

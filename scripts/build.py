"""Build the site as `mkdocs build` does, with a choice of device, engine and what to run again."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from mhsite.beside import books, offline
from mhsite.stories import child_processes
from mhsite.stories.source import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="cpu", help="for labs")
    parser.add_argument("--force", action="store_true", help="run all stories, stale or not")
    parser.add_argument("--jobs", type=int, help="stories at once (default: one a core)")
    parser.add_argument("--site-dir", type=Path, default=ROOT / "site", help="where the site goes")
    parser.add_argument("--engine", choices=["mkdocs", "zensical"], default="mkdocs")
    parser.add_argument("--offline", metavar="ZIP", type=Path, help="also as a zip, for a folder")
    parser.add_argument("--books", metavar="FOLDER", type=Path, help="also as EPUB and PDF")
    options = parser.parse_args()
    check(parser, options)
    site_dir = options.site_dir.absolute()  # of the caller's folder: what is started is in ROOT
    stories = [sys.executable, ROOT / "scripts" / "stories.py", "--device", options.device]
    stories += ["--force"] * options.force
    stories += ["--jobs", str(options.jobs)] if options.jobs else []
    site = [sys.executable, "-m", "mkdocs", "build", "--site-dir", site_dir]
    if options.engine == "zensical":
        site = [sys.executable, "-m", "mhsite.engines.with_zensical", site_dir]
    ours = [str(ROOT), str(ROOT / "scripts")]  # not those of another clone
    path = os.pathsep.join(filter(None, [*ours, os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"MHATTN_DEVICE": options.device, "PYTHONPATH": path}
    child_processes.end_with_starter()
    failed = child_processes.run(stories, cwd=ROOT)
    failed = failed or child_processes.run(site, cwd=ROOT, env=environment)
    if options.offline and not failed:
        offline.write(site_dir, options.offline)
    if options.books and not failed:
        books.write(site_dir, options.books)
    return failed


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse, before the build, what would fail after it."""
    if options.jobs is not None and options.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {options.jobs}")
    if options.site_dir.exists() and not options.site_dir.is_dir():
        parser.error(f"--site-dir: {options.site_dir} is no folder")
    if options.engine == "zensical" and (options.offline or options.books):
        parser.error("--offline and --books take what MkDocs builds")
    if options.books and options.books.exists() and not options.books.is_dir():
        parser.error(f"--books must name a folder, and {options.books} is a file")
    if not options.offline:
        return
    if not options.offline.absolute().parent.is_dir():
        parser.error(f"--offline: there is no folder {options.offline.absolute().parent}")
    if options.offline.is_dir():
        parser.error(f"--offline must name a file, and {options.offline} is a folder")


if __name__ == "__main__":
    sys.exit(main())

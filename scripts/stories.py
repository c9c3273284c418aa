"""Run the stories and labs whose results are missing or stale: see `mhsite.stories.schedule`.

`python scripts/stories.py` runs what has to run; with `--rewrite masks` it puts what that story
prints now into its file; with `--translate masks` it brings the list of that story's texts, with
their Chinese, up to date; with `--arithmetic` it runs every story as other processors compute.
"""

from __future__ import annotations

import argparse
import sys

from mhsite.pages.page import sections_of
from mhsite.stories import child_processes, keys, schedule, translation
from mhsite.stories.source import SourceError


def main() -> int:
    sys.stdout.reconfigure(encoding="utf-8")  # whatever this machine's is: stories print symbols
    parser = _parser()
    options = parser.parse_args()
    if options.jobs is not None and options.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {options.jobs}")
    child_processes.end_with_starter()
    try:
        errors = _errors(options)
    except SourceError as error:
        errors = [str(error)]
    except KeyboardInterrupt:
        errors = ["interrupted"]
    for error in errors:
        print(error)
    return 1 if errors else 0


def _errors(options: argparse.Namespace) -> list[str]:
    if options.rewrite:
        schedule.rewrite(options.rewrite)
        return []
    if options.translate:
        return translation.note(sections_of(options.translate))
    chosen = schedule.choose(options.names)
    if options.arithmetic:
        arguments = [arg for arg in sys.argv[1:] if arg != "--arithmetic"]
        return schedule.run_arithmetic([sys.executable, __file__, *arguments])
    return schedule.run_stories(
        chosen,
        keys.choose_device(options.device),
        force=options.force,
        lenient=options.lenient,
        jobs=options.jobs,
        start=options.start,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="of stories and labs; default: all")
    parser.add_argument(
        "--arithmetic", action="store_true", help="run them as several processors would compute"
    )
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="cpu")
    parser.add_argument("--force", action="store_true", help="run all, stale or not")
    parser.add_argument("--jobs", type=int, help="how many at once (default: one a core)")
    parser.add_argument(
        "--lenient", action="store_true", help="file a story that prints something else as well"
    )
    parser.add_argument("--rewrite", metavar="STORY", help="rewrite a story's expected outputs")
    parser.add_argument(
        "--translate", metavar="STORY", help="note what its catalog lacks, and drop what is gone"
    )
    parser.add_argument(
        "--start", choices=["forkserver", "spawn"], default=schedule.START, help="of a process"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())

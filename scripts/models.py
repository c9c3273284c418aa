"""Fetch the trained models that stories read: see `mhsite.stories.models`.

With `--missing`, list the causal language models of the installed transformers that have no row
in "Known models", and no reason why not. With `--configurations`, look anew at those whose row
comes from their class: see `measuring.configurations`. With `--dates FOLDER`, read anew when models
were first published, in clones below FOLDER: see `measuring.dates`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from measuring import configurations, dates
from mhsite.stories import models
from mhsite.stories.source import SourceError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--missing", action="store_true", help="list models without a row")
    parser.add_argument("--configurations", action="store_true", help="look at classes anew")
    parser.add_argument("--dates", type=Path, metavar="FOLDER", help="read dates in clones anew")
    asked = parser.parse_args()
    if asked.missing:
        print("\n".join(configurations.missing()))
        return 0
    if asked.configurations:
        configurations.write()
        return 0
    if asked.dates:
        dates.write(asked.dates)
        return 0
    for model in models.known():
        try:
            print(f"{model.title} ({model.licence}): {models.fetch(model)}")
        except SourceError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

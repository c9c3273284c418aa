"""Fetch the trained models that stories read: see `mhsite.stories.models`.

With `--missing`, list the causal language models of the installed transformers that
"Known models" has no row for.
"""

from __future__ import annotations

import argparse
import sys

from mhsite.stories import models
from mhsite.stories.source import SourceError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--missing", action="store_true", help="list models without a row")
    if parser.parse_args().missing:
        print("\n".join(models.without_row()))
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

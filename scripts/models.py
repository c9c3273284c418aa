"""Fetch the trained models that stories read: `mhsite.models` says what is fetched, and how."""

from __future__ import annotations

import argparse
import sys

from mhsite import models
from mhsite.source import SourceError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.parse_args()
    for model in models.known():
        try:
            print(f"{model.title} ({model.licence}): {models.fetch(model)}")
        except SourceError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

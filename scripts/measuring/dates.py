"""When decoders were first published: the words of the pages that docs/data/dates.toml names.

`python scripts/models.py --dates FOLDER` reads pages of repositories in clones below FOLDER and
files all words in docs/data/dates.json; `mhsite.pages.timeline` reads the dates from them.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from mhsite.pages.timeline import FOUND, when
from mhsite.stories.source import DOCS

CHOSEN = DOCS / "data" / "dates.toml"
LINES = {  # of a file, the words with the date; transformers dates its own class behind them
    ".toml": re.compile(r'^release_date = "[^"]+"', re.M),
    ".md": re.compile(r"^\*(This model was (?:released|published in HF papers) on [\d-]+)", re.M),
}


def write(folder: Path) -> None:
    """File what every page says, a line for each; a page without a date stops it."""
    lines = [json.dumps(row, ensure_ascii=False) for row in read(folder)]
    FOUND.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def read(folder: Path) -> list[dict[str, Any]]:
    """Each page's address and words, and the models that it is about."""
    chosen = tomllib.loads(CHOSEN.read_text("utf-8"))
    found = []
    for page in chosen["pages"]:
        source, says = page.get("url"), page.get("says")
        if "at" in page:
            repository, path = page["at"].split(":", 1)
            commit = chosen["commits"][repository]
            source = f"https://github.com/{repository}/blob/{commit}/{path}"
            says = words_of(path, _shown(folder / repository, commit, path))
        when(says)
        found.append({"source": source, "says": says, "models": page["models"]})
    return found


def words_of(path: str, text: str) -> str:
    """The words with the date in a file of models.dev or of transformers' docs."""
    match = LINES[Path(path).suffix].search(text)
    if match is None:
        raise ValueError(f"{path} has no line with a date")
    return match[match.re.groups]


def _shown(clone: Path, commit: str, path: str) -> str:
    command = ["git", "-C", str(clone), "show", f"{commit}:{path}"]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout

"""The site's search in Node, on an index made from the pages as they stand: no site is built.

PYTHONPATH=.:scripts python tests/site/asked.py: how often queries find their answers.
PYTHONPATH=.:scripts python tests/site/asked.py en "a query": what is found.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from mhsite.beside import search
from mhsite.pages.page import page_paths, read
from mhsite.stories.source import DOCS, LANGUAGES

HERE = Path(__file__).parent
ASKED = tomllib.loads((HERE / "asked.toml").read_text(encoding="utf-8"))


@cache
def indexed(language):
    """All that the search of a language finds."""
    return [
        d for page in page_paths(language) for d in search.documents(read(DOCS / language / page))
    ]


def ask(language: str, queries: Iterable[str]) -> dict[str, list[list[str]]]:
    """For each query the pages found, each with its links that can be seen without a click."""
    queries = list(queries)
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(indexed(language), file)
        file.flush()
        command = [
            shutil.which("node"),
            HERE / "asked.mjs",
            DOCS / "assets" / "search.js",
            search.lists_of_words(),
            file.name,
        ]
        done = subprocess.run(
            command,
            input=json.dumps(queries),
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
        )
    return dict(zip(queries, json.loads(done.stdout), strict=True))


def places(found: list[list[str]], answers: list[str]) -> tuple[int, int]:
    """The first page where an answer can be clicked, and the first that has one: from 1, or 99."""
    wanted = {name.partition("#")[0] + "/" + "".join(name.partition("#")[1:]) for name in answers}
    pages = {name.partition("#")[0] for name in wanted}
    link = next((n for n, links in enumerate(found, 1) if wanted & {*links}), 99)
    page = next((n for n, links in enumerate(found, 1) if pages & {links[0].partition("#")[0]}), 99)
    return link, page


def measured(language: str, asked: dict[str, dict]) -> dict[str, tuple[int, int]]:
    """The places of each query that the site answers."""
    answered = {query: each["answers"] for query, each in asked.items() if each["answers"]}
    return {
        query: places(found, answered[query]) for query, found in ask(language, answered).items()
    }


def shares(found: Iterable[tuple[int, int]]) -> dict[str, float]:
    """How many in a hundred find the link first, in the first three, and the page so."""
    links, pages = zip(*found, strict=True)
    return {
        "link first": 100 * sum(n == 1 for n in links) / len(links),
        "link in 3": 100 * sum(n <= 3 for n in links) / len(links),
        "page first": 100 * sum(n == 1 for n in pages) / len(pages),
        "page in 3": 100 * sum(n <= 3 for n in pages) / len(pages),
    }


def halves(asked: dict) -> tuple[dict, dict]:
    """Those in odd places, which mending looked at first, and those in even ones."""
    items = list(asked.items())
    return dict(items[::2]), dict(items[1::2])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        for query, found in ask(sys.argv[1], sys.argv[2:]).items():
            print(query, *map(" ".join, found[:6]), sep="\n  ")
        sys.exit()
    for language in LANGUAGES:
        first, second = halves(ASKED[language])
        lists = {"first half": first, "second half": second, "fresh": ASKED["fresh"][language]}
        for name, some in lists.items():
            found = measured(language, some)
            print(language, name, len(found), shares(found.values()))
            for query, (link, page) in found.items() if "-v" in sys.argv else ():
                if link > 1:
                    print(f"  link {link}, page {page}: {query}")

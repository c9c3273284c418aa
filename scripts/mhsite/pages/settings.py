"""What mkdocs.yml says, read without MkDocs; docs/zh.yml says what is different in Chinese.

`toml` reads the files of docs/data.
"""

from __future__ import annotations

import os
import tomllib
from copy import deepcopy
from pathlib import Path

import yaml

from mhsite.stories.source import DOCS, ROOT, of_file


class _Loader(yaml.SafeLoader):
    """Reads addresses that the environment may set."""

    def from_environment(self, node: yaml.Node) -> str:
        name, default = self.construct_sequence(node)
        return os.environ.get(name, default)


_Loader.add_constructor("!ENV", _Loader.from_environment)
# What MkDocs calls while it reads the file is none of our business.
_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def settings(language: str = "en") -> dict:
    """The settings of a language's site."""
    # A copy, since the file is read once and the nav is changed below.
    found = deepcopy(_read(ROOT / "mkdocs.yml"))
    if language != "en":
        found = _merged(found, _read(DOCS / "zh.yml"))
        found["nav"] = navigation(found["nav"], found["extra"]["titles"])
    first = found["nav"][0]
    (course,) = first.values() if isinstance(first, dict) else [[]]
    # Numbers of steps are counted here, so that nobody has to when a page moves.
    pages = [(title, page) for item in course[1:] for title, page in item.items()]
    course[1:] = [{f"{step} {title}": page} for step, (title, page) in enumerate(pages, 1)]
    return found


@of_file
def _read(path: Path) -> dict:
    return yaml.load(path.read_text(encoding="utf-8"), _Loader)


@of_file
def toml(path: Path) -> dict:
    """What a TOML file says, such as those of docs/data."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _merged(old: object, new: object) -> object:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return old | {key: _merged(old.get(key), value) for key, value in new.items()}


def navigation(order: list | str, titles: dict[str, str]) -> list | str:
    """The order of the pages, which stands in mkdocs.yml, under the titles of another language."""
    if isinstance(order, str):
        return order
    return [
        item
        if isinstance(item, str)
        else {titles[title]: navigation(below, titles) for title, below in item.items()}
        for item in order
    ]

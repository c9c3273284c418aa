"""What `mkdocs serve` builds after a change: the pages that changed, if nothing else did."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from mkdocs.commands.build import build

from mhsite import with_mkdocs
from mhsite.page import Page, read
from mhsite.source import DOCS, LANGUAGES, ROOT

# MkDocs warns that its navigation will be wrong. Ours has every title: `with_mkdocs.navigation`.
logging.getLogger("mkdocs.commands.build").addFilter(
    lambda record: "'dirty' build" not in str(record.msg)
)


class Builder:
    """Called by the server after each change.

    Args:
        config: what the site was built with.
        whole: builds all of it.
        built: what `files` gave before that.
    """

    def __init__(self, config, whole: Callable[[], None], built: dict):
        self.config, self.whole, self.built = config, whole, built

    def __call__(self) -> None:
        now, old = files(), self.built
        changed = [path for path in old.keys() | now.keys() if old.get(path) != now.get(path)]
        if all(_only_words(old.get(path), now.get(path)) for path in changed):
            for language in LANGUAGES:
                self.pages(language, [path for path in changed if DOCS / language in path.parents])
        else:
            self.built = {}  # a build that fails leaves half a site
            self.whole()
        self.built = now

    def pages(self, language: str, changed: list[Path]) -> None:
        """Build these pages of a language, and its search index."""
        if not changed:
            return
        config = with_mkdocs.configuration(language, self.config)
        for path in changed:  # MkDocs builds what is newer than its page on the site
            os.utime(Path(config.site_dir, read(path).url, "index.html"), (0, 0))
        config.extra["only_pages"] = True
        build(config, serve_url=config.site_url, dirty=True)


def files() -> dict[Path, Page | int]:
    """All that the site is made of: each page, and when each other file was changed."""
    folders = [path for folder in (DOCS, ROOT / "mhattn") for path in folder.rglob("*.*")]
    paths = [ROOT / "mkdocs.yml", *(path for path in folders if path.suffix != ".pyc")]
    return {path: read(path) if path.suffix == ".md" else path.stat().st_mtime_ns for path in paths}


def _only_words(old: Page | int | None, new: Page | int | None) -> bool:
    """Whether a change shows nowhere but on the page, and MkDocs alone renders the page."""
    if not isinstance(old, Page) or not isinstance(new, Page):
        return False
    titles = [[block.text for block in page.headings] for page in (old, new)]
    needs_more = new.name.startswith("labs/") or any(block.kind == "api" for block in new.walk())
    return titles[0] == titles[1] and not needs_more

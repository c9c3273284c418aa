"""One page at a time, as `mkdocs build` renders it with all others: for `mkdocs serve`.

MkDocs renders a site in one go: it reads its settings, finds all files, compiles the theme's
templates, and then reads every page before it writes the first. All but the last does not depend on
the page. So it is done once for a language, and each page then takes what it takes itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from mkdocs.commands import build as mkdocs
from mkdocs.structure.files import File, get_files, set_exclusions
from mkdocs.structure.nav import get_navigation

from mhsite.beside import as_markdown, search
from mhsite.engines import build, with_mkdocs
from mhsite.pages.page import Page, page_paths


class Renderer:
    """Renders pages of one language into the site of the English configuration."""

    def __init__(self, language: str, english):
        config = with_mkdocs.configuration(language, english)
        config.extra["one_by_one"] = True
        self.language = language
        self.documents: dict[str, list[dict]] = {}  # what a search finds on the pages rendered
        self.config = config = config.plugins.on_config(config)
        config.plugins.on_pre_build(config=config)
        self.env = config.theme.get_env()
        files = get_files(config)
        files.add_files_from_theme(self.env, config)
        self.files = files = config.plugins.on_files(files, config=config)
        set_exclusions(files, config)
        nav = get_navigation(files, config)
        self.nav = config.plugins.on_nav(nav, config=config, files=files)
        files.copy_static_files()
        mkdocs._build_theme_template("404.html", self.env, files, config, self.nav)
        config.plugins.on_post_build(config=config)  # here Material writes its index, of no page

    def render(self, page: Page, goes_on: Callable[[], bool]) -> bool:
        """Render a page and write what lies beside it.

        Args:
            page: the page.
            goes_on: is asked between steps.

        Returns:
            Whether it was rendered; else ``goes_on`` said that it should not be.
        """
        steps = self._write_files, self._read, self._write, self._note
        return all(goes_on() and step(page) for step in steps)

    def _write_files(self, page: Page) -> bool:
        made = build.files_of(page, self.config.site_url)
        with_mkdocs.write_notebook(page)
        for uri, content in made.items():
            path = Path(self.config.site_dir, uri)
            new = content.read_bytes() if isinstance(content, Path) else content
            new = new.encode() if isinstance(new, str) else new
            if not path.is_file() or path.read_bytes() != new:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(new)
            if self.files.get_file_from_path(uri) is None:  # or a link to it would be a fault
                self.files.append(File.generated(self.config, uri, content=b""))
        return True

    def _read(self, page: Page) -> bool:
        mkdocs._populate_page(self._made(page), self.config, self.files)
        # For references, which mkdocstrings resolves on all pages that have a content.
        self.env = self.config.plugins.on_env(self.env, config=self.config, files=self.files)
        return True

    def _write(self, page: Page) -> bool:
        made, pages = self._made(page), self.files.documentation_pages()
        place = made.file.abs_dest_path
        made.file.abs_dest_path = f"{place}.draft"  # who reads meanwhile gets the old page, whole
        try:
            mkdocs._build_page(made, self.config, pages, self.nav, self.env)
        finally:
            made.file.abs_dest_path, draft = place, made.file.abs_dest_path
        os.replace(draft, place)
        made.content = None
        return True

    def _note(self, page: Page) -> bool:
        self.documents[page.name] = search.documents(page)
        markdown = as_markdown.text(page, self.config.site_url)
        Path(self.config.site_dir, page.url, "index.md").write_text(markdown, encoding="utf-8")
        return True

    def index(self) -> None:
        """Let what was rendered be found."""
        names = (path.as_posix() for path in page_paths(self.language))
        found = (each for name in names for each in self.documents.get(name, []))
        search.write(found, Path(self.config.site_dir, "search"))

    def _made(self, page: Page):
        """MkDocs's own page."""
        return self.files.get_file_from_path(page.name).page

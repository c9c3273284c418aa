"""What is done around the pages, whichever engine renders them: the files beside them, the rest."""

from __future__ import annotations

import json
import os
import re
from html import escape
from pathlib import Path

from markdown import Markdown

from mhsite.beside import notebook, search, sharing
from mhsite.pages import (
    calculator,
    data,
    extension,
    formulas,
    fragments,
    measured,
    notices,
    release,
    runs,
)
from mhsite.pages.page import Page, page_paths, read
from mhsite.stories import results
from mhsite.stories.source import DOCS, LANGUAGES

COMMENT = {
    ".css": r"(?s)/\*.*?\*/",
    ".js": r"(?m)^\s*(//.*|/\*\*((?!\*/)(?s:.))*\*/)\n",  # on lines of its own
}


def prepare(*, serve: bool = False) -> None:
    """What has to be done before pages are rendered: run the stories, or see what is filed."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", release.commit_time())
    results.look() if serve else results.run()


def pages(language: str) -> list[Page]:
    """The pages of a language; what cannot be made is an error with its file and line."""
    found = [read(DOCS / language / path) for path in page_paths(language)]
    for page in found:
        extension.check(page)
    return found


def description(page: Page) -> str:
    """What a page is about, for those who list pages; a new page's first paragraph."""
    if said := data.description(page.name, page.language):
        return said
    first = (block for block in page.blocks if block.kind == "prose" and block.text.strip())
    prose = [block.text for block in first][:1]
    md = Markdown(extensions=[extension.SiteExtension(language=page.language)])
    title, *others = [heading.text for heading in page.headings]  # which a link may name
    return fragments.summary(md.convert("\n".join([title, *prose, *others])))


def files(language: str, home: str, only: set[str] | None = None) -> dict[str, str | bytes | Path]:
    """All files of a language's site that are not pages: their text, or where they lie.

    Args:
        language: one of `LANGUAGES`.
        home: the address of this language's site.
        only: the names of the pages to be built, if not all are; then their faults are found when
            they are rendered, and the files are those that these pages need.
    """
    found: dict[str, str | bytes | Path] = {}
    mine = [read(DOCS / language / name) for name in sorted(only)] if only else pages(language)
    for page in filter(lambda page: page.has_code, mine):
        name = "downloads/" + page.name.removesuffix(".md")
        found[f"{name}.ipynb"] = notebook.notebook(page, home)
        found[f"{name}.py"] = notebook.script(page, home)
    found |= {f"assets/{path.name}": path for path in sorted((DOCS / "assets").iterdir())}
    for path in (path for path in (DOCS / "assets").iterdir() if path.suffix in COMMENT):
        found[f"assets/{path.name}"] = slim(path)
    found["assets/known-sizes.js"] = calculator.known_sizes()
    # Material's worker loads its language files from beside the folder of its own.
    found["assets/javascripts/workers/search.js"] = found.pop("assets/search.js")
    found |= measured.published() | runs.published()
    stories = {name for page in mine for name in notices.stories(page)} if only else None
    found |= {f"data/{name}": path for name, path in results.files(language, stories).items()}
    figures = results.figures(language, stories)
    found |= {f"figures/{name}": svg for name, svg in figures.items()}
    found |= sharing.files(mine, language, figures)
    found["assets/katex/katex.min.css"] = formulas.stylesheet()
    for name, font in formulas.fonts(whole=bool(only)).items():
        found[f"assets/katex/fonts/{name}"] = font
    found |= moved(home) | sharing.feed(language, home)
    if language == LANGUAGES[0]:
        urls = [f"{home}{part}sitemap.xml" for part in ("", "zh/")]
        found["robots.txt"] = "".join(f"Sitemap: {url}\n" for url in urls)
    return found


def moved(home: str) -> dict[str, str]:
    """A page at each address that is another's now, which leads there."""
    found = {}
    for old, new in data.moved().items():
        if "#" in old:
            continue  # a section, led on by the page that it was on
        to = escape(home + new)
        parts = {
            part.removeprefix(old): home + there
            for part, there in data.moved().items()
            if part.startswith(f"{old}#")
        }
        target = f"{json.dumps(parts)}[location.hash]||{json.dumps(home + new)}"
        script = f"<script>location.replace({target})</script>"
        found[f"{old}index.html"] = (
            f'<!doctype html><meta charset="utf-8"><title>{to}</title><link rel="canonical" '
            f'href="{to}"><meta http-equiv="refresh" content="0; url={to}">'
            f'{script * bool(parts)}<a href="{to}">{to}</a>'
        )
    return found


def finish(language: str, site: Path) -> None:
    """Let a language's pages be found."""
    found = [read(DOCS / language / path) for path in page_paths(language)]
    search.write(found, site / "search")


def slim(path: Path) -> str:
    """A style sheet or script without comments and blank lines; a sheet has no indentation."""
    text = re.sub(COMMENT[path.suffix], "", path.read_text(encoding="utf-8"))
    return re.sub(r"\n\s*\n" if path.suffix == ".js" else r"\n\s*", "\n", text).lstrip()

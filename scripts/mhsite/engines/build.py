"""What is done around the pages, whichever engine renders them: the files beside them, the rest."""

from __future__ import annotations

import os
import re
from html import escape
from pathlib import Path

from markdown import Markdown

from mhsite import words
from mhsite.beside import as_markdown, notebook, search, sharing, wheel
from mhsite.pages import (
    atlas,
    calculator,
    extension,
    formulas,
    fragments,
    measured,
    model_parts,
    navigation,
    notices,
    release,
    running,
    runs,
)
from mhsite.pages.page import Page, page_paths, read
from mhsite.pages.settings import settings
from mhsite.stories import results
from mhsite.stories.source import DOCS, LANGUAGES

COMMENT = {
    ".css": r"(?s)/\*.*?\*/",
    ".js": r"(?m)^\s*(//.*|/\*\*((?!\*/)(?s:.))*\*/)\n",  # on lines of its own
}
RULE = re.compile(r"(?P<selectors>[^{}@]+)\{(?P<says>[^{}]*)\}")
COLOUR = re.compile(r"data-md-color-(?:primary|accent)=([\w-]+)")
# An old link to a section leads to where that section is now.
TO_SECTION = """<script>
location.replace((document.getElementById(location.hash.slice(1)) || document.links[0]).href)
</script>"""


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
    if said := navigation.description(page.name, page.language):
        return said
    first = (block for block in page.blocks if block.kind == "prose" and block.text.strip())
    prose = [block.text for block in first][:1]
    md = Markdown(extensions=[extension.SiteExtension(language=page.language)])
    title, *others = [heading.text for heading in page.headings]  # which a link may name
    return fragments.summary(md.convert("\n".join([title, *prose, *others])))


Files = dict[str, str | bytes | Path]  # the text of each, or where it lies


def files(language: str, home: str) -> Files:
    """All files of a language's site that are not pages; ``home`` is its address."""
    mine = pages(language)
    found = _downloads(mine, home) | _outputs(language) | shared_files(language, home)
    if language == LANGUAGES[0]:
        found |= wheel.files()
    return found | sharing.files(mine, language, results.figures(language))


def files_of(page: Page, home: str) -> Files:
    """What lies beside one page: notebook and script, figures, what its stories wrote."""
    return _downloads([page], home) | _outputs(page.language, set(notices.stories(page)))


def _downloads(mine: list[Page], home: str) -> Files:
    found: Files = {}
    for page in filter(lambda page: page.has_code, mine):
        name = "downloads/" + page.name.removesuffix(".md")
        found[f"{name}.ipynb"] = notebook.notebook(page, home)
        found[f"{name}.py"] = notebook.script(page, home)
    return found


def _outputs(language: str, stories: set[str] | None = None) -> Files:
    """What these stories, or all, wrote and drew."""
    written = {f"data/{name}": path for name, path in results.files(language, stories).items()}
    drawn = {f"figures/{name}": svg for name, svg in results.figures(language, stories).items()}
    return written | drawn


def shared_files(language: str, home: str, *, whole_fonts: bool = False) -> Files:
    """What no single page owns; ``whole_fonts``: while there are formulas to come."""
    found = assets(language)
    found["assets/known-sizes.js"] = calculator.known_sizes()
    found |= atlas.files()
    # Material's worker loads its language files from beside the folder of its own.
    found["assets/javascripts/workers/search.js"] = found.pop("assets/search.js")
    found |= measured.published() | runs.published()
    found |= running.files(language) | model_parts.files(language)
    found["assets/katex/katex.min.css"] = formulas.stylesheet()
    for name, font in formulas.fonts(whole=whole_fonts).items():
        found[f"assets/katex/fonts/{name}"] = font
    found |= moved(language, home) | sharing.feed(language, home)
    found["llms.txt"] = as_markdown.contents(language, home)
    if language == LANGUAGES[0]:
        urls = [f"{home}{part}sitemap.xml" for part in ("", "zh/")]
        found["robots.txt"] = "".join(f"Sitemap: {url}\n" for url in urls)
    return found


def assets(language: str) -> Files:
    """The files of docs/assets; scripts have their words in the language of their site."""
    return {
        f"assets/{path.name}": words.into_script(slim(path), language)
        if path.suffix in COMMENT
        else path
        for path in sorted((DOCS / "assets").iterdir())
    }


def moved(language: str, home: str) -> dict[str, str]:
    """A page at each address that is another's now, which leads there on whatever host it lies.

    Only the canonical address is absolute: it is for search engines.
    """
    found = {}
    for old, new in navigation.moved().items():
        if "#" in old:
            continue  # a section, led on by the page that it was on
        up = "../" * old.count("/")
        sections = {
            part.removeprefix(f"{old}#"): up + there
            for part, there in navigation.moved().items()
            if part.startswith(f"{old}#")
        }
        page = new.partition("#")[0]
        lang, moved_to = words.of(language, "page.lang"), words.of(language, "page.moved")
        title, to = escape(_title_at(page, language)), escape(up + new)
        links = "".join(
            f'<a hidden id="{escape(name)}" href="{escape(there)}"></a>'
            for name, there in sections.items()
        )
        found[f"{old}index.html"] = (
            f'<!doctype html><html lang="{lang}"><meta charset="utf-8">\n'
            f'<title>{title}</title>\n<link rel="canonical" href="{escape(home + page)}">\n'
            f'<meta http-equiv="refresh" content="0; url={to}">\n'
            f'<p>{moved_to}<a href="{to}">{title}</a></p>\n'
            f"{links}{TO_SECTION * bool(links)}"
        )
    return found


def _title_at(address: str, language: str) -> str:
    """The title of the page at an address."""
    pages = map(read, navigation.pages(language))
    page = next((page for page in pages if page.url == address), None)
    return search.words(page.headings[0].title, language) if page else address


def finish(language: str, site: Path, home: str) -> None:
    """Let a language's pages be found, and be read as Markdown."""
    pages = [read(DOCS / language / path) for path in page_paths(language)]
    search.write((each for page in pages for each in search.documents(page)), site / "search")
    write_markdown(language, site, home)
    for path in site.glob("assets/stylesheets/palette.*.css"):
        path.write_text(with_our_colours(path.read_text(encoding="utf-8")), encoding="utf-8")


def with_our_colours(sheet: str) -> str:
    """Material's sheet of colours without the rules of those that the site doesn't have."""
    palette = settings()["theme"]["palette"]
    ours = {each[name] for each in palette for name in ("primary", "accent")}

    def rule(match: re.Match) -> str:
        selectors = [
            selector
            for selector in match["selectors"].split(",")
            if ours.issuperset(COLOUR.findall(selector))
        ]
        return f"{','.join(selectors)}{{{match['says']}}}" if selectors else ""

    return RULE.sub(rule, sheet)


def write_markdown(language: str, site: Path, home: str) -> None:
    """Behind the engines, which would take it for pages that they have to render."""
    for name, text in as_markdown.files(language, home).items():
        (site / name).write_text(text, encoding="utf-8")


def slim(path: Path) -> str:
    """A style sheet or script without comments and blank lines; a sheet has no indentation."""
    text = re.sub(COMMENT[path.suffix], "", path.read_text(encoding="utf-8"))
    if path.suffix == ".js":
        return re.sub(r"\n\s*\n", "\n", text).lstrip()
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r"\n\s*", "\n", text)).lstrip()

"""What MkDocs alone needs: its files, labs as notebooks of mkdocs-jupyter, a second language."""

from __future__ import annotations

import logging
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from bs4 import BeautifulSoup
from click import ClickException
from markdown.extensions.toc import nest_toc_tokens
from mkdocs.commands import build as mkdocs
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from mkdocs.structure.files import File
from mkdocs.structure.toc import get_toc
from mkdocs.utils import CountHandler

from mhsite.engines import build
from mhsite.pages import cells, fragments
from mhsite.pages.page import Block, Page, page_paths, read
from mhsite.pages.settings import settings
from mhsite.stories import child_processes, results
from mhsite.stories.source import DOCS, ROOT

HEADING = re.compile(
    r'<h(?P<level>\d) id="[^"]*">(?P<title>.*?)<a class="anchor-link".*?</a></h\d>', re.S
)
VERBATIM = re.compile(r"(<pre.*?</pre>|<code.*?</code>)", re.S)
DOLLARS = re.compile(r"(?P<bar>\$\$?)(?P<tex>[^$]+)(?P=bar)")

_drafts: dict[str, TemporaryDirectory] = {}


def notebooks(language: str, made: dict) -> dict[str, Path]:
    """For each page that is a notebook, the file with it: MkDocs takes it in the page's place.

    ``made`` holds the notebooks of those pages that are rendered; of others the file comes later.
    """
    found = {}
    folder = Path(_drafts.setdefault(language, TemporaryDirectory(prefix="mhattn-")).name)
    for page in [page for page in page_paths(language) if read(DOCS / language / page).is_notebook]:
        uri = page.as_posix()
        found[uri] = folder / page.with_suffix(".ipynb").name
        if text := made.get(f"downloads/{uri.removesuffix('.md')}.ipynb"):
            found[uri].write_text(text, encoding="utf-8")
    return found


def navigation(language: str) -> list:
    """The nav with the title of each page: after a change MkDocs reads only pages that changed."""
    return _titled(settings(language)["nav"], language)


def _titled(nav: list | dict | str, language: str) -> list | dict:
    if isinstance(nav, str):
        return {read(DOCS / language / nav).headings[0].title: nav}
    if isinstance(nav, list):
        return [_titled(item, language) for item in nav]
    return {
        title: below if isinstance(below, str) else _titled(below, language)
        for title, below in nav.items()
    }


def add_files(files, config) -> None:
    """Hand files that were made to MkDocs, each in place of the one that it may have found."""
    language = config.theme["language"]
    if "one_by_one" in config.extra:  # what lies beside a page is made with it
        made = build.shared_files(language, config.site_url, whole_fonts=True)
    else:
        made = build.files(language, config.site_url)
    for uri, content in (made | notebooks(language, made)).items():
        if old := files.get_file_from_path(uri):
            files.remove(old)
        if isinstance(content, Path):
            files.append(File.generated(config, uri, abs_src_path=str(content)))
        else:
            files.append(File.generated(config, uri, content=content))


def keep_paths(files, config):
    """mkdocs-jupyter's wrapper forgets where a generated file lies."""
    for file in files:
        if hasattr(file, "file"):
            file.abs_src_path = file.file.abs_src_path


def nothing(files, config) -> None:
    """Before the server listens nothing is built: see `mhsite.engines.serve`."""
    config.theme.static_templates.clear()
    for file in list(files):
        files.remove(file)


def lab(made: str, notebook, config) -> str:
    """A notebook's page, as slim as the others: its prose from mkdocs-jupyter, its code from us.

    mkdocs-jupyter brings half a megabyte of styles, and scripts from other hosts; none is kept.
    """
    page = read(Path(config.docs_dir, notebook.file.src_uri).resolve())
    _tell(page, notebook, config)
    parts, headings = [], iter(page.headings)
    title = config.mdx_configs["toc"].get("permalink_title", "Permanent link")
    sections = (block for block in page.walk() if block.kind == "include")
    alts = {block.value.split("figures/")[-1]: block.title for block in page.walk()}
    for cell in BeautifulSoup(made, "html.parser").select(".jp-Notebook-cell[id]"):
        name = cell["id"].removeprefix("cell-id=")
        if name == "install":
            continue
        if prose := cell.select_one(".jp-RenderedMarkdown"):
            text = _with_formulas(prose.decode_contents())
            if name == "about":  # the page says below its title what it needs
                text = text.partition("</h1>")[0] + "</h1>"
            parts.append(HEADING.sub(lambda m: _heading(m, next(headings), title), text))
            continue
        block = next(sections)
        parts.append(cells.shown(block.section, page.language))
        if (drawn := results.drawn(block.section)) in alts:
            parts.append(f"<p>{fragments.figure(drawn, alts[drawn], page.language)}</p>")
    parts.append(fragments.grids_script("".join(parts), page.up))
    text = "\n".join(parts).replace("</h1>", "</h1>\n" + fragments.about(page, page.up), 1)
    root = posixpath.relpath(".", page.url) + "/"  # a notebook links to the published site
    return text.replace(f'href="{config.site_url}', f'href="{root}')


def lighter(output: str) -> str:
    """A page without the styles of what it lacks, and blank lines and indentation, but in code."""
    unused = "_mkdocstrings" if 'class="katex"' in output else "(?:_mkdocstrings|katex.min)"
    output = re.sub(rf'<link rel="stylesheet" href="[^"]*{unused}\.css">', "", output)
    parts = VERBATIM.split(output)
    parts[::2] = [re.sub(r"\n\s+", "\n", part) for part in parts[::2]]
    return "".join(parts)


def _heading(match: re.Match, block: Block, title: str) -> str:
    link = f'<a class="headerlink" href="#{block.value}" title="{title}">#</a>'
    return f'<h{match["level"]} id="{block.value}">{match["title"]}{link}</h{match["level"]}>'


def _with_formulas(html: str) -> str:
    def formula(match: re.Match) -> str:
        return fragments.formula(fragments.plain_text(match["tex"]), display=match["bar"] == "$$")

    parts = VERBATIM.split(html)
    parts[::2] = [DOLLARS.sub(formula, part) for part in parts[::2]]
    return "".join(parts)


def _tell(page: Page, made, config) -> None:
    """Tell MkDocs what it does not know of a page that was a notebook."""
    tokens = [
        {"level": len(heading.mark), "id": heading.value, "data-toc-label": ""}
        | dict.fromkeys(("name", "html"), heading.title)
        for heading in page.headings
    ]
    made.toc = get_toc(nest_toc_tokens(tokens))
    made.present_anchor_ids = {heading.value for heading in page.headings}  # links are checked by
    edit_uri = f"{config.edit_uri.strip('/')}/{page.name}"
    made.edit_url = f"{config.repo_url.rstrip('/')}/{edit_uri}"


def write_progress(english) -> None:
    """Where pages find how many stories are done."""
    path = Path(english.site_dir, "progress.txt")
    path.write_text("{} / {}".format(*results.done()), encoding="utf-8")


def configuration(language: str, english):
    """What a language's site is built with, into the English one."""
    file, below = (ROOT / "mkdocs.yml", "") if language == "en" else (DOCS / "zh.yml", "zh/")
    there = {"site_dir": str(Path(english.site_dir, below)), "site_url": english.site_url + below}
    return load_config(str(file), strict=english.strict, **there)


def start_chinese(english) -> subprocess.Popen:
    """Start to build the Chinese site into the English one, on another core."""
    command = [sys.executable, "-m", __name__, english.site_dir, english.site_url]
    options = {"cwd": ROOT, "env": child_processes.environment()}
    return subprocess.Popen([*command, *["strict"] * english.strict], **options)


def has_no_warning(chinese: subprocess.Popen) -> bool:
    """Whether there was none in either language, once both are built."""
    handlers = logging.getLogger("mkdocs").handlers
    counted = [each.get_counts() for each in handlers if isinstance(each, CountHandler)]
    if chinese.wait():
        raise Abort("The Chinese site could not be built.")
    return not any(counted)


def build_chinese(site_dir: str, site_url: str, strict: str = "") -> None:
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)  # the English build tells what is going on
    handler.setFormatter(logging.Formatter("%(levelname)s -  %(message)s"))
    logging.getLogger("mkdocs").addHandler(handler)
    english = SimpleNamespace(site_dir=site_dir, site_url=site_url, strict=bool(strict))
    try:
        chinese = configuration("zh", english)
        chinese.plugins.on_startup(command="build", dirty=False)
        mkdocs.build(chinese)
    except ClickException as error:
        error.show()
        sys.exit(error.exit_code)


if __name__ == "__main__":
    build_chinese(*sys.argv[1:])

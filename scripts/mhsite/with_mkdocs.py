"""What MkDocs alone needs: its files, labs as notebooks of mkdocs-jupyter, a second language."""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from bs4 import BeautifulSoup
from markdown.extensions.toc import nest_toc_tokens
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.structure.files import File
from mkdocs.structure.toc import get_toc
from mkdocs.utils import CountHandler

from mhsite import cells, pieces, results
from mhsite.page import Block, Page, page_paths, read
from mhsite.source import DOCS

HEADING = re.compile(
    r'<h(?P<level>\d) id="[^"]*">(?P<title>.*?)<a class="anchor-link".*?</a></h\d>', re.S
)
VERBATIM = re.compile(r"(<pre.*?</pre>|<code.*?</code>)", re.S)
DOLLARS = re.compile(r"(?P<bar>\$\$?)(?P<tex>[^$]+)(?P=bar)")

_drafts: dict[str, TemporaryDirectory] = {}  # until the next build


def notebooks(language: str, made: dict) -> dict[str, Path]:
    """For each lab's page, the file with its notebook: MkDocs takes it in the page's place."""
    found, _drafts[language] = {}, TemporaryDirectory(prefix="mhattn-")
    folder = Path(_drafts[language].name)
    for page in [page for page in page_paths(language) if page.parts[0] == "labs"]:
        uri = page.as_posix()
        found[uri] = folder / page.with_suffix(".ipynb").name
        text = made[f"downloads/{uri.removesuffix('.md')}.ipynb"]
        found[uri].write_text(text, encoding="utf-8")
    return found


def add(made: dict[str, str | bytes | Path], files, config) -> None:
    """Hand files that were made to MkDocs, each in place of the one that it may have found."""
    for uri, content in made.items():
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


def lab(made: str, notebook, config) -> str:
    """A notebook's page, as slim as the others: its prose from mkdocs-jupyter, its code from us.

    mkdocs-jupyter brings half a megabyte of styles, and scripts from other hosts; none is kept.
    """
    page = read(Path(config.docs_dir, notebook.file.src_uri).resolve())
    _tell(page, notebook, config)
    parts, headings = [], iter(page.headings)
    sections = (block for block in page.walk() if block.kind == "include")
    alts = {block.value.split("figures/")[-1]: block.title for block in page.walk()}
    for cell in BeautifulSoup(made, "html.parser").select(".jp-Notebook-cell[id]"):
        if prose := cell.select_one(".jp-RenderedMarkdown"):
            text = _with_formulas(prose.decode_contents())
            parts.append(HEADING.sub(lambda match: _heading(match, next(headings)), text))
            continue
        block = next(sections)
        parts.append(cells.shown(block.section))
        if drawn := results.drawn(block.section):
            parts.append(f"<p>{pieces.figure(drawn, alts[drawn], page.language)}</p>")
    text = "\n".join(parts).replace("</h1>", "</h1>\n" + pieces.about(page, page.up), 1)
    root = posixpath.relpath(".", page.url) + "/"  # a notebook links to the published site
    return text.replace(f'href="{config.site_url}', f'href="{root}')


def _heading(match: re.Match, block: Block) -> str:
    link = f'<a class="headerlink" href="#{block.value}" title="Permanent link">#</a>'
    return f'<h{match["level"]} id="{block.value}">{match["title"]}{link}</h{match["level"]}>'


def _with_formulas(html: str) -> str:
    def formula(match: re.Match) -> str:
        return pieces.formula(pieces.plain_text(match["tex"]), display=match["bar"] == "$$")

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


def build_chinese(config, command: str) -> bool:
    """Build the Chinese site into the English one; whether there was no warning in either."""
    there = {"site_dir": str(Path(config.site_dir, "zh")), "site_url": config.site_url + "zh/"}
    chinese = load_config(str(DOCS / "zh.yml"), strict=config.strict, **there)
    chinese.plugins.on_startup(command=command, dirty=False)
    build(chinese)
    handlers = logging.getLogger("mkdocs").handlers
    return not any(each.get_counts() for each in handlers if isinstance(each, CountHandler))

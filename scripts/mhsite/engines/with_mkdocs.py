"""What MkDocs alone needs: its files, labs as notebooks of mkdocs-jupyter, a second language."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from click import ClickException
from markdown.extensions.toc import nest_toc_tokens
from mkdocs.commands import build as mkdocs
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from mkdocs.structure.files import File
from mkdocs.structure.toc import get_toc
from mkdocs.utils import CountHandler

from mhsite.engines import build, labs
from mhsite.pages.page import Page, page_paths, read
from mhsite.pages.settings import settings
from mhsite.stories import child_processes, results
from mhsite.stories.source import DOCS, ROOT

ID = re.compile(r'\sid="([^"]+)"')
TITLE = re.compile(r"<h1 id=.*?</h1>", re.S)
WORDS = "注意力|内核|模型|函数|对比|例子|汇点|开始|做不到|哪些|什么|怎样|还是|就能|到底|各不相同"
WORDS += "|(?<!参)与|(?<![求饱总])和"  # not within 参与, 求和
BREAK = re.compile(f"(?<=[一-鿿]的)(?=[一-鿿]{{3}})|(?<=[一-鿿])(?={WORDS})")
MARKED = re.compile(
    r'<span class="katex">(?:(?!</annotation>).)*?>(?P<tex>[^<]*)</annotation>'
    "(?:(?!</bdi>).)*</bdi></span>[，。：；、！？）」]",
    re.S,
)
SHORT = 24  # letters of TeX
VERBATIM = re.compile(r"(<pre.*?</pre>|<code.*?</code>)", re.S)

_drafts: dict[str, TemporaryDirectory] = {}


def notebook(page: Page) -> Path:
    """Where the notebook of a lab lies, which MkDocs takes in the page's place."""
    folder = _drafts.setdefault(page.language, TemporaryDirectory(prefix="mhattn-")).name
    return Path(folder, page.path.with_suffix(".ipynb").name)


def write_notebook(page: Page) -> None:
    """Write what mkdocs-jupyter is about to render, if the page is a lab."""
    if page.is_notebook:
        notebook(page).write_text(labs.as_notebook(page), encoding="utf-8")


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
    pages = [read(DOCS / language / path) for path in page_paths(language)]
    if "one_by_one" in config.extra:  # what lies beside a page is made with it
        made = build.shared_files(language, config.site_url, whole_fonts=True)
    else:
        made = build.files(language, config.site_url)
        for page in pages:
            write_notebook(page)
    made |= {page.name: notebook(page) for page in pages if page.is_notebook}
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


def nothing(files, config) -> None:
    """Before the server listens nothing is built: see `mhsite.engines.serve`."""
    config.theme.static_templates.clear()
    for file in list(files):
        files.remove(file)


def lab(made: str, notebook, config) -> str:
    """A lab's page, and what MkDocs has to know of it."""
    page = read(Path(config.docs_dir, notebook.file.src_uri).resolve())
    permalink = config.mdx_configs["toc"].get("permalink_title", "Permanent link")
    html = labs.html(made, page, permalink)
    _tell(page, notebook, config)
    notebook.present_anchor_ids = set(ID.findall(html))  # links are checked by
    return html


def lighter(output: str) -> str:
    """A page without the styles of what it lacks, and blank lines and indentation, but in code."""
    unused = "_mkdocstrings" if 'class="katex"' in output else "(?:_mkdocstrings|katex.min)"
    output = re.sub(rf'<link rel="stylesheet" href="[^"]*{unused}\.css">', "", output)
    parts = VERBATIM.split(output)
    parts[::2] = [re.sub(r"\n\s+", "\n", part) for part in parts[::2]]
    return "".join(parts)


def with_breaks(html: str) -> str:
    """A Chinese page: where its title may break, and that no line begins with a formula's mark.

    A title may break before a word that a clause begins with; styles forbid the rest. A browser
    breaks behind each part of a formula, whatever comes next.
    """
    html = TITLE.sub(lambda match: BREAK.sub("<wbr>", match[0]), html, count=1)
    return MARKED.sub(_whole, html)


def _whole(match: re.Match[str]) -> str:
    """A formula and its mark in one, but a long one of several parts: it must fit a phone."""
    tex = unescape(match["tex"])
    short = match[0].count('class="katex-base"') == 1 or len(tex) <= SHORT
    return f'<span class="mh-whole">{match[0]}</span>' if short else match[0]


def _tell(page: Page, made, config) -> None:
    """Tell MkDocs what it does not know of a page that was a notebook."""
    tokens = [
        {"level": len(heading.mark), "id": heading.value, "data-toc-label": ""}
        | dict.fromkeys(("name", "html"), heading.title)
        for heading in page.headings
    ]
    made.toc = get_toc(nest_toc_tokens(tokens))
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

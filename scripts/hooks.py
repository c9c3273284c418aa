"""The MkDocs hook: runs stale stories, hands what they yield to the pages, builds /zh/ after /.

mkdocs.yml is the English site and docs/zh.yml the Chinese one; MkDocs loads this file once for
each. Here stands what happens when; what is done stands in the modules beside this one.
"""

from __future__ import annotations

import logging
import os
import posixpath
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import katex
import notebooks
import page_html
import pages
import publish
import stories
import tables
from markdown.extensions.toc import nest_toc_tokens
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import PluginError
from mkdocs.plugins import CombinedEvent, event_priority
from mkdocs.structure.files import File
from mkdocs.structure.toc import get_toc
from mkdocs.utils import CountHandler
from snippets import DOCS, LABS, ROOT, SNIPPETS, SnippetError, shown_section

DOWNLOADS = {
    "en": "Run it yourself: <a {}>notebook</a> · <a {}>script</a>",
    "zh": "自己运行：<a {}>笔记本</a> · <a {}>脚本</a>",
}


class Site:
    """One language's build, from its configuration to its last page."""

    command = "build"

    def __init__(self, config):
        self.language = config.theme["language"]
        self.final = Path(config.site_dir)
        lenient = self.command == "serve"  # who reads at home has a processor of another kind
        self.results = current_results(os.environ.get("MHATTN_DEVICE", "cpu"), lenient)
        self.cells: dict[str, list[notebooks.Cell]] = {}
        self.texts: dict[str, str] = {}
        self.drafts = tempfile.TemporaryDirectory(prefix="mhattn-")
        self.figures = {
            f"{name}/{figure.name}": figure
            for name, folder in self.results.items()
            for figure in sorted(folder.glob("*.svg"))
        }

    @property
    def leads(self) -> bool:
        return self.language == "en"


site: Site


def current_results(device: str, lenient: bool) -> dict[str, Path]:
    """The folder of every story's results, after running what is missing or stale."""
    device = stories.choose_device(device)
    for _ in range(5):  # a story may change while it runs
        if None not in (found := stories.results(device, lenient=lenient)).values():
            return found
        command = [sys.executable, ROOT / "scripts" / "stories.py", "--device", device]
        command += ["--lenient"] * lenient
        done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8")
        if done.returncode:
            raise PluginError(done.stdout or f"stories.py ended with code {done.returncode}")
    missing = [name for name, folder in found.items() if folder is None]
    raise PluginError(f"stories change, or lose their results, as fast as they run: {missing}")


def warn_of_differences(results: dict[str, Path]) -> None:
    """Where stories printed something else than their files, and so the pages, say."""
    log = logging.getLogger("mhattn")  # not MkDocs's own: strict, it stops at a warning
    handlers = logging.getLogger("mkdocs").handlers
    log.handlers = [h for h in handlers if not isinstance(h, CountHandler)]
    for folder in results.values():
        for difference in stories.differences(folder):
            log.warning(difference)


def on_startup(command, dirty):
    Site.command = command


def on_config(config):
    global site
    os.environ.setdefault("SOURCE_DATE_EPOCH", commit_time())
    logging.getLogger("jieba").setLevel(logging.WARNING)
    site = Site(config)
    if site.leads:
        warn_of_differences(site.results)
    config.extra_css = ["assets/katex/katex.min.css", "assets/site.css"]
    config.mdx_configs["pymdownx.snippets"]["base_path"] = [str(p) for p in (SNIPPETS, LABS, ROOT)]
    if site.leads and Site.command != "serve":
        # Build beside the site and rename at the end: it appears whole or not at all.
        config.site_dir = str(site.final.with_name(f".{site.final.name}.{os.getpid()}"))
    return config


def commit_time() -> str:
    """When the commit was made: the same commit gives the same bytes."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8").stdout.strip() or "0"
    except OSError:  # no git, as in a downloaded archive
        return "0"


@event_priority(100)  # before mkdocs-jupyter looks for notebooks
def add_files(files, config):
    def add(uri, **source):
        if old := files.get_file_from_path(uri):
            files.remove(old)
        files.append(File.generated(config, uri, **source))

    add("assets/katex/katex.min.css", content=katex.stylesheet())
    for asset in sorted((DOCS / "assets").iterdir()):
        add(f"assets/{asset.name}", abs_src_path=str(asset))
    for data in sorted((DOCS / "data" / "measured").glob("*.json")):
        add(f"data/measured/{data.name}", abs_src_path=str(data))
    for name, figure in site.figures.items():
        add(f"figures/{name}", abs_src_path=str(figure))
    if site.leads:
        urls = [config.site_url + part + "sitemap.xml" for part in ("", "zh/")]
        add("robots.txt", content="".join(f"Sitemap: {url}\n" for url in urls))
    for page in list(files.documentation_pages()):
        if page.abs_src_path:
            add_downloads(page, config, files, add)
    return files


@event_priority(-100)
def keep_paths(files, config):
    """mkdocs-jupyter's wrapper forgets where a generated file lies."""
    for file in files:
        if hasattr(file, "file"):
            file.abs_src_path = file.file.abs_src_path
    return files


on_files = CombinedEvent(add_files, keep_paths)


def add_downloads(page, config, files, add):
    """Make a page's notebook and script; a lab's page becomes its executed notebook."""
    uri, text = page.src_uri, Path(page.abs_src_path).read_text(encoding="utf-8")
    site.texts[uri] = text
    check_includes(page, text)

    def url(target):
        linked = files.get_file_from_path(notebooks.resolve(uri, target))
        if linked is None:
            raise PluginError(f"{page.abs_src_path}: there is no page {target}")
        return config.site_url + linked.url.removeprefix("./")

    def published(file):
        return config.site_url + file

    def cite(prose):
        works = tables.bibliography()
        prose = tables.with_tables(prose, site.language, published, widgets=False)
        return tables.with_citations(prose, site.language, lambda key: works[key]["url"])

    cells = notebooks.cells(text, url, cite)
    if not any(cell.section for cell in cells):
        return
    site.cells[uri] = cells
    name = uri.removesuffix(".md")
    made = notebooks.notebook(cells, site.results)
    add(f"downloads/{name}.ipynb", content=made)
    add(f"downloads/{name}.py", content=notebooks.script(cells, site.results))
    if uri.startswith("labs/"):
        draft = Path(site.drafts.name, name + ".ipynb")
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(made, encoding="utf-8")
        add(uri, abs_src_path=str(draft))


def check_includes(page, text):
    """Fail where a page includes what is not there, or cites or draws what nobody knows."""
    for part in pages.skeleton(text):
        try:
            if part.kind == "include":
                shown_section(part.value)
            elif part.kind == "citation":
                tables.short_name(part.value, site.language)
            elif part.kind == "table":
                line = text.splitlines()[part.line - 1].strip()
                table = tables.with_tables(line, site.language, str)
                tables.with_citations(table, site.language, str)
            elif part.kind == "link":
                check_link(Path(page.abs_src_path).parent, part.value, text)
            elif part.kind == "figure" and part.value.split("figures/")[-1] not in site.figures:
                raise SnippetError(f"no story draws {part.value}")
        except (SnippetError, tables.UnknownCitation, tables.BadTable) as error:
            raise PluginError(f"{page.abs_src_path}:{part.line}: {error}") from None


def check_link(folder, link, text):
    """Fail if a link names a page or a heading that is not there; MkDocs would not say the line."""
    target, _, anchor = link.partition("#")
    if ":" in target or (target and not target.endswith(".md")):
        return
    if target and not (folder / target).is_file():
        raise SnippetError(f"there is no page {target}")
    text = (folder / target).read_text(encoding="utf-8") if target else text
    headings = {token["id"] for token in heading_tokens(text)}
    if anchor and anchor not in headings | tables.anchors(text):
        raise SnippetError(f"{target or 'this page'} has no heading #{anchor}")


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    if uri.startswith("labs/"):
        return markdown  # a notebook; its cells were made in add_downloads
    up = posixpath.relpath(".", posixpath.dirname(uri))
    markdown = tables.with_tables(markdown, site.language, lambda file: f"{up}/{file}")
    return tables.with_citations(markdown, site.language, lambda key: f"{up}/bibliography.md#{key}")


def on_page_content(html, page, config, files):
    uri = page.file.src_uri
    if uri.startswith("labs/"):
        html = lab_html(html, page, config)
    page.meta.setdefault("description", page_html.summary(html))
    try:
        html = page_html.with_math(html)
    except katex.KatexError as error:
        first = str(error).split("\n")[0]
        lines = site.texts.get(uri, "").splitlines()
        where = next((f":{n}" for n, line in enumerate(lines, 1) if first in line), "")
        raise PluginError(f"{config.docs_dir}/{uri}{where}: {error}") from None
    sources = {c.section.shown: c.section.code for c in site.cells.get(uri, []) if c.section}
    html = page_html.with_copies(page_html.with_figures(html, site.figures), sources)
    if not site.leads:
        html = page_html.without_docstrings(html)
    html = page_html.with_widgets(html, posixpath.relpath("assets", page.url or "."))
    html = page_html.fold_docstrings(html)
    html = html.replace("doc-signature highlight", "doc-signature highlight no-copy")
    if uri in site.cells:
        html = html.replace("</h1>", "</h1>\n" + download_line(page), 1)
    return html


def lab_html(html, page, config):
    """A lab's page, slim; and what MkDocs does not know of a page that was a notebook."""
    text = site.texts[page.file.src_uri]
    tokens = heading_tokens(text)
    ids = [token["id"] for token in tokens]
    page.toc = get_toc(nest_toc_tokens(tokens))
    page.present_anchor_ids = set(ids)  # MkDocs checks links by it
    edit_uri = f"{config.edit_uri.strip('/')}/{page.file.src_uri}"
    page.edit_url = f"{config.repo_url.rstrip('/')}/{edit_uri}"
    html = page_html.slim_notebook(html, ids, pages.FIGURE.findall(text))
    root = posixpath.relpath(".", page.url) + "/"  # a notebook links to the published site
    return html.replace(f'href="{config.site_url}', f'href="{root}')


def download_line(page):
    up = posixpath.relpath("downloads", page.url or ".")
    name = page.file.src_uri.removesuffix(".md")
    links = [f'href="{up}/{name}.{ending}" download' for ending in ("ipynb", "py")]
    return f'<p class="mh-downloads">{DOWNLOADS[site.language].format(*links)}</p>'


def heading_tokens(text):
    matches = [pages.HEADING.match(line) for line in text.splitlines()]
    return [
        {"level": len(m["level"]), "id": m["id"], "name": m["title"], "html": m["title"]}
        | {"data-toc-label": ""}
        for m in matches
        if m and m["id"]
    ]


def on_post_build(config):
    site.drafts.cleanup()
    for name, font in katex.fonts().items():  # by now all formulas are known
        path = Path(config.site_dir, "assets", "katex", "fonts", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(font)
    index = Path(config.site_dir, "search", "search_index.json")
    index.write_text(page_html.slim_index(index.read_text("utf-8")), "utf-8")
    if not site.leads:
        return
    chinese = load_config(
        str(DOCS / "zh.yml"),
        site_dir=str(Path(config.site_dir, "zh")),
        site_url=config.site_url + "zh/",
        strict=config.strict,
    )
    chinese.plugins.on_startup(command=Site.command, dirty=False)
    build(chinese)
    if Site.command != "serve":
        handlers = logging.getLogger("mkdocs").handlers
        if not any(h.get_counts() for h in handlers if isinstance(h, CountHandler)):
            publish.replace(site.final, Path(config.site_dir))
            config.site_dir = str(site.final)


def on_build_error(error):
    if "site" in globals() and site.leads and Site.command != "serve":
        shutil.rmtree(site.final.with_name(f".{site.final.name}.{os.getpid()}"), ignore_errors=True)

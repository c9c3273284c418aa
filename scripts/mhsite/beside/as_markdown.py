"""Pages as Markdown with what their code printed, for those who read by machine.

Each page's text lies beside its HTML, as ``kv-cache/index.md``; ``llms.txt`` lists them as
https://llmstxt.org says, and ``llms-full.txt`` is all of them in the order of the nav.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mhsite import words
from mhsite.beside import notebook
from mhsite.pages import api, cells, navigation, release
from mhsite.pages.page import Block, Page, read
from mhsite.pages.settings import settings
from mhsite.stories import results
from mhsite.stories.source import DOCS, Section

BACKTICKS = re.compile("`{3,}")


def files(language: str, home: str) -> dict[str, str]:
    """The Markdown of each page, and of all; ``home`` is the address of the language's site."""
    texts = {page.url: text(page, home) for page in map(read, navigation.pages(language))}
    whole = "\n---\n\n".join(texts.values())
    return {f"{url}index.md": made for url, made in texts.items()} | {"llms-full.txt": whole}


def contents(language: str, home: str) -> str:
    """``llms.txt``: what the site is, and each page's Markdown under the titles of the nav."""
    chosen = settings(language)
    lines = [f"# {chosen['site_name']}", "", f"> {chosen['site_description']}", ""]
    lines += [words.of(language, "markdown.about", full=f"{home}llms-full.txt"), ""]
    for part in chosen["nav"]:
        title, below = next(iter(part.items())) if isinstance(part, dict) else ("", part)
        lines += [f"## {title}", ""] if title else []
        for name in navigation.names_in(below):
            page = read(DOCS / language / name)
            link = f"- [{navigation.title(name, language)}]({home}{page.url}index.md)"
            said = navigation.description(name, language)
            lines.append(link + (words.of(language, "punctuation.colon") + said if said else ""))
        lines.append("")
    return "\n".join(lines)


def text(page: Page, home: str) -> str:
    """A page as Markdown: its prose, code, outputs; pictures and links with whole addresses."""
    where = f"{home}{page.url} · {release.state(page.language)}"
    parts, prose = [f"# {page.headings[0].title}", where], ""
    for piece in _Markdown(page, home).pieces(page.blocks):
        if isinstance(piece, str):
            prose += piece
            continue
        parts.append(notebook.clean(prose))
        prose = ""
        if isinstance(piece, notebook.Turn):
            parts.append(_fenced("python", piece.code))
        else:
            parts += _with_outputs(piece.section)
    parts.append(notebook.clean(prose))
    return "\n\n".join(filter(None, parts)) + "\n"


def _with_outputs(section: Section) -> Iterator[str]:
    """A section's code as the page shows it, each cell above what it printed."""
    if section.is_story:
        for cell in results.as_printed(section).cells:
            yield _fenced("python", cell.code)
            yield _fenced("text", cell.output) if cell.output.strip() else ""
    else:
        yield _fenced("python", cells.text(section))
        printed = results.printed(section)
        yield _fenced("text", printed) if printed.strip() else ""


def _fenced(kind: str, inside: str) -> str:
    bar = max(BACKTICKS.findall(inside), default="``") + "`"
    return f"{bar}{kind}\n{inside.rstrip()}\n{bar}"


class _Markdown(notebook.Plain):
    # Code draws nothing here: of each figure there is a link where the page shows it.
    def comes_next(self, figure: str, blocks: tuple[Block, ...]) -> bool:
        return False

    def has_come(self, figure: str) -> bool:
        return False

    def written(self, block: Block, folded: bool, own: str) -> Iterator[str | notebook.Code]:
        if block.kind != "api":
            yield from super().written(block, folded, own)
            return
        yield f"## `{block.value}`\n\n"
        for name, docstring in api.documented(block.value, self.page.language):
            yield (f"### `{name}`\n\n" if name else "") + docstring + "\n\n"

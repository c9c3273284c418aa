"""Make a notebook and a script out of a page: its prose, its code, and what the code gave."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pages import FIGURE, HEADING
from snippets import LABS, SNIPPETS, Section, shown_section

CODE = re.compile(r'^(?P<fence>`{3,}) *[\w-]*[^\n]*\n--8<-- "(?P<target>[^"]+)"\n(?P=fence)$', re.M)
BLOCK = re.compile(
    r"^(?P<bar>/{3,}) (?P<kind>[\w-]+)(?: \| (?P<title>[^\n]*))?\n"
    r"(?:    [^\n]*\n)*(?P<body>.*?)^(?P=bar)$",
    re.M | re.S,
)
ROLE = re.compile(r"\\(?:query|key|value|weights|output)\{([^{}]*)\}")
LINK = re.compile(r"\]\((?!https?:)(?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")


@dataclass(frozen=True)
class Cell:
    """A piece of a page: prose as Markdown, or the section whose code stands there."""

    prose: str = ""
    section: Section | None = None


def cells(text: str, url: Callable[[str], str], cite: Callable[[str], str]) -> list[Cell]:
    """Cut a page into cells.

    Args:
        text: the page.
        url: the address on the site of a link's target, as the page writes it.
        cite: puts links in place of a text's citations.
    """
    text = _without_blocks(text)
    found, position = [], 0
    for match in CODE.finditer(text):
        found.append(Cell(prose=text[position : match.start()]))
        found.append(Cell(section=shown_section(match["target"])))
        position = match.end()
    found.append(Cell(prose=text[position:]))
    cleaned = [Cell(_plain(cell.prose, url, cite), cell.section) for cell in found]
    return [cell for cell in cleaned if cell.prose or cell.section]


def _without_blocks(text: str) -> str:
    def replace(match: re.Match) -> str:
        kind, title, body = match["kind"], match["title"], _without_blocks(match["body"])
        if kind == "details" and not CODE.search(body):
            return f"<details><summary>{title}</summary>\n\n{body.strip()}\n\n</details>"
        if kind == "details" or not title:
            return body
        return f"**{title}**\n\n{body}"

    return BLOCK.sub(replace, text)


def _plain(text: str, url, cite) -> str:
    """Markdown that every notebook program reads."""
    lines = []
    for line in text.splitlines():
        heading = HEADING.match(line)
        lines.append(f"{heading['level']} {heading['title']}" if heading else line)
    text = FIGURE.sub("", "\n".join(lines))
    text = cite(text)
    text = LINK.sub(lambda m: f"]({url(m['target'])}{m['anchor'] or ''})", text)
    text = re.sub(r"\{ [.:][^}]*\}", "", ROLE.sub(r"{\1}", text))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def notebook(found: list[Cell], results: dict[str, Path]) -> str:
    """The cells as .ipynb, with the outputs that the stories' folders in ``results`` hold."""
    made = []
    for number, cell in enumerate(found):
        base = {"id": f"cell-{number}", "metadata": {}}
        if cell.section is None:
            made.append(base | {"cell_type": "markdown", "source": cell.prose})
            continue
        made.append(
            base
            | {
                "cell_type": "code",
                "execution_count": None,
                "source": cell.section.code.rstrip("\n"),
                "outputs": _outputs(cell.section, results),
            }
        )
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "file_extension": ".py"},
    }
    whole = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def _outputs(section: Section, results: dict[str, Path]) -> list[dict]:
    if section.path.parent not in (SNIPPETS, LABS):  # the package's own source
        return []
    folder, made = results[section.path.stem], []
    out = json.loads((folder / "outputs.json").read_text(encoding="utf-8"))[section.name]
    if out["text"]:
        made.append({"output_type": "stream", "name": "stdout", "text": out["text"]})
    if out["figure"]:
        drawn = (folder / out["figure"]).read_text(encoding="utf-8")
        data = {"image/svg+xml": drawn}
        made.append({"output_type": "display_data", "data": data, "metadata": {}})
    return made


def script(found: list[Cell], results: dict[str, Path]) -> str:
    """The cells' code as a script in percent format, under the page's headings."""
    parts, titles = [], []
    for cell in found:
        if cell.section is None:
            titles += re.findall(r"^#+ (.+)$", cell.prose, re.M)
            continue
        parts.append("# %% " + " · ".join(titles) if titles else "# %%")
        parts.append(cell.section.code)
        titles = []
    shown = [output for cell in found if cell.section for output in _outputs(cell.section, results)]
    if any(output["output_type"] == "display_data" for output in shown):
        parts.append("# %%\nimport matplotlib.pyplot as plt\n\nplt.show()\n")
    return "\n".join(parts)


def resolve(page: str, target: str) -> str:
    """The path that ``target`` means on ``page``; both relative to the language's folder."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) if target else page

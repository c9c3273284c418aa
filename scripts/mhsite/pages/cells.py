"""Code as pages show it: cells to copy, and below each what it printed, as text or as a table."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from html import escape, unescape
from itertools import groupby
from pathlib import Path

from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

from mhsite.stories import results
from mhsite.stories.source import LABS, ROOT, Cell, Section, console_cells, runnable

# What gets a colour, and the class that Material's style sheet knows it by.
LOOKS = {
    Comment: "c",
    Keyword: "k",
    Operator.Word: "k",
    String: "s",
    Number: "m",
    Name.Decorator: "nf",
    Name.Function: "nf",
    Name.Class: "nf",
}
PHONE = 36  # characters of an output that fit beside each other at 360 px
FOLDED = 48  # columns of code that do
EXAMPLE = re.compile(
    r'<div class="language-pycon highlight">.*?<code>(?P<code>.*?)</code></pre></div>', re.S
)
# Spans of the reference that show nothing: of tokens without a colour, of types without a link.
BARE = re.compile(r'<span(?: class="(?:n|nb|o|p|w)"| title="[^"]*")?>([^<]*)</span>')
INDENT = re.compile(r"(<pre.*?</pre>)|\n\s+", re.S)
API_ID = re.compile(r'id="(mhattn(?:\.\w+)+)"')
TABLE = re.compile(r"^\|.*\|\n\|(?:-+:?\|)+\n(?:\|.*\|\n?)*", re.M)
# What a reader runs may draw Chinese words; here a browser draws them, which has the letters.
DRAWS = re.compile(
    r"^(?:import matplotlib\.pyplot|from matplotlib import pyplot"
    r"|from mhattn[\w.]* import (?:\([^)]*|[^\n]*)\bplot_)",
    re.M,
)
CHINESE_FONT = "from mhattn.show import use_chinese_font\nuse_chinese_font()\n"
ROWS = re.compile(r"^[-.\d ]+$|^.*\S {2,}\S.*$", re.M)  # of numbers, or with gaps between columns


def text(section: Section) -> str:
    """The code of a section as a page shows it: of docstrings the first line."""
    return section.code if section.is_story else _with_short_docstrings(section.shown + "\n")


def taken_away(code: str, language: str) -> str:
    """Code as a reader runs it: in Chinese it finds a font before its first figure."""
    if language != "zh":
        return code
    return DRAWS.sub(lambda start: CHINESE_FONT + start[0], code, count=1)


def shown(section: Section, language: str) -> str:
    """A section as a page shows it: a story in cells, a lab with what it printed."""
    if section.is_story:
        grids = results.grids(section)
        parts = results.as_printed(section).cells
        made = (_cell(part, language, grids.get(part.output, "")) for part in parts)
        return _framed(*made)
    code = _code(text(section), taken_away(section.code, language))
    return _framed(code + _outputs(results.printed(section) if section.path.parent == LABS else ""))


def with_examples(html: str) -> str:
    """The reference, with its examples as cells to copy; signatures are not copied."""

    def replace(match: re.Match) -> str:
        first, *others = console_cells(_plain_text(match["code"]))
        runs = "".join(cell.code for cell in (first, *others))
        name = html.rfind('id="mhattn.', 0, match.start())
        if name >= 0:  # an example sees the names of its module
            runs = runnable(runs, module_of(API_ID.match(html, name)[1]))
        runs = runs.removesuffix("".join(cell.code for cell in others))
        return _framed(_code(first.code, runs) + _output(first.output), *map(_cell, others))

    html = BARE.sub(r"\1", EXAMPLE.sub(replace, html))
    html = INDENT.sub(lambda match: match[1] or "\n", html)  # a seventh of it is blanks
    return html.replace("doc-signature highlight", "doc-signature highlight no-copy")


def module_of(name: str) -> Path:
    """The file of the module that defines ``name``, as in ``mhattn.core.masks.causal_mask``."""
    parts = name.split(".")
    for stop in range(len(parts), 1, -1):
        if (path := ROOT.joinpath(*parts[:stop]).with_suffix(".py")).is_file():
            return path
    return ROOT / parts[0] / "__init__.py"


def _plain_text(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


def _framed(*cells: str) -> str:
    """The search leaves code out: what is in it would be half of the index."""
    start = '<section class="language-python highlight" data-search-exclude>'
    return f"{start}{''.join(cells)}</section>"


def _cell(cell: Cell, language: str = "en", grid: str = "") -> str:
    return _code(cell.code, taken_away(cell.code, language)) + _output(cell.output, grid)


def _code(code: str, runs: str = "") -> str:
    """A block of Python; the copy button takes its text, or the attribute if it runs otherwise."""
    shown, attribute = code.rstrip(), ""
    if (taken := runs.rstrip("\n")) not in ("", code.rstrip("\n")):
        name = "before" if taken.endswith(shown) else "copy"  # mostly imports: the rest is below
        text = taken.removesuffix(shown) if name == "before" else taken
        attribute = f' data-{name}="{escape(text, quote=True)}"'.replace("\n", "&#10;")
    return f"<pre{attribute}><code>{_highlighted(shown)}</code></pre>"


@cache
def _highlighted(code: str) -> str:
    """Few elements: neighbours of one look are one, and what looks like the rest is none."""
    parts = []
    for look, group in groupby(_tokens(code), lambda token: _look(token[0])):
        text = escape("".join(text for _, text in group), quote=False)
        parts.append(f'<span class="{look}">{text}</span>' if look else text)
    return _hung("".join(parts), code)


def _hung(html: str, code: str) -> str:
    """Lines that a phone folds are elements, so that what follows the fold is indented."""
    lines, opened = [], 0
    for line, shown in zip(code.split("\n"), html.split("\n"), strict=True):
        inside, opened = opened, opened + shown.count("<span") - shown.count("</span")
        if _columns(line) > FOLDED and not inside and not opened:
            indent = len(line) - len(line.lstrip())
            lines.append(f'<span class="mh-long" style="--in:{indent}ch">{shown}\n</span>')
        else:
            lines.append(f"{shown}\n")
    return "".join(lines).removesuffix("\n")


def _look(kind: _TokenType) -> str:
    return next((look for of, look in LOOKS.items() if kind in of), "")


@cache
def _with_short_docstrings(code: str) -> str:
    """The first line of each is enough: the reference has the rest."""

    def short(kind: _TokenType, text: str) -> str:
        first, more, _ = text.partition("\n")
        return f'{first}"""' if kind in String.Doc and more else text

    return "".join(short(*token) for token in _tokens(code))


def _tokens(code: str) -> Iterator[tuple[_TokenType, str]]:
    return PythonLexer(stripnl=False, ensurenl=False).get_tokens(code)


def _outputs(text: str) -> str:
    """What a cell of a lab printed, each table in it as a table."""
    parts, end = [], 0
    for match in TABLE.finditer(text):
        parts += [text[end : match.start()], match[0]]
        end = match.end()
    return "".join(_output(part.strip("\n")) for part in [*parts, text[end:]])


def _output(text: str, grid: str = "") -> str:
    if not text:
        return ""
    if TABLE.fullmatch(text):
        return table(text, grid)
    wide = max(map(_columns, text.splitlines())) > PHONE
    focus = ' tabindex="0"' if wide else ""  # what scrolls has to be reached by keys
    rows = " mh-rows" if wide and len(ROWS.findall(text)) > 1 else ""
    return f'<pre class="mh-output{rows}"{focus}>{escape(text, quote=False)}</pre>'


def _columns(line: str) -> int:
    """How many letters wide a line is: a Chinese character is as wide as two."""
    return len(line) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in line)


def table(text: str, grid: str = "") -> str:
    """The table of `mhattn.table`: what its line of dashes doesn't align right are row headers.

    ``grid`` is the attribute that `mhsite.stories.grids` gives it.
    """
    head, dashes, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()
    )
    heads = not dashes[0].endswith(":")
    corner = "<td></td>" if heads and not head[0] else ""
    names = [_escaped(name).replace("_", "_<wbr>") for name in head[bool(corner) :]]
    columns = "".join(f'<th scope="col">{name}</th>' for name in names)
    lines = [f"<thead><tr>{corner}{columns}</tr></thead><tbody>"]
    for row in rows:
        name = f'<th scope="row">{_escaped(row[0])}</th>' * heads
        lines.append(f"<tr>{name}{''.join(f'<td>{_escaped(x)}</td>' for x in row[heads:])}</tr>")
    return (
        f'<div class="mh-scroll" tabindex="0"><table class="mh-output"{grid}>'
        f"{''.join(lines)}</tbody></table></div>"
    )


def _escaped(text: str) -> str:
    return escape(text, quote=False)

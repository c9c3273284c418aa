"""Texts in lines of 66 columns, in which a Chinese character takes two."""

import re
import textwrap
import unicodedata
from collections.abc import Iterator

from mhattn.testing.language import HAN, language

__all__: list[str] = []

COLUMNS = 66  # as all code of the site: a report is shown in pages
WIDE = r"\u2e80-\uffef"  # Chinese characters and their punctuation
# Words with what stands in brackets behind them, or one Chinese character, with its number.
BRACKETS = rf"\([^(){WIDE}]{{,40}}\)|\[[^\[\]{WIDE}]{{,40}}\]"
UNIT = re.compile(rf"[{HAN}] \d[^\s{WIDE}]*|\s+|(?:{BRACKETS}|[^\s{WIDE}])+|.")


def width(text: str) -> int:
    """How many columns a text takes."""
    return len(text) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)


def filled(text: str, indent: int) -> str:
    """A text in lines, the second and the following ones indented."""
    if language() == "en":
        # Names of checks have hyphens, and stay whole.
        spaces = " " * indent
        return textwrap.fill(text, COLUMNS, subsequent_indent=spaces, break_on_hyphens=False)
    lines, line = list[str](), ""
    for unit in _units(text):
        if line.strip() and width(line + unit) > COLUMNS and unit.strip():
            lines.append(line.rstrip())
            line = " " * indent
        line += unit
    return "\n".join([*lines, line.rstrip()])


def _units(text: str) -> Iterator[str]:
    """Pieces between which a line may end: not in code, nor before a Chinese comma or full stop."""
    unit, pieces = "", UNIT.findall(text)
    for piece, following in zip(pieces, [*pieces[1:], ""], strict=True):
        unit += piece
        if _mark(piece) != "Ps" and _mark(following) not in ("Po", "Pe"):
            yield unit
            unit = ""


def _mark(piece: str) -> str:
    """The category of a mark that is as wide as a Chinese character; of other pieces, nothing."""
    return unicodedata.category(piece) if len(piece) == 1 and width(piece) == 2 else ""

"""Numbers as a table with headings: text that reads well in a terminal, and is Markdown."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["table"]


def table(
    numbers: Any,
    rows: Iterable[Any] | None = None,
    columns: Iterable[Any] | None = None,
    digits: int = 2,
) -> str:
    """Write numbers under column headings and beside row headings.

    The lines are those of a table in Markdown, padded so that each column is as wide as its
    widest cell on a screen, where a Chinese character takes two places. What the page of a
    site prints like that is shown there as a table.

    Args:
        numbers: ``(R, C)``, or ``(C,)`` for a single row: a tensor or an array on any device
            and of any dtype, or nested lists, in which a cell may also be a text. Booleans are
            written as 1 and 0, large numbers with commas.
        rows: R headings, one beside each row. Default: none.
        columns: C headings, one above each column. Default: 0, 1, 2, ...
        digits: how many decimals a number that is not an integer gets.

    Returns:
        A line of headings, a line of dashes and R lines of numbers, without a line break at
        the end.

    Raises:
        TypeError: a cell is neither an integer nor a float nor a text.
        ValueError: numbers has no axis, more than two, no column, or rows of several lengths;
            there are not R rows or C columns; a text holds ``|`` or a line break; digits is
            negative.

    Examples:
        >>> print(table([[0.75, 0.25], [0.5, 0.5]], rows=["the", "cat"], columns=["the", "cat"]))
        |     |  the |  cat |
        |-----|-----:|-----:|
        | the | 0.75 | 0.25 |
        | cat | 0.50 | 0.50 |
    """
    if digits < 0:
        raise ValueError(f"digits must not be negative, got {digits}")
    body = [[_cell(number, digits) for number in row] for row in _grid(numbers)]
    names = _headings("columns", range(len(body[0])) if columns is None else columns, len(body[0]))
    lines = [names, *body]
    if rows is not None:
        beside = ["", *_headings("rows", rows, len(body))]
        lines = [[name, *line] for name, line in zip(beside, lines, strict=True)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    dashes = "|".join("-" * (width + 1) + ":" for width in widths)
    if rows is not None:  # row headings stand on the left
        dashes = dashes.replace(":", "-", 1)
    head, *others = (_line(line, widths, rows is not None) for line in lines)
    return "\n".join([head, f"|{dashes}|", *others])


def _grid(numbers: Any) -> Sequence[Sequence[Any]]:
    """The numbers as rows of Python's own."""
    # Tensors and arrays alike, from any device; neither library is imported.
    grid = numbers.tolist() if hasattr(numbers, "tolist") else numbers
    if not isinstance(grid, Sequence):
        raise ValueError(f"numbers must have one axis or two, got {numbers!r}")
    if not any(isinstance(row, Sequence) or hasattr(row, "tolist") for row in grid):
        grid = [grid]
    grid = [row.tolist() if hasattr(row, "tolist") else row for row in grid]
    lengths = [len(row) if isinstance(row, Sequence) else "a number" for row in grid]
    if len(set(lengths)) != 1 or 0 in lengths:
        raise ValueError(f"numbers must be rows of one length, got {lengths}")
    if any(isinstance(cell, Sequence) and not isinstance(cell, str) for cell in grid[0]):
        raise ValueError("numbers must have one axis or two, got more")
    return grid


def _cell(number: Any, digits: int) -> str:
    if hasattr(number, "item"):
        number = number.item()
    if isinstance(number, str):
        return _text("numbers", number)
    if not isinstance(number, int | float):
        raise TypeError(f"numbers must be integers, floats or texts, got {number!r}")
    # "z": what is rounded to zero has no minus, so that runs on two machines print the same.
    return f"{number:z,.{digits}f}" if isinstance(number, float) else f"{int(number):,}"


def _headings(name: str, labels: Iterable[Any], number: int) -> list[str]:
    texts = [_text(name, str(label)) for label in labels]
    if len(texts) != number:
        raise ValueError(f"{name} must be {number} headings, got {len(texts)}")
    return texts


def _text(name: str, text: str) -> str:
    if "|" in text or "\n" in text:
        raise ValueError(f"{name} must not hold '|' or a line break, got {text!r}")
    return text


def _line(cells: list[str], widths: list[int], headed: bool) -> str:
    """Numbers and their headings on the right of each column, row headings on the left."""
    blanks = [" " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)]
    padded = [blank + cell for blank, cell in zip(blanks, cells, strict=True)]
    if headed:
        padded[0] = cells[0] + blanks[0]
    return f"| {' | '.join(padded)} |"


def _width(text: str) -> int:
    """How many places a text takes on a screen."""
    # A sign that is combined with the letter before it takes no place.
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))

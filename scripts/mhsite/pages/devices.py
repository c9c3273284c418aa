"""What was measured, as charts: several devices side by side, or the columns of one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from html import escape

from mhsite import words

MARKS = ("circle", "rect")  # of the first device, and of the others by turns
WIDTH, LABEL, LINE = 690, 230, 18  # of the chart, of what its rows are called, of a device in a row
COLUMNS, ROW = 430, 22  # of a chart with the columns of one device, and of a row there


Say = Callable[[float, str], str]


def chart(devices: list[dict], headings: list[str], language: str, say: Say) -> str:
    """The first column with intervals, as SVG: a line for each device in each row, on one axis.

    There is none where devices had other work: a GPU beside a CPU, or other sizes.

    Args:
        devices: what the files of a benchmark say, first that whose columns the page names.
        headings: what the page calls its columns.
        language: one of `LANGUAGES`.
        say: a number with its unit, as people write it.
    """
    column = next((c for c in range(len(headings)) if _is_timed(devices[0], c)), None)
    work = {_work(device, column) for device in devices}
    if len(devices) < 2 or column is None or len(work) > 1:
        return ""
    found = [_values(device, column) for device in devices]
    rows = [name for name in found[0] if sum(name in each for each in found) > 1]
    if not rows:
        return ""
    ends = [number for each in found for name in rows if name in each for number in each[name]]
    low, high = math.log10(min(ends)), math.log10(max(ends))
    place = _Axis(low, max(high, low + 0.1)).place
    unit = devices[0]["units"].get(devices[0]["columns"][column], "")
    ticks = {say(number, unit): place(number) for number in _ticks(low, high)}
    bottom = (len(devices) + 1 + len(rows) * len(devices)) * LINE
    lines = [*_legend(devices), *_axis(ticks, len(devices) * LINE, bottom)]
    for number, name in enumerate(rows):
        top = (len(devices) + 1 + number * len(devices)) * LINE
        lines.append(f'<text x="0" y="{top + 4}">{escape(name)}</text>')
        lines += _marks([each.get(name) for each in found], top, place)
    heading = re.sub(r"[$`]", "", headings[column])
    said = words.of(language, "measured.chart", heading=heading, count=len(devices))
    height = bottom + LINE
    start = f'<svg class="mh-figure" role="img" aria-label="{escape(said)}" font-size="12" '
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" data-search-exclude>'
    axis = words.of(language, "measured.logarithmic", heading=heading)
    about = f"<figcaption>{escape(axis)}</figcaption>"
    drawn = "".join(lines)
    return f'<figure class="mh-drawn">{start}{size}{drawn}</svg>{about}</figure>'


def columns(measured: dict, headings: list[str], language: str, say: Say) -> str:
    """The columns with intervals of one device, as SVG: a mark for each in every row, on one axis.

    Args:
        measured: what its file of a benchmark says.
        headings: what the page calls its columns.
        language: one of `LANGUAGES`.
        say: a number with its unit, as people write it.
    """
    rows, units = measured["rows"], measured["units"]
    timed = [c for c in range(len(headings)) if any(isinstance(row[c], list) for row in rows)]
    unit = units.get(measured["columns"][timed[0]], "")
    names = [
        " · ".join(str(x) for x in row if isinstance(x, (str, int)) and x != "–") for row in rows
    ]
    names = [name.replace("`", "") for name in names]
    ends = [number for row in rows for c in timed if isinstance(row[c], list) for number in row[c]]
    left = 8 + round(6.7 * max(len(name) for name in names))
    axis = _Axis(math.log10(min(ends)), math.log10(max(ends)), left, COLUMNS - 18)
    lines, x = [], 10.0
    for number, c in enumerate(timed):
        heading = re.sub(r"[$`]", "", headings[c])
        lines.append(f'{_shape(number, x, 9)}<text x="{x + 9}" y="13">{escape(heading)}</text>')
        x += 28 + 8 * len(heading)
    bottom = (len(rows) + 1.5) * ROW
    ticks = [t for t in _fine_ticks(axis) if min(ends) <= t <= max(ends)]
    lines += _axis({say(t, unit): axis.place(t) for t in ticks}, ROW, bottom)
    for number, (name, row) in enumerate(zip(names, rows, strict=True)):
        y = (number + 1.7) * ROW
        lines.append(f'<text x="0" y="{y + 4}">{escape(name)}</text>')
        lines += [
            _shape(i, axis.place(row[c][0]), y)
            for i, c in enumerate(timed)
            if isinstance(row[c], list)
        ]
    device = measured["provenance"]["device"]
    said = words.of(language, "measured.columns", device=device)
    start = f'<svg class="mh-figure" role="img" aria-label="{escape(said)}" font-size="13" '
    width, height = COLUMNS, bottom + ROW
    size = f'viewBox="0 0 {width} {height}" width="{width}" data-search-exclude>'
    about = f"<figcaption>{escape(said)}</figcaption>"
    drawn = "".join(lines)
    return f'<figure class="mh-drawn">{start}{size}{drawn}</svg>{about}</figure>'


def _fine_ticks(axis: _Axis) -> list[float]:
    """Powers of ten and what lies between; without what lies between where there are many."""
    powers = range(math.floor(axis.low), math.ceil(axis.low + axis.span) + 1)
    steps = (1, 2, 5) if axis.span < 1.2 else (1, 3) if axis.span < 2.2 else (1,)
    return [step * 10.0**power for power in powers for step in steps]


def _shape(number: int, x: float, y: float) -> str:
    """A mark of its own for each column: colour would be the only sign."""
    if number == 0:
        return f'<circle cx="{x}" cy="{y}" r="4.5" fill="currentColor"/>'
    look = 'fill="none" stroke="currentColor" stroke-width="1.8"'
    if number == 1:
        return f'<rect x="{x - 4}" y="{y - 4}" width="8" height="8" {look}/>'
    return f'<path d="M{x} {y - 5}L{x + 5} {y + 4}H{x - 5}Z" {look}/>'


class _Axis:
    """A logarithmic axis beside the labels."""

    def __init__(self, low: float, high: float, left: float = LABEL, right: float = WIDTH - 20):
        self.low, self.span = low, high - low
        self.left, self.width = left + 10, right - left - 10

    def place(self, number: float) -> float:
        share = (math.log10(number) - self.low) / self.span
        return round(self.left + share * self.width, 1)


def _work(measured: dict, column: int | None) -> tuple:
    """What must be the same in numbers that are compared."""
    about, names = measured["provenance"], dict(enumerate(measured["columns"]))
    return names.get(-1 if column is None else column), "host" in about, about.get("sizes")


def _is_timed(measured: dict, column: int) -> bool:
    return all(isinstance(row[column], list) and row[column][1] > 0 for row in measured["rows"])


def _values(measured: dict, column: int) -> dict[str, list[float]]:
    """Median and interval of each row, by what stands in it without a unit."""
    plain = [c for c, name in enumerate(measured["columns"]) if name not in measured["units"]]
    return {
        " · ".join(str(row[c]) for c in plain if not isinstance(row[c], (list, float))): row[column]
        for row in measured["rows"]
        if isinstance(row[column], list)
    }


def _colour(device: int) -> str:
    return ("currentColor", "var(--mh-query)", "var(--mh-key)", "var(--mh-value)")[device % 4]


def _mark(device: int, x: float, y: float) -> str:
    fill = f'fill="{_colour(device)}"'
    if MARKS[device % 2] == "circle":
        return f'<circle cx="{x}" cy="{y}" r="4" {fill}/>'
    return f'<rect x="{x - 4}" y="{y - 4}" width="8" height="8" {fill}/>'


def _legend(devices: list[dict]) -> Iterator[str]:
    for number, device in enumerate(devices):
        y = (number + 0.5) * LINE
        name = escape(device["provenance"]["device"])
        yield f'{_mark(number, LABEL + 10, y)}<text x="{LABEL + 20}" y="{y + 4}">{name}</text>'


def _ticks(low: float, high: float) -> Iterator[float]:
    """Powers of ten on the axis; of a short one, its ends."""
    powers = range(math.ceil(low), math.floor(high) + 1)
    yield from (10.0**power for power in powers) if len(powers) > 1 else (10**low, 10**high)


def _axis(ticks: dict[str, float], top: float, bottom: float) -> Iterator[str]:
    for name, x in ticks.items():
        yield f'<path d="M{x} {top}V{bottom}" stroke="currentColor" opacity="0.2"/>'
        yield f'<text x="{x}" y="{bottom + 12}" text-anchor="middle">{escape(name)}</text>'


def _marks(values: list[list[float] | None], top: float, place) -> Iterator[str]:
    for number, value in enumerate(values):
        if value is None:
            continue
        y = top + number * (LINE - 4)
        median, *ends = (place(each) for each in value)
        line = f'stroke="{_colour(number)}" stroke-width="2"'
        yield f'<path d="M{ends[0]} {y}H{ends[1]}" {line}/>{_mark(number, median, y)}'

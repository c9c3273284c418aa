"""Files of measurements, docs/data/measured/<device>/<name>.json: checked, and as Markdown."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

from mhattn.lessons.files import DEVICE
from mhsite import words
from mhsite.pages import devices as beside
from mhsite.pages.settings import settings
from mhsite.stories import fingerprints
from mhsite.stories.source import DOCS, ROOT, SourceError, of_file

FOLDER = DOCS / "data" / "measured"
QUARTILES, OF_MEDIAN = "quartiles", "median 95%"
# What the brackets hold; older files don't say, and have quartiles.
INTERVALS = {QUARTILES: "measured.quartiles", OF_MEDIAN: "measured.interval"}
FEWEST = 6  # rounds: of fewer, not even the smallest and the largest bound such an interval
UNITS = {
    "seconds": [(1e-6, "µs"), (1e-3, "ms"), (1.0, "s")],
    "flops_per_second": [(1e9, "GFLOP/s"), (1e12, "TFLOP/s")],
    "bytes_per_second": [(1e6, "MB/s"), (1e9, "GB/s"), (1e12, "TB/s")],
    "bytes": [(1, "B"), (2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB")],
}
PROVENANCE: dict[str, type | tuple[type, ...]] = {  # whoever measures must say these
    **{name: str for name in ("device", "python", "torch", "commit", "code", "date")},
    **{"threads": (int, str), "rounds": int},
}
OPTIONAL: dict[str, type] = {
    **{"cores": int, "host": str, "cuda": str, "hip": str},
    "hash": str,  # of the code that ran: `mhsite.stories.fingerprints`
    "interval": str,  # one of INTERVALS
    "sizes": str,  # where they are not those of the text
    "machine": dict,  # what it is, after which its folder is named
    "state": dict,  # what may be another an hour later: load, clocks, settings
    "versions": dict,
    "kernels": dict,  # in which torch attended, by the name of the call
}


def slug(device: str) -> str:
    """A device's folder: ``Intel(R) Xeon(R) CPU @ 2.20GHz`` in ``intel-xeon-cpu-2-20ghz``."""
    plain = re.sub(r"\((?:R|TM|C)\)", " ", device, flags=re.IGNORECASE)
    return re.sub(r"\W+", "-", plain.lower()).strip("-")


def folder(about: dict) -> str:
    """Where a file lies: machines that differ in anything that is noted of them share no folder."""
    name = slug(about["device"])
    if "machine" not in about:
        return name
    noted = json.dumps(about["machine"], sort_keys=True, ensure_ascii=False)
    return f"{name}-{hashlib.sha256(noted.encode()).hexdigest()[:6]}"


def files(name: str = "*") -> list[Path]:
    """The files of all devices, or of one benchmark on all devices; those misplaced as well."""
    return sorted(FOLDER.rglob(f"{name}.json"))


def published() -> dict[str, Path]:
    """All files under their addresses; what no page shows is checked as well."""
    checked = {path: found(path) for path in files()}
    return {f"data/measured/{path.parent.name}/{path.name}": path for path in checked}


@of_file
def found(path: Path) -> dict:
    """What a file says; what is wrong with it is an error with the file's name and the reason."""
    try:
        measured = json.loads(path.read_text(encoding="utf-8"))
        check(measured, path)
    except ValueError as error:
        raise SourceError(error, path) from None
    return measured


def check(measured: dict, path: Path) -> None:
    """Raise a ValueError for what a table, or the line below it, can't be made of."""
    if not isinstance(measured, dict):
        raise ValueError(f"must be an object, got {type(measured).__name__}")
    for key, kind in {"provenance": dict, "columns": list, "units": dict, "rows": list}.items():
        if not isinstance(measured.get(key), kind):
            raise ValueError(f"{key} must be a {kind.__name__}, got {measured.get(key)!r}")
    check_provenance(measured["provenance"])
    place = folder(measured["provenance"])
    if path.parent != FOLDER / place:
        raise ValueError(f"must lie in docs/data/measured/{place}, after its device")
    columns = measured["columns"]
    for column, unit in measured["units"].items():
        if column not in columns or unit not in UNITS:
            raise ValueError(f"units gives {column!r} the unit {unit!r}; one of them is unknown")
    if not measured["rows"]:
        raise ValueError("rows is empty")
    for number, row in enumerate(measured["rows"]):
        if not isinstance(row, list) or len(row) != len(columns):
            raise ValueError(f"rows[{number}] must have {len(columns)} cells, got {row!r}")
        for value in row:
            if not is_cell(value):
                what = "text, a number, or median and interval"
                raise ValueError(f"rows[{number}] must hold {what}, got {value!r}")


def check_provenance(about: dict) -> None:
    for name, kind in (PROVENANCE | OPTIONAL).items():
        if name in about or name in PROVENANCE:
            value = about.get(name)
            if not value or isinstance(value, bool) or not isinstance(value, kind):
                raise ValueError(f"provenance must say {name}, got {value!r}")
    if unknown := set(about) - set(PROVENANCE | OPTIONAL):
        raise ValueError(f"provenance has the unknown {', '.join(sorted(unknown))}")
    if (interval := about.get("interval", QUARTILES)) not in INTERVALS:
        raise ValueError(f"interval must be one of {', '.join(INTERVALS)}, got {interval!r}")
    if interval == OF_MEDIAN and about["rounds"] < FEWEST:
        raise ValueError(f"rounds must be at least {FEWEST}, got {about['rounds']}")


def is_cell(value: object) -> bool:
    """Text, a number, or a median and the two ends of its interval."""
    if isinstance(value, list):
        numbers = [x for x in value if is_cell(x) and not isinstance(x, (str, list))]
        return len(numbers) == len(value) == 3 and value[1] <= value[0] <= value[2]
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return False
    return isinstance(value, str) or math.isfinite(value)


def markdown(name: str, headings: list[str], language: str, url: Callable[[str], str]) -> str:
    """A table for each device, and below it what it was made with.

    Of several devices, each has its name above its table, and a chart shows them side by side.
    ``NAME threads=1 batch=1`` shows only the rows that have these cells, without their columns;
    the file, which the line below a table links to, has all of them. ``NAME chart=nvidia`` is no
    table but a chart of the columns of the device whose folder begins so.
    """
    name, *wanted = name.split()
    drawn = [each.partition("=")[2] for each in wanted if each.startswith("chart=")]
    wanted = [each for each in wanted if not each.startswith("chart=")]
    devices = of_devices(name, len(headings) + len(wanted))
    devices = [(file, with_cells(measured, wanted, file)) for file, measured in devices]
    if drawn:
        return chart_of(drawn[0], devices, headings, language)
    shown = beside.chart([measured for _, measured in devices], headings, language, cell)
    tables = [shown] if shown else []
    for file, measured in devices:
        about, path = measured["provenance"], f"data/measured/{file.parent.name}/{file.name}"
        is_first = file.parent.name == DEVICE
        which = words.of(language, "measured.first_device") if is_first else ""
        tables.append(f"**{about['device']}**{which}\n{{ .mh-device }}")
        own = headings_of(measured["columns"], devices[0][1]["columns"], headings)
        tables.append(table_of(measured, own))
        tables.append(origin(name, measured, language, url(path), code_url(about)))
    return "\n\n".join(tables[1:] if len(tables) == 3 else tables)


def chart_of(
    start: str, devices: list[tuple[Path, dict]], headings: list[str], language: str
) -> str:
    """The chart of the device whose folder begins with `start`."""
    for file, measured in devices:
        if file.parent.name.startswith(start):
            own = headings_of(measured["columns"], devices[0][1]["columns"], headings)
            return beside.columns(measured, own, language, cell)
    raise SourceError(f"chart={start}: devices are {[f.parent.name for f, _ in devices]}")


def of_devices(name: str, columns: int) -> list[tuple[Path, dict]]:
    """The files of a benchmark and what they say; of the first, the page names each column.

    Others have the same columns, except for the numbers in their names: ``n = 4096`` may be
    ``n = 32768`` there, and there may be more or fewer of these.
    """
    there = sorted(files(name), key=lambda file: file.parent.name != DEVICE)
    devices = [(file, found(file)) for file in there]
    if not devices:
        raise SourceError(f"there is no docs/data/measured/<device>/{name}.json")
    first, about = devices[0]
    if len(about["columns"]) != columns:
        why = f"measured {name} has columns {about['columns']}, got {columns} headings"
        raise SourceError(why)
    for file, measured in devices:
        if shape(measured) != shape(about):
            why = f"columns and units must be those of {first.parent.name}, {shape(about)}"
            raise SourceError(f"{why}, got {shape(measured)}", file)
    return devices


def with_cells(measured: dict, wanted: list[str], file: Path) -> dict:
    """The rows that have all of these cells, such as ``threads=1``, without these columns."""
    for cell_wanted in wanted:
        column, _, value = cell_wanted.partition("=")
        if column not in measured["columns"]:
            raise SourceError(f"{cell_wanted}: columns are {measured['columns']}", file)
        place = measured["columns"].index(column)
        rows = [row for row in measured["rows"] if str(row[place]) == value]
        if not rows:
            raise SourceError(f"no row has {cell_wanted}", file)
        without = {
            "columns": [each for each in measured["columns"] if each != column],
            "rows": [row[:place] + row[place + 1 :] for row in rows],
        }
        measured = measured | without
    return measured


def shape(measured: dict) -> list[tuple[str, str]]:
    """Columns with their units, without the numbers in their names; of columns alike, the first."""
    units = measured["units"]
    return list(dict.fromkeys((_kind(c), units.get(c, "")) for c in measured["columns"]))


def _kind(column: str) -> str:
    """A column's name without the version of a package, and with ``#`` for a size."""
    return re.sub(r"= \d+$", "= #", re.sub(r" \d+\.\S+$", "", column))


def headings_of(columns: list[str], named: list[str], headings: list[str]) -> list[str]:
    """What a page calls columns, of which it has named others that differ in their numbers."""
    if columns == named:
        return headings
    patterns: dict[str, str] = {}
    for column, heading in zip(named, headings, strict=True):
        patterns.setdefault(_kind(column), heading)
    own = []
    for column in columns:
        size = re.search(r"= (\d+)$", column)
        pattern = patterns[_kind(column)]
        own.append(re.sub(r"\d+$", size[1], pattern) if size else pattern)
    return own


def table_of(measured: dict, headings: list[str]) -> str:
    units = [measured["units"].get(column, "") for column in measured["columns"]]
    rows = [[cell(*pair) for pair in zip(row, units, strict=True)] for row in measured["rows"]]
    return table_markdown(headings, rows)


def origin(name: str, measured: dict, language: str, data: str, code: str) -> str:
    """What the numbers were made with."""
    about, more = measured["provenance"], words.of(language, "measured.more")
    said = {name: more[name].format(value=about[name]) if name in about else "" for name in more}
    timed = any(isinstance(value, list) for row in measured["rows"] for value in row)
    what = words.of(language, "measured.counts")  # each round would find the same
    if timed:
        interval = words.of(language, INTERVALS[about.get("interval", QUARTILES)])
        what = words.of(language, "measured.medians", rounds=about["rounds"], interval=interval)
    shown = about | {"data": data, "code": code, "what": what}
    shown["device"] += said["cores"] + said["host"]
    shown["torch"] += said["cuda"] + said["hip"] + said["sizes"]
    text = words.of(language, "measured.origin", **shown)
    stale = words.of(language, "measured.stale") if is_stale(name, about) else ""
    return f"{text}{stale}\n{{ .mh-measured }}"


def is_stale(name: str, about: dict) -> bool:
    """Whether the code is another than that which was measured."""
    path, on_gpu = ROOT / about["code"], "host" in about
    try:
        text = path.read_text("utf-8")
        return about.get("hash") != fingerprints.fingerprint(text, function(name), on_gpu)
    except (OSError, KeyError):  # the benchmark lies elsewhere now
        return True


def function(name: str) -> str:
    """The function that makes the measurement of this name."""
    return name.replace("-", "_")


def code_url(about: dict) -> str:
    """The script that measured a table, as it was then: no page shows it."""
    repository = settings()["repo_url"].rstrip("/")
    return f"{repository}/blob/{about['commit'].removesuffix('-dirty')}/{about['code']}"


def cell(value: object, unit: str) -> str:
    """A measurement as people write it: ``1.52 ms (1.50–1.61)``."""
    numbers = value if isinstance(value, list) else [value]
    if isinstance(value, str) or (not unit and isinstance(value, int)):
        return f"{value:,}" if isinstance(value, int) else value
    fitting = [pair for pair in UNITS.get(unit, [(1, "")]) if numbers[0] >= pair[0]]
    size, symbol = (fitting or UNITS.get(unit, [(1, "")]))[-1 if fitting else 0]
    first, *others = [_three_digits(number / size) for number in numbers]
    spread = f" ({'–'.join(others)})" if others else ""
    return f"{first} {symbol}".strip() + spread


def _three_digits(number: float) -> str:
    if number < 1:
        return f"{number:.3g}"
    return f"{number:,.{max(0, 3 - len(str(int(number))))}f}"


def table_markdown(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] + ["--:"] * (len(headings) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

"""What was found, as other programs read it: JSON, SARIF, annotations of a hosted run."""

import inspect
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mhattn.testing.models import ModelReport
from mhattn.testing.report import SITE, Finding, Report

__all__: list[str] = []


@dataclass(frozen=True)
class Place:
    """Where the source of a layer begins.

    Attributes:
        file: its path, relative to the working directory where it lies below it.
        line: number of the line.

    Examples:
        >>> Place.of(Place).line > 1, Place.of(len)
        (True, None)
    """

    file: str
    line: int

    @classmethod
    def of(cls, layer: Any) -> "Place | None":
        """The place of an object's class, or of a function; None if it has no source."""
        if not (inspect.isclass(layer) or inspect.isroutine(layer)):
            layer = type(layer)
        try:
            path = Path(inspect.getsourcefile(layer) or "").resolve()
            line = inspect.getsourcelines(layer)[1]
        except (OSError, TypeError):  # written in C, or typed at a prompt
            return None
        if path.is_relative_to(here := Path.cwd()):
            path = path.relative_to(here)
        return cls(path.as_posix(), line)


@dataclass(frozen=True)
class Examined:
    """A report, and where the layers lie that it tells of.

    Attributes:
        report: of a layer or of a model.
        places: of one layer by its own name; of a model by the names of its kinds of layers.
    """

    report: Report | ModelReport
    places: dict[str, Place | None]

    def findings(self) -> Iterator[tuple[str, Place | None, Finding]]:
        """The findings that the text tells, each with its layer's name and place."""
        if isinstance(self.report, Report):
            told = [(self.report.layer, self.report.folded()[0])]
        else:
            told = [(self.report.model, self.report.findings)]
            told += [(name, each.folded()[0]) for name, each in self.report.reports.items()]
        for name, findings in told:
            for finding in findings:
                yield name, self.places.get(name), finding


def as_json(found: list[Examined]) -> str:
    """A list of all reports."""
    return json.dumps([asdict(each.report) for each in found], indent=2)


def as_annotations(found: list[Examined]) -> str:
    """Workflow commands of GitHub's runners, which show them beside the source."""
    lines = []
    for each in found:
        for layer, place, finding in each.findings():
            level = "error" if finding.level == "error" else "notice"
            at = f"file={_escaped(place.file)},line={place.line}," if place else ""
            title = _escaped(f"{layer}: {finding.check}")
            message = _escaped(f"{_sentence(finding)}\n{SITE}{finding.page}", also="")
            lines.append(f"::{level} {at}title={title}::{message}")
    return "\n".join(lines)


def _escaped(text: str, also: str = ":,") -> str:
    """Text in which no character has a meaning for a runner."""
    return "".join(f"%{ord(c):02X}" if c in "%\r\n" + also else c for c in text)


def _sentence(finding: Finding) -> str:
    case = f" ({finding.case})" if finding.case else ""
    return f"{finding.did}{case}: {finding.got}; expected: {finding.expected}"


def as_sarif(found: list[Examined]) -> str:
    """SARIF 2.1.0, which code scanning reads: a rule for each check, a result for each finding."""
    results, pages = [], dict[str, str]()
    for each in found:
        for layer, place, finding in each.findings():
            pages.setdefault(finding.check, finding.page)
            result: dict[str, Any] = {
                "ruleId": finding.check,
                "level": finding.level,  # "error" and "note" are words of SARIF as well
                "message": {"text": f"{layer}: {_sentence(finding)} {SITE}{finding.page}"},
            }
            if place:
                # A relative address is relative to the repository; an absolute one needs a scheme.
                path = Path(place.file)
                uri = path.as_uri() if path.is_absolute() else quote(place.file)
                where = {"artifactLocation": {"uri": uri}, "region": {"startLine": place.line}}
                result["locations"] = [{"physicalLocation": where}]
            results.append(result)
    rules = [{"id": name, "helpUri": SITE + page} for name, page in sorted(pages.items())]
    driver = {"name": "mhattn", "informationUri": SITE, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2)

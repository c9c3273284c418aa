"""For pytest: `check_attention` and `check_model` as fixtures, each check a subtest of its own."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mhattn.testing.report import Report

# No name of the doctor is imported here: pytest loads this file at every start, and torch takes
# seconds.

__all__: list[str] = []

MARKER = (
    "attention(**how): how the fixtures check_attention and check_model examine what they are "
    "given: their arguments, require=[...] and allow={check: reason}"
)
Known = dict[str, dict[str, dict[str, str]]]  # by test, layer and check: what was found


class Baseline:
    """Mistakes that were there before the doctor came: found, and no failure.

    Args:
        path: JSON, for each test and layer the checks and what they found; or None.
        writes: whether what is found now is to be written there.
    """

    def __init__(self, path: Path | None, writes: bool) -> None:
        self.path, self.writes = path, writes
        self.known: Known = {}
        if path is not None and path.exists():
            self.known = json.loads(path.read_text(encoding="utf-8"))
        elif path is not None and not writes:
            raise pytest.UsageError(
                f"attention_baseline: no file {path}; --write-attention-baseline writes it"
            )
        elif writes and path is None:
            raise pytest.UsageError("--write-attention-baseline needs attention_baseline: a file")

    def of(self, test: str, layer: str, found: dict[str, str]) -> dict[str, str]:
        """What is known of a layer in a test; if it is to be written, what is found."""
        if self.writes:
            layers = self.known.setdefault(test, {})
            layers[layer] = found
        return self.known.get(test, {}).get(layer, {})

    def write(self) -> None:
        """Write what is known: of tests that did not run, what was known before."""
        told = {
            test: {layer: found for layer, found in sorted(layers.items()) if found}
            for test, layers in sorted(self.known.items())
        }
        text = json.dumps({test: layers for test, layers in told.items() if layers}, indent=2)
        if self.path is not None:
            self.path.write_text(text + "\n", encoding="utf-8")


BASELINE = pytest.StashKey[Baseline]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attention")
    text = "JSON of mistakes that are known and no failure, relative to the root directory"
    parser.addini("attention_baseline", text, default="")
    group.addoption("--attention-baseline", default=None, metavar="FILE", help=text)
    group.addoption(
        "--write-attention-baseline",
        action="store_true",
        help="write what is found into this file, and fail no test for it",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    name = config.getoption("--attention-baseline") or config.getini("attention_baseline")
    writes = bool(config.getoption("--write-attention-baseline"))
    if writes and (config.getoption("numprocesses", None) or hasattr(config, "workerinput")):
        raise pytest.UsageError("--write-attention-baseline writes from one process: add -n0")
    path = config.rootpath / name if name else None
    config.stash[BASELINE] = Baseline(path, writes)


def pytest_sessionfinish(session: pytest.Session) -> None:
    baseline = session.config.stash[BASELINE]
    if baseline.writes:
        baseline.write()


class Examiner:
    """Tells what a test's reports have, check by check."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request
        self.baseline = request.config.stash[BASELINE]
        self.names: dict[str, int] = {}
        self.how: dict[str, Any] = {}
        for marker in reversed(list(request.node.iter_markers("attention"))):
            self.how |= marker.kwargs  # the nearest marker has the last word

    def tell(
        self, reports: Mapping[str, "Report"], require: Iterable[str], allow: Mapping[str, str]
    ) -> None:
        """One subtest for each check; where pytest has none, one failure with all reports."""
        from mhattn.testing.asserted import Asked

        asked = Asked(tuple(require), dict(allow))
        outcomes: dict[str, tuple[str, str]] = {}
        for name, report in reports.items():
            number = self.names[name] = self.names.get(name, 0) + 1
            layer = name if number == 1 else f"{name} {number}"
            what = self._outcomes(layer, report, asked)
            one = len(reports) == 1 and layer == name
            outcomes |= {c if one else f"{layer}: {c}": result for c, result in what.items()}
        gone = asked.gone(reports.values())
        outcomes |= {name: ("fail", text) for name, text in gone.items()}
        try:
            subtests = self.request.getfixturevalue("subtests")
        except pytest.FixtureLookupError:
            bad = [text for outcome, text in outcomes.values() if outcome == "fail"]
            if bad:
                pytest.fail("\n\n".join(bad), pytrace=False)
            return
        for check, (outcome, text) in outcomes.items():
            with subtests.test(check):
                if outcome == "fail":
                    pytest.fail(text, pytrace=False)
                elif outcome == "known":
                    pytest.xfail(text)
                elif outcome == "skip":
                    pytest.skip(text)

    def _outcomes(self, layer: str, report: "Report", asked: Any) -> dict[str, tuple[str, str]]:
        """For each check: ``"pass"``, ``"skip"``, ``"known"`` or ``"fail"``, and why."""
        first = {each.check: str(each) for each in reversed(report.errors)}
        new = {name: text for name, text in first.items() if name not in asked.allow}
        known = self.baseline.of(self.request.node.nodeid, layer, new)
        told = {name: ("pass", "") for name in report.checked}
        told |= {name: ("skip", why) for name, why in report.skipped.items()}
        told |= {name: ("known", asked.allow.get(name, "in the baseline")) for name in first}
        told |= {name: ("fail", text) for name, text in new.items() if name not in known}
        shown, rest = report.folded()
        if rest and shown[0].check in new.keys() - known.keys():
            why = f"found too, as a rule for the same reason as {shown[0].check}"
            told |= {name: ("skip", why) for name in rest if told[name][0] == "fail"}
        told |= {
            name: ("fail", f"{name} finds nothing, and is in the baseline {self.baseline.path}")
            for name in known
            if name not in first
        }
        return told | {name: ("fail", text) for name, text in asked.missing(report).items()}


@pytest.fixture
def check_attention(request: pytest.FixtureRequest) -> Callable[..., "Report"]:
    """``check_attention(layer, **how)``, each check a subtest.

    Also takes ``require=[...]``, names of checks that must be made, and ``allow={check: reason}``,
    mistakes that are meant. What the marker ``attention`` says need not be said again.
    """
    examiner = Examiner(request)

    def examine(
        layer: Any,
        *,
        require: Iterable[str] | None = None,
        allow: Mapping[str, str] | None = None,
        **how: Any,
    ) -> "Report":
        from mhattn.testing.doctor import check_attention

        said = dict(examiner.how)
        required, meant = said.pop("require", ()), said.pop("allow", {})
        report = check_attention(layer, **(said | how))
        required = required if require is None else require
        examiner.tell({report.layer: report}, required, meant if allow is None else allow)
        return report

    return examine


@pytest.fixture
def check_model(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """``check_model(model, *inputs, **options)``, each check of each kind of layer a subtest.

    ``require`` and ``allow`` as for the fixture ``check_attention``, of every kind of layer. A kind
    that can't be examined is skipped, and fails if ``require`` names a check.
    """
    examiner = Examiner(request)

    def examine(
        model: Any,
        *inputs: Any,
        require: Iterable[str] | None = None,
        allow: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Any:
        from mhattn.testing.models import check_model
        from mhattn.testing.report import Report

        said = dict(examiner.how)
        required, meant = said.pop("require", ()), said.pop("allow", {})
        found = check_model(model, *inputs, **(said | options))
        reports = dict(found.reports)
        for name, why in found.unexamined.items():
            reports[name] = Report(name, skipped={"all checks": why})
        if found.findings:
            checked = [each.check for each in found.findings]
            reports[found.model] = Report(found.model, found.findings, checked)
        required = required if require is None else require
        examiner.tell(reports, required, meant if allow is None else allow)
        return found

    return examine

"""What the doctor found, as data and as text."""

from dataclasses import dataclass, field

from mhattn.testing.columns import filled, width
from mhattn.testing.language import label, language, translated
from mhattn.testing.ranks import following

__all__ = ["Finding", "Report"]

SITE = "https://mhattn.github.io/mhattn/"
KNOWN = "it is exactly that of: "  # what names a mistake: the formula with it gives the output


@dataclass(frozen=True)
class Finding:
    """A mistake, and how to see it.

    Attributes:
        check: what found it.
        did: what was done to the layer.
        got: what came out.
        expected: what should have.
        case: the smallest case that shows it: sizes, place, number.
        page: the section of the site that explains it, as in ``masks/#leak``.
        level: ``"error"``, or ``"note"`` for what a layer may do on purpose.

    Examples:
        >>> Finding("future", "tokens from 3 on were replaced", "output 0 moved", "it stays").level
        'error'
    """

    check: str
    did: str
    got: str
    expected: str
    case: str = ""
    page: str = ""
    level: str = "error"

    def __str__(self) -> str:
        did = translated(self.did)
        if self.case:
            did = label("{} ({})").format(did, translated(self.case))
        told = {"did": did, "got": translated(self.got), "expected": translated(self.expected)}
        starts = _in_column([*told, "why"])
        lines = [label("{}: {}").format(label(self.level), self.check)]
        lines += [filled(starts[name] + text, width(starts[name])) for name, text in told.items()]
        folder = "" if language() == "en" else f"{language()}/"
        return "\n".join([*lines, f"{starts['why']}{SITE}{folder}{self.page}"])


def _in_column(names: list[str]) -> dict[str, str]:
    """How lines begin, all equally wide."""
    longest = max(width(label(name)) for name in names)
    spaces = {name: " " * (longest - width(label(name))) for name in names}
    return {name: f"  {label(name)}{spaces[name]}{label(' ')}" for name in names}


@dataclass
class Report:
    """What was checked, what was not, and what is wrong.

    It is printed in Chinese where the environment variable ``MHATTN_LANGUAGE`` is ``zh``.

    Attributes:
        layer: the layer's name.
        findings: mistakes and notes, in the order of the checks.
        checked: the names of the checks that ran.
        skipped: for each check that did not run, why.
        assumed: what was read from the layer, and not told by the caller.

    Examples:
        >>> print(Report("Layer", checked=["future"], skipped={"cache": "takes no cache"}))
        Layer: 0 mistakes, 0 notes, 1 check passed
        <BLANKLINE>
        passed: future
        <BLANKLINE>
        not checked:
          cache            takes no cache
    """

    layer: str
    findings: list[Finding] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        """Findings that are mistakes."""
        return [finding for finding in self.findings if finding.level == "error"]

    @property
    def ok(self) -> bool:
        """Whether no check found a mistake. What was not checked may still be wrong."""
        return not self.errors

    def folded(self) -> tuple[list[Finding], list[str]]:
        """What is told in full, and what is only named, as it follows from the first.

        Returns:
            The findings that are told, and the checks whose findings follow.
        """
        shown, rest = self.findings, list[str]()
        if shown and KNOWN in shown[0].got:
            # A mistake that has a name explains the output to rounding: the rest follows from it.
            shown, rest = shown[:1], list(dict.fromkeys(each.check for each in shown[1:]))
        elif follow := following(shown):
            # So it is, as a rule, with what needs that which was found first.
            shown = [each for each in shown if each not in follow]
            rest = list(dict.fromkeys(each.check for each in follow))
        return shown, rest

    def __str__(self) -> str:
        found = {finding.check: finding.level for finding in reversed(self.findings)}
        # Of one check, a mistake outranks a note.
        found |= {finding.check: "error" for finding in self.errors}
        good = [name for name in self.checked if name not in found]
        errors, notes = len(self.errors), len(self.findings) - len(self.errors)
        told = (
            f"{self.layer}: {errors} mistake{_s(errors)}, {notes} note{_s(notes)}, "
            f"{len(good)} check{_s(len(good))} passed"
        )
        lines = [translated(told)]
        shown, rest = self.folded()
        for finding in shown:
            lines += ["", str(finding)]
        lists = {"also found, as a rule for the same reason": rest, "passed": good}
        for name, checks in lists.items():
            if checks:
                text = label("{}: {}").format(label(name), label(", ").join(checks))
                lines += ["", filled(text, 2)]
        if self.skipped:
            lines += ["", label("not checked:")]
            lines += [f"  {name:16} {translated(why)}" for name, why in self.skipped.items()]
        if self.assumed:
            lines += ["", label("assumed:")]
            lines += [filled(f"  {translated(each)}", 4) for each in self.assumed]
        return "\n".join(lines)


def _s(number: int) -> str:
    """The ending of a plural."""
    return "s" * (number != 1)

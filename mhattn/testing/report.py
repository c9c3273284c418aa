"""What the doctor found, as data and as text."""

import textwrap
from dataclasses import dataclass, field

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
        case = f" ({self.case})" if self.case else ""
        told = {"did": self.did + case, "got": self.got, "expected": self.expected}
        lines = [f"{self.level}: {self.check}"]
        for name, text in told.items():
            # 66 columns, as all code of the site: a report is shown in pages.
            lines.append(textwrap.fill(f"  {name:9}{text}", 66, subsequent_indent=" " * 11))
        return "\n".join([*lines, f"  why      {SITE}{self.page}"])


@dataclass
class Report:
    """What was checked, what was not, and what is wrong.

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
        notes = len(self.findings) - len(self.errors)
        counts = {"mistake": len(self.errors), "note": notes, "check": len(good)}
        told = [f"{number} {what}{'s' * (number != 1)}" for what, number in counts.items()]
        lines = [f"{self.layer}: {', '.join(told)} passed"]
        shown, rest = self.folded()
        for finding in shown:
            lines += ["", str(finding)]
        if rest:
            text = f"also found, as a rule for the same reason: {', '.join(rest)}"
            lines += ["", textwrap.fill(text, 66, subsequent_indent="  ", break_on_hyphens=False)]
        if good:
            text = ", ".join(good)
            lines += ["", textwrap.fill(f"passed: {text}", 66, subsequent_indent="  ")]
        if self.skipped:
            lines += ["", "not checked:"]
            lines += [f"  {name:16} {why}" for name, why in self.skipped.items()]
        if self.assumed:
            lines += ["", "assumed:"]
            lines += [
                textwrap.fill(f"  {each}", 66, subsequent_indent="    ") for each in self.assumed
            ]
        return "\n".join(lines)

"""What a test of a layer asks for: no mistake that isn't meant, no required check left out."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mhattn.testing.doctor import check_attention, names_of
from mhattn.testing.language import translated
from mhattn.testing.report import Report

__all__ = ["assert_attention"]


@dataclass(frozen=True)
class Asked:
    """What a report must have, and what it may have.

    Attributes:
        require: names of checks that must be made.
        allow: names of checks whose mistakes are meant, and why.

    Raises:
        TypeError: allow gives no reason.
        ValueError: require or allow names no check.

    Examples:
        >>> Asked(require=["cache"]).missing(Report("Layer", skipped={"cache": "takes none"}))
        {'cache': 'cache is required, and was not made: takes none'}
    """

    require: Iterable[str] = ()
    allow: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names_of(self.require, "require")
        names_of(self.allow, "allow")
        for name, why in self.allow.items():
            if not (isinstance(why, str) and why):
                raise TypeError(f"allow must say why, got {name!r}: {why!r}")

    def missing(self, report: Report) -> dict[str, str]:
        """Required checks that were not made, and why."""
        return {
            name: f"{name} is required, and was not made: "
            + report.skipped.get(name, "only leaves it out")
            for name in self.require
            if name not in report.checked
        }

    def gone(self, reports: Iterable[Report]) -> dict[str, str]:
        """Mistakes that are allowed, and that no report has any more."""
        found = {each.check for report in reports for each in report.errors}
        return {
            name: f"{name} finds nothing, and is allowed: {why}"
            for name, why in self.allow.items()
            if name not in found
        }


def assert_attention(
    layer: Callable[..., Any],
    *,
    require: Iterable[str] = (),
    allow: Mapping[str, str] | None = None,
    **how: Any,
) -> None:
    """Raise an error that tells what is wrong with a layer, for a test.

    Args:
        layer: as for `check_attention`.
        require: names of checks that must be made: one that is skipped is an error.
        allow: names of checks whose mistakes are meant, and why. One that finds nothing any more is
            an error too, so that the list stays true.
        **how: as for `check_attention`.

    Raises:
        AssertionError: a mistake was found that is not allowed, a check that is required was
            skipped, or an allowed mistake is gone; its text has the report.
        TypeError: as `check_attention`, or allow gives no reason.
        ValueError: as `check_attention`, or require or allow names no check.

    Examples:
        >>> from torch import nn
        >>> assert_attention(nn.MultiheadAttention(24, 3, batch_first=True), require=["mask"])
    """
    asked = Asked(tuple(require), dict(allow or {}))
    report = check_attention(layer, **how)
    told = asked.gone([report]) | asked.missing(report)
    if told or any(each.check not in asked.allow for each in report.errors):
        raise AssertionError("\n".join([*map(translated, told.values()), str(report)]))

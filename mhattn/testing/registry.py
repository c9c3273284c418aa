"""The list of checks: each with a name, the section that explains it, and a function."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mhattn.testing.report import Finding
from mhattn.testing.subject import Skip, Subject

__all__: list[str] = []

Found = Iterator[Finding]


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        name: what reports and ``only`` call it.
        page: the section of the site that explains it.
        says: in one line, what holds for a right layer.
        look: finds mistakes, or raises `Skip` with the reason why it can't look.
        also: other names under which it reports.
    """

    name: str
    page: str
    says: str
    look: Callable[[Subject], Found]
    also: tuple[str, ...] = ()


# Filled while rooms are imported: the decorator is all that a new check needs, there is no list
# beside it.
CHECKS: dict[str, Check] = {}
PAGES: dict[str, str] = {}  # of each name that a finding may have, the section that explains it
Look = Callable[[Subject], Found]


def check(name: str, page: str, **also: str) -> Callable[[Look], Look]:
    """Enter a function into the list; its docstring's first line is what a right layer does.

    Args:
        name: of the check.
        page: the section that explains it.
        **also: other names under which it reports, with ``_`` for ``-``, and their sections.
    """

    def enter(look: Look) -> Look:
        others = {other.replace("_", "-"): where for other, where in also.items()}
        says = (look.__doc__ or "").splitlines()[0]
        CHECKS[name] = Check(name, page, says, look, tuple(others))
        PAGES.update({name: page} | others)
        return look

    return enter


def need(given: object, why: str) -> None:
    """Skip the check unless there is what it needs."""
    if not given:
        raise Skip(why)

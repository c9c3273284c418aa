"""Many cases in one test, which tries all of them and names each that fails, with the line.

A claim is one test, however many pages it is made of: pytest takes a thousandth of a second for
each test that it collects, in each of its processes, and there are two hundred pages.
"""

import functools
import hashlib
import inspect
from pathlib import Path

import pytest
from drawn import commit

ROOT = Path(__file__).parents[1]
LONGEST = 1500  # characters of one case in a message


def drawn_number(name):
    """A number that only this commit and this name decide: who sorts by it, draws."""
    return int.from_bytes(hashlib.sha256(f"{commit()} {name}".encode()).digest()[:8])


def where(error):
    """The line of a test file that an exception comes from, and what it says."""
    trace, line = error.__traceback__, ""
    while trace:
        path = Path(trace.tb_frame.f_code.co_filename)
        if path.name.startswith("test_"):
            line = f"{path.name}:{trace.tb_lineno}"
        trace = trace.tb_next
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"{line}: {kind}{error}"[:LONGEST]


def named(case):
    """A case in a message: a page or a file by its path, a function by its name."""
    values = case if isinstance(case, tuple) else (case,)
    names = (getattr(value, "path", getattr(value, "__qualname__", value)) for value in values)
    return " ".join(str(name).removeprefix(f"{ROOT}/") for name in names)


def try_all(cases, attempt):
    """Try each case; what fails is told together, case by case."""
    failures = []
    for case in cases:
        try:
            attempt(case)
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{named(case)}: {where(error)}")
    if failures:
        pytest.fail(f"{len(failures)} of {len(cases)}\n" + "\n".join(failures), pytrace=False)


def every(names, cases):
    """A test of one claim, made of each case: as `parametrize`, but one test, which tries all."""
    names = [name.strip() for name in names.split(",")]
    cases = list(cases)
    assert cases

    def decorate(test):
        @functools.wraps(test)
        def test_of_all(**fixtures):
            def attempt(case):
                values = case if len(names) > 1 else (case,)
                test(**dict(zip(names, values, strict=True)), **fixtures)

            try_all(cases, attempt)

        hide(test_of_all, test, names)
        return test_of_all

    return decorate


def hide(wrapper, test, names, *more):
    """Let pytest see the fixtures that a test asks for, without its cases."""
    asked = [p for p in inspect.signature(test).parameters.values() if p.name not in names]
    new = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in more]
    wrapper.__signature__ = inspect.Signature(asked + new)

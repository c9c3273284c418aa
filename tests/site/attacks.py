"""Mistakes that every task invites, made out of its own solution.

An answer may be empty or a little off, and what the test hands out may be changed in place. These
are tried on each task besides its own candidates, so that a new page meets them at once.
"""

import functools
from collections.abc import Callable

import torch
from torch import nn


def empty(answer: object) -> object:
    """The same answer with nothing in it: no rows, no entries."""
    if isinstance(answer, torch.Tensor):
        # No rows rather than no columns: against a single row that would broadcast unnoticed.
        return answer[:0] if answer.dim() else answer.new_empty(0)
    return type(answer)() if isinstance(answer, list | dict | str) else answer


def scaled(answer: object) -> object:
    """Numbers a tenth larger, counts one too high, yes for no."""
    if isinstance(answer, dict):
        return {name: each_part(value, scaled) for name, value in answer.items()}
    if isinstance(answer, list):
        return [each_part(value, scaled) for value in answer]
    if isinstance(answer, bool) or getattr(answer, "dtype", None) == torch.bool:
        return answer ^ True
    if isinstance(answer, float) or (torch.is_tensor(answer) and answer.is_floating_point()):
        return answer * 1.1
    return answer + 1 if isinstance(answer, int | torch.Tensor) else answer


def changed(solution: object, change: Callable) -> object:
    """A solution whose answer is changed; or the changed answer, where that itself is tested."""

    def around(function: Callable) -> Callable:
        return lambda *args, **named: each_part(function(*args, **named), change)

    return wrapped(solution, around) if callable(solution) else each_part(solution, change)


def each_part(answer: object, change: Callable) -> object:
    """A change made to all parts of an answer."""
    if not isinstance(answer, tuple):
        return change(answer)
    parts = [each_part(part, change) for part in answer]
    return type(answer)(*parts) if hasattr(answer, "_fields") else tuple(parts)


def clearing(solution: Callable) -> Callable:
    """A solution that answers rightly, and then clears whatever it was given."""

    def around(function: Callable) -> Callable:
        def answers_and_clears(*args, **named):
            answer = function(*args, **named)
            for value in (*args, *named.values()):
                clear(value)
            return answer

        return answers_and_clears

    return wrapped(solution, around)


def wrapped(solution: Callable, around: Callable) -> Callable:
    """Something around a function, or around what the modules of a class compute."""
    if not isinstance(solution, type):
        return functools.wraps(solution)(around(solution))
    if not issubclass(solution, nn.Module):
        return solution
    forward = functools.wraps(solution.forward)(around(solution.forward))
    return type(solution.__name__, (solution,), {"forward": forward})


@torch.no_grad()
def clear(value: object) -> None:
    """Set numbers to zero and empty lists and tables, in place."""
    if isinstance(value, nn.Module):
        for parameter in value.parameters():
            parameter.zero_()
    elif isinstance(value, torch.Tensor):
        value.zero_()
    elif isinstance(value, list | dict):
        value.clear()

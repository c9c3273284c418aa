"""Who sees whom in long texts: one call instead of one for each token."""

from typing import Any

import torch
from torch import Tensor

from mhattn.testing.probes import apart
from mhattn.testing.subject import Subject

__all__: list[str] = []


def _replaced(x: Tensor, other: Tensor) -> Tensor:
    """A sequence, and behind it copies of it, each with another token replaced."""
    copies = x.expand(x.shape[-2] + 1, *x.shape[1:]).clone()
    for j in range(x.shape[-2]):
        copies[j + 1, ..., j, :] = other[0, ..., j, :]
    return copies


def moved_at_once(
    subject: Subject, lengths: tuple[int, ...], size: float = 0.3, **asked: Any
) -> Tensor:
    """By how much output ``i`` moves when token ``j`` is another, ``(L, S)``.

    The copies are sequences of one batch, and those may differ by rounding: what has moved by as
    little as that is to be looked at again, by `is_blind`.
    """
    inputs = subject.draw(*lengths, batch=1, seed=51, size=size)
    others = subject.draw(*lengths, batch=1, seed=52, size=2 * size)
    new: dict[int, Tensor] = {}
    if len(lengths) == 2 or subject.is_heads:  # its query stays
        x = inputs[0]
        new[id(x)] = x.expand(inputs[1].shape[-2] + 1, *x.shape[1:]).contiguous()
    for x, other in zip(inputs, others, strict=True):
        # A tensor that was given three times stays one: layers ask if the key is the query.
        if id(x) not in new:
            new[id(x)] = _replaced(x, other)
    with torch.no_grad():
        output = subject(*(new[id(x)] for x in inputs), **asked).output
    moved = apart(subject, output[:1].expand_as(output), output)[1:]
    return moved.T


def is_blind(
    subject: Subject, lengths: tuple[int, ...], i: int, j: int, *, cross: bool, **asked: Any
) -> bool:
    """Whether output ``i`` stays to the last bit when token ``j`` is another, whatever their size.

    Between large tokens weights differ so much that a right one may be too small for any number to
    move; between small ones all weights are about the same.
    """
    for size in (1.0, 0.1, 0.01):
        inputs = subject.draw(*lengths, batch=1, seed=53, size=size)
        others = subject.draw(*lengths, batch=1, seed=54, size=2 * size)
        changed, new = list(inputs), dict[int, Tensor]()
        for place in (1, 2) if cross else (0, 1, 2):
            x = inputs[place]
            if id(x) not in new:
                new[id(x)] = x.clone()
                new[id(x)][..., j, :] = others[place][..., j, :]
            changed[place] = new[id(x)]
        with torch.no_grad():
            one, other = (subject(*x, **asked).output for x in (inputs, changed))
        if apart(subject, one, other)[0, i] >= 1e-9:
            return False
    return True

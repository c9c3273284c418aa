"""The list of checks: each with a name, the section that explains it, and a function."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mhattn.testing.calls import Skip, Subject
from mhattn.testing.report import Finding

__all__ = ["CHECKS", "Check", "apart", "check", "influence", "need", "said"]

Found = Iterator[Finding]


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        name: what reports and ``only`` call it.
        page: the section of the site that explains it.
        says: in one line, what holds for a right layer.
        look: finds mistakes, or raises `Skip` with the reason why it can't look.
    """

    name: str
    page: str
    says: str
    look: Callable[[Subject], Found]


CHECKS: dict[str, Check] = {}


def check(
    name: str, page: str
) -> Callable[[Callable[[Subject], Found]], Callable[[Subject], Found]]:
    """Enter a function into the list; its docstring's first line is what a right layer does."""

    def enter(look: Callable[[Subject], Found]) -> Callable[[Subject], Found]:
        says = (look.__doc__ or "").splitlines()[0]
        CHECKS[name] = Check(name, page, says, look)
        return look

    return enter


def need(given: object, why: str) -> None:
    """Skip the check unless there is what it needs."""
    if not given:
        raise Skip(why)


def said(number: float) -> str:
    """A number for a reader: two digits."""
    return f"{number:.2g}"


def apart(subject: Subject, one: Tensor, other: Tensor) -> Tensor:
    """How far two outputs are from each other at each token, in units of a usual output.

    Args:
        subject: the layer that they come from.
        one: ``(B, L, E)`` or ``(B, H, L, D)``.
        other: the same shape.

    Returns:
        ``(B, L)``; infinite where one of them is NaN and the other isn't.
    """
    one, other = one.detach().double(), other.detach().double()
    gap = (one - other).abs()
    gap[one.isnan() & other.isnan()] = 0
    gap = torch.nan_to_num(gap, nan=torch.inf, posinf=torch.inf)
    usual = one[one.isfinite()].square().mean().sqrt().clamp(min=1e-9).nan_to_num(1.0)
    gap = gap.amax(dim=-1) / usual
    return gap.amax(dim=1) if subject.is_heads else gap


def influence(
    subject: Subject,
    inputs: list[Tensor],
    *,
    seed: int = 0,
    where: str = "self",
    size: float = 1.0,
    **asked: object,
) -> Tensor:
    """Replace one token after the other, and see which outputs move.

    Args:
        subject: the layer.
        inputs: queries, keys and values; one tensor three times is replaced in all three.
        seed: of the layer's own chance, as dropout.
        where: ``"self"``: the token is query, key and value; ``"keys"``: keys and values alone;
            ``"queries"``.
        size: of the new tokens.
        **asked: what the layer is called with.

    Returns:
        ``(B, L, S)``: by how much output ``i`` moves when token ``j`` is another, in units of a
        usual output.
    """
    before = subject(*inputs, seed=seed, **asked).output
    source = torch.Generator().manual_seed(77)
    moved = []
    place = {"self": (0, 1, 2), "keys": (1, 2), "queries": (0,)}[where]
    for j in range(inputs[place[0]].shape[-2]):
        changed = list(inputs)
        new: dict[int, Tensor] = {}
        for i in place:
            x = inputs[i]
            if id(x) not in new:
                y = x.clone()
                fresh = (
                    torch.randn(y[..., j, :].shape, generator=source, dtype=torch.float64) * size
                )
                y[..., j, :] = fresh.to(y.device, y.dtype)
                new[id(x)] = y
            changed[i] = new[id(x)]
        moved.append(apart(subject, before, subject(*changed, seed=seed, **asked).output))
    return torch.stack(moved, dim=-1)

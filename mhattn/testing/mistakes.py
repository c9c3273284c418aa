"""Mistakes that have a name: the formula with one of them, and which of them gives an output."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mhattn.testing.adapted import Adapted
from mhattn.testing.computed import Formula, Rotary, alibi_slopes
from mhattn.testing.probes import apart
from mhattn.testing.projections import Applied, Parts
from mhattn.testing.subject import Subject

__all__: list[str] = []

SECTIONS = {  # where a mistake is explained, by how its name begins
    "scale": "scaled-attention/#scale",
    "softmax": "attention/#softmax",
    "groups": "grouped-query/#code",
    "heads split": "shapes/#wrong-split",
    "heads merged": "shapes-in-depth/#merge",
    "rotary pairs": "positions/#pairs",
    "rotary": "positions/#turned",
    "positions": "positions/#turned",
    "slopes": "positions/#subtracted",
    "queries": "attention/#qkv",
    "keys": "attention/#qkv",
    "output matrix": "multi-head/#out",
    "sigmoid": "attention/#softmax",
    "soft-capped": "qk-norm/#cap",
    "scores cut": "qk-norm/#cap",
    "sinks": "resting-heads/#own-sink",
    "head ": "multi-head-algebra/#per-head",
    "values": "attention/#qkv",
    "weights": "attention/#output",
    "no output": "shapes/#layer",
    "causal": "masks-in-practice/#causal",
    "not causal": "masks-in-practice/#causal",
    "every key": "masks-in-practice/#per-query",
}
OTHER_LAYOUT = "rotary pairs in the other layout"
BY_KEYS = "scale of the number of keys"
BACKWARDS = "rotary positions turned backwards"
ORDERS = {
    "queries and keys exchanged": "kqv",
    "keys used as values": "qkk",
    "values used as keys": "qvv",
    "keys and values exchanged": "qvk",
    "queries used as values": "qkq",
    "queries used as keys": "qqv",
}


@dataclass(frozen=True)
class Named:
    """A mistake that gives just the layer's output.

    Args:
        name: of the mistake.
        say: what a caller says if it is meant.
        level: ``"note"`` for what layers often do on purpose.
    """

    name: str
    say: str = ""
    level: str = "error"

    @property
    def page(self) -> str:
        """The section that explains it."""
        return next((SECTIONS[begin] for begin in SECTIONS if self.name.startswith(begin)), "")


def scales(subject: Subject, right: float, dim: int) -> dict[str, float]:
    """Wrong scales by their names."""
    return {
        "scale missing": 1.0,
        "scale twice": right**2,
        "scale of the whole width": subject.width**-0.5,
        "scale of the number of heads": subject.heads**-0.5,
        "scale is a product, not a quotient": dim**0.5,
        "scale 1/D": 1 / dim,
        "scale of half a head": (dim / 2) ** -0.5,
        "scale of width / heads, which is not the width of a head": (
            (subject.width / subject.heads) ** -0.5
        ),
    }


def mistakes(right: Formula, parts: Parts, subject: Subject) -> Iterator[tuple[str, Formula]]:
    """The formula with one mistake, by its name."""
    for name, scale in scales(subject, right.scale, subject.dim).items():
        yield name, replace(right, scale=scale)
    yield BY_KEYS, replace(right, scale=parts.k.shape[-2] ** -0.5)
    yield "softmax over queries", replace(right, softmax=-2)
    yield "softmax over heads", replace(right, softmax=1)
    yield "softmax over the batch", replace(right, softmax=0)
    yield "softmax missing", replace(right, softmax=None)
    yield "sigmoid for softmax", replace(right, sigmoid=True)
    yield "weights transposed", replace(right, weights_transposed=True)
    if parts.sinks is not None:
        yield "sinks without the row's maximum", replace(right, sink_without_maximum=True)
    other = "tile" if right.groups == "repeat" else "repeat"
    yield "groups in the wrong order", replace(right, groups=other)
    for name, order in ORDERS.items():
        given = dict(zip("qkv", parts.three, strict=True))
        if all(given[a].shape == given[b].shape for a, b in zip(order, "qkv", strict=True)):
            yield name, replace(right, order=order)
    yield from _of_positions(right, subject)
    if parts.is_flat:
        yield from _of_shapes(right, parts)
    # Few pairs of heads, or a wide layer takes long; who mixes up heads mixes up the first.
    for reader, read in itertools.permutations(range(min(subject.heads, 4)), 2):
        yield f"head {reader} reads the keys of head {read}", replace(right, keys_of=(reader, read))


def _of_shapes(right: Formula, parts: Parts) -> Iterator[tuple[str, Formula]]:
    for how, name in ("view", "by view alone"), ("features", "as (D, H) instead of (H, D)"):
        yield f"heads split {name}", replace(right, split=how)
        yield f"heads merged {name}", replace(right, merge=how)
        yield f"heads split and merged {name}", replace(right, split=how, merge=how)
    yield "no output projection", replace(right, out=False)
    if isinstance(parts.out, Applied):
        yield "output matrix transposed", replace(right, transposed=True)


def _of_positions(right: Formula, subject: Subject) -> Iterator[tuple[str, Formula]]:
    dim, heads = subject.dim, subject.heads
    if right.slopes:
        yield "positions are not used", replace(right, slopes=())
        yield "slopes added", replace(right, slopes=tuple(-slope for slope in right.slopes))
        first = tuple(2 ** (-8 * h / heads) for h in range(heads))
        yield "slopes from 1 on: counted from head 0", replace(right, slopes=first)
        one_row = tuple(2 ** (-8 * h / heads) for h in range(1, heads + 1))
        yield "slopes in one geometric row", replace(right, slopes=one_row)
        return
    if right.rotary is None:
        for layout in ("halves", "interleaved") if dim % 2 == 0 else ():
            name = "rotary positions that weren't declared"
            yield name, replace(right, rotary=Rotary(layout, 1e4))
        name = 'slopes of ALiBi that weren\'t declared: say positions="alibi"'
        yield name, replace(right, slopes=alibi_slopes(heads))
        return
    rotary = right.rotary
    layout = "interleaved" if rotary.layout == "halves" else "halves"
    yield OTHER_LAYOUT, replace(right, rotary=replace(rotary, layout=layout))
    yield BACKWARDS, replace(right, rotary=replace(rotary, backwards=True))
    yield "positions are not used", replace(right, rotary=None)
    for base in (1e4, 5e5, 1e6):
        yield f"rotary base {base:.0f}", replace(right, rotary=replace(rotary, base=base))
    for part in _parts_turned(right, dim):
        name = f"rotary of {part.turned} features, with frequencies of the whole head"
        yield name, replace(right, rotary=replace(part, whole=dim))


def _parts_turned(right: Formula, dim: int) -> Iterator[Rotary]:
    """The turn of a part of each head: as wide as was said, or as models have it."""
    if right.rotary is None:
        return
    said = right.rotary.turned
    for turned in (said,) if said else (dim // 4, dim // 2, 3 * dim // 4):
        if turned and turned % 2 == 0:
            yield replace(right.rotary, turned=turned)


@dataclass(frozen=True)
class Case:
    """A call, its output, and the ways to read the layer's parts in it."""

    subject: Subject
    options: list[Parts]
    seen: Tensor | None
    output: Tensor

    def gap(self, formula: Formula, parts: Parts, seen: Tensor | None) -> float:
        """How far the output is from a formula's; infinite where sizes don't fit."""
        heads = (self.subject.heads, self.subject.kv_heads)
        try:
            given = formula(parts, heads, seen)[0]
        except RuntimeError:
            return math.inf
        return apart(self.subject, self.output, given).max().item()

    def fits(self, formula: Formula, parts: Parts, seen: Tensor | None) -> bool:
        """Whether a formula gives just this output: no guess, but a second formula that fits."""
        return self.gap(formula, parts, seen) <= self.subject.tolerance * 5

    @property
    def views(self) -> dict[str, Tensor | None]:
        """Who may see whom: as it should be, and otherwise."""
        rows, columns = self.output.shape[-2], self.options[0].k.shape[-2]
        if self.seen is None and rows == columns:
            full = torch.ones(rows, columns, dtype=torch.bool, device=self.output.device)
            return {"": None, "causal without being asked": full.tril()}
        if self.seen is None:
            return {"": None}
        name = "every key is seen" if self.subject.calls.seen else "not causal"
        return {"": self.seen, name: None}


def diagnosis(case: Case, right: Formula, again: Case | None = None) -> Named | None:
    """The one mistake that gives just this output, and that of a second call, if there is one."""
    ways = list(itertools.product(range(len(case.options)), case.views.items()))
    for number, (view, seen) in ways:
        parts = case.options[number]
        if view and case.fits(right, parts, seen) and _fits_too(again, right, number, view):
            return Named(view)
        # The second call's own: some mistakes are other numbers in another length.
        others = mistakes(right, again.options[number], case.subject) if again else None
        for name, wrong in mistakes(right, parts, case.subject):
            other = next(others)[1] if others else wrong
            if case.fits(wrong, parts, seen) and _fits_too(again, other, number, view):
                known = Named(f"{name}, {view}" if view else name)
                guess = name in (OTHER_LAYOUT, BACKWARDS)
                return _guessed(known, case.subject) if guess else known
    for number, (view, seen) in ways:
        if fit := fitted(case, right, case.options[number], seen):
            named, wrong = fit
            if _fits_too(again, wrong, number, view):
                return replace(named, name=f"{named.name}, {view}") if view else named
    return None


def _fits_too(again: Case | None, wrong: Formula, number: int, view: str) -> bool:
    """Whether a formula gives a second call's output as well."""
    return again is None or again.fits(wrong, again.options[number], again.views[view])


def _guessed(named: Named, subject: Subject) -> Named:
    """What an adapter has read from cosines and sines: a layer may use them otherwise.

    Whatever a library's own class does is right for its weights. A class derived from it has to do
    the same.
    """
    layer, (layout, base, *_) = subject.layer, subject.calls.rotary
    if not isinstance(layer, Adapted) or layer.how.get("rotary") != subject.calls.rotary:
        return named
    if not type(layer.layer).__module__.startswith("transformers."):
        return named
    other = "interleaved" if layout == "halves" else "halves"
    say = f"rotary=({other!r}, {base:g})" if named.name.startswith(OTHER_LAYOUT) else ""
    return replace(named, say=say, level="note")


def fitted(
    case: Case, right: Formula, parts: Parts, seen: Tensor | None
) -> tuple[Named, Formula] | None:
    """The formula with one number otherwise, if some number gives just this output."""
    for rotary in _parts_turned(right, case.subject.dim):
        if case.fits(wrong := replace(right, rotary=rotary), parts, seen):
            say = f"rotary=({rotary.layout!r}, {rotary.base:g}, {rotary.turned})"
            return Named(f"rotary of the first {rotary.turned} features", say, "note"), wrong
    others: dict[str, Callable[[float], Formula]] = {
        "scale": lambda number: replace(right, scale=number),
        "cap": lambda number: replace(right, cap=number),
        "clip": lambda number: replace(right, clip=number),
    }
    for name, other in others.items():
        number = _least(lambda x, other=other: case.gap(other(x), parts, seen))  # type: ignore[misc]
        if case.fits(other(number), parts, seen):
            return measured(name, number, right), other(number)
    return None


def measured(name: str, number: float, right: Formula) -> Named:
    """A number that is another than it should be, and what to say if it is meant."""
    if name == "scale":
        return Named(f"scale {number:.4g}", f"scale={number:.4g}")
    if name == "clip":
        return Named(f"scores cut off at {number:.4g}")
    level = "error" if right.cap else "note"  # Gemma 2 has a cap, and says so nowhere
    return Named(f"soft-capped scores, at {number:.4g}", f"cap={number:.4g}", level)


def _least(of: Callable[[float], float]) -> float:
    """Where a function of a positive number is least: on a grid, then closer and closer."""
    best = min((10 ** (k / 8) for k in range(-24, 17)), key=of)
    low, high = best / 10**0.125, best * 10**0.125
    for _ in range(36):
        one, other = low ** (2 / 3) * high ** (1 / 3), low ** (1 / 3) * high ** (2 / 3)
        low, high = (low, other) if of(one) < of(other) else (one, high)
    return math.sqrt(low * high)

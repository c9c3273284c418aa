"""A check of heads: what happens to one of them stays in its own columns of the output matrix."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from mhattn.testing.projections import Call, fused, last_of_each, role, traced
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Subject

__all__: list[str] = []

NAMES = {"q": "queries", "k": "keys", "v": "values"}
Place = tuple[nn.Module, int]  # a module, and a column of what it gives


@dataclass(frozen=True)
class Reading:
    """Where a layer makes its queries, keys and values, and where its heads lie side by side."""

    columns: dict[str, list[Place]]
    out: nn.Module | None


def readings(subject: Subject, inputs: list[Tensor]) -> list[Reading]:
    """The ways to read a layer's linear maps; several where one map makes all three."""
    calls = traced(subject, inputs, subject.usual)
    named: dict[str, list[Place]] = {}
    for letter in "qkv":
        mine = [call for call in calls if role(call[0].rpartition(".")[2]) == letter]
        mine = mine or [call for call in calls if role(call[0]) == letter]
        named[letter] = [place for call in last_of_each(mine) for place in _places(call)]
    wide = {"q": subject.heads, "k": subject.kv_heads, "v": subject.kv_heads}
    if all(len(named[letter]) == n * subject.dim for letter, n in wide.items()):
        three = {id(module) for places in named.values() for module, _ in places}
        return [Reading(named, _output(subject, inputs, calls, three))]
    found = [call for call in calls if call[3].shape[-1] == sum(wide.values()) * subject.dim]
    need(len(found) == 1, "its queries, keys and values aren't found")
    places = _places(found[0])
    # The numbers of columns are cut as the columns would be: each part says then what it is made
    # of.
    index = torch.arange(len(places))[None, None]
    cut = [[part.flatten().tolist() for part in three] for three in fused(subject, index)]
    out = _output(subject, inputs, calls, {id(found[0][1])})
    return [
        Reading({r: [places[i] for i in part] for r, part in zip("qkv", three, strict=True)}, out)
        for three in cut
    ]


def _places(call: Call) -> list[Place]:
    return [(call[1], column) for column in range(call[3].shape[-1])]


def _output(
    subject: Subject, inputs: list[Tensor], calls: list[Call], three: set[int]
) -> nn.Module | None:
    """The output matrix: the only other map; None: heads are what the layer returns."""
    others = [call for call in calls if id(call[1]) not in three]
    width = subject.heads * subject.dim
    need(len({id(call[1]) for call in others}) <= 1, "has other maps than its projections")
    if not others:
        need(width == subject.width, "its output matrix isn't found")
        need(not _bare(subject, calls), "its output matrix isn't found")
        return None
    need(others[-1][2].shape[-1] == width, "its output matrix isn't found")
    return _norm_before(subject, inputs, others[-1][2]) or others[-1][1]


def _norm_before(subject: Subject, inputs: list[Tensor], given: Tensor) -> nn.Module | None:
    """A norm of all heads in front of the output matrix: heads lie apart before it alone."""
    norms: list[nn.Module] = []

    def note(norm: nn.Module, _: Any, normed: Tensor) -> None:
        norms.extend([norm] if normed.shape == given.shape and torch.equal(normed, given) else [])

    layer = cast(nn.Module, subject.layer)
    named = [each for each in layer.modules() if "norm" in type(each).__name__.lower()]
    handles = [norm.register_forward_hook(note) for norm in named]
    try:
        subject(*inputs, **subject.usual)
    finally:
        for handle in handles:
            handle.remove()
    return norms[-1] if norms else None


def _bare(subject: Subject, calls: list[Call]) -> bool:
    """Whether there is a matrix that no module of the call has."""
    known = {id(p) for call in calls for p in call[1].parameters()}
    layer = cast(nn.Module, subject.layer)
    return any(p.ndim > 1 and id(p) not in known for p in layer.parameters())


def _mixed(subject: Subject, inputs: list[Tensor], out: nn.Module | None) -> Tensor:
    """What goes into the output matrix, ``(B, L, H, D)``."""
    seen: list[Tensor] = []

    # Before the output matrix: behind it, every feature is a sum over all heads.
    def note(_: nn.Module, given: tuple[Any, ...]) -> None:
        seen.append(given[0].detach())

    handle = None if out is None else out.register_forward_pre_hook(note)
    try:
        with torch.no_grad():
            plain = subject(*inputs, **subject.usual).output
    finally:
        if handle is not None:
            handle.remove()
    found = seen[-1] if seen else plain
    mixed: Tensor = found.double().unflatten(-1, (subject.heads, subject.dim))
    return mixed


def _replaced(places: list[Place]) -> Callable[[], None]:
    """Other numbers in these columns, whatever goes in, until what is returned is called."""
    columns: dict[nn.Module, list[int]] = {}
    for module, column in places:
        columns.setdefault(module, []).append(column)

    def hook(module: nn.Module, _: Any, given: Tensor) -> Tensor:
        source, changed = torch.Generator().manual_seed(5), given.clone()
        shape = (*given.shape[:-1], len(columns[module]))
        noise = 2 * torch.randn(shape, generator=source, dtype=torch.float64)
        changed[..., columns[module]] = noise.to(given.device, given.dtype)
        return changed

    handles = [module.register_forward_hook(hook) for module in columns]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def _own(subject: Subject, letter: str, number: int) -> list[int]:
    """Heads that a head of queries, or a group of keys or values, belongs to."""
    if letter == "q":
        return [number]
    times = subject.heads // subject.kv_heads
    if subject.calls.groups == "tile":
        return list(range(number, subject.heads, subject.kv_heads))
    return list(range(number * times, (number + 1) * times))


def _wrong(subject: Subject, reading: Reading, inputs: list[Tensor], letters: str) -> Found:
    before = _mixed(subject, inputs, reading.out)
    # Heads that give zeros have no usual size to compare with.
    usual = before.square().mean().sqrt().clamp(min=1e-9)
    for letter in letters:
        number = subject.heads if letter == "q" else subject.kv_heads
        for h in range(number):
            part = reading.columns[letter][h * subject.dim : (h + 1) * subject.dim]
            undo = _replaced(part)
            try:
                after = _mixed(subject, inputs, reading.out)
            finally:
                undo()
            gap = torch.nan_to_num((after - before).abs() / usual, nan=torch.inf)
            far = gap.flatten(0, 1).amax(dim=(0, 2)) > subject.tolerance
            moved = far.nonzero().flatten().tolist()
            if moved != (own := _own(subject, letter, h)):
                what = "head" if number == subject.heads else "group"
                did = f"the {NAMES[letter]} of {what} {h} were replaced"
                yield Finding("heads-apart", did, _said(subject, h, moved, number), _heads(own))
                return


def _said(subject: Subject, h: int, moved: list[int], number: int) -> str:
    said = _heads(moved)
    tiled = list(range(h, subject.heads, number))
    if number < subject.heads and moved == tiled and subject.calls.groups != "tile":
        said += ": groups are tiled, not repeated"
    return said


def _heads(which: list[int]) -> str:
    if not which:
        return "no column of the output matrix's input moved"
    return f"columns of head{'s' * (len(which) > 1)} {', '.join(map(str, which))} moved"


def _letters(subject: Subject) -> Iterator[str]:
    """What can be replaced: where a norm goes over all heads, the values alone."""
    layer = cast(nn.Module, subject.layer)
    norms = [each for each in layer.modules() if "norm" in type(each).__name__.lower()]
    sizes = {p.numel() for each in norms for p in each.parameters(recurse=False)}
    wide = {subject.heads * subject.dim, subject.kv_heads * subject.dim} - {subject.dim}
    yield from "v" if sizes & wide else "qkv"


@check("heads-apart", "shapes/#split")
def heads_apart(subject: Subject) -> Found:
    """Other queries in one head, or keys and values in one group, move its own heads alone."""
    need(isinstance(subject.layer, nn.Module) and not subject.is_heads, "a function of heads")
    need(subject.heads > 1, "has one head")
    inputs = subject.draw(*((4, 6) if subject.takes_two else (5,)), batch=2, seed=40)
    letters = "".join(_letters(subject))
    found: list[list[Finding]] = []
    for reading in readings(subject, inputs):
        found.append(list(_wrong(subject, reading, inputs, letters)))
    # One way to read the matrices in which heads stay apart is enough: only one is the layer's own.
    if found and all(found):
        yield from found[0]

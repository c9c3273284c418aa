"""A layer's own queries, keys and values: found in what its linear maps give, not in its source."""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mhattn.testing.registry import need
from mhattn.testing.subject import Skip, Subject

__all__: list[str] = []

Map = Callable[[Tensor], Tensor]
Call = tuple[str, nn.Module, Tensor, Tensor]  # name, module, what went in and out
ROLES = {
    "q": {"q", "query", "queries", "wq", "qs", "lq"},
    "k": {"k", "key", "keys", "wk", "ks", "lk"},
    "v": {"v", "value", "values", "wv", "vs", "lv"},
}


def same(x: Tensor) -> Tensor:
    """What it is given."""
    return x


@dataclass(frozen=True)
class Parts:
    """Queries, keys and values, ``(B, L, H * D)`` or ``(B, H, L, D)``, and what comes after."""

    three: list[Tensor]
    out: Map = same
    is_flat: bool = True
    norms: tuple[Map, Map] = (same, same)  # of queries and keys of a head that are turned already
    sinks: Tensor | None = None  # a score for each head, of a key without a value

    @property
    def q(self) -> Tensor:
        return self.three[0]

    @property
    def k(self) -> Tensor:
        return self.three[1]

    @property
    def v(self) -> Tensor:
        return self.three[2]


def role(name: str) -> str | None:
    """Which of q, k and v a module's name says."""
    words = set(re.split(r"[._\d]+", name.lower()))
    return next((letter for letter, names in ROLES.items() if words & names), None)


def traced(subject: Subject, inputs: list[Tensor], asked: dict[str, Any]) -> list[Call]:
    """The linear maps of a call, in their order."""
    calls: list[Call] = []

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda m, i, o: calls.append((name, m, i[0].detach(), o.detach()))

    handles = [
        module.register_forward_hook(note(name))
        for name, module in cast(nn.Module, subject.layer).named_modules()
        if getattr(getattr(module, "weight", None), "ndim", 0) == 2 and not list(module.children())
    ]
    try:
        subject(*inputs, **asked)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def candidates(subject: Subject, inputs: list[Tensor], asked: dict[str, Any]) -> Iterator[Parts]:
    """Ways to read a layer's own parts; one of them must fit."""
    layer = cast(nn.Module, subject.layer)
    inner = getattr(layer, "layer", layer)
    # A class that is derived from it may have other matrices, as torch.ao's has.
    if getattr(type(inner), "forward", None) is nn.MultiheadAttention.forward:
        both = subject.calls.inputs == "qk"
        given = [*inputs[:2], inputs[1]] if both else inputs
        yield _of_torch(cast(nn.MultiheadAttention, inner), given)
        return
    norms, sinks = _norms(subject, inputs, asked), _sinks(subject)
    known = {id(p) for norm in norms.values() for p in norm.module.parameters()}
    for parts in _projected(subject, inputs, asked, known | {id(sinks)}):
        parts = parts if sinks is None else replace(parts, sinks=sinks.detach())
        if subject.calls.positions == "rotary" and {norm.width for norm in norms.values()} == {
            subject.dim
        }:
            # Most layers norm before they turn, some behind it; nothing but the output tells.
            late = norms.get("q", same), norms.get("k", same)
            yield replace(parts, norms=late)
        three = zip("qkv", parts.three, strict=True)
        yield replace(parts, three=[norms.get(letter, same)(x) for letter, x in three])


def _projected(
    subject: Subject, inputs: list[Tensor], asked: dict[str, Any], known: set[int]
) -> Iterator[Parts]:
    """Ways to read a layer's matrices; what is known is none of them."""
    layer, missing = cast(nn.Module, subject.layer), "its projections aren't found"
    calls = traced(subject, inputs, asked)
    known = known | {id(p) for _, module, _, _ in calls for p in module.parameters()}
    loose = [(n, p) for n, p in layer.named_parameters() if id(p) not in known]
    loose = _used(subject, inputs, asked, loose)
    if (loose and not calls) or len([n for n, p in loose if p.ndim > 1 and role(n)]) >= 3:
        yield from _of_parameters(inputs, loose, calls)
        return
    last_of = _loose_output(subject, dict(loose))
    loose = [] if last_of else loose
    need(not loose, f"has other parameters than its projections: {[n for n, _ in loose][:1]}")
    last_calls = last_of_each(calls)
    if len(last_calls) == len(calls):
        yield from _of_calls(subject, inputs, calls, last_of)
        return
    # A map that is called twice makes the same again, for the weights that are returned; or it
    # serves as two maps.
    found = list[Parts]()
    for some in (last_calls, calls):
        with contextlib.suppress(Skip):
            found += [] if found else _of_calls(subject, inputs, some, last_of)
    need(found, missing)
    yield from found


def last_of_each(calls: list[Call]) -> list[Call]:
    """The last call of each map."""
    return list({id(call[1]): call for call in calls}.values())


def _of_calls(
    subject: Subject, inputs: list[Tensor], calls: list[Call], last_of: Map | None
) -> Iterator[Parts]:
    """Ways to read the linear maps of a call."""
    missing = "its projections aren't found"
    # What reads the tokens is seen in the numbers that went in. Names, if they are known, say only
    # which of these maps is which.
    turns = {id(call): turn for call in calls if (turn := _layout(call, inputs))}
    first = [call for call in calls if id(call) in turns]
    last = [call[1] for call in calls if not any(call is each for each in first)]
    # What reads something else is the output's matrix. With two of these there is a gate or a
    # latent, for which no formula is known here.
    need(first and len({id(module) for module in last}) <= 1, missing)
    out = last_of or (Applied(last[0]) if last else same)
    given = [*inputs[:2], inputs[1]] if subject.calls.inputs == "qk" else inputs
    named = {
        r: [call[1](x).detach() for call in first if role(call[0]) == r]
        for r, x in zip("qkv", given, strict=True)
    }
    all_found = all(named.values()) and len(first) == sum(map(len, named.values()))
    results = [turns[id(call)](call[3]) for call in first]
    if all_found:
        yield Parts([torch.cat(named[r], dim=-1) for r in "qkv"], out)
    elif len(results) == 3:
        yield Parts(results, out)
    elif len(results) in (1, 2):
        found = list(fused(subject, *results))
        need(found, missing)
        yield from (Parts(three, out) for three in found)
    else:
        raise Skip(missing)


@dataclass(frozen=True)
class Norm:
    """A module that norms queries, keys or values, as many features at once as in its call."""

    module: nn.Module
    width: int
    dtype: torch.dtype

    def __call__(self, x: Tensor) -> Tensor:
        heads = x.to(self.dtype).unflatten(-1, (-1, self.width))
        return cast(Tensor, self.module(heads)).detach().double().flatten(-2)


def _norms(subject: Subject, inputs: list[Tensor], asked: dict[str, Any]) -> dict[str, Norm]:
    """The norms of queries, keys and values, by the names of their modules."""
    norms: dict[str, Norm] = {}

    def note(letter: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda m, i, o: norms.update({letter: Norm(m, i[0].shape[-1], i[0].dtype)})

    handles = [
        module.register_forward_hook(note(letter))
        for name, module in cast(nn.Module, subject.layer).named_modules()
        if (letter := role(name.rpartition(".")[2])) and "norm" in type(module).__name__.lower()
    ]
    try:
        if handles:
            subject(*inputs, **asked)
    finally:
        for handle in handles:
            handle.remove()
    return norms


def _sinks(subject: Subject) -> nn.Parameter | None:
    """A parameter with a number for each head, whose name says that it is for sinks."""
    named = cast(nn.Module, subject.layer).named_parameters()
    fits = [p for name, p in named if "sink" in name and p.shape == (subject.heads,)]
    return fits[0] if len(fits) == 1 else None


def _used(
    subject: Subject,
    inputs: list[Tensor],
    asked: dict[str, Any],
    loose: list[tuple[str, nn.Parameter]],
) -> list[tuple[str, nn.Parameter]]:
    """Those that take part in the output: a class may have inherited others."""
    learned = [p for _, p in loose if p.requires_grad]
    if not learned:
        return loose
    with torch.enable_grad():
        output = subject(*inputs, **asked).output
        if not output.requires_grad:
            return loose
        grads = torch.autograd.grad(output.sum(), learned, allow_unused=True)
    unused = {id(p) for p, grad in zip(learned, grads, strict=True) if grad is None}
    return [(name, p) for name, p in loose if id(p) not in unused]


def _loose_output(subject: Subject, loose: dict[str, nn.Parameter]) -> Map | None:
    """The output matrix, if its module wasn't called and nothing else is left over."""
    weights = [p for p in loose.values() if p.ndim == 2]
    owners = {name.rpartition(".")[0] for name in loose}
    if len(weights) != 1 or len(owners) != 1 or len(loose) > 2 or "" in owners:
        return None
    module = cast(nn.Module, subject.layer).get_submodule(owners.pop())
    return Applied(module) if isinstance(module, nn.Linear) else None


def _equal(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and torch.equal(x, y)


def _layout(call: Call, inputs: list[Tensor]) -> Map | None:
    """What makes ``(B, L, E)`` of what a map was given, if that is tokens; some turn them first."""
    turns = (same, _exchanged)
    return next((turn for turn in turns if any(_equal(turn(call[2]), x) for x in inputs)), None)


def _exchanged(x: Tensor) -> Tensor:
    return x.transpose(0, 1)


@dataclass(frozen=True)
class Applied:
    """A module on what is mixed, in its own type of floats; or with its matrix transposed."""

    module: nn.Module
    is_transposed: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = cast(Tensor, self.module.weight), getattr(self.module, "bias", None)
        x = x.to(weight.dtype)
        if self.is_transposed:
            return F.linear(x, weight.T, bias).detach().double()
        return cast(Tensor, self.module(x)).detach().double()


def fused(subject: Subject, first: Tensor, both: Tensor | None = None) -> Iterator[list[Tensor]]:
    """Ways to cut one product into queries, keys and values, or a second one into two."""
    heads, groups, dim = subject.heads, subject.kv_heads, subject.dim
    if both is not None:
        if both.shape[-1] == 2 * groups * dim:
            yield [first, *both.chunk(2, dim=-1)]
            yield [first, *(x.flatten(2) for x in both.unflatten(-1, (groups, 2, dim)).unbind(-2))]
    elif first.shape[-1] == (heads + 2 * groups) * dim:
        yield list(first.split([heads * dim, groups * dim, groups * dim], dim=-1))
        # Or group by group: its queries, then its key and its value.
        in_groups = first.unflatten(-1, (groups, -1, dim))
        yield [x.flatten(2) for x in in_groups.split([heads // groups, 1, 1], dim=-2)]
        if heads == groups:
            yield [x.flatten(2) for x in first.unflatten(-1, (heads, dim, 3)).unbind(-1)]


def _of_torch(layer: nn.MultiheadAttention, inputs: list[Tensor]) -> Parts:
    need(layer.bias_k is None and not layer.add_zero_attn, "adds keys of its own")
    fused, bias = layer.in_proj_weight, layer.in_proj_bias
    apart = layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight
    matrices = apart if fused is None else fused.chunk(3)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    three = zip(inputs, matrices, biases, strict=True)
    return Parts([F.linear(x, w, b).detach() for x, w, b in three], Applied(layer.out_proj))


def _times(x: Tensor, w: Tensor, turned: bool) -> Tensor:
    x, w = x.detach().double(), w.detach().double()
    if w.ndim == 3:
        return torch.einsum("ble,hed->blhd", x, w).flatten(2)
    return x @ (w.T if turned else w)


def _plus(x: Tensor, biases: list[nn.Parameter]) -> Tensor:
    return x + biases[0].detach().flatten().double() if biases else x


def _by_matrix(w: Tensor, turned: bool, added: list[nn.Parameter]) -> Map:
    return lambda x: _plus(_times(x, w, turned), added)


def _of_parameters(
    inputs: list[Tensor], loose: list[tuple[str, nn.Parameter]], calls: list[Call]
) -> Iterator[Parts]:
    """Matrices that are bare parameters, ``(E, H * D)``, turned, or ``(H, E, D)``."""
    found = {r: [p for n, p in loose if role(n) == r and p.ndim > 1] for r in "qkv"}
    need(all(len(each) == 1 for each in found.values()), "its projections aren't found")
    biases = {r: [p for n, p in loose if role(n) == r and p.ndim == 1] for r in "qkv"}
    rest = [p for n, p in loose if role(n) is None]
    last, added = [p for p in rest if p.ndim > 1], [p for p in rest if p.ndim == 1]
    need(len(last) + len(calls) <= 1, "has other parameters than its projections")
    # A bare matrix that is square doesn't tell which way round it multiplies: what fits the output
    # decides.
    for turned in (False, True):
        try:
            three = [
                _plus(_times(x, found[r][0], turned), biases[r])
                for x, r in zip(inputs, "qkv", strict=True)
            ]
        except RuntimeError:
            continue
        out = Applied(calls[0][1]) if calls else same
        yield Parts(three, _by_matrix(last[0].flatten(0, -2), turned, added) if last else out)

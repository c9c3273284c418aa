"""The layer beside the formula with its own matrices; and beside the formula with one mistake."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mhattn.testing.masks import random_mask, try_forms
from mhattn.testing.probes import allowed, apart, said, spread
from mhattn.testing.projections import Parts, candidates
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Skip, Subject

__all__: list[str] = []

KNOWN = "it is exactly that of: "
SECTIONS = {  # where a mistake is explained, by how its name begins
    "scale": "scaled-attention/#scale",
    "softmax": "attention/#softmax",
    "groups": "grouped-query/#code",
    "heads split": "shapes/#wrong-split",
    "heads merged": "shapes-in-depth/#merge",
    "rotary pairs": "positions/#pairs",
    "rotary": "positions/#turned",
    "positions": "positions/#turned",
    "queries": "attention/#qkv",
    "keys": "attention/#qkv",
    "values": "attention/#qkv",
    "no output": "shapes/#layer",
    "causal": "masks-in-practice/#causal",
    "not causal": "masks-in-practice/#causal",
}


@dataclass(frozen=True)
class Formula:
    """Softmax(QK^T / sqrt(D)) V, or with one thing otherwise."""

    scale: float
    softmax: int | None = -1
    groups: str = "repeat"
    split: str = "heads"
    merge: str = "heads"
    order: str = "qkv"
    rotary: tuple[str, float] | None = None
    out: bool = True

    def __call__(
        self, parts: "Parts", heads: tuple[int, int], seen: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The output, ``(B, L, E)`` or ``(B, H, L, D)``, and the weights ``(B, H, L, S)``."""
        given = dict(zip("qkv", (parts.q, parts.k, parts.v), strict=True))
        # In float64: what differs from it is the layer's rounding, and not that of the formula.
        q, k, v = (given[name].double() for name in self.order)
        if parts.is_flat:
            q, k, v = (
                _split(x, n, self.split)
                for x, n in zip((q, k, v), (heads[0], heads[1], heads[1]), strict=True)
            )
        if self.rotary:
            q, k = (_turned(x, *self.rotary) for x in (q, k))
        k, v = (spread(x, q.shape[1], self.groups) for x in (k, v))
        scores = q @ k.mT * self.scale
        if seen is not None:
            scores = scores.masked_fill(~seen, -torch.inf)
        # A query that sees nothing has NaN for weights, and here zeros: what it gets is another
        # check's matter.
        weights = scores if self.softmax is None else scores.softmax(self.softmax).nan_to_num()
        mixed = weights @ v
        if not parts.is_flat:
            return mixed, weights
        flat = mixed.transpose(1, 2).flatten(2)
        if self.merge == "view":
            flat = mixed.reshape(flat.shape)
        elif self.merge == "features":
            flat = mixed.permute(0, 2, 3, 1).flatten(2)
        return (parts.out(flat) if self.out else flat), weights


def _split(x: Tensor, heads: int, how: str) -> Tensor:
    batch, length, width = x.shape
    if how == "view":
        return x.reshape(batch, heads, length, width // heads)
    if how == "features":
        return x.view(batch, length, width // heads, heads).permute(0, 3, 1, 2)
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def _turned(x: Tensor, layout: str, base: float) -> Tensor:
    length, dim = x.shape[-2:]
    speeds = base ** -(torch.arange(0, dim, 2, dtype=torch.float64, device=x.device) / dim)
    angles = torch.arange(length, dtype=torch.float64, device=x.device)[:, None] * speeds
    cos, sin = angles.cos(), angles.sin()
    if layout == "halves":
        one, other = x.chunk(2, dim=-1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)
    one, other = x[..., ::2], x[..., 1::2]
    return torch.stack([one * cos - other * sin, other * cos + one * sin], dim=-1).flatten(-2)


ORDERS = {
    "queries and keys exchanged": "kqv",
    "keys used as values": "qkk",
    "values used as keys": "qvv",
    "keys and values exchanged": "qvk",
    "queries used as values": "qkq",
    "queries used as keys": "qqv",
}


def mistakes(right: Formula, parts: Parts, subject: Subject) -> Iterator[tuple[str, Formula]]:
    """The formula with one mistake, by its name."""
    dim = subject.dim
    scales = {
        "scale missing": 1.0,
        "scale twice": right.scale**2,
        "scale of the whole width": subject.width**-0.5,
        "scale of the number of heads": subject.heads**-0.5,
        "scale is a product, not a quotient": dim**0.5,
        "scale 1/D": 1 / dim,
        "scale of half a head": (dim / 2) ** -0.5,
    }
    yield from ((name, replace(right, scale=scale)) for name, scale in scales.items())
    yield "softmax over queries", replace(right, softmax=-2)
    yield "softmax over heads", replace(right, softmax=1)
    yield "softmax over the batch", replace(right, softmax=0)
    yield "softmax missing", replace(right, softmax=None)
    yield (
        "groups in the wrong order",
        replace(right, groups="tile" if right.groups == "repeat" else "repeat"),
    )
    for name, order in ORDERS.items():
        given = dict(zip("qkv", parts.three, strict=True))
        if all(given[a].shape == given[b].shape for a, b in zip(order, "qkv", strict=True)):
            yield name, replace(right, order=order)
    yield from _turns(right, dim)
    if parts.is_flat:
        for how, name in ("view", "by view alone"), ("features", "as (D, H) instead of (H, D)"):
            yield f"heads split {name}", replace(right, split=how)
            yield f"heads merged {name}", replace(right, merge=how)
            yield f"heads split and merged {name}", replace(right, split=how, merge=how)
        yield "no output projection", replace(right, out=False)


def _turns(right: Formula, dim: int) -> Iterator[tuple[str, Formula]]:
    if right.rotary is None:
        for layout in ("halves", "interleaved") if dim % 2 == 0 else ():
            yield "rotary positions that weren't declared", replace(right, rotary=(layout, 1e4))
        return
    layout, base = right.rotary
    other = "interleaved" if layout == "halves" else "halves"
    yield "rotary pairs in the other layout", replace(right, rotary=(other, base))
    yield "positions are not used", replace(right, rotary=None)
    for else_base in (1e4, 5e5, 1e6):
        yield f"rotary base {else_base:.0f}", replace(right, rotary=(layout, else_base))


def runs(subject: Subject) -> Iterator[tuple[str, tuple[int, ...], dict[str, Any], Tensor | None]]:
    """Calls to compare: what they are, lengths, arguments, and who sees whom."""
    c = subject.calls
    always = c.causal is True
    window = allowed(subject, 6, 6, is_causal=always) if always or c.window else None
    yield "6 tokens", (6,), {}, window
    if subject.takes_two and not always:
        yield (
            "4 queries, 7 keys",
            (4, 7),
            {},
            None if not c.window else allowed(subject, 4, 7, is_causal=False),
        )
        seen = None if not c.window else allowed(subject, 6, 6, is_causal=False)
        yield "6 queries, 6 other keys", (6, 6), {}, seen
    if isinstance(c.causal, str):
        yield "6 tokens, causal", (6,), {"causal": True}, allowed(subject, 6, 6)


def matching(subject: Subject) -> tuple[Callable[..., tuple[Tensor, Tensor]], Found]:
    """The formula that fits the layer, and what is found where none does."""
    c = subject.calls
    need(c.positions in (None, "rotary"), f"no formula for {c.positions} positions")
    need(not c.sinks, "no formula for sinks")
    heads = (subject.heads, subject.kv_heads)
    right = Formula(
        subject.scale(), groups=c.groups, rotary=c.rotary if c.positions == "rotary" else None
    )

    chosen = 0
    found: list[Finding] = []
    for number, (name, lengths, asked, seen) in enumerate(runs(subject)):
        if len(lengths) == 2 and right.rotary:
            continue
        inputs = subject.draw(*lengths, seed=20 + number)
        seen = None if seen is None else seen.to(c.device)
        with torch.no_grad():
            output = subject(*inputs, **asked).output
            options = _parts(subject, inputs, asked)
            gaps = _gaps(subject, right, options, seen, output)
            if number == 0:
                # If matrices can be read in several ways, the first call decides which one is
                # meant: the others have to fit the same.
                chosen = min(range(len(gaps)), key=gaps.__getitem__)
            if gaps[chosen] <= subject.tolerance * 5:
                continue
            why = _diagnosis(subject, right, options, seen, output)
        expected = (
            "softmax(QKᵀ/√D)V with the layer's own matrices"
            if not subject.is_heads
            else "softmax(QKᵀ/√D)V"
        )
        got = f"the output differs by {said(gaps[chosen])} of its usual size"
        got += f"; {KNOWN}{why}" if why else "; no mistake known here gives just this"
        page = next((SECTIONS[each] for each in SECTIONS if why.startswith(each)), "")
        found.append(Finding("formula", name, got, expected, page=page))
        break

    def reference(inputs: list[Tensor], seen: Tensor | None, **asked: Any) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return right(_parts(subject, inputs, asked)[chosen], heads, seen)

    return reference, iter(found)


def _parts(subject: Subject, inputs: list[Tensor], asked: dict[str, Any]) -> list[Parts]:
    if subject.is_heads:
        return [Parts(inputs, is_flat=False)]
    try:
        return list(candidates(subject, inputs, asked))
    except (RuntimeError, ValueError) as error:  # sizes that no reading fits
        raise Skip(f"its projections aren't found: {error}"[:90]) from error


def _gaps(
    subject: Subject, right: Formula, options: list[Parts], seen: Tensor | None, output: Tensor
) -> list[float]:
    """How far each reading of a layer's matrices is from its output."""
    heads = (subject.heads, subject.kv_heads)
    try:
        given = [right(parts, heads, seen)[0] for parts in options]
    except RuntimeError as error:
        raise Skip(
            _sizes(subject, options) or f"its projections have other sizes: {error}"[:90]
        ) from error
    return [apart(subject, output, each).max().item() for each in given]


def _sizes(subject: Subject, options: list[Parts]) -> str:
    """Which projection has another width than the sizes say, and what may be said."""
    dim = subject.dim
    for parts in options:
        q, k, _ = (x.shape[-1] for x in parts.three)
        if q != subject.heads * dim:
            return f"q maps to {q} features, not {subject.heads * dim}: say num_heads, head_dim"
        if k != subject.kv_heads * dim:
            say = f"num_kv_heads={k // dim}" if k % dim == 0 else "num_kv_heads"
            return f"k maps to {k} features, not {subject.kv_heads * dim}: say {say}"
    return ""


def _diagnosis(
    subject: Subject, right: Formula, options: list[Parts], seen: Tensor | None, output: Tensor
) -> str:
    """The name of the one mistake that gives just this output, if there is one."""
    rows, columns = output.shape[-2], options[0].k.shape[-2]
    views = {"": seen}
    if seen is None and rows == columns:
        triangle = torch.ones(rows, columns, dtype=torch.bool, device=output.device).tril()
        views["causal without being asked"] = triangle
    elif seen is not None:
        views["not causal"] = None
    heads = (subject.heads, subject.kv_heads)
    for parts in options:
        for view, sees in views.items():
            for name, wrong in [
                *([(view, right)] if view else []),
                *mistakes(right, parts, subject),
            ]:
                try:
                    other, _ = wrong(parts, heads, sees)
                except RuntimeError:
                    continue
                # A mistake is named if it gives just this output: no guess, but a second formula
                # that fits.
                if apart(subject, output, other).max() <= subject.tolerance * 5:
                    return name if not view or name == view else f"{name}, {view}"
    return ""


def _large(subject: Subject, reference: Callable[..., tuple[Tensor, Tensor]]) -> Found:
    """Tokens six times as large: scores are the formula's, not cut off."""
    c = subject.calls
    # In half precision scores as large as these are rounded too far to tell.
    if c.dtype not in (torch.float32, torch.float64):
        return
    inputs = subject.draw(6, seed=26, size=6.0)
    seen = allowed(subject, 6, 6, is_causal=c.causal is True).to(c.device)
    gap = apart(subject, reference(inputs, seen)[0], subject(*inputs).output).max().item()
    if not gap <= subject.tolerance * 25:
        got = f"the output differs by {said(gap)} of its usual size; on usual tokens it doesn't"
        what = "softmax(QKᵀ/√D)V: scores aren't cut off"
        yield Finding("formula", "6 tokens, six times as large", got, what)


@check("formula", "attention/#output")
def formula(subject: Subject) -> Found:
    """The output is that of the formula, with the layer's own matrices."""
    reference, found = matching(subject)
    wrong = list(found)
    yield from wrong
    c = subject.calls
    if not wrong:
        yield from _large(subject, reference)
    if wrong or not c.mask:
        return
    try_forms(subject)
    if not (c.mask_heads or subject.forms.get("mask of a batch")):
        return
    number = subject.heads if c.mask_heads else 1
    # Each query sees itself at least, so that no row is empty.
    each = random_mask(6, 6, 3, number, seed=15) | torch.eye(6, dtype=torch.bool)
    each = each.to(c.device)
    inputs = subject.draw(6, seed=25)
    always = allowed(subject, 6, 6, is_causal=c.causal is True).to(c.device)
    output = subject(*inputs, mask=each).output
    gap = apart(subject, output, reference(inputs, each & always)[0]).max().item()
    if not gap <= subject.tolerance * 5:
        name = "mask-heads" if c.mask_heads else "mask-batch"
        yield Finding(
            name,
            "another mask for each sequence" + " and head" * bool(c.mask_heads),
            f"the output differs by {said(gap)} from the formula's",
            "each head of each sequence has its own",
        )

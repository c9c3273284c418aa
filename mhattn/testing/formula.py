"""The layer beside the formula with its own matrices; and beside the formula with one mistake."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mhattn.testing.calls import Subject
from mhattn.testing.registry import Found, apart, check, need, said
from mhattn.testing.report import Finding
from mhattn.testing.visibility import allowed, random_mask, try_forms

__all__: list[str] = []

ROLES = {
    "q": {"q", "query", "queries", "wq", "qs", "lq"},
    "k": {"k", "key", "keys", "wk", "ks", "lk"},
    "v": {"v", "value", "values", "wv", "vs", "lv"},
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
        q, k, v = (given[name].double() for name in self.order)
        if parts.is_flat:
            q, k, v = (
                _split(x, n, self.split)
                for x, n in zip((q, k, v), (heads[0], heads[1], heads[1]), strict=True)
            )
        if self.rotary:
            q, k = (_turned(x, *self.rotary) for x in (q, k))
        times = q.shape[1] // k.shape[1]
        if self.groups == "repeat":
            k, v = (x.repeat_interleave(times, 1) for x in (k, v))
        else:
            k, v = (x.repeat(1, times, 1, 1) for x in (k, v))
        scores = q @ k.mT * self.scale
        if seen is not None:
            scores = scores.masked_fill(~seen, -torch.inf)
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


@dataclass(frozen=True)
class Parts:
    """Queries, keys and values, flat ``(B, L, H * D)`` or ``(B, H, L, D)``, and what comes after."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Callable[[Tensor], Tensor] = lambda x: x
    is_flat: bool = True


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


def mistakes(
    right: Formula, parts: Parts, width: int, subject: Subject
) -> Iterator[tuple[str, Formula]]:
    """The formula with one mistake, by its name."""
    dim, heads = subject.calls.head_dim or 1, subject.calls.num_heads or 1
    scales = {
        "scale missing": 1.0,
        "scale twice": right.scale**2,
        "scale of the whole width": width**-0.5,
        "scale of the number of heads": heads**-0.5,
        "scale is a product, not a quotient": dim**0.5,
        "scale 1/D": 1 / dim,
        "scale of half a head": (dim / 2) ** -0.5,
    }
    yield from ((name, replace(right, scale=scale)) for name, scale in scales.items())
    yield "softmax over queries", replace(right, softmax=-2)
    yield "softmax over heads", replace(right, softmax=1)
    yield "softmax over the batch", replace(right, softmax=0)
    yield "softmax missing", replace(right, softmax=None)
    yield "groups in the wrong order", replace(right, groups="tile")
    orders = {"queries and keys exchanged": "kqv", "keys used as values": "qkk", "values used as keys": "qvv",
              "keys and values exchanged": "qvk", "queries used as values": "qkq", "queries used as keys": "qqv"}  # fmt: skip
    if parts.q.shape == parts.k.shape == parts.v.shape:
        yield from ((name, replace(right, order=order)) for name, order in orders.items())
    elif parts.k.shape == parts.v.shape:
        yield "keys used as values", replace(right, order="qkk")
        yield "keys and values exchanged", replace(right, order="qvk")
    for layout in ("halves", "interleaved"):
        if right.rotary and layout != right.rotary[0]:
            yield (
                "rotary pairs in the other layout",
                replace(right, rotary=(layout, right.rotary[1])),
            )
        if not right.rotary and dim % 2 == 0:
            yield "rotary positions that weren't declared", replace(right, rotary=(layout, 10000.0))
    if right.rotary:
        yield "positions are not used", replace(right, rotary=None)
    if parts.is_flat:
        for how, name in ("view", "by view alone"), ("features", "as (D, H) instead of (H, D)"):
            yield f"heads split {name}", replace(right, split=how)
            yield f"heads merged {name}", replace(right, merge=how)
            yield f"heads split and merged {name}", replace(right, split=how, merge=how)
        yield "no output projection", replace(right, out=False)


def role(name: str) -> str | None:
    """Which of q, k and v a module's name says."""
    words = set(re.split(r"[._\d]+", name.lower()))
    return next((letter for letter, names in ROLES.items() if words & names), None)


def traced(
    subject: Subject, inputs: list[Tensor], asked: dict[str, Any]
) -> list[tuple[str, nn.Module, Tensor, Tensor]]:
    """The linear maps of a call in their order: name, module, what went in and out."""
    assert isinstance(subject.layer, nn.Module)
    calls: list[tuple[str, nn.Module, Tensor, Tensor]] = []
    handles = []
    for name, module in subject.layer.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.ndim == 2 and not list(module.children()):
            hook = lambda m, i, o, name=name: calls.append((name, m, i[0].detach(), o.detach()))  # noqa: E731
            handles.append(module.register_forward_hook(hook))
    try:
        subject(*inputs, **asked)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def candidates(subject: Subject, inputs: list[Tensor], asked: dict[str, Any]) -> Iterator[Parts]:
    """Ways to read a layer's own matrices; one of them must fit."""
    c = subject.calls
    layer = subject.layer
    assert isinstance(layer, nn.Module)
    if isinstance(layer, nn.MultiheadAttention):
        yield _of_torch(layer, inputs)
        return
    calls = traced(subject, inputs, asked)
    known = {id(p) for _, module, _, _ in calls for p in module.parameters()}
    loose = [(n, p) for n, p in layer.named_parameters() if id(p) not in known]
    if loose and not calls or len([n for n, p in loose if p.ndim > 1 and role(n)]) >= 3:
        yield from _of_parameters(subject, inputs, loose, calls)
        return
    need(not loose, f"has other parameters than its projections: {loose[0][0] if loose else ''}")
    flat = [x if c.batch_first else x.transpose(0, 1) for x in inputs]
    first = [
        call
        for call in calls
        if any(call[2].shape == x.shape and torch.equal(call[2], x) for x in flat)
    ]
    last = [call for call in calls if not any(call is each for each in first)]
    need(first and len(last) <= 1, "its projections aren't found")
    out = (lambda x, m=last[0][1]: _applied(m, x)) if last else (lambda x: x)
    turn = (lambda x: x) if c.batch_first else (lambda x: x.transpose(0, 1))
    named = {r: [call for call in first if role(call[0]) == r] for r in "qkv"}
    width, kv = (c.num_heads or 1) * (c.head_dim or 1), (c.num_kv_heads or 1) * (c.head_dim or 1)
    if all(named.values()) and len(first) == sum(map(len, named.values())):
        q, k, v = (torch.cat([turn(call[3]) for call in named[r]], dim=-1) for r in "qkv")
        yield Parts(q, k, v, out)
    elif len(first) == 3:
        yield Parts(*(turn(call[3]) for call in first), out)
    elif len(first) == 1 and first[0][3].shape[-1] == width + 2 * kv:
        fused = turn(first[0][3])
        yield Parts(*fused.split([width, kv, kv], dim=-1), out)
        yield Parts(
            *(
                x.flatten(2)
                for x in fused.unflatten(-1, (c.num_kv_heads, -1, c.head_dim)).split(
                    [width // kv, 1, 1], dim=-2
                )
            ),
            out,
        )
        if width == kv:
            yield Parts(
                *(
                    fused.unflatten(-1, (c.num_heads, c.head_dim, 3))[..., i].flatten(2)
                    for i in range(3)
                ),
                out,
            )
    elif len(first) == 2 and first[1][3].shape[-1] == 2 * kv:
        both = turn(first[1][3])
        yield Parts(turn(first[0][3]), *both.chunk(2, dim=-1), out)
        yield Parts(
            turn(first[0][3]),
            *(x.flatten(2) for x in both.unflatten(-1, (c.num_kv_heads, 2, c.head_dim)).unbind(-2)),
            out,
        )
    else:
        need(False, "its projections aren't found")


def _applied(module: nn.Module, x: Tensor) -> Tensor:
    weight = module.weight
    assert isinstance(weight, Tensor)
    return module(x.to(weight.dtype)).detach().double()


def _of_torch(layer: nn.MultiheadAttention, inputs: list[Tensor]) -> Parts:
    fused = layer.in_proj_weight
    split = (
        fused.chunk(3)
        if fused is not None
        else (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
    )
    biases = layer.in_proj_bias.chunk(3) if layer.in_proj_bias is not None else (None,) * 3
    need(layer.bias_k is None and not layer.add_zero_attn, "adds keys of its own")
    q, k, v = (F.linear(x, w, b).detach() for x, w, b in zip(inputs, split, biases, strict=True))
    return Parts(q, k, v, lambda x: _applied(layer.out_proj, x))


def _of_parameters(
    subject: Subject, inputs: list[Tensor], loose: list[tuple[str, nn.Parameter]], calls: list[Any]
) -> Iterator[Parts]:
    """Matrices that are bare parameters, ``(E, H * D)``, turned, or ``(H, E, D)``."""
    found = {r: [p for n, p in loose if role(n) == r and p.ndim > 1] for r in "qkv"}
    need(all(len(each) == 1 for each in found.values()), "its projections aren't found")
    biases = {r: next((p for n, p in loose if role(n) == r and p.ndim == 1), None) for r in "qkv"}
    rest = [p for n, p in loose if role(n) is None]
    matrices = [p for p in rest if p.ndim > 1]
    need(len(matrices) + len(calls) <= 1, "has other parameters than its projections")

    def times(x: Tensor, w: Tensor, turned: bool) -> Tensor:
        x, w = x.detach().double(), w.detach().double()
        if w.ndim == 3:
            return torch.einsum("ble,hed->blhd", x, w).flatten(2)
        return x @ (w.T if turned else w)

    for turned in (False, True):
        try:
            parts = [times(x, found[r][0], turned) for x, r in zip(inputs, "qkv", strict=True)]
            parts = [
                x if biases[r] is None else x + biases[r].detach()
                for x, r in zip(parts, "qkv", strict=True)
            ]
        except RuntimeError:
            continue
        bias = next((p.detach().double() for p in rest if p.ndim == 1), 0)
        if calls:
            out = lambda x: _applied(calls[0][1], x)  # noqa: E731
        elif matrices:
            w = matrices[0].detach().double().reshape(-1, matrices[0].shape[-1])
            out = lambda x, w=w, turned=turned: x @ (w.T if turned else w) + bias  # noqa: E731
        else:
            out = lambda x: x  # noqa: E731
        yield Parts(*parts, out)


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
    if isinstance(c.causal, str):
        yield "6 tokens, causal", (6,), {"causal": True}, allowed(subject, 6, 6)


def matching(subject: Subject) -> tuple[Callable[..., tuple[Tensor, Tensor]], Found]:
    """The formula that fits the layer, and what is found where none does."""
    c = subject.calls
    need(c.positions in (None, "rotary"), f"no formula for {c.positions} positions")
    need(not c.sinks, "no formula for sinks")
    heads = (c.num_heads or 1, c.num_kv_heads or 1)
    right = Formula(subject.scale(), rotary=c.rotary if c.positions == "rotary" else None)

    def parts_of(inputs: list[Tensor], asked: dict[str, Any]) -> list[Parts]:
        if subject.is_heads:
            return [Parts(*inputs, is_flat=False)]
        return list(candidates(subject, inputs, asked))

    chosen = 0
    found: list[Finding] = []
    for number, (name, lengths, asked, seen) in enumerate(runs(subject)):
        if len(lengths) == 2 and right.rotary:
            continue
        inputs = subject.draw(*lengths, seed=20 + number)
        seen = None if seen is None else seen.to(c.device)
        with torch.no_grad():
            output = subject(*inputs, **asked).output
            options = parts_of(inputs, asked)
            gaps = [
                apart(subject, output, right(parts, heads, seen)[0]).max().item()
                for parts in options
            ]
            if number == 0:
                chosen = min(range(len(gaps)), key=gaps.__getitem__)
            if gaps[chosen] <= subject.tolerance * 5:
                continue
            why = _diagnosis(subject, right, options, heads, seen, output)
        expected = (
            "softmax(QKᵀ/√D)V with the layer's own matrices"
            if not subject.is_heads
            else "softmax(QKᵀ/√D)V"
        )
        got = f"the output differs by {said(gaps[chosen])} of its usual size"
        got += (
            f"; it is exactly that of: {why}" if why else "; no mistake known here gives just this"
        )
        found.append(Finding("formula", name, got, expected))
        break

    def reference(inputs: list[Tensor], seen: Tensor | None, **asked: Any) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return right(parts_of(inputs, asked)[chosen], heads, seen)

    return reference, iter(found)


def _diagnosis(
    subject: Subject,
    right: Formula,
    options: list[Parts],
    heads: tuple[int, int],
    seen: Tensor | None,
    output: Tensor,
) -> str:
    rows, columns = output.shape[-2], options[0].k.shape[-2]
    views = {"": seen}
    if seen is None and rows == columns:
        views["causal without being asked"] = torch.ones(
            rows, columns, dtype=torch.bool, device=output.device
        ).tril()
    elif seen is not None:
        views["not causal"] = None
    for parts in options:
        for view, sees in views.items():
            trials = list(mistakes(right, parts, subject.calls.embed_dim or 1, subject))
            trials = ([(view, right)] if view else []) + trials
            for name, wrong in trials:
                try:
                    other, _ = wrong(parts, heads, sees)
                except RuntimeError:
                    continue
                if (
                    other.shape == output.shape
                    and apart(subject, output, other).max() <= subject.tolerance * 5
                ):
                    return name if not view or name == view else f"{name}, {view}"
    return ""


@check("formula", "attention/#output")
def formula(subject: Subject) -> Found:
    """The output is that of the formula, with the layer's own matrices."""
    reference, found = matching(subject)
    yield from found
    c = subject.calls
    if not c.mask:
        return
    try_forms(subject)
    if not (c.mask_heads or subject.forms.get("mask of a batch")):
        return
    number = (c.num_heads or 1) if c.mask_heads else 1
    each = random_mask(6, 6, 3, number, seed=15) | torch.eye(6, dtype=torch.bool)
    each = each.to(c.device)
    inputs = subject.draw(6, seed=25)
    always = allowed(subject, 6, 6, is_causal=c.causal is True).to(c.device)
    output = subject(*inputs, mask=each).output
    if not list(matching(subject)[1]):
        gap = apart(subject, output, reference(inputs, each & always)[0]).max().item()
        if not gap <= subject.tolerance * 5:
            name = "mask-heads" if c.mask_heads else "mask-batch"
            yield Finding(name, "another mask for each sequence" + " and head" * bool(c.mask_heads),
                          f"the output differs by {said(gap)} from the formula's", "each head of each sequence has its own")  # fmt: skip


@check("weights", "own-model/#maps")
def weights(subject: Subject) -> Found:
    """The weights returned sum to one, hide what is hidden, and give the output."""
    c = subject.calls
    need(c.weights, "returns no weights")
    for name, lengths, asked, seen in runs(subject):
        inputs = subject.draw(*lengths, seed=30)
        found = subject(*inputs, weights=True, **asked)
        need(found.weights is not None, "returned no weights")
        given, output = found.weights.detach().double(), found.output
        if given.shape[-2:] != (lengths[0], lengths[-1]):
            yield Finding(
                "weights", name, f"weights have the shape {tuple(given.shape)}", "(B, H, L, S)"
            )
            return
        if (
            (given < -1e-9).any()
            or not (sums := (given.sum(-1) - 1).abs().max().item()) <= subject.tolerance
            and not c.sinks
        ):
            yield Finding("weights", name, f"rows sum to 1 ± {said(sums)}" if (given >= -1e-9).all() else "weights below 0",
                          "each row is shared out over the keys")  # fmt: skip
            return
        if seen is not None and (given.masked_fill(seen.to(given.device), 0).abs() > 1e-6).any():
            yield Finding("weights", name, "hidden keys have weight", "0")
            return
        plain = subject(*inputs, **asked).output
        if (gap := apart(subject, plain, output).max().item()) > subject.tolerance:
            yield Finding(
                "weights",
                f"{name}, with weights and without",
                f"outputs differ by {said(gap)}",
                "the same output",
            )
            return
        if subject.is_heads and given.ndim == 4:
            value = (
                inputs[2].double().repeat_interleave((c.num_heads or 1) // (c.num_kv_heads or 1), 1)
            )
            expected, what = given @ value, "weights times values"
            gap = apart(subject, output, expected).max().item()
        else:
            reference, wrong = matching(subject)
            if c.positions == "rotary" and len(lengths) == 2 or list(wrong):
                continue
            right = reference(inputs, None if seen is None else seen.to(c.device), **asked)[1]
            right = right if given.ndim == 4 else right.mean(1)
            gap, what = (given - right).abs().max().item(), "those that make the output"
        if gap > subject.tolerance * 5:
            yield Finding("weights", name, f"the weights returned differ by {said(gap)}", what)
            return
    if not c.mask:
        return
    try_forms(subject)
    mask = random_mask(6, 6, seed=3) | torch.eye(6, dtype=torch.bool)
    given = subject(*subject.draw(6, seed=31), mask=mask.to(c.device), weights=True).weights
    if given is not None and (given.detach().cpu().masked_fill(mask, 0).abs() > 1e-6).any():
        yield Finding("weights", "a mask was given", "hidden keys have weight", "0")

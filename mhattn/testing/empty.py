"""The check of queries that see nothing: hidden by one mask, by several at once, and in float16."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.masks import try_forms
from mhattn.testing.probes import apart, said
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Subject

__all__: list[str] = []

TOKENS = 5


@dataclass(frozen=True)
class Way:
    """A way to hide every key from a query.

    Args:
        did: what is done, in words.
        asked: what the layer is asked.
        empty: which queries see nothing, ``(B, L)``.
        beside: what it is asked where those queries see something.
        same: which queries see the same keys then, ``(B, L)``.
        by: how many masks hide keys: of several, none hides all keys by itself.
    """

    did: str
    asked: dict[str, Any]
    empty: Tensor
    beside: dict[str, Any]
    same: Tensor
    by: int = 1


def _ways(subject: Subject) -> Iterator[Way]:
    c = subject.calls
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=c.device)
    real = torch.ones(3, TOKENS, dtype=torch.bool, device=c.device)
    row, sequence = torch.zeros_like(real), torch.zeros_like(real)
    row[:, 2], sequence[1] = True, True
    if c.mask:
        hidden = mask.tril()
        hidden[2] = False
        did = "a mask hides every key from query 2"
        yield Way(did, {"mask": hidden}, row, {"mask": mask.tril()}, ~row)
    if c.padding:
        all_of_one = sequence[:, :1].expand(3, c.outputs or TOKENS)
        did = "all tokens of sequence 1 are padding"
        yield Way(did, {"padding": ~sequence}, all_of_one, {"padding": real}, ~all_of_one)
    if not (c.seen or c.outputs):
        yield from _together(subject, mask, real, row, sequence)


def _together(
    subject: Subject, mask: Tensor, real: Tensor, row: Tensor, sequence: Tensor
) -> Iterator[Way]:
    """Masks that hide every key together: each of them, or none of them by itself."""
    c, causal = subject.calls, subject.usual
    last, left, right = mask.clone(), real.clone(), real.clone()
    last[2, :-1] = False  # query 2 sees the last key alone
    left[1, :2] = False
    right[1, -1] = False
    if c.mask and c.padding:
        hidden = mask.tril()
        hidden[2] = False
        did = "a mask hides every key from query 2, and all tokens of sequence 1 are padding"
        asked, beside = {"mask": hidden, "padding": ~sequence}, {"mask": mask.tril()}
        yield Way(did, asked, row | sequence, beside, ~(row | sequence), by=2)
    if c.mask and c.padding and c.causal is not True:
        did = "a mask leaves query 2 the last key, which is padding in sequence 1"
        asked = {"mask": last, "padding": right}
        yield Way(did, asked, row & sequence, asked | {"mask": mask}, ~row, by=2)
    if c.mask and c.causal:
        did = "a mask leaves query 2 the last key, and attention is causal"
        yield Way(did, causal | {"mask": last}, row, causal | {"mask": mask}, ~row, by=2)
    if c.padding and c.causal:
        did = "sequence 1 begins with padding, and attention is causal"
        yield Way(did, causal | {"padding": left}, ~left, causal | {"padding": real}, ~sequence, 2)
    if c.mask and c.padding and c.causal:
        last = last.clone()
        last[2, 1] = True  # padding in sequence 1
        did = "a mask, padding in front and the causal triangle together hide all keys of query 2"
        asked, empty = causal | {"mask": last, "padding": left}, ~left | row & sequence
        yield Way(did, asked, empty, causal | {"mask": mask}, ~(row | sequence), by=3)


@check("empty-rows", "mask-conventions/#empty")
def empty_rows(subject: Subject) -> Found:
    """A query that sees nothing spoils no number and no gradient."""
    c = subject.calls
    need(c.mask or c.padding, "takes neither mask nor padding")
    if c.mask:
        try_forms(subject)
    noted, are_finite = False, True
    for way in _ways(subject):
        try:
            found = list(_empty(subject, way, are_finite and way.by > 1))
        except Exception:
            if way.by == 1:
                raise
            continue  # it refuses some masks beside each other
        are_finite &= not (way.by == 1 and any(each.got == NAN for each in found))
        for each in found:
            # One note is enough; a mistake is told beside it.
            if each.level == "error" or not noted:
                yield each
            noted |= each.level == "note"
            if each.level == "error":
                return
    if are_finite:
        yield from _in_half(subject, noted)


NAN = "its output is NaN"


def _of_tokens(subject: Subject, output: Tensor) -> Tensor:
    """``(B, L, ...)``."""
    return output.transpose(1, 2).flatten(2) if subject.is_heads else output


def _empty(subject: Subject, way: Way, single_is_finite: bool) -> Found:
    rule, empty, did = subject.calls.empty_rows, way.empty, way.did
    level = "note" if rule == "any" else "error"
    inputs = [x.requires_grad_() for x in subject.draw(TOKENS, seed=11)]
    output = subject(*inputs, **way.asked).output
    tokens = _of_tokens(subject, output)
    if not tokens[~empty].isfinite().all():
        yield Finding("empty-rows", did, "other outputs are NaN", "they are as before")
        return
    with torch.no_grad():
        beside = subject(*inputs, **way.beside).output
    gap = apart(subject, beside, output).to(way.same.device)[way.same].max()
    if not gap <= subject.tolerance:
        got = f"other outputs differ by {said(gap.item())} from those without it"
        yield Finding("empty-rows", did, got, "they are as before")
        return
    if not tokens[empty].isfinite().all():
        # Libraries differ in this, so it is a mistake only where something else was promised: by
        # the caller, or by what the layer does where one mask hides all keys.
        promised = rule in ("finite", "zeros") or (single_is_finite and rule != "any")
        expected = "finite numbers" + ", as where one mask hides all keys" * single_is_finite
        yield Finding("empty-rows", did, NAN, expected, level="error" if promised else "note")
        return
    if output.requires_grad:
        tokens[~empty].square().sum().backward()
        grads = [x.grad for x in inputs if x.grad is not None]
        if not all(grad.isfinite().all() for grad in grads):
            got = "gradients of other tokens are NaN"
            yield Finding("empty-rows", did, got, "finite gradients", level=level)
            return
    if not subject.takes_two:
        return
    moved = [x.detach() + 1.0 for x in inputs[1:]]
    with torch.no_grad():
        other = subject(inputs[0], *moved, **way.asked).output
    gap = apart(subject, output, other)[empty].max()
    if gap > subject.tolerance:
        got = f"its output moves by {said(gap.item())} with the hidden values"
        level = "error" if rule == "zeros" else "note"
        yield Finding("empty-rows", did, got, "zeros: no hidden value reaches it", level=level)


def _in_half(subject: Subject, noted: bool) -> Found:
    """What is finite in float32 is finite in float16, where -1e9 is minus infinity."""
    if not isinstance(subject.layer, nn.Module) or subject.calls.dtype != torch.float32:
        return
    half = subject.in_dtype(torch.float16)
    for way in _ways(half):
        with torch.no_grad():
            try:
                exact = subject(*subject.draw(TOKENS, seed=11), **way.asked).output
                output = half(*half.draw(TOKENS, seed=11), **way.asked).output
            except Exception:  # half precision alone is another check's matter
                continue
        if exact.isfinite().all() and not output.isfinite().all():
            level = "note" if subject.calls.empty_rows == "any" else "error"
            if level == "error" or not noted:
                expected = "finite numbers, as in float32"
                yield Finding("empty-rows", f"float16: {way.did}", NAN, expected, level=level)
            return

"""The layer beside the formula with its own matrices."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from mhattn.testing.adapted import Adapted
from mhattn.testing.computed import Formula, Rotary, alibi_slopes
from mhattn.testing.masks import random_mask, try_forms
from mhattn.testing.mistakes import Case, Named, diagnosis, fitted
from mhattn.testing.probes import allowed, apart, said
from mhattn.testing.products import wrong_scale
from mhattn.testing.projections import Parts, candidates
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import KNOWN, Finding
from mhattn.testing.subject import Skip, Subject, is_of_layer

__all__: list[str] = []

UNKNOWN = "no mistake known here gives just this"
Reference = Callable[..., tuple[Tensor, Tensor]]


def runs(subject: Subject) -> Iterator[tuple[str, tuple[int, ...], dict[str, Any], Tensor | None]]:
    """Calls to compare: what they are, lengths, arguments, and who sees whom."""
    c = subject.calls
    always = c.causal is True

    def seen(*lengths: int, is_causal: bool) -> Tensor | None:
        cuts = is_causal or c.window or c.seen
        rows, columns = lengths[0], lengths[-1]
        return allowed(subject, rows, columns, is_causal=is_causal).to(c.device) if cuts else None

    yield "6 tokens", (6,), {}, seen(6, is_causal=always)
    yield "1 token", (1,), {}, seen(1, is_causal=always)
    if subject.takes_two and not always:
        yield "1 query, 7 keys", (1, 7), {}, seen(1, 7, is_causal=False)
        yield "4 queries, 7 keys", (4, 7), {}, seen(4, 7, is_causal=False)
        yield "6 queries, 6 other keys", (6, 6), {}, seen(6, 6, is_causal=False)
    if isinstance(c.causal, str):
        yield "6 tokens, causal", (6,), {"causal": True}, seen(6, is_causal=True)


# Primes: no chunk or block is as long. The second is longer than blocks of 64, 128 and 256 keys.
LONG = (67, 307)
WIDE = 512  # from this width on, only the shorter one is cheap


def _long_runs(subject: Subject) -> Iterator[tuple[str, tuple[int, ...], Tensor | None]]:
    """Long texts, as far as they are cheap, and known to be taken."""
    c, layer = subject.calls, subject.layer
    # What is called as its model calls it was looked at in texts that are no longer than the first,
    # and what is turned may be turned otherwise behind the longest text that a model is made for.
    is_short = c.seen or subject.width > WIDE or isinstance(layer, Adapted)
    is_causal = c.causal is True
    for length in LONG[:1] if is_short else LONG:
        cuts = is_causal or c.window or c.seen
        seen = allowed(subject, length, length, is_causal=is_causal) if cuts else None
        yield f"{length} tokens", (length,), None if seen is None else seen.to(c.device)


def right_formula(subject: Subject) -> Formula:
    """The formula that a layer should compute, from what was said of it."""
    c = subject.calls
    need(c.like is None, "it is compared with another: like")
    need(c.positions in (None, "rotary", "alibi"), f"no formula for {c.positions} positions")
    layout, base, *turned = c.rotary
    rotary = Rotary(layout, base, turned[0] if turned else None)
    return Formula(
        subject.scale(),
        groups=c.groups,
        rotary=rotary if c.positions == "rotary" else None,
        slopes=alibi_slopes(subject.heads) if c.positions == "alibi" else (),
        cap=c.cap,
    )


def compared(subject: Subject) -> tuple[Reference, tuple[str, Case, float] | None]:
    """The formula as a function of a call, and the first call whose output it doesn't give."""
    right, heads = right_formula(subject), (subject.heads, subject.kv_heads)
    chosen, wrong = 0, None
    for number, (name, lengths, asked, seen) in enumerate(runs(subject)):
        if len(lengths) == 2 and (right.rotary or right.slopes):
            continue
        try:
            case = _case(subject, lengths, asked, seen, seed=20 + number)
        except Skip:
            if number == 0:
                raise
            continue  # one token's value needs no queries and keys, and some make none
        gaps = _gaps(case, right)
        if number == 0:
            # If matrices can be read in several ways, the first call decides which one is meant:
            # the others have to fit the same.
            chosen = min(range(len(gaps)), key=gaps.__getitem__)
        if not gaps[chosen] <= subject.tolerance * 5:
            wrong = name, case, gaps[chosen]
            break

    def reference(inputs: list[Tensor], seen: Tensor | None, **asked: Any) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return right(_parts(subject, inputs, asked)[chosen], heads, seen)

    return reference, wrong


def _case(
    subject: Subject,
    lengths: tuple[int, ...],
    asked: dict[str, Any],
    seen: Tensor | None,
    *,
    seed: int,
    batch: int = 3,
    size: float = 1.0,
) -> Case:
    """A call, and the layer's own parts in it."""
    inputs = subject.draw(*lengths, batch=batch, seed=seed, size=size)
    with torch.no_grad():
        output = subject(*inputs, **asked).output
        return Case(subject, _parts(subject, inputs, asked), seen, output)


def _long(subject: Subject, reference: Reference) -> Found:
    """The formula holds in long texts as well."""
    for name, lengths, seen in _long_runs(subject):
        inputs = subject.draw(*lengths, batch=1, seed=27)
        try:
            with torch.no_grad():
                output = subject(*inputs).output
        except Exception as error:  # no layer has to take texts as long as these
            if not (isinstance(error, Skip) or is_of_layer(error)):
                raise
            return
        gap = apart(subject, output, reference(inputs, seen)[0]).max().item()
        if not gap <= subject.tolerance * 5:
            got = f"the output differs by {said(gap)} of its usual size"
            got += "; in the call with 6 tokens it doesn't"
            yield Finding("formula", name, got, "softmax(QKᵀ/√D)V in a text of any length")
            return


def _parts(subject: Subject, inputs: list[Tensor], asked: dict[str, Any]) -> list[Parts]:
    try:
        heads = Parts(inputs, is_flat=False)
        options = [heads] if subject.is_heads else list(candidates(subject, inputs, asked))
    except (RuntimeError, ValueError) as error:  # sizes that no reading fits
        raise Skip(f"its projections aren't found: {error}"[:90]) from error
    known = not subject.calls.sinks or all(parts.sinks is not None for parts in options)
    need(known, "no formula for sinks that aren't one parameter for each head")
    return options


def _gaps(case: Case, right: Formula) -> list[float]:
    """How far each reading of a layer's parts is from its output."""
    subject, heads = case.subject, (case.subject.heads, case.subject.kv_heads)
    try:
        given = [right(parts, heads, case.seen)[0] for parts in case.options]
    except RuntimeError as error:
        why = _sizes(subject, case.options) or f"its projections have other sizes: {error}"[:90]
        raise Skip(why) from error
    return [apart(subject, case.output, each).max().item() for each in given]


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


def told(named: Named | None) -> str:
    """What a finding says of a mistake that has a name, and what to say if it is none."""
    if named is None:
        return f"; {UNKNOWN}"
    return f"; {KNOWN}{named.name}" + f"; if that is meant, say {named.say}" * bool(named.say)


def _usual(subject: Subject, name: str, case: Case, gap: float) -> Finding:
    """The finding of a call on usual tokens."""
    named = diagnosis(case, right_formula(subject), _again(subject, name, case))
    got = f"the output differs by {said(gap)} of its usual size"
    # Where one call follows the formula, it is the layer's: another call has no other one.
    first, *_ = next(runs(subject))
    got += told(named) if named or name == first else f"; in the call with {first} it doesn't"
    own = "" if subject.is_heads else " with the layer's own matrices"
    level, page = (named.level, named.page) if named else ("error", "")
    expected = f"softmax(QKᵀ/√D)V{own}"
    return Finding("formula", name, got, expected, page=page, level=level)


def _again(subject: Subject, name: str, case: Case) -> Case | None:
    """The same call in another length: what has a name has it there too.

    Six tokens and six heads, and a scale of one is a scale of the other.
    """
    for number, (run, lengths, asked, _) in enumerate(runs(subject)):
        if run == name and len(lengths) == 1:
            always = subject.calls.causal is True or bool(asked.get("causal"))
            cuts = always or subject.calls.window or subject.calls.seen
            seen = allowed(subject, 11, 11, is_causal=always).to(subject.calls.device)
            with contextlib.suppress(Exception):
                return _case(subject, (11,), asked, seen if cuts else None, seed=70 + number)
    return None


def _large(subject: Subject) -> Found:
    """Tokens six times as large: scores are the formula's, not cut off."""
    c, right = subject.calls, right_formula(subject)
    # In half precision scores as large as these are rounded too far to tell.
    if c.dtype not in (torch.float32, torch.float64):
        return
    seen = allowed(subject, 6, 6, is_causal=c.causal is True).to(c.device)
    case = _case(subject, (6,), {}, seen, seed=26, size=6.0)
    gaps = _gaps(case, right)
    if not (gap := min(gaps)) <= subject.tolerance * 25:
        fit = fitted(case, right, case.options[gaps.index(gap)], seen)
        named = fit[0] if fit else None
        got = f"the output differs by {said(gap)} of its usual size; on usual tokens it doesn't"
        what = "softmax(QKᵀ/√D)V: scores aren't cut off"
        level = named.level if named else "error"
        got += told(named) if named else ""
        yield Finding("formula", "6 tokens, six times as large", got, what, level=level)


@check("formula", "attention/#output")
def formula(subject: Subject) -> Found:
    """The output is that of the formula, with the layer's own matrices."""
    subject = _exact(subject)
    try:
        reference, wrong = compared(subject)
    except Skip:
        yield from _at_the_product(subject)
        raise
    if wrong:
        yield _usual(subject, *wrong)
        return
    if found := [*_large(subject)] or [*_long(subject, reference)]:
        yield from found
    yield from _own_masks(subject, reference)


def _exact(subject: Subject) -> Subject:
    """In 16 bits a scale that is a tenth too large is lost in rounding: the same in float32."""
    if subject.calls.dtype not in (torch.float16, torch.bfloat16):
        return subject
    exact = subject.in_dtype(torch.float32)
    try:
        exact(*exact.draw(6))
    except Exception:  # it may be made for its own type alone
        return subject
    return exact


def _at_the_product(subject: Subject) -> Found:
    """Where the matrices aren't found: the scale alone, between the product and softmax."""
    if wrong := wrong_scale(subject):
        named, right = wrong
        level, page = named.level, named.page
        expected = f"softmax(QKᵀ/√D)V: a scale of {right:.4g}"
        yield Finding("formula", "6 tokens", told(named)[2:], expected, page=page, level=level)


def _own_masks(subject: Subject, reference: Reference) -> Found:
    """Each sequence, and each head if it may, has a mask of its own."""
    c = subject.calls
    if not c.mask:
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

"""Checks of masks."""

import math
from typing import Any

import torch
from torch import Tensor

from mhattn.testing.probes import allowed, apart, causal, influence, modes, pair, said
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Skip, Subject

__all__: list[str] = []


def random_mask(rows: int, columns: int, *before: int, seed: int = 0) -> Tensor:
    """About half of all pairs, in each row at least one seen and one hidden."""
    source = torch.Generator().manual_seed(seed)
    chance = torch.rand(*before, rows, columns, generator=source)
    middle = chance.median(dim=-1, keepdim=True).values
    return chance <= middle


def masked(
    subject: Subject, mask: Tensor, *, is_causal: bool = False, size: float = 1.0, seed: int = 3
) -> tuple[Tensor, Tensor]:
    """How the outputs move, and where that is allowed, both ``(B, L, S)``."""
    rows, columns = mask.shape[-2:]
    where = "keys" if subject.takes_two else "self"
    lengths = (rows,) if rows == columns and not subject.takes_two else (rows, columns)
    inputs = subject.draw(*lengths, seed=seed, size=size)
    mask = mask.to(subject.calls.device)
    moved = influence(
        subject, inputs, mask=mask, causal=is_causal, where=where, size=2.0 * size
    ).cpu()
    seen = mask.cpu().reshape(-1, *mask.shape[-2:]) if mask.ndim == 4 else mask.cpu()[None]
    seen = seen.expand_as(moved).clone()
    seen &= allowed(subject, rows, columns, is_causal=is_causal or subject.calls.causal is True)
    if not subject.takes_two:  # a token is its own query as well
        seen |= torch.eye(rows, columns, dtype=torch.bool)
    return moved, seen


def with_diagonal(subject: Subject, mask: Tensor) -> Tensor:
    """A layer of one sequence, or a causal one: each token sees itself."""
    return mask | torch.eye(*mask.shape[-2:], dtype=torch.bool)


def plain_mask(subject: Subject, *, keys: int | None = None) -> Tensor:
    """About half of all pairs; or of each query the last keys, so many."""
    rows, columns = (5, 8) if subject.takes_two and subject.calls.causal is not True else (7, 7)
    last = torch.arange(columns) >= columns - (keys or 0)
    mask = random_mask(rows, columns) if keys is None else last.expand(rows, columns)
    return with_diagonal(subject, mask) if rows == columns else mask


def try_forms(subject: Subject) -> None:
    """Learn in which form a mask of all sequences, and one of each, is taken."""
    need(subject.calls.mask, "takes no mask")
    if "mask" in subject.forms:
        need(subject.forms["mask"], f"no form of a mask was taken: {subject.forms.get('why')}")
        return
    mask = plain_mask(subject).to(subject.calls.device)
    lengths = mask.shape if subject.takes_two else mask.shape[:1]
    for form in ("L,S", "B,1,L,S", ""):
        subject.forms["mask"] = form
        try:
            subject(*subject.draw(*lengths), mask=mask)
        except Exception as error:
            subject.forms["why"] = str(error).splitlines()[0][:120]
        else:
            break
    each = random_mask(*mask.shape, 3, 1).to(subject.calls.device) | mask
    for form in ("B,1,L,S", "B,L,S", ""):
        subject.forms["mask of a batch"] = form
        try:
            subject(*subject.draw(*lengths), mask=each)
        except Exception:
            continue
        break
    need(subject.forms["mask"], f"no form of a mask was taken: {subject.forms.get('why')}")


def compared(name: str, moved: Tensor, seen: Tensor, tolerance: float, did: str) -> Found:
    """A finding where hidden keys are seen or visible ones aren't."""
    leaks, blind = ~seen & ~(moved <= tolerance), seen & (moved < 1e-7)
    free = (
        ~torch.eye(*seen.shape[-2:], dtype=torch.bool)
        if seen.shape[-1] == seen.shape[-2]
        else seen | True
    )
    if leaks.any() and bool((moved[seen & free] < 1e-7).all()) and (seen & free).any():
        yield Finding(
            "mask-sense" if name.startswith("mask") else name,
            did,
            "exactly the keys that should be hidden are seen",
            "True and False the other way round",
        )
    elif leaks.any():
        b, i, j = pair(leaks)
        all_seen = bool((moved[~seen] > tolerance).all())
        got = f"output {i} moved by {said(moved[b, i, j].item())} when key {j} changed"
        got += "; no hidden key is hidden" if all_seen else ""
        yield Finding(name, did, got, f"key {j} is hidden from query {i}", f"sequence {b}")
    elif blind.any():
        b, i, j = pair(blind)
        yield Finding(
            name,
            did,
            f"output {i} did not move when key {j} changed",
            "it is visible",
            f"sequence {b}",
        )


@check("mask", "masks-in-practice/#formula", mask_sense="mask-conventions/#conventions")
def mask(subject: Subject) -> Found:
    """A hidden key has no influence, a visible one has some."""
    try_forms(subject)
    for mode, trains in modes(subject):
        moved, seen = masked(subject, plain_mask(subject))
        if trains:
            moved = torch.where(seen, moved.clamp(min=1e-3), moved)  # dropout may hide it
        found = list(
            compared(
                "mask", moved, seen, subject.tolerance, f"in {mode}, a random mask (L, S) was given"
            )
        )
        yield from found
        if found:
            return
    # A kernel that takes keys block by block meets a first block here in which all are hidden.
    did = "a mask (L, S) was given that hides all keys but the last two"
    yield from compared(
        "mask", *masked(subject, plain_mask(subject, keys=2)), subject.tolerance, did
    )


@check("mask-size", "mask-conventions/#fillers")
def mask_size(subject: Subject) -> Found:
    """A hidden key stays hidden however large the scores are."""
    try_forms(subject)
    for size in (30.0, 300.0):
        moved, seen = masked(subject, plain_mask(subject), size=size)
        leaks = ~seen & ~(moved <= subject.tolerance)
        if leaks.any():
            b, i, j = pair(leaks)
            small, seen = masked(subject, plain_mask(subject))
            if not (~seen & ~(small <= subject.tolerance)).any():  # else the check "mask" says it
                yield Finding(
                    "mask-size",
                    f"tokens {size:.0f} times as large, a random mask",
                    f"output {i} moved when hidden key {j} changed",
                    "hidden: fill with -inf, not with a large number",
                    f"sequence {b}",
                )
            return


@check("mask-batch", "masks-in-practice/#per-query")
def mask_batch(subject: Subject) -> Found:
    """Each sequence of a batch has its own mask."""
    try_forms(subject)
    need(subject.forms.get("mask of a batch"), "takes no mask for each sequence")
    shape = plain_mask(subject).shape
    each = random_mask(*shape, 3, 1, seed=5)
    each = with_diagonal(subject, each) if shape[0] == shape[1] else each
    moved, seen = masked(subject, each)
    first = seen[:1].expand_as(seen)
    found = list(
        compared(
            "mask-batch", moved, seen, subject.tolerance, "another mask for each sequence was given"
        )
    )
    if found and torch.equal(moved > subject.tolerance, first):
        found = [
            Finding(
                "mask-batch",
                found[0].did,
                "all sequences follow the mask of the first",
                found[0].expected,
            )
        ]
    yield from found


@check("mask-heads", "shapes-in-depth/#fold")
def mask_heads(subject: Subject) -> Found:
    """Each head of each sequence has its own mask."""
    try_forms(subject)
    c = subject.calls
    need(c.mask_heads, "takes no mask for each head, or mask_heads isn't said")
    rows, columns = plain_mask(subject).shape
    each = random_mask(rows, columns, 3, subject.heads, seed=6)
    if rows == columns:
        each = with_diagonal(subject, each)
    inputs = subject.draw(*((rows, columns) if subject.takes_two else (rows,)), seed=4)
    given = each.to(c.device)
    if subject.is_heads:
        seen = _sees(subject, inputs, given)
    else:
        need(c.weights, "neither heads nor weights are returned")
        weights = subject(*inputs, mask=given, weights=True).weights
        if weights is None or weights.ndim != 4:
            raise Skip("weights of each head aren't returned")
        seen = weights.detach().abs().cpu() > 1e-6
    wrong = seen & ~each
    if wrong.any():
        b, h, i, j = pair(wrong)
        did = "another mask for each sequence and head was given"
        got = f"head {h} of sequence {b} sees key {j} from query {i}"
        yield Finding("mask-heads", did, got, "hidden from this head")


def _sees(subject: Subject, inputs: list[Tensor], mask: Tensor) -> Tensor:
    """Of each head, which outputs move with which keys, ``(B, H, L, S)``."""
    before, moved = subject(*inputs, mask=mask).output, []
    for j in range(inputs[1].shape[-2]):
        key, value = inputs[1].clone(), inputs[2].clone()
        key[..., j, :], value[..., j, :] = 1.5, -1.5
        gap = subject(inputs[0], key, value, mask=mask).output - before
        moved.append(gap.abs().amax(-1) > subject.tolerance)
    return torch.stack(moved, dim=-1).cpu()


@check("mask-and-causal", "masks-in-practice/#formula")
def mask_and_causal(subject: Subject) -> Found:
    """With a mask and causal=True, both hold."""
    try_forms(subject)
    need(causal(subject), "not causal")
    inputs = subject.draw(7, seed=8)
    full = torch.ones(7, 7, dtype=torch.bool, device=subject.calls.device)
    both = with_diagonal(subject, random_mask(7, 7, seed=9)).to(full.device)
    both = full if subject.calls.causal is True else both
    try:
        moved = influence(
            subject, inputs, mask=both, causal=True, where=subject.where, size=2.0
        ).cpu()
    except Exception as error:
        raise Skip(f"refuses both: {str(error).splitlines()[0][:90]}") from error
    seen = (both.cpu() & allowed(subject, 7, 7)).expand_as(moved)
    if not subject.is_heads:
        seen = seen | torch.eye(7, dtype=torch.bool)
    yield from compared(
        "mask-and-causal", moved, seen, subject.tolerance, "a mask was given and causal asked for"
    )


@check("mask-forms", "mask-conventions/#additive")
def mask_forms(subject: Subject) -> Found:
    """A mask of floats, 0 and -inf, does what the booleans do; others are added to the scores."""
    try_forms(subject)
    found: list[Finding] = []
    for options in subject.ways if subject.calls.mask_true != "add" else []:
        found += _as_floats(subject, options)
    yield from found or _added_once(subject)


def _added_once(subject: Subject) -> Found:
    """log 2 added to a key's scores is the same as the key a second time."""
    c = subject.calls
    need(not c.positions and not c.window and not c.sinks and c.causal is not True, "has an order")
    inputs = subject.draw(5, seed=13)
    long = subject.three([torch.cat([x, x[..., 2:3, :]], dim=-2) for x in inputs])
    bias = torch.zeros(5, 5, device=c.device, dtype=c.dtype)
    bias[:, 2] = math.log(2)
    try:
        one = subject(*inputs, mask=bias).output
        other = subject(*long).output[..., :5, :]
    except Exception as error:
        raise Skip(f"takes no floats: {str(error).splitlines()[0][:90]}") from error
    if not (gap := apart(subject, other, one).max().item()) <= subject.tolerance * 5:
        did = "a mask of floats: log 2 for one key, 0 for the others"
        got = f"not as if that key stood there twice: outputs differ by {said(gap)}"
        level = "error" if c.mask in ("attn_mask", "attention_mask") else "note"
        what = "floats are added once, to scores that are scaled"
        yield Finding("mask-forms", did, got, what, level=level)


def _as_floats(subject: Subject, options: dict[str, Any]) -> Found:
    mask = plain_mask(subject)
    inputs = subject.draw(*(mask.shape if subject.takes_two else mask.shape[:1]), seed=10)
    mask = mask.to(subject.calls.device)
    try:
        one = subject(*inputs, mask=mask, **options).output
    except Exception:  # refuses both, in words
        return
    try:
        other = subject(*inputs, mask=subject.added(mask), **options).output
    except Exception as error:
        raise Skip(f"takes no floats: {str(error).splitlines()[0][:90]}") from error
    if not (gap := apart(subject, one, other).max().item()) <= subject.tolerance:
        did = "the same mask as booleans, and as floats 0 and -inf"
        got = f"outputs differ by {said(gap)} of their usual size"
        what = "the same, or an error for floats"
        level = "error" if subject.calls.mask in ("attn_mask", "attention_mask") else "note"
        yield Finding("mask-forms", did, got, what, level=level)  # names that promise floats

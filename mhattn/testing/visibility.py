"""Checks of who sees whom: causal masks, other masks, padding, packs."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from mhattn.testing.calls import Subject
from mhattn.testing.registry import Found, apart, check, influence, need, said
from mhattn.testing.report import Finding

__all__: list[str] = []


def causal(subject: Subject) -> bool:
    """Whether the layer can be asked to be causal, or always is."""
    return bool(subject.calls.causal)


def allowed(
    subject: Subject, rows: int, columns: int, corner: str | None = None, is_causal: bool = True
) -> Tensor:
    """Who may see whom, ``(L, S)``, under the layer's causal mask and window."""
    late = columns - rows if (corner or subject.calls.corner) != "upper left" else 0
    far = torch.arange(rows)[:, None] + late - torch.arange(columns)
    seen = torch.ones(rows, columns, dtype=torch.bool)
    if is_causal:
        seen &= far >= 0
    if subject.calls.window and is_causal:
        seen &= far < subject.calls.window
    elif subject.calls.window:
        seen &= far.abs() < subject.calls.window
    return seen


def modes(subject: Subject) -> Iterator[tuple[str, bool, bool]]:
    """Evaluation, training, and evaluation with gradients off."""
    for name, trains, grads in (
        ("eval()", False, True),
        ("train()", True, True),
        ("eval(), no_grad()", False, False),
    ):
        subject.train(trains)
        with torch.set_grad_enabled(grads):
            yield name, trains, grads
    subject.train(False)


def pair(seen: Tensor) -> tuple[int, ...]:
    """The first place, batch, query and key, that is set."""
    return tuple(seen.nonzero()[0].tolist())


@check("future", "masks-in-practice/#leak")
def future(subject: Subject) -> Found:
    """No output moves when a later token changes."""
    need(causal(subject), "not causal: say causal=True, or the argument's name")
    for mode, _, _ in modes(subject):
        for length in (7, 2, 5, 12, 16, 33):
            inputs = subject.draw(length, seed=length)
            stops = range(1, length) if length < 17 else (1, 16, 32)
            before = subject(*inputs, causal=True).output
            for stop in stops:
                x = inputs[0].clone()
                x[..., stop:, :] = subject.draw(length, seed=99)[0][..., stop:, :]
                others = [x] * 3
                if subject.is_heads:
                    others = [torch.cat([a[..., :stop, :], b[..., stop:, :]], -2)
                              for a, b in zip(inputs, subject.draw(length, seed=99), strict=True)]  # fmt: skip
                moved = apart(subject, before, subject(*others, causal=True).output)[:, :stop]
                if moved.max() > subject.tolerance:
                    b, i = pair(moved == moved.max())
                    got = f"output {i} moved by {said(moved.max().item())} of its usual size"
                    did = f"in {mode}, tokens from {stop} on were replaced in texts of {length}"
                    yield Finding(
                        "future", did, got, "outputs before them stay as they are", f"sequence {b}"
                    )
                    return


@check("past", "masks-in-practice/#causal")
def past(subject: Subject) -> Found:
    """Each output depends on every token that it may see, itself among them."""
    for is_causal in (True, False):
        if is_causal != causal(subject) and not (
            is_causal is False and isinstance(subject.calls.causal, str)
        ):
            continue
        for length in (7, 2):
            inputs = subject.draw(length, seed=1)
            where = "keys" if subject.is_heads else "self"
            moved = influence(subject, inputs, causal=is_causal, where=where, size=2.0)
            seen = allowed(subject, length, length, is_causal=is_causal)
            blind = seen & (moved < 1e-7)
            if blind.any():
                b, i, j = pair(blind)
                yield Finding(
                    "past", f"token {j} was replaced", f"output {i} did not move",
                    f"query {i} sees key {j}", f"sequence {b}, length {length}, causal={is_causal}",
                )  # fmt: skip
                return
            if subject.calls.window and (far := ~seen & (moved > subject.tolerance)).any():
                b, i, j = pair(far)
                yield Finding(
                    "past", f"token {j} was replaced", f"output {i} moved",
                    f"a window of {subject.calls.window} keys ends before it", f"sequence {b}, length {length}",
                )  # fmt: skip
                return


@check("corner", "mask-conventions/#alignment")
def corner(subject: Subject) -> Found:
    """With fewer queries than keys the causal mask is aligned as the layer says."""
    need(
        isinstance(subject.calls.causal, str) or (subject.calls.causal and subject.takes_two),
        "not causal",
    )
    need(subject.takes_two and subject.calls.corner, "one sequence only")
    inputs = subject.draw(3, 7, seed=2)
    moved = (
        influence(subject, inputs, causal=True, where="keys", size=2.0).amax(0) > subject.tolerance
    )
    right = allowed(subject, 3, 7)
    if not torch.equal(moved, right):
        other = next(
            (
                name
                for name in ("upper left", "lower right")
                if torch.equal(moved, allowed(subject, 3, 7, name))
            ),
            "neither",
        )
        yield Finding(
            "corner", "3 queries, 7 keys, causal: each key was replaced",
            f"query 0 sees keys {moved[0].nonzero().flatten().tolist()}, as with the corner {other}",
            f"keys {right[0].nonzero().flatten().tolist()}: {subject.calls.corner}",
        )  # fmt: skip


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
    if is_causal or subject.calls.causal is True:
        seen &= allowed(subject, rows, columns)
    if not subject.takes_two:  # a token is its own query as well
        seen |= torch.eye(rows, columns, dtype=torch.bool)
    return moved, seen


def with_diagonal(subject: Subject, mask: Tensor) -> Tensor:
    """A layer of one sequence, or a causal one: each token sees itself."""
    return mask | torch.eye(*mask.shape[-2:], dtype=torch.bool)


def plain_mask(subject: Subject) -> Tensor:
    rows, columns = (5, 8) if subject.takes_two and subject.calls.causal is not True else (7, 7)
    mask = random_mask(rows, columns)
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
        yield Finding("mask-sense" if name.startswith("mask") else name, did,
                      "exactly the keys that should be hidden are seen", "True and False the other way round")  # fmt: skip
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


@check("mask", "masks-in-practice/#formula")
def mask(subject: Subject) -> Found:
    """A hidden key has no influence, a visible one has some."""
    try_forms(subject)
    for mode, trains, _ in modes(subject):
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


@check("mask-sense", "mask-conventions/#conventions")
def mask_sense(subject: Subject) -> Found:
    """True means in the mask what the layer's caller says."""
    try_forms(subject)
    yield from ()  # found by the check "mask"


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
                    "mask-size", f"tokens {size:.0f} times as large, a random mask",
                    f"output {i} moved when hidden key {j} changed", "hidden: fill with -inf, not with a large number",
                    f"sequence {b}",
                )  # fmt: skip
            return


@check("mask-batch", "masks-in-practice/#per-query")
def mask_batch(subject: Subject) -> Found:
    """Each sequence of a batch has its own mask."""
    try_forms(subject)
    need(subject.forms.get("mask of a batch"), "takes no mask for each sequence")
    shape = plain_mask(subject).shape
    each = (
        with_diagonal(subject, random_mask(*shape, 3, 1, seed=5))
        if shape[0] == shape[1]
        else random_mask(*shape, 3, 1, seed=5)
    )
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
    each = random_mask(rows, columns, 3, c.num_heads or 1, seed=6)
    if rows == columns:
        each = with_diagonal(subject, each)
    inputs = subject.draw(*((rows, columns) if subject.takes_two else (rows,)), seed=4)
    given = each.to(c.device)
    if subject.is_heads:
        before = subject(*inputs, mask=given).output
        for j in range(columns):
            key, value = inputs[1].clone(), inputs[2].clone()
            key[..., j, :], value[..., j, :] = 1.5, -1.5
            gap = (
                (subject(inputs[0], key, value, mask=given).output - before).abs().amax(-1).cpu()
            )  # (B, H, L)
            wrong = (gap > subject.tolerance) & ~each[..., j]
            if c.causal is True:
                wrong &= allowed(subject, rows, columns)[:, j]
            if wrong.any():
                b, h, i = pair(wrong)
                yield Finding("mask-heads", "another mask for each sequence and head was given",
                              f"head {h} of sequence {b} sees key {j} from query {i}", "hidden from this head")  # fmt: skip
                return
        return
    need(c.weights, "neither heads nor weights are returned")
    weights = subject(*inputs, mask=given, weights=True).weights
    need(weights is not None and weights.ndim == 4, "weights of each head aren't returned")
    assert weights is not None
    wrong = (weights.detach().cpu().abs() > 1e-6) & ~each
    if wrong.any():
        b, h, i, j = pair(wrong)
        yield Finding("mask-heads", "another mask for each sequence and head was given",
                      f"head {h} of sequence {b} has weight {said(weights[b, h, i, j].item())} at ({i}, {j})", "0: hidden")  # fmt: skip


@check("mask-and-causal", "masks-in-practice/#formula")
def mask_and_causal(subject: Subject) -> Found:
    """With a mask and causal=True, both hold."""
    try_forms(subject)
    need(causal(subject), "not causal")
    inputs = subject.draw(7, seed=8)
    full = torch.ones(7, 7, dtype=torch.bool, device=subject.calls.device)
    both = (
        full
        if subject.calls.causal is True
        else random_mask(7, 7, seed=9).to(full.device)
        | torch.eye(7, dtype=torch.bool, device=full.device)
    )
    where = "keys" if subject.is_heads else "self"
    try:
        moved = influence(subject, inputs, mask=both, causal=True, where=where, size=2.0).cpu()
    except Exception as error:
        need(False, f"refuses both: {str(error).splitlines()[0][:90]}")
    seen = (both.cpu() & allowed(subject, 7, 7)).expand_as(moved)
    if where == "self":
        seen = seen | torch.eye(7, dtype=torch.bool)
    yield from compared(
        "mask-and-causal", moved, seen, subject.tolerance, "a mask was given and causal asked for"
    )


@check("mask-forms", "mask-conventions/#additive")
def mask_forms(subject: Subject) -> Found:
    """A mask of floats, 0 and -inf, does what the booleans do."""
    try_forms(subject)
    need(subject.calls.mask_true != "add", "takes floats only")
    mask = plain_mask(subject)
    inputs = subject.draw(*(mask.shape if subject.takes_two else mask.shape[:1]), seed=10)
    mask = mask.to(subject.calls.device)
    added = torch.zeros(mask.shape, dtype=subject.calls.dtype, device=mask.device).masked_fill(
        ~mask, -math.inf
    )
    one = subject(*inputs, mask=mask).output
    try:
        other = subject(*inputs, mask=added).output
    except Exception as error:
        need(False, f"takes no floats: {str(error).splitlines()[0][:90]}")
    if not (gap := apart(subject, one, other).max().item()) <= subject.tolerance:
        yield Finding("mask-forms", "the same mask as booleans, and as floats 0 and -inf",
                      f"outputs differ by {said(gap)} of their usual size", "the same, or an error for floats")  # fmt: skip


@check("empty-rows", "mask-conventions/#empty")
def empty_rows(subject: Subject) -> Found:
    """A query that sees nothing spoils no number and no gradient."""
    c = subject.calls
    need(c.mask or c.padding, "takes neither mask nor padding")
    inputs = [x.requires_grad_() for x in subject.draw(5, seed=11)]
    if c.mask:
        try_forms(subject)
        hidden = torch.ones(5, 5, dtype=torch.bool).tril()
        hidden[2] = False
        asked = {"mask": hidden.to(c.device)}
        empty = (slice(None), 2)
    else:
        real = torch.ones(3, 5, dtype=torch.bool)
        real[1] = False
        asked, empty = {"padding": real.to(c.device)}, (1, slice(None))
    output = subject(*inputs, **asked).output
    if not output.requires_grad:
        output = output + 0 * sum(x.sum() for x in inputs)
    tokens = output.transpose(1, 2).flatten(2) if subject.is_heads else output  # (B, L, ...)
    others = torch.ones(3, 5, dtype=torch.bool)
    others[empty] = False
    did = (
        "a mask hides every key from query 2" if c.mask else "all tokens of sequence 1 are padding"
    )
    level = "note" if c.empty_rows == "any" else "error"
    if not tokens[others].isfinite().all():
        yield Finding(
            "empty-rows", did, "other outputs are NaN", "other outputs are as before", level="error"
        )
        return
    if not tokens[empty].isfinite().all():
        yield Finding("empty-rows", did, "its output is NaN", "zeros, or an error", level=level)
        return
    tokens[others].square().sum().backward()
    if any(not x.grad.isfinite().all() for x in inputs if x.grad is not None):
        yield Finding(
            "empty-rows", did, "gradients of other tokens are NaN", "finite gradients", level=level
        )
        return
    with torch.no_grad():
        changed = [x.detach().clone() for x in inputs]
        for x in {id(x): x for x in changed[1:]}.values():
            x += 1.0
        if not subject.takes_two:
            return
        moved = apart(subject, subject(inputs[0], *changed[1:], **asked).output, output)[
            others.logical_not()
        ]
    if moved.max() > subject.tolerance:
        worse = "error" if c.empty_rows == "zeros" else "note"
        yield Finding("empty-rows", did, f"its output moves by {said(moved.max().item())} with the hidden values",
                      "zeros: no hidden value reaches it", level=worse)  # fmt: skip

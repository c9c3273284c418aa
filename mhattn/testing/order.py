"""Checks of who sees whom without a mask: causal order, lengths, batches, other queries."""

import copy

import torch
from torch import Tensor

from mhattn.testing.probes import allowed, apart, causal, influence, modes, pair, said
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Subject

__all__: list[str] = []


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
                    others = [
                        torch.cat([a[..., :stop, :], b[..., stop:, :]], -2)
                        for a, b in zip(inputs, subject.draw(length, seed=99), strict=True)
                    ]
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
                    "past",
                    f"token {j} was replaced",
                    f"output {i} did not move",
                    f"query {i} sees key {j}",
                    f"sequence {b}, length {length}, causal={is_causal}",
                )
                return
            if subject.calls.window and (far := ~seen & (moved > subject.tolerance)).any():
                b, i, j = pair(far)
                yield Finding(
                    "past",
                    f"token {j} was replaced",
                    f"output {i} moved",
                    f"a window of {subject.calls.window} keys ends before it",
                    f"sequence {b}, length {length}",
                )
                return


def keys_of(seen: Tensor) -> list[int]:
    """The keys that the first query sees."""
    return [j for j, sees in enumerate(seen[0].tolist()) if sees]


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
            "corner",
            "3 queries, 7 keys, causal: each key was replaced",
            f"query 0 sees keys {keys_of(moved)}, as with the corner {other}",
            f"keys {keys_of(right)}: {subject.calls.corner}",
        )


@check("lengths", "cross-attention/#lengths")
def lengths(subject: Subject) -> Found:
    """Any number of queries and keys is taken, and no call depends on an earlier one."""
    pairs = [(5, 8), (8, 5), (1, 6), (1, 1)] if subject.takes_two else [(1,), (8,), (5,)]
    for each in pairs:
        did = f"{each[0]} queries, {each[-1]} keys"
        try:
            found = subject(*subject.draw(*each, seed=1)).output
        except Exception as error:
            yield Finding("lengths", did, f"{type(error).__name__}: {error}"[:150], "an output")
            return
        if found.shape[-2] != each[0]:
            got = f"{found.shape[-2]} outputs"
            yield Finding("lengths", did, got, f"{each[0]} outputs")
            return
    if not isinstance(subject.layer, torch.nn.Module):
        return
    for options in subject.ways:
        fresh = copy.deepcopy(subject.layer)
        for length in (6, 6, 9, 3, 9, 6):
            inputs = subject.draw(length, batch=2, seed=length)
            alone = Subject(copy.deepcopy(fresh), subject.calls, subject.forms)
            one, other = alone(*inputs, **options).output, subject(*inputs, **options).output
            gap = apart(subject, one, other).max().item()
            if not gap <= subject.tolerance:
                did = f"length {length} after other lengths, and in a fresh copy"
                got = f"outputs differ by {said(gap)} of their usual size"
                yield Finding("lengths", did, got, "a call knows nothing of earlier ones")
                return


@check("batch", "shapes-in-depth/#mixing")
def batch(subject: Subject) -> Found:
    """A sequence's output depends on no other sequence of the batch."""
    for mode, _, _ in modes(subject):
        inputs = subject.draw(5, seed=2)
        others = subject.draw(5, seed=3)
        mixed = [torch.cat([a[:1], b[1:2], a[2:]]) for a, b in zip(inputs, others, strict=True)]
        mixed = mixed if subject.is_heads else [mixed[0]] * 3
        for options in subject.ways:
            gap = apart(
                subject, subject(*inputs, **options).output, subject(*mixed, **options).output
            )
            gap[1] = 0
            if gap.max() > subject.tolerance:
                b, i = pair(gap == gap.max())
                yield Finding(
                    "batch",
                    f"in {mode}, sequence 1 of 3 was replaced",
                    f"output {i} of sequence {b} moved by {said(gap.max().item())}",
                    "the others stay",
                )
                return
    inputs = subject.draw(5, seed=2)
    whole = subject(*inputs).output
    for b in range(3):
        alone = subject(*subject.three([x[b : b + 1] for x in inputs])).output
        away = apart(subject, whole[b : b + 1], alone).max().item()
        if not away <= subject.tolerance:
            yield Finding(
                "batch",
                f"sequence {b} alone, and in a batch of 3",
                f"outputs differ by {said(away)}",
                "the same to rounding",
            )
            return


@check("order", "cross-attention/#order")
def order(subject: Subject) -> Found:
    """Without positions, tokens in another order give the same outputs in that order."""
    c = subject.calls
    need(not c.positions, "the layer has positions")
    need(not c.window, "the layer has a window")
    shuffled = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    inputs = subject.draw(6, seed=4)
    if c.causal is True:
        shuffled = torch.cat([shuffled[shuffled != 5], torch.tensor([5])])
    moved = [x[..., shuffled, :] for x in inputs]
    moved = moved if subject.is_heads else [moved[0]] * 3
    one, other = subject(*inputs).output[..., shuffled, :], subject(*moved).output
    gap = apart(subject, one, other)[:, -1 if c.causal is True else slice(None)].max().item()
    if not gap <= subject.tolerance:
        yield Finding(
            "order",
            "the tokens were given in another order",
            f"outputs differ by {said(gap)}",
            "the same in that order; are heads split by view alone, or positions not declared?",
        )


@check("queries-apart", "cross-attention/#formula")
def queries_apart(subject: Subject) -> Found:
    """A query's output depends on no other query."""
    need(subject.takes_two, "queries and keys come from one sequence")
    need(subject.calls.causal is not True, "always causal")
    inputs = subject.draw(4, 7, seed=5)
    moved = influence(subject, inputs, where="queries", size=2.0)
    wrong = (moved > subject.tolerance) & ~torch.eye(4, dtype=torch.bool)
    if wrong.any():
        b, i, j = pair(wrong)
        yield Finding(
            "queries-apart",
            f"query {j} was replaced",
            f"output {i} moved by {said(moved[b, i, j].item())}",
            "softmax goes over keys: queries don't compete",
            f"sequence {b}",
        )

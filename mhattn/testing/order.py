"""Checks of who sees whom without a mask: causal order, lengths, batches, other queries."""

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.far import is_blind, moved_at_once
from mhattn.testing.probes import allowed, apart, causal, influence, modes, pair, said
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Skip, Subject, is_of_layer

__all__: list[str] = []

EARLIER = "it depends on an earlier call"
UNSAID = "no output depends on a later token: the layer looks causal"


def unsaid(subject: Subject) -> Finding | None:
    """A layer that is causal, and was not said to be."""
    c = subject.calls
    if c.causal is not False or c.seen or c.outputs:
        return None
    inputs = subject.draw(5, seed=1)
    moved = influence(subject, inputs, where=subject.where, size=2.0)
    seen = allowed(subject, 5, 5).to(moved.device)
    # All earlier tokens move an output and no later one does: no layer is like that by chance.
    if not (moved[:, seen] > 1e-9).all() or (moved[:, ~seen] > subject.tolerance).any():
        return None
    what = "outputs that later tokens move; if it is meant to be causal, say causal=True"
    return Finding("past", "each of 5 tokens was replaced", UNSAID, what)


@check("future", "masks-in-practice/#leak")
def future(subject: Subject) -> Found:
    """No output moves when a later token changes."""
    need(causal(subject), "not causal: say causal=True, or the argument's name")
    for mode, trains in modes(subject):
        # Short texts, and some longer than 16 and 32 tokens: behind a block of a kernel a leak may
        # begin.
        for length in (7, 2, 5, 12, 16, 33, 60):
            stops = list(range(1, length) if length < 17 else (1, 16, 32, *range(33, length, 8)))
            # What is dropped in training is the same in the same place of a batch alone.
            number = 1 if trains else 6
            before = subject(*subject.draw(length, seed=length), causal=True).output.detach()
            for first in range(0, len(stops), number):
                if found := _leak(subject, before, stops[first : first + number], mode):
                    yield found
                    return


def _leak(subject: Subject, before: Tensor, stops: list[int], mode: str) -> Finding | None:
    """An output that moves when all tokens from one on are others; for each stop in one call."""
    length = before.shape[-2]
    inputs, later = (subject.draw(length, seed=seed) for seed in (length, 99))
    pairs = list(zip(inputs, later, strict=True))
    others = [
        torch.cat([torch.cat([a[..., :stop, :], b[..., stop:, :]], -2) for stop in stops])
        for a, b in pairs
    ]
    after = subject(*subject.three(others), causal=True).output
    for stop, part in zip(stops, after.chunk(len(stops)), strict=True):
        moved = apart(subject, before, part)[:, :stop]
        if moved.max() > subject.tolerance:
            b, i = pair(moved == moved.max())
            got = f"output {i} moved by {said(moved.max().item())} of its usual size"
            did = f"in {mode}, tokens from {stop} on were replaced in texts of {length}"
            what = "outputs before them stay as they are"
            return Finding("future", did, got, what, f"sequence {b}")
    return None


def _beginning(subject: Subject) -> Found:
    """The beginning of a text alone gives the beginning of the outputs, however long the text is.

    Tokens that are replaced are as many as before; a scale or a mask made from their number is not
    seen then.
    """
    inputs = subject.draw(67, batch=2, seed=3)
    for length in (37, 13, 2):
        part = subject.three([x[..., :length, :].contiguous() for x in inputs])
        try:
            with torch.no_grad():
                whole, alone = (subject(*x, causal=True).output for x in (inputs, part))
        except Exception as error:  # no layer has to take a text as long as this
            if not (isinstance(error, Skip) or is_of_layer(error)):
                raise
            return
        gap = apart(subject, whole[..., :length, :], alone).max().item()
        if not gap <= subject.tolerance:
            did, got = f"the first {length} of 67 tokens alone", f"outputs differ by {said(gap)}"
            yield Finding("future", did, got, "the same: what comes later changes nothing")
            return


@check("past", "masks-in-practice/#causal")
def past(subject: Subject) -> Found:
    """Each output depends on every token that it may see, itself among them."""
    always = subject.calls.causal is True
    for options in subject.ways:
        is_causal = always or bool(options)
        for length in (7, 2):
            inputs = subject.draw(length, seed=1)
            moved = influence(subject, inputs, where=subject.where, size=2.0, **options).cpu()
            if found := list(_unseen(subject, moved, (length,), is_causal, options)):
                yield from found
                return
    found = list(_long(subject))
    yield from found or (_beginning(subject) if causal(subject) else ())


def _long(subject: Subject) -> Found:
    """The same in longer texts of prime lengths: no block, chunk or cap is as long as they are."""
    c, always = subject.calls, subject.calls.causal is True
    texts: list[tuple[tuple[int, ...], dict[str, Any]]]
    texts = [((length,), options) for length in (37, 67) for options in subject.ways]
    if subject.takes_two and not (always or c.window or c.seen):
        texts += [((5, 37), {}), ((37, 5), {})]
    for lengths, options in texts:
        try:
            moved = moved_at_once(subject, lengths, **options).cpu()
        except Exception as error:  # no layer has to take texts as long as these
            if not (isinstance(error, Skip) or is_of_layer(error)):
                raise
            return
        if found := list(_unseen(subject, moved[None], lengths, always or bool(options), options)):
            yield from found
            return


def _unseen(
    subject: Subject,
    moved: Tensor,
    lengths: tuple[int, ...],
    is_causal: bool,
    options: dict[str, Any],
) -> Found:
    """A token that should be seen and isn't, or is behind a window and seen."""
    c, crossed = subject.calls, len(lengths) == 2
    rows, keys = lengths[0], lengths[-1]
    seen = allowed(subject, rows, keys, is_causal=is_causal)
    counts = f"{rows} queries, {keys} keys" if crossed else f"length {keys}"
    case = f"{counts}, causal={is_causal}"
    # Not the tolerance: a key with a weight of a millionth is seen all the same.
    blind = (seen & (moved < (1e-9 if len(moved) > 1 else 1e-5))).nonzero()
    cross = crossed or subject.is_heads
    for b, i, j in blind[[0, len(blind) // 2, -1]].tolist() if len(blind) else ():
        if is_blind(subject, lengths, i, j, cross=cross, **options):
            did, got = f"token {j} was replaced", f"output {i} did not move"
            yield Finding("past", did, got, f"query {i} sees key {j}", f"sequence {b}, {case}")
            return
    far = ~seen & (moved > subject.tolerance)
    if not cross:
        far &= ~torch.eye(*seen.shape, dtype=torch.bool)  # its own query
    if (c.window or c.seen) and far.any():
        b, i, j = pair(far)
        did, got = f"token {j} was replaced", f"output {i} moved"
        what = f"a window of {c.window} keys ends before it"
        what = f"seen({i}, {j}) is False" if c.seen else what
        yield Finding("past", did, got, what, f"sequence {b}, {case}")


def keys_of(seen: Tensor) -> list[int]:
    """The keys that the first query sees."""
    return [j for j, sees in enumerate(seen[0].tolist()) if sees]


@check("corner", "mask-conventions/#alignment")
def corner(subject: Subject) -> Found:
    """With fewer queries than keys the causal mask is aligned as the layer says."""
    need(causal(subject), "not causal: say causal=True, or the argument's name")
    need(subject.takes_two, "queries and keys come from one sequence")
    need(subject.calls.corner, "corner=None: any will do")
    inputs = subject.draw(3, 7, seed=2)
    moved = (
        influence(subject, inputs, causal=True, where="keys", size=2.0).amax(0) > subject.tolerance
    )
    right = allowed(subject, 3, 7)
    if not torch.equal(moved, right):
        corners = ("upper left", "lower right")
        fits = [name for name in corners if torch.equal(moved, allowed(subject, 3, 7, name))]
        did = "3 queries, 7 keys, causal: each key was replaced"
        got = f"query 0 sees keys {keys_of(moved)}, "
        got += f"as with the corner {fits[0]}" if fits else "who sees whom fits neither corner"
        yield Finding("corner", did, got, f"keys {keys_of(right)}: {subject.calls.corner}")
        return
    if subject.calls.corner == "lower right":
        inputs = subject.draw(7, 7, seed=2)
        whole = subject(*inputs, **subject.usual).output[..., -3:, :]
        last = subject(inputs[0][..., -3:, :], *inputs[1:], **subject.usual).output
        gap = apart(subject, whole, last).max().item()
        if not gap <= subject.tolerance:
            did = "the last 3 of 7 queries alone, and among all"
            yield Finding("corner", did, f"outputs differ by {said(gap)}", "distances are the same")


@check("lengths", "cross-attention/#lengths")
def lengths(subject: Subject) -> Found:
    """Any number of queries and keys is taken, and no call depends on an earlier one."""
    pairs = [(5, 8), (8, 5), (1, 6), (1, 1)] if subject.takes_two else [(1,), (8,), (5,)]
    for each in pairs:
        did = f"{each[0]} queries, {each[-1]} keys"
        try:
            found = subject(*subject.draw(*each, seed=1)).output
        except Skip:  # it is called with one length alone
            raise
        except Exception as error:
            # To refuse in words what one doesn't do is no mistake; to break is one.
            refused = isinstance(error, ValueError | NotImplementedError)
            level = "note" if refused else "error"
            got = f"{type(error).__name__}: {error}"[:150]
            yield Finding("lengths", did, got, "an output", level=level)
            if not refused:
                return
            continue
        if found.shape[-2] != (number := subject.calls.outputs or each[0]):
            got = f"{found.shape[-2]} outputs"
            yield Finding("lengths", did, got, f"{number} outputs")
            return
    if not isinstance(subject.layer, nn.Module):
        return
    yield from _alone(subject)
    yield from _kept(subject)


def _alone(subject: Subject) -> Found:
    """One token alone gives what it gives beside others that are the same: weights sum to one."""
    c = subject.calls
    if c.inputs != "x" or c.outputs or c.sinks or c.positions == "absolute" or subject.is_block:
        return
    one = subject.draw(1, seed=6)[0]
    for options in subject.ways:
        several = subject(one.expand(-1, 6, -1).contiguous(), **options).output
        # Where they don't give the same to each other, or where two of them give something else, as
        # beside a key of the layer's own, it is no matter of one token.
        two = subject(one.expand(-1, 2, -1).contiguous(), **options).output
        others = torch.cat([several, two], dim=1)
        if apart(subject, others, others[:, :1].expand_as(others)).max() > subject.tolerance:
            return
        gap = apart(subject, several[:, :1], subject(one, **options).output).max().item()
        if not gap <= subject.tolerance:
            did, got = "one token alone, and six times", f"outputs differ by {said(gap)}"
            yield Finding("lengths", did, got, "the same: all weights sum to one")
            return


def _kept(subject: Subject) -> Found:
    """Calls of several lengths, beside a copy that has never been called.

    A table, a mask or keys show that a call has left behind. Tokens are others each time, also
    where lengths are the same; some layers keep what they have computed without gradients alone.
    """
    for options, grads in itertools.product(subject.ways, (True, False)):
        for seed, length in enumerate((6, 6, 9, 3, 9, 6)):
            inputs = subject.draw(length, batch=2, seed=30 + seed)
            with torch.set_grad_enabled(grads):
                one = subject.fresh()(*inputs, **options).output
                other = subject(*inputs, **options).output
            gap = apart(subject, one, other).max().item()
            if not gap <= subject.tolerance:
                did = f"length {length} after other lengths, and in a fresh copy"
                got = f"{EARLIER}: outputs differ by {said(gap)}"
                yield Finding("lengths", did, got, "a call knows nothing of earlier ones")
                return


@check("batch", "shapes-in-depth/#mixing")
def batch(subject: Subject) -> Found:
    """A sequence's output depends on no other sequence of the batch."""
    for mode, _ in modes(subject):
        inputs = subject.draw(5, seed=2)
        others = subject.draw(5, seed=3)
        mixed = [torch.cat([a[:1], b[1:2], a[2:]]) for a, b in zip(inputs, others, strict=True)]
        mixed = subject.three(mixed)
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
    for number, several in ((3, (0, 1, 2)), (11, (0, 7, 8, 10))):
        inputs = subject.draw(5, seed=2, batch=number)
        whole = subject(*inputs).output
        for b in several:
            alone = subject(*subject.three([x[b : b + 1] for x in inputs])).output
            away = apart(subject, whole[b : b + 1], alone).max().item()
            if not away <= subject.tolerance:
                did, got = f"sequence {b} alone, and in a batch of {number}", f"{said(away)}"
                yield Finding("batch", did, f"outputs differ by {got}", "the same to rounding")
                return


@check("order", "cross-attention/#order")
def order(subject: Subject) -> Found:
    """Without positions, tokens in another order give the same outputs in that order."""
    c = subject.calls
    need(not c.positions, "the layer has positions")
    need(not c.window and not c.seen, "the layer has a window, or seen")
    shuffled = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    inputs = subject.draw(6, seed=4)
    if c.causal is True:
        # Of a causal layer, the last output alone sees all tokens: its own token keeps its place.
        shuffled = torch.cat([shuffled[shuffled != 5], torch.tensor([5])])
    moved = subject.three([x[..., shuffled, :] for x in inputs])
    one, other = subject(*inputs).output, subject(*moved).output
    one = one if c.outputs else one[..., shuffled, :]
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

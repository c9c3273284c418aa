"""Checks of sequences: padding, packs, batches, order, lengths, caches, positions."""

import copy
from typing import Any

import torch
from torch import Tensor

from mhattn.testing.calls import Subject
from mhattn.testing.registry import Found, apart, check, influence, need, said
from mhattn.testing.report import Finding
from mhattn.testing.visibility import causal, modes, pair

__all__: list[str] = []

LENGTHS = (7, 4, 5)


@check("lengths", "cross-attention/#lengths")
def lengths(subject: Subject) -> Found:
    """Any number of queries and keys is taken, and no call depends on an earlier one."""
    pairs = [(5, 8), (8, 5), (1, 6), (1, 1)] if subject.takes_two else [(1,), (8,), (5,)]
    for each in pairs:
        inputs = subject.draw(*each, seed=1)
        try:
            found = subject(*inputs).output
        except Exception as error:
            yield Finding(
                "lengths",
                f"{each[0]} queries, {each[-1]} keys",
                f"{type(error).__name__}: {error}"[:150],
                "an output",
            )
            return
        if found.shape[-2] != each[0]:
            yield Finding(
                "lengths",
                f"{each[0]} queries, {each[-1]} keys",
                f"{found.shape[-2]} outputs",
                f"{each[0]} outputs",
            )
            return
    asked = {"causal": True} if isinstance(subject.calls.causal, str) else {}
    layer = subject.layer
    fresh = (
        Subject(copy.deepcopy(layer), subject.calls)
        if isinstance(layer, torch.nn.Module)
        else subject
    )
    for each in ((6,), (6,), (9,), (3,), (9,), (6,)):
        inputs = subject.draw(*each, batch=2, seed=each[0])
        alone = (
            Subject(copy.deepcopy(fresh.layer), subject.calls) if fresh is not subject else subject
        )
        gap = (
            apart(subject, alone(*inputs, **asked).output, subject(*inputs, **asked).output)
            .max()
            .item()
        )
        if not gap <= subject.tolerance:
            yield Finding("lengths", f"length {each[0]} after other lengths, and in a fresh copy",
                          f"outputs differ by {said(gap)} of their usual size", "a call knows nothing of earlier ones")  # fmt: skip
            return


@check("batch", "shapes-in-depth/#mixing")
def batch(subject: Subject) -> Found:
    """A sequence's output depends on no other sequence of the batch."""
    asked = {"causal": True} if isinstance(subject.calls.causal, str) else {}
    for mode, _, _ in modes(subject):
        inputs = subject.draw(5, seed=2)
        others = subject.draw(5, seed=3)
        mixed = [torch.cat([a[:1], b[1:2], a[2:]]) for a, b in zip(inputs, others, strict=True)]
        mixed = mixed if subject.is_heads else [mixed[0]] * 3
        for options in [{}, asked] if asked else [{}]:
            gap = apart(
                subject, subject(*inputs, **options).output, subject(*mixed, **options).output
            )
            gap[1] = 0
            if gap.max() > subject.tolerance:
                b, i = pair(gap == gap.max())
                yield Finding("batch", f"in {mode}, sequence 1 of 3 was replaced",
                              f"output {i} of sequence {b} moved by {said(gap.max().item())}", "the others stay")  # fmt: skip
                return
    whole = subject(*inputs).output
    for b in range(3):
        alone = subject(
            *([x[b : b + 1] for x in inputs] if subject.is_heads else [inputs[0][b : b + 1]] * 3)
        ).output
        gap = apart(subject, whole[b : b + 1], alone).max().item()
        if not gap <= subject.tolerance:
            yield Finding(
                "batch",
                f"sequence {b} alone, and in a batch of 3",
                f"outputs differ by {said(gap)}",
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
        yield Finding("order", "the tokens were given in another order", f"outputs differ by {said(gap)}",
                      "the same outputs in that order: heads split by view alone, or positions that weren't declared (positions=...)")  # fmt: skip


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
        yield Finding("queries-apart", f"query {j} was replaced", f"output {i} moved by {said(moved[b, i, j].item())}",
                      "softmax goes over keys: queries don't compete", f"sequence {b}")  # fmt: skip


def padded(subject: Subject) -> tuple[list[Tensor], Tensor]:
    """A batch of three lengths, and which of its tokens are real."""
    real = torch.arange(7) < torch.tensor(LENGTHS)[:, None]
    return subject.draw(7, seed=6), real.to(subject.calls.device)


def garbage(subject: Subject, inputs: list[Tensor], real: Tensor) -> list[Tensor]:
    """The same batch with other tokens where there is padding."""
    other = subject.draw(7, seed=12, size=10.0)
    keep = (real[:, None] if subject.is_heads else real)[..., None]
    changed = [torch.where(keep, a, b) for a, b in zip(inputs, other, strict=True)]
    return changed if subject.is_heads else [changed[0]] * 3


@check("padding", "masks-in-practice/#padding")
def padding(subject: Subject) -> Found:
    """Padding has no influence on real tokens, and real tokens keep theirs."""
    need(subject.calls.padding, "takes no padding mask")
    asked = {"causal": True} if isinstance(subject.calls.causal, str) else {}
    for options in [{}, asked] if asked else [{}]:
        for mode, trains, _ in modes(subject):
            for side in ("right", "left"):
                inputs, real = padded(subject)
                if side == "left":
                    real = real.flip(-1)
                    if (
                        options or subject.calls.causal is True
                    ) and subject.calls.empty_rows != "any":
                        pass
                changed = garbage(subject, inputs, real)
                one = subject(*inputs, padding=real, **options).output
                other = subject(*changed, padding=real, **options).output
                moved = torch.where(real, apart(subject, one, other), 0)
                if not moved.max() <= subject.tolerance:
                    b, i = pair(moved == moved.max())
                    plain = torch.where(
                        real, apart(subject, subject(*inputs, **options).output, one), 0
                    )
                    got = f"output {i} of sequence {b} moved by {said(moved.max().item())}"
                    got += (
                        "; the padding mask changes nothing"
                        if plain.max() <= subject.tolerance
                        else ""
                    )
                    yield Finding(
                        "padding",
                        f"in {mode}, the padding on the {side} was replaced",
                        got,
                        "real tokens stay as they are",
                    )
                    return
        if side == "left":
            inputs, real = padded(subject)
            where = "keys" if subject.is_heads else "self"
            moved = influence(subject, inputs, padding=real, where=where, size=2.0, **options)
            may = real[:, None] & real[:, :, None]
            if options or subject.calls.causal is True:
                may = may & torch.ones(7, 7, dtype=torch.bool, device=may.device).tril()
            if subject.calls.window:
                far = torch.arange(7)[:, None] - torch.arange(7)
                may = may & (far.abs() < subject.calls.window).to(may.device)
            blind = may & (moved < 1e-7)
            if blind.any():
                b, i, j = pair(blind)
                yield Finding("padding", f"real token {j} was replaced", f"real output {i} did not move",
                              "real tokens see each other", f"sequence {b}, causal={bool(options)}")  # fmt: skip
                return
    if subject.calls.positions == "absolute":
        return
    inputs, real = padded(subject)
    whole = subject(*inputs, padding=real).output
    for b, length in enumerate(LENGTHS):
        short = [x[b : b + 1, ..., :length, :] for x in inputs]
        alone = subject(*(short if subject.is_heads else [short[0]] * 3)).output
        gap = apart(subject, alone, whole[b : b + 1, ..., :length, :]).max().item()
        if not gap <= subject.tolerance:
            yield Finding("padding", f"sequence {b} alone, and padded in a batch", f"real outputs differ by {said(gap)}",
                          "the same to rounding")  # fmt: skip
            return


@check("padding-gradient", "gradients/#hidden")
def padding_gradient(subject: Subject) -> Found:
    """Padding gets no gradient from real tokens, and gives none."""
    need(subject.calls.padding, "takes no padding mask")
    inputs, real = padded(subject)
    leaves = [x.clone().requires_grad_() for x in inputs]
    leaves = leaves if subject.is_heads else [leaves[0]] * 3
    output = subject(*leaves, padding=real).output
    need(output.requires_grad, "gives no gradients")
    tokens = output.transpose(1, 2) if subject.is_heads else output
    tokens[real].square().sum().backward()
    for name, x in zip(("query", "key", "value"), leaves, strict=True):
        grad = x.grad if x.grad is not None else torch.zeros_like(x)
        at = (grad.transpose(1, 2) if subject.is_heads else grad)[~real]
        if not at.abs().max() <= subject.tolerance * 10:
            got = f"gradient {said(at.abs().max().item())} at a padded {name if subject.is_heads else 'token'}"
            yield Finding("padding-gradient", "the loss counts real tokens only", got, "0")
            return


@check("packing", "batches/#packing")
def packing(subject: Subject) -> Found:
    """Documents packed in one row don't see each other, and each is as it is alone."""
    c = subject.calls
    need(c.documents, "takes no document numbers")
    number = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2], device=c.device).expand(3, 9)
    inputs = subject.draw(9, seed=7)
    where = "keys" if subject.is_heads else "self"
    asked = {"causal": True} if isinstance(c.causal, str) else {}
    moved = influence(subject, inputs, where=where, documents=number, size=2.0, **asked)
    other = (number[:, :, None] != number[:, None]) & (moved > subject.tolerance)
    if other.any():
        b, i, j = pair(other)
        yield Finding("packing", f"token {j} of document {number[0, j]} was replaced",
                      f"output {i} of document {number[0, i]} moved by {said(moved[b, i, j].item())}", "documents are apart")  # fmt: skip
        return
    whole = subject(*inputs, documents=number, **asked).output
    for first, last in ((0, 3), (3, 7), (7, 9)):
        part = [x[..., first:last, :] for x in inputs]
        alone = subject(*(part if subject.is_heads else [part[0]] * 3), **asked).output
        gap = apart(subject, alone, whole[..., first:last, :]).max().item()
        if not gap <= subject.tolerance:
            yield Finding("packing", f"tokens {first} to {last - 1} packed, and alone", f"outputs differ by {said(gap)}",
                          "the same: positions begin anew in each document")  # fmt: skip
            return


def steps(
    subject: Subject, x: Tensor, sizes: tuple[int, ...], cache: Any, start: int = 0
) -> tuple[Tensor, Any]:
    """Give a text in pieces."""
    outputs = []
    asked = {"causal": True} if isinstance(subject.calls.causal, str) else {}
    for size in sizes:
        at: dict[str, Any] = dict(asked)
        if subject.calls.position_ids and subject.calls.positions:
            at["position_ids"] = torch.arange(start, start + size, device=x.device).expand(
                len(x), size
            )
        piece = x[:, start : start + size]
        with torch.no_grad():
            found = subject(piece, piece, piece, cache=cache, **at)
        cache = found.cache
        outputs.append(found.output)
        start += size
    return torch.cat(outputs, dim=1), cache


@check("cache", "kv-cache/#decode")
def cache(subject: Subject) -> Found:
    """A text in pieces, with a cache, gives the outputs of the whole text."""
    c = subject.calls
    need(c.cache and not subject.is_heads, "takes no cache, or new_cache isn't said")
    asked: dict[str, Any] = {"causal": True} if isinstance(c.causal, str) else {}
    length = 9 if not c.window else 3 * c.window + 2
    x = subject.draw(length, seed=8)[0]
    if c.position_ids and c.positions:
        asked["position_ids"] = torch.arange(length, device=x.device).expand(len(x), length)
    with torch.no_grad():
        full = subject(x, x, x, **asked).output
    plans = {
        "cache": (4, *[1] * (length - 4)),
        "cache-chunks": (3, 2, length - 5),
    }
    for name, sizes in plans.items():
        for again in range(2):
            got, _ = steps(subject, x, sizes, subject.new_cache())
            gap = apart(subject, full, got)
            if not gap.max() <= subject.tolerance:
                b, i = pair(gap == gap.max()) if gap.max().isfinite() else (0, 0)
                yield Finding(name, f"{length} tokens in pieces of {list(sizes)[:6]}" + ", a second time" * again,
                              f"output {i} differs by {said(gap.max().item())} from that of the whole text", "the same to rounding",
                              f"sequence {b}")  # fmt: skip
                return
    other = subject.draw(length, seed=9)[0]
    ours, mine = steps(subject, x, (4,), subject.new_cache())
    steps(subject, other, (4,), subject.new_cache())
    rest, _ = steps(subject, x, (1,) * (length - 4), mine, start=4)
    gap = apart(subject, full, torch.cat([ours, rest], 1)).max().item()
    if not gap <= subject.tolerance:
        yield Finding(
            "cache",
            "two texts took turns, each with a cache of its own",
            f"outputs differ by {said(gap)}",
            "caches are apart",
        )


@check("cache-chunks", "kv-cache/#decode")
def cache_chunks(subject: Subject) -> Found:
    """Several tokens at once see each other causally, and all that is kept."""
    need(subject.calls.cache and not subject.is_heads, "takes no cache, or new_cache isn't said")
    yield from ()  # found by the check "cache"


@check("cache-crop", "kv-cache/#traps")
def cache_crop(subject: Subject) -> Found:
    """After cropping, a cache continues as if the dropped tokens had never come."""
    c = subject.calls
    need(
        c.cache and c.new_cache and not subject.is_heads, "takes no cache, or new_cache isn't said"
    )
    need(hasattr(subject.new_cache(), "crop"), "the cache can't be cropped")
    need(not c.window, "the layer has a window")
    x, other = subject.draw(9, seed=8)[0], subject.draw(9, seed=10)[0]
    spliced = torch.cat([x[:, :5], other[:, 5:]], 1)
    _, kept = steps(subject, x, (9,), subject.new_cache())
    kept.crop(5)
    got, _ = steps(subject, spliced, (1, 1, 2), kept, start=5)
    full, _ = steps(subject, spliced, (9,), subject.new_cache())
    if not (gap := apart(subject, full[:, 5:], got).max().item()) <= subject.tolerance:
        yield Finding(
            "cache-crop",
            "9 tokens, cropped to 5, then 4 others",
            f"outputs differ by {said(gap)}",
            "those of the new text",
        )


@check("relative", "positions/#turned")
def relative(subject: Subject) -> Found:
    """Where a text begins changes nothing, if positions are relative."""
    c = subject.calls
    need(c.positions in ("rotary", "relative"), "no relative positions are declared")
    need(c.position_ids, "takes no positions")
    x = subject.draw(6, seed=11)
    asked: dict[str, Any] = {"causal": True} if isinstance(c.causal, str) else {}
    at = torch.arange(6, device=c.device).expand(3, 6)
    one = subject(*x, position_ids=at, **asked).output
    for by, size in ((1, 1.0), (100, 1.0), (3000, 20.0)):
        gap = apart(subject, one, subject(*x, position_ids=at + by, **asked).output).max().item()
        if not gap <= subject.tolerance * size:
            name = "relative" if by < 1000 else "positions-half"
            yield Finding(
                name,
                f"all positions {by} later",
                f"outputs differ by {said(gap)}",
                "the same: only distances count",
            )
            return
    gap = apart(subject, one, subject(*x, position_ids=at * 2, **asked).output).max().item()
    if gap <= subject.tolerance:
        yield Finding(
            "relative",
            "positions twice as far apart",
            "outputs did not change",
            "other outputs: positions are used",
        )


@check("positions-half", "positions/#traps")
def positions_half(subject: Subject) -> Found:
    """In half precision, far positions are as exact as near ones."""
    c = subject.calls
    need(c.positions in ("rotary", "relative"), "no relative positions are declared")
    need(c.position_ids, "takes no positions")
    half = subject.in_dtype(torch.bfloat16)
    x = half.draw(6, seed=11)
    at = torch.arange(6, device=c.device).expand(3, 6)
    try:
        near, far = (half(*x, position_ids=at + by).output for by in (0, 3001))
    except Exception as error:
        need(False, f"doesn't run in bfloat16: {str(error).splitlines()[0][:80]}")
    same = [y.to(c.dtype) for y in x] if subject.is_heads else [x[0].to(c.dtype)] * 3
    exact = subject(*same, position_ids=at).output
    usual, gap = apart(half, exact, near).max().item(), apart(half, exact, far).max().item()
    if gap > 6 * usual + 0.02:
        yield Finding("positions-half", "bfloat16, positions 0 to 5 and 3001 to 3006",
                      f"errors {said(usual)} and {said(gap)}", "alike: angles in float32")  # fmt: skip

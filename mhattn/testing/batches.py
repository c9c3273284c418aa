"""Checks of batches: padding, and documents in one row."""

import itertools
from typing import Any

import torch
from torch import Tensor

from mhattn.testing.probes import allowed, apart, influence, modes, pair, said
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Subject

__all__: list[str] = []


LENGTHS = (7, 4, 5)
AS_LONG = (3, 1, 2)  # three sequences of three tokens: no axis can be told by its size


def padded(subject: Subject, lengths: tuple[int, ...] = LENGTHS) -> tuple[list[Tensor], Tensor]:
    """A batch of these lengths, and which of its tokens are real."""
    real = torch.arange(lengths[0]) < torch.tensor(lengths)[:, None]
    inputs = subject.draw(lengths[0], batch=len(lengths), seed=6)
    return inputs, real.to(subject.calls.device)


def garbage(subject: Subject, inputs: list[Tensor], real: Tensor) -> list[Tensor]:
    """The same batch with other tokens where there is padding."""
    # Ten times as large as real tokens: even a small weight on padding shows.
    other = subject.draw(real.shape[-1], batch=len(real), seed=12, size=10.0)
    keep = (real[:, None] if subject.is_heads else real)[..., None]
    return subject.three([torch.where(keep, a, b) for a, b in zip(inputs, other, strict=True)])


def counted(subject: Subject, real: Tensor) -> Tensor:
    """The outputs that padding may not move: those of real tokens, or of learned queries all."""
    outputs = subject.calls.outputs
    return torch.ones(len(real), outputs, dtype=torch.bool).to(real) if outputs else real


@check("padding", "masks-in-practice/#padding")
def padding(subject: Subject) -> Found:
    """Padding has no influence on real tokens, and real tokens keep theirs."""
    need(subject.calls.padding, "takes no padding mask")
    for options in subject.ways:
        for mode, _ in modes(subject):
            for side in ("right", "left"):
                yield from _replaced(subject, options, side, mode, LENGTHS)
        yield from _replaced(subject, options, "right", "eval()", AS_LONG)
        yield from _kept(subject, options)
    if subject.calls.positions != "absolute":
        yield from _alone(subject)
    if subject.calls.mask and subject.forms.get("mask"):
        yield from _beside_mask(subject)
    # As many texts as heads: a mask along the wrong one of the two axes fits in, and nothing fails.
    if subject.heads not in (1, len(LENGTHS)):
        lengths = tuple(itertools.islice(itertools.cycle(LENGTHS), subject.heads))
        for options in subject.ways:
            yield from _replaced(subject, options, "right", "eval()", lengths)


def _replaced(
    subject: Subject, options: dict[str, Any], side: str, mode: str, lengths: tuple[int, ...]
) -> Found:
    inputs, real = padded(subject, lengths)
    real = real if side == "right" else real.flip(-1)
    one = subject(*inputs, padding=real, **options).output
    other = subject(*garbage(subject, inputs, real), padding=real, **options).output
    kept = counted(subject, real)
    moved = torch.where(kept, apart(subject, one, other), 0)
    if not moved.max() <= subject.tolerance:
        b, i = pair(moved == moved.max())
        without = subject(*inputs, **options).output
        plain = torch.where(kept, apart(subject, without, one), 0).max()
        got = f"output {i} of sequence {b} moved by {said(moved.max().item())}"
        got += "; the padding mask changes nothing" if plain <= subject.tolerance else ""
        did = f"in {mode}, the padding on the {side} was replaced"
        yield Finding("padding", did, got, "real tokens stay as they are")


def _kept(subject: Subject, options: dict[str, Any]) -> Found:
    inputs, real = padded(subject)
    moved = influence(subject, inputs, padding=real, where=subject.where, size=2.0, **options)
    is_causal = bool(options) or subject.calls.causal is True
    seen = allowed(subject, 7, 7, is_causal=is_causal).to(real.device)
    kept = counted(subject, real)[:, :, None]
    late = kept & ~seen & (moved > subject.tolerance)
    if late.any():
        b, i, j = pair(late)
        did, got = f"padding and causal, token {j} was replaced", f"output {i} moved"
        yield Finding("padding", did, got, "both hold: later tokens stay hidden", f"sequence {b}")
    blind = real[:, None] & kept & seen & (moved < 1e-7)
    if blind.any():
        b, i, j = pair(blind)
        did, got = f"real token {j} was replaced", f"real output {i} did not move"
        case = f"sequence {b}, causal={is_causal}"
        yield Finding("padding", did, got, "real tokens see each other", case)


def _alone(subject: Subject) -> Found:
    inputs, real = padded(subject)
    whole = subject(*inputs, padding=real).output
    for b, length in enumerate(LENGTHS):
        short = subject.three([x[b : b + 1, ..., :length, :] for x in inputs])
        alone = subject(*short).output
        kept = whole[b : b + 1]
        kept = kept if subject.calls.outputs else kept[..., :length, :]
        gap = apart(subject, alone, kept).max().item()
        if not gap <= subject.tolerance:
            did, got = f"sequence {b} alone, and padded", f"real outputs differ by {said(gap)}"
            yield Finding("padding", did, got, "the same to rounding")


def _beside_mask(subject: Subject) -> Found:
    inputs, real = padded(subject)
    # It hides one key from the first query: all rows keep a real key, and no empty row decides.
    mask = torch.ones(7, 7, dtype=torch.bool, device=real.device).tril(5)
    asked: dict[str, Any] = {"mask": mask, "padding": real}
    try:
        one = subject(*inputs, **asked).output
    except Exception:  # refuses both, in words
        return
    other = subject(*garbage(subject, inputs, real), **asked).output
    moved = torch.where(real, apart(subject, one, other), 0).max().item()
    if not moved <= subject.tolerance:
        did = "a mask and a padding mask were given, and the padding replaced"
        yield Finding("padding", did, f"real outputs moved by {said(moved)}", "both hold")


@check("padding-gradient", "gradients/#hidden")
def padding_gradient(subject: Subject) -> Found:
    """Padding gets no gradient from real tokens, and gives none."""
    need(subject.calls.padding, "takes no padding mask")
    inputs, real = padded(subject)
    leaves = subject.three([x.clone().requires_grad_() for x in inputs])
    output = subject(*leaves, padding=real).output
    need(output.requires_grad, "gives no gradients")
    tokens = output.transpose(1, 2) if subject.is_heads else output
    # A loss of real tokens only: what gradient padding gets has come through attention.
    tokens[counted(subject, real)].square().sum().backward()
    for name, x in zip(("query", "key", "value"), leaves, strict=True):
        grad = x.grad if x.grad is not None else torch.zeros_like(x)
        at = (grad.transpose(1, 2) if subject.is_heads else grad)[~real]
        if not at.abs().max() <= subject.tolerance * 10:
            token = name if subject.is_heads else "token"
            got = f"gradient {said(at.abs().max().item())} at a padded {token}"
            yield Finding("padding-gradient", "the loss counts real tokens only", got, "0")
            return


@check("packing", "batches/#packing")
def packing(subject: Subject) -> Found:
    """Documents packed in one row don't see each other, and each is as it is alone."""
    c = subject.calls
    need(c.documents, "takes no document numbers")
    need(not c.seen, "seen is told of one text")
    # Other borders in each row: a layer that takes the first row's for all is found.
    rows = [[0, 0, 0, 1, 1, 1, 1, 2, 2], [0, 0, 1, 1, 1, 2, 2, 2, 2], [0] * 9]
    number = torch.tensor(rows, device=c.device)
    inputs = subject.draw(9, seed=7)
    asked = subject.usual
    moved = influence(subject, inputs, where=subject.where, documents=number, size=2.0, **asked)
    other = (number[:, :, None] != number[:, None]) & (moved > subject.tolerance)
    if other.any():
        b, i, j = pair(other)
        yield Finding(
            "packing",
            f"token {j} of document {number[b, j]} was replaced",
            f"output {i} of document {number[b, i]} moved by {said(moved[b, i, j].item())}",
            "documents are apart",
        )
        return
    whole = subject(*inputs, documents=number, **asked).output
    for b, first, last in ((0, 0, 3), (0, 3, 7), (0, 7, 9), (1, 2, 5), (1, 5, 9), (2, 0, 9)):
        part = subject.three([x[b : b + 1, ..., first:last, :] for x in inputs])
        alone = subject(*part, **asked).output
        gap = apart(subject, alone, whole[b : b + 1, ..., first:last, :]).max().item()
        if not gap <= subject.tolerance:
            did, got = (
                f"tokens {first} to {last - 1} packed, and alone",
                f"they differ by {said(gap)}",
            )
            yield Finding("packing", did, got, "the same: positions begin anew in each document")
            return

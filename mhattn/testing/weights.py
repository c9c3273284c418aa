"""Checks of the weights that a layer returns."""

from typing import Any

import torch
from torch import Tensor

from mhattn.testing.formula import Reference, compared, runs
from mhattn.testing.masks import random_mask, try_forms
from mhattn.testing.probes import apart, said, spread
from mhattn.testing.products import used_weights
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Skip, Subject

__all__: list[str] = []


@check("weights", "own-model/#maps")
def weights(subject: Subject) -> Found:
    """The weights returned sum to one, hide what is hidden, and give the output."""
    c = subject.calls
    need(c.weights, "returns no weights")
    need(not c.outputs, "its queries are its own")
    reference = _reference(subject)
    for name, lengths, asked, seen in runs(subject):
        inputs = subject.draw(*lengths, seed=30)
        found = subject(*inputs, weights=True, **asked)
        if found.weights is None:
            raise Skip("returned no weights")
        given = found.weights.detach().double()
        if given.shape[-2:] != (lengths[0], lengths[-1]):
            got = f"weights have the shape {tuple(given.shape)}"
            yield Finding("weights", name, got, "(B, H, L, S)")
            return
        yield from _rows(subject, name, given, seen)
        plain = subject(*inputs, **asked).output
        if (gap := apart(subject, plain, found.output).max().item()) > subject.tolerance:
            did, got = f"{name}, with weights and without", f"outputs differ by {said(gap)}"
            yield Finding("weights", did, got, "the same output")
        yield from _belongs(
            subject,
            name,
            inputs,
            given,
            found.output,
            _right(subject, reference, inputs, seen, asked),
        )
        yield from _stay(subject, name, found.weights, lengths, asked)
    if c.mask:
        try_forms(subject)
        mask = random_mask(6, 6, seed=3) | torch.eye(6, dtype=torch.bool)
        last = subject(*subject.draw(6, seed=31), mask=mask.to(c.device), weights=True).weights
        if last is not None and (last.detach().cpu().masked_fill(mask, 0).abs() > 1e-6).any():
            yield Finding("weights", "a mask was given", "hidden keys have weight", "0")


def _rows(subject: Subject, name: str, given: Tensor, seen: Tensor | None) -> Found:
    sums = (given.sum(-1) - 1).abs().max().item()
    if (given < -1e-9).any():
        yield Finding("weights", name, "weights below 0", "shares of one")
    # A sink takes a share that no key gets. `not <=` also catches NaN.
    elif not sums <= subject.tolerance and not subject.calls.sinks:
        yield Finding("weights", name, f"rows sum to 1 ± {said(sums)}", "rows sum to one")
    if given.ndim == 4 and subject.heads > 1 and given.shape[-1] > 1:
        # Equal heads are a mistake, as a view that takes another axis for that of heads, unless
        # all weights are equal: then the scores were too small to tell.
        alike = (given - given[:, :1]).abs().max() < 1e-9
        flat = (given - given.mean(-1, keepdim=True)).abs().max() < 1e-4
        if alike and not flat and seen is None:
            yield Finding("weights", name, "all heads have the same weights", "each has its own")
    if seen is not None and (given.masked_fill(seen.to(given.device), 0).abs() > 1e-6).any():
        yield Finding("weights", name, "hidden keys have weight", "0")


def _reference(subject: Subject) -> Reference | None:
    """The formula with the layer's own matrices, where the output is the formula's."""
    try:
        reference, wrong = compared(subject)
    except Skip:
        return None
    return None if wrong else reference


def _right(
    subject: Subject,
    reference: Reference | None,
    inputs: list[Tensor],
    seen: Tensor | None,
    asked: dict[str, Any],
) -> Tensor | None:
    """The weights that make the output: by the formula, or as one product has them."""
    crossed = inputs[1] is not inputs[0]
    if reference is not None and not (subject.calls.positions and crossed):
        seen = None if seen is None else seen.to(inputs[0].device)
        return reference(inputs, seen, **asked)[1]
    used = used_weights(subject, inputs, weights=True, **asked)
    if used is None or subject.calls.sinks:
        return None
    used = used.double()
    # What doesn't sum to one is no table of weights, or one that something was done to.
    return used if (used.sum(-1) - 1).abs().max() <= subject.tolerance else None


def _belongs(
    subject: Subject,
    name: str,
    inputs: list[Tensor],
    given: Tensor,
    output: Tensor,
    right: Tensor | None,
) -> Found:
    """The weights times the values are the output; in a layer, they are the formula's."""
    if subject.is_heads and given.ndim == 4:
        value = spread(inputs[2].double(), subject.heads, subject.calls.groups)
        gap, what = apart(subject, output, given @ value).max().item(), "weights times values"
    elif right is None:
        return
    else:
        right = right if given.ndim == 4 else right.mean(1)
        gap, what = (given - right).abs().max().item(), "those that make the output"
    if gap > subject.tolerance * 5:
        yield Finding("weights", name, f"the weights returned differ by {said(gap)}", what)


def _stay(
    subject: Subject, name: str, given: Tensor, lengths: tuple[int, ...], asked: dict[str, Any]
) -> Found:
    """Whoever keeps weights has them after the next call."""
    before = given.detach().clone()
    subject(*subject.draw(*lengths, seed=32), weights=True, **asked)
    if not torch.equal(before.nan_to_num(), given.detach().nan_to_num()):
        did, got = f"{name}, twice", "the second call has overwritten the first one's weights"
        yield Finding("weights", did, got, "what a call has returned stays as it is")

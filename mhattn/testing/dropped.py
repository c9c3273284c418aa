"""The check of dropout: what a layer drops in training, whatever it calls its share."""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from mhattn.testing.formula import compared
from mhattn.testing.probes import apart, said
from mhattn.testing.products import used_weights
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Skip, Subject

__all__: list[str] = []

NAMES = ("dropout", "attn_dropout", "attention_dropout", "dropout_p", "p_drop", "attn_pdrop")
CALLS, COPIES = 40, 12  # together as many draws as these, and each call serves some of them
Name = tuple[str, str]  # of a module, and of what it keeps


def _floats(subject: Subject) -> list[tuple[Name, float]]:
    """The numbers that a layer's modules keep."""
    return [
        ((place, name), value)
        for place, module in cast(nn.Module, subject.layer).named_modules()
        for name, value in vars(module).items()
        if isinstance(value, float)
    ]


def _set(subject: Subject, name: Name, value: float) -> None:
    setattr(cast(nn.Module, subject.layer).get_submodule(name[0]), name[1], value)


def _is_named(subject: Subject, name: Name) -> bool:
    module = cast(nn.Module, subject.layer).get_submodule(name[0])
    return name[1] in NAMES or (isinstance(module, nn.Dropout) and name[1] == "p")


def shares(subject: Subject) -> list[float]:
    """The shares of all dropouts that a layer names."""
    return [value for name, value in _floats(subject) if _is_named(subject, name) and value > 0]


@check("dropout", "dropout/#idea")
def dropout(subject: Subject) -> Found:
    """In training some weights are dropped, and the mean over many calls is evaluation's output."""
    need(isinstance(subject.layer, nn.Module), "no dropout")
    named, inputs = shares(subject), subject.draw(5, batch=2, seed=3)
    others: list[Name] = []
    if not named:
        if found := list(_as_in_evaluation(subject, inputs)):
            yield from found
            return
        if _varies(subject, inputs):
            others = _unnamed(subject, inputs)
            need(others, "a dropout that it doesn't name")
        elif subject.is_block:
            return
    need(not subject.is_block, "a block: norms and sums are around it")
    yield from _dropped(subject, named, others)


def _dropped(subject: Subject, named: list[float], others: list[Name]) -> Found:
    """A copy in which every dropout drops a fifth: a class whose default is none shows it too."""
    if named and not _varies(subject, subject.draw(5, batch=2, seed=3)):
        got = "all outputs are the same"
        yield Finding("dropout", "train(), 2 calls", got, f"a share of {max(named)} is dropped")
        return
    copy = _with_dropout(subject, others)
    if copy is None:
        return
    try:
        _trained(copy, copy.draw(5, batch=2, seed=3))
    except Exception:  # it may refuse to drop anything
        return
    # Where scores are small, weights are alike: whether they are dropped before softmax or behind
    # it is seen where they aren't.
    for size in (1.0, 4.0):
        if found := list(_mean(copy, size)):
            # Behind a step that isn't linear, as a gate made of the output, a mean is another by
            # right. Whoever has a dropout of a name has met that in training.
            is_sure = bool(named) or _is_linear(subject)
            yield from (each if is_sure else replace(each, level="note") for each in found)
            return
    found = list(_one_for_all_heads(copy))
    yield from found or (_other_share(subject, named) if named else ())


def _is_linear(subject: Subject) -> bool:
    """Whether the output is the formula's, which is linear in its weights."""
    try:
        return compared(subject)[1] is None
    except Skip:
        return False


def _mean(subject: Subject, size: float) -> Found:
    """The mean of training is evaluation's output."""
    options = subject.usual
    inputs = subject.draw(5, batch=2, seed=3, size=size)
    many = subject.three([x.repeat(COPIES, *[1] * (x.ndim - 1)) for x in inputs])
    with torch.no_grad():
        exact = subject(*many, **options).output.double().unflatten(0, (COPIES, 2)).mean(0)
        need(exact.isfinite().all(), "its output isn't finite")
        subject.train()
        draws = []
        for seed in range(CALLS):
            output = subject(*many, seed=seed, **options).output.double()
            draws.append(output.unflatten(0, (COPIES, 2)))
        subject.train(False)
    # Copies of one call are one draw: some layers drop the same in all sequences.
    means = torch.stack([each.mean(0) for each in draws])
    # A number that dropout never moves has no spread: rounding may not count as an infinity of
    # errors.
    errors = means.std(0) / CALLS**0.5 + 1e-6 * exact.abs().max()
    away = (means.mean(0) - exact).abs() / errors
    # Of a few hundred numbers, a right layer's exceed this by chance less than once in a million
    # runs.
    if not away.max() <= 7:
        yield Finding(
            "dropout",
            f"train(), the mean of {CALLS * COPIES} calls",
            f"{said(away.max().item())} standard errors from evaluation's output",
            "the same mean: weights are dropped after softmax and the rest divided by 1 - p",
        )


def _as_in_evaluation(subject: Subject, inputs: list[Tensor]) -> Found:
    """Without dropout, training gives evaluation's output."""
    if _varies(subject, inputs):
        return
    with torch.no_grad():
        exact = subject(*inputs, **subject.usual).output
    one = _trained(subject, inputs)
    if not (gap := apart(subject, exact, one).max().item()) <= subject.tolerance:
        did, got = "train() and eval(), and no dropout", f"outputs differ by {said(gap)}"
        yield Finding("dropout", did, got, "the same output")


def _trained(subject: Subject, inputs: list[Tensor], seed: int = 1) -> Tensor:
    """The output in training."""
    subject.train()
    try:
        with torch.no_grad():
            return subject(*inputs, seed=seed, **subject.usual).output
    finally:
        subject.train(False)


def _varies(subject: Subject, inputs: list[Tensor]) -> bool:
    """Whether training draws numbers."""
    one, other = (_trained(subject, inputs, seed) for seed in (1, 2))
    return bool(apart(subject, one, other).max() > subject.tolerance)


def _unnamed(subject: Subject, inputs: list[Tensor]) -> list[Name]:
    """The numbers between 0 and 1 that move the output of training, and not evaluation's."""
    other, found = subject.fresh(), list[Name]()
    with torch.no_grad():
        exact = other(*inputs, **other.usual).output
    before = _trained(other, inputs)
    for name, value in _floats(other):
        # So small a number is there to be added to something.
        if not 0.001 < value < 1:
            continue
        _set(other, name, value / 2)
        with torch.no_grad():
            same = apart(other, exact, other(*inputs, **other.usual).output).max()
        moved = apart(other, before, _trained(other, inputs)).max()
        _set(other, name, value)
        if same <= other.tolerance < moved:
            found.append(name)
    return found


def _with_dropout(subject: Subject, others: list[Name]) -> Subject | None:
    """A copy in which all dropouts drop something; None if it has none."""
    copy = subject.fresh()
    names = others or [name for name, _ in _floats(copy) if _is_named(copy, name)]
    for name in names:
        _set(copy, name, 0.2)
    return copy if names else None


def _drawn(subject: Subject, seed: int) -> tuple[Tensor, Tensor] | None:
    """Which weights are dropped in training, of those that are weights in evaluation."""
    inputs = subject.draw(5, batch=2, seed=3)
    subject.train()
    try:
        dropped = used_weights(subject, inputs, seed=seed, **subject.usual)
    finally:
        subject.train(False)
    kept = used_weights(subject, inputs, **subject.usual)
    if dropped is None or kept is None:
        return None
    return dropped == 0, kept > 1e-6


def _one_for_all_heads(subject: Subject) -> Found:
    """Heads drop weights of their own."""
    need_heads = subject.heads > 1
    draws = [_drawn(subject, seed) for seed in range(4)] if need_heads else []
    if not draws or any(draw is None for draw in draws):
        return
    some = False
    for dropped, weighed in (draw for draw in draws if draw):
        one = dropped & weighed
        some |= bool(one.any())
        both = weighed & weighed[:, :1]
        if (one != one[:, :1])[both].any():
            return
    if some:
        got = "all heads drop the same weights"
        yield Finding("dropout", "train(), 4 calls", got, "each head draws its own")


def _other_share(subject: Subject, named: list[float]) -> Found:
    """The share that is dropped is the one that is named, and not what is left."""
    draws = [draw for seed in range(8) if (draw := _drawn(subject, seed))]
    if not draws:
        return
    share = torch.cat([dropped[weighed] for dropped, weighed in draws]).double().mean().item()
    rests = [1 - p for p in named if abs(1 - 2 * p) > 0.3]
    if any(abs(share - p) < 0.1 for p in named) or not rests:
        return
    if any(abs(share - rest) < 0.1 for rest in rests):
        got, what = f"a share of {said(share)} is dropped", f"one of {max(named)}"
        yield Finding("dropout", "train(), 8 calls", got, what)

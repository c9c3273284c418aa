"""A layer beside another one that should compute the same: ported, fused, or written anew."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from mhattn.testing.adapted import Adapted
from mhattn.testing.adapters import adapt, kind_of
from mhattn.testing.calls import Calls
from mhattn.testing.masks import plain_mask, try_forms
from mhattn.testing.probes import apart, said, spread
from mhattn.testing.projections import candidates
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Subject

__all__: list[str] = []

Run = tuple[str, tuple[int, ...], dict[str, Any], float]  # what it is, lengths, arguments, size
# What holds of both layers; what its arguments are called, each says of itself.
SHARED = ("embed_dim", "num_heads", "num_kv_heads", "head_dim", "dtype", "device", "seed")


def other_layer(subject: Subject) -> Subject:
    """The layer to compare with, called in its own way."""
    like = cast(Callable[..., Any], subject.calls.like)
    layer = subject.layer.layer if isinstance(subject.layer, Adapted) else subject.layer
    if type(like) is type(layer) and isinstance(like, nn.Module):
        like = adapt(like) if isinstance(subject.layer, Adapted) and kind_of(like) else like
        other = Subject.of(like, subject.calls, set(Calls.__dataclass_fields__))
        return other
    if isinstance(like, nn.Module) and kind_of(like):
        like = adapt(like)
    told: dict[str, Any] = {name: getattr(subject.calls, name) for name in SHARED}
    if isinstance(subject.calls.causal, bool):
        told["causal"] = subject.calls.causal
    return Subject.of(like, Calls(**told), set(told))


def runs(subject: Subject, other: Subject) -> Iterator[Run]:
    """Calls that both take: what they are, lengths, arguments, and how large tokens are."""
    both = subject.takes_two and other.takes_two
    for name, options, one, two in _ways(subject, other):
        for length in (1, 6, 67):
            yield f"{length} tokens{name}", (length,), options | {"ways": (one, two)}, 1.0
        yield f"6 tokens{name}, six times as large", (6,), options | {"ways": (one, two)}, 6.0
    if both and subject.calls.causal is not True:
        yield "4 queries, 7 keys", (4, 7), {}, 1.0
    if subject.calls.mask and other.calls.mask:
        mask = plain_mask(subject)
        lengths = mask.shape if subject.takes_two else mask.shape[:1]
        if both or len(lengths) == 1:
            yield "a random mask", tuple(lengths), {"mask": mask}, 1.0
    if subject.calls.padding and other.calls.padding:
        real = torch.arange(6) < torch.tensor([[6], [4], [1]])
        yield "padding", (6,), {"padding": real}, 1.0


def _ways(subject: Subject, other: Subject) -> Iterator[tuple[str, dict[str, Any], Any, Any]]:
    """Plain, and causal where both may be asked for it, or one of them always is."""
    if subject.calls.causal is True or other.calls.causal is True:
        yield "", {}, subject.usual, other.usual
        return
    yield "", {}, {}, {}
    if subject.usual and other.usual:
        yield ", causal", {}, subject.usual, other.usual


@check("like", "doctor/#like")
def like(subject: Subject) -> Found:
    """Outputs and gradients are those of the other layer."""
    need(subject.calls.like, "no other layer is given: say like=")
    if not isinstance(subject.calls.like, nn.Module) and not subject.is_heads:
        yield from _beside_function(subject)
        return
    other = other_layer(subject)
    for form in (subject, other) if subject.calls.mask and other.calls.mask else ():
        try_forms(form)
    for name, lengths, asked, size in runs(subject, other):
        asked = {
            key: value.to(subject.calls.device) if isinstance(value, Tensor) else value
            for key, value in asked.items()
        }
        one_way, other_way = asked.pop("ways", ({}, {}))
        inputs = subject.draw(*lengths, seed=60, size=size)
        one = _with_gradient(subject, inputs, asked | one_way)
        two = _with_gradient(other, inputs, asked | other_way)
        if differs := _difference(subject, one, two):
            did = f"{name}: both layers were called"
            yield Finding("like", did, differs, "the same as the other layer")
            return


def _with_gradient(
    subject: Subject, inputs: list[Tensor], asked: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """The output, and the gradient of the first input along a fixed direction."""
    first = inputs[0].clone().requires_grad_()
    given = [first if x is inputs[0] else x for x in inputs]
    output = subject(*given, **asked).output
    source = torch.Generator().manual_seed(5)
    direction = torch.randn(output.shape, generator=source, dtype=torch.float64).to(output)
    if not output.requires_grad:
        return output.detach(), torch.zeros_like(first)
    (grad,) = torch.autograd.grad(output, [first], direction, allow_unused=True)
    return output.detach(), torch.zeros_like(first) if grad is None else grad


def _difference(subject: Subject, one: tuple[Tensor, Tensor], two: tuple[Tensor, Tensor]) -> str:
    """What differs, in words."""
    gap = apart(subject, two[0], one[0]).max().item()
    if not gap <= subject.tolerance * 5:
        return f"outputs differ by {said(gap)} of their usual size"
    # Where weights are nearly one-hot, gradients are rounding: those are no unit.
    usual = two[1].double().square().mean().sqrt().clamp(min=0.01)
    gap = ((one[1] - two[1]).abs().max() / usual).item()
    if not gap <= subject.tolerance * 50:
        return f"gradients differ by {said(gap)} of their usual size"
    return ""


def _beside_function(subject: Subject) -> Found:
    """A function of queries, keys and values, between the layer's own matrices."""
    mix = cast(Callable[..., Tensor], subject.calls.like)
    for length in (1, 6, 67):
        inputs = subject.draw(length, seed=61)
        with torch.no_grad():
            output = subject(*inputs, **subject.usual).output
            gaps = []
            for parts in candidates(subject, inputs, subject.usual):
                numbers = (subject.heads, subject.kv_heads, subject.kv_heads)
                q, k, v = (
                    x.double().unflatten(-1, (n, -1)).transpose(1, 2) if parts.is_flat else x
                    for x, n in zip(parts.three, numbers, strict=True)
                )
                k, v = (spread(x, subject.heads, subject.calls.groups) for x in (k, v))
                mixed = mix(q, k, v).transpose(1, 2).flatten(2)
                gaps.append(apart(subject, parts.out(mixed), output).max().item())
        if gaps and not min(gaps) <= subject.tolerance * 5:
            did = f"{length} tokens: the function stood between the layer's own matrices"
            got = f"outputs differ by {said(min(gaps))} of their usual size"
            yield Finding("like", did, got, "the same as with the function")
            return

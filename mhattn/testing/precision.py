"""Checks of precision: large scores, sixteen and sixty-four bits, gradients."""

from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.formula import compared
from mhattn.testing.probes import said, spread
from mhattn.testing.products import largest_product
from mhattn.testing.projections import candidates
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Skip, Subject

__all__: list[str] = []


@check("overflow", "online-softmax/#overflow")
def overflow(subject: Subject) -> Found:
    """Large scores give finite outputs and gradients."""
    for size in (10.0, 40.0):
        inputs = [x.requires_grad_() for x in subject.draw(6, seed=7, size=size)]
        options = subject.usual
        found = subject(*inputs, **options).output
        if not found.isfinite().all():
            yield Finding(
                "overflow",
                f"tokens of size {size:.0f}",
                "NaN or infinity",
                "finite: subtract the largest score before exp",
            )
            return
        if found.requires_grad:
            found.float().square().mean().backward()
            if any(x.grad is not None and not x.grad.isfinite().all() for x in inputs):
                yield Finding(
                    "overflow",
                    f"tokens of size {size:.0f}",
                    "NaN in a gradient",
                    "finite gradients",
                )
                return


@check("half", "mask-conventions/#half")
def half(subject: Subject) -> Found:
    """In float16 and bfloat16 outputs are finite, keep their type, and are near the exact ones."""
    c = subject.calls
    needs_two = isinstance(subject.layer, nn.Module) or c.dtype == torch.float32
    need(needs_two, "another type was asked for")
    for dtype in (torch.bfloat16, torch.float16):
        for length, batch, size in ((12, 3, 1.0), (12, 3, 6.0), (67, 1, 1.0)):
            inputs = subject.in_dtype(dtype).draw(length, batch=batch, seed=8, size=size)
            did = f"{dtype}, {length} tokens of size {size:.0f}"
            found = list(_halved(subject, dtype, inputs, did, judged=size == 1, **subject.usual))
            # No layer has to take a text as long as the last one.
            yield from (each for each in found if length == 12 or "Error: " not in each.got)
    for size in (30.0, 100.0):
        if found := list(_large(subject, size)):
            yield from found
            break
    if c.mask and subject.forms.get("mask"):
        inputs = subject.in_dtype(torch.float16).draw(6, seed=9)
        mask = torch.ones(6, 6, dtype=torch.bool, device=c.device).tril()
        yield from _halved(subject, torch.float16, inputs, "float16 with a mask", mask=mask)


def _halved(
    subject: Subject,
    dtype: torch.dtype,
    inputs: list[Tensor],
    did: str,
    *,
    judged: bool = True,
    **asked: Any,
) -> Found:
    try:
        with torch.no_grad():
            found = subject.in_dtype(dtype)(*inputs, **asked).output
    except Exception as error:
        if not (isinstance(error, RuntimeError) or len(inputs[0]) == 1):
            raise
        level = "error" if "mask" in asked else "note"
        got = f"RuntimeError: {str(error).splitlines()[0][:100]}"
        yield Finding("half", did, got, "an output", level=level)
        return
    if found.dtype != dtype:
        yield Finding("half", did, f"output {found.dtype}", str(dtype))
    elif not found.isfinite().all():
        yield Finding("half", did, "NaN or infinity", "finite numbers")
    elif judged and (off := _beyond_rounding(subject, inputs, found, **asked)):
        got = f"a row is off by {said(off[0])} of its norm"
        yield Finding("half", did, got, f"within {said(off[1])}: more is no rounding")


def _beyond_rounding(
    subject: Subject, inputs: list[Tensor], found: Tensor, *, share: float = 0.0, **asked: Any
) -> tuple[float, float] | None:
    """How far rows are off and how far they may be, in parts of their norms; None if that is near.

    The measure is the layer itself in float32, with the same rounded matrices, whose inputs are
    moved by as much as a number of this type may be off: what that moves, rounding may move. Right
    layers are off by less than that, in short texts and in long ones. All but a ``share`` of the
    rows are compared, the worst of the others.
    """
    wide = subject.in_dtype(found.dtype).in_dtype(torch.float32)
    given = _to(inputs, torch.float32)
    source = torch.Generator().manual_seed(12)

    def near() -> list[Tensor]:
        step = torch.finfo(found.dtype).eps
        noise = {id(x): torch.randn(x.shape, generator=source).to(x.device) for x in given}
        new = {id(x): x * (1 + step * noise[id(x)]) for x in given}
        return [new[id(x)] for x in given]

    with torch.no_grad():
        exact = wide(*given, **asked).output.double()
        norms = exact.norm(dim=-1).clamp(min=1e-9)
        others = [wide(*near(), **asked).output for _ in range(2)]
        away = [((x.double() - exact).norm(dim=-1) / norms).flatten() for x in (found, *others)]
    ours, *theirs = (x.quantile(1 - share).item() for x in away)
    # Where nothing moves, neither does rounding; and ours may be one step off by chance.
    limit = max(3 * max(theirs), torch.finfo(found.dtype).eps)
    return None if ours <= limit else (ours, limit)


def _fits_half(subject: Subject, inputs: list[Tensor]) -> bool:
    """Whether what a layer multiplies fits float16, or would, did it follow the formula's order."""
    if largest_product(subject, inputs, **subject.usual) < LARGEST / 2:
        return True
    try:
        if compared(subject)[1]:  # another formula has other products
            return False
        three = inputs if subject.is_heads else next(candidates(subject, inputs, {})).three
    except (Skip, RuntimeError):
        return False
    q, k = three[0], three[1]
    if not subject.is_heads:
        q, k = (x.unflatten(-1, (-1, subject.dim)).transpose(1, 2) for x in (q, k))
    product = q @ spread(k, q.shape[1], subject.calls.groups).mT
    return product.abs().max().item() < LARGEST


LARGEST = torch.finfo(torch.float16).max


def _large(subject: Subject, size: float) -> Found:
    """Tokens that are large and fit float16, in float16."""
    half, did = subject.in_dtype(torch.float16), f"float16, tokens of size {size:.0f}"
    inputs, wide = half.draw(12, seed=8, size=size), subject.in_dtype(torch.float32)
    try:
        with torch.no_grad():
            found = half(*inputs, **subject.usual).output
    except RuntimeError:  # it was told of usual tokens
        return
    if found.isfinite().all():
        # Between weights that are nearly all or nothing, rounding decides in a row now and then.
        off = _beyond_rounding(subject, inputs, found, share=0.2, **subject.usual)
        if off and off[1] < 0.1:
            got = f"a fifth of all rows is off by {said(off[0])} of their norm"
            yield Finding("half", did, got, f"within {said(off[1])}: squares overflow")
        return
    given = _to(inputs, torch.float32)
    with torch.no_grad():
        exact = wide(*given, **subject.usual).output
    if exact.isfinite().all() and exact.abs().max() < LARGEST:
        # Whoever multiplies before the scale has larger products than the scores are: where those
        # don't fit, no usual token is that large.
        fits = _fits_half(wide, given)
        what = "finite numbers: products fit float16" if fits else "scale before the product"
        level = "error" if fits else "note"
        yield Finding("half", did, "NaN or infinity", what, level=level)


def _to(inputs: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """In another type; one tensor three times stays one."""
    new = {id(x): x.to(dtype) for x in inputs}
    return [new[id(x)] for x in inputs]


@check("double", "gradients/#differences")
def double(subject: Subject) -> Found:
    """In float64, nothing on the way is rounded to float32."""
    inputs, exact = _exact(subject)
    found = exact(*inputs).output
    if found.dtype != torch.float64:
        yield Finding("double", "float64", f"output {found.dtype}", "float64", level="note")
        return
    # 1e-9 is lost in float32, whose steps near one are 1e-7. Each column moves by another amount:
    # an equal one for all would be taken away by a norm in front.
    nudged = [x + 1e-9 * torch.ones_like(x) * (1 + torch.arange(x.shape[-1])) for x in inputs]
    steps = (exact(*subject.three(nudged)).output - found).abs().max().item()
    if steps == 0 or steps > 1e-6:
        yield Finding(
            "double",
            "float64, tokens moved by 1e-9",
            f"outputs moved by {said(steps)}",
            "about as much: no float32 within",
            level="note",
        )


def _exact(subject: Subject) -> tuple[list[Tensor], Subject]:
    exact = subject.in_dtype(torch.float64)
    inputs = exact.draw(5, batch=2, seed=10)
    try:
        exact(*inputs)
    except Exception as error:
        raise Skip(f"doesn't run in float64: {str(error).splitlines()[0][:90]}") from error
    return inputs, exact


@check("gradients", "gradients/#differences")
def gradients(subject: Subject) -> Found:
    """Gradients reach every input and matrix, and equal finite differences."""
    inputs, exact = _exact(subject)
    leaves = subject.three([x.clone().requires_grad_() for x in inputs])
    named: dict[str, Tensor] = {}
    if isinstance(exact.layer, nn.Module):
        named |= {n: p for n, p in exact.layer.named_parameters() if p.requires_grad}
    names = ("query", "key", "value") if subject.is_heads else ("input",)
    named |= dict(zip(names, leaves, strict=False))
    output = exact(*leaves, **subject.usual).output
    if not output.requires_grad:
        got = "the output has none"
        yield Finding("gradients", "called with gradients on", got, "from output to inputs")
        return
    source = torch.Generator().manual_seed(3)
    # One random direction instead of one entry after the other: a wrong gradient has the right
    # slope along it with probability zero.
    direction = torch.randn(output.shape, generator=source, dtype=torch.float64).to(output.device)
    grads = torch.autograd.grad(output, list(named.values()), direction, allow_unused=True)
    source = torch.Generator().manual_seed(4)
    claims, slopes = [], []
    for x, grad in zip(named.values(), grads, strict=True):
        step = torch.randn(x.shape, generator=source, dtype=torch.float64).to(x.device)
        claims.append(0.0 if grad is None else (grad * step).sum().item())
        slopes.append(_slope(exact, leaves, x, step, direction, claims[-1]))
    # What is far below the largest slope is rounding, and no claim can be held to that.
    largest = max(map(abs, slopes))
    for (name, x), grad, claimed, slope in zip(named.items(), grads, claims, slopes, strict=True):
        did = f"{name} was moved a little"
        if abs(slope - claimed) > 0.01 * max(abs(slope), abs(claimed)) + 1e-3 * largest:
            got = f"its gradient says {said(claimed)}, the output {said(slope)}"
            yield Finding("gradients", did, got, "the same: nothing is detached")
            return
        if not _may_rest(exact, name) and (grad is None or (slope == claimed == 0 and x.ndim > 1)):
            yield Finding("gradients", did, "the output did not move", "every parameter is used")
            return


def _slope(
    exact: Subject, leaves: list[Tensor], x: Tensor, step: Tensor, along: Tensor, claimed: float
) -> float:
    """How fast the output moves along a direction, by the step that fits the claim better.

    A short step is blurred by a softmax in float32, a long one by the kinks of a ReLU, of which a
    block has thousands.
    """
    slopes, before = [], x.detach().clone()
    with torch.no_grad():
        for by in (1e-7, 1e-5, 1e-3):
            sides = []
            for side in (by, -by):
                x.copy_(before + side * step)
                sides.append((exact(*leaves, **exact.usual).output * along).sum().item())
            slopes.append((sides[0] - sides[1]) / (2 * by))
            if by == 1e-5:
                x.copy_(before)
                here = (exact(*leaves, **exact.usual).output * along).sum().item()
                ahead, behind = (sides[0] - here) / by, (here - sides[1]) / by
                if abs(ahead - behind) > 0.05 * max(abs(ahead), abs(behind)):
                    slopes.append(claimed)  # on a kink, as of a ReLU at 0, there is no one slope
        x.copy_(before)
    return min(slopes, key=lambda slope: abs(slope - claimed))


def _may_rest(subject: Subject, name: str) -> bool:
    """Tables of positions that are longer than the text, and what a class has only inherited."""
    kind = type(getattr(subject.layer, "layer", subject.layer))
    is_derived = issubclass(kind, nn.MultiheadAttention)
    is_derived &= getattr(kind, "forward", None) is not nn.MultiheadAttention.forward
    return "pos" in name or "rel" in name or (is_derived and "in_proj" in name)

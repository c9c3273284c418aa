"""Checks of precision: large scores, sixteen and sixty-four bits, gradients."""

import torch
from torch import Tensor, nn

from mhattn.testing.probes import apart, said
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Subject

__all__: list[str] = []


@check("overflow", "online-softmax/#overflow")
def overflow(subject: Subject) -> Found:
    """Large scores give finite outputs and gradients."""
    for size in (10.0, 40.0):
        inputs = [x.requires_grad_() for x in subject.draw(6, seed=7, size=size)]
        options = {"causal": True} if isinstance(subject.calls.causal, str) else {}
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
    need(
        isinstance(subject.layer, nn.Module) or c.dtype == torch.float32,
        "another type was asked for",
    )
    for dtype in (torch.bfloat16, torch.float16):
        for size in (1.0, 6.0):
            other = subject.in_dtype(dtype)
            inputs = other.draw(12, seed=8, size=size)
            options = {"causal": True} if isinstance(c.causal, str) else {}
            try:
                with torch.no_grad():
                    found = other(*inputs, **options).output
            except RuntimeError as error:
                yield Finding(
                    "half",
                    str(dtype),
                    f"RuntimeError: {str(error).splitlines()[0][:100]}",
                    "an output",
                    level="note",
                )
                return
            if found.dtype != dtype:
                yield Finding("half", str(dtype), f"output {found.dtype}", str(dtype))
                return
            if not found.isfinite().all():
                yield Finding(
                    "half",
                    f"{dtype}, tokens of size {size:.0f}",
                    "NaN or infinity",
                    "finite numbers",
                )
                return
            if size == 1.0:
                with torch.no_grad():
                    exact = subject(*_to(inputs, c.dtype), **options).output
                gap = (
                    exact.double() - found.double()
                ).square().mean().sqrt() / exact.double().square().mean().sqrt()
                limit = 24 * torch.finfo(dtype).eps
                if gap > limit:
                    yield Finding(
                        "half",
                        f"{dtype}, 12 tokens",
                        f"outputs are off by {said(gap.item())}",
                        f"within {said(limit)}",
                    )
                    return
    if c.mask and subject.forms.get("mask"):
        other = subject.in_dtype(torch.float16)
        mask = torch.ones(6, 6, dtype=torch.bool, device=c.device).tril()
        inputs = other.draw(6, seed=9)
        try:
            found = other(*inputs, mask=mask).output
        except RuntimeError as error:
            yield Finding(
                "half",
                "float16 with a mask",
                f"RuntimeError: {str(error).splitlines()[0][:100]}",
                "an output",
            )
            return
        exact = subject(*_to(inputs, c.dtype), mask=mask).output
        if not found.isfinite().all() or apart(subject, exact, found).max() > 0.3:
            yield Finding(
                "half", "float16 with a mask", "NaN, or far from float32", "as in float32"
            )


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
    nudged = [x + 1e-9 * torch.ones_like(x) * (1 + torch.arange(x.shape[-1])) for x in inputs]
    nudged = nudged if subject.is_heads else [nudged[0]] * 3
    steps = (exact(*nudged).output - found).abs().max().item()
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
        need(False, f"doesn't run in float64: {str(error).splitlines()[0][:90]}")
    return inputs, exact


@check("gradients", "gradients/#differences")
def gradients(subject: Subject) -> Found:
    """Gradients reach every input and matrix, and equal finite differences."""
    inputs, exact = _exact(subject)
    options = {"causal": True} if isinstance(subject.calls.causal, str) else {}
    leaves = [x.clone().requires_grad_() for x in inputs]
    leaves = leaves if subject.is_heads else [leaves[0]] * 3
    named: dict[str, Tensor] = {}
    if isinstance(exact.layer, nn.Module):
        named |= {n: p for n, p in exact.layer.named_parameters() if p.requires_grad}
    names = ("query", "key", "value") if subject.is_heads else ("input",)
    named |= dict(zip(names, leaves, strict=False))
    output = exact(*leaves, **options).output
    if not output.requires_grad:
        yield Finding(
            "gradients",
            "called with gradients on",
            "the output has none",
            "a graph from output to inputs",
        )
        return
    source = torch.Generator().manual_seed(3)
    direction = torch.randn(output.shape, generator=source, dtype=torch.float64).to(output.device)
    grads = torch.autograd.grad(output, list(named.values()), direction, allow_unused=True)
    used = {name for name in named}
    for (name, x), grad in zip(named.items(), grads, strict=True):
        step = torch.randn(x.shape, generator=source, dtype=torch.float64).to(x.device)
        with torch.no_grad():
            sides = []
            for by in (1e-5, -1e-5):
                x += by * step
                sides.append((exact(*leaves, **options).output * direction).sum().item())
                x -= by * step
        slope = (sides[0] - sides[1]) / 2e-5
        claimed = 0.0 if grad is None else (grad * step).sum().item()
        usual = max(1.0, abs(slope), direction.abs().sum().item() / 30)
        if abs(slope - claimed) > 2e-5 * usual:
            yield Finding(
                "gradients",
                f"{name} was moved a little",
                f"its gradient says {said(claimed)}, the output {said(slope)}",
                "the same: nothing is detached",
            )
            return
        if (
            slope == 0
            and claimed == 0
            and x.ndim > 1
            and name in used
            and not _may_rest(name, subject)
        ):
            yield Finding(
                "gradients",
                f"{name} was moved a little",
                "the output did not move",
                "every matrix is used",
            )
            return


def _may_rest(name: str, subject: Subject) -> bool:
    """Tables of positions that are longer than the text, and the like."""
    return "pos" in name or "rel" in name or "bias" in name

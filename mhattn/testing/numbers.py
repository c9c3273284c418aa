"""Checks of numbers: shapes, chance, types, precision, gradients."""

import copy

import torch
from torch import Tensor, nn

from mhattn.testing.calls import Subject
from mhattn.testing.registry import Found, apart, check, need, said
from mhattn.testing.report import Finding
from mhattn.testing.visibility import causal

__all__: list[str] = []


@check("shape", "shapes/#layer")
def shape(subject: Subject) -> Found:
    """The output has the shape, type and place of the queries, and is finite."""
    query, key, value = subject.draw(5, seed=1)
    found = subject(query, key, value).output
    if found.shape != query.shape:
        yield Finding(
            "shape",
            f"queries {tuple(query.shape)}",
            f"output {tuple(found.shape)}",
            "the same shape",
        )
    elif found.dtype != query.dtype or found.device != query.device:
        yield Finding(
            "shape",
            f"queries {query.dtype} on {query.device}",
            f"output {found.dtype} on {found.device}",
            "the same",
        )
    elif not found.isfinite().all():
        yield Finding("shape", "tokens of size 1", "NaN or infinity", "finite numbers")


@check("repeat", "dropout/#modes")
def repeat(subject: Subject) -> Found:
    """In evaluation, the same call gives the same output."""
    inputs = subject.draw(6, seed=2)
    for options in [{}, {"causal": True}] if isinstance(subject.calls.causal, str) else [{}]:
        one = subject(*inputs, seed=1, **options).output
        for seed in (2, 3, 4):
            gap = apart(subject, one, subject(*inputs, seed=seed, **options).output).max().item()
            if not gap <= subject.tolerance / 10:
                yield Finding("repeat", "eval(), the same call twice", f"outputs differ by {said(gap)}",
                              "no dropout in evaluation, nothing kept from the last call")  # fmt: skip
                return


def shares(subject: Subject) -> list[float]:
    """The shares of all dropouts that a layer names."""
    if not isinstance(subject.layer, nn.Module):
        return []
    found = [m.p for m in subject.layer.modules() if isinstance(m, nn.Dropout)]
    for module in subject.layer.modules():
        for name in (
            "dropout",
            "attn_dropout",
            "attention_dropout",
            "dropout_p",
            "p_drop",
            "attn_pdrop",
        ):
            if isinstance(value := getattr(module, name, None), float):
                found.append(value)
    return [p for p in found if p > 0]


@check("dropout", "dropout/#idea")
def dropout(subject: Subject) -> Found:
    """In training some weights are dropped, and the mean over many calls is evaluation's output."""
    need(shares(subject), "no dropout")
    options = {"causal": True} if isinstance(subject.calls.causal, str) else {}
    inputs = subject.draw(5, batch=2, seed=3)
    with torch.no_grad():
        exact = subject(*inputs, **options).output.double()
        subject.train()
        many = torch.stack(
            [subject(*inputs, seed=s, **options).output.double() for s in range(600)]
        )
        subject.train(False)
    spread = many.std(0)
    if spread.max() == 0:
        yield Finding(
            "dropout",
            "train(), 600 calls",
            "all outputs are the same",
            f"a share of {max(shares(subject))} is dropped",
        )
        return
    away = (many.mean(0) - exact).abs() / (spread / 600**0.5 + 1e-6 * exact.abs().max())
    if not away.max() <= 6.5:
        yield Finding("dropout", "train(), the mean of 600 calls", f"{said(away.max().item())} standard errors from evaluation's output",
                      "the same mean: weights are dropped after softmax and the rest divided by 1 - p")  # fmt: skip


@check("inputs-kept", "shapes-in-depth/#traps")
def inputs_kept(subject: Subject) -> Found:
    """Queries, keys, values and masks are as before after the call, and so is the layer."""
    c = subject.calls
    inputs = [x.clone() for x in subject.draw(6, seed=4)]
    inputs = inputs if subject.is_heads or c.inputs == "qkv" else [inputs[0]] * 3
    before = [x.clone() for x in inputs]
    state = {}
    if isinstance(subject.layer, nn.Module):
        state = {name: value.clone() for name, value in subject.layer.state_dict().items()}
    mask = torch.ones(6, 6, dtype=torch.bool, device=c.device).tril()
    asked = {"mask": mask.clone()} if c.mask and subject.forms.get("mask") else {}
    options = {"causal": True} if isinstance(c.causal, str) and not asked else {}
    with torch.no_grad():
        subject(*inputs, **asked, **options)
    for name, one, other in zip(("query", "key", "value"), inputs, before, strict=True):
        if not torch.equal(one, other):
            yield Finding(
                "inputs-kept",
                "called once",
                f"{name} was changed in place",
                "inputs stay as they are",
            )
            return
    if asked and not torch.equal(asked["mask"], mask):
        yield Finding(
            "inputs-kept", "called once", "the mask was changed in place", "inputs stay as they are"
        )
    if isinstance(subject.layer, nn.Module):
        now = subject.layer.state_dict()
        changed = [
            n for n, v in state.items() if now[n].shape != v.shape or not torch.equal(now[n], v)
        ]
        if changed:
            yield Finding(
                "inputs-kept",
                "called once in eval()",
                f"{changed[0]} changed",
                "evaluation changes no state",
            )


@check("strides", "shapes-in-depth/#contiguous")
def strides(subject: Subject) -> Found:
    """Inputs that aren't contiguous give the same output."""
    inputs = subject.draw(6, seed=5)
    one = subject(*inputs).output
    ways = {
        "transposed in memory": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
        "every second number of a larger tensor": lambda x: torch.stack([x, x], -1).flatten(-2)[
            ..., ::2
        ],
        "batch and length exchanged in memory": lambda x: (
            x.transpose(0, -2).contiguous().transpose(0, -2)
        ),
    }
    for name, way in ways.items():
        changed = [way(x) for x in inputs]
        changed = changed if subject.is_heads else [changed[0]] * 3
        try:
            gap = apart(subject, one, subject(*changed).output).max().item()
        except RuntimeError as error:
            yield Finding(
                "strides",
                name,
                f"RuntimeError: {str(error).splitlines()[0][:100]}",
                "the same output",
            )
            return
        if not gap <= subject.tolerance:
            yield Finding("strides", name, f"outputs differ by {said(gap)}", "the same output")
            return


@check("constant-values", "attention/#softmax")
def constant_values(subject: Subject) -> Found:
    """If all values are the same, so is every output: weights sum to one."""
    c = subject.calls
    need(not c.sinks, "rows sum to less than one: sinks=True")
    need(c.positions != "absolute", "the layer has absolute positions")
    lengths = (4, 7) if subject.takes_two and c.causal is not True else (6,)
    inputs = subject.draw(*lengths, seed=6)
    if c.inputs == "x":
        inputs = [inputs[0][..., :1, :].expand_as(inputs[0]).contiguous()] * 3
    elif c.inputs == "qk":
        inputs[1] = inputs[2] = inputs[1][..., :1, :].expand_as(inputs[1]).contiguous()
    else:
        inputs[2] = inputs[2][..., :1, :].expand_as(inputs[2]).contiguous()
    need(c.inputs != "x" or not _is_block(subject), "a block")
    for options in [{}, {"causal": True}] if isinstance(c.causal, str) else [{}]:
        found = subject(*inputs, **options).output
        one = found[..., :1, :].expand_as(found)
        if subject.is_heads:
            one = (
                inputs[2]
                .repeat_interleave((c.num_heads or 1) // (c.num_kv_heads or 1), 1)[..., :1, :]
                .expand_as(found)
            )
        gap = apart(subject, one, found).max().item()
        if not gap <= subject.tolerance:
            yield Finding("constant-values", "all values are the same", f"outputs differ by {said(gap)}",
                          "each output is that value: the weights of a query sum to one")  # fmt: skip
            return


def _is_block(subject: Subject) -> bool:
    return isinstance(subject.layer, nn.TransformerEncoderLayer)


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
        yield Finding("double", "float64, tokens moved by 1e-9", f"outputs moved by {said(steps)}", "about as much: no float32 within",
                      level="note")  # fmt: skip


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
        exact = Subject(copy.deepcopy(exact.layer), exact.calls, exact.forms)
        named = {n: p for n, p in exact.layer.named_parameters() if p.requires_grad}
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
            yield Finding("gradients", f"{name} was moved a little", f"its gradient says {said(claimed)}, the output {said(slope)}",
                          "the same: nothing is detached")  # fmt: skip
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


@check("causal-shortcut", "pytorch-attention/#mha")
def causal_shortcut(subject: Subject) -> Found:
    """Asking for causal attention changes the output, and equals a causal mask."""
    c = subject.calls
    need(causal(subject) and isinstance(c.causal, str), "causal isn't an argument")
    inputs = subject.draw(6, seed=12)
    one, other = subject(*inputs).output, subject(*inputs, causal=True).output
    if not apart(subject, one, other).max() > subject.tolerance:
        yield Finding(
            "causal-shortcut",
            f"{c.causal}=True",
            "the output is the same as without",
            "another output",
        )
        return
    if not c.mask or not subject.forms.get("mask"):
        return
    mask = torch.ones(6, 6, dtype=torch.bool, device=c.device).tril()
    if c.window:
        mask &= torch.ones_like(mask).triu(1 - c.window)
    gap = apart(subject, other, subject(*inputs, mask=mask).output).max().item()
    if not gap <= subject.tolerance:
        yield Finding(
            "causal-shortcut",
            f"{c.causal}=True, and a triangular mask",
            f"outputs differ by {said(gap)}",
            "the same output",
        )

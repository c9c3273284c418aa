"""Checks of outputs: shapes, chance, inputs that stay as they are, weights that sum to one."""

from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.probes import allowed, apart, said, spread
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Subject

__all__: list[str] = []


@check("shape", "shapes/#layer")
def shape(subject: Subject) -> Found:
    """The output has the shape, type and place of the queries, and is finite."""
    query, key, value = subject.draw(5, seed=1)
    found = subject(query, key, value).output
    shape = list(query.shape)
    shape[-2] = subject.calls.outputs or shape[-2]
    if list(found.shape) != shape:
        did, got = f"queries {tuple(query.shape)}", f"output {tuple(found.shape)}"
        yield Finding("shape", did, got, f"the shape {tuple(shape)}")
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
    inputs = subject.draw(9, seed=2)
    for options in subject.ways:
        one = subject(*inputs, seed=1, **options).output
        for seed in range(2, 9):
            gap = apart(subject, one, subject(*inputs, seed=seed, **options).output).max().item()
            if not gap <= subject.tolerance / 10:
                yield Finding(
                    "repeat",
                    "eval(), the same call twice",
                    f"outputs differ by {said(gap)}",
                    "no dropout in evaluation, nothing kept from the last call",
                )
                return


def _overwritten(subject: Subject) -> Found:
    """What a call has returned stays as it is when the next one comes."""
    for grads in (True, False):
        with torch.set_grad_enabled(grads):
            output = subject(*subject.draw(6, seed=4)).output
            before = output.detach().clone()
            subject(*subject.draw(6, seed=5))
        if not torch.equal(before.nan_to_num(), output.detach().nan_to_num()):
            did, got = "called twice", "the second call has overwritten the first one's output"
            yield Finding("inputs-kept", did, got, "what a call has returned stays as it is")
            return


@check("inputs-kept", "shapes-in-depth/#traps")
def inputs_kept(subject: Subject) -> Found:
    """What is given or was returned stays as it is in a call, and so does the layer."""
    yield from _overwritten(subject)
    c = subject.calls
    seen = torch.ones(6, 6, dtype=torch.bool, device=c.device).tril(3)
    real = torch.arange(6, device=c.device).expand(3, 6) < 5
    ways: list[dict[str, Any]] = [{}]
    if c.mask and subject.forms.get("mask"):
        ways += [{"mask": seen}, {"mask": subject.added(seen)}]
    ways += [{"padding": real}] if c.padding else []
    state: dict[str, Tensor] = {}
    if isinstance(subject.layer, nn.Module):
        state = {name: value.clone() for name, value in subject.layer.state_dict().items()}
    for way in [way | more for way in ways for more in subject.ways]:
        inputs = tuple(subject.three([x.clone() for x in subject.draw(6, seed=4)]))
        tensors, options = subject.prepared(inputs, way)
        given = dict(zip(("query", "key", "value"), tensors, strict=False)) | options
        before = {n: x.clone() for n, x in given.items() if isinstance(x, Tensor)}
        try:
            with torch.no_grad():
                subject.layer(*tensors, **options)
        except Exception:  # what it doesn't take together is another check's affair
            continue
        changed = [name for name, x in before.items() if not torch.equal(x, given[name])]
        if changed:
            what = "what it is given stays as it is"
            yield Finding("inputs-kept", "called once", f"{changed[0]} was changed in place", what)
            return
    if isinstance(subject.layer, nn.Module):
        now = subject.layer.state_dict()
        changed = [n for n, v in state.items() if not _same(now[n], v)]
        if changed:
            got = f"{changed[0]} changed"
            yield Finding("inputs-kept", "called in eval()", got, "evaluation changes no state")


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _kept(x: Tensor, one: int, other: int) -> Tensor:
    """The same numbers, with two axes exchanged in memory."""
    return x.transpose(one, other).contiguous().transpose(one, other)


@check("strides", "shapes-in-depth/#contiguous")
def strides(subject: Subject) -> Found:
    """Inputs that aren't contiguous give the same output."""
    inputs = subject.draw(6, seed=5)
    one = subject(*inputs).output
    ways = {
        "features outside in memory": [_kept(x, -1, -2) for x in inputs],
        "length outside in memory": [_kept(x, 0, -2) for x in inputs],
        "every second number of a larger tensor": [
            x.repeat_interleave(2, dim=-1)[..., ::2] for x in inputs
        ],
    }
    for name, changed in ways.items():
        try:
            gap = apart(subject, one, subject(*subject.three(changed)).output).max().item()
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
        # One vector for all tokens. Its stride of 0 is not what is examined here.
        inputs = [inputs[0][..., :1, :].expand_as(inputs[0]).contiguous()] * 3
    elif c.inputs == "qk":
        inputs[1] = inputs[2] = inputs[1][..., :1, :].expand_as(inputs[1]).contiguous()
    else:
        inputs[2] = inputs[2][..., :1, :].expand_as(inputs[2]).contiguous()
    need(not subject.is_block, "a block: norms and sums are around it")
    for options in subject.ways:
        found = subject(*inputs, **options).output
        one = found[..., :1, :].expand_as(found)
        if subject.takes_two and not subject.is_heads:
            # Of one key, the weight is one. What a layer makes of its queries beside, as a gate
            # does, it makes here too.
            first = [x[..., :1, :].contiguous() for x in inputs[1:]]
            one = subject(inputs[0], *first).output if len(lengths) == 2 else one
        if subject.is_heads:
            one = spread(inputs[2], subject.heads, c.groups)[..., :1, :].expand_as(found)
        gap = apart(subject, one, found).max().item()
        if not gap <= subject.tolerance:
            yield Finding(
                "constant-values",
                "all values are the same",
                f"outputs differ by {said(gap)}",
                "each output is that value: the weights of a query sum to one",
            )
            return


@check("causal-shortcut", "pytorch-attention/#mha")
def causal_shortcut(subject: Subject) -> Found:
    """Asking for causal attention changes the output, and equals a causal mask."""
    c = subject.calls
    need(isinstance(c.causal, str), "causal isn't an argument")
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
    mask = allowed(subject, 6, 6).to(c.device)
    gap = apart(subject, other, subject(*inputs, mask=mask).output).max().item()
    if not gap <= subject.tolerance:
        yield Finding(
            "causal-shortcut",
            f"{c.causal}=True, and a triangular mask",
            f"outputs differ by {said(gap)}",
            "the same output",
        )

"""Examine all attention of a model: each kind of layer once, as the model itself calls it."""

import inspect
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.caught import Caught
from mhattn.testing.doctor import MAYBE_MEANT, check_attention, names_of
from mhattn.testing.formula import UNKNOWN
from mhattn.testing.language import label, translated
from mhattn.testing.report import Finding, Report
from mhattn.testing.subject import Skip, copied
from mhattn.testing.watched import Call, Watched

__all__ = ["ModelReport", "check_model"]

# What holds of any layer of tokens, whatever it computes.
ANY_LAYER = ("shape", "repeat", "dropout", "inputs-kept", "batch", "half", "double", "gradients")
SLOW = 0.2  # seconds of a call: some checks make hundreds of them
Kinds = dict[tuple[Any, ...], list[Call]]


@dataclass
class ModelReport:
    """What was found in a model's layers, one report for each kind.

    Attributes:
        model: the model's name.
        reports: for each kind of layer the name of the first, and its report.
        layers: for each of these names, the names of all layers of its kind.
        unexamined: for the first of each kind that can't be examined, why.
        findings: what concerns the model as a whole.
    """

    model: str
    reports: dict[str, Report] = field(default_factory=dict)
    layers: dict[str, list[str]] = field(default_factory=dict)
    unexamined: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        """Mistakes, of the model and of all its kinds of layers."""
        found = [x for x in self.findings if x.level == "error"]
        return found + [x for report in self.reports.values() for x in report.errors]

    @property
    def ok(self) -> bool:
        """Whether no check found a mistake. What was not examined may still be wrong."""
        return not self.errors

    def __str__(self) -> str:
        kinds, layers = len(self.layers), sum(map(len, self.layers.values()))
        told = f"{layers} layer{'s' * (layers != 1)} of attention"
        lines = [translated(f"{self.model}: {told}, of {kinds} kind{'s' * (kinds != 1)}")]
        for name, names in self.layers.items():
            report = self.reports.get(name)
            kind, verdict = report.layer if report else label("attention"), self._verdict(name)
            lines.append(label("  {}: {} × {}, {}").format(name, kind, len(names), verdict))
        for each in self.findings:
            lines += ["", str(each)]
        for name, report in self.reports.items():
            if not report.ok:
                lines += ["", label("{}:").format(name), textwrap.indent(str(report), "  ")]
        return "\n".join(lines)

    def _verdict(self, name: str) -> str:
        if name in self.unexamined:
            return translated(f"not examined: {self.unexamined[name]}")
        report = self.reports[name]
        number = len(report.errors)
        found = f"{number} mistake{'s' * (number != 1)}" if number else "ok"
        checks, skipped = len(report.checked), len(report.skipped)
        return translated(f"{found}, {checks} checks, {skipped} not made")


def check_model(
    model: nn.Module, *inputs: Any, only: Iterable[str] | None = None, **options: Any
) -> ModelReport:
    """Look for silent mistakes in all attention of a model, as the model calls it.

    The model runs, and each call of attention is caught with its real arguments: positions, masks,
    a memory. For other numbers of sequences and tokens, the model runs again with inputs that are
    repeated or cut. So nothing needs to be said of a layer. Whether it is causal and what it sees
    is measured, and ``assumed`` of each report tells it. A model of transformers is compared under
    ``"sdpa"`` and ``"eager"`` besides.

    Args:
        model: any module that attends; it is copied.
        *inputs: for the model, tensors ``(B, L, ...)`` with at least two sequences of some tokens,
            or pictures ``(B, ...)``.
        only: names of checks. Default: all that apply.
        **options: for the model.

    Returns:
        A `ModelReport`: ``report.ok``, ``report.reports``, ``report.unexamined``, and as text a
        table.

    Raises:
        TypeError: model is no module.
        ValueError: it raises an error with these inputs, or calls no attention.

    Examples:
        >>> block = nn.TransformerEncoderLayer(24, 3, batch_first=True)
        >>> model = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        >>> found = check_model(model, torch.randn(2, 7, 24))
        >>> found.ok, found.layers
        (True, {'layers.0.self_attn': ['layers.0.self_attn', 'layers.1.self_attn']})
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    only = None if only is None else names_of(only)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        other = copied(model).eval().requires_grad_()
        drawn = redrawn(other)
        watched = Watched(other, inputs, unpadded(options), uncalled=copied(other))
        try:
            calls = watched.calls()
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            raise ValueError(f"model raised with these inputs {told}") from error
        if not calls:
            raise ValueError(f"model must attend, got {type(model).__name__}, which doesn't")
        report = ModelReport(type(model).__name__)
        for kind in _kinds(calls).values():
            name = kind[0].name
            report.layers[name] = [each.name for each in kind]
            try:
                report.reports[name] = _examined(watched, kind[0], only)
            except Exception as error:  # no layer keeps the others from being examined
                told = (str(error).splitlines() or [""])[0]
                own = isinstance(error, Skip | TypeError | ValueError)
                report.unexamined[name] = told if own else f"{type(error).__name__}: {told}"
            else:
                words = f"weights of {len(drawn)} matrices were drawn anew: too small or too large"
                report.reports[name].assumed += [words] if drawn else []
        report.findings += _kernels(watched)
    return report


def unpadded(options: dict[str, Any]) -> dict[str, Any]:
    """Options in which no token is padding: one token more or less would be another question."""
    told = dict(options)
    for name, value in options.items():
        if "mask" in name and isinstance(value, Tensor) and value.ndim == 2:
            # In PyTorch's masks of padding, True hides; elsewhere one is a token.
            told[name] = torch.full_like(value, "padding" not in name)
    return told


def _kinds(calls: list[Call]) -> Kinds:
    """Layers that differ in nothing but their numbers."""
    kinds: Kinds = {}
    for call in calls:
        shapes = tuple((n, tuple(p.shape)) for n, p in call.layer.named_parameters())
        given = tuple(sorted(name for name, value in call.given.items() if value is not None))
        own = tuple(str(getattr(call.layer, n, None)) for n in ("is_causal", "sliding_window"))
        kinds.setdefault((type(call.layer), shapes, given, own), []).append(call)
    return kinds


def _examined(watched: Watched, call: Call, only: list[str] | None) -> Report:
    caught = Caught(watched, call)
    how: dict[str, Any] = {} if only is None else {"only": only}
    besides = _besides(call.layer) or _hinders(caught)
    if besides and caught.is_pooled:
        besides = besides[0], (*besides[1], "shape")
    if only is None and besides:
        how["only"] = [n for n in ANY_LAYER if n not in besides[1]]
        caught.assumed.append(f"{besides[0]}: what holds of attention alone isn't asked")
    report = check_attention(caught, **how)
    plain = caught.how
    for other in _readings(plain):
        if not any(x.check == "formula" for x in report.findings):
            break
        caught.how = other
        found = check_attention(caught, **how)
        if not any(x.check == "formula" for x in found.findings):
            report = found
    caught.how = plain
    report.findings = list(_judged(report.findings, caught))
    return report


# What else may be meant where all other checks pass, or all but these.
MEANT = "; if that is meant, this is no mistake: "
ORDER = f"{MEANT}the layer may have positions of its own"
BESIDE = f"{MEANT}what its model gives it besides depends on the other sequences"
WHOM = f"{MEANT}whom a token sees was measured otherwise"
CHOICE = f"{MEANT}which tokens a token sees depends on the tokens"
TURNED = f"{MEANT}positions turn its values"
HARD = f"{MEANT}weights may be rounded to a choice, and gradients pass by it"
BACKWARD = f"{MEANT}a function in it has a backward of its own"
INDEPENDENT = {"dropout", "gradients", "batch"}  # a formula may be right beside these


def _judged(findings: list[Finding], caught: Caught) -> Iterator[Finding]:
    """Of what nobody has said, an error is only what is wrong under every reading."""
    # Where gradients go through what the output doesn't follow, a choice stands in between.
    is_hard = any(x.check == "gradients" and x.got.endswith("the output 0") for x in findings)
    judged = [_one_judged(each, caught, is_hard) for each in findings]
    errors = {each.check for each in judged if each.level == "error"}
    known = {each.check for each in judged if each.level == "error" and UNKNOWN not in each.got}
    is_unknown = known == {"order"}  # nothing else is wrong but what follows from it
    errors -= {"order"} if is_unknown else set()
    for each in judged:
        if each.level == "error" and each.check == "order" and is_unknown:
            yield replace(each, got=each.got + ORDER, level="note")
        elif (
            UNKNOWN in each.got and each.level == "error" and not errors - INDEPENDENT - {"formula"}
        ):
            yield replace(each, got=each.got + MAYBE_MEANT, level="note")
        else:
            yield each


def _one_judged(each: Finding, caught: Caught, is_hard: bool) -> Finding:
    choice = ""
    if each.check == "gradients" and "did not move" in each.got:
        # A choice among keys, or another part of the model, may need it.
        return replace(each, level="note")
    if is_hard and each.check in ("gradients", "half"):
        choice = HARD
    elif each.check == "gradients" and "its gradient says" in each.got and caught.has_own_backward:
        choice = BACKWARD
    elif each.check in ("past", "future") and caught.memories:
        choice = WHOM
    elif each.check == "past" and "did not move" in each.got and caught.chooses:
        choice = CHOICE
    elif each.check == "relative":
        choice = ORDER
    elif each.check == "formula" and "causal without being asked" in each.got:
        choice = WHOM
    elif each.check == "batch" and not caught.follows_the_batch:
        choice = BESIDE
    elif each.check == "constant-values" and caught.turns_values:
        choice = TURNED
    return replace(each, got=each.got + choice, level="note") if choice else each


def _hinders(caught: Caught) -> tuple[str, tuple[str, ...]] | None:
    """What keeps most checks from asking a layer, and what else doesn't hold then."""
    if not caught.has_heads:
        return "the number of its heads isn't found", ()
    if caught.is_pooled:
        return "its outputs are others than its tokens", ()
    if caught.is_odd:
        return "whom a token sees is no pattern that is known", ()
    if caught.seconds > SLOW:
        return f"a call takes {caught.seconds:.1f} seconds", ("dropout", "gradients")
    return None


def _readings(how: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Other ways to read what a layer is given: cosines don't say which features turn together."""
    if how.get("positions") == "rotary":
        layouts = {"halves": "interleaved", "interleaved": "halves"}
        layout, *rest = how["rotary"]
        yield how | {"rotary": (layouts[layout], *rest)}
    if how["scale"] is not None:  # an attribute says something, and the layer does the usual
        yield how | {"scale": None}


def _besides(layer: nn.Module) -> tuple[str, tuple[str, ...]] | None:
    """What a layer has that mixes tokens as well, and what doesn't hold then."""
    kinds = {type(m).__name__ for m in layer.modules()} - {"Conv1D"}  # a linear map of GPT-2
    if any("BatchNorm" in kind for kind in kinds):
        return "norms of a batch besides", ("dropout", "batch")
    return ("convolutions besides", ()) if any("conv" in k.lower() for k in kinds) else None


def redrawn(model: nn.Module) -> list[str]:
    """Draw matrices anew whose numbers are so small or so large that nothing is seen of them."""
    names = []
    for name, p in model.named_parameters():
        if p.ndim == 2 and p.is_floating_point() and p.numel() > 1:
            usual = p.shape[1] ** -0.5
            with torch.no_grad():
                size = p.float().std().item()
                if not 0.01 * usual < size < 3 * usual and "embed" not in name:
                    p.normal_(std=usual)
                    names.append(name)
    return names


def _kernels(watched: Watched) -> list[Finding]:
    """A model of transformers gives the same whichever of its implementations runs."""
    model: Any = watched.model
    if not hasattr(model, "set_attn_implementation"):
        return []
    page = "pytorch-attention/#traps"
    found: dict[str, list[tuple[str, Tensor]]] = {}
    for way in ("eager", "sdpa"):
        other = Watched(copied(watched.uncalled), watched.inputs, watched.options)
        try:
            other.model.set_attn_implementation(way)  # type: ignore[operator]
            torch.manual_seed(0)  # some draw patches or tokens
            calls = other.calls()
            found[way] = outputs(other, calls)
        except Exception:  # it has one implementation only
            return []
    # Some classes inherit the word and have one implementation of their own: they don't ask.
    asks = any(_asks(call.layer) for call in calls)
    if getattr(model, "_supports_sdpa", False) and asks and not any(c.is_fused for c in calls):
        did = 'the model ran with attn_implementation="sdpa", which it says it has'
        got = "F.scaled_dot_product_attention was never called"
        return [Finding("kernels", did, got, "it runs", page=page)]
    for (name, one), (_, two) in zip(found["eager"], found["sdpa"], strict=False):
        if one.shape != two.shape or not one.is_floating_point():
            return []
        both = one.isfinite() & two.isfinite()  # rows of padding that see nothing may be NaN
        one, two = (torch.where(both, each, 0) for each in (one, two))
        gap = ((one - two).abs().max() / one.abs().max().clamp_min(1e-12)).item()
        if not gap < 1e-3:
            got = f"outputs differ by {gap:.2g} of the largest, first in {name}"
            did = 'the model ran with attn_implementation="eager" and with "sdpa"'
            return [Finding("kernels", did, got, "the same up to rounding", page=page)]
    return []


def _asks(layer: nn.Module) -> bool:
    """Whether a layer's code looks for the implementation that was chosen."""
    code = getattr(inspect.unwrap(type(layer).forward), "__code__", None)
    return "_attn_implementation" in getattr(code, "co_names", ())


def outputs(watched: Watched, calls: list[Call]) -> list[tuple[str, Tensor]]:
    """What each attention of a model gives, in the order of the calls."""
    found: list[tuple[str, Tensor]] = []
    handles = []
    for call in calls:

        def note(m: nn.Module, args: Any, out: Any, name: str = call.name) -> None:
            first = out if isinstance(out, Tensor) else out[0]
            found.append((name, first.detach()))

        handles.append(call.layer.register_forward_hook(note))
    try:
        with torch.no_grad():
            torch.manual_seed(0)
            watched.model(*watched.inputs, **watched.options)
    finally:
        for handle in handles:
            handle.remove()
    return found

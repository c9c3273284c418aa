"""Examine a layer that attends: every check that applies, in one report."""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from mhattn.testing import (
    batches,
    caches,
    dropped,
    empty,
    formula,
    heads,
    likeness,
    masks,
    numbers,
    order,
    precision,
    weights,
)
from mhattn.testing.adapted import Adapted
from mhattn.testing.adapters import adapt, kind_of
from mhattn.testing.calls import Calls, assumed
from mhattn.testing.formula import UNKNOWN
from mhattn.testing.order import EARLIER, UNSAID
from mhattn.testing.ranks import ranked
from mhattn.testing.registry import CHECKS, PAGES, Check
from mhattn.testing.report import KNOWN, Finding, Report
from mhattn.testing.subject import Skip, Subject, is_of_layer

__all__ = ["check_attention"]

ROOMS = (
    numbers,
    dropped,
    order,
    masks,
    empty,
    batches,
    caches,
    formula,
    likeness,
    heads,
    weights,
    precision,
)  # each enters its checks


def check_attention(
    layer: Callable[..., Any], *, only: Iterable[str] | None = None, **how: Any
) -> Report:
    """Look for silent mistakes in attention, from what a layer does alone.

    What the layer is called with is read from its class and signature; whatever is not said there,
    or is read wrong, is said by keyword. ``report.assumed`` tells what was read. Attention of
    PyTorch, transformers and x-transformers needs nothing said; `adapt` has what else there is to
    say of it. A module is copied: the caller's own stays as it is.

    Args:
        layer: a module, ``(B, L, E)`` in and out, or a function of queries, keys and values,
            ``(B, H, L, D)``.
        only: names of checks. Default: all that apply; then a formula that isn't known is a note
            where nothing else is wrong, and no mistake is known that gives the layer's output.
        **how: what `Calls` lists:

            - ``embed_dim``, ``num_heads``, ``num_kv_heads``, ``head_dim``: sizes.
            - ``form``: ``"layer"`` or ``"heads"``; ``batch_first``; ``inputs``: ``"x"`` one tensor,
              ``"qk"`` a sequence and a memory, ``"qkv"`` three; ``outputs``: how many, if queries
              are learned.
            - ``causal``: True always, False never, or the argument's name; ``corner``:
              ``"lower right"`` or ``"upper left"``, if queries are fewer than keys.
            - ``mask``, ``padding``: names of arguments; ``mask_true``, ``padding_true``:
              ``"attend"`` or ``"ignore"``, for floats ``"add"``; ``mask_heads``: ``"B,H,L,S"`` or
              ``"B*H,L,S"``; ``empty_rows``: ``"finite"``, ``"zeros"`` or ``"any"``.
            - ``weights``: what must be passed so that weights come back: a name, or a dictionary.
            - ``cache``: the argument's name; ``new_cache``: a function that makes an empty one.
              The layer returns ``(output, ..., cache)``, or changes an object.
            - ``documents``, ``position_ids``: names of arguments, ``(B, L)``.
            - ``positions``: ``"rotary"``, ``"alibi"``, ``"relative"`` or ``"absolute"``;
              ``rotary``: ``("halves", base)`` or ``("interleaved", base)``, and the number of
              features that are turned, if not all.
            - ``groups``: ``"repeat"`` or ``"tile"``; ``scale``; ``cap`` (of soft-capped scores);
              ``window`` (keys that a query sees, itself among them); ``seen`` (``(i, j) -> bool``,
              whether query ``i`` may see key ``j``); ``sinks`` (rows sum to less than one);
              ``like`` (a module with the same weights, or a function of queries, keys and
              values, that gives the same); ``dtype``, ``device``, ``seed``.

    Returns:
        A `Report`: ``report.ok``, ``report.findings``, ``report.assumed``, and as text a table.

    Raises:
        TypeError: an argument is unknown, or the layer can't be called.
        ValueError: an argument has a wrong value, a check is unknown, or the layer raises an error
            in its plainest call.

    Examples:
        >>> check_attention(nn.MultiheadAttention(24, 3, batch_first=True)).ok
        True
        >>> def unscaled(query, key, value):
        ...     return (query @ key.mT).softmax(dim=-1) @ value
        >>> check_attention(unscaled).findings[0].got.split("of: ")[1]
        'scale missing'
    """
    if not callable(layer):
        raise TypeError(f"layer must be a module or a function, got {layer!r}")
    unknown = sorted(set(how) - set(Calls.__dataclass_fields__))
    if unknown:
        raise TypeError(f"{unknown[0]} is no argument of check_attention")
    names = names_of(only)
    # The caller's random numbers go on as if nothing had been drawn, and gradients are there even
    # under `torch.no_grad`.
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        if kind_of(layer) and isinstance(layer, nn.Module):
            layer = adapt(layer)
        subject = Subject.of(layer, Calls(**how), set(how))
        _first_call(subject, set(how))
        subject.calls = _with_outputs(subject)
        report = _examined(subject, names)
        if only is None and not (says_formula(subject.layer) or set(how) & SAYS_FORMULA):
            _not_accused(report)
    report.assumed = assumed(subject.layer, subject.calls, set(how))
    return report


# Whoever says one of these says which formula it is; then another one is a mistake.
SAYS_FORMULA = {"scale", "cap", "positions", "rotary", "groups"}
MAYBE_MEANT = (
    "; all else is right: if another formula is meant, this is no mistake; what may explain it: "
    "positions, rotary, scale, cap, groups"
)


def says_formula(layer: Any) -> bool:
    """Whether an adapter knows a layer's class, and so which formula it should compute."""
    return isinstance(layer, Adapted) and layer.knows_formula


def _not_accused(report: Report) -> None:
    """Where behaviour is right and no known mistake fits, another formula is no mistake."""
    if len(report.errors) != 1:
        return
    [strange] = report.errors
    if UNKNOWN in strange.got:
        why = MAYBE_MEANT
    elif strange.check == "heads-apart" and "formula" in report.skipped:
        why = "; all else is right: if heads are mixed on purpose, this is no mistake"
    else:
        return
    at = report.findings.index(strange)
    report.findings[at] = replace(strange, got=strange.got + why, level="note")


def names_of(names: Iterable[str] | None, argument: str = "only") -> list[str]:
    """The checks that an argument names; None: all."""
    named = list(PAGES) if names is None else list(names)
    if strange := [name for name in named if name not in PAGES]:
        known = ", ".join(PAGES)
        raise ValueError(f"{argument} must name checks, got {strange[0]!r}; there are {known}")
    return named


def _first_call(subject: Subject, said: set[str]) -> None:
    try:
        subject(*subject.draw(5))
    except Skip:
        raise
    except Exception as error:
        c = subject.calls
        sizes = {"embed_dim": c.embed_dim, "num_heads": c.num_heads}
        told = ", ".join(f"{name}={size}" for name, size in sizes.items())
        text = (
            f"layer raised {type(error).__name__} in its plainest call, with inputs={c.inputs!r}, "
            f"{told}: {error}"
        )
        guessed = [name for name in sizes if name not in said]
        if not guessed or isinstance(subject.layer, Adapted):
            raise ValueError(text) from error
        say = ", ".join(f"{name}=..." for name in guessed)
        text += f"; {' and '.join(guessed)} guessed: if that is wrong, say {say}"
        raise ValueError(text) from None


def _with_outputs(subject: Subject) -> Calls:
    """How a layer is called; one with as many outputs for any text may have learned its queries."""
    c = subject.calls
    if c.outputs is None and c.inputs == "x" and isinstance(subject.layer, nn.Module):
        wide = [p for p in subject.layer.parameters() if p.shape[-1:] == (c.embed_dim,)]
        with contextlib.suppress(Exception):  # the check of lengths says it
            counts = {subject(*subject.draw(length)).output.shape[1:2] for length in (1, 5, 8)}
            if len(counts) == 1 and counts <= {p.shape[-2:-1] for p in wide}:
                c = replace(c, outputs=counts.pop()[0])
    if c.outputs is None:
        return c
    # Its queries have no places in the text: a mask of pairs and an order of time mean nothing.
    return replace(c, mask=False, causal=False, cache=False, documents=False, position_ids=False)


def _examined(subject: Subject, names: list[str]) -> Report:
    layer = subject.layer.layer if isinstance(subject.layer, Adapted) else subject.layer
    name = (
        type(layer).__name__
        if isinstance(layer, nn.Module)
        else getattr(layer, "__name__", repr(layer))
    )
    report = Report(name)
    with contextlib.suppress(Exception):
        # Before all checks, as many of them ask which form of mask a layer takes.
        masks.try_forms(subject)
    unsaid = None
    if "past" in names:
        with contextlib.suppress(Exception):  # where a check can't look, it says so itself
            unsaid = order.unsaid(subject)
    if unsaid:
        report.findings.append(replace(unsaid, page=PAGES[unsaid.check]))
        subject.calls = replace(subject.calls, causal=True)  # the rest is examined as it is
    rooms = [room.__name__ for room in ROOMS]
    # From the plain to the intricate, in whatever order modules were imported: where shapes are
    # wrong, a formula has no chance.
    ordered = sorted(CHECKS.values(), key=lambda each: rooms.index(each.look.__module__))
    for check in (each for each in ordered if {each.name, *_parts(each)} & set(names)):
        found, why = _looked(check, subject)
        reported = {each.check for each in found}
        for part in (check.name, *_parts(check)):
            if why:
                report.skipped[part] = why
            elif part == check.name or part in reported or not reported:
                report.checked.append(part)
            else:
                report.skipped[part] = f"{check.name} found a mistake first"
        # What two checks run into is told once.
        known = {(each.check, each.level) for each in report.findings}
        report.findings += [each for each in found if (each.check, each.level) not in known]
    _sort(report, subject)
    return report


def _sort(report: Report, subject: Subject) -> None:
    """First what names the mistake, then what needs the fewest others; a note is no mistake."""
    order = ranked(report.findings, always_causal=subject.calls.causal is True)

    def place(each: Finding) -> tuple[bool, bool, int]:
        named = any(name in each.got for name in (KNOWN, UNSAID, EARLIER))
        # A formula without a name tells least, and less than what stands beside it.
        check = "half" if UNKNOWN in each.got else each.check
        return each.level == "note", not named, order.index(check)

    report.findings.sort(key=place)


def _parts(check: Check) -> list[str]:
    """Names under which a check alone reports."""
    return [name for name in check.also if name not in CHECKS]


# What can be asked of a layer that is called with one number of tokens alone.
OF_ONE_LENGTH = (
    "shape",
    "repeat",
    "dropout",
    "inputs-kept",
    "strides",
    "constant-values",
    "past",
    "batch",
    "heads-apart",
    "formula",
    "overflow",
    "half",
    "double",
    "gradients",
)


def _looked(check: Check, subject: Subject) -> tuple[list[Finding], str]:
    """What a check found, and why it could not look."""
    found: list[Finding] = []
    if any(subject.fixed) and check.name not in OF_ONE_LENGTH:
        tokens, keys = subject.fixed
        many = f"{tokens} tokens" if tokens else f"{keys} keys"
        return found, f"its model calls it with {many}, whatever the input"
    try:
        for each in check.look(subject):
            found.append(replace(each, page=each.page or PAGES[each.check]))
    except Skip as why:
        return found, "" if found else str(why)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        said = f"{type(error).__name__}: {lines[0]}"[:200]
        if not is_of_layer(error):
            return found, "" if found else f"the check itself failed: {said}"
        # A call that a right layer takes has failed: that is a finding, and the other checks go on.
        found.append(Finding(check.name, check.says, said, "no error", page=check.page))
    finally:
        subject.train(False)
    return found, ""

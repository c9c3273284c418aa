"""Checks of caches and of positions."""

from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.adapted import Adapted
from mhattn.testing.masks import try_forms
from mhattn.testing.probes import allowed, apart, pair, said
from mhattn.testing.registry import Found, check, need
from mhattn.testing.report import Finding
from mhattn.testing.subject import Skip, Subject

__all__: list[str] = []

RELATIVE = ("rotary", "alibi", "relative")


def steps(
    subject: Subject, x: Tensor, sizes: tuple[int, ...], cache: Any, start: int = 0
) -> tuple[Tensor, Any]:
    """Give a text in pieces."""
    outputs = []
    asked = subject.usual
    for size in sizes:
        at: dict[str, Any] = dict(asked)
        if subject.calls.position_ids and subject.calls.positions:
            at["position_ids"] = torch.arange(start, start + size, device=x.device).expand(
                len(x), size
            )
        # A layer may reshape by view; whether it takes other strides is a check of its own.
        piece = x[:, start : start + size].contiguous()
        with torch.no_grad():
            found = subject(piece, piece, piece, cache=cache, **at)
        cache = found.cache
        outputs.append(found.output)
        start += size
    return torch.cat(outputs, dim=1), cache


@check("cache", "kv-cache/#decode", cache_chunks="kv-cache/#traps")
def cache(subject: Subject) -> Found:
    """A text in pieces, with a cache, gives the outputs of the whole text."""
    c = subject.calls
    need(c.cache and not subject.is_heads, "takes no cache")
    need(not _sees_later(subject), "seen: a query sees keys that come later")
    asked = subject.usual
    # Three windows long: a cache that drops keys has to do it more than once.
    length = 9 if not c.window else 3 * c.window + 2
    x = subject.draw(length, seed=8)[0]
    if c.position_ids and c.positions:
        asked["position_ids"] = torch.arange(length, device=x.device).expand(len(x), length)
    with torch.no_grad():
        full = subject(x, x, x, **asked).output
    plans = {"cache": (4, *[1] * (length - 4)), "cache-chunks": (3, 2, length - 5)}
    for name, sizes in plans.items():
        # A second time, for a layer may keep something of the first text.
        for again in range(2):
            got, _ = steps(subject, x, sizes, subject.new_cache())
            gap = apart(subject, full, got)
            if not gap.max() <= subject.tolerance:
                b, i = pair(gap == gap.max()) if gap.max().isfinite() else (0, 0)
                yield Finding(
                    name,
                    f"{length} tokens in pieces of {list(sizes)[:6]}" + ", a second time" * again,
                    f"output {i} differs by {said(gap.max().item())} from that of the whole text",
                    "the same to rounding",
                    f"sequence {b}",
                    "mask-conventions/#alignment" if name == "cache-chunks" else "",
                )
                return
    yield from _twice(subject, x, full)
    other = subject.draw(length, seed=9)[0]
    ours, mine = steps(subject, x, (4,), subject.new_cache())
    steps(subject, other, (4,), subject.new_cache())
    rest, _ = steps(subject, x, (1,) * (length - 4), mine, start=4)
    away = apart(subject, full, torch.cat([ours, rest], 1)).max().item()
    if not away <= subject.tolerance:
        yield Finding(
            "cache",
            "two texts took turns, each with a cache of its own",
            f"outputs differ by {said(away)}",
            "caches are apart",
        )


def _sees_later(subject: Subject) -> bool:
    """Whether a pattern that was said lets a query see later keys, which no cache can have."""
    seen = allowed(subject, 9, 9, is_causal=bool(subject.calls.causal))
    return bool(subject.calls.seen and seen.triu(1).any())


def _cropped(cache: Any, length: int, seen: int) -> None:
    """Crop to a length; some caches want how many tokens go, as a negative number."""
    try:
        cache.crop(length)
    except (TypeError, ValueError):
        try:
            cache.crop(length - seen)
        except Exception as error:
            raise Skip(f"can't be cropped: {error}") from error


@check("cache-crop", "kv-cache/#traps")
def cache_crop(subject: Subject) -> Found:
    """After cropping, a cache continues as if the dropped tokens had never come."""
    c = subject.calls
    need(c.cache and not subject.is_heads, "takes no cache")
    need(not c.window and not c.seen, "the layer has a window, or seen")
    x, other = subject.draw(9, seed=8)[0], subject.draw(9, seed=10)[0]
    _, first = steps(subject, x, (1,), subject.new_cache())
    need(first is not None, "no cache comes back: say new_cache")
    need(hasattr(first, "crop"), f"the cache is a {type(first).__name__}: nothing to crop")
    spliced = torch.cat([x[:, :5], other[:, 5:]], 1)
    _, kept = steps(subject, x, (9,), subject.new_cache())
    _cropped(kept, 7, 9)
    _cropped(kept, 5, 7)
    got, _ = steps(subject, spliced, (1, 1, 2), kept, start=5)
    full, _ = steps(subject, spliced, (9,), subject.new_cache())
    if not (gap := apart(subject, full[:, 5:], got).max().item()) <= subject.tolerance:
        yield Finding(
            "cache-crop",
            "9 tokens, cropped to 7 and to 5, then 4 others",
            f"outputs differ by {said(gap)}",
            "those of the new text",
        )


def _twice(subject: Subject, x: Tensor, full: Tensor) -> Found:
    """A cache that is returned, not changed, may be continued twice."""
    _, past = steps(subject, x, (4,), subject.new_cache())
    if not isinstance(past, tuple | list | Tensor):
        return
    for number in ("once", "a second time"):
        got, _ = steps(subject, x, (1,), past, start=4)
        gap = apart(subject, full[:, 4:5], got).max().item()
        if not gap <= subject.tolerance:
            did = f"4 tokens, and a fifth {number} with the same cache"
            what = "a returned cache stays as it is"
            yield Finding("cache", did, f"output 4 differs by {said(gap)}", what)
            return


@check("relative", "positions/#turned", positions_half="positions/#traps")
def relative(subject: Subject) -> Found:
    """Where a text begins changes nothing, if positions are relative."""
    c = subject.calls
    need(c.positions in RELATIVE, "no relative positions are declared")
    if not c.position_ids:
        need((c.mask or c.padding) and not c.seen, "takes no positions, and nothing hides tokens")
        yield from _shifted(subject)
        return
    x = subject.draw(6, seed=11)
    asked = subject.usual
    at = torch.arange(6, device=c.device).expand(3, 6)
    one = subject(*x, position_ids=at, **asked).output
    for by, later, size in (
        ("1", torch.tensor(1), 1.0),
        ("1, 5 and 0", torch.tensor([[1], [5], [0]]), 1.0),
        ("100", torch.tensor(100), 1.0),
        # So far out, float32 keeps an angle to about 1e-4, whatever the layer does.
        ("3000", torch.tensor(3000), 20.0),
    ):
        try:
            moved = subject(*x, position_ids=at + later.to(c.device), **asked).output
        except IndexError:  # its table ends
            break
        gap = apart(subject, one, moved).max().item()
        if not gap <= subject.tolerance * size:
            name = "relative" if size == 1 else "positions-half"
            yield Finding(
                name,
                f"positions {by} later",
                f"outputs differ by {said(gap)}",
                "the same: only distances count",
            )
            return
    yield from _own_positions(subject, x, at, one)


def _shifted(subject: Subject) -> Found:
    """Hidden tokens in front of a text move its places, and no output."""
    c, x = subject.calls, subject.draw(6, seed=11)
    if c.mask:
        try_forms(subject)
    one = subject(*x, **subject.usual).output
    for number in (1, 5, 31):
        front, length = subject.draw(number, seed=12), number + 6
        longer = subject.three([torch.cat([a, b], -2) for a, b in zip(front, x, strict=True)])
        real = torch.arange(length, device=c.device) >= number
        # What is hidden sees itself, and no row is empty.
        mask = (real[:, None] & real) | torch.eye(length, dtype=torch.bool, device=c.device)
        ways = [("mask", mask)] * bool(c.mask) + [("padding", real.expand(3, -1))] * bool(c.padding)
        for name, hides in ways:
            try:
                asked: dict[str, Any] = subject.usual | {name: hides}
                other = subject(*longer, **asked).output
            except Exception:  # its table ends, or it refuses both
                continue
            gap = apart(subject, one, other[..., number:, :]).max().item()
            if not gap <= subject.tolerance:
                did = f"{number} token{'s' * (number > 1)} in front, hidden by the {name}"
                got = f"outputs differ by {said(gap)}"
                yield Finding("relative", did, got, "the same: only distances count")
                return
    yield from _matter(subject, x, one)


def _matter(subject: Subject, x: list[Tensor], one: Tensor) -> Found:
    """Tokens in another order give other outputs, where positions are said to be used."""
    layer, c = subject.layer, subject.calls
    parts = layer.parameters() if isinstance(layer, nn.Module) else ()
    # A table of zeros changes nothing before it is trained; what is read of a class isn't said.
    if isinstance(layer, Adapted) or any(not p.any() for p in parts) or (c.window or 3) < 3:
        return
    moved = subject.three([y[..., [0, 1, 2, 4, 3, 5], :] for y in x])
    other = subject(*moved, **subject.usual).output
    if not (apart(subject, one, other)[:, -1] > subject.tolerance / 20).any():
        did, got = "tokens 3 and 4 were exchanged", "output 5 did not move"
        yield Finding("relative", did, got, f"positions are used: positions={c.positions!r}")


def _own_positions(subject: Subject, x: list[Tensor], at: Tensor, one: Tensor) -> Found:
    """Each sequence has positions of its own, and they matter."""
    wide, asked = at * torch.tensor([[2], [1], [3]], device=at.device), subject.usual
    spread = subject(*x, position_ids=wide, **asked).output
    for b in range(3):
        alone = subject(
            *subject.three([y[b : b + 1] for y in x]), position_ids=wide[b : b + 1], **asked
        )
        gap = apart(subject, alone.output, spread[b : b + 1]).max().item()
        if not gap <= subject.tolerance:
            did = "each sequence has positions of its own"
            yield Finding("relative", did, f"sequence {b} differs by {said(gap)}", "as it is alone")
            return
    # The second sequence's positions are as before, so its outputs have to be, too.
    gap = apart(subject, one, spread)[::2].max().item()
    if gap <= subject.tolerance:
        yield Finding(
            "relative",
            "positions twice as far apart",
            "outputs did not change",
            "other outputs: positions are used",
        )


@check("positions-half", "positions/#traps")
def positions_half(subject: Subject) -> Found:
    """In half precision, far positions are as exact as near ones."""
    c = subject.calls
    need(c.positions in RELATIVE, "no relative positions are declared")
    need(c.position_ids, "takes no positions")
    half = subject.in_dtype(torch.bfloat16)
    x = half.draw(6, seed=11)
    at = torch.arange(6, device=c.device).expand(3, 6)
    try:
        # In bfloat16, which has eight bits, positions 3001 to 3006 are all 3008.
        near, far = (half(*x, position_ids=at + by).output for by in (0, 3001))
    except Exception as error:
        raise Skip(f"doesn't run in bfloat16: {str(error).splitlines()[0][:80]}") from error
    same = subject.three([y.to(c.dtype) for y in x])
    exact = subject(*same, position_ids=at).output
    usual, gap = apart(half, exact, near).max().item(), apart(half, exact, far).max().item()
    if gap > 6 * usual + 0.02:
        yield Finding(
            "positions-half",
            "bfloat16, positions 0 to 5 and 3001 to 3006",
            f"errors {said(usual)} and {said(gap)}",
            "alike: angles in float32",
        )

"""Which finding is told first: of two that one mistake may have caused, what the other needs."""

from collections.abc import Sequence
from typing import Protocol

__all__: list[str] = []

# A check stands behind those that it needs: if outputs are chance, every comparison fails; if a
# plain mask hides nothing, a mask for each head doesn't either. What tells only that something is
# wrong, as another formula that has no name, stands at the end.
RANKS: tuple[str, ...] = (
    "shape",
    "repeat",
    "dropout",
    "batch",
    "lengths",
    "future",
    "mask-sense",
    "mask",
    "past",
    "relative",
    "padding",
    "packing",
    "gradients",
    "constant-values",
    "mask-size",
    "heads-apart",
    "order",
    "formula",
    "queries-apart",
    "weights",
    "mask-heads",
    "mask-batch",
    "causal-shortcut",
    "cache",
    "cache-chunks",
    "cache-crop",
    "overflow",
    "positions-half",
    "strides",
    "inputs-kept",
    "empty-rows",
    "half",
    "corner",
    "mask-and-causal",
    "padding-gradient",
    "double",
    "mask-forms",
    "like",
)
MASKS = ("mask-size", "mask-batch", "mask-heads", "mask-and-causal", "mask-forms")
# What as a rule has no other reason than the first finding.
FOLLOWS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("shape", "repeat", "batch", "lengths"), RANKS),
    "dropout": ("batch", "future", "padding", "mask", *MASKS),
    "future": ("mask", *MASKS, "causal-shortcut", "padding", "corner", "cache", "formula"),
    "mask-sense": ("mask", *MASKS, "causal-shortcut", "empty-rows", "formula", "weights"),
    "mask": (*MASKS, "causal-shortcut", "empty-rows", "padding", "corner", "formula", "weights"),
    "past": ("formula", "order", "weights", "corner", "cache", "causal-shortcut", *MASKS),
    "relative": ("positions-half", "formula", "cache", "corner"),
    "padding": ("padding-gradient", "empty-rows"),
    "constant-values": ("formula", "weights", "corner", "heads-apart", "queries-apart", *MASKS),
    "heads-apart": ("formula", "order", "corner", "weights", *MASKS),
    "cache": ("cache-chunks", "cache-crop"),
    "overflow": ("half", "gradients", "mask-size"),
    "gradients": ("padding-gradient", "double"),
}


class Found(Protocol):
    """A finding."""

    @property
    def check(self) -> str: ...

    @property
    def level(self) -> str: ...


def ranked(findings: Sequence[Found], *, always_causal: bool) -> list[str]:
    """Names of checks, the first one that which needs the fewest others."""
    ranks = list(RANKS)
    # Causal attention that is asked for hides by the same step as a mask does: where both leak, it
    # is that step, unless tokens mix without any mask.
    mixing = {"order", "queries-apart"} & {each.check for each in findings}
    if not (always_causal or mixing):
        ranks.insert(ranks.index("mask"), ranks.pop(ranks.index("future")))
    return ranks


def following(findings: Sequence[Found]) -> list[Found]:
    """The mistakes that follow from the first."""
    if not findings or findings[0].level != "error":
        return []
    follows = FOLLOWS.get(findings[0].check, ())
    return [each for each in findings[1:] if each.level == "error" and each.check in follows]

"""Checks of tokens and of caches, block by block; the others are from `mhattn.core.checks`."""

from collections.abc import Sequence
from typing import Any

from mhattn.core.checks import (
    INTEGERS as INTEGERS,
    at_least as at_least,
    at_most as at_most,
    axes as axes,
    divides as divides,
    floats as floats,
    integers,
)

__all__: list[str] = []  # each check is for one function of the package


def tokens(tokens: Any) -> None:
    integers("tokens", tokens)
    axes("tokens", tokens, 2, exactly=True)


def caches(caches: Sequence[Any] | None, blocks: int) -> None:
    if caches is not None and len(caches) != blocks:
        raise ValueError(f"caches must be one for each of {blocks} blocks, got {len(caches)}")

"""Broken functions and layers, each a right one with one place broken: ``MUTANTS``."""

from mutants import (  # noqa: F401
    caches,
    examined,
    functions,
    layers,
    masks,
    normed,
    outputs,
    padding,
    positions,
    precision,
    styled,
    windows,
    wrapped,
)
from mutants.registry import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant"]

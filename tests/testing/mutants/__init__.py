"""Broken functions and layers, each a right one with one place broken: ``MUTANTS``."""

from mutants import (  # noqa: F401
    caches,
    functions,
    layers,
    masks,
    outputs,
    padding,
    positions,
    precision,
    windows,
)
from mutants.registry import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant"]

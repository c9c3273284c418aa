"""Broken functions and layers, each a right one with one place broken: ``MUTANTS``."""

from mutants import caches, functions, layers, masks, padding, positions, precision  # noqa: F401
from mutants.registry import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant"]

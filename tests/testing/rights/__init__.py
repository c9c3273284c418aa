"""Right layers and functions, with what the doctor has to be told of each: ``RIGHT``."""

from rights import of_llamas, of_others, of_torch, of_transformers  # noqa: F401
from rights.entries import RIGHT, Right
from rights.wrong import WRONG

__all__ = ["RIGHT", "WRONG", "Right"]

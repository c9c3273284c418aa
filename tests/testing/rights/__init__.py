"""Right layers and functions, with what the doctor has to be told of each: ``RIGHT``."""

from rights import of_llamas, of_others, of_torch, of_transformers  # noqa: F401
from rights.entries import RIGHT, Right

__all__ = ["RIGHT", "Right"]

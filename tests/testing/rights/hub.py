"""How transformers' classes are built: small, from sizes, nothing is downloaded."""

import os
import warnings
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported


def config(name: str, way: str = "sdpa", **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    return getattr(transformers, name)(attn_implementation=way, **options)


def model(module: str, name: str) -> Any:
    import importlib

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    return getattr(found, name)

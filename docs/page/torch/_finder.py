"""Modules of torch that nothing here rewrites: they can be imported, and each name of theirs says
that it is lacking.

So `mhattn` is imported as it is: what it takes from such a module fails when it is used, not
before.
"""

import importlib.abc
import importlib.machinery
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import _state

__all__ = ["install", "known"]

# Modules of torch that exist and that we have not written; what is below them exists as well.
LACKING = [
    "_C",
    "_dynamo",
    "_inductor",
    "_functorch",
    "accelerator",
    "amp",
    "ao",
    "backends",
    "compiler",
    "cpu",
    "cuda",
    "distributed",
    "distributions",
    "export",
    "fft",
    "fx",
    "hub",
    "jit",
    "library",
    "linalg",
    "masked",
    "mps",
    "multiprocessing",
    "nested",
    "ops",
    "package",
    "profiler",
    "quantization",
    "serialization",
    "signal",
    "sparse",
    "special",
    "types",
    "xpu",
    "func",
    "overrides",
    "utils",
    "testing",
    "return_types",
]


class _Lacking(type):
    """The type of the placeholders: using one, or anything below it, raises."""

    def __call__(cls, *_: Any, **__: Any) -> Any:
        if cls.__dict__.get("_full_name") is None:  # a class that was derived from a placeholder
            cls = next(base for base in cls.__mro__ if base.__dict__.get("_full_name"))
        raise _state.lacking(cls._full_name)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or name == "_full_name":
            raise AttributeError(name)
        return placeholder(f"{cls._full_name}.{name}")

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def __iter__(cls) -> Any:
        raise _state.lacking(cls._full_name)


def placeholder(name: str) -> Any:
    """A class of this name, without torch in front, that can be imported, annotated with and
    derived from, not used.
    """
    return _Lacking(
        name.rpartition(".")[2], (), {"_full_name": name, "__doc__": "not in this page's stand-in"}
    )


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if name[0].islower() and f"{self.__name__}.{name}" in sys.modules:
            return sys.modules[full]
        made = placeholder(full.removeprefix("torch."))
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what no file of ours is."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if known(name):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


def known(name: str) -> bool:
    """Whether there is such a module: a file of ours, or one that torch has."""
    if name in sys.modules:
        return True
    parts = name.split(".")
    if parts[0] != "torch" or len(parts) < 2:
        return False
    own = Path(__file__).parent.joinpath(*parts[1:])
    if own.is_dir() or own.with_suffix(".py").is_file():
        return True
    if parts[1] in LACKING:
        return True
    return (
        parts[1] in ("nn", "optim")
        and len(parts) > 2
        and parts[2] in ("attention", "parallel", "utils", "lr_scheduler")
    )


def install() -> None:
    """Ask it last, after all that finds files."""
    sys.meta_path.append(_Finder())

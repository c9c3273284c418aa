"""What the command line names: a class, an object, a file of classes, a configuration."""

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from mhattn.testing.calls import SIZES, signature

__all__: list[str] = []

USUAL = {"embed_dim": 24, "num_heads": 3}  # where a class needs them and has no default
KINDS = ("attention", "attn")  # a file's classes with such a name are examined


def is_of_model(target: str) -> bool:
    """Whether a target is a configuration: all attention of a small model is examined."""
    return target.startswith("transformers:") or target.endswith(".json")


def split(target: str) -> tuple[str, str]:
    """Module or path of a file, and the name in it, if there is one."""
    place, _, name = target.rpartition(":")
    # No colon, or that of a drive: a path alone.
    return (place, name) if place and not target.endswith(".py") else (target, "")


def module_of(place: str) -> ModuleType:
    """The module that a dotted name or the path of a file names."""
    sys.path.insert(0, "")
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place)
    if not path.is_file():
        raise ValueError(f"layer must name a file that is there, got {place!r}")
    # What stands beside the file is found, as if it had been run.
    sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # a file that ends in .py has both
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def named(target: str) -> Any:
    """What ``package.module:name`` or ``path/to/file.py:name`` names."""
    place, name = split(target)
    found: Any = module_of(place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{place} has no {name!r}")
        found = getattr(found, part)
    return found


def attention_in(path: str) -> list[type[nn.Module]]:
    """Classes of attention that a file defines, known by their names."""
    module = module_of(path)
    found = [
        each
        for name, each in vars(module).items()
        if inspect.isclass(each)
        and issubclass(each, nn.Module)
        and each.__module__ == module.__name__
        and any(kind in name.lower() for kind in KINDS)
    ]
    if not found:
        words = " or ".join(map(repr, KINDS))
        raise ValueError(f"{path} has no class with {words} in its name: say {path}:NAME")
    return found


def made(
    target: type, sizes: dict[str, int | None], extra: dict[str, Any]
) -> tuple[Any, dict[str, int]]:
    """An object of a class, and its sizes: those asked for, the class's own, or the usual ones."""
    names, required = signature(target)
    options, told = dict(extra), dict[str, int]()
    for size, asked in sizes.items():
        name, value = next((each for each in SIZES[size] if each in names), None), asked
        if name in options:
            value = options[name]
        elif name and value is None and name not in required:
            # Not passed on, as the class has it anyway: but the doctor is told, and need not guess.
            value = inspect.signature(target).parameters[name].default
        elif name:
            value = value or USUAL.get(size)
            options |= {name: value} if value else {}
        if isinstance(value, int):
            told[size] = value
    if missing := [name for name in required if name not in options]:
        raise ValueError(f"{target.__name__} needs {missing[0]}: say --set {missing[0]}=...")
    # The same weights in every run, so that a report can be compared with the one before.
    torch.manual_seed(0)
    try:
        return target(**options), told
    # Whatever somebody else's class may raise: who reads it needs the call that failed, not our own
    # lines.
    except Exception as error:
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        said = f"{type(error).__name__}: {error}"
        raise ValueError(f"{target.__name__}({given}) raised {said}") from error

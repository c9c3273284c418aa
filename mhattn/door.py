"""How a package of ours exports names: a module is imported when one of its names is asked for."""

import importlib
import pkgutil
import sys
from collections.abc import Callable
from typing import Any

__all__: list[str] = []  # used by the doors: `mhattn` and each package below it

Door = tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]


def lazy(package: str, names: dict[str, str]) -> Door:
    """Make what a package needs in order to import nothing until somebody asks.

    Args:
        package: its name, as in ``__name__``.
        names: for each of its modules, ``core.masks`` as seen from ``mhattn``, the names that
            the package exports from it, separated by blanks.

    Returns:
        The package's ``__all__``, ``__getattr__`` and ``__dir__``.

    Examples:
        >>> names, find, _ = lazy("mhattn.core", {"masks": "causal_mask padding_mask"})
        >>> names, find("causal_mask").__module__
        (['causal_mask', 'padding_mask'], 'mhattn.core.masks')
    """
    module_of = {name: module for module, found in names.items() for name in found.split()}

    def below() -> set[str]:
        return {found.name for found in pkgutil.iter_modules(sys.modules[package].__path__)}

    def find(name: str) -> Any:
        """Import the module that has the name, or that is called so."""
        if name in module_of:
            return getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        if name in below():
            return importlib.import_module(f"{package}.{name}")
        why = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(why, name=name, obj=sys.modules[package])

    def listed() -> list[str]:
        hidden = {name for name in vars(sys.modules[package]) if name.startswith("__")}
        return sorted(hidden | below() | set(module_of))

    return sorted(module_of), find, listed

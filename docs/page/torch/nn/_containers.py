"""Lists and dictionaries of modules."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from torch.nn._module import Module, Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _Row(Module):
    """Modules under the names 0, 1, 2 …"""

    def _fill(self, modules: Iterable[Module]) -> None:
        self._modules.clear()
        for i, module in enumerate(modules):
            self.add_module(str(i), module)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(*self._again(list(self._modules.values())[index]))
        names = list(self._modules)
        if not -len(names) <= int(index) < len(names):
            raise IndexError(f"index {index} is out of range")
        return self._modules[names[index]]

    def _again(self, modules: list[Module]) -> list[Any]:
        return [modules]

    def __setitem__(self, index: int, module: Module) -> None:
        self._modules[list(self._modules)[index]] = module

    def __delitem__(self, index: Any) -> None:
        kept = list(self._modules.values())
        del kept[index]
        self._fill(kept)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def append(self, module: Module) -> "_Row":
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> "_Row":
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> None:
        kept = list(self)
        kept.insert(index, module)
        self._fill(kept)

    def pop(self, index: int) -> Module:
        found = self[index]
        del self[index]
        return found


class ModuleList(_Row):
    """Modules in a list."""

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        self._fill(modules or ())

    def __add__(self, other: Iterable[Module]) -> "ModuleList":
        return ModuleList([*self, *other])

    __iadd__ = _Row.extend  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [repr(module) for module in self]
        lines, i = [], 0
        while i < len(parts):  # equal neighbours are written once
            j = i
            while j + 1 < len(parts) and parts[j + 1] == parts[i]:
                j += 1
            name = f"({i})" if i == j else f"({i}-{j})"
            times = "" if i == j else f"{j - i + 1} x "
            lines.append(f"{name}: {times}" + parts[i].replace("\n", "\n  "))
            i = j + 1
        return "ModuleList(\n  " + "\n  ".join(lines) + "\n)" if lines else "ModuleList()"


class Sequential(_Row):
    """One after the other."""

    def __init__(self, *modules: Any):
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], OrderedDict):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            self._fill(modules)

    def _again(self, modules: list[Module]) -> list[Any]:
        return modules

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input


class ModuleDict(Module):
    """Modules under names."""

    def __init__(self, modules: Any = None):
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Any) -> None:
        for name, module in dict(modules).items():
            self.add_module(name, module)

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def keys(self) -> Any:
        return self._modules.keys()

    def items(self) -> Any:
        return self._modules.items()

    def values(self) -> Any:
        return self._modules.values()


class ParameterList(Module):
    """Parameters in a list."""

    def __init__(self, values: Iterable[Any] = ()):
        super().__init__()
        for i, value in enumerate(values):
            self.register_parameter(
                str(i), value if isinstance(value, Parameter) else Parameter(value)
            )

    def __getitem__(self, index: int) -> Any:
        return list(self._parameters.values())[index]

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())


class ParameterDict(Module):
    """Parameters under names."""

    def __init__(self, values: Any = None):
        super().__init__()
        for name, value in dict(values or {}).items():
            self.register_parameter(
                name, value if isinstance(value, Parameter) else Parameter(value)
            )

    def __getitem__(self, name: str) -> Any:
        return self._parameters[name]

    def items(self) -> Any:
        return self._parameters.items()

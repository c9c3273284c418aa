"""Stands in for matplotlib in a page: takes every call, draws nothing, notes that it was asked."""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

asked = []  # one entry for each call since `start`
maps = []  # what `plot_weights` was given since then


def start():
    asked.clear()
    maps.clear()


def taken():
    """What was drawn since `start`: None, or whether anything but maps was, and the maps."""
    return {"maps": [dict(each) for each in maps]} if asked or maps else None


class Undrawn:
    """Whatever is asked of it, it gives another like itself."""

    def __init__(self, shape=()):
        self.__dict__["shape"] = shape

    def __call__(self, *arguments, **options):
        asked.append(1)
        return Undrawn()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Undrawn()

    def __setattr__(self, name, value):
        pass

    def __len__(self):
        return self.shape[0] if self.shape else 2

    def __iter__(self):
        return iter([Undrawn(self.shape[1:]) for _ in range(len(self))])

    def __getitem__(self, index):
        return Undrawn(self.shape[1:])

    def __setitem__(self, index, value):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    def __deepcopy__(self, memo):
        return self

    def __mul__(self, other):
        return self

    __rmul__ = __add__ = __radd__ = __sub__ = __truediv__ = __or__ = __mul__

    @property
    def flat(self):
        count = 1
        for size in self.shape:
            count *= size
        return Undrawn((count,))

    ravel = flatten = lambda self: self.flat


class Axes(Undrawn):
    """An Axes."""


def subplots(rows=1, columns=1, *others, **options):
    asked.append(1)
    rows, columns = options.get("nrows", rows), options.get("ncols", columns)
    shape = (
        (rows, columns)
        if options.get("squeeze") is False
        else tuple(n for n in (rows, columns) if n > 1)
    )
    return Undrawn(), Undrawn(shape)


class _Module(ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Axes if name == "Axes" else Undrawn()


class _Finder(MetaPathFinder, Loader):
    """Finds any module below matplotlib."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.startswith("matplotlib.") else None

    def create_module(self, spec):
        module = _Module(spec.name)
        if spec.name == "matplotlib.pyplot":
            module.subplots = subplots
        return module

    def exec_module(self, module):
        pass


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Undrawn()


sys.meta_path.insert(0, _Finder())

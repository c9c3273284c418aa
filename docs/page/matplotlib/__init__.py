"""Stands in for matplotlib in a page: what the pages draw with, written as an SVG.

Whatever else is asked of it is taken, not drawn, and named: the page then says so.
"""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

figures = []  # those that a cell has made or drawn on since `start`
missing = []  # the names of what was asked for since then, and isn't drawn
rcParams = {"font.size": 10.0, "figure.figsize": (4.2, 2.6)}  # as the build has them


def start():
    figures.clear()
    missing.clear()


def taken():
    """What was drawn since `start`, or None: pictures, and the names of what they lack."""
    pictures = []
    for figure in figures:
        try:
            pictures.append(figure.picture())
        except Exception as why:  # a picture that can't be drawn stops no cell
            missing.append(f"{type(why).__name__}: {why}")
    if not pictures and not missing:
        return None
    return {"pictures": pictures, "missing": list(dict.fromkeys(missing))}


class Undrawn:
    """Whatever is asked of it, it gives another like itself."""

    def __init__(self, name):
        self.__dict__["name"] = name

    def __call__(self, *arguments, **options):
        missing.append(self.name)
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Undrawn(f"{self.name}.{name}")

    def __setattr__(self, name, value):
        pass

    def __len__(self):
        return 2

    def __iter__(self):
        return iter([self, self])

    def __getitem__(self, index):
        return self

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


class _Module(ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Undrawn(f"{self.__name__.removeprefix('matplotlib.')}.{name}")


class _Finder(MetaPathFinder, Loader):
    """Finds any module below matplotlib that isn't here."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.startswith("matplotlib.") else None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Undrawn(name)


sys.meta_path.append(_Finder())

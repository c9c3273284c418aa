"""Shapes that are added to axes."""

from matplotlib import Undrawn
from matplotlib._arrows import Connection
from matplotlib._artists import Shape
from matplotlib._axis import number

__all__ = ["Circle", "ConnectionPatch", "PathPatch", "Polygon", "Rectangle"]


def Rectangle(xy, width, height, **look):
    x, y, width, height = map(number, (*xy, width, height))
    return Shape([[(x, y), (x + width, y), (x + width, y + height), (x, y + height)]], **look)


def Circle(xy, radius=5, **look):
    return Shape(circle=(*map(number, xy), number(radius)), **look)


def Polygon(xy, closed=True, **look):
    return Shape([[(number(x), number(y)) for x, y in xy]], closed, **look)


def PathPatch(path, **look):
    return Shape(path.lines(), False, **look)


def ConnectionPatch(xyA, xyB, coordsA, coordsB=None, **options):
    return Connection(xyA, xyB, coordsA, coordsB, **options)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Undrawn(f"patches.{name}")

"""The calls of ``plt`` that pages make."""

from contextlib import contextmanager

from matplotlib import Undrawn, figures, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon, Rectangle

__all__ = ["Axes", "Circle", "Figure", "Polygon", "Rectangle", "figure", "subplots"]


def figure(*others, **options):
    return Figure(**options)


def subplots(nrows=1, ncols=1, **options):
    about = ("figsize", "layout", "constrained_layout")
    made = Figure(**{name: options.pop(name) for name in about if name in options})
    return made, made.subplots(nrows, ncols, **options)


def gcf():
    return figures[-1] if figures else Figure()


def gca():
    made = gcf()
    return made.axes[-1] if made.axes else made.add_subplot()


def tight_layout(**options):
    gcf().tight_layout()


def show(*others, **options):
    """A cell's pictures are shown when it ends."""


def close(*others):
    figures.clear()


@contextmanager
def rc_context(rc=None):
    before = dict(rcParams)
    rcParams.update(rc or {})
    try:
        yield
    finally:
        rcParams.clear()
        rcParams.update(before)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    for there in (name, f"set_{name}"):
        if there in vars(Axes):
            return getattr(gca(), there)
    return Undrawn(f"plt.{name}")

"""Arrows between points: straight, bent or around a corner, and cut where they touch a text."""

import itertools
import math
import re

from matplotlib._artists import Artist, plain
from matplotlib._axis import number
from matplotlib._canvas import stroke

HEAD = 4, 2  # points along the line and beside it, for letters of 10
CURVE = [i / 24 for i in range(25)]


class Arrow(Artist):
    """From one point to another, in numbers of the axes."""

    zorder = 3.0
    clips = False

    def __init__(self, start, end, text=None, base=10, **options):
        options = plain(options)
        super().__init__(zorder=options.get("zorder"))
        self.start, self.end = ([number(x) for x in point] for point in (start, end))
        self.text, self.base, self.arrow = text, base, options

    def ends(self, ax):
        """Where it begins and ends, and the box of a text that it leaves."""
        start, end = ax.place(*self.start), ax.place(*self.end)
        if not (self.text and self.text.text):
            return start, end, None
        xs, ys = zip(*self.text.place(ax).corners(2), strict=True)
        box = min(xs), min(ys), max(xs), max(ys)
        return ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2), end, box

    def draw(self, canvas, ax):
        look = self.arrow.get
        start, end, box = self.ends(ax)
        style, width = look("arrowstyle", "->"), look("linewidth", 1)
        line = _way(start, end, look("connectionstyle", "arc3"))
        if box:
            left, low, right, high = box
            line = _cut(line, lambda p: left <= p[0] <= right and low <= p[1] <= high)
        line = _shrunk(line, look("shrinkA", 2))
        line = _shrunk(line[::-1], look("shrinkB", 2))[::-1]
        size = look("mutation_scale", self.base) / 10
        heads = []
        for sign, way in ((">", 1), ("<", -1)):
            if sign in style:
                head, tip = _head(line[::way], width, size)
                heads.append(head)
                line = [*line[::way][:-1], tip][::way]
        color = look("color", look("edgecolor", "black"))
        canvas.path([line, *heads], stroke(color, width, look("linestyle"), look("alpha")))
        canvas.cover(*line, *(point for head in heads for point in head))


class Connection(Arrow):
    """A line between two axes of a figure; each point in numbers of one, or in its shares."""

    def __init__(self, start, end, kind, other=None, axesA=None, axesB=None, **options):
        super().__init__(start, end, **{"arrowstyle": "-", "shrinkA": 0, "shrinkB": 0} | options)
        self.sides = (axesA, kind), (axesB, other or kind)

    def ends(self, ax):
        found = []
        for point, (axes, kind) in zip((self.start, self.end), self.sides, strict=True):
            found.append(axes.place(*point) if kind == "data" else axes.share(*point))
        return *found, None


def _way(start, end, style):
    """The points of the line before anything is cut off."""
    options = dict(re.findall(r"(\w+)=(-?[\d.]+)", style))
    bend = {name: float(value) for name, value in options.items()}
    (a, b), (c, d) = start, end
    if style.startswith("arc3"):
        rad = bend.get("rad", 0)
        if not rad:
            return [start, end]
        x, y = (a + c) / 2 + rad * (d - b), (b + d) / 2 - rad * (c - a)
        return [_between(start, (x, y), end, t) for t in CURVE]
    if not style.startswith("arc,"):
        return [start, end]
    corners = []
    for (x, y), side in ((start, "A"), (end, "B")):
        angle, arm = math.radians(bend.get(f"angle{side}", 0)), bend.get(f"arm{side}", 0)
        corners.append((x + arm * math.cos(angle), y + arm * math.sin(angle)))
    return [start, *_rounded([start, *corners, end], bend.get("rad", 0)), end]


def _between(start, middle, end, t):
    """A point of a curve that is bent towards a third."""
    ways = zip(start, middle, end, strict=True)
    return tuple((1 - t) ** 2 * a + 2 * t * (1 - t) * b + t * t * c for a, b, c in ways)


def _rounded(points, radius):
    """The inner corners of a line, each as a curve."""
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards(corner, before, radius), _towards(corner, after, radius)
        yield from (_between(start, corner, end, t) for t in CURVE[::4])


def _towards(start, end, length):
    share = length / (math.dist(start, end) or 1)
    return tuple(a + share * (b - a) for a, b in zip(start, end, strict=True))


def _shrunk(line, radius):
    """A line that begins so far away from its first point."""
    return _cut(line, lambda p: math.dist(p, line[0]) < radius) if radius else line


def _cut(line, inside):
    """What of a line comes after it has left some place."""
    for i, (last, point) in enumerate(itertools.pairwise(line), 1):
        if not inside(point):
            low, high = 0.0, 1.0
            for _ in range(12):
                middle = (low + high) / 2
                at = tuple(a + middle * (b - a) for a, b in zip(last, point, strict=True))
                low, high = (middle, high) if inside(at) else (low, middle)
            edge = tuple(a + high * (b - a) for a, b in zip(last, point, strict=True))
            return [edge, *line[i:]]
    return line


def _head(line, width, size):
    """The two strokes at the end of a line, and their tip, which its width moves back."""
    length, half = (size * each for each in HEAD)
    (x, y), end = line[-2], line[-1]
    angle = math.atan2(end[1] - y, end[0] - x)
    cos, sin = math.cos(angle), math.sin(angle)
    back = 0.5 * width * math.hypot(length, half) / half
    tip = end[0] - back * cos, end[1] - back * sin
    sides = [
        (tip[0] - length * cos - side * sin, tip[1] - length * sin + side * cos)
        for side in (half, -half)
    ]
    return [sides[0], tip, sides[1]], tip

"""The axes of a figure, read from its SVG: ticks with their labels, and the names beside them."""

import re
from dataclasses import dataclass, field
from xml.etree import ElementTree

SPACE = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
TICK = re.compile(r"M 0 0 L (-?[\d.]+) (-?[\d.]+)")
MOVED = re.compile(r"translate\((-?[\d.]+) (-?[\d.]+)\)")
LONG = 3  # points of a tick that may have a label; those between are shorter
NUMBER = re.compile(r"[−-]?\d[\d., /−-]*[%kM]?")
NEAR, FAR = 12, 60  # points between an axis, whose labels come first, and its name
WIDE = 9  # points that a name may start beyond the last tick


@dataclass
class Text:
    """A text, and the place where it is anchored."""

    words: str
    x: float
    y: float
    turned: bool


@dataclass
class Axis:
    """One axis of a panel, "x" or "y": where it is, the places of its ticks, their labels."""

    kind: str
    line: float
    ticks: list[float] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    @property
    def is_numeric(self):
        return sum(bool(NUMBER.fullmatch(label)) for label in self.labels) > 1

    @property
    def range(self):
        return min(self.ticks), max(self.ticks)


def read(svg):
    """The axes of a figure in the order in which they are drawn, and its texts beside them."""
    axes, texts, last = [], [], None
    for thing in _parts(ElementTree.fromstring(svg), (0.0, 0.0), {}):
        if isinstance(thing, Text):
            labels = last is not None and _at_its_tick(last, thing)
            last.labels.append(thing.words) if labels else texts.append(thing)
            last = None
            continue
        kind, x, y, is_long = thing
        line, place = (y, x) if kind == "x" else (x, y)
        if not axes or (axes[-1].kind, axes[-1].line) != (kind, line):
            axes.append(Axis(kind, line))
        axes[-1].ticks.append(place)
        last = axes[-1] if is_long else None
    return [axis for axis in axes if len(axis.ticks) > 1], texts


def _parts(element, at, ticks):
    """Ticks, as (kind, x, y, is it long), and texts, in the order in which they are drawn."""
    for child in element:
        name, drawn = child.tag.removeprefix(SPACE), TICK.fullmatch(child.get("d", ""))
        moved = MOVED.search(child.get("transform", ""))
        x, y = map(float, moved.groups() if moved else (child.get("x", 0), child.get("y", 0)))
        if name == "path" and drawn and child.get("id"):
            across, down = map(float, drawn.groups())
            if (across == 0) != (down == 0):
                kind = "y" if down == 0 else "x"
                ticks["#" + child.get("id")] = kind, abs(across + down) > LONG
        elif name == "use" and child.get(LINK) in ticks:
            kind, is_long = ticks[child.get(LINK)]
            yield kind, x, y, is_long
        elif name == "text":
            turned = "rotate(-90" in element.get("transform", "") + child.get("transform", "")
            yield Text("".join(child.itertext()).strip(), at[0] + x, at[1] + y, turned)
        elif name != "use":
            yield from _parts(child, (at[0] + x, at[1] + y), ticks)


def _at_its_tick(axis, text):
    """Does a text that follows a tick, in an axis' order, label it?"""
    if axis.kind == "x":
        return text.y > axis.line and abs(text.x - axis.ticks[-1]) < FAR
    return text.x < axis.line and abs(text.y - axis.ticks[-1]) < WIDE


def unnamed(axes, texts):
    """The axes with numbers at their ticks that no text beside them names."""
    return [axis for axis in axes if axis.is_numeric and not names(axis, axes, texts)]


def names(axis, axes, texts):
    """The texts that may name an axis: along its ticks, or in the middle of its row of panels."""
    alike = [each for each in axes if (each.kind, each.line) == (axis.kind, axis.line)]
    row = [tick for each in alike for tick in each.ticks]
    found = []
    for text in texts:
        below = axis.kind == "x"
        away = text.y - axis.line if below else axis.line - text.x
        along = text.x if below else text.y
        low, high = axis.range
        beside = low - WIDE < along < high + WIDE
        between = abs(along - (min(row) + max(row)) / 2) < 3 * WIDE
        if text.turned != below and NEAR < away < FAR and (beside or between):
            found.append(text.words)
    return found


def untitled(axes, texts):
    """The panels of several that have neither a title nor a name of their own at the side."""
    panels = []
    for axis in axes:
        if axis.kind == "x" or not panels or len(panels[-1]) == 2:
            panels.append([])
        panels[-1].append(axis)
    if len(panels) < 2:
        return []
    sides = [names(panel[-1], panel, texts) for panel in panels]
    return [
        panel
        for panel, side in zip(panels, sides, strict=True)
        if (not side or sides.count(side) > 1) and not any(_above(panel, t) for t in texts)
    ]


def _above(panel, text):
    """Is a text above a panel's highest tick, and over its ticks across?"""
    if [axis.kind for axis in panel] != ["x", "y"]:
        return True  # of one axis alone nobody knows how high the panel is
    (left, right), (top, _) = panel[0].range, panel[1].range
    return left - 3 * WIDE < text.x < right + 3 * WIDE and top - 2 * FAR < text.y < top + 2

"""What stands in a picture: lines, shapes, texts, maps. Each is asked for its limits and drawn."""

import math
import re

from matplotlib._axis import number, numbers
from matplotlib._canvas import SIZES, Place, paint, stroke

SHORT = {"lw": "linewidth", "ls": "linestyle", "ms": "markersize", "mfc": "markerfacecolor"}
SHORT |= {"mec": "markeredgecolor", "mew": "markeredgewidth", "c": "color", "size": "fontsize"}
SHORT |= {"ec": "edgecolor", "fc": "facecolor", "edgecolors": "edgecolor", "weight": "fontweight"}
SHORT |= {"facecolors": "facecolor", "linewidths": "linewidth", "colors": "color"}
SHORT |= {"linestyles": "linestyle"}
FORMAT = re.compile(r"(?P<color>[kwrgbcmy]|C\d)?|(?P<marker>[os^vD.|x+*,])|(?P<style>--|-\.|-|:)")
UNIT = {"^": [(0, 0.5), (-0.5, -0.5), (0.5, -0.5)], "v": [(0, -0.5), (0.5, 0.5), (-0.5, 0.5)]}
UNIT |= {"s": [(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)]}
UNIT |= {"D": [(0, 0.707), (0.707, 0), (0, -0.707), (-0.707, 0)]}
STROKES = {"|": [[(0, -0.5), (0, 0.5)]], "_": [[(-0.5, 0), (0.5, 0)]]}
STROKES |= {"+": [*STROKES["|"], *STROKES["_"]]}
STROKES |= {"x": [[(-0.5, -0.5), (0.5, 0.5)], [(-0.5, 0.5), (0.5, -0.5)]]}


def plain(options):
    """Options under their long names."""
    return {SHORT.get(name, name): value for name, value in options.items()}


def points_of(size, base=10):
    return base * SIZES[size] if isinstance(size, str) else number(size)


class Artist:
    """Something with a look; `get_NAME` and `set_NAME` read and change it."""

    zorder = 1.0
    clips = True  # at the sides of its axes

    def __init__(self, **options):
        self.look = plain(options)
        self.zorder = self.look.get("zorder") or self.zorder
        self.label = self.look.get("label")

    def __getattr__(self, name):
        if name.startswith("get_"):
            return lambda: self.look.get(name[4:])
        if name.startswith("set_"):
            return lambda value: self.look.update(plain({name[4:]: value}))
        raise AttributeError(name)

    def set(self, **options):
        self.look |= plain(options)

    def __deepcopy__(self, memo):
        return self

    def remove(self):
        self.draw = lambda canvas, ax: None
        self.limits = lambda: ([], [])

    def limits(self):
        """The numbers that axes have to show, across and up."""
        return [], []


class Line(Artist):
    """A line through points, and their marks."""

    zorder = 2.0

    def __init__(self, xs, ys, form="", **options):
        super().__init__(**options)
        found = {"color": None, "marker": None, "style": None}
        for match in FORMAT.finditer(form):
            found |= {name: part for name, part in match.groupdict().items() if part}
        self.xs, self.ys = numbers(xs), numbers(ys)
        if len(self.xs) != len(self.ys):
            raise ValueError(f"x and y must be equally long, got {len(self.xs)} and {len(self.ys)}")
        only = "none" if found["marker"] and not found["style"] else "-"
        self.look = {
            "color": found["color"],
            "marker": found["marker"],
            "linestyle": found["style"] or only,
        } | self.look

    def limits(self):
        return self.xs, self.ys

    def draw(self, canvas, ax):
        pairs = zip(self.xs, self.ys, strict=True)
        points = [ax.place(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
        self.draw_at(canvas, points)

    def draw_at(self, canvas, points):
        """Draw it through these places, as its sample in a legend does too."""
        look = self.look.get
        style = look("linestyle")
        if style not in ("none", "", " ", "None") and len(points) > 1:
            width = look("linewidth", 1.5)
            cap = "butt" if look("solid_capstyle") == "butt" else "square"
            canvas.path([points], stroke(look("color"), width, style, look("alpha"), cap))
        if look("marker") not in (None, "", "none", "None"):
            for point in points:
                self._mark(canvas, *point)

    def _mark(self, canvas, x, y):
        look, kind = self.look.get, self.look["marker"]
        size = look("markersize", 6)
        edge = look("markeredgecolor", look("color"))
        ink = stroke(edge, look("markeredgewidth", 1), alpha=look("alpha"))
        fill = {"fill": paint(look("markerfacecolor", look("color")))}
        if kind in STROKES:
            lines = [[(x + size * a, y + size * b) for a, b in line] for line in STROKES[kind]]
            canvas.path(lines, ink)
        elif kind in UNIT:
            canvas.path([[(x + size * a, y + size * b) for a, b in UNIT[kind]]], ink | fill, True)
        else:
            canvas.circle(x, y, size / (4 if kind == "." else 2), ink | fill)


class Across(Line):
    """A line or a band through the whole axes, at numbers of one axis."""

    def __init__(self, axis, start, end=None, **options):
        look = {"linewidth": 1.5 if end is None else 0} | plain(options)
        Artist.__init__(self, **look)
        self.look = {"linestyle": "-"} | self.look
        self.zorder = self.look.get("zorder") or (2.0 if end is None else 1.0)
        self.axis, self.ends = axis, [number(each) for each in (start, end) if each is not None]

    def limits(self):
        return (self.ends, []) if self.axis == "x" else ([], self.ends)

    def draw(self, canvas, ax):
        left, low, right, high = ax.box
        corners = []
        for x in self.ends:
            if self.axis == "x":
                at = ax.place(x, 0)[0] if ax.y.scale == "linear" else ax.across(x)
                corners += [(at, low), (at, high)]
            else:
                at = ax.up(x)
                corners += [(left, at), (right, at)]
        if len(self.ends) == 1:
            return self.draw_at(canvas, corners)
        a, b, c, d = corners
        canvas.path([[a, b, d, c]], filled(self.look), True)


def filled(look, edge=None):
    """The look of a shape."""
    color = look.get("color")
    fill = look.get("facecolor", color if color is not None else "C0")
    fill = fill if look.get("fill", True) else "none"
    edge = look.get("edgecolor", color if color is not None else edge)
    edge = "black" if edge is None and not look.get("fill", True) else edge
    made = stroke(edge, look.get("linewidth", 1), look.get("linestyle"), look.get("alpha"))
    if made["stroke"] == "none" or not look.get("linewidth", 1):
        made = {name: part for name, part in made.items() if not name.startswith("stroke")}
    else:
        made["stroke-linejoin"] = "miter"
    if cap := look.get("capstyle"):
        made["stroke-linecap"] = cap.replace("projecting", "square")
    return made | {"fill": paint(fill)}


class Shape(Artist):
    """A shape whose lines are given in numbers of the axes; or a circle."""

    def __init__(self, lines=(), closed=True, circle=None, counts=True, **options):
        super().__init__(**options)
        self.lines, self.closed, self.circle, self.counts = lines, closed, circle, counts

    def limits(self):
        if self.circle:
            x, y, r = self.circle
            return [x - r, x + r], [y - r, y + r]
        points = [point for line in self.lines for point in line if not isinstance(point, str)]
        return ([x for x, _ in points], [y for _, y in points]) if self.counts else ([], [])

    def draw(self, canvas, ax):
        if self.circle:
            x, y, r = self.circle
            (x, y), (edge, _) = ax.place(x, y), ax.place(x + r, y)
            return canvas.circle(x, y, abs(edge - x), filled(self.look))
        lines = [
            [point if isinstance(point, str) else ax.place(*point) for point in line]
            for line in self.lines
        ]
        canvas.path(lines, filled(self.look), self.closed)


class Dots(Artist):
    """Marks whose areas are given."""

    def __init__(self, xs, ys, sizes, **options):
        super().__init__(**options)
        self.xs, self.ys, self.sizes = numbers(xs), numbers(ys), numbers(sizes)

    def limits(self):
        return self.xs, self.ys

    def draw(self, canvas, ax):
        for i, (x, y) in enumerate(zip(self.xs, self.ys, strict=True)):
            size = math.sqrt(self.sizes[i % len(self.sizes)]) / 2
            canvas.circle(*ax.place(x, y), size, filled({"linewidth": 1.5} | self.look))


class Cells(Artist):
    """A map: a square around each column and row, as opaque as its number is large."""

    def __init__(self, rows, largest, color, negative, grid=None):
        super().__init__()
        self.rows, self.largest, self.grid = rows, largest, grid
        self.color, self.negative = color, negative

    def draw(self, canvas, ax):
        shades = {}
        for i, row in enumerate(self.rows):
            for j, x in enumerate(row):
                color, share = self.negative if x < 0 else self.color, abs(x) / self.largest
                if share:
                    shades.setdefault((color, f"{share:.2f}"), []).append((i, j))
        left, low, right, high = ax.box
        edges = left, canvas.height - high, right, canvas.height - low
        box = " ".join(f"{edge:.1f}" for edge in edges)
        canvas.parts.append(f'<g data-box="{box}"{self.grid.attribute() if self.grid else ""}>')
        for (color, share), cells in shades.items():
            squares = [
                [
                    ax.place(j + a, i + b)
                    for a, b in ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))
                ]
                for i, j in cells
            ]
            look = {"fill": paint(color), "fill-opacity": share}
            canvas.path(squares, look, attributes=' shape-rendering="crispEdges"')
        canvas.parts.append("</g>")


class Text(Artist):
    """A text beside a point, in a box if it has one."""

    zorder = 3.0
    clips = False

    def __init__(self, x, y, text, base=10, **options):
        super().__init__(**options)
        self.x, self.y, self.text, self.base = number(x), number(y), str(text), base

    def get_text(self):
        return self.text

    def place(self, ax):
        look = self.look.get
        shown = {}
        if look("color") not in (None, "black", "k"):
            shown["fill"] = paint(look("color"))
        if look("fontweight") in ("bold", 700):
            shown["font-weight"] = "bold"
        if look("fontstyle", look("style")) == "italic":
            shown["font-style"] = "italic"
        if look("alpha") is not None:
            shown["opacity"] = f"{look('alpha'):.3g}"
        ha = look("horizontalalignment", look("ha", "left"))
        va = look("verticalalignment", look("va", "baseline"))
        turn = {"vertical": 90, "horizontal": 0}.get(look("rotation"), look("rotation") or 0)
        size = points_of(look("fontsize") or self.base, self.base)
        ma = look("multialignment", look("ma"))
        transform = look("transform")
        point = ax.share(self.x, self.y) if transform is not None else ax.place(self.x, self.y)
        return Place(self.text, size, point, ha, va, turn, ma, shown)

    def draw(self, canvas, ax):
        if not self.text:
            return
        place = self.place(ax)
        if box := self.look.get("bbox"):
            self._box(canvas, place, plain(box))
        canvas.text(place, math.degrees(place.turn))
        canvas.cover(*place.corners())

    def _box(self, canvas, place, look):
        kind = look.pop("boxstyle", "square")
        pad = re.search(r"pad=([\d.]+)", kind)
        pad = place.size * float(pad[1] if pad else 0.4 if kind == "square" else 0.3)
        shape = filled({"edgecolor": "black"} | look)
        corners = place.corners(pad)
        canvas.cover(*corners)
        xs, ys = zip(*corners, strict=True)
        left, low, right, high = min(xs), min(ys), max(xs), max(ys)
        if kind.startswith("circle"):
            radius = max(right - left, high - low) / 2
            x, y = (left + right) / 2, (low + high) / 2
            canvas.cover((x - radius, y - radius), (x + radius, y + radius))
            return canvas.circle(x, y, radius, shape)
        r = pad if kind.startswith("round") else 0
        sides = [(left, low), (right, low), (right, high), (left, high)]
        turns = [(1, 0), (0, 1), (-1, 0), (0, -1)]
        line = ["Q"]  # along each side and around its corner
        for (x, y), (a, b), (c, d) in zip(sides, [turns[3], *turns], turns, strict=False):
            start, end = (x - a * r, y - b * r), (x + c * r, y + d * r)
            line += [start, start, (x, y), end] if len(line) > 1 else [start, (x, y), end]
        canvas.path([line], shape, True)

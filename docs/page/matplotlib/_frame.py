"""What stands around the numbers of axes: sides, ticks, labels, titles; and legends."""

import itertools

from matplotlib._artists import Line, Text, filled, points_of
from matplotlib._canvas import RISE, Place, paint, stroke

SIZE = 10  # of letters in a legend
GAP, SAMPLE, COLUMNS, EDGE, AWAY = 5, 20, 20, 4, 5  # points: in it, and from the sides
SPOTS = ["upper right", "upper left", "lower left", "lower right", "right", "center left"]
SPOTS += ["center right", "lower center", "upper center", "center"]


def draw(canvas, ax):
    """All of some axes, from the back to the front."""
    canvas.cover(ax.box[:2], ax.box[2:])
    layers = [
        (artist.zorder, lambda artist=artist: _inside(canvas, ax, artist)) for artist in ax.artists
    ]
    if ax.shown:
        layers += [(1.5, lambda: ticks(canvas, ax)), (2.5, lambda: _sides(canvas, ax))]
    layers += [(3, lambda: _title(canvas, ax))]
    layers += [(5, lambda made=made: made.draw(canvas, ax.box)) for made in legends(ax)]
    for _, layer in sorted(layers, key=lambda pair: pair[0]):
        layer()


def around(canvas, ax):
    """What stands around the numbers alone: a layout asks how large that is."""
    canvas.cover(ax.box[:2], ax.box[2:])
    if ax.shown:
        ticks(canvas, ax)
    _title(canvas, ax)


def _inside(canvas, ax, artist):
    start = len(canvas.parts)
    artist.draw(canvas, ax)
    if artist.clips and len(canvas.parts) > start and not _fits(ax, artist):
        canvas.clipped(start, ax.box)


def _fits(ax, artist):
    """Whether nothing of an artist goes beyond the sides."""
    size = artist.look.get("markersize", 6) / 2 + 1 if isinstance(artist, Line) else 0.5
    size = size if artist.look.get("marker") or not isinstance(artist, Line) else 0.1
    left, low, right, high = ax.box
    xs, ys = artist.limits()
    across, up = [ax.across(x) for x in xs], [ax.up(y) for y in ys]
    fits = all(left - size / 9 <= x <= right + size / 9 for x in across)
    return fits and all(low - size / 9 <= y <= high + size / 9 for y in up)


def _sides(canvas, ax):
    left, low, right, high = ax.box
    ends = {
        "left": [(left, low), (left, high)],
        "right": [(right, low), (right, high)],
        "top": [(left, high), (right, high)],
        "bottom": [(left, low), (right, low)],
    }
    for name, look in ax.spines.sides.items():
        if look["visible"]:
            width = look["linewidth"]
            canvas.path([ends[name]], stroke(look.get("color", "black"), width, cap="square"))


def ticks(canvas, ax):
    """Ticks, their labels, and the labels of both axes."""
    left, low, right, high = ax.box
    for axis, length in ((ax.x, right - left), (ax.y, high - low)):
        name = "x" if axis.is_x else "y"
        side = (high if axis.far else low) if axis.is_x else (right if axis.far else left)
        out = 1 if axis.far else -1
        edge = reach = side + out * axis.length
        for value, label in axis.marked(length):
            at = ax.across(value) if axis.is_x else ax.up(value)
            line = [(at, side), (at, edge)] if axis.is_x else [(side, at), (edge, at)]
            if axis.length:
                canvas.path([line], stroke("black", 0.8, cap="butt"))
                canvas.cover(*line)
            if axis.named and name not in ax.inner:
                corners = _tick(canvas, axis, label, at, edge + out * axis.pad)
                places = [corner[1 if axis.is_x else 0] for corner in corners]
                reach = max(reach, *places) if axis.far else min(reach, *places)
        _label(canvas, ax, axis, (ax.xaxis if axis.is_x else ax.yaxis).label, reach, out)


def _tick(canvas, axis, label, at, away):
    if axis.is_x:
        place, sides = (at, away), ("center", "bottom" if axis.far else "top")
    else:
        place, sides = (away, at), ("left" if axis.far else "right", "center_baseline")
    placed = Place(label, axis.tick_size, place, *sides, axis.turn)
    canvas.text(placed, axis.turn)
    canvas.cover(*placed.corners())
    return placed.corners()


def _label(canvas, ax, axis, label, reach, out):
    if not label.text:
        return
    left, low, right, high = ax.box
    at = reach + out * label.look.get("labelpad", 4)
    middle = ((left + right) / 2, at) if axis.is_x else (at, (low + high) / 2)
    size = points_of(label.look.get("fontsize") or ax.base, ax.base)
    sides = ("center", "bottom" if axis.far else "top") if axis.is_x else ("center", "center")
    turn, look = 0 if axis.is_x else 90, _ink(label)
    placed = Place(label.text, size, middle, *sides, turn, "center", look)
    if not axis.is_x:  # its box ends beside the numbers
        xs = [x for x, _ in placed.corners()]
        middle = middle[0] + out * (max(xs) - min(xs)) / 2, middle[1]
        placed = Place(label.text, size, middle, *sides, turn, "center", look)
    canvas.text(placed, turn)
    canvas.cover(*placed.corners())


def _ink(label):
    color = label.look.get("color")
    ink = {} if color in (None, "black") else {"fill": paint(color)}
    return ink | ({"font-weight": "bold"} if label.look.get("fontweight") == "bold" else {})


def _title(canvas, ax):
    if not ax.title.text:
        return
    left, _low, right, high = ax.box
    top = high
    if ax.shown and ax.x.far:
        size = ax.x.tick_size
        names = [
            Place(label, size, (0, 0), turn=ax.x.turn) for _, label in ax.x.marked(right - left)
        ]
        depths = [[y for _, y in name.corners()] for name in names if ax.x.named]
        tall = max((max(ys) - min(ys) for ys in depths), default=0)
        top += ax.x.length + (ax.x.pad + tall if tall else 0)
    look = ax.title.look
    size = points_of(look["fontsize"], ax.base)
    place = (left + right) / 2, top + look.get("pad", 6)
    text = Text(0, 0, ax.title.text)
    placed = Place(text.text, size, place, "center", "baseline", 0, None, _ink(ax.title))
    canvas.text(placed, 0)
    canvas.cover(*placed.corners())


def legends(ax):
    """The legends of some axes, beside the numbers where least is hidden."""
    for given, options in ax.legends:
        yield Legend(*_named(given, options, [ax]), options, ax)


def _named(given, options, axes):
    """The samples and the names of a legend."""
    handles = options.get("handles") or (given[0] if len(given) == 2 else None)
    labels = options.get("labels") or (given[-1] if given else None)
    if handles is None:
        pairs = [ax.get_legend_handles_labels() for ax in axes]
        handles = [handle for found, _ in pairs for handle in found]
    labels = labels or [handle.label for handle in handles]
    return list(handles), [str(label) for label in labels]


class Legend:
    """Samples of what is drawn, and their names, in columns."""

    def __init__(self, handles, labels, options, ax=None):
        self.title, self.spot, self.ax = options.get("title"), options.get("loc", "best"), ax
        columns = options.get("ncols", options.get("ncol", 1))
        size = self.size = points_of(options.get("fontsize", SIZE))
        pairs = list(zip(handles, labels, strict=False))
        columns = min(columns, len(pairs)) or 1
        tall = [len(pairs) // columns + (i < len(pairs) % columns) for i in range(columns)]
        rest = iter(pairs)
        self.columns = [[next(rest) for _ in range(count)] for count in tall]
        self.widths = [
            SAMPLE + 8 + max((Place(label, size, (0, 0)).width for _, label in column), default=0)
            for column in self.columns
        ]
        rows = max(tall) + bool(self.title)
        self.width = sum(self.widths) + COLUMNS * (columns - 1) + 2 * EDGE
        if self.title:
            self.width = max(self.width, Place(self.title, size, (0, 0)).width + 2 * EDGE)
        self.height = rows * size + (rows - 1) * GAP + 2 * EDGE

    def draw(self, canvas, box):
        left, _, _, high = self._box(box)
        size, row = self.size, self.size + GAP
        top = high - EDGE
        if self.title:
            middle = Place(self.title, size, (left + self.width / 2, top), "center", "top")
            canvas.text(middle, 0)
            top -= row
        x = left + EDGE
        for column, width in zip(self.columns, self.widths, strict=True):
            for i, (handle, label) in enumerate(column):
                name = Place(label, size, (x + SAMPLE + 8, top - i * row), "left", "top")
                base = top - i * row - RISE * size
                _sample(canvas, handle, x, base)
                canvas.text(name, 0)
            x += width + COLUMNS
        canvas.cover((left, high - self.height), (left + self.width, high))

    def _box(self, box):
        spots = [self.spot] if self.spot in (*SPOTS, "outside upper center") else SPOTS
        boxes = [self._at(box, spot) for spot in spots]
        return boxes[0] if len(boxes) == 1 else min(boxes, key=self._hides)

    def _at(self, box, spot):
        left, low, right, high = box
        words = spot.split()
        x = left + AWAY if "left" in words else right - AWAY - self.width
        if not {"left", "right"} & set(words):
            x = (left + right - self.width) / 2
        y = low + AWAY + self.height if "lower" in words else high - AWAY
        if not {"upper", "lower"} & set(words):
            y = (low + high + self.height) / 2
        return x, y - self.height, x + self.width, y

    def _hides(self, box):
        """How many points of lines lie in a box, or between two of them."""
        left, low, right, high = box
        count = 0
        for line in self.ax.get_lines():
            points = [self.ax.place(*point) for point in zip(line.xs, line.ys, strict=True)]
            for (a, b), (c, d) in itertools.pairwise(points):
                for share in (0, 0.25, 0.5, 0.75, 1):
                    x, y = a + share * (c - a), b + share * (d - b)
                    count += left <= x <= right and low <= y <= high
        return count


def _sample(canvas, handle, x, base):
    if not isinstance(handle, Line):
        corners = [(x, base), (x + SAMPLE, base), (x + SAMPLE, base + 7), (x, base + 7)]
        return canvas.path([corners], filled(handle.look), True)
    y = base + 3.5
    if handle.look.get("marker"):
        ends = Line((), (), **handle.look | {"marker": None})
        ends.draw_at(canvas, [(x, y), (x + SAMPLE, y)])
        Line((), (), **handle.look | {"linestyle": "none"}).draw_at(canvas, [(x + SAMPLE / 2, y)])
    else:
        handle.draw_at(canvas, [(x, y), (x + SAMPLE, y)])

"""Figures: where their axes stand, and the picture that comes of them."""

from matplotlib import Undrawn, figures, rcParams
from matplotlib._artists import Text
from matplotlib._axis import Axis, number
from matplotlib._canvas import Canvas
from matplotlib._frame import Legend, _named, around, draw
from matplotlib.axes import Axes

__all__ = ["Figure"]

LEFT, LOW, RIGHT, HIGH, BETWEEN = 0.125, 0.11, 0.9, 0.88, 0.2  # shares, where nothing is laid out
PADS = {"constrained": (3, 6), "tight": (10.8, 10.8)}  # points at the sides, and between axes


class Grid(list):
    """Axes in rows and columns, as an array of them."""

    @property
    def flat(self):
        return Grid(each for row in self for each in (row.flat if isinstance(row, Grid) else [row]))

    @property
    def shape(self):
        return (len(self), len(self[0])) if self and isinstance(self[0], Grid) else (len(self),)

    def ravel(self):
        return self.flat

    flatten = ravel

    def __getitem__(self, index):
        if isinstance(index, tuple):
            rows = self[index[0]]
            if isinstance(index[0], slice):
                return Grid(row[index[1]] for row in rows)
            return rows[index[1]]
        found = list.__getitem__(self, index)
        return Grid(found) if isinstance(index, slice) else found

    def __deepcopy__(self, memo):
        return self


class Spec:
    """Places in a grid of a figure; an index chooses some of them."""

    def __init__(self, rows, columns, width_ratios=None, height_ratios=None):
        self.widths = list(width_ratios or [1] * columns)
        self.heights = list(height_ratios or [1] * rows)

    def __getitem__(self, index):
        row, column = index
        return self, _span(row, len(self.heights)), _span(column, len(self.widths))


def _span(index, count):
    numbers = range(count)[index]
    numbers = numbers if isinstance(numbers, range) else [numbers]
    return numbers[0], numbers[-1] + 1


class Figure:
    """A picture in the making."""

    def __init__(self, figsize=None, layout=None, constrained_layout=None, **others):
        width, height = figsize or rcParams["figure.figsize"]
        self.size = 72 * number(width), 72 * number(height)
        self.layout = "constrained" if constrained_layout else layout
        self.axes, self.legends, self.artists, self.title = [], [], [], None
        self.touch()

    def __deepcopy__(self, memo):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Undrawn(f"figure.{name}")

    def touch(self):
        """The cell that runs draws on it."""
        if self not in figures:
            figures.append(self)

    def add_gridspec(self, nrows=1, ncols=1, **ratios):
        return Spec(nrows, ncols, **ratios)

    def add_subplot(self, spec=None, *others, **options):
        if not isinstance(spec, tuple):
            rows, columns, place = (spec, *others) if others else (1, 1, 1)
            spec = Spec(rows, columns)[divmod(place - 1, columns)]
        self.axes.append(Axes(self, spec, **options))
        return self.axes[-1]

    def subplots(self, nrows=1, ncols=1, sharex=False, sharey=False, squeeze=True, **options):
        ratios = {name: options.get(name) for name in ("width_ratios", "height_ratios")}
        ratios |= options.get("gridspec_kw") or {}
        ratios = {name: ratios[name] for name in ("width_ratios", "height_ratios")}
        spec = Spec(nrows, ncols, **ratios)
        x, y = (Axis("x") if sharex else None), (Axis("y") if sharey else None)
        rows = Grid()
        for i in range(nrows):
            rows.append(Grid(self.add_subplot(spec[i, j], x=x, y=y) for j in range(ncols)))
            for j, ax in enumerate(rows[-1]):
                ax.inner |= {"x"} if sharex and i < nrows - 1 else set()
                ax.inner |= {"y"} if sharey and j else set()
        if not squeeze or min(nrows, ncols) > 1:
            return rows
        return rows.flat if nrows * ncols > 1 else rows[0][0]

    def tight_layout(self, **options):
        self.layout = "tight"

    def legend(self, *given, **options):
        self.legends.append((given, options))

    def add_artist(self, artist):
        self.artists.append(artist)
        return artist

    def suptitle(self, t, **look):
        self.title = (str(t), {"ha": "center", "va": "top", "fontsize": 12} | look)

    # The picture

    def picture(self):
        """The SVG, the words that name what it shows, and the width that its letters need."""
        canvas = Canvas(self.size[1])
        for axis in {id(axis): axis for ax in self.axes for axis in (ax.x, ax.y)}.values():
            ends = [
                artist.limits()[0 if axis.is_x else 1]
                for ax in self.axes
                for artist in ax.artists
                if axis in (ax.x, ax.y)
            ]
            axis.settle([x for numbers in ends for x in numbers])
        outside = [Legend(*_named(*each, self.axes), each[1]) for each in self.legends]
        top = self.size[1] - sum(legend.height + 3 for legend in outside)
        top -= 16 if self.title else 0
        self._place(top)
        for ax in self.axes:
            draw(canvas, ax)
        for artist in self.artists:
            artist.draw(canvas, self.axes[0])
        for legend in outside:
            legend.draw(canvas, (0, 0, *self.size))
        if self.title:
            middle = self.size[0] / 2
            title = Text(middle, self.size[1], self.title[0], **self.title[1])
            title.draw(canvas, _Whole)
        names = [[ax.title.text, ax.xaxis.label.text, ax.yaxis.label.text] for ax in self.axes]
        names = [" ".join(name.split()) for each in names for name in each if name]
        return canvas.svg(", ".join(dict.fromkeys(names)).replace("$", ""))

    def _place(self, top):
        """Give all axes their boxes."""
        width, high = self.size
        for ax in self.axes:
            spec, rows, columns = ax.spec
            left, right = _plain(spec.widths, columns, LEFT * width, RIGHT * width)
            up, down = _plain(spec.heights, rows, (1 - HIGH) * high, (1 - LOW) * high)
            ax.box = left, high - down, right, high - up
        if self.layout in PADS:
            for _ in range(2):  # how many ticks fit depends on the place, and the place on ticks
                self._lay_out(top)
        for ax in self.axes:
            _shape(ax)

    def _lay_out(self, top):
        pad, between = PADS[self.layout]
        margins = []
        for ax in self.axes:
            canvas = Canvas(self.size[1])
            around(canvas, ax)
            left, low, right, high = (abs(a - b) for a, b in zip(ax.box, canvas.box, strict=True))
            margins.append(((left, right), (high, low)))
        for side, length in ((0, self.size[0]), (1, top)):
            ends = _spread(self.axes, margins, side, length, pad, between)
            for ax, (start, end) in zip(self.axes, ends, strict=True):
                box = list(ax.box)
                box[side], box[side + 2] = (start, end) if side == 0 else (top - end, top - start)
                ax.box = tuple(box)


class _Whole:
    """A figure's own points, for its title."""

    place = staticmethod(lambda x, y: (x, y))


def _plain(ratios, span, start, end):
    """The ends of a span, where gaps are a share of what they part."""
    count = len(ratios)
    unit = (end - start) / (count + BETWEEN * (count - 1))
    sizes = [unit * count * ratio / sum(ratios) for ratio in ratios]
    first = start + sum(sizes[: span[0]]) + BETWEEN * unit * span[0]
    last = start + sum(sizes[: span[1]]) + BETWEEN * unit * (span[1] - 1)
    return first, last


def _spread(axes, margins, side, length, pad, between):
    """The ends of all axes along a side, where margins leave them room."""
    spec = axes[0].spec[0]
    ratios = spec.heights if side else spec.widths
    before, after = [0.0] * len(ratios), [0.0] * len(ratios)
    for ax, both in zip(axes, margins, strict=True):
        first, last = ax.spec[1 if side else 2]
        before[first] = max(before[first], both[side][0])
        after[last - 1] = max(after[last - 1], both[side][1])
    free = length - sum(before) - sum(after) - 2 * pad - between * (len(ratios) - 1)
    sizes = [max(free, 10) * ratio / sum(ratios) for ratio in ratios]
    starts, at = [], pad
    for i, size in enumerate(sizes):
        starts.append(at + before[i])
        at += before[i] + size + after[i] + between
    spans = [ax.spec[1 if side else 2] for ax in axes]
    return [(starts[first], starts[last - 1] + sizes[last - 1]) for first, last in spans]


def _shape(ax):
    """A number across as long as a number up, where that is asked for."""
    if ax.aspect is None:
        return
    left, low, right, high = ax.box
    across, up = (abs(axis.ends[1] - axis.ends[0]) for axis in (ax.x, ax.y))
    unit = min((right - left) / across, (high - low) / (up * ax.aspect))
    width, height = unit * across, unit * up * ax.aspect
    x, y = (left + right - width) / 2, (low + high - height) / 2
    ax.box = x, y, x + width, y + height

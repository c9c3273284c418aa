"""Axes: what pages draw on. Each call notes what is to stand there; `draw` puts it in a picture."""

from matplotlib import Undrawn, rcParams
from matplotlib._arrows import Arrow
from matplotlib._artists import Across, Artist, Cells, Dots, Line, Shape, Text, plain, points_of
from matplotlib._axis import Axis, number, numbers

__all__ = ["Axes"]


class Spines:
    """The sides of axes, some or all; ``spines[:]`` and ``spines["top"]`` choose."""

    def __init__(self, sides):
        self.sides = sides

    def __getitem__(self, names):
        if isinstance(names, slice):
            return self
        names = [names] if isinstance(names, str) else names
        return Spines({name: self.sides[name] for name in names})

    def set(self, **look):
        for side in self.sides.values():
            side.update(plain(look))

    def set_visible(self, visible):
        self.set(visible=visible)

    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda value: self.set(**{name[4:]: value})


class View:
    """What ``ax.xaxis`` is: the label of an axis, and the side where its ticks stand."""

    def __init__(self, axis, label):
        self.axis, self.label = axis, label

    def tick_bottom(self):
        self.axis.far = False

    tick_left = tick_bottom

    def tick_top(self):
        self.axis.far = True

    tick_right = tick_top

    def set_inverted(self, inverted):
        self.axis.inverted = inverted

    def __getattr__(self, name):
        return Undrawn(f"axis.{name}")


class Label(Artist):
    """A title or the label of an axis."""

    text = ""


class Axes:
    """One pair of axes in a figure."""

    def __init__(self, figure, spec, x=None, y=None):
        self.figure, self.spec, self.artists = figure, spec, []
        self.x, self.y = x or Axis("x"), y or Axis("y")
        self.x.tick_size = self.y.tick_size = rcParams["font.size"]
        self.base, self.aspect, self.shown, self.inner = rcParams["font.size"], None, True, set()
        self.title, labels = Label(fontsize=1.2 * self.base), (Label(), Label())
        self.xaxis, self.yaxis = View(self.x, labels[0]), View(self.y, labels[1])
        off = ("top", "right")
        sides = ("left", "right", "top", "bottom")
        self.spines = Spines({s: {"visible": s not in off, "linewidth": 0.8} for s in sides})
        self.box, self.legends, self.colors = (0, 0, 1, 1), [], 0

    def __deepcopy__(self, memo):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Undrawn(f"ax.{name}")

    # Places

    def across(self, x):
        return self.box[0] + self.x.place(x) * (self.box[2] - self.box[0])

    def up(self, y):
        return self.box[1] + self.y.place(y) * (self.box[3] - self.box[1])

    def place(self, x, y):
        return self.across(x), self.up(y)

    def share(self, x, y):
        left, low, right, high = self.box
        return left + x * (right - left), low + y * (high - low)

    # What is drawn

    def add(self, artist):
        self.artists.append(artist)
        self.figure.touch()
        return artist

    add_patch = add_artist = add_line = add

    def _color(self, look):
        if plain(look).get("color") is None:
            look["color"] = f"C{self.colors % 10}"
            self.colors += 1
        return look

    def plot(self, *given, **look):
        made, given = [], list(given)
        while given:
            xs = given.pop(0)
            ys = given.pop(0) if given and not isinstance(given[0], str) else None
            form = given.pop(0) if given and isinstance(given[0], str) else ""
            xs, ys = (range(len(numbers(xs))), xs) if ys is None else (xs, ys)
            line = Line(xs, ys, form, **look)
            if line.look["color"] is None:
                line.look |= self._color({})
            made.append(self.add(line))
        return made

    def axhline(self, y=0, **look):
        return self.add(Across("y", y, **self._color(look)))

    def axvline(self, x=0, **look):
        return self.add(Across("x", x, **self._color(look)))

    def axhspan(self, low, high, **look):
        return self.add(Across("y", low, high, **look))

    def axvspan(self, low, high, **look):
        return self.add(Across("x", low, high, **look))

    def hlines(self, y, xmin, xmax, colors="C0", linestyles="-", label=None, **look):
        look = plain({"color": colors, "linestyle": linestyles} | look)
        return self._lines(label, look, y, xmin, xmax, False)

    def vlines(self, x, ymin, ymax, colors="C0", linestyles="-", label=None, **look):
        look = plain({"color": colors, "linestyle": linestyles} | look)
        return self._lines(label, look, x, ymin, ymax, True)

    def _lines(self, label, look, places, low, high, upright):
        places, lows, highs = map(numbers, (places, low, high))
        look = look | {"solid_capstyle": "butt"}
        for i, at in enumerate(places):
            ends = [lows[i % len(lows)], highs[i % len(highs)]]
            pair = ([at, at], ends) if upright else (ends, [at, at])
            made = self.add(Line(*pair, **look, label=None if i else label))
        return made

    def fill_between(self, x, y1, y2=0, **look):
        xs, low, high = map(numbers, (x, y1, y2))
        low, high = (ys * len(xs) if len(ys) == 1 else ys for ys in (low, high))
        there, back = zip(xs, low, strict=True), zip(xs[::-1], high[::-1], strict=True)
        return self.add(Shape([[*there, *back]], **self._color(look)))

    def bar(self, x, height, width=0.8, bottom=0, **look):
        return self._bars(self.x, x, height, width, bottom, look)

    def barh(self, y, width, height=0.8, left=0, **look):
        return self._bars(self.y, y, width, height, left, look)

    def _bars(self, axis, places, lengths, thick, base, look):
        if not hasattr(places, "tolist") and any(isinstance(name, str) for name in places):
            axis.names = list(places)
            places = range(len(axis.names))
        look = self._color(look)
        for i, (at, length) in enumerate(zip(numbers(places), numbers(lengths), strict=True)):
            a, b = at - thick / 2, at + thick / 2
            corners = [(a, base), (b, base), (b, base + length), (a, base + length)]
            corners = corners if axis.is_x else [(y, x) for x, y in corners]
            self.add(Shape([corners], **look | ({"label": None} if i else {})))
        (self.y if axis.is_x else self.x).sticky.add(base)

    def scatter(self, x, y, s=36, c=None, **look):
        look = plain(look) | ({} if c is None else {"color": c})
        if look.get("facecolor") is None:
            look = self._color(look)
        return self.add(Dots(x, y, s, **look))

    def cells(self, *about):
        """A map of weights, for `plot_weights`."""
        return self.add(Cells(*about))

    def text(self, x, y, s, **look):
        return self.add(Text(x, y, s, self.base, **look))

    def annotate(self, text, xy, xytext=None, arrowprops=None, **look):
        for name in ("xycoords", "textcoords"):
            if look.pop(name, "data") != "data":
                return Undrawn("ax.annotate")(name)
        at = xy if xytext is None else xytext
        text = self.add(Text(*at, text, self.base, **look))
        if arrowprops is not None:
            self.add(
                Arrow(at, xy, text, points_of(text.look.get("fontsize") or self.base), **arrowprops)
            )
        return text

    # Titles, limits, ticks

    def set(self, **options):
        for name, value in options.items():
            getattr(self, f"set_{name}")(value)

    def _name(self, label, text, look):
        label.text = str(text)
        label.set(**look)
        self.figure.touch()
        return label

    def set_title(self, label, **look):
        return self._name(self.title, label, look)

    def set_xlabel(self, xlabel, **look):
        return self._name(self.xaxis.label, xlabel, look)

    def set_ylabel(self, ylabel, **look):
        return self._name(self.yaxis.label, ylabel, look)

    def get_title(self):
        return self.title.text

    def _limit(self, axis, low, high):
        if high is None and hasattr(low, "__iter__"):
            low, high = low
        low, high = (end if end is None else number(end) for end in (low, high))
        if low is not None and high is not None:
            axis.inverted = low > high
            low, high = min(low, high), max(low, high)
        axis.low, axis.high = low, high

    def set_xlim(self, left=None, right=None):
        self._limit(self.x, left, right)

    def set_ylim(self, bottom=None, top=None):
        self._limit(self.y, bottom, top)

    def invert_xaxis(self):
        self.x.inverted = not self.x.inverted

    def invert_yaxis(self):
        self.y.inverted = not self.y.inverted

    def _scale(self, axis, scale, linthresh=2, **others):
        if scale not in ("linear", "log", "symlog"):
            Undrawn(f"scale {scale}")()
            scale = "linear"
        axis.scale, axis.linthresh = scale, linthresh

    def set_xscale(self, value, **options):
        self._scale(self.x, value, **options)

    def set_yscale(self, value, **options):
        self._scale(self.y, value, **options)

    def _ticks(self, axis, ticks, labels, rotation=None, fontsize=None, **look):
        axis.ticks = numbers(ticks)
        axis.labels = None if labels is None else list(labels)
        self._tick_look(axis, rotation, fontsize)

    def _tick_look(self, axis, rotation=None, fontsize=None, **look):
        axis.turn = axis.turn if rotation is None else rotation
        axis.tick_size = axis.tick_size if fontsize is None else points_of(fontsize)

    def set_xticks(self, ticks, labels=None, **look):
        self._ticks(self.x, ticks, labels, **look)

    def set_yticks(self, ticks, labels=None, **look):
        self._ticks(self.y, ticks, labels, **look)

    def set_xticklabels(self, labels, **look):
        self.x.labels = list(labels)
        self._tick_look(self.x, **look)

    def set_yticklabels(self, labels, **look):
        self.y.labels = list(labels)
        self._tick_look(self.y, **look)

    def tick_params(self, axis="both", **look):
        for one in (self.x, self.y):
            if axis not in ("both", "x" if one.is_x else "y"):
                continue
            near, far = ("bottom", "top") if one.is_x else ("left", "right")
            one.length = look.get("length", one.length)
            one.pad = look.get("pad", one.pad)
            self._tick_look(
                one, look.get("rotation", look.get("labelrotation")), look.get("labelsize")
            )
            one.far = look.get(f"label{far}", one.far)
            one.named = one.far or look.get(f"label{near}", one.named)

    def minorticks_off(self):
        """There are none."""

    def set_aspect(self, aspect):
        self.aspect = 1.0 if aspect == "equal" else None if aspect == "auto" else number(aspect)

    def set_axis_off(self):
        self.shown = False

    def axis(self, which):
        if which == "equal":
            return self.set_aspect("equal")
        if which not in ("off", "on", False, True):
            return Undrawn("ax.axis")()
        self.shown = which in ("on", True)

    def get_lines(self):
        return [artist for artist in self.artists if isinstance(artist, Line)]

    def get_legend_handles_labels(self):
        named = [a for a in self.artists if a.label and not str(a.label).startswith("_")]
        return named, [artist.label for artist in named]

    def legend(self, *given, **options):
        self.legends.append((given, options))

    def remove(self):
        self.figure.axes.remove(self)

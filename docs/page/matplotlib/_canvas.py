"""An SVG in the form of the site's figures: letters that are the page's, ink in its colour.

Places are points, counted from the left and from below, as in matplotlib.
"""

import math
import re
from html import escape

PAD = 2.88  # points around a picture; this and the next as in the build's figures
ZOOM, SMALL, COLUMN = 1.45, 250, 690
LEAST, PHONE, GROWTH = 9.05, 328, 1.16  # pixels of letters and of pictures on a phone
RISE, DESCENT, STEP = 0.76, 0.24, 1.2  # of a line of text, in sizes of its letters
WIDTHS = {
    0.3: "fijltIJ.,:;'|!()[] -/·",
    0.5: "sz*rcF?L",
    0.82: "wGOQ&NDHUM%m=+<>×→−÷∞√",
    1.0: "W@…",
}
WIDTH = {letter: width for width, letters in WIDTHS.items() for letter in letters}
SIZES = {"xx-small": 0.579, "x-small": 0.694, "small": 0.833, "medium": 1, "large": 1.2}
CYCLE = [
    "1f77b4",
    "ff7f0e",
    "2ca02c",
    "d62728",
    "9467bd",
    "8c564b",
    "e377c2",
    "7f7f7f",
    "bcbd22",
    "17becf",
]
LETTERS = dict(k="black", w="white", r="red", g="green", b="blue", c="#0bb", m="#b0b", y="#bb0")
DASHES = {"--": (3.7, 1.6), ":": (1, 1.65), "-.": (6.4, 1.6, 1, 1.6)}
DASHES |= {"dashed": DASHES["--"], "dotted": DASHES[":"], "dashdot": DASHES["-."]}
ANCHORS = {"center": "middle", "right": "end"}


def paint(color):
    """A colour as a figure of the page has it: of a role, the page's own."""
    from mhattn.show.plots import COLORS

    if color is None or (isinstance(color, str) and color.lower() == "none"):
        return "none"
    if not isinstance(color, str):
        red, green, blue, *alpha = (float(share) for share in color)
        shares = " ".join(f"{255 * share:.0f}" for share in (red, green, blue))
        return f"rgb({shares} / {alpha[0]:.2f})" if alpha else f"rgb({shares})"
    color = LETTERS.get(color, color).lower().removeprefix("tab:")
    if re.fullmatch(r"c\d", color):
        return f"#{CYCLE[int(color[1])]}"
    if re.fullmatch(r"[01]?\.\d+|[01]", color):
        return f"rgb({' '.join([f'{255 * float(color):.0f}'] * 3)})"
    if color in ("black", "#000000"):
        return "currentColor"
    role = next((role for role, own in COLORS.items() if own.lower() == color), None)
    return f"var(--mh-{role}, {color})" if role else color


def stroke(color, width, style="-", alpha=None, cap=None):
    """The look of a line."""
    look = {"fill": "none", "stroke": paint(color), "stroke-width": f"{width:.4g}"}
    if style in DASHES:
        look["stroke-dasharray"] = " ".join(f"{width * part:.3g}" for part in DASHES[style])
    elif cap:
        look["stroke-linecap"] = cap
    return look | ({} if alpha is None else {"opacity": f"{alpha:.3g}"})


def tenths(number):
    return f"{number:.1f}".removesuffix(".0").replace("-0", "0" if abs(number) < 0.05 else "-0")


def written(text):
    """A text without the signs of mathematics, and its width in sizes of its letters."""
    runs = list(_runs(text))
    width = sum((0.7 if shift else 1) * _width(part) for part, _, shift in runs)
    return runs, width


def _width(text):
    return sum(1.0 if ord(letter) > 0x2E7F else WIDTH.get(letter, 0.62) for letter in text)


def _runs(text):
    """Pieces of a line: the letters, whether they are slanted, and how far they are shifted."""
    for i, part in enumerate(re.split(r"(?<!\\)\$", text) if text.count("$") > 1 else [text]):
        if i % 2 == 0:
            if part:
                yield part, False, 0
            continue
        for shift, group, letter in re.findall(r"([\^_]?)(?:\{([^}]*)\}|(\S))", part):
            sign = group or letter
            yield sign, sign.isalpha(), {"^": -0.36, "_": 0.2}.get(shift, 0)


class Canvas:
    """What is drawn, and the box that it fills."""

    def __init__(self, height):
        self.height, self.parts, self.box = height, [], [math.inf, math.inf, -math.inf, -math.inf]
        self.sizes = []  # of its letters

    def cover(self, *points):
        """Let the picture reach these points."""
        for x, y in points:
            left, low, right, high = self.box
            self.box = [min(left, x), min(low, y), max(right, x), max(high, y)]

    def path(self, lines, look, closed=False, attributes=""):
        """Lines through points; each line is a list, and may begin with "Q", "C" for its kind."""
        d = "".join(self._line(line) for line in lines) + ("z" if closed else "")
        if d:
            self.parts.append(f'<path d="{d}"{attributes} style="{_style(look)}"/>')

    def _line(self, line):
        named = isinstance(line[0], str)
        kind = line[0] if named else "L"
        points = [f"{tenths(x)} {tenths(self.height - y)}" for x, y in line[named:]]
        return f"M{points[0]}" + (kind + " ".join(points[1:]) if points[1:] else "")

    def circle(self, x, y, radius, look):
        place = f'cx="{tenths(x)}" cy="{tenths(self.height - y)}" r="{radius:.3g}"'
        self.parts.append(f'<circle {place} style="{_style(look)}"/>')

    def clipped(self, start, box):
        """Let nothing that was drawn since ``start`` be seen outside of a box."""
        left, low, right, high = box
        frame = f"{left:.1f} {self.height - high:.1f} {right - left:.1f} {high - low:.1f}"
        x, y, width, height = frame.split()
        place = f'<svg x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{frame}">'
        self.parts[start:] = [place, *self.parts[start:], "</svg>"]

    def text(self, place, turn):
        """The lines of a `Place`."""
        self.sizes.append(place.size)
        for runs, x, y in place.lines():
            x, y = tenths(x), tenths(self.height - y)
            look = dict(place.look)
            if place.side in ANCHORS:
                look["text-anchor"] = ANCHORS[place.side]
            around = f' transform="rotate({-turn:g} {x} {y})"' if turn else ""
            self.parts.append((place.size, f'x="{x}" y="{y}"{around}', look, _spans(runs)))

    def svg(self, about):
        """All of it."""
        left, low, right, high = self.box
        left, low, right, high = left - PAD, low - PAD, right + PAD, high + PAD
        width = right - left
        pixels = round(width * ZOOM) if width < SMALL else COLUMN
        wanted = LEAST * width / min(pixels, PHONE)  # letters that a phone's reader can read
        smallest = min(self.sizes, default=wanted)
        grown = wanted if wanted <= smallest * GROWTH else 0
        parts = (part if isinstance(part, str) else _text(part, grown) for part in self.parts)
        view = " ".join(map(tenths, (left, self.height - high, width, high - low)))
        look = 'fill="currentColor" stroke-linejoin="round" font-size="10"'
        svg = f'<svg class="mh-figure" width="{pixels}" viewBox="{view}" role="img" {look}'
        svg += f' font-family="system-ui, sans-serif">{"".join(parts)}</svg>'
        need = 0 if wanted <= smallest * GROWTH else math.ceil(PHONE * wanted / smallest)
        return {"svg": svg, "about": about, "need": need}


def _style(look):
    return "; ".join(f"{name}: {value}" for name, value in look.items())


def _text(part, least):
    size, place, look, content = part
    share = max(size, least) / 10
    look = ({"font-size": f"{share:.3g}em"} if share != 1 else {}) | look
    style = f' style="{_style(look)}"' if look else ""
    return f"<text {place}{style}>{content}</text>"


def _spans(runs):
    """A line's pieces; after one that was shifted, the next goes back."""
    spans, back = [], 0
    for text, slanted, shift in runs:
        size = 0.7 if shift else 1
        move = shift - back
        look = {"font-style": "italic"} if slanted else {}
        look |= {"font-size": "0.7em"} if shift else {}
        by = f' dy="{move / size:.3g}em"' if move else ""
        style = f' style="{_style(look)}"' if look else ""
        text = escape(text)
        spans.append(f"<tspan{by}{style}>{text}</tspan>" if by or style else text)
        back = shift
    return "".join(spans)


class Place:
    """Where the lines of a text stand: its box, turned or not, is put beside a point."""

    def __init__(self, text, size, point, ha="left", va="baseline", turn=0, ma=None, look=()):
        self.pieces = [written(line) for line in str(text).split("\n")]
        self.size, self.look, self.side = size, look, ma or ha
        if turn == 90 and ma is None:  # what is known of a text's length is a guess
            self.side = {"top": "right", "bottom": "left", "baseline": "left"}.get(va, "center")
        self.width = size * max(width for _, width in self.pieces)
        count = len(self.pieces)
        self.lead = (STEP - 1) / 2 if count > 1 else 0  # above each line, and below
        self.depth = size * count * (1 + 2 * self.lead)
        self.turn = math.radians(turn)
        self.corner = (0, 0)
        xs, ys = zip(*self.corners(), strict=True)
        across = {"left": min(xs), "right": max(xs)}.get(ha, (min(xs) + max(xs)) / 2)
        along = {
            "top": max(ys),
            "bottom": min(ys),
        }
        along["center_baseline"] = max(ys) - (self.lead + RISE / 2) * size
        along["baseline"] = min(ys) + (DESCENT + self.lead) * size
        self.corner = point[0] - across, point[1] - along.get(va, (min(ys) + max(ys)) / 2)

    def at(self, x, y):
        """A point of the text's own, from its left upper corner."""
        cos, sin = math.cos(self.turn), math.sin(self.turn)
        return self.corner[0] + x * cos - y * sin, self.corner[1] + x * sin + y * cos

    def corners(self, pad=0):
        """The corners of the text's box, and around it."""
        right, low = self.width + pad, -self.depth - pad
        return [self.at(*each) for each in ((-pad, pad), (right, pad), (right, low), (-pad, low))]

    def lines(self):
        """Each line's pieces, and where it begins, has its middle, or ends."""
        x = {"center": self.width / 2, "right": self.width}.get(self.side, 0)
        for i, (runs, _) in enumerate(self.pieces):
            yield runs, *self.at(x, -self.size * (RISE + self.lead + STEP * i))

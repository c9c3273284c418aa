"""Make matplotlib's SVG fit for a page: text in the page's font, colours that follow its scheme."""

from __future__ import annotations

import re

from mhattn.plots import COLORS

INK = "#000000"
ZOOM = 1.45  # CSS pixels a point of a small figure, whose letters are then as large as the page's
SMALL = 250  # points; a wider figure fills the column, with smaller letters (site.css)
COLUMN = 690  # CSS pixels
SIZE = 10  # of letters, in points; the others' sizes and places are multiples of it

GLYPHS = re.compile(r'<tspan x="([^"]*)" y="([^"]*)" style="([^"]*?)font-size: ([\d.]+)px')
STILL = re.compile(r' transform="rotate\(-0 [^"]*"')
PLACES = re.compile(r' (?:d|x|y|x[12]|y[12]|r|transform|viewBox)="[^"]*"')
INVISIBLE = re.compile(r'<path [^>]*style="(fill: none|[^"]*fill-opacity: 0(?:\.0+)?)"/>\s*')
X = Y = r"(-?[\d.]+)"
SQUARE = re.compile(rf'd="M {X} {Y}\s*L {X} \2\s*L \3 {Y}\s*L \1 \4(?:\s*L \1 \2)?\s*z\s*"')
CELL = re.compile(
    rf'<path d="M{X} {Y}H{X}V{Y}H\1z" (shape-rendering="crispEdges"[^>]*style="[^"]*)"/>$'
)


def site_svg(text: str) -> str:
    """Strip what a browser does not need; ink becomes the text's colour, roles CSS variables."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.S)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    text = re.sub(r"(stroke|fill): " + INK, r"\1: currentColor", text)
    for role, color in COLORS.items():
        text = re.sub(re.escape(color), f"var(--mh-{role}, {color.lower()})", text, flags=re.I)
    text = PLACES.sub(lambda places: re.sub(r"-?\d+\.\d+", _short, places[0]), text)
    text = re.sub(r"(?<=opacity: )\d\.\d+", lambda share: f"{float(share[0]):.2f}", text)
    text = GLYPHS.sub(_in_ems, text)
    text = re.sub(r"font-size: ([\d.]+)px;? ?", _share, text)
    text = STILL.sub("", text).replace('; "', '"').replace(' style=""', "")
    text = INVISIBLE.sub("", text)
    text = SQUARE.sub(r'd="M\1 \2H\3V\4H\1z" shape-rendering="crispEdges"', text)
    used = set(re.findall(r"#([\w-]+)", text))
    text = re.sub(r' id="([\w.-]+)"', lambda m: m[0] if m[1] in used else "", text)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.S)
    text = _merge_cells(re.sub(r"\s*\n\s*", "\n", text))
    root = 'fill="currentColor" stroke-linejoin="round"'  # inherited, as the style said
    root += f' font-size="{SIZE}" font-family="system-ui, sans-serif"'
    width = float(re.search(r'<svg[^>]* width="([\d.]+)pt"', text)[1])
    pixels = round(width * ZOOM) if width < SMALL else COLUMN
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    return text.replace("<svg ", f'<svg width="{pixels}" {root} ', 1)


def _share(size: re.Match) -> str:
    share = float(size[1]) / SIZE
    return "" if share == 1 else f"font-size: {share:g}em; "


def _in_ems(glyphs: re.Match) -> str:
    """Where the letters of a formula stand, in sizes of its font: gaps shrink with it."""
    x, y, style, size = glyphs.groups()
    xs, ys = (
        " ".join(f"{float(at) / float(size):.3g}em" for at in each.split()) for each in (x, y)
    )
    return f'<tspan x="{xs}" y="{ys}" style="{style}font-size: {size}px'


def _merge_cells(text: str) -> str:
    """Neighbouring squares of one look as one path: a table of weights has hundreds."""
    lines: list[str] = []
    looks: dict[str, str] = {}
    for line in [*text.split("\n"), ""]:
        if match := CELL.match(line):
            x, y, right, bottom, look = match.groups()
            width, height = _tenths(float(right) - float(x)), _tenths(float(bottom) - float(y))
            looks[look] = looks.get(look, "") + f"M{x} {y}h{width}v{height}h-{width}z"
            continue
        lines += [f'<path d="{path}" {look}"/>' for look, path in looks.items()]
        looks = {}
        lines.append(line)
    return "\n".join(lines[:-1])


def _short(number: re.Match) -> str:
    """A number to a tenth of a point, which is less than a screen can show."""
    return _tenths(float(number[0]))


def _tenths(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")

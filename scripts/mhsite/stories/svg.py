"""Make matplotlib's SVG fit for a page: text in the page's font, colours that follow its scheme."""

from __future__ import annotations

import base64
import io
import re
import zlib
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
from PIL import Image

from mhattn import COLORS

INK = "#000000"
ZOOM = 1.45  # CSS pixels a point of a small figure, whose letters are then as large as the page's
SMALL = 250  # points; a wider figure fills the column, with smaller letters (site.css)
COLUMN = 690  # CSS pixels
SIZE = 10  # of letters, in points; the others' sizes and places are multiples of it

PAINTS = {color.lower(): f"var(--mh-{role}, {color.lower()})" for role, color in COLORS.items()}
PAINTS[INK] = "currentColor"
PLACES = {"d", "x", "y", "x1", "x2", "y1", "y2", "r", "width", "height", "transform"}
X = Y = r"(-?[\d.]+)"
SQUARE = re.compile(rf"M {X} {Y} L {X} \2 L \3 {Y} L \1 \4(?: L \1 \2)? z")
CELL = re.compile(rf"M{X} {Y}H{X}V{Y}H\1z")

HREF = "{http://www.w3.org/1999/xlink}href"

ElementTree.register_namespace("", "http://www.w3.org/2000/svg")
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def site_svg(text: str) -> str:
    """Strip what a browser does not need; ink becomes the text's colour, roles CSS variables."""
    root = ElementTree.fromstring(text)
    used = set(re.findall(r"#([\w-]+)", text))
    _slim(root, used)
    _without_repeats(root)
    for image in root.iterfind(".//{*}image"):
        image.set(HREF, _with_palette(image.get(HREF)))
    width = float(root.get("width").removesuffix("pt"))
    root.set("width", str(round(width * ZOOM) if width < SMALL else COLUMN))
    del root.attrib["height"]
    inherited = {"fill": "currentColor", "stroke-linejoin": "round"}  # as the style said
    inherited |= {"font-size": str(SIZE), "font-family": "system-ui, sans-serif"}
    root.attrib.update(inherited)
    root.set("viewBox", _rounded(root.get("viewBox")))
    return ElementTree.tostring(root, encoding="unicode").replace(" />", "/>")


def _slim(parent: Element, used: set[str]) -> None:
    """Keep what is seen, with no group around what has nothing in common."""
    kept: list[Element] = []
    for child in parent:
        if _name(child) in ("metadata", "style"):
            continue
        _slim(child, used)
        _restyle(child)
        if child.get("id") not in used:
            child.attrib.pop("id", None)
        if _name(child) == "g" and not child.attrib:
            kept += child
        elif len(child) or not (_name(child) in ("g", "defs") or _invisible(child)):
            kept.append(child)
    parent[:] = _merged(kept)
    parent.text, parent.tail = (parent.text or "").strip(" \n"), None


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _restyle(element: Element) -> None:
    style = dict(part.split(": ", 1) for part in element.get("style", "").split("; ") if part)
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for name in PLACES.intersection(element.keys()):
        element.set(name, _rounded(element.get(name)))
    if _name(element) == "tspan":  # in sizes of its font: gaps between letters shrink with it
        size = float(style["font-size"].removesuffix("px"))
        for axis in ("x", "y"):
            places = (float(at) / size for at in element.get(axis).split())
            element.set(axis, " ".join(f"{place:.3g}em" for place in places))
    if square := SQUARE.fullmatch(element.get("d", "")):
        x, y, right, bottom = square.groups()
        element.set("d", f"M{x} {y}H{right}V{bottom}H{x}z")
        element.set("shape-rendering", "crispEdges")
    style.pop("font-family", None)
    if size := style.pop("font-size", ""):
        share = float(size.removesuffix("px")) / SIZE
        style |= {"font-size": f"{share:g}em"} if share != 1 else {}
    for key, value in style.items():
        value = PAINTS.get(value.lower(), value)
        style[key] = f"{float(value):.2f}" if key.endswith("opacity") else value
    element.attrib.pop("style", None)
    if style:
        element.set("style", "; ".join(f"{key}: {value}" for key, value in style.items()))


def _without_repeats(root: Element) -> None:
    """A mark that looks the same wherever it stands has its look where it is defined.

    Its id then says that look too: a page's figures share marks, in different colours.
    """
    for mark in root.iterfind(".//{*}defs/{*}path"):
        name = f"#{mark.get('id')}"
        places = [use for use in root.iterfind(".//{*}use") if use.get(HREF) == name]
        looks = {use.get("style") for use in places}
        if len(looks) == 1 and None not in looks:
            own = mark.get("style", "").split("; ")
            named = {part.partition(":")[0] for part in own}
            look = [part for part in looks.pop().split("; ") if part.partition(":")[0] not in named]
            mark.set("style", "; ".join(filter(None, own + look)))
            mark.set("id", f"m{zlib.crc32(ElementTree.tostring(mark)):08x}")
            for use in places:
                use.set(HREF, f"#{mark.get('id')}")
                del use.attrib["style"]


def _with_palette(address: str) -> str:
    """The same picture in half the bytes, if it has few colours: maps have as many as shades."""
    start = "data:image/png;base64,"
    if not address.startswith(start):
        return address
    with Image.open(io.BytesIO(base64.b64decode(address.removeprefix(start)))) as picture:
        dots = np.asarray(picture.convert("RGBA"))
    colors, places = np.unique(dots.reshape(-1, 4), axis=0, return_inverse=True)
    if len(colors) > 256:
        return address
    small, written = Image.fromarray(places.reshape(dots.shape[:2]).astype(np.uint8)), io.BytesIO()
    small.putpalette(colors[:, :3].tobytes())
    small.save(written, "PNG", optimize=True, transparency=bytes(colors[:, 3]))
    text = base64.b64encode(written.getvalue()).decode()
    return min(start + text, address, key=len)


def _invisible(element: Element) -> bool:
    style = element.get("style", "")
    return _name(element) == "path" and (style == "fill: none" or "fill-opacity: 0.00" in style)


def _merged(elements: list[Element]) -> Iterator[Element]:
    """Neighbouring squares of one look as one path: a table of weights has hundreds."""
    looks: dict[tuple, Element] = {}
    for element in elements:
        if cell := CELL.fullmatch(element.get("d", "")):
            x, y, right, bottom = cell.groups()
            width, height = _tenths(float(right) - float(x)), _tenths(float(bottom) - float(y))
            look = element.get("style"), element.get("clip-path")
            path = f"M{x} {y}h{width}v{height}h-{width}z"
            if look in looks:
                looks[look].attrib["d"] += path
                continue
            element.set("d", path)
            looks[look] = element
        else:
            looks = {}
        yield element


def _rounded(text: str) -> str:
    """Its numbers to a tenth of a point, which is less than a screen can show."""
    short = re.sub(r"-?\d+\.\d+", lambda number: _tenths(float(number[0])), text)
    return " ".join(short.split())


def _tenths(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")

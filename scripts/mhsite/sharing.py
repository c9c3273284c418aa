"""What other sites show of a page: its description, its card, its icons.

Cards are drawn with the one font that comes with matplotlib, which has no Chinese: Chinese pages
share a card without words.
"""

from __future__ import annotations

import io
import json
import re
from functools import cache
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from mhsite import search
from mhsite.page import Page
from mhsite.settings import settings
from mhsite.source import DOCS

SIZES = (32, 180, 192, 512)
CARD = (1200, 630)
FONT = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
SQUARE = re.compile(
    r'<path d="M(?P<x>\d+) (?P<y>\d+)h(?P<side>\d+)[^"]*"(?: fill-opacity="(?P<ink>[.\d]+)")?/>'
)


def files(pages: list[Page], language: str) -> dict[str, bytes | str]:
    """The icons, the manifest that lists them, and the cards of these pages."""
    found: dict[str, bytes | str] = {f"assets/icons/{size}.png": icon(size) for size in SIZES}
    found["assets/icons/card.png"] = card("")
    icons = [{"src": f"{size}.png", "sizes": f"{size}x{size}"} for size in SIZES]
    about = {"name": settings(language)["site_name"], "start_url": "../..", "display": "browser"}
    found["assets/icons/site.webmanifest"] = json.dumps(about | {"icons": icons})
    for page in pages if language == "en" else ():
        title = search.words(page.headings[0].title, "en")
        found[f"assets/cards/{page.url.replace('/', '-')}card.png"] = card(title)
    return found


@cache
def icon(size: int) -> bytes:
    """The logo in a square of this many pixels, on white."""
    image = Image.new("RGB", (size, size), "white")
    _logo(image, 0, 0, size)
    return _png(image)


@cache
def card(title: str) -> bytes:
    """The logo, the title beside it, and the name of the site."""
    image = Image.new("RGB", CARD, "white")
    if not title:
        _logo(image, 360, 75, 480)
        return _png(image)
    _logo(image, 60, 165, 300)
    draw = ImageDraw.Draw(image)
    font = ImageFont.truetype(str(FONT), 60)
    lines = [""]
    for word in title.split():
        longer = f"{lines[-1]} {word}".strip()
        if draw.textlength(longer, font) > 740 and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    draw.multiline_text((410, 190), "\n".join(lines), "#1f1f1f", font, spacing=16)
    small = ImageFont.truetype(str(FONT), 30)
    draw.text((410, 540), settings()["site_name"], "#666666", small)
    return _png(image)


def _logo(image: Image.Image, left: int, top: int, size: int) -> None:
    """Draw docs/assets/logo.svg, which consists of squares."""
    text = (DOCS / "assets" / "logo.svg").read_text(encoding="utf-8")
    ink = Image.new("RGBA", image.size)
    draw, unit = ImageDraw.Draw(ink), size / 24
    colour = re.search(r'fill="(#\w+)"', text)[1]
    for square in SQUARE.finditer(text):
        x, y = left + int(square["x"]) * unit, top + int(square["y"]) * unit
        side = int(square["side"]) * unit
        fill = colour + f"{round(255 * float(square['ink'] or 1)):02x}"
        draw.rectangle((round(x), round(y), round(x + side) - 1, round(y + side) - 1), fill)
    image.paste(ink, mask=ink)


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()

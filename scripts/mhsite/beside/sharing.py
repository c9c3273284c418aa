"""What others show of the site: a page's card with its first figure, the icons, the feed.

Cards are drawn with the one font that comes with matplotlib, which has no Chinese. A Chinese page's
card takes its words from a Chinese font of this machine; where there is none, it is the figure
without words.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

import matplotlib
import resvg_py
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from mhattn.show import fonts
from mhsite import words
from mhsite.beside import search
from mhsite.pages import fragments, navigation
from mhsite.pages.page import Page, read, with_spans
from mhsite.pages.settings import settings
from mhsite.stories.source import DOCS

CHANGES = "changes.md"  # has a section for each day: its id is the date
SIZES = (32, 180, 192, 512)
CARD = (1200, 630)
FORMULA = "\N{END OF PROOF}"  # in the place of one
INSTEAD = {"math": FORMULA, "citation": ""}  # of what a page writes otherwise
SAYS = 30  # pixels of the letters that say a number
FONT = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
INK = "#1f1f1f"
VARIABLE = re.compile(r"var\(--[\w-]+, ([^)]*)\)")
TEXT = re.compile(r"<text.*?</text>", re.S)
HAN = re.compile("[\u4e00-\u9fff]")
# A Chinese character takes the mark behind it along: no line begins with one.
PIECE = re.compile("[\u4e00-\u9fff][，。：；？！、）》]*|[^\\s\u4e00-\u9fff]+[ ]*|[ ]+")
# A link without its markup leaves blanks: before a mark, and between Chinese characters.
PADDED = re.compile(
    r" +(?=[,.;:!?)，。；：！？（）、])|(?<=[，。；：！？（]) +"
    r"|(?<=[一-鿿，。；：！？）、]) +(?=[一-鿿])"
)
# What is no number of the page: a source in brackets, a version, a year.
NAMED = re.compile(
    r"[(（][^()（）]*\b(?:19|20)\d\d[)）]|(?<=\S )[A-Z][\w-]*(?: \d[\w.]*)+"
    r"|(?:version|transformers) [\d.]+|[\d.]+ 版"
)
NUMBER = re.compile(r"(?<![\w.-])(?!(?:19|20)\d\d(?!\d))\d+(?:[.,]\d+)*(?![A-Za-z\d])", re.ASCII)
SENTENCE = re.compile(r"[^.?!。？！]+(?:[.?!](?=\S)[^.?!。？！]*)*[.?!。？！]*”?")
CLAUSE = re.compile(r"[^:;：；]+[:;：；]?")
MARKS = ",.:;?!，。：；？！、"
ENDS = " .:;。：；"
ASKS = re.compile("[?？]")
POINTS = re.compile(
    "It|They|That|Those|This|These|There|Here|它|这|那|其|但|却|也"
)  # to another one
SQUARE = re.compile(
    r'<path d="M(?P<x>\d+) (?P<y>\d+)h(?P<side>\d+)[^"]*"(?: fill-opacity="(?P<ink>[.\d]+)")?/>'
)


def files(pages: list[Page], language: str, figures: dict[str, str]) -> dict[str, bytes | str]:
    """The icons, the manifest that lists them, and the cards of these pages.

    ``figures`` holds the site's figures by their names, as SVG.
    """
    found: dict[str, bytes | str] = {f"assets/icons/{size}.png": icon(size) for size in SIZES}
    icons = [{"src": f"{size}.png", "sizes": f"{size}x{size}"} for size in SIZES]
    about = {"name": settings(language)["site_name"], "start_url": "../..", "display": "browser"}
    found["assets/icons/site.webmanifest"] = json.dumps(about | {"icons": icons})
    for page in pages:
        title = search.words(page.headings[0].title, language)
        figure, says = (
            figures.get(fragments.picture(page).removeprefix("figures/"), ""),
            number(page),
        )
        if language == "zh" and not chinese_font():
            title, figure, says = "", TEXT.sub("", figure), ""
        name = f"assets/cards/{page.url.replace('/', '-')}card.png"
        found[name] = card(title, figure, language, says)
    return found


def number(page: Page) -> str:
    """What a page's first paragraph says in numbers: a sentence, or a part of one.

    It takes at most two lines of a card; one that asks nothing, and points to no sentence before
    it, is taken rather than another. Where there is none, the page's description may have one.
    """
    first = (block.text for block in page.blocks if block.kind == "prose" and block.text.strip())
    lead = with_spans(next(first, ""), lambda span: INSTEAD.get(span.kind, span.text))
    lead = PADDED.sub("", " ".join(search.words(lead, page.language).split()))
    found = [*parts(lead), *parts(navigation.description(page.name, page.language) or "")]
    font = _font(SAYS, page.language)
    fit = [
        said
        for said in dict.fromkeys(found)
        if NUMBER.search(NAMED.sub("", said))
        and FORMULA not in said
        and len(_lines(said, font, 1080)) < 3
    ]
    said = min(
        fit, key=lambda each: (bool(ASKS.search(each)), bool(POINTS.match(each))), default=""
    )
    said = said.rstrip(ENDS)
    is_word = page.language == "en" and re.match("[a-z]+ ", said)
    return said[0].upper() + said[1:] if is_word else said


def parts(text: str) -> list[str]:
    """The sentences of a text, then the parts of each."""
    whole = [sentence.strip() for sentence in SENTENCE.findall(text)]
    return whole + [part.strip() for sentence in whole for part in CLAUSE.findall(sentence)]


@cache
def icon(size: int) -> bytes:
    """The logo in a square of this many pixels, on white."""
    image = Image.new("RGB", (size, size), "white")
    _logo(image, 0, 0, size)
    return _png(image)


@cache
def chinese_font() -> tuple[str, int] | None:
    """The file of a Chinese font, and its place in that file, if one is installed."""
    if (name := fonts.installed_font()) is None:
        return None
    faces = [face for face in font_manager.fontManager.ttflist if face.name == name]
    face = min(faces, key=lambda face: (abs(int(face.weight) - 400), face.fname))
    return face.fname, face.index


@cache
def card(title: str, figure: str = "", language: str = "en", says: str = "") -> bytes:
    """A page's title and what it says in numbers above its figure, or beside the logo."""
    image = Image.new("RGB", CARD, "white")
    if not figure and not title:
        _logo(image, 360, 75, 480)
        return _png(image)
    left, top, width = (60, 40, 1080) if figure else (410, 190, 740)
    draw = ImageDraw.Draw(image)
    for text, size, ink in ((title, 52 if figure else 60, INK), (says, SAYS, "#5f6368")):
        if text:
            lines = "\n".join(_lines(text, font := _font(size, language), width))
            draw.multiline_text((left, top), lines, ink, font, spacing=size / 3)
            top = draw.multiline_textbbox((left, top), lines, font, spacing=size / 3)[3] + 20
    if figure:
        _draw(image, figure, round(top))
        _logo(image, 1100, 560, 50)
    else:
        _logo(image, 60, 165, 300)
        draw.text((410, 540), settings(language)["site_name"], "#666666", _font(30, language))
    return _png(image.quantize(64, Image.Quantize.FASTOCTREE))


def _font(size: int, language: str) -> ImageFont.FreeTypeFont:
    path, index = (language == "zh" and chinese_font()) or (str(FONT), 0)
    return ImageFont.truetype(path, size, index)


def _lines(title: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """The title in lines no wider than this: that end with a mark if they can, or equally long."""
    lines = _filled(title, font, width)
    while len(lines) > 1 and len(closer := _filled(title, font, width := width - 20)) == len(lines):
        if all(line[-1] in MARKS for line in lines[:-1]):
            break
        lines = closer
    return lines


def _filled(title: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """The title in lines as full as they go, broken between words or Chinese characters."""
    lines = [""]
    for piece in PIECE.findall(title):
        if lines[-1] and font.getlength((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.lstrip()
    return [line.rstrip() for line in lines if line.strip()]


def _draw(image: Image.Image, figure: str, top: int) -> None:
    """Draw a figure of the site below ``top``, as large as it fits; of a tall one its head."""
    figure = VARIABLE.sub(r"\1", figure)
    chinese = [chinese_font()[0]] if HAN.search(figure) and chinese_font() else []
    width, height = map(float, re.search(r'viewBox="\S+ \S+ ([^"]*)"', figure)[1].split())
    room = CARD[1] - 30 - top
    zoom = min(1000 / width, max(room / height, 500 / width))
    size = f' color="{INK}" width="{zoom * width:.0f}" height="{zoom * height:.0f}"'
    png = resvg_py.svg_to_bytes(
        svg_string=re.sub(r' width="[^"]*"', size, figure, count=1),
        skip_system_fonts=True,
        font_files=[str(FONT), *chinese],
        sans_serif_family="DejaVu Sans",
    )
    drawn = Image.open(io.BytesIO(png))
    place = (CARD[0] - drawn.width) // 2, top + max(0, room - drawn.height) // 2
    image.paste(drawn, place, drawn)


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


def changes(page: Page) -> Iterator[tuple[str, str, str]]:
    """Date, title and words of each section of the page of changes."""
    said: list[str] = []
    for block in reversed(list(page.walk())):
        if block.kind == "heading" and block.mark == "##":
            told = search.words("\n".join(reversed(said)), page.language)
            yield block.value, block.title, PADDED.sub("", " ".join(told.split()))
            said = []
        else:
            said.append(block.text)


def feed(language: str, home: str) -> dict[str, str]:
    """The page of changes, where there is one, as an Atom feed, the newest entry first."""
    if not (path := DOCS / language / CHANGES).is_file():
        return {}
    page = read(path)
    found = sorted(changes(page), reverse=True)
    url = escape(f"{home}{page.url}")
    entries = "".join(
        f'<entry><id>{url}#{date}</id><title>{escape(title)}</title><link href="{url}#{date}"/>'
        f"<updated>{date}T00:00:00Z</updated><summary>{escape(told)}</summary></entry>\n"
        for date, title, told in found
    )
    text = (
        f'<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom" '
        f'xml:lang="{words.of(language, "page.lang")}"><id>{url}</id>\n'
        f"<title>{escape(settings(language)['site_name'])}</title><author><name>The mhattn "
        f'developers</name></author><link href="{url}"/><link rel="self" href="{home}feed.xml"/>\n'
        f"<updated>{found[0][0]}T00:00:00Z</updated>\n{entries}</feed>\n"
    )
    return {"feed.xml": text}


def readme_picture(figure: str) -> str:
    """A figure of the site for README.md, where no style sheet gives its ink a colour."""
    ink = "svg{color:#1f1f1f}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}"
    return VARIABLE.sub(r"\1", figure).replace(">", f"><style>{ink}</style>", 1) + "\n"

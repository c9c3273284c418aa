"""The course and each section of the finished site as books: EPUB, and PDF where there is Chromium.

A book has what stands on the pages: prose, code with its outputs, figures as they were drawn, and
formulas as MathML. What one can touch is a link to the page. What folds is unfolded, but for code
that prints nothing, as that of a figure.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Iterator
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urldefrag, urljoin
from xml.etree import ElementTree
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from bs4 import BeautifulSoup, Tag

from mhsite import words
from mhsite.pages import navigation, release
from mhsite.pages.page import Page, read
from mhsite.pages.settings import settings
from mhsite.stories.source import DOCS, LANGUAGES, SourceError

SHORTEST = 2  # pages of a book
NO_BOOK = ("try/index.md", "questions.md", "reference/index.md")  # nobody reads them through
CHROMIUM = "chromium", "chromium-browser", "google-chrome"
# Figures keep what a parser of HTML would spoil: the large letters in names, such as viewBox.
FIGURE = re.compile(r"<svg.*?</svg>", re.S)
KEPT = re.compile(r"<mh-svg[^>]*?number=\"(\d+)\"[^>]*?(?:/>|></mh-svg>)")
VARIABLE = re.compile(r"var\(--[\w-]+, ([^)]*)\)")
LINKS = re.compile(r"</?a\b[^>]*>")
APPLIED = "\u2061"  # KaTeX writes it where MathML takes none: in the base of an index
SVG = "http://www.w3.org/2000/svg"
DROPPED = (
    ".md-content__button, .headerlink, script, style, link, button, .mh-about, .mh-road, "
    ".mh-contents, .mh-cell, annotation, .katex-html"
)
STYLE = """
body { font-family: sans-serif; line-height: 1.5; color: #1f1f1f; }
pre { white-space: pre-wrap; font-size: 0.8em; background: #f5f5f5; padding: 0.5em; }
pre.mh-output { background: none; border-left: 3px solid #999; }
code { font-family: monospace; }
svg, img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.8em; }
th, td { border-bottom: 1px solid #bbb; padding: 0.2em 0.5em; text-align: left; }
figcaption { font-size: 0.9em; color: #555; }
.admonition, .folded { border-left: 3px solid #4269d0; padding-left: 0.8em; margin: 1em 0; }
.admonition-title, .summary { font-weight: bold; }
h1 { break-before: page; }
figure, tr { break-inside: avoid; }
@page { margin: 18mm; }
"""
PAGE = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" \
xml:lang="{lang}" lang="{lang}"><head><meta charset="utf-8"/><title>{title}</title>
<link rel="stylesheet" href="book.css"/></head><body>
{body}
</body></html>
"""
CONTAINER = """<?xml version="1.0"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="book/book.opf" media-type="application/oebps-package+xml"/></rootfiles>
</container>
"""
PACKAGE = """<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">{home}#{name}\
</dc:identifier><dc:title>{title}</dc:title><dc:language>{lang}</dc:language>
<dc:creator>The mhattn developers</dc:creator><dc:source>{home}</dc:source>
<dc:rights>MIT</dc:rights><meta property="dcterms:modified">{changed}</meta></metadata>
<manifest>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="css" href="book.css" media-type="text/css"/>
{items}
</manifest><spine><itemref idref="nav"/>{order}</spine></package>
"""


def write(site: Path, folder: Path) -> list[Path]:
    """Write all books of a finished site into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    found = []
    for language in LANGUAGES:
        for name, title, pages in books(language):
            book = Book(site, language, f"mhattn-{name}.{language}", title, pages)
            found.append(folder / f"{book.name}.epub")
            found[-1].write_bytes(book.epub())
            if chromium:
                found.append(folder / f"{book.name}.pdf")
                book.print_with(chromium, found[-1])
    return found


def books(language: str) -> Iterator[tuple[str, str, list[Page]]]:
    """Name, title and pages of each book: the course, and what the nav has under a title."""
    english = settings(LANGUAGES[0])["nav"]
    for mine, part in zip(settings(language)["nav"], english, strict=True):
        ((title, below),) = mine.items()
        names = list(navigation.names_in(below))
        if names[0] in NO_BOOK or len(names) < SHORTEST:
            continue
        ((called, _),) = part.items()
        name = "course" if names[0] == "index.md" else "-".join(called.lower().split())
        pages = [read(DOCS / language / each) for each in names]
        yield name, title, pages[names[0] == "index.md" :]  # the home page is no chapter


class Book:
    def __init__(self, site: Path, language: str, name: str, title: str, pages: list[Page]):
        below = "" if language == LANGUAGES[0] else f"{language}/"
        self.site, self.pages, self.name = site / below, pages, name
        self.home = settings()["site_url"] + below
        self.lang = words.of(language, "page.lang")
        self.language, self.title = language, f"{settings(language)['site_name']}: {title}"
        self.files: dict[str, bytes] = {}  # pictures that are no SVG, by their names in the book
        self.chapters = {page.url: self.chapter(page) for page in pages}

    def chapter(self, page: Page) -> str:
        """A page's text as XHTML."""
        html = (self.site / page.url / "index.html").read_text(encoding="utf-8")
        figures: list[str] = []

        def aside(match: re.Match) -> str:
            figures.append(drawing(match[0]))
            return f'<mh-svg number="{len(figures) - 1}"></mh-svg>'

        soup = BeautifulSoup(FIGURE.sub(aside, html), "html.parser")
        article = soup.select_one("article.md-content__inner")
        for tag in article.select(DROPPED):
            tag.decompose()
        self.plain(article, soup, page)
        made = "".join(
            each.decode(formatter="minimal") for each in article.contents if str(each).strip()
        )
        return KEPT.sub(lambda match: figures[int(match[1])], made)

    def plain(self, article: Tag, soup: BeautifulSoup, page: Page) -> None:
        """Take out what a book can't do, and give every link an address that is whole."""
        for folded in article.select("details:not([class])"):
            if not folded.select("p, ul, ol, table, svg, .mh-output"):
                folded.decompose()  # code that draws, how to cite: on the page
        for widget in article.select(".mh-widget"):
            link = soup.new_tag("a", href=self.home + page.url)
            link.string = words.of(self.language, "book.try")
            widget.replace_with(link)
        for tag in article.select("details, summary, .katex"):
            if tag.name == "details":
                tag.name, tag.attrs = "div", {"class": "folded"} | _id(tag)
            elif tag.name == "summary":
                tag.name, tag.attrs = "p", {"class": "summary"}
            else:
                for leaf in tag.select("math :is(mi, mo, mn, mtext):has(*)"):
                    leaf.string = leaf.text
                for sign in tag.find_all("mo", string=APPLIED):
                    sign.decompose()
                tag.replace_with(tag.math)
        for tag in article.find_all(True):
            kept = {k: v for k, v in tag.attrs.items() if not k.startswith(("data-", "on"))}
            kept = {k: v for k, v in kept.items() if k not in ("tabindex", "role", "style")}
            if tag.name not in ("a", "img"):
                kept.pop("title", None)
            tag.attrs = kept
            if tag.has_attr("id"):
                tag["id"] = self.anchor(page, tag["id"])
        for tag in article.select("[href]"):
            tag["href"] = self.target(page, tag["href"])
        for tag in article.select("img[src]"):
            tag["src"] = self.picture(page, tag["src"])

    def anchor(self, page: Page, name: str) -> str:
        """Ids are the page's own: in a PDF all pages are one."""
        return f"{_file(page.url)}-{name}"

    def target(self, page: Page, href: str) -> str:
        """Within the book, or an address of the site."""
        whole, name = urldefrag(urljoin(self.home + page.url, href))
        to = next((each for each in self.pages if self.home + each.url == whole), None)
        if to is None:
            return whole + (f"#{name}" if name else "")
        return f"{_file(to.url)}.xhtml" + (f"#{self.anchor(to, name)}" if name else "")

    def picture(self, page: Page, src: str) -> str:
        """The name of a picture's file in the book; data stay where they are."""
        if src.startswith("data:"):
            return src
        path = self.site / urljoin(f"{self.home}{page.url}", src).removeprefix(self.home)
        content = path.read_bytes()
        if path.suffix == ".svg":
            content = drawing(content.decode()).encode()
        self.files[path.name] = content
        return path.name

    def xhtml(self, title: str, body: str) -> str:
        text = PAGE.format(lang=self.lang, title=escape(title), body=body)
        try:
            ElementTree.fromstring(re.sub(r"&(?!amp;|lt;|gt;|quot;|#)\w+;", " ", text))
        except ElementTree.ParseError as error:
            line = text.splitlines()[error.position[0] - 1]
            near = line[max(0, error.position[1] - 60) : error.position[1] + 60]
            raise SourceError(f"{self.name}, {title}: {error}: {near}") from None
        return text

    def titles(self) -> list[str]:
        return [navigation.title(page.name, self.language) for page in self.pages]

    def contents(self) -> str:
        """The first page: the chapters, where they are from."""
        links = "".join(
            f'<li><a href="{_file(page.url)}.xhtml">{escape(title)}</a></li>'
            for page, title in zip(self.pages, self.titles(), strict=True)
        )
        about = f"<p>{escape(self.home)} · {escape(release.state(self.language))}</p>"
        return f'<h1>{escape(self.title)}</h1><nav epub:type="toc"><ol>{links}</ol></nav>{about}'

    def epub(self) -> bytes:
        """The book as a file; the same site gives the same bytes."""
        names = [_file(page.url) for page in self.pages]
        inside = {"nav.xhtml": self.xhtml(self.title, self.contents()), "book.css": STYLE}
        items, order = [], []
        for name, title, body in zip(names, self.titles(), self.chapters.values(), strict=True):
            inside[f"{name}.xhtml"] = text = self.xhtml(title, body)
            uses = [word for word in ("svg", "mathml") if f"<{word[:4]}" in text]
            uses += ["remote-resources"] * ('src="http' in text)
            marks = f' properties="{" ".join(uses)}"' if uses else ""
            items.append(
                f'<item id="p-{name}" href="{name}.xhtml" '
                f'media-type="application/xhtml+xml"{marks}/>'
            )
            order.append(f'<itemref idref="p-{name}"/>')
        for number, (name, content) in enumerate(sorted(self.files.items())):
            kind = {"svg": "svg+xml", "jpg": "jpeg"}.get(name.split(".")[-1], name.split(".")[-1])
            items.append(f'<item id="f-{number}" href="{name}" media-type="image/{kind}"/>')
            inside[name] = content
        inside["book.opf"] = PACKAGE.format(
            home=self.home,
            name=self.name,
            title=escape(self.title),
            lang=self.lang,
            changed=f"{release.date():%Y-%m-%dT%H:%M:%SZ}",
            items="\n".join(items),
            order="".join(order),
        )
        file = io.BytesIO()
        with ZipFile(file, "w") as made:
            _put(made, "mimetype", "application/epub+zip", ZIP_STORED)  # first, as it must be
            _put(made, "META-INF/container.xml", CONTAINER)
            for name, content in inside.items():
                _put(made, f"book/{name}", content)
        return file.getvalue()

    def print_with(self, chromium: str, path: Path) -> None:
        """All pages in one, printed by Chromium."""
        text = self.xhtml(self.title, self.contents() + "".join(self.chapters.values()))
        for page in self.pages:  # within one file
            name = _file(page.url)
            first = self.anchor(page, page.headings[0].value)
            text = text.replace(f'"{name}.xhtml#', '"#').replace(f'"{name}.xhtml"', f'"#{first}"')
        with TemporaryDirectory(prefix="mhattn-") as folder:
            Path(folder, "book.xhtml").write_text(text, encoding="utf-8")
            Path(folder, "book.css").write_text(STYLE, encoding="utf-8")
            for name, content in self.files.items():
                Path(folder, name).write_bytes(content)
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
            done = subprocess.run(
                [chromium, *options, f"--print-to-pdf={path}", f"file://{folder}/book.xhtml"],
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode or not path.is_file():
            raise SourceError(f"Chromium could not print {path.name}: {done.stderr[-300:]}")


def drawing(svg: str) -> str:
    """A figure as every reader of books draws it: no variables, no links, a namespace."""
    svg = LINKS.sub("", VARIABLE.sub(r"\1", svg.replace(" data-search-exclude", "")))
    start = svg.partition(">")[0]
    return svg if "xmlns=" in start else svg.replace("<svg", f'<svg xmlns="{SVG}"', 1)


def _file(url: str) -> str:
    return url.strip("/").replace("/", "-")


def _id(tag: Tag) -> dict[str, str]:
    return {"id": tag["id"]} if tag.has_attr("id") else {}


def _put(made: ZipFile, name: str, content: str | bytes, kind: int = ZIP_DEFLATED) -> None:
    info = ZipInfo(name, release.date().timetuple()[:6])
    info.compress_type, info.external_attr = kind, 0o644 << 16
    made.writestr(info, content)

"""The HTML that a page's blocks become: formulas, figures, widgets, what it offers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cache
from html import escape, unescape

from mhsite import words
from mhsite.pages import calculator, cells, formulas, navigation, notices, phone_figures, release
from mhsite.pages.page import Block, Page, models_of, read, with_spans
from mhsite.stories import results
from mhsite.stories.source import DOCS, SourceError

WITH_WORDS = ("prose", "heading", "block")
WORD = re.compile(r"[一-鿿]|[^\W一-鿿]+(?:['’-][^\W一-鿿]+)*")
SECONDS = {"en": 60 / 220, "zh": 60 / 400}  # for a word, for a Chinese character
WRITING = 5 * 60  # seconds for an exercise, beside reading it
TIMED = {"from-scratch.md": 40}  # minutes that a page asks its reader to write for
# To look things up in: how long they take to read says nothing.
NOT_READ = ("index.md", "questions.md", "museum.md", "reference", "glossary.md", "bibliography.md")
NOT_READ += ("changes.md", "claims.md")
FORMULA_HTML = re.compile(r'<span( class="katex-html" .*)</span>(</span>(?:</span>)?)$', re.S)
PART = re.compile(r"<(?P<tag>p|li)(?P<rest>[ >].*?</(?P=tag)>)", re.S)
HAN = re.compile("[一-鿿]")
FORMULA = re.compile(r'<span class="katex">.*?<annotation[^>]*>(.*?)</annotation>.*?</bdi></span>')


def plain_text(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


def summary(html: str) -> str:
    """A page's first paragraph, for those who list pages; its formulas as TeX."""
    first = re.search(r"<p>(.*?)</p>|$", html, re.S)[1] or ""
    text = plain_text(FORMULA.sub(r"\1", first)).replace("\n", " ")
    return re.sub(r"\\text\{(\w+)\}", r"\1", text)


@cache
def formula(tex: str, *, display: bool) -> str:
    """A formula, wrapped so that a wide one scrolls by itself.

    KaTeX writes each three times, as MathML, TeX and HTML; the search keeps the first. It leaves
    an element out up to the next end of such an element, so the HTML must not be a span of spans.
    """
    html = formulas.render(tex.strip(), display=display)
    html = html.replace("<annotation ", "<annotation data-search-exclude ")
    html = FORMULA_HTML.sub(r"<bdi data-search-exclude\1</bdi>\2", html)
    return f'<div class="mh-formula" tabindex="0">{html}</div>' if display else html


def figure(target: str, alt: str, language: str) -> str:
    """A figure in the page itself, so that it takes the page's colours and its font."""
    svg = phone_figures.readable(results.figure(target, language))
    label = f'<svg class="mh-figure" data-search-exclude role="img" aria-label="{escape(alt)}" '
    return svg.replace("<svg ", label, 1)


def without_docstrings(html: str) -> str:
    """The Chinese page without what its docstrings say in English: the search leaves it out."""
    before, first, after = html.partition('<div class="doc ')
    return before + first + PART.sub(_left_out, after)


def _left_out(part: re.Match) -> str:
    """A paragraph or item of the reference; one in Chinese is searched, a section's name is not."""
    chinese = HAN.search(plain_text(part["rest"])) and "doc-section-title" not in part["rest"]
    return part[0] if chinese else f"<{part['tag']} data-search-exclude{part['rest']}"


def widget(block: Block, language: str, address: Callable[[str], str]) -> str:
    """An element that docs/assets/NAME.js fills, and its script, at ``address`` of its file.

    What stands behind a bar, if anything, the script reads as `data-option`. Behind a second bar
    is the figure that stands there where no script runs. The calculator is there before its script.
    """
    name = block.value.partition(" ")[2]
    if not (DOCS / "assets" / f"{name}.js").is_file():
        raise SourceError(f"there is no docs/assets/{name}.js")
    option, _, target = (part.strip() for part in block.title.partition("|"))
    wish = f' data-option="{option}"' if option else ""
    still = f"<noscript>{_still(target, language, address)}</noscript>" if target else ""
    unscripted = words.of(language, "page.no_script") + still
    there = calculator.html(language) if name == "calculator" else unscripted
    place = f'<div class="mh-widget" data-widget="{name}"{wish}>{there}</div>'
    return sheet(name, address) + place + script(name, address)


def _still(target: str, language: str, address: Callable[[str], str]) -> str:
    """A figure as a file, with the words that the page of its story has for it."""
    shown = read(DOCS / language / f"{target.split('/')[-2]}.md").walk()
    alts = [each.title for each in shown if each.kind == "figure" and each.value == target]
    if not alts:
        raise SourceError(f"no page shows {target}")
    return f'<img src="{address(target)}" alt="{escape(alts[0])}">'


def script(name: str, address: Callable[[str], str]) -> str:
    return f'<script type="module" src="{address(f"assets/{name}.js")}"></script>'


def sheet(name: str, address: Callable[[str], str]) -> str:
    """What NAME.js looks like, where that is no other page's: it weighs on its own page alone."""
    file = f"assets/{name}.css"
    there = (DOCS / file).is_file()
    return f'<link rel="stylesheet" href="{address(file)}">' if there else ""


def models_region(language: str, address: Callable[[str], str]) -> tuple[str, str]:
    """What the table of known models stands between: it scrolls by itself."""
    name = words.of(language, "models.title")
    region = f'<div class="mh-models" role="region" tabindex="0" aria-label="{name}">'
    return region + sheet("known-models", address), "</div>" + script("known-models", address)


def led_on(page: Page, address: Callable[[str], str]) -> str:
    """The script that leads on from sections which are another page's now, if there are any."""
    parts = {
        part.removeprefix(page.url): address(new)
        for part, new in navigation.moved().items()
        if part.startswith(f"{page.url}#")
    }
    leads = f"const to={json.dumps(parts)}[location.hash];if(to)location.replace(to)"
    return f"<script>{{{leads}}}</script>" if parts else ""


def grids_script(html: str, address: Callable[[str], str]) -> str:
    """The script that a page with this HTML needs for its tables and maps of `stories.grids`."""
    return script("grids", address) if " data-grid=" in html else ""


def figures_script(html: str, address: Callable[[str], str]) -> str:
    """The script by which a reader saves the figures of a page with this HTML."""
    return script("figures", address) if 'class="mh-figure"' in html else ""


def minutes(page: Page) -> int:
    """How long a reader takes for what isn't folded, its code as well, and for the exercises."""
    shown = list(page.unfolded())
    prose = [b.text if b.kind == "prose" else b.title for b in shown if b.kind in WITH_WORDS]
    text = "\n".join(with_spans(each, lambda span: " x ") for each in prose)
    code = "\n".join(cells.text(block.section) for block in shown if block.kind == "include")
    seconds = len(WORD.findall(text)) * SECONDS[page.language]
    tasks = sum(b.kind == "block" and b.value == "task" for b in page.walk())
    seconds += 60 * TIMED[page.name] if page.name in TIMED else WRITING * tasks
    return math.ceil((seconds + 4 * sum(map(bool, code.split("\n")))) / 60)


def picture(page: Page) -> str:
    """The first figure of a page that is not folded, as ``figures/…``, if it has one."""
    shown = (block.value for block in page.unfolded() if block.kind == "figure")
    names = (name.removeprefix("../") for name in shown)
    return next(filter(lambda name: name.startswith("figures/"), names), "")


def is_looked_up(page: Page) -> bool:
    """Is it to look things up in, and not to be read from top to bottom?"""
    return page.name.startswith(NOT_READ) or page.name.endswith("/index.md")


def time(page: Page) -> str:
    """How long a page takes to read, if it is to be read."""
    if is_looked_up(page):
        return ""
    return words.of(page.language, "page.minutes", minutes=minutes(page))


def about(page: Page, address: Callable[[str], str]) -> str:
    """The line below a page's title: how long it takes, what it needs, the code to run.

    ``address`` is that of a file of the site.
    """
    parts, language = [time(page)] if time(page) else [], page.language
    if page.needs:
        comma = words.of(language, "punctuation.list_comma")
        links = comma.join(_link(name, page, address) for name in page.needs)
        parts.append(words.of(language, "page.needs", pages=links))
    if page.has_code and page.name != "index.md":
        up = address("downloads/" + page.name.removesuffix(".md"))
        notebook, as_script = (f'href="{up}.{ending}" download' for ending in ("ipynb", "py"))
        parts.append(words.of(language, "page.downloads", notebook=notebook, script=as_script))
        if colab := release.colab(page):
            parts.append(f'<a href="{colab}">' + words.of(language, "page.colab") + "</a>")
        if mirror := words.of(language, "page.mirror"):
            parts.append(f'<a href="{address(".")}/#mirror">{mirror}</a>')
        if size := sum(model.megabytes for model in models_of(page)):
            parts.append(words.of(language, "page.reads_model", megabytes=size))
    line = f'<p class="mh-about">{" · ".join(parts)}</p>' if parts else ""
    up = "" if language == "en" else "../"
    return line + notices.of(page, address(f"{up}progress.txt"))


def cite(page: Page) -> str:
    """How to cite the page, folded; of what one looks things up in there is nothing to cite."""
    if is_looked_up(page):
        return ""
    entry = escape(release.bibtex(page), quote=False)
    title = f"<summary>{words.of(page.language, 'page.cite')}</summary>"
    return f"<details>{title}<pre><code>{entry}</code></pre></details>"


def url(page: Page, address: Callable[[str], str]) -> str:
    """The address of a page, if ``address`` gives that of a file of the site."""
    return address(page.url.rstrip("/") or ".") + "/"


def _link(name: str, page: Page, address: Callable[[str], str]) -> str:
    to, first = url(Page((), page.folder / name), address), navigation.road(page.language)
    back = name in first and page.name not in first  # the way back to the course
    place = ""
    if back:
        place = words.of(page.language, "page.course_page", number=first.index(name) + 1)
    return f'<a href="{to}">{navigation.title(name, page.language)}</a>{place}'

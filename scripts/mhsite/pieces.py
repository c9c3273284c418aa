"""The HTML that a page's blocks become: code to copy, formulas, figures, what labs print."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from html import escape, unescape
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from mhsite import katex, results
from mhsite.page import Block, Page
from mhsite.source import DOCS, LABS, ROOT, Section, SourceError, console_code, runnable

DOWNLOADS = {
    "en": "Run it yourself: <a {}>notebook</a> · <a {}>script</a>",
    "zh": "自己运行：<a {}>笔记本</a> · <a {}>脚本</a>",
}
NO_SCRIPT = {"en": "This needs JavaScript.", "zh": "此处需要 JavaScript。"}
FORMULA_HTML = re.compile(r'<span( class="katex-html" .*)</span>(</span>(?:</span>)?)$', re.S)
FORMULA = re.compile(r'<span class="katex">.*?<annotation[^>]*>(.*?)</annotation>.*?</bdi></span>')
EXAMPLE = re.compile(
    r'<div class="language-pycon highlight">(?P<inner>.*?<code>(?P<code>.*?)</code>.*?)</div>', re.S
)
DOCSTRING = re.compile(  # Pygments wraps each line of a docstring by itself
    r'(?P<first><span class="sd">\s*"""(?:(?!""")[^<])*)</span>\n'
    r'(?:(?!</code>).)*?<span class="sd">[^<]*"""</span>',
    re.S,
)
PLAIN = re.compile(r'<span class="[nw]">([^<]*)</span>')  # looks like the text around it
OUTPUT = re.compile(r'<span class="go">([^<]*)</span>\n')
NOT_COPIED = re.compile(r'<span class="g[op]">[^<]*</span>')
API_ID = re.compile(r'id="(mhattn(?:\.\w+)+)"')
SIGNATURE = re.compile(r"<pre>.*?</pre>", re.S)
UNSEARCHED = re.compile(
    r"(?:</?(?:p|code|li|ul|ol)\b[^>]*>|(?<![\w.])[-−]?\d*\.\d{2,}(?![\w.])|\s)+"
)
BEHIND = ("reference/", "glossary/", "bibliography/")
NEEDLESS_CUT = re.compile(r"\u200b+(?=[^\w<]|$)|(?<![\w>])\u200b+")


def plain_text(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


def summary(html: str) -> str:
    """A page's first paragraph, for those who list pages; its formulas as TeX."""
    first = re.search(r"<p>(.*?)</p>|$", html, re.S)[1] or ""
    text = plain_text(FORMULA.sub(r"\1", first)).replace("\n", " ")
    return re.sub(r"\\text\{(\w+)\}", r"\1", text)


def formula(tex: str, *, display: bool) -> str:
    """A formula, wrapped so that a wide one scrolls by itself.

    KaTeX writes each three times, as MathML, TeX and HTML; the search keeps the first. It leaves
    an element out up to the next end of such an element, so the HTML must not be a span of spans.
    """
    html = katex.render(tex.strip(), display=display)
    html = html.replace("<annotation ", "<annotation data-search-exclude ")
    html = FORMULA_HTML.sub(r"<bdi data-search-exclude\1</bdi>\2", html)
    return f'<div class="mh-formula" tabindex="0">{html}</div>' if display else html


def figure(target: str, alt: str) -> str:
    """A figure in the page itself, so that it takes the page's colours and its font."""
    svg = results.figure(target).read_text(encoding="utf-8").strip()
    label = f'<svg class="mh-figure" data-search-exclude role="img" aria-label="{escape(alt)}" '
    return svg.replace("<svg ", label, 1)


def code(section: Section, language: str) -> str:
    """A section as a page shows it, and under a lab's what it printed."""
    html = _copied(_highlighted(section.shown, language), language, section.code)
    printed = results.printed(section) if section.path.parent == LABS else ""
    result = escape(printed.rstrip("\n"), quote=False)
    return html + (f'\n<pre class="mh-result">{result}</pre>' if printed else "")


@cache
def _highlighted(shown: str, language: str) -> str:
    lexer = get_lexer_by_name(language, stripnl=False)
    html = highlight(shown, lexer, HtmlFormatter(wrapcode=True)).strip()
    inner = html.removeprefix('<div class="highlight">').removesuffix("</div>")
    return DOCSTRING.sub(r'\g<first>"""</span>', inner)  # the reference has the rest


def _copied(inner: str, language: str, runs: str) -> str:
    """A block of Python that gives the copy button the code that runs when it is pasted.

    Of a console session the button takes what is shown, without prompts and outputs (site.css);
    a block that has to give something else carries it as an attribute. The search leaves blocks
    out: what is in them would be half of the index.
    """
    inner, runs, taken = PLAIN.sub(r"\1", inner), runs.rstrip("\n"), None
    if language == "pycon":
        inner = OUTPUT.sub(r'<span class="go">\1\n</span>', inner)
        taken = plain_text(NOT_COPIED.sub("", inner)).rstrip("\n")
    lines = plain_text(inner).strip("\n").count("\n") + 1  # so that its height is known (site.css)
    start = f'<div class="language-{language} highlight" style="--lines: {lines}"'
    start += " data-search-exclude"
    if runs != taken:
        attribute = escape(runs, quote=True).replace("\n", "&#10;")
        start += f' data-copy="{attribute}"'
    return f"{start}>{inner}</div>"


def with_examples(html: str) -> str:
    """The reference, with the examples of its docstrings to copy; signatures are not copied."""

    def replace(match: re.Match) -> str:
        runs = console_code(plain_text(match["code"]))
        shown = html.rfind('id="mhattn.', 0, match.start())
        if shown >= 0:  # it sees the names of its module
            runs = runnable(runs, module_of(API_ID.match(html, shown)[1]))
        return _copied(match["inner"], "pycon", runs)

    html = EXAMPLE.sub(replace, html)
    return html.replace("doc-signature highlight", "doc-signature highlight no-copy")


def module_of(name: str) -> Path:
    """The file of the module that defines ``name``, as in ``mhattn.masks.causal_mask``."""
    parts = name.split(".")
    for stop in range(len(parts), 1, -1):
        if (path := ROOT.joinpath(*parts[:stop]).with_suffix(".py")).is_file():
            return path
    return ROOT / parts[0] / "__init__.py"


def without_docstrings(html: str) -> str:
    """The page with its docstrings kept out of the search: they are in another language."""
    before, first, after = html.partition('<div class="doc ')
    return before + first + re.sub(r"<(p|li)(?=[ >])", r"<\1 data-search-exclude", after)


def widget(block: Block, language: str, address: Callable[[str], str]) -> str:
    """An element that docs/assets/NAME.js fills, and its script, at ``address`` of its file."""
    name = block.value.partition(" ")[2]
    if not (DOCS / "assets" / f"{name}.js").is_file():
        raise SourceError(f"there is no docs/assets/{name}.js")
    script = f'<script type="module" src="{address(f"assets/{name}.js")}"></script>'
    return f'<div class="mh-widget" data-widget="{name}">{NO_SCRIPT[language]}</div>{script}'


def downloads(page: Page, address: Callable[[str], str]) -> str:
    """The line below the title of a page with code; ``address`` is that of a file of the site."""
    if not page.has_code:
        return ""
    up = address("downloads/" + page.name.removesuffix(".md"))
    links = [f'href="{up}.{ending}" download' for ending in ("ipynb", "py")]
    return f'<p class="mh-downloads">{DOWNLOADS[page.language].format(*links)}</p>'


def slim_index(index: str) -> str:
    """A search index of words, with Chinese as UTF-8 and cut between words only.

    Chapters come before the reference. Without signatures, tags, and numbers of two decimals or
    more, which no reader types. Where a sign or a blank stands between two words, the search cuts
    there anyway.
    """
    found = json.loads(index)
    for entry in found["docs"]:
        if entry["location"].startswith(BEHIND):
            entry["boost"] = 0.2
        text = UNSEARCHED.sub(" ", SIGNATURE.sub("", entry["text"]))
        entry["text"] = NEEDLESS_CUT.sub("", text)
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))

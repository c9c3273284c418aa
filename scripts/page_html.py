"""What is done to a page's HTML after Markdown: math, figures, copied code, weight."""

from __future__ import annotations

import json
import re
from html import escape, unescape
from pathlib import Path

import katex
from bs4 import BeautifulSoup
from snippets import ROOT, console_code, runnable

MATH = re.compile(r'<(?P<tag>span|div) class="arithmatex">(?P<tex>.*?)</(?P=tag)>', re.S)
FORMULA_HTML = re.compile(r'<span( class="katex-html" .*)</span>(</span>(?:</span>)?)$', re.S)
IMAGE = re.compile(r'<img alt="(?P<alt>[^"]*)" src="[^"]*?figures/(?P<name>[\w/-]+\.svg)" ?/?>')
BLOCK = re.compile(
    r'<div class="language-(?P<language>pycon|python) highlight">'
    r"(?P<inner>.*?<code>(?P<code>.*?)</code>.*?)</div>",
    re.S,
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
VERBATIM = re.compile(r"(<pre.*?</pre>|<code.*?</code>)", re.S)
HEADING = re.compile(
    r'<h(?P<level>\d) id="[^"]*">(?P<title>.*?)<a class="anchor-link".*?</a></h\d>', re.S
)
SIGNATURE = re.compile(r"<pre>.*?</pre>", re.S)
UNSEARCHED = re.compile(
    r"(?:</?(?:p|code|li|ul|ol)\b[^>]*>|(?<![\w.])[-−]?\d*\.\d{3,}(?![\w.])|\s)+"
)
NEEDLESS_CUT = re.compile(r"\u200b+(?=[^\w<]|$)|(?<![\w>])\u200b+")
DOLLARS = re.compile(r"(?P<bar>\$\$?)(?P<tex>[^$]+)(?P=bar)")


def plain_text(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


def summary(html: str) -> str:
    """A page's first paragraph, for those who list pages; its formulas as TeX."""
    first = re.search(r"<p>(.*?)</p>|$", html, re.S)[1] or ""
    text = plain_text(first).replace("\n", " ")
    return re.sub(r"\\[()]|\\text\{(\w+)\}", r"\1", text)


def with_math(html: str) -> str:
    """Formulas rendered, and wrapped so that a wide one scrolls by itself.

    KaTeX writes each three times, as MathML, TeX and HTML; the search keeps the first. It leaves
    an element out up to the next end of such an element, so the HTML must not be a span of spans.
    """

    def replace(match: re.Match) -> str:
        tex, display = unescape(match["tex"]).strip()[2:-2].strip(), match["tag"] == "div"
        formula = katex.render(tex, display=display)
        formula = formula.replace("<annotation ", "<annotation data-search-exclude ")
        formula = FORMULA_HTML.sub(r"<bdi data-search-exclude\1</bdi>\2", formula)
        return f'<div class="mh-formula" tabindex="0">{formula}</div>' if display else formula

    return MATH.sub(replace, html)


def with_figures(html: str, figures: dict[str, Path]) -> str:
    """Figures in the page itself, so that they take its colours and its font."""

    def replace(match: re.Match) -> str:
        svg = figures[match["name"]].read_text(encoding="utf-8").strip()
        label = (
            f'<svg class="mh-figure" data-search-exclude role="img" aria-label="{match["alt"]}" '
        )
        return svg.replace("<svg ", label, 1)

    return IMAGE.sub(replace, html)


def with_copies(html: str, sources: dict[str, str]) -> str:
    """Each block of Python gives the copy button the code that runs when it is pasted.

    Of a console session the button takes what is shown, without prompts and outputs (site.css);
    a block that has to give something else carries it as an attribute. The search leaves blocks
    out: what is in them would be half of the index.

    Args:
        html: the page.
        sources: for the text of each block that shows a file's section, the code to copy.
    """

    def replace(match: re.Match) -> str:
        code, inner, copied = plain_text(match["code"]), PLAIN.sub(r"\1", match["inner"]), None
        shown = html.rfind('id="mhattn.', 0, match.start())
        if match["language"] == "pycon":
            code = console_code(code)
            inner = OUTPUT.sub(r'<span class="go">\1\n</span>', inner)
            copied = plain_text(NOT_COPIED.sub("", inner)).rstrip("\n")
            if shown >= 0:  # an example from a docstring: it sees the names of its module
                name = API_ID.match(html, shown)[1]
                code = runnable(code, module_of(name))
        else:
            code = sources.get(code.strip(), code)
        code = code.rstrip("\n")
        start = f'<div class="language-{match["language"]} highlight" data-search-exclude'
        if code != copied:
            attribute = escape(code, quote=True).replace("\n", "&#10;")
            start += f' data-copy="{attribute}"'
        return f"{start}>{inner}</div>"

    return BLOCK.sub(replace, html)


def module_of(name: str) -> Path:
    """The file of the module that defines ``name``, as in ``mhattn.masks.causal_mask``."""
    parts = name.split(".")
    for stop in range(len(parts), 1, -1):
        if (path := ROOT.joinpath(*parts[:stop]).with_suffix(".py")).is_file():
            return path
    return ROOT / parts[0] / "__init__.py"


def slim_notebook(html: str, ids: list[str], figures: list[tuple[str, str]]) -> str:
    """A notebook's page from its cells alone, as slim as the others.

    mkdocs-jupyter brings half a megabyte of styles, and scripts from other hosts; none is kept.

    Args:
        html: what mkdocs-jupyter made.
        ids: the ids of the notebook's headings, in order.
        figures: the alt text and the path of each of its figures, in order.
    """
    soup, parts = BeautifulSoup(html, "html.parser"), []
    images = [f'<p><img alt="{escape(alt)}" src="{path}" /></p>' for alt, path in figures]
    for cell in soup.select(".jp-Notebook-cell[id]"):
        if prose := cell.select_one(".jp-RenderedMarkdown"):
            parts.append(_prose(prose.decode_contents()))
            continue
        code = cell.select_one(".highlight-ipynb pre").decode_contents().strip("\n")
        block = f"<pre><code>{code}\n</code></pre>"
        parts.append(f'<div class="language-python highlight">{block}</div>')
        for output in cell.select(".jp-OutputArea-output"):
            if text := output.find("pre"):
                text = text.decode_contents().rstrip("\n")
                parts.append(f'<pre class="mh-result">{text}</pre>')
            else:
                parts.append(images.pop(0))
    remaining = iter(ids)
    return HEADING.sub(lambda match: _heading(match, next(remaining)), "\n".join(parts))


def _heading(match: re.Match, slug: str) -> str:
    link = f'<a class="headerlink" href="#{slug}" title="Permanent link">#</a>'
    return f'<h{match["level"]} id="{slug}">{match["title"]}{link}</h{match["level"]}>'


def _prose(html: str) -> str:
    pieces = VERBATIM.split(html)
    pieces[::2] = [DOLLARS.sub(_arithmatex, piece) for piece in pieces[::2]]
    return "".join(pieces)


def _arithmatex(match: re.Match) -> str:
    if match["bar"] == "$":
        return f'<span class="arithmatex">\\({match["tex"]}\\)</span>'
    return f'<div class="arithmatex">\\[{match["tex"]}\\]</div>'


def without_docstrings(html: str) -> str:
    """The page with its docstrings kept out of the search: they are in another language."""
    before, first, after = html.partition('<div class="doc ')
    return before + first + re.sub(r"<(p|li)(?=[ >])", r"<\1 data-search-exclude", after)


def with_widgets(html: str, assets: str) -> str:
    """The page with the scripts of its widgets, which lie under the address ``assets``."""
    names = dict.fromkeys(re.findall(r'data-widget="([\w-]+)"', html))
    return html + "".join(
        f'<script type="module" src="{assets}/{name}.js"></script>' for name in names
    )


def fold_docstrings(html: str) -> str:
    """In source that a page shows, of each docstring the first line; the reference has the rest."""
    return DOCSTRING.sub(r'\g<first>"""</span>', html)


def slim_index(index: str) -> str:
    """A search index of words, with Chinese as UTF-8 and cut between words only.

    Without signatures, tags, and numbers of three decimals or more, which no reader types. Where
    a sign or a blank stands between two words, the search cuts there anyway.
    """
    found = json.loads(index)
    for entry in found["docs"]:
        text = UNSEARCHED.sub(" ", SIGNATURE.sub("", entry["text"]))
        entry["text"] = NEEDLESS_CUT.sub("", text)
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))

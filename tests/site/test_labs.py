"""A lab goes through mkdocs-jupyter and has the form of all other pages, which Markdown makes."""

import posixpath
import re

import nbformat
import pytest
from bs4 import BeautifulSoup
from drawn import few_now
from markdown import Markdown
from mhsite.engines import labs
from mhsite.engines.with_mkdocs import configuration
from mhsite.pages.page import page_paths, parse, read
from mhsite.stories.source import DOCS, LANGUAGES
from mkdocs_jupyter.convert import nb2html

PERMALINK = "Permanent link"
LABS = [
    f"{language}/{path.as_posix()}"
    for language in LANGUAGES
    for path in page_paths(language)
    if read(DOCS / language / path).is_notebook
]
LAB = """# T { #t }

Words, $x^2$, [a page](../masks.md#masks), *and* `code`.

```python
--8<-- "see-order.py:sentences"
```

/// task | Write `f`
Do *it*.

```python
--8<-- "see-order.py:blind"
```
///

/// details | Why $x$?
    type: question
Since.
///
"""
pytestmark = pytest.mark.usefixtures("nothing_runs")


class English:
    """Where a site would be built."""

    site_dir, site_url, strict = "site", "https://site/", True


def rendered(page, tmp_path):
    """A lab by mkdocs-jupyter."""
    path = tmp_path / "lab.ipynb"
    path.write_text(labs.as_notebook(page), encoding="utf-8")
    nbformat.validate(nbformat.read(path, as_version=4))
    return labs.html(nb2html(str(path)), page, PERMALINK)


def as_a_page(page):
    """The same by Python-Markdown, with the extensions of the other pages."""
    config = configuration(page.language, English)
    own = {"mhsite.pages.extension": {"language": page.language}}
    own["toc"] = config.mdx_configs["toc"] | {"permalink_title": PERMALINK}
    names = [*config.markdown_extensions, "mhsite.pages.extension"]
    md = Markdown(extensions=names, extension_configs=config.mdx_configs | own)

    def address(match):
        file = posixpath.normpath(posixpath.join("labs", match[1]))
        there = f"../../{file.removesuffix('index')}/".replace("../../labs/", "../")
        return f'href="{there}{match[2] or ""}"'.replace("//", "/")

    html = md.convert(page.path.read_text(encoding="utf-8"))
    return re.sub(r'href="([^":#]+)\.md(#[^"]*)?"', address, html)


def lines(html):
    return BeautifulSoup(html, "html.parser").prettify().splitlines()


@pytest.mark.parametrize("name", few_now(LABS, 2, of="labs", name=str))
def test_a_lab_has_the_form_of_all_other_pages(name, tmp_path):
    page = read(DOCS / name)
    assert lines(rendered(page, tmp_path)) == lines(as_a_page(page))


def test_every_page_of_labs_with_code_is_a_notebook():
    assert len(LABS) == 2 * (len(list((DOCS / "en" / "labs").glob("*.md"))) - 1)


def test_what_markdown_has_no_signs_for_stands_in_its_place(tmp_path):
    page = parse(LAB, DOCS / "en" / "labs" / "t.md")
    soup = BeautifulSoup(rendered(page, tmp_path), "html.parser")
    assert not re.search(r"KEPT\d|CODE\d", str(soup))
    assert soup.h1["id"] == "t"
    assert soup.a["href"] == "#t"
    assert soup.select_one('p > a[href="../../masks/#masks"]').text == "a page"
    assert soup.select_one("p > .katex")
    box = soup.select_one("div.admonition.task")
    assert box.p.code.text == "f"
    assert "test_blind" in box.select_one("pre").text
    fold = soup.select_one("details.question")
    assert fold["id"] == "q-why-x"
    assert fold.summary.select_one(".katex")
    assert fold.p.text == "Since."

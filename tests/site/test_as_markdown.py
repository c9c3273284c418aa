"""Pages as Markdown, llms.txt: nothing that a page says or prints is lost, links lead somewhere."""

import re

import pytest
from cases import every
from mhsite.beside import as_markdown
from mhsite.pages import navigation
from mhsite.pages.page import page_paths, read
from mhsite.pages.settings import settings
from mhsite.stories import results
from mhsite.stories.source import DOCS, LANGUAGES
from test_site import address, each_language, each_side, target_file

HOME = "https://site/"
PAGES = [read(DOCS / language / p) for language in LANGUAGES for p in page_paths(language)]
# What only our own Markdown has: includes, comments that ask for tables, blocks, citations, ids.
OURS = re.compile(r"^--8<-- |^<!-- |^/{3,}( |$)|^::: |\[@[\w-]+\]|\{ [#.][^}]*\}$", re.M)


@pytest.fixture(autouse=True)
def _(nothing_runs):
    pass


def without_code(text):
    return re.sub(r"(?ms)^(`{3,})\w*$.*?^\1$|^    .*?$", "", text)


def written(site, page):
    """What the build has laid beside a page."""
    return (site / address(page.language, page.name) / "index.md").read_text("utf-8")


@every("page", PAGES)
def test_nothing_of_a_page_is_lost(site, page):
    text = written(site, page)
    bare, lines = without_code(text), set(text.splitlines())
    assert text.startswith(f"# {page.headings[0].title}\n\nhttps://")
    assert OURS.findall(bare) == []
    for block in page.walk():
        if block.kind == "heading":
            assert block.title.split("$")[0].split("`")[0] in text
        elif block.kind == "figure":
            assert f"![{block.title}](https://" in bare
        elif block.kind == "include":
            printed = results.printed(block.section).splitlines()
            assert [line for line in printed if line.rstrip() and line not in lines] == []


@every("page", PAGES)
def test_links_of_a_page_are_whole(site, page):
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code(written(site, page)))
    assert [to for to in targets if not to.startswith(("https://", "http://"))] == []
    assert [to for to in targets if re.search(r"mhattn\.github\.io.*\.md(#|$)", to)] == []


def test_code_stands_above_what_it_printed():
    text = as_markdown.text(read(DOCS / "en" / "masks.md"), HOME)
    cells = re.findall(r"(?ms)^```python\n(.*?)^```\n\n```text\n(.*?)^```", text)
    assert cells
    assert all(code and printed.strip() for code, printed in cells)
    assert as_markdown._fenced("text", "a\n```\nb").startswith("````text\n")


@each_language
def test_the_list_names_each_page_once_under_the_titles_of_the_nav(language):
    text = as_markdown.contents(language, HOME)
    lines = text.splitlines()
    assert lines[0] == f"# {settings(language)['site_name']}"
    assert lines[2].startswith("> ")
    titles = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert titles == [next(iter(part)) for part in settings(language)["nav"]]
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)(?:: |：)\S", text, re.M)
    pages = [HOME + read(path).url for path in navigation.pages(language)]
    assert links == [f"{url}index.md" for url in pages]


@each_language
def test_the_site_has_the_files_that_the_list_names(site, language):
    folder = site / address(language, "index.md")
    home = re.search(r"(https://\S+)llms-full\.txt", (folder / "llms.txt").read_text("utf-8"))[1]
    links = re.findall(rf"\({home}([^)]+)\)", (folder / "llms.txt").read_text("utf-8"))
    whole = (folder / "llms-full.txt").read_text("utf-8")
    assert len(links) == len(page_paths(language))
    for link in links:
        assert (folder / link).read_text("utf-8") in whole


@each_side
def test_a_page_names_its_markdown(site, language, page):
    file = target_file(site, address(language, page))
    text = file.read_text("utf-8")
    assert '<link rel="alternate " type="text/markdown" href="index.md">' in text
    assert 'href="index.md"' in text.partition("<article")[2]
    assert file.with_name("index.md").is_file()


@each_language
def test_a_reader_copies_the_page(open_page, site, language):
    rights = ["clipboard-read", "clipboard-write"]
    page = open_page(address(language, "masks.md"), permissions=rights)
    page.click(".mh-markdown")
    page.wait_for_selector(".md-dialog--active")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == (site / address(language, "masks.md") / "index.md").read_text("utf-8")

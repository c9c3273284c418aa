"""The course and the sections as books: well-formed, whole, every link inside leads somewhere."""

import re
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from xml.etree import ElementTree

import pytest
from mhsite.beside import books
from mhsite.pages.page import read
from mhsite.stories.source import DOCS, LANGUAGES, ROOT, SourceError
from test_site import each_language

XHTML, MATH = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/1998/Math/MathML}"
MANIFEST = ".//{http://www.idpf.org/2007/opf}item"


@pytest.fixture(scope="module")
def courses(site):
    """The course in each language."""
    found = {}
    for language in LANGUAGES:
        name, title, pages = next(books.books(language))
        found[language] = books.Book(site, language, f"mhattn-{name}.{language}", title, pages)
    return found


@each_language
def test_each_section_that_is_read_is_a_book(language):
    found = {name: [page.name for page in pages] for name, _, pages in books.books(language)}
    assert [*found][:3] == ["course", "in-depth", "variants"]
    assert found["course"][0] == "why-attention.md"
    every = {name for names in found.values() for name in names}
    assert not {"index.md", "questions.md", "calculator.md"} & every
    assert {"kv-cache.md", "labs/make-gqa.md"} < every


@each_language
def test_a_book_is_well_formed_and_its_links_lead_somewhere(courses, language):
    with zipfile.ZipFile(BytesIO(courses[language].epub())) as archive:
        first = archive.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        inside = {name.removeprefix("book/"): archive.read(name) for name in archive.namelist()}
    listed = {
        item.get("href") for item in ElementTree.fromstring(inside["book.opf"]).iterfind(MANIFEST)
    }
    assert listed == {*inside} - {"book.opf", "mimetype", "META-INF/container.xml"}
    pages = {n: ElementTree.fromstring(text) for n, text in inside.items() if n.endswith(".xhtml")}
    ids = {name: [e.get("id") for e in page.iter() if e.get("id")] for name, page in pages.items()}
    assert len(pages) == len(courses[language].pages) + 1
    assert all(len(found) == len({*found}) or "svg" in name for name, found in ids.items())
    for name, page in pages.items():
        for link in page.iter(f"{XHTML}a"):
            target = link.get("href")
            if target.startswith(("https://", "http://")):
                continue
            file, _, anchor = target.partition("#")
            assert file in pages, (name, target)
            assert not anchor or anchor in ids[file], (name, target)


@each_language
def test_a_book_has_what_the_pages_have(courses, language):
    for page, made in zip(
        courses[language].pages, courses[language].chapters.values(), strict=True
    ):
        root = ElementTree.fromstring(courses[language].xhtml(page.name, made))
        text = " ".join("".join(root.itertext()).split())
        levels = {f"{XHTML}h{level}" for level in range(1, 7)}
        titles = [element for element in root.iter() if element.tag in levels]
        assert len(titles) == len(page.headings)
        formulas = sum(block.kind == "math" for block in page.walk())
        assert len([m for m in root.iter(f"{MATH}math") if m.get("display") == "block"]) == formulas
        figures = {block.value for block in page.walk() if block.kind == "figure"}
        assert made.count("<svg") + made.count("<img") >= len(figures)
        assert not re.search(r"var\(--|<script|<button|data-search|katex-html", made)
        assert page.headings[-1].title.split("$")[0].split("`")[0].strip() in text


def test_a_book_is_the_same_twice(site, courses):
    _, title, pages = next(books.books("en"))
    again = books.Book(site, "en", courses["en"].name, title, pages)
    assert again.epub() == courses["en"].epub()


def test_what_is_not_well_formed_names_page_and_place(courses):
    with pytest.raises(SourceError, match=r"mhattn-course\.en, A title: .*<p>an <b>end"):
        courses["en"].xhtml("A title", "<p>an <b>end</p>")


def test_chromium_prints_a_book(site, tmp_path):
    if not (chromium := next(filter(None, map(shutil.which, books.CHROMIUM)), None)):
        pytest.skip("no Chromium")
    page = read(DOCS / "en" / "block.md")
    book = books.Book(site, "en", "small", "Small", [page])
    book.print_with(chromium, tmp_path / "small.pdf")
    made = (tmp_path / "small.pdf").read_bytes()
    assert made.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", made)) > 3
    with pytest.raises(SourceError, match=r"could not print nothing\.pdf"):
        book.print_with(sys.executable, tmp_path / "nothing.pdf")


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "books").write_text("", encoding="utf-8")
    command = [sys.executable, ROOT / "scripts" / "build.py", "--books", tmp_path / "books"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--books must name a folder" in done.stderr

"""The files of the built site: pages, links, downloads, and the code that can be copied."""

import ast
import copy
import functools
import itertools
import json
import posixpath
import re
from collections import Counter
from urllib.parse import unquote, urljoin, urlsplit
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup, Comment, Tag
from bs4.element import PreformattedString
from cases import every
from mhsite.beside import search
from mhsite.pages import bibliography, glossary
from mhsite.pages.cells import CHINESE_FONT
from mhsite.pages.page import page_paths, read, skeleton, with_spans
from mhsite.stories import results, translation
from mhsite.stories.source import DOCS, LANGUAGES, STORIES, sections
from mhsite.stories.translation import shown_section
from test_docs import MODULES, public_names
from test_languages import OWN

from mhattn import COLORS

PAGES = [path.as_posix() for path in page_paths("en")]
SIDES = [(language, page) for language in LANGUAGES for page in PAGES]

each_page = every("page", PAGES)
each_side = every("language, page", SIDES)
each_language = pytest.mark.parametrize("language", LANGUAGES)


def address(language, page):
    """A page's place on the site: ``zh/labs/every-head/``."""
    name = page.removesuffix(".md")
    name = name.removesuffix("index") if name.split("/")[-1] == "index" else name + "/"
    return ("" if language == "en" else language + "/") + name


def source(language, page):
    return read(DOCS / language / page)


@functools.cache
def parsed(path):
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@functools.cache
def ids(path):
    return {element["id"] for element in parsed(path).find_all(id=True)}


def html(site, language, page):
    return parsed(site / address(language, page) / "index.html")


# The files


@each_side
def test_page_says_what_it_is(site, language, page):
    soup = html(site, language, page)
    assert soup.html["lang"] == {"en": "en", "zh": "zh-Hans"}[language]
    assert len(soup.title.text.strip()) > 3
    (h1,) = soup.select("h1")
    assert h1.text.strip().removesuffix("#")
    ids = Counter(element["id"] for element in soup.select("[id]"))
    assert [name for name, count in ids.items() if count > 1] == []


@each_side
def test_figures_are_in_the_page_and_have_words(site, language, page):
    soup = html(site, language, page)
    wanted = [block.title for block in source(language, page).walk() if block.kind == "figure"]
    shown = [
        f.get("aria-label") or f.get("alt")
        for f in soup.select("article svg.mh-figure, article img")
        if not f.find_parent("noscript")  # a widget's picture, shown where no script runs
        and not f.find_parent(class_="mh-cards")  # beside a title that says more
        and not f.find_parent(class_="mh-drawn")  # made of a table, whose device it names
    ]
    assert shown == wanted
    assert all(words.strip() for words in shown)
    images = soup.select("img:not(.mh-cards *)")
    assert all(image.get("alt", "").strip() for image in images)


@each_side
def test_math_is_rendered(site, language, page):
    soup = html(site, language, page)
    kinds = [part.kind for part in skeleton(source(language, page))]
    assert len(soup.select("article .katex-display math")) == kinds.count("math")
    assert soup.select(".arithmatex, .katex-error") == []
    assert re.findall(r"\$[^$]+\$|\\\(|\\\[|\[@|--8<--|///", prose(soup.article)) == []


def prose(article):
    """Its text, without what may hold dollars."""
    apart, texts = ("code", "pre", "annotation"), []

    def walk(element):
        for child in element.children:
            if isinstance(child, Tag):
                if child.name not in apart:
                    walk(child)
            elif not isinstance(child, PreformattedString):
                texts.append(child)

    walk(article)
    return "".join(texts)


@each_side
def test_language_switch_keeps_the_page(site, language, page):
    other = LANGUAGES[language == LANGUAGES[0]]
    (switch,) = html(site, language, page).select("a.mh-language")
    here = "https://host/" + address(language, page)
    assert urljoin(here, switch["href"]) == "https://host/" + address(other, page)
    assert switch["hreflang"] == switch["lang"] == {"en": "en", "zh": "zh-Hans"}[other]


@pytest.fixture(scope="module")
def root_url(site):
    return parsed(site / "index.html").select_one("link[rel=canonical]")["href"]


def target_file(site, url):
    file = site / unquote(urlsplit(url).path)
    return file / "index.html" if file.is_dir() else file


@every("name", [*(address(*side) + "index.html" for side in SIDES), "404.html"])
def test_every_link_leads_somewhere(site, root_url, name):
    broken = []
    soup = parsed(site / name)
    for element in soup.select("[href], [src]"):
        link = element.get("href") or element.get("src") or ""
        url = urljoin(root_url + name.removesuffix("index.html"), link)
        if not url.startswith(root_url):
            if element.name != "a" or not url.startswith(("https:", "mailto:")):
                broken.append(f"{link}: another host's")
            continue
        if element.get("rel") == ["edit"]:
            continue
        file = target_file(site, url.removeprefix(root_url))
        anchor = unquote(urlsplit(url).fragment)
        if not file.is_file():
            broken.append(f"{link}: no such file")
        elif anchor and not anchor.startswith("__") and anchor not in ids(file):
            broken.append(f"{link}: no such place")
    assert broken == []


@each_language
def test_terms_can_be_linked_and_lead_to_their_pages(site, language):
    soup = html(site, language, "glossary.md")
    other = LANGUAGES[language == LANGUAGES[0]]
    here = "https://host/" + address(language, "glossary.md")
    groups = glossary.groups()
    terms = {term["id"]: term for group in groups for term in group["term"]}
    assert [entry["id"] for entry in soup.select("article dt")] == list(terms)
    for entry in soup.select("article dt"):
        term = terms[entry["id"]]
        names = [entry.strong.text, *(e.text for e in entry.select(f"span[lang={other}]"))]
        assert names == list(dict.fromkeys([term[language], term[other]]))
        page, _, anchor = term["page"].partition("#")
        link = entry.find_next_sibling("dd").select("a")[-1]
        place = "https://host/" + address(language, page) + (f"#{anchor}" if anchor else "")
        assert urljoin(here, link["href"]) == place
    headings = [heading["id"] for heading in soup.select("article h2")]
    assert headings == ["letters", "a-z", *(group["id"] for group in groups)]


@each_language
def test_every_term_is_in_the_list_from_a_to_z(site, language):
    lines = html(site, language, "glossary.md").select("h2#a-z ~ p:has(> strong:first-child)")
    listed = [(line.strong.text, a.text, a["href"]) for line in lines for a in line.select("a")]
    terms = [term for group in glossary.groups() for term in group["term"]]
    assert sorted(href for _, _, href in listed) == sorted(f"#{term['id']}" for term in terms)
    english = {f"#{term['id']}": term["en"] for term in terms}
    assert [letter for letter, _, _ in listed] == sorted(letter for letter, _, _ in listed)
    assert all(english[href].upper().startswith(letter) for letter, _, href in listed)
    assert all(text.startswith(english[href]) for _, text, href in listed)


def test_stylesheets_load_only_what_is_there(site):
    for sheet in site.rglob("*.css"):
        for link in re.findall(
            r"url\(['\"]?(?!data:|#)([^)'\"]+)", sheet.read_text(encoding="utf-8")
        ):
            assert (sheet.parent / urlsplit(link).path).is_file(), f"{sheet.name}: {link}"


def test_sitemaps_list_every_page_with_its_other_language(site, root_url):
    names = {
        "s": "http://www.sitemaps.org/schemas/sitemap/0.9",
        "x": "http://www.w3.org/1999/xhtml",
    }
    for language in LANGUAGES:
        sitemap = site / address(language, "index.md") / "sitemap.xml"
        found = {}
        for url in ElementTree.parse(sitemap).iterfind("s:url", names):
            links = url.iterfind("x:link", names)
            found[url.find("s:loc", names).text] = {a.get("hreflang"): a.get("href") for a in links}
        assert found == {
            root_url + address(language, page): {
                {"en": "en", "zh": "zh-Hans"}[la]: root_url + address(la, page) for la in LANGUAGES
            }
            for page in PAGES
        }
    robots = (site / "robots.txt").read_text(encoding="utf-8").splitlines()
    assert robots == [f"Sitemap: {root_url}sitemap.xml", f"Sitemap: {root_url}zh/sitemap.xml"]


def test_404_leads_home_in_both_languages(site, root_url):
    links = {a["href"] for a in parsed(site / "404.html").article.select("a[href]")}
    assert {root_url, root_url + "zh/"} <= links


@each_side
def test_downloads_are_offered(site, language, page):
    soup = html(site, language, page)
    links = {a["href"].rsplit(".", 1)[-1] for a in soup.select(".mh-about a[download]")}
    has_code = any(part.kind == "include" for part in skeleton(source(language, page)))
    assert links == ({"ipynb", "py"} if has_code and page != "index.md" else set())


def indexed(site, language):
    """The documents of a language's search index."""
    folder = site / address(language, "index.md") / "search"
    index = json.loads((folder / "search_index.json").read_text(encoding="utf-8"))
    texts = [(folder / part).read_text(encoding="utf-8") for part in index["config"]["parts"]]
    return [document for text in texts for document in json.loads(text)]


def said(heading):
    """Words of its own, questions aside: without them, it leads nowhere."""
    below = itertools.takewhile(
        lambda tag: not re.match("h[1-4]$", tag.name), heading.find_next_siblings()
    )
    return "".join(
        tag.get_text().strip() for tag in below if "question" not in tag.get("class", [])
    )


@each_language
def test_search_index_has_the_headings_and_words_of_the_pages(site, language):
    """As they stand in the HTML; the index is made without it."""
    documents, lost = {}, {}
    for document in indexed(site, language):
        page, _, anchor = document["location"].partition("#")
        documents.setdefault(page, {})[anchor] = f"{document['title']} {document['text']}"
    for page in (page for page in PAGES if address("en", page) not in search.LISTS):
        article = copy.copy(html(site, language, page).article)
        found = documents[address("en", page)]
        headings = {heading["id"] for heading in article.select(":is(h1, h2, h3, h4)[id]")}
        of_cards = {heading["id"] for heading in article.select(":has(+ .mh-cards)[id]")}
        written = {heading.value for heading in source(language, page).headings}
        ids = headings - (of_cards - written) - {article.h1["id"]}  # titles of the nav aside
        questions = {question["id"] for question in article.select("details.question")}
        measured = ".mh-device, .mh-measured, table:has(+ .mh-measured)"
        ours = ".mh-about, .mh-widget, .mh-cards, .mh-road, .mh-contents, .mh-museum, .mh-mistakes"
        ours += ", details.hint, .mh-questions"  # a list of the headings
        unread = f".katex, .highlight, svg, {ours}, {measured}"
        for unsearched in article.select(unread):
            unsearched.decompose()
        bare = {
            heading["id"] for heading in article.select(":is(h2, h3, h4)[id]") if not said(heading)
        }
        assert ids - bare <= found.keys() - {""} - questions <= ids
        if page.startswith("reference"):  # its docstrings are English
            assert [anchor for anchor in found if anchor.startswith("mhattn.")]
            continue
        seen = re.findall(
            r"[A-Za-z]{3,}|[\u4e00-\u9fff]+",
            "\n".join(paragraph.get_text("\n") for paragraph in article.select("p, li, td")),
        )
        words = "".join(found.values()).replace("\u200b", "")
        if missing := {word for word in seen if word not in words}:
            lost[page] = missing
    assert lost == {}


# Links between pages, the reference, the glossary and the bibliography


def test_every_page_is_linked_from_another():
    """From the text of one, lists of all pages aside."""
    linked = set()

    def note(span, folder):
        if span.kind == "link":
            linked.add(posixpath.normpath(posixpath.join(folder, span.value.partition("#")[0])))
        return span.text

    for page in sorted({*PAGES} - {"index.md"}):
        linked.update(source("en", page).needs)
        for block in source("en", page).walk():
            with_spans(block.text, functools.partial(note, folder=posixpath.dirname(page)))
    first = {page for page in PAGES if page.endswith("index.md")}  # the tabs lead there
    everywhere = {*first, "glossary.md", "bibliography.md", "changes.md"}
    assert {*PAGES} - everywhere - linked == set()


@each_language
def test_each_question_has_code_and_leads_to_a_section(language):
    questions = {}

    def note(span, found):
        page, _, section = span.value.partition("#")
        if span.kind == "link" and section and page in {*PAGES} - {"questions.md"}:
            found["link"] += 1
        return span.text

    for block in source(language, "questions.md").walk():
        if block.kind == "heading":
            found = Counter()
            if block.mark == "###":
                questions[block.value] = found
        elif block.kind == "include":
            found[block.value] += 1
        else:
            with_spans(block.text, functools.partial(note, found=found))
    assert len(questions) >= 60
    shown = {name: found[f"questions.pycon:{name}"] for name, found in questions.items()}
    assert [name for name, count in shown.items() if count != 1] == []
    assert [name for name, found in questions.items() if not found["link"]] == []


@each_language
def test_each_work_is_cited_and_says_where(site, language):
    works = html(site, language, "bibliography.md").article.select("li")
    assert len(works) == len(bibliography.works())
    assert [work.text for work in works if not work.select('a[href^=".."]')] == []


@each_language
def test_chapters_and_reference_lead_to_each_other(site, language):
    reference = html(site, language, "reference/index.md").article
    chapters = reference.select(".mh-about")
    assert len(chapters) == len(reference.select("h2"))
    masks = next(line for line in chapters if "causal_mask" in line.text)
    assert {a["href"] for a in masks.select("a")} >= {"../masks-in-practice/"}
    page = html(site, language, "masks-in-practice.md").article
    assert page.find("a", href="../reference/#mhattn.core.masks.causal_mask")
    assert page.find("a", href="../glossary/#padding")


@each_language
def test_public_is_documented_and_documented_is_public(site, language):
    pages = (site / ("" if language == "en" else language) / "reference").rglob("index.html")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    found = re.findall(r'id="(mhattn\.[\w.]+)"', text)
    documented = set(found)
    assert len(found) == len(documented), "twice in the reference"
    names = set(public_names())
    assert names - documented == set(), "not in the reference"
    known = names | set(MODULES)
    members = {name for name in documented - known if name.rpartition(".")[0] in known}
    assert documented - known - members == set(), "in the reference, but not public"
    assert [name for name in members if name.rpartition(".")[2].startswith("_")] == []


def test_colours_of_page_and_figures_are_the_same():
    css = (DOCS / "assets" / "site.css").read_text(encoding="utf-8")
    light = re.search(r"^\[data-md-color-scheme\] \{(.*?)\}", css, re.S | re.M)[1]
    roles = re.findall(r"--mh-(\w+): (#\w+);", light)
    assert dict(roles) == {role: color.lower() for role, color in COLORS.items()}


# The other engine

# What Zensical 0.0.73 does otherwise, with no effect on what a reader sees in a page.
CONSUMED = ' data-search-exclude=""'  # its search reads it while it builds
THEMES = "md-content__button"  # to edit the page
HEADINGS = [f"h{level}" for level in range(1, 7)]


def seen(soup, name):
    """What a reader gets from a page, kind by kind.

    A lab is a notebook to MkDocs alone, and a notebook's citations lead to the works themselves.
    """
    article = soup.article
    found = {kind: [] for kind in ("formula", "figure", "table", "heading", "id", "link", "script")}
    for element in article.find_all(True):
        classes = element.get("class", [])
        if not element.get("id", "__").startswith("__"):
            found["id"].append(element["id"])
        if "katex" in classes:
            found["formula"].append(str(element).replace(CONSUMED, ""))
        elif element.name == "svg" and "mh-figure" in classes:
            found["figure"].append(str(element).replace(CONSUMED, ""))
        elif element.name == "table":
            found["table"].append(str(element).replace(CONSUMED, ""))
        elif element.name in HEADINGS:
            found["heading"].append(element.text)
        elif element.name == "a" and element.has_attr("href") and THEMES not in classes:
            to = urljoin(f"https://host/{name}", element["href"])
            found["link"].append((element.text, to if "labs/" not in name else ""))
        elif element.name == "script" and element.has_attr("src"):
            found["script"].append(element["src"])
    return found | {
        "text": "".join(article.text.split()),
        "description": soup.select_one("meta[name=description]")["content"],
        "other language": urljoin("https://host/a/b/c/", soup.select_one(".mh-language")["href"]),
    }


@pytest.mark.nightly
@each_side
def test_zensical_builds_the_same_page(site, zensical_site, language, page):
    ours, theirs = html(site, language, page), html(zensical_site, language, page)
    name = address(language, page)
    assert seen(theirs, name) == seen(ours, name)
    assert blocks(zensical_site, language, page) == blocks(site, language, page)
    assert re.findall(r"\$|\[@|<!--", prose(theirs.article)) == []
    assert not theirs.article.find_all(string=lambda string: isinstance(string, Comment))


@pytest.mark.nightly
def test_zensical_builds_the_same_files(site, zensical_site):
    """Those that we make; each engine has its own scripts, styles and search."""

    def made(root):
        folders = ("downloads", "figures", "data", "assets/katex")
        files = [f for la in ("", "zh") for name in folders for f in (root / la / name).rglob("*")]
        files = [f for f in files if f.is_file()] + [root / "robots.txt"]
        return {f.relative_to(root).as_posix(): f.read_bytes() for f in files}

    assert made(zensical_site) == made(site)


# The code that copy buttons give


@functools.cache
def cells(site, language, page):
    """For each section of a page, what the buttons of its cells copy."""

    def copied(cell):
        return cell.get("data-copy", cell.get("data-before", "") + cell.code.text).rstrip("\n")

    found = html(site, language, page).select("section.language-python")
    return [[copied(pre) for pre in section.select("pre:has(> code)")] for section in found]


def blocks(site, language, page):
    return [cell for section in cells(site, language, page) for cell in section]


@each_page
def test_both_languages_give_the_same_code(site, page):
    """But for comments and words."""
    chinese = [code.replace(CHINESE_FONT, "") for code in blocks(site, "zh", page)]
    pairs = zip(blocks(site, "en", page), chinese, strict=True)
    other = [pair for pair in pairs if not translation.does_the_same(*pair)]
    own = own_lines(page.removesuffix(".md"))
    assert [pair for pair in other if not {*pair[0].splitlines()} - {""} <= own] == []


def own_lines(story):
    """Those of sections whose Chinese twin, on other data, has code of its own."""
    faults = [fault.partition(": ") for fault in OWN.get(f"{story}.zh.pycon", [])]
    names = [name for name, _, fault in faults if fault.endswith("code")]
    examples = [sections(STORIES / f"{story}.pycon")[name].examples() for name in names]
    code = "\n".join(each.source for some in examples for each in some)
    return {*code.replace("_ = ", "").splitlines()}  # which only a console needs


class Bare(ast.NodeTransformer):
    """Drops ``_ = `` before an expression, which only a console needs."""

    def visit_Assign(self, node):
        names = [getattr(target, "id", None) for target in node.targets]
        return ast.Expr(node.value) if names == ["_"] else node


def bare(code):
    return ast.dump(Bare().visit(ast.parse(code)))


@each_page
def test_every_block_of_python_can_be_copied(site, page):
    """Each that the page includes, in its order, the package's own source as well."""
    fences = [p for p in skeleton(source("en", page)) if p.kind in ("include", "fence", "api")]
    if any(part.kind == "api" for part in fences):
        assert blocks(site, "en", page)
        return
    sections = [shown_section(part.value) for part in fences if part.kind == "include"]
    for section, copied in zip(sections, cells(site, "en", page), strict=True):
        if section.is_story:
            code = "".join(example.source for example in section.examples())
            assert bare("\n".join(copied)) == bare(code), section.name
        else:
            assert copied == [section.code.rstrip("\n")]


@each_side
def test_code_stands_in_cells_with_what_each_printed(site, language, page):
    """A cell ends where something was printed, as plain doctest reads the story."""
    includes = [p.value for p in skeleton(source(language, page)) if p.kind == "include"]
    found = html(site, language, page).select("section.language-python")
    for value, shown in zip(includes, found, strict=False):  # the reference includes nothing
        section = results.as_printed(shown_section(value, language))
        if not section.is_story:
            continue
        wants = [example.want for example in section.examples() if example.want]
        outputs = shown.select(".mh-output")
        texts = [output.text for output in outputs if output.name == "pre"]
        assert texts == [want.rstrip("\n") for want in wants if not want.startswith("|")]
        kinds = ["code" if piece.code else "output" for piece in shown.find_all(recursive=False)]
        assert "".join(kinds).replace("codeoutput", "").strip("code") == ""
        assert len(outputs) == len(wants)
        text = "".join(code.text for code in shown.select("code"))
        assert not re.search(r"^\s*(>>>|\.\.\.|_ = )", text, re.M)

"""The site as one zip: unpacked, its pages do from a folder what they do from a server."""

import re
import zipfile
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from mhsite import words
from mhsite.beside import offline
from mhsite.stories.source import DOCS, ROOT, SourceError
from test_site import PAGES, address, blocks, each_language, parsed, source


@pytest.fixture(scope="session")
def folder(site, tmp_path_factory):
    """Where a reader unpacked it: a name with a space and a letter that isn't ASCII."""
    place = tmp_path_factory.mktemp("taken") / "my café"
    offline.write(site, place.parent / "mhattn-site.zip")
    with zipfile.ZipFile(place.parent / "mhattn-site.zip") as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {"mhattn-site"}
        assert len(archive.namelist()) == len(set(archive.namelist()))
        archive.extractall(place)
    return place / "mhattn-site"


@pytest.fixture
def open_file(browser, folder):
    """Opens a page from the folder, without network; whatever goes wrong there is noted."""
    contexts, noise = [], []

    def failed(request):
        if request.failure != "net::ERR_ABORTED":  # whoever goes on leaves a frame half loaded
            noise.append(request.url)

    def open_(name, **options):
        context = browser.new_context(viewport={"width": 1300, "height": 900}, **options)
        context.set_default_timeout(30_000)  # on a loaded machine
        context.set_offline(True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("requestfailed", failed)
        page.goto((folder / name).as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert noise == []


def name_of(page, folder):
    """The file that a page shows, as a name in the folder."""
    assert page.url.startswith("file:")
    path = unquote(urlsplit(page.url).path)
    return path.removeprefix(f"{folder.as_posix()}/")


def test_every_link_and_script_names_a_file(folder):
    for path in sorted(folder.rglob("*.html")):
        for each in parsed(path).select("[href], [src]"):
            target = each.get("href") or each["src"]
            if ":" in target.partition("/")[0] or target.startswith("#"):
                continue
            url = urlsplit(urljoin(path.as_uri(), target))
            assert (url.scheme, each.get("type")) != ("file", "module")
            assert re.search(r"\.\w+$", url.path), f"{path}: {target} is no file"
            assert Path(unquote(url.path)).is_file(), f"{path}: {target}"


def test_nothing_of_a_server_is_left_and_nothing_of_a_page_is_missing(site, folder):
    taken = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*") if path.is_file()}
    given = {path.relative_to(site).as_posix() for path in site.rglob("*.*") if path.is_file()}
    lost = {name for name in given if name not in taken and f"{name}.js" not in taken}
    hosted = {"404.html", "robots.txt", "sitemap.xml", "sitemap.xml.gz", "search/search_index.json"}
    hosted |= {f"zh/{name}" for name in hosted}
    python = re.compile(
        r"(zh/)?assets/(run-(worker|kernels)\.js|pyodide-[\d.]+/[\w.-]+|page-\w+\.tar\.bz2"
        r"|smollm-(worker|model|edit|file|tokens)\.js|smollm/[\w.-]+)"
    )
    hosted |= set(filter(python.fullmatch, given))  # no worker starts in a folder: pages say so
    assert {name for name in lost if not name.endswith(".map")} == hosted & given


def continues(page):
    """On the first page: another word of the sentence, and what the model writes."""
    page.locator("[data-widget=reading] .mh-words button").nth(1).click()
    page.locator("[data-widget=live-model] button").first.click()
    page.locator("[data-widget=live-model] button:not([disabled])").wait_for()  # it has written
    return [*page.locator("[data-widget]").all_inner_texts(), page.evaluate("location.search")]


def attends(page):
    page.locator("[data-widget=sentence] .mh-words button").nth(2).click()
    page.locator("[data-widget=sentence] input[type=number]").first.fill("3")
    grid = page.locator("[data-grid] td").first
    grid.click()
    return page.locator("[data-widget], .mh-figure + *, table").all_inner_texts()


def thickens(page):
    widget = page.locator("[data-widget=drag-weights]")
    widget.locator(".mh-line").first.wait_for()
    widget.get_by_role("button").last.click()
    return widget.inner_text()


def nears(page):
    widget = page.locator("[data-widget=two-answers]")
    widget.get_by_role("slider").press("End")
    return widget.inner_text()


def switches(page):
    widget = page.locator("[data-widget=output-matrix]")
    widget.locator("td[tabindex='0']").press("Enter")
    return widget.inner_text()


def takes_away(page):
    widget = page.locator("[data-widget=residual]")
    widget.locator(".mh-layers button").nth(1).click()
    return widget.inner_text()


def looks(page):
    widget = page.locator("[data-widget=exhibits]")
    widget.get_by_role("button").nth(1).click()
    widget.locator("input").fill("softmax")
    return [widget.inner_text(), page.evaluate("location.search")]


def calculates(page):
    page.select_option("[name=model]", "llama-3.1-70b")
    page.locator(".mh-calculator [name=tokens]").fill("64k")
    page.wait_for_timeout(1000)  # until it is read out
    return [page.locator(".mh-calculator").inner_text(), page.evaluate("location.search")]


def traces(page):
    page.locator("[data-widget=shape-tracer] [name=num_heads]").fill("2")
    return page.locator("[data-widget=shape-tracer]").inner_text()


def steps(page):
    page.locator("[data-widget=online-softmax] button").last.click()
    return page.locator("[data-widget=online-softmax]").inner_text()


def asks(page):
    widget = page.locator("[data-widget=which-kernel]")
    widget.locator("[name=mask]").check()
    return [widget.inner_text(), page.evaluate("location.search")]


def climbs(page):
    widget = page.locator("[data-widget=roof]")
    widget.locator("[name=queries]").press("End")
    return [widget.inner_text(), page.evaluate("location.search")]


def drags(page):
    widget = page.locator("[data-widget=birth]")
    widget.get_by_role("slider").press("End")
    return widget.inner_text()


def filters(page):
    page.locator("input[type=search]").click()
    page.keyboard.type("deepseek")
    return page.locator(".mh-models tbody tr:not([hidden])").all_inner_texts()


def reads(page):
    widget = page.locator("[data-widget=live-model]")
    widget.locator(".mh-map-top span").first.wait_for()
    widget.locator("textarea").first.fill("Alice 白云")
    widget.and_(page.locator("[aria-busy=false]")).wait_for()
    return widget.locator(".mh-said").inner_text()


def browses(page):
    widget = page.locator("[data-widget=browse-heads]")
    widget.locator(".mh-tokens button").first.wait_for()
    widget.locator("[name=sentence]").select_option("words")
    page.wait_for_function("location.search.includes('sentence=words')")
    widget.locator("[name=sort]").select_option("distance")
    return [widget.inner_text(), page.evaluate("location.search")]


USES = {
    "index.md": continues,
    "why-attention.md": thickens,
    "attention.md": attends,
    "why-heads.md": nears,
    "multi-head.md": switches,
    "shapes.md": traces,
    "build-and-train.md": drags,
    "block.md": takes_away,
    "museum.md": looks,
    "calculator.md": calculates,
    "online-softmax.md": steps,
    "kernels.md": asks,
    "roofline.md": climbs,
    "known-models.md": filters,
    "live-model.md": reads,
    "browse-heads.md": browses,
}


@each_language
@pytest.mark.parametrize("name", USES)
def test_widgets_answer_as_they_do_online(open_file, open_page, language, name):
    there = open_page(address(language, name), reduced_motion="reduce")
    here = open_file(f"{address(language, name)}index.html", reduced_motion="reduce")
    answer = USES[name](here)
    assert answer == USES[name](there)
    assert len(str(answer)) > 20


def test_every_page_with_a_widget_is_used():
    """Of the sentence and of the pictures that answer, one of each."""
    widgets = {
        block.value.split()[1]
        for name in PAGES
        for block in source("en", name).walk()
        if block.kind == "widget"
    }
    used = {
        block.value.split()[1]
        for name in USES
        for block in source("en", name).walk()
        if block.kind == "widget"
    }
    assert widgets == used | {"cut-heads"}


@each_language
def test_the_real_model_says_that_a_folder_starts_none(open_file, language):
    page = open_file(f"{address(language, 'cut-heads.md')}index.html")
    said = page.locator("[data-widget=cut-heads]").inner_text()
    assert said == words.of(language, "cut-heads.offline")


@each_language
def test_a_cell_says_why_it_does_not_run_from_a_folder(open_file, language):
    page = open_file(f"{address(language, 'why-attention.md')}index.html")
    page.locator("button.mh-run").first.click()
    assert page.locator(".mh-run-line").first.inner_text() == words.of(language, "run.folder")
    assert page.locator(".mh-editor textarea").first.is_editable()


@each_language
@pytest.mark.parametrize("kind", ["SVG", "PNG"])
def test_a_figure_can_be_saved_from_a_folder(open_file, open_page, language, kind, tmp_path):
    """The same file as online: no canvas is tainted, and the address is that of the site."""
    files = []
    for open_, place in ((open_file, "index.html"), (open_page, "")):
        page = open_(f"{address(language, 'masks.md')}{place}")
        name = words.of(language, "figures.as").format(type=kind)
        for _ in range(2):  # the second time the script is there
            with page.expect_download() as arriving:
                page.get_by_role("button", name=name).first.click()
        arriving.value.save_as(tmp_path / "saved")
        files.append((arriving.value.suggested_filename, (tmp_path / "saved").read_bytes()))
    assert files[0] == files[1]
    assert len(files[0][1]) > 3000


@each_language
def test_a_reader_goes_from_page_to_page(open_file, folder, language):
    """From the first page by links of the text, to the other language, and home."""
    below = "" if language == "en" else "zh/"
    page = open_file(f"{below}index.html")
    page.locator("article a[href*=why-attention]").first.click()
    assert name_of(page, folder) == f"{below}why-attention/index.html"
    page.locator("article a[href*='/attention/']").last.click()
    assert name_of(page, folder) == f"{below}attention/index.html"
    page.locator("a.mh-language").click()
    assert name_of(page, folder) == ("zh/" if language == "en" else "") + "attention/index.html"
    page.locator("a.mh-language").click()
    assert name_of(page, folder) == f"{below}attention/index.html"
    page.locator("header a.md-logo").click()
    assert name_of(page, folder) == f"{below}index.html"
    formulas = "document.fonts.ready.then(all => [...all].filter(f => f.status == 'error').length)"
    assert page.evaluate(formulas) == 0


def searched(page, words):
    """What a search lists: of each place the title and the file."""
    page.keyboard.press("/")
    page.wait_for_function("document.activeElement.matches('.md-search__input')")
    page.keyboard.insert_text(words)
    page.keyboard.press("End")
    page.wait_for_selector(".md-search-result__link")
    page.wait_for_timeout(500)
    return page.locator(".md-search-result__link").evaluate_all(
        "links => links.map(a => [a.innerText, a.pathname.replace('index.html', ''), a.hash])"
    )


@pytest.mark.parametrize(
    ("language", "words"),
    [("en", "causal mask"), ("en", "kv cache"), ("zh", "因果掩码"), ("zh", "GQA")],
)
def test_the_search_finds_what_it_finds_online(open_file, open_page, folder, home, language, words):
    page = open_file(f"{address(language, 'masks.md')}index.html")
    here = searched(page, words)
    there = searched(open_page(address(language, "masks.md")), words)
    root, online = urlsplit(folder.as_uri()).path, urlsplit(home).path.rstrip("/")
    assert [[title, path.removeprefix(root), where] for title, path, where in here] == [
        [title, path.removeprefix(online), where] for title, path, where in there
    ]
    page.locator(".md-search-result__link").first.click()
    page.wait_for_url("**/index.html?h=*")
    title = here[0][0].split("\n")[0].replace("\u200b", "")
    assert page.locator("h1").inner_text().strip("#\n") == title


def test_the_zip_is_the_same_twice(site, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        offline.write(site, tmp_path / name / "site.zip")
    assert (tmp_path / "a" / "site.zip").read_bytes() == (tmp_path / "b" / "site.zip").read_bytes()


@each_language
def test_code_is_copied_and_a_notebook_shown(open_file, site, folder, language):
    """No browser downloads from a folder: the file lies where the first page says."""
    page = open_file(f"{address(language, 'masks.md')}index.html", permissions=["clipboard-read"])
    page.locator("button[data-md-type=copy]:visible").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied in blocks(site, language, "masks.md")
    page.locator(".mh-about a[download]").first.click()
    page.wait_for_url("**/downloads/masks.ipynb")
    below = "" if language == "en" else "zh/"
    assert name_of(page, folder) == f"{below}downloads/masks.ipynb"
    home = (DOCS / language / "index.md").read_text(encoding="utf-8")
    assert f"`{below}downloads`" in home
    assert f"`{below}index.html`" in home


@each_language
def test_the_first_page_links_to_what_a_release_has(language):
    home = (DOCS / language / "index.md").read_text(encoding="utf-8")
    (name,) = re.findall(r"/releases/latest/download/([\w.-]+)\)", home)
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert f"build.py --offline {name} --books books\n" in workflow
    assert f'gh release create "$GITHUB_REF_NAME" {name} books/* ' in workflow


def test_what_is_no_plain_script_is_refused():
    for code in ("import './x.js'", "export default 1", "export { a }", "a = await import('./b')"):
        with pytest.raises(SourceError, match=r"cannot make a plain script of x\.js"):
            offline.script("x.js", code)

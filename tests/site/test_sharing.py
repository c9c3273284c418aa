"""What search engines and those who are sent a link see of a page; addresses stay."""

import io
import json
import re
import tomllib
from datetime import date
from urllib.parse import unquote, urljoin
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup
from mhsite.beside import offline, search, sharing
from mhsite.engines import build
from mhsite.pages import fragments, navigation, page as pages, release
from mhsite.stories.source import DOCS, LANGUAGES
from PIL import Image
from test_site import PAGES, address, each_language, each_side, html, root_url as root_url, source

DESCRIPTIONS = tomllib.loads((DOCS / "data" / "descriptions.toml").read_text(encoding="utf-8"))
ADDRESSES = tomllib.loads((DOCS / "data" / "addresses.toml").read_text(encoding="utf-8"))
LENGTHS = {"en": (60, 155), "zh": (24, 80)}


def picture(file):
    with Image.open(file) as image:
        image.load()
        return image


def test_each_page_has_a_description_in_both_languages():
    assert {*DESCRIPTIONS} == {*PAGES}
    assert all(sorted(said) == sorted(LANGUAGES) for said in DESCRIPTIONS.values())


@each_language
def test_the_table_of_models_is_known_as_a_dataset(site, root_url, language):
    soups = {page: html(site, language, page) for page in PAGES}
    found = {
        page: [json.loads(tag.string) for tag in soup.select("script[type='application/ld+json']")]
        for page, soup in soups.items()
    }
    sets = {page: about[1:] for page, about in found.items() if len(about) > 1}
    assert list(sets) == ["known-models.md"]
    (about,) = sets["known-models.md"]
    assert (about["@type"], about["description"]) == (
        "Dataset",
        DESCRIPTIONS["known-models.md"][language],
    )
    offered = [each["contentUrl"] for each in about["distribution"]]
    folder = root_url + address(language, "index.md")
    assert offered == [f"{folder}data/atlas.{kind}" for kind in ("csv", "json")]
    assert all((site / url.removeprefix(root_url)).is_file() for url in offered)


@each_language
def test_no_two_descriptions_are_alike_and_none_is_cut(language):
    said = [each[language] for each in DESCRIPTIONS.values()]
    assert len({text[:45] for text in said}) == len(said)
    least, most = LENGTHS[language]
    assert [text for text in said if not least <= len(text) <= most] == []
    assert all(text.endswith((".", "?", "。", "？")) for text in said)


@each_side
def test_a_shared_page_says_what_it_is(site, root_url, language, page):
    soup = html(site, language, page)
    said = {tag["property"]: tag["content"] for tag in soup.select("meta[property^='og:']")}
    description = DESCRIPTIONS[page][language]
    assert soup.select_one("meta[name=description]")["content"] == description
    assert said["og:description"] == description
    assert said["og:url"] == soup.select_one("link[rel=canonical]")["href"]
    assert said["og:url"] == root_url + address(language, page)
    assert said["og:title"] in " ".join(soup.h1.text.split())
    card = picture(site / said["og:image"].removeprefix(root_url))
    assert (card.format, card.size) == ("PNG", (1200, 630))
    about = json.loads(soup.select_one("script[type='application/ld+json']").string)
    assert (about["headline"], about["description"]) == (said["og:title"], description)
    assert about["url"] == said["og:url"]


@each_side
def test_a_page_names_its_other_language(site, root_url, language, page):
    links = html(site, language, page).head.select("link[rel=alternate][hreflang]")
    english, chinese = (root_url + address(each, page) for each in ("en", "zh"))
    assert {link["hreflang"]: link["href"] for link in links} == {
        "en": english,
        "zh-Hans": chinese,
        "x-default": english,
    }


def test_each_english_page_has_a_card_of_its_own(site):
    cards = {path.read_bytes() for path in (site / "assets" / "cards").iterdir()}
    assert len(cards) == len(PAGES)


@each_side
def test_a_card_shows_the_first_figure_of_its_page(site, root_url, language, page):
    """More than the title and the logo alone, below the title, and not the other language's."""
    said = html(site, language, page).select_one("meta[property='og:image']")["content"]
    card = site / said.removeprefix(root_url)
    if not fragments.picture(source(language, page)):
        return
    assert card.is_relative_to(site / address(language, "index.md"))
    middle = picture(card).convert("L").crop((100, 200, 1100, 600))
    assert middle.histogram()[255] < 0.999 * middle.width * middle.height
    assert card.read_bytes() != sharing.card(html(site, language, page).h1.text.strip())


WITHOUT = (  # what one looks things up in
    "bibliography.md",
    "calculator.md",
    "changes.md",
    "claims.md",
    "glossary.md",
    "index.md",
    "labs/index.md",
    "questions.md",
)


def squeezed(text):
    return re.sub(r"\s", "", text).lower()


@each_language
def test_a_card_says_a_number_of_its_page(site, language):
    """A sentence that stands on the page or in its description, and asks nothing if one doesn't."""
    said = {page: sharing.number(source(language, page)) for page in PAGES}
    empty = {page for page in said if not said[page]}
    assert len([page for page in empty if not page.startswith((*WITHOUT, "reference/"))]) < 12
    for page in said.keys() - empty:
        first = html(site, language, page).article.select("p")
        text = " ".join(each.text for each in first) + DESCRIPTIONS[page][language]
        uncited = re.sub(r"[(（][^()（）]*\b(?:19|20)\d\d[)）]", "", text)
        assert squeezed(said[page]) in squeezed(text) + squeezed(uncited), page
        assert re.search(r"\d", said[page])
        assert not re.search(r"[:：;；。]$|^[a-z]+ [a-z]+ .*\.$", said[page])
    asking = [text for text in said.values() if text.endswith(("?", "？"))]
    assert len(asking) < 5


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (
            "Half of them fail. Of 21 families, 7 see everything.",
            "Of 21 families, 7 see everything",
        ),
        ("Why do 3 heads fail? Two do, with 0.5.", "Two do, with 0.5"),
        ("It loses 0.5. A head loses 0.4.", "A head loses 0.4"),
        ("In 2026 Llama 3.1 and GPT-2 ran on an H100 (Xiao et al., 2024).", ""),
        (
            f"{'A very long sentence ' * 12} has 3 parts: two heads give 0.96.",
            "Two heads give 0.96",
        ),
        ("With $d_k = 64$ it is 0.23.", ""),
    ],
)
def test_which_sentence_is_taken(tmp_path, monkeypatch, text, number):
    monkeypatch.setattr(sharing.navigation, "description", lambda *_: "")
    made = pages.parse(f"# Title {{ #title }}\n\n{text}\n", DOCS / "en" / "masks.md")
    assert sharing.number(made) == number


@each_language
def test_words_of_a_card_fit_and_leave_room_for_the_figure(language):
    """Two lines of each at most, and no ink where the margin or the figure is."""
    if language == "zh" and not sharing.chinese_font():
        pytest.skip("no Chinese font is installed")
    figure = '<svg width="9" viewBox="0 0 9 9"></svg>'
    made = [source(language, page) for page in PAGES]
    told = {search.words(page.headings[0].title, language): sharing.number(page) for page in made}
    for title in sorted(told, key=lambda title: len(title) + len(told[title]))[-12:]:
        said = told[title]
        for drawn, box in ((figure, (60, 40, 1140, 300)), ("", (60, 160, 1150, 530))):
            card = sharing.card(title, drawn, language, said)
            grey = Image.open(io.BytesIO(card)).convert("L")
            ink = Image.eval(grey, lambda value: 255 * (value < 220))
            logo = (1100, 560, 1150, 610) if drawn else (410, 530, 1150, 600)
            ink.paste(0, logo)
            left, top, right, bottom = ink.getbbox()
            inside = left >= box[0] - 2, top >= box[1], right <= box[2], bottom <= box[3]
            assert all(inside), (title, ink.getbbox())
        assert said
        assert card != sharing.card(title, "", language)


@each_language
def test_the_feed_has_what_is_new(site, root_url, language):
    home = address(language, "index.md")
    name = "{http://www.w3.org/2005/Atom}%s".__mod__
    feed = ElementTree.parse(site / home / "feed.xml").getroot()
    entries = feed.findall(name("entry"))
    days = [entry.findtext(name("updated"))[:10] for entry in entries]
    assert days == sorted(map(str, map(date.fromisoformat, days)), reverse=True)
    page = html(site, language, "changes.md")
    assert days == [heading["id"] for heading in page.article.select("h2")]
    assert feed.findtext(name("updated")) == entries[0].findtext(name("updated"))
    url = root_url + address(language, "changes.md")
    for entry, day in zip(entries, days, strict=True):
        assert entry.find(name("link")).get("href") == entry.findtext(name("id")) == f"{url}#{day}"
        items = page.select_one(f"[id='{day}']").find_next_sibling("ul").select("li")
        told = "".join(entry.findtext(name("summary")).split())
        assert all("".join(item.text.split())[:20] in told for item in items)
    links = html(site, language, "masks.md").select("[type='application/atom+xml']")
    assert [urljoin("masks/", link["href"]) for link in links] == ["feed.xml"]


@each_language
def test_icons_have_the_sizes_that_are_said(site, language):
    home = site / address(language, "index.md")
    manifest = json.loads((home / "assets/icons/site.webmanifest").read_text(encoding="utf-8"))
    sizes = [picture(home / "assets/icons" / each["src"]).size for each in manifest["icons"]]
    assert [f"{x}x{y}" for x, y in sizes] == [each["sizes"] for each in manifest["icons"]]
    for link in html(site, language, "masks.md").head.select("link[rel*=icon][sizes]"):
        image = picture(home / "masks" / link["href"])
        assert link["sizes"] == "{}x{}".format(*image.size)


def test_the_icon_is_the_logo(open_page):
    """Drawn by us and by a browser."""
    page = open_page("")
    page.set_content(f"<body style='margin:0'>{(DOCS / 'assets/logo.svg').read_text('utf-8')}")
    page.add_style_tag(content="svg { width: 192px; height: 192px; display: block }")
    shot = picture(io.BytesIO(page.locator("svg").screenshot())).convert("RGB")
    ours = picture(io.BytesIO(sharing.icon(192)))
    for x in range(4, 192, 8):
        for y in range(4, 192, 8):
            pairs = zip(shot.getpixel((x, y)), ours.getpixel((x, y)), strict=True)
            assert all(abs(theirs - our) <= 2 for theirs, our in pairs), (x, y)


@each_side
def test_the_foot_says_state_and_where_to_tell(site, language, page):
    foot = html(site, language, page).footer
    assert release.state(language).split(" ·")[0] in foot.text
    assert {"en": "nothing is loaded from third parties", "zh": "不从第三方加载任何内容"}[
        language
    ] in foot.text
    (link,) = foot.select("a[href*='/issues/new']")
    title = unquote(link["href"].partition("?title=")[2])
    assert title in " ".join(html(site, language, page).h1.text.split()) != ""
    assert release.changed(source(language, page)) in foot.text


# Addresses


def test_each_public_address_still_leads_somewhere(site):
    public = ADDRESSES["public"]
    assert {address("en", page) for page in PAGES} <= {*public}, "a new page is public, too"
    for language in LANGUAGES:
        home = site / address(language, "index.md")
        assert [old for old in public if not (home / old / "index.html").is_file()] == []


def test_what_moved_leads_to_a_page(site):
    for new in ADDRESSES["moved"].values():
        page, _, anchor = new.partition("#")
        text = (site / page / "index.html").read_text(encoding="utf-8")
        assert not anchor or f'id="{anchor}"' in text


@pytest.mark.parametrize(
    ("old", "target"),
    [("old/", "../masks/#leak"), ("older/old/", "../../masks/#leak")],
)
def test_an_address_that_moved_is_a_page_that_leads_on(monkeypatch, old, target):
    """By an address that counts from the old one, so on every host."""
    monkeypatch.setattr(navigation, "moved", lambda: {old: "masks/#leak"})
    for language, title in (("en", "The causal mask"), ("zh", "因果掩码")):
        made = build.moved(language, "https://host/here/")
        assert list(made) == [f"{old}index.html"]
        page = BeautifulSoup(made[f"{old}index.html"], "html.parser")
        assert page.html["lang"] == {"en": "en", "zh": "zh-Hans"}[language]
        assert page.title.text.startswith(title)
        assert page.select_one("meta[http-equiv=refresh]")["content"] == f"0; url={target}"
        assert page.a["href"] == target
        assert page.select_one("link[rel=canonical]")["href"] == "https://host/here/masks/"


@each_language
def test_a_page_leads_on_from_a_section_that_is_another_pages_now(open_page, home, language):
    """In a browser: an old link to a section opens the section where it is now."""
    prefix = address(language, "index.md")
    old = [part for part in ADDRESSES["moved"] if part.split("#")[0] in ADDRESSES["public"]]
    old = [part for part in old if "#" in part and part.split("#")[0] not in ADDRESSES["moved"]]
    assert len(old) > 12
    for part in old[:: len(old) // 3]:
        page = open_page(f"{prefix}{part}")
        page.wait_for_url(f"{home}{prefix}{ADDRESSES['moved'][part]}")


def test_a_section_that_moved_elsewhere_is_found_from_the_old_page(monkeypatch, browser, tmp_path):
    """In a browser, from a folder: as in the zip, and on any host."""
    monkeypatch.setattr(navigation, "moved", lambda: {"old/": "masks/", "old/#a": "shapes/#leak"})
    (made,) = build.moved("en", "https://host/").items()
    for name in ("old", "masks", "shapes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(f"<title>{name}</title>", encoding="utf-8")
    (tmp_path / made[0]).write_text(offline.page(made[1], made[0], {}), encoding="utf-8")
    for there, to in {
        "": "masks/index.html",
        "#a": "shapes/index.html#leak",
        "#b": "masks/index.html",
    }.items():
        page = browser.new_page()
        page.goto(f"{(tmp_path / made[0]).as_uri()}{there}")
        page.wait_for_url(f"{tmp_path.as_uri()}/{to}")
        page.close()


def test_nothing_comes_from_elsewhere_and_nothing_is_left(open_page, home):
    """What the foot says: no cookies, no third parties; the search and a widget are used, too."""
    page = open_page("live-model/")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload(wait_until="networkidle")
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    page.wait_for_selector(".md-search-result__link")
    assert len(asked) > 5
    assert [url for url in asked if not url.startswith((home, "data:", "blob:"))] == []
    assert page.context.cookies() == []


def test_no_line_of_a_chinese_title_begins_with_a_mark():
    font = sharing._font(52, "en")  # any font will do: boxes are as wide as characters
    title = "看懂多头注意力机制：从原理到 PyTorch 代码，一步一步来；“它们”是谁？"
    for width in range(200, 1200, 37):
        lines = sharing._lines(title, font, width)
        assert "".join("".join(lines).split()) == "".join(title.split())
        assert not any(line[0] in "，。：；？！、）》" for line in lines)
        assert "PyTorch" in " ".join(lines)


def test_a_chinese_card_has_its_title_where_a_font_has_its_characters(monkeypatch):
    if sharing.chinese_font() is None:
        pytest.skip("no Chinese font is installed")
    title = "注意力"
    card = Image.open(io.BytesIO(sharing.card(title, language="zh"))).convert("L")
    boxes = Image.open(io.BytesIO(sharing.card(title, language="en"))).convert("L")
    place = (410, 190, 1150, 270)
    assert min(card.crop(place).tobytes()) < 100
    assert card.crop(place).tobytes() != boxes.crop(place).tobytes()


@each_language
def test_the_feed_has_no_blank_before_a_mark(language):
    page = pages.read(DOCS / language / "changes.md")
    told = [text for _, _, text in sharing.changes(page)]
    assert len(told) >= 3
    assert [
        text for text in told if re.search(r"\s[,.;:!?，。；：！？]|[一-鿿] [一-鿿]", text)
    ] == []


def test_a_page_and_its_translation_are_cited_under_names_of_their_own():
    names = {release.bibtex(pages.read(DOCS / la / "masks.md")).split(",")[0] for la in LANGUAGES}
    assert names == {"@misc{mhattn-masks", "@misc{mhattn-masks-zh"}


def test_the_sitemap_says_when_each_page_changed(site, root_url):
    for language in LANGUAGES:
        sitemap = (site / address(language, "index.md") / "sitemap.xml").read_text("utf-8")
        shown = dict(re.findall(r"<loc>([^<]*)</loc>\s*<lastmod>([^<]*)</lastmod>", sitemap))
        changed = {page: release.changed(source(language, page)) for page in PAGES}
        expected = {root_url + address(language, page): day for page, day in changed.items() if day}
        assert shown == expected

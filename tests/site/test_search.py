"""The search in a browser: no query fails, and readers' words lead to the page with the answer."""

import gzip
import itertools
import string
import time
import tomllib
from pathlib import Path

import pytest
from cases import every
from mhsite.beside import search
from test_site import PAGES, address, each_language, html, indexed, source

PART_LIMIT = 150_000  # bytes over the wire, gzipped
QUERIES = tomllib.loads(Path(__file__).with_name("queries.toml").read_text(encoding="utf-8"))
# The pages that the search shows for each query, each with its sections, as its dialog orders them.
ASK = """async queries => {
    const config = JSON.parse(document.getElementById('__config').textContent)
    const worker = new Worker(new URL(config.search, location))
    const index = await (await fetch('search/search_index.json')).json()
    const answer = type => new Promise(done => {
        worker.onmessage = event => { if (event.data.type === type) done(event.data.data) }
    })
    const ready = answer(1)
    worker.postMessage({ type: 0, data: { ...index, options: {} } })
    await ready
    const found = []
    for (const query of queries) {
        const said = answer(3)
        worker.postMessage({ type: 2, data: query })
        found.push((await said).items)
    }
    worker.terminate()
    return found.map(items => items.map(documents => documents.map(each => each.location)))
}"""


@pytest.fixture
def ask(open_page):
    """Asks the search of a language; what the engine complains about is an error."""

    def answers(language, queries):
        page = open_page(address(language, "index.md"))
        said = []
        page.on("console", lambda message: said.append(message.text))
        found = page.evaluate(ASK, queries)
        assert said == []
        return found

    return answers


@pytest.fixture
def ask_pages(ask):
    """The same, without the sections."""

    def page(sections):
        return next(section for section in sections if "#" not in section)

    return lambda *asked: [[page(item) for item in items] for items in ask(*asked)]


@each_language
def test_no_short_query_fails(ask, language):
    signs = string.ascii_lowercase + string.digits
    found = ask(language, [*signs, *map("".join, itertools.product(signs, signs))])
    assert sum(map(bool, found)) > len(found) / 4


@each_language
def test_no_sign_is_a_command(ask, language):
    signs = string.punctuation + "−–“”，。：；（）"
    around = [f"{before}softmax{after}" for before in ("", *signs) for after in ("", *signs)]
    (plain,) = ask(language, ["softmax"])
    assert plain
    assert all(found == plain for found in ask(language, around))


@each_language
def test_readers_words_lead_to_the_page(ask_pages, language):
    """Nine of ten among the first three pages, six of ten to the first."""
    kinds = dict(QUERIES[language])
    topics = kinds.pop("topics")
    others = {query: pages for kind in kinds.values() for query, pages in kind.items()}
    assert sum(map(len, kinds.values())) == len(others) >= 150
    for queries in (topics, others):
        found = dict(zip(queries, ask_pages(language, list(queries)), strict=True))
        wanted = {query: {f"{page}/" for page in queries[query]} for query in queries}
        first = sum(bool(wanted[query] & {*pages[:1]}) for query, pages in found.items())
        missed = {q: pages[:3] for q, pages in found.items() if not wanted[q] & {*pages[:3]}}
        assert len(missed) <= len(queries) / 10, missed
        assert first >= len(queries) * 6 / 10


@each_language
def test_a_title_leads_to_its_page(ask_pages, language):
    pages = [source(language, page) for page in PAGES]
    titles = {search.words(page.headings[0].title, language): page.url for page in pages}
    found = dict(zip(titles, ask_pages(language, list(titles)), strict=True))
    assert {title: pages[0] for title, pages in found.items()} == titles


def test_an_excerpt_in_chinese_has_no_space_beside_its_signs():
    said = "每个 [知名模型](b.md)都这样 [@vaswani2017]。见 [这里](c.md)：好。"
    expected = "每个 知名模型 都这样（Vaswani 等，2017）。见 这里：好。"
    assert search.cut(search.words(said, "zh")) == expected


SCORES = ASK.replace("each.location)", "[each.location, each.score])")


@each_language
def test_answering_sections_can_be_seen_without_a_click(open_page, site, language):
    """Three below the first page, one below each other: Material folds what scores less."""
    titles = [each["title"] for each in indexed(site, language) if "#" in each["location"]]
    page = open_page(address(language, "index.md"))
    for items in page.evaluate(SCORES, titles[::29]):
        for place, found in enumerate(items):
            sections = [(name, score) for name, score in found if "#" in name]
            assert sections == sorted(sections, key=lambda each: -each[1])
            seen = [score for _, score in sections if score >= found[0][1]]
            assert len(seen) <= (1 if place else 3)
            assert bool(seen) == bool(sections)


@each_language
def test_a_heading_without_a_text_answers_nothing(site, language):
    found = indexed(site, language)
    headings = [each for each in found if "#" in each["location"]]
    names = [each for each in headings if each["location"].startswith("reference/")]
    assert all(each["text"] for each in headings if each not in names)
    assert any("#mhattn.costs." in each["location"] for each in names)  # in both languages


def test_what_is_missing_is_shown_as_it_was_typed(search_field):
    page = search_field("en")
    page.keyboard.type("inferences because softmax zqxjvwing")
    page.wait_for_selector(LINK)
    missing = page.locator(".md-search-result__terms del").all_text_contents()
    assert "zqxjvwing" in missing
    assert {*missing} <= {"inferences", "softmax", "zqxjvwing"}


@each_language
@pytest.mark.parametrize("width", [360, 1280])
def test_three_pages_fit_the_screen(open_page, language, width):
    page = open_page(address(language, "index.md"), viewport={"width": width, "height": 900})
    page.wait_for_function("document.body.matches('*')")
    page.evaluate("document.querySelector('label[for=__search]').click()")
    page.wait_for_function("document.activeElement.matches('.md-search__input')")
    page.keyboard.insert_text({"en": "causal mask", "zh": "因果掩码"}[language])
    page.locator(".md-search-result__item").nth(3).wait_for(state="attached")
    page.wait_for_timeout(300)
    assert page.locator(".md-search-result__item").nth(2).bounding_box()["y"] < 720
    assert page.locator(".md-search-result__meta").bounding_box()["height"] <= 1


@each_language
def test_each_folded_question_is_found(ask, site, language):
    """With its own address, below its page: among the first three."""
    asked = [d for d in indexed(site, language) if "#q-" in d["location"]]
    assert len(asked) > 150
    found = ask(language, [each["title"] for each in asked])
    missed = [
        each["location"]
        for each, items in zip(asked, found, strict=True)
        if not any(each["location"] in item for item in items[:3])
    ]
    assert len(missed) <= len(asked) / 50, missed


@each_language
def test_words_that_no_page_has_change_nothing(ask, language):
    known = {"en": ["rotary", "causal mask", "kv cache"], "zh": ["旋转", "因果掩码", "KV 缓存"]}
    found = ask(language, known[language])
    assert all(found)
    assert ask(language, [f"{query} zqxjvw" for query in known[language]]) == found
    assert ask(language, [f"blorptangle {query}" for query in known[language]]) == found
    assert ask(language, ["zqxjvw blorptangle"]) == [[]]


@pytest.mark.parametrize(
    ("language", "compared", "plain"),
    [
        ("en", "rope vs alibi", "rope alibi"),
        ("en", "what is the difference between MHA and MQA?", "MHA MQA"),
        ("en", "GQA versus MLA", "GQA MLA"),
        ("zh", "RoPE vs ALiBi", "RoPE ALiBi"),
    ],
)
def test_a_comparison_asks_for_what_is_compared(ask, language, compared, plain):
    one, other = ask(language, [compared, plain])
    assert one == other != []


def test_a_slip_of_the_finger_finds_the_word(ask):
    right, *slips = ask("en", ["softmax", "sotfmax", "softmx", "sofftmax", "softnax"])
    assert all(found[0][0] == right[0][0] for found in slips)


def test_attention_counts_in_chinese_compounds(ask_pages):
    queries = ["交叉注意力", "线性注意力", "稀疏注意力", "差分注意力"]
    pages = ["cross-attention/", "linear-attention/", "sparse-attention/", "resting-heads/"]
    assert [found[0] for found in ask_pages("zh", queries)] == pages


@pytest.mark.parametrize(
    ("language", "together", "apart"),
    [("zh", "KV缓存", "KV 缓存"), ("zh", "softmax溢出", "softmax 溢出"), ("en", "ＧＱＡ", "gqa")],
)
def test_words_are_found_however_they_are_written(ask, language, together, apart):
    one, other = ask(language, [together, apart])
    assert one == other != []


@each_language
def test_identifiers_are_found_as_written(ask, language):
    names = ["W_Q", "d_k", "rotate_half", "repeat_kv", "masked_fill", "KVCache", "causal_mask"]
    assert all(ask(language, names))


@each_language
def test_the_index_comes_in_light_parts_when_the_field_is_touched(open_page, site, language):
    page = open_page(address(language, "index.md"))
    fetched = []
    page.on("request", lambda request: fetched.append(request.url.rpartition("/")[2]))
    page.wait_for_timeout(500)
    assert not any("part-" in name for name in fetched)
    with page.expect_request("**/search/part-0.json"):
        page.keyboard.press("/")  # nothing is typed
    folder = site / address(language, "index.md") / "search"
    weights = [len(gzip.compress(path.read_bytes())) for path in folder.glob("part-*.json")]
    for _ in range(100):  # until all are asked for, on a busy machine as well
        if len(asked := [name for name in fetched if "part-" in name]) >= len(weights):
            break
        page.wait_for_timeout(100)
    page.wait_for_timeout(300)
    assert sorted(asked) == sorted(path.name for path in folder.glob("part-*.json"))
    assert len(weights) > 1
    assert max(weights) < PART_LIMIT
    assert len(indexed(site, language)) > 100


# The field


META, LINK = ".md-search-result__meta", ".md-search-result__link"


@pytest.fixture
def search_field(open_page):
    """Opens a page's search, before which ``prepare`` may do something with the page."""

    def opened(language, prepare=lambda page: None):
        page = open_page(address(language, "index.md"))
        prepare(page)
        page.keyboard.press("/")
        page.wait_for_function("document.activeElement.matches('.md-search__input')")
        return page

    return opened


@each_language
def test_it_answers_within_two_seconds(search_field, language):
    """Of the first key, with an empty cache."""
    page = search_field(language)
    begin = time.monotonic()
    page.keyboard.type("softmax")
    page.wait_for_selector(LINK)
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize(
    ("language", "words"), [("en", "Loading the index …"), ("zh", "正在加载索引……")]
)
def test_it_says_that_it_loads(search_field, language, words):
    held = []
    page = search_field(
        language, lambda page: page.route("**/part-*.json", lambda route: held.append(route))
    )
    page.keyboard.type("softmax")
    page.wait_for_function(
        "([place, words]) => document.querySelector(place).textContent === words", arg=[META, words]
    )
    assert page.get_attribute(META, "role") == "status"
    for route in held:
        route.continue_()
    page.wait_for_selector(LINK)
    assert page.inner_text(META) != words


def test_what_could_not_be_loaded_is_tried_again(search_field):
    page = search_field(
        "en", lambda page: page.route("**/part-0.json", lambda route: route.abort())
    )
    page.keyboard.type("soft")
    page.get_by_text("The index could not be loaded.").wait_for()
    page.unroute("**/part-0.json")
    page.keyboard.type("max")
    page.wait_for_selector(LINK)


@each_language
def test_text_without_a_key_is_searched_for(search_field, language):
    """A paste by mouse, a picked candidate, dictation: they only say that there is input."""
    page = search_field(language)
    page.keyboard.insert_text("softmax")
    page.wait_for_selector(LINK)


def test_half_composed_signs_are_not_searched_for(search_field):
    page = search_field("zh", lambda page: page.evaluate(
        "place => { window.shown = []; new MutationObserver(() => shown.push("
        "document.querySelector(place).textContent)).observe(document.querySelector(place), "
        "{ childList: true, subtree: true, characterData: true }) }", META,
    ))  # fmt: skip
    page.keyboard.insert_text("掩码")
    page.wait_for_selector(LINK)
    page.evaluate("shown.length = 0")
    devtools = page.context.new_cdp_session(page)
    for letters in ("r", "ru", "ruan"):
        devtools.send(
            "Input.imeSetComposition",
            {"text": letters, "selectionStart": len(letters), "selectionEnd": len(letters)},
        )
        devtools.send("Input.dispatchKeyEvent", {"type": "keyUp", "key": letters[-1]})
    page.wait_for_timeout(200)
    assert page.input_value(".md-search__input") == "掩码ruan"
    assert page.evaluate("shown") == []
    devtools.send("Input.insertText", {"text": "软上限"})
    page.wait_for_function("shown.length")
    assert page.input_value(".md-search__input") == "掩码软上限"


# What unfolds


@every("page", PAGES)
def test_each_question_has_an_address_in_both_languages(site, page):
    english, chinese = (
        [details.get("id") for details in html(site, language, page).select("details.question")]
        for language in ("en", "zh")
    )
    assert english == chinese
    assert len(set(english)) == len(english)
    assert all(name.startswith("q-") for name in english)


@each_language
def test_a_question_opens_when_it_is_the_target(open_page, language):
    name = "q-why-not-multiply-the-weights-by-the-mask"
    page = open_page(address(language, "masks-in-practice.md") + f"#{name}")
    question = page.locator(f"#{name}")
    page.wait_for_function("name => document.getElementById(name).open", arg=name)
    assert page.locator("details.question[open]").count() == 1
    top = question.bounding_box()["y"]
    assert 0 <= top < 900

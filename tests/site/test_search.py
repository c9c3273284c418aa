"""The search in a browser: no query fails, and readers' words lead to the page with the answer."""

import gzip
import itertools
import string
import tomllib
from pathlib import Path

import pytest
from test_site import address, each_language, indexed

PART_LIMIT = 150_000  # bytes over the wire, gzipped
QUERIES = tomllib.loads(Path(__file__).with_name("queries.toml").read_text(encoding="utf-8"))
# The pages that the search shows for each query, as its dialog orders them.
ASK = """async queries => {
    const config = JSON.parse(document.getElementById('__config').textContent)
    const worker = new Worker(new URL(config.search, location))
    const index = await (await fetch('search/search_index.json')).json()
    const answer = () => new Promise(done => { worker.onmessage = event => done(event.data.data) })
    const ready = answer()
    worker.postMessage({ type: 0, data: { ...index, options: {} } })
    await ready
    const found = []
    for (const query of queries) {
        const said = answer()
        worker.postMessage({ type: 2, data: query })
        found.push((await said).items)
    }
    worker.terminate()
    const page = documents => documents.find(each => !each.location.includes('#')).location
    return found.map(items => items.map(page))
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
def test_readers_words_lead_to_the_page(ask, language):
    """Nine of ten among the first three pages."""
    queries = QUERIES[language]
    assert len(queries) >= 60
    answers = dict(zip(queries, ask(language, list(queries)), strict=True))
    missed = {
        query: found[:3]
        for query, found in answers.items()
        if not {f"{page}/" for page in queries[query]} & set(found[:3])
    }
    assert len(missed) <= len(queries) / 10, missed


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
def test_the_index_comes_in_light_parts_when_somebody_searches(open_page, site, language):
    page = open_page(address(language, "index.md"))
    fetched = []
    page.on("request", lambda request: fetched.append(request.url.rpartition("/")[2]))
    page.wait_for_timeout(500)
    assert not any("part-" in name for name in fetched)
    with page.expect_request("**/search/part-0.json"):
        page.keyboard.press("/")
        page.keyboard.type("softmax")
    page.wait_for_load_state("networkidle")
    folder = site / address(language, "index.md") / "search"
    weights = [len(gzip.compress(path.read_bytes())) for path in folder.glob("part-*.json")]
    assert len(weights) == len({name for name in fetched if "part-" in name}) > 1
    assert max(weights) < PART_LIMIT
    assert len(indexed(site, language)) > 100

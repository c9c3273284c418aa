"""The browser of heads: its files, and what a reader sees of them, are what the models compute."""

import functools
import json
import math
import re
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import torch
from test_site import address, each_language, html
from visits import VIOLATIONS, axe

from mhattn.lessons import data_file
from mhattn.models import load_e5, load_gguf, load_rxnmapper

PAGE = "browse-heads.md"
MODELS = {
    "en": ("SmolLM2-135M-Instruct", load_gguf, (30, 9), 3, True),
    "zh": ("multilingual-e5-small", load_e5, (12, 12), 1, False),
}
SENTENCES, REACTIONS = 6, 4
MARKED = {"en": "-marked", "zh": "-unmarked"}  # the other reading of a sentence
UNMOVED = ["entropy", "largest"]  # whatever the order of a row
LIMIT = 150_000  # bytes of a file
STEP = 1 / 255 + 1e-5


@functools.cache
def about(site, language, model=0):
    """What the browser is told of one of its models: 0 is the page's own, 1 reads reactions."""
    said = json.loads((folder(site, language) / "about.json").read_text(encoding="utf-8"))
    return {"statistics": said["statistics"], **list(said["models"].values())[model]}


def folder(site, language):
    return site / address(language, "index.md") / "data" / "browse-heads"


def content(site, language, name, count=None):
    """A file, read by other code than the page's: tokens, chance, statistics and bytes."""
    found = (folder(site, language) / f"{name}.bin").read_bytes()
    start = 4 + int(np.frombuffer(found[:4], "<u4")[0])
    header = json.loads(found[4:start].decode())
    names = list(about(site, language)["statistics"])
    count = count or math.prod(MODELS[language][2])
    end = start + 4 * len(names) * count
    numbers = np.frombuffer(found[start:end], "<f4").reshape(len(names), count)
    whole = np.frombuffer(found[end:], np.uint8).reshape(count, -1)
    return header, dict(zip(names, numbers, strict=True)), whole


@functools.cache
def model(trained_path, language):
    return MODELS[language][1](trained_path)


@pytest.fixture(scope="module")
def computed(trained, site):
    """Ids, tokens and exact weights (layers * heads, L, L) of each sentence, from the model."""

    @functools.cache
    def compute(language):
        title, *_, causal = MODELS[language]
        network, tokenizer = model(trained[title], language)
        found = {}
        for name, text in about(site, language)["sentences"].items():
            read = tokenizer.encode(text)
            start = tokenizer.encode("<|im_start|>").ids if causal else []
            other = start + read.ids if causal else read.ids[1:]  # e5 always has <s>
            for suffix, chosen in (("", read.ids), (MARKED[language], other)):
                ids = torch.tensor([chosen])
                with torch.no_grad():
                    given = network(ids, return_weights=True) if causal else network(ids)
                tokens = [tokenizer.id_to_token(i) for i in chosen]
                tokens = [token.replace("Ġ", "▁").replace("Ċ", "↵") for token in tokens]
                weights = given[1][0].flatten(0, 1).double().numpy()
                found[name + suffix] = chosen, tokens, weights
        return found

    return compute


def all_weights(whole, L, causal):
    """The weights of all heads as tables, from their bytes."""
    seen = np.tril(np.ones((L, L), bool)) if causal else np.ones((L, L), bool)
    weights = np.zeros((len(whole), L, L))
    weights[:, seen] = whole / 255
    return weights


@each_language
def test_what_the_files_say_of_the_model(site, language):
    (layers, heads), group, causal = MODELS[language][2:]
    said = about(site, language)
    assert (said["layers"], said["heads"], said["group"]) == (layers, heads, group)
    assert said["causal"] is causal
    assert len(said["sentences"]) == SENTENCES
    assert said["start"]["usual"] is (not causal)
    chemist = about(site, language, 1)
    assert (chemist["layers"], chemist["heads"], chemist["start"]) == (12, 8, None)
    assert len(chemist["sentences"]) == REACTIONS
    files = {file.name for file in folder(site, language).iterdir()}
    names = [name + end for name in said["sentences"] for end in ("", MARKED[language])]
    assert files == {"about.json", *(f"{name}.bin" for name in [*names, *chemist["sentences"]])}


@each_language
def test_files_are_small_and_hold_the_models_weights(site, computed, language):
    causal = MODELS[language][-1]
    for name, (_, tokens, exact) in computed(language).items():
        header, _, whole = content(site, language, name)
        assert header["tokens"] == tokens
        assert (folder(site, language) / f"{name}.bin").stat().st_size < LIMIT
        weights = all_weights(whole, len(tokens), causal)
        assert np.abs(weights - exact).max() < STEP
        assert (np.rint(255 * weights).sum(axis=-1) == 255).all()


def by_loops(ids, tokens, weights, causal):
    """Each statistic of one head by its definition, query by query."""
    L, marks = len(ids), ("<s>", "</s>", "<|im_start|>")
    patterns = {
        "previous": lambda i, j: j == i - 1,
        "self": lambda i, j: j == i,
        "next": lambda i, j: j == i + 1,
        "first": lambda i, j: j == 0,
        "end": lambda i, j: tokens[j] == "</s>",
        "same": lambda i, j: ids[i] == ids[j] and i != j,
        "induction": lambda i, j: 0 < j <= i and ids[j - 1] == ids[i],
    }
    found = {name: [] for name in [*patterns, "distance", "entropy", "largest"]}
    for i in range(L):
        keys = range(i + 1) if causal else range(L)
        if tokens[i] in marks or len(keys) < 2:
            continue
        row = weights[i]
        for name, pattern in patterns.items():
            inside = [j for j in keys if pattern(i, j)]
            if 0 < len(inside) < len(keys):
                found[name].append(sum(row[j] for j in inside))
        found["distance"].append(sum(row[j] * abs(i - j) for j in keys))
        entropy = -sum(row[j] * math.log(row[j]) for j in keys if row[j] > 0)
        found["entropy"].append(entropy / math.log(len(keys)))
        found["largest"].append(max(row[j] for j in keys))
    return {name: np.mean(each) if each else math.nan for name, each in found.items()}


@each_language
def test_statistics_are_those_of_the_exact_weights(site, computed, language):
    causal = MODELS[language][-1]
    for name, (ids, tokens, exact) in computed(language).items():
        _, statistics, _ = content(site, language, name)
        for head in range(0, len(exact), 7):
            expected = by_loops(ids, tokens, exact[head], causal)
            assert list(expected) == list(statistics)
            for each, value in expected.items():
                np.testing.assert_allclose(statistics[each][head], value, atol=2e-5, err_msg=each)


@each_language
def test_redrawn_is_what_rows_in_random_order_give(site, computed, language):
    """Drawn here by another generator: the extremes of many heads and draws come close."""
    causal = MODELS[language][-1]
    ids, tokens, exact = computed(language)["words"]
    header, statistics, _ = content(site, language, "words")
    possible = {name for name, values in statistics.items() if not np.isnan(values).any()}
    assert set(header["chance"]) == possible - set(UNMOVED)
    draw = np.random.default_rng(0)
    shares = {name: [] for name in ("previous", "first", "distance")}
    for _ in range(4):
        for head in exact:
            mixed = np.zeros_like(head)
            for i, row in enumerate(head):
                seen = i + 1 if causal else len(row)
                mixed[i, :seen] = draw.permutation(row[:seen])
            rows = [
                i for i, t in enumerate(tokens) if t not in ("<s>", "</s>") and (i or not causal)
            ]
            away = np.abs(np.arange(len(ids))[:, None] - np.arange(len(ids)))
            shares["previous"].append(np.mean([mixed[i, i - 1] for i in rows]))
            shares["first"].append(np.mean([mixed[i, 0] for i in rows]))
            shares["distance"].append((mixed * away).sum(axis=1)[rows].mean())
    for name, found in shares.items():
        low, high = header["chance"][name]
        spread = max(found) - min(found)
        assert abs(min(found) - low) < 0.25 * spread
        assert abs(max(found) - high) < 0.25 * spread


@each_language
def test_redrawn_pairs_are_bounded_by_the_rows(site, computed, language):
    """A redrawn weight is one of its row; some draw finds a large one in each place."""
    causal = MODELS[language][-1]
    for name, (_, tokens, exact) in computed(language).items():
        header, _, whole = content(site, language, name)
        low, high = (np.array(each) for each in header["pairs"])
        L = len(tokens)
        seen = np.tril(np.ones((L, L), bool)) if causal else np.ones((L, L), bool)
        assert low.shape == high.shape == (seen.sum(),) == whole.shape[1:]
        rows = np.where(seen, exact, np.nan)  # (heads, L, L)
        largest, smallest = np.nanmax(rows, axis=(0, 2)), np.nanmin(rows, axis=(0, 2))
        query, _ = np.nonzero(seen)
        assert (high <= np.rint(255 * largest[query])).all()
        assert (low >= np.rint(255 * smallest[query])).all()
        assert (high - low >= 0).all()
        second = np.nanquantile(rows, 0.97, axis=(0, 2))
        assert (high >= np.floor(255 * second[query])).all()


@each_language
def test_files_of_reactions_hold_the_models_weights(site, trained, language):
    network, _, tokenizer = load_rxnmapper(data_file("models/rxnmapper-0.4.3-py3-none-any.whl"))
    for name, reaction in about(site, language, 1)["sentences"].items():
        read = tokenizer.encode(reaction)
        header, statistics, whole = content(site, language, name, count=96)
        assert header["tokens"] == read.tokens
        exact = network(torch.tensor([read.ids]))[1][0].flatten(0, 1).double().numpy()
        weights = all_weights(whole, len(read.tokens), False)
        assert np.abs(weights - exact).max() < STEP
        inner = exact[:, 1:-1]  # without the marks' queries
        first = inner[..., 0].mean(axis=1)
        np.testing.assert_allclose(statistics["first"], first, atol=2e-5)


# In the browser

UNPACK = """async ([module, language, names, heads]) => {
    const { unpack, inOrder, rankOf } = await import(module)
    const folder = new URL('../data/browse-heads/', module)
    const said = await (await fetch(new URL('about.json', folder))).json()
    const about = { statistics: said.statistics, ...Object.values(said.models)[0] }
    const result = {}
    for (const name of names) {
        const file = await fetch(new URL(`${name}.bin`, folder))
        const data = unpack(await file.arrayBuffer(), about)
        const known = Object.entries(data.statistics).filter(([, x]) => !x.some(Number.isNaN))
        const ofEach = made => Object.fromEntries(known.map(([each, x]) => [each, made(x)]))
        result[name] = {
            tokens: data.tokens, count: data.count,
            rows: heads.map(head => data.tokens.map((_, i) => data.row(head, i))),
            numbers: ofEach(x => [...x]),
            orders: ofEach(x => inOrder(x, data.count)),
            ranks: ofEach(x => heads.map(head => rankOf(x, head))),
            layers: inOrder(undefined, data.count),
            pair: data.pair(4, 2), hidden: data.pair(2, 4),
        }
    }
    return result
}"""


@each_language
def test_the_page_reads_its_files_as_python_does(open_page, home, site, computed, language):
    causal = MODELS[language][-1]
    heads = list(range(0, math.prod(MODELS[language][2]), 5))
    module = home + address(language, "index.md") + "assets/browse-heads.js"
    names = [
        name + end for name in about(site, language)["sentences"] for end in ("", MARKED[language])
    ]
    page = open_page(address(language, PAGE))
    answers = page.evaluate(UNPACK, [module, language, names, heads])
    for name, (_, tokens, exact) in computed(language).items():
        answer = answers[name]
        assert answer["tokens"] == tokens
        assert answer["layers"] == list(range(answer["count"])) == list(range(len(exact)))
        for head, rows in zip(heads, answer["rows"], strict=True):
            for i, row in enumerate(rows):
                assert len(row) == (i + 1 if causal else len(tokens))
                assert np.abs(row - exact[head, i, : len(row)]).max() < STEP
                assert sum(row) == pytest.approx(1, abs=1e-12)
        assert np.abs(np.array(answer["pair"]["numbers"]) - exact[:, 4, 2]).max() < STEP
        assert (answer.get("hidden") is None) is causal
        _, statistics, _ = content(site, language, name)
        known = {each: x for each, x in statistics.items() if not np.isnan(x).any()}
        assert answer["numbers"].keys() == known.keys()
        for each, values in known.items():
            assert np.array(answer["numbers"][each], "f4").tolist() == values.tolist()
            order = np.argsort(-values, kind="stable")
            assert answer["orders"][each] == order.tolist()
            ranks = [1 + int((values > values[head]).sum()) for head in heads]
            assert answer["ranks"][each] == ranks


def opened(open_page, language, query="", **options):
    page = open_page(address(language, PAGE) + query, **options)
    widget = page.locator("[data-widget=browse-heads]")
    widget.scroll_into_view_if_needed()
    widget.locator(".mh-large-map rect").first.wait_for(state="attached")
    return page, widget


def state(page):
    """What the address says now; ``page.url`` hears of it a little later."""
    search = page.evaluate("location.search")
    return {name: value for name, (value,) in parse_qs(search.removeprefix("?")).items()}


def shown(widget):
    """What the menus and the pressed token say."""
    menus = {
        name: widget.locator(f"[name={name}]").input_value()
        for name in ("sentence", "sort", "layer", "head")
    }
    head = f"{int(menus.pop('layer')) + 1}.{int(menus.pop('head')) + 1}"
    pressed = widget.locator(".mh-tokens button").evaluate_all(
        "all => all.findIndex(each => each.ariaPressed === 'true')"
    )
    return menus | {"head": head, "word": str(pressed + 1)}


def name_of(head, heads):
    return f"{head // heads + 1}.{head % heads + 1}"


@each_language
def test_reader_sorts_and_the_panel_says_what_the_file_has(open_page, site, language):
    _, heads = MODELS[language][2]
    page, widget = opened(open_page, language)
    widget.locator("[name=sentence]").select_option("words")
    widget.locator("[name=sort]:has(option:not([disabled]))").wait_for()
    page.wait_for_function("location.search.includes('sentence=words')")
    header, statistics, whole = content(site, language, "words")
    weights = all_weights(whole, len(header["tokens"]), MODELS[language][-1])
    for each in ("previous", "same", "distance", "entropy"):
        widget.locator("[name=sort]").select_option(each)
        values = statistics[each]
        best = int(np.argsort(-values, kind="stable")[0])
        assert shown(widget)["head"] == name_of(best, heads)
        word = int(shown(widget)["word"]) - 1
        key = int(weights[best, word].argmax())
        said = widget.locator(".mh-said[aria-live=polite]").inner_text()
        parts = [f"{values[best]:.2f}", f"{weights[best, word, key]:.2f}"]
        parts += [header["tokens"][t] for t in (word, key)]
        assert [part for part in parts if part not in said] == []
        row = widget.locator("tr.mh-sorted td").all_inner_texts()
        assert row[:2] == [f"{values[best]:.2f}", "1"]
        limit = widget.locator("form + p").inner_text()
        if each in UNMOVED:
            assert not re.search(r"\d", limit + row[2])
        else:
            low, high = header["chance"][each]
            assert re.findall(r"\d\.\d\d|\d+\.\d\d", row[2]) == [f"{low:.2f}", f"{high:.2f}"]
            above = int((values > np.float32(high)).sum())
            assert {str(above), f"{high:.2f}"} <= set(re.findall(r"[\d.]+\d|\d", limit))
    disabled = widget.locator("[name=sort] option:disabled").evaluate_all(
        "all => all.map(e => e.value)"
    )
    assert disabled == [name for name, x in statistics.items() if np.isnan(x).any()]


@each_language
def test_large_map_is_drawn_with_the_weights(open_page, site, language):
    name = list(about(site, language)["sentences"])[-1]
    _, widget = opened(open_page, language, f"?sentence={name}&head=3.4")
    header, _, whole = content(site, language, name)
    L, (_, heads) = len(header["tokens"]), MODELS[language][2]
    exact = all_weights(whole, L, MODELS[language][-1])[2 * heads + 3]
    cells = widget.locator(".mh-large-map rect[fill-opacity]").evaluate_all(
        "all => all.map(e => ['x', 'y', 'width', 'fill-opacity'].map(a => +e.getAttribute(a)))"
    )
    edge = widget.locator(".mh-large-map .mh-edge")
    left, top = (float(edge.get_attribute(side)) for side in ("x", "y"))
    drawn = np.zeros((L, L))
    for x, y, size, opacity in cells:
        drawn[round((y - top) / size), round((x - left) / size)] = opacity
    np.testing.assert_allclose(drawn, exact, atol=1e-9)
    shades = widget.locator(".mh-tokens button").evaluate_all(
        "all => all.map(e => parseFloat(e.style.getPropertyValue('--weight')) / 100)"
    )
    word = int(shown(widget)["word"]) - 1
    np.testing.assert_allclose(shades, exact[word], atol=1e-9)


SMALL_MAP = """([canvas, left, top, size]) => {
    const dots = canvas.width / canvas.clientWidth
    const side = Math.round(size * dots)
    const paint = canvas.getContext('2d')
    const { data } = paint.getImageData(Math.round(left * dots), Math.round(top * dots), side, side)
    return Array.from({ length: side * side }, (_, i) => data[4 * i + 3] / 255)
}"""


@each_language
def test_small_maps_are_drawn_with_the_weights(open_page, site, language):
    """In the screen's own dots, here two for each pixel; a head in the third row."""
    page, widget = opened(open_page, language, "?sentence=words", device_scale_factor=2)
    header, _, whole = content(site, language, "words")
    (_, heads), group = MODELS[language][2:4]
    exact = all_weights(whole, len(header["tokens"]), MODELS[language][-1])[2 * heads + 1]
    canvas = widget.locator("canvas")
    box = canvas.bounding_box()
    assert canvas.evaluate("each => each.width") == pytest.approx(2 * box["width"], abs=1)
    gap, groups = (2, 0) if heads > 9 else (4, (heads // group - 1) * 5)
    size = (box["width"] - 26 - groups) / heads - gap
    place = [26 + size + gap, 16 + 2 * (size + gap), size]
    page.evaluate("document.querySelector('canvas').scrollIntoView()")
    dots = page.evaluate(SMALL_MAP, [canvas.element_handle(), *place])
    side = round(2 * size)
    shades = np.array(dots).reshape(side, side)
    nearest = np.arange(side) * len(exact) // side
    expected = exact[np.ix_(nearest, nearest)]
    inner = shades[2:-2, 2:-2]  # without the frame
    np.testing.assert_allclose(inner, expected[2:-2, 2:-2], atol=2 / 255)


@each_language
def test_keys_choose_heads_and_cells(open_page, site, language):
    (layers, heads), causal = MODELS[language][2], MODELS[language][-1]
    page, widget = opened(open_page, language, "?sentence=name&head=1.1&word=3")
    widget.locator("canvas").focus()
    for key in ("ArrowUp", "ArrowLeft"):  # the corner
        page.keyboard.press(key)
    assert shown(widget)["head"] == "1.1"
    for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert shown(widget)["head"] == "3.2" == state(page)["head"]
    for _ in range(layers):
        page.keyboard.press("ArrowDown")
    assert shown(widget)["head"] == f"{layers}.2"
    header, _, whole = content(site, language, "name")
    weights = all_weights(whole, len(header["tokens"]), causal)[(layers - 1) * heads + 1]
    widget.locator(".mh-large-map").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert state(page)["word"] == shown(widget)["word"] == "5"
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    line = widget.locator(".mh-cell")
    tokens = header["tokens"]
    assert tokens[4] in line.inner_text()
    assert tokens[0] in line.inner_text()
    assert line.inner_text().endswith(f" {weights[4, 0]:.2f}")
    if causal:
        for _ in range(20):
            page.keyboard.press("ArrowRight")
        assert "hidden" in line.inner_text()


@each_language
def test_the_address_keeps_the_state(open_page, language):
    page, widget = opened(open_page, language, "?h=softmax#traps")
    assert state(page) == {"h": "softmax"}, "nobody has chosen anything"
    pages_before = page.evaluate("history.length")
    widget.locator("[name=sort]").select_option("first")
    widget.locator("[name=head]").select_option("4")
    widget.locator(".mh-tokens button").nth(3).click()
    kept = shown(widget)
    assert state(page) == {"h": "softmax", **kept}
    assert page.url.endswith("#traps")
    assert page.evaluate("history.length") == pages_before  # back leads to the page before
    page.reload()
    widget.scroll_into_view_if_needed()
    widget.locator(".mh-large-map rect").first.wait_for(state="attached")
    assert shown(widget) == kept


@each_language
@pytest.mark.parametrize(
    "query",
    [
        "?sentence=nosuch&head=99.1&word=999&sort=nosuch",
        "?sentence=constructor&head=0.0&word=0&sort=toString",
        "?head=1.2.3&word=-1&sort=",
    ],
)
def test_an_address_that_asks_for_nonsense_is_like_none(open_page, language, query):
    plain = shown(opened(open_page, language)[1])
    assert shown(opened(open_page, language, query)[1]) == plain


@each_language
def test_links_of_the_page_show_what_they_say(open_page, site, computed, language):
    """The link of the trap leads to the head that the story finds."""
    links = [a["href"] for a in html(site, language, PAGE).select("article a[href*='sentence=']")]
    assert len(links) == 12
    words = computed(language)
    pronoun = {"en": ("▁it", "▁cup"), "zh": ("因为它", "杯")}[language]
    for link in links:
        asked = {name: value for name, (value,) in parse_qs(urlsplit(link).query).items()}
        assert urlsplit(link)[2:3] + urlsplit(link)[4:] == ("", "browser")
        if "model" in asked:
            reaction = content(site, language, asked["sentence"], count=96)[0]["tokens"]
            pair = [reaction[int(asked[each]) - 1] for each in ("word", "key")]
            assert (pair, asked["sort"]) == (["S", "S"], "pair")
            assert int(asked["key"]) - 1 < reaction.index(">>") < int(asked["word"]) - 1
            continue
        start = "start" in asked
        _, statistics, _ = content(site, language, asked["sentence"] + start * MARKED[language])
        if start:
            assert asked["start"] == {"en": "1", "zh": "0"}[language]
        if asked.get("sort", "pair") != "pair":
            assert not np.isnan(statistics[asked["sort"]]).any()
            assert asked.keys() - {"start"} == {"sentence", "sort"}
            continue
        _, tokens, exact = words[asked["sentence"]]
        query, key = map(tokens.index, pronoun)
        assert asked["word"] == str(query + 1)
        if "sort" in asked:
            assert asked["key"] == str(key + 1)
            continue
        place = exact[:, query, key].argmax()
        assert asked["head"] == name_of(int(place), MODELS[language][2][1])


@each_language
def test_a_link_changes_the_state_and_back_leads_back(open_page, language):
    page, widget = opened(open_page, language)
    before = shown(widget)
    page.evaluate("window.notReloaded = true")
    page.locator("article a[href*='head=']").click()
    page.wait_for_function("location.search.includes('head=')")
    after = state(page)
    page.wait_for_function(
        "name => document.querySelector('[name=sentence]').value === name", arg=after["sentence"]
    )
    assert {**shown(widget), "sort": ""} == {**after, "sort": ""}
    page.go_back()
    page.wait_for_function(
        "name => document.querySelector('[name=sentence]').value === name", arg=before["sentence"]
    )
    assert shown(widget) == before
    assert page.evaluate("window.notReloaded")


def pair_of(widget):
    """The pressed query and key, counted from 0, and the numbers of the table's first row."""
    query, key = (
        widget.locator(f"{row} button").evaluate_all(
            "all => all.findIndex(each => each.ariaPressed === 'true')"
        )
        for row in (".mh-tokens:not(.mh-keys)", ".mh-keys")
    )
    return query, key, widget.locator("tr.mh-sorted td").all_inner_texts()


def check_pair(page, widget, site, language, file):
    """All that the widget says of the chosen pair is what the file has; the best head is shown."""
    (_, heads), causal = MODELS[language][2], MODELS[language][-1]
    header, _, whole = content(site, language, file)
    L = len(header["tokens"])
    weights = all_weights(whole, L, causal)
    query, key, row = pair_of(widget)
    numbers = weights[:, query, key]
    best = int(np.argsort(-numbers, kind="stable")[0])
    assert shown(widget)["head"] == name_of(best, heads)
    kept = state(page)
    assert (kept["word"], kept["key"], kept["sort"]) == (str(query + 1), str(key + 1), "pair")
    seen = np.tril(np.ones((L, L), bool)) if causal else np.ones((L, L), bool)
    place = int(seen[:query].sum()) + key
    low, high = (each[place] / 255 for each in header["pairs"])
    assert row[:2] == [f"{numbers[best]:.2f}", "1"]
    assert re.findall(r"\d\.\d\d", row[2]) == [f"{low:.2f}", f"{high:.2f}"]
    said = widget.locator(".mh-said[aria-live=polite]").inner_text()
    parts = [header["tokens"][query], header["tokens"][key], f"{numbers[best]:.2f}"]
    assert [part for part in parts if part not in said] == []
    others = [j for j in range(L) if seen[query, j] and j != key]
    more = sum(weights[:, query, j].max() >= numbers[best] for j in others)
    limit = re.findall(r"\d+\.\d+|\d+", widget.locator("form + p").inner_text())
    assert {str((numbers > high).sum()), str(more), str(len(others))} <= set(limit)


@each_language
def test_reader_sorts_by_a_pair_of_tokens_and_by_a_cell(open_page, site, language):
    page, widget = opened(open_page, language, "?sentence=pronoun")
    assert not widget.locator(".mh-keys").is_visible()
    widget.locator("[name=sort]").select_option("pair")
    query, key = (
        labels.index(x)
        for labels, x in zip(
            [content(site, language, "pronoun")[0]["tokens"]] * 2,
            {"en": ("▁it", "▁cup"), "zh": ("因为它", "杯")}[language],
            strict=True,
        )
    )
    tokens, keys = (
        widget.locator(".mh-tokens:not(.mh-keys) button"),
        widget.locator(".mh-keys button"),
    )
    tokens.nth(query).hover()  # a mouse on its way changes nothing
    before = shown(widget)
    keys.nth(key).hover()
    assert shown(widget) == before
    tokens.nth(query).click()
    keys.nth(key).click()
    assert pair_of(widget)[:2] == (query, key)
    check_pair(page, widget, site, language, "pronoun")
    drawing = widget.locator(".mh-large-map")
    drawing.scroll_into_view_if_needed()
    edge = drawing.locator(".mh-edge").bounding_box()
    L = tokens.count()
    page.mouse.click(
        *(edge[x] + edge[s] * (t + 0.5) / L for x, s, t in (("x", "width", 3), ("y", "height", 6)))
    )
    assert pair_of(widget)[:2] == (6, 3)
    check_pair(page, widget, site, language, "pronoun")
    drawing.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert pair_of(widget)[:2] == (7, 2)
    check_pair(page, widget, site, language, "pronoun")
    kept = state(page)
    page.reload()
    widget.scroll_into_view_if_needed()
    drawing.locator("rect").first.wait_for(state="attached")
    assert pair_of(widget)[:2] == (7, 2)
    assert state(page) == kept
    canvas = widget.locator("canvas")  # another head: the pair stays
    canvas.focus()
    page.keyboard.press("ArrowRight")
    assert pair_of(widget)[:2] == (7, 2)
    assert pair_of(widget)[2][1] == "2"


def test_a_hidden_pair_sorts_nothing_and_says_why(open_page):
    _, widget = opened(open_page, "en", "?sentence=pronoun&sort=pair&word=3&key=9")
    assert "The mask hides this key" in widget.locator("form + p").inner_text()
    widget.locator(".mh-keys button").nth(1).click()
    assert "of 270 heads" in widget.locator("form + p").inner_text()


@each_language
def test_reader_puts_the_start_mark_in_front_and_takes_it_away(open_page, site, language):
    page, widget = opened(open_page, language, "?sentence=name&word=5&sort=first")
    usual = {"en": False, "zh": True}[language]
    switch = widget.locator("[name=start]")
    assert switch.is_checked() is usual
    tokens = widget.locator(".mh-tokens button")
    before = tokens.all_inner_texts()
    switch.focus()
    page.keyboard.press("Space")
    page.wait_for_function("location.search.includes('start=')")
    after = tokens.all_inner_texts()
    long, short = (before, after) if usual else (after, before)
    assert long[1:] == short
    assert after == content(site, language, "name" + MARKED[language])[0]["tokens"]
    kept = state(page)
    assert kept["start"] == str(int(not usual))
    assert after[int(kept["word"]) - 1] == before[4], "the same word"
    values = content(site, language, "name" + MARKED[language])[1]["first"]
    assert widget.locator("tr.mh-sorted td").first.inner_text() in {f"{x:.2f}" for x in values}
    page.reload()
    widget.scroll_into_view_if_needed()
    widget.locator(".mh-large-map rect").first.wait_for(state="attached")
    assert widget.locator("[name=start]").is_checked() is not usual
    assert state(page) == kept
    widget.locator("[name=start]").click()
    page.wait_for_function("!location.search.includes('start=')")
    assert tokens.all_inner_texts() == before


@each_language
def test_reader_chooses_the_model_of_reactions_and_finds_the_head(open_page, site, language):
    """As the page asks: the sulphur of the product, and that of the reactant."""
    page, widget = opened(open_page, language, "?sentence=words&sort=first")
    widget.locator("[name=model]").select_option("RXNMapper")
    widget.locator("[name=start]").wait_for(state="hidden")
    page.wait_for_function("document.querySelectorAll('.mh-tokens button').length > 0")
    tokens = widget.locator(".mh-tokens:not(.mh-keys) button")
    read = tokens.all_inner_texts()
    assert state(page) == {"model": "RXNMapper"}
    assert widget.locator("[name=model]").evaluate("each => each === document.activeElement")
    widget.locator("[name=sort]").select_option("pair")
    arrow = read.index(">>")
    product, reactant = read.index("S", arrow), read.index("S")
    tokens.nth(product).click()
    widget.locator(".mh-keys button").nth(reactant).click()
    whole = content(site, language, "thioether", count=96)[2]
    numbers = all_weights(whole, len(read), False)[:, product, reactant]
    assert shown(widget)["head"] == name_of(int(numbers.argmax()), 8)
    assert shown(widget)["head"].endswith(".6")
    widget.locator("[name=model]").select_option(index=0)
    page.wait_for_function("!location.search.includes('model=')")
    assert state(page) == {}


@each_language
def test_a_pair_is_chosen_by_a_finger_on_a_phone(open_page, site, language):
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "device_scale_factor": 2}
    page, widget = opened(open_page, language, "?sentence=pronoun&sort=pair", **phone)
    for row, place in ((".mh-tokens:not(.mh-keys)", 6), (".mh-keys", 2)):
        button = widget.locator(f"{row} button").nth(place)
        button.scroll_into_view_if_needed()
        button.tap()
    assert pair_of(widget)[:2] == (6, 2)
    check_pair(page, widget, site, language, "pronoun")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_slow_file_does_not_replace_a_later_choice(open_page, site):
    page, widget = opened(open_page, "en")
    waiting = []
    page.route("**/code.bin", lambda route: waiting.append(route))
    widget.locator("[name=sentence]").select_option("code")
    widget.locator("[name=sentence]").select_option("list")
    page.wait_for_function("location.search.includes('sentence=list')")
    waiting[0].continue_()
    page.wait_for_timeout(300)
    assert shown(widget)["sentence"] == state(page)["sentence"] == "list"
    tokens = widget.locator(".mh-tokens button").all_inner_texts()
    assert tokens == content(site, "en", "list")[0]["tokens"]


def test_only_the_chosen_sentence_is_fetched(browser, home):
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page, fetched = context.new_page(), []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(home + "browse-heads/?sentence=list", wait_until="networkidle")
    page.locator(".mh-large-map rect").first.wait_for(state="attached")
    assert [url.split("/")[-1] for url in fetched if "/data/" in url] == ["about.json", "list.bin"]
    context.close()


@each_language
@pytest.mark.parametrize("missing", ["about.json", "name.bin"])
def test_a_missing_file_is_said_clearly(browser, home, language, missing):
    context = browser.new_context()
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.route(f"**/{missing}", lambda route: route.fulfill(status=404, body="nothing"))
    page.goto(home + address(language, PAGE), wait_until="load")
    said = page.locator("[data-widget=browse-heads] [role=alert]").inner_text()  # once it is there
    assert {"en": "The maps can't be shown", "zh": "无法显示注意力图"}[language] in said
    assert errors == []
    context.close()


@each_language
def test_a_finger_chooses_a_head_and_a_cell_on_a_phone(open_page, language):
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "device_scale_factor": 2}
    page, widget = opened(open_page, language, "?sentence=words&sort=first", **phone)
    first = shown(widget)
    canvas = widget.locator("canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 60)
    assert shown(widget)["head"] != first["head"]
    drawing = widget.locator(".mh-large-map")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    page.touchscreen.tap(box["x"] + 0.9 * box["width"], box["y"] + 0.6 * box["height"])
    assert shown(widget)["word"] != first["word"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@each_language
@pytest.mark.parametrize("system", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_browser(open_page, language, system):
    page, _ = opened(open_page, language, "?sentence=words&sort=pair&word=9", color_scheme=system)
    page.evaluate(axe())
    assert page.evaluate(VIOLATIONS, {}) == []


@each_language
def test_the_page_is_quiet_while_it_is_used(browser, home, site, language):
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page, noise = context.new_page(), []
    page.on("console", lambda m: m.type in ("error", "warning") and noise.append(m.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.goto(home + address(language, PAGE), wait_until="load")
    widget = page.locator("[data-widget=browse-heads]")
    widget.locator(".mh-large-map rect").first.wait_for(state="attached")
    for name in about(site, language)["sentences"]:
        widget.locator("[name=sentence]").select_option(name)
        page.wait_for_function("name => location.search.includes(`sentence=${name}`)", arg=name)
        for each in widget.locator("[name=sort] option:not([disabled])").all():
            widget.locator("[name=sort]").select_option(each.get_attribute("value"))
    page.set_viewport_size({"width": 360, "height": 700})
    page.wait_for_timeout(200)
    assert noise == []
    context.close()

"""Layers and heads of models that prose names are those that code computes or data has."""

import re
from functools import cache

import pytest
from mhsite.pages import navigation
from mhsite.pages.known_models import released
from mhsite.pages.page import page_paths, parse, read, spans
from mhsite.pages.settings import settings
from mhsite.stories.models import named_in
from mhsite.stories.source import DOCS, LANGUAGES, SourceError

from mhattn.costs import known_model, known_models

NUMBERS = {
    "en": {"two": 2, "three": 3, "four": 4, "six": 6, "eight": 8, "nine": 9, "ten": 10}
    | {"twelve": 12, "sixteen": 16, "thirty": 30},
    "zh": {sign: n for n, sign in enumerate("零一二三四五六七八九十")} | {"三十": 30},
}
COUNT = {
    "en": r"(?:\b(?P<n>\d[\d,]*)|\b(?:has|have|with|and) (?P<word>[a-z]+))[ -]"
    r"(?:attention |query |key-value |KV )*(?P<unit>layer|head)s?\b",
    "zh": r"(?:(?<!中的 )(?<![\d,])(?P<n>\d[\d,]*)|[有层、](?P<word>[二三四五六七八九十]+)(?=个))"
    r" ?个?(?:注意力|查询|键值)*(?P<unit>头(?!部)|层)",
}
UNITS = {"layer": "layers", "head": "heads", "层": "layers", "头": "heads"}
SENTENCE = {
    "en": r"(?<=[.!?])\s+(?=[A-Z*\[(])|\n\n|\n- ",
    "zh": r"(?<=[。！？；])|\n\n|\n- ",
}
# Models whose file a story reads, and what it then prints: layers, heads, key-value heads.
MODULE = r"(\d+) times MultiHeadAttention.*\n.* num_heads=(\d+), num_kv_heads=(\d+)"
PRINTED = {
    "SmolLM2": ("language-model", MODULE),
    "multilingual-e5-small": ("two-languages", MODULE),
    "RXNMapper": ("rxnmapper", r"one block, used (\d+) times; (\d+) heads()"),
}
FEW = 99  # a larger count on a page is of all heads of a model, or says here what it is of
OTHERS = {
    "circuits.md": {15 * 2 * 4},  # fifteen models
    "head-importance.md": {15 * 2 * 4},
    "head-statistics.md": {30 * 9},  # a question: as many as SmolLM2 has
    "syntax-or-meaning.md": {30 * 9 + 12 * 12},  # two models
    "try/index.md": {30 * 9},  # a card leads to the page
}


@cache
def trained():
    sizes = {}
    for name, (story, printed) in PRINTED.items():
        text = (DOCS / "stories" / f"{story}.pycon").read_text(encoding="utf-8")
        layers, heads, shared = (int(n or 0) for n in re.search(printed, text).groups())
        sizes[name] = {"layers": {layers}, "heads": {heads, shared or heads, layers * heads}}
    return sizes


@cache
def published():
    """By each beginning of a title: `GPT-3` has the sizes of all its models."""
    sizes = {}
    for model in map(known_model, known_models()):
        words = re.split(r"(?<=[^-])(?= |-(?=base|large))", model.title)
        for end in range(1, len(words) + 1):
            size = sizes.setdefault("".join(words[:end]), {"layers": set(), "heads": set()})
            size["layers"].add(model.layers)
            size["heads"] |= {model.num_heads, model.num_kv_heads}
    return sizes


@cache
def labels(language):
    """What the navigation calls each page."""

    def entries(nav):
        for label, inside in (
            pair for entry in nav if isinstance(entry, dict) for pair in entry.items()
        ):
            yield from [(inside, label)] if isinstance(inside, str) else entries(inside)

    return dict(entries(settings(language)["nav"]))


def sentences(page):
    """Line and text of each sentence of prose, headings, captions; what others say of the page."""
    if page.path.is_file():
        yield 0, navigation.description(page.name, page.language)
        yield 0, labels(page.language).get(page.name, "")
    for block in page.walk():
        text, at = block.text if block.kind == "prose" else block.title, 0
        for sentence in re.split(SENTENCE[page.language], text):
            at = text.index(sentence, at)
            yield block.line + text.count("\n", 0, at), " ".join(sentence.split())


def counts(sentence, language):
    for match in re.finditer(COUNT[language], sentence):
        digits = (match["n"] or "").replace(",", "")
        number = int(digits) if digits else NUMBERS[language].get(match["word"])
        if (number or 1) > 1:
            yield match[0], number, UNITS[match["unit"]]


def named_faults(page):
    """Sentences that name a model and a number of layers or heads that none of its name has."""
    sizes = published() | trained()
    names = re.compile("|".join(sorted(map(re.escape, sizes), key=len, reverse=True)))
    for line, sentence in sentences(page):
        known = trained() if "[@" in sentence else sizes  # what is cited, the source has
        named = [known[name] for name in names.findall(sentence) if name in known]
        if not named:
            continue
        for written, number, unit in counts(names.sub("it", sentence), page.language):
            if not any(number in size[unit] for size in named):
                yield f"{page.path}:{line}: {written!r}: {sentence[:150]}"


def sizes_read(page, sentence):
    """Sizes of the models that a page's story reads, or that of a page to which a sentence links.

    A page that reads none, such as the home page, may speak of those to which it links anywhere.
    """
    titles = {model.title for model in named_in(shown(page))}
    linking = [sentence] if titles else [text for _, text in sentences(page)]
    links = [span.value.partition("#")[0] for text in linking for span in spans(text)]
    paths = {(page.path.parent / link).resolve() for link in links if link.endswith(".md")}
    texts = [shown(read(path)) for path in paths if path.is_file()]
    titles |= {model.title for text in texts for model in named_in(text)}
    ours = [size for name, size in trained().items() if any(t.startswith(name) for t in titles)]
    known = {*re.findall(r'known_model\("(.+?)"', shown(page))} & {*known_models()}
    return ours + [published()[known_model(name).title] for name in known]


def shown(page):
    return "".join(block.section.text for block in page.walk() if block.kind == "include")


def count_faults(page):
    """Large counts of heads or layers that are of no model that the page reads or names."""
    printed = set(re.findall(r"\d+", shown(page).replace(",", "")))
    others = set().union(*(size["heads"] for size in trained().values()))
    for line, sentence in sentences(page):
        for written, number, unit in counts(sentence, page.language):
            if number <= FEW or number in OTHERS.get(page.name, ()) or "[@" in sentence:
                continue
            sizes = (published() | trained()).items()
            named = [size for name, size in sizes if name in sentence]
            if any(number in size[unit] for size in [*named, *sizes_read(page, sentence)]):
                continue
            if number in others or str(number) not in printed:
                yield f"{page.path}:{line}: {written!r}: {sentence[:150]}"


def pages(language):
    return [read(DOCS / language / path) for path in page_paths(language)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_layers_and_heads_of_a_model_that_a_sentence_names_are_its_own(language):
    assert [fault for page in pages(language) for fault in named_faults(page)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_large_counts_of_heads_are_of_the_model_that_the_page_reads(language):
    assert [fault for page in pages(language) for fault in count_faults(page)] == []


READS = '```pycon\n--8<-- "language-model.pycon:load"\n```\n'


@pytest.mark.parametrize(
    ("language", "text", "faults"),
    [
        ("en", "SmolLM2 has 30 layers of 9 heads and three KV heads.", []),
        ("en", "SmolLM2 has 32 layers.", ["32 layers"]),
        ("en", "SmolLM2 has eight heads.", ["has eight heads"]),
        ("en", "GPT-3 175B has 96 layers, BERT-base 12.", []),
        ("en", "GPT-3 175B has 97 layers.", ["97 layers"]),
        ("en", "DeepSeek-V2 has 64 heads [@deepseek2024].", []),
        ("en", "Gemma 3 layers look alike.", []),
        ("en", "What the 144 heads do.\n\n" + READS, ["144 heads"]),
        ("en", "What the 270 heads do.\n\n" + READS, []),
        ("en", "See [271 heads](language-model.md).", ["271 heads"]),
        ("zh", "SmolLM2 有 30 层，每层九个头、三个键值头。", []),
        ("zh", "SmolLM2 有 270 个头，每层八个头。", ["层八个头"]),
        ("zh", "144 个头在做什么。\n\n" + READS, ["144 个头"]),
        ("zh", "Qwen3-Next 每四层中有三层是线性的。", []),
    ],
)
def test_a_wrong_number_is_seen(language, text, faults):
    page = parse(f"# T {{ #t }}\n\n{text}\n", path=DOCS / language / "page.md")
    found = [*named_faults(page), *count_faults(page)]
    assert [fault.split(": ")[1].strip("'") for fault in found] == faults


def test_a_row_from_a_paper_has_the_papers_year():
    years = released()
    papers = {m.name: m.source for m in map(known_model, known_models()) if "arxiv" in m.source}
    assert len(papers) > 10
    for name, address in papers.items():
        assert years[name] == "20" + re.search(r"/abs/(\d\d)\d\d\.", address)[1], name


@pytest.mark.parametrize(
    ("lines", "why"),
    [('2018 = ["bert-base"]', "must have a year"), ('2018 = ["a", "a"]', "has two years")],
)
def test_a_model_without_a_year_or_with_two_stops_the_build(tmp_path, monkeypatch, lines, why):
    path = tmp_path / "released.toml"
    path.write_text(lines, encoding="utf-8")
    monkeypatch.setattr("mhsite.pages.known_models.RELEASED", path)
    with pytest.raises(SourceError, match=why):
        released()

"""Pages: equal skeletons in both languages, nothing unshown or unknown, clean Chinese prose."""

import copy
import functools
import importlib.util
import posixpath
import re
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pages
import pytest
from cases import every
from mhsite.pages import (
    bibliography,
    extension,
    glossary,
    link_targets,
    navigation,
    page as page_module,
    tables,
)
from mhsite.pages.page import page_paths, parse, read as read_page, skeleton, with_spans
from mhsite.pages.settings import settings
from mhsite.stories import keys
from mhsite.stories.source import DOCS, LABS, LANGUAGES, ROOT, STORIES, SourceError, sections

PAGES = [path.as_posix() for path in page_paths("en")]
SIDES = [(language, page) for language in LANGUAGES for page in PAGES]
FENCED = re.compile(
    r"^ *(?P<bar>`{3,}|~{3,}) *(?P<language>[\w-]*).*\n(?P<body>(?:.*\n)*?) *(?P=bar) *$", re.M
)

each_page = every("page", PAGES)
each_side = every("language, page", SIDES)


def read(language, page):
    return (DOCS / language / page).read_text(encoding="utf-8")


def parts(language, page, kind):
    return [part for part in skeleton(read_page(DOCS / language / page)) if part.kind == kind]


@functools.cache
def values(language, kind):
    return {part.value for page in PAGES for part in parts(language, page, kind)}


# Both languages


def test_both_languages_have_the_same_files():
    assert page_paths("en") == page_paths("zh")
    assert PAGES


@each_page
def test_both_languages_have_the_same_skeleton(page):
    assert pages.differences(Path(page)) == []


def paragraphs(blocks):
    """How many paragraphs and items of lists stand in each section, by its id."""
    counts, section = Counter(), ""
    for block in blocks:
        if block.kind == "heading":
            section = block.value
        elif block.kind == "prose":
            counts[section] += sum(
                map(bool, map(str.strip, re.split(r"\n\s*\n|\n *- ", block.text)))
            )
    return counts


@each_page
def test_both_languages_have_the_same_paragraphs(page):
    """Whose story has other data in Chinese may have more to say of them."""
    english, chinese = (paragraphs(read_page(DOCS / each / page).walk()) for each in LANGUAGES)
    if (STORIES / page.replace(".md", ".zh.pycon")).is_file():
        assert {section: n for section, n in english.items() if chinese[section] < n} == {}
    else:
        assert chinese == english


@pytest.mark.parametrize(("lines", "counted"), [(0, 5), (1, 4), (-1, 4)])
def test_a_missing_paragraph_is_seen(lines, counted):
    whole = ["One,\nin two lines.\n", "Two.\n", "- a\n- b\n", "Three: the last.\n"]
    kept = whole[: len(whole) - lines] if lines > 0 else whole[-lines:]
    blocks = parse("# Title { #t }\n\n" + "\n".join(kept)).walk()
    assert paragraphs(blocks) == {"t": counted}


@each_side
def test_every_heading_has_an_id_of_its_own(language, page):
    ids = [part.value.split()[1] for part in parts(language, page, "heading")]
    assert ids
    assert "None" not in ids, "a heading without { #id }"
    assert [slug for slug, count in Counter(ids).items() if count > 1] == []


@each_side
def test_code_comes_from_stories(language, page):
    text = read(language, page)
    fences = list(FENCED.finditer(text))
    assert len(fences) == len(parts(language, page, "fence")), "a fence of another kind"
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    for fence in fences:
        where = f"{page}:{text.count(chr(10), 0, fence.start()) + 1}"
        body = [line.strip() for line in fence["body"].splitlines()]
        if fence["language"] == "bash" and page == "index.md":
            assert set(body) <= {line.strip() for line in readme}, f"{where}: not in README.md"
            continue
        (block,) = parse(fence[0] + "\n").blocks
        assert block.kind == "include", f"{where}: code that is in no story"
        suffix = block.section.path.suffix
        assert fence["language"] == {".pycon": "pycon", ".py": "python"}[suffix], where


@each_side
def test_display_math_stands_on_lines_of_its_own(language, page):
    """Or the skeleton does not see it."""
    lines = [line.strip() for line in read(language, page).splitlines()]
    assert [line for line in lines if "$$" in line and line != "$$"] == []


# Nothing unshown, nothing unknown


@every("language", LANGUAGES)
@every("story", keys.all_stories())
def test_every_section_is_shown(story, language):
    shown = values(language, "include")
    file = story.name.replace(".zh.", ".")  # pages of both languages name the English one
    assert [name for name in sections(story) if f"{file}:{name}" not in shown] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_figure_is_shown(story_results, language):
    drawn = {
        f"{name.removesuffix('.zh')}/{svg.name}"
        for name, folder in story_results.items()
        for svg in folder.glob("*.svg")
    }
    shown = {value.split("figures/")[-1] for value in values(language, "figure")}
    assert drawn - shown == set(), "drawn, but on no page"
    assert {name for name in shown - drawn if not (DOCS / "assets" / name).is_file()} == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_bibliography_is_what_pages_cite(language):
    assert values(language, "citation") == set(bibliography.works())


# The bibliography

MOVING = re.compile(r"/(main|master|stable|latest|HEAD)/")
PINNED = re.compile(
    r"https://github\.com/[\w-]+/[\w.-]+/(blob/([0-9a-f]{40}|v\d[\w.]*)/.+|(issues|pull)/\d+)"
)
VERSIONED = {
    "docs.pytorch.org": "/docs/{torch}/",
    "huggingface/transformers/blob": "/blob/v{transformers}/",
}


def versions():
    """The packages that the site's numbers come from: torch 2.13, transformers 5.23.0."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    found = dict(re.findall(r"^([\w-]+)==([\d.]+)", text, re.M))
    return found | {"torch": ".".join(found["torch"].split(".")[:2])}


def work_faults(key, work):
    faults = []
    if set(work) != {"authors", "year", "title", "venue", "url"} or not all(work.values()):
        faults.append(f"{key}: fields {sorted(work)}")
    url = work["url"]
    if MOVING.search(url) or ("github.com" in url and not PINNED.fullmatch(url)):
        faults.append(f"{key}: {url} will show something else tomorrow")
    for place, pattern in VERSIONED.items():
        if place in url and pattern.format(**versions()) not in url:
            faults.append(f"{key}: {url} is another version than constraints.txt has")
    return faults


@every("key", bibliography.works())
def test_work_is_cited_as_it_was_read(key):
    assert work_faults(key, bibliography.works()[key]) == []


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("gpt2-code", "c2dae27c1029770cea40978813f17a5fd545b883", "master"),
        ("gpt2-code", "c2dae27c1029770cea40978813f17a5fd545b883", "c2dae27"),
        ("gpt2-code", "/blob/c2dae27c1029770cea40978813f17a5fd545b883/src/model.py", ""),
        ("qwen2-code", "/v5", "/v4"),
        ("pytorch-sdpa", "/2.", "/1."),
        ("pytorch-sdpa", "/2.13/", "/stable/"),
    ],
)
def test_link_that_moves_is_seen(key, old, new):
    work = bibliography.works()[key]
    assert old in work["url"]
    (fault,) = work_faults(key, work | {"url": work["url"].replace(old, new)})[:1]
    assert fault.startswith(f"{key}: https:")


def test_works_are_one_blank_line_apart():
    text = (DOCS / "data" / "bibliography.toml").read_text(encoding="utf-8")
    assert re.findall(r"[^\n]\n\[|\n{3,}", text) == []


def cited(text, language):
    return with_spans(text, lambda span: bibliography.citation(span, language, "#{}".format))


def test_chinese_citation_stands_without_spaces():
    text = "见 [@vaswani2017] [@clark2019] 已有。"
    made = "见（[Vaswani 等，2017](#vaswani2017)；[Clark 等，2019](#clark2019)）已有。"
    assert cited(text, "zh") == made
    made = "see ([Clark et al., 2019](#clark2019)) too"
    assert cited("see [@clark2019] too", "en") == made


# The glossary

NEEDED = {"id", "en", "zh", "meaning_en", "meaning_zh", "page"}
OPTIONAL = {"symbol", "code", "torch", "hf", "paper", "also", "also_zh"}
CITED_NAME = re.compile(r"[\w` -]+ \[@(?P<key>[\w-]+)\]")


def glossary_faults(groups):
    terms = [term for group in groups for term in group["term"]]
    faults = []
    for term in terms:
        if not NEEDED <= set(term) <= NEEDED | OPTIONAL or not all(term.values()):
            faults.append(f"{term.get('id')}: fields {sorted(term)}")
    for entry in [*groups, *terms]:
        if not re.fullmatch("[a-z][a-z0-9-]*", entry.get("id", "")):
            faults.append(f"{entry.get('id')}: not an id")
    for key in ("id", "en", "zh", "symbol", "code"):
        found = [term[key] for term in terms if key in term]
        found += [group[key] for group in groups if key == "id"] + ["glossary"] * (key == "id")
        names = [name for each in found for name in ([each] if isinstance(each, str) else each)]
        counts = Counter(name if key == "symbol" else name.casefold() for name in names)
        faults += [f"{name}: twice as {key}" for name, count in counts.items() if count > 1]
    for term in terms:
        for language in LANGUAGES:
            chinese = re.search("[一-鿿]", term.get(f"meaning_{language}", ""))
            if bool(chinese) != (language == "zh"):
                faults.append(f"{term.get('id')}: meaning_{language} is not in that language")
            try:
                navigation.title(term.get("page", ""), language)
            except SourceError as error:
                faults.append(f"{term.get('id')}: {error}")
        for name in term.get("paper", []):
            cited = CITED_NAME.fullmatch(name)
            if not cited or cited["key"] not in bibliography.works():
                faults.append(f"{term.get('id')}: no paper is cited for {name}")
    return faults


def test_glossary_is_complete():
    assert glossary_faults(glossary.groups()) == []


def without(key):
    return lambda term: term.pop(key)


def having(**fields):
    return lambda term: term.update(fields)


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (without("id"), "not an id"),
        (having(id="注意力"), "not an id"),
        (having(id="query"), "query: twice as id"),
        (having(id="group-masks"), "group-masks: twice as id"),
        (having(en="Query"), "query: twice as en"),
        (having(code=["query"]), "query: twice as code"),
        (without("meaning_zh"), "fields"),
        (having(meaning_zh="Each query."), "meaning_zh is not in that language"),
        (having(meaning_en=""), "fields"),
        (without("page"), "fields"),
        (having(page="nosuch.md"), "there is no page nosuch.md"),
        (having(page="masks.md#nosuch"), "masks.md has no heading #nosuch"),
        (having(elsewhere=["logits"]), "fields"),
        (having(paper=["energy"]), "no paper is cited for energy"),
        (having(paper=["energy [@nosuch]"]), "no paper is cited for energy"),
    ],
)
def test_fault_of_a_term_is_seen(damage, fault):
    groups = copy.deepcopy(glossary.groups())
    assert groups[0]["term"][0]["id"] == "attention"
    damage(groups[0]["term"][0])
    assert [found for found in glossary_faults(groups) if fault in found]


def words_of(*files):
    return {w for file in files for w in re.findall(r"\w+", file.read_text(encoding="utf-8"))}


def names_used_by(key):
    return {
        name for group in glossary.groups() for term in group["term"] for name in term.get(key, [])
    }


def test_names_in_code_are_the_packages_own():
    assert names_used_by("code") - words_of(*(ROOT / "mhattn").rglob("*.py")) == set()


def test_names_in_pytorch_are_its_own():
    folder = Path(importlib.util.find_spec("torch").origin).parent
    files = [folder / "_tensor_docs.py", folder / "utils" / "flop_counter.py"]
    files += [folder / "distributed" / "distributed_c10d.py"]
    files += (folder / "distributed" / "tensor").rglob("*.py")
    assert names_used_by("torch") - words_of(*files, *(folder / "nn").rglob("*.py")) == set()


def test_names_in_hugging_face_are_its_own():
    spec = importlib.util.find_spec("transformers")
    if spec is None:
        pytest.skip("transformers is not installed")
    folder = Path(spec.origin).parent
    models = (
        "bart bert bloom deepseek_v3 deepseek_v4 falcon gemma2 gpt2 gpt_neox gpt_oss inkling2 "
        "llama phi3 qwen3_next t5"
    )
    files = [folder / "cache_utils.py", folder / "tokenization_utils_base.py"]
    files += [folder / "data" / "data_collator.py", *(folder / "generation").glob("*.py")]
    files += [file for name in models.split() for file in (folder / "models" / name).glob("*.py")]
    assert names_used_by("hf") - words_of(*files) == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_glossary_names_the_versions(language):
    torch, transformers = versions()["torch"], versions()["transformers"].rsplit(".", 1)[0]
    text = read(language, "glossary.md")
    assert f"PyTorch {torch}" in text
    assert f"transformers {transformers}" in text


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "target",
    [
        "glossary.md#query",
        "glossary.md#group-masks",
        "bibliography.md#vaswani2017",
        "known-models.md#bert-base",
        "masks-in-practice.md#padding",
    ],
)
def test_terms_works_and_models_can_be_linked(target, language):
    page = read_page(DOCS / language / "index.md")
    link_targets.check_link(target, page)
    with pytest.raises(SourceError, match="has no heading #nosuch"):
        link_targets.check_link(target.split("#")[0] + "#nosuch", page)


# A page is parsed once, and everything is made of that


@each_side
def test_blocks_are_the_whole_page(language, page):
    def text(blocks):
        ends = {block: f"{block.mark}\n" for block in blocks if block.kind == "block"}
        return "".join(b.text + text(b.blocks) + ends.get(b, "") for b in blocks)

    assert text(read_page(DOCS / language / page).blocks) == read(language, page)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_title_of_a_page_tells_which_page_it_is(language):
    for page in PAGES:
        assert extension.source(read(language, page), language) == DOCS / language / page
    assert extension.source("# New { #nosuch }\n", language) is None
    assert extension.source("A docstring.\n", language) is None


FAULTY = """\
# Title { #title }

See [two](masks-in-practice.md#idea), [@vaswani2017], $x$.

```pycon
--8<-- "masks-in-practice.pycon:causal"
```

![a line](figures/masks-in-practice/picture-figure.svg)

<!-- bibliography -->

<!-- widget shape-tracer -->

/// details | Why [@vaswani2017]?
    type: question
$$
\\query{Q} = 1
$$
///
"""


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("old", "new", "line", "why"),
    [
        ("masks-in-practice.md", "nosuch.md", 3, "there is no page nosuch.md"),
        ("#idea", "#nosuch", 3, "masks-in-practice.md has no heading #nosuch"),
        ("#idea", "?a=b#nosuch", 3, "masks-in-practice.md has no heading #nosuch"),
        ("masks-in-practice.md#idea", "?a=b#nosuch", 3, "this page has no heading #nosuch"),
        ("masks-in-practice.md#idea", "#nosuch", 3, "this page has no heading #nosuch"),
        ("017], $", "017]\n[@nosuch], $", 3, r"\[@nosuch\] is not in docs/data/bibliography.toml"),
        ("$x$", "\n$\\nosuch$", 4, r"\\nosuch"),
        (":causal", ":nosuch", 5, "there is no section 'nosuch'"),
        ("masks-in-practice.pycon", "nosuch.pycon", 5, "there is no file 'nosuch.pycon'"),
        ("picture-figure", "nosuch", 9, "no story draws figures/masks-in-practice/nosuch.svg"),
        ("-- b", "-- nosuch b", 11, "names no table"),
        ("-- bibliography", "-- bibliography | a", 11, "names no table"),
        (
            "bibliography -->",
            "measured nosuch | a -->",
            11,
            "no docs/data/measured/<device>/nosuch.json",
        ),
        ("bibliography -->", "measured packing | a -->", 11, r"packing has columns "),
        ("bibliography -->", "models | a -->", 11, r"models has 16 columns, got headings \['a'\]"),
        ("shape-tracer", "nosuch", 13, "there is no docs/assets/nosuch.js"),
        ("Why [@v", "Why [@nov", 15, r"\[@novaswani2017\] is not in"),
        ("Q} =", "Q =", 17, r"\\query\{Q = 1"),
        ("1\n$$", "1\n", 17, r"\$\$ has no end"),
        ("\n///\n", "\n", 15, "/// details .* has no end"),
        ('causal"\n```', 'causal"\n', 5, "```pycon has no end"),
    ],
)
def test_fault_of_a_page_is_named_by_file_and_line(story_results, language, old, new, line, why):
    assert old in FAULTY
    path = DOCS / language / "faulty.md"
    extension.check(parse(FAULTY, path))
    where = re.escape(f"{path}:{line}: ")
    with pytest.raises(SourceError, match=f"(?s)^{where}.*{why}"):
        extension.check(parse(FAULTY.replace(old, new), path))


# Models


SOURCES = {
    "en": {"owner": "owner", "library": "library", "paper": "paper"},
    "zh": {"owner": "官方", "library": "软件库", "paper": "论文"},
}
SIZE_AND_KV_HEADS = {  # of those whose layers are of two kinds, or values narrower than keys
    "gemma-4-e2b": ("256, 512", "1"),
    "gemma-4-e4b": ("256, 512", "2"),
    "gemma-4-26b-a4b": ("256, 512", "8, 2"),
    "gemma-4-31b": ("256, 512", "16, 4"),
    "inkling": ("128", "16, 8"),
    "mimo-v2-flash": ("192 / 128", "8, 4"),
}
# Parameters, active ones; Ki tokens; KiB, GiB; what layers see, rotary base, what else.
BY_HAND = {
    "bert-base": ["0.109", "0.109", "0.5", "–", "–", "all", "–", "–"],
    "llama-3.1-8b": ["8.03", "8.03", "128", "128", "16", "all", "500k", "–"],
    "deepseek-v2": ["236", "21.4", "–", "67.5", "8.44", "all", "10k", "64 numbers turned"],
    "gpt-3-175b": ["175", "175", "2", "4608", "–", "all", "–", "–"],
    "gpt-3-xl": ["*1.3*", "–", "2", "288", "–", "all", "–", "–"],
    "gemma-2-9b": [
        *["9.24", "9.24", "8", "336", "21.7", "21 × 4096, 21 × all", "10k", "soft-capping at 50"]
    ],
    "gemma-3-27b": ["27", "27", "128", "496", "10.4", "52 × 1024, 10 × all", "10k, 1M", "QK-norm"],
    "qwen3-next-80b-a3b": [
        *["79.7", "3.87", "–", "24", "3.04", "36 × linear, 12 × all", "10M"],
        "QK-norm, 64 numbers turned",
    ],
    "kimi-k2": ["1030", "32.9", "128", "68.6", "8.58", "all", "50k", "64 numbers turned"],
    "deepseek-v4-flash": [
        *["284", "13.8", "1024", "49.7", "0.845", "2 × 128, 21 × 128 + 4:1, 20 × 128 + 128:1"],
        *["10k, 160k", "QK-norm, learned sinks, 512 chosen keys, 64 numbers turned"],
    ],
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_models_are_shown_as_their_file_has_them(language):
    headings = [chr(ord("a") + i) for i in range(16)]
    (block,) = parse(f"<!-- models | {' | '.join(headings)} -->\n").blocks
    made = tables.table(block, language, str)
    rows = [line.strip("| ").split(" | ") for line in made.splitlines()]
    assert [re.sub("<[^>]*>", "", heading) for heading in rows[0]] == headings
    models = tomllib.loads(
        (ROOT / "mhattn" / "costs" / "model_sizes.toml").read_text(encoding="utf-8")
    )
    years = tomllib.loads((DOCS / "data" / "released.toml").read_text(encoding="utf-8"))
    assert list(years) == sorted(years, reverse=True)
    newest_first = [name for year in years for name in models if name in years[year]]
    for row, name in zip(rows[2:], newest_first, strict=True):
        model = models[name]
        start, end = f'<span class="mh-model" id="{name}" data-is="', f'">{model["title"]}</span>'
        assert row[0].startswith(start)
        assert row[0].endswith(end)
        assert name in years[row[1]]
        assert row[2] == str(model["num_heads"])
        assert row[10:12] == [str(model["layers"]), str(model["embed_dim"])]
        size = model.get("head_dim") or model["qk_nope_head_dim"] + model["qk_rope_head_dim"]
        bold = "" if model["num_heads"] * size == model["embed_dim"] else "**"
        latent = "" if "head_dim" in model else f" / {model['v_head_dim']}"
        usual = f"{size}{latent}", str(model.get("num_kv_heads", "–"))
        size, kv_heads = SIZE_AND_KV_HEADS.get(name, usual)
        assert (row[4], row[3]) == (f"{bold}{size}{bold}", kv_heads)
        word = SOURCES[language][model["source_kind"]]
        first, *more = re.split(r" (?=\[\+\])", row[9])
        assert first == f"[{word}]({model['source']})"
        assert [re.match(r"\[\+\]\((.+?)\)", link)[1] for link in more] == [
            *model.get("more_sources", ())
        ]
        labels = [re.search(r'aria-label="(.+)"', link)[1] for link in more]
        assert len({*labels}) == len(labels)
        assert all(label.startswith(model["title"]) for label in labels)
    if language == "en":
        shown = 6, 7, 12, 13, 8, 5, 14, 15  # in the order of BY_HAND
        found = {row[0].split('"')[3]: [row[i] for i in shown] for row in rows[2:]}
        for row in found.values():
            row[0] = re.sub(r"\[(.+)\]\(https:.+\)", r"\1", row[0])
        assert {name: found[name] for name in BY_HAND} == BY_HAND


# Navigation


def nav_with_titles(language):
    def walk(items, titles):
        for item in items:
            if isinstance(item, str):
                yield titles, item
                continue
            for title, below in item.items():
                yield from walk([below] if isinstance(below, str) else below, (*titles, title))

    return list(walk(settings(language)["nav"], ()))


def test_navigation_leads_to_every_page_in_both_languages():
    english, chinese = nav_with_titles("en"), nav_with_titles("zh")
    assert sorted(page for _, page in english) == sorted(PAGES)
    for (words, _), (titles, page) in zip(english, chinese, strict=True):
        assert all(re.search("[一-鿿]", title) for title in titles), page
        assert not any(re.search("[一-鿿]", word) for word in words), page


@pytest.mark.parametrize("language", LANGUAGES)
def test_next_is_the_next_page_of_the_navigation(language):
    order = [page for _, page in nav_with_titles(language) if not page.endswith("index.md")]
    named = {}
    for page in order:
        text = (DOCS / language / page).read_text("utf-8")
        if found := re.search(r"\*\*(?:Next:|下一页：)\*\* ?\[[^]]*\]\(([\w/-]+\.md)", text):
            named[page] = posixpath.normpath(posixpath.join(posixpath.dirname(page), found[1]))
    assert len(named) > 50
    assert named == {page: after for page, after in pairwise(order) if page in named}


# Chinese prose

CODE_OR_MATH = re.compile(r"(`+).+?\1|\$[^$\n]+\$|<[^>]+>|\{ [#.:][^}]*\}|https?://[^\s)>]+")
FAULTS = {
    "half-width punctuation": re.compile("[一-鿿”’）》][,;:?!]"),
    "no space beside Latin": re.compile("[一-鿿][A-Za-z0-9]|[A-Za-z0-9%][一-鿿]"),
}


def prose(text):
    """The page with its lines, but without code, math, options and the targets of links."""
    text = FENCED.sub(lambda match: "\n" * match[0].count("\n"), text)
    text = re.sub(r"^\$\$$.*?^\$\$$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
    text = re.sub(r"^(--8<--.*|:::.*|    [\w-]+: .*)$|^/{3,} [\w-]+( \|)?", "", text, flags=re.M)
    text = CODE_OR_MATH.sub("�", text)
    text = re.sub(r"\[@[\w-]+\]", "Vaswani et al., 2017", text)
    text = re.sub(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])?", r"\1", text)
    return re.sub(r"\*+|\b_|_\b", "", text)


def prose_faults(text):
    lines = enumerate(prose(text).splitlines(), 1)
    return [
        f"line {number}: {fault}: {line[max(0, found.start() - 8) : found.end() + 8]}"
        for number, line in lines
        for fault, pattern in FAULTS.items()
        for found in pattern.finditer(line)
    ]


@each_page
def test_chinese_page_is_typeset_well(page):
    assert prose_faults(read("zh", page)) == []


def test_chinese_data_is_typeset_well():
    groups = glossary.groups()
    words = [group["zh"] for group in groups]
    words += [term[key] for g in groups for term in g["term"] for key in ("zh", "meaning_zh")]
    words += [glossary.other_names(term, "zh") for group in groups for term in group["term"]]
    words += [title for titles, _ in nav_with_titles("zh") for title in titles]
    assert [fault for word in words for fault in prose_faults(word)] == []


@pytest.mark.parametrize(
    "text",
    ["先看,再想", "为什么?", "注意:", "用softmax算", "第3 步", "**权重**and", "见[softmax](x.md)"],
)
def test_bad_chinese_is_seen_with_its_line(text):
    assert prose_faults(f"# 题目 {{ #title }}\n\n{text}\n")[0].startswith("line 3: ")


@pytest.mark.parametrize(
    "text",
    [
        "先看，再想：为什么？",
        "用 softmax 算，第 3 步",
        "看`a`和$b$，见[分数](attention.md#scores)",
        '```python\n--8<-- "a,b.py:注意:x"\n```',
        "$$\n\\text{分数:a}\n$$",
        "/// details | 为什么？\n    type: question\n（[@vaswani2017]）\n///",
    ],
)
def test_good_chinese_passes(text):
    assert prose_faults(text) == []


# The skeleton sees every kind of difference, and the fixer repairs four of them

PAGE = """\
# Title { #title }

See [masks](masks.md) and [@vaswani2017].

```python
--8<-- "mhattn/core/masks.py:causal"
```

$$
a = b
$$

## Two { #two }

![alt](figures/masks/one.svg)

/// details | Why?
    type: question
Because of [scores](attention.md).
///

::: mhattn.core.masks
"""


def edited(old, new):
    assert old in PAGE
    return PAGE.replace(old, new)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A project of one page in two languages, which `pages` takes for this one."""
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    for module in (pages, page_module):
        monkeypatch.setattr(module, "DOCS", tmp_path / "docs")
    for language in LANGUAGES:
        (tmp_path / "docs" / language).mkdir(parents=True)
        (tmp_path / "docs" / language / "a.md").write_text(PAGE, encoding="utf-8")
    return tmp_path / "docs"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("## Two", "### Two"),
        ("#two }", "#zwei }"),
        (" { #two }", ""),
        (":causal", ":window"),
        ('```python\n--8<-- "mhattn/core/masks.py:causal"\n```\n', ""),
        ("```python", "```text"),
        ("a = b", "a = c"),
        ("$$\na = b\n$$\n", ""),
        ("one.svg", "two.svg"),
        ("masks.md", "shapes.md"),
        ("[@vaswani2017]", "[@clark2019]"),
        (" and [@vaswani2017]", ""),
        ("/// details", "/// note"),
        ("::: mhattn.core.masks", "::: mhattn.costs.attention"),
        ("\n$$\na", "\n```text\nloose code\n```\n\n$$\na"),
    ],
)
def test_difference_is_seen(tree, old, new):
    (tree / "zh" / "a.md").write_text(edited(old, new), encoding="utf-8")
    (found,) = pages.differences(Path("a.md"))
    assert "a.md" in found


def test_words_and_order_within_a_section_are_free(tree):
    text = edited(
        "See [masks](masks.md) and [@vaswani2017]", "见 [@vaswani2017] 与[掩码](masks.md)"
    )
    (tree / "zh" / "a.md").write_text(text.replace("Why?", "为什么？"), encoding="utf-8")
    assert pages.differences(Path("a.md")) == []


@pytest.mark.parametrize(("asked", "other"), [("?head=1.1", "?head=2.2"), ("?head=1.1", "")])
def test_what_a_link_asks_a_widget_for_is_free(tree, asked, other):
    for language, query in zip(LANGUAGES, (asked, other), strict=True):
        text = edited("(masks.md)", f"(masks.md{query}#idea)")
        (tree / language / "a.md").write_text(text, encoding="utf-8")
    assert pages.differences(Path("a.md")) == []
    text = edited("(masks.md)", f"(masks.md{other}#causal)")
    (tree / "zh" / "a.md").write_text(text, encoding="utf-8")
    assert pages.differences(Path("a.md"))


def test_addresses_elsewhere_are_compared_whole(tree):
    for language, query in zip(LANGUAGES, ("a", "b"), strict=True):
        text = edited("(masks.md)", f"(https://a.example/?{query})")
        (tree / language / "a.md").write_text(text, encoding="utf-8")
    assert pages.differences(Path("a.md"))


def test_link_in_another_section_is_a_difference(tree):
    moved = edited("[masks](masks.md) and ", "").replace("Because", "[masks](masks.md) Because")
    (tree / "zh" / "a.md").write_text(moved, encoding="utf-8")
    assert pages.differences(Path("a.md"))


def test_missing_page_is_a_difference(tree):
    (tree / "zh" / "a.md").unlink()
    assert pages.differences(Path("a.md")) == ["docs/zh/a.md: this page is missing"]


def test_parts_know_their_lines():
    found = {part.value: part.line for part in skeleton(parse(PAGE))}
    assert found["masks.md"] == 3
    assert found["mhattn/core/masks.py:causal"] == 6
    assert found["figures/masks/one.svg"] == 15


def test_code_and_formulas_hide_no_links():
    text = "`[a](b.md)`\n\n$$\n[c](d.md)\n$$\n\n```text\n[@e]\n```\n"
    kinds = {part.kind for part in skeleton(parse(text))}
    assert kinds == {"math", "fence", "code"}


@pytest.mark.parametrize(
    ("old", "new"),
    [("#two }", "#zwei }"), (":causal", ":kausal"), ("a = b", "a =\nc"), ("one.svg", "eins.svg")],
)
def test_fix_repairs_and_keeps_the_prose(tree, old, new):
    page = tree / "zh" / "a.md"
    page.write_text(edited(old, new).replace("Because of", "因为"), encoding="utf-8")
    pages.fix(page)
    assert page.read_text(encoding="utf-8") == PAGE.replace("Because of", "因为")


def test_fix_repairs_english_too(tree):
    page = tree / "en" / "a.md"
    page.write_text(edited("#two }", "#zwei }"), encoding="utf-8")
    pages.fix(page)
    assert page.read_text(encoding="utf-8") == PAGE


def test_fix_refuses_to_guess(tree):
    page = tree / "zh" / "a.md"
    page.write_text(edited("$$\na = b\n$$\n", ""), encoding="utf-8")
    with pytest.raises(SourceError, match="equally many formulas"):
        pages.fix(page)
    assert "a = b" not in page.read_text(encoding="utf-8")


def test_story_folders_hold_nothing_else():
    known = set(keys.all_stories())
    catalogs = {path.with_name(f"{path.stem}.zh.po") for path in known}
    files = {p for folder in (STORIES, LABS) for p in folder.iterdir() if p.is_file()}
    assert files - catalogs == known

"""Pages: equal skeletons in both languages, nothing unshown or unknown, clean Chinese prose."""

import json
import re
import tomllib
from collections import Counter
from pathlib import Path

import measure
import pages
import pytest
import stories
import tables
import yaml
from snippets import DOCS, LABS, LANGUAGES, ROOT, SNIPPETS, sections

PAGES = [path.as_posix() for path in pages.page_paths("en")]
SIDES = [(language, page) for language in LANGUAGES for page in PAGES]
FENCED = re.compile(
    r"^ *(?P<bar>`{3,}|~{3,}) *(?P<language>[\w-]*).*\n(?P<body>(?:.*\n)*?) *(?P=bar) *$", re.M
)

each_page = pytest.mark.parametrize("page", PAGES)
each_side = pytest.mark.parametrize(("language", "page"), SIDES)


def read(language, page):
    return (DOCS / language / page).read_text(encoding="utf-8")


def parts(language, page, kind):
    return [part for part in pages.skeleton(read(language, page)) if part.kind == kind]


def values(language, kind):
    return {part.value for page in PAGES for part in parts(language, page, kind)}


# Both languages


def test_both_languages_have_the_same_files():
    assert pages.page_paths("en") == pages.page_paths("zh")
    assert PAGES


@each_page
def test_both_languages_have_the_same_skeleton(page):
    assert pages.differences(Path(page)) == []


@each_side
def test_every_heading_has_an_id_of_its_own(language, page):
    ids = [part.value.split()[1] for part in parts(language, page, "heading")]
    assert ids
    assert "None" not in ids, "a heading without { #id }"
    assert [slug for slug, count in Counter(ids).items() if count > 1] == []


@each_side
def test_code_comes_from_snippet_files(language, page):
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
        assert len(body) == 1, f"{where}: code outside the snippet files"
        include = pages.INCLUDE.match(body[0])
        assert include, f"{where}: code outside the snippet files"
        suffix = Path(include["target"].split(":")[0]).suffix
        assert fence["language"] == {".pycon": "pycon", ".py": "python"}[suffix], where


@each_side
def test_display_math_stands_on_lines_of_its_own(language, page):
    """Or the skeleton does not see it."""
    lines = [line.strip() for line in read(language, page).splitlines()]
    assert [line for line in lines if "$$" in line and line != "$$"] == []


# Nothing unshown, nothing unknown


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("story", stories.all_stories(), ids=lambda story: story.name)
def test_every_section_is_shown(story, language):
    shown = values(language, "include")
    assert [name for name in sections(story) if f"{story.name}:{name}" not in shown] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_figure_is_shown(story_results, language):
    drawn = {
        f"{n}/{svg.name}" for n, folder in story_results.items() for svg in folder.glob("*.svg")
    }
    shown = {value.split("figures/")[-1] for value in values(language, "figure")}
    assert drawn - shown == set(), "drawn, but on no page"
    assert {name for name in shown - drawn if not (DOCS / "assets" / name).is_file()} == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_bibliography_is_what_pages_cite(language):
    assert values(language, "citation") == set(tables.bibliography())


def test_glossary_is_complete():
    needed = {"en", "zh", "meaning_en", "meaning_zh"}
    terms = tables.glossary()
    for term in terms:
        assert needed <= set(term) <= needed | {"symbol", "code", "elsewhere"}, term
        assert all(term.values()), term
        assert re.search("[一-鿿]", term["zh"] + term["meaning_zh"]), term
    for key in ("en", "zh", "symbol", "code"):
        found = [term[key] for term in terms if key in term]
        names = [name for each in found for name in ([each] if isinstance(each, str) else each)]
        counts = Counter(name.casefold() for name in names)
        assert [name for name, count in counts.items() if count > 1] == [], key


@pytest.mark.parametrize("language", LANGUAGES)
def test_models_are_shown_as_their_file_has_them(language):
    headings = " | ".join("abcdefgh")
    made = tables.with_tables(f"<!-- models | {headings} -->", language, str)
    rows = [line.strip("| ").split(" | ") for line in made.splitlines()]
    assert rows[0] == list("abcdefgh")
    data = tomllib.loads((ROOT / "mhattn" / "models.toml").read_text(encoding="utf-8"))
    for row, (name, model) in zip(rows[2:], data.items(), strict=True):
        assert row[0] == f'<span class="mh-model" id="{name}">{model["title"]}</span>'
        assert row[1:4] == [str(model[key]) for key in ("layers", "embed_dim", "num_heads")]
        assert row[4] == str(model.get("num_kv_heads", "–"))
        size = model.get("head_dim", 192)
        bold = "" if model["num_heads"] * size == model["embed_dim"] else "**"
        assert row[5] == f"{bold}{size}{'' if 'head_dim' in model else ' / 128'}{bold}"
        word = tables.SOURCES[language][model["source_kind"]]
        assert row[7] == f"[{word}]({model['source']})"
    cache = {row[0].split('"')[3]: row[6] for row in rows[2:]}
    by_hand = {"bert-base": "–", "llama-3.1-8b": "128", "deepseek-v2": "67.5", "gpt-3-175b": "4608"}
    assert {name: cache[name] for name in by_hand} == by_hand


def measured_files():
    return sorted((DOCS / "data" / "measured").glob("*.json"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_measurements_are_what_pages_show(language):
    kind = "measured "
    shown = {v.removeprefix(kind) for v in values(language, "table") if v.startswith(kind)}
    assert shown == {file.stem for file in measured_files()} == set(measure.BENCHMARKS)


@pytest.mark.parametrize("file", measured_files(), ids=lambda file: file.stem)
def test_measurements_say_where_they_come_from(file):
    found = json.loads(file.read_text(encoding="utf-8"))
    assert set(found) == {"provenance", "columns", "units", "rows"}
    assert set(found["provenance"]) == set(measure.provenance(1))
    assert all(found["provenance"].values())
    assert "dirty" not in found["provenance"]["commit"], "measured with code that is in no commit"
    assert set(found["units"]) <= set(found["columns"])
    for row in found["rows"]:
        assert len(row) == len(found["columns"])
        for median, low, high in (value for value in row if isinstance(value, list)):
            assert low <= median <= high


@pytest.mark.parametrize("file", measured_files(), ids=lambda file: file.stem)
def test_measurements_link_to_the_code_that_made_them(file):
    base, _, script = tables.code_url(file.stem, "1234567-dirty").rpartition("/")
    assert base.endswith("/blob/1234567/scripts")
    code = (ROOT / "scripts" / script).read_text(encoding="utf-8")
    assert code.count(f"\ndef {file.stem.replace('-', '_')}(rounds: int) -> dict:\n") == 1
    with pytest.raises(tables.BadTable, match="no script has a benchmark 'nosuch'"):
        tables.code_url("nosuch", "1234567")


def test_a_measurement_is_written_whole_and_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "FOLDER", tmp_path / "measured")
    found = {"provenance": {"device": "处理器"}, "columns": ["n"], "units": {}, "rows": [[1], [2]]}
    measure.write("name", found)
    (file,) = (tmp_path / "measured").iterdir()
    assert (file.name, json.loads(file.read_text(encoding="utf-8"))) == ("name.json", found)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4096, "", "4,096"),
        ("naive", "", "naive"),
        ([1.519, 1.5, 1.61], "", "1.52 (1.50–1.61)"),
        ([0.0153, 0.015, 0.0161], "", "0.0153 (0.015–0.0161)"),
        ([0.001519, 0.0015, 0.00161], "seconds", "1.52 ms (1.50–1.61)"),
        ([0.0001519, 0.0000951, 0.00161], "seconds", "152 µs (95.1–1,610)"),
        ([2.5, 2.25, 3.0], "seconds", "2.50 s (2.25–3.00)"),
        ([9.11e10, 9.0e10, 9.2e10], "flops_per_second", "91.1 GFLOP/s (90.0–92.0)"),
        (1536, "bytes", "1.50 KiB"),
        (7 * 2**20, "bytes", "7.00 MiB"),
    ],
)
def test_measurements_are_written_as_people_write_them(value, unit, text):
    assert tables.cell(value, unit) == text


# Navigation


class AnyTag(yaml.SafeLoader):
    """Reads mkdocs.yml without obeying its tags."""


AnyTag.add_multi_constructor("!", lambda loader, suffix, node: None)


def navigation(file):
    def walk(items, titles):
        for item in items:
            if isinstance(item, str):
                yield titles, item
                continue
            for title, below in item.items():
                yield from walk([below] if isinstance(below, str) else below, (*titles, title))

    return list(walk(yaml.load((ROOT / file).read_text(encoding="utf-8"), AnyTag)["nav"], ()))


def test_navigation_leads_to_every_page_in_both_languages():
    english, chinese = navigation("mkdocs.yml"), navigation("docs/zh.yml")
    assert sorted(page for _, page in english) == PAGES
    assert [page for _, page in chinese] == [page for _, page in english]
    assert [len(titles) for titles, _ in chinese] == [len(titles) for titles, _ in english]
    for (words, _), (titles, page) in zip(english, chinese, strict=True):
        assert all(re.search("[一-鿿]", title) for title in titles), page
        assert not any(re.search("[一-鿿]", word) for word in words), page


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
    text = pages.CITATION.sub("Vaswani et al., 2017", text)
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
    words = [term[key] for term in tables.glossary() for key in ("zh", "meaning_zh")]
    words += [title for titles, _ in navigation("docs/zh.yml") for title in titles]
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
--8<-- "mhattn/masks.py:causal"
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

::: mhattn.masks
"""


def edited(old, new):
    assert old in PAGE
    return PAGE.replace(old, new)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A project of one page in two languages, which `pages` takes for this one."""
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "DOCS", tmp_path / "docs")
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
        ('```python\n--8<-- "mhattn/masks.py:causal"\n```\n', ""),
        ("```python", "```text"),
        ("a = b", "a = c"),
        ("$$\na = b\n$$\n", ""),
        ("one.svg", "two.svg"),
        ("masks.md", "shapes.md"),
        ("[@vaswani2017]", "[@clark2019]"),
        (" and [@vaswani2017]", ""),
        ("/// details", "/// note"),
        ("::: mhattn.masks", "::: mhattn.costs"),
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


def test_link_in_another_section_is_a_difference(tree):
    moved = edited("[masks](masks.md) and ", "").replace("Because", "[masks](masks.md) Because")
    (tree / "zh" / "a.md").write_text(moved, encoding="utf-8")
    assert pages.differences(Path("a.md"))


def test_missing_page_is_a_difference(tree):
    (tree / "zh" / "a.md").unlink()
    assert pages.differences(Path("a.md")) == ["docs/zh/a.md: this page is missing"]


def test_parts_know_their_lines():
    found = {part.value: part.line for part in pages.skeleton(PAGE)}
    assert found["masks.md"] == 3
    assert found["mhattn/masks.py:causal"] == 6
    assert found["figures/masks/one.svg"] == 15


def test_code_and_formulas_hide_no_links():
    text = "`[a](b.md)`\n\n$$\n[c](d.md)\n$$\n\n```text\n[@e]\n```\n"
    kinds = {part.kind for part in pages.skeleton(text)}
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
    with pytest.raises(ValueError, match="equally many formulas"):
        pages.fix(page)
    assert "a = b" not in page.read_text(encoding="utf-8")


def test_snippet_folders_hold_nothing_else():
    known = set(stories.all_stories())
    assert {p for folder in (SNIPPETS, LABS) for p in folder.iterdir() if p.is_file()} == known

"""What stories give Chinese readers: one of their own, or words for its figures and tables."""

import ast
import re
from collections import defaultdict
from html import unescape
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from mhsite import cells, page, results, source, words
from mhsite.extension import Writer
from mhsite.source import STORIES, console_cells, sections

from mhattn.costs import known_models

TWINS = sorted(STORIES.glob("*.zh.pycon"))
OTHER_DATA = "# Other data than in English"


class Mask(ast.NodeTransformer):
    def visit_Constant(self, node):
        return ast.Constant("") if isinstance(node.value, str) else node


def masked(code):
    """What code does, whatever its comments and strings say."""
    return ast.dump(Mask().visit(ast.parse(code)))


def numbers(text):
    return re.findall(r"\d+(?:\.\d+)?", text)


# The words of Chinese pages

SAID = {  # an expression that does not occur: what is said
    r"碰巧(?!答对|等于|吻合)": "随机水平，随机基线，纯属偶然",
    r"(?<![第同])一行数(?![字值据])": "一行数字",
    r"融合算子": "融合内核",
    r"分数[和与]混合": "分数与加权求和",
    r"尺寸": "超参数，维度，规模，大小",
    r"[qkv的为] ?模(?=$|[，。；（])|模长": "范数",
    r"主线|入门部分|入门八讲": "入门课",
    r"\| (上图|这张图|这张表)的代码": "本图的代码，本表的代码",
    r"^(测试|检验)：": "测试方法：",
    r"\| 陷阱：": "its name alone: the heading says 陷阱",
    r"编写 `": "写一个 `",
    r"## (你学会了什么|现在你会了什么)": "小结：你学会了什么",
    r"\d %": "7%",
}
DATA = (page.DOCS / "data" / f"{name}.toml" for name in ("descriptions", "glossary"))
PAGES = sorted((page.DOCS / "zh").rglob("*.md"))
CHINESE = [*PAGES, page.DOCS / "zh.yml", *DATA, *sorted(page.DOCS.glob("*/*.zh.po"))]
ITS = {".po": r'^msgstr (".*(?:\n".*)*)', ".toml": r"^(?:meaning_)?zh = (.*)"}


def unsaid(text, kind=".md"):
    chinese = "\n".join(re.findall(ITS[kind], text, re.M)) if kind in ITS else text
    return [said for pattern, said in SAID.items() if re.search(pattern, chinese, re.M)]


@pytest.mark.parametrize("path", CHINESE, ids=lambda path: str(path.relative_to(page.DOCS)))
def test_one_word_for_each_thing(path):
    assert unsaid(path.read_text(encoding="utf-8"), path.suffix) == []


def test_another_word_is_seen():
    planted = """碰巧 一行数 融合算子 分数和混合 尺寸 q 的模，入门部分
/// details | 上图的代码
测试：| 陷阱：编写 `f` 93.3 %\n## 你学会了什么"""
    assert unsaid(planted) == list(SAID.values())
    assert unsaid('msgid "碰巧"\nmsgstr "碰巧答对"\n"7 %"\n', ".po") == ["7%"]
    assert unsaid('also_zh = ["融合算子"]\nmeaning_zh = "尺寸"', ".toml") == [SAID["尺寸"]]


def twin_faults(english: Path, chinese: Path) -> list[str]:
    """Where a Chinese story does something else than the English one beside it."""
    ours, theirs = sections(english), sections(chinese)
    if list(ours) != list(theirs):
        return [f"sections {list(theirs)}, in English {list(ours)}"]
    same_data = not chinese.read_text(encoding="utf-8").startswith(OTHER_DATA)
    faults = []
    for name in ours:
        pairs = ours[name].examples(), theirs[name].examples()
        codes = [[masked(example.source) for example in examples] for examples in pairs]
        wants = [[numbers(example.want) for example in examples] for examples in pairs]
        faults += [f"{name}: other code"] * (codes[0] != codes[1])
        faults += [f"{name}: other numbers"] * (same_data and wants[0] != wants[1])
    return faults


@pytest.mark.parametrize("chinese", TWINS, ids=lambda path: path.name)
def test_a_chinese_story_does_what_the_english_one_does(chinese):
    assert twin_faults(chinese.with_name(chinese.name.replace(".zh.", ".")), chinese) == []


ENGLISH = """\
# --8<-- [start:one]
>>> words = ["the", "cat"]  # two words
>>> print(f"{words[0]}: {len(words)} words")
the: 2 words

# --8<-- [end:one]
# --8<-- [start:two]
>>> print(0.25)
0.25

# --8<-- [end:two]
"""
CHINESE = (
    ENGLISH.replace('"the", "cat"]  # two words', '"这只", "猫"]  # 两个词')
    .replace(" words}", " 个词")
    .replace("the: 2 words", "这只: 2 words")
)


@pytest.fixture
def twins(tmp_path, monkeypatch):
    """A story and its Chinese twin, where pages look for them."""
    monkeypatch.setattr(source, "STORIES", tmp_path)
    (tmp_path / "a.pycon").write_text(ENGLISH, encoding="utf-8")
    (tmp_path / "a.zh.pycon").write_text(CHINESE, encoding="utf-8")
    return tmp_path / "a.pycon", tmp_path / "a.zh.pycon"


@pytest.mark.parametrize(
    ("old", "new", "faults"),
    [
        ("", "", []),
        ("两个词", "另一句话", []),
        ("len(words)", "len(words) + 0", ["one: other code"]),
        ("print(0.25)", "print(0.5)", ["two: other code"]),
        ("这只: 2", "这只: 3", ["one: other numbers"]),
        ("\n0.25", "\n0.5", ["two: other numbers"]),
        ("two]", "three]", ["sections ['one', 'three'], in English ['one', 'two']"]),
    ],
)
def test_fault_of_a_twin_is_seen(twins, old, new, faults):
    english, chinese = twins
    chinese.write_text(CHINESE.replace(old, new), encoding="utf-8")
    assert twin_faults(english, chinese) == faults


def test_data_may_differ_where_the_first_line_says_so(twins):
    english, chinese = twins
    chinese.write_text(f"{OTHER_DATA}.\n" + CHINESE.replace("\n0.25", "\n9"), encoding="utf-8")
    assert twin_faults(english, chinese) == []


PAGE = '# T { #t }\n\n```pycon\n--8<-- "a.pycon:one"\n```\n'


@pytest.mark.parametrize(("language", "word"), [("en", "the"), ("zh", "这只")])
def test_a_page_shows_the_story_of_its_language(twins, language, word):
    path = page.DOCS / language / "a.md"
    assert f'"{word}"' in page.parse(PAGE, path).blocks[-1].section.code
    twins[1].unlink()
    assert '"the"' in page.parse(PAGE, path).blocks[-1].section.code


# Words in figures and tables

SVG = '<svg><text x="1">{}</text><text><tspan>head 1</tspan></text><title>head 1</title></svg>'
WORDS = """
kept = ["GPT-2", "view"]
[everywhere]
"head #" = "头 #"
"causal &" = "因果 &"
"# of # heads" = "第 # 个，共 # 个头"
[b]
"head #" = "注意力头 #"
"loss" = "loss"
"""


@pytest.fixture
def known(tmp_path, monkeypatch):
    """A file of words."""
    monkeypatch.setattr(words, "FILE", tmp_path / "words.toml")
    words.FILE.write_text(WORDS, encoding="utf-8")


@pytest.fixture
def figures(tmp_path, monkeypatch):
    """The results of a story with a Chinese twin and of one without."""
    folders = {name: tmp_path / name for name in ("a", "a.zh", "b")}
    for folder, word in zip(folders.values(), ("head 1", "head 2", "causal &amp;"), strict=True):
        folder.mkdir()
        (folder / "one.svg").write_text(SVG.format(word), encoding="utf-8")
    monkeypatch.setattr(results, "_folders", folders)


@pytest.mark.usefixtures("figures", "known")
def test_each_language_has_its_figures():
    assert results.figures("en") == {
        "a/one.svg": SVG.format("head 1"),
        "b/one.svg": SVG.format("causal &amp;"),
    }
    assert results.figures("zh") == {
        "a/one.svg": SVG.format("head 2"),  # its own story's
        "b/one.svg": SVG.format("因果 &amp;"),
    }


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("story", "text", "chinese"),
    [
        ("a", "head 12", "头 12"),
        ("b", "head 12", "注意力头 12"),
        ("a", "1,024 of 0.5 heads", "第 1,024 个，共 0.5 个头"),
        ("a", "heads", "heads"),
    ],
)
def test_numbers_are_put_back(story, text, chinese):
    assert words.in_chinese(story, text) == chinese


TABLE = """\
# --8<-- [start:one]
>>> print(table(numbers, ["head 1", "view"], ["head 1", "head 2"]))
|        | head 1 | head 2 |
|--------|-------:|-------:|
| head 1 |   0.25 |   0.75 |
| view   |   1.00 |   0.00 |
>>> print("head 1")
head 1

# --8<-- [end:one]
"""


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("story", "language", "heads"),
    [
        ("b", "en", ["head 1", "head 2", "head 1", "view"]),
        ("b", "zh", ["注意力头 1", "注意力头 2", "注意力头 1", "view"]),
        ("b.zh", "zh", ["head 1", "head 2", "head 1", "view"]),  # says it itself
    ],
)
def test_each_language_has_its_tables(tmp_path, monkeypatch, story, language, heads):
    monkeypatch.setattr(source, "STORIES", tmp_path)
    for name in {"b", story}:
        (tmp_path / f"{name}.pycon").write_text(TABLE, encoding="utf-8")
    grid = {console_cells(TABLE)[0].output: " data-grid='{}'"}
    monkeypatch.setattr(results, "grids", lambda section: grid)
    written = []
    parsed = page.parse(PAGE.replace("a.pycon", "b.pycon"), page.DOCS / language / "b.md")
    Writer(parsed, written.append).whole()
    code, made, *others = BeautifulSoup("".join(written), "html.parser").section
    assert made.table["data-grid"] == "{}"
    assert [th.text for th in made("th")] == heads
    assert [td.text for td in made("td")] == ["", "0.25", "0.75", "1.00", "0.00"]
    assert code.text in TABLE.replace(">>> ", "")
    assert [other.text for other in others] == ['print("head 1")', "head 1"]


NAME = re.compile(r"[A-Za-z_][\w.-]*(?:\(\))?", re.ASCII)


def latin(story, text):
    """The words and names of two Latin letters or more that its Chinese still has."""
    names = NAME.findall(words.in_chinese(story, text))
    return {name for name in names if re.search("[A-Za-z]{2}", name)}


def untranslated(story, texts):
    kept = {*words.known()["kept"], *known_models()}
    return {text for text in texts if latin(story, text) - kept}


@pytest.mark.usefixtures("known")
def test_a_word_without_chinese_is_seen():
    texts = {"loss", "head 1", "k", "GPT-2 1558M", "view(L, D)", "Views", "d_k", "llama-2-7b"}
    assert untranslated("a", texts) == {"loss", "Views"}
    assert untranslated("b", texts) == {"loss", "Views"}


@pytest.fixture
def told_once(story_results):
    """What the figures and tables of each story or lab without a Chinese twin say."""
    results.run()
    told = defaultdict(set)
    for name, svg in results.figures("en").items():
        told[name.split("/")[0]].update(map(unescape, words.TEXT.findall(svg)))
    for path in STORIES.glob("*.pycon"):
        for cell in (cell for section in sections(path).values() for cell in section.cells):
            if cells.TABLE.fullmatch(cell.output):
                told[path.stem].update(re.findall(r"[^|\n]+", cell.output))
    twins = {name for path in TWINS for name in (path.stem, path.stem.removesuffix(".zh"))}
    twins |= {path.name.split(".")[0] for path in STORIES.glob("*.zh.po")}
    return {story: {*map(str.strip, told[story])} for story in told.keys() - twins}


def test_every_word_in_figures_and_tables_has_its_chinese(told_once):
    assert sum(map(len, told_once.values())) > 3000
    unknown = {story: untranslated(story, texts) for story, texts in told_once.items()}
    assert {story: texts for story, texts in unknown.items() if texts} == {}


def groups():
    """The words of each story, and those of all."""
    return {name: group for name, group in words.known().items() if name != "kept"}


def test_every_chinese_word_is_shown(told_once):
    told_once["everywhere"] = set().union(*told_once.values())
    shown = {name: {words.NUMBER.sub("#", text) for text in told_once[name]} for name in told_once}
    unused = {name: group.keys() - shown[name] for name, group in groups().items()}
    assert {name: texts for name, texts in unused.items() if texts} == {}


def test_every_kept_word_is_shown(told_once):
    shown = (latin(story, text) for story, texts in told_once.items() for text in texts)
    assert set(words.known()["kept"]) - set().union(*shown) == set()


def test_chinese_words_have_all_numbers():
    pairs = [pair for group in groups().values() for pair in group.items()]
    assert [pair for pair in pairs if pair[0].count("#") != pair[1].count("#")] == []

"""What stories give Chinese readers: a twin on other data, or a catalog; figures, tables."""

import ast
import json
import re
import tomllib
from collections import defaultdict
from html import unescape
from pathlib import Path

import polib
import pytest
from cases import every
from mhsite.pages import cells, page
from mhsite.stories import results, source, translation
from mhsite.stories.source import STORIES, sections

from mhattn.costs import known_models
from mhattn.testing import doctor

TWINS = sorted(STORIES.glob("*.zh.pycon"))
OTHER_DATA = "# Other data than in English"
OWN = {  # sections in which a twin on other data needs code or numbers of its own, and no others
    "live-model.zh.pycon": [
        "kinds: other code",  # lines of verse are found and spliced, names made of syllables
        "repeat: other code",  # the same: what is put into the training text
        "learned: other numbers in the code",  # 2000 steps, where the English model has 1500
        "names: other numbers in the code",  # of a verse two characters are given, of a name three
        "copy-table: other numbers in the code",  # the same
    ]
}


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
    r"^(测试|检验|检验方法|检查)：": "测试方法：",
    r"\| 陷阱：": "its name alone: the heading says 陷阱",
    r"编写 `": "写一个 `",
    r"## (你学会了什么|现在你会了什么)": "小结：你学会了什么",
    r"[\d}] %": "7%",
    "增量规则": "delta 规则",
    "键头(?![和，]一个值头)": "键值头",
    "回路|孪生|做事者|尖锐": "电路，配对提示词，行动者，集中",
    "## 问答": "问题",
    "会交谈的头|优胜者|得分": "交谈头注意力，选出来的，分数",
    "(?<!注意力)(?<!叫)权重图": "注意力图；权重图 once, in the glossary",
    "(停在|关注|看着?|给了?|归|遮住|放[在到])第一个词元": "首个词元",
    r"[\d}] ?比特|十六位|[四八]位(?!数|小数)": "4 位，16 位；比特 of information alone",
    "批量(大小|轴|为)": "批次大小，批次维",
    "斜坡": "斜线，过渡段",
    "漫游奇境记": "爱丽丝漫游奇境",
    "完整的?注意力(?!层|图)": "全注意力",
    "与偶然比|就是偶然": "随机水平",
    r"[\d.}] 百万": "1650 万",
    r"(页首|开头)(那幅|那张|插)图的代码|\| 表格的代码": "页首图的代码，本表的代码",
    "数据表(?!示)|产品规格|规格书|硬件规格": "数据手册",
    "图像块": "图块",
    "一半的对": "一半的查询—键对，一半的特征对",
    "### 报错 ": "报错：",
    r"(?<!\*)\*(?!\*)[一-鿿]+\*(?!\*)": "bold, not italic, Chinese letters",
}
DATA = (page.DOCS / "data" / f"{name}.toml" for name in ("descriptions", "glossary"))
PAGES = sorted((page.DOCS / "zh").rglob("*.md"))
CHINESE = [*PAGES, page.DOCS / "zh.yml", *DATA, *sorted(page.DOCS.glob("*/*.zh.po"))]
ITS = {".po": r'^msgstr (".*(?:\n".*)*)', ".toml": r"^(?:meaning_)?zh = (.*)"}


def unsaid(text, kind=".md"):
    chinese = "\n".join(re.findall(ITS[kind], text, re.M)) if kind in ITS else text
    return [said for pattern, said in SAID.items() if re.search(pattern, chinese, re.M)]


@every("path", CHINESE)
def test_one_word_for_each_thing(path):
    assert unsaid(path.read_text(encoding="utf-8"), path.suffix) == []


def test_another_word_is_seen():
    planted = """碰巧 一行数 融合算子 分数和混合 尺寸 q 的模，入门部分
/// details | 上图的代码
测试：| 陷阱：编写 `f` 93.3 %\n## 你学会了什么
增量规则，每个键头，孪生\n## 问答\n会交谈的头
权重图 停在第一个词元 4 比特 批量大小 斜坡 漫游奇境记 完整的注意力 与偶然比 0.5 百万
/// details | 表格的代码
数据表 图像块 一半的对
### 报错 No，*更小*的"""
    assert unsaid(planted) == list(SAID.values())
    assert unsaid('msgid "碰巧"\nmsgstr "碰巧答对"\n"7 %"\n', ".po") == ["7%"]
    assert unsaid('also_zh = ["融合算子"]\nmeaning_zh = "尺寸"', ".toml") == [SAID["尺寸"]]


# Signs of Chinese text: full-width ones, with no space beside them

WHOLE = re.compile(
    r" \{ #[\w-]+ \}| ?\[@[^\]]*\]|`[^`]*`|\([^()]*,[^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}"
)  # code, shapes, lists
STRAY = re.compile(
    r"[，。；：！？、）”] (?=[一-鿿A-Za-z“（])|(?<=[一-鿿A-Za-z”）]) [，。；：！？、）”（“]"
)
HALF = re.compile(r"[一-鿿）”][,;:](?= |$|[一-鿿])|(?<![\d*])[,;:] ?(?=[一-鿿])", re.M)


def strays(text):
    """Spaces beside full-width signs, and half-width signs beside Chinese letters."""
    text = WHOLE.sub("x", text)
    found = [*STRAY.finditer(text), *HALF.finditer(text)]
    return [text[max(0, one.start() - 9) : one.end() + 9] for one in found]


@every("path", [path for path in CHINESE if path.name != "zh.yml"])
def test_signs_are_full_width_and_no_space_stands_beside_them(path):
    text, kind = path.read_text(encoding="utf-8"), path.suffix
    assert strays("\n".join(re.findall(ITS[kind], text, re.M)) if kind in ITS else text) == []


def test_a_stray_space_is_seen():
    planted = ["三个词元。 一行", "看得到 “猫”", "（LayerNorm） 减去", "模型 ，每个", "误差： off"]
    planted += ["错误: 0.6", "它们, 一个头", "前一个,训练后", "PyTorch: 错误", "损失; 梯度"]
    assert [len(strays(text)) for text in planted] == [1] * len(planted)
    right = (
        "形状 (层, 12, 24)，`{'甲': 1}` 和 [上一个, 下一个]：1, 2；f(x, y)。PyTorch（torch）也是。"
    )
    assert strays(right) == []


def labels_apart(code):
    """Texts that end with a sign and are printed beside a number, with a space between."""
    calls = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call))
    for call in (call for call in calls if ast.unparse(call.func) == "print"):
        for label in call.args[:-1]:
            words = label.values[-1:] if isinstance(label, ast.JoinedStr) else [label]
            yield from (
                word.value
                for word in words
                if isinstance(word, ast.Constant) and re.search("[，；：]$", str(word.value))
            )


STORIES_AND_LABS = sorted([*STORIES.glob("*.pycon"), *source.LABS.glob("*.py")])


@every("path", STORIES_AND_LABS)
def test_no_space_is_printed_behind_a_sign(path):
    twin = path.name.endswith(".zh.pycon")
    if not twin and not translation.catalog_of(path):
        return
    found = sections(path) if twin else translation.chinese_sections(path)
    for section in found.values():
        codes = [each.source for each in section.examples()] if section.is_story else [section.text]
        assert [label for code in codes for label in labels_apart(code)] == []


def test_a_space_that_is_printed_is_seen():
    code = 'print("损失：", 0.5)\nprint(f"{n} 个词元，", 2, f"损失：{n}")\nprint("损失", 1)'
    assert [*labels_apart(code)] == ["损失：", " 个词元，"]


class _Zeros(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(0) if type(node.value) in (int, float) else node


def without_numbers(code: str) -> str:
    return ast.unparse(_Zeros().visit(ast.parse(code)))


def do_the_same(ours: list[str], theirs: list[str]) -> bool:
    pairs = zip(ours, theirs, strict=False)
    return len(ours) == len(theirs) and all(translation.does_the_same(*pair) for pair in pairs)


def twin_faults(english: Path, chinese: Path) -> list[str]:
    """Where a Chinese story does something else than the English one beside it."""
    ours, theirs = sections(english), sections(chinese)
    if list(ours) != list(theirs):
        return [f"sections {list(theirs)}, in English {list(ours)}"]
    same_data = not chinese.read_text(encoding="utf-8").startswith(OTHER_DATA)
    faults = []
    for name in ours:
        pairs = ours[name].examples(), theirs[name].examples()
        code = [[example.source for example in examples] for examples in pairs]
        wants = [[numbers(example.want) for example in examples] for examples in pairs]
        if not do_the_same(*code):
            same = do_the_same(*([without_numbers(each) for each in some] for some in code))
            faults.append(f"{name}: other {'numbers in the ' * same}code")
        faults += [f"{name}: other numbers"] * (same_data and wants[0] != wants[1])
    return faults


@pytest.mark.parametrize("chinese", TWINS, ids=lambda path: path.name)
def test_a_chinese_story_does_what_the_english_one_does(chinese):
    faults = twin_faults(chinese.with_name(chinese.name.replace(".zh.", ".")), chinese)
    assert faults == OWN.get(chinese.name, [])


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
        ("print(0.25)", "print(0.5)", ["two: other numbers in the code"]),
        ("print(0.25)", "print(-0.25)", ["two: other code"]),
        ("print(0.25)", "print(0.5, 0.5)", ["two: other code"]),
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


# Figures and tables


SVG = "<svg><text>{}</text></svg>"


def test_each_language_has_its_figures(tmp_path, monkeypatch):
    """Those of a story in its own language, or, without one, the same."""
    folders = {name: tmp_path / name for name in ("a", "a.zh", "b")}
    for name, folder in folders.items():
        folder.mkdir()
        (folder / "one.svg").write_text(SVG.format(name), encoding="utf-8")
    monkeypatch.setattr(results, "_folders", folders)
    for language, story in ("en", "a"), ("zh", "a.zh"):
        expected = {"a/one.svg": SVG.format(story), "b/one.svg": SVG.format("b")}
        assert results.figures(language) == expected


NAMES = {*tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))["kept"]}
NAMES |= {*known_models(), *doctor.PAGES}  # PAGES: of the doctor's checks
ROWS = (page.DOCS / "data/texts/architectures.tsv").read_text("utf-8").splitlines()
NAMES |= {row.split("\t")[0] for row in ROWS} | {*ROWS[0].split("\t")}
NAME = re.compile(r"[A-Za-z_][\w.-]*(?:\(\))?", re.ASCII)
TEXT = re.compile(r"(?<=>)([^<>]+)(?=</text>)")  # formulas consist of tspans


def latin(text):
    """The words and names of two Latin letters or more in a text."""
    return {name for name in NAME.findall(text) if re.search("[A-Za-z]{2}", name)}


def names_of_models():
    """Those of public libraries, with their classes, which one page lists."""
    text = (page.DOCS / "data/texts/doctor-in-the-wild.json").read_text("utf-8")
    for row in json.loads(text)["rows"]:
        for name in (row["model"], *(kind["class"] for kind in row["kinds"])):
            yield from latin(name)
        yield from (check for _, check, _ in row["findings"])  # of a model as a whole


def test_a_word_that_is_no_name_is_seen():
    assert latin("GPT-2 1558M, view(L, D), k, d_k: loss 头") == {"GPT-2", "view", "loss"}


def test_printed_lines_and_figures_have_full_width_signs(story_results):
    results.run()
    lines = defaultdict(list)
    for name, svg in results.figures("zh").items():
        lines[name] += map(unescape, TEXT.findall(svg))
    for name, folder in results.folders().items():
        if name.endswith(".zh"):
            for part in json.loads((folder / "outputs.json").read_text("utf-8")).values():
                said = part["text"].splitlines()
                lines[name] += [line for line in said if "▁" not in line]  # tokens stand apart
    assert sum(map(len, lines.values())) > 5000
    found = {name: [*map(strays, each)] for name, each in lines.items()}
    found = {name: [one for some in each for one in some] for name, each in found.items()}
    assert {name: each for name, each in found.items() if each} == {}


def test_figures_and_tables_of_chinese_pages_are_chinese(story_results):
    """Names apart, and what a catalog keeps for a reason that it gives."""
    results.run()
    shown = defaultdict(set)
    for name, svg in results.figures("zh").items():
        shown[name.split("/")[0]].update(map(unescape, TEXT.findall(svg)))
    for name, folder in results.folders().items():
        if name.endswith(".zh"):
            parts = json.loads((folder / "outputs.json").read_text(encoding="utf-8")).values()
            tables = (cells.TABLE.findall(part["text"]) for part in parts)
            shown[name.removesuffix(".zh")].update(cell for each in tables for cell in each)
    assert sum(map(len, shown.values())) > 2000
    # Names of models, and a word that a model says.
    unknown, own = {}, {"doctor-in-the-wild": {*names_of_models()}, "cut-heads": {"his"}}
    for story, texts in shown.items():
        catalog = STORIES / f"{story}.zh.po"
        entries = polib.pofile(str(catalog)) if catalog.is_file() else []
        reasoned = {word for entry in entries if entry.tcomment for word in latin(entry.msgstr)}
        unknown[story] = {word for text in texts for word in latin(text)} - NAMES - reasoned
        unknown[story] -= own.get(story, set())
    assert {story: words for story, words in unknown.items() if words} == {}

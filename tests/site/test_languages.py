"""What stories give Chinese readers: a story of their own, or words for its figures."""

import ast
import re
from html import unescape
from pathlib import Path

import pytest
from mhsite import page, results, source, words
from mhsite.source import STORIES, sections

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


# Words in figures

SVG = '<svg><text x="1">{}</text><text><tspan>head 1</tspan></text><title>head 1</title></svg>'


@pytest.fixture
def figures(tmp_path, monkeypatch):
    """The results of a story with a Chinese twin and of one without."""
    folders = {name: tmp_path / name for name in ("a", "a.zh", "b")}
    for folder, word in zip(folders.values(), ("head 1", "head 2", "causal &amp;"), strict=True):
        folder.mkdir()
        (folder / "one.svg").write_text(SVG.format(word), encoding="utf-8")
    monkeypatch.setattr(results, "_folders", folders)


@pytest.mark.usefixtures("figures")
def test_each_language_has_its_figures():
    assert results.figures("en") == {
        "a/one.svg": SVG.format("head 1"),
        "b/one.svg": SVG.format("causal &amp;"),
    }
    assert results.figures("zh") == {
        "a/one.svg": SVG.format("head 2"),  # its own story's
        "b/one.svg": SVG.format("因果 &amp;"),
    }


def untranslated(svg):
    """The texts with a word of Latin letters that are neither translated nor kept; no formulas."""
    found = {unescape(text).strip() for text in words.TEXT.findall(svg)}
    found = {text for text in found if re.search("[A-Za-z]{2}", text)}
    return found - words.known()["chinese"].keys() - set(words.known()["kept"])


def test_a_word_without_chinese_is_seen():
    assert untranslated(SVG.format("loss") + SVG.format("head 1")) == {"loss"}
    assert untranslated(SVG.format("k")) == set()


def test_every_word_in_a_figure_has_its_chinese(story_results):
    results.run()
    twins = {path.name.split(".")[0] for path in TWINS}
    unknown = {
        name: found
        for name, svg in results.figures("en").items()
        if name.split("/")[0] not in twins and (found := untranslated(svg))
    }
    assert unknown == {}

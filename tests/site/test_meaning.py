"""What changes a story's key, and so runs it: what its code does, not how it is written."""

import ast
import json

import pytest
from mhsite.stories import cache, keys, meaning, results, runner, translation
from mhsite.stories.source import LABS, sections
from test_dependencies import ROOMS, made

STORY = '''\
A line that no page shows.

# --8<-- [start:one]
>>> from mhattn.costs import divides
>>> def half(n):
...     """Half of it."""
...     return n / 2  # of n
>>> words = ["cat", "sat"]  # two words
>>> print(f"{words[0]} is {half(4)}", "sat")
cat is 2.0 sat
>>> "alone"
'alone'
# --8<-- [end:one]
# --8<-- [start:two]
>>> print(divides(2, 4))  # a pair
True
# --8<-- [end:two]
'''
CATALOG = '''\
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8"

#. one: """Half of it."""
msgid "Half of it."
msgstr "它的一半。"

msgid "of n"
msgstr "n 的"

msgid "cat"
msgstr "猫"

msgid "sat"
msgstr "坐"

msgctxt "one 2"
msgid "sat"
msgstr "坐着"

msgid "two words"
msgstr "两个词"

msgid "{words[0]} is {half(4)}"
msgstr "{words[0]}：{half(4)}"

msgid "alone"
msgstr "单独"

msgid "a pair"
msgstr "一对"
'''
LAB = '''\
# --8<-- [start:one]
def half(n):
    """Half of it."""
    return n / 2  # of n


print("half", half(4))
# --8<-- [end:one]
'''
MODULE = '''\
"""Whole numbers."""


def divides(a: int, b: int, by: str = "whole") -> bool:
    """Whether it does: `mhattn.core.softmax` needs it."""
    return b % a == 0  # without rest
'''
FILES = {"one.pycon": STORY, "one.zh.po": CATALOG, "lab.py": LAB, "integers.py": MODULE}


def contents(folder, files):
    """The keys of a story and of a lab, from these files and a package with this module."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    package = made(folder, ROOMS | {"costs/integers.py": files["integers.py"]})
    return [keys.content(folder / name, package) for name in ("one.pycon", "lab.py")]


def changed(folder, file, old, new):
    """Which keys change, of the story and of the lab, when this stands in a file."""
    assert FILES[file].count(old) == 1
    before = contents(folder, FILES)
    after = contents(folder, FILES | {file: FILES[file].replace(old, new)})
    return [one != other for one, other in zip(before, after, strict=True)]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("one.pycon", "# of n", "# of the n"),
        ("one.pycon", "  # two words", ""),
        ("one.pycon", "# a pair", "# a pair, as `mhattn.core.softmax` and mhattn.show.tables"),
        ("one.pycon", "Half of it.", "The half of it."),
        ("one.pycon", '...     """Half of it."""\n', ""),
        ("one.pycon", "def half(n):\n", "def half(n):\n...\n"),
        ("one.pycon", ">>> words =", "\n\n>>> words ="),
        ("one.pycon", '["cat", "sat"]', "[\n...     'cat',\n...     'sat',\n... ]"),
        ("one.pycon", "n / 2", "(n/2)"),
        ("one.pycon", "A line that no page shows.\n", "A line.\n\nAnd another.\n"),
        ("one.zh.po", "n 的", "n 的一半"),
        ("one.zh.po", "一对", "一双"),
        ("one.zh.po", "它的一半。", "一半。"),
        ("one.zh.po", '#. one: """Half of it."""', '#. one: """Half."""\n# as it is'),
        ("lab.py", "# of n", "# of the n"),
        ("lab.py", "Half of it.", "The half of it."),
        ("lab.py", "print(", "\n\nprint(\n    "),
        ("integers.py", "# without rest", "# and no rest"),
        ("integers.py", "Whole numbers.", "Numbers."),
        ("integers.py", ": `mhattn.core.softmax` needs it.", ": `mhattn.show.table` needs it."),
        ("integers.py", "a: int, b: int", "\n    a: int,\n    b: int"),
    ],
)
def test_what_is_only_written_otherwise_runs_nothing(tmp_path, file, old, new):
    assert changed(tmp_path, file, old, new) == [False, False]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("one.pycon", "half(4)", "half(6)"),
        ("one.pycon", "cat is 2.0 sat", "cat is 2.1 sat"),
        ("one.pycon", "True\n", "True\nand more\n"),
        ("one.pycon", '"cat"', '"dog"'),
        ("one.pycon", '>>> "alone"', '>>> "all alone"'),
        ("one.pycon", '>>> "alone"', '>>> "alone"  # doctest: +ELLIPSIS'),
        ("one.pycon", "# --8<-- [end:one]\n# --8<-- [start:two]\n", ""),
        ("one.pycon", ">>> print(divides", ">>> import mhattn.show.tables\n>>> print(divides"),
        ("one.zh.po", "猫", "狗"),
        ("one.zh.po", "坐着", "坐下"),
        ("one.zh.po", "{words[0]}：{half(4)}", "{words[0]} {half(4)}"),
        ("one.zh.po", 'msgid "alone"', '#, fuzzy\nmsgid "alone"'),
        ("integers.py", "== 0", "== 1"),
        ("integers.py", '"whole"', '"half"'),
        ("integers.py", "-> bool", "-> int"),
    ],
)
def test_what_may_change_a_result_runs_it(tmp_path, file, old, new):
    assert changed(tmp_path, file, old, new) == [True, False]


@pytest.mark.parametrize(
    ("old", "new"), [('"half"', '"whole"'), ("half(4)", "half(6)"), ("start:one", "start:two")]
)
def test_what_may_change_a_lab_runs_it(tmp_path, old, new):
    text = LAB.replace(old, new)
    text = text.replace("end:one", "end:two") if "start:two" in text else text
    before, after = contents(tmp_path, FILES), contents(tmp_path, FILES | {"lab.py": text})
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)


def test_a_comment_before_a_numbered_text_moves_its_number(tmp_path):
    """The second `sat` has Chinese of its own; behind such a comment it is the third."""
    assert changed(tmp_path, "one.pycon", "# two words", "# sat") == [True, False]


@pytest.mark.parametrize(
    ("reads", "runs"),
    [("def says(f):\n    return f.__doc__\n", True), ("def says(f):\n    return f\n", False)],
)
def test_docstrings_count_where_code_may_print_them(tmp_path, reads, runs):
    """Of who imports what reads them, as the checks of `mhattn.testing`; not of what is far."""
    files = {
        "costs/integers.py": reads,
        "costs/attention.py": "from mhattn.costs.integers import says\n"
        "from mhattn.core.masks import mask\n@says\ndef cost():\n    'one'\n",
        "core/masks.py": "def mask():\n    'far'\n",
    }
    story = tmp_path / "one.pycon"
    text = "# --8<-- [start:one]\n>>> import mhattn.costs.attention\n# --8<-- [end:one]\n"
    story.write_text(text, encoding="utf-8")
    before = keys.content(story, made(tmp_path, ROOMS | files))
    near = {name: text.replace("'one'", "'two'") for name, text in files.items()}
    far = {name: text.replace("'far'", "'farther'") for name, text in files.items()}
    assert (keys.content(story, made(tmp_path, ROOMS | near)) != before) is runs
    assert keys.content(story, made(tmp_path, ROOMS | far)) == before


def test_no_code_reads_its_own_comments_or_lines():
    """Or a typo in one would change a result; a docstring that code reads is looked after."""
    words = {
        "getsource",
        "getsourcelines",
        "getcomments",
        "co_firstlineno",
        "f_lineno",
        "tb_lineno",
    }
    texts = {name: text for name, text in keys.package().texts.items()}
    texts |= {story.name: story.read_text(encoding="utf-8") for story in keys.all_stories()}
    assert len(texts) > 150
    # They read somebody else's code: a layer's place for a report, and a configuration's class.
    others = {"testing.formats", "testing.shrunk"}
    found = {name for name, text in texts.items() if any(word in text for word in words)}
    assert found == others


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("one.pycon", "half(4)", "half(4"),
        ("one.pycon", "# --8<-- [end:two]\n", ""),
        ("one.pycon", ">>> words", ">>>words"),
        ("one.zh.po", 'msgid "cat"', 'msgid "cat'),
        ("lab.py", "half(4)", "half(4"),
        ("integers.py", "b % a", "b %"),
    ],
)
def test_what_cannot_be_read_has_a_key_all_the_same(tmp_path, file, old, new):
    """While somebody writes, the story's own run says what is wrong."""
    assert changed(tmp_path, file, old, new) == [file != "lab.py", file == "lab.py"]


def test_a_meaning_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "HOME", tmp_path / "home")
    monkeypatch.setattr(meaning, "_kept", {})
    first = contents(tmp_path, FILES)
    files = list((tmp_path / "home" / "meanings").iterdir())
    assert len(files) > 5
    monkeypatch.setattr(meaning, "_kept", {})
    with monkeypatch.context() as without:
        without.setattr(meaning, "_of_story", None)
        without.setattr(meaning, "_of_module", None)
        assert contents(tmp_path, FILES) == first
    monkeypatch.setattr(meaning, "_kept", {})
    for path in files:
        path.write_text("{", encoding="utf-8")  # a full disk
    assert contents(tmp_path, FILES) == first


def test_code_means_the_same_in_each_python():
    """Python 3.12 added a field, and 3.13 writes no empty lists."""
    assert meaning.dump(ast.parse("def f(): pass")) == (
        "Module(body=[FunctionDef(name='f', args=arguments(posonlyargs=[], args=[], kwonlyargs=[],"
        " kw_defaults=[], defaults=[]), body=[Pass()], decorator_list=[])], type_ignores=[])"
    )


# What is filed says nothing that a typo changes


@pytest.fixture
def filed(tmp_path, monkeypatch):
    """Runs the story as it is, and takes what it gave as its results."""
    story = tmp_path / "one.pycon"
    monkeypatch.setattr(results, "STORIES", tmp_path)
    monkeypatch.setattr(translation.source, "STORIES", tmp_path)
    contents(tmp_path, FILES)
    story.write_text(STORY.replace("mhattn.costs import divides", "operator import lt as divides"))
    runner.run(story, tmp_path / "run", "cpu")
    folders = {"one": tmp_path / "run", "one.zh": tmp_path / "run" / "zh"}
    monkeypatch.setattr(results, "_folders", folders)
    return story


@pytest.fixture(autouse=True)
def folder_for_the_run(tmp_path):
    (tmp_path / "run").mkdir()


def test_a_chinese_page_shows_comments_as_they_are_now(filed):
    text = filed.with_name("one.zh.po").read_text(encoding="utf-8")
    filed.with_name("one.zh.po").write_text(text.replace("两个词", "就两个词"), encoding="utf-8")
    shown = results.as_printed(translation.shown_section("one.pycon:one", "zh"))
    assert '>>> words = ["猫", "坐"]  # 就两个词\n' in shown.text
    assert '>>> print(f"{words[0]}：{half(4)}", "坐着")\n猫：2.0 坐着\n' in shown.text


def test_a_difference_is_named_with_the_line_where_it_stands_now(filed, tmp_path):
    story = tmp_path / "one.pycon"
    text = story.read_text(encoding="utf-8").replace("cat is 2.0 sat", "cat is 3.0 sat")
    story.write_text(text, encoding="utf-8")
    (tmp_path / "again").mkdir()
    (said,) = runner.run(story, tmp_path / "again", "cpu")
    assert said.startswith(f"{story}:9: in section 'one'\n    print(")
    assert said.endswith("\nexpected\n    cat is 3.0 sat\ngot\n    cat is 2.0 sat")
    assert cache.differences(tmp_path / "again", story) == [said]
    story.write_text(text.replace(">>> def half", "\n\n>>> def half"), encoding="utf-8")
    moved = said.replace("pycon:9:", "pycon:11:")
    assert cache.differences(tmp_path / "again", story) == [moved]
    assert json.loads((tmp_path / "run" / "differences.json").read_text("utf-8")) == []


def test_labs_and_stories_are_all_read():
    """A story whose meaning is its text would be run by each typo."""
    for story in keys.all_stories():
        assert meaning.of_story(story).others != ["anything"], story
        assert set(sections(story)), story
    assert any(story.parent == LABS for story in keys.all_stories())

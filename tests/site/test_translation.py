"""A story in Chinese from its catalog: what is translated, what is refused, and what runs twice."""

import json
import re

import polib
import pytest
from cases import every
from mhsite.pages.page import sections_of
from mhsite.stories import bilingual, keys, results, runner, schedule, source, translation
from mhsite.stories.source import LABS, STORIES, SourceError, sections
from test_languages import NAMES

CATALOGS = sorted(STORIES.glob("*.zh.po")) + sorted(LABS.glob("*.zh.po"))
HAN = re.compile("[一-鿿]")

STORY = '''\
# --8<-- [start:one]
>>> import torch
>>> calls = []
>>> def train(steps):
...     """Train, and note it."""
...     calls.append(steps)
...     return torch.randn(steps)  # (steps,)
>>> words = ["cat", "sat"]  # two words
>>> losses = train(3)
>>> print(f"{words[0]}: {len(losses)} of {len(words)} losses")
cat: 3 of 2 losses

# --8<-- [end:one]
# --8<-- [start:two]
>>> rows = [[word, 1] for word in words]
>>> rows.append(["sum", 2])
>>> print(rows[-1][0], len(rows), len(calls))
sum 3 1
>>> print(torch.randn(1).shape, torch.zeros(2, dtype=torch.int64))
torch.Size([1]) tensor([0, 0])

# --8<-- [end:two]
'''
CHINESE = {
    "Train, and note it.": "训练，并记下来。",
    "cat": "猫",
    "sat": "坐",
    "two words": "两个词",
    "sum": "和",
}
LOSSES = "{words[0]}: {len(losses)} of {len(words)} losses"
CHINESE |= {LOSSES: "{words[0]}：{len(words)} 分之 {len(losses)}"}


def catalog(known):
    """As translators' programs write it."""
    made = polib.POFile()
    made.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    for said, chinese in known.items():
        made.append(polib.POEntry(msgid=said, msgstr=chinese))
    return str(made)


@pytest.fixture
def story(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "STORIES", tmp_path)
    (tmp_path / "a.pycon").write_text(STORY, encoding="utf-8")
    (tmp_path / "a.zh.po").write_text(catalog(CHINESE), encoding="utf-8")
    return tmp_path / "a.pycon"


def run(story, folder="run"):
    """The outputs of a story's run in Chinese, by section."""
    made = story.parent / folder
    made.mkdir()
    runner.run(story, made, "cpu")
    return json.loads((made / "zh" / "outputs.json").read_text(encoding="utf-8"))


def rewrite(story, change=("", ""), known=()):
    assert change[0] in STORY
    story.write_text(STORY.replace(*change, 1), encoding="utf-8")
    story.with_name("a.zh.po").write_text(catalog(CHINESE | dict(known)), encoding="utf-8")


def test_a_chinese_page_shows_other_words_and_the_same_names(story):
    code = translation.shown_section("a.pycon:one", "zh").code
    assert 'words = ["猫", "坐"]  # 两个词' in code
    assert 'print(f"{words[0]}：{len(words)} 分之 {len(losses)}")' in code
    assert '    """训练，并记下来。"""' in code
    assert "# (steps,)" in code
    assert translation.shown_section("a.pycon:one").code == sections(story)["one"].code


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ('x = "two words"  # and more', ["two words", "and more"]),
        ("f'{x[0]} of {y:{width}}'", ["{x[0]} of {y:{width}}"]),
        ("f'{word!r:>8}'", []),
        ('f"{{word}} {x}"', ["{{word}} {x}"]),
        ('ax.set(xlabel="length n", xscale="log")', ["length n"]),
        ('data_file("runs/longer.json")', []),
        ('b"bytes"', []),
        ('einsum("bhld,bhsd->bhls", q, k)', []),
        (r'"$\\alpha$"', []),
        (r'"$n$\nwords"', [r"$n$\nwords"]),
        ("(B, L)  # (B, L, E)", []),
        ('"mhattn.core", "q_proj", "#4477aa"', []),
        ('dict(label="half", color="black", fontsize=8)', ["half"]),
        ('def f():\n    """Two.\n\n    Three."""', ["Two.\n\n    Three."]),
    ],
)
def test_a_text_is_what_a_reader_reads(code, said):
    assert [text.said for text in translation.texts(code)] == said
    assert all(code[text.start : text.end] == text.said for text in translation.texts(code))


@pytest.mark.parametrize(
    ("change", "known", "why"),
    [
        (("# two words", "# three words"), {}, r"a\.pycon:8: no Chinese for 'three words'"),
        (('"sum"', '"all"'), {"all": "和"}, r"a\.zh\.po:\d+: a\.pycon has no 'sum' now"),
        (("", ""), {"sum": '" + "'}, r"a\.pycon:16: in Chinese this is other code"),
        (("", ""), {"sum": '和"'}, r"a\.pycon:16: in Chinese this is other code"),
        (("", ""), {LOSSES: "{words[0]}"}, r"a\.pycon:10: in Chinese this is other code"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(story, change, known, why):
    rewrite(story, change, known=known)
    with pytest.raises(SourceError, match=why):
        translation.shown_section("a.pycon:two", "zh")


def test_a_catalog_is_brought_up_to_date(story):
    """What is gone goes; what only changed keeps its Chinese as a proposal, which isn't enough."""
    text = STORY.replace("# two words", "# two short words").replace('"sum"', '"all"')
    story.write_text(text, encoding="utf-8")
    older = "the Chinese of 'two short words' is that of an older text: correct it in a.zh.po"
    missing = [f"{story}:8: {older}, then delete '#, fuzzy'", f"{story}:16: no Chinese for 'all'"]
    assert translation.note(sections(story).values()) == missing
    text = story.with_name("a.zh.po").read_text(encoding="utf-8")
    assert '#, fuzzy\nmsgid "two short words"\nmsgstr "两个词"\n' in text
    assert '#. two: rows.append(["all", 2])\nmsgid "all"\nmsgstr ""\n' in text
    assert '"sum"' not in text
    assert translation.note(sections(story).values()) == missing
    rewrite(story)
    assert translation.note(sections(story).values()) == []
    once = story.with_name("a.zh.po").read_bytes()
    assert translation.note(sections(story).values()) == []
    assert story.with_name("a.zh.po").read_bytes() == once


def test_a_section_may_have_words_of_its_own(story):
    """`cat` is a word in one section, and a key in another."""
    text = STORY.replace(">>> rows = [", ">>> keyed = {'cat': 1}\n>>> rows = [")
    story.write_text(text, encoding="utf-8")
    known = polib.pofile(catalog(CHINESE))
    known.append(polib.POEntry(msgctxt="two", msgid="cat", msgstr="cat"))
    story.with_name("a.zh.po").write_text(str(known), encoding="utf-8")
    assert "['猫'" in translation.shown_section("a.pycon:one", "zh").code.replace('"', "'")
    assert "{'cat': 1}" in translation.shown_section("a.pycon:two", "zh").code
    assert translation.note(sections(story).values()) == []
    assert 'msgctxt "two"\nmsgid "cat"\nmsgstr "cat"' in story.with_name("a.zh.po").read_text(
        "utf-8"
    )
    known[-1].msgctxt = "three"
    story.with_name("a.zh.po").write_text(str(known), encoding="utf-8")
    with pytest.raises(SourceError, match=r"a\.zh\.po:\d+: a\.pycon has no 'cat' now"):
        translation.shown_section("a.pycon:two", "zh")


def test_a_result_depends_on_the_catalog(story):
    before = keys.content(story, keys.package())
    rewrite(story, known={"sum": "总和"})
    assert keys.content(story, keys.package()) != before


# What runs twice


def test_what_is_said_is_said_twice_and_what_is_computed_is_computed_once(story):
    """`calls` is 1 in both languages: training ran once; `rows` has three rows, not four."""
    made = run(story)
    assert made["one"]["text"] == "猫：2 分之 3\n"
    assert made["two"]["text"] == "和 3 1\ntorch.Size([1]) tensor([0, 0])\n"
    told = translation.chinese_sections(story)["two"].printing(made["two"]["printed"])
    assert ">>> rows = [[word, 1] for word in words]" in told
    assert "和 3 1\n>>> print(torch.randn" in told
    english = json.loads((story.parent / "run" / "outputs.json").read_text(encoding="utf-8"))
    assert english["two"]["text"] == "sum 3 1\ntorch.Size([1]) tensor([0, 0])\n"


@pytest.mark.parametrize(
    ("lines", "printed"),
    [
        # a function that says something, and one that calls it
        (["def say(x):", "    print('sum', x)", "def twice(x):", "    say(2 * x)", "twice(1)"],
         "和 2\n"),
        # a list that a function names is another one by then
        (["def first():", "    return rows[0]", "rows = ['sum']", "print(first())"], "和\n"),
        # random numbers are the same, and go on where they were
        (["draw = torch.randn(1).item()", "print('sum', f'{draw:.6f}')",
          "print(f'{torch.randn(1).item():.6f}')"], None),
        # an iterator is used up in both
        (["parts = zip([1, 2], [3, 4])", "print(*['sum' for _ in parts])"], "和 和\n"),
        # what is bound anew is shared again
        (["word = 'sum'", "word = 3", "calls.append(word)", "print(len(calls))"], "2\n"),
        # what was there before is what both start from
        (["n = 3", "n = n + len('sum') * 0 + 1", "print(n)"], "4\n"),
        # a variable of a loop is nobody else's
        (["for word in ['sum']: print(word)", "for word in [4]: calls.append(word)",
          "print(len(calls))"], "和\n2\n"),
        # a function's name may be a number's later
        (["words = ['sum']", "def name():", "    return words[0]", "print(name())", "name = 3",
          "list.append(calls, name)", "print(len(calls))"], "和\n2\n"),
        # or that of a function which says something
        (["def say():", "    return 3", "print(say())", "def say():", "    return 'sum'",
          "print(say())"], "3\n和\n"),
    ],
)  # fmt: skip
def test_each_language_has_what_it_needs(story, lines, printed):
    code = "\n".join(("... " if line[:4] == "    " else ">>> ") + line for line in lines)
    text = STORY.replace(">>> rows = [[word", f"{code}\n>>> rows = [[word")
    story.write_text(text, encoding="utf-8")
    made = run(story)["two"]["text"].removesuffix(" 3 1\ntorch.Size([1]) tensor([0, 0])\n")
    english = json.loads((story.parent / "run" / "outputs.json").read_text(encoding="utf-8"))
    if printed is None:
        printed = english["two"]["text"].split("sum 3")[0].replace("sum", "和")
    assert made.startswith(printed)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("print('sum', list.append(calls, 1))", "changes 'calls', which both languages share"),
        ("print('sum', len('sum'))", "prints other numbers"),
        ("print('sum', [torch.randn(n) for n in range(len('sum'))][0])", "other random numbers"),
        ("print({'cat': 1}['sum'])", "KeyError: 'sum'"),
    ],
)
def test_what_cannot_be_told_twice_stops_with_its_line(story, line, why):
    rewrite(story, (">>> rows.append", f">>> {line}\n>>> rows.append"))
    with pytest.raises(SourceError, match=why) as error:
        run(story)
    assert "a.pycon:16: in" in str(error.value)


FIGURE = """\
# --8<-- [start:one]
>>> import matplotlib.pyplot as plt
>>> figure, ax = plt.subplots()
>>> line = ax.plot([1, 2])
>>> note = ax.set_title("sum")

# --8<-- [end:one]
# --8<-- [start:two]
>>> figure, ax = plt.subplots()
>>> line = ax.plot([1, 2])

# --8<-- [end:two]
"""


def test_each_language_has_its_figure(story):
    story.write_text(FIGURE, encoding="utf-8")
    story.with_name("a.zh.po").write_text(catalog({"sum": "和"}), encoding="utf-8")
    run(story)
    drawn = {
        path.relative_to(story.parent / "run").as_posix(): path.read_text(encoding="utf-8")
        for path in story.parent.rglob("*.svg")
    }
    words = {name: re.findall(">(sum|和)</text>", svg) for name, svg in drawn.items()}
    assert words == {"one.svg": ["sum"], "zh/one.svg": ["和"], "two.svg": [], "zh/two.svg": []}
    assert drawn["one.svg"].replace("sum", "和") == drawn["zh/one.svg"]
    assert drawn["two.svg"] == drawn["zh/two.svg"]


def test_what_code_reads_is_what_it_did_not_bind():
    assert bilingual.read("for x in xs: print(x, y)") == {"xs", "print", "y"}
    assert bilingual.read("x = x + 1") == {"x"}
    assert bilingual.read("x += 1") == {"x"}
    assert bilingual.read("[x for x in xs if x in y]") == {"xs", "y"}
    assert bilingual.read("def f(a): return a + b + f(a)") == {"b"}
    assert bilingual.read("_ = ax.plot(1)") == {"ax"}


# The catalogs of this project


def story_of(catalog):
    name = catalog.name.removesuffix(".zh.po")
    return next(path for path in keys.all_stories() if path.stem == name)


def unsaid(shown, catalog):
    """The entries with English words that are no names, and for which no reason is given."""
    code = "".join(section.code for section in shown)
    for entry in polib.pofile(str(catalog)):
        said = re.sub(r"\\n|\{[^{}]*\}|\$[^$]*\$|`[^`]*`", " ", entry.msgstr)
        latin = re.findall(r"(?<![\w.])[A-Za-z_][\w.]*[A-Za-z]\w*(?:\(\))?", said, re.ASCII)
        others = [word for word in latin if word not in NAMES and not re.search(r"[._\d(]", word)]
        if HAN.search(said):
            others = [word for word in others if not re.search(rf"\b{word}\b", code)]
        if others and not entry.tcomment:
            yield f"{entry.msgid} -> {entry.msgstr}"


def noted(shown):
    """What a catalog lacks; a test writes nothing into the tree."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation.polib.POFile, "save", lambda *_: None)
        return translation.note(shown)


@every("catalog", CATALOGS)
def test_every_text_has_its_chinese(catalog):
    story = story_of(catalog)
    assert set(translation.chinese_sections(story)) == set(sections(story))
    assert list(unsaid(sections(story).values(), catalog)) == []
    assert noted(sections(story).values()) == []


def test_every_docstring_and_comment_of_the_package_on_pages_has_its_chinese():
    shown = sections_of("mhattn")
    assert len(shown) > 100
    assert list(unsaid(shown, translation.PACKAGE)) == []
    assert noted(shown) == []


def alone(story, folder):
    """What a story prints in Chinese, run from top to bottom by itself."""
    lines = []
    for section in translation.chinese_sections(story).values():
        lines += [f"# --8<-- [start:{section.name}]", section.text.rstrip("\n"), ""]
        lines += [f"# --8<-- [end:{section.name}]"]
    whole = folder / "stories" / f"{story.stem}.zh{story.suffix}"
    whole.parent.mkdir()
    whole.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "run").mkdir()
    run = schedule.Run([], "cpu")
    process = run.context.Process(target=runner.run, args=(whole, folder / "run", "cpu"))
    process.start()
    process.join()
    return json.loads((folder / "run" / "outputs.json").read_text(encoding="utf-8"))


OFTEN = {"dropout.zh.po"}  # the others at night


@pytest.mark.parametrize(
    "catalog",
    [pytest.param(path, marks=[] if path.name in OFTEN else pytest.mark.nightly, id=path.name)
     for path in CATALOGS],
)  # fmt: skip
def test_a_reader_who_runs_it_gets_what_the_page_shows(story_results, tmp_path, catalog):
    """A Chinese story by itself, from top to bottom, prints and draws what its page shows."""
    story = story_of(catalog)
    results.run()
    shown = results.folders()[f"{story.stem}.zh"]
    made = alone(story, tmp_path)
    filed = json.loads((shown / "outputs.json").read_text(encoding="utf-8"))
    assert {name: part["text"] for name, part in made.items()} == {
        name: part["text"] for name, part in filed.items()
    }
    for path in sorted(shown.glob("*.svg")):
        drawn = (tmp_path / "run" / path.name).read_text(encoding="utf-8")
        assert re.findall("<text.*?</text>", drawn) == re.findall(
            "<text.*?</text>", path.read_text(encoding="utf-8")
        )

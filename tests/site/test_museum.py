"""The museum: exhibits that run, and every trap of the pages, its two sides and what came out."""

import importlib.util
import re
from itertools import pairwise

import pytest
import torch
from cases import every
from mhsite.pages import exhibits, link_targets, museum, traps
from mhsite.pages.page import parse, read
from mhsite.stories.source import DOCS, LANGUAGES, STORIES, SourceError, sections

ENTRIES = {key: said for entries in traps.kinds().values() for key, said in entries.items()}
EXHIBITS = {
    f"{sight}.{name}": exhibit
    for sight, named in exhibits.by_sight().items()
    for name, exhibit in named.items()
}
LINES = 6  # of code on each side, at most
COLUMNS = 90  # of a result, at most
# The doctor's checks; its registry, where the package has it, says so itself.
CHECKS = """
    batch cache cache-chunks cache-crop causal-shortcut constant-values corner double dropout
    empty-rows formula future gradients half inputs-kept lengths mask mask-and-causal mask-batch
    mask-forms mask-heads mask-sense mask-size order overflow packing padding padding-gradient past
    positions-half queries-apart relative repeat shape strides weights
"""


def checks():
    if importlib.util.find_spec("mhattn.testing") is None:
        return set(CHECKS.split())
    import mhattn.testing.doctor  # noqa: F401 - it enters all checks
    from mhattn.testing.registry import PAGES

    return set(PAGES)


def page(language):
    return read(DOCS / language / museum.PAGE)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_trap_is_in_the_museum_or_is_left_out_with_a_reason(language):
    named = [key for entries in traps.kinds().values() for key in entries]
    assert sorted([*named, *traps.left_out()]) == sorted(traps.traps(language))
    assert all(len(reason.split()) > 3 for reason in traps.left_out().values())
    assert len(traps.left_out()) < 5


def test_every_check_exists():
    named = {key: said["check"] for key, said in ENTRIES.items() if "check" in said}
    assert {key: name for key, name in named.items() if name not in checks()} == {}
    assert len(named) > 50


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_check_stands_on_the_doctors_page_with_its_chapter(language):
    """Once, in a table, under the section of the site that a report names."""
    import mhattn.testing.doctor  # noqa: F401 - it enters all checks
    from mhattn.testing.registry import PAGES

    text = (DOCS / language / museum.DOCTOR).read_text(encoding="utf-8")
    text = text.partition("{ #checks }")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \|.*\]\(([\w-]+)\.md(#[\w-]+)\) \|$", text, re.M)
    assert sorted(name for name, *_ in rows) == sorted(PAGES)
    assert {name: f"{page}/{anchor}" for name, page, anchor in rows} == PAGES
    assert set(museum.sections_of_checks(language)) == set(PAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_checks_lead_to_the_doctors_page(story_results, language):
    values = [*exhibits.by_sight(), "others"]
    html = "".join(museum.html(f"museum {v}", language, lambda file: f"../{file}") for v in values)
    links = re.findall(r'<a href="\.\./doctor/#([\w-]+)">([\w-]+)</a>', html)
    assert len(links) == sum("check" in said for said in ENTRIES.values())
    for anchor, name in links:
        assert museum.sections_of_checks(language)[name] == anchor
        assert anchor in link_targets.anchors(read(DOCS / language / museum.DOCTOR))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sight_has_its_section(language):
    shown = [b for b in page(language).walk() if b.kind in ("heading", "table")]
    pairs = pairwise(shown)
    titled = [b.value for a, b in pairs if f"museum {a.value}" == b.value]
    assert titled == [f"museum {sight}" for sight in [*exhibits.by_sight(), "others"]]


@every("key", EXHIBITS)
@every("side", exhibits.SIDES)
def test_exhibit_runs_and_its_test_tells_the_sides_apart(key, side):
    """Neither side raises, and the test is false of the wrong lines and true of the right ones."""
    exhibit, names = EXHIBITS[key], {}
    torch.manual_seed(0)
    code = [exhibits.given(), exhibit.get("given", ""), exhibit[side]]
    exec("\n".join(code), names)
    assert bool(eval(f"({exhibit['test'].strip()})", names)) == (side == "right")


def test_exhibits_are_short_and_each_has_a_trap_of_its_own():
    shown = [exhibit["trap"] for exhibit in EXHIBITS.values()]
    assert len(shown) == len(set(shown))
    assert set(shown) <= set(ENTRIES)
    for key, exhibit in EXHIBITS.items():
        for part in (*exhibits.SIDES, "test"):
            lines = exhibit[part].strip().splitlines()
            assert len(lines) <= LINES, key
            assert all(len(line) <= 56 for line in lines), key
        assert set(exhibit["title"]) == set(exhibit["see"]) == set(LANGUAGES), key
        assert len(exhibit["see"]["en"].split()) <= 30, key


@pytest.mark.parametrize("language", LANGUAGES)
def test_first_lines_count_the_exhibits(language):
    numbers = re.findall(r"\d+", page(language).path.read_text(encoding="utf-8").split("\n\n")[1])
    found = sum("check" in museum.said_of(exhibit["trap"]) for exhibit in EXHIBITS.values())
    assert numbers == [str(len(EXHIBITS)), str(found)]


def test_every_trap_is_an_exhibit_or_in_the_table(story_results):
    html = museum.html("museum others", "en", str)
    rows = re.findall(r'<tr id="([^"]+)">', html)
    kept = {key.replace(":", "-") for key in set(ENTRIES) - exhibits.traps_shown()}
    assert sorted(rows) == sorted(kept)
    bodies = re.findall(r'<tbody id="([^"]+)">', html)
    assert bodies == [f"others-{kind}" for kind in traps.kinds()]


@every("language", LANGUAGES)
@every("key", ENTRIES)
def test_entry_says_what_is_wrong_and_what_came_out(story_results, language, key):
    trap, english = traps.traps(language)[key], traps.traps("en")[key]
    wrong, right = traps.pair(trap)
    assert wrong
    assert wrong != right
    assert all(len(side.splitlines()) <= LINES for side in (wrong, right))
    came = traps.outcome(trap, english)
    assert came
    assert all(result.strip() for _, result in came)
    assert len(set(came)) == len(came), "both sides gave the same"
    assert all(len(head + result) <= COLUMNS for head, result in came)
    if language == "zh":
        assert len(came) == len(traps.outcome(english, english))


def test_file_says_only_what_finds_a_trap():
    assert {option for said in ENTRIES.values() for option in said} == {"check"}


def test_every_mark_belongs_to_a_trap():
    """Nothing would show the lines of one that is lost, and no reader would miss them."""
    found = [trap for trap in traps.traps("en").values() if trap.sections]
    mine = {(each.sections[0].path.stem, s.name) for each in found for s in each.sections}
    keys = {(each.sections[0].path.stem, each.sections[0].name) for each in found}
    marked = 0
    for story in sorted(STORIES.glob("*.pycon")):
        name = story.name.split(".")[0]
        for section in sections(story).values():
            for mark in traps.marks(section):
                named = mark.is_code and mark.of
                assert (name, mark.of) in keys if named else (name, section.name) in mine, mark
                marked += 1
    assert marked > 400


def test_story_on_other_data_has_the_marks_of_the_english_one():
    """On the same lines of code; and what is marked as printed stands on the same line."""
    for twin in STORIES.glob("*.zh.pycon"):
        chinese = sections(twin)
        for section in sections(STORIES / f"{twin.name.split('.')[0]}.pycon").values():
            other = chinese[section.name]
            code = [mark for mark in traps.marks(section) if mark.is_code]
            same = [(mark.side, mark.of, mark.text.partition("#")[0]) for mark in code]
            marks = [mark for mark in traps.marks(other) if mark.is_code]
            assert [(m.side, m.of, m.text.partition("#")[0]) for m in marks] == same
            if len(code) < len(section.marks):
                assert section.text.count("\n") == other.text.count("\n")


@pytest.mark.parametrize("language", LANGUAGES)
def test_links_lead_to_the_traps(story_results, language):
    values = [*exhibits.by_sight(), "others"]
    html = "".join(museum.html(f"museum {v}", language, lambda file: f"../{file}") for v in values)
    links = re.findall(r'<(?:p|td)><a href="\.\./([\w-]+)/#([\w-]+)"', html)
    assert len(links) == len(ENTRIES)
    for name, anchor in links:
        assert anchor in link_targets.anchors(read(DOCS / language / f"{name}.md"))


def test_traps_have_ids_of_their_own():
    for trap in traps.traps("en").values():
        ids = [each.block.trap for each in traps.traps("en").values() if each.page == trap.page]
        assert len(ids) == len(set(ids))


def test_public_reports_are_linked(story_results):
    html = museum.html("museum long", "en", lambda file: f"../{file}")
    assert (
        'seen in <a href="https://github.com/EleutherAI/gpt-neox/issues/1003">gpt-neox#1003</a>'
        in html
    )


def test_unknown_kind_is_an_error():
    with pytest.raises(SourceError, match=r"exhibits\.toml has no \[sorrows"):
        museum.html("museum sorrows", "en", str)


# The parts, on a trap of our own


@pytest.fixture
def trap_of(tmp_path, monkeypatch):
    """A trap in these sections, as if a page had it; the first is its own."""
    monkeypatch.setattr(traps.results, "as_printed", lambda section: section)

    def made(**texts):
        path, text = tmp_path / "x.pycon", ""
        for name, body in texts.items():
            name = name.replace("_", "-")
            text += f"# --8<-- [start:{name}]\n{body}\n\n# --8<-- [end:{name}]\n"
        path.write_text(text, encoding="utf-8")
        every = list(sections(path).values())
        trap = traps.Trap(page("en"), parse("/// warning | x\n///\n").blocks[0])
        trap.__dict__.update(sections=every[:1], story=every)
        return trap

    return made


@pytest.mark.parametrize(
    ("code", "wrong", "right"),
    [
        (">>> wrong = x[1:]\n>>> right = x[:-1]", "x[1:]", "x[:-1]"),
        (">>> wrong, right = x.mT, x", "x.mT", "x"),
        (">>> wrong = f(\n...     1,\n... )", "f(\n    1,\n)", ""),
        (">>> x = 1  # [wrong]\n>>> x = 2  # why  # [right]", "x = 1", "x = 2  # why"),
        (">>> wrong = 1\n>>> wrong = 2  # [wrong]", "wrong = 2", ""),
        (">>> _ = f(1)  # [wrong]\n>>> f(2)  # [right]", "f(1)", "f(2)"),
        (
            ">>> def f(x):\n...     if x:  # [wrong]\n...         return 1  # [wrong] [right]",
            "if x:\n    return 1",
            "return 1",
        ),
        (">>> def f(x):\n...     return 1  # [wrong: trap-of-others]\n>>> wrong = f", "f", ""),
    ],
)
def test_both_sides_are_read(trap_of, code, wrong, right):
    assert traps.pair(trap_of(trap=code)) == [wrong, right]


def test_lines_of_other_sections_are_read_by_the_name_of_the_trap(trap_of):
    above = ">>> a = 1  # [right: trap-x] [wrong: trap-y]\n>>> b = 1  # [right]"
    assert traps.pair(trap_of(trap_x=">>> wrong = 2", above=above)) == ["2", "a = 1"]


TABLE = "|       |   a |   b |\n|-------|----:|----:|\n| %s | 1.0 | 3.0 |%s\n| %s | 1.0 | 2.0 |%s"
TURNED = "| wrong | right |\n|------:|------:|\n|     3 |     2 |  # [wrong] [right]"


@pytest.mark.parametrize(
    ("output", "came"),
    [
        ("wrong: off by 3\nright: off by 0", [("", "off by 3"), ("", "off by 0")]),
        ("never right 3\nwrong 1\nright 0", [("", "1"), ("", "0")]),
        ("wrong 1\nwrong 2  # [wrong]\nright 0", [("", "2"), ("", "0")]),
        ("wrong 3, right 0  # [wrong] [right]", [("", "3"), ("", "0")]),
        ("3  # [wrong]\n0  # [right]", [("", "3"), ("", "0")]),
        ("old 3\nnew 0  # [right]\nwronger", [("", "new 0")]),
        (TABLE % ("old", "  # [wrong: b]", "new", "  # [right: b]"),
         [("old · b", "3.0"), ("new · b", "2.0")]),
        (TABLE % ("wrong", "  # [wrong: b]", "right", "  # [right: b]"),
         [("b", "3.0"), ("b", "2.0")]),
        (TABLE % ("x", "  # [wrong: b] [right: a]", "y", ""),
         [("x · b", "3.0"), ("x · a", "1.0")]),
        (TURNED, [("", "3"), ("", "2")]),
    ],
)  # fmt: skip
def test_results_are_read(trap_of, output, came):
    trap = trap_of(trap=f">>> print(x)\n{output}")
    assert traps.outcome(trap, trap) == came


@pytest.mark.parametrize(
    ("read", "text", "error"),
    [
        ("pair", ">>> x = 1", r":2: .* no line is wrong; put `# \[wrong\]` behind"),
        ("pair", ">>> wrong = 1\n>>> wrong = 2", r":2: .*`wrong` has 2 values; put `# \[wrong\]`"),
        ("outcome", ">>> x = 1", r":2: .* no printed line says .*; put `# \[wrong\]` or"),
        ("outcome", ">>> f()\nwrong 1\nwrong 2", r":4: .* put `# \[wrong\]` behind one"),
        ("outcome", ">>> f()\n1  # [right]\n2  # [right]", r":4: .* `# \[right\]` behind one"),
        ("outcome", ">>> f()\n" + TABLE % ("x", "  # [wrong]", "y", ""),
         r":5: which column is wrong\? Say it: `# \[wrong: COLUMN\]`"),
        ("outcome", ">>> f()\n" + TABLE % ("x", "  # [wrong: c]", "y", ""), r":5: which column"),
    ],
)  # fmt: skip
def test_what_is_missing_is_an_error_that_says_what_to_write(trap_of, read, text, error):
    trap = trap_of(trap=text)
    with pytest.raises(SourceError, match=rf"x\.pycon{error}"):
        traps.pair(trap) if read == "pair" else traps.outcome(trap, trap)


@pytest.mark.parametrize(("implementation", "hidden"), [("eager", "mean"), ("sdpa", "zeros")])
def test_page_is_right_about_rows_that_see_nothing_in_transformers(implementation, hidden):
    """What the first query of a batch that is padded on the left gets, before the output matrix."""
    from transformers import LlamaConfig, LlamaModel

    sizes = {"vocab_size": 11, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    model = LlamaModel(LlamaConfig(**sizes, **heads, attn_implementation=implementation)).eval()
    attention, kept = model.layers[0].self_attn, {}
    attention.v_proj.register_forward_hook(lambda *call: kept.update(value=call[2]))
    attention.o_proj.register_forward_pre_hook(lambda *call: kept.update(mixed=call[1][0]))
    tokens, mask = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[0, 0, 1, 1]])
    with torch.no_grad():
        model(tokens, attention_mask=mask)
    expected = kept["value"][0].mean(dim=0) if hidden == "mean" else torch.zeros(16)
    torch.testing.assert_close(kept["mixed"][0, 0], expected)

"""The museum: every trap of the pages, its two sides and what came out, from where it stands."""

import importlib.util
import re
from itertools import pairwise

import pytest
import torch
from cases import every
from mhsite.pages import data, museum, traps
from mhsite.pages.page import parse, read
from mhsite.stories.source import DOCS, LANGUAGES, Cell, SourceError

ENTRIES = {key: said for entries in traps.kinds().values() for key, said in entries.items()}
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
    html = museum.html("museum masks", language, lambda file: f"../{file}")
    links = re.findall(r'<a href="\.\./doctor/#([\w-]+)">([\w-]+)</a>', html)
    assert len(links) == sum("check" in said for said in traps.kinds()["masks"].values())
    for anchor, name in links:
        assert museum.sections_of_checks(language)[name] == anchor
        assert anchor in data.anchors(read(DOCS / language / museum.DOCTOR))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_kind_has_its_section(language):
    shown = [b for b in page(language).walk() if b.kind in ("heading", "table")]
    pairs = pairwise(shown)
    titled = [b.value for a, b in pairs if f"museum {a.value}" == b.value]
    assert titled == [f"museum {kind}" for kind in traps.kinds()]


@every("language", LANGUAGES)
@every("key", ENTRIES)
def test_entry_says_what_is_wrong_and_what_came_out(story_results, language, key):
    trap, english = traps.traps(language)[key], traps.traps("en")[key]
    wrong, right = traps.pair(trap, english, ENTRIES[key])
    assert wrong
    assert wrong != right
    assert all(len(side.splitlines()) <= LINES for side in (wrong, right))
    came = traps.outcome(trap, english, ENTRIES[key])
    assert came
    assert all(result.strip() for _, result in came)
    assert len(set(came)) == len(came), "both sides gave the same"
    assert all(len(head + result) <= COLUMNS for head, result in came)
    if language == "zh":
        assert len(came) == len(traps.outcome(english, english, ENTRIES[key]))


@every("key", [key for key, said in ENTRIES.items() if set(said) - {"check"}])
def test_file_says_nothing_that_is_found_without_it(story_results, key):
    trap, said = traps.traps("en")[key], ENTRIES[key]
    assert set(said) <= {"check", "wrong", "right", "labels", "at"}

    def made(options):
        return traps.pair(trap, trap, options), traps.outcome(trap, trap, options)

    for option in set(said) - {"check"}:
        assert made({k: v for k, v in said.items() if k != option}) != made(said), option


@pytest.mark.parametrize("language", LANGUAGES)
def test_links_lead_to_the_traps(story_results, language):
    html = museum.html("museum masks", language, lambda file: f"../{file}")
    links = re.findall(r'<p><a href="\.\./([\w-]+)/#([\w-]+)"', html)
    assert len(links) == len(traps.kinds()["masks"])
    for name, anchor in links:
        assert anchor in data.anchors(read(DOCS / language / f"{name}.md"))


def test_traps_have_ids_of_their_own():
    for trap in traps.traps("en").values():
        ids = [each.block.trap for each in traps.traps("en").values() if each.page == trap.page]
        assert len(ids) == len(set(ids))


def test_public_reports_are_linked(story_results):
    html = museum.html("museum positions", "en", lambda file: f"../{file}")
    assert (
        'seen in <a href="https://github.com/EleutherAI/gpt-neox/issues/1003">gpt-neox#1003</a>'
        in html
    )


def test_kinds_are_counted(story_results):
    html = museum.html("museum kinds", "en", str)
    for kind, entries in traps.kinds().items():
        assert re.search(rf'<a href="#{kind}">[^<]+</a> {len(entries)}\b', html)


def test_unknown_kind_is_an_error():
    with pytest.raises(SourceError, match=r"museum\.toml has no \[sorrows\]"):
        museum.html("museum sorrows", "en", str)


def test_line_that_is_not_there_is_an_error():
    trap = traps.traps("en")["attention:trap"]
    with pytest.raises(SourceError, match=r"0 lines of attention\.pycon start with 'nothing'"):
        traps.pair(trap, trap, {"wrong": "nothing"})
    with pytest.raises(SourceError, match=r"2 lines of attention\.pycon start with"):
        traps.pair(trap, trap, {"wrong": "weights = scores.softmax"})


# The parts, on code and outputs of our own


def trap_of(code):
    """A trap with this code, as if a story had it."""

    class Section:
        path, name = DOCS / "stories" / "x.pycon", "trap"

    Section.code = code
    block = parse("/// warning | x\n///\n").blocks[0]
    trap = traps.Trap(page("en"), block)
    trap.__dict__["sections"] = [Section]
    return trap


@pytest.mark.parametrize(
    ("code", "wrong", "right"),
    [
        ("wrong = x[1:]\nright = x[:-1]", "x[1:]", "x[:-1]"),
        ("wrong, right = x.mT, x", "x.mT", "x"),
        ('runs = {"wrong": f(1), "right": f(2)}', "f(1)", "f(2)"),
        (
            "def wrong(x):\n    y = x\n    return y + 1\ndef right(x):\n    y = x\n    return y",
            "return y + 1",
            "return y",
        ),
        (
            "def f(x):  # wrong\n    return 1\ndef g(x):  # right\n    return 2",
            "return 1",
            "return 2",
        ),
        ("class Wrong:\n    a = 1\nclass Right:\n    a = 2", "a = 1", "a = 2"),
        ("wrong = f(\n    1,\n)", "f(\n    1,\n)", ""),
        ("other = 1", "", ""),
    ],
)
def test_both_sides_are_found(code, wrong, right):
    trap = trap_of(code)
    assert traps.pair(trap, trap, {}) == [wrong, right]


USUAL = ["wrong", "right"]
TABLE = "|       |   a |   b |\n|-------|----:|----:|\n| wrong | 1.0 | 3.0 |\n| right | 1.0 | 2.0 |"


@pytest.mark.parametrize(
    ("output", "labels", "at", "came"),
    [
        ("wrong: off by 3\nright: off by 0", USUAL, "", [("", "off by 3"), ("", "off by 0")]),
        ("wrong 3, right 0", USUAL, "", [("", "3"), ("", "0")]),
        ("wrong a: 1\nwrong b: 2\nright a: 1\nright b: 3", USUAL, "", [("", "b: 2"), ("", "b: 3")]),
        (TABLE, USUAL, "", [("b", "3.0"), ("b", "2.0")]),
        (TABLE, USUAL, "a", [("a", "1.0"), ("a", "1.0")]),
        (TABLE, ["b", "a"], "", [("wrong · b", "3.0"), ("wrong · a", "1.0")]),
        ("old 3\nnew 0", ["old", "new"], "", [("", "old 3"), ("", "new 0")]),
        ("never right 3\nwrong 1\nright 0", USUAL, "", [("", "1"), ("", "0")]),
        ("older 3\nnew 0", ["old", "new"], "", []),
    ],
)
def test_results_are_found(output, labels, at, came):
    found = traps._found([Cell("print(x)\n", output)], labels, at)
    assert [(place.head(output), place.of(output)) for _, place in found] == came


def test_results_of_a_loop_over_both_are_found():
    cell = Cell("for x in (wrong, right):\n    print(x)\n", "3\n0")
    places = traps._found([cell], USUAL, "")
    assert [place.of(cell.output) for _, place in places] == ["3", "0"]


def test_results_in_cells_of_their_own_are_found():
    cells = [Cell("print(1)\n", "wrong 3"), Cell("print(2)\n", "right 0")]
    found = traps._found(cells, USUAL, "")
    assert [place.of(cells[number].output) for number, place in found] == ["3", "0"]


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

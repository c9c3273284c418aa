"""Tables and maps of scores and weights, and the queries and keys that they are made of."""

import io
import json
import re
from html import unescape

import matplotlib.pyplot as plt
import pytest
import torch
from mhsite.stories import grids, runner
from mhsite.stories.svg import site_svg

from mhattn import table

WORDS = ["the", "cat's", "<mat>"]
START = f"""
import torch
from mhattn import causal_mask, masked_softmax, plot_heads, plot_weights, table
_ = torch.manual_seed(0)
words = {WORDS!r}
Q, K = torch.randn(2, 3, 5)
scores = Q @ K.T / 5**0.5
mask = causal_mask(3)
"""


def told(code):
    """What a page says of the tables and maps that a story shows: all in one list."""
    namespace = {}
    with grids.noted() as shown:
        exec(START + code, namespace)
    return namespace, grids.described(shown, namespace)


def read(attributes):
    return [
        json.loads(unescape(re.fullmatch(r" data-grid='([^']*)'", text)[1]))
        for text in attributes.values()
    ]


def products(about):
    """The scores that the vectors of a table or map make."""
    query, key = (torch.tensor(about[side]).double() for side in ("queries", "keys"))
    return (query[:, None] * key).sum(dim=-1) / query.shape[-1] ** 0.5


@pytest.mark.parametrize(
    ("code", "kind", "hidden"),
    [
        ("scores", "score", None),
        ("scores.double()", "score", None),
        ("scores.masked_fill(~mask, -torch.inf)", "score", "upper"),
        ("scores.softmax(dim=-1)", "weight", None),
        ("masked_softmax(scores, mask)", "weight", "upper"),
        ("scores.masked_fill(mask, -torch.inf).softmax(dim=-1)", "weight", "lower"),
    ],
)
def test_the_vectors_of_a_table_are_found(code, kind, hidden):
    namespace, (tables, maps) = told(f"text = table({code}, words, words)")
    assert maps == {}
    assert [*tables] == [namespace["text"]]
    (about,) = read(tables)
    assert about["kind"] == kind
    torch.testing.assert_close(products(about).float(), namespace["scores"])
    triangle = {"upper": torch.ones(3, 3).triu(1), "lower": torch.ones(3, 3).tril()}
    right = None if hidden is None else triangle[hidden].int().tolist()
    assert about.get("hidden") == right


@pytest.mark.parametrize(
    "names",
    ["Q2, K2 = Q, K", "query, key = Q, K", "q_1, k_1 = Q, K", "X, W_q, W_k = Q, torch.eye(5), P"],
)
def test_the_names_that_a_story_gives_them(names):
    named = f"P = torch.linalg.pinv(Q) @ K\n{names}\ndel Q, K\n"
    code = named + "text = table(scores, words, words)"
    namespace, (tables, _) = told(code)
    (about,) = read(tables)
    torch.testing.assert_close(products(about).float(), namespace["scores"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "code",
    [
        "2 * scores",
        "scores + 1e-3 * torch.eye(3)",
        "scores.T",
        "scores.softmax(dim=0)",
        "masked_softmax(scores, mask) ** 2",
        "mask.int()",
        "(100 * scores).int()",
        "torch.full((3, 3), -torch.inf)",
    ],
)
def test_other_numbers_have_words_and_no_vectors(code):
    _, (tables, _) = told(f"text = table({code}, words, words)")
    assert read(tables) == [{}]


def test_a_table_of_other_words_is_none():
    code = "text = table(scores[:, :2] + 1, words, 'ab'), table(scores + 1)"
    assert told(code)[1] == ({}, {})


def test_vectors_too_long_to_write_out_are_left_out():
    code = "Q, K = torch.randn(2, 3, 9)\ntext = table(Q @ K.T / 3, words, words)"
    assert read(told(code)[1][0]) == [{}]


def test_a_table_of_some_queries_has_theirs():
    code = "text = table(masked_softmax(scores, mask)[[2, 0]], [words[2], words[0]], words)"
    namespace, (tables, _) = told(code)
    (about,) = read(tables)
    torch.testing.assert_close(products(about).float(), namespace["scores"][[2, 0]])
    assert about["hidden"] == [[0, 0, 0], [0, 1, 1]]


def test_a_weight_too_small_to_be_held_is_not_hidden():
    code = "Q = 1000 * Q\nA = (Q @ K.T / 5**0.5).softmax(dim=-1)\ntext = table(A, words, words)"
    namespace, (tables, _) = told(code)
    assert (namespace["A"] == 0).any()
    (about,) = read(tables)
    assert "hidden" not in about


def test_a_hidden_weight_is_hidden_though_its_score_is_far_below_the_largest():
    """exp(-11.5) is a number: who sees a zero there knows that it was masked."""
    code = (
        "Q, K = 20 * torch.eye(3), torch.eye(3)\n"
        "text = table(masked_softmax(Q @ K.T / 3**0.5, mask), words, words)"
    )
    (about,) = read(told(code)[1][0])
    assert about["hidden"] == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]


STORY = """\
# --8<-- [start:one]
>>> import torch
>>> from mhattn import plot_weights, table
>>> Q = K = torch.eye(4)
>>> print(table(Q @ K.T / 2, "abcd", "abcd", digits=1))
{}

# --8<-- [end:one]
# --8<-- [start:two]
>>> Q = 3 * Q
>>> print(table(Q @ K.T / 2, "abcd", "abcd", digits=1))
{}
>>> ax = plot_weights((Q @ K.T / 2).softmax(dim=-1), queries="abcd", keys="abcd")

# --8<-- [end:two]
"""


def test_a_story_imports_once_and_shows_in_each_section(tmp_path, monkeypatch):
    scores = {"one": torch.eye(4) / 2, "two": 3 * torch.eye(4) / 2}
    texts = {name: table(numbers, "abcd", "abcd", digits=1) for name, numbers in scores.items()}
    file = tmp_path / "story.pycon"
    file.write_text(STORY.format(*texts.values()), encoding="utf-8")
    monkeypatch.setattr(
        runner, "prepare", lambda *_, **__: None
    )  # this process is not the story's own
    assert runner.run(file, tmp_path, "cpu") == []
    outputs = json.loads((tmp_path / "outputs.json").read_text(encoding="utf-8"))
    for name, numbers in scores.items():
        assert [*outputs[name]["grids"]] == [texts[name]]
        (about,) = read(outputs[name]["grids"])
        assert products(about).tolist() == numbers.tolist()
    ((_, about),) = boxes((tmp_path / "two.svg").read_text(encoding="utf-8"))
    assert products(about).tolist() == scores["two"].tolist()


def boxes(svg):
    """The corners of each map's cells, and what the page says of it."""
    found = re.findall(r'<g data-box="([^"]*)" data-grid="([^"]*)">', svg)
    return [([float(x) for x in box.split()], json.loads(unescape(text))) for box, text in found]


def test_maps_have_their_vectors_and_the_corners_of_their_cells():
    code = """
from matplotlib import pyplot as plt
figure, axes = plt.subplots(1, 3, figsize=(6, 2))
both = torch.stack([scores.softmax(dim=-1), masked_softmax(scores, mask)])
_ = plot_heads(both, axes=axes[:2], queries=words, keys=words)
_ = plot_weights(both[0] ** 2, ax=axes[2], queries=words, keys=words, annotate=".1f")
"""
    namespace, (tables, maps) = told(code)
    assert tables == {}
    drawn = io.StringIO()
    namespace["figure"].savefig(drawn, format="svg")
    places = [ax.get_window_extent() for ax in namespace["axes"]]
    plt.close("all")
    height = 2 * 72
    one, two, three = boxes(site_svg(grids.with_maps(drawn.getvalue(), maps)))
    for (box, about), place in zip((one, two, three), places, strict=True):
        right = [place.x0, 200 - place.y1, place.x1, 200 - place.y0]  # at 100 dots an inch
        assert box == pytest.approx([x * height / 200 for x in right], abs=0.1)
        assert about["shape"] == [3, 3]
    for (_, about), weights in zip((one, two), namespace["both"], strict=True):
        assert about["kind"] == "weight"
        torch.testing.assert_close(products(about).float(), namespace["scores"])
        assert about["numbers"] == [[f"{x:.2f}" for x in row] for row in weights.tolist()]
    assert two[1]["hidden"] == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    squares = (namespace["both"][0] ** 2).tolist()
    assert three[1].keys() == {"shape", "numbers"}
    assert three[1]["numbers"] == [[f"{x:.1f}" for x in row] for row in squares]


@pytest.mark.parametrize("labels", ["queries=words", "queries=words, keys=['', 'a', 'b']",
                                    "queries=words, keys=['$t$', 'a', 'b']"])  # fmt: skip
def test_a_map_without_words_on_both_sides_is_none(labels):
    _, (_, maps) = told(f"ax = plot_weights(scores.softmax(dim=-1), {labels})")
    plt.close("all")
    assert maps == {}


def test_stories_get_the_functions_themselves_afterwards():
    from mhattn.show import plots, tables

    before = tables.table, plots.plot_weights
    told("")
    assert (tables.table, plots.plot_weights) == before


def test_tensors_without_numbers_are_left_alone():
    assert grids._floats(torch.zeros(2, 3, device="meta")).numel() == 0
    assert grids._floats(torch.zeros(2, 3)).shape == (2, 3)

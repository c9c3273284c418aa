"""What was drawn: rectangles, their colours, labels. Never pixels."""

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from mhattn.plots import COLORS, HEAD_COLORS, NEGATIVE, plot_heads, plot_weights

L, S = 3, 5


def cells(ax):
    """{(row, column): RGBA} of what is drawn, from the corners of the rectangles."""
    (collection,) = ax.collections
    assert isinstance(collection, PolyCollection)
    assert not ax.images
    centers = [path.vertices[:4].mean(0) for path in collection.get_paths()]
    sizes = [np.ptp(path.vertices, axis=0) for path in collection.get_paths()]
    assert np.allclose(sizes, 1)
    faces = collection.get_facecolors()
    return {(round(y), round(x)): tuple(face) for (x, y), face in zip(centers, faces, strict=True)}


def test_queries_down_keys_across_and_alpha_is_the_number():
    weights = torch.rand(L, S)
    ax = plot_weights(weights)
    drawn = cells(ax)
    assert len(drawn) == L * S
    for (i, j), face in drawn.items():
        assert face == pytest.approx((*to_rgb(COLORS["weights"]), weights[i, j].item()))
    assert ax.get_xlim() == (-0.5, S - 0.5)
    assert ax.get_ylim() == (L - 0.5, -0.5)  # the first query is at the top
    assert ax.get_aspect() == 1


def test_cells_have_no_edges_that_would_show_as_seams():
    (collection,) = plot_weights(torch.rand(L, S)).collections
    assert collection.get_linewidths() == [0]
    assert len(collection.get_edgecolors()) == 0


def test_zero_is_the_background():
    assert {face[3] for face in cells(plot_weights(torch.zeros(L, S))).values()} == {0.0}


def test_numbers_below_zero_have_a_colour_of_their_own():
    drawn = cells(plot_weights([[-2.0, 1.0], [0.5, -4.0]], color="black"))
    assert drawn == {
        (0, 0): (*to_rgb(NEGATIVE), 0.5),
        (0, 1): (0, 0, 0, 0.25),
        (1, 0): (0, 0, 0, 0.125),
        (1, 1): (*to_rgb(NEGATIVE), 1.0),
    }


def test_the_scale_ends_at_one_unless_told():
    half = [[0.5, 0.25]]
    assert [face[3] for face in cells(plot_weights(half)).values()] == [0.5, 0.25]
    assert [face[3] for face in cells(plot_weights(half, vmax=0.5)).values()] == [1.0, 0.5]
    assert [face[3] for face in cells(plot_weights([[2.0, 1.0]])).values()] == [1.0, 0.5]


def test_labels_and_numbers_stand_where_they_belong():
    weights = torch.arange(15).reshape(L, S) / 15
    queries, keys = list("abc"), list("vwxyz")
    ax = plot_weights(weights, queries=queries, keys=keys, annotate=".2f", title="head 3")
    assert [label.get_text() for label in ax.get_yticklabels()] == queries
    assert [label.get_text() for label in ax.get_xticklabels()] == keys
    assert ax.get_yticks().tolist() == [0, 1, 2]
    assert ax.get_xticks().tolist() == [0, 1, 2, 3, 4]
    assert ax.get_title() == "head 3"
    for text in ax.texts:
        j, i = text.get_position()
        assert text.get_text() == f"{weights[i, j]:.2f}"
        assert text.get_color() == mpl.rcParams["text.color"]
    assert len(ax.texts) == L * S


def test_without_labels_there_are_no_ticks():
    ax = plot_weights(torch.rand(L, S))
    assert len(ax.get_xticks()) == len(ax.get_yticks()) == len(ax.texts) == 0
    assert ax.get_title() == ""


@pytest.mark.parametrize(
    "weights",
    [
        torch.full((L, S), 0.25, requires_grad=True),
        torch.full((L, S), 0.25, dtype=torch.bfloat16),
        torch.full((L, S), 0.25, dtype=torch.float16),
        torch.full((S, L), 0.25).T,
        np.full((L, S), 0.25, dtype=np.float32),
        [[0.25] * S] * L,
    ],
)
def test_all_kinds_of_numbers_are_drawn(weights):
    assert {face[3] for face in cells(plot_weights(weights)).values()} == {0.25}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_on_a_gpu_are_drawn():
    assert len(cells(plot_weights(torch.rand(L, S, device="cuda")))) == L * S


def test_it_draws_where_it_is_told():
    figure, (left, right) = plt.subplots(1, 2)
    assert plot_weights(torch.rand(L, S), ax=right) is right
    assert not left.collections
    axes = plot_heads(torch.rand(2, L, S), axes=(right, left))
    assert list(axes) == [right, left]
    assert plt.get_fignums() == [figure.number]


def test_no_style_is_changed_and_nothing_is_saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = mpl.rcParams.copy()
    plot_heads(torch.rand(5, L, S), annotate=".1f")
    assert mpl.rcParams == before
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("heads", "columns", "rows"), [(1, 4, 1), (3, 4, 1), (5, 4, 2), (7, 2, 4), (12, 5, 3)]
)
def test_any_number_of_heads(heads, columns, rows):
    weights = torch.rand(heads, L, S)
    axes = plot_heads(weights, columns=columns)
    assert axes.shape == (heads,)
    assert len(axes[0].figure.axes) == heads  # no empty Axes are left
    grid = axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == (rows, min(heads, columns))
    for h, ax in enumerate(axes):
        assert ax.get_title() == f"head {h}"
        spec = ax.get_subplotspec()
        assert (spec.rowspan.start, spec.colspan.start) == divmod(h, columns)
        for (i, j), face in cells(ax).items():
            assert face[3] == pytest.approx(weights[h, i, j].item())


def test_heads_share_one_scale():
    weights = torch.tensor([[[4.0]], [[1.0]]])
    assert [cells(ax)[0, 0][3] for ax in plot_heads(weights)] == [1.0, 0.25]
    assert [cells(ax)[0, 0][3] for ax in plot_heads(weights, vmax=8)] == [0.5, 0.125]


def test_every_head_has_its_labels():
    axes = plot_heads(
        torch.rand(2, L, S), queries=list("abc"), keys=list("vwxyz"), titles=["one", "two"]
    )
    for ax, title in zip(axes, ["one", "two"], strict=True):
        assert [label.get_text() for label in ax.get_yticklabels()] == list("abc")
        assert [label.get_text() for label in ax.get_xticklabels()] == list("vwxyz")
        assert ax.get_title() == title


def luminance(color):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("color", [COLORS["weights"], COLORS["output"], NEGATIVE])
def test_black_and_white_text_are_readable_on_what_fills_cells(color):
    assert 1.05 / (luminance(color) + 0.05) > 4.4
    assert (luminance(color) + 0.05) / 0.05 > 4.4


def test_each_role_and_each_head_has_a_colour_of_its_own():
    assert COLORS.keys() == {"query", "key", "value", "weights", "output"}
    assert len({*COLORS.values(), NEGATIVE}) == 6
    assert len(set(HEAD_COLORS)) == len(HEAD_COLORS) == 8
    for color in (*COLORS.values(), *HEAD_COLORS):  # readable as a shape on white and on black
        assert 0.1 < luminance(color) < 0.45


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: plot_weights(torch.rand(2, 3, 5)),
            "weights must be (L, S) and not empty, got shape (2, 3, 5)",
        ),
        (lambda: plot_weights(torch.rand(0, 5)), "got shape (0, 5)"),
        (lambda: plot_weights([[float("nan")]]), "weights must be finite, got nan"),
        (lambda: plot_weights(torch.rand(3, 5), queries="ab"), "queries must be 3 labels, got 2"),
        (lambda: plot_weights(torch.rand(3, 5), keys="abc"), "keys must be 5 labels, got 3"),
        (
            lambda: plot_weights([[0.5]], vmax=0.25),
            "vmax must be at least 0.5, the largest number, got 0.25",
        ),
        (lambda: plot_weights([[0.0]], vmax=0), "vmax must be positive, got 0"),
        (lambda: plot_weights([[0.0]], vmax=float("nan")), "vmax must be positive, got nan"),
        (lambda: plot_heads(torch.rand(3, 5)), "weights must be (H, L, S) and not empty"),
        (lambda: plot_heads(torch.rand(2, 3, 5), titles=["a"]), "titles must be 2 labels, got 1"),
        (lambda: plot_heads(torch.rand(2, 3, 5), columns=0), "columns must be at least 1, got 0"),
        (
            lambda: plot_heads(torch.rand(2, 3, 5), axes=[None]),
            "axes must be one for each of 2 heads, got 1",
        ),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the message is compared below)
        call()
    assert message in str(error.value)
    assert not plt.get_fignums()

"""What was drawn: rectangles, their colours, labels. Never pixels."""

import itertools

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from mhattn import COLORS, HEAD_COLORS, plot_heads, plot_weights
from mhattn.show import NEGATIVE

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
        assert ax.get_title() == f"head {h + 1}"  # counted from 1, as in the formulas
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


def linear(color):
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]


def luminance(color):
    return np.dot([0.2126, 0.7152, 0.0722], linear(color))


@pytest.mark.parametrize("color", [COLORS["weights"], COLORS["output"], NEGATIVE])
def test_black_and_white_text_are_readable_on_what_fills_cells(color):
    assert 1.05 / (luminance(color) + 0.05) > 4.4
    assert (luminance(color) + 0.05) / 0.05 > 4.4


WHITE, SLATE = "#ffffff", "#1e2129"  # the page, light and dark: hsl(225, 15%, 14%)

# Machado, Oliveira & Fernandes (2009), "A Physiologically-based Model for Simulation of Color
# Vision Deficiency", table 1, severity 1.0, https://doi.org/10.1109/TVCG.2009.113: linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


def oklab(color, vision="normal"):
    """Ottosson (2020), https://bottosson.github.io/posts/oklab/, times 100."""
    seen = np.clip(VISION[vision] @ np.array(linear(color)), 0, 1)
    lms = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return 100 * lab @ np.cbrt(lms @ seen)


def nearest(colors, others=None, vision="normal"):
    """The smallest distance between two of the colours, or of one to another list."""
    pairs = itertools.product(colors, others) if others else itertools.combinations(colors, 2)
    return min(np.linalg.norm(oklab(a, vision) - oklab(b, vision)) for a, b in pairs)


def contrast(a, b):
    darker, lighter = sorted([luminance(a), luminance(b)])
    return (lighter + 0.05) / (darker + 0.05)


def test_the_measures_of_colour_know_black_white_and_a_confusion():
    assert contrast("black", "white") == pytest.approx(21)
    assert oklab("white") == pytest.approx([100, 0, 0], abs=1e-3)
    assert oklab("red") == pytest.approx([62.796, 22.486, 12.585], abs=1e-2)
    red, green = "#b05000", "#008000"
    assert nearest([red, green]) > 20
    assert nearest([red, green], vision="deuteranopia") < 10


def test_each_role_and_each_head_has_a_colour_of_its_own():
    assert COLORS.keys() == {"query", "key", "value", "weights", "output"}
    assert len({*COLORS.values(), NEGATIVE}) == 6
    assert len(set(HEAD_COLORS)) == len(HEAD_COLORS) == 8
    assert not {*HEAD_COLORS} & {*COLORS.values(), NEGATIVE}
    for color in (*COLORS.values(), *HEAD_COLORS):  # readable as a shape on white and on black
        assert 0.1 < luminance(color) < 0.45


@pytest.mark.parametrize("page", [WHITE, SLATE])
@pytest.mark.parametrize("color", HEAD_COLORS)
def test_heads_stand_out_from_a_light_and_a_dark_page(color, page):
    assert contrast(color, page) >= 3


@pytest.mark.parametrize("vision", VISION)
def test_heads_can_be_told_apart(vision):
    assert nearest(HEAD_COLORS, vision=vision) > 8
    assert nearest(HEAD_COLORS[:4], vision=vision) > 13


def test_no_head_looks_like_a_role():
    roles = [*COLORS.values(), NEGATIVE]
    assert nearest(HEAD_COLORS, roles) > 7
    assert nearest(HEAD_COLORS[:4], roles) > 10


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

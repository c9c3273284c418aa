"""Planted heads are found in the files; the files are whole, or not there."""

import csv
import json
import math
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup

import mhattn
from mhattn import attention_maps, causal_mask
from mhattn.inside import attention_share, head_divergence, head_patterns
from mhattn.show import plots, write_gallery
from mhattn.show.gallery import main
from mhattn.show.gallery_page import Layer, draw_overview

TOKENS = ["a", "b", "c", "d", "e", "a", "b", "c", "d", "e", "a"]
L = len(TOKENS)
KINDS = ["previous", "first", "even", "induction"]


def planted():
    """One head of each kind, causal: ``(4, L, L)``."""
    previous, first, induction = torch.zeros(3, L, L)
    for i in range(L):
        previous[i, max(i - 1, 0)] = 1
        first[i, 0] = 1
        after = [j for j in range(1, i + 1) if TOKENS[j - 1] == TOKENS[i]] or [i]
        induction[i, after] = 1 / len(after)
    even = causal_mask(L).float()
    return torch.stack([previous, first, even / even.sum(-1, keepdim=True), induction])


def random_maps(heads, queries=L, keys=L):
    return torch.randn(heads, queries, keys).softmax(dim=-1)


def rows_of(folder, name="statistics.csv"):
    with (folder / name).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def table_of(folder):
    head, *rows = rows_of(folder)
    return [dict(zip(head, row, strict=True)) for row in rows]


def page_of(folder):
    return BeautifulSoup((folder / "index.html").read_text(encoding="utf-8"), "html.parser")


def in_pattern(name, i, j):
    return {
        "self": j == i,
        "previous": j == i - 1,
        "first": j == 0,
        "induction": j > 0 and TOKENS[j - 1] == TOKENS[i],
    }[name]


def share_of_even(name):
    """By the definition: over the rows that can choose, how much of what they see is in it."""
    shares = []
    for i in range(L):
        inside = sum(in_pattern(name, i, j) for j in range(i + 1))
        if 0 < inside < i + 1:
            shares.append(inside / (i + 1))
    return sum(shares) / len(shares)


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    """Two layers: the planted heads, and three random ones that see everything."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("home") / "heads of 猫"
    maps = [planted(), random_maps(3)[None]]
    files = write_gallery(maps, folder, tokens=TOKENS, names=["planted", "<random> & $x$"])
    return folder, files, maps


@pytest.fixture
def undrawn(monkeypatch):
    """Figures take most of the time; who asks for numbers or files alone does without."""
    for name in ("draw_layer", "draw_overview", "draw_similarity"):
        monkeypatch.setattr(f"mhattn.show.gallery.{name}", lambda *given: "<svg></svg>")


@pytest.fixture
def similarity_alone(monkeypatch):
    """Of the figures, only the matrix of similarity is drawn."""
    for name in ("draw_layer", "draw_overview"):
        monkeypatch.setattr(f"mhattn.show.gallery.{name}", lambda *given: "<svg></svg>")


def test_the_files(gallery):
    folder, files, _ = gallery
    assert sorted(files) == sorted(folder.iterdir())
    assert [file.name for file in files] == [
        "index.html",
        *("layer-1.svg", "layer-2.svg", "statistics.csv", "similarity.csv", "similarity.svg"),
    ]
    assert sorted(folder.parent.iterdir()) == [folder]


def test_planted_heads_have_their_statistics(gallery):
    table = table_of(gallery[0])
    assert [(row["layer"], row["head"]) for row in table] == [
        *(("1", str(h)) for h in range(1, 5)),
        *(("2", str(h)) for h in range(1, 4)),
    ]
    assert {row["name"] for row in table[4:]} == {"<random> & $x$"}
    heads = dict(zip(KINDS, table, strict=False))
    for name in ("previous", "first", "induction"):
        assert float(heads[name][name]) == 1, name
        assert share_of_even(name) + 0.1 < float(heads[name][f"{name}_redrawn"]) < 0.9
        assert name in heads[name]["roles"].split()
        assert float(heads["even"][name]) == pytest.approx(share_of_even(name), abs=1e-4)
    for name in ("self", "previous", "first", "induction"):
        for row in table[:4]:
            assert float(row[f"{name}_even"]) == pytest.approx(share_of_even(name), abs=1e-4)
    even = heads["even"]
    assert even["roles"] == ""
    assert float(even["entropy"]) == float(even["similar_to_even"]) == 1
    assert even["distance"] == even["distance_even"]
    assert even["largest"] == even["largest_even"]
    assert float(heads["previous"]["distance"]) == float(heads["previous"]["largest"]) == 1
    assert float(heads["first"]["distance"]) == sum(range(1, L)) / (L - 1)
    assert float(heads["first"]["entropy"]) == 0


def test_what_even_attention_has(gallery):
    """Of a causal layer and of one that sees all, by loops."""
    causal, full = table_of(gallery[0])[0], table_of(gallery[0])[-1]
    rows = range(1, L)  # those with a choice
    distance = sum(sum(i - j for j in range(i + 1)) / (i + 1) for i in rows) / len(rows)
    assert float(causal["distance_even"]) == pytest.approx(distance, abs=1e-4)
    largest = sum(1 / (i + 1) for i in rows) / len(rows)
    assert float(causal["largest_even"]) == pytest.approx(largest, abs=1e-4)
    distance = sum(abs(i - j) for i in range(L) for j in range(L)) / L**2
    assert float(full["distance_even"]) == pytest.approx(distance, abs=1e-4)
    assert float(full["largest_even"]) == pytest.approx(1 / L, abs=1e-4)
    assert causal["next"] == "" != full["next"]
    assert float(full["next_even"]) == pytest.approx(1 / L, abs=1e-4)
    assert causal["entropy_even"] == full["entropy_even"] == "1.0000"


def test_one_weight_behind_the_query_makes_a_layer_see_all(undrawn, tmp_path):
    weights = planted()
    weights[0, 3] = 0
    weights[0, 3, 4] = 1
    write_gallery([weights], tmp_path / "g")
    assert float(table_of(tmp_path / "g")[0]["largest_even"]) == pytest.approx(1 / L, abs=1e-4)


def test_statistics_are_those_of_the_package(gallery):
    folder, _, maps = gallery
    shares = attention_share(maps[1][0], head_patterns(L)["next"])
    found = [float(row["next"]) for row in table_of(folder)[4:]]
    assert found == pytest.approx(shares.tolist(), abs=1e-4)
    for row, head in zip(table_of(folder)[4:], maps[1][0], strict=True):
        beside = torch.stack([head, torch.full((L, L), 1 / L)])
        similar = 1 - head_divergence(beside)[0, 1].item()
        assert float(row["similar_to_even"]) == pytest.approx(similar, abs=1e-4)
        assert similar < 0.95


def test_similarity(gallery):
    folder, _, maps = gallery
    head, *rows = rows_of(folder, "similarity.csv")
    assert head == ["head", *(f"1.{h}" for h in range(1, 5)), *(f"2.{h}" for h in range(1, 4))]
    assert [row[0] for row in rows] == head[1:]
    found = torch.tensor([[float(cell) for cell in row[1:]] for row in rows])
    expected = 1 - head_divergence(torch.cat([maps[0], maps[1][0]]))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert found[0, 1] < 0.2  # previous and first: only the first rows are alike


def test_causal_layers_are_compared_where_there_is_a_choice(undrawn, tmp_path):
    write_gallery([planted(), planted()], tmp_path / "g")
    found = float(rows_of(tmp_path / "g", "similarity.csv")[1][2])
    assert found == pytest.approx(1 / (L - 1), abs=1e-4)  # not 2 / L: the first query has none


def test_the_page_shows_every_head(gallery):
    page = page_of(gallery[0])
    text = page.get_text()
    for name in [*(f"1.{h}" for h in range(1, 5)), *(f"2.{h}" for h in range(1, 4))]:
        assert name in [cell.get_text() for cell in page.select("th[scope=row]")]
    assert "<random> & $x$" in text  # escaped, once
    assert "7 heads in 2 layers" in text
    assert " ".join(TOKENS) in text
    assert "about 0.1 of 7 heads" in re.sub(r"\s+", " ", text)
    roles = {row.th.get_text(): row for row in page.select("#roles tbody tr")}
    assert list(roles) == ["self", "previous", "next", "first", "induction"]
    assert "1.2" in roles["first"].get_text()
    shown = [cell.get_text() for cell in page.select_one("#layer-1").select("thead th")]
    assert shown[:3] == ["head", "roles", "self"]
    assert shown[-3:] == ["entropy", "largest", "similar to even"]
    first = page.select_one("#layer-1 tbody tr").get_text(" ")
    assert "1.00" in first
    assert f"even {share_of_even('previous'):.2f}" in first


def test_the_most_similar_pairs(undrawn, tmp_path):
    weights = random_maps(3)
    write_gallery([torch.stack([*weights, weights[1]])], tmp_path / "g")
    items = [item.get_text() for item in page_of(tmp_path / "g").select("#similarity li")]
    assert items[0] == "1.2 and 1.4: 1.00"
    assert len(items) == 5
    write_gallery([weights[:1]], tmp_path / "one")
    assert not page_of(tmp_path / "one").select("#similarity li")


def test_figures_have_labels_and_descriptions(gallery):
    page = page_of(gallery[0])
    overview, *figures = page.select("svg")
    assert len(figures) == 3
    for figure in [overview, *figures]:
        assert figure["role"] == "img"
    assert overview["aria-label"] == "Small maps of all 7 heads, by layer."
    assert [link["xlink:href"] for link in overview.select("a")] == ["#layer-1", "#layer-2"]
    alt = figures[0]["aria-label"]
    assert alt.startswith("Attention maps of the 4 heads of planted. Head 1: previous. Head 2: ")
    assert "Head 3: no role found." in alt
    texts = [text.get_text().strip() for text in figures[0].select("text")]
    assert [text for text in texts if text.startswith("head")] == [f"head {h}" for h in range(1, 5)]
    assert sorted(text for text in texts if not text.startswith("head")) == sorted(TOKENS * 8)
    assert len(figures[0].select("image")) == 4
    upright = [text for text in figures[0].select("text") if "rotate(-90" in str(text)]
    assert [text.get_text().strip() for text in upright] == TOKENS * 4  # the keys


@pytest.mark.parametrize(("queries", "keys"), [(L, L), (30, 53)])
def test_overview_has_each_map_in_its_place(queries, keys, monkeypatch):
    drawn, plot = [], plots.plot_weights

    def noted(weights, **options):
        drawn.append(weights)
        return plot(weights, **options)

    monkeypatch.setattr(plots, "plot_weights", noted)
    maps = [random_maps(heads, queries, keys) for heads in (3, 2)]
    draw_overview([Layer("", weights, None, {}, []) for weights in maps])
    rows, columns = min(queries, 24), min(keys, 24)
    tiles = drawn[0].unflatten(0, (3, rows + 1)).unflatten(-1, (2, columns + 1))
    assert not tiles[2, :, 1].any()  # there is no such head
    assert not tiles[:, -1].any()
    assert not tiles[..., -1].any()
    for layer, weights in enumerate(maps):
        for head, whole in enumerate(weights):
            small = tiles[head, :-1, layer, :-1]
            if queries == L:
                assert torch.equal(small, whole)
            assert small.max() == whole.max()
            assert small[0, 0] == whole[: -(-queries // 24), : -(-keys // 24)].max()


def test_the_page_stands_alone(gallery):
    page = page_of(gallery[0])
    assert not page.select("script, link, img, iframe")
    targets = [tag[key] for tag in page.find_all() for key in ("href", "src") if tag.has_attr(key)]
    assert {target[0] for target in targets} == {"#"}
    ids = [tag["id"] for tag in page.find_all(id=True)]
    assert len(ids) == len(set(ids))
    html = (gallery[0] / "index.html").read_text(encoding="utf-8")
    used = re.findall(r'(?:url\(|href=")#([\w-]+)', html)
    assert set(used) <= set(ids)
    for image in page.select("image"):
        assert image["xlink:href"].startswith("data:image/png")
    assert "prefers-color-scheme: dark" in html
    assert 'charset="utf-8"' in html
    assert 'name="viewport"' in html


def test_tokens_that_are_markup_math_or_white_space(tmp_path):
    tokens = ["<b>", "$x$", "\\frac", " the", "\n", "猫", "\x00", "&amp;", "$"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_gallery([random_maps(2, 9, 9)], tmp_path / "g", tokens=tokens)
    page = page_of(tmp_path / "g")
    shown = ["<b>", "$x$", "\\frac", "·the", "↵", "猫", "\\x00", "&amp;", "$"]
    assert page.blockquote.get_text() == " ".join(shown)
    texts = {text.get_text().strip() for text in page.select("#layer-1 svg text")}
    assert texts == {*shown, "head 1", "head 2"}


def test_the_same_maps_give_the_same_files(tmp_path):
    state = torch.random.get_rng_state()
    maps = [random_maps(2)]
    torch.random.set_rng_state(state)
    one, two = (write_gallery(maps, tmp_path / name, tokens=TOKENS) for name in "ab")
    assert torch.equal(torch.random.get_rng_state(), state)  # nothing drawn from the reader's
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes()
        assert b"\r" not in a.read_bytes()


def test_no_style_and_no_figure_is_left(tmp_path):
    import matplotlib
    import matplotlib.pyplot as plt

    before = dict(matplotlib.rcParams)
    write_gallery([random_maps(2)], tmp_path / "g")
    assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == []


def test_another_text_has_keys_and_no_positions(tmp_path):
    folder = tmp_path / "g"
    write_gallery([random_maps(2, 3, 5)], folder, tokens=list("xyz"), keys=list("abcde"))
    columns = rows_of(folder)[0]
    assert [name for name in columns if not name.endswith(("_even", "_redrawn"))] == [
        *("layer", "name", "head", "roles", "first", "entropy", "largest")
    ]
    assert columns[-1] == "similar_to_even"
    assert page_of(folder).blockquote.get_text() == "x y z / a b c d e"
    texts = [text.get_text().strip() for text in page_of(folder).select("#layer-1 svg text")]
    assert sorted(texts) == sorted([*"xyz" * 2, *"abcde" * 2, "head 1", "head 2"])


def test_keys_of_another_text_may_all_come_later(undrawn, tmp_path):
    """Zeros above the diagonal are a choice there, and no causal mask."""
    weights = torch.eye(5)[None]
    write_gallery([weights], tmp_path / "g", tokens=list("abcde"), keys=list("vwxyz"))
    assert table_of(tmp_path / "g")[0]["largest_even"] == "0.2000"


def test_without_tokens_there_are_positions(undrawn, tmp_path):
    write_gallery([random_maps(1, 3, 3).bfloat16()], tmp_path / "g")
    assert page_of(tmp_path / "g").blockquote.get_text() == "1 2 3"
    assert not any(name.startswith("induction") for name in rows_of(tmp_path / "g")[0])


def test_more_heads_than_names_beside_the_matrix(similarity_alone, tmp_path):
    write_gallery([random_maps(33, 3, 3)] * 2, tmp_path / "g")
    assert page_of(tmp_path / "g").select_one("#similarity svg").select("text") == []
    assert len(rows_of(tmp_path / "g", "similarity.csv")) == 67


def of_nan():
    weights = random_maps(2)
    weights[1, 2, 3] = math.nan
    return [random_maps(2), weights]


def of_scores():
    weights = random_maps(2)
    weights[0, 0, 0], weights[0, 0, 1] = -0.5, weights[0, 0, 1] + weights[0, 0, 0] + 0.5
    return [weights]


def of_dropout():
    weights = random_maps(2)
    weights[1, 3] *= 0.9
    return [weights]


@pytest.mark.parametrize(
    ("maps", "error", "message"),
    [
        (lambda: torch.eye(5)[None], TypeError, "maps must be a list with a tensor"),
        (lambda: [], ValueError, "maps must be of at least one layer, got none"),
        (lambda: [[[1.0]]], TypeError, r"maps\[0\] must be a tensor of floats, got list"),
        (lambda: [torch.eye(5).long()[None]], TypeError, "floats, got torch.int64"),
        (lambda: [torch.eye(5)], ValueError, r"maps\[0\] must be \(H, L, S\) or .*shape \(5, 5\)"),
        (lambda: [torch.eye(5).expand(2, 3, 5, 5)], ValueError, r"one text, got shape \(2, 3, 5"),
        (lambda: [torch.zeros(0, 5, 5)], ValueError, r"maps\[0\] must be \(H, L, S\)"),
        (
            lambda: [random_maps(2), random_maps(2, 7, 7)],
            ValueError,
            r"maps\[1\] must have \(L, S\) = \(11, 11\), as maps\[0\], got \(7, 7\)",
        ),
        (of_nan, ValueError, r"maps\[1\] must be finite, got nan"),
        (of_scores, ValueError, r"maps\[0\] must not be negative, got -0.5: are these scores"),
        (of_dropout, ValueError, r"that sum to 1, got 0.9 in head 1, query 3, counted from 0"),
        (lambda: [torch.ones(3, 1, 1)], ValueError, "must have a query that sees two keys"),
        (lambda: [random_maps(2, 3, 5)], ValueError, "keys must be given for maps of L=3 .* S=5"),
    ],
)
def test_wrong_maps(maps, error, message, tmp_path):
    with pytest.raises(error, match=message):
        write_gallery(maps(), tmp_path / "g")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"tokens": TOKENS[1:]},
            ValueError,
            "tokens must be 11 texts, as in the maps, got 10",
        ),
        ({"tokens": "a" * L}, TypeError, "tokens must be a list of texts, got 'aaa"),
        ({"tokens": list(range(L))}, TypeError, "tokens must be a list of texts, got .0, 1"),
        ({"keys": TOKENS[1:]}, ValueError, "keys must be 11 texts"),
        ({"names": ["one", "two"]}, ValueError, "names must be one for each of 1 layers, got 2"),
    ],
)
def test_wrong_labels(options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        write_gallery([random_maps(2)], tmp_path / "g", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("undrawn")
class TestFolder:
    def test_an_empty_one_is_used(self, tmp_path):
        (tmp_path / "g").mkdir()
        write_gallery([random_maps(1, 3, 3)], tmp_path / "g")
        assert (tmp_path / "g" / "index.html").is_file()
        assert [file.name for file in tmp_path.iterdir()] == ["g"]

    def test_a_full_one_is_kept(self, tmp_path):
        (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
        for force, message in ((False, "empty, or force"), (True, "a gallery only.*notes.txt")):
            with pytest.raises(FileExistsError, match=message) as found:
                write_gallery([random_maps(1, 3, 3)], tmp_path, force=force)
            assert str(tmp_path) in str(found.value)
        assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]

    def test_a_gallery_is_replaced_when_forced(self, tmp_path):
        write_gallery([random_maps(1, 3, 3)] * 2, tmp_path / "g")
        with pytest.raises(FileExistsError):
            write_gallery([random_maps(1, 3, 3)], tmp_path / "g")
        write_gallery([random_maps(1, 3, 3)], tmp_path / "g", force=True)
        assert not (tmp_path / "g" / "layer-2.svg").exists()
        assert [file.name for file in tmp_path.iterdir()] == ["g"]

    def test_one_that_fills_while_figures_are_drawn(self, tmp_path, monkeypatch):
        def meanwhile(*given):
            (tmp_path / "g").mkdir()
            (tmp_path / "g" / "notes.txt").write_text("mine", encoding="utf-8")
            return "<svg></svg>"

        monkeypatch.setattr("mhattn.show.gallery.draw_similarity", meanwhile)
        with pytest.raises(FileExistsError, match="gallery only"):
            write_gallery([random_maps(1, 3, 3)], tmp_path / "g", force=True)
        assert [file.name for file in tmp_path.rglob("*")] == ["g", "notes.txt"]

    def test_one_that_is_a_file_or_nowhere(self, tmp_path):
        (tmp_path / "file").write_text("mine", encoding="utf-8")
        with pytest.raises(FileExistsError, match="must not be a file"):
            write_gallery([random_maps(1, 3, 3)], tmp_path / "file", force=True)
        with pytest.raises(FileNotFoundError, match="in a folder that exists"):
            write_gallery([random_maps(1, 3, 3)], tmp_path / "no" / "g")

    @pytest.mark.parametrize("there", [False, True])
    @pytest.mark.parametrize("fails", ["write_text", "rename"])
    def test_nothing_is_left_half_written(self, there, fails, tmp_path, monkeypatch):
        folder, before = tmp_path / "g", None
        if there:
            write_gallery([random_maps(1, 3, 3)], folder)
            before = (folder / "statistics.csv").read_bytes()
        original = getattr(Path, fails)

        def break_down(path, *args, **options):
            if path.name == "similarity.csv" or (fails == "rename" and path.suffix == ".new"):
                raise OSError("no space left")
            return original(path, *args, **options)

        monkeypatch.setattr(Path, fails, break_down)
        with pytest.raises(OSError, match="no space left"):
            write_gallery([random_maps(1, 3, 3)], folder, force=True)
        assert [file.name for file in tmp_path.iterdir()] == (["g"] if there else [])
        assert not there or (folder / "statistics.csv").read_bytes() == before


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A folder with maps and tokens, which is the current one."""
    monkeypatch.chdir(tmp_path)
    torch.save([planted(), random_maps(3)], "maps.pt")
    Path("tokens.json").write_text(json.dumps(TOKENS), encoding="utf-8")
    return tmp_path


def test_the_command(saved):
    strict = ["-W", "error", "-W", "ignore::DeprecationWarning"]  # of old packages, of new ones
    command = [sys.executable, *strict, "-m", "mhattn.show.gallery", "maps.pt"]
    options = ["--tokens", "tokens.json", "--out", "heads", "--title", "Köpfe"]
    root = Path(mhattn.__file__).parent.parent
    paths = {"PYTHONPATH": str(root), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [*command, *options], env=os.environ | paths, capture_output=True, encoding="utf-8"
    )
    assert done.stderr == ""
    assert done.stdout.startswith("6 files, ")
    table = table_of(saved / "heads")
    assert "first" in table[1]["roles"].split()
    assert page_of(saved / "heads").title.get_text() == "Köpfe"


def test_the_command_reads_arrays_and_their_names(undrawn, saved, capsys):
    np.savez("maps.npz", early=planted().numpy(), late=random_maps(3).double().numpy())
    main(["maps.npz", "--out", "heads"])
    assert {row["name"] for row in table_of(saved / "heads")} == {"early", "late"}
    assert str(saved / "heads" / "index.html") in capsys.readouterr().out
    torch.save({"only": planted()}, "maps.pt")
    main(["maps.pt", "--out", "heads", "--force"])
    assert {row["name"] for row in table_of(saved / "heads")} == {"only"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.pt"], "maps must be a file, got none.pt"),
        (["tokens.json"], "maps must be a list of tensors from torch.save, or arrays"),
        (["maps.pt", "--tokens", "none.json"], "none.json"),
        (["maps.pt", "--tokens", "maps.pt"], "labels must be a list of texts in JSON, got maps.pt"),
        (["maps.pt", "--tokens", "number.json"], "in JSON, got number.json: 3"),
        (["maps.pt", "--model", "."], "either a file of maps or --model"),
        ([], "either a file of maps or --model"),
        (["--model", "."], "--model and --text belong together"),
        (["maps.pt", "--text", "x"], "--model and --text belong together"),
        (["--model", ".", "--text", "x", "--tokens", "t"], "the tokens are those of its tokenizer"),
        (["--model", "some/model", "--text", "x"], "model must be a folder, got"),
        (["object.npz"], "maps must be a list of tensors from torch.save"),
        (["object.pt"], "maps must be a list of tensors from torch.save"),
        (["one.pt"], "maps must be a list with a tensor for each layer, got Tensor"),
    ],
)
def test_what_the_command_refuses(arguments, message, saved, capsys):
    Path("number.json").write_text("3", encoding="utf-8")
    np.savez("object.npz", np.array([Path("x")], dtype=object))
    torch.save([Path("x")], "object.pt")  # another class is not loaded
    torch.save(planted(), "one.pt")
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--out", "heads"])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert not Path("heads").exists()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A small random BERT with a tokenizer, as transformers saves them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    folder = tmp_path_factory.mktemp("model")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "saw"]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    sizes = {"hidden_size": 21, "num_attention_heads": 3, "num_hidden_layers": 2}
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(words), intermediate_size=13, **sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.BertModel(config)
        model.save_pretrained(folder)
        transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def test_a_model_of_transformers(model_folder, tmp_path):
    import transformers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(["--model", str(model_folder), "--text", "the cats", "--out", str(tmp_path / "g")])
        eager = {"attn_implementation": "eager"}
        model = transformers.AutoModel.from_pretrained(model_folder, **eager).eval()
    shown = page_of(tmp_path / "g").blockquote.get_text().split()
    assert shown == ["[CLS]", "the", "cat", "##s", "[SEP]"]
    maps = attention_maps(model, torch.tensor([[2, 5, 6, 7, 3]])).maps
    shares = attention_share(torch.cat(maps), head_patterns(5)["next"]).flatten()
    found = [float(row["next"]) for row in table_of(tmp_path / "g")]
    assert found == pytest.approx(shares.tolist(), abs=1e-4)


def test_a_model_that_is_a_pair_is_refused(model_folder, tmp_path, capsys):
    import transformers

    sizes = {"d_model": 14, "encoder_ffn_dim": 7, "decoder_ffn_dim": 7, "vocab_size": 9}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = transformers.BartConfig(
            **sizes,
            **{"encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 11},
            **{"encoder_attention_heads": 2, "decoder_attention_heads": 2},
        )
        transformers.BartModel(config).save_pretrained(tmp_path / "pair")
        tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
        tokenizer.save_pretrained(tmp_path / "pair")
        with pytest.raises(SystemExit):
            main(["--model", str(tmp_path / "pair"), "--text", "x", "--out", str(tmp_path / "g")])
    assert "an encoder or a decoder, got both" in capsys.readouterr().err
    assert not (tmp_path / "g").exists()


def test_without_transformers(model_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SystemExit):
        main(["--model", str(model_folder), "--text", "x", "--out", str(tmp_path / "g")])
    assert "--model needs transformers: pip install transformers" in capsys.readouterr().err

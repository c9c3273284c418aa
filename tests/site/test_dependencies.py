"""Which modules of the package a story's results depend on."""

import sys

import pytest
import stories

PACKAGE = {
    "checks": "",
    "masks": "from mhattn import checks as check\n",
    "functional": "from mhattn.masks import causal_mask\n",
    "tables": "import torch\n",
    "": "the rest",
}


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        (">>> print(1)", []),
        (">>> from mhattn import table", ["tables"]),
        (">>> from mhattn import causal_mask, table", ["checks", "masks", "tables"]),
        (">>> from mhattn import (\n...     attention,\n...     table,\n... )", list(PACKAGE)[:4]),
        (">>> from mhattn.functional import attention", ["checks", "functional", "masks"]),
        (">>> import mhattn.masks", ["checks", "masks"]),
        (">>> import mhattn\n>>> mhattn.table([])", ["tables"]),
        (">>> code = 'from mhattn.masks import causal_mask'", ["checks", "masks"]),
        (">>> import mhattn as m\n>>> m.table([])", list(PACKAGE)[:4]),
        (">>> from mhattn import *", list(PACKAGE)[:4]),
    ],
)
def test_code_reaches(text, modules):
    assert stories.reached(text, PACKAGE) == sorted(modules)


def test_results_depend_on_the_data_that_a_story_names(tmp_path, monkeypatch):
    monkeypatch.setattr(stories, "ROOT", tmp_path)
    texts = tmp_path / "docs" / "data" / "texts"
    texts.mkdir(parents=True)
    other, named = texts / "other.txt", texts / "named.txt"
    folders = {}
    for name, place in {"file": "texts/named.txt", "folder": "texts"}.items():
        folders[name] = tmp_path / f"{name}.pycon"
        folders[name].write_text(f'>>> Path("docs/data/{place}")\n', encoding="utf-8")

    def places():
        package = {"": "the rest"}
        return {name: stories.result_folder(s, "cpu", package) for name, s in folders.items()}

    other.write_text("a", encoding="utf-8")
    named.write_text("a", encoding="utf-8")
    first = places()
    other.write_text("b", encoding="utf-8")
    second = places()
    named.write_text("b", encoding="utf-8")
    third = places()
    assert first["file"] == second["file"] != third["file"]
    assert len({first["folder"], second["folder"], third["folder"]}) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_story_that_hides_an_import_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(stories, "CACHE", tmp_path / "stories")
    story = tmp_path / "hidden.pycon"
    story.write_text(
        "# --8<-- [start:hidden]\n"
        ">>> import importlib\n"
        '>>> _ = importlib.import_module("mhattn.cos" + "ts")\n'
        "# --8<-- [end:hidden]\n",
        encoding="utf-8",
    )
    (error,) = stories.run_stories([story], "cpu", jobs=1)
    assert error == f"{story}: imports mhattn.costs where no import names it"
    assert not list(tmp_path.glob("stories/hidden/*"))

"""Which modules of the package a story's results depend on, and where they are filed."""

import sys
from pathlib import Path

import pytest
from mhsite.stories import cache, keys, meaning, schedule

from mhattn.lessons import files

FLAT = {
    "__init__.py": 'NAMES = {"masks": "causal_mask", "functional": "attention",\n'
    ' "tables": "table"}\n',
    "checks.py": "",
    "masks.py": "from mhattn import checks as check\n",
    "functional.py": "from mhattn.masks import causal_mask\n",
    "tables.py": "import torch\n",
}
ALL = ["checks", "functional", "masks", "tables"]
ROOMS = {
    "__init__.py": 'NAMES = {"core.functional": "attention",\n  "show.tables": ("table")}\n',
    "door.py": "import importlib\n",
    "core/__init__.py": 'NAMES: dict = {"functional": "attention softmax",\n'
    ' "masks": "causal_mask"}\n',
    "core/masks.py": "",
    "core/functional.py": "from mhattn.core.masks import causal_mask\n",
    "variants/__init__.py": 'NAMES = {"latent": "latent_attention Latent", "sparse": "local"}\n',
    "variants/latent.py": "from mhattn.core import (\n    softmax,  # of (many\n)\n",
    "variants/sparse.py": "import mhattn.costs.integers as integers\n",
    "costs/__init__.py": 'NAMES = {"attention": "attention_cost", "integers": "divides"}\n',
    "costs/attention.py": "from mhattn.costs.integers import divides\n",
    "costs/integers.py": 'DATA = "sizes.toml"\n',
    "costs/sizes.toml": "size = 1\n",
    "show/__init__.py": 'NAMES = {"tables": "table"}\n',
    "show/tables.py": "",
}
CORE = ["core.functional", "core.masks"]
COSTS = ["costs.attention", "costs.integers"]
LATENT = [*CORE, "variants.latent"]
SPARSE = ["costs.integers", "variants.sparse"]
EVERY = [*CORE, *COSTS, "door", "show.tables", "variants.latent", "variants.sparse"]


def made(folder, files):
    for name, text in files.items():
        path = folder / "mhattn" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return keys.package(folder)


def story_of(folder, text):
    """A story with these lines as its only section."""
    story = folder / "story.pycon"
    story.write_text(f"# --8<-- [start:all]\n{text}\n# --8<-- [end:all]\n", encoding="utf-8")
    return story


def reached(text, package, folder):
    return keys.reached(meaning.of_story(story_of(folder, text)).imports, package)


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        (">>> print(1)", []),
        (">>> from mhattn import table", ["tables"]),
        (">>> from mhattn import causal_mask, table", ["checks", "masks", "tables"]),
        (">>> from mhattn import (\n...     attention,\n...     table,\n... )", ALL),
        (">>> from mhattn.functional import attention", ["checks", "functional", "masks"]),
        (">>> import mhattn.masks", ["checks", "masks"]),
        (">>> import mhattn\n>>> mhattn.table([])", ["tables"]),
        (">>> code = 'from mhattn.masks import causal_mask'", ["checks", "masks"]),
        (">>> import mhattn as m\n>>> m.table([])", ALL),
        (">>> from mhattn import *", ALL),
    ],
)
def test_code_reaches(tmp_path, text, modules):
    assert reached(text, made(tmp_path, FLAT), tmp_path) == sorted(modules)


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        (">>> from mhattn import attention", CORE),
        (">>> from mhattn.variants import latent_attention", LATENT),
        (">>> from mhattn.variants import (\n...     Latent as L,\n... )", LATENT),
        (">>> from mhattn.variants.latent import Latent", LATENT),
        (">>> from mhattn.variants import latent", LATENT),
        (">>> from mhattn.variants import sparse, latent", sorted({*LATENT, *SPARSE})),
        (">>> import mhattn.variants.sparse", SPARSE),
        (">>> import mhattn\n>>> mhattn.variants.local([])", SPARSE),
        (">>> mhattn.variants.sparse.local([])", SPARSE),
        (">>> import mhattn.costs", COSTS),
        (">>> from mhattn.costs import *", COSTS),
        (">>> from mhattn import costs", COSTS),
        (">>> from mhattn import costs as c, table", [*COSTS, "show.tables"]),
        (">>> from mhattn.costs import nobody_knows", COSTS),
        (">>> print(mhattn.__version__)", []),
        (">>> import mhattn as m", EVERY),
        (">>> from mhattn import *", EVERY),
    ],
)
def test_code_reaches_into_rooms(tmp_path, text, modules):
    assert reached(text, made(tmp_path, ROOMS), tmp_path) == modules


def test_what_is_loaded_and_not_reached_is_seen_in_rooms(tmp_path):
    package = made(tmp_path, ROOMS)
    loaded = {"torch", "mhattn", "mhattn.door", "mhattn.costs", "mhattn.costs.integers"}
    story = story_of(tmp_path, ">>> from mhattn import table")
    assert keys.unseen(story, package, loaded) == ["costs.integers"]
    assert keys.unseen(story_of(tmp_path, ">>> import mhattn.costs"), package, loaded) == []


def test_this_package_has_no_module_that_its_own_names_do_not_reach():
    package = keys.package()
    for name, module in package.doors[""].items():
        assert module in keys.reached([name], package)


def test_results_depend_on_data_beside_a_module_and_not_on_doors(tmp_path):
    story = story_of(tmp_path, ">>> from mhattn.costs import divides")
    first = keys.content(story, made(tmp_path, ROOMS))
    other = {"costs/__init__.py": ROOMS["costs/__init__.py"] + "MORE = 1\n"}
    assert keys.content(story, made(tmp_path, ROOMS | other)) == first
    assert keys.content(story, made(tmp_path, ROOMS | {"costs/sizes.toml": "size = 2"})) != first
    assert keys.content(story, made(tmp_path, ROOMS | {"show/tables.py": "x = 2"})) == first


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        (">>> import os, math", False),
        (">>> import numpy as np\n>>> from matplotlib import pyplot", False),
        (">>> from mhattn.costs import divides", False),
        (">>> import torch", True),
        (">>> import os, torch.nn as nn", True),
        (">>> if True:\n...     from transformers import AutoModel", True),
        (">>> import importlib", True),
        (">>> from mhattn.core import causal_mask", False),
        (">>> from mhattn import attention", True),
        (">>> from mhattn import table", True),  # which `mhsite.stories.grids` watches
    ],
)
def test_who_needs_torch(tmp_path, text, needed):
    package = made(tmp_path, ROOMS | {"core/functional.py": "import torch\n"})
    assert keys.needs_torch(story_of(tmp_path, text), package) == needed


def test_results_depend_on_the_data_that_a_story_names(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "HERE", tmp_path)
    texts = tmp_path / "data" / "texts"
    texts.mkdir(parents=True)
    other, named = texts / "other.txt", texts / "named.txt"
    folders = {}
    for name, asked in {"file": '"texts/named.txt"', "folder": 'f"texts/{name}"'}.items():
        folders[name] = tmp_path / f"{name}.pycon"
        folders[name].write_text(f">>> data_file({asked})\n", encoding="utf-8")

    def places():
        package = keys.Package({}, {})
        return {name: keys.content(story, package) for name, story in folders.items()}

    other.write_text("a", encoding="utf-8")
    named.write_text("a", encoding="utf-8")
    first = places()
    other.write_text("b", encoding="utf-8")
    second = places()
    named.write_text("b", encoding="utf-8")
    third = places()
    assert first["file"] == second["file"] != third["file"]
    assert len({first["folder"], second["folder"], third["folder"]}) == 3


def test_environments_are_apart_below_one_content(tmp_path):
    story, package = tmp_path / "story.pycon", keys.Package({}, {})
    story.write_text(">>> print(1)\n", encoding="utf-8")
    kinds = {kind: keys.environment("cpu", said) for kind, said in keys.ARITHMETIC.items()}
    kinds |= {"other": kinds["native"] | {"torch": "2.9.0"}, "cuda": keys.environment("cuda", {})}
    places = {kind: keys.result_folder(story, package, who) for kind, who in kinds.items()}
    assert len({*places.values()}) == len(places)
    assert len({place.parent for place in places.values()}) == 1
    assert Path(cache.results(), "story") in places["native"].parents


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize(
    ("code", "module"),
    [
        ('import_module("mhattn.co" + "re.masks")', "core.masks"),
        ('import_module("mhattn.var" + "iants.latent")', "variants.latent"),
    ],
)
def test_a_story_that_hides_an_import_is_refused(tmp_path, monkeypatch, code, module):
    monkeypatch.setattr(cache, "HOME", tmp_path)
    story = tmp_path / "hidden.pycon"
    story.write_text(
        "# --8<-- [start:hidden]\n"
        ">>> import importlib\n"
        f">>> _ = importlib.{code}\n"
        "# --8<-- [end:hidden]\n",
        encoding="utf-8",
    )
    (said,) = schedule.run_stories([story], "cpu", jobs=1)
    loads = {module, *keys.reached([module], keys.package())}
    assert said in {f"{story}: imports mhattn.{name} where no import names it" for name in loads}
    assert not list(tmp_path.glob("stories/*"))

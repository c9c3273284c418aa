"""What was run beforehand: the code behind it is known, and pages say when that has changed."""

import ast
import dataclasses
import functools
import itertools
import json
import math
import subprocess
import sys
import tomllib
from pathlib import Path

import measure
import pytest
import torch
from cases import drawn_number, every
from drawn import drawn
from measuring import runs as measuring_runs
from mhsite.pages import measured, runs
from mhsite.pages.page import page_paths, read, skeleton
from mhsite.stories import as_filed, fingerprints, keys
from mhsite.stories.source import DOCS, LANGUAGES, ROOT, STORIES, SourceError

from mhattn.core import positions
from mhattn.models import load_gguf

STALE = {
    "en": " **The code has changed since these runs.**",
    "zh": "**这些结果得出之后，代码又有改动。**",
}
STEMS = sorted(path.stem for path in runs.FOLDER.glob("*.json"))
FILED = [(stem, name) for stem in STEMS for name in runs.filed(stem)]
TOLERANCES = tomllib.loads((Path(__file__).parent / "tolerances.toml").read_text("utf-8"))
each_run = every("story, name", FILED)

CODE = '''\
import math
import torch
from mhattn.core import rotary_frequencies
torch.set_default_dtype(torch.float64)
width = 16
other = 3
def turn(c):
    """How far pair c turns."""
    return rotary_frequencies(width)[c] * helper(c)
def helper(c):
    return math.pi  # half a turn
turned = turn(other)
width = 99
'''


def names(code, name):
    return [
        line.split("\n")[0]
        for line in map(fingerprints.ast.unparse, fingerprints.needed(code, name))
    ]


def test_a_name_needs_what_its_code_reads_and_nothing_else():
    found = names(CODE, "turn")
    assert "def turn(c):" in found
    assert "def helper(c):" in found, "defined later, called by turn"
    assert "width = 16" in found, "as it was when the function was defined"
    assert "torch.set_default_dtype(torch.float64)" in found, "it binds nothing and changes all"
    assert not {"width = 99", "other = 3", "turned = turn(other)"} & set(found)
    assert "other = 3" in names(CODE, "turned")
    with pytest.raises(KeyError):
        fingerprints.needed(CODE, "nosuch")


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("return math.pi", "return 2 * math.pi", True),
        ("width = 16", "width = 18", True),
        ("float64", "float32", True),
        ("half a turn", "a comment", False),
        ("How far pair c turns", "Another docstring", False),
        ("other = 3", "other = 4", False),
        ("width = 99", "width = 98", False),
    ],
)
def test_the_hash_changes_with_the_code(old, new, changes):
    assert old in CODE
    same = fingerprints.fingerprint(CODE, "turn") == fingerprints.fingerprint(
        CODE.replace(old, new), "turn"
    )
    assert same is not changes


def test_every_python_computes_the_same_hash():
    """A file is measured with one Python and read with another."""
    text = "def f(x: int, *rest) -> str:\n    \"Said.\"\n    return [f'{y!r:>3}' for y in rest]\n"
    assert fingerprints.fingerprint(text, "f") == "ee1bf5fb3a814a6d"


def own_package():
    """One to change: all others are given the same, until a file changes."""
    package = fingerprints.keys.package()
    return dataclasses.replace(package, texts=dict(package.texts))


@pytest.mark.parametrize(
    ("module", "old", "new", "changes"),
    [
        ("core.frequencies", "(-pairs / head_dim)", "(-pairs / 9)", True),  # what it imports
        ("core.frequencies", "Position interpolation needs", "Interpolation needs", False),
        ("core.masks", "def causal_mask(", "def causal_mask_(", False),
        ("core.checks", "must be even", "must be another number", False),  # which it does import
    ],
)
def test_the_hash_changes_with_the_package(monkeypatch, module, old, new, changes):
    before, package = fingerprints.fingerprint(CODE, "turn"), own_package()
    text = package.texts[module]
    assert old in text
    package.texts[module] = text.replace(old, new)
    monkeypatch.setattr(fingerprints.keys, "package", lambda: package)
    assert (fingerprints.fingerprint(CODE, "turn") != before) is changes


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("core.fused", "WIDEST = 256", "WIDEST = 128"),
        ("core.fused", "return mask is None and query", "return query"),
    ],
)
def test_what_only_a_gpu_runs_is_in_the_hash_of_a_gpu_alone(monkeypatch, module, old, new):
    code = "from mhattn.core import fused_attention\n\ndef f():\n    return fused_attention\n"
    kinds = False, True
    before = [fingerprints.fingerprint(code, "f", on_gpu) for on_gpu in kinds]
    package = own_package()
    assert old in package.texts[module]
    package.texts[module] = package.texts[module].replace(old, new)
    monkeypatch.setattr(fingerprints.keys, "package", lambda: package)
    after = [fingerprints.fingerprint(code, "f", on_gpu) for on_gpu in kinds]
    assert [x != y for x, y in zip(before, after, strict=True)] == [False, True]


def calls_on_gpu(tree):
    """Each call of a function that only a GPU may reach, and whether `is_cuda` stands before it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            before, parts = node.test, node.body
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            before, parts = node.values[0], node.values[1:]
        else:
            before, parts = None, [node]
        guarded = getattr(before, "attr", "") == "is_cuda"
        for call in (c for part in parts for c in ast.walk(part) if isinstance(c, ast.Call)):
            if getattr(call.func, "id", "").endswith(fingerprints.ON_GPU):
                yield (call.lineno, call.col_offset), guarded


def unguarded(text):
    """The lines whose call of such a function nothing guards."""
    calls = list(calls_on_gpu(ast.parse(text)))
    return sorted({line for line, _ in {at for at, _ in calls} - {at for at, ok in calls if ok}})


def test_what_is_named_for_a_gpu_is_called_for_a_gpu_alone():
    """A CPU's hash leaves these functions out, so a CPU must not reach them."""
    texts = fingerprints.keys.package().texts
    calls = {
        name: list(calls_on_gpu(ast.parse(text.split("\0")[0]))) for name, text in texts.items()
    }
    assert "core.fused" in {name for name, found in calls.items() if found}
    assert {name: unguarded(texts[name]) for name in calls if calls[name]} == {"core.fused": []}
    code = "if x.is_cuda:\n    f_on_gpu(x)\ny = x.is_cuda and g_on_gpu(x)\n"
    assert unguarded(code) == []
    assert unguarded(code.replace("x.is_cuda:", "x.ndim:")) == [2]
    assert unguarded(code.replace("x.is_cuda and", "x.ndim and") + "h_on_gpu(x)") == [3, 4]


def bound_in(module):
    """What a module binds at its top level besides imports; nothing if there is no such module."""
    package = fingerprints.keys.package()
    if (
        module.removeprefix("mhattn.") not in package.texts
        and not fingerprints._file(module).exists()
    ):
        return set()
    body = ast.parse(fingerprints._text(module, package)).body
    kept = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)]
    return {name for node in kept for name in fingerprints._bound(node)} - {"__all__"}


def test_a_module_that_moved_counts_under_its_old_name(tmp_path, monkeypatch):
    for new, old in fingerprints.MOVED.items():
        assert bound_in(new), f"there is no {new}"
        assert not bound_in(new) & bound_in(old), "two things would count under one name"
    (tmp_path / "room").mkdir()
    for name in ("before", "after"):
        (tmp_path / "room" / f"{name}.py").write_text("N = 3\n", encoding="utf-8")
    monkeypatch.setattr(fingerprints, "SCRIPTS", tmp_path)
    code = "from room.before import N\ndef f():\n    return N\n"
    moved = code.replace("before", "after")
    assert fingerprints.fingerprint(code, "f") != fingerprints.fingerprint(moved, "f")
    monkeypatch.setattr(fingerprints, "MOVED", {"room.after": "room.before"})
    assert fingerprints.fingerprint(code, "f") == fingerprints.fingerprint(moved, "f")


def test_a_function_that_was_written_anew_counts_as_the_one_that_ran(monkeypatch):
    for (module, name), old in fingerprints.AS_FILED.items():
        assert {name} <= bound_in(module) & bound_in(old)
    (module, name), *_ = fingerprints.AS_FILED
    code = f"from {module} import {name}\n\ndef f():\n    return {name}\n"
    before, package = fingerprints.fingerprint(code, "f"), fingerprints.keys.package()
    for old, new, changes in [("read_gguf(path)", "read_gguf(0)", False), ("eps: ", "e: ", True)]:
        other = {**package.texts, "models.language_model": package.texts["models.language_model"]}
        assert old in other["models.language_model"]
        other["models.language_model"] = other["models.language_model"].replace(old, new)
        changed = dataclasses.replace(package, texts=other)
        monkeypatch.setattr(fingerprints.keys, "package", lambda changed=changed: changed)
        assert (fingerprints.fingerprint(code, "f") != before) is changes
        monkeypatch.undo()
    monkeypatch.setattr(fingerprints, "AS_FILED", {})
    assert fingerprints.fingerprint(code, "f") != before


def test_what_was_written_anew_returns_the_same_to_the_last_bit(trained):
    """Weights, tokenizer, and the random numbers that come next."""
    returned = []
    for load in (load_gguf, as_filed.load_gguf):
        _ = torch.manual_seed(0)
        model, tokenizer = load(trained["SmolLM2-135M-Instruct"])
        returned.append((model.state_dict(), tokenizer.to_str(), torch.rand(3)))
    (weights, words, chance), (weights_then, words_then, chance_then) = returned
    assert words == words_then
    assert torch.equal(chance, chance_then)
    assert list(weights) == list(weights_then)
    assert all(torch.equal(weights[name], weights_then[name]) for name in weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("head_dim", [2, 6, 22, 64])
def test_positions_are_turned_as_before_to_the_last_bit(head_dim, dtype):
    """Outputs and gradients, from the table, beyond it, and at positions that are given."""
    now, then = (kind.Rotary(head_dim, 543.0) for kind in (positions, as_filed))
    then.table = as_filed.RotaryTable(then.frequencies, then.steps.device)
    for length, start in itertools.product((1, 3, 37), (0, 7, positions.KEPT - 1, 70_001)):
        x = torch.randn(2, 3, length, head_dim).to(dtype).requires_grad_()
        places = torch.randint(0, 9000, (2, length))
        for asked in ({"start": start}, {"positions": places}):
            turned, turned_then = now.rotate(x, **asked), then.rotate(x, **asked)
            probe = torch.randn_like(turned)
            (slope,) = torch.autograd.grad(turned, x, probe)
            (slope_then,) = torch.autograd.grad(turned_then, x, probe)
            assert turned.dtype == dtype
            assert turned.equal(turned_then)
            assert slope.equal(slope_then)


# Filed runs


@pytest.fixture
def story(tmp_path, monkeypatch):
    """A story with an experiment, and a folder for its runs."""
    text = "# --8<-- [start:a]\n>>> import torch\n>>> scale = 2.0\n>>> _ = 1 / 0\n"
    text += ">>> def trained(seed):\n...     _ = torch.manual_seed(seed)\n"
    text += "...     return [[scale * torch.rand(()).item(), seed]]\n\n# --8<-- [end:a]\n"
    (tmp_path / "toy.pycon").write_text(text, encoding="utf-8")
    monkeypatch.setattr(runs, "STORIES", tmp_path)
    monkeypatch.setattr(runs, "FOLDER", tmp_path / "runs")
    return tmp_path / "toy.pycon"


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["measure.py", *arguments])
    return measure.main()


def test_runs_are_filed_shown_and_known_to_be_stale(story, monkeypatch, capsys):
    """Only what the function needs is run: the division by zero is not."""
    assert run(monkeypatch, "toy:trained", "--seeds", "3") == 0
    filed = runs.filed("toy")["trained"]
    assert [value[0][1] for value in filed["values"]] == [0, 1, 2]
    assert len({value[0][0] for value in filed["values"]}) == 3
    assert run(monkeypatch, "toy:") == 0
    assert runs.filed("toy")["trained"]["values"] == filed["values"]
    assert run(monkeypatch, "toy:trained", "--again", "2") == 0
    assert capsys.readouterr().out.splitlines()[-1] == ("toy:trained, seed 2: numbers 0 weights 0")
    for language in LANGUAGES:
        said = runs.markdown("toy:trained", language, str)
        assert "3 " in said
        assert "(data/runs/toy.json)" in said
        assert "toy-trained.pt" not in said, "no weights are filed"
        assert STALE[language] not in said
    text = story.read_text(encoding="utf-8").replace("2.0", "3.0")
    story.write_text(text, encoding="utf-8")
    assert run(monkeypatch, "toy:trained", "--again", "2") == 0
    half = filed["values"][2][0][0] / 2  # of the random number twice
    assert float(capsys.readouterr().out.split()[-3]) == pytest.approx(half, rel=0.01)
    less, _ = measuring_runs.differences("toy:trained", 2, relative=0.4)
    assert less == pytest.approx(half / 5, rel=0.01)
    for language in LANGUAGES:
        assert STALE[language] in runs.markdown("toy:trained", language, str)
    assert "toy.zh.json" not in runs.markdown("toy:trained", "zh", str)
    twin = runs.path_of("toy").read_text(encoding="utf-8").replace('"seeds": 3', '"seeds": 7')
    runs.path_of("toy.zh").write_text(twin, encoding="utf-8")
    story.with_name("toy.zh.pycon").write_text(text, encoding="utf-8")
    assert "3 " in runs.markdown("toy:trained", "en", str)
    assert "7 " in runs.markdown("toy:trained", "zh", str)
    assert "(data/runs/toy.zh.json)" in runs.markdown("toy:trained", "zh", str)
    with pytest.raises(SourceError, match=r"no 'other' in docs/data/runs/toy\.json"):
        runs.markdown("toy:other", "en", str)


SEEDED = """\
# --8<-- [start:a]
>>> import torch
>>> _ = torch.manual_seed(1)
>>> unused = torch.rand(3)
>>> _ = torch.manual_seed(7)
>>> noise = torch.rand(2).tolist()
>>> _ = torch.manual_seed(5)
>>> def trained(seed):
...     return [noise, seed]

# --8<-- [end:a]
"""


def test_a_run_takes_along_the_seed_before_what_it_reads(story, monkeypatch):
    story.write_text(SEEDED, encoding="utf-8")
    assert run(monkeypatch, "toy:trained", "--seeds", "3") == 0
    drawn = torch.rand(2, generator=torch.Generator().manual_seed(7)).tolist()
    (noise, _), *_ = runs.filed("toy")["trained"]["values"]
    assert noise == pytest.approx(drawn, rel=1e-5)
    assert runs.ran_with_seeds("toy", "trained") is True
    assert measuring_runs.differences("toy:trained", 1)[0] < 1e-5
    story.write_text(SEEDED.replace("seed(5)", "seed(6)"), encoding="utf-8")
    assert not runs.is_stale("toy", "trained"), "nothing is drawn behind it"
    story.write_text(SEEDED.replace("seed(7)", "seed(8)"), encoding="utf-8")
    assert runs.is_stale("toy", "trained")
    assert measuring_runs.differences("toy:trained", 1)[0] > 0.1


def test_what_was_filed_without_seeds_is_run_again_without(story, monkeypatch):
    story.write_text(SEEDED, encoding="utf-8")
    with_seeds = runs.fingerprint
    monkeypatch.setattr(runs, "fingerprint", lambda *asked: with_seeds(*asked[:2], False))
    whole_code = runs.code
    monkeypatch.setattr(runs, "code", lambda story, name, seeds: whole_code(story, name, False))
    _ = torch.manual_seed(3)
    assert run(monkeypatch, "toy:trained", "--seeds", "3") == 0
    monkeypatch.undo()
    monkeypatch.setattr(runs, "STORIES", story.parent)
    monkeypatch.setattr(runs, "FOLDER", story.parent / "runs")
    assert runs.ran_with_seeds("toy", "trained") is False
    _ = torch.manual_seed(3)
    assert measuring_runs.differences("toy:trained", 1)[0] < 1e-5


def test_a_page_says_whether_seeds_or_parts_of_the_work_were_run(story, monkeypatch):
    assert run(monkeypatch, "toy:trained", "--seeds", "3") == 0
    assert "beforehand with 3 seeds" in runs.markdown("toy:trained", "en", str)
    assert "用一个种子重新运行代码" in runs.markdown("toy:trained", "zh", str)
    text = story.read_text(encoding="utf-8")
    story.write_text(text.replace("seed", "part").replace("manual_part", "manual_seed"), "utf-8")
    said = runs.markdown("toy:trained", "en", str)
    assert "Run beforehand in 3 parts (" in said
    assert "every night a test runs one of the parts again" in said
    assert "分 3 组预先运行（" in runs.markdown("toy:trained", "zh", str)
    story.write_text(text.replace("trained(seed)", "trained(number)"), "utf-8")
    with pytest.raises(SourceError, match=r"toy\.pycon.* of trained must be called seed or part"):
        runs.markdown("toy:trained", "en", str)


def test_weights_are_filed_beside_the_numbers(story, monkeypatch, capsys):
    text = story.read_text(encoding="utf-8")
    numbers = "return [[scale * torch.rand(()).item(), seed]]"
    assert numbers in text
    weights = '{"w": (scale * torch.rand(2, 3)).half(), "n": torch.tensor(seed)}'
    story.write_text(text.replace(numbers, f"return [seed], {weights}"), encoding="utf-8")
    assert run(monkeypatch, "toy:trained", "--seeds", "2") == 0
    filed, path = runs.filed("toy")["trained"], runs.weights_path("toy", "trained")
    assert filed["values"] == [[0], [1]]
    about = {"file": "toy-trained.pt", "sha256": keys.cache.file_hash(path)}
    assert filed["weights"] == about
    found = torch.load(path)
    assert found["n"].tolist() == [0, 1]
    _ = torch.manual_seed(1)
    torch.testing.assert_close(found["w"][1], (2 * torch.rand(2, 3)).half(), rtol=0, atol=0)
    assert {f"data/runs/{name}" for name in ("toy.json", "toy-trained.pt")} == {*runs.published()}
    assert run(monkeypatch, "toy:") == 0
    assert runs.filed("toy")["trained"]["weights"] == about, "the same weights are the same file"
    assert measuring_runs.differences("toy:trained", 1) == (0, 0)
    for language in LANGUAGES:
        assert "(data/runs/toy-trained.pt)" in runs.markdown("toy:trained", language, str)
    text = story.read_text(encoding="utf-8")
    story.write_text(text.replace("scale * torch", "torch"), encoding="utf-8")
    _, gap = measuring_runs.differences("toy:trained", 1)
    assert gap == pytest.approx(0.5, rel=0.01), "half of the largest weight"
    story.write_text(text.replace("rand(2, 3)", "rand(3, 2)"), encoding="utf-8")
    assert measuring_runs.differences("toy:trained", 1)[1] == math.inf


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("toy:trained", "was never run: say --seeds"),
        ("toy:", "nothing is filed for this story"),
        ("nosuch:trained --seeds 3", "there is no story"),
        ("toy:nosuch --seeds 3", "nothing defines nosuch in this story"),
        ("toy:trained --again 0", "toy:trained: nothing is filed for the seed 0"),
    ],
)
def test_what_cannot_be_run_is_refused(story, monkeypatch, capsys, asked, message):
    with pytest.raises(SystemExit):
        run(monkeypatch, *asked.split())
    assert message in capsys.readouterr().err
    assert not (story.parent / "runs").exists()


@pytest.mark.parametrize(
    ("now", "filed", "differ"),
    [
        ([1, [2.0, 3]], [1, [2.5, 3]], 0.5),
        ([[1.0], 7], [[1.0], 4], 3),
        ([1, 2], [1, 2], 0),
        ([1, 2], [1, 2, 3], math.inf),
        ([1], [[1]], math.inf),
    ],
)
def test_the_largest_difference_of_nested_lists(now, filed, differ):
    assert measuring_runs._difference(now, filed, 0.0) == differ


@pytest.mark.parametrize("weights", [[1], {"w": [1.0]}, {0: torch.ones(1)}, torch.ones(1)])
def test_only_tensors_under_names_are_weights(weights):
    with pytest.raises(SourceError, match="must return weights as tensors under their names"):
        measuring_runs._checked(([1.0], weights), "toy:trained")


@pytest.mark.parametrize("value", [None, [1, "2"], [float("nan")], [True], {"a": 1}])
def test_only_numbers_are_filed(value):
    with pytest.raises(SourceError, match="must return nested lists of numbers, got"):
        measuring_runs._numbers(value, "toy:trained")


# What is there


@each_run
def test_a_filed_run_is_of_todays_code_and_its_story_reads_it(story, name):
    command = f"python scripts/measure.py {story}:{name}"
    assert not runs.is_stale(story, name), f"its code has changed; run it again: {command}"
    filed = runs.filed(story)[name]
    file = filed["weights"]["file"] if "weights" in filed else f"{story}.json"
    assert f'data_file("runs/{file}")' in runs.text(story)
    assert len(filed["values"]) == filed["seeds"]
    assert filed["seeds"] >= 3 or "weights" in filed, "only a model to look at may be one"


def test_every_filed_run_has_a_tolerance():
    """In tolerances.toml, with which the tests below compare."""
    assert sorted(TOLERANCES) == sorted(f"{story}:{name}" for story, name in FILED)


def run_again(story, name):
    """With a seed that the commit draws, in a process of its own: it sets what torch does."""
    seed = drawn_number(f"{story}:{name}") % runs.filed(story)[name]["seeds"]
    absolute, relative, *of_weights = TOLERANCES[f"{story}:{name}"]
    asked = [f"{story}:{name}", "--again", str(seed), "--relative", str(relative)]
    command = [sys.executable, ROOT / "scripts" / "measure.py", *asked]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    numbers, weights = map(float, done.stdout.split()[-3::2])
    assert numbers <= absolute, f"{story}:{name}, seed {seed}: numbers differ by {numbers}"
    assert weights <= max(of_weights, default=0), f"seed {seed}: weights differ by {weights}"


@pytest.mark.slow
def test_one_filed_run_is_run_again(trained):
    """The commit draws which."""
    run_again(*drawn(FILED, 1, of="runs")[0])


@pytest.mark.nightly
@pytest.mark.parametrize(("story", "name"), FILED)
def test_each_filed_run_is_run_again(story, name, trained):
    run_again(story, name)


@each_run
@every("language", LANGUAGES)
def test_a_page_says_where_a_filed_run_comes_from(story, name, language):
    """Of a Chinese story with other data the Chinese page does, under the name of the English."""
    assert f"runs {story.removesuffix('.zh')}:{name}" in tables_of(language)


@functools.cache
def tables_of(language):
    """What all pages of a language show from data."""
    pages = [read(DOCS / language / page) for page in page_paths(language)]
    return {part.value for page in pages for part in skeleton(page) if part.kind == "table"}


def test_every_file_belongs_to_a_story():
    weights = {}
    for path in runs.FOLDER.glob("*.json"):
        assert (STORIES / f"{path.stem}.pycon").is_file()
        assert set(json.loads(path.read_text(encoding="utf-8"))) == {"runs"}
        filed = [run["weights"] for run in runs.filed(path.stem).values() if "weights" in run]
        weights |= {about["file"]: about["sha256"] for about in filed}
    files = {path.name: keys.cache.file_hash(path) for path in runs.FOLDER.glob("*.pt")}
    assert files == weights


@pytest.mark.nightly
@every("path", measured.files())
def test_a_measurement_is_of_todays_code(path):
    about = measured.found(path)["provenance"]
    command = f"python scripts/measure.py {path.stem}"
    assert not measured.is_stale(path.stem, about), (
        f"its code has changed; measure again: {command}"
    )

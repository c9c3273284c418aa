"""The doctor from the command line: files, formats that other programs read, a time limit."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mhattn.testing.__main__ import main
from mhattn.testing.formats import Place

ROOT = Path(__file__).parents[2]
LAYERS = """
import torch
from torch import nn

from beside import Base


class BackwardsAttention(Base):
    def forward(self, query, key, value, **options):
        return super().forward(query, key, value.flip(1), **options)


class SlowAttn(Base):
    def forward(self, *given, **options):
        while True:
            pass


class NeedsMore(nn.Module):  # of another name: it isn't examined
    def __init__(self, nothing):
        super().__init__()


class AttentionOfSomethingElse(NeedsMore):
    pass
"""
BESIDE = """
from torch import nn


class Base(nn.MultiheadAttention):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads, batch_first=True)
"""
CALL = ["--call", "inputs=qkv"]


@pytest.fixture
def layers(tmp_path, monkeypatch):
    """A file of layers, in the working directory."""
    (tmp_path / "some layers.py").write_text(LAYERS, encoding="utf-8")
    (tmp_path / "beside.py").write_text(BESIDE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield "some layers.py"
    for name in ("some layers", "beside"):
        sys.modules.pop(name, None)


def line_of(text):
    return next(n for n, line in enumerate(LAYERS.splitlines(), 1) if text in line)


def test_a_class_of_a_file_is_named_by_path_and_name(layers, capsys):
    assert main([f"{layers}:BackwardsAttention", *CALL]) == 1
    assert capsys.readouterr().out.startswith("BackwardsAttention: ")


def test_a_file_is_examined_class_by_class(layers, capsys):
    path = Path(layers)
    path.write_text(
        LAYERS.replace("while True:\n            pass", "return super().forward(*given, **options)")
    )
    with pytest.raises(SystemExit) as left:  # what no class of the file takes
        main(["torch.nn:MultiheadAttention", layers, "--set", "bias=False"])
    assert left.value.code == 2
    assert "no class of some layers.py could be examined" in capsys.readouterr().err
    assert main([layers, *CALL]) == 1
    told = capsys.readouterr()
    heads = [line.split(":")[0] for line in told.out.splitlines() if " checks passed" in line]
    assert heads == ["BackwardsAttention", "SlowAttn"]
    assert told.err == (
        "AttentionOfSomethingElse: not examined: AttentionOfSomethingElse needs nothing: "
        "say --set nothing=...\n"
    )


def test_json_is_a_list_of_reports(layers, capsys):
    targets = [f"{layers}:BackwardsAttention", f"{layers}:BackwardsAttention"]
    assert main([*targets, *CALL, "--format", "json"]) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert first == second
    assert first["layer"] == "BackwardsAttention"
    assert "order" in {each["check"] for each in first["findings"]}


def test_sarif_has_a_rule_and_a_place_for_each_finding(layers, capsys):
    assert main([f"{layers}:BackwardsAttention", *CALL, "--format", "sarif"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["version"] == "2.1.0"
    [run] = told["runs"]
    rules = {each["id"]: each["helpUri"] for each in run["tool"]["driver"]["rules"]}
    assert rules["order"].endswith("cross-attention/#order")
    for result in run["results"]:
        assert result["ruleId"] in rules
        assert result["level"] in ("error", "note")
        [place] = [each["physicalLocation"] for each in result["locations"]]
        assert place["artifactLocation"]["uri"] == "some%20layers.py"
        assert place["region"]["startLine"] == line_of("class BackwardsAttention")


def test_annotations_are_one_line_each_and_escaped(layers, capsys):
    assert main([f"{layers}:BackwardsAttention", *CALL, "--format", "github"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = f"file=some layers.py,line={line_of('class BackwardsAttention')}"
    [order] = [line for line in lines if "%3A order::" in line]
    assert order.startswith(f"::error {at},title=BackwardsAttention%3A order::")
    assert "%0Ahttps://" in order
    assert all(line.startswith(("::error ", "::notice ")) for line in lines)


def test_annotations_of_a_model_lie_at_its_layers(capsys):
    status = main(["transformers:gpt_neo", "--format", "github"])
    lines = capsys.readouterr().out.splitlines()
    assert lines  # it has no scale
    assert all("modeling_gpt_neo.py,line=" in line for line in lines)
    assert status == any(line.startswith("::error ") for line in lines)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_what_takes_too_long_is_stopped(layers, capsys, handler, request):
    before = signal.signal(signal.SIGINT, handler)  # ignored: as in a shell's background job
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with pytest.raises(SystemExit) as left:
        main([f"{layers}:SlowAttn", "--timeout", "0.2"])
    assert left.value.code == 2
    assert "SlowAttn was not done after 0.2 s" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) == handler


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nowhere.py", "must name a file that is there, got 'nowhere.py'"),
        ("beside.py", "beside.py has no class with 'attention' or 'attn' in its name"),
        ("some layers.py:Nothing", "some layers.py has no 'Nothing'"),
        ("broken.py", "invalid syntax"),
    ],
)
def test_a_file_that_has_nothing_to_examine_says_so(layers, target, says, capsys):
    Path("broken.py").write_text("class", encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main([target])
    assert left.value.code == 2
    assert says in capsys.readouterr().err


def test_a_file_outside_has_its_whole_path():
    place = Place.of(pytest.fixture)
    assert Path(place.file).is_absolute()


def test_the_hook_finds_a_mistake_in_a_file(layers):
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["language"] == "system"
    program, *rest = hook["entry"].split()
    assert program == "python"
    Path("quantised.py").write_text(
        "from torch.ao.nn import quantizable\n\n\n"
        "class Attention(quantizable.MultiheadAttention):\n"
        "    def __init__(self):\n"
        "        super().__init__(24, 3, batch_first=True)\n",
        encoding="utf-8",
    )
    ran = subprocess.run(
        [sys.executable, *rest, "quantised.py"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stderr
    assert "heads merged by view alone" in ran.stdout

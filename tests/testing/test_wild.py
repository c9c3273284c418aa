"""What is filed of public libraries is what the doctor says today."""

import json
import multiprocessing
import time

import pytest
import torch
from cases import every
from drawn import drawn
from measuring import wild
from torch import nn

from mhattn.testing import check_model

FILED = wild.filed()
ROWS = {(row["library"], row["model"]): row for row in FILED["rows"]}
BUILT = [each for each, row in ROWS.items() if row.get("kinds") and "seconds" in row]
FAST = [each for each in BUILT if ROWS[each]["seconds"] <= 1]
KINDS = [kind for row in FILED["rows"] for kind in row["kinds"]]
VERDICTS = {"formula", "ok", "note", "mistake", "unexamined"}
COMMAND = "python scripts/measure.py --wild"

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries have many


@pytest.fixture(autouse=True)
def threads():
    """As many as before: a model is examined with one."""
    number = torch.get_num_threads()
    yield
    torch.set_num_threads(number)


def told(row):
    """What has to stay: verdicts, and which checks say something of which layer."""
    kinds = [
        (kind["layer"], kind["class"], kind["verdict"], names(kind.get("findings", [])))
        for kind in row["kinds"]
    ]
    return names(row["findings"]), kinds


def names(findings):
    return sorted({(level, check) for level, check, _ in findings})


def compare(asked):
    wrong = []
    for library, model in asked:
        now = wild.examined(library, model)
        if told(now) != told(ROWS[library, model]):
            wrong.append(f"{library} {model}: {told(now)}, filed {told(ROWS[library, model])}")
    assert not wrong, "\n".join([*wrong, f"if that is right: {COMMAND}"])


def test_some_filed_rows_come_out_again():
    compare(drawn(FAST, 6, of="wild"))


@pytest.mark.slow
def test_sixty_filed_rows_come_out_again():
    compare(drawn(BUILT, 60, of="more of the wild"))


def test_the_file_is_of_todays_program_and_versions():
    """The doctor may change and find the same; the list of models and how they run may not."""
    assert FILED["about"]["code"] == wild.own_hash(), COMMAND
    for name, number in FILED["about"]["versions"].items():
        assert wild.version(name) == number, COMMAND
    assert list(ROWS) == wild.catalogue(), COMMAND


@every("row", FILED["rows"])
def test_a_row_says_what_was_found_or_why_nothing_was(row):
    assert row["library"] in FILED["about"]["versions"]
    if not row["built"] or not row["kinds"]:
        assert row["why"]
        assert not row["findings"]
    for kind in row["kinds"]:
        assert kind["verdict"] in VERDICTS
        assert (kind["verdict"] == "unexamined") == ("why" in kind)
        errors = [f for f in kind.get("findings", []) if f[0] == "error"]
        of_model = [f for f in row["findings"] if f[0] == "error"]
        assert kind["verdict"] == "mistake" or not errors
        assert kind["verdict"] != "mistake" or errors or of_model
        assert kind["verdict"] != "formula" or not kind["findings"]


def test_both_ends_are_there():
    """What is known to be right is right, and the mistakes that programs show are found."""
    layers = {(kind["class"], kind["verdict"]) for kind in KINDS}
    for name in ("LlamaAttention", "Qwen3Attention"):
        assert (name, "formula") in layers
    models = {
        ("torch", "ao.nn.quantizable.MultiheadAttention, batch_first"),
        *(("transformers", name) for name in ("autoformer", "kosmos-2.5 (vision)", "paligemma")),
        *(("transformers", name) for name in ("phi4_multimodal (vision)", "nystromformer", "yoso")),
    }
    for each in models:
        assert "mistake" in {kind["verdict"] for kind in ROWS[each]["kinds"]}, each


# The program


class Mixing(nn.Module):
    """Two layers of torch, of which the second may be one that merges heads by view."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        options = {"batch_first": True}
        self.one, self.two = nn.MultiheadAttention(24, 3, **options), kind(24, 3, **options)
        self.out = nn.Linear(24, 24)

    def forward(self, x):
        x = x + self.one(x, x, x)[0]
        return self.out(x + self.two(x, x, x)[0])


def test_a_row_is_what_check_model_says(monkeypatch):
    model, x = Mixing(torch.ao.nn.quantizable.MultiheadAttention), torch.randn(2, 7, 24)
    monkeypatch.setattr(wild, "built", lambda *_: (model, (x,), {}))
    row = wild.examined("torch", "mixing")
    report = check_model(model, x)
    assert row["built"]
    assert [kind["layer"] for kind in row["kinds"]] == list(report.layers) == ["one", "two"]
    assert [kind["verdict"] for kind in row["kinds"]] == ["formula", "mistake"]
    checks = [check for level, check, _ in row["kinds"][1]["findings"] if level == "error"]
    assert checks == [finding.check for finding in report.reports["two"].errors]
    skipped = " ".join(row["kinds"][0]["skipped"].values()).split()
    assert sorted(skipped) == sorted(report.reports["one"].skipped)
    json.dumps(row)


def test_a_model_that_cannot_be_built_or_called_says_why(monkeypatch):
    def refused(*_):
        raise RuntimeError("no such\nthing")

    monkeypatch.setattr(wild, "built", refused)
    row = wild.examined("torch", "nothing")
    assert not row["built"]
    assert row["why"] == "RuntimeError: no such"
    monkeypatch.setattr(wild, "built", lambda *_: (nn.Linear(3, 3), (torch.randn(2, 3),), {}))
    row = wild.examined("torch", "plain")
    assert row["built"]
    assert "must attend" in row["why"]


@pytest.mark.parametrize(
    ("got", "verdicts"),
    [
        ("outputs differ, first in two", ["formula", "mistake"]),
        ("it was never called", ["mistake", "mistake"]),
    ],
)
def test_a_finding_of_the_model_counts_for_the_layer_that_it_names(monkeypatch, got, verdicts):
    model, x = Mixing(nn.MultiheadAttention), torch.randn(2, 7, 24)
    monkeypatch.setattr(wild, "built", lambda *_: (model, (x,), {}))
    plain = wild.check_model

    def finding(*given, **told):
        report = plain(*given, **told)
        report.layers = {"one": ["one"], "two": ["two"]}
        report.reports.setdefault("two", report.reports["one"])
        report.findings = [wild.Finding("kernels", "it ran", got, "the same")]
        return report

    monkeypatch.setattr(wild, "check_model", finding)
    assert [kind["verdict"] for kind in wild.examined("torch", "two")["kinds"]] == verdicts


class Dead:
    exitcode = -24

    def join(self):
        pass

    def kill(self):
        self.exitcode = -9


@pytest.mark.parametrize(("code", "told"), [(-24, "took more than"), (3, "ended with 3")])
def test_a_process_that_ends_without_an_answer_gives_a_row(code, told):
    here, there = multiprocessing.Pipe(duplex=False)
    there.close()
    dead = Dead()
    dead.exitcode = code
    running = wild.Running("torch", "endless", dead, time.monotonic())
    row = running.row(here, True)
    assert told in row["why"]
    assert row["kinds"] == []


def test_a_process_that_waits_forever_is_ended():
    here, there = multiprocessing.Pipe(duplex=False)
    long_ago = time.monotonic() - wild.LONGEST - 1
    assert wild.Running("torch", "new", Dead(), time.monotonic()).row(here, False) is None
    assert "took more" in wild.Running("torch", "old", Dead(), long_ago).row(here, False)["why"]
    there.close()


def test_a_stopped_sweep_goes_on_where_it_was(tmp_path, monkeypatch):
    """Rows of the same code are taken from the draft and from the file, others are not."""
    models = [("torch", name) for name in ("a", "b", "c")]
    monkeypatch.setattr(wild, "FILE", tmp_path / "wild.json")
    monkeypatch.setattr(wild, "UPSTREAM", tmp_path)
    monkeypatch.setattr(wild, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(wild, "catalogue", lambda: models)
    asked = []

    def rows(left, jobs):
        for number, (library, name) in enumerate(left):
            if number == 2:
                raise KeyboardInterrupt
            asked.append(name)
            yield {"library": library, "model": name, "number": len(asked)}

    monkeypatch.setattr(wild, "rows", rows)
    with pytest.raises(KeyboardInterrupt):
        wild.sweep()
    assert not wild.FILE.exists()
    wild.sweep()
    assert asked == ["a", "b", "c"]
    assert [row["number"] for row in wild.filed()["rows"]] == [1, 2, 3]
    wild.sweep()
    assert asked == ["a", "b", "c"], "all are filed"
    monkeypatch.setattr(wild, "doctors_hash", lambda: "another")
    with pytest.raises(KeyboardInterrupt):
        wild.sweep()
    assert asked == ["a", "b", "c", "a", "b"]


def test_numbers_of_a_program_are_read_by_their_words():
    text = "a layer, 2 heads: 5.2e-01\ncalls: 0\ndefault: sdpa\nalpha 3\nsmallest: -1.0\n"
    assert wild.numbers(text) == {"a layer, 2 heads": 0.52, "calls": 0, "smallest": -1.0}

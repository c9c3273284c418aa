"""The doctor is held to account: every mutant is found for its own reason, no right layer.

A whole report takes a second. Plain `pytest` asks for what a promise is about: of each mutant the
checks that should find it, of each right layer some checks, drawn anew by each commit, and a few
whole reports. ``pytest -m slow`` makes all whole reports.
"""

import csv
import itertools
import re
import time
from pathlib import Path

import pytest
import torch
from drawn import drawn, few_now
from missed import KINDS, SEEDS, examined, reasons
from mutants import MUTANTS
from rights import RIGHT, WRONG
from torch import nn

from mhattn.testing import check_attention, mistakes
from mhattn.testing.__main__ import main as main_of_command
from mhattn.testing.calls import Calls
from mhattn.testing.computed import Formula, Rotary, alibi_slopes
from mhattn.testing.projections import Parts
from mhattn.testing.registry import PAGES
from mhattn.testing.subject import Subject
from mhattn.testing.targets import made

QUICK = 10.0  # seconds of a processor
UNSEEN = {
    "half precision: products before the scale": "a note: usual tokens are never that large",
}
SEEN = [mutant for mutant in MUTANTS if mutant.name not in UNSEEN]
every_mutant = pytest.mark.parametrize("mutant", SEEN, ids=lambda mutant: mutant.name)


def test_what_should_find_a_mutant_is_a_check():
    assert {mutant.name: set(mutant.found_by) - set(PAGES) for mutant in MUTANTS} == {
        mutant.name: set() for mutant in MUTANTS
    }
    assert all(mutant.found_by for mutant in MUTANTS)


@pytest.mark.parametrize("name", UNSEEN)
def test_what_it_cannot_see_is_known(name):
    """Who teaches the doctor one of these takes it from the list."""
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == name]
    assert examined(mutant).ok


def is_found(mutant, report):
    assert not report.ok
    named = reasons(mutant, report)
    assert named, f"found by {[finding.check for finding in report.errors]}"
    assert mutant.says in " ".join(str(finding) for finding in named)


@every_mutant
def test_every_mutant_is_found_for_its_own_reason(mutant):
    is_found(mutant, examined(mutant, only=mutant.found_by))


@pytest.mark.slow
@every_mutant
def test_every_mutant_is_found_in_the_whole_report(mutant):
    is_found(mutant, examined(mutant))


def test_the_table_of_kinds_is_what_seeds_and_sizes_give():
    """Two mutants of it, drawn anew by each commit, with each seed and size."""
    with KINDS.open(encoding="utf-8", newline="") as file:
        *rows, right = csv.DictReader(file, delimiter="\t")
    missed = sum(int(row["runs"]) - int(row["found"]) for row in rows)
    assert (sum(int(row["mistakes"]) for row in rows), missed) == (100, 0)
    assert (int(right["mistakes"]), right["found"]) == (len(RIGHT), "0")
    kinds = {row["kind"] for row in rows}
    filed = [m for m in SEEN if m.found_by[0] in kinds]
    for mutant in drawn(filed, 2, of="kinds"):
        for seed, factor in itertools.product(SEEDS, (1, 2)):
            assert not examined(mutant, seed, factor).ok, (mutant.name, seed, factor)


@pytest.mark.parametrize("name", few_now(RIGHT, 4, of="whole reports", name=str))
def test_nothing_is_found_in_right_layers(name):
    torch.manual_seed(0)
    layer = RIGHT[name].make()
    start = time.process_time()
    report = check_attention(layer, **RIGHT[name].how)
    assert report.ok, str(report)
    assert len(report.checked) >= 10
    assert time.process_time() - start < QUICK


@pytest.mark.parametrize("name", RIGHT)
def test_some_checks_find_nothing_in_any_right_layer(name):
    torch.manual_seed(0)
    asked = drawn(PAGES, 3, of=name)
    report = check_attention(RIGHT[name].make(), only=asked, **RIGHT[name].how)
    assert report.ok, str(report)
    assert set(asked) <= {*report.checked, *report.skipped}


@pytest.mark.parametrize("kind", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
@pytest.mark.parametrize("seed", range(6))
def test_kinks_of_a_relu_are_no_mistake(kind, seed):
    torch.manual_seed(seed)
    report = check_attention(kind(64, 4, batch_first=True), only=["gradients"])
    assert report.ok, str(report)


class Always(nn.Module):
    """Always causal, by names of its own."""

    def __init__(self, E=20, H=5):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(E, E) for _ in range(4))
        self.parts = H

    def forward(self, x):
        maps = self.wq, self.wk, self.wv
        q, k, v = (each(x).unflatten(-1, (self.parts, -1)).transpose(1, 2) for each in maps)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(mixed.transpose(1, 2).flatten(2))


def test_every_named_mistake_leads_to_a_section_that_exists():
    layer = nn.MultiheadAttention(24, 3)
    subject = Subject.of(layer, Calls(), set())
    parts = Parts([torch.zeros(2, 5, 24)] * 3, sinks=torch.zeros(3))
    kinds = {"rotary": Rotary("halves", 1e4)}, {"slopes": alibi_slopes(3)}, {}
    for kind in kinds:
        for name, _ in mistakes.mistakes(Formula(1.0, **kind), parts, subject):
            assert mistakes.Named(name).page, name
    for name in ("clip", "cap", "scale"):
        assert mistakes.measured(name, 2.0, Formula(1.0)).page, name
    docs = Path(__file__).parents[2] / "docs" / "en"
    for where in {*mistakes.SECTIONS.values(), *PAGES.values(), "mask-conventions/#alignment"}:
        page, _, section = where.partition("/#")
        assert f"{{ #{section} }}" in (docs / f"{page}.md").read_text(), where


@pytest.mark.parametrize("name", PAGES)
def test_each_name_of_a_check_may_be_asked_for_and_is_in_the_report(name):
    report = check_attention(nn.MultiheadAttention(24, 3, batch_first=True), only=[name])
    assert report.ok, str(report)
    assert name in {*report.checked, *report.skipped}


def test_fewer_heads_of_keys_that_were_not_said_are_named():
    class Grouped(Always):
        def __init__(self):
            super().__init__(24, 6)
            self.wk, self.wv = nn.Linear(24, 8), nn.Linear(24, 8)

        def forward(self, x):
            maps = self.wq, self.wk, self.wv
            q, k, v = (each(x).unflatten(-1, (-1, 4)).transpose(1, 2) for each in maps)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            return self.wo(mixed.transpose(1, 2).flatten(2))

    report = check_attention(Grouped(), num_heads=6, only=["formula"])
    assert report.skipped["formula"] == "k maps to 8 features, not 24: say num_kv_heads=2"
    assert check_attention(Grouped(), num_heads=6, num_kv_heads=2).ok


def test_guessed_sizes_are_said_to_be_guessed():
    layer = Always(20, 5)
    layer.d = 4  # of a head: read as the width of a token
    what = (
        r"embed_dim=4, num_heads=5: .*; embed_dim guessed: if that is wrong, say embed_dim=\.\.\."
    )
    with pytest.raises(ValueError, match=what) as caught:
        check_attention(layer, num_heads=5)
    assert caught.value.__suppress_context__
    assert check_attention(layer, embed_dim=20, num_heads=5, causal=True).ok


MHA = "torch.nn:MultiheadAttention"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{MHA} --call causal=Tru", "causal must be True, False or the name of .*, got 'Tru'"),
        (f"{MHA} --call mask=attn", "mask must be the name of an argument .*, got 'attn'"),
        (f"{MHA} --call batch_first=True", "has batch_first=False: say --set batch_first=True"),
        (f"{MHA} --num-heads 5", "MultiheadAttention.*num_heads=5. raised AssertionError"),
        ("torch.nn:Nope", "torch.nn has no 'Nope'"),
        ("no_such_module:Nope", "No module named 'no_such_module'"),
        ("torch.nn:Linear", "Linear needs in_features: say --set in_features="),
        ("test_doctor:Always --num-heads 3", "plainest call, with .*embed_dim=20, num_heads=3"),
    ],
)
def test_the_command_refuses_with_one_line(line, said, capsys):
    with pytest.raises(SystemExit) as caught:
        main_of_command(line.split())
    assert caught.value.code == 2
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert re.search(said, last), last


def test_the_command_takes_the_sizes_of_the_class(capsys):
    assert main_of_command(["test_doctor:Always", "--call", "causal=True"]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("Always: 0 mistakes, 0 notes, ")
    sizes = {"embed_dim": None, "num_heads": None}
    assert made(Always, sizes, {})[1] == {"embed_dim": 20, "num_heads": 5}
    assert made(nn.MultiheadAttention, sizes, {})[1] == {"embed_dim": 24, "num_heads": 3}
    layer, told = made(Always, sizes | {"num_heads": 2}, {"E": 8})
    assert (layer.wq.in_features, told) == (8, {"embed_dim": 8, "num_heads": 2})


@pytest.mark.parametrize("told", [{}, {"causal": False}])
def test_a_layer_that_is_causal_and_was_not_said_to_be_is_named_so_and_no_more(told):
    torch.manual_seed(0)
    report = check_attention(Always(), num_heads=5, **told)
    assert [each.check for each in report.findings] == ["past"]
    assert "the layer looks causal" in report.errors[0].got
    assert "say causal=True" in report.errors[0].expected
    assert {"future", "order", "formula"} <= set(report.checked)
    assert check_attention(Always(), num_heads=5, causal=True).ok


@pytest.mark.parametrize("name", WRONG)
def test_a_right_layer_that_is_called_wrong_is_found(name):
    torch.manual_seed(0)
    make, how, found_by = WRONG[name]
    report = check_attention(make(), **how)
    found = {finding.check for finding in report.errors}
    assert found & set(found_by.split()), str(report)


def test_each_call_begins_with_the_random_numbers_that_torch_would_draw_from_its_seed():
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.rand(x.shape)

    subject = Subject.of(Noise(), Calls(embed_dim=8, num_heads=2), set())
    x = torch.zeros(2, 5, 8)
    for seed in (0, 7):
        found = [subject(x, seed=seed).output for _ in range(2)]
        torch.manual_seed(seed)
        expected = torch.rand(x.shape)
        assert all(torch.equal(each, expected) for each in found)

"""Rows of models by their class in transformers: looked at anew, and against what is published."""

import json
import re
from urllib.parse import urlsplit

import pytest
from measuring import configurations
from mhsite import words
from mhsite.pages import atlas
from mhsite.stories import models

from mhattn.costs import known_models

ROWS = {row["type"]: row for row in atlas.found()}
CHOSEN = configurations.with_rows()
QUICK = ["granite_swa", "lfm3", "youtu"]  # a window, a convolution, a latent: a second each


def looked_at(name):
    """Built, run and counted again: the same to the last parameter, not within a tolerance."""
    return json.loads(json.dumps(configurations.row(name, CHOSEN[name])))


@pytest.mark.parametrize("name", QUICK)
def test_a_row_is_what_the_class_is(name):
    assert looked_at(name) == ROWS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_every_row_is_what_its_class_is(name):
    assert looked_at(name) == ROWS[name]


def test_each_table_is_a_row_or_a_reason():
    assert [*ROWS] == [*CHOSEN]
    reasons = {t["reason"] for t in atlas.chosen().values() if "reason" in t}
    for language in ("en", "zh"):
        assert {*words.of(language, "models.reasons")} == reasons
    for table in atlas.chosen().values():
        assert ("reason" in table) != ("title" in table)
        assert ("says" in table) == ("source" in table)
        assert "sized" in table or "sizes" not in table
        for source in (table.get("source"), table.get("sized")):
            assert source is None or urlsplit(source).scheme == "https"


@pytest.mark.parametrize("name", ROWS)
def test_parameters_are_what_its_name_or_a_source_says(name):
    row, table = ROWS[name], CHOSEN[name]
    if name == "jamba":  # whose published configuration has the defaults
        assert "sized" in table
        return
    assert configurations.agrees(row, table.get("says", row["checkpoint"]))


@pytest.mark.parametrize(
    ("said", "billions", "right"),
    [
        ("Jais-2-8B-Chat", 8.09, True),
        ("internlm3-8b-instruct", 8.8, True),  # drops what is behind its digit
        ("recurrent-2b", 1.49, False),
        ("LFM3-1.7B", 1.729, True),
        ("LFM3-1.7B", 1.81, False),
        ("Beam-1.0-501B-A23B", 501.3, False),  # its active ones don't fit
        ("command-r", 35.0, False),  # says nothing
    ],
)
def test_names_round(said, billions, right):
    row = {"parameters": billions * 1e9, "active": 1e9}
    assert configurations.agrees(row, said) == right


def test_active_parameters_of_published_rows():
    """Kolibri's card counts neither the embedding nor what rests; Qwen's name says 2.7B."""
    kolibri = ROWS["kolibri1"]
    assert kolibri["active"] - 128_000 * 2560 == pytest.approx(3_457_573_120, rel=1e-4)
    assert kolibri["parameters"] == pytest.approx(78_103_074_560, rel=1e-5)
    assert round(ROWS["qwen2_moe"]["active"] / 1e9, 1) == 2.7


def test_caches_by_hand():
    """From the configurations, as somebody reads them who doesn't run the class."""
    ling, lfm = ROWS["bailing_hybrid"], ROWS["lfm3"]
    assert [(k["layers"], k["sees"], k["numbers"], k["state"]) for k in ling["kinds"]] == [
        (35, "state", 0, 32 * 128 * 128),
        (7, "all", 512 + 64, 0),
    ]
    assert ling["order"] == ("aaaaab" * 7)
    assert [(k["layers"], k["sees"], k["numbers"]) for k in lfm["kinds"]] == [
        (13, "convolution", 0),
        (6, "all", 2 * 4 * 128),
        (5, "window", 2 * 4 * 128),
    ]
    hy = ROWS["hy_v4"]["kinds"]
    assert [(k["layers"], k["indexer"], k["numbers"]) for k in hy] == [
        (21, True, 512 + 64 + 128),
        (57, False, 512 + 64),
    ]
    bare = {
        n: [k["sees"] for k in row["kinds"] if k.get("turned") is False] for n, row in ROWS.items()
    }
    without = {"beam", "exaone4", "flint", "kolibri1", "jamba", "zamba"}
    assert {name for name, kinds in bare.items() if kinds} == without
    assert all(kinds in ([], ["all"]) for kinds in bare.values())


def test_names_are_not_those_of_known_models():
    names = [row["name"] for row in ROWS.values()]
    assert len(set(names)) == len(names)
    assert not {*names} & {*known_models()}
    assert all(re.fullmatch(r"[a-z0-9.-]+", name) for name in names)
    assert all(len(row["order"]) == row["layers"] for row in ROWS.values())


def test_every_causal_model_has_a_row_or_a_reason():
    assert configurations.missing() == []
    named = {line.split(":")[0] for line in models.without_row()}
    assert len(named) > 60
    assert named - {*CHOSEN} <= {*atlas.chosen()}

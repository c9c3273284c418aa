"""The benchmark of several processes: its bytes and its model of the time, counted by hand."""

import pytest
from measuring import processes, rounds
from measuring.processes import HEAD_PLANS, TOKEN_PLANS, Tokens

from mhattn.costs import Link

PLANS = HEAD_PLANS | TOKEN_PLANS
MIB = 2**20
FAST = {"link": Link("fast", "fast", "", 10**18, ""), "agree": 0.0}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(processes.os, "cpu_count", lambda: 2)


@pytest.mark.parametrize(
    ("name", "sent"),
    [  # of 1024 tokens: a head of 64 float32 numbers is a quarter of a MiB
        ("`share_heads`", [2, 2]),
        ("`share_heads`, `backward`", [8, 8]),
        ("`share_latent_heads`", [2, 2]),
        ("`ring_attention`, `blocks`", [1, 3 / 2]),  # keys and values of 4 heads, 512 or 3 * 256
        ("`ring_attention`, `zigzag`", [1, 3 / 2]),
        ("`exchange_attention`", [3, 3 / 2]),  # queries, keys, values: 16 heads there; 8 back
        ("`exchange_attention`, `ring`", [3, 3 / 2 + 1 / 2]),  # of 256 tokens; 512 of 2 heads
        ("`split_attention`", [8 * 66 * 4 / MIB] * 2),
    ],
)
def test_bytes_are_those_counted_by_hand(name, sent):
    for n, expected in zip((2, 4), sent, strict=True):
        assert [PLANS[name].bytes(n, rank) for rank in range(n)] == [expected * MIB] * n


@pytest.mark.parametrize(
    ("name", "shares"),
    [  # of the time on one process, on two cores, if sending cost nothing
        ("`share_heads`", [1 / 2, 1 / 2]),
        ("`ring_attention`, `blocks`", [1 / 2, (2 + 3 / 2 + 1 + 1) / 16]),
        ("`ring_attention`, `zigzag`", [1 / 2, 1 / 2]),
        ("`exchange_attention`", [1 / 2, 1 / 2]),
        ("`split_attention`", [1 / 2, 1 / 2]),
    ],
)
def test_the_model_shares_out_the_work_on_two_cores(name, shares):
    found = [PLANS[name].seconds(n, 1.0, FAST) for n in (2, 4)]
    assert found == pytest.approx(shares, abs=1e-6)


def test_the_model_adds_what_is_sent_and_compared():
    """At 1 MiB a second, a quarter of a second each message, 10 seconds to compare."""
    found = {"link": Link("slow", "slow", "", MIB, "", 250_000_000), "agree": 10.0}
    assert PLANS["`share_heads`"].seconds(2, 0.0, found) == pytest.approx(2 * 0.25 + 2)
    assert Tokens("ring").seconds(4, 0.0, found) == pytest.approx(10 + 3 * 0.25 + 3 / 2)
    assert Tokens("exchange").seconds(4, 0.0, found) == pytest.approx(10 + 4 * 0.25 + 3 / 2 * 3 / 4)
    both = 20 + 5 * 0.25 + 3 / 2 / 2 + 1 / 2
    assert Tokens("both").seconds(4, 0.0, found) == pytest.approx(both)
    assert Tokens("ring").seconds(1, 3.0, found) == pytest.approx(3)


def test_other_bytes_than_the_formula_are_not_filed(monkeypatch):
    link = {"link": FAST["link"], "agree": 0.0}
    for wrong in (0, 4):

        def run(function, n, names, number, seconds, wrong=wrong):
            sent = PLANS["`ring_attention`, `zigzag`"]
            each = {"seconds": {names[0]: [0.5] * number}, "link": link}
            return [each | {"bytes": {names[0]: sent.bytes(n, r) + wrong}} for r in range(n)]

        monkeypatch.setattr(processes, "run", run)
        only = {"`ring_attention`, `zigzag`": Tokens("ring")}
        if wrong:
            with pytest.raises(AssertionError, match=r"on 1: sent \[4\], the formula says \[0\]"):
                processes.benchmark_of(only, 6)
        else:
            rows = processes.benchmark_of(only, 6)["rows"]
            assert [row[:4] for row in rows[1:]] == [
                ["`ring_attention`, `zigzag`", 2, MIB, 0.25],
                ["`ring_attention`, `zigzag`", 4, 3 * MIB // 2, 0.25],
            ]
            assert rows[0] == ["`ring_attention`, `zigzag`", 1, "–", "–", [0.5] * 3, "–"]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["shared-heads", "shared-tokens"])
def test_what_is_sent_is_the_formula(name):
    """In real processes, with the sizes of the benchmark."""
    assert len(rounds.BENCHMARKS[name](6)["rows"]) in (9, 15)

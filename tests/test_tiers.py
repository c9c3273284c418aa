"""tiers.toml says the truth about which tests run when, and a sample of slow tests is one."""

import ast

import pytest
import tiers

TESTS = [(promise["tier"], name) for promise in tiers.promises() for name in promise["tests"]]


def test_every_promise_has_its_parts():
    needed, more = {"says", "tier", "tests"}, {"seconds", "touched_by"}
    for promise in tiers.promises():
        assert needed <= set(promise) <= needed | more, promise
        assert promise["tier"] in tiers.TIERS, promise
        assert ("seconds" in promise) == (promise["tier"] == "slow"), promise
        for place in promise.get("touched_by", ()):
            assert (tiers.ROOT / place).exists(), place
    assert len({name for _, name in TESTS}) == len(TESTS), "one test, two tiers"


def test_every_named_test_is_there():
    missing = []
    for _, name in TESTS:
        file, _, function = name.partition("::")
        tree = ast.parse((tiers.TESTS / file).read_text(encoding="utf-8"))
        if function not in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}:
            missing.append(name)
    assert missing == []


def test_every_named_test_is_of_its_tier(request):
    """Of those that this run has collected: a test with a sample has cases in two tiers."""
    found = request.config.stash[tiers.COLLECTED]
    wrong = {name: found[name] for tier, name in TESTS if tier not in found.get(name, {tier})}
    assert wrong == {}


def test_every_slow_test_is_named(request):
    """And every nightly one."""
    named = {name for _, name in TESTS}
    found = request.config.stash[tiers.COLLECTED].items()
    assert [name for name, its in found if its != {"plain"} and name not in named] == []


# The sample


class Item:
    """What a sample asks of pytest's own items."""

    def __init__(self, name, file="tests/site/test_build.py"):
        self.name = self.originalname = name
        self.path, self.nodeid = tiers.ROOT / file, f"{file}::{name}"


@pytest.fixture
def known(monkeypatch):
    """Three slow tests of ten seconds, of which two have something to do with the cache."""
    names = [f"site/test_build.py::test_{name}" for name in ("one", "two", "three")]
    promises = [
        {"says": "", "tier": "slow", "tests": names[:1], "seconds": 10},
        {"says": "", "tier": "slow", "tests": names[1:], "seconds": 10, "touched_by": ["cache/"]},
    ]
    monkeypatch.setattr(tiers, "promises", lambda: promises)
    return [Item(f"test_{name}") for name in ("one", "two", "three")]


def names(chosen):
    return sorted(each.name for each in chosen)


def test_a_sample_takes_what_the_seconds_allow_and_the_commit_draws(known, monkeypatch):
    chosen = set()
    for commit in range(50):
        monkeypatch.setattr("cases.commit", lambda c=commit: str(c))
        (one,) = names(tiers.sample(known, 15, []))
        chosen.add(one)
    assert chosen == {"test_one", "test_two", "test_three"}
    assert names(tiers.sample(known, 30, [])) == ["test_one", "test_three", "test_two"]
    assert names(tiers.sample(known, 9, [])) == []


@pytest.mark.parametrize("drawn", [1, -1])
def test_what_a_change_touches_comes_first(known, monkeypatch, drawn):
    monkeypatch.setattr(tiers, "drawn_number", lambda name: drawn * len(name))
    assert names(tiers.sample(known, 20, ["cache/keys.py", ""])) == ["test_three", "test_two"]
    own = ["tests/site/test_build.py"]
    assert len(tiers.sample([*known, Item("x", "tests/other.py")], 30, own)) == 3
    unknown = Item("test_four", "tests/site/test_new.py")
    assert names(tiers.sample([*known, unknown], 5, ["tests/site/test_new.py"])) == ["test_four"]

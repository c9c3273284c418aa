"""The register of claims: each conclusion is in it, was tried again, and says how that went."""

import json
import re
import sys

import measure
import pytest
from cases import drawn_number, every
from measuring import claims as trials
from mhsite.pages import bibliography, claims, link_targets
from mhsite.pages.page import page_paths, parse, read
from mhsite.stories.source import DOCS, LANGUAGES, SourceError

CLAIMS = claims.every()
TWO, TEN = ({n for n in sorted(CLAIMS, key=drawn_number)[:count]} for count in (2, 10))
# What a measured section ends with, if it concludes: these have a mark below them.
CONCLUDES = re.compile(
    r"\*\*[^*\n]{30,}[.!]\*\*|(?:^|[.!?)] )(?:So|Therefore|Hence|Thus),? [a-z]", re.M
)
SHOWS = re.compile(r"runs [\w:-]+")


def marks(blocks):
    return [block.value.partition(" ")[2] for block in blocks if block.value.startswith("claim ")]


def parts(page):
    """The blocks of each part of a page, from heading to heading, with the heading's id."""
    found = [("", [])]
    for block in page.walk():
        if block.kind == "heading":
            found.append((block.value, []))
        found[-1][1].append(block)
    return found


def without_a_claim(page, excused):
    """The sections that show what was trained beforehand, or conclude from it, with no claim."""
    found = []
    for anchor, blocks in parts(page):
        shows = [b for b in blocks if b.kind == "table" and SHOWS.fullmatch(b.value)]
        place = f"{page.name}#{anchor}"
        if shows and not marks(blocks) and place not in excused:
            found.append(f"{place}, line {shows[0].line}: {shows[0].value}")
    return found


@every("name", page_paths("en"))
def test_every_section_that_shows_what_was_trained_marks_a_claim(name):
    """Or docs/data/claims/unclaimed.json says why there is nothing to try again."""
    excused = json.loads((claims.FOLDER / "unclaimed.json").read_text("utf-8"))
    assert all(len(reason.split()) > 3 for reason in excused.values())
    assert without_a_claim(read(DOCS / "en" / name), excused) == []


def test_a_section_without_a_claim_is_found():
    shown = "# P { #p }\n\n## Trained { #t }\n\n<!-- runs state-tracking:parity -->\n"
    page = parse(shown, DOCS / "en" / "masks.md")
    assert without_a_claim(page, {}) == ["masks.md#t, line 5: runs state-tracking:parity"]
    assert without_a_claim(page, {"masks.md#t": "a reason of four words"}) == []
    marked = parse(shown + "\n<!-- claim a -->\n", DOCS / "en" / "masks.md")
    assert without_a_claim(marked, {}) == []


@every("name", page_paths("en"))
def test_a_conclusion_below_a_run_has_its_mark(name):
    """A bold sentence or a "so" that follows a run, up to the section's end."""
    for anchor, blocks in parts(read(DOCS / "en" / name)):
        shown = [i for i, b in enumerate(blocks) if b.kind == "table" and SHOWS.fullmatch(b.value)]
        behind = blocks[shown[0] :] if shown else []
        said = [b for b in behind if b.kind == "prose" and CONCLUDES.search(b.text)]
        assert not said or marks(blocks), f"{anchor}, line {said[0].line}: {said[0].text[:80]}"


@every("name, claim", CLAIMS.items())
def test_a_claim_stands_where_its_page_says(name, claim):
    page, _, anchor = claim["page"].partition("#")
    for language in LANGUAGES:
        there = read(DOCS / language / page)
        assert anchor in link_targets.anchors(there), claim["page"]
        assert name in marks(there.walk()), f"{language}/{page} has no <!-- claim {name} -->"
    assert not re.search(r"[一-鿿]", claim["says"]["en"] + claim["stands"]["en"])
    assert re.search(r"[一-鿿]", claim["says"]["zh"])
    assert re.search(r"[一-鿿]", claim["stands"]["zh"])


def test_every_mark_is_of_a_claim():
    for language in LANGUAGES:
        for path in page_paths(language):
            assert set(marks(read(DOCS / language / path).walk())) <= CLAIMS.keys(), path


@every("name, claim", CLAIMS.items())
def test_a_claim_was_tried_by_todays_code_and_held(name, claim):
    """What fell is rewritten, and its claim gets another name."""
    found = [
        each
        for each in claims.draws(claim["chapter"]).get(name, [])
        if each["code"] == trials.code(name)
    ]
    assert found, f"python scripts/measure.py --claim {name}"
    assert found[-1]["holds"]
    low, high = trials.FRESH
    assert all(low <= each["seed"] < high for each in found)


@every("said", claims.sayings())
def test_a_saying_rests_on_something_that_is_there(said):
    """A claim of the register, a work that is in the bibliography, or a section of a page."""
    page = read(DOCS / "en" / claims.PAGE)
    for rest in said["rests"]:
        if rest.startswith("@"):
            assert rest[1:] in bibliography.works()
        elif rest not in CLAIMS:
            link_targets.check_link(rest, page)
            assert "#" in rest, "a section, not a whole page"
    assert f"said {said['about']}" in {block.value for block in page.walk()}
    for text in (said["says"], said["because"]):
        assert set(text) == set(LANGUAGES)
        assert re.search(r"[一-鿿]", text["zh"])
        assert not re.search(r"[一-鿿]", text["en"])


def test_fifty_things_are_said_with_every_verdict():
    assert len(claims.sayings()) >= 50
    assert {said["verdict"] for said in claims.sayings()} == set(claims.VERDICTS)
    with pytest.raises(SourceError, match="nothing is said about 'gardening'"):
        claims.said("gardening", "en")


def test_nothing_is_filed_for_a_claim_that_is_gone():
    filed = {name for chapter in claims.chapters() for name in claims.draws(chapter)}
    assert filed <= CLAIMS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TWO))
def test_two_claims_by_lot_hold_with_fresh_seeds(name):
    [(_, _, trial)] = trials.tried([(name, 10_000 + drawn_number(name) % 990_000)])
    found = trial.result()
    assert found["holds"], found


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(TEN))
def test_ten_claims_by_lot_hold_with_fresh_seeds(name):
    test_two_claims_by_lot_hold_with_fresh_seeds(name)


@pytest.fixture
def register(tmp_path, monkeypatch):
    """A register of two claims: one that holds, one that falls."""
    text = """
    [{name}]
    page = "masks.md#masks"
    scope = "toy"
    says = {{ en = "A mean.", zh = "平均。" }}
    stands = {{ en = "Three models", zh = "三个模型" }}
    survived = ["rates"]
    seen = {{ en = "it was {{mean:.2f}}", zh = "得 {{mean:.2f}}" }}
    """
    both = "".join(text.format(name=name) for name in ("it-holds", "it-falls")).replace("    ", "")
    (tmp_path / "depth.toml").write_text(both, encoding="utf-8")
    monkeypatch.setattr(claims, "FOLDER", tmp_path)
    module = type(trials)("measuring.claims.depth")
    module.it_holds = lambda seed: trials.Verdict(True, {"mean": seed / 3})
    module.it_falls = lambda seed: trials.Verdict(False, {"mean": 0.0})
    monkeypatch.setitem(sys.modules, "measuring.claims.depth", module)
    monkeypatch.setattr(trials, "code", lambda name: "0")
    return tmp_path


class Done:
    """A trial that ran in this process."""

    def __init__(self, name, seed):
        self.name, self.seed = name, seed

    def result(self):
        return trials.attempt(self.name, self.seed)


def test_a_draw_files_what_came_of_it_and_fails_if_one_fell(register, monkeypatch, capsys):
    monkeypatch.setattr(
        trials, "tried", lambda drawn, jobs: [(*each, Done(*each)) for each in drawn]
    )
    monkeypatch.setattr(sys, "argv", ["measure.py", "--claims", "2", "--lot", "5"])
    assert measure.main() == 1
    said = capsys.readouterr().out
    assert "FELL it-falls" in said
    assert "holds it-holds" in said
    assert "lot 5: 1 of 2 hold" in said
    filed = json.loads((register / "depth.json").read_text("utf-8"))
    assert [each["holds"] for each in filed["it-holds"]] == [True]
    assert measure.main() == 1
    again = json.loads((register / "depth.json").read_text("utf-8"))["it-holds"]
    assert len(again) == 2
    assert again[0]["seed"] == again[1]["seed"], "the same lot"
    mark = claims.mark("it-falls", "en", str)
    assert "held 0 of 2 times" in mark
    assert "it was 0.00" in mark
    assert "](claims.md#it-falls)" in mark
    assert "2 次，0 次成立" in claims.mark("it-falls", "zh", str)
    shown = claims.markdown("depth", "en")
    assert "{ #it-holds }" in shown
    assert "Three models. " in shown
    assert "learning rates" in shown


def test_a_faulty_claim_is_refused_with_its_file(register):
    with pytest.raises(SourceError, match="docs/data/claims has no claim 'nosuch'"):
        claims.mark("nosuch", "en", str)
    file = register / "depth.toml"
    text = file.read_text("utf-8")
    for old, new, why in [
        ('scope = "toy"', 'scope = "world"', "it-holds.scope must be one of"),
        ('"A mean.", zh =', '"A mean.", de =', "it-holds.says must have en and zh"),
        ('["rates"]', '["prayers"]', "it-holds.survived: prayers is none of"),
    ]:
        file.write_text(text.replace(old, new, 1), "utf-8")
        with pytest.raises(SourceError, match=why):
            claims.of("depth")
    file.write_text(text, "utf-8")
    with pytest.raises(ValueError, match="--claims must be from 1 to"):
        trials.lots(9, 0)

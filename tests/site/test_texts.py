"""The texts that a story trains on are what the README beside them says."""

import re

import pytest
from mhsite.source import DOCS

TEXTS = DOCS / "data" / "texts"


def lines(name):
    return (TEXTS / name).read_text(encoding="utf-8").splitlines()


def test_every_couplet_has_its_form_and_comes_once():
    couplets = lines("tang.zh.txt")
    assert [c for c in couplets if not re.fullmatch("[一-鿿]{5}，[一-鿿]{5}。", c)] == []
    assert len(set(couplets)) == len(couplets)
    assert f"{len(couplets):,} couplets" in (TEXTS / "README.md").read_text(encoding="utf-8")
    assert len(set("".join(couplets)) - set("，。")) == 480


@pytest.mark.parametrize("traditional", ["風", "雲", "遠", "時", "來", "劒", "疎"])
def test_characters_are_simplified(traditional):
    assert [c for c in lines("tang.zh.txt") if traditional in c] == []


def test_the_book_is_paragraphs_of_plain_characters():
    book = lines("alice.en.txt")
    assert [p for p in book if not re.fullmatch('[A-Za-z!"(),.:;?‘’ -]+', p)] == []
    assert [p for p in book if "  " in p or p != p.strip() or "CHAPTER" in p] == []

"""The texts that a story trains on are what the README beside them says."""

import itertools
import re

import pytest
from mhsite.stories.source import DOCS

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


POEMS = """
床前明月光 春眠不觉晓 白日依山尽 锄禾日当午 鹅，鹅，鹅
红豆生南国 千山鸟飞绝 松下问童子 空山不见人 慈母手中线
日照香炉生紫烟 朝辞白帝彩云间 两个黄鹂鸣翠柳 月落乌啼霜满天
远上寒山石径斜 清明时节雨纷纷 离离原上草 少小离家老大回
独在异乡为异客 前不见古人
"""


def test_the_poems_that_every_child_knows_are_whole():
    """Each begins where the one before ends, and its lines are as long as its first."""
    text, begins = lines("poems.zh.txt"), POEMS.split()
    starts = [next(i for i, line in enumerate(text) if line.startswith(begin)) for begin in begins]
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    assert len(starts) == 20
    assert [stop - start for start, stop in itertools.pairwise([*starts, len(text)])] == [
        *(2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 2, 2, 2, 2, 2, 4, 2, 2, 2)
    ]
    regular = [line for line in text[:-2] if not line.startswith("鹅")]
    assert [line for line in regular if not re.fullmatch("(.{5}，.{5}|.{7}，.{7})。", line)] == []


PAIRS = [line.split("\t") for line in lines("pairs.tsv")]
ENDINGS = [line.split("\t") for line in lines("endings.tsv")]


def test_every_word_of_a_pair_is_in_its_sentences_once():
    assert len({pair[0] for pair in PAIRS}) == len({pair[1] for pair in PAIRS}) == len(PAIRS) == 40
    for english, chinese, words in PAIRS:
        for word in words.split():
            one, other = word.split("=")
            assert re.search(rf"\b{one}\b", english)
            assert english.count(one) == 1, (english, one)
            assert chinese.count(other) == 1, (chinese, other)


def test_every_sentence_with_two_endings_has_its_nouns_and_pronoun_once():
    assert len({line[0] for line in ENDINGS}) == len(ENDINGS) == 24
    for line in ENDINGS:
        for (form, nouns, words), pronoun in ((line[:3], "because it"), (line[3:], "只因它")):
            assert form.count("{}") == form.count(pronoun) == 1
            assert len(set(words.split())) == 2
            first, second = nouns.split()
            assert 0 <= form.index(first) < form.index(second) < form.index(pronoun)
            for noun in (first, second):
                assert form.count(noun) == 1, (form, noun)


FRAMES = [line.split("\t") for line in lines("relations.tsv")[1:]]
KINDS = dict(line.split("\t") for line in lines("relation-words.tsv"))


def test_every_relation_has_its_target_near_and_far_in_other_frames_for_each_half():
    assert len({frame[2] + frame[0] for frame in FRAMES}) == len(FRAMES) == 32
    for relation, half, near, far in FRAMES:
        assert half in ("first", "second")
        assert sum(frame[:2] == [relation, half] for frame in FRAMES) == 2
        for frame, order in ((near, "dtq"), (far, "tdq")):
            slots = re.findall(r"\{(.)\}", frame)
            assert "".join(slots).rstrip("v") == order, frame


def test_words_of_the_relations_are_different_and_pairs_have_two():
    for kind, line in KINDS.items():
        words = line.split()
        parts = [part for word in words for part in word.split("/")]
        assert len(set(parts)) == len(parts), kind
        paired = kind in ("synonym", "antonym", "person of two")
        assert len(parts) == len(words) * (2 if paired else 1)
        assert len(words) >= 9

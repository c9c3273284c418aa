"""Reports in Chinese: no phrase is missing, none is left over, and no English is printed."""

import re
import tomllib

import phrases
import pytest
import torch
from drawn import drawn
from mutants import MUTANTS
from rights import RIGHT

from mhattn.testing import Finding, Report, assert_attention, check_attention, check_model
from mhattn.testing.__main__ import main
from mhattn.testing.columns import COLUMNS, filled, width
from mhattn.testing.language import translated
from mhattn.testing.registry import PAGES

TABLE = tomllib.loads((phrases.HOME / "chinese.toml").read_text(encoding="utf-8"))
SAID = phrases.phrases()
# Behind these stands what a library's error says.
QUOTING = [
    "takes no floats: {}",
    "refuses both: {}",
    "can't be cropped: {}",
    "no form of a mask was taken: {}",
    "its projections aren't found: {}",
    "its projections have other sizes: {}",
    "the model takes no such inputs: {}",
    "doesn't run in bfloat16: {}",
    "doesn't run in float64: {}",
    "the check itself failed: {}",
]
# So it does behind the name of an error; Python writes an object without a name in brackets.
NOT_OURS = re.compile(
    "|".join([TABLE["phrases"][each].format(".*") for each in QUOTING])
    + r"|\w+(?:Error|Exception): .*|<[^<>]*>"
)
ENGLISH = re.compile(r"[A-Za-z']{2,} [A-Za-z']{2,} [A-Za-z']{2,}")


@pytest.fixture
def in_chinese(monkeypatch):
    monkeypatch.setenv("MHATTN_LANGUAGE", "zh")


def sentences(text):
    """A printed text with its lines put together again, without what is a library's."""
    joined = re.sub(r"\n {4,}(?=\S)", " ", text)
    return [NOT_OURS.sub("", line) for line in joined.splitlines()]


def english(text):
    return [line for line in sentences(text) if ENGLISH.search(line)]


# Static: what the code can say


def test_every_phrase_has_chinese():
    known = TABLE["phrases"] | TABLE["labels"]
    missing = {p: where for p, where in SAID.items() if phrases.needs_words(p) and p not in known}
    assert missing == {}, "add them to mhattn/testing/chinese.toml"


def test_every_entry_is_said_by_code():
    entries = [*TABLE["phrases"], *TABLE["labels"]]
    assert [p for p in entries if re.search("[a-z]{2}", p) and p not in SAID] == []


def test_an_entry_puts_in_all_that_the_english_does():
    for text, chinese in (TABLE["phrases"] | TABLE["labels"]).items():
        given = [f"<{place}>" for place in range(text.count("{}"))]
        made = chinese.format(*given)
        # The ending of a plural has no Chinese.
        plural = {given[place] for place, part in enumerate(text.split("{}")[:-1]) if is_word(part)}
        assert {each for each in given if each not in made} <= plural, text


def is_word(before):
    return re.search(r"(?:^|[\s(])(?:mistake|note|check|layer|kind|head|token)$", before)


def test_chinese_marks_are_wide():
    for text, chinese in (TABLE["phrases"] | TABLE["labels"]).items():
        assert not re.search(r"[\u4e00-\u9fff][,;:?]|[,;?][\u4e00-\u9fff]", chinese), text


# Dynamic: what is printed


@pytest.mark.parametrize("mutant", drawn(MUTANTS, 16, of="Chinese"), ids=lambda each: each.name)
def test_a_mutant_is_told_in_chinese(mutant, in_chinese):
    torch.manual_seed(0)
    report = check_attention(mutant.make(), **({"only": mutant.found_by} | mutant.how))
    assert not report.ok
    told = "\n".join([str(report), *map(str, report.findings)])
    assert english(told) == []
    assert "错误：" in told


@pytest.mark.parametrize("name", drawn(RIGHT, 6, of="Chinese"))
def test_a_right_layer_is_told_in_chinese(name, in_chinese):
    torch.manual_seed(0)
    asked = drawn(PAGES, 4, of=f"Chinese {name}")
    told = str(check_attention(RIGHT[name].make(), only=asked, **RIGHT[name].how))
    assert english(told) == []
    assert "0 个错误" in told


FINDING = Finding(
    "future",
    "in eval(), tokens from 3 on were replaced in texts of 12",
    "output 0 moved by 2.6 of its usual size",
    "outputs before them stay as they are",
    "sequence 1",
    "masks-in-practice/#leak",
)
IN_CHINESE = """\
错误：future
  操作：eval() 下，长 12 的文本从词元 3 起换成别的（序列 1）
  结果：输出 0 变了平常大小的 2.6 倍
  预期：之前的输出保持不变
  讲解：https://mhattn.github.io/mhattn/zh/masks-in-practice/#leak"""


def test_a_report_is_printed_in_chinese_and_its_data_stay_english(in_chinese):
    report = Report("Layer", [FINDING], ["future", "shape", "past"], {"cache": "takes no cache"})
    report.assumed.append("causal=True")
    assert str(report) == (
        f"Layer：1 个错误，0 条提示，通过 2 项检查\n\n{IN_CHINESE}\n\n通过：shape、past\n\n"
        "未检查：\n  cache            不接收缓存\n\n假定：\n  causal=True"
    )
    assert report.findings[0].got == "output 0 moved by 2.6 of its usual size"
    assert report.skipped == {"cache": "takes no cache"}


def test_a_model_is_told_in_chinese(in_chinese):
    block = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True)
    model = torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
    found = check_model(model, torch.randn(2, 7, 24), only=["shape", "packing"])
    assert str(found).splitlines() == [
        "TransformerEncoder：2 层注意力，分 1 种",
        "  layers.0.self_attn：MultiheadAttention × 2，没有错误，1 项检查，1 项没做",
    ]
    found.unexamined["layers.0.self_attn"] = "its tokens are (2, 7), not (B, L, E)"
    assert str(found).endswith("× 2，查不了：它的词元是 (2, 7)，不是 (B, L, E)")


def test_what_a_test_requires_is_told_in_chinese(in_chinese):
    layer = torch.nn.MultiheadAttention(24, 3, batch_first=True)
    with pytest.raises(AssertionError, match=r"^要求做 cache，却没有做：不接收缓存\n"):
        assert_attention(layer, only=["shape", "cache"], require=["cache"])


@pytest.mark.parametrize(
    ("text", "chinese"),
    [
        ("scale missing, not causal", "没有缩放，不是因果的"),
        ("tokens of size 3; a house by the sea", "大小为 3 的词元; a house by the sea"),
        ("a house, not causal", "a house, not causal"),
        ("the check itself failed: KeyError: 'a, b'", "检查本身出错：KeyError: 'a, b'"),
        ("query 0 sees keys [0, 1], its output is NaN", "查询 0 看得到键 [0, 1]，它的输出是 NaN"),
        ("head 1 reads the keys of head 0", "头 1 用了头 0 的键"),
    ],
)  # fmt: skip
def test_texts_are_put_together_from_phrases(text, chinese, in_chinese):
    assert translated(text) == chinese


def test_lines_end_between_characters_and_not_in_code(in_chinese):
    text = "中" * 30 + "。" + "（rotary=(8, 1.5)）" + "文" * 40 + "序列 12，" + "x" * 20
    lines = filled(text, 2).split("\n")
    assert "".join(line.strip() for line in lines) == text
    assert all(width(line) <= COLUMNS for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])
    for whole in ("rotary=(8, 1.5)", "列 12", "x" * 20):
        assert any(whole in line for line in lines)
    assert width("序列 a") == 6
    for length in range(25, 40):
        for line in filled("中" * length + "（a b）。", 0).split("\n"):
            assert line[0] not in "，。；：、）"
            assert line[-1] != "（"


@pytest.mark.parametrize("value", ["fr", "", "ZH"])
def test_another_language_is_refused(value, monkeypatch):
    monkeypatch.setenv("MHATTN_LANGUAGE", value)
    with pytest.raises(ValueError, match=f"MHATTN_LANGUAGE must be en or zh, got '{value}'"):
        str(FINDING)


def test_the_command_refuses_another_language(monkeypatch, capsys):
    monkeypatch.setenv("MHATTN_LANGUAGE", "fr")
    with pytest.raises(SystemExit, match="2"):
        main(["torch.nn:MultiheadAttention"])
    assert capsys.readouterr().err.endswith("error: MHATTN_LANGUAGE must be en or zh, got 'fr'\n")


def test_english_is_what_is_printed_if_nothing_is_asked(monkeypatch):
    monkeypatch.setenv("MHATTN_LANGUAGE", "en")
    asked = str(FINDING)
    monkeypatch.delenv("MHATTN_LANGUAGE")
    assert str(FINDING) == asked
    assert asked.startswith("error: future\n  did      in eval(), tokens from 3 on were replaced")
    assert asked.endswith("\n  why      https://mhattn.github.io/mhattn/masks-in-practice/#leak")

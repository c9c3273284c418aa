"""The doctor in the page: what it says of an answer that is a layer, or makes one, is what it says
under torch; a right answer is never accused.
"""

import ast

import pytest
from mhsite.pages import running
from mhsite.stories.source import ROOT
from test_page_tasks import DIGITS, fields, job, judges  # noqa: F401

# Of wrong answers, what the first finding says, by its check or its words.
NAMED = {
    "attention": {"wrong_scale": "scale 0.3333", "wrong_axis": "softmax over queries"},
    "masks": {"wrong_way": "future", "wrong_leak": "future", "wrong_self": "past"},
    "shapes": {
        "wrong_view": "heads merged by view alone",
        "wrong_order": "heads merged as (D, H) instead of (H, D)",
        "wrong_backwards": "heads-apart",
    },
    "serial-parallel/loops": {
        "wrong_future": "not causal",
        "wrong_scale": "scale of the whole width",
        "wrong_turns": "heads split as (D, H) instead of (H, D)",
        "wrong_heads": "no output projection",
        "wrong_first": "formula",
    },
    "serial-parallel/at-once": {
        "wrong_view": "heads split and merged by view alone",
        "wrong_split": "heads split by view alone",
        "wrong_merge": "heads merged by view alone",
        "wrong_axes": "past",
        "wrong_output": "every parameter is used",
        "wrong_scale": "scale twice",
    },
    "see-order/turned": {
        "wrong_pairs": "rotary pairs in the other layout",
        "wrong_sense": "rotary positions turned backwards",
        "wrong_sign": "formula",
    },
    "make-gqa/layer": {"wrong_position": "like", "wrong_values": "like"},
    "find-mistakes/mend": {
        "wrong_groups": "groups in the wrong order",
        "wrong_dropout": "dropout",
        "wrong_padding": "padding",
        "wrong_corner": "cache",
        "wrong_nan": "empty-rows",
    },
}
# Number by number, which takes minutes. Of the right one the doctor says that its powers overflow:
# a field offers the doctor only where the page's test refuses.
BY_NUMBERS = {"serial-parallel/loops": ("right", "wrong_last")}
# Layers whose loops or parts take long in plain Python, and what trains before.
NOW = {"shapes"}


def calls():
    """The calls that the doctor knows, as `docs/page/layers.py` has them."""
    return running._examined()


def layer_tasks():
    return [task for task in fields() if ast.unparse(task.call) in calls()]


def test_each_layer_is_the_answer_of_a_task():
    """And its field says that the doctor can be asked; no other does."""
    assert {ast.unparse(task.call) for task in layer_tasks()} == calls()
    assert {task.name for task in layer_tasks()} == set(NAMED)
    assert " data-doctor>" in running.field(
        "said\n\n\ndef merge(heads):\n    ...\n\n\n# test(merge)"
    )
    assert "data-doctor" not in running.field("said\n\n\nW_next = ...\n\n\n# test(W_next)")


def test_the_doctor_travels():
    """Every module that it imports is in the zip."""
    there = set(running._contents())
    assert {"layers.py", "mhattn/testing/doctor.py", "mhattn/testing/chinese.toml"} <= there
    for name in [each for each in there if each.startswith("mhattn/testing/")]:
        if not name.endswith(".py") or name.endswith("__init__.py"):
            continue
        tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("mhattn."):
                place = str(node.module).replace(".", "/")
                names = [f"{place}/{a.name}.py" for a in node.names]
                assert f"{place}.py" in there or set(names) <= there, (name, node.module)


def tasks_of():
    """Each task, and whether its layers are examined slowly."""
    return [
        pytest.param(task, id=task.name, marks=() if task.name in NOW else pytest.mark.slow)
        for task in layer_tasks()
    ]


def shown(answer):
    """What a reader sees of a diagnosis, but for numbers."""
    if "failed" in answer:
        return answer["failed"].partition(":")[0]
    rows = [
        (x["check"], [DIGITS.sub("#", text) for _, text in x["rows"]]) for x in answer["findings"]
    ]
    return rows, answer["also"], answer["count"]


def words_of(answer):
    """What is said first: the name of the check, and its rows."""
    first = next(iter(answer["findings"]), {"check": "nothing", "rows": []})
    return "\n".join([first["check"], *(text for _, text in first["rows"])])


@pytest.mark.parametrize("task", tasks_of())
def test_the_doctor_says_in_the_page_what_it_says_under_torch(judges, task):  # noqa: F811
    asked = job([task], "en") | {"doctor": "en"}
    (about,) = asked["tasks"]
    left_out = ("empty", "missing", "clearing", "after", "scaled", *BY_NUMBERS.get(task.name, ()))
    about["answers"] = {n: code for n, code in about["answers"].items() if n not in left_out}
    for judge in judges:
        judge.asked(asked)
    found, right = (judge.answer()[task.name] for judge in judges)
    for name, answer in found.items():
        if name.startswith(("right", "solution")):
            lacks = name == "right" and task.name == "see-order/turned"  # complex numbers
            assert lacks == ("failed" in answer), (name, answer)
            assert not answer.get("findings"), (name, answer)
            assert not right[name]["findings"], (name, right[name])
        else:
            assert shown(answer) == shown(right[name]), name
    for name, says in NAMED[task.name].items():
        assert says in words_of(found[name]), (name, found[name])


def test_what_the_doctor_cannot_examine_is_said(judges):  # noqa: F811
    (task,) = [each for each in layer_tasks() if each.name == "shapes"]
    asked = job([task], "zh") | {"doctor": "zh"}
    (about,) = asked["tasks"]
    wrong = about["answers"]["wrong_view"]
    about["answers"] = {
        "unread": "def merge(heads:",
        "without": "pass",
        "raising": "def merge(heads):\n    return nothing",
        "wrong": wrong,
    }
    judges[0].asked(asked)
    answer = judges[0].answer()["shapes"]
    assert answer["unread"]["failed"].startswith("SyntaxError")
    assert answer["without"]["failed"].startswith("KeyError")
    assert "nothing" in answer["raising"]["failed"]
    assert dict(answer["wrong"]["findings"][0]["rows"])["结果"].endswith("：只用 view 合并头")

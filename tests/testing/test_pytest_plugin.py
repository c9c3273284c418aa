"""The doctor inside pytest: a failure is a check, and a list of known mistakes stays true."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
pytest_plugins = ["pytester"]

LAYERS = """
import pytest
import torch
from torch import nn


def layer(kind=nn.MultiheadAttention):
    return kind(24, 3, batch_first=True)


class Backwards(nn.MultiheadAttention):
    def forward(self, query, key, value, **options):
        return super().forward(query, key, value.flip(1), **options)
"""


@pytest.fixture
def run(pytester, request):
    """Runs tests that use the layers above, by a pytest of its own."""
    # Where the package is installed with its entry point, pytest has the plugin already.
    has_it = request.config.pluginmanager.has_plugin("mhattn")

    def run(tests, *options):
        plugin = () if has_it else ("-p", "mhattn.testing.pytest_plugin")
        path = pytester.makepyfile(test_own=LAYERS + tests)
        return pytester.runpytest_inprocess("-v", "-rA", *plugin, *options, path)

    return run


BACKWARDS = """
@pytest.mark.attention(inputs="qkv")
def test_backwards(check_attention):
    check_attention(layer(Backwards), only=["order", "mask", "repeat", "cache"])
"""


def test_each_check_is_a_subtest(run):
    ran = run(BACKWARDS)
    ran.stdout.fnmatch_lines(["error: order", "  did      the tokens were given in another order"])
    ran.stdout.fnmatch_lines_random(
        [
            "*SUBPASSED?repeat?*",
            "*SUBSKIPPED?cache? (takes no cache)*",
            "SUBFAILED?order? *test_backwards*",
            "SUBFAILED?mask? *test_backwards*",
            "FAILED *test_backwards - contains 2 failed subtests",
        ]
    )
    ran.stdout.no_fnmatch_line("*Traceback*")
    assert ran.ret == 1


def test_a_right_layer_passes_and_what_it_lacks_fails_if_it_is_required(run):
    ran = run(
        """
HOW = {"only": ["order", "cache"]}

def test_right(check_attention):
    assert check_attention(layer(), **HOW).ok

@pytest.mark.attention(require=["order"])
def test_required(check_attention):
    check_attention(layer(), **HOW)

@pytest.mark.attention(require=["order"])
def test_the_call_has_the_last_word(check_attention):
    check_attention(layer(), require=["cache"], **HOW)
"""
    )
    passed = [line for line in ran.outlines if line.startswith("PASSED ")]
    assert [line.split("::")[1] for line in passed] == ["test_right", "test_required"]
    ran.stdout.fnmatch_lines(["cache is required, and was not made: takes no cache"])


def test_a_mistake_that_is_meant_is_an_expected_failure_until_it_is_gone(run):
    ran = run(
        """
MEANT = {"order": "reads backwards"}

@pytest.mark.attention(inputs="qkv", allow=MEANT, only=["order"])
@pytest.mark.parametrize("kind", [Backwards, nn.MultiheadAttention])
def test_kind(check_attention, kind):
    check_attention(layer(kind))
"""
    )
    ran.stdout.fnmatch_lines(["order finds nothing, and is allowed: reads backwards"])
    ran.stdout.fnmatch_lines_random(
        ["SUBXFAIL?order?*Backwards? - reads backwards", "PASSED *Backwards?"]
    )
    ran.stdout.fnmatch_lines(["FAILED *MultiheadAttention? - contains 1 failed subtest"])


def test_what_follows_from_a_mistake_that_has_a_name_fails_nothing(run):
    ran = run(
        """
def test_quantizable(check_attention):
    check_attention(layer(torch.ao.nn.quantizable.MultiheadAttention), only=ONLY)

ONLY = ["formula", "order", "batch"]
"""
    )
    ran.stdout.fnmatch_lines(["*exactly that of: heads merged by view alone"])
    ran.stdout.fnmatch_lines(["SUBSKIPPED?order?*as a rule for the same reason as formula"])
    ran.stdout.fnmatch_lines(["*contains 1 failed subtest"])


MODEL = """
def test_model(check_model):
    block = nn.TransformerEncoderLayer(24, 3, batch_first=True)
    block.self_attn = layer(KIND)
    model = nn.TransformerEncoder(block, 1, enable_nested_tensor=False)
    # Outside of evaluation PyTorch's block calls its layer as it is.
    check_model(model, torch.randn(2, 7, 24), only=["formula", "order"], require=["order"])
"""


def test_a_model_is_examined_kind_by_kind(run):
    right = run("KIND = nn.MultiheadAttention\n" + MODEL)
    assert right.ret == 0
    right.stdout.fnmatch_lines(["*SUBPASSED?order?*"])
    wrong = run("KIND = torch.ao.nn.quantizable.MultiheadAttention\n" + MODEL)
    wrong.stdout.fnmatch_lines(["*exactly that of: heads merged by view alone"])


def test_known_mistakes_are_written_and_new_ones_fail(run, pytester):
    written = run(BACKWARDS, "--attention-baseline=known.json", "--write-attention-baseline")
    assert written.ret == 0
    [(test, layers)] = json.loads((pytester.path / "known.json").read_text()).items()
    assert test.endswith("test_own.py::test_backwards")
    assert set(layers["Backwards"]) == {"order", "mask"}
    assert layers["Backwards"]["order"].startswith("error: order\n")

    pytester.makeini("[pytest]\nattention_baseline = known.json")
    same = run(BACKWARDS)
    assert same.ret == 0
    same.stdout.fnmatch_lines(["SUBXFAIL?order?*in the baseline"])


def test_a_mistake_that_is_not_in_the_baseline_fails_and_one_that_is_gone(run, pytester):
    known = {"test_own.py::test_backwards": {"Backwards": {"order": "...", "repeat": "..."}}}
    (pytester.path / "known.json").write_text(json.dumps(known))
    ran = run(BACKWARDS, "--attention-baseline=known.json")
    ran.stdout.fnmatch_lines(["repeat finds nothing, and is in the baseline *known.json"])
    ran.stdout.fnmatch_lines_random(["SUBXFAIL?order?*", "SUBFAILED?mask?*", "SUBFAILED?repeat?*"])
    ran.stdout.no_fnmatch_line("SUBFAILED?order?*")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--write-attention-baseline"], "*needs attention_baseline: a file"),
        (
            ["--attention-baseline=no.json"],
            "*no file *no.json; --write-attention-baseline writes it",
        ),
    ],
)
def test_nonsense_is_refused(run, options, says):
    ran = run("def test_nothing(): pass", *options)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines([says])


def test_the_page_says_what_happens_to_its_own_tests(run):
    story = (DOCS / "stories/doctor.pycon").read_text(encoding="utf-8")

    def code(section):
        [text] = re.findall(rf"start:{section}]\n(.*?)# --8<-- \[end:{section}]", story, re.S)
        return "\n".join(line[4:] for line in text.splitlines() if line[:4] in (">>> ", "... "))

    ran = run("\n".join(map(code, ("language", "torch", "layer", "fixture"))))
    failed = [line for line in ran.outlines if line.startswith("SUBFAILED[")]
    assert [line.split("] ")[0] for line in failed] == ["SUBFAILED[batch", "SUBFAILED[formula"]
    ran.stdout.fnmatch_lines(["*exactly that of: heads merged by view alone"])
    ran.stdout.fnmatch_lines(["batch finds nothing, and is allowed: known"])
    ran.stdout.fnmatch_lines_random(["PASSED *test_layer", "*SUBSKIPPED?order? (found too, *"])


def test_pytest_starts_without_loading_torch():
    code = "import sys, mhattn.testing.pytest_plugin; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"

"""Two type checkers find nothing in the package, and tell its users what they get."""

import subprocess
import sys
from pathlib import Path

import pytest
from registry import TABLE

from mhattn import MultiHeadAttention, attention
from mhattn.core import LinearState
from mhattn.variants import (
    LatentAttention,
    latent_attention_absorbed,
    latent_attention_expanded,
    linear_attention,
)

ROOT = Path(__file__).parents[2]
CHECKERS = {"mypy": ["mypy", "--strict"], "pyright": ["pyright"]}
every_checker = pytest.mark.parametrize("checker", CHECKERS)
pytestmark = pytest.mark.xdist_group("types")

USED = [MultiHeadAttention, LatentAttention, LinearState, linear_attention, attention]
USED += [latent_attention_absorbed, latent_attention_expanded]
USER = """
x, mha = torch.zeros(2, 5, 12), MultiHeadAttention(12, 3)
latent = LatentAttention(12, 3, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=2)
linear = MultiHeadAttention(12, 3, attend=linear_attention)
print((x + mha.forward(x)).shape, latent.forward(x).shape)
print(linear.forward(x, is_causal=True, cache=LinearState()).shape)
for pair in (
    latent.forward(x, is_causal=True, return_weights=True),
    linear_attention(x, x, x, return_state=True),
):
    print(pair[0].shape, pair[1].shape)
"""
WRONG = {
    "mha.forward(x, return_weights=True) + x": "+",
    "mha.forward(x, maks=None)": "maks",
    "latent_attention_absorbed(x, x, x, x, return_weights=True) + x": "+",
}
ASKED = [entry for entry in TABLE.values() if "types" not in entry.absent]
for entry in ASKED:  # what each returns, alone and with its weights
    pair = f"{entry.typed[:-1]}, return_weights=True)"
    if "types" in entry.cannot:
        WRONG[f"{entry.typed}.shape"] = "shape"
        continue
    USER += f"print({entry.typed}.shape)\n"
    if entry.can("weights") and entry.typed.endswith(")"):
        USER += f"print({pair}[0].shape, {pair}[1].shape)\n"
        WRONG[f"{pair}.shape"] = "shape"
THINGS = {
    thing.__name__: thing.__module__
    for things in (USED, *(entry.of for entry in ASKED))
    for thing in things
}
IMPORTS = [f"from {module} import {name}\n" for name, module in THINGS.items()]
USER = "".join(["import torch\n", *IMPORTS, USER])


def check(checker, *paths):
    done = subprocess.run(
        [sys.executable, "-m", *CHECKERS[checker], *map(str, paths)],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
    )
    return done.returncode, done.stdout + done.stderr


@every_checker
def test_the_package_has_no_type_errors(checker):
    code, said = check(checker, "mhattn")
    assert code == 0, said


@every_checker
def test_users_are_told_what_they_get(checker, tmp_path):
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(USER, encoding="utf-8")
    wrong.write_text(USER + "\n".join(WRONG) + "\n", encoding="utf-8")
    code, said = check(checker, right)
    assert code == 0, said
    code, said = check(checker, wrong)
    assert code == 1
    last = USER.count("\n")
    for line, word in enumerate(WRONG.values(), last + 1):
        found = [row for row in said.splitlines() if f"wrong.py:{line}:" in row]
        assert found, f"line {line} ({word}) has no error in\n{said}"


test_users_are_told_what_they_get.duty = "types"

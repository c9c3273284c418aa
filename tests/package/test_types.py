"""Two type checkers find nothing in the package, and tell its users what they get."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
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


OLD = torch.__version__.startswith("2.9.")


@pytest.mark.skipif(OLD, reason="types are those that newer versions of torch and numpy have")
@pytest.mark.parametrize(
    "checker",
    [pytest.param(name, marks=pytest.mark.slow if name == "mypy" else ()) for name in CHECKERS],
)  # mypy reads all of torch first
def test_the_package_has_no_type_errors_and_users_are_told_what_they_get(checker, tmp_path):
    """In one run: the only errors are those of the wrong lines, and each of these has one."""
    user = tmp_path / "user.py"
    user.write_text(USER + "\n".join(WRONG) + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", *CHECKERS[checker], "mhattn", str(user)],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    first = USER.count("\n") + 1
    wrong = {f"user.py:{line}:": word for line, word in enumerate(WRONG.values(), first)}
    rows = [row for row in done.stdout.splitlines() if re.search(r"\berror\b\s*[:T]", row)]
    elsewhere = [row for row in rows if not any(place in row for place in wrong)]
    assert not elsewhere, "\n".join(elsewhere)
    for place, word in wrong.items():
        assert any(place in row for row in rows), f"{place} ({word}) has no error in\n{done.stdout}"


test_the_package_has_no_type_errors_and_users_are_told_what_they_get.duty = "types"

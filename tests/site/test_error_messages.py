"""The error messages in Questions are those that the pinned libraries raise."""

import logging
import warnings

import pytest
import torch
import torch.nn.functional as F
from mhsite.stories.source import LANGUAGES
from test_site import source
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

X = torch.zeros(2, 5, 16)
PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)
HEADS = torch.zeros(2, 4, 5, 4)


def module(*inputs, **options):
    return nn.MultiheadAttention(16, 4, batch_first=True)(*(inputs or (X, X, X)), **options)


def generated():
    """From token 0, which is the end of a text and padding as well."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "vocab_size": 50}
    few = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **few))
    ids = torch.tensor([[0, 1, 2], [3, 4, 0]])
    model.generate(ids, max_new_tokens=1, eos_token_id=0, pad_token_id=0)


RAISED = {
    "error-2d-mask": lambda: module(attn_mask=PADDED),
    "error-heads": lambda: F.scaled_dot_product_attention(HEADS, HEADS[:, :2], HEADS[:, :2]),
    "error-width": lambda: nn.Linear(24, 24)(X),
    "error-view": lambda: X.view(2, 5, 5, 4),
    "error-dtypes": lambda: F.scaled_dot_product_attention(HEADS, HEADS.half(), HEADS),
    "error-hint": lambda: module(is_causal=True),
    "error-mismatched": lambda: module(key_padding_mask=PADDED, attn_mask=CAUSAL.float()),
    "error-pad-eos": generated,
    "error-index": lambda: nn.Embedding(8, 16)(torch.tensor([8])),
    "error-nan": lambda: torch.multinomial(torch.tensor([torch.nan, 1.0]), 1),
}
ON_A_GPU = {"error-memory"}  # its number is the page's own


def said(call, caplog):
    """The exception, the warnings and what was logged."""
    with warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.WARNING):
        warnings.simplefilter("always")
        try:
            call()
        except (AssertionError, IndexError, RuntimeError) as error:
            return str(error)
    return " ".join([*(str(each.message) for each in warned), caplog.text])


@pytest.mark.parametrize("name", RAISED)
def test_messages_are_what_is_raised(name, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    message = said(RAISED[name], caplog)
    for language in LANGUAGES:
        (title,) = [b.title for b in source(language, "questions.md").headings if b.value == name]
        asked = title.removeprefix("报错 ")
        assert all(part.strip() in message for part in asked.split("…")), message


def test_none_is_left_out():
    names = {block.value for block in source("en", "questions.md").headings}
    assert {name for name in names if name.startswith("error-")} == {*RAISED, *ON_A_GPU}


@pytest.mark.parametrize("call", [module, lambda: module(attn_mask=CAUSAL)])
def test_a_right_call_says_nothing(call, caplog):
    assert said(call, caplog) == ""

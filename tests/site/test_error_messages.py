"""The error messages on pages are those that the pinned libraries raise, and the cures cure."""

import logging
import warnings

import pytest
import torch
import torch.nn.functional as F
from mhsite.stories.source import LANGUAGES
from test_site import source
from torch import nn
from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from mhattn import causal_mask

PAGES = ["questions.md", "pytorch-attention.md", "flex-attention.md", "transformers-attention.md"]

X = torch.zeros(2, 5, 16)
PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)
HEADS = torch.zeros(2, 4, 5, 4)
FLASH, MATH = SDPBackend.FLASH_ATTENTION, SDPBackend.MATH


def module(*inputs, **options):
    return nn.MultiheadAttention(16, 4, batch_first=True)(*(inputs or (X, X, X)), **options)


def llama(**options):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "vocab_size": 50}
    few = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    return LlamaForCausalLM._from_config(LlamaConfig(**sizes, **few), **options)


def generated():
    """From token 0, which is the end of a text and padding as well."""
    model = llama()
    ids = torch.tensor([[0, 1, 2], [3, 4, 0]])
    model.generate(ids, max_new_tokens=1, eos_token_id=0, pad_token_id=0)


def sdpa(*kernels, **options):
    with sdpa_kernel([*(kernels or (FLASH, MATH))]):
        return F.scaled_dot_product_attention(HEADS, HEADS, HEADS, **options)


def flex(length, **options):
    x = torch.zeros(1, 1, length, 16)
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 128, 128, device="cpu")
    return flex_attention.flex_attention(x, x, x, **options | {"block_mask": mask})


PAIRS = [(torch.zeros(1, 1, 2, 8), torch.zeros(1, 1, 2, 8))]
SEEN = ~CAUSAL
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
    "error-3d-mask": lambda: module(attn_mask=CAUSAL.expand(2, 5, 5)),
    "error-mask-dtype": lambda: sdpa(attn_mask=SEEN.long()),
    "error-mask-and-causal": lambda: sdpa(MATH, attn_mask=SEEN, is_causal=True),
    "error-no-kernel": lambda: sdpa(FLASH, dropout_p=0.1),
    "error-flex-unfused": lambda: flex(128),
    "error-block-mask": lambda: flex(200),
    "error-flash": lambda: llama(attn_implementation="flash_attention_2"),
    "error-cache-tuple": lambda: llama()(torch.tensor([[1]]), past_key_values=tuple(PAIRS)),
    "error-cache-names": lambda: DynamicCache().key_cache,
}
ON_A_GPU = {"error-memory", "error-device"}  # its number is the page's own; its issue is cited
# What the answer says to write instead; the others show it in the page's own code.
CURED = {
    "error-3d-mask": lambda: module(attn_mask=CAUSAL.expand(2, 5, 5).repeat_interleave(4, 0)),
    "error-mask-dtype": lambda: sdpa(attn_mask=(~PADDED).long().bool()[:, None, None]),
    "error-mask-and-causal": lambda: sdpa(MATH, attn_mask=SEEN & torch.ones(5, 5).tril().bool()),
    "error-no-kernel": lambda: sdpa(FLASH, MATH, dropout_p=0.1),
    "error-flash": lambda: llama(attn_implementation="sdpa"),
    "error-cache-tuple": lambda: llama()(torch.tensor([[1]]), past_key_values=DynamicCache(PAIRS)),
    "error-cache-names": lambda: DynamicCache(PAIRS).layers[0].keys,
}


def said(call, caplog):
    """The exception, the warnings and what was logged."""
    with warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.WARNING):
        warnings.simplefilter("always")
        try:
            call()
        except (
            AssertionError, AttributeError, ImportError, IndexError, RuntimeError, ValueError
        ) as error:  # fmt: skip
            return str(error)
    return " ".join([*(str(each.message) for each in warned), caplog.text])


def title(language, name):
    found = [block for page in PAGES for block in source(language, page).headings]
    (said,) = [block.title for block in found if block.value == name]
    return said


@pytest.mark.parametrize("name", RAISED)
def test_messages_are_what_is_raised(name, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    monkeypatch.setattr(flex_attention, "_WARNINGS_SHOWN", set())
    message = " ".join(said(RAISED[name], caplog).split())
    for language in LANGUAGES:
        asked = title(language, name).removeprefix("报错：").removeprefix("警告 ")
        assert all(part.strip() in message for part in asked.split("…")), message


@pytest.mark.parametrize("name", CURED)
def test_what_to_write_instead_raises_nothing(name, caplog):
    said_of_kernels = "kernel not used because", "do not support non-zero dropout"
    heard = said(CURED[name], caplog)
    assert heard == "" or any(each in heard for each in said_of_kernels)


def test_both_a_mask_and_causal_are_combined_by_the_fused_kernel():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 5, 4)
    mask = (torch.rand(5, 5) > 0.5) | torch.eye(5, dtype=torch.bool)
    with sdpa_kernel(FLASH):
        both = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=True)
        one = F.scaled_dot_product_attention(q, k, v, attn_mask=mask & causal_mask(5))
    torch.testing.assert_close(both, one)


def test_masks_of_heads_lie_together():
    """Those of one sequence: repeated otherwise, sequences get one another's."""
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x, hidden = torch.randn(2, 5, 16), torch.stack([CAUSAL, CAUSAL & False])
    alone = []
    for text, mask in zip(x[:, None], hidden, strict=True):
        alone.append(layer(text, text, text, attn_mask=mask)[0])
    right = layer(x, x, x, attn_mask=hidden.repeat_interleave(4, 0))[0]
    torch.testing.assert_close(right, torch.cat(alone))
    wrong = layer(x, x, x, attn_mask=hidden.repeat(4, 1, 1))[0]
    assert (wrong - right).abs().max() > 0.1


def test_a_larger_block_mask_can_be_cut(monkeypatch):
    monkeypatch.setattr(flex_attention, "_WARNINGS_SHOWN", {"flex_attention_performance"})
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cpu")
    x = torch.randn(1, 1, 200, 16)
    cut = flex_attention.flex_attention(x, x, x, block_mask=mask._adjust(200, 200))
    torch.testing.assert_close(cut, F.scaled_dot_product_attention(x, x, x, is_causal=True))


def test_names_of_version_4_are_gone():
    cache = DynamicCache(PAIRS)
    assert cache.get_seq_length() == 2
    assert cache.layers[0].values is not None
    gone = "key_cache", "value_cache", "seen_tokens", "get_usable_length"
    assert not any(hasattr(cache, name) for name in (*gone, "to_legacy_cache", "from_legacy_cache"))


def test_none_is_left_out():
    names = [block.value for page in PAGES for block in source("en", page).headings]
    assert {name for name in names if name.startswith("error-")} == {*RAISED, *ON_A_GPU}


@pytest.mark.parametrize("call", [module, lambda: module(attn_mask=CAUSAL)])
def test_a_right_call_says_nothing(call, caplog):
    assert said(call, caplog) == ""

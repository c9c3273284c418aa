"""Right layers, of which the doctor is told what isn't so: it has to say that, by these checks."""

import functools
from typing import Any

import bases
import torch.nn.functional as F
from torch import nn

from rights.entries import RIGHT, SIZES, E, H
from rights.hub import config, model

WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {}
MHA = functools.partial(nn.MultiheadAttention, E, H)
FIRST = functools.partial(MHA, batch_first=True)


def told(name: str, found_by: str, make: Any, **how: Any) -> None:
    WRONG[name] = make, how, found_by


def sdpa() -> Any:
    return F.scaled_dot_product_attention


def again(right: str, found_by: str, **how: Any) -> None:
    """An entry of the right ones, with another word."""
    said = ", ".join(f"{name}={value}" for name, value in how.items())
    told(f"{right}: {said}", found_by, RIGHT[right].make, **RIGHT[right].how | how)


told("length first, and batches are passed first", "batch", MHA, batch_first=True)
told("batch first, and lengths are passed first", "batch", FIRST, batch_first=False)
told("MHA, True may attend", "mask mask-sense", FIRST, mask_true="attend")
told("MHA, padding: True is real", "padding", FIRST, padding_true="attend")
told("SDPA, True hides", "mask mask-sense", sdpa, mask_true="ignore")
told("SDPA, the lower right corner", "corner", sdpa, corner="lower right")
told("SDPA, another scale", "formula", sdpa, scale=0.5)
told("SDPA, said to be causal always", "future", sdpa, causal=True)
told("MHA, masks of heads as four axes", "mask-heads", FIRST, mask_heads="B,H,L,S")
told(
    "MHA, said to be causal by its hint",
    "future mask-and-causal causal-shortcut",
    FIRST,
    causal="is_causal",
)
again("by hand: a decoder", "formula", rotary=("interleaved", 10000.0))
again("by hand: a decoder", "formula", rotary=("halves", 500.0))
again("by hand: a decoder", "formula", positions=None)
again("ours: rotary", "formula", rotary=("interleaved", 10000.0))
again("ours: local_attention", "past future formula", window=5)
again("ours: local_attention", "past future formula", window=None)
again("ours: attention", "mask mask-sense", mask_true="ignore")
again("ours: attention", "corner", corner="upper left")
again("x-transformers: rotary, causal", "formula", rotary=("halves", 10000.0))
again("x-transformers: flash=True", "padding", padding_true="ignore")
again("x-transformers: grouped", "heads-apart", groups="repeat")
again("x-transformers: grouped", "formula", groups="repeat")
again("transformers: Llama, eager", "heads-apart", groups="tile")
again("transformers: Qwen3, sdpa", "heads-apart", groups="tile")
again("transformers: Llama, eager", "formula", rotary=("halves", 500.0))
again("transformers: Cohere, eager", "formula", rotary=("halves", 500000.0))
again("transformers: Mistral, eager", "past future formula", window=5)
again("transformers: Gemma2, eager", "formula", scale=None)
again("transformers: T5, later layers", "formula", scale=None)
again("by hand: fused", "mask mask-sense", mask_true="ignore")


def raw_gpt2() -> Any:
    """Its product calls view: it needs inputs that are contiguous."""

    class Raw(nn.Module):
        def __init__(self):
            super().__init__()
            settings = config("GPT2Config", "sdpa", n_embd=E, n_head=H, resid_pdrop=0.0)
            self.layer = model("gpt2", "GPT2Attention")(settings, layer_idx=0)

        def forward(self, x):
            return self.layer(x)[0]

    return Raw()


told("transformers: GPT-2 as it is", "strides", raw_gpt2, **SIZES, causal=True)
told(
    "a decoder's cache, one for all calls",
    "cache",
    bases.Decoder,
    causal=True,
    positions="rotary",
    new_cache=functools.cache(bases.Cache),
)

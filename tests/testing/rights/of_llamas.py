"""Decoders of transformers with rotary positions and grouped heads."""

import functools
from typing import Any

from torch import nn

from mhattn.testing import adapt
from rights.entries import D, E, G, H, entered, right
from rights.hub import config, model

HF = {
    "hidden_size": E,
    "num_attention_heads": H,
    "num_key_value_heads": G,
    "head_dim": D,
    "max_position_embeddings": 1024,
}


def llama(kind: str, module: str, way: str, **options: Any) -> Any:
    settings = config(f"{kind}Config", way, **HF, **options)
    return model(module, f"{kind}Attention")(settings, layer_idx=0)


KINDS: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": {},
    "Mistral": {"sliding_window": 4},
    "Gemma2": {"query_pre_attn_scalar": 16, "attn_logit_softcapping": None},
    "Cohere": {},
    "Olmo2": {},
}
for way in ("sdpa", "eager"):
    for kind, options in KINDS.items():
        entered(
            f"transformers: {kind}, {way}",
            functools.partial(llama, kind, kind.lower(), way, **options),
        )
entered(
    "transformers: Llama, the causal mask its own",
    lambda: adapt(llama("Llama", "llama", "sdpa"), own_mask=True),
)
BASE = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
entered(
    "transformers: Llama with another base",
    functools.partial(llama, "Llama", "llama", "eager", **BASE),
)
CAPPED = {"query_pre_attn_scalar": 16, "attn_logit_softcapping": 2.0}
entered(
    "transformers: Gemma2, scores capped",
    functools.partial(llama, "Gemma2", "gemma2", "eager", **CAPPED),
)


for kind, module in {"Ernie4_5": "ernie4_5", "Helium": "helium"}.items():
    entered(
        f"transformers: {kind}, its pairs side by side",
        functools.partial(llama, kind, module, "eager"),
    )


entered(
    "transformers: NanoChat, normed after the turn, which goes backwards",
    functools.partial(llama, "NanoChat", "nanochat", "eager"),
)


@right("transformers: Gemma3, a window, positions for its kind of layer")
def gemma3() -> Any:
    settings = config("Gemma3TextConfig", "eager", **HF, num_hidden_layers=2, sliding_window=4)
    return model("gemma3", "Gemma3Attention")(settings, layer_idx=0)


@right("transformers: GPT-OSS with sinks and a window")
def gpt_oss() -> Any:
    options = {"sliding_window": 4, "layer_types": ["sliding_attention"], "num_hidden_layers": 1}
    options["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    layer = llama("GptOss", "gpt_oss", "eager", **options)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.2)
    return layer

"""Decoders of transformers with rotary positions and grouped heads."""

import functools
from typing import Any

from adapters import DecoderLayer
from torch import nn

from rights.entries import GROUPED, MASKED, D, E, G, H, entered, right
from rights.hub import CACHED, ROTARY, config, model

HF = {
    "hidden_size": E,
    "num_attention_heads": H,
    "num_key_value_heads": G,
    "head_dim": D,
    "max_position_embeddings": 1024,
}


def llama(
    kind: str, module: str, way: str, window: int | None = None, own=False, **options: Any
) -> Any:
    settings = config(f"{kind}Config", way, **HF, **options)
    layer = model(module, f"{kind}Attention")(settings, layer_idx=0)
    rotary = model(module, f"{kind}RotaryEmbedding")(settings)
    return DecoderLayer(layer, rotary, window=window, own_mask=own, booleans=way == "sdpa")


for way in ("sdpa", "eager"):
    shown = {"weights": "need_weights"} if way == "eager" else {"weights": False}
    common = GROUPED | CACHED | MASKED | shown
    for kind, module in (("Llama", "llama"), ("Qwen2", "qwen2"), ("Qwen3", "qwen3")):
        entered(
            f"transformers: {kind}, {way}",
            functools.partial(llama, kind, module, way),
            **common,
            **ROTARY,
        )
    entered(
        f"transformers: Mistral with a window, {way}",
        functools.partial(llama, "Mistral", "mistral", way, 4, sliding_window=4),
        **common,
        **ROTARY,
        window=4,
    )
    entered(
        f"transformers: Gemma2, {way}",
        functools.partial(
            llama, "Gemma2", "gemma2", way, query_pre_attn_scalar=16, attn_logit_softcapping=None
        ),
        **common,
        **ROTARY,
        scale=0.25,
    )
    entered(
        f"transformers: Cohere, {way}",
        functools.partial(llama, "Cohere", "cohere", way),
        **common,
        positions="rotary",
        rotary=("interleaved", 500000.0),
    )
    entered(
        f"transformers: Olmo2, {way}",
        functools.partial(llama, "Olmo2", "olmo2", way),
        **common,
        positions="rotary",
        rotary=("halves", 500000.0),
    )


entered(
    "transformers: Llama, the causal mask its own",
    functools.partial(llama, "Llama", "llama", "sdpa", None, True),
    **GROUPED,
    **CACHED,
    **MASKED,
    **ROTARY,
    weights=False,
)
entered(
    "transformers: Llama with another base",
    functools.partial(
        llama,
        "Llama",
        "llama",
        "eager",
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    ),
    **GROUPED,
    **CACHED,
    **MASKED,
    positions="rotary",
    rotary=("halves", 500.0),
    weights="need_weights",
)
entered(
    "transformers: Gemma2, scores capped",
    functools.partial(llama, "Gemma2", "gemma2", "eager", query_pre_attn_scalar=16),
    **GROUPED,
    **CACHED,
    **MASKED,
    **ROTARY,
    scale=0.25,
    weights="need_weights",
)


@right(
    "transformers: GPT-OSS with sinks and a window",
    **GROUPED,
    **CACHED,
    **MASKED,
    **ROTARY,
    window=4,
    sinks=True,
    weights="need_weights",
)
def gpt_oss() -> Any:
    options = {"sliding_window": 4, "layer_types": ["sliding_attention"], "num_hidden_layers": 1}
    options["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    layer = llama("GptOss", "gpt_oss", "eager", 4, **options)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.2)
    return layer

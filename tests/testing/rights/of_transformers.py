"""Other layers of transformers: decoders, encoders, memories."""

import functools
from typing import Any

from adapters import CrossLayer, DecoderLayer, EncoderLayer, WithOutput
from torch import nn

from rights.entries import MASKED, SIZES, D, E, H, entered, right
from rights.hub import CACHED, ROTARY, config, model


def gpt2(way: str, own: bool = False) -> Any:
    settings = config("GPT2Config", way, n_embd=E, n_head=H, resid_pdrop=0.0)
    layer = model("gpt2", "GPT2Attention")(settings, layer_idx=0)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.2)
    return DecoderLayer(layer, booleans=way == "sdpa", own_mask=own)


def neox(way: str, share: float = 1.0) -> Any:
    parts = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share}
    sizes = {"hidden_size": E, "num_attention_heads": H, "rope_parameters": parts}
    settings = config("GPTNeoXConfig", way, **sizes)
    layer = model("gpt_neox", "GPTNeoXAttention")(settings, layer_idx=0)
    rotary = model("gpt_neox", "GPTNeoXRotaryEmbedding")(settings)
    return DecoderLayer(layer, rotary, cache_name="layer_past", booleans=way == "sdpa")


def opt(way: str) -> Any:
    settings = config("OPTConfig", way, hidden_size=E, num_attention_heads=H)
    return DecoderLayer(model("opt", "OPTAttention")(settings, layer_idx=0), booleans=way == "sdpa")


def phi(way: str) -> Any:
    parts = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    settings = config("PhiConfig", way, hidden_size=E, num_attention_heads=H, rope_parameters=parts)
    layer = model("phi", "PhiAttention")(settings, layer_idx=0)
    rotary = model("phi", "PhiRotaryEmbedding")(settings)
    return DecoderLayer(layer, rotary, booleans=way == "sdpa")


def bert(way: str, cross: bool = False) -> Any:
    sizes = {"hidden_size": E, "num_attention_heads": H, "attention_probs_dropout_prob": 0.1}
    settings = config("BertConfig", way, **sizes)
    layer = model("bert", "BertCrossAttention" if cross else "BertSelfAttention")(settings)
    both = WithOutput(layer, nn.Linear(E, E))
    if cross:
        return CrossLayer(both, memory_name="encoder_hidden_states", booleans=way == "sdpa")
    return EncoderLayer(both, booleans=way == "sdpa")


def bart(way: str, kind: str) -> Any:
    settings = config("BartConfig", way, d_model=E)
    layer = model("bart", "BartAttention")
    if kind == "decoder":
        made = layer(E, H, 0.1, is_decoder=True, is_causal=True, config=settings, layer_idx=0)
        return DecoderLayer(made, booleans=way == "sdpa")
    made = layer(E, H, 0.1, config=settings)
    adapter = CrossLayer if kind == "cross" else EncoderLayer
    return adapter(made, booleans=way == "sdpa")


def t5(relative: bool, cross: bool = False, causal: bool = False) -> Any:
    sizes = {"d_model": E, "num_heads": H, "d_kv": D, "dropout_rate": 0.0, "is_decoder": causal}
    settings = config("T5Config", "eager", **sizes)
    layer = model("t5", "T5Attention")(settings, has_relative_attention_bias=relative, layer_idx=0)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.2)
    options = {"mask_name": "mask", "weights_at": 2}
    if causal:
        return DecoderLayer(layer, **options)
    return CrossLayer(layer, **options) if cross else EncoderLayer(layer, **options)


def simple(kind: str, module: str, name: str, way: str, **sizes: Any) -> Any:
    layer = model(module, name)(config(f"{kind}Config", way, **sizes))
    return EncoderLayer(layer, booleans=way == "sdpa")


for way in ("sdpa", "eager"):
    shown = {"weights": "need_weights"} if way == "eager" else {"weights": False}
    decoder, encoder = SIZES | CACHED | MASKED | shown, SIZES | MASKED | shown
    entered(f"transformers: GPT-2, {way}", functools.partial(gpt2, way), **decoder)
    entered(f"transformers: GPT-NeoX, {way}", functools.partial(neox, way), **decoder, **ROTARY)
    entered(f"transformers: OPT, {way}", functools.partial(opt, way), **decoder)
    entered(
        f"transformers: Bart's decoder, {way}", functools.partial(bart, way, "decoder"), **decoder
    )
    entered(
        f"transformers: Bart's encoder, {way}", functools.partial(bart, way, "encoder"), **encoder
    )
    entered(f"transformers: Bart's memory, {way}", functools.partial(bart, way, "cross"), **encoder)
    entered(f"transformers: BERT, {way}", functools.partial(bert, way), **encoder)
    entered(f"transformers: BERT's memory, {way}", functools.partial(bert, way, True), **encoder)
    sizes = {"hidden_size": E, "num_attention_heads": H}
    entered(
        f"transformers: ViT, {way}",
        functools.partial(simple, "ViT", "vit", "ViTAttention", way, **sizes),
        **encoder,
    )
    entered(
        f"transformers: DistilBERT, {way}",
        functools.partial(
            simple, "DistilBert", "distilbert", "DistilBertSelfAttention", way, dim=E, n_heads=H
        ),
        **encoder,
    )
entered(
    "transformers: GPT-2, the causal mask its own",
    functools.partial(gpt2, "sdpa", True),
    **SIZES,
    **CACHED,
    **MASKED,
    weights=False,
)
# half of each head is turned: relative, and no formula of the doctor's
entered(
    "transformers: Phi, half of each head turned",
    functools.partial(phi, "eager"),
    **SIZES,
    **CACHED,
    **MASKED,
    positions="relative",
    weights="need_weights",
)
entered(
    "transformers: GPT-NeoX, a quarter of each head turned",
    functools.partial(neox, "sdpa", 0.25),
    **SIZES,
    **CACHED,
    **MASKED,
    positions="relative",
    weights=False,
)


@right(
    "transformers: GPT-J, half of each head turned, neighbours",
    **SIZES,
    **CACHED,
    **MASKED,
    positions="relative",
    weights=False,
)
def gptj() -> Any:
    sizes = {"n_embd": E, "n_head": H, "rotary_dim": 4, "n_positions": 4096, "resid_pdrop": 0.0}
    layer = model("gptj", "GPTJAttention")(config("GPTJConfig", "eager", **sizes), layer_idx=0)
    return DecoderLayer(layer, cache_name="layer_past", ids=True)


T5 = SIZES | MASKED | {"weights": "need_weights", "scale": 1.0}
entered("transformers: T5, later layers", functools.partial(t5, False), **T5)
entered("transformers: T5, its memory", functools.partial(t5, False, True), **T5)
entered(
    "transformers: T5's first layer",
    functools.partial(t5, True),
    **T5,
    positions="relative",
    position_ids=False,
)
entered(
    "transformers: T5's decoder, first layer",
    functools.partial(t5, True, causal=True),
    **T5,
    **CACHED,
    positions="relative",
    position_ids=False,
)

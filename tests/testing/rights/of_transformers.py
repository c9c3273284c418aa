"""Other layers of transformers: decoders, encoders, memories. The doctor is told nothing."""

import functools
from typing import Any

from torch import nn

from mhattn.testing import adapt
from rights.entries import D, E, H, entered, right
from rights.hub import config, model


def strong(layer: Any) -> Any:
    """Weights large enough that attention isn't uniform."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.2)
    return layer


def gpt2(way: str) -> Any:
    settings = config("GPT2Config", way, n_embd=E, n_head=H, resid_pdrop=0.0)
    return strong(model("gpt2", "GPT2Attention")(settings, layer_idx=0))


def turned(kind: str, module: str, way: str, share: float) -> Any:
    """A share of each head is turned."""
    parts = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share}
    sizes = {"hidden_size": E, "num_attention_heads": H, "rope_parameters": parts}
    settings = config(f"{kind}Config", way, **sizes)
    return model(module, f"{kind}Attention")(settings, layer_idx=0)


def opt(way: str) -> Any:
    settings = config("OPTConfig", way, hidden_size=E, num_attention_heads=H)
    return model("opt", "OPTAttention")(settings, layer_idx=0)


@right("transformers: ModernBERT, positions for its kind of layer")
def modern_bert() -> Any:
    sizes = {"hidden_size": E, "num_attention_heads": H, "num_hidden_layers": 2}
    tokens = dict.fromkeys(("pad", "eos", "bos", "cls", "sep"), 0)
    named = {f"{name}_token_id": number for name, number in tokens.items()}
    settings = config("ModernBertConfig", "eager", **sizes, **named, local_attention=8)
    return model("modernbert", "ModernBertAttention")(settings, layer_idx=0)


def bert(way: str, name: str) -> Any:
    sizes = {"hidden_size": E, "num_attention_heads": H, "attention_probs_dropout_prob": 0.1}
    return model("bert", name)(config("BertConfig", way, **sizes))


def bart(way: str, kind: str) -> Any:
    settings = config("BartConfig", way, d_model=E)
    layer = model("bart", "BartAttention")
    if kind == "decoder":
        return layer(E, H, 0.1, is_decoder=True, is_causal=True, config=settings, layer_idx=0)
    made = layer(E, H, 0.1, config=settings)
    return adapt(made, part="memory") if kind == "memory" else made


def t5(relative: bool, *, causal: bool = False) -> Any:
    sizes = {"d_model": E, "num_heads": H, "d_kv": D, "dropout_rate": 0.0, "is_decoder": causal}
    settings = config("T5Config", "eager", **sizes)
    layer = model("t5", "T5Attention")
    return strong(layer(settings, has_relative_attention_bias=relative, layer_idx=0))


def simple(kind: str, module: str, name: str, way: str, **sizes: Any) -> Any:
    return model(module, name)(config(f"{kind}Config", way, **sizes))


for way in ("sdpa", "eager"):
    entered(f"transformers: GPT-2, {way}", functools.partial(gpt2, way))
    neox = functools.partial(turned, "GPTNeoX", "gpt_neox", way)
    entered(f"transformers: GPT-NeoX, {way}", functools.partial(neox, 1.0))
    entered(f"transformers: OPT, {way}", functools.partial(opt, way))
    for kind in ("decoder", "encoder", "memory"):
        entered(f"transformers: Bart's {kind}, {way}", functools.partial(bart, way, kind))
    entered(f"transformers: BERT, {way}", functools.partial(bert, way, "BertSelfAttention"))
    entered(
        f"transformers: BERT's memory, {way}", functools.partial(bert, way, "BertCrossAttention")
    )
    sizes = {"hidden_size": E, "num_attention_heads": H}
    entered(
        f"transformers: ViT, {way}",
        functools.partial(simple, "ViT", "vit", "ViTAttention", way, **sizes),
    )
    entered(
        f"transformers: DistilBERT, {way}",
        functools.partial(
            simple, "DistilBert", "distilbert", "DistilBertSelfAttention", way, dim=E, n_heads=H
        ),
    )
entered("transformers: GPT-2, the causal mask its own", lambda: adapt(gpt2("sdpa"), own_mask=True))
# half of each head is turned: relative, and no formula of the doctor's
entered(
    "transformers: Phi, half of each head turned",
    functools.partial(turned, "Phi", "phi", "eager", 0.5),
)
entered(
    "transformers: GPT-NeoX, a quarter of each head turned",
    functools.partial(turned, "GPTNeoX", "gpt_neox", "sdpa", 0.25),
)


@right("transformers: GPT-J, half of each head turned, neighbours")
def gptj() -> Any:
    sizes = {"n_embd": E, "n_head": H, "rotary_dim": 4, "n_positions": 4096, "resid_pdrop": 0.0}
    return model("gptj", "GPTJAttention")(config("GPTJConfig", "eager", **sizes), layer_idx=0)


entered("transformers: T5, later layers", functools.partial(t5, False))
entered("transformers: T5, its memory", lambda: adapt(t5(False), part="memory"))
entered("transformers: T5's first layer", functools.partial(t5, True))
entered("transformers: T5's decoder, first layer", functools.partial(t5, True, causal=True))

"""Right layers and functions, with what the doctor has to be told of each: ``RIGHT``.

``python tests/testing/right.py`` examines them and prints one line for each.
"""

import functools
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import bases
import torch
import torch.nn.functional as F
from adapters import (
    BlockMemory,
    BlockSelf,
    CrossLayer,
    DecoderLayer,
    EncoderLayer,
    WithOutput,
    XTransformers,
)
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported

E, H, G, D = 48, 6, 2, 8
SIZES = {"embed_dim": E, "num_heads": H}
GROUPED = SIZES | {"num_kv_heads": G}
PADS = {"padding": "key_padding_mask"}
RIGHT: dict[str, "Right"] = {}


@dataclass(frozen=True)
class Right:
    """One right layer: how it is built, and what `check_attention` is called with."""

    make: Callable[[], Any]
    how: dict[str, Any] = field(default_factory=dict)


def right(name: str, **how: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def enter(make: Callable[[], Any]) -> Callable[[], Any]:
        RIGHT[name] = Right(make, how)
        return make

    return enter


def entered(name: str, make: Callable[[], Any], **how: Any) -> None:
    RIGHT[name] = Right(make, how)


# PyTorch
mha = functools.partial(nn.MultiheadAttention, E, H)
entered("torch: nn.MultiheadAttention, length first", mha)
entered("torch: nn.MultiheadAttention, batch first", functools.partial(mha, batch_first=True))
entered("torch: nn.MultiheadAttention without bias", functools.partial(mha, batch_first=True, bias=False))
entered("torch: nn.MultiheadAttention with dropout", functools.partial(mha, batch_first=True, dropout=0.2))
entered(
    "torch: nn.MultiheadAttention, mean of the weights",
    functools.partial(mha, batch_first=True),
    weights={"need_weights": True},
)
entered(
    "torch: nn.MultiheadAttention with a bias of keys and values",
    functools.partial(mha, batch_first=True, add_bias_kv=True),
    sinks=True,
    weights=False,
)
entered(
    "torch: nn.MultiheadAttention with a key of zeros",
    functools.partial(mha, batch_first=True, add_zero_attn=True),
    sinks=True,
    weights=False,
)


class OtherWidths(nn.Module):
    """Keys and values of other widths, computed from inputs of one."""

    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(E, H, batch_first=True, kdim=20, vdim=12)

    def forward(self, query, key, value, key_padding_mask=None):
        key, value = key[..., :20], value[..., :12]
        return self.mha(query, key, value, key_padding_mask=key_padding_mask, need_weights=False)[0]


entered("torch: nn.MultiheadAttention, kdim and vdim", OtherWidths, **SIZES)
entered("torch: scaled_dot_product_attention", lambda: F.scaled_dot_product_attention)
entered(
    "torch: scaled_dot_product_attention, grouped",
    lambda: F.scaled_dot_product_attention,
    num_heads=6,
    num_kv_heads=2,
)


def scaled_by_half(query, key, value, attn_mask=None, is_causal=False):
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=0.5
    )


entered(
    "torch: scaled_dot_product_attention with a scale",
    lambda: scaled_by_half,
    scale=0.5,
    corner="upper left",
)
block = {"d_model": E, "nhead": H, "dim_feedforward": 64, "batch_first": True}
for norm_first in (False, True):
    entered(
        f"torch: nn.TransformerEncoderLayer, norm_first={norm_first}",
        functools.partial(nn.TransformerEncoderLayer, **block, norm_first=norm_first),
    )
    entered(
        f"torch: nn.TransformerDecoderLayer, its own tokens, norm_first={norm_first}",
        lambda norm_first=norm_first: BlockSelf(
            nn.TransformerDecoderLayer(**block, norm_first=norm_first), torch.randn(1, 4, E)
        ),
        **SIZES,
        mask_true="ignore",
        mask_heads="B*H,L,S",
        empty_rows="any",
    )
    entered(
        f"torch: nn.TransformerDecoderLayer, its memory, norm_first={norm_first}",
        lambda norm_first=norm_first: BlockMemory(
            nn.TransformerDecoderLayer(**block, norm_first=norm_first)
        ),
        **SIZES,
        causal=False,
        empty_rows="any",
    )
entered(
    "torch: nn.TransformerEncoderLayer, length first, gelu",
    lambda: nn.TransformerEncoderLayer(E, H, 64, activation="gelu", dropout=0.0),
)


# transformers
def config(name: str, way: str = "sdpa", **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    return getattr(transformers, name)(attn_implementation=way, **options)


def model(module: str, name: str) -> Any:
    import importlib

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    return getattr(found, name)


def dynamic_cache() -> Any:
    from transformers import DynamicCache

    return DynamicCache()


HF = {
    "hidden_size": E,
    "num_attention_heads": H,
    "num_key_value_heads": G,
    "head_dim": D,
    "max_position_embeddings": 1024,
}
CACHED = {"cache": "cache", "new_cache": dynamic_cache, "causal": True}
MASKED = {"mask": "attn_mask", "mask_heads": "B,H,L,S"}
ROTARY = {"positions": "rotary"}


def llama(kind: str, module: str, way: str, window: int | None = None, own=False, **options: Any) -> Any:
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
        llama, "Llama", "llama", "eager", rope_parameters={"rope_type": "default", "rope_theta": 500.0}
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
    entered(f"transformers: Bart's decoder, {way}", functools.partial(bart, way, "decoder"), **decoder)
    entered(f"transformers: Bart's encoder, {way}", functools.partial(bart, way, "encoder"), **encoder)
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
        functools.partial(simple, "DistilBert", "distilbert", "DistilBertSelfAttention", way, dim=E, n_heads=H),
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


# x-transformers
def x_attention(rotary: bool = False, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from x_transformers.x_transformers import Attention, RotaryEmbedding
    layer = Attention(E, dim_head=D, heads=H, **options)
    return XTransformers(layer, RotaryEmbedding(D) if rotary else None)


X = SIZES | MASKED | {"padding": "padding", "padding_true": "attend", "empty_rows": "any"}
X_SELF = X | {"inputs": "x"}
for flash in (False, True):
    entered(f"x-transformers: flash={flash}", functools.partial(x_attention, flash=flash), **X)
    entered(
        f"x-transformers: causal, flash={flash}",
        functools.partial(x_attention, flash=flash, causal=True),
        **X_SELF,
        causal=True,
    )
entered(
    "x-transformers: rotary, causal",
    functools.partial(x_attention, True, causal=True),
    **X_SELF,
    causal=True,
    positions="rotary",
    rotary=("interleaved", 10000.0),
)
entered("x-transformers: dropout", functools.partial(x_attention, dropout=0.2), **X)


# ours
def ours(**options: Any) -> Any:
    from mhattn import MultiHeadAttention

    return MultiHeadAttention(E, H, **options)


def kv_cache(**options: Any) -> Any:
    from mhattn import KVCache

    return KVCache(**(options or {"max_len": 64}))


OURS = {"mask_heads": "B,H,L,S", "empty_rows": "zeros", "new_cache": kv_cache}


def with_position(kind: str, **options: Any) -> Any:
    import mhattn

    made = {"Rotary": lambda: mhattn.Rotary(D), "Alibi": lambda: mhattn.Alibi(H)}[kind]()
    return ours(position=made, **options)


def with_attend(name: str, *, window: int | None = None, **options: Any) -> Any:
    import mhattn.variants

    attend = getattr(mhattn.variants, name)
    if name == "NormedAttention":
        attend = attend(D)
    return ours(attend=functools.partial(attend, window=window) if window else attend, **options)


entered("ours: MultiHeadAttention", ours, **OURS)
entered("ours: MultiHeadAttention, no bias, dropout", functools.partial(ours, bias=False, dropout=0.2), **OURS)
entered("ours: grouped heads", functools.partial(ours, num_kv_heads=G), **OURS)
entered("ours: one head of keys", functools.partial(ours, num_kv_heads=1), **OURS)
entered("ours: heads of another width", functools.partial(ours, head_dim=10), **OURS)
entered("ours: rotary", functools.partial(with_position, "Rotary"), **OURS, positions="rotary")
entered(
    "ours: rotary, grouped",
    functools.partial(with_position, "Rotary", num_kv_heads=G),
    **OURS,
    positions="rotary",
)
entered("ours: alibi", functools.partial(with_position, "Alibi"), **OURS, positions="relative")
entered("ours: QK-norm", functools.partial(with_attend, "NormedAttention"), **OURS)
entered("ours: in tiles", functools.partial(with_attend, "tiled_attention"), **OURS, weights=False)


@right("ours: latent attention", **OURS, head_dim=D + 4, positions="relative")
def latent() -> Any:
    from mhattn.variants import LatentAttention

    return LatentAttention(E, H, kv_lora_rank=20, qk_nope_head_dim=D, qk_rope_head_dim=4)


def function(name: str, **options: Any) -> Any:
    import mhattn
    import mhattn.variants

    found = getattr(mhattn, name, None) or getattr(mhattn.variants, name)
    return functools.partial(found, **options) if options else found


FUNCTION = {"mask_heads": "B,H,L,S", "empty_rows": "zeros"}
entered("ours: attention", lambda: function("attention"), **FUNCTION)
entered("ours: attention, grouped", lambda: function("attention"), **FUNCTION, num_heads=6, num_kv_heads=2)
entered("ours: tiled_attention", lambda: function("tiled_attention"), **FUNCTION)


def sliding(query, key, value):
    return function("local_attention")(query, key, value, window=4, is_causal=True)


entered("ours: local_attention", lambda: sliding, causal=True, window=4)


# by hand
entered("by hand: a function", bases.Attend, mask_heads="B,H,L,S", empty_rows="zeros")
entered("by hand: a layer", bases.Layer, mask_heads="B,H,L,S", weights="need_weights")
entered("by hand: a decoder", bases.Decoder, causal=True, new_cache=bases.Cache, positions="rotary")
entered("by hand: a decoder, tuples", bases.TupleDecoder, causal=True, cache="past", positions="rotary")
entered("by hand: packed", bases.Packed, causal=True, positions="absolute")
entered("by hand: fused", bases.Fused, mask_heads="B,H,L,S")


def main() -> None:
    """Examine all, or those whose names have the words given."""
    import sys
    import time

    from mhattn.testing import check_attention

    for name, each in RIGHT.items():
        if not all(word in name for word in sys.argv[1:]):
            continue
        torch.manual_seed(0)
        start = time.perf_counter()
        try:
            report = check_attention(each.make(), **each.how)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}")
            continue
        took = time.perf_counter() - start
        print(f"{name}: {'ok' if report.ok else 'FALSE ALARM'}, {took:.1f} s, {len(report.checked)} checks")
        for finding in report.findings:
            print("   ", finding.level, finding.check, "|", finding.did, "|", finding.got, "|", finding.case)


if __name__ == "__main__":
    main()

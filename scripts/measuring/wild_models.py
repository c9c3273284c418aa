"""The models of public libraries in which `measuring.wild` examines all attention."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.tiny import tiny_model

V, E, H = 97, 24, 3  # words, width, heads


# A model, and what it is called with.
Built = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def called(model: nn.Module, *inputs: Any, **options: Any) -> Built:
    return model.eval(), inputs, options


def catalogue() -> list[tuple[str, str]]:
    """All models, each by its library and its name there."""
    transformers: Any = importlib.import_module("transformers")
    names = sorted({*transformers.CONFIG_MAPPING, *BY_HAND})
    found = [("torch", name) for name in TORCH]
    found += [("x-transformers", name) for name in STACKS]
    return found + [("transformers", name) for name in names]


def built(library: str, name: str) -> Built:
    """A small model with random weights, always the same."""
    torch.manual_seed(0)
    if library == "torch":
        return TORCH[name]()
    if library == "x-transformers":
        return STACKS[name]()
    if name in BY_HAND:
        return BY_HAND[name]()
    model, options = tiny_model(name)
    return called(model, **options)


def ids(length: int = 11) -> Tensor:
    return torch.randint(3, V, (2, length), generator=torch.Generator().manual_seed(1))


class Block(nn.Module):
    """A layer that takes query, key and value, as a model calls it for self-attention."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.attention, self.out = layer, nn.Linear(E, E)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x + self.attention(x, x, x)[0])


def encoder(**options: Any) -> Built:
    block = nn.TransformerEncoderLayer(E, H, 48, **options)
    first = options.get("batch_first", False)
    x = torch.randn(2, 7, E) if first else torch.randn(7, 2, E)
    return called(nn.TransformerEncoder(block, 2, enable_nested_tensor=False), x)


def decoder(causal: bool, first: bool = True) -> Built:
    block = nn.TransformerDecoderLayer(E, H, 48, batch_first=first)
    x, memory = torch.randn(2, 7, E), torch.randn(2, 5, E)
    if not first:
        x, memory = x.transpose(0, 1), memory.transpose(0, 1)
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    options = {"tgt_mask": mask, "tgt_is_causal": True} if causal else {}
    return called(nn.TransformerDecoder(block, 2), x, memory, **options)


def both() -> Built:
    model = nn.Transformer(E, H, 1, 1, 48, batch_first=True)
    return called(model, torch.randn(2, 7, E), torch.randn(2, 5, E))


def alone(of: str, **options: Any) -> Built:
    """One layer of torch between two linear maps; ``of`` is its module."""
    kind = importlib.import_module(of).MultiheadAttention
    first = options.get("batch_first", False)
    x = torch.randn(2, 7, E) if first else torch.randn(7, 2, E)
    return called(Block(kind(E, H, **options)), x)


QUANTIZABLE = "torch.ao.nn.quantizable"
TORCH: dict[str, Callable[[], Built]] = {
    "nn.MultiheadAttention": lambda: alone("torch.nn"),
    "nn.MultiheadAttention, batch_first": lambda: alone("torch.nn", batch_first=True),
    "nn.MultiheadAttention, bias_k": lambda: alone("torch.nn", batch_first=True, add_bias_kv=True),
    "nn.MultiheadAttention, zero": lambda: alone("torch.nn", batch_first=True, add_zero_attn=True),
    "nn.TransformerEncoder": encoder,
    "nn.TransformerEncoder, batch_first": lambda: encoder(batch_first=True),
    "nn.TransformerEncoder, norm_first": lambda: encoder(batch_first=True, norm_first=True),
    "nn.TransformerDecoder": lambda: decoder(False, first=False),
    "nn.TransformerDecoder, batch_first": lambda: decoder(False),
    "nn.TransformerDecoder, causal": lambda: decoder(True),
    "nn.Transformer": both,
    "ao.nn.quantizable.MultiheadAttention": lambda: alone(QUANTIZABLE),
    "ao.nn.quantizable.MultiheadAttention, batch_first": lambda: alone(
        QUANTIZABLE, batch_first=True
    ),
}


def x_transformers() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it calls torch.jit while it is imported
        return importlib.import_module("x_transformers")


def stack(kind: str = "Decoder", **options: Any) -> Built:
    x = x_transformers()
    layers = getattr(x, kind)(dim=E, depth=2, heads=H, attn_dim_head=8, **options)
    model = x.TransformerWrapper(num_tokens=V, max_seq_len=128, attn_layers=layers)
    return called(model, ids())


def pictures() -> Built:
    x = x_transformers()
    layers = x.Encoder(dim=E, depth=2, heads=H, attn_dim_head=8)
    model = x.ViTransformerWrapper(image_size=32, patch_size=8, attn_layers=layers)
    return called(model, torch.randn(2, 3, 32, 32))


def translator() -> Built:
    sizes = {f"{part}_num_tokens": V for part in ("enc", "dec")}
    sizes |= {f"{part}_depth": 1 for part in ("enc", "dec")}
    sizes |= {f"{part}_heads": H for part in ("enc", "dec")}
    sizes |= {f"{part}_max_seq_len": 64 for part in ("enc", "dec")}
    return called(x_transformers().XTransformer(dim=E, **sizes), ids(), ids(7))


# Each option of its attention that says another formula, alone.
OPTIONS: dict[str, dict[str, Any]] = {
    "rotary_pos_emb": {"rotary_pos_emb": True},
    "rotary_xpos": {"rotary_xpos": True},
    "alibi_pos_bias": {"alibi_pos_bias": True},
    "rel_pos_bias": {"rel_pos_bias": True},
    "attn_kv_heads=1": {"attn_kv_heads": 1},
    "attn_one_kv_head": {"attn_one_kv_head": True},
    "attn_flash": {"attn_flash": True},
    "attn_qk_norm": {"attn_qk_norm": True},
    "attn_num_mem_kv": {"attn_num_mem_kv": 2},
    "attn_talking_heads": {"attn_talking_heads": True},
    "attn_gate_values": {"attn_gate_values": True},
    "attn_sparse_topk": {"attn_sparse_topk": 4},
    "attn_softclamp_logits": {"attn_softclamp_logits": True},
    "attn_on_attn": {"attn_on_attn": True},
    "macaron": {"macaron": True},
    "sandwich_norm": {"sandwich_norm": True},
    "shift_tokens": {"shift_tokens": 1},
}
STACKS: dict[str, Callable[[], Built]] = {
    "Decoder": stack,
    **{name: lambda told=told: stack(**told) for name, told in OPTIONS.items()},
    "Encoder": lambda: stack("Encoder"),
    "ViTransformerWrapper": pictures,
    "XTransformer": translator,
}


def of_transformers(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"transformers.models.{module}"), name)


def autoformer() -> Built:
    sizes = {"prediction_length": 4, "context_length": 8, "label_length": 4, "d_model": 16}
    for part in ("encoder", "decoder"):
        sizes |= {f"{part}_layers": 1, f"{part}_attention_heads": 2, f"{part}_ffn_dim": 16}
    config = of_transformers("autoformer", "AutoformerConfig")(
        input_size=1, lags_sequence=[1, 2], num_time_features=1, init_std=0.5, **sizes
    )
    past = {"past_values": torch.randn(3, 10), "past_time_features": torch.randn(3, 10, 1)}
    past |= {"past_observed_mask": torch.ones(3, 10)}
    future = {"future_values": torch.randn(3, 4), "future_time_features": torch.randn(3, 4, 1)}
    model = of_transformers("autoformer", "AutoformerModel")(config)
    return called(model, **past, **future)


SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4}


def phi4_pictures() -> Built:
    folder = "phi4_multimodal.modeling_phi4_multimodal"
    kind = of_transformers(folder, "Phi4MultimodalVisionConfig")
    config = kind(**SMALL, image_size=32, crop_size=32, patch_size=8)
    model = of_transformers(folder, "Phi4MultimodalVisionModel")(config)
    return called(model, pixel_values=torch.randn(2, 3, 32, 32))


def kosmos_pictures() -> Built:
    config = of_transformers("kosmos2_5", "Kosmos2_5Config")().vision_config
    sizes = {"head_dim": 8, "patch_embed_hidden_size": 12, "max_num_patches": 16, "seq_len": 16}
    for name, size in (SMALL | sizes).items():
        setattr(config, name, size)
    model = of_transformers("kosmos2_5.modeling_kosmos2_5", "Kosmos2_5VisionModel")(config)
    places = torch.cartesian_prod(torch.arange(1.0, 4), torch.arange(1.0, 4)).expand(2, -1, -1)
    return called(model, torch.cat([places, torch.randn(2, 9, 12)], dim=-1))


# Where no configuration of its own says how it is built, or the model wants inputs of its own.
BY_HAND: dict[str, Callable[[], Built]] = {
    "autoformer": autoformer,
    "kosmos-2.5 (vision)": kosmos_pictures,
    "phi4_multimodal (vision)": phi4_pictures,
}

"""Configurations of transformers with small sizes, and the classes that belong to them."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch

__all__: list[str] = []

# What configurations call their sizes. Heads stay several, and grouped where a model groups them.
SIZES = {
    2: "num_hidden_layers num_layers n_layer n_layers num_decoder_layers num_encoder_layers "
    "encoder_layers decoder_layers num_key_value_heads num_experts_per_tok num_experts_per_token "
    "top_k_experts window_size",
    4: "num_attention_heads num_heads n_head n_heads encoder_attention_heads "
    "decoder_attention_heads num_experts num_local_experts n_routed_experts rotary_dim",
    6: "num_queries",
    8: "attention_window block_size mamba_n_heads mamba_d_head head_dim d_kv patch_size "
    "qk_rope_head_dim qk_nope_head_dim v_head_dim",
    16: "kv_lora_rank q_lora_rank moe_intermediate_size hidden_size_per_layer_input",
    24: "max_source_positions embed_dim",
    32: "hidden_size d_model n_embd dim embedding_size emb_dim image_size projection_dim "
    "word_embed_proj_dim encoder_hidden_size cross_attention_hidden_size upsample_groups",
    48: "intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim hidden_dim n_inner "
    "ffn_hidden_size",
    97: "vocab_size vocab_size_per_layer_input",
    256: "max_position_embeddings",
    0: "pad_token_id attn_layer_offset",
    1: "bos_token_id n_group topk_group mamba_n_groups num_time_features",
    3: "eos_token_id",
}
# What has no size, or one that leaves no layer of attention among so few.
ALWAYS = {"attn_layer_period": 2, "attn_layer_indices": [1]}
UNSAID = {
    "prediction_length": 4,
    "context_length": 8,
    "layer_types": ["full_attention"] * 2,
    "mlp_layer_types": ["dense"] * 2,
    "num_experts_per_tok": 2,
}
# Sizes that others are made from: some models fit together only if these stay as they are.
NARROW = [name for size in (8, 16) for name in SIZES[size].split()]
WIDTHS = [name for size in (24, 32, 48) for name in SIZES[size].split()]
KEPT: tuple[list[str], ...] = (
    [],
    [*NARROW, "image_size", "rotary_dim", "embed_dim", "window_size"],
    [n for n in (*NARROW, *WIDTHS, "rotary_dim", "window_size") if n != "image_size"],
)
LARGEST = 60_000_000  # parameters; more than this wasn't shrunk
WIDE = 256  # sizes above it are looked for in what is too large


def sub_configs(config: Any, transformers: Any) -> Iterator[tuple[str, Any]]:
    """The configurations of a model's parts, by their names."""
    for name, value in list(vars(config).items()):
        if isinstance(value, transformers.PreTrainedConfig):
            yield name, value


def shrink(config: Any, transformers: Any, kept: Any = ()) -> None:
    """Small sizes for a configuration and its parts; names that are kept stay."""
    told = config.to_dict()
    # Latent attention has as many heads of keys as of queries.
    sizes = {name: size for size, names in SIZES.items() for name in names.split()}
    sizes |= {"num_key_value_heads": 4} if "kv_lora_rank" in told or kept else {}
    for name, size in sizes.items():
        if name in told and name not in kept and isinstance(told[name], int | None):
            _set(config, name, size)
    unsaid = {n: v for n, v in UNSAID.items() if told.get(n, v) is None}
    if "window_size" in told and "image_size" in told:
        _set(config, "image_size", 128)  # each stage halves it, and the last one has a window
    for name, value in (ALWAYS | unsaid).items():
        if name in told:
            _set(config, name, value)
    for name, kinds in told.items():
        is_names = isinstance(kinds, list) and kinds and all(isinstance(k, str) for k in kinds)
        if is_names and ("layer" in name or "block" in name):
            _set(config, name, _both(kinds))
    _sections(config)
    for _, value in sub_configs(config, transformers):
        shrink(value, transformers, kept)


def _set(config: Any, name: str, value: Any) -> None:
    try:
        setattr(config, name, value)
    except Exception:  # a property, or a value that the configuration checks
        return


def _both(kinds: list[str]) -> list[str]:
    """Each kind of layer, attention first; two at least."""
    each = sorted(dict.fromkeys(kinds), key=lambda kind: "attention" not in kind)
    each += ["full_attention"] if each == ["linear_attention"] else []
    return (each * 2)[: max(2, len(each) if len(each) < 4 else 2)]


def _sections(config: Any) -> None:
    """Parts of a head that are turned by time, height and width have to fill half of it."""
    rope = getattr(config, "rope_parameters", None)
    if not isinstance(rope, dict) or "mrope_section" not in _source(config):
        return
    heads = getattr(config, "num_attention_heads", None) or 4
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    share = rope.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None)
    half = int(dim * (share or 1)) // 2
    rope["mrope_section"] = [half - 2 * (half // 3), half // 3, half // 3]


def _source(config: Any) -> str:
    try:
        return inspect.getsource(_modeling(config))
    except (ImportError, OSError):
        return ""


def _modeling(config: Any) -> Any:
    """The module that has a configuration's classes."""
    return importlib.import_module(type(config).__module__.replace(".configuration_", ".modeling_"))


def classes_of(config: Any, transformers: Any) -> list[Any]:
    """The classes that a configuration makes: the one that is registered, or those beside it."""
    mapping = transformers.AutoModel._model_mapping
    if type(config) in mapping:
        found = mapping[type(config)]
        return list(found) if isinstance(found, tuple | list) else [found]
    try:
        beside = _modeling(config)
    except ImportError:
        return []
    found = [
        each
        for name, each in vars(beside).items()
        if inspect.isclass(each)
        and issubclass(each, transformers.PreTrainedModel)
        and each.__module__ == beside.__name__
        and getattr(each, "config_class", None) is type(config)
        and not name.endswith("PreTrainedModel")
    ]
    return sorted(found, key=lambda each: not each.__name__.endswith("Model"))[:3]


def fitted(config: Any, make: Any, transformers: Any) -> None:
    """Shrink what makes the largest parameters, until a model is small.

    Raises:
        ValueError: nothing in its configuration says how large it is.
    """
    number = 0
    for _ in range(12):
        with torch.device("meta"):
            sizes = [p.shape for p in make(config).parameters()]
        number = sum(shape.numel() for shape in sizes)
        if number <= LARGEST:
            return
        largest = max(sizes, key=lambda shape: shape.numel())
        if not any(_lower(config, size, transformers) for size in sorted(largest, reverse=True)):
            break
    raise ValueError(f"it has {number:,} parameters")


def _lower(config: Any, size: int, transformers: Any) -> bool:
    """Set each number of a configuration that makes this size to a small one."""
    for times in (1, 2, 3, 4, 6, 8):
        if size // times <= WIDE:
            return False
        names = [n for n, v in vars(config).items() if type(v) is int and v == size / times]
        for name in names:
            _set(config, name, 64)
        parts = [
            _lower(x, size // times, transformers) for _, x in sub_configs(config, transformers)
        ]
        if names or any(parts):
            return True
    return False

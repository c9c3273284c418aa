"""A model of transformers with random weights, so small that it can be examined in seconds."""

import difflib
import importlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["tiny_model"]

# What configurations call their sizes. Heads stay several, and grouped where a model groups them.
SIZES = {
    2: "num_hidden_layers num_layers n_layer n_layers num_decoder_layers num_encoder_layers "
    "encoder_layers decoder_layers num_key_value_heads num_experts_per_tok",
    4: "num_attention_heads num_heads n_head n_heads encoder_attention_heads "
    "decoder_attention_heads num_experts num_local_experts n_routed_experts",
    8: "head_dim d_kv patch_size qk_rope_head_dim qk_nope_head_dim v_head_dim",
    16: "kv_lora_rank q_lora_rank moe_intermediate_size hidden_size_per_layer_input",
    32: "hidden_size d_model n_embd dim embedding_size emb_dim image_size projection_dim "
    "word_embed_proj_dim",
    48: "intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim hidden_dim n_inner "
    "ffn_hidden_size",
    97: "vocab_size vocab_size_per_layer_input",
    256: "max_position_embeddings",
    0: "pad_token_id",
    1: "bos_token_id n_group topk_group",
    3: "eos_token_id",
}
LARGEST = 30_000_000  # parameters; more than this wasn't shrunk


def tiny_model(of: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model of transformers, shrunk, and inputs for it.

    Every kind of layer that the configuration has is kept once; widths, heads and vocabularies
    become small; weights are random, the same in each call.

    Args:
        of: a name of transformers' configurations, as ``"qwen3"``, or the path of a
            ``config.json``.

    Returns:
        The model, in evaluation mode, and two sequences of 11 tokens, or two pictures.

    Raises:
        ImportError: transformers isn't installed.
        ValueError: there is no such configuration, or its model can't be built so small.

    Examples:
        >>> model, inputs = tiny_model("gpt2")
        >>> type(model).__name__, {name: tuple(x.shape) for name, x in inputs.items()}
        ('GPT2Model', {'input_ids': (2, 11)})
    """
    transformers: Any = importlib.import_module("transformers")
    config = _config(of, transformers)
    _shrink(config, transformers)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            with torch.device("meta"):
                number = sum(
                    p.numel() for p in transformers.AutoModel.from_config(config).parameters()
                )
            if number > LARGEST:
                raise ValueError(f"it has {number:,} parameters")
            model: nn.Module = transformers.AutoModel.from_config(config).eval()
        except Exception as error:  # whatever somebody else's class may raise
            told = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            raise ValueError(f"no small model of {of!r} can be built: {told}") from error
        return model, _inputs(model, config)


def _config(of: str, transformers: Any) -> Any:
    path = Path(of)
    if path.suffix == ".json":
        if not path.is_file():
            raise ValueError(f"no configuration {of!r}: there is no such file")
        told = json.loads(path.read_text(encoding="utf-8"))
        kind = told.get("model_type")
        if kind not in transformers.CONFIG_MAPPING:
            raise ValueError(f"{of} must name a model_type of transformers, got {kind!r}")
        return transformers.CONFIG_MAPPING[kind].from_dict(told)
    if of not in transformers.CONFIG_MAPPING:
        near = difflib.get_close_matches(of, transformers.CONFIG_MAPPING, n=3, cutoff=0.5)
        told = f"; like it: {', '.join(near)}" if near else ""
        raise ValueError(f"no configuration {of!r} in transformers{told}")
    return transformers.CONFIG_MAPPING[of]()


def _shrink(config: Any, transformers: Any) -> None:
    told = config.to_dict()
    # Latent attention has as many heads of keys as of queries.
    sizes = {name: size for size, names in SIZES.items() for name in names.split()}
    sizes |= {"num_key_value_heads": 4} if "kv_lora_rank" in told else {}
    for name, size in sizes.items():
        if name in told and isinstance(told[name], int | None):
            setattr(config, name, size)
    if isinstance(kinds := told.get("layer_types"), list):
        config.layer_types = (list(dict.fromkeys(kinds)) * 2)[:2]
    for value in list(vars(config).values()):
        if isinstance(value, transformers.PretrainedConfig):
            _shrink(value, transformers)


def _inputs(model: Any, config: Any) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    name = model.main_input_name
    if name == "pixel_values":
        channels = getattr(config, "num_channels", None) or 3
        return {name: torch.randn(2, channels, 32, 32, generator=draw)}
    if name != "input_ids":
        raise ValueError(f"no inputs for {type(model).__name__} are known here: it takes {name}")
    inputs = {name: torch.randint(4, 97, (2, 11), generator=draw)}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(4, 97, (2, 7), generator=draw)
    return inputs

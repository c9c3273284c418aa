"""The same attention layer by others: other libraries' layers and two written by hand.

Each function takes a `MultiHeadAttention` and returns a module that maps ``(B, L, E)`` to the same
``(B, L, E)``, with copies of its weights. Tests compare the outputs; benchmarks then compare the
times. Nothing is downloaded: the layers are built from sizes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from mhattn import Alibi, MultiHeadAttention, Rotary

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported


class Peer(nn.Module):
    """A layer, and how it is called to get the output alone."""

    def __init__(self, layer: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.layer, x)


class ByHand(nn.Module):
    """One product for query, key and value, and ``attend`` between it and the last one."""

    def __init__(self, ours: MultiHeadAttention, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        theirs = ours.to_torch()
        self.num_heads, self.attend = ours.num_heads, attend
        self.in_weight, self.in_bias = theirs.in_proj_weight, theirs.in_proj_bias
        self.out_proj = theirs.out_proj

    def forward(self, x: Tensor) -> Tensor:
        projected = F.linear(x, self.in_weight, self.in_bias).chunk(3, dim=-1)  # (B, L, E) each
        heads = (y.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for y in projected)
        return self.out_proj(self.attend(*heads).transpose(1, 2).flatten(-2))


def written_out(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    """The formula as it stands: every step makes a new table."""
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(dim=-1) @ value


def sdpa(ours: MultiHeadAttention, *, is_causal: bool = False) -> nn.Module:
    def attend(*heads: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*heads, is_causal=is_causal)

    return ByHand(ours, attend)


def naive(ours: MultiHeadAttention, *, is_causal: bool = False) -> nn.Module:
    return ByHand(ours, lambda *heads: written_out(*heads, is_causal=is_causal))


def flex(ours: MultiHeadAttention) -> nn.Module:
    """Compiled for each shape by itself; on a CPU it has no backward pass.

    Its heads are copied into one piece: several times as fast as on views with 4096 tokens.
    """
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return ByHand(ours, lambda *heads: compiled(*(x.contiguous() for x in heads)))


def torch_module(
    ours: MultiHeadAttention, *, is_causal: bool = False, mask: Tensor | None = None
) -> nn.Module:
    """Its masks say what is hidden; ``mask`` is a padding mask ``(B, 1, 1, S)``."""
    options: dict[str, Any] = {"need_weights": False}

    def call(layer: nn.Module, x: Tensor) -> Tensor:
        if is_causal:
            options["attn_mask"] = nn.Transformer.generate_square_subsequent_mask(
                x.shape[1], dtype=x.dtype
            )
        if mask is not None:
            options["key_padding_mask"] = ~mask[:, 0, 0]
        return layer(x, x, x, is_causal=is_causal, **options)[0]

    return Peer(ours.to_torch(), call)


def _config(kind: type, implementation: str, **options: Any) -> Any:
    config = kind(attn_implementation=implementation, **options)
    got = config._attn_implementation
    if got != implementation:
        raise ValueError(f"transformers must attend by {implementation!r}, got {got!r}")
    return config


def _additive(mask: Tensor | None, x: Tensor) -> Tensor | None:
    """As their eager form wants a mask; SDPA takes it as well."""
    if mask is None:
        return None
    expanded = mask.expand(x.shape[0], 1, x.shape[1], -1)
    return torch.zeros_like(expanded, dtype=x.dtype).masked_fill(~expanded, float("-inf"))


def _causal(x: Tensor) -> Tensor:
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()[None, None]


def bert(
    ours: MultiHeadAttention, implementation: str = "sdpa", *, mask: Tensor | None = None
) -> nn.Module:
    """BERT's self-attention and the projection behind it; the norm after that is left out."""
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertAttention

    sizes = {"hidden_size": ours.embed_dim, "num_attention_heads": ours.num_heads}
    sizes["attention_probs_dropout_prob"] = ours.dropout
    layer = BertAttention(_config(BertConfig, implementation, **sizes)).to(_dtype(ours))
    names = {"q_proj": "self.query", "k_proj": "self.key", "v_proj": "self.value"}
    _copy(ours, layer, names | {"out_proj": "output.dense"})
    layer.output.LayerNorm = None

    def call(layer: nn.Module, x: Tensor) -> Tensor:
        return layer.output.dense(layer.self(x, _additive(mask, x))[0])

    return Peer(layer.train(ours.training), call)


def gpt2(ours: MultiHeadAttention, implementation: str = "sdpa") -> nn.Module:
    """Causal; one product for query, key and value, its matrix transposed."""
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    dropout = {"attn_pdrop": ours.dropout, "resid_pdrop": 0.0}
    sizes = {"n_embd": ours.embed_dim, "n_head": ours.num_heads}
    config = _config(GPT2Config, implementation, **sizes, **dropout)
    layer = GPT2Attention(config, layer_idx=0).to(_dtype(ours))
    theirs = ours.to_torch()
    pairs = {
        "c_attn.weight": theirs.in_proj_weight.T,
        "c_attn.bias": theirs.in_proj_bias,
        "c_proj.weight": theirs.out_proj.weight.T,
        "c_proj.bias": theirs.out_proj.bias,
    }
    layer.load_state_dict(pairs)

    def call(layer: nn.Module, x: Tensor) -> Tensor:
        mask = _additive(_causal(x), x) if implementation == "eager" else None
        return layer(x, attention_mask=mask)[0]

    return Peer(layer.train(ours.training), call)


def llama(ours: MultiHeadAttention, implementation: str = "sdpa") -> nn.Module:
    """Causal, with grouped heads and rotary positions."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    if not isinstance(ours.position, Rotary):
        raise TypeError(f"ours must have a Rotary position, got {type(ours.position).__name__}")
    config = _config(
        LlamaConfig,
        implementation,
        hidden_size=ours.embed_dim,
        num_attention_heads=ours.num_heads,
        num_key_value_heads=ours.num_kv_heads,
        head_dim=ours.head_dim,
        attention_dropout=ours.dropout,
        attention_bias=ours.q_proj.bias is not None,
        rope_parameters={"rope_type": "default", "rope_theta": ours.position.base},
    )
    layer = LlamaAttention(config, layer_idx=0).to(_dtype(ours))
    names = {name: name for name in ("q_proj", "k_proj", "v_proj")}
    _copy(ours, layer, names | {"out_proj": "o_proj"})
    rotary = LlamaRotaryEmbedding(config)

    def call(layer: nn.Module, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[1])[None]
        mask = _additive(_causal(x), x) if implementation == "eager" else None
        return layer(x, rotary(x, positions), mask)[0]

    return Peer(layer.train(ours.training), call)


def llama_from_gguf(path: Path) -> nn.Module:
    """The whole model, with the sizes and weights that transformers finds in the file."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    sizes = load_gguf_checkpoint(str(path))["config"]
    model = LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation="eager"))
    found = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    model.load_state_dict(found["tensors"], strict=False)  # all but the output, which is tied
    model.tie_weights()
    return model.requires_grad_(False).eval()


def x_transformers(
    ours: MultiHeadAttention,
    *,
    flash: bool = False,
    is_causal: bool = False,
    mask: Tensor | None = None,
) -> nn.Module:
    """Three conventions differ, so rows of the weights move.

    Its query head ``i`` uses key head ``i % H_kv``, and its rotary turns feature ``2 i`` together
    with ``2 i + 1``. It has no biases of its own and is given ours.
    """
    with warnings.catch_warnings():  # it still uses torch.jit.script
        warnings.simplefilter("ignore", DeprecationWarning)
        from x_transformers.x_transformers import AlibiPositionalBias, Attention, RotaryEmbedding

    layer = Attention(
        ours.embed_dim,
        dim_head=ours.head_dim,
        heads=ours.num_heads,
        kv_heads=ours.num_kv_heads,
        causal=is_causal,
        dropout=ours.dropout,
        flash=flash,
    ).to(_dtype(ours))
    names = {"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "out_proj": "to_out"}
    if ours.q_proj.bias is not None:
        for name in names.values():
            proj = layer.get_submodule(name)
            proj.bias = nn.Parameter(proj.weight.new_zeros(proj.out_features))
    _copy(ours, layer, names)
    H, D, group = ours.num_heads, ours.head_dim, ours.num_heads // ours.num_kv_heads
    rows = torch.arange(H * D).view(ours.num_kv_heads, group, D).transpose(0, 1)  # heads move
    _reorder(layer.to_q, rows.flatten())
    layer.to_out.weight.data = layer.to_out.weight[:, rows.flatten()]
    options: dict[str, Any] = {}
    if isinstance(ours.position, Rotary):
        pairs = torch.arange(D).view(2, D // 2).T.flatten()  # features move
        for proj in (layer.to_q, layer.to_k):
            heads = torch.arange(0, proj.out_features, D)[:, None]
            _reorder(proj, (heads + pairs).flatten())
        options["rotary"] = RotaryEmbedding(D, base=ours.position.base)
    if isinstance(ours.position, Alibi):
        if group != 1:
            raise ValueError(f"with Alibi, ours must not group its heads, got groups of {group}")
        options["alibi"] = AlibiPositionalBias(H)

    def call(layer: nn.Module, x: Tensor) -> Tensor:
        asked: dict[str, Any] = {"mask": None if mask is None else mask[:, 0, 0]}
        if "rotary" in options:
            asked["rotary_pos_emb"] = options["rotary"].forward_from_seq_len(x.shape[1])
        if "alibi" in options:
            asked["attn_bias"] = options["alibi"](x.shape[1], x.shape[1])
        return layer(x, **asked)

    return Peer(layer.train(ours.training), call)


def _dtype(ours: MultiHeadAttention) -> torch.dtype:
    return ours.out_proj.weight.dtype


def _copy(ours: MultiHeadAttention, theirs: nn.Module, names: dict[str, str]) -> None:
    """The four projections; ``names`` says what each is called there."""
    for our_name, their_name in names.items():
        state = ours.get_submodule(our_name).state_dict()
        theirs.get_submodule(their_name).load_state_dict(state)


@torch.no_grad()
def _reorder(proj: nn.Linear, rows: Tensor) -> None:
    proj.weight.copy_(proj.weight[rows])
    if proj.bias is not None:
        proj.bias.copy_(proj.bias[rows])

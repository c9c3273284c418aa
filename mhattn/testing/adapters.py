"""Attention of other libraries in the form that the doctor calls; no library is imported."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.adapted import Adapted
from mhattn.testing.hub import CACHES, MASKS, MEMORIES, OfTransformers

__all__ = ["adapt"]

PARTS = ("self", "memory")
GIVEN = {"hidden_states", "position_embeddings", "position_ids", *MASKS, *CACHES, *MEMORIES}


def adapt(
    layer: nn.Module,
    *,
    rotary: nn.Module | None = None,
    part: str = "self",
    own_mask: bool = False,
) -> "Adapted":
    """Make a module ``(B, L, E)`` of a layer that another library calls in its own way.

    `check_attention` does this by itself with layers that it recognises by their signatures:
    attention of transformers (``hidden_states``, a mask to be added, positions from outside, a
    tuple back), of x-transformers, and `torch.nn.TransformerDecoderLayer`. Call this where one of
    the arguments below is needed.

    Args:
        layer: the module.
        rotary: the module that computes ``position_embeddings``, or x-transformers'
            ``rotary_pos_emb``. Default: for transformers, the class beside the layer's.
        part: ``"self"``: self-attention; ``"memory"``: queries of one sequence, keys and values
            of another.
        own_mask: whether a causal layer of transformers makes its causal mask itself. Default: it
            is given one, as its model does.

    Returns:
        The module. Its ``how`` is what `check_attention` takes from it, its ``assumed`` the same
        in words.

    Raises:
        TypeError: the layer is no module.
        ValueError: the layer is not of these kinds, ``part`` has another value, or no module for
            its positions is found.

    Examples:
        >>> layer = adapt(nn.TransformerDecoderLayer(24, 3, batch_first=True), part="memory")
        >>> layer.how["inputs"]
        'qk'
        >>> layer(torch.zeros(2, 5, 24), torch.zeros(2, 7, 24)).shape
        torch.Size([2, 5, 24])
    """
    if not isinstance(layer, nn.Module):
        raise TypeError(f"layer must be a module, got {type(layer).__name__}")
    if part not in PARTS:
        raise ValueError(f"part must be one of 'self', 'memory', got {part!r}")
    kind = kind_of(layer)
    if kind is None:
        raise ValueError(
            f"layer must be attention of transformers or x-transformers, or "
            f"nn.TransformerDecoderLayer, got {type(layer).__name__}"
        )
    if kind is OfTransformers:
        return OfTransformers(layer, rotary, part, own_mask)
    return kind(layer, rotary, part)


def kind_of(layer: object) -> Callable[..., "Adapted"] | None:
    """How a layer is adapted; None if it isn't recognised, or needs no adapter."""
    if not isinstance(layer, nn.Module) or isinstance(layer, Adapted):
        return None
    if isinstance(layer, nn.TransformerDecoderLayer):
        return OfTorch
    try:
        # Known by what it takes and not by its class: so no library is loaded, and a class that
        # somebody has derived or copied from it is known as well.
        takes = inspect.signature(layer.forward).parameters
    except (TypeError, ValueError):
        return None
    if {"context", "context_mask", "attn_mask", "rotary_pos_emb"} <= set(takes):
        return OfX
    plain = [p for p in takes.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    required = {p.name for p in plain if p.default is p.empty}
    is_theirs = hasattr(getattr(layer, "config", None), "_attn_implementation")
    if is_theirs and next(iter(takes), "") == "hidden_states" and set(MASKS) & set(takes):
        # A layer that requires more than an adapter can give is left to its caller.
        return OfTransformers if required <= GIVEN else None
    return None


class OfX(Adapted):
    """Attention of x-transformers."""

    def __init__(self, layer: nn.Module, rotary: nn.Module | None, part: str) -> None:
        super().__init__(layer)
        self.rotary, causal = rotary, bool(getattr(layer, "causal", False))
        inner: Any = layer.to_q
        heads: Any = layer.heads
        self.how = {
            "embed_dim": inner.in_features,
            "num_heads": heads,
            "num_kv_heads": getattr(layer, "kv_heads", None) or heads,
            "head_dim": inner.out_features // int(heads),
            "inputs": "x" if causal or rotary is not None or part == "self" else "qk",
            "groups": "tile",
            "causal": causal,
            "mask": "mask",
            "mask_heads": "B,H,L,S",
            "padding": "padding",
            "padding_true": "attend",
            "weights": False,
            "empty_rows": "any",
            "cache": False,
        }
        if rotary is not None:
            self.how |= {"positions": "rotary", "rotary": ("interleaved", 10000.0)}
        what = "cross-attention" if self.how["inputs"] == "qk" else "self-attention"
        self.assumed = [f"{type(layer).__name__} of x-transformers: {what}"]

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> Any:
        """``(B, L, E)``; in both masks True may attend."""
        options: dict[str, Any] = {"attn_mask": mask, "context": memory}
        # Padding hides keys, and the keys are the memory's, if there is one.
        options["mask" if memory is None else "context_mask"] = padding
        if self.rotary is not None:
            rotary: Any = self.rotary
            options["rotary_pos_emb"] = rotary.forward_from_seq_len(x.shape[1])
        found = self.layer(x, **options)
        return found if isinstance(found, Tensor) else found[0]


class OfTorch(Adapted):
    """A block of PyTorch's decoder: one of its two attentions, the other one held fixed."""

    def __init__(self, layer: nn.Module, rotary: nn.Module | None, part: str) -> None:
        super().__init__(layer)
        inner: Any = layer.self_attn
        self.part, self.first = part, bool(inner.batch_first)
        width = int(inner.embed_dim)
        # A buffer, so that it goes with the layer to another type or device.
        self.register_buffer("memory", torch.randn(1, 4, width))
        sizes = {"embed_dim": width, "num_heads": inner.num_heads, "empty_rows": "any"}
        self.how = {**sizes, "mask": False, "causal": False, "padding": "padding", "inputs": "qk"}
        if part == "self":
            self.how |= {"mask": "mask", "mask_true": "ignore", "mask_heads": "B*H,L,S"}
            self.how |= {"inputs": "x"}
        kind = type(layer).__name__
        own = f"{kind}: its own tokens, a fixed memory"
        other = f"{kind}: its memory; each query sees no other query"
        self.assumed = [own if part == "self" else other]

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> Any:
        """``(B, L, E)``; in both masks True hides."""
        fixed: Tensor = self.get_buffer("memory")
        given = fixed.expand(x.shape[0], -1, -1) if memory is None else memory
        if self.part == "memory":
            # True hides. In its self-attention each query sees itself alone: what else moves an
            # output has come from the memory.
            mask = ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
            options: dict[str, Any] = {"tgt_mask": mask, "memory_key_padding_mask": padding}
        else:
            options = {"tgt_mask": mask, "tgt_key_padding_mask": padding}
        if self.first:
            return self.layer(x, given, **options)
        return self.layer(x.transpose(0, 1), given.transpose(0, 1), **options).transpose(0, 1)

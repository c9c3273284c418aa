"""Attention of other libraries in the form that the doctor calls; no library is imported."""

import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.rotations import Turns, rotary_of

__all__ = ["adapt"]

FAR = 64  # a window as wide as this is never reached by the checks' texts
PARTS = ("self", "memory")
MASKS = ("attention_mask", "mask")
CACHES = ("past_key_values", "past_key_value", "layer_past")
MEMORIES = ("key_value_states", "encoder_hidden_states")
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
        takes = inspect.signature(layer.forward).parameters
    except (TypeError, ValueError):
        return None
    if {"context", "context_mask", "attn_mask", "rotary_pos_emb"} <= set(takes):
        return OfX
    plain = [p for p in takes.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    required = {p.name for p in plain if p.default is p.empty}
    is_theirs = hasattr(getattr(layer, "config", None), "_attn_implementation")
    if is_theirs and next(iter(takes), "") == "hidden_states" and set(MASKS) & set(takes):
        return OfTransformers if required <= GIVEN else None
    return None


class Adapted(nn.Module):
    """A layer, what the doctor is told of it, and the same in words."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.how: dict[str, Any] = {}
        self.assumed: list[str] = []


def _number(layer: nn.Module, *names: str, kind: type = int) -> Any:
    """The first of these attributes that is a number, of the layer or of its configuration."""
    for place, name in itertools.product((layer, getattr(layer, "config", None)), names):
        value = getattr(place, name, None)
        if isinstance(value, kind) and not isinstance(value, bool):
            return value
    return None


def visible(
    mask: Tensor | None, length: int, keys: int, *, causal: bool, window: int | None, on: Tensor
) -> Tensor | None:
    """What each query may see, ``(B, H, L, S)`` or what broadcasts to it; None: everything."""
    seen = mask
    if causal:
        triangle = torch.ones(length, keys, dtype=torch.bool, device=on.device).tril(keys - length)
        if window is not None:
            triangle = triangle.triu(keys - length - window + 1)
        seen = triangle if seen is None else seen & triangle
    if seen is None or seen.ndim == 4:
        return seen
    return seen[None, None] if seen.ndim == 2 else seen[:, None]


class OfTransformers(Adapted):
    """Attention of transformers, with its positions, its cache and its form of masks."""

    def __init__(
        self, layer: nn.Module, rotary: nn.Module | None, part: str, own_mask: bool
    ) -> None:
        super().__init__(layer)
        takes = inspect.signature(layer.forward).parameters
        config: Any = layer.config
        self.way = str(config._attn_implementation)
        self.names = {
            "mask": next(n for n in MASKS if n in takes),
            "cache": next((n for n in CACHES if n in takes), None),
            "memory": next((n for n in MEMORIES if n in takes), None),
        }
        self.takes = set(takes)
        self.part = self._part(part, takes)
        self.own_mask = own_mask
        decides = getattr(layer, "is_causal", False) or getattr(layer, "is_decoder", False)
        self.causal = bool(decides) and self.part == "self"
        self.window = self._window(config) if self.causal else None
        self.rotary = rotary
        if "position_embeddings" in takes and self.part == "self":
            self.rotary = rotary or rotary_of(layer)
        flat = [m for m in layer.modules() if type(m).__name__ == "Conv1D"]
        self.contiguous = bool(flat)
        self._tell()

    def _part(self, part: str, takes: Any) -> str:
        needs = [takes[n] for n in MEMORIES if n in takes]
        crossed = bool(getattr(self.layer, "is_cross_attention", False))
        crossed |= "cross" in type(self.layer).__name__.lower()
        crossed |= any(p.default is p.empty for p in needs)
        if part == "memory" and not needs:
            raise ValueError(f"part must be 'self': {type(self.layer).__name__} takes no memory")
        return "memory" if crossed and needs else part

    def _window(self, config: Any) -> int | None:
        if hasattr(self.layer, "sliding_window"):
            found = self.layer.sliding_window
        else:
            kinds = getattr(config, "layer_types", None)
            at = getattr(self.layer, "layer_idx", None) or 0
            slides = kinds is None or kinds[at] == "sliding_attention"
            found = getattr(config, "sliding_window", None) if slides else None
        return found if isinstance(found, int) and found < FAR else None

    def _tell(self) -> None:
        """What `check_attention` is told, and the same in words."""
        layer, config = self.layer, self.layer.config
        heads = _number(layer, "num_heads", "n_heads", "num_attention_heads", "n_head")
        groups = _number(layer, "num_key_value_heads", "num_kv_heads") or heads
        if times := _number(layer, "num_key_value_groups"):
            groups = heads // times
        width = _number(layer, "embed_dim", "hidden_size", "d_model", "dim")
        dim = _number(layer, "head_dim", "attention_head_size", "key_value_proj_dim", "d_kv")
        cached = self.causal and getattr(layer, "layer_idx", None) is not None
        cached = cached and self.names["cache"] is not None and "transformers" in sys.modules
        self.how = {
            "embed_dim": width,
            "num_heads": heads,
            "num_kv_heads": groups if heads % groups == 0 else heads,
            "head_dim": dim or width // heads,
            "inputs": "qk" if self.part == "memory" else "x",
            "causal": self.causal,
            "mask": "mask",
            "mask_heads": "B,H,L,S",
            "padding": False,
            "weights": "need_weights" if self.way == "eager" else False,
            "empty_rows": "any",
            "scale": _number(layer, "scaling", kind=float),
            "window": self.window,
            "sinks": isinstance(getattr(layer, "sinks", None), nn.Parameter),
            "cache": "cache" if cached else False,
            "new_cache": _new_cache if cached else None,
            **self._positions(config).how(),
        }
        self.assumed = list(self._words(cached))

    def _positions(self, config: Any) -> Turns:
        layer, capped = self.layer, "attn_logit_softcapping"
        found = Turns()
        if self.rotary is not None:
            found = Turns.of(self.rotary, layer)
        elif getattr(layer, "has_relative_attention_bias", False):
            found = Turns("relative", is_given=False)
        elif "position_ids" in self.takes and self.part == "self":
            found = Turns("relative")
        if getattr(layer, capped, None) or getattr(config, capped, None):
            found = Turns("relative", is_given=found.is_given)
            self.capped = True
        return found

    def _words(self, cached: bool) -> Iterator[str]:
        kind = type(self.layer).__name__
        what = "cross-attention" if self.part == "memory" else "self-attention"
        yield f"{kind} of transformers ({self.way}): {what}"
        form = "booleans" if self.way == "sdpa" else "floats to be added"
        yield f"{self.names['mask']} is (B, 1, L, S), {form}"
        if self.causal:
            who = (
                "its own, where nothing else is hidden"
                if self.own_mask
                else "given, as its model does"
            )
            yield f"causal; the mask for that is {who}"
        if self.rotary is not None:
            yield f"positions come from {type(self.rotary).__name__}"
        if cached:
            yield f"{self.names['cache']} is a DynamicCache"
        if self.contiguous:
            yield "tokens are contiguous: its Conv1D needs that"
        if getattr(self, "capped", False):
            yield "scores are capped: no formula"

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Any = None,
        need_weights: bool = False,
    ) -> Any:
        """``(B, L, E)``; masks of booleans, True may attend."""
        if mask is not None and mask.dtype != torch.bool:
            raise TypeError(f"mask must be booleans for an adapter, got {mask.dtype}")
        x = x.contiguous() if self.contiguous else x
        before = 0 if cache is None else cache.get_seq_length()
        keys = before + (x if memory is None else memory).shape[1]
        options: dict[str, Any] = {}
        if memory is not None:
            options[str(self.names["memory"])] = memory
        if cache is not None:
            options[str(self.names["cache"])] = cache
        options |= self._placed(x, position_ids, before)
        seen = None
        if not (self.own_mask and mask is None and before == 0):
            seen = visible(mask, x.shape[1], keys, causal=self.causal, window=self.window, on=x)
        name = self.names["mask"]
        crossed = self.part == "memory" and "encoder_attention_mask" in self.takes
        options["encoder_attention_mask" if crossed else str(name)] = self._form(seen, x)
        if need_weights and "output_attentions" in self.takes:
            options["output_attentions"] = True
        found = self.layer(x, **options)
        if isinstance(found, Tensor) or not need_weights:
            return found if isinstance(found, Tensor) else found[0]
        return found[0], [p for p in found if isinstance(p, Tensor) and p.ndim == 4][-1]

    def _placed(self, x: Tensor, ids: Tensor | None, before: int) -> dict[str, Any]:
        if ids is None:
            ids = torch.arange(before, before + x.shape[1], device=x.device)
        ids = (ids if ids.ndim == 2 else ids[None]).expand(x.shape[0], -1)
        if self.rotary is not None:
            return {"position_embeddings": self.rotary(x, ids)}
        return {"position_ids": ids} if "position_ids" in self.takes else {}

    def _form(self, seen: Tensor | None, x: Tensor) -> Tensor | None:
        if seen is None:
            return None
        seen = seen.expand(x.shape[0], -1, -1, -1)
        if self.way == "sdpa":
            return seen
        zeros = torch.zeros(seen.shape, dtype=x.dtype, device=x.device)
        return zeros.masked_fill(~seen, torch.finfo(x.dtype).min)


def _new_cache() -> Any:
    return sys.modules["transformers"].DynamicCache()


class OfX(Adapted):
    """Attention of x-transformers."""

    def __init__(self, layer: nn.Module, rotary: nn.Module | None, part: str) -> None:
        super().__init__(layer)
        self.rotary, causal = rotary, bool(getattr(layer, "causal", False))
        inner: Any = layer.to_q
        self.how = {
            "embed_dim": inner.in_features,
            "num_heads": layer.heads,
            "num_kv_heads": getattr(layer, "kv_heads", None) or layer.heads,
            "head_dim": inner.out_features // int(_number(layer, "heads")),
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
        self.register_buffer("memory", torch.randn(1, 4, width))
        sizes = {"embed_dim": width, "num_heads": inner.num_heads, "empty_rows": "any"}
        self.how = {**sizes, "mask": False, "causal": False, "padding": "padding", "inputs": "qk"}
        if part == "self":
            self.how |= {"mask": "mask", "mask_true": "ignore", "mask_heads": "B*H,L,S"}
            self.how |= {"inputs": "x"}
        fixed = "its own tokens, a fixed memory"
        what = fixed if part == "self" else "its memory; each query sees no other query"
        self.assumed = [f"{type(layer).__name__}: {what}"]

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> Any:
        """``(B, L, E)``; in both masks True hides."""
        given = self.memory.expand(x.shape[0], -1, -1) if memory is None else memory
        if self.part == "memory":
            mask = ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
            options: dict[str, Any] = {"tgt_mask": mask, "memory_key_padding_mask": padding}
        else:
            options = {"tgt_mask": mask, "tgt_key_padding_mask": padding}
        if self.first:
            return self.layer(x, given, **options)
        return self.layer(x.transpose(0, 1), given.transpose(0, 1), **options).transpose(0, 1)

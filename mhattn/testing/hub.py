"""Attention of transformers as the doctor calls it; the library is not imported."""

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.adapted import Adapted, number, visible
from mhattn.testing.rotations import Turns, rotary_of, turned_at

__all__: list[str] = []

FAR = 64  # a window as wide as this is never reached by the checks' texts
MASKS = ("attention_mask", "mask")
CACHES = ("past_key_values", "past_key_value", "layer_past")
MEMORIES = ("key_value_states", "encoder_hidden_states")


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
        self.rotary: nn.Module | None = rotary
        if "position_embeddings" in takes and self.part == "self":
            self.rotary = rotary or rotary_of(layer)
        # GPT-2's Conv1D flattens by view, which a transposed tensor refuses.
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
        found: Any
        # A layer's own window, None included, is right even if the model has windows elsewhere.
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
        layer: Any = self.layer
        heads = number(layer, "num_heads", "n_heads", "num_attention_heads", "n_head")
        groups = number(layer, "num_key_value_heads", "num_kv_heads") or heads
        if times := number(layer, "num_key_value_groups"):
            groups = heads // times
        width = number(layer, "embed_dim", "hidden_size", "d_model", "dim")
        dim = number(layer, "head_dim", "attention_head_size", "key_value_proj_dim", "d_kv")
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
            "scale": number(layer, "scaling", kind=float),
            "window": self.window,
            "sinks": isinstance(getattr(layer, "sinks", None), nn.Parameter),
            "cache": "cache" if cached else False,
            "new_cache": _new_cache if cached else None,
            "cap": number(layer, "attn_logit_softcapping", kind=float),
            **self._positions().how(),
        }
        self.assumed = list(self._words(cached))

    def _positions(self) -> Turns:
        layer, found = self.layer, Turns()
        if self.rotary is not None:
            found = Turns.of(self.rotary, layer)
        elif getattr(layer, "has_relative_attention_bias", False):
            found = Turns("relative", is_given=False)
        elif "position_ids" in self.takes and self.part == "self":
            found = Turns("relative")
        return found

    def _words(self, cached: bool) -> Iterator[str]:
        kind = type(self.layer).__name__
        what = "cross-attention" if self.part == "memory" else "self-attention"
        way = "attn_implementation unset: eager" if self.way == "None" else self.way
        yield f"{kind} of transformers ({way}): {what}"
        form = "booleans" if self.way == "sdpa" else "floats to be added"
        yield f"{self.names['mask']} is (B, 1, L, S), {form}"
        if self.causal:
            who = (
                "its own, where nothing else is hidden"
                if self.own_mask
                else "given, as its model does"
            )
            yield f"it is causal; the mask for that is {who}"
        if self.rotary is not None:
            yield f"positions come from {type(self.rotary).__name__}"
        if cached:
            yield f"{self.names['cache']} is a DynamicCache"
        if self.contiguous:
            yield "tokens are contiguous: its Conv1D needs that"

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
            return {"position_embeddings": turned_at(self.rotary, self.layer, x, ids)}
        return {"position_ids": ids} if "position_ids" in self.takes else {}

    def _form(self, seen: Tensor | None, x: Tensor) -> Tensor | None:
        if seen is None:
            return None
        seen = seen.expand(x.shape[0], -1, -1, -1)
        # PyTorch's kernel takes booleans; code that adds the mask to its scores needs floats.
        if self.way == "sdpa":
            return seen
        zeros = torch.zeros(seen.shape, dtype=x.dtype, device=x.device)
        return zeros.masked_fill(~seen, torch.finfo(x.dtype).min)


def _new_cache() -> Any:
    # Whoever made the layer has loaded the library.
    return sys.modules["transformers"].DynamicCache()

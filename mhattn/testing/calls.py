"""How a layer is called: one form for the checks, whatever the layer's arguments are named."""

import copy
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Calls", "Out", "Skip", "Subject", "describe"]

NAMES = {
    "causal": ("is_causal", "causal"),
    "mask": ("attn_mask", "attention_mask", "mask", "src_mask"),
    "padding": ("key_padding_mask", "padding_mask", "src_key_padding_mask"),
    "weights": ("need_weights", "return_weights", "return_attention", "output_attentions"),
    "documents": ("documents", "document_ids", "doc_ids", "segment_ids", "sequence_ids"),
    "position_ids": ("position_ids", "positions"),
    "cache": ("cache", "kv_cache", "past_key_value", "past_key_values", "layer_past", "past"),
}
SIZES = {
    "embed_dim": ("embed_dim", "d_model", "hidden_size", "dim", "E", "n_embd", "d", "width"),
    "num_heads": (
        "num_heads",
        "nhead",
        "n_heads",
        "n_head",
        "heads",
        "num_attention_heads",
        "H",
        "h",
    ),
    "num_kv_heads": (
        "num_kv_heads",
        "num_key_value_heads",
        "n_kv_heads",
        "kv_heads",
        "n_kv_head",
        "G",
    ),
    "head_dim": ("head_dim", "d_head", "d_k", "dim_head", "D"),
}


class Skip(Exception):  # noqa: N818
    """Why a check cannot be made on this layer."""


@dataclass(frozen=True)
class Calls:
    """How a layer is called and what it promises; `check_attention` explains each."""

    embed_dim: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    form: str | None = None
    batch_first: bool = True
    inputs: str | None = None
    causal: bool | str | None = None
    corner: str | None = "lower right"
    mask: str | bool | None = None
    mask_true: str = "attend"
    mask_heads: str | None = None
    padding: str | bool | None = None
    padding_true: str = "ignore"
    empty_rows: str = "finite"
    weights: str | bool | dict[str, Any] | None = None
    cache: str | bool | None = None
    new_cache: Callable[[], Any] | None = None
    documents: str | bool | None = None
    positions: str | None = None
    position_ids: str | bool | None = None
    rotary: tuple[str, float] = ("halves", 10000.0)
    scale: float | None = None
    window: int | None = None
    sinks: bool = False
    dtype: torch.dtype = torch.float32
    device: str | torch.device = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        allowed = {
            "form": (None, "layer", "heads"),
            "inputs": (None, "x", "qk", "qkv"),
            "corner": (None, "lower right", "upper left"),
            "mask_true": ("attend", "ignore", "add"),
            "padding_true": ("attend", "ignore"),
            "mask_heads": (None, "B,H,L,S", "B*H,L,S"),
            "empty_rows": ("finite", "zeros", "any"),
            "positions": (None, "rotary", "relative", "absolute"),
        }
        for name, values in allowed.items():
            if (value := getattr(self, name)) not in values:
                said = ", ".join(map(repr, values))
                raise ValueError(f"{name} must be one of {said}, got {value!r}")
        for name in ("embed_dim", "num_heads", "num_kv_heads", "head_dim", "window"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if self.rotary[0] not in ("halves", "interleaved"):
            raise ValueError(f"rotary must begin with halves or interleaved, got {self.rotary!r}")
        if not self.dtype.is_floating_point:
            raise TypeError(f"dtype must be a type of floats, got {self.dtype}")


@dataclass
class Out:
    """What a call gave: output ``(B, L, E)`` or ``(B, H, L, D)``, weights ``(B, H, L, S)``, cache."""

    output: Tensor
    weights: Tensor | None = None
    cache: Any = None


KNOWN: list[tuple[Any, dict[str, Any]]] = [
    (F.scaled_dot_product_attention, {
        "form": "heads", "inputs": "qkv", "causal": "is_causal", "corner": "upper left", "mask": "attn_mask",
        "mask_heads": "B,H,L,S", "padding": False, "weights": False, "cache": False,
        "documents": False, "position_ids": False, "empty_rows": "any",
    }),
    (nn.MultiheadAttention, {
        "inputs": "qkv", "mask": "attn_mask", "mask_true": "ignore", "mask_heads": "B*H,L,S",
        "padding": "key_padding_mask", "padding_true": "ignore", "causal": False, "empty_rows": "any",
        "weights": {"need_weights": True, "average_attn_weights": False},
    }),
    (nn.TransformerEncoderLayer, {
        "inputs": "x", "mask": "src_mask", "mask_true": "ignore", "mask_heads": "B*H,L,S", "causal": False,
        "padding": "src_key_padding_mask", "padding_true": "ignore", "empty_rows": "any",
    }),
]  # fmt: skip


def describe(layer: Callable[..., Any], calls: Calls) -> Calls:
    """Fill in what the caller has not said, from the class, the signature and the sizes."""
    given = {f.name: getattr(calls, f.name) for f in fields(calls)}
    default = Calls()
    said = {name for name, value in given.items() if value != getattr(default, name)}
    for known, options in KNOWN:
        if layer is known or (isinstance(known, type) and isinstance(layer, known)):
            given |= {name: value for name, value in options.items() if name not in said}
    if isinstance(layer, nn.Module):
        given["batch_first"] = _batch_first(layer, given, said)
        for name in SIZES:
            given[name] = given[name] or _size(layer, name)
    given["form"] = given["form"] or ("layer" if isinstance(layer, nn.Module) else "heads")
    if given["form"] == "layer" and not given["embed_dim"]:
        given["embed_dim"] = _width(layer) or 24
    if given["form"] == "layer" and not given["num_heads"]:
        raise ValueError("num_heads must be given: the layer doesn't say it")
    given["num_heads"] = given["num_heads"] or 3
    given["num_kv_heads"] = given["num_kv_heads"] or given["num_heads"]
    if given["num_heads"] % given["num_kv_heads"]:
        raise ValueError(
            f"num_kv_heads must divide num_heads, {given['num_heads']}, got {given['num_kv_heads']}"
        )
    width = given["embed_dim"] or 8 * given["num_heads"]
    given["head_dim"] = given["head_dim"] or width // given["num_heads"]
    given["embed_dim"] = given["embed_dim"] or given["head_dim"] * given["num_heads"]
    takes, required = _signature(layer)
    for name, options in NAMES.items():
        if given[name] is None:
            given[name] = next((option for option in options if option in takes), False)
    if given["inputs"] is None:
        first = required[:3]
        many = len(first) == 3 or takes[1:3] == ["key", "value"] or takes[1:3] == ["k", "v"]
        two = takes[1:2] and takes[1] in ("memory", "context", "kv", "encoder_hidden_states")
        given["inputs"] = "qkv" if many or given["form"] == "heads" else "qk" if two else "x"
    return Calls(**given)


def _signature(layer: Callable[..., Any]) -> tuple[list[str], list[str]]:
    try:
        asked = inspect.signature(layer.forward if isinstance(layer, nn.Module) else layer)
    except (TypeError, ValueError):
        return [], []
    plain = [
        p for p in asked.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    return [p.name for p in plain], [p.name for p in plain if p.default is p.empty]


def _batch_first(layer: nn.Module, given: dict[str, Any], said: set[str]) -> bool:
    if "batch_first" in said:
        return bool(given["batch_first"])
    found = getattr(layer, "batch_first", None)
    if found is None and isinstance(inner := getattr(layer, "self_attn", None), nn.Module):
        found = getattr(inner, "batch_first", None)
    return True if found is None else bool(found)


def _size(layer: nn.Module, name: str) -> int | None:
    config = getattr(layer, "config", None)
    inner = getattr(layer, "self_attn", None)
    for place in (layer, config, inner):
        for option in SIZES[name]:
            if isinstance(value := getattr(place, option, None), int) and value > 0:
                return value
    return None


def _width(layer: Callable[..., Any]) -> int | None:
    if not isinstance(layer, nn.Module):
        return None
    return next((m.in_features for m in layer.modules() if isinstance(m, nn.Linear)), None)


UNSET: Any = object()


@dataclass
class Subject:
    """A copy of a layer, called in one form: batch first, masks True where a query may attend."""

    layer: Callable[..., Any]
    calls: Calls
    forms: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, layer: Callable[..., Any], calls: Calls) -> "Subject":
        """Copy the layer if it is a module, so that the caller's own stays as it is."""
        calls = describe(layer, calls)
        if isinstance(layer, nn.Module):
            layer = copy.deepcopy(layer).to(calls.device, calls.dtype).eval()
        return cls(layer, calls)

    def in_dtype(self, dtype: torch.dtype) -> "Subject":
        """The same layer in another type of floats."""
        layer = self.layer
        if isinstance(layer, nn.Module):
            layer = copy.deepcopy(layer).to(dtype)
        return Subject(layer, replace(self.calls, dtype=dtype), self.forms)

    @property
    def is_heads(self) -> bool:
        return self.calls.form == "heads"

    @property
    def takes_two(self) -> bool:
        """Whether queries and keys may come from two sequences."""
        return self.calls.inputs != "x"

    @property
    def tolerance(self) -> float:
        """How far outputs of size one may differ by rounding."""
        return {torch.float64: 1e-9, torch.float32: 2e-4}.get(self.calls.dtype, 0.06)

    def train(self, on: bool = True) -> None:
        if isinstance(self.layer, nn.Module):
            self.layer.train(on)

    def draw(self, *lengths: int, batch: int = 3, seed: int = 0, size: float = 1.0) -> list[Tensor]:
        """Queries, keys and values of two lengths, or for one length one input three times."""
        c = self.calls
        source = torch.Generator().manual_seed(1000 * c.seed + seed)
        long = [lengths[0], lengths[-1], lengths[-1]]

        def tensor(length: int, heads: int) -> Tensor:
            shape = (
                (batch, heads, length, c.head_dim or 1)
                if self.is_heads
                else (batch, length, c.embed_dim)
            )
            x = torch.randn(shape, generator=source, dtype=torch.float64) * size
            return x.to(c.device, c.dtype)

        heads = [c.num_heads or 1, c.num_kv_heads or 1, c.num_kv_heads or 1]
        if self.is_heads or len(lengths) == 2:
            return [tensor(*each) for each in zip(long, heads, strict=True)]
        return [tensor(lengths[0], 1)] * 3

    def __call__(self, *inputs: Tensor, seed: int = 0, **asked: Any) -> Out:
        """Call the layer; ``asked`` may have causal, mask, padding, weights, cache and others."""
        torch.manual_seed(seed)
        return self._read(self.raw(*inputs, **asked), asked)

    def raw(self, *inputs: Tensor, **asked: Any) -> Any:
        """What the layer itself returns."""
        c = self.calls
        query, key, value = inputs if len(inputs) == 3 else (inputs[0],) * 3
        if not self.is_heads and not c.batch_first:
            same = key is query
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
            key, value = (query, query) if same else (key, value)
        tensors = {"x": (query,), "qk": (query, key), "qkv": (query, key, value)}[str(c.inputs)]
        return self.layer(*tensors, **self._options(asked, query, key))

    def _options(self, asked: dict[str, Any], query: Tensor, key: Tensor) -> dict[str, Any]:
        c, options = self.calls, dict[str, Any]()
        if asked.get("causal") and isinstance(c.causal, str):
            options[c.causal] = True
        if (mask := asked.get("mask")) is not None:
            options[str(c.mask)] = self._mask(mask)
        if (real := asked.get("padding")) is not None:
            options[str(c.padding)] = real if c.padding_true == "attend" else ~real
        if asked.get("weights") and c.weights:
            options |= c.weights if isinstance(c.weights, dict) else {str(c.weights): True}
        if "cache" in asked:
            options[str(c.cache)] = asked["cache"]
        for name in ("documents", "position_ids"):
            if asked.get(name) is not None:
                options[str(getattr(c, name))] = asked[name]
        if self.is_heads and c.num_kv_heads != c.num_heads and "enable_gqa" in self._takes():
            options["enable_gqa"] = True
        return options

    def _takes(self) -> list[str]:
        sdpa = self.layer is F.scaled_dot_product_attention
        return ["enable_gqa"] if sdpa else _signature(self.layer)[0]

    def _mask(self, mask: Tensor) -> Tensor:
        """A mask of booleans as the layer wants it."""
        how, heads = self.calls.mask_true, mask.ndim == 4 and mask.shape[1] > 1
        if mask.dtype == torch.bool:
            if how == "ignore":
                mask = ~mask
            elif how == "add":
                least = torch.finfo(self.calls.dtype).min
                mask = torch.zeros(
                    mask.shape, dtype=self.calls.dtype, device=mask.device
                ).masked_fill(~mask, least)
        if self.calls.mask_heads == "B*H,L,S" and mask.ndim == 4:
            return mask.expand(-1, self.calls.num_heads, -1, -1).flatten(0, 1)
        if mask.ndim == 2 and self.forms.get("mask") == "B,1,L,S":
            return mask[None, None]
        if mask.ndim == 4 and not heads and self.forms.get("mask of a batch") == "B,L,S":
            return mask[:, 0]
        return mask

    def _read(self, found: Any, asked: dict[str, Any]) -> Out:
        parts = [found] if isinstance(found, Tensor) else list(found)
        output = parts[0]
        if not isinstance(output, Tensor):
            raise TypeError(
                f"the first thing that the layer returns must be a tensor, got {type(output)}"
            )
        if not self.is_heads and not self.calls.batch_first:
            output = output.transpose(0, 1)
        weights = None
        if asked.get("weights"):
            weights = next(
                (p for p in parts[1:] if isinstance(p, Tensor) and p.ndim in (3, 4)), None
            )
        cache = asked.get("cache")
        if "cache" in asked:
            others = [part for part in parts[1:] if part is not None and part is not weights]
            cache = others[-1] if others else cache
        return Out(output, weights, cache)

    def new_cache(self) -> Any:
        return self.calls.new_cache() if self.calls.new_cache else None

    def scale(self) -> float:
        return (
            1 / math.sqrt(self.calls.head_dim or 1)
            if self.calls.scale is None
            else self.calls.scale
        )

"""How a layer is called: one form for the checks, whatever the layer's arguments are named."""

import functools
import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from mhattn.testing.adapted import Adapted

__all__ = ["Calls"]

# The first of these names that a layer takes is the argument; what has another one is said by
# keyword.
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


@dataclass(frozen=True)
class Calls:
    """How a layer is called, and what it promises.

    Attributes:
        embed_dim: width of a token. Default: the layer's own.
        num_heads: heads of the queries. Default: the layer's own.
        num_kv_heads: heads of keys and values. Default: ``num_heads``.
        head_dim: width of a head. Default: ``embed_dim / num_heads``.
        form: ``"layer"``, ``(B, L, E)`` in and out, or ``"heads"``, a function of ``(B, H, L, D)``.
        batch_first: whether a layer takes ``(B, L, E)``, or ``(L, B, E)``.
        inputs: ``"x"`` one tensor, ``"qk"`` a sequence and a memory, ``"qkv"`` three, in this
            order or another, as ``"vkq"``.
        outputs: number of outputs, if the layer has learned queries of its own. Default: one for
            each query that it is given.
        causal: True always, False never, or the name of the argument that makes it so.
        corner: ``"lower right"`` or ``"upper left"``, if queries are fewer than keys: they are the
            last of the text, or the first; None: any.
        mask: name of the argument, ``(L, S)`` and what broadcasts; False: takes none.
        mask_true: what True means in it, ``"attend"`` or ``"ignore"``; ``"add"`` for floats.
        mask_heads: ``"B,H,L,S"`` or ``"B*H,L,S"``, if each head may have its own.
        padding: name of the argument, ``(B, S)``; False: takes none.
        padding_true: what True means in it, ``"attend"`` or ``"ignore"``.
        empty_rows: what a query that sees nothing may get: ``"finite"`` numbers, ``"zeros"``,
            ``"any"``. Default: NaN in its own output is a note.
        weights: what to pass for weights to come back: a name, or a dictionary.
        cache: name of the argument. The layer returns ``(output, ..., cache)``, or changes it.
        new_cache: makes an empty cache. Default: None is passed.
        documents: name of the argument with each token's document, integers ``(B, L)``.
        positions: ``"rotary"``, ``"alibi"``, ``"relative"``, ``"absolute"``, or None: the layer
            adds none.
        position_ids: name of the argument with each token's position, integers ``(B, L)``.
        rotary: ``"halves"`` or ``"interleaved"``, the base, and how many features of a head are
            turned, the first ones, if not all.
        groups: how heads of keys and values are spread over those of the queries: ``"repeat"``,
            0 0 1 1, as PyTorch's ``enable_gqa``; ``"tile"``, 0 1 0 1.
        scale: what scores are multiplied by. Default: ``1 / sqrt(head_dim)``.
        cap: soft cap of the scores: ``cap * tanh(scores / cap)``. Default: none.
        window: number of keys that a query sees, itself among them. Default: all.
        seen: a function of two places, ``(i, j) -> bool``: whether query ``i`` may see key ``j``
            where no mask is given, beside what ``causal`` and ``window`` hide. Default: it may.
        like: a module with the same weights, or a function of queries, keys and values
            ``(B, H, L, D)``, that gives the same.
        sinks: whether weights may sum to less than one.
        dtype: type of floats.
        device: where to run.
        seed: of the random inputs.

    Raises:
        TypeError: dtype is no type of floats, or seen is no function.
        ValueError: an argument has a value that is not listed here.

    Examples:
        >>> Calls(num_heads=3, causal="is_causal").corner
        'lower right'
    """

    embed_dim: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    form: str | None = None
    batch_first: bool = True
    inputs: str | None = None
    outputs: int | None = None
    causal: bool | str | None = None
    corner: str | None = "lower right"
    mask: str | bool | None = None
    mask_true: str = "attend"
    mask_heads: str | None = None
    padding: str | bool | None = None
    padding_true: str = "ignore"
    empty_rows: str | None = None
    weights: str | bool | dict[str, Any] | None = None
    cache: str | bool | None = None
    new_cache: Callable[[], Any] | None = None
    documents: str | bool | None = None
    positions: str | None = None
    position_ids: str | bool | None = None
    rotary: tuple[str, float] | tuple[str, float, int] = ("halves", 10000.0)
    groups: str = "repeat"
    scale: float | None = None
    cap: float | None = None
    window: int | None = None
    seen: Callable[[int, int], bool] | None = None
    like: Callable[..., Any] | None = None
    sinks: bool = False
    dtype: torch.dtype = torch.float32
    device: str | torch.device = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        allowed = {
            "form": (None, "layer", "heads"),
            "inputs": (None, "x", "qk", *map("".join, itertools.permutations("qkv"))),
            "corner": (None, "lower right", "upper left"),
            "mask_true": ("attend", "ignore", "add"),
            "padding_true": ("attend", "ignore"),
            "mask_heads": (None, "B,H,L,S", "B*H,L,S"),
            "empty_rows": (None, "finite", "zeros", "any"),
            "groups": ("repeat", "tile"),
            "positions": (None, "rotary", "alibi", "relative", "absolute"),
        }
        for name, values in allowed.items():
            if (value := getattr(self, name)) not in values:
                said = ", ".join(map(repr, values))
                raise ValueError(f"{name} must be one of {said}, got {value!r}")
        for name in ("embed_dim", "num_heads", "num_kv_heads", "head_dim", "window", "outputs"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if self.cap is not None and not self.cap > 0:
            raise ValueError(f"cap must be a positive number, got {self.cap!r}")
        self._check_rotary()
        if self.like is not None and not callable(self.like):
            raise TypeError(f"like must be a module or a function, got {self.like!r}")
        if self.seen is not None and not callable(self.seen):
            raise TypeError(f"seen must be a function of two places, got {self.seen!r}")
        if not self.dtype.is_floating_point:
            raise TypeError(f"dtype must be a type of floats, got {self.dtype}")

    def _check_rotary(self) -> None:
        if len(self.rotary) not in (2, 3) or self.rotary[0] not in ("halves", "interleaved"):
            raise ValueError(
                "rotary must be (layout, base) or (layout, base, features), with the layout halves "
                f"or interleaved, got {self.rotary!r}"
            )
        turned = self.rotary[2] if len(self.rotary) == 3 else 2
        if not isinstance(turned, int) or turned < 2 or turned % 2:
            raise ValueError(f"rotary must turn an even number of features, got {self.rotary!r}")


KNOWN: list[tuple[Any, dict[str, Any]]] = [
    (
        F.scaled_dot_product_attention,
        {
            "form": "heads",
            "inputs": "qkv",
            "causal": "is_causal",
            # PyTorch's is_causal counts from the first key, even if there are more keys than
            # queries.
            "corner": "upper left",
            "mask": "attn_mask",
            "mask_heads": "B,H,L,S",
            "padding": False,
            "weights": False,
            "cache": False,
            "documents": False,
            "position_ids": False,
            "empty_rows": "any",
        },
    ),
    (
        nn.MultiheadAttention,
        {
            "inputs": "qkv",
            "mask": "attn_mask",
            "mask_true": "ignore",
            "mask_heads": "B*H,L,S",
            "padding": "key_padding_mask",
            "padding_true": "ignore",
            "causal": False,
            "empty_rows": "any",
            "weights": {"need_weights": True, "average_attn_weights": False},
        },
    ),
    (
        nn.TransformerEncoderLayer,
        {
            "inputs": "x",
            "mask": "src_mask",
            "mask_true": "ignore",
            "mask_heads": "B*H,L,S",
            "causal": False,
            "padding": "src_key_padding_mask",
            "padding_true": "ignore",
            "empty_rows": "any",
        },
    ),
]


def describe(layer: Callable[..., Any], calls: Calls, said: set[str]) -> Calls:
    """Fill in what the caller has not said, from the class, the signature and the sizes."""
    # What is said comes before what is known of the class, this before the layer's attributes, and
    # those before its signature.
    given = {f.name: getattr(calls, f.name) for f in fields(calls)}
    options = _known(layer)
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
    given["head_dim"] = given["head_dim"] or max(1, width // given["num_heads"])
    given["embed_dim"] = given["embed_dim"] or given["head_dim"] * given["num_heads"]
    takes, required = signature(layer)
    for name, usual in NAMES.items():
        if given[name] is None:
            given[name] = next((option for option in usual if option in takes), False)
    _check_names(layer, takes, {name: given[name] for name in NAMES if name in said})
    given["inputs"] = given["inputs"] or _inputs(takes, required, given["form"])
    if given["outputs"] and given["inputs"] != "x":
        raise ValueError(
            "outputs is for layers of one sequence, inputs='x'; got "
            f"outputs={given['outputs']} and inputs={given['inputs']!r}"
        )
    return Calls(**given)


ROLES = {"q": ("q", "query", "queries"), "k": ("k", "key", "keys"), "v": ("v", "value", "values")}


def _inputs(takes: list[str], required: list[str], form: str) -> str:
    """Which tensors a layer takes first, from the names of its arguments."""
    three = [_role(name) for name in takes[:3]]
    if set(three) == set("qkv"):  # some take values first
        return "".join(map(str, three))
    if len(required) >= 3 or takes[1:3] in (["key", "value"], ["k", "v"]) or form == "heads":
        return "qkv"
    two = takes[1:2] and takes[1] in ("memory", "context", "kv", "encoder_hidden_states")
    return "qk" if two else "x"


def _role(name: str) -> str | None:
    """Which of queries, keys and values an argument's name says."""
    return next((letter for letter, names in ROLES.items() if name in names), None)


def _known(layer: Callable[..., Any]) -> dict[str, Any]:
    """What is known of a class or a function, of a part of its arguments too."""
    if isinstance(layer, Adapted):
        return layer.how
    root = layer.func if isinstance(layer, functools.partial) else layer
    for known, options in KNOWN:
        if root is known or (isinstance(known, type) and isinstance(root, known)):
            part = layer.keywords if isinstance(layer, functools.partial) else {}
            return options | {name: part[name] for name in ("scale",) if name in part}
    return {}


def signature(layer: Callable[..., Any]) -> tuple[list[str], list[str]]:
    try:
        asked = inspect.signature(layer.forward if isinstance(layer, nn.Module) else layer)
    except (TypeError, ValueError):
        return [], []
    plain = [
        p for p in asked.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    return [p.name for p in plain], [p.name for p in plain if p.default is p.empty]


def _check_names(layer: Callable[..., Any], takes: list[str], given: dict[str, Any]) -> None:
    """Names of arguments that the caller has said are the layer's."""
    target = layer.forward if isinstance(layer, nn.Module) else layer
    if not takes or any(
        p.kind is p.VAR_KEYWORD for p in inspect.signature(target).parameters.values()
    ):
        return
    for name, value in given.items():
        if isinstance(value, str) and value not in takes:
            others = "True, False or " if name == "causal" else ""
            raise ValueError(
                f"{name} must be {others}the name of an argument that the layer takes, "
                f"{', '.join(takes)}, got {value!r}"
            )


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
    # A guess: whatever comes first in a layer reads its tokens. If it is wrong, the plainest call
    # fails, and says what was guessed.
    return next((m.in_features for m in layer.modules() if isinstance(m, nn.Linear)), None)


def assumed(layer: Callable[..., Any], calls: Calls, said: set[str]) -> list[str]:
    """What was read from a layer, in words: of an adapter, and as arguments that say otherwise."""
    read = {f.name: getattr(calls, f.name) for f in fields(calls) if f.name not in said}
    names = [n for n in ("mask_true", "padding_true") if not read.get(n.partition("_")[0])]
    names += ["rotary"] if calls.positions != "rotary" else []
    names += ["corner"] if not (calls.causal and calls.inputs != "x") else []
    plain = Calls()
    skipped = {"batch_first", "empty_rows", "form", "new_cache", "dtype", "device", "seed", *names}
    kept = ("corner", "mask_true", "padding_true", "causal", "rotary")
    if "scale" in read and calls.scale and calls.head_dim:
        names += ["scale"] if abs(calls.scale * calls.head_dim**0.5 - 1) < 1e-6 else []
    skipped |= set(names)
    given = [
        f"{name}={value!r}"
        for name, value in read.items()
        if name not in skipped
        and (name in kept or value not in (None, getattr(plain, name), False))
    ]
    words = layer.assumed if isinstance(layer, Adapted) else []
    return [*words, ", ".join(given)] if given else words

"""How a layer's tokens lie in its tensor, and the way from sequences of tokens to it and back."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.testing.hub import MASKS, MEMORIES
from mhattn.testing.subject import Skip
from mhattn.testing.watched import Call

__all__: list[str] = []

PLACED = ("position_embeddings", "rotary_pos_emb", "freqs", "rope")


@dataclass(frozen=True)
class Layout:
    """The form of a layer's tokens.

    Args:
        shape: of the tensor that its model gives it.
        is_turned: whether it is ``(L, B, E)``.
        unit: how many rows belong to one sequence of the model, as a picture has several windows.
        is_alone: whether the layer takes one row of tokens alone, and no batch.
    """

    shape: tuple[int, ...]
    is_turned: bool = False
    unit: int = 1
    is_alone: bool = False

    def flat(self, raw: Tensor) -> Tensor:
        """``(B, L, E)`` of what a layer takes or gives."""
        if len(self.shape) == 2:
            return raw[None]
        if self.is_turned:
            return raw.transpose(0, 1)
        return raw.flatten(1, 2) if raw.ndim == 4 else raw

    def raw(self, x: Tensor) -> Tensor:
        """What a layer takes of ``(B, L, E)``, each sequence as often as its unit."""
        x = x if self.unit == 1 else x.repeat_interleave(self.unit, dim=0)
        if len(self.shape) == 2:
            return x[0]
        if len(self.shape) == 4:
            return x.reshape(len(x), *self.shape[1:3], x.shape[-1])
        return (x.transpose(0, 1) if self.is_turned else x).contiguous()

    def output(self, raw: Tensor) -> Tensor:
        """``(B, L, E)`` of what a layer gives; one output for a sequence is one of length one."""
        if raw.ndim == 2 and len(self.shape) != 2:
            raw = raw[:, None]
        return self.flat(raw)[:: self.unit]


def layout_of(
    layer: nn.Module, x: Tensor, batches: set[int], lengths: set[int], is_turned: bool
) -> Layout:
    """The form of the tokens of one call, by the sizes that its model's inputs have.

    Raises:
        Skip: it can't be told.
    """
    shape = tuple(x.shape)
    if x.ndim not in (2, 3, 4):
        raise Skip(f"its tokens are {shape}, not (B, L, E)")
    widths = {getattr(m, "in_features", 0) for m in layer.modules()}
    if x.ndim == 4 and shape[-1] not in widths:
        raise Skip(f"its tokens are {shape}, not (B, L, E)")
    if x.ndim == 2 or (shape[0] == 1 and 1 not in batches):
        return Layout(shape, is_alone=True)
    # Older libraries give `(L, B, E)` without a word: the sizes of the model's inputs tell.
    swapped = shape[0] not in batches and shape[0] in lengths and shape[1] in batches
    if x.ndim == 3 and (is_turned or (swapped and not hasattr(layer, "batch_first"))):
        return Layout(shape, is_turned=True)
    unit = next((shape[0] // n for n in sorted(batches, reverse=True) if shape[0] % n == 0), 0)
    if not unit:
        raise Skip(f"its batch of {shape[0]} is none of the model's inputs")
    return Layout(shape, unit=unit)


def roles(call: Call) -> tuple[list[str], list[str]]:
    """The names of the arguments that are a layer's tokens, and of those that are its memory."""
    floats = {
        name: value
        for name, value in call.given.items()
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim >= 2
    }
    floats = {n: v for n, v in floats.items() if n not in MASKS and not n.startswith(PLACED)}
    # Some models lay all tokens side by side, as those of pictures of several sizes.
    floats = {n: v for n, v in floats.items() if v.ndim >= 3} or floats
    if not floats:
        raise Skip("no tokens are among its arguments")
    first = next(iter(floats.values()))
    parts = {n: v for n, v in floats.items() if n.startswith(("query_", "key_", "value_"))}
    same = (n for n, v in floats.items() if v.shape == first.shape)
    tokens = [n for n in same if n in parts or torch.equal(floats[n], first)]
    memories = ("key", "value", "memory", "context", "kv", "inputs", *MEMORIES)
    found = [n for n in floats if (n in memories or n.startswith("cross_")) and n not in tokens]
    if wide := [n for n in (*parts, *found) if floats[n].shape[-1] != first.shape[-1]]:
        raise Skip(f"its {wide[0]} has another width than its {next(iter(floats))}")
    return tokens, found


def is_cache(value: Any) -> bool:
    """Whether an argument keeps something of a call for the next one."""
    return "cache" in type(value).__name__.lower()


def first_of(found: Any) -> Tensor:
    """The output among what a layer returns."""
    first = found
    while isinstance(first, list | tuple) and first:
        first = first[0]
    if not isinstance(first, Tensor):
        raise Skip(f"it returns {type(first).__name__} first, and no tensor")
    return first


def unturned(pair: Any) -> Any:
    """Positions that turn nothing: cosines of one and sines of zero, or angles of zero."""
    if isinstance(pair, tuple | list) and len(pair) == 2:
        both = torch.ones_like(pair[0]), torch.zeros_like(pair[1])
        return list(both) if isinstance(pair, list) else both
    return torch.zeros_like(pair) if isinstance(pair, Tensor) else pair


def as_tokens(value: Any, x: Tensor) -> Any:
    """The same in the type of floats of the tokens."""
    if isinstance(value, Tensor):
        return value.to(x.dtype) if value.is_floating_point() else value
    if type(value) is list:  # a state, which a layer may write into
        own = (as_tokens(each, x) for each in value)
        return [each.clone() if isinstance(each, Tensor) else each for each in own]
    return tuple(as_tokens(each, x) for each in value) if type(value) is tuple else value

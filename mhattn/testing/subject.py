"""A layer that is called in one form: batch first, masks True where a query may attend."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mhattn.testing.calls import Calls, describe, signature

__all__: list[str] = []


class Skip(Exception):
    """Why a check cannot be made on this layer."""


def copied(layer: nn.Module) -> nn.Module:
    """A copy of a module, with what it keeps of earlier calls cut off from their graphs.

    `copy.deepcopy` refuses a tensor that has a graph, as a layer may keep it: keys of a memory.
    """
    known: dict[int, Any] = {}
    for module in layer.modules():
        for value in vars(module).values():
            known |= {id(x): x.detach().clone() for x in tensors_of(value) if not x.is_leaf}
    return copy.deepcopy(layer, known)


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in what a module keeps, one by one."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(each)


def is_of_layer(error: BaseException) -> bool:
    """Whether the layer raised it, and not a check that made something of what it returned."""
    return getattr(error, "of_layer", False)


@dataclass
class Out:
    """What a call gave: output ``(B, L, E)`` or ``(B, H, L, D)``, weights, cache."""

    output: Tensor
    weights: Tensor | None = None
    cache: Any = None


@dataclass
class Subject:
    """A copy of a layer, called in one form: batch first, masks True where a query may attend."""

    layer: Callable[..., Any]
    calls: Calls
    forms: dict[str, str] = field(default_factory=dict)
    uncalled: Callable[..., Any] | None = None  # as it was before the first call

    @classmethod
    def of(cls, layer: Callable[..., Any], calls: Calls, said: set[str]) -> "Subject":
        """Copy the layer if it is a module, so that the caller's own stays as it is."""
        calls = describe(layer, calls, said)
        if isinstance(layer, nn.Module):
            layer = copied(layer).to(calls.device, calls.dtype).eval()
            return cls(layer, calls, uncalled=copied(layer))
        return cls(layer, calls)

    def fresh(self) -> "Subject":
        """The same layer, which nobody has called yet; a function, or another type, is itself."""
        if not isinstance(self.uncalled, nn.Module):
            return self
        return Subject(copied(self.uncalled), self.calls, self.forms, self.uncalled)

    def in_dtype(self, dtype: torch.dtype) -> "Subject":
        """The same layer in another type of floats."""
        other = self.fresh()
        if isinstance(other.layer, nn.Module):
            other.layer = other.layer.to(dtype)
        return Subject(other.layer, replace(self.calls, dtype=dtype), self.forms)

    @property
    def is_heads(self) -> bool:
        return self.calls.form == "heads"

    @property
    def heads(self) -> int:
        return self.calls.num_heads or 1

    @property
    def kv_heads(self) -> int:
        return self.calls.num_kv_heads or self.heads

    @property
    def dim(self) -> int:
        return self.calls.head_dim or 1

    @property
    def width(self) -> int:
        return self.calls.embed_dim or self.heads * self.dim

    @property
    def is_block(self) -> bool:
        """Whether it has norms as wide as a token: more than attention."""
        parts = self.layer.modules() if isinstance(self.layer, nn.Module) else ()
        norms = [each for each in parts if "norm" in type(each).__name__.lower()]
        sizes = (p.numel() for each in norms for p in each.parameters(recurse=False))
        return any(size == self.width and self.heads > 1 for size in sizes)

    @property
    def usual(self) -> dict[str, Any]:
        """Ask for causal attention, if one has to ask."""
        return {"causal": True} if isinstance(self.calls.causal, str) else {}

    @property
    def ways(self) -> list[dict[str, Any]]:
        """As it is called plainly, and causal, if one has to ask."""
        return [{}, self.usual] if self.usual else [{}]

    @property
    def where(self) -> str:
        """What changes with a token, as `probes.influence` names it: in functions, keys alone."""
        return "keys" if self.is_heads else "self"

    def three(self, inputs: list[Tensor]) -> list[Tensor]:
        """For a layer, the first of them three times: one sequence."""
        is_one = not (self.is_heads or (self.takes_two and any(self.fixed)))
        return [inputs[0]] * 3 if is_one else inputs

    @property
    def takes_two(self) -> bool:
        """Whether queries and keys may come from two sequences."""
        return self.calls.inputs != "x"

    @property
    def tolerance(self) -> float:
        """How far outputs of size one may differ by rounding."""
        # Some products follow each other, so this is well above one rounding; what mistakes move is
        # more.
        return {torch.float64: 1e-9, torch.float32: 2e-4}.get(self.calls.dtype, 0.06)

    @property
    def fixed(self) -> tuple[int, int]:
        """How many tokens and keys it takes, if it is called with no other number; or 0."""
        return getattr(self.layer, "fixed", (0, 0))

    def train(self, on: bool = True) -> None:
        if isinstance(self.layer, nn.Module):
            self.layer.train(on)

    def draw(self, *lengths: int, batch: int = 3, seed: int = 0, size: float = 1.0) -> list[Tensor]:
        """Queries, keys and values of two lengths, or for one length one input three times."""
        c = self.calls
        source = torch.Generator().manual_seed(1000 * c.seed + seed)
        tokens, keys = self.fixed
        if tokens or (keys and self.takes_two):
            both = tokens or lengths[0], keys or lengths[-1]
            lengths = both if self.takes_two else both[: len(lengths)]
        long = [lengths[0], lengths[-1], lengths[-1]]

        def tensor(length: int, heads: int) -> Tensor:
            before = (heads, length, self.dim) if self.is_heads else (length, self.width)
            # Drawn in float64 and rounded then: every type of floats gets the same numbers, as far
            # as it has them.
            x = torch.randn((batch, *before), generator=source, dtype=torch.float64) * size
            return x.to(c.device, c.dtype)

        heads = [self.heads, self.kv_heads, self.kv_heads]
        if self.is_heads or len(lengths) == 2:
            return [tensor(*each) for each in zip(long, heads, strict=True)]
        # One tensor three times, for `nn.MultiheadAttention` and others ask whether key is query.
        return [tensor(lengths[0], 1)] * 3

    def __call__(self, *inputs: Tensor, seed: int = 0, **asked: Any) -> Out:
        """Call the layer; ``asked`` may have causal, mask, padding, weights, cache and others."""
        # Two calls that are compared drop the same weights, if any are dropped.
        if torch.device(self.calls.device).type == "cpu":
            # `torch.manual_seed` does this, and writes down for each kind of device that is not
            # there who called it: half of the time of all checks.
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        return self._read(self.raw(*inputs, **asked), asked)

    def raw(self, *inputs: Tensor, **asked: Any) -> Any:
        """What the layer itself returns."""
        tensors, options = self.prepared(inputs, asked)
        try:
            return self.layer(*tensors, **options)
        except Exception as error:
            # What a check makes of an answer may fail as well: that is no mistake of the layer.
            error.of_layer = True  # type: ignore[attr-defined]
            raise

    def prepared(
        self, inputs: tuple[Tensor, ...], asked: dict[str, Any]
    ) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
        """What the layer is called with."""
        c = self.calls
        query, key, value = inputs if len(inputs) == 3 else (inputs[0],) * 3
        if not self.is_heads and not c.batch_first:
            # Three transposed views would be three tensors: what was one stays one.
            same = key is query
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
            key, value = (query, query) if same else (key, value)
        if c.inputs == "x":
            return (query,), self._options(asked)
        given = {"q": query, "k": key, "v": value}
        return tuple(given[letter] for letter in str(c.inputs)), self._options(asked)

    def _options(self, asked: dict[str, Any]) -> dict[str, Any]:
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
        return ["enable_gqa"] if sdpa else signature(self.layer)[0]

    def added(self, mask: Tensor, least: float = -math.inf) -> Tensor:
        """A mask of booleans as floats to be added: 0, or the least where it hides."""
        zeros = torch.zeros(mask.shape, dtype=self.calls.dtype, device=mask.device)
        return zeros.masked_fill(~mask, least)

    def _mask(self, mask: Tensor) -> Tensor:
        """A mask of booleans as the layer wants it."""
        how, heads = self.calls.mask_true, mask.ndim == 4 and mask.shape[1] > 1
        if mask.dtype == torch.bool:
            if how == "ignore":
                mask = ~mask
            elif how == "add":
                # The least finite number, as libraries have it: a row of -inf alone gives NaN.
                mask = self.added(mask, torch.finfo(self.calls.dtype).min)
        if self.calls.mask_heads == "B*H,L,S" and mask.ndim == 4:
            return mask.expand(-1, self.heads, -1, -1).flatten(0, 1)
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
        return 1 / math.sqrt(self.dim) if self.calls.scale is None else self.calls.scale


def has_own_backward(output: Tensor) -> bool:
    """Whether a function with a backward of its own is in an output's graph."""
    found, nodes, known = False, [output.grad_fn], set[Any]()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in known:
            known.add(node)
            found |= isinstance(node, torch.autograd.function.BackwardCFunction)
            nodes += [each for each, _ in node.next_functions]
    return found

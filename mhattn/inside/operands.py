"""Queries, keys and values of single heads that come from another call."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mhattn.inside.blocks import Positions, check_positions, same
from mhattn.inside.calls import PARAMETERS, PRODUCTS, memory_of
from mhattn.inside.importance import Head
from mhattn.inside.layers import AttentionLayer, attention_layers
from mhattn.inside.observe import by_layer
from mhattn.inside.stream import (
    CALL,
    LayerCache,
    Operands,
    Parts,
    ResidualCache,
    Seen,
    of_layer,
    tensors,
)

__all__ = ["patch_qkv"]

Part = Literal["query", "key", "value"]
PARTS: tuple[Part, ...] = ("query", "key", "value")


# --8<-- [start:patch_qkv]
@contextmanager
def patch_qkv(
    model: nn.Module,
    heads: Sequence[Head | str],
    source: ResidualCache,
    parts: Part | Sequence[Part],
    positions: Positions = slice(None),
) -> Iterator[None]:
    """Give some heads the queries, keys or values that they had in another call.

    What a head gives is its map times its values, and the map comes from queries and keys. So this
    says through which input it carries what tells two calls apart: queries and keys together are
    its map. Heads that share a key and value with the named ones keep theirs. So does what a layer
    adds to its scores by another product, as for the positions of Wav2Vec2-Conformer.

    Args:
        model: in evaluation mode, one of which `mhattn.inside.residual_cache` gets a cache.
        heads: pairs of layer and head, or names such as ``"24.4"``, as in
            `mhattn.inside.ablate_heads`.
        source: of the other call, from `mhattn.inside.residual_cache`.
        parts: ``"query"``, ``"key"`` or ``"value"``, or several of them.
        positions: of the queries whose query is replaced, and of the keys whose key or value is;
            from 0, or from -1 backwards. Default: all.

    Returns:
        A context, in which the model is called, with an input of the same shape as the other.

    Raises:
        TypeError: heads are no pairs or names, or see `mhattn.inside.attention_layers`.
        ValueError: a part is none of the three, a head or position does not exist, source has other
            shapes or the layer not just once, the layer does not weigh as it did there, or see
            `mhattn.inside.attention_layers`.

    Examples:
        Queries, keys and values of all heads are all that a layer computes with.

        >>> from mhattn.inside import residual_cache
        >>> block = nn.TransformerEncoderLayer(12, 3, batch_first=True, norm_first=True)
        >>> encoder = nn.TransformerEncoder(block, 1, enable_nested_tensor=False).eval()
        >>> x, other = torch.randn(2, 1, 5, 12)
        >>> source = residual_cache(encoder, other)
        >>> with patch_qkv(encoder, ["1.1", "1.2", "1.3"], source, ["query", "key", "value"]):
        ...     [patched] = residual_cache(encoder, x).layers
        >>> torch.allclose(patched.added, source.layers[0].added, atol=1e-5)
        True
    """
    for name in [parts] if isinstance(parts, str) else parts:
        if name not in PARTS:
            raise ValueError(f"parts must be of {', '.join(map(repr, PARTS))}, got {name!r}")
    names: list[Part] = [part for part in PARTS if part == parts or part in parts]
    layers = attention_layers(model)
    with ExitStack() as stack:
        for place, changed in by_layer(layers, heads).items():
            own = cached_of(source, layers[place].name)
            mix = Mix(layers[place], own, changed, names, positions)
            stack.enter_context(mixing(layers[place].module, mix))
        yield
    # --8<-- [end:patch_qkv]


def cached_of(source: Any, name: str) -> LayerCache:
    """What a source has of a layer, which it must have once."""
    if not isinstance(source, ResidualCache):
        got = type(source).__name__
        raise TypeError(f"source must be what mhattn.inside.residual_cache returns, got {got}")
    found = [layer for layer in source.layers if layer.name == name]
    if len(found) != 1:
        raise ValueError(f"source must have {name!r} once, got {len(found)} times")
    return found[0]


class Mix:
    """What one layer weighs, partly from another call."""

    def __init__(
        self,
        layer: AttentionLayer,
        source: LayerCache,
        heads: Sequence[int],
        parts: Sequence[Part],
        positions: Positions,
    ) -> None:
        self.name, self.num_heads, self.source = layer.name, layer.num_heads, source
        self.heads, self.parts, self.positions = heads, parts, positions

    def own(self, part: Part) -> Tensor:
        found: Tensor = getattr(self.source, part)
        return found

    def mixed(self, part: Part, given: Tensor) -> Tensor:
        """``(B, H, L, D)``, each head of a group with its own copy of what they share."""
        own, shape = self.own(part), given.shape
        if given.ndim == own.ndim - 1:  # (B * H, L, D)
            given = given.unflatten(0, (-1, own.shape[1]))
        if given.shape != own.shape:
            rule = f"source must have the {part} of {self.name!r}, {tuple(given.shape)}"
            raise ValueError(f"{rule}, got {tuple(own.shape)}")
        check_positions(self.positions, given.shape[2])
        groups = self.num_heads // given.shape[1]
        mixed, own = given.repeat_interleave(groups, 1), own.repeat_interleave(groups, 1)
        if part in self.parts:
            for head in self.heads:
                mixed[:, head, self.positions] = own[:, head, self.positions].to(mixed)
        return mixed if len(shape) == mixed.ndim else mixed.flatten(0, 1)

    def fits(self, part: Part, given: Tensor) -> bool:
        own = self.own(part)
        return given.shape in (own.shape, own.flatten(0, 1).shape)

    def of_call(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """The arguments of the fused call, mixed."""
        given = CALL.bind(*args, **kwargs).arguments
        mixed: dict[str, Tensor] = {part: self.mixed(part, given[part]) for part in PARTS}
        return {**given, **mixed, "enable_gqa": False}

    def of_torch(self, args: Any, kwargs: Any) -> tuple[dict[str, Any], list[Tensor]]:
        """Those of PyTorch's layer: it is given what its projections would make of its inputs."""
        given = PARAMETERS.bind(*args, **kwargs).arguments
        with torch._C.DisableTorchFunction():  # whoever watches the call shall not see a second one
            parts = of_layer(args, kwargs)[:3]
        mixed = [self.mixed(part, x) for part, x in zip(PARTS, parts, strict=True)]
        same_as = torch.eye(given["embed_dim_to_check"]).to(parts[0])
        given |= {"use_separate_proj_weight": True, "in_proj_weight": None, "in_proj_bias": None}
        for part, x in zip(PARTS, mixed, strict=True):
            single = given[part].ndim == 2
            length = len(given[part])  # without the keys of no token, which the layer adds
            rows = x[:, :, :length].permute(2, 0, 1, 3).flatten(2)  # (L, B, E)
            given[part] = rows[:, 0] if single else rows
            given[f"{part[0]}_proj_weight"] = same_as
        return given, mixed

    def of_product(self, args: Any, waiting: Any) -> Any:
        """Those of a product that makes scores or takes weights; others stay as they are."""
        left, right = tensors(args)
        if memory_of(left) in waiting and self.fits("value", right):
            changed = [left, self.mixed("value", right)]
        elif self.fits("query", left) and self.fits("key", right.mT):
            changed = [self.mixed("query", left), self.mixed("key", right.mT).mT]
        else:
            return args
        given = iter(changed)
        return [next(given) if isinstance(x, Tensor) else x for x in args]

    def check(self, seen: Seen) -> None:
        """What the layer has weighed with is what was put in."""
        rule = f"{self.name!r} must weigh once in a call of it, as in source"
        if len(seen.operands) != 1:
            raise ValueError(f"{rule}, got {len(seen.operands)} calls")
        for part, used in zip(PARTS, seen.operands[0][:3], strict=True):
            own = self.own(part)
            own = own.repeat_interleave(self.num_heads // own.shape[1], dim=1)
            for head in self.heads if part in self.parts else ():
                expected = own[:, head, self.positions].to(used)
                if used.shape != own.shape or not same(used[:, head, self.positions], expected):
                    raise ValueError(f"{rule}, got another {part}")


class MixedOperands(Operands):
    """While it is entered, a layer weighs what its mix says."""

    def __init__(self, mix: Mix) -> None:
        super().__init__([])
        self.mix, self.seen = mix, Seen(mix.name, mix.num_heads, None)
        self.running = [self.seen]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            given = self.mix.of_call(args, kwargs)
            self.seen.operands.append(used([given[part] for part in PARTS]))
            return func(**given)
        if func is F.multi_head_attention_forward:
            given, mixed = self.mix.of_torch(args, kwargs)
            self.seen.operands.append(used(mixed))
            return func(**given)
        if func in PRODUCTS and len(tensors(args)) == 2:
            args = self.mix.of_product(args, self.waiting)
        return super().__torch_function__(func, types, args, kwargs)


def used(parts: Sequence[Tensor]) -> Parts:
    """What a call weighs with; its weights aren't asked for."""
    query, key, value = parts
    return query, key, value, query.new_empty(0)


@contextmanager
def mixing(module: nn.Module, mix: Mix) -> Iterator[None]:
    running: list[tuple[ExitStack, Seen]] = []

    # Entered by the layer itself, so that whoever watches the whole call sees what was put in.
    def begin(module: nn.Module, args: Any) -> None:
        stack, mode = ExitStack(), MixedOperands(mix)
        stack.enter_context(mode)
        running.append((stack, mode.seen))

    def end(module: nn.Module, args: Any, result: Any) -> None:
        stack, seen = running.pop()
        stack.close()
        if result is not None:  # else the call has failed
            mix.check(seen)

    before = module.register_forward_pre_hook(begin)
    after = module.register_forward_hook(end, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()

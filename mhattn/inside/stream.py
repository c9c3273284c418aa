"""The residual stream of a model, and all that its attention computes, from one call.

A block of a Transformer adds to its stream twice: what attention gives, and what the MLP gives.
`residual_cache` watches both sums, in whatever order a block has its norms, and what each attention
layer weighs: queries, keys, values, weights and heads. Nothing of the model is changed.
"""

import inspect
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from mhattn.inside.calls import (
    PARAMETERS,
    PRODUCTS,
    SOFTMAXES,
    memory_of,
    over_last_axis,
    weights_of_call,
    weights_of_layer,
)
from mhattn.inside.importance import edit_heads
from mhattn.inside.layers import AttentionLayer, attention_layers
from mhattn.inside.observe import in_evaluation, projection_called

__all__ = ["NAMES_ELSEWHERE", "LayerCache", "ResidualCache", "residual_cache"]

NAMES_ELSEWHERE: dict[str, tuple[str, str]] = {
    # ours: TransformerLens, transformers
    "before": ("hook_resid_pre", "hidden_states[i]"),
    "between": ("hook_resid_mid", ""),
    "after": ("hook_resid_post", "hidden_states[i + 1]"),
    "query": ("attn.hook_rot_q, attn.hook_q", "query_states"),
    "key": ("attn.hook_rot_k, attn.hook_k", "key_states"),
    "value": ("attn.hook_v", "value_states"),
    "weights": ("attn.hook_pattern", "attentions[i], attn_weights"),
    "heads": ("attn.hook_z", "attn_output"),
    "added": ("hook_attn_out", ""),
}
"""The names of TransformerLens and of transformers for what a `LayerCache` has."""
IN_PLACE: tuple[Any, ...] = (torch.Tensor.add_, torch.Tensor.__iadd__)
SUMS: tuple[Any, ...] = (torch.add, torch.Tensor.add, torch.Tensor.__add__)
SUMS = (*SUMS, torch.Tensor.__radd__, *IN_PLACE)
CALL = inspect.signature(weights_of_call)  # the fused call's own


class LayerCache(NamedTuple):
    """One call of an attention layer, and the stream around it.

    Attributes:
        name: where the layer is in the model.
        before: the stream to which its output is added, ``(B, L, E)``.
        between: the stream behind this sum; where a norm stands behind each sum, as in BERT, what
            the norm returns. None in a block with a single sum: where attention and MLP are added
            at once, as in GPT-J, or where there is no MLP.
        after: what the block returns.
        query: as it enters the scores, turned if positions turn it, ``(B, H, L, D)``.
        key: ``(B, H, S, D)``, with as many heads as the layer hands to the product.
        value: ``(B, H, S, D)``, likewise.
        weights: the layer's map, ``(B, H, L, S)``.
        heads: weights times values, in front of the output projection, ``(B, L, H, D)``; None if
            the projection is unknown.
        added: what the output projection returns, ``(B, L, E)``; None if it is unknown.
    """

    name: str
    before: Tensor
    between: Tensor | None
    after: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    weights: Tensor
    heads: Tensor | None
    added: Tensor | None


class ResidualCache(NamedTuple):
    """What `residual_cache` found.

    Attributes:
        layers: each call of an attention layer, in the order of the calls.
        output: what the model returned.
    """

    layers: list[LayerCache]
    output: Any


# --8<-- [start:residual_cache]
def residual_cache(model: nn.Module, *inputs: Any, **options: Any) -> ResidualCache:
    """Call a model, and keep its residual stream and all that its attention computes.

    A block is the item of a `torch.nn.ModuleList` or `torch.nn.Sequential` that holds the layer.
    The first sum behind the layer that has the block's stream as one of its terms is taken for the
    one that adds what attention gives.

    Args:
        model: in evaluation mode, with attention layers that `mhattn.inside.attention_layers`
            knows; a class of your own once it is registered: `mhattn.inside.register`.
        *inputs: for the model.
        **options: for the model.

    Returns:
        A `LayerCache` for each call of a layer that stands in a block, and what the model returned:
        the attention of a pooling head has none, and is left out. A decoder's layer of
        cross-attention has its own: ``before`` is then the stream behind self-attention. The
        tensors are copies with their gradients; call it under `torch.no_grad` to do without.
        `NAMES_ELSEWHERE` has the names of other libraries.

    Raises:
        TypeError: see `mhattn.inside.attention_layers`.
        ValueError: a module of the model is in training mode, no layer stands in a block, one
            is not called or does not weigh just once in a call, or see
            `mhattn.inside.attention_layers`.

    Examples:
        >>> block = nn.TransformerEncoderLayer(12, 3, 24, batch_first=True, norm_first=True)
        >>> encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
        >>> first, second = residual_cache(encoder, torch.randn(2, 5, 12)).layers
        >>> first.name, tuple(first.query.shape), tuple(first.heads.shape)
        ('layers.0.self_attn', (2, 3, 5, 4), (2, 5, 3, 4))
        >>> torch.allclose(first.before + first.added, first.between, atol=1e-5)
        True
        >>> torch.equal(first.after, second.before)
        True
    """
    layers = attention_layers(model)
    in_evaluation(model)
    places = {layer.name: block_of(model, layer.name) for layer in layers}
    blocks = {name: Block() for name in places.values() if name is not None}
    if not blocks:
        rule = f"{layers[0].name!r} must be in an item of a ModuleList or Sequential, a block"
        raise ValueError(f"{rule}, got {type(model).__name__}")
    found: list[Seen] = []
    with ExitStack() as stack:
        mode = Operands(list(blocks.values()))
        for name, block in blocks.items():
            for handle in block.hooks(model.get_submodule(name)):
                stack.callback(handle.remove)
        for layer in layers:
            place = places[layer.name]
            if place is not None:
                watch_layer(stack, layer, blocks[place], mode, found)
        stack.enter_context(mode)
        output = model(*inputs, **options)
    return ResidualCache([seen.cached() for seen in found], output)
    # --8<-- [end:residual_cache]


def block_of(model: nn.Module, layer: str) -> str | None:
    """The innermost item of a list that holds a layer. In T5 the items are the block's own parts,
    each of another class: then the item around them."""
    parts = layer.split(".")
    items = [".".join(parts[:i]) for i in range(1, len(parts)) if is_item(model, parts[:i])]
    if not items:
        return None
    *outer, own = items
    beside = {type(part) for part in model.get_submodule(own.rpartition(".")[0]).children()}
    return outer[-1] if outer and len(beside) > 1 else own


def is_item(model: nn.Module, parts: Sequence[str]) -> bool:
    parent = model.get_submodule(".".join(parts[:-1]))
    return isinstance(parent, nn.ModuleList | nn.Sequential)


class Seen:
    """What is known of one call of a layer so far."""

    def __init__(self, name: str, num_heads: int, first: Tensor | None) -> None:
        self.name, self.num_heads, self.first = name, num_heads, first
        self.operands: list[Parts] = []
        self.heads: Tensor | None = None
        self.added: Tensor | None = None
        self.before: Tensor | None = None
        self.between: Tensor | None = None
        self.sums = 0  # in the block, from that of this layer on
        self.after: Tensor | None = None
        self.ended = False

    def cached(self) -> LayerCache:
        if len(self.operands) != 1:
            got = f"got {len(self.operands)} calls"
            raise ValueError(f"{self.name!r} must weigh once in a call of it, {got}")
        if self.first is None or self.after is None:
            raise ValueError(f"{self.name!r} must be called by its block, got another call")
        between = self.between if self.sums > 1 else None
        before = self.first if self.before is None else self.before
        parts = self.operands[0]
        return LayerCache(self.name, before, between, self.after, *parts, self.heads, self.added)


class Block:
    """The stream of one block while it runs, followed from sum to sum."""

    def __init__(self) -> None:
        self.running = False
        self.first: Tensor | None = None
        self.kept: dict[int, Tensor] = {}  # the stream under its memory, held so that it stays
        self.normed: dict[int, Tensor] = {}  # what modules made of the stream
        self.open: list[Seen] = []

    def hooks(self, module: nn.Module) -> list[Any]:
        def begin(module: nn.Module, args: Any, options: Any) -> None:
            given = tensors([*args, *options.values()])[0]
            self.running, self.open, self.normed = True, [], {}
            self.first = given.clone()
            self.kept = {memory_of(given): given}

        def end(module: nn.Module, args: Any, result: Any) -> None:
            self.running = False
            result = result[0] if isinstance(result, tuple | list) else result
            for seen in self.open:
                seen.after = result.clone()

        handles: list[Any] = [module.register_forward_pre_hook(begin, with_kwargs=True)]
        for part in module.modules():
            if part is not module:
                handles.append(part.register_forward_hook(self.passed))
        return [*handles, module.register_forward_hook(end)]

    def passed(self, module: nn.Module, args: Any, result: Any) -> None:
        """A module was given the stream: what it returns may be the stream from now on."""
        given = next((x for x in args if isinstance(x, Tensor)), None)
        if not (self.running and isinstance(result, Tensor) and given is not None):
            return
        if memory_of(given) in self.kept and result.shape == given.shape:
            self.normed[memory_of(result)] = result

    def summed(self, terms: Sequence[Tensor], values: Sequence[Tensor], result: Tensor) -> None:
        """A sum, perhaps of the stream and of what a part adds to it; values are of before it."""
        if any(x.shape != result.shape for x in terms):
            return
        places = [memory_of(x) for x in terms]
        stream = next((i for i, place in enumerate(places) if place in self.kept), None)
        if stream is None:
            stream = next((i for i, place in enumerate(places) if place in self.normed), None)
            if stream is None:
                return
            for seen in self.open:  # a norm behind the sum: what it returned is the stream
                if seen.sums == 1:
                    seen.between = values[stream].clone()
        for seen in self.open:
            seen.sums += seen.ended
            if seen.ended and seen.sums == 1:
                seen.before, seen.between = values[stream].clone(), result.clone()
        self.kept, self.normed = {memory_of(result): result}, {}


def watch_layer(
    stack: ExitStack, layer: AttentionLayer, block: Block, mode: "Operands", found: list[Seen]
) -> None:
    def begin(module: nn.Module, args: Any) -> None:
        seen = Seen(layer.name, layer.num_heads, block.first)
        found.append(seen)
        block.open.append(seen)
        mode.running.append(seen)

    def end(module: nn.Module, args: Any, result: Any) -> None:
        mode.running.pop().ended = True

    def keep(heads: Tensor) -> Tensor:
        last(block, layer.name).heads = heads.clone()
        return heads

    def projected(module: nn.Module, args: Any, result: Tensor) -> None:
        seen = last(block, layer.name)
        seen.added, seen.ended = result.clone(), True

    stack.callback(layer.module.register_forward_pre_hook(begin).remove)
    if layer.projection is not None:
        stack.enter_context(projection_called(layer))
        stack.enter_context(edit_heads(layer.projection, layer.num_heads, keep))
        stack.callback(layer.projection.register_forward_hook(projected).remove)
    stack.callback(layer.module.register_forward_hook(end, always_call=True).remove)


def last(block: Block, name: str) -> Seen:
    """The newest call of a layer; in BERT its projection runs when it has ended."""
    return [seen for seen in block.open if seen.name == name][-1]


class Operands(TorchFunctionMode):
    """While it is entered, what each layer weighs, and each sum, go to those whom they concern."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__()
        self.blocks = blocks
        self.running: list[Seen] = []
        self.product: tuple[Tensor, ...] = ()  # queries, keys, scores
        self.waiting: dict[int, tuple[Tensor, ...]] = {}  # weights that no product has taken yet

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in SUMS:
            return self.sum(func, args, kwargs)
        result = func(*args, **kwargs)
        if not self.running:
            return result
        seen = self.running[-1]
        if func is F.scaled_dot_product_attention:
            seen.operands.append(of_call(args, kwargs))
        elif func is F.multi_head_attention_forward:
            seen.operands.append(of_layer(args, kwargs))
        elif func in PRODUCTS and len(tensors(args)) == 2:
            left, right = tensors(args)
            self.multiplied(left, right, result, seen)
        elif func in SOFTMAXES and over_last_axis(*args, **kwargs):
            if self.product and self.product[2].shape == result.shape:
                self.waiting[memory_of(result)] = *self.product[:2], result, result
        elif tensors([result]) and self.waiting:
            self.follow(tensors(args), result)
        return result

    def follow(self, args: Sequence[Tensor], result: Tensor) -> None:
        """Weights stay weights in another view or type."""
        if args and memory_of(args[0]) in self.waiting and result.shape == args[0].shape:
            *operands, _ = self.waiting[memory_of(args[0])]
            self.waiting[memory_of(result)] = *operands, result

    def sum(self, func: Any, args: Any, kwargs: Any) -> Any:
        terms = tensors(args[:2])
        blocks = [block for block in self.blocks if block.running and len(terms) == 2]
        values = [x.clone() for x in terms] if blocks and func in IN_PLACE else terms
        result = func(*args, **kwargs)
        for block in blocks:
            block.summed(terms, values, result)
        return result

    def multiplied(self, left: Tensor, right: Tensor, result: Tensor, seen: Seen) -> None:
        """A product makes scores, or takes weights."""
        if memory_of(left) in self.waiting:
            query, key, weights, _ = self.waiting[memory_of(left)]
            self.waiting = {}
            parts = (query, key.mT, right, weights)
            if weights.ndim == 3 and len(weights) % seen.num_heads == 0:  # (B * H, L, S)
                parts = tuple(x.unflatten(0, (-1, seen.num_heads)) for x in parts)
            seen.operands.append(copies(parts))
        elif result.ndim >= 3:
            self.product = left, right, result


Parts = tuple[Tensor, Tensor, Tensor, Tensor]


def tensors(args: Any) -> list[Tensor]:
    return [x for x in args if isinstance(x, Tensor)]


def copies(parts: Sequence[Tensor]) -> Parts:
    query, key, value, weights = (x.clone() for x in parts)
    return query, key, value, weights


def of_call(args: Any, kwargs: Any) -> Parts:
    """Queries, keys, values and weights of a fused call."""
    given = CALL.bind(*args, **kwargs).arguments
    parts = [given[name] for name in ("query", "key", "value")]
    return copies([*parts, weights_of_call(**given)])


def of_layer(args: Any, kwargs: Any) -> Parts:
    """Those of PyTorch's layer, by its definition: it computes them where nobody sees them."""
    given = PARAMETERS.bind(*args, **kwargs)
    given.apply_defaults()
    have, H = given.arguments, given.arguments["num_heads"]
    weights = [have[f"{part}_proj_weight"] for part in "qkv"]
    if not have["use_separate_proj_weight"]:
        weights = have["in_proj_weight"].chunk(3)
    biases = [None] * 3 if have["in_proj_bias"] is None else have["in_proj_bias"].chunk(3)
    parts = []
    for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
        x = have[name] if have[name].ndim == 3 else have[name][:, None]  # one sequence
        x = F.linear(x, weight, bias)  # (L, B, E)
        more = have.get({"key": "bias_k", "value": "bias_v"}.get(name, ""))
        if more is not None:
            x = torch.cat([x, more.expand(1, x.shape[1], -1)])
        x = x.unflatten(-1, (H, -1)).permute(1, 2, 0, 3)  # (B, H, L, D)
        parts.append(F.pad(x, (0, 0, 0, int(have["add_zero_attn"] and name != "query"))))
    return copies([*parts, weights_of_layer(*args, **kwargs)])

"""Maps of any model: the weights of each call of scaled dot-product attention.

`mhattn.attention_maps` asks layers of known classes. `captured_maps` needs to know none: models
call `torch.nn.functional.scaled_dot_product_attention`, and its arguments say what the weights are.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mhattn.core import checks as check
from mhattn.inside.calls import ThroughWeights, WatchedCalls
from mhattn.inside.importance import edit_heads
from mhattn.inside.layers import (
    AttentionLayer,
    advice,
    attention_layers,
    inside,
    known_layers,
    projection_of,
)
from mhattn.inside.observe import (
    AttentionMaps,
    attention_maps,
    in_evaluation,
    projection_called,
    warned_of_others,
    watch,
)

__all__ = ["captured_maps", "fed_heads", "with_sinks"]


# --8<-- [start:captured_maps]
def captured_maps(
    model: nn.Module,
    *inputs: Any,
    by_hand: bool = False,
    keep: Callable[[str, Tensor], Tensor | None] | None = None,
    **options: Any,
) -> AttentionMaps:
    """Call a model of any class, and return the weights of each call of attention besides.

    Args:
        model: in evaluation mode, without `torch.compile`.
        *inputs: for the model.
        by_hand: softmaxes over the last of four axes count as well, if a matrix product takes them:
            those of layers that weigh by hand.
        keep: gets the name and the weights of each call while the model runs, and returns what is
            kept of them, such as some heads or rows, or None for nothing: so no more than one map
            has to fit into memory. Default: all of them.
        **options: for the model.

    Returns:
        The weights of each call of `torch.nn.functional.scaled_dot_product_attention`, the name
        of the module that made it, and what the model returned: the same kernels run as without
        this function, and the weights are computed besides. PyTorch's layers, those of this
        package and those of transformers with ``"eager"`` are asked as in
        `mhattn.attention_maps`. A call with three axes has one head. One with more than four, as
        of windows, keeps them: the call doesn't say which is that of the heads.

    Raises:
        TypeError: model is not a `torch.nn.Module`.
        ValueError: a module of the model is in training mode, a call has dropout or a nested
            tensor, a layer of a known kind was called and made no such call, or nothing did.

    Examples:
        >>> class Layer(nn.Module):
        ...     def forward(self, x):  # (B, H, L, D)
        ...         return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        >>> found = captured_maps(nn.Sequential(Layer(), Layer()).eval(), torch.randn(2, 3, 5, 4))
        >>> found.names, [tuple(weights.shape) for weights in found.maps]
        (['0', '1'], [(2, 3, 5, 5), (2, 3, 5, 5)])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    in_evaluation(model)
    layers = known_layers(model)
    asked = {layer.name: layer for layer in layers if gives_weights(layer)}
    maps: list[Tensor] = []
    names: list[str] = []  # of maps
    seen: list[str] = []  # of all calls
    called: set[str] = set()
    running: list[str] = []  # modules whose call has begun, the innermost last

    def note(weights: Tensor, name: str) -> None:
        weights = weights if weights.ndim >= 4 else weights[None]  # (B, H, L, S)
        seen.append(name)
        kept = weights if keep is None else keep(name, weights)
        if kept is not None:
            maps.append(kept)
            names.append(name)

    def found(weights: Tensor) -> None:
        if not asked.keys() & set(running):
            note(weights, running[-1])

    with ExitStack() as stack:
        stack.enter_context(warned_of_others(model, layers, seen))
        for name, layer in asked.items():
            for handle in watch(layer, partial(note, name=name)):
                stack.callback(handle.remove)
        stack.enter_context(noted_calls(model, running, called))
        with WatchedCalls(found, lambda: running[-1], by_hand):
            output = model(*inputs, **options)
    silent = [x for x in layers if x.name in called and not any(inside(y, x.name) for y in seen)]
    rule, cure = "must call F.scaled_dot_product_attention", "call model.set_attn_implementation"
    if silent:
        config: Any = silent[0].module.config
        got = config._attn_implementation
        raise ValueError(f'{silent[0].name!r} {rule}, got {got!r}; {cure}("sdpa") or ("eager")')
    if not seen:
        cures = [] if by_hand else ["; by_hand=True takes softmaxes as well"]
        got = "".join([type(model).__name__, *cures, *advice(model, layers)])
        raise ValueError(f"model {rule}, got {got}")
    return AttentionMaps(maps, names, output)
    # --8<-- [end:captured_maps]


def gives_weights(layer: AttentionLayer) -> bool:
    """Whether `mhattn.attention_maps` can ask it; a layer of transformers if it is eager."""
    config = getattr(layer.module, "config", None)
    return getattr(config, "_attn_implementation", "eager") == "eager"


@contextmanager
def noted_calls(model: nn.Module, running: list[str], called: set[str]) -> Iterator[None]:
    """Which modules are called, and which is running."""
    with ExitStack() as stack:
        for name, module in model.named_modules():

            def begins(module: nn.Module, args: Any, name: str = name) -> None:
                running.append(name)
                called.add(name)

            def ends(module: nn.Module, args: Any, result: Any) -> None:
                running.pop()

            stack.callback(module.register_forward_pre_hook(begins, prepend=True).remove)
            stack.callback(module.register_forward_hook(ends, always_call=True).remove)
        yield


def fed_heads(model: nn.Module, *inputs: Any, **options: Any) -> list[Tensor]:
    """Which heads each map acts on: a check of a model that these tools have not seen before.

    A head is its map times values. So head ``h`` of `mhattn.inside.head_outputs` depends on map
    ``h`` of `mhattn.attention_maps` and on no other map of its layer: a diagonal of ones. Any
    other answer says that maps and `mhattn.inside.ablate_heads` speak of different heads, as in
    differential attention, whose heads have two maps each.

    Args:
        model: as for `mhattn.attention_maps`, with parameters that require gradients.
        *inputs: for the model.
        **options: for the model.

    Returns:
        ``(H, H)`` for each call of a layer, in their order: row ``i`` has a one for each head that
        map ``i`` acts on.

    Raises:
        TypeError: see `mhattn.attention_maps`.
        ValueError: weights have no gradients, a layer has no projection of a known name, or see
            `mhattn.attention_maps`.

    Examples:
        >>> layer, x = nn.MultiheadAttention(12, 2, batch_first=True).eval(), torch.randn(2, 5, 12)
        >>> fed_heads(layer, x, x, x)
        [tensor([[1, 0],
                [0, 1]])]
    """
    kept: list[Tensor] = []

    def keep(heads: Tensor) -> Tensor:
        kept.append(heads)
        return heads

    with torch.enable_grad(), ThroughWeights(), ExitStack() as stack:
        for layer in attention_layers(model):
            stack.enter_context(projection_called(layer))
            stack.enter_context(edit_heads(projection_of(layer), layer.num_heads, keep))
        found = attention_maps(model, *inputs, **options)
        return [acts_on(*each) for each in zip(found.maps, found.names, kept, strict=True)]


def acts_on(weights: Tensor, name: str, heads: Tensor) -> Tensor:
    """``(H, H)`` from maps ``(B, H, L, S)`` and heads ``(B, L, H, D)``."""
    if not weights.requires_grad:
        raise ValueError(f"weights of {name!r} must have gradients: call model.requires_grad_()")
    starts = [weights]
    if weights._base is not None and weights._base.numel() == weights.numel():
        starts.append(weights._base)  # the heads may have been made of what this is a view of
    options: dict[str, Any] = {"retain_graph": True, "materialize_grads": True}
    columns = []
    for head in heads.unbind(dim=-2):
        gradients = torch.autograd.grad(head.sin().sum(), starts, **options)
        acts = torch.stack([grad.reshape(weights.shape) != 0 for grad in gradients]).any(dim=0)
        columns.append(acts.transpose(0, 1).flatten(1).any(dim=1))
    return torch.stack(columns, dim=1).long()


def with_sinks(weights: Tensor) -> Tensor:
    """Weights with the share of a sink as a column of its own, before the first key.

    A model with sinks, such as gpt-oss, gives a part of each query's attention to no key, and its
    rows sum to less than one. With the column they sum to one, the query is still at position
    ``i + (S - L)``, and the first key of `mhattn.inside.head_patterns` is the sink.

    Args:
        weights: floats, ``(..., L, S)``; each row sums to one or less.

    Returns:
        ``(..., L, S + 1)``, dtype of ``weights``.

    Raises:
        TypeError: weights is not a tensor of floats.
        ValueError: weights has fewer than two axes, a weight is negative, or a row sums to more
            than one.

    Examples:
        >>> with_sinks(torch.tensor([[0.5, 0.0], [0.25, 0.25]]))
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.2500, 0.2500]])
    """
    check.floats("weights", weights)
    check.axes("weights", weights, 2)
    sums = weights.to(torch.promote_types(weights.dtype, torch.float32)).sum(dim=-1, keepdim=True)
    if not ((weights >= 0).all() and (sums < 1.01).all()):
        rule = "weights must not be negative, nor a row sum to more than one"
        raise ValueError(f"{rule}, got {weights.min():.3g} and {sums.max():.3g}")
    return torch.cat([(1 - sums).clamp(min=0).to(weights.dtype), weights], dim=-1)

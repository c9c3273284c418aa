"""Look into a model that others wrote: the weights and outputs of all of its heads.

A model is any `torch.nn.Module` that holds attention layers: `mhattn.MultiHeadAttention` and
`mhattn.variants.LatentAttention`, `torch.nn.MultiheadAttention`, alone or in the layers of
`torch.nn.Transformer`, those of the transformers library, which is known by its attributes and
never imported, and classes of your own: `mhattn.inside.register`. Nothing of the model is changed:
hooks do the work, and they are removed. While a call runs, the model belongs to it alone: no other
thread may call it at the same time. For maps alone, of any model, see
`mhattn.inside.captured_maps`.
"""

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mhattn.inside.calls import WatchedCalls
from mhattn.inside.importance import Edit, Head, edit_heads, replace_heads
from mhattn.inside.layers import (
    OURS,
    AttentionLayer,
    attention_layers,
    inside,
    kind_of,
    projection_of,
    suspects,
)

__all__ = [
    "AttentionMaps",
    "ablate_heads",
    "attention_maps",
    "call_projections",
    "head_outputs",
    "patch_heads",
]

PARAMETERS_OF_TORCH = inspect.signature(nn.MultiheadAttention.forward)


class AttentionMaps(NamedTuple):
    """What `attention_maps` found, in the order in which the layers were called.

    Attributes:
        maps: the weights of each layer, ``(B, H, L, S)``.
        names: the name of each layer. A layer that is called twice is there twice.
        output: what the model returned.
    """

    maps: list[Tensor]
    names: list[str]
    output: Any


# --8<-- [start:attention_maps]
def attention_maps(model: nn.Module, *inputs: Any, **options: Any) -> AttentionMaps:
    """Call a model, and return the attention weights of all of its layers besides.

    Args:
        model: in evaluation mode: in training, weights are those after dropout, and the next call
            has others.
        *inputs: for the model.
        **options: for the model.

    Returns:
        The weights of each call of an attention layer, the names of the layers, and what the
        model returned: the same as without this function, up to rounding, since other kernels
        may run. With grouped heads there is a map for each head of the query. Gradients pass
        through the maps; call it under `torch.no_grad` to do without. Padding that
        `torch.nn.TransformerEncoder` leaves out has rows of zeros. In a model with sinks, such as
        gpt-oss, a row sums to less than one, and what expects one refuses it:
        `mhattn.inside.attention_rollout`, `mhattn.inside.head_similarity` and the statistics of
        `mhattn.inside.heads`. `mhattn.inside.with_sinks` adds the share that lacks. A warning names
        parts whose class is called attention, and of which there is no map.

    Raises:
        TypeError: see `attention_layers`.
        ValueError: a module of the model is in training mode, a model of transformers does not
            compute its weights (only ``"eager"`` does; ``"sdpa"`` is the default), a layer of it
            returns none, no attention layer was called, or see `attention_layers`.

    Examples:
        >>> block = nn.TransformerEncoderLayer(12, 3, batch_first=True)
        >>> encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
        >>> found = attention_maps(encoder, torch.randn(2, 5, 12))
        >>> found.names, [tuple(weights.shape) for weights in found.maps]
        (['layers.0.self_attn', 'layers.1.self_attn'], [(2, 3, 5, 5), (2, 3, 5, 5)])
    """
    layers = attention_layers(model)
    in_evaluation(model)
    maps: list[Tensor] = []
    names: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(warned_of_others(model, layers, names))
        for layer in layers:

            def keep(weights: Tensor, name: str = layer.name) -> None:
                maps.append(weights if weights.ndim == 4 else weights[None])  # (B, H, L, S)
                names.append(name)

            for handle in watch(layer, keep):
                stack.callback(handle.remove)
        output = model(*inputs, **options)
    if not maps:
        raise ValueError(f"model must call an attention layer, got {type(model).__name__}")
    return AttentionMaps(maps, names, output)
    # --8<-- [end:attention_maps]


Keep = Callable[[Tensor], None]


def watch(layer: AttentionLayer, keep: Keep) -> list[Any]:
    """Hooks that keep the weights of each call of a layer."""
    if isinstance(layer.module, nn.MultiheadAttention):
        return watch_torch(layer, keep)
    if isinstance(layer.module, OURS):
        return watch_ours(layer, keep)
    if kind_of(layer.module):
        return watch_registered(layer, keep)
    return watch_transformers(layer, keep)


@contextmanager
def warned_of_others(
    model: nn.Module, layers: Sequence[AttentionLayer], names: Sequence[str]
) -> Iterator[None]:
    """A warning of what is called attention, was called, and gave no map of one of these names."""
    missed: dict[str, str] = {}
    with ExitStack() as stack:
        for name, module in suspects(model, layers).items():

            def called(module: nn.Module, args: Any, result: Any, name: str = name) -> None:
                missed[name] = type(module).__name__

            stack.callback(module.register_forward_hook(called).remove)
        yield
    missed = {x: kind for x, kind in missed.items() if not any(inside(name, x) for name in names)}
    if missed and names:  # without any map, there is an error
        text = ", ".join(f"{name!r} ({kind})" for name, kind in missed.items())
        cure = "if it is attention, name its class to mhattn.inside.register"
        warnings.warn(f"no maps of {text}: {cure}", stacklevel=4)


# --8<-- [start:watch_torch]
def watch_torch(layer: AttentionLayer, keep: Keep) -> list[Any]:
    """A hook before the call asks for all heads, one after it returns what the caller asked for."""
    asked = []

    def ask(module: nn.Module, args: Any, options: Any) -> Any:
        given = PARAMETERS_OF_TORCH.bind(module, *args, **options)
        given.apply_defaults()
        _, query, key, value, *_ = given.args
        flags = {"need_weights": True, "average_attn_weights": False}
        asked.append({name: given.arguments[name] for name in flags})
        rest = [name for name in given.arguments if name not in ("self", "query", "key", "value")]
        return (query, key, value), {name: given.arguments[name] for name in rest} | flags

    def answer(module: nn.Module, args: Any, result: Any) -> Any:
        output, weights = result
        keep(weights)
        given = asked.pop()
        if not given["need_weights"]:
            return output, None
        return output, weights.mean(dim=-3) if given["average_attn_weights"] else weights

    before = layer.module.register_forward_pre_hook(ask, with_kwargs=True)
    return [before, layer.module.register_forward_hook(answer)]
    # --8<-- [end:watch_torch]


def watch_ours(layer: AttentionLayer, keep: Keep) -> list[Any]:
    asked = []

    def ask(module: nn.Module, args: Any, options: Any) -> Any:
        asked.append(options.get("return_weights", False))
        return args, options | {"return_weights": True}

    def answer(module: nn.Module, args: Any, result: Any) -> Any:
        keep(result[1])
        return result if asked.pop() else result[0]

    before = layer.module.register_forward_pre_hook(ask, with_kwargs=True)
    return [before, layer.module.register_forward_hook(answer)]


def watch_transformers(layer: AttentionLayer, keep: Keep) -> list[Any]:
    config: Any = layer.module.config
    got = config._attn_implementation
    if got != "eager":
        cure = 'call model.set_attn_implementation("eager")'
        cure = f"{cure}, or mhattn.inside.captured_maps instead of mhattn.attention_maps"
        cure = f"{cure}; a class that ignores it has to be built with attn_implementation='eager'"
        raise ValueError(
            f"attn_implementation must be 'eager', which has weights, got {got!r}; {cure}"
        )

    def look(module: nn.Module, args: Any, result: Any) -> None:
        keep(weights_among(result, layer))

    return [layer.module.register_forward_hook(look)]


def watch_registered(layer: AttentionLayer, keep: Keep) -> list[Any]:
    """The one call with weights of a layer, seen from inside of it."""
    running: list[tuple[ExitStack, list[Tensor]]] = []

    def enter(module: nn.Module, args: Any) -> None:
        found: list[Tensor] = []
        stack = ExitStack()
        options: dict[str, Any] = {"by_hand": True, "num_heads": layer.num_heads}
        stack.enter_context(WatchedCalls(found.append, lambda: layer.name, **options))
        running.append((stack, found))

    def leave(module: nn.Module, args: Any, result: Any) -> None:
        if not running:
            return
        stack, found = running.pop()
        stack.close()
        if result is None:  # the call has failed
            return
        H, shapes = layer.num_heads, [tuple(weights.shape) for weights in found]
        if len(found) != 1 or found[0].ndim != 4 or shapes[0][1] != H:
            rule = f"{layer.name!r} must weigh once in a call, with weights (B, H={H}, L, S)"
            raise ValueError(f"{rule}, got {shapes}")
        keep(checked(found[0], layer))

    before = layer.module.register_forward_pre_hook(enter)
    return [before, layer.module.register_forward_hook(leave, always_call=True)]


def weights_among(result: Any, layer: AttentionLayer) -> Tensor:
    """What a layer of transformers returns last, ``(B, H, L, S)``; T5 has a bias before it."""
    found = result[1:] if isinstance(result, tuple) else ()
    for x in reversed(found):
        if isinstance(x, Tensor) and x.ndim == 4 and x.shape[1] == layer.num_heads:
            return checked(x, layer)
    got = [tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__ for x in found]
    rule = f"{layer.name!r} must return weights, (B, H={layer.num_heads}, L, S), after its output"
    raise ValueError(f"{rule}, got {got}")


def checked(weights: Tensor, layer: AttentionLayer) -> Tensor:
    """Rows sum to one, or to less if a sink takes a share, or to zero if they see no key."""
    sums = weights.detach().float().sum(dim=-1)
    rule = f"{layer.name!r} must return weights"
    if not ((weights >= 0).all() and (sums < 1.01).all()):
        raise ValueError(f"{rule}, got numbers that are none")
    if has_sinks(layer.module):
        if sums.mean() > 0.999:
            cure = "its sinks act behind them, and mhattn.inside.head_outputs has what comes out"
            raise ValueError(f"{rule}, got rows that sum to one: {cure}")
    elif (part := sums[(sums < 0.99) & (sums > 0)]).numel():
        raise ValueError(f"{rule}, whose rows sum to one, got a row that sums to {part[0]:.2g}")
    return weights


def has_sinks(module: nn.Module) -> bool:
    """Keys of no token, which take a share of each row: a parameter of that name."""
    own = [name for name, _ in module.named_parameters()]
    return any("sink" in name for name in own)


# --8<-- [start:call_projections]
@contextmanager
def call_projections(model: nn.Module) -> Iterator[None]:
    """Have each `torch.nn.MultiheadAttention` call its output projection.

    It reads the weight of its ``out_proj`` and never calls the module, so hooks on it never run.
    In this context the layer computes its heads with the identity in place of the projection, and
    calls the projection then. So `mhattn.inside.edit_heads`, `mhattn.inside.ablation_effects`
    and all that build on hooks work with ``out_proj``. Layers of other kinds call theirs anyway.

    While a layer runs, its ``out_proj`` is that identity. So this is not for threads that share
    a model, nor for a layer that is called again inside of its own call.

    Args:
        model: any module.

    Returns:
        A context, in which the model is called.

    Raises:
        TypeError: see `attention_layers`.
        ValueError: see `attention_layers`.

    Examples:
        >>> layer, x = nn.MultiheadAttention(12, 3, batch_first=True), torch.randn(2, 5, 12)
        >>> with call_projections(layer), edit_heads(layer.out_proj, 3, torch.zeros_like):
        ...     output, _ = layer(x, x, x)
        >>> torch.equal(output, layer.out_proj.bias.expand(2, 5, 12))
        True
    """
    with ExitStack() as stack:
        for layer in attention_layers(model):
            if isinstance(layer.module, nn.MultiheadAttention):
                stack.enter_context(calling(layer.module))
        yield


@contextmanager
def calling(module: nn.MultiheadAttention) -> Iterator[None]:
    projection = module.out_proj

    def take_out(module: Any, args: Any) -> None:
        module.out_proj = identity_like(projection)

    def put_back(module: Any, args: Any, result: Any) -> Any:
        module.out_proj = projection
        if result is None:  # the call has failed
            return None
        merged, weights = result  # the heads side by side: (B, L, E) or (L, B, E)
        return projected(projection, merged, module.batch_first), weights

    before = module.register_forward_pre_hook(take_out)
    after = module.register_forward_hook(put_back, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()
    # --8<-- [end:call_projections]


def identity_like(projection: nn.Linear) -> nn.Linear:
    """A stand-in that changes nothing: each head's features pass to their own places."""
    like, bias = projection.weight, projection.bias is not None
    identity = nn.Linear(len(like), len(like), bias, like.device, like.dtype)
    identity.requires_grad_(False)
    nn.init.eye_(identity.weight)
    if identity.bias is not None:
        nn.init.zeros_(identity.bias)
    return identity.train(projection.training)


def projected(projection: Callable[[Tensor], Tensor], merged: Tensor, batch_first: bool) -> Tensor:
    """The projection of ``(B, L, E)``, whatever the layout; a nested tensor is padded for it."""
    if merged.is_nested:
        lengths = [len(sequence) for sequence in merged.unbind()]
        output = projection(merged.to_padded_tensor(0.0))
        rows = zip(output, lengths, strict=True)
        return torch.nested.as_nested_tensor([row[:length] for row, length in rows])
    if merged.ndim == 2:
        return projection(merged[None])[0]
    if batch_first:
        return projection(merged)
    return projection(merged.transpose(0, 1)).transpose(0, 1)


@contextmanager
def ablate_heads(
    model: nn.Module, heads: Sequence[Head | str], by: Edit = torch.zeros_like
) -> Iterator[None]:
    """Replace what some heads of a model give, before the output projection mixes them.

    Args:
        model: any module with attention layers.
        heads: pairs of layer and head, both counted from 0; the layers as in `attention_layers`. Or
            names as on a map: ``"24.4"`` is ``(23, 3)``, both counted from 1.
        by: takes a head, ``(B, L, D)``, and returns what replaces it; see
            `mhattn.inside.replace_heads`.

    Returns:
        A context, in which the model is called.

    Raises:
        TypeError: heads are no pairs or names, or see `attention_layers`.
        ValueError: a head does not exist or is named twice, its layer has no projection of a known
            name or does not call it, or see `attention_layers`.

    Examples:
        >>> block = nn.TransformerEncoderLayer(12, 3, batch_first=True)
        >>> encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
        >>> x = torch.randn(2, 5, 12)
        >>> with ablate_heads(encoder, [(1, 0), (1, 2)]):
        ...     output = encoder(x)
        >>> torch.allclose(output, encoder(x))
        False
    """
    layers = attention_layers(model)
    with ExitStack() as stack:
        for place, gone in by_layer(layers, heads).items():
            layer = layers[place]
            stack.enter_context(projection_called(layer))
            pairs = [(0, head) for head in gone]
            stack.enter_context(replace_heads([projection_of(layer)], layer.num_heads, pairs, by))
        yield


def head_outputs(model: nn.Module, *inputs: Any, **options: Any) -> list[Tensor]:
    """Call a model, and return what each head of each layer gives to the output projection.

    Args:
        model: any module with attention layers.
        *inputs: for the model.
        **options: for the model.

    Returns:
        ``(B, L, H, D)`` for each layer, as in `attention_layers`: each head's weights times its
        values.

    Raises:
        TypeError: see `attention_layers`.
        ValueError: a layer has no projection of a known name, is not called just once, or see
            `attention_layers`.

    Examples:
        >>> from mhattn import MultiHeadAttention
        >>> model = nn.Sequential(*[MultiHeadAttention(12, 3) for _ in range(2)])
        >>> [tuple(heads.shape) for heads in head_outputs(model, torch.randn(2, 5, 12))]
        [(2, 5, 3, 4), (2, 5, 3, 4)]
    """
    layers = attention_layers(model)
    kept: list[list[Tensor]] = [[] for _ in layers]
    with ExitStack() as stack:
        for layer, found in zip(layers, kept, strict=True):

            def keep(heads: Tensor, found: list[Tensor] = found) -> Tensor:
                found.append(heads)
                return heads

            stack.enter_context(projection_called(layer))
            stack.enter_context(edit_heads(projection_of(layer), layer.num_heads, keep))
        model(*inputs, **options)
    for layer, found in zip(layers, kept, strict=True):
        if len(found) != 1:
            raise ValueError(f"{layer.name!r} must be called once, got {len(found)} times")
    return [found[0] for found in kept]


@contextmanager
def patch_heads(
    model: nn.Module,
    heads: Sequence[Head | str],
    source: Sequence[Tensor],
    positions: slice | Sequence[int] = slice(None),
) -> Iterator[None]:
    """Replace some heads by what they gave in another call: activation patching.

    If the output then moves to that of the other call, the heads carry what tells both apart
    (Vig et al. 2020, https://arxiv.org/abs/2004.12265).

    Args:
        model: any module with attention layers.
        heads: pairs of layer and head, as in `ablate_heads`.
        source: of the other call, from `head_outputs`.
        positions: of the queries at which heads are replaced, from 0, or from -1 backwards.
            Default: all.

    Returns:
        A context, in which the model is called, with an input of the same shape as the other.

    Raises:
        TypeError: see `attention_layers`.
        ValueError: source has another number of layers or other shapes, there is no such position,
            or see `ablate_heads`.

    Examples:
        >>> from mhattn import MultiHeadAttention
        >>> model, x, other = MultiHeadAttention(12, 3), *torch.randn(2, 1, 5, 12)
        >>> with patch_heads(model, [(0, 0), (0, 1), (0, 2)], head_outputs(model, other)):
        ...     output = model(x)
        >>> torch.equal(output, model(other))
        True
    """
    layers = attention_layers(model)
    if len(source) != len(layers):
        raise ValueError(f"source must be of {len(layers)} layers, got {len(source)}")

    def patched(place: int, changed: list[int]) -> Edit:
        def edit(given: Tensor) -> Tensor:
            if given.shape != source[place].shape:
                rule = f"source[{place}] must be {tuple(given.shape)}, as in this call"
                raise ValueError(f"{rule}, got {tuple(source[place].shape)}")
            length = given.shape[1]
            if not isinstance(positions, slice):
                for position in positions:
                    if not -length <= position < length:
                        raise ValueError(
                            f"positions must be in [{-length}, {length}), got {position}"
                        )
            edited = given.clone()
            for head in changed:
                edited[:, positions, head] = source[place][:, positions, head]
            return edited

        return edit

    with ExitStack() as stack:
        for place, changed in by_layer(layers, heads).items():
            layer = layers[place]
            stack.enter_context(projection_called(layer))
            edit = patched(place, changed)
            stack.enter_context(edit_heads(projection_of(layer), layer.num_heads, edit))
        yield


@contextmanager
def projection_called(layer: AttentionLayer) -> Iterator[None]:
    with ExitStack() as stack:
        if isinstance(layer.module, nn.MultiheadAttention):
            stack.enter_context(calling(layer.module))
        yield


def by_layer(layers: Sequence[AttentionLayer], heads: Sequence[Head | str]) -> dict[int, list[int]]:
    """The heads of each layer that has one."""
    found: dict[int, list[int]] = {}
    for layer, head in map(pair_of, heads):
        if not 0 <= layer < len(layers):
            raise ValueError(f"heads must be of {len(layers)} layers, from 0, got {(layer, head)}")
        number = layers[layer].num_heads
        if not 0 <= head < number:
            rule = f"heads of layer {layer} must be 0 to {number - 1}"
            raise ValueError(f"{rule}, got {(layer, head)}")
        if head in found.setdefault(layer, []):
            raise ValueError(f"heads must not be named twice, got {(layer, head)}")
        found[layer].append(head)
    return found


def pair_of(head: Any) -> tuple[int, int]:
    """Layer and head from 0, of a pair or of a name such as "24.4", which counts from 1."""
    if isinstance(head, str) and (parts := re.fullmatch(r"([1-9]\d*)\.([1-9]\d*)", head)):
        return int(parts[1]) - 1, int(parts[2]) - 1
    match head:
        case (int(layer), int(place)):
            return layer, place
    rule = 'heads must be pairs (layer, head), from 0, or names such as "24.4", from 1'
    raise TypeError(f"{rule}, got {head!r}")


def in_evaluation(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if module.training:
            what = repr(name) if name else type(module).__name__
            rule = "model must be in evaluation mode, as dropout changes weights"
            raise ValueError(f"{rule}: call model.eval(), got {what} in training")

"""Look into a model that others wrote: the weights and outputs of all of its heads.

A model is any `torch.nn.Module` that holds attention layers: `mhattn.MultiHeadAttention` and
`mhattn.LatentAttention`, `torch.nn.MultiheadAttention`, alone or in the layers of
`torch.nn.Transformer`, and those of the transformers library, which is known by its attributes and
never imported. Nothing of the model is changed: hooks do the work, and they are removed. While a
call runs, the model belongs to it alone: no other thread may call it at the same time.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mhattn.importance import Edit, Head, edit_heads, replace_heads
from mhattn.latent import LatentAttention
from mhattn.modules import MultiHeadAttention

__all__ = [
    "AttentionLayer",
    "AttentionMaps",
    "ablate_heads",
    "attention_layers",
    "attention_maps",
    "call_projections",
    "head_outputs",
    "patch_heads",
]

OURS = (MultiHeadAttention, LatentAttention)
PROJECTIONS = ("o_proj", "out_proj", "c_proj", "dense", "out_lin", "wo", "o")  # in transformers
PARAMETERS_OF_TORCH = inspect.signature(nn.MultiheadAttention.forward)


class AttentionLayer(NamedTuple):
    """An attention layer of a model.

    Attributes:
        name: where it is in the model, as `torch.nn.Module.get_submodule` takes it.
        module: the layer.
        projection: its output projection, for `mhattn.edit_heads`; None if it has an unknown name.
        num_heads: H, of the query.
    """

    name: str
    module: nn.Module
    projection: nn.Module | None
    num_heads: int


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


def attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """Find the attention layers of a model.

    A layer of transformers is known by two attributes: its config's ``_attn_implementation``, and
    ``is_causal``. Those of Bloom, MPT and DeBERTa-v2 have neither and are not found.

    Args:
        model: any module; it may be an attention layer itself.

    Returns:
        The layers in the order of `torch.nn.Module.named_modules`. `ablate_heads`, `head_outputs`
        and `patch_heads` number them so, from 0.

    Raises:
        TypeError: model is not a `torch.nn.Module`.
        ValueError: it holds no attention layer of a known kind.

    Examples:
        >>> block = nn.TransformerEncoderLayer(12, 3, batch_first=True)
        >>> encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        >>> [(layer.name, layer.num_heads) for layer in attention_layers(encoder)]
        [('layers.0.self_attn', 3), ('layers.1.self_attn', 3)]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    found = []
    for name, module in model.named_modules():
        if isinstance(module, (*OURS, nn.MultiheadAttention)):
            found.append(AttentionLayer(name, module, module.out_proj, module.num_heads))
        elif is_of_transformers(module):
            projection = projection_in_transformers(model, name, module)
            found.append(AttentionLayer(name, module, projection, heads_in_transformers(module)))
    if not found:
        kinds = "mhattn, torch.nn.MultiheadAttention or transformers"
        known = "with is_causal and a config with _attn_implementation"
        got = type(model).__name__
        raise ValueError(f"model must hold an attention layer of {kinds} {known}, got {got}")
    return found


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
        `mhattn.attention_rollout`, `mhattn.head_similarity` and the statistics of `mhattn.heads`.

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
        for layer in layers:

            def keep(weights: Tensor, name: str = layer.name) -> None:
                maps.append(weights if weights.ndim == 4 else weights[None])  # (B, H, L, S)
                names.append(name)

            watch = next(watch for kinds, watch in WATCH if isinstance(layer.module, kinds))
            for handle in watch(layer, keep):
                stack.callback(handle.remove)
        output = model(*inputs, **options)
    if not maps:
        raise ValueError(f"model must call an attention layer, got {type(model).__name__}")
    return AttentionMaps(maps, names, output)
    # --8<-- [end:attention_maps]


Keep = Callable[[Tensor], None]


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
        cure = f"{cure}; a class that ignores it has to be built with attn_implementation='eager'"
        raise ValueError(
            f"attn_implementation must be 'eager', which has weights, got {got!r}; {cure}"
        )

    def look(module: nn.Module, args: Any, result: Any) -> None:
        keep(weights_among(result, layer))

    return [layer.module.register_forward_hook(look)]


def weights_among(result: Any, layer: AttentionLayer) -> Tensor:
    """What a layer of transformers returns last and is ``(B, H, L, S)``; T5 has a bias before it.

    Rows that see a sink sum to less than one.
    """
    found = result[1:] if isinstance(result, tuple) else ()
    for x in reversed(found):
        if isinstance(x, Tensor) and x.ndim == 4 and x.shape[1] == layer.num_heads:
            sums = x.detach().float().sum(dim=-1)
            if not ((x < 0).any() or (sums > 1.01).any()):
                return x
            raise ValueError(f"{layer.name!r} must return weights, got numbers that are none")
    got = [tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__ for x in found]
    rule = f"{layer.name!r} must return weights, (B, H={layer.num_heads}, L, S), after its output"
    raise ValueError(f"{rule}, got {got}")


WATCH: list[tuple[Any, Callable[[AttentionLayer, Keep], list[Any]]]] = [
    (nn.MultiheadAttention, watch_torch),
    (OURS, watch_ours),
    (nn.Module, watch_transformers),
]


# --8<-- [start:call_projections]
@contextmanager
def call_projections(model: nn.Module) -> Iterator[None]:
    """Have each `torch.nn.MultiheadAttention` call its output projection.

    It reads the weight of its ``out_proj`` and never calls the module, so hooks on it never run.
    In this context the layer computes its heads with the identity in place of the projection, and
    calls the projection then. So `mhattn.edit_heads`, `mhattn.ablation_effects` and all that
    build on hooks work with ``out_proj``. Layers of other kinds call theirs anyway.

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
    model: nn.Module, heads: Sequence[Head], by: Edit = torch.zeros_like
) -> Iterator[None]:
    """Replace what some heads of a model give, before the output projection mixes them.

    Args:
        model: any module with attention layers.
        heads: pairs of layer and head, both counted from 0; the layers as in `attention_layers`.
        by: takes a head, ``(B, L, D)``, and returns what replaces it; see
            `mhattn.replace_heads`.

    Returns:
        A context, in which the model is called.

    Raises:
        TypeError: see `attention_layers`.
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
    heads: Sequence[Head],
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
        positions: of the queries at which heads are replaced. Default: all.

    Returns:
        A context, in which the model is called, with an input of the same shape as the other.

    Raises:
        TypeError: see `attention_layers`.
        ValueError: source has another number of layers or other shapes, or see `ablate_heads`.

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


def is_of_transformers(module: nn.Module) -> bool:
    """Its layers hold the model's config, and say whether they are causal."""
    config = getattr(module, "config", None)
    return hasattr(config, "_attn_implementation") and hasattr(module, "is_causal")


def heads_in_transformers(module: nn.Module) -> int:
    for owner in (module, module.config):
        for name in ("num_heads", "num_attention_heads", "n_heads"):
            if isinstance(number := getattr(owner, name, None), int):
                return number
    raise ValueError(f"number of heads must be in the module or its config, got {module!r}")


def projection_in_transformers(model: nn.Module, name: str, module: nn.Module) -> nn.Module | None:
    """A part of the layer, or, as in BERT, of the module beside it."""
    parts = {part.lower(): child for part, child in module.named_children()}  # ModernBERT: Wo
    for part in PROJECTIONS:
        if part in parts:
            return parts[part]
    beside = getattr(model.get_submodule(name.rpartition(".")[0]), "output", None)
    projection = getattr(beside, "dense", None)
    return projection if isinstance(projection, nn.Module) else None


def projection_of(layer: AttentionLayer) -> nn.Module:
    if layer.projection is None:
        rule = f"the output projection of {layer.name!r} must be one of {', '.join(PROJECTIONS)}"
        got = [name for name, _ in layer.module.named_children()]
        raise ValueError(f"{rule}, got {got}; pass yours to mhattn.edit_heads")
    return layer.projection


@contextmanager
def projection_called(layer: AttentionLayer) -> Iterator[None]:
    with ExitStack() as stack:
        if isinstance(layer.module, nn.MultiheadAttention):
            stack.enter_context(calling(layer.module))
        yield


def by_layer(layers: Sequence[AttentionLayer], heads: Sequence[Head]) -> dict[int, list[int]]:
    """The heads of each layer that has one."""
    found: dict[int, list[int]] = {}
    for layer, head in heads:
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


def in_evaluation(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if module.training:
            what = repr(name) if name else type(module).__name__
            rule = "model must be in evaluation mode, as dropout changes weights"
            raise ValueError(f"{rule}: call model.eval(), got {what} in training")

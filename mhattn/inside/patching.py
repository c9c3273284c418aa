"""Activation patching: parts of a run come from another run, and the answer moves or stays.

The other run is recorded once, `mhattn.inside.residual_cache`, `mhattn.inside.head_outputs` or
`mlp_outputs`. Then the model is called in a context that puts what was recorded in its place.
`mhattn.inside.patch_heads` does it for heads, `mhattn.inside.patch_qkv` for their inputs.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from mhattn.inside.blocks import (
    Adding,
    Edit,
    Place,
    Positions,
    blocks_of,
    followed,
    numbers_of,
    put,
    same,
)
from mhattn.inside.importance import Head
from mhattn.inside.layers import attention_layers
from mhattn.inside.observe import by_layer, head_outputs, in_evaluation, patch_heads
from mhattn.inside.operands import Part, cached_of, patch_qkv
from mhattn.inside.stream import ResidualCache, residual_cache

__all__ = ["mlp_outputs", "patch_mlps", "patch_path", "patch_stream"]


# --8<-- [start:patch_stream]
@contextmanager
def patch_stream(
    model: nn.Module,
    blocks: Sequence[int | str],
    source: ResidualCache,
    positions: Positions = slice(None),
    *,
    behind: bool = False,
) -> Iterator[None]:
    """Replace the residual stream in front of some blocks by what it was in another call.

    One position at a time, this says where in its layers a model holds what tells two calls apart:
    causal tracing (Meng et al. 2022, https://arxiv.org/abs/2202.05262).

    Args:
        model: in evaluation mode, with attention layers in blocks, as for
            `mhattn.inside.residual_cache`.
        blocks: their numbers, from 0, in the order of their attention layers; a block with
            self-attention and cross-attention is one. Or names as on a map: ``"24"`` is 23.
        source: of the other call, from `mhattn.inside.residual_cache`.
        positions: at which the stream is replaced, from 0, or from -1 backwards. Default: all.
        behind: replace what the blocks return, instead of what they are given.

    Returns:
        A context, in which the model is called, with an input of the same shape as the other.

    Raises:
        TypeError: blocks are no numbers or names, source is no `mhattn.inside.ResidualCache`, or
            see `mhattn.inside.attention_layers`.
        ValueError: a block or position does not exist, a block is named twice, source has other
            shapes or the block not just once, something is added to the stream in front of the
            block's attention, or see `mhattn.inside.attention_layers`.

    Examples:
        >>> import torch
        >>> block = nn.TransformerEncoderLayer(12, 3, batch_first=True)
        >>> encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
        >>> x, other = torch.randn(2, 1, 5, 12)
        >>> source = residual_cache(encoder, other)
        >>> with patch_stream(encoder, [1], source):
        ...     output = encoder(x)
        >>> torch.allclose(output, encoder(other), atol=1e-5)
        True
    """
    places = blocks_of(model)
    with ExitStack() as stack:
        for number in numbers_of(blocks, len(places)):
            place = places[number]
            layer = cached_of(source, place.layers[0].name)
            own = layer.after if behind else layer.before
            replace = Replaced(place, own, positions)
            module = model.get_submodule(place.name)
            if behind:
                stack.callback(module.register_forward_hook(replace.result).remove)
                continue
            first = module.register_forward_pre_hook(replace.given, with_kwargs=True)
            stack.callback(first.remove)
            seen = Adding(place)
            stack.enter_context(followed(model, [seen]))
            stack.callback(module.register_forward_hook(entered_as_it_is(seen)).remove)
        yield
    # --8<-- [end:patch_stream]


class Replaced:
    """The stream of a block, from another call."""

    def __init__(self, place: Place, own: Tensor, positions: Positions) -> None:
        self.place, self.own, self.positions = place, own, positions

    def put(self, given: Tensor) -> Tensor:
        what = f"source of {self.place.name!r}"
        return put(given, self.own, self.positions, self.place.length_axis, what)

    def given(self, module: nn.Module, args: Any, options: Any) -> Any:
        """What the block is given: its first tensor is the stream."""
        parts = [*enumerate(args), *options.items()]
        key = next(key for key, x in parts if isinstance(x, Tensor))
        if isinstance(key, int):
            return (*args[:key], self.put(args[key]), *args[key + 1 :]), options
        return args, options | {key: self.put(options[key])}

    def result(self, module: nn.Module, args: Any, result: Any) -> Any:
        if isinstance(result, tuple | list):
            return type(result)([self.put(result[0]), *result[1:]])
        return self.put(result)


def entered_as_it_is(block: Adding) -> Any:
    def check(module: nn.Module, args: Any, result: Any) -> None:
        before = block.open[0].before if block.open else None
        if before is not None and block.first is not None and not same(before, block.first):
            rule = (
                f"the stream must reach the attention of {block.place.name!r} as the block got it"
            )
            raise ValueError(f"{rule}, got another: something is added in front of it")

    return check


def mlp_outputs(model: nn.Module, *inputs: Any, **options: Any) -> list[Tensor]:
    """Call a model, and return what the MLP of each block adds to the residual stream.

    Args:
        model: in evaluation mode, with attention layers in blocks, as for
            `mhattn.inside.residual_cache`.
        *inputs: for the model.
        **options: for the model.

    Returns:
        ``(B, L, E)`` for each block, as in `patch_stream`: behind a norm or factor of its own, as
        in Gemma or Granite, and in front of a norm of the whole stream, as in BERT.

    Raises:
        TypeError: see `mhattn.inside.attention_layers`.
        ValueError: a module is in training mode, a block is not called just once or adds nothing,
            or several things, behind attention, or see `mhattn.inside.residual_cache`.

    Examples:
        >>> import torch
        >>> block = nn.TransformerEncoderLayer(12, 3, 24, batch_first=True, norm_first=True)
        >>> encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
        >>> x = torch.randn(2, 5, 12)
        >>> _, last = residual_cache(encoder, x).layers
        >>> torch.allclose(last.between + mlp_outputs(encoder, x)[1], last.after, atol=1e-5)
        True
    """
    in_evaluation(model)
    places = blocks_of(model)
    kept: list[list[Tensor]] = [[] for _ in places]

    def keeping(found: list[Tensor]) -> Edit:
        def keep(x: Tensor) -> Tensor:
            found.append(x.clone())
            return x

        return keep

    blocks = [Adding(place) for place in places]
    for block, found in zip(blocks, kept, strict=True):
        block.edit = keeping(found)
    with followed(model, blocks):
        model(*inputs, **options)
    for place, found in zip(places, kept, strict=True):
        if len(found) != 1:
            raise ValueError(f"{place.name!r} must be called once, got {len(found)} times")
    return [found[0] for found in kept]


@contextmanager
def patch_mlps(
    model: nn.Module,
    blocks: Sequence[int | str],
    source: Sequence[Tensor],
    positions: Positions = slice(None),
) -> Iterator[None]:
    """Replace what some MLPs add to the residual stream by what they added in another call.

    Args:
        model: in evaluation mode, as for `mlp_outputs`.
        blocks: those of the MLPs, from 0 or by name, as in `patch_stream`.
        source: of the other call, from `mlp_outputs`.
        positions: at which they are replaced, from 0, or from -1 backwards. Default: all.

    Returns:
        A context, in which the model is called, with an input of the same shape as the other.

    Raises:
        TypeError: blocks are no numbers or names, or see `mhattn.inside.attention_layers`.
        ValueError: source has another number of blocks or other shapes, a block or position does
            not exist, a block is named twice, or see `mlp_outputs`.

    Examples:
        >>> import torch
        >>> block = nn.TransformerEncoderLayer(12, 3, batch_first=True)
        >>> encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
        >>> x, other = torch.randn(2, 1, 5, 12)
        >>> with patch_mlps(encoder, [0], mlp_outputs(encoder, other)):
        ...     output = encoder(x)
        >>> torch.allclose(output, encoder(x))
        False
    """
    places = blocks_of(model)
    if len(source) != len(places):
        raise ValueError(f"source must be of {len(places)} blocks, got {len(source)}")

    def from_source(number: int) -> Edit:
        axis, what = places[number].length_axis, f"source[{number}]"
        return lambda given: put(given, source[number], positions, axis, what)

    chosen = []
    for number in numbers_of(blocks, len(places)):
        chosen.append(Adding(places[number]))
        chosen[-1].edit = from_source(number)
    with followed(model, chosen):
        yield


# --8<-- [start:patch_path]
def patch_path(
    model: nn.Module,
    *inputs: Any,
    senders: Sequence[Head | str],
    receivers: Sequence[Head | str] | None,
    source: Sequence[Tensor],
    parts: Part | Sequence[Part] = "query",
    positions: Positions = slice(None),
    recompute_mlps: bool = False,
    **options: Any,
) -> Any:
    """Call a model in which only one path brings what some heads gave in another call.

    The senders' outputs come from the other call, and only the named inputs of the receivers see
    it: what reaches them by other heads stays as it was. Everything behind the receivers is
    computed anew.

    By default the path is a single edge: MLPs between keep what they gave, so the receivers read
    the stream with the senders' change in it and nothing else. With ``recompute_mlps``, paths
    through MLPs count as well, as in the path patching of Wang et al. (2022,
    https://arxiv.org/abs/2211.00593); all heads between keep what they gave in both. Norms on the
    way compute anew.

    Args:
        model: in evaluation mode, one for `mhattn.inside.head_outputs`,
            `mhattn.inside.residual_cache` and, unless MLPs are computed anew, `mlp_outputs`.
        *inputs: for the model, of the same shape as the other.
        senders: heads, as in `mhattn.inside.ablate_heads`.
        receivers: heads of later layers, or None for the output: what the senders add directly.
        source: of the other call, from `mhattn.inside.head_outputs`.
        parts: which inputs of the receivers: ``"query"``, ``"key"``, ``"value"``, or several.
        positions: of the queries at which the senders are replaced. Default: all.
        recompute_mlps: whether MLPs between compute anew.
        **options: for the model.

    Returns:
        What the model returns.

    Raises:
        TypeError: see `mhattn.inside.ablate_heads`.
        ValueError: a receiver does not stand behind each sender, or see
            `mhattn.inside.patch_heads`, `mhattn.inside.patch_qkv` and `mlp_outputs`.

    Examples:
        >>> import torch
        >>> from mhattn.models import LanguageModel
        >>> sizes = {"num_heads": 6, "num_kv_heads": 2, "mlp_dim": 30}
        >>> model = LanguageModel(11, 3, embed_dim=24, **sizes, base=100.0, eps=1e-5).eval()
        >>> tokens, other = torch.tensor([[[1, 2, 3, 4]], [[1, 5, 3, 4]]])
        >>> source, path = head_outputs(model, other), {"senders": ["1.2"], "receivers": ["3.5"]}
        >>> logits = patch_path(model, tokens, **path, source=source, parts="key")
        >>> logits.shape
        torch.Size([1, 4, 11])
    """
    layers = attention_layers(model)
    sending = by_layer(layers, senders)
    behind = [] if receivers is None else list(by_layer(layers, receivers))
    if sending and behind and min(behind) <= max(sending):
        rule = f"receivers must be of layers behind {max(sending)}, that of a sender, from 0"
        raise ValueError(f"{rule}, got {min(behind)}")
    if len(source) != len(layers):
        raise ValueError(f"source must be of {len(layers)} layers, got {len(source)}")
    given = head_outputs(model, *inputs, **options)  # what all heads keep
    for place, changed in sending.items():
        moved = put(given[place], source[place], positions, 1, f"source[{place}]")
        given[place] = given[place].clone()
        given[place][:, :, changed] = moved[:, :, changed]
    every = [(place, head) for place, layer in enumerate(layers) for head in range(layer.num_heads)]
    with ExitStack() as stack:
        if not recompute_mlps:
            mlps = mlp_outputs(model, *inputs, **options)
            stack.enter_context(patch_mlps(model, range(len(mlps)), mlps))
        stack.enter_context(patch_heads(model, every, given))
        if receivers is None:
            return model(*inputs, **options)
        direct = residual_cache(model, *inputs, **options)
    with patch_qkv(model, receivers, direct, parts):
        return model(*inputs, **options)
    # --8<-- [end:patch_path]

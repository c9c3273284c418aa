"""From heads to outputs: rollout over layers, and what a head adds to a logit directly."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mhattn.inside import checks as check
from mhattn.inside.importance import Edit, edit_heads
from mhattn.inside.layers import attention_layers, projection_of
from mhattn.inside.observe import projection_called

__all__ = ["LogitAttribution", "attention_rollout", "logit_attribution"]


# --8<-- [start:attention_rollout]
def attention_rollout(maps: Sequence[Tensor], residual: float = 0.5) -> Tensor:
    """Multiply the maps of all layers: how much of each input token reaches each output.

    In each layer the heads are averaged, and the residual connection is taken for a map that gives
    everything to the own position: ``A = (1 - residual) * W + residual * I``. The product of these
    over layers is the rollout (Abnar and Zuidema 2020, https://arxiv.org/abs/2005.00928). It is a
    picture of the maps alone: values, the output projection, the size of the residual stream and
    the MLP do not enter.

    Args:
        maps: floats, ``(..., H, L, L)`` for each layer of self-attention, in the order of the
            layers; each row sums to one.
        residual: the part of each layer's output that is its input.

    Returns:
        ``(..., L, L)``: row ``i`` shares out the last layer's position ``i`` over the tokens of
        the input; each row sums to one.

    Raises:
        TypeError: a map is not a tensor of floats.
        ValueError: there is no map, the maps have several shapes or are not square, a row does
            not sum to one, or residual is not in [0, 1].

    Examples:
        Two layers that look at the token before, the first token at itself. Half of what each
        position has stays, so after two layers a token has a quarter of the one two places before.

        >>> before = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> attention_rollout([before[None], before[None]])
        tensor([[1.0000, 0.0000, 0.0000],
                [0.7500, 0.2500, 0.0000],
                [0.2500, 0.5000, 0.2500]])
    """
    check.at_least("the number of maps", len(maps), 1)
    if not 0 <= residual <= 1:
        raise ValueError(f"residual must be in [0, 1], got {residual}")
    steps = []
    for layer, weights in enumerate(maps):
        check.floats(f"maps[{layer}]", weights)
        check.axes(f"maps[{layer}]", weights, 3)
        if weights.shape != maps[0].shape or weights.shape[-1] != weights.shape[-2]:
            rule = "maps must be square and of one shape, (..., H, L, L)"
            raise ValueError(f"{rule}, got {tuple(maps[0].shape)} and {tuple(weights.shape)}")
        check.weights(weights, None)
        own = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
        steps.append((1 - residual) * weights.mean(dim=-3) + residual * own)  # (..., L, L)
    rollout, *later = steps
    for step in later:
        rollout = step @ rollout
    return rollout
    # --8<-- [end:attention_rollout]


class LogitAttribution(NamedTuple):
    """A logit, or a difference of two, as a sum.

    Attributes:
        heads: what each head adds by itself, ``(B, layers, H)``.
        rest: what everything else adds, the embedding, MLPs and biases, ``(B,)``.
        total: their sum, which is what the model computes, ``(B,)``.
    """

    heads: Tensor
    rest: Tensor
    total: Tensor


# --8<-- [start:logit_attribution]
def logit_attribution(
    model: nn.Module,
    *inputs: Any,
    direction: Tensor,
    norm: nn.Module,
    position: int = -1,
) -> LogitAttribution:
    """Split a logit into what each head adds to it directly, and a rest.

    The residual stream is a sum, ``x = sum of heads + rest``, and a logit is ``direction *
    norm(x)``. The norm divides ``x`` by its size, which depends on all terms. This size is taken as
    it is in this call, as a constant; then the logit is linear in ``x``, and each term has its part
    (Elhage et al. 2021, https://transformer-circuits.pub/2021/framework/index.html). What a head
    adds by changing the inputs of later layers counts as theirs.

    Args:
        model: with norms before its layers, so that each layer adds to the stream as it is
            (not BERT, and not `torch.nn.TransformerEncoderLayer` without ``norm_first``).
        *inputs: for the model.
        direction: ``(E,)`` or ``(B, E)``: a row of the output matrix, or for the difference of two
            logits the difference of two rows.
        norm: the last norm, between the stream and the output matrix: `torch.nn.RMSNorm` or
            `torch.nn.LayerNorm`, those of transformers, or `torch.nn.Identity`.
        position: of the token whose logit it is.

    Returns:
        The heads, the rest and their sum, in float32 at least. Layers are counted in the order of
        calls.

    Raises:
        TypeError: see `mhattn.inside.attention_layers`.
        ValueError: direction does not fit, norm is not called once or is of another kind, the
            layers have different numbers of heads, or see `mhattn.inside.edit_heads`.

    Examples:
        >>> from mhattn.models import LanguageModel
        >>> sizes = {"num_heads": 6, "num_kv_heads": 2, "mlp_dim": 30}
        >>> model = LanguageModel(11, 3, embed_dim=24, **sizes, base=100.0, eps=1e-5)
        >>> tokens, direction = torch.tensor([[1, 2, 3, 4]]), model.embedding.weight[7]
        >>> found = logit_attribution(model, tokens, direction=direction, norm=model.norm)
        >>> found.heads.shape
        torch.Size([1, 3, 6])
        >>> torch.allclose(found.total, model(tokens)[:, -1, 7], atol=1e-5)
        True
    """
    stream, kept = stream_and_heads(model, inputs, norm)
    wide = torch.promote_types(stream.dtype, torch.float32)
    x = stream[:, position].to(wide)  # (B, E)
    if direction.shape not in (x.shape[1:], x.shape):
        rule = f"(E,) = {tuple(x.shape[1:])} or (B, E) = {tuple(x.shape)}"
        raise ValueError(f"direction must be {rule}, got {tuple(direction.shape)}")
    read = pulled_back(norm, x, direction.to(wide))  # (B, E)
    found = []
    for projection, heads in kept:
        heads = heads[:, position]  # (B, H, D)
        found.append((heads * pulled_through(projection, heads, read)).sum(dim=-1).to(wide))
    if len({part.shape for part in found}) != 1:
        got = [part.shape[-1] for part in found]
        raise ValueError(f"layers must have the same number of heads, got {got}")
    total = (norm.forward(stream[:, position]).to(wide) * direction.to(wide)).sum(dim=-1)
    parts = torch.stack(found, dim=1)  # (B, layers, H)
    return LogitAttribution(parts, total - parts.sum(dim=(1, 2)), total)
    # --8<-- [end:logit_attribution]


def stream_and_heads(
    model: nn.Module, inputs: tuple[Any, ...], norm: nn.Module
) -> tuple[Tensor, list[tuple[nn.Module, Tensor]]]:
    """What the norm reads, and the heads of each call of an output projection."""
    streams: list[Tensor] = []
    kept: list[tuple[nn.Module, Tensor]] = []

    def keeping(projection: nn.Module) -> Edit:
        def keep(heads: Tensor) -> Tensor:
            kept.append((projection, heads))
            return heads

        return keep

    with ExitStack() as stack:
        hook = norm.register_forward_pre_hook(lambda module, args: streams.append(args[0]))
        stack.callback(hook.remove)
        for layer in attention_layers(model):
            projection = projection_of(layer)
            stack.enter_context(projection_called(layer))
            stack.enter_context(edit_heads(projection, layer.num_heads, keeping(projection)))
        model(*inputs)
    if len(streams) != 1:
        raise ValueError(f"norm must be called once by the model, got {len(streams)} times")
    return streams[0], kept


def pulled_back(norm: nn.Module, x: Tensor, direction: Tensor) -> Tensor:
    """The direction in front of the norm, whose divisor is that of ``x``: ``(B, E)``."""
    if isinstance(norm, nn.Identity):
        return direction.expand_as(x)
    centred = x - x.mean(dim=-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else x
    # transformers calls it variance_epsilon; torch's RMSNorm takes that of the dtype by default.
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    divisor = (centred.square().mean(dim=-1, keepdim=True) + eps).sqrt()  # (B, 1)
    gain = getattr(norm, "weight", None)
    scaled = direction if gain is None else direction * gain.to(x.dtype)
    bias = getattr(norm, "bias", None)
    # A class called a norm may do something else, as add one to its gain (Gemma). So what is
    # assumed here is compared with what the norm does; half precision may lose up to 2 %.
    ours = centred / divisor * (1 if gain is None else gain) + (0 if bias is None else bias)
    theirs = norm.forward(x.to(x.dtype if gain is None else gain.dtype)).to(x.dtype)
    if (ours - theirs).abs().max() > 0.02 * theirs.abs().max():
        got = type(norm).__name__
        raise ValueError(f"norm must be RMSNorm, LayerNorm or Identity, got {got}, another one")
    read = scaled / divisor
    # LayerNorm takes the mean off what it reads. Taking it off the direction has the same effect,
    # and then the direction can be multiplied by each term of the stream alone.
    return read - read.mean(dim=-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else read


def pulled_through(projection: nn.Module, heads: Tensor, read: Tensor) -> Tensor:
    """The direction behind a projection, as its heads see it: ``(B, H, D)``.

    A gradient, so that the projection may store its weight in any layout; it is linear, so this is
    no approximation. Hooks do not run.
    """
    with torch.enable_grad():
        given = heads.detach().requires_grad_()
        output = (projection.forward(given.flatten(-2)).to(read.dtype) * read.detach()).sum()
        return torch.autograd.grad(output, given)[0]

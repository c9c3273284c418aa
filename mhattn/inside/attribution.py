"""From heads to outputs: rollout over layers, and what a head adds to a logit directly."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mhattn.inside import checks as check
from mhattn.inside.direct import DirectWays
from mhattn.inside.layers import attention_layers
from mhattn.inside.observe import in_evaluation

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
    **options: Any,
) -> LogitAttribution:
    """Split a logit into what each head adds to it directly, and a rest.

    The residual stream is a sum, ``x = sum of heads + rest``, and a logit is ``direction *
    norm(x)``. The norm divides ``x`` by its size, which depends on all terms. This size is taken as
    it is in this call, as a constant; then the logit is linear in ``x``, and each term has its part
    (Elhage et al. 2021, https://transformer-circuits.pub/2021/framework/index.html). So is every
    norm on the way of a head, behind the layer as in OLMo 2 and Gemma or behind the sum as in BERT,
    and every factor, as in Granite. What a head adds by changing the inputs of other layers counts
    as theirs.

    That nothing else stands on the way is tried: all else is held, each head is multiplied by a
    factor of its own, and the logit must move by what the parts say.

    Args:
        model: in evaluation mode, with attention layers that `mhattn.inside.attention_layers`
            knows.
        *inputs: for the model.
        direction: ``(E,)`` or ``(B, E)``: a row of the output matrix, or for the difference of two
            logits the difference of two rows.
        norm: the last norm, between the stream and the output matrix, or `torch.nn.Identity`.
        position: of the token whose logit it is; -1 is the last.
        **options: for the model, such as ``attention_mask``.

    Returns:
        The heads, the rest and their sum, in float32 at least. Layers are counted in the order of
        calls. ``total`` is ``direction * norm(x)``: a factor of all logits, as Granite's, is not in
        it.

    Raises:
        TypeError: see `mhattn.inside.attention_layers`.
        ValueError: a module is in training mode, direction or position does not fit, norm is not
            called once or no head reaches it, a norm is of an unknown kind, the layers have
            different numbers of heads, something else than sums, factors and norms stands between
            the heads and the norm, or see `mhattn.inside.edit_heads`.

    Examples:
        >>> from mhattn.models import LanguageModel
        >>> sizes = {"num_heads": 6, "num_kv_heads": 2, "mlp_dim": 30}
        >>> model = LanguageModel(11, 3, embed_dim=24, **sizes, base=100.0, eps=1e-5).eval()
        >>> tokens, direction = torch.tensor([[1, 2, 3, 4]]), model.embedding.weight[7]
        >>> found = logit_attribution(model, tokens, direction=direction, norm=model.norm)
        >>> found.heads.shape
        torch.Size([1, 3, 6])
        >>> torch.allclose(found.total, model(tokens)[:, -1, 7], atol=1e-5)
        True
    """
    in_evaluation(model)
    ways = DirectWays(model, attention_layers(model), norm)
    with torch.enable_grad():
        total = logit(ways.call(inputs, options), direction, position)
        at_norm, *slopes = torch.autograd.grad(
            total.sum(), [ways.stream, *ways.heads], materialize_grads=True
        )
    total = total.detach()
    found = [
        # Rows of padding may be NaN; nothing reads them.
        heads.detach().mul(slope).where(slope != 0, 0).to(total.dtype).sum(dim=(1, 3))  # (B, H)
        for heads, slope in zip(ways.heads, slopes, strict=True)
    ]
    if len({part.shape for part in found}) != 1:
        got = [part.shape[-1] for part in found]
        raise ValueError(f"layers must have the same number of heads, got {got}")
    parts = torch.stack(found, dim=1)  # (B, layers, H)
    # What is assumed is tried, with factors between a half and one and a half.
    factors = 1 + torch.arange(parts[0].numel()).view(parts.shape[1:]).to(total).sin() / 2
    with torch.no_grad():
        moved = logit(ways.call(inputs, options, list(factors)), direction, position) - total
    expected = ((factors - 1) * parts).sum(dim=(1, 2))  # (B,)
    scale = (ways.stream.detach() * at_norm)[:, position].abs().sum(dim=-1).max()
    # Norms of transformers compute in float32 whatever they are given.
    eps = max(torch.finfo(dtype).eps for dtype in (ways.stream.dtype, torch.float32))
    rounding = 16 * eps * scale
    if not ((moved - expected).abs() <= rounding).all():  # NaN is wrong, too
        names = f" (unknown: {', '.join(sorted(ways.unknown))})" if ways.unknown else ""
        rule = f"heads must reach norm through sums, factors and known norms{names}"
        both = f"{moved[0]:.4g} for {expected[0]:.4g}"
        raise ValueError(f"{rule}, got another way: heads that are multiplied add {both}")
    return LogitAttribution(parts, total - parts.sum(dim=(1, 2)), total)
    # --8<-- [end:logit_attribution]


def logit(normed: Tensor, direction: Tensor, position: int) -> Tensor:
    """``(B,)`` in float32 at least, from what the last norm returned, ``(B, L, E)``."""
    B, L, E = normed.shape
    if direction.shape not in ((E,), (B, E)):
        rule = f"(E,) = {(E,)} or (B, E) = {(B, E)}"
        raise ValueError(f"direction must be {rule}, got {tuple(direction.shape)}")
    if not -L <= position < L:
        raise ValueError(f"position must be in [{-L}, {L}), got {position}")
    wide = torch.promote_types(normed.dtype, torch.float32)
    return (normed[:, position].to(wide) * direction.to(wide)).sum(dim=-1)

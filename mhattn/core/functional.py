"""Attention as pure functions.

B batch, H heads, H_kv heads of key and value, L queries, S keys, D head_dim; ... is mostly (B, H).
"""

import math
from typing import Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from mhattn.core import checks as check
from mhattn.core.fused import fused_attention
from mhattn.core.masks import causal_mask
from mhattn.core.steps import step

__all__ = [
    "attention",
    "attention_scores",
    "attention_weights",
    "fold_heads",
    "masked_softmax",
    "merge_heads",
    "repeat_heads",
    "softmax_over_keys",
    "split_heads",
    "unfold_heads",
]


# --8<-- [start:attention_scores]
def attention_scores(query: Tensor, key: Tensor, scale: float | None = None) -> Tensor:
    """Compare each query with each key.

    ``scores[..., i, j]`` is the scaled dot product of query ``i`` and key ``j``, that is
    ``Q K^T / sqrt(d_k)`` of Vaswani et al. (2017), https://arxiv.org/abs/1706.03762.

    Args:
        query: floats, ``(..., L, D)``.
        key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.

    Returns:
        ``(..., L, S)``, dtype of ``query``.

    Raises:
        TypeError: query or key is not a tensor of floats, or they differ in dtype.
        ValueError: their shapes do not fit, or scale is not positive and finite.

    Examples:
        >>> query, key = torch.tensor([[3.0, 4.0]]), torch.eye(2)
        >>> attention_scores(query, key, scale=0.5)
        tensor([[1.5000, 2.0000]])
    """
    check.scores(query, key, scale)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    key = repeat_heads(key, query)  # (..., S, D)
    return (scale * query) @ key.transpose(-2, -1)  # (..., L, S)
    # --8<-- [end:attention_scores]


step(attention_scores, "scores")


# --8<-- [start:attention_weights]
def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Share out each query's attention over the keys.

    ``weights[..., i, j]`` is how much of query ``i`` goes to key ``j``; each row sums to
    one. It is ``softmax(Q K^T / sqrt(d_k))`` of Vaswani et al. (2017), equation 1,
    https://arxiv.org/abs/1706.03762, in float32 at least, as in the fused kernels.

    Args:
        query: floats, ``(..., L, D)``.
        key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend, as in
            `torch.nn.functional.scaled_dot_product_attention`
            (`torch.nn.MultiheadAttention` means the opposite).
        bias: finite floats that broadcast to ``(..., L, S)``, added to the scaled scores.
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query
            sees every key, as decoding needs. (PyTorch's function aligns the first query
            with the first key, which differs if ``L != S``.) A mask must allow it as well.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.

    Returns:
        ``(..., L, S)``, dtype of ``query``. A row with nothing to attend to is all
        zeros, not NaN.

    Raises:
        TypeError: query, key or bias is not a tensor of floats, query and key differ in dtype, or
            mask is not of booleans.
        ValueError: the shapes do not fit, or scale is not positive and finite.

    Examples:
        The scores are 0 and 1, so the weights are 1/(1+e) and e/(1+e).

        >>> query, key = torch.tensor([[0.0, math.sqrt(2)]]), torch.eye(2)
        >>> attention_weights(query, key)
        tensor([[0.2689, 0.7311]])
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = attention_scores(query.to(wide), key.to(wide), scale)  # (..., L, S)
    if bias is not None:
        check.bias(bias, scores.shape)
        scores = scores + bias.to(wide)
    weights = masked_softmax(scores, mask, is_causal=is_causal, overwrite=True)
    return weights.to(query.dtype)
    # --8<-- [end:attention_weights]


step(attention_weights, "weights")


# --8<-- [start:masked_softmax]
def masked_softmax(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    overwrite: bool = False,
) -> Tensor:
    """Softmax over the keys that each query may see; the others get the weight 0.

    Args:
        scores: floats, ``(..., L, S)``.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend
            (`torch.nn.MultiheadAttention` means the opposite).
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query sees
            every key.
        overwrite: whether the result may be written over the scores, in their own memory.

    Returns:
        ``(..., L, S)``. A row without keys is all zeros, not NaN.

    Raises:
        TypeError: scores is not a tensor of floats, or mask not of booleans.
        ValueError: the shapes do not fit.

    Examples:
        >>> masked_softmax(torch.zeros(2, 2), torch.tensor([[True, True], [False, True]]))
        tensor([[0.5000, 0.5000],
                [0.0000, 1.0000]])
    """
    check.floats("scores", scores)
    L, S = scores.shape[-2:]
    seen = causal_mask(L, S, device=scores.device) if is_causal else None
    if mask is not None:
        check.mask(mask, scores.shape)
        seen = torch.atleast_2d(mask) if seen is None else mask & seen
    if seen is None:
        return softmax_over_keys(scores, overwrite=overwrite)
    if mask is None and L <= S:  # each query sees a key
        return softmax_over_keys(scores.masked_fill(~seen, -math.inf), overwrite=True)
    blind = ~seen.any(dim=-1, keepdim=True)  # sees no key: (..., L, 1)
    scores = scores.masked_fill(~(seen | blind), -math.inf)  # -inf in a whole row gives NaN
    return softmax_over_keys(scores, overwrite=True).masked_fill(blind, 0.0)
    # --8<-- [end:masked_softmax]


# --8<-- [start:softmax_over_keys]
def softmax_over_keys(scores: Tensor, *, overwrite: bool = False) -> Tensor:
    """Softmax over the last axis; in the scores' own memory, if no gradient needs them.

    Fresh memory for a large table takes more time than the softmax itself.

    Args:
        scores: floats, ``(..., L, S)``.
        overwrite: whether the result may be written over the scores.

    Returns:
        ``(..., L, S)``.

    Examples:
        >>> scores = torch.zeros(1, 2)
        >>> softmax_over_keys(scores, overwrite=True) is scores
        True
        >>> scores
        tensor([[0.5000, 0.5000]])
    """
    if not overwrite or scores.requires_grad:
        return scores.softmax(dim=-1)
    try:
        return torch.softmax(scores, dim=-1, out=scores)
    except RuntimeError:  # torch.vmap and forward-mode gradients do not take out=
        return scores.softmax(dim=-1)
    # --8<-- [end:softmax_over_keys]


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = ...,
    bias: Tensor | None = ...,
    is_causal: bool = ...,
    scale: float | None = ...,
    dropout: float = ...,
    return_weights: Literal[False] = ...,
) -> Tensor: ...
@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = ...,
    bias: Tensor | None = ...,
    is_causal: bool = ...,
    scale: float | None = ...,
    dropout: float = ...,
    return_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = ...,
    bias: Tensor | None = ...,
    is_causal: bool = ...,
    scale: float | None = ...,
    dropout: float = ...,
    return_weights: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...
# --8<-- [start:attention]
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mix the values, each query by its own weights.

    ``softmax(Q K^T / sqrt(d_k)) V`` of Vaswani et al. (2017), equation 1,
    https://arxiv.org/abs/1706.03762. With ``return_weights`` it is computed as written;
    without, by `fused_attention`, which gives the same and never stores all weights. They agree
    on finite numbers: where a score is NaN, or a bias of -inf hides a whole row, the formula
    answers with NaN, and a fused kernel perhaps with zeros.

    Heads may be grouped: with ``H_kv`` heads of the key and value, head ``i`` of the query
    uses their head ``i // (H / H_kv)`` (Ainslie et al. 2023, https://arxiv.org/abs/2305.13245;
    with ``H_kv = 1`` Shazeer 2019, https://arxiv.org/abs/1911.02150).

    Args:
        query: floats, ``(..., L, D)``; grouped ``(B, H, L, D)``.
        key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend
            (`torch.nn.MultiheadAttention` means the opposite). With three axes the first is that of
            the heads: of a mask for each sequence, pass ``mask[:, None]``.
        bias: finite floats that broadcast to ``(..., L, S)``, added to the scaled scores.
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query sees
            every key.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.
        dropout: share of the weights set to zero; pass 0 when not training.
        return_weights: also return the weights.

    Returns:
        ``(..., L, D_v)``, zeros where there is nothing to attend to; or that and the weights
        as they were applied, dropout included, ``(..., L, S)``.

    Raises:
        TypeError: query, key, value or bias is not a tensor of floats, query, key and value differ
            in dtype, or mask is not of booleans.
        ValueError: the shapes do not fit, scale is not positive, or dropout not in [0, 1).

    Examples:
        >>> query, key = torch.tensor([[0.0, math.sqrt(2)]]), torch.eye(2)
        >>> value = torch.tensor([[0.0], [10.0]])
        >>> attention(query, key, value)
        tensor([[7.3106]])
        >>> attention(query, key, value, return_weights=True)
        (tensor([[7.3106]]), tensor([[0.2689, 0.7311]]))
    """
    if return_weights:
        check.attention(query, key, value, scale, dropout)
        key, value = repeat_heads(key, query), repeat_heads(value, query)
        weights = attention_weights(
            query, key, mask=mask, bias=bias, is_causal=is_causal, scale=scale
        )
        weights = F.dropout(weights, dropout)  # (..., L, S)
        return weights @ value, weights  # (..., L, D_v), (..., L, S)
    return fused_attention(
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        is_causal=is_causal,
        scale=scale,
        dropout=dropout,
    )
    # --8<-- [end:attention]


step(attention, "mix")


# --8<-- [start:repeat_heads]
def repeat_heads(x: Tensor, query: Tensor) -> Tensor:
    """Repeat each head of a key or value for its group of query heads.

    Grouped heads by definition: ``attention(query, key, value)`` is the same as attention with
    ``repeat_heads(key, query)`` and ``repeat_heads(value, query)``, and makes no copies.

    Args:
        x: ``(B, H_kv, S, D)``, or already with the heads of the query.
        query: ``(B, H, L, D)``, where ``H`` is a multiple of ``H_kv``.

    Returns:
        ``(B, H, S, D)``; head ``i`` is a copy of head ``i // (H / H_kv)`` of x.

    Examples:
        >>> key = torch.tensor([1, 2]).reshape(1, 2, 1, 1)
        >>> repeat_heads(key, query=torch.zeros(1, 6, 5, 1)).flatten().tolist()
        [1, 1, 1, 2, 2, 2]
    """
    if x.shape[:-2] == query.shape[:-2]:
        return x
    group = query.shape[-3] // x.shape[-3]
    return x.repeat_interleave(group, dim=-3)  # (B, H, S, D)
    # --8<-- [end:repeat_heads]


step(repeat_heads, "repeat {}")


# --8<-- [start:split_heads]
def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Cut the last axis into heads and move them forward; nothing is copied.

    Args:
        x: ``(B, L, H * D)``.
        num_heads: ``H``, which must divide the last axis.

    Returns:
        ``(B, H, L, D)``, a view of ``x``.

    Raises:
        ValueError: x has fewer than two axes, or num_heads does not divide the last one.

    Examples:
        Two tokens of width 4, two heads: each head gets its own two columns.

        >>> split_heads(torch.arange(8).reshape(1, 2, 4), num_heads=2).tolist()
        [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]
    """
    check.axes("x", x, 2)
    check.divides("num_heads", num_heads, "the last axis of x", x.shape[-1])
    x = x.unflatten(-1, (num_heads, x.shape[-1] // num_heads))  # (B, L, H, D)
    return x.transpose(-3, -2)  # (B, H, L, D)
    # --8<-- [end:split_heads]


step(split_heads, "split {}")


# --8<-- [start:merge_heads]
def merge_heads(x: Tensor) -> Tensor:
    """Lay the heads side by side again; undoes `split_heads`.

    Args:
        x: ``(B, H, L, D)``.

    Returns:
        ``(B, L, H * D)``, a copy unless the heads still lie side by side in memory.

    Raises:
        ValueError: x has fewer than three axes.

    Examples:
        >>> x = torch.arange(8).reshape(1, 2, 4)
        >>> merge_heads(split_heads(x, num_heads=2)).equal(x)
        True
    """
    check.axes("x", x, 3)
    x = x.transpose(-3, -2)  # (B, L, H, D)
    return x.flatten(-2)  # (B, L, H * D)
    # --8<-- [end:merge_heads]


step(merge_heads, "merge")


# --8<-- [start:fold_heads]
def fold_heads(x: Tensor) -> Tensor:
    """Fold the heads into the batch, the form that `torch.bmm` takes.

    Args:
        x: ``(B, H, L, D)``.

    Returns:
        ``(B * H, L, D)``; the heads of one sequence lie together.

    Raises:
        ValueError: x does not have four axes.

    Examples:
        >>> fold_heads(torch.zeros(2, 3, 5, 7)).shape
        torch.Size([6, 5, 7])
    """
    check.axes("x", x, 4, exactly=True)
    return x.flatten(0, 1)  # (B * H, L, D)
    # --8<-- [end:fold_heads]


# --8<-- [start:unfold_heads]
def unfold_heads(x: Tensor, num_heads: int) -> Tensor:
    """Take the heads out of the batch again; undoes `fold_heads`.

    Args:
        x: ``(B * H, L, D)``.
        num_heads: ``H``, which must divide the first axis.

    Returns:
        ``(B, H, L, D)``, a view of ``x``.

    Raises:
        ValueError: x does not have three axes, or num_heads does not divide the first.

    Examples:
        >>> unfold_heads(torch.zeros(6, 5, 7), num_heads=3).shape
        torch.Size([2, 3, 5, 7])
    """
    check.axes("x", x, 3, exactly=True)
    check.divides("num_heads", num_heads, "the first axis of x", x.shape[0])
    heads: Tensor = x.unflatten(0, (x.shape[0] // num_heads, num_heads))
    return heads  # (B, H, L, D)
    # --8<-- [end:unfold_heads]

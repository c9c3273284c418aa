"""Attention to the keys that score best: chosen by what they say, not by where they are.

A cheap chooser scores the keys, the best k of each query are gathered, and ordinary attention sees
nothing else. As in `mhattn.core.masks`, query ``i`` stands at position ``i + (S - L)``.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mhattn.core import checks as check
from mhattn.core.functional import attention, repeat_heads
from mhattn.core.masks import causal_mask
from mhattn.core.steps import step

__all__ = ["index_scores", "top_k_attention", "top_key_mask"]


# --8<-- [start:index_scores]
def index_scores(query: Tensor, key: Tensor, weights: Tensor) -> Tensor:
    """Score keys with a few small heads, which share one key per position.

    ``scores[..., i, s]`` is the sum over heads ``j`` of ``weights[..., i, j] * relu(q_ij . k_s)``:
    the indexer of DeepSeek-V3.2 (2025), equation 1, https://arxiv.org/abs/2512.02556.

    Args:
        query: floats, ``(..., H_I, L, D_I)``.
        key: floats, ``(..., S, D_I)``: no axis of heads.
        weights: floats, ``(..., L, H_I)``: what each head counts for each query.

    Returns:
        ``(..., L, S)``, dtype of ``query``; computed in float32 at least.

    Raises:
        TypeError: query, key or weights is not a tensor of floats.
        ValueError: the shapes do not fit.

    Examples:
        Two heads, the second counts twice. What points away counts nothing.

        >>> query = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])  # (H_I, L, D_I) = (2, 1, 2)
        >>> key = torch.tensor([[3.0, 0.0], [0.0, 3.0], [-3.0, 1.0]])
        >>> index_scores(query, key, torch.tensor([[1.0, 2.0]]))
        tensor([[3., 6., 2.]])
    """
    check.floats("query", query)
    check.axes("query", query, 3)
    check.floats("key", key)
    check.floats("weights", weights)
    heads, length, width = query.shape[-3:]
    for name, x, rule in (
        ("key", key, (*query.shape[:-3], key.shape[-2], width)),
        ("weights", weights, (*query.shape[:-3], length, heads)),
    ):
        if tuple(x.shape) != rule:
            raise ValueError(f"{name} must have the shape {rule}, got {tuple(x.shape)}")
    wide = torch.promote_types(query.dtype, torch.float32)
    products = query.to(wide) @ key.to(wide).mT.unsqueeze(-3)  # (..., H_I, L, S)
    scores = weights.to(wide).unsqueeze(-2) @ products.relu().transpose(-3, -2)
    return scores.squeeze(-2).to(query.dtype)  # (..., L, S)
    # --8<-- [end:index_scores]


# --8<-- [start:top_key_mask]
def top_key_mask(
    scores: Tensor,
    k: int,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    block: int = 1,
    num_keys: int | None = None,
) -> Tensor:
    """Let each query see the k keys with the highest scores, or the k blocks of keys.

    Of equal scores, the earlier key wins. A query that sees fewer than k keys keeps them all.

    Args:
        scores: floats, ``(..., L, S)``, or with blocks ``(..., L, ceil(S / block))``. What
            is -inf or NaN is never chosen.
        k: how many keys, or blocks, each query keeps.
        mask: booleans that broadcast to ``(..., L, S)``: keys that queries may choose.
        is_causal: no query sees a key that comes later. A block that holds the query's position
            can be chosen, and then ends there.
        block: how many neighbouring keys have one score.
        num_keys: S. Default: ``block`` times as many as there are scores.

    Returns:
        Booleans, ``(..., L, S)``. True: may attend.

    Raises:
        TypeError: scores is not a tensor of floats, k, block or num_keys not an integer, or mask
            not of booleans.
        ValueError: k or block is less than 1, num_keys does not fit to the scores, or the mask's
            shape does not.

    Examples:
        The first query sees two keys, whatever comes later. The second has a tie.

        >>> scores = torch.tensor([[5.0, 7.0, 9.0], [1.0, 7.0, 1.0]])
        >>> top_key_mask(scores, 2, is_causal=True)
        tensor([[ True,  True, False],
                [ True,  True, False]])
    """
    columns, kept = choose_keys(scores, k, mask, is_causal, block, num_keys)
    width = scores.shape[-1] * block
    seen = torch.zeros(*scores.shape[:-1], width, dtype=torch.bool, device=scores.device)
    return seen.scatter(-1, columns, kept)[..., : num_keys or width]
    # --8<-- [end:top_key_mask]


# --8<-- [start:choose_keys]
def choose_keys(
    scores: Tensor,
    k: int,
    mask: Tensor | None,
    is_causal: bool,
    block: int,
    num_keys: int | None,
) -> tuple[Tensor, Tensor]:
    """The columns that each query takes, ``(..., L, k * block)``, and which of them it sees."""
    check_choice(scores, k, block, num_keys)
    L, N = scores.shape[-2:]
    S = N * block if num_keys is None else num_keys
    seen = torch.ones(1, S, dtype=torch.bool, device=scores.device)
    if is_causal:
        seen = causal_mask(L, S, device=scores.device)
    if mask is not None:
        check.mask(mask, (*scores.shape[:-1], S))
        seen = seen & mask
    seen = F.pad(seen, (0, N * block - S))  # the last block may be cut short
    hidden = ~seen.unflatten(-1, (N, block)).any(dim=-1)  # (..., L, N)
    scores = scores.detach()
    ranked = scores.masked_fill(hidden | scores.isnan(), -math.inf)
    best, chosen = ranked.sort(dim=-1, descending=True, stable=True)
    best, chosen = best[..., :k], chosen[..., :k]  # (..., L, k)
    inside = torch.arange(block, device=scores.device)
    columns = (chosen[..., None] * block + inside).flatten(-2)  # (..., L, k * block)
    kept = (best > -math.inf).repeat_interleave(block, dim=-1)
    return columns, kept & seen.expand(*scores.shape[:-1], N * block).gather(-1, columns)
    # --8<-- [end:choose_keys]


def check_choice(scores: Any, k: int, block: int, num_keys: int | None) -> None:
    check.floats("scores", scores)
    check.at_least("k", k, 1)
    check.at_least("block", block, 1)
    if num_keys is None:
        return
    check.at_least("num_keys", num_keys, 1)
    if -(-num_keys // block) != scores.shape[-1]:
        rule = f"ceil({num_keys} / {block}) = {-(-num_keys // block)} last, one for each block"
        raise ValueError(f"scores must have {rule}, got {tuple(scores.shape)}")


# --8<-- [start:top_k_attention]
def top_k_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scores: Tensor,
    k: int,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    block: int = 1,
    scale: float | None = None,
) -> Tensor:
    """Attend to the k keys with the highest scores: these are gathered, the rest isn't multiplied.

    What `attention` returns with ``top_key_mask(scores, k, ...)`` as its mask, at FLOPs that grow
    with ``L * k * block``. The scores only choose: no gradient goes to them.

    Args:
        query: floats, ``(..., L, D)``; grouped ``(B, H, L, D)``.
        key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        scores: as many axes as query, ``(..., L, S)``, or one column for each block. The axis of
            heads may be 1: then all heads share the choice, and a group of heads its gathered keys.
        k: how many keys, or blocks, each query attends to.
        mask: booleans that broadcast to ``(..., L, S)`` with the scores' rows: keys that queries
            may choose. True: may attend.
        is_causal: no query sees a key that comes later: query ``i`` sees key ``j`` only if
            ``j <= i + (S - L)``. A block that holds the query's position can be chosen, and then
            ends there.
        block: how many neighbouring keys have one score.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.

    Returns:
        ``(..., L, D_v)``, zeros where there is nothing to attend to.

    Raises:
        TypeError: query, key, value or scores is not a tensor of floats, k or block not an
            integer, or mask not of booleans.
        ValueError: the shapes do not fit, k or block is less than 1, or scale is not positive and
            finite.

    Examples:
        >>> query, key = torch.zeros(1, 1), torch.zeros(4, 1)  # equal weights
        >>> value = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
        >>> top_k_attention(query, key, value, torch.tensor([[0.1, 0.9, 0.3, 0.7]]), k=2)
        tensor([[5.]])
    """
    check.attention(query, key, value, scale)
    check_scores(scores, query)
    if not query.numel():
        check_choice(scores, k, block, key.shape[-2])
        return attention(query, key, value)
    columns, kept = choose_keys(scores, k, mask, is_causal, block, key.shape[-2])
    if query.shape[:-2] != key.shape[:-2] and scores.shape[-3] != 1:
        key, value = repeat_heads(key, query), repeat_heads(value, query)
    columns = columns.clamp(max=key.shape[-2] - 1)  # behind the end: hidden, but must exist
    keys, values = (gather_rows(x, columns) for x in (key, value))  # (..., L, k, D)
    if query.ndim > 2:  # the heads of a group become the queries of one product
        query = query.unflatten(-3, (key.shape[-3], -1)).transpose(-3, -2)
        kept = kept.expand(*kept.shape[:-3], key.shape[-3], *kept.shape[-2:])
    else:
        query = query[:, None]  # (L, 1, D)
    output = attention(query, keys, values, mask=kept.unsqueeze(-2), scale=scale)
    if query.ndim == 3:
        return output.squeeze(-2)
    return output.transpose(-3, -2).flatten(-4, -3)  # (..., H, L, D_v)
    # --8<-- [end:top_k_attention]


step(top_k_attention, "mix", in_blocks=True)


# --8<-- [start:gather_rows]
def gather_rows(x: Tensor, columns: Tensor) -> Tensor:
    """Row ``columns[..., i, j]`` of x at ``[..., i, j, :]``."""
    lead, width = x.shape[:-2], x.shape[-1]
    index = columns.expand(*lead, *columns.shape[-2:]).flatten(-2)[..., None]  # (..., L * k, 1)
    rows = x.gather(-2, index.expand(*index.shape[:-1], width))
    return rows.reshape(*lead, *columns.shape[-2:], width)  # (..., L, k, D)
    # --8<-- [end:gather_rows]


def check_scores(scores: Any, query: Tensor) -> None:
    check.floats("scores", scores)
    fits = scores.ndim == query.ndim and check.fits(scores.shape[:-2], query.shape[:-2])
    if not fits or scores.shape[-2] != query.shape[-2]:
        rule = f"as many rows as query {tuple(query.shape)}, or 1 for an axis that shares them"
        raise ValueError(f"scores must have {rule}, got {tuple(scores.shape)}")

"""Distances that are learned: a number for each head, or vectors for keys and values.

Both classes are a `mhattn.core.Position`. The distance of key ``j`` from query ``i`` is
``j - (i + S - L)``: negative for a key that comes earlier. `relative_attention` is the definition
of the vectors; `mhattn.variants.relative_blocks` has the fast forms.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mhattn.core.functional import attention, masked_softmax, repeat_heads
from mhattn.core.positions import Attended, Position, Positions, distances, side_by_side
from mhattn.core.steps import step
from mhattn.variants import checks as check
from mhattn.variants.relative_blocks import backwards, biased_by_blocks, by_blocks

__all__ = ["LearnedBias", "RelativePosition", "relative_attention"]


# --8<-- [start:relative_attention]
def relative_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_vectors: Tensor,
    value_vectors: Tensor,
    *,
    positions: Positions | None = None,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attend with a vector for each distance, added to the keys and to the values.

    The definition of `RelativePosition` (Shaw, Uszkoreit and Vaswani 2018,
    https://arxiv.org/abs/1803.02155), multiplied out: a query meets each of the ``2 k + 1``
    vectors once, and the weights of each distance are summed before they mix its vector.

    Args:
        query: floats, ``(..., L, D)``.
        key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        key_vectors: ``(2 k + 1, D)``, for the distances ``-k`` to ``k``.
        value_vectors: ``(2 k + 1, D_v)``.
        positions: integers, of the queries, ``(L,)`` or ``(B, L)``, and of the keys, ``(S,)`` or
            ``(B, S)``. Default: the last query stands beside the last key.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend
            (`torch.nn.MultiheadAttention` means the opposite).
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query sees
            every key.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.
        dropout: share of the weights set to zero; pass 0 when not training.

    Returns:
        The output, ``(..., L, D_v)``, and the weights, ``(..., L, S)``.

    Raises:
        TypeError: query, key or value is not a tensor of floats, they differ in dtype, mask is not
            of booleans, or positions are no pair of tensors of integers.
        ValueError: the shapes do not fit, scale is not positive, dropout is not in [0, 1), or the
            vectors or positions do not fit.

    Examples:
        With keys and values of zero, the mean distance is left: query 0 sees 0, 1 and 1.

        >>> zeros, vectors = torch.zeros(3, 1), torch.tensor([[-1.0], [0.0], [1.0]])
        >>> output, _ = relative_attention(zeros, zeros, zeros, 0 * vectors, vectors)
        >>> output.flatten()
        tensor([ 0.6667,  0.0000, -0.6667])
    """
    check.attention(query, key, value, scale, dropout)
    check.vectors(key_vectors, value_vectors, query, value)
    check.pair_of_positions(positions, query, key)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    key, value = repeat_heads(key, query), repeat_heads(value, query)
    L, S, reach = query.shape[-2], key.shape[-2], len(key_vectors) // 2
    distance = distances(L, S, positions, query.device)  # (L, S) or (B, 1, L, S)
    row = distance.clamp(-reach, reach) + reach  # of the vectors of each pair
    row = row.expand(*query.shape[:-1], S)
    by_distance = query @ key_vectors.T  # (..., L, 2 k + 1)
    scores = scale * (query @ key.mT + by_distance.gather(-1, row))  # (..., L, S)
    weights = masked_softmax(scores, mask, is_causal=is_causal)
    weights = F.dropout(weights, dropout)
    shares = torch.zeros_like(by_distance).scatter_add(-1, row, weights)  # of each distance
    return weights @ value + shares @ value_vectors, weights
    # --8<-- [end:relative_attention]


step(relative_attention, "mix", beside=True)


# --8<-- [start:LearnedBias]
class LearnedBias(Position):
    """Add to each score a number that is learned, one for each head and distance.

    Args:
        num_heads: heads of the query.
        max_len: how many queries and keys there may be at a time. There are ``2 max_len - 1``
            distances between them.
        device: of the table.
        dtype: of the table.

    Raises:
        TypeError: num_heads or max_len is not an integer.
        ValueError: one of them is less than 1.

    Examples:
        The table starts with zeros: positions make no difference yet.

        >>> LearnedBias(num_heads=2, max_len=5).table.shape
        torch.Size([2, 9])
    """

    def __init__(
        self,
        num_heads: int,
        max_len: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check.at_least("num_heads", num_heads, 1)
        check.at_least("max_len", max_len, 1)
        self.num_heads = num_heads
        self.max_len = max_len
        table = torch.empty(num_heads, 2 * max_len - 1, device=device, dtype=dtype)
        self.table = nn.Parameter(table)  # distance 0: middle
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set all biases to zero."""
        nn.init.zeros_(self.table)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, max_len={self.max_len}"

    def bias(self, L: int, S: int, *, positions: Positions | None = None) -> Tensor:
        """What is added to the scores.

        Args:
            L: number of queries.
            S: number of keys.
            positions: integers, of the queries, ``(L,)`` or ``(B, L)``, and of the keys, ``(S,)``
                or ``(B, S)``. Default: the last query stands beside the last key.

        Returns:
            ``(H, L, S)``, or with positions of each sequence ``(B, H, L, S)``; a copy.

        Raises:
            ValueError: a query and a key are max_len positions apart, or further.

        Examples:
            >>> position = LearnedBias(num_heads=1, max_len=3)
            >>> _ = nn.init.constant_(position.table[:, 3:], 7.0)  # keys that come later
            >>> position.bias(2, 3)
            tensor([[[0., 0., 7.],
                     [0., 0., 0.]]], grad_fn=<FlipBackward0>)
        """
        if positions is None and L > 0:
            self._check_lengths(L, S)
            return backwards(self.table, S - L, S - 1, S).flip(-2)
        distance = distances(L, S, positions, self.table.device)  # (L, S) or (B, 1, L, S)
        check.distances(distance, "max_len", self.max_len)
        bias = self.table[:, distance + self.max_len - 1]  # (H, L, S) or (H, B, 1, L, S)
        return bias if distance.ndim == 2 else bias.transpose(0, 2).squeeze(0)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        positions: Positions | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
        scale: float | None = None,
        dropout: float = 0.0,
        return_weights: bool = False,
    ) -> Attended:
        """Attend, with the bias of each distance.

        With positions, or to return weights, the biases of all pairs are laid out in memory.
        Otherwise they stay a view of the table, which only queries in reverse order can have:
        tensors have no negative strides. So the bias is not given by `bias_for`.

        Args:
            query: ``(..., H, L, D)``.
            key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
            value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
            positions: integers, of the queries, ``(L,)`` or ``(B, L)``, and of the keys, ``(S,)``
                or ``(B, S)``. Default: the last query stands beside the last key.
            mask: booleans that broadcast to ``(..., L, S)``. True: may attend
                (`torch.nn.MultiheadAttention` means the opposite).
            is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query
                sees every key.
            scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.
            dropout: share of the weights set to zero; pass 0 when not training.
            return_weights: also return the weights.

        Returns:
            ``(..., L, D_v)``, zeros where there is nothing to attend to; or that and the weights as
            they were applied, ``(..., L, S)``.

        Raises:
            TypeError: query, key or value is not a tensor of floats, they differ in dtype, or mask
                is not of booleans, or positions are not integers.
            ValueError: the shapes do not fit, scale is not positive, dropout is not in [0, 1), or
                there are not num_heads heads, more than max_len queries or keys, or positions do
                not fit.
        """
        check.query_and_key(query, key)
        check.value(value, key)
        check.heads(query, self.num_heads)
        check.pair_of_positions(positions, query, key)
        L, S = query.shape[-2], key.shape[-2]
        if torch.compiler.is_compiling() and positions is None:
            positions = side_by_side(L, S, query.device)  # a graph for any length has no blocks
        if return_weights or positions is not None:
            return attention(
                query,
                key,
                value,
                mask=mask,
                bias=self.bias(L, S, positions=positions),
                is_causal=is_causal,
                scale=scale,
                dropout=dropout,
                return_weights=return_weights,
            )
        check.scale(scale)
        check.dropout(dropout)
        self._check_lengths(L, S)
        table = self.table if torch.is_grad_enabled() else self.table.detach()
        table = table.to(query.dtype)
        return biased_by_blocks(query, key, value, mask, table, is_causal, scale, dropout)

    def _check_lengths(self, L: int, S: int) -> None:
        check.at_most("query", L, "max_len", self.max_len)
        check.at_most("key", S, "max_len", self.max_len)
        # --8<-- [end:LearnedBias]


# --8<-- [start:RelativePosition]
class RelativePosition(Position):
    """Give each distance a vector that is added to the keys, and one to the values.

    Query ``i`` sees key ``j`` as ``k_j + a^K`` and takes ``v_j + a^V``, where both vectors are
    those of the distance between them; distances beyond ``max_distance`` count as that. All
    heads share the vectors (Shaw, Uszkoreit and Vaswani 2018, https://arxiv.org/abs/1803.02155).

    Args:
        head_dim: width of a head.
        max_distance: the largest distance with vectors of its own, in both directions.
        device: of the vectors.
        dtype: of the vectors.

    Raises:
        TypeError: head_dim or max_distance is not an integer.
        ValueError: one of them is less than 1.

    Examples:
        >>> RelativePosition(head_dim=8, max_distance=2).key_vectors.shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        head_dim: int,
        max_distance: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check.at_least("head_dim", head_dim, 1)
        check.at_least("max_distance", max_distance, 1)
        self.head_dim = head_dim
        self.max_distance = max_distance
        shape = 2 * max_distance + 1, head_dim
        self.key_vectors = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.value_vectors = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the vectors anew, Xavier uniform."""
        nn.init.xavier_uniform_(self.key_vectors)
        nn.init.xavier_uniform_(self.value_vectors)

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}, max_distance={self.max_distance}"

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        positions: Positions | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
        scale: float | None = None,
        dropout: float = 0.0,
        return_weights: bool = False,
    ) -> Attended:
        """Attend to the keys and take the values, each with the vector of its distance.

        With positions, the scores of all pairs are laid out in memory.

        Args:
            query: ``(..., L, D)``.
            key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
            value: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
            positions: integers, of the queries, ``(L,)`` or ``(B, L)``, and of the keys, ``(S,)``
                or ``(B, S)``. Default: the last query stands beside the last key.
            mask: booleans that broadcast to ``(..., L, S)``. True: may attend
                (`torch.nn.MultiheadAttention` means the opposite).
            is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query
                sees every key.
            scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.
            dropout: share of the weights set to zero; pass 0 when not training.
            return_weights: also return the weights.

        Returns:
            ``(..., L, D_v)``, zeros where there is nothing to attend to; or that and the weights as
            they were applied, ``(..., L, S)``.

        Raises:
            TypeError: query, key or value is not a tensor of floats, they differ in dtype, or mask
                is not of booleans, or positions are not integers.
            ValueError: the shapes do not fit, scale is not positive, dropout is not in [0, 1), or
                the last axis of query or value is not head_dim, or positions do not fit.
        """
        check.query_and_key(query, key)
        check.value(value, key)
        check.scale(scale)
        check.dropout(dropout)
        check.last_axis("query", query, "head_dim", self.head_dim)
        check.last_axis("value", value, "head_dim", self.head_dim)
        check.pair_of_positions(positions, query, key)
        dtype, wide = query.dtype, torch.promote_types(query.dtype, torch.float32)
        q, k, v = query.to(wide), key.to(wide), value.to(wide)
        vectors = self.key_vectors.to(wide), self.value_vectors.to(wide)
        if torch.compiler.is_compiling() and positions is None:
            positions = side_by_side(q.shape[-2], k.shape[-2], q.device)
        output: Tensor
        weights: Tensor | None
        if positions is None:
            q = q * (self.head_dim**-0.5 if scale is None else scale)
            output, weights = by_blocks(q, k, v, mask, vectors, is_causal, dropout, return_weights)
        else:
            output, weights = relative_attention(
                q,
                k,
                v,
                *vectors,
                positions=positions,
                mask=mask,
                is_causal=is_causal,
                scale=scale,
                dropout=dropout,
            )
        if return_weights and weights is not None:
            return output.to(dtype), weights.to(dtype)
        return output.to(dtype)
        # --8<-- [end:RelativePosition]


step(RelativePosition.attend, "mix", beside=True)

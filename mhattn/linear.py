"""Linear attention: features in place of the softmax, so that sums take the place of the table.

The weight of a key is ``phi(q) . phi(k)``, divided by the sum over all keys. A query then needs no
single key, only two sums over them, of ``phi(k) v^T`` and of ``phi(k)``. Katharopoulos et al.
(2020), https://arxiv.org/abs/2006.16236.
"""

from typing import Literal, overload

import torch
from torch import Tensor, nn

from mhattn import checks as check
from mhattn._chunked import FeatureMap, causal, first_state, hide, not_zero, see_all
from mhattn._fused import allowed_and_blind, share_heads
from mhattn.functional import merge_heads, split_heads
from mhattn.modules import MultiHeadAttention, reset_projections

__all__ = ["LinearAttention", "elu_plus_one", "linear_attention", "linear_attention_weights"]


# --8<-- [start:elu_plus_one]
def elu_plus_one(x: Tensor) -> Tensor:
    """Above zero ``x + 1``, below ``exp(x)``: always positive.

    It is ``elu(x) + 1``, the feature map of Katharopoulos et al. (2020),
    https://arxiv.org/abs/2006.16236, without the cancellation: where x is far below zero,
    ``elu(x)`` rounds to -1 and the sum to 0.

    Args:
        x: floats.

    Returns:
        Of the same shape and dtype.

    Examples:
        >>> elu_plus_one(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0.1353, 1.0000, 4.0000])
    """
    return x.clamp(max=0).exp() + x.relu()
    # --8<-- [end:elu_plus_one]


# --8<-- [start:linear_attention_weights]
def linear_attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    feature_map: FeatureMap = elu_plus_one,
) -> Tensor:
    """Write out the weights that `linear_attention` never computes.

    A table to look at and to test with: it takes ``L * S`` numbers.

    Args:
        query: floats, ``(..., L, D)``.
        key: floats, ``(..., S, D)``; grouped heads as in `attention`.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend. A table can be masked
            anywhere; the sums of `linear_attention` can only leave out whole keys.
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``.
        feature_map: as in `linear_attention`.

    Returns:
        ``(..., L, S)``, dtype of ``query``. Each row sums to one, or is all zeros if it has
        nothing to attend to.

    Raises:
        TypeError: query or key is not a tensor of floats, or mask not of booleans.
        ValueError: the shapes do not fit.

    Examples:
        The features are (1, 3) and (1, 1), (3, 1), so the dot products are 4 and 6.

        >>> query, key = torch.tensor([[0.0, 2.0]]), torch.tensor([[0.0, 0.0], [2.0, 0.0]])
        >>> linear_attention_weights(query, key)
        tensor([[0.4000, 0.6000]])
    """
    check.query_and_key(query, key)
    wide = torch.promote_types(query.dtype, torch.float32)
    phi_q, phi_k = feature_map(query.to(wide)), feature_map(key.to(wide))
    table = phi_q @ share_heads(phi_k, query).mT  # (..., L, S)
    allowed, blind = allowed_and_blind(mask, is_causal, table.shape, table.device)
    hidden = ~allowed if blind is None else ~allowed | blind
    table = table.masked_fill(hidden, 0.0)
    total = table.sum(dim=-1, keepdim=True)  # (..., L, 1)
    return (table / not_zero(total)).to(query.dtype)
    # --8<-- [end:linear_attention_weights]


@overload
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = ...,
    is_causal: bool = ...,
    feature_map: FeatureMap = ...,
    state: Tensor | None = ...,
    chunk_size: int = ...,
    return_state: Literal[False] = ...,
) -> Tensor: ...
@overload
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = ...,
    is_causal: bool = ...,
    feature_map: FeatureMap = ...,
    state: Tensor | None = ...,
    chunk_size: int = ...,
    return_state: Literal[True],
) -> tuple[Tensor, Tensor]: ...
# --8<-- [start:linear_attention]
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    feature_map: FeatureMap = elu_plus_one,
    state: Tensor | None = None,
    return_state: bool = False,
    chunk_size: int = 64,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mix the values by weights that are products of features.

    ``phi(Q) (phi(K)^T V)``, each row divided by its ``phi(q) . sum of phi(k)``: Katharopoulos et
    al. (2020), https://arxiv.org/abs/2006.16236. Time and memory grow with ``L + S``, not with
    ``L * S``, in training as well. Computed in float32 at least.

    A causal call goes through the sequence in chunks: a table of weights within a chunk, the
    state between them. All chunk sizes give the same result, up to rounding.

    Args:
        query: floats, ``(..., L, D)``; grouped ``(B, H, L, D)``.
        key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``, repeated for each query head.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        mask: booleans that broadcast to ``(..., 1, S)``, the same for all queries, as
            `padding_mask` makes them. True: may attend.
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``.
        feature_map: from ``(..., n, D)`` to ``(..., n, D_phi)``, each position for itself, no
            number below zero.
        state: what an earlier call returned, ``(..., D_phi, D_v + 1)``: the keys and values that
            it has seen are seen by all queries of this one. Default: none.
        return_state: also return the sums over all keys so far.
        chunk_size: how many positions a chunk has.

    Returns:
        ``(..., L, D_v)``, dtype of ``query``; or that and the state, ``(..., D_phi, D_v + 1)``:
        the sum of ``phi(k) v^T``, and as its last column that of ``phi(k)``. A query is answered
        with zeros if its denominator is zero, because there is nothing to attend to or all
        products of features underflow.

    Raises:
        TypeError: query, key or value is not a tensor of floats, or mask not of booleans.
        ValueError: the shapes do not fit, mask differs between queries, or chunk_size is less
            than 1.

    Examples:
        The weights are 0.4 and 0.6, as in `linear_attention_weights`.

        >>> query, key = torch.tensor([[0.0, 2.0]]), torch.tensor([[0.0, 0.0], [2.0, 0.0]])
        >>> value = torch.tensor([[0.0], [10.0]])
        >>> linear_attention(query, key, value)
        tensor([[6.]])
    """
    check.query_and_key(query, key)
    check.value(value, key)
    check.at_least("chunk_size", chunk_size, 1)
    key, value = share_heads(key, query), share_heads(value, query)
    wide = torch.promote_types(query.dtype, torch.float32)
    shape = (*query.shape[:-1], key.shape[-2])  # (..., L, S)
    value, one = hide(value, mask, shape, wide)  # one: (..., S, 1)

    def features(x: Tensor) -> Tensor:
        return feature_map(x.to(wide))  # (..., n, D_phi)

    sizes = features(key[..., :0, :]).shape[-1], value.shape[-1] + 1
    state = first_state(state, (*query.shape[:-2], *sizes), one)
    run, keys = causal if is_causal else see_all, (key, value, one)
    outputs, state = run(query, keys, state, features, chunk_size)
    nothing = one.new_zeros(*query.shape[:-2], 0, value.shape[-1])
    output = torch.cat([nothing, *outputs], dim=-2)  # (..., L, D_v)
    output = output.to(query.dtype)
    return (output, state) if return_state else output
    # --8<-- [end:linear_attention]


# --8<-- [start:LinearAttention]
class LinearAttention(nn.Module):
    """`mhattn.modules.MultiHeadAttention` with linear attention in place of softmax attention.

    The four projections have the same names, shapes and initialisation, so each module can load
    the other's ``state_dict``. Each head has sums of its own. Weights are never computed, so none
    can be returned or dropped; `linear_attention_weights` writes them out.

    Args:
        embed_dim: width of the query and of the output.
        num_heads: number of heads.
        head_dim: width of a head. Default: ``embed_dim / num_heads``.
        kdim: width of the key. Default: ``embed_dim``.
        vdim: width of the value. Default: ``embed_dim``.
        bias: whether the four projections add a bias.
        feature_map: as in `linear_attention`.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        TypeError: a width or the number of heads is not an integer.
        ValueError: one of them is less than 1, or num_heads does not divide embed_dim and no
            head_dim is given.

    Examples:
        >>> layer = LinearAttention(embed_dim=12, num_heads=3)
        >>> output, state = layer(torch.zeros(2, 5, 12), is_causal=True, return_state=True)
        >>> layer(torch.zeros(2, 1, 12), is_causal=True, state=state).shape
        torch.Size([2, 1, 12])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool = True,
        feature_map: FeatureMap = elu_plus_one,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        softmax = MultiHeadAttention(  # checks and initialises
            embed_dim,
            num_heads,
            head_dim=head_dim,
            kdim=kdim,
            vdim=vdim,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, softmax.head_dim
        self.kdim, self.vdim = softmax.kdim, softmax.vdim
        self.q_proj, self.k_proj = softmax.q_proj, softmax.k_proj
        self.v_proj, self.out_proj = softmax.v_proj, softmax.out_proj
        self.feature_map = feature_map

    def reset_parameters(self) -> None:
        """Initialise the projections anew, as `mhattn.modules.MultiHeadAttention` does."""
        reset_projections(self.q_proj, self.k_proj, self.v_proj, self.out_proj)

    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = ...,
        value: Tensor | None = ...,
        *,
        mask: Tensor | None = ...,
        is_causal: bool = ...,
        state: Tensor | None = ...,
        return_state: Literal[False] = ...,
    ) -> Tensor: ...
    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = ...,
        value: Tensor | None = ...,
        *,
        mask: Tensor | None = ...,
        is_causal: bool = ...,
        state: Tensor | None = ...,
        return_state: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        is_causal: bool = False,
        state: Tensor | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from the query to the key and value.

        Args:
            query: ``(B, L, embed_dim)``.
            key: ``(B, S, kdim)``. Default: the query, which is self-attention.
            value: ``(B, S, vdim)``. Default: the key.
            mask: booleans that broadcast to ``(B, H, 1, S)``. True: may attend.
            is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``.
            state: what an earlier call returned, ``(B, H, D_phi, D + 1)``.
            return_state: also return the sums over all keys so far.

        Returns:
            ``(B, L, embed_dim)``, or that and the state, ``(B, H, D_phi, D + 1)``.

        Raises:
            TypeError: an input is not a tensor of floats, or mask not of booleans.
            ValueError: the shapes do not fit, mask differs between queries, or there is a value
                but no key.
        """
        if key is None and value is not None:
            raise ValueError("value needs a key, got a value and key=None")
        key = query if key is None else key
        value = key if value is None else value
        check.sequence("query", query, "embed_dim", self.embed_dim)
        check.sequence("key", key, "kdim", self.kdim)
        check.sequence("value", value, "vdim", self.vdim)
        heads, state = linear_attention(
            split_heads(self.q_proj(query), self.num_heads),  # (B, H, L, D)
            split_heads(self.k_proj(key), self.num_heads),  # (B, H, S, D)
            split_heads(self.v_proj(value), self.num_heads),  # (B, H, S, D)
            mask=mask,
            is_causal=is_causal,
            feature_map=self.feature_map,
            state=state,
            return_state=True,
        )
        output: Tensor = self.out_proj(merge_heads(heads))  # (B, L, E)
        return (output, state) if return_state else output

    # --8<-- [end:LinearAttention]

    def extra_repr(self) -> str:
        return ", ".join(
            f"{name}={getattr(self, name)}" for name in ("embed_dim", "num_heads", "head_dim")
        )

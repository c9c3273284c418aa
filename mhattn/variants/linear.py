"""Linear attention: features in place of the softmax, so that sums take the place of the table.

The weight of a key is ``phi(q) . phi(k)``, divided by the sum over all keys. A query then needs no
single key, only two sums over them, of ``phi(k) v^T`` and of ``phi(k)``: the state. Katharopoulos
et al. (2020), https://arxiv.org/abs/2006.16236. Three forms of one function: the table of weights,
the recurrence, and both together in chunks.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from mhattn.core.functional import repeat_heads
from mhattn.core.steps import step
from mhattn.variants import checks as check

__all__ = [
    "elu_plus_one",
    "linear_attention",
    "linear_attention_weights",
    "recurrent_linear_attention",
]

FeatureMap = Callable[[Tensor], Tensor]


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

    ``phi(Q) phi(K)^T``, each row divided by its sum. These weights times the values are linear
    attention by definition; the table takes ``L * S`` numbers.

    Args:
        query: floats, ``(..., L, D)``.
        key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend. A table can be masked
            anywhere; the sums of `linear_attention` can only leave out whole keys.
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``.
        feature_map: from ``(..., n, D)`` to ``(..., n, D_phi)``, each position for itself, no
            number below zero.

    Returns:
        ``(..., L, S)``, dtype of ``query``. Each row sums to one, or is all zeros if it has
        nothing to attend to.

    Raises:
        TypeError: query or key is not a tensor of floats, they differ in dtype, or mask is not of
            booleans.
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
    table = phi_q @ repeat_heads(phi_k, query).mT  # (..., L, S)
    if is_causal:
        table = table.tril(key.shape[-2] - query.shape[-2])
    if mask is not None:
        check.mask(mask, table.shape)
        table = table.masked_fill(~mask, 0.0)
    total = table.sum(dim=-1, keepdim=True)  # (..., L, 1)
    return (table / not_zero(total)).to(query.dtype)
    # --8<-- [end:linear_attention_weights]


# --8<-- [start:recurrent_linear_attention]
def recurrent_linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    feature_map: FeatureMap = elu_plus_one,
) -> Tensor:
    """Compute causal linear attention as a recurrence, one position after the other.

    The state gets ``phi(k) [v, 1]^T`` of each position, and each query multiplies the state that
    is there by then: Katharopoulos et al. (2020), section 3.4, https://arxiv.org/abs/2006.16236.
    What `linear_attention` returns with ``is_causal``, up to rounding, in as many steps as there
    are positions.

    Args:
        query: floats, ``(..., L, D)``; grouped ``(B, H, L, D)``.
        key: floats, ``(..., L, D)``; grouped ``(B, H_kv, L, D)``.
        value: floats, ``(..., L, D_v)``; grouped ``(B, H_kv, L, D_v)``.
        feature_map: from ``(..., n, D)`` to ``(..., n, D_phi)``, each position for itself, no
            number below zero.

    Returns:
        ``(..., L, D_v)``, dtype of ``query``.

    Raises:
        TypeError: query, key or value is not a tensor of floats.
        ValueError: the shapes do not fit, or there are not as many queries as keys.

    Examples:
        The second query is that of `linear_attention_weights`, so its weights are 0.4 and 0.6.

        >>> query, key = torch.tensor([[0.0, 2.0]] * 2), torch.tensor([[0.0, 0.0], [2.0, 0.0]])
        >>> recurrent_linear_attention(query, key, torch.tensor([[0.0], [10.0]]))
        tensor([[0.],
                [6.]])
    """
    check.query_and_key(query, key)
    check.value(value, key)
    check.as_long_as_key(query, key)
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v = query.to(wide), repeat_heads(key, query).to(wide), repeat_heads(value, query).to(wide)
    phi_q, phi_k = feature_map(q), feature_map(k)  # (..., L, D_phi)
    with_one = F.pad(v, (0, 1), value=1.0)  # (..., L, D_v + 1)
    state = phi_k.new_zeros(*phi_k.shape[:-2], phi_k.shape[-1], with_one.shape[-1])
    mixed = []
    for q, k, v in chunks(1, phi_q, phi_k, with_one):  # (..., 1, ...)
        state = state + k.mT @ v  # (..., D_phi, D_v + 1)
        mixed.append(q @ state)  # (..., 1, D_v + 1)
    return divide(torch.cat(mixed, dim=-2)).to(query.dtype)
    # --8<-- [end:recurrent_linear_attention]


step(recurrent_linear_attention, "mix")


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
        TypeError: query, key or value is not a tensor of floats, they differ in dtype, or mask is
            not of booleans.
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
    key, value = repeat_heads(key, query), repeat_heads(value, query)
    wide = torch.promote_types(query.dtype, torch.float32)
    shape = (*query.shape[:-1], key.shape[-2])  # (..., L, S)
    value, one = hide(value, mask, shape, wide)  # one: (..., S, 1)

    def features(x: Tensor) -> Tensor:
        return feature_map(x.to(wide))  # (..., n, D_phi)

    sizes = features(key[..., :0, :]).shape[-1], value.shape[-1] + 1
    state = first_state(state, (*query.shape[:-2], *sizes), one)
    run, keys = causal if is_causal else attend_to_all, (key, value, one)
    outputs, state = run(query, keys, state, features, chunk_size)
    nothing = one.new_zeros(*query.shape[:-2], 0, value.shape[-1])
    output = torch.cat([nothing, *outputs], dim=-2)  # (..., L, D_v)
    output = output.to(query.dtype)
    return (output, state) if return_state else output
    # --8<-- [end:linear_attention]


step(linear_attention, "mix")


# --8<-- [start:attend_to_all]
def attend_to_all(
    query: Tensor,
    keys: Sequence[Tensor],
    state: Tensor,
    features: FeatureMap,
    chunk_size: int,
) -> tuple[list[Tensor], Tensor]:
    """First add up all the keys and values, then answer the queries.

    ``keys`` are the keys, their values, and beside each value a 1, or a 0 if the key is hidden.
    What the features multiply the values by, they multiply the 1 by as well, so the last column of
    every sum is its denominator.
    """
    for k, v, one in chunks(chunk_size, *keys):
        v = torch.cat([v, one], dim=-1)  # (..., C, D_v + 1)
        state = state + features(k).mT @ v  # (..., D_phi, D_v + 1)
    queries = chunks(chunk_size, query)
    return [divide(features(q) @ state) for (q,) in queries], state
    # --8<-- [end:attend_to_all]


# --8<-- [start:attend_in_chunks]
def attend_in_chunks(
    query: Tensor,
    keys: Sequence[Tensor],
    state: Tensor,
    features: FeatureMap,
    chunk_size: int,
) -> tuple[list[Tensor], Tensor]:
    """A table within each chunk, the state for all keys before it."""
    outputs = []
    for q, k, v, one in chunks(chunk_size, query, *keys):
        phi_q, phi_k = features(q), features(k)  # (..., C, D_phi)
        v = torch.cat([v, one], dim=-1)  # (..., C, D_v + 1)
        table = (phi_q @ phi_k.mT).tril()  # (..., C, C)
        outputs.append(divide(phi_q @ state + table @ v))  # (..., C, D_v)
        state = state + phi_k.mT @ v  # (..., D_phi, D_v + 1)
    return outputs, state
    # --8<-- [end:attend_in_chunks]


def causal(
    query: Tensor,
    keys: Sequence[Tensor],
    state: Tensor,
    features: FeatureMap,
    chunk_size: int,
) -> tuple[list[Tensor], Tensor]:
    """The last query stands beside the last key; what has no partner comes first."""
    # The last query sees every key. So if there are fewer keys, the first queries see the state
    # alone; if there are more, the first keys are seen by all.
    surplus = query.shape[-2] - keys[0].shape[-2]
    early, ahead = max(0, surplus), max(0, -surplus)
    prefix, keys = [x[..., :ahead, :] for x in keys], [x[..., ahead:, :] for x in keys]
    before, state = attend_to_all(query[..., :early, :], prefix, state, features, chunk_size)
    outputs, state = attend_in_chunks(query[..., early:, :], keys, state, features, chunk_size)
    return before + outputs, state


# --8<-- [start:divide]
def divide(mixed: Tensor) -> Tensor:
    """Divide by the denominator, in the last column."""
    return mixed[..., :-1] / not_zero(mixed[..., -1:])
    # --8<-- [end:divide]


def not_zero(total: Tensor) -> Tensor:
    """A row without any weight stays a row of zeros."""
    # Where nothing is seen, the sum of weighted values is zero as well: 0 / 1, not NaN.
    return total.masked_fill(total == 0, 1.0)


def chunks(size: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same positions of each tensor, some at a time.

    By ``split``, whose backward pass puts all pieces together at once. The gradient of a slice is
    as long as the whole sequence, and one for each chunk would make training quadratic again.
    """
    if tensors[0].shape[-2]:
        yield from zip(*(x.split(size, dim=-2) for x in tensors), strict=True)


def hide(
    value: Tensor, mask: Tensor | None, shape: Sequence[int], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Values, zero where their key is hidden, and what stands beside them."""
    one = torch.ones(1, 1, dtype=dtype, device=value.device)
    if mask is not None:
        check.mask_of_keys(mask, shape)
        seen = torch.atleast_2d(mask).mT  # (..., S, 1)
        # A hidden key adds nothing to either sum, so its features needn't be touched; NaN in a
        # hidden value is gone, too.
        value, one = value.masked_fill(~seen, 0.0), seen.to(dtype)
    return value, one.expand(*value.shape[:-1], 1)


def first_state(state: Tensor | None, shape: Sequence[int], like: Tensor) -> Tensor:
    """Nothing seen yet, or what an earlier call has seen."""
    if state is None:
        return like.new_zeros(shape)
    check.state(state, shape)
    return state.to(like.dtype)

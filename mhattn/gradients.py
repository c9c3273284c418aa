"""The backward pass of attention, written by hand.

It computes what autograd computes, in the five lines of the formula. Use it to read and to check;
to train, autograd and the fused kernels are there.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mhattn import checks as check
from mhattn.functional import attention_weights, repeat_heads

__all__ = ["AttentionGradients", "attention_gradients"]


class AttentionGradients(NamedTuple):
    """How a loss changes with each number that went into attention.

    Attributes:
        query: ``(..., L, D)``, as the query.
        key: ``(..., S, D)``, as the key.
        value: ``(..., S, D_v)``, as the value.
    """

    query: Tensor
    key: Tensor
    value: Tensor


# --8<-- [start:attention_gradients]
def attention_gradients(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad_output: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> AttentionGradients:
    """Carry a gradient from attention's output back to its inputs.

    The chain rule, applied to ``softmax(Q K^T / sqrt(d_k)) V``. It takes all that `attention`
    takes but bias and dropout, and is differentiable itself. Computed in float32 at least.

    Args:
        query: floats, ``(..., L, D)``; grouped ``(B, H, L, D)``.
        key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        grad_output: floats, ``(..., L, D_v)``: the gradient of the loss at the output.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend
            (`torch.nn.MultiheadAttention` means the opposite).
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query sees
            every key.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.

    Returns:
        The gradients of query, key and value, each with the shape and dtype of what it
        belongs to. A query with nothing to attend to gets zeros and gives none. A grouped
        key or value gets the sum over the query heads that use it.

    Raises:
        TypeError: query, key, value or grad_output is not a tensor of floats, query, key and value
            differ in dtype, or mask is not of booleans.
        ValueError: the shapes do not fit, or scale is not positive and finite.

    Examples:
        The weights are 1/2 and 1/2. The loss grows with the output, so it grows with both
        values; and with the second score, since the second value is larger.

        >>> query, key = torch.ones(1, 1), torch.zeros(2, 1)
        >>> value = torch.tensor([[0.0], [8.0]])
        >>> gradients = attention_gradients(query, key, value, grad_output=torch.ones(1, 1))
        >>> gradients.value.tolist(), gradients.key.tolist()
        ([[0.5], [0.5]], [[-2.0], [2.0]])
    """
    check.attention(query, key, value, scale)
    check.grad_output(grad_output, (*query.shape[:-1], value.shape[-1]))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    wide = torch.promote_types(query.dtype, torch.float32)
    inputs = query, key, value
    q, k, v, grad = (x.to(wide) for x in (*inputs, grad_output))
    weights = attention_weights(q, k, mask=mask, is_causal=is_causal, scale=scale)  # (..., L, S)
    gradients = backward(q, repeat_heads(k, q), repeat_heads(v, q), grad, weights, scale)
    return AttentionGradients(*map(sum_over_group, gradients, inputs))
    # --8<-- [end:attention_gradients]


# --8<-- [start:backward]
def backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad_output: Tensor,
    weights: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The chain rule, from the last step of the formula to the first."""
    grad_value = weights.mT @ grad_output  # (..., S, D_v)
    grad_weights = grad_output @ value.mT  # (..., L, S)
    mean = (weights * grad_weights).sum(dim=-1, keepdim=True)  # (..., L, 1)
    grad_scores = weights * (grad_weights - mean)  # (..., L, S)
    grad_query = scale * (grad_scores @ key)  # (..., L, D)
    grad_key = scale * (grad_scores.mT @ query)  # (..., S, D)
    return grad_query, grad_key, grad_value
    # --8<-- [end:backward]


# --8<-- [start:sum_over_group]
def sum_over_group(gradient: Tensor, x: Tensor) -> Tensor:
    """Add up the gradients of the query heads that share a head of x; undoes `repeat_heads`."""
    if gradient.shape != x.shape:
        heads = x.shape[-3], gradient.shape[-3] // x.shape[-3]
        gradient = gradient.unflatten(-3, heads)  # (B, H_kv, group, S, D)
        gradient = gradient.sum(dim=-3)  # (B, H_kv, S, D)
    return gradient.to(x.dtype)
    # --8<-- [end:sum_over_group]

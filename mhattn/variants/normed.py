"""Scores kept in bounds: queries and keys of a fixed norm, or a soft cap on each score.

Both are an ``attend`` for `mhattn.MultiHeadAttention`: ``attend=NormedAttention(head_dim)``
or ``attend=functools.partial(soft_capped_attention, cap=50.0)``.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mhattn.core import checks as check
from mhattn.core.functional import attention, attention_scores, masked_softmax, repeat_heads
from mhattn.core.positions import Attended
from mhattn.core.steps import step

__all__ = ["NormedAttention", "soft_capped_attention"]


# --8<-- [start:NormedAttention]
class NormedAttention(nn.Module):
    """Attend with queries and keys that are normalised in each head: QK-norm.

    Each query and key gets the norm ``sqrt(D)``, then each feature is multiplied by its gain. So
    while all gains are one, no score is larger than ``sqrt(D)``, whatever the weights that made
    query and key. The idea is Henry et al.'s (2020), https://arxiv.org/abs/2010.04245, with one
    factor for all features; Dehghani et al. (2023), https://arxiv.org/abs/2302.05442, normalise
    to keep scores small, with a gain for each feature, which all heads share.

    As ``attend`` of a layer with rotary positions, queries and keys come in turned. Many models
    normalise first and turn then: the same if both features of each turned pair have one gain.

    Args:
        head_dim: width of a head of query and key, ``D``.
        eps: added to the mean square under the root.
        device: of the gains.
        dtype: of the gains.

    Raises:
        TypeError: head_dim is not an integer.
        ValueError: head_dim is less than 1, or eps is negative or not finite.

    Examples:
        >>> attend = NormedAttention(head_dim=4)
        >>> query, key, value = torch.randn(3, 2, 3, 5, 4)
        >>> torch.allclose(attend(query, key, value), attend(9 * query, 7 * key, value), atol=1e-4)
        True
    """

    def __init__(
        self,
        head_dim: int,
        *,
        eps: float = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check.at_least("head_dim", head_dim, 1)
        if not 0 <= eps < math.inf:
            raise ValueError(f"eps must be finite and not negative, got {eps}")
        self.head_dim = head_dim
        self.eps = eps
        self.q_gain = nn.Parameter(torch.empty(head_dim, device=device, dtype=dtype))
        self.k_gain = nn.Parameter(torch.empty(head_dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set all gains to one."""
        nn.init.ones_(self.q_gain)
        nn.init.ones_(self.k_gain)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        is_causal: bool = False,
        dropout: float = 0.0,
        return_weights: bool = False,
    ) -> Attended:
        """Normalise query and key, then attend.

        Args:
            query: floats, ``(..., L, D)``.
            key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
            value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
            mask: booleans that broadcast to ``(..., L, S)``. True: may attend
                (`torch.nn.MultiheadAttention` means the opposite).
            bias: finite floats that broadcast to ``(..., L, S)``, added to the scaled scores.
            is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query
                sees every key.
            dropout: share of the weights set to zero; pass 0 when not training.
            return_weights: also return the weights.

        Returns:
            ``(..., L, D_v)``, zeros where there is nothing to attend to; or that and the weights as
            they were applied, dropout included, ``(..., L, S)``.

        Raises:
            TypeError: query, key, value or bias is not a tensor of floats, they differ in dtype, or
                mask is not of booleans.
            ValueError: the shapes do not fit, dropout is not in [0, 1), or the last axis of query
                and key is not ``head_dim``.
        """
        check.query_and_key(query, key)
        check.last_axis("query and key", query, "head_dim", self.head_dim)
        return attention(
            normalised(query, self.q_gain, self.eps),
            normalised(key, self.k_gain, self.eps),
            value,
            mask=mask,
            bias=bias,
            is_causal=is_causal,
            dropout=dropout,
            return_weights=return_weights,
        )

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}, eps={self.eps}"


def normalised(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """Each row with the norm ``sqrt(D)``, times the gain: in float32 at least, then as x."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return F.rms_norm(x.to(wide), gain.shape, gain.to(wide), eps).to(x.dtype)
    # --8<-- [end:NormedAttention]


step(normalised, "norm {}")


# --8<-- [start:soft_capped_attention]
def soft_capped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    cap: float,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    return_weights: bool = False,
) -> Attended:
    """Attend with scores squeezed between ``-cap`` and ``cap``.

    A score ``s`` becomes ``cap * tanh(s / cap)``, then the bias is added, and masked scores are
    left out. In Gemma 2 the cap is 50 (https://arxiv.org/abs/2408.00118). All scores are stored:
    PyTorch's fused kernels have no cap.

    Args:
        query: floats, ``(..., L, D)``; grouped ``(B, H, L, D)``.
        key: floats, ``(..., S, D)``; grouped ``(B, H_kv, S, D)``.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        cap: what no score may exceed, positive.
        mask: booleans that broadcast to ``(..., L, S)``. True: may attend
            (`torch.nn.MultiheadAttention` means the opposite).
        bias: finite floats that broadcast to ``(..., L, S)``, added to the capped scores, and not
            capped.
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query sees
            every key.
        scale: what the dot products are multiplied by. Default: ``1 / sqrt(D)``.
        dropout: share of the weights set to zero; pass 0 when not training.
        return_weights: also return the weights.

    Returns:
        ``(..., L, D_v)``, zeros where there is nothing to attend to; or that and the weights as
        they were applied, dropout included, ``(..., L, S)``.

    Raises:
        TypeError: query, key, value or bias is not a tensor of floats, they differ in dtype, or
            mask is not of booleans.
        ValueError: the shapes do not fit, scale is not positive, dropout is not in [0, 1), or cap
            is not positive and finite.

    Examples:
        Scores of 0 and 100 become 0 and 1, so the weights are 1/(1+e) and e/(1+e).

        >>> query, key = torch.tensor([[100.0]]), torch.tensor([[0.0], [1.0]])
        >>> soft_capped_attention(query, key, 10 * key, cap=1.0)
        tensor([[7.3106]])
    """
    check.attention(query, key, value, scale, dropout)
    if not 0 < cap < math.inf:
        raise ValueError(f"cap must be positive and finite, got {cap}")
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = attention_scores(query.to(wide), key.to(wide), scale)  # (..., L, S)
    scores = cap * (scores / cap).tanh()
    if bias is not None:
        check.bias(bias, scores.shape)
        scores = scores + bias.to(wide)
    weights = masked_softmax(scores, mask, is_causal=is_causal).to(query.dtype)
    weights = F.dropout(weights, dropout)  # (..., L, S)
    output = weights @ repeat_heads(value, query)  # (..., L, D_v)
    return (output, weights) if return_weights else output
    # --8<-- [end:soft_capped_attention]


step(soft_capped_attention, "mix", beside=True)

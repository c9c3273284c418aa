"""Attention to a few keys of each query, at the cost of those few.

`local_attention` and `strided_attention` return what `attention` returns with a mask, up to
rounding, without computing the scores that the mask would hide. As in `mhattn.masks`, query ``i``
stands at position ``i + (S - L)``.
"""

import functools
import math

import torch
from torch import Tensor, nn

from mhattn import _checks as check
from mhattn._blocks import attend_far, attend_in_windows, attend_with_log_sum
from mhattn._fused import share_heads
from mhattn.functional import attention, merge_heads, split_heads
from mhattn.modules import MultiHeadAttention, reset_projections

__all__ = ["SparseAttention", "local_attention", "strided_attention"]


# --8<-- [start:local_attention]
def local_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attend to the keys nearby, block by block.

    What `attention` returns with ``window_mask(L, S, window)``, and with ``is_causal`` for a
    sliding window: the own position and the ``window - 1`` before it. FLOPs and memory grow
    with ``L * window``.

    Args:
        query: floats, ``(..., L, D)``; grouped ``(B, H, L, D)``.
        key: floats, ``(..., S, D)``, at least as long; grouped ``(B, H_kv, S, D)``.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        window: keys less than this far away are seen; 1 is the own position only.
        mask: booleans that broadcast to ``(..., 1, S)``, as from `padding_mask`: keys that
            queries may attend to, the same for all queries of a head.
        is_causal: as in `attention_weights`.
        scale: as in `attention_weights`.

    Returns:
        ``(..., L, D_v)``, zeros where there is nothing to attend to.

    Raises:
        TypeError: query, key or value is not a tensor of floats, window not an integer, or
            mask not of booleans.
        ValueError: the shapes do not fit, there are more queries than keys, window is less
            than 1, or scale is not positive and finite.

    Examples:
        All scores are equal, so each output is the mean of the last two values.

        >>> x, value = torch.zeros(4, 1), torch.tensor([[0.0], [2.0], [4.0], [6.0]])
        >>> local_attention(x, x, value, window=2, is_causal=True).flatten()
        tensor([0., 1., 3., 5.])
    """
    _check(query, key, value, window, scale)
    if mask is not None:
        check.mask(mask, (*query.shape[:-2], 1, key.shape[-2]), "(..., 1, S)")
    if not query.numel():
        return attention(query, key, value)
    attend = functools.partial(attention, scale=scale)
    return attend_in_windows(query, key, value, window, attend, is_causal=is_causal, mask=mask)
    # --8<-- [end:local_attention]


# --8<-- [start:strided_attention]
def strided_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    stride: int,
    *,
    scale: float | None = None,
) -> Tensor:
    """Attend to the last few positions, and to every stride-th one before them; causal.

    The strided pattern of Child et al. (2019), https://arxiv.org/abs/1904.10509, in one head.
    It is what `attention` returns with ``is_causal`` and ``window_mask(L, S, window) |
    strided_mask(L, S, stride)``, computed in float32 at least. FLOPs grow with
    ``L * (window + S / stride)``, memory with ``L * window + S``.

    Args:
        query: floats, ``(..., L, D)``; grouped ``(B, H, L, D)``.
        key: floats, ``(..., S, D)``, at least as long; grouped ``(B, H_kv, S, D)``.
        value: floats, ``(..., S, D_v)``; grouped ``(B, H_kv, S, D_v)``.
        window: how many of the last positions are seen; 1 is the own position only.
        stride: how far apart the positions are that are seen before those.
        scale: as in `attention_weights`.

    Returns:
        ``(..., L, D_v)``.

    Raises:
        TypeError: query, key or value is not a tensor of floats, or window or stride not an
            integer.
        ValueError: the shapes do not fit, there are more queries than keys, window or stride
            is less than 1, or scale is not positive and finite.

    Examples:
        All scores are equal; the last query sees positions 5 and 4, and by the stride 2.

        >>> x, value = torch.zeros(6, 1), torch.tensor([[0.0], [0], [8], [0], [2], [5]])
        >>> strided_attention(x, x, value, window=2, stride=3)[-1]
        tensor([5.])
    """
    _check(query, key, value, window, scale)
    check.at_least("stride", stride, 1)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if query.shape[-2] == 1 or not query.numel():
        return _strided_step(query, key, value, window, stride, scale)
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v = (share_heads(x, query).to(wide) for x in (query, key, value))
    attend = functools.partial(attend_with_log_sum, scale=scale)
    near = attend_in_windows(q, k, v, window, attend, is_causal=True)  # (..., L, D_v + 1)
    near, log_sum = near.split([v.shape[-1], 1], dim=-1)
    far, share = attend_far(q, k, v, log_sum, window, stride, scale)
    alone = near.shape[-2] - far.shape[-2]  # queries that see nothing but their window
    both = torch.addcmul(far, 1 - share, near[..., alone:, :])
    return torch.cat([near[..., :alone, :], both], dim=-2).to(query.dtype)
    # --8<-- [end:strided_attention]


def _strided_step(
    query: Tensor, key: Tensor, value: Tensor, window: int, stride: int, scale: float
) -> Tensor:
    """For a single query, at the last position: take out the keys that it sees."""
    last = key.shape[-2] - 1
    far = slice(last % stride, max(0, last - window + 1), stride)
    seen = [torch.cat([x[..., far, :], x[..., -window:, :]], dim=-2) for x in (key, value)]
    return attention(query, *seen, scale=scale)


def _check(query: Tensor, key: Tensor, value: Tensor, window: int, scale: float | None) -> None:
    check.query_and_key(query, key)
    check.value(value, key)
    check.no_longer_than_key(query, key)
    check.at_least("window", window, 1)
    check.scale(scale)


# --8<-- [start:SparseAttention]
class SparseAttention(nn.Module):
    """Multi-head attention in which each head sees a window, and perhaps a stride.

    The projections are those of `MultiHeadAttention`, under the same names, so one's
    ``state_dict`` loads into the other; between them is `local_attention` or
    `strided_attention`.

    Args:
        embed_dim: width of the query and of the output.
        num_heads: number of heads of the query.
        window: keys less than this far away are seen; 1 is the own position only.
        stride: if given, every stride-th position before the window is seen as well.
        num_kv_heads: as in `MultiHeadAttention`.
        head_dim: as in `MultiHeadAttention`.
        bias: as in `MultiHeadAttention`.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        TypeError: a width, a number of heads, window or stride is not an integer.
        ValueError: one of them is less than 1, num_heads does not divide embed_dim and no
            head_dim is given, or num_kv_heads does not divide num_heads.

    Examples:
        >>> layer = SparseAttention(embed_dim=12, num_heads=3, window=4, stride=4)
        >>> layer(torch.randn(2, 50, 12), is_causal=True).shape
        torch.Size([2, 50, 12])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        window: int,
        *,
        stride: int | None = None,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check.at_least("window", window, 1)
        if stride is not None:
            check.at_least("stride", stride, 1)
        dense = MultiHeadAttention(
            embed_dim,
            num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.num_kv_heads = dense.num_kv_heads
        self.window, self.stride = window, stride
        self.q_proj, self.k_proj = dense.q_proj, dense.k_proj
        self.v_proj, self.out_proj = dense.v_proj, dense.out_proj

    def reset_parameters(self) -> None:
        """Initialise the projections anew, as `MultiHeadAttention` does."""
        reset_projections(self.q_proj, self.k_proj, self.v_proj, self.out_proj)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Attend from the query to the key and value.

        Args:
            query: ``(B, L, embed_dim)``; the last ``L`` of the ``S`` positions.
            key: ``(B, S, embed_dim)``. Default: the query.
            value: ``(B, S, embed_dim)``. Default: the key.
            mask: as in `local_attention`; with a stride there is none.
            is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``; with a
                stride it must.

        Returns:
            ``(B, L, embed_dim)``.

        Raises:
            TypeError: an input is not a tensor of floats, or mask not of booleans.
            ValueError: the shapes do not fit, there is a value but no key, or there is a
                stride and a mask, or a stride and attention is not causal.
        """
        if key is None and value is not None:
            raise ValueError("value needs a key, got a value and key=None")
        if self.stride is not None and not is_causal:
            raise ValueError("with a stride, is_causal must be True, got False")
        if self.stride is not None and mask is not None:
            raise ValueError("with a stride, mask must be None, got a mask")
        key = query if key is None else key
        value = key if value is None else value
        for name, x in {"query": query, "key": key, "value": value}.items():
            check.sequence(name, x, "embed_dim", self.embed_dim)
        query = split_heads(self.q_proj(query), self.num_heads)  # (B, H, L, D)
        key = split_heads(self.k_proj(key), self.num_kv_heads)  # (B, H_kv, S, D)
        value = split_heads(self.v_proj(value), self.num_kv_heads)  # (B, H_kv, S, D)
        if self.stride is None:
            heads = local_attention(query, key, value, self.window, mask=mask, is_causal=is_causal)
        else:
            heads = strided_attention(query, key, value, self.window, self.stride)
        output: Tensor = self.out_proj(merge_heads(heads))  # (B, L, E)
        return output

    # --8<-- [end:SparseAttention]

    def extra_repr(self) -> str:
        names = ("num_heads", "num_kv_heads", "window", "stride")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)

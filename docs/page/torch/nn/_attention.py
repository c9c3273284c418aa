"""torch's own layer of multi-head attention."""

import math
from typing import Any

from torch import _factories
from torch._dtypes import BOOL
from torch._shapes import cat
from torch._tensor import Tensor
from torch.nn import functional as F, init
from torch.nn._layers import NonDynamicallyQuantizableLinear
from torch.nn._module import Module, Parameter

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Queries, keys and values by one matrix, heads side by side, one matrix out."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ):
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                f"num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = (
            embed_dim,
            num_heads,
            dropout,
            batch_first,
        )
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.head_dim, self.add_zero_attn = embed_dim // num_heads, add_zero_attn
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")
        where = {"device": device, "dtype": dtype}
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        if self._qkv_same_embed_dim:
            self.in_proj_weight = Parameter(_factories.empty(3 * embed_dim, embed_dim, **where))
            for name in names:
                self.register_parameter(name, None)
        else:
            for name, size in zip(names, (embed_dim, self.kdim, self.vdim), strict=True):
                self.register_parameter(name, Parameter(_factories.empty(embed_dim, size, **where)))
            self.register_parameter("in_proj_weight", None)
        self.register_parameter(
            "in_proj_bias", Parameter(_factories.empty(3 * embed_dim, **where)) if bias else None
        )
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **where)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(
                name, Parameter(_factories.empty(1, 1, embed_dim, **where)) if add_bias_kv else None
            )
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (
            self.in_proj_weight,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
        ):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if query.dim() not in (2, 3):
            raise AssertionError(
                f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D "
                "query tensor"
            )
        single = query.dim() == 2
        if single:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        result, weights = self._attend(query, key, value, key_padding_mask, attn_mask, is_causal)
        if not single and not self.batch_first:
            result = result.transpose(0, 1)
        elif single:
            result = result[0]
        if not need_weights:
            return result, None
        weights = weights.mean(1) if average_attn_weights else weights
        return result, weights[0] if single else weights

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, padding: Any, mask: Any, is_causal: bool
    ) -> tuple[Tensor, Tensor]:
        B, L, E = query.shape
        if self.embed_dim != E:
            raise AssertionError(
                f"was expecting embedding dimension of {self.embed_dim}, but got {E}"
            )
        own = self.in_proj_weight
        matrices = (
            own.chunk(3)
            if own is not None
            else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        )
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = (
            F.linear(x, W, b) for x, W, b in zip((query, key, value), matrices, biases, strict=True)
        )
        if self.bias_k is not None:
            k, v = (cat([x, b.expand(B, 1, E)], 1) for x, b in ((k, self.bias_k), (v, self.bias_v)))
        q, k, v = (
            x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for x in (q, k, v)
        )
        if self.add_zero_attn:
            k, v = (F.pad(x, (0, 0, 0, 1)) for x in (k, v))
        scores = (q * (1 / math.sqrt(self.head_dim))) @ k.transpose(-2, -1)
        more = k.shape[2] - key.shape[1]
        for hidden, shape in (self._mask(mask, is_causal, B, L), None), (padding, (B, 1, 1, -1)):
            if hidden is None:
                continue
            hidden = hidden if shape is None else hidden.reshape(shape)
            hidden = F.pad(hidden, (0, more)) if more else hidden
            scores = (
                scores.masked_fill(hidden, -math.inf) if hidden.dtype is BOOL else scores + hidden
            )
        weights = scores.softmax(-1)
        if self.dropout and self.training:
            weights = F.dropout(weights, self.dropout)
        heads = (weights @ v).transpose(1, 2).flatten(-2)
        return F.linear(heads, self.out_proj.weight, self.out_proj.bias), weights

    def _mask(self, mask: Any, is_causal: bool, B: int, L: int) -> Any:
        if is_causal and mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        if mask is None or mask.dim() == 2:
            return mask
        return mask.unflatten(0, (B, self.num_heads))

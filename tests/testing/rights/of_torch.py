"""PyTorch's own layers."""

import functools

import torch.nn.functional as F
from torch import nn

from mhattn.testing import adapt
from rights.entries import SIZES, E, H, entered

mha = functools.partial(nn.MultiheadAttention, E, H)
entered("torch: nn.MultiheadAttention, length first", mha)
entered("torch: nn.MultiheadAttention, batch first", functools.partial(mha, batch_first=True))
entered(
    "torch: nn.MultiheadAttention without bias",
    functools.partial(mha, batch_first=True, bias=False),
)
entered(
    "torch: nn.MultiheadAttention with dropout",
    functools.partial(mha, batch_first=True, dropout=0.2),
)
entered(
    "torch: nn.MultiheadAttention, mean of the weights",
    functools.partial(mha, batch_first=True),
    weights={"need_weights": True},
)
entered(
    "torch: nn.MultiheadAttention with a bias of keys and values",
    functools.partial(mha, batch_first=True, add_bias_kv=True),
    sinks=True,
    weights=False,
)
entered(
    "torch: nn.MultiheadAttention with a key of zeros",
    functools.partial(mha, batch_first=True, add_zero_attn=True),
    sinks=True,
    weights=False,
)


class OtherWidths(nn.Module):
    """Keys and values of other widths, computed from inputs of one."""

    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(E, H, batch_first=True, kdim=20, vdim=12)

    def forward(self, query, key, value, key_padding_mask=None):
        key, value = key[..., :20], value[..., :12]
        return self.mha(query, key, value, key_padding_mask=key_padding_mask, need_weights=False)[0]


entered("torch: nn.MultiheadAttention, kdim and vdim", OtherWidths, **SIZES)
entered("torch: scaled_dot_product_attention", lambda: F.scaled_dot_product_attention)
entered(
    "torch: scaled_dot_product_attention, grouped",
    lambda: F.scaled_dot_product_attention,
    num_heads=6,
    num_kv_heads=2,
)


entered(
    "torch: a part of scaled_dot_product_attention's arguments",
    lambda: functools.partial(F.scaled_dot_product_attention, scale=0.5),
)


def scaled_by_half(query, key, value, attn_mask=None, is_causal=False):
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=0.5
    )


entered(
    "torch: scaled_dot_product_attention with a scale",
    lambda: scaled_by_half,
    scale=0.5,
    corner="upper left",
)
block = {"d_model": E, "nhead": H, "dim_feedforward": 64, "batch_first": True}
for norm_first in (False, True):
    entered(
        f"torch: nn.TransformerEncoderLayer, norm_first={norm_first}",
        functools.partial(nn.TransformerEncoderLayer, **block, norm_first=norm_first),
    )
    decoder = functools.partial(nn.TransformerDecoderLayer, **block, norm_first=norm_first)
    entered(f"torch: nn.TransformerDecoderLayer, its own tokens, norm_first={norm_first}", decoder)
    entered(
        f"torch: nn.TransformerDecoderLayer, its memory, norm_first={norm_first}",
        lambda decoder=decoder: adapt(decoder(), part="memory"),
    )
entered(
    "torch: nn.TransformerDecoderLayer, length first",
    lambda: nn.TransformerDecoderLayer(E, H, 64),
)
entered(
    "torch: nn.TransformerEncoderLayer, length first, gelu",
    lambda: nn.TransformerEncoderLayer(E, H, 64, activation="gelu", dropout=0.0),
)

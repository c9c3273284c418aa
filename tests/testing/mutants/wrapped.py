"""PyTorch's attention, called wrongly by the layer around it."""

import torch
import torch.nn.functional as F
from torch import nn

from mutants.registry import broken


class Around(nn.Module):
    """`nn.MultiheadAttention`, masks and padding as SDPA has them: True may attend."""

    told = {  # noqa: RUF012
        "num_heads": 3,
        "embed_dim": 24,
        "padding_true": "attend",
        "empty_rows": "any",
        "weights": "return_weights",
    }

    def __init__(self, dropout=0.1, **options):
        super().__init__()
        self.mha = nn.MultiheadAttention(
            24, 3, dropout=dropout, **({"batch_first": True} | options)
        )
        nn.init.normal_(self.mha.in_proj_weight, std=0.3)

    def forward(self, x, attn_mask=None, padding_mask=None, is_causal=False, return_weights=False):
        options = self.options(x, attn_mask, padding_mask, is_causal)
        output, weights = self.mha(x, x, x, **options, **self.weights(return_weights))
        return (output, weights) if return_weights else output

    def weights(self, asked):
        return {"need_weights": asked, "average_attn_weights": False}

    def options(self, x, attn_mask, padding_mask, is_causal):
        hidden = None if attn_mask is None else self.hidden(attn_mask)
        if is_causal:
            triangle = self.triangle(x.shape[1])
            hidden = triangle if hidden is None else hidden | triangle
        padding = None if padding_mask is None else self.padding(padding_mask)
        return {"attn_mask": hidden, "key_padding_mask": padding}

    def hidden(self, mask):
        """One for all, or one for each sequence."""
        if mask.ndim < 4:
            return ~mask
        return ~mask.expand(-1, 3, -1, -1).flatten(0, 1)

    def triangle(self, L):
        return torch.ones(L, L, dtype=torch.bool).triu(1)

    def padding(self, mask):
        return ~mask


@broken("around MHA: batch_first is forgotten", "batch")
class BatchFirstForgotten(Around):
    def __init__(self):
        super().__init__(batch_first=False)

    def options(self, x, attn_mask, padding_mask, is_causal):
        return {}


@broken("around MHA: True may attend is passed on", "mask mask-sense")
class TruePassedOn(Around):
    def hidden(self, mask):
        return ~super().hidden(mask)


@broken("around MHA: padding is passed on", "padding")
class PaddingPassedOn(Around):
    def padding(self, mask):
        return mask


@broken("around MHA: torch.tril hides the past", "future")
class TrilHides(Around):
    def triangle(self, L):
        return torch.ones(L, L, dtype=torch.bool).tril(-1)


@broken(
    "around MHA: is_causal replaces a mask unless weights are asked", "mask-and-causal weights mask"
)
class CausalHint(Around):
    def options(self, x, attn_mask, padding_mask, is_causal):
        if attn_mask is None or is_causal:
            return super().options(x, attn_mask, padding_mask, is_causal)
        return super().options(x, attn_mask, padding_mask, False) | {"is_causal": True}


@broken("around MHA: the mask of 0 and 1 is passed as floats", "mask")
class FloatsPassed(Around):
    def hidden(self, mask):
        return (~super().hidden(mask)).float()

    def triangle(self, L):
        return torch.zeros(L, L).masked_fill(super().triangle(L), -torch.inf)

    def options(self, x, attn_mask, padding_mask, is_causal):
        if is_causal and attn_mask is not None:
            attn_mask = attn_mask & ~torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            is_causal = False
        return super().options(x, attn_mask, padding_mask, is_causal)


@broken("around MHA: masks are repeated for heads in the wrong order", "mask-batch mask-heads")
class RepeatedWrong(Around):
    def hidden(self, mask):
        return ~mask[:, 0].repeat(3, 1, 1) if mask.ndim == 4 else ~mask


@broken("around MHA: the weights are averaged and spread again", "weights")
class AveragedWeights(Around):
    def forward(self, *inputs, return_weights=False, **options):
        found = super().forward(*inputs, return_weights=return_weights, **options)
        if not return_weights:
            return found
        return found[0], found[1].mean(dim=1, keepdim=True).expand_as(found[1])


@broken("around MHA: padding becomes a mask of queries", "padding")
class PaddingOfQueries(Around):
    def options(self, x, attn_mask, padding_mask, is_causal):
        found = super().options(x, attn_mask, None, is_causal)
        if padding_mask is not None:
            rows = ~padding_mask[:, :, None].expand(-1, -1, x.shape[1])
            rows = rows.repeat_interleave(3, dim=0)
            hidden = found["attn_mask"]
            found["attn_mask"] = rows if hidden is None else hidden | rows
        return found


class Called(nn.Module):
    """SDPA in a layer that is causal if told so, with a cache of keys and values."""

    told = {  # noqa: RUF012
        "num_heads": 6,
        "num_kv_heads": 2,
        "embed_dim": 48,
        "causal": True,
        "cache": "past",
    }

    def __init__(self, dropout=0.1):
        super().__init__()
        self.dropout = dropout
        self.q_proj, self.out_proj = nn.Linear(48, 48), nn.Linear(48, 48)
        self.k_proj, self.v_proj = nn.Linear(48, 16), nn.Linear(48, 16)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, x, past=None):
        q, k, v = self.cut(self.q_proj(x)), self.cut(self.k_proj(x)), self.cut(self.v_proj(x))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        new = k, v
        L, S = q.shape[2], k.shape[2]
        k, v = self.spread(k), self.spread(v)
        options = self.options(L, S)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.share(), **options)
        return self.out_proj(mixed.transpose(1, 2).flatten(-2)), new

    def cut(self, x):
        return x.unflatten(-1, (-1, 8)).transpose(1, 2)

    def spread(self, x):
        return x.repeat_interleave(3, dim=1)

    def options(self, L, S):
        return {"attn_mask": torch.ones(L, S, dtype=torch.bool).tril(S - L)}

    def share(self):
        return self.dropout if self.training else 0.0


@broken("calls SDPA: is_causal while decoding", "cache")
class CausalWhileDecoding(Called):
    def options(self, L, S):
        return {"is_causal": True}


@broken("calls SDPA: is_causal for more than one token", "cache cache-chunks")
class CausalForMany(Called):
    def options(self, L, S):
        return {"is_causal": L > 1}


@broken("calls SDPA: is_causal in training only", "future")
class CausalInTraining(Called):
    def options(self, L, S):
        return super().options(L, S) if self.training else {}


@broken("calls SDPA: dropout_p in evaluation", "dropout repeat")
class DropoutAlways(Called):
    def share(self):
        return self.dropout


@broken(
    "calls SDPA: heads are expanded in the wrong order", "formula", says="groups in the wrong order"
)
class ExpandedWrong(Called):
    def spread(self, x):
        return x[:, None].expand(-1, 3, -1, -1, -1).flatten(1, 2)


@broken("calls SDPA: a mask of floats, 0 and 1", "future")
class MaskOfOnes(Called):
    def options(self, L, S):
        return {"attn_mask": torch.ones(L, S).tril(S - L)}


@broken("calls SDPA: the mask hides what is allowed", "future")
class MaskInverted(Called):
    def options(self, L, S):
        return {"attn_mask": ~torch.ones(L, S, dtype=torch.bool).tril(S - L - 1)}


@broken("calls SDPA: queries are scaled before it scales", "formula", says="scale twice")
class ScaledBefore(Called):
    def cut(self, x):
        x = super().cut(x)
        return x * 8**-0.5 if x.shape[1] == 6 else x


@broken("calls SDPA: heads are left behind the tokens", "formula past future")
class HeadsBehind(Called):
    def forward(self, x, past=None):
        q, k, v = (self.cut(f(x)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (y.repeat_interleave(3, dim=2) for y in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v)  # (B, L, H, D)
        return self.out_proj(mixed.flatten(-2)), past

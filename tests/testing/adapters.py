"""Attention of other libraries as the doctor calls it: one small module for each way of calling.

All take ``(B, L, E)``. Masks are of booleans, True may attend; what the library wants instead is
made here, causal and window included. transformers is imported by whoever builds the layer.
"""

import torch
from torch import Tensor, nn


def visible(
    mask: Tensor | None, L: int, S: int, *, causal: bool, window: int | None
) -> Tensor | None:
    """What each query may see, ``(B, H, L, S)`` or less; None: everything."""
    seen = mask
    if causal:
        triangle = torch.ones(L, S, dtype=torch.bool).tril(S - L)
        if window is not None:
            triangle = triangle.triu(S - L - window + 1)
        seen = triangle if seen is None else seen & triangle
    if seen is None or seen.ndim == 4:
        return seen
    return seen[None, None] if seen.ndim == 2 else seen[:, None]


def added(seen: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """The same as floats to be added: 0, or the lowest number."""
    if seen is None:
        return None
    low = torch.finfo(dtype).min
    return torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, low)


class Adapted(nn.Module):
    """Common to all: how masks are given, what else is asked, and what of the answer is taken."""

    def __init__(self, layer, *, mask_name="attention_mask", booleans=False, weights_at=1, **asked):
        super().__init__()
        self.layer = layer
        self.mask_name, self.booleans, self.weights_at, self.asked = (
            mask_name,
            booleans,
            weights_at,
            asked,
        )

    def call(self, *inputs, seen, dtype, need_weights=False, **options):
        if seen is not None:
            seen = seen.expand(inputs[0].shape[0], -1, -1, -1)
        options[self.mask_name] = seen if self.booleans else added(seen, dtype)
        found = self.layer(*inputs, **self.asked, **options)
        if isinstance(found, Tensor):
            return found
        return (found[0], found[self.weights_at]) if need_weights else found[0]


class DecoderLayer(Adapted):
    """Causal self-attention of transformers, with its rotary tables and its cache.

    Args:
        layer: a module that takes ``attention_mask``, and returns output and weights.
        rotary: the module that computes ``position_embeddings``, if there is one.
        window: how many keys a query sees.
        own_mask: leave the causal mask to the layer, where nothing else is hidden.
        cache_name: what the layer calls its cache.
        ids: also pass ``position_ids``.
    """

    def __init__(
        self,
        layer,
        rotary=None,
        *,
        window=None,
        own_mask=False,
        cache_name="past_key_values",
        ids=False,
        **options,
    ):
        super().__init__(layer, **options)
        self.rotary, self.window, self.own_mask = rotary, window, own_mask
        self.cache_name, self.ids = cache_name, ids

    def forward(self, x, attn_mask=None, position_ids=None, cache=None, need_weights=False):
        x = x.contiguous()  # GPT-2's product needs that
        L, seen_before = x.shape[1], 0 if cache is None else cache.get_seq_length()
        if position_ids is None:
            position_ids = torch.arange(seen_before, seen_before + L)
        ids = position_ids if position_ids.ndim == 2 else position_ids[None]
        options = {self.cache_name: cache}
        if self.rotary is not None:
            options["position_embeddings"] = self.rotary(x, ids)
        if self.ids:
            options["position_ids"] = ids.expand(x.shape[0], -1)
        seen = None
        if not self.own_mask or attn_mask is not None or seen_before:
            S = L + seen_before
            seen = visible(attn_mask, L, S, causal=True, window=self.window)
        return self.call(x, seen=seen, dtype=x.dtype, need_weights=need_weights, **options)


class EncoderLayer(Adapted):
    """Self-attention of transformers that sees both ways."""

    def forward(self, x, attn_mask=None, need_weights=False):
        L = x.shape[1]
        seen = visible(attn_mask, L, L, causal=False, window=None)
        return self.call(x, seen=seen, dtype=x.dtype, need_weights=need_weights)


class CrossLayer(Adapted):
    """Cross-attention of transformers."""

    def __init__(self, layer, *, memory_name="key_value_states", **options):
        super().__init__(layer, **options)
        self.memory_name = memory_name

    def forward(self, x, memory, attn_mask=None, need_weights=False):
        seen = visible(attn_mask, x.shape[1], memory.shape[1], causal=False, window=None)
        options = {self.memory_name: memory, "need_weights": need_weights}
        return self.call(x, seen=seen, dtype=x.dtype, **options)


class WithOutput(nn.Module):
    """BERT's attention and the matrix behind it, without the norm and the residual."""

    def __init__(self, attention, out_proj, q_proj="query", k_proj="key", v_proj="value"):
        super().__init__()
        self.attention, self.out_proj = attention, out_proj

    def forward(self, *inputs, **options):
        output, *others = self.attention(*inputs, **options)
        return (self.out_proj(output), *others)


class XTransformers(nn.Module):
    """x-transformers' attention: padding, pairs, rotary positions."""

    def __init__(self, layer, rotary=None):
        super().__init__()
        self.layer, self.rotary = layer, rotary

    def forward(self, x, memory=None, attn_mask=None, padding=None):
        options = {"attn_mask": attn_mask, "context": memory}
        options["context_mask" if memory is not None else "mask"] = padding
        if self.rotary is not None:
            options["rotary_pos_emb"] = self.rotary.forward_from_seq_len(x.shape[1])
        return self.layer(x, **options)


class BlockSelf(nn.Module):
    """A block of PyTorch's decoder with its memory held fixed: what it does to its own tokens."""

    def __init__(self, layer, memory):
        super().__init__()
        self.layer = layer
        self.register_buffer("memory", memory)

    def forward(self, x, attn_mask=None, key_padding_mask=None):
        memory = self.memory.expand(x.shape[0], -1, -1)
        return self.layer(x, memory, tgt_mask=attn_mask, tgt_key_padding_mask=key_padding_mask)


class BlockMemory(nn.Module):
    """The same block, with the memory as keys and values."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, memory, key_padding_mask=None):
        apart = ~torch.eye(x.shape[1], dtype=torch.bool)  # each query sees itself alone
        return self.layer(x, memory, tgt_mask=apart, memory_key_padding_mask=key_padding_mask)


class Asked(nn.Module):
    """A layer that is always called with the same options besides."""

    def __init__(self, layer, **options):
        super().__init__()
        self.layer, self.options = layer, options

    def forward(self, *inputs, **options):
        return self.layer(*inputs, **self.options, **options)

"""Multi-head latent attention: keys and values of all heads, computed from one small vector.

Only that vector is kept of a token, the latent, and beside it a small key that carries the
position and is shared by all heads. DeepSeek-AI (2024), https://arxiv.org/abs/2405.04434.
Letters of its own: R is the latent's width, D_R the width of the part that is turned.
"""

import functools
from collections.abc import Callable
from typing import Literal, Protocol, cast, overload

import torch
from torch import Tensor, nn

from mhattn.core.cache import KVCache, keep_to_one_layer
from mhattn.core.functional import attention, merge_heads, split_heads
from mhattn.core.positions import Attended, Rotary
from mhattn.core.steps import step
from mhattn.costs.attention import latent_multiplications
from mhattn.variants import checks as check

__all__ = [
    "LatentAttention",
    "latent_attention",
    "latent_attention_absorbed",
    "latent_attention_expanded",
]


class LatentForm(Protocol):
    """What type checkers know of both forms: with ``return_weights`` the result is a pair."""

    @overload
    def __call__(
        self,
        query: Tensor,
        kept: Tensor,
        k_b: Tensor,
        v_b: Tensor,
        *,
        mask: Tensor | None = ...,
        is_causal: bool = ...,
        return_weights: Literal[False] = ...,
    ) -> Tensor: ...
    @overload
    def __call__(
        self,
        query: Tensor,
        kept: Tensor,
        k_b: Tensor,
        v_b: Tensor,
        *,
        mask: Tensor | None = ...,
        is_causal: bool = ...,
        return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(
        self,
        query: Tensor,
        kept: Tensor,
        k_b: Tensor,
        v_b: Tensor,
        *,
        mask: Tensor | None = ...,
        is_causal: bool = ...,
        return_weights: bool,
    ) -> Attended: ...


def one_form(function: Callable[..., Attended]) -> LatentForm:
    # Both forms are called alike, so the overloads of that call are written once, above.
    return cast(LatentForm, function)


@overload
def latent_attention(
    query: Tensor,
    kept: Tensor,
    k_b: Tensor,
    v_b: Tensor,
    *,
    mask: Tensor | None = ...,
    is_causal: bool = ...,
    absorb: bool | None = ...,
    return_weights: Literal[False] = ...,
) -> Tensor: ...
@overload
def latent_attention(
    query: Tensor,
    kept: Tensor,
    k_b: Tensor,
    v_b: Tensor,
    *,
    mask: Tensor | None = ...,
    is_causal: bool = ...,
    absorb: bool | None = ...,
    return_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@overload
def latent_attention(
    query: Tensor,
    kept: Tensor,
    k_b: Tensor,
    v_b: Tensor,
    *,
    mask: Tensor | None = ...,
    is_causal: bool = ...,
    absorb: bool | None = ...,
    return_weights: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...
# --8<-- [start:latent_attention]
def latent_attention(
    query: Tensor,
    kept: Tensor,
    k_b: Tensor,
    v_b: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    return_weights: bool = False,
    absorb: bool | None = None,
) -> Attended:
    """Attend to tokens of which only a latent and a shared key are kept.

    Section 2.1 of DeepSeek-AI (2024), https://arxiv.org/abs/2405.04434. There are two orders
    of the same products. Expanded: each head's keys and values are computed from the latents,
    then it is attention. Absorbed: each query goes into the space of the latents instead, and
    all heads attend to one key, as in multi-query attention.

    Args:
        query: floats, ``(B, H, L, D + D_R)``; the last ``D_R`` are turned by their positions.
        kept: ``(B, 1, S, R + D_R)``, the latents, and behind each its turned, shared key.
        k_b: ``(H, D, R)``, from a latent to the rest of each head's key.
        v_b: ``(H, D_v, R)``, from a latent to each head's value.
        mask: booleans that broadcast to ``(B, H, L, S)``. True: may attend
            (`torch.nn.MultiheadAttention` means the opposite).
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query sees
            every key.
        return_weights: also return the weights.
        absorb: whether to absorb. Default: whichever takes fewer multiplications.

    Returns:
        ``(B, H, L, D_v)``; or that and the weights, ``(B, H, L, S)``.

    Raises:
        TypeError: query or kept is not a tensor of floats, an input has another dtype, or mask is
            not of booleans.
        ValueError: the shapes do not fit.

    Examples:
        Three heads share a row of 8 + 2 numbers for each of 7 tokens.

        >>> query, kept = torch.randn(1, 3, 5, 4 + 2), torch.randn(1, 1, 7, 8 + 2)
        >>> latent_attention(query, kept, torch.randn(3, 4, 8), torch.randn(3, 6, 8)).shape
        torch.Size([1, 3, 5, 6])
    """
    check.latents(query, kept, k_b, v_b)
    if absorb is None:
        count = functools.partial(
            latent_multiplications,
            query_len=query.shape[-2],
            key_len=kept.shape[-2],
            kv_lora_rank=k_b.shape[-1],
            qk_nope_head_dim=k_b.shape[1],
            qk_rope_head_dim=query.shape[-1] - k_b.shape[1],
            v_head_dim=v_b.shape[1],
        )
        absorb = count(absorb=True) < count(absorb=False)
    form = latent_attention_absorbed if absorb else latent_attention_expanded
    return form(
        query, kept, k_b, v_b, mask=mask, is_causal=is_causal, return_weights=return_weights
    )
    # --8<-- [end:latent_attention]


step(latent_attention, "heads")


@one_form
# --8<-- [start:latent_attention_expanded]
def latent_attention_expanded(
    query: Tensor,
    kept: Tensor,
    k_b: Tensor,
    v_b: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    return_weights: bool = False,
) -> Attended:
    """Compute each head's own keys and values from the latents, then attend: the definition.

    Args:
        query: floats, ``(B, H, L, D + D_R)``; the last ``D_R`` are turned by their positions.
        kept: ``(B, 1, S, R + D_R)``, the latents, and behind each its turned, shared key.
        k_b: ``(H, D, R)``, from a latent to the rest of each head's key.
        v_b: ``(H, D_v, R)``, from a latent to each head's value.
        mask: booleans that broadcast to ``(B, H, L, S)``. True: may attend
            (`torch.nn.MultiheadAttention` means the opposite).
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query sees
            every key.
        return_weights: also return the weights.

    Returns:
        ``(B, H, L, D_v)``; or that and the weights, ``(B, H, L, S)``.

    Raises:
        TypeError: query or kept is not a tensor of floats, an input has another dtype, or mask is
            not of booleans.
        ValueError: the shapes do not fit.

    Examples:
        >>> query, kept = torch.randn(1, 3, 5, 4 + 2), torch.randn(1, 1, 7, 8 + 2)
        >>> up = torch.randn(3, 4, 8), torch.randn(3, 6, 8)
        >>> latent_attention_expanded(query, kept, *up).shape
        torch.Size([1, 3, 5, 6])
    """
    check.latents(query, kept, k_b, v_b)
    heads, _, rank = k_b.shape
    latent, shared = kept[..., :rank], kept[..., rank:]  # (B, 1, S, R), (B, 1, S, D_R)
    key = torch.einsum("bsr,hdr->bhsd", latent[:, 0], k_b)  # (B, H, S, D)
    key = torch.cat([key, shared.expand(-1, heads, -1, -1)], dim=-1)  # (B, H, S, D + D_R)
    value = torch.einsum("bsr,hvr->bhsv", latent[:, 0], v_b)  # (B, H, S, D_v)
    return attention(
        query, key, value, mask=mask, is_causal=is_causal, return_weights=return_weights
    )
    # --8<-- [end:latent_attention_expanded]


@one_form
# --8<-- [start:latent_attention_absorbed]
def latent_attention_absorbed(
    query: Tensor,
    kept: Tensor,
    k_b: Tensor,
    v_b: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    return_weights: bool = False,
) -> Attended:
    """Take the queries into the space of the latents, and attend to the rows that are kept.

    The same as `latent_attention_expanded`, with the products in another order. The first numbers
    of a row are its value. Torch's fused kernel for the CPU wants values as wide as keys: without
    weights, the whole row is the value, so that nothing is copied, and the end of what it gives
    is dropped.

    Args:
        query: floats, ``(B, H, L, D + D_R)``; the last ``D_R`` are turned by their positions.
        kept: ``(B, 1, S, R + D_R)``, the latents, and behind each its turned, shared key.
        k_b: ``(H, D, R)``, from a latent to the rest of each head's key.
        v_b: ``(H, D_v, R)``, from a latent to each head's value.
        mask: booleans that broadcast to ``(B, H, L, S)``. True: may attend
            (`torch.nn.MultiheadAttention` means the opposite).
        is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query sees
            every key.
        return_weights: also return the weights.

    Returns:
        ``(B, H, L, D_v)``; or that and the weights, ``(B, H, L, S)``.

    Raises:
        TypeError: query or kept is not a tensor of floats, an input has another dtype, or mask is
            not of booleans.
        ValueError: the shapes do not fit.

    Examples:
        >>> query, kept = torch.randn(1, 3, 5, 4 + 2), torch.randn(1, 1, 7, 8 + 2)
        >>> inputs = query, kept, torch.randn(3, 4, 8), torch.randn(3, 6, 8)
        >>> expected = latent_attention_expanded(*inputs)
        >>> torch.allclose(latent_attention_absorbed(*inputs), expected, atol=1e-4)
        True
    """
    check.latents(query, kept, k_b, v_b)
    _, size, rank = k_b.shape
    scale = query.shape[-1] ** -0.5  # of the heads, not of the row
    content, turned = query[..., :size], query[..., size:]
    content = torch.einsum("bhld,hdr->bhlr", content, k_b)  # (B, H, L, R)
    query = torch.cat([content, turned], dim=-1)  # (B, H, L, R + D_R)
    value = kept[..., :rank] if return_weights else kept
    attended = attention(
        query,
        kept,
        value,
        mask=mask,
        is_causal=is_causal,
        scale=scale,
        return_weights=return_weights,
    )
    mixed, weights = attended if isinstance(attended, tuple) else (attended, None)
    mixed = mixed[..., :rank]  # (B, H, L, R)
    output = torch.einsum("bhlr,hvr->bhlv", mixed, v_b)  # (B, H, L, D_v)
    return output if weights is None else (output, weights)
    # --8<-- [end:latent_attention_absorbed]


# --8<-- [start:LatentAttention]
class LatentAttention(nn.Module):
    """Multi-head self-attention that keeps one small vector of each token.

    Section 2.1 of DeepSeek-AI (2024), https://arxiv.org/abs/2405.04434, with its norm on the
    latents, and without the longer rotations (YaRN) of the models for long texts.

    Sizes and parameters are called as in transformers, whose ``kv_a_proj_with_mqa`` is
    ``kv_a_proj`` and ``k_rope_proj`` in one, and ``kv_b_proj`` is ``k_b_proj`` and ``v_b_proj``.

    Args:
        embed_dim: width of the input and of the output.
        num_heads: number of heads.
        kv_lora_rank: width ``R`` of the latent that keys and values are computed from.
        qk_nope_head_dim: width ``D`` of the part of a head's query and key that has no position.
        qk_rope_head_dim: width ``D_R`` of the part that is turned by its position, even.
        v_head_dim: width ``D_v`` of a head's value. Default: ``qk_nope_head_dim``.
        q_lora_rank: width of a latent that queries are computed from. Default: there is none.
        base: the slowest pair takes almost ``2 pi base`` positions for a turn.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        TypeError: a width or the number of heads is not an integer.
        ValueError: one of them is less than 1, qk_rope_head_dim is odd, or base is not greater
            than 1.

    Examples:
        >>> sizes = {"kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2}
        >>> layer = LatentAttention(12, num_heads=3, **sizes)
        >>> cache = KVCache(max_len=5)
        >>> layer(torch.randn(2, 5, 12), is_causal=True, cache=cache).shape
        torch.Size([2, 5, 12])
        >>> cache.nbytes == 2 * 5 * (8 + 2) * 4  # batch, tokens, numbers, bytes
        True
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kv_lora_rank: int,
        qk_nope_head_dim: int,
        qk_rope_head_dim: int,
        v_head_dim: int | None = None,
        q_lora_rank: int | None = None,
        base: float = 10_000.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check.pairs("qk_rope_head_dim", qk_rope_head_dim, base)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.kv_lora_rank, self.q_lora_rank = kv_lora_rank, q_lora_rank
        self.qk_nope_head_dim, self.qk_rope_head_dim = qk_nope_head_dim, qk_rope_head_dim
        self.v_head_dim = qk_nope_head_dim if v_head_dim is None else v_head_dim
        for name in ("embed_dim", "num_heads", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim"):
            check.at_least(name, getattr(self, name), 1)

        if q_lora_rank is not None:
            check.at_least("q_lora_rank", q_lora_rank, 1)

        def linear(inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias=False, device=device, dtype=dtype)

        def norm(width: int) -> nn.RMSNorm:
            return nn.RMSNorm(width, eps=1e-6, device=device, dtype=dtype)

        q_width = num_heads * (qk_nope_head_dim + qk_rope_head_dim)
        if q_lora_rank is None:
            self.q_proj = linear(embed_dim, q_width)
        else:
            self.q_a_proj = linear(embed_dim, q_lora_rank)
            self.q_a_layernorm = norm(q_lora_rank)
            self.q_b_proj = linear(q_lora_rank, q_width)
        self.kv_a_proj = linear(embed_dim, kv_lora_rank)
        self.kv_a_layernorm = norm(kv_lora_rank)
        self.k_rope_proj = linear(embed_dim, qk_rope_head_dim)
        self.k_b_proj = linear(kv_lora_rank, num_heads * qk_nope_head_dim)
        self.v_b_proj = linear(kv_lora_rank, num_heads * self.v_head_dim)
        self.out_proj = linear(num_heads * self.v_head_dim, embed_dim)
        self.position = Rotary(qk_rope_head_dim, base, device=device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise all matrices anew, Xavier uniform by their own sizes."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
            elif isinstance(module, nn.RMSNorm):
                nn.init.ones_(module.weight)
        self.position.reset_parameters()

    def queries(self, x: Tensor) -> Tensor:
        """Project to the queries of all heads, by way of their latent if there is one.

        Args:
            x: ``(B, L, embed_dim)``.

        Returns:
            ``(B, L, H * (qk_nope_head_dim + qk_rope_head_dim))``, nothing turned yet.

        Examples:
            >>> sizes = {"kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2}
            >>> layer = LatentAttention(12, num_heads=3, **sizes, q_lora_rank=5)
            >>> layer.queries(torch.randn(2, 5, 12)).shape
            torch.Size([2, 5, 18])
        """
        if self.q_lora_rank is None:
            queries: Tensor = self.q_proj(x)
        else:
            queries = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        return queries

    def compress(self, x: Tensor, start: int = 0, *, positions: Tensor | None = None) -> Tensor:
        """Compute what is kept of each token.

        Args:
            x: ``(B, L, embed_dim)``.
            start: position of the first token; the others follow one by one.
            positions: integers ``(L,)`` or ``(B, L)``, the position of each, instead of start.

        Returns:
            ``(B, 1, L, kv_lora_rank + qk_rope_head_dim)``: the latent, and behind it the shared
            key, turned.

        Examples:
            >>> sizes = {"kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2}
            >>> layer = LatentAttention(12, num_heads=3, **sizes)
            >>> layer.compress(torch.randn(2, 5, 12)).shape
            torch.Size([2, 1, 5, 10])
        """
        latent = self.kv_a_layernorm(self.kv_a_proj(x))  # (B, L, R)
        shared = self.k_rope_proj(x)[:, None]  # (B, 1, L, D_R)
        shared = self.position.rotate(shared, start, positions=positions)
        return torch.cat([latent[:, None], shared], dim=-1)  # (B, 1, L, R + D_R)

    @overload
    def forward(
        self,
        query: Tensor,
        *,
        mask: Tensor | None = ...,
        is_causal: bool = ...,
        positions: Tensor | None = ...,
        cache: KVCache | None = ...,
        absorb: bool | None = ...,
        return_weights: Literal[False] = ...,
    ) -> Tensor: ...
    @overload
    def forward(
        self,
        query: Tensor,
        *,
        mask: Tensor | None = ...,
        is_causal: bool = ...,
        positions: Tensor | None = ...,
        cache: KVCache | None = ...,
        absorb: bool | None = ...,
        return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...
    def forward(
        self,
        query: Tensor,
        *,
        mask: Tensor | None = None,
        is_causal: bool = False,
        positions: Tensor | None = None,
        return_weights: bool = False,
        cache: KVCache | None = None,
        absorb: bool | None = None,
    ) -> Attended:
        """Attend from each token to all of them.

        Args:
            query: ``(B, L, embed_dim)``.
            mask: booleans that broadcast to ``(B, H, L, S)``. True: may attend
                (`torch.nn.MultiheadAttention` means the opposite).
            is_causal: query ``i`` may see key ``j`` only if ``j <= i + (S - L)``: the last query
                sees every key.
            positions: where each token of the query stands, integers ``(L,)`` or ``(B, L)``: for
                sequences that are padded on the left, or several in one. Masks and ``is_causal`` go
                by the order of the tokens all the same.
            return_weights: also return the weights of every head.
            cache: holds what is kept of earlier tokens, as keys, with values of no width. S then
                counts these too. One for each layer, for causal attention.
            absorb: whether to absorb. Default: whichever takes fewer multiplications.

        Returns:
            ``(B, L, embed_dim)``, or that and the weights, ``(B, H, L, S)``.

        Raises:
            TypeError: query is not a tensor of floats of the parameters' dtype, mask not of
                booleans, or positions not of integers.
            ValueError: the shapes do not fit, the cache is full or has another layer's tokens, or
                it is used without ``is_causal``.
        """
        check.sequence("query", query, "embed_dim", self.embed_dim, self.kv_a_proj)
        check.cache_is_causal(cache, is_causal)
        start = 0 if cache is None else cache.seen
        kept = self.compress(query, start, positions=positions)  # (B, 1, L, R + D_R)
        query = split_heads(self.queries(query), self.num_heads)  # (B, H, L, D + D_R)
        content, turned = query.split([self.qk_nope_head_dim, self.qk_rope_head_dim], dim=-1)
        turned = self.position.rotate(turned, start, positions=positions)
        query = torch.cat([content, turned], dim=-1)
        if cache is not None:
            keep_to_one_layer(cache, self)
            kept, _ = cache.append(kept, kept[..., :0])  # (B, 1, S, R + D_R)
        attended = latent_attention(
            query,
            kept,
            self.k_b_proj.weight.unflatten(0, (self.num_heads, -1)),  # (H, D, R)
            self.v_b_proj.weight.unflatten(0, (self.num_heads, -1)),  # (H, D_v, R)
            mask=mask,
            is_causal=is_causal,
            return_weights=return_weights,
            absorb=absorb,
        )
        heads, weights = attended if isinstance(attended, tuple) else (attended, None)
        output: Tensor = self.out_proj(merge_heads(heads))  # (B, L, E)
        return output if weights is None else (output, weights)

    # --8<-- [end:LatentAttention]

    def extra_repr(self) -> str:
        names = ["num_heads", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"]
        return ", ".join(f"{name}={getattr(self, name)}" for name in [*names, "q_lora_rank"])


step(LatentAttention.compress, "kept")

"""What a whole model's attention costs: parameters, FLOPs, memory; exact integers, no torch.

The calculator of the site runs these very functions: its build translates them to JavaScript. So
they keep to arithmetic with integers, names, conditions and calls of one another.
"""

from dataclasses import dataclass

from mhattn import integers as check

__all__ = ["ModelCost", "model_cost", "visible_pairs"]


@dataclass(frozen=True)
class ModelCost:
    """What `model_cost` counts, in all layers and for the whole batch.

    A FLOP is an addition or a multiplication. Left out: embeddings, norms, biases, softmax, and
    the product with the vocabulary at the end.

    Attributes:
        attention_parameters: weights of the attention's projections.
        mlp_parameters: weights of the MLPs.
        projection_flops: forward, of the attention's projections.
        score_flops: forward, of scores and mixing, every query with every key.
        causal_score_flops: the same for the pairs only that the mask leaves.
        mlp_flops: forward, of the MLPs.
        forward_flops: of a forward pass, every query with every key.
        causal_forward_flops: of a forward pass that skips what the mask hides.
        training_flops: of a forward and a backward pass, every query with every key.
        decode_flops: of one more token of each sequence, once the cache holds ``tokens``.
        cache_bytes_per_token: what one more token adds to the KV cache of one sequence.
        cache_bytes: of the KV cache, all sequences.
        weight_bytes: of attention and MLPs.
        decode_nanoseconds: how long it takes to read the weights and the cache once.
        kept_bytes: what attention keeps for the backward pass with a fused kernel, as
            `MultiHeadAttention` does; latent attention keeps more.
        kept_with_weights_bytes: the same if the attention weights are kept too.
        balance_tokens: from this length on, scores and mixing take as many FLOPs as all the rest.
    """

    attention_parameters: int
    mlp_parameters: int
    projection_flops: int
    score_flops: int
    causal_score_flops: int
    mlp_flops: int
    forward_flops: int
    causal_forward_flops: int
    training_flops: int
    decode_flops: int
    cache_bytes_per_token: int
    cache_bytes: int
    weight_bytes: int
    decode_nanoseconds: int
    kept_bytes: int
    kept_with_weights_bytes: int
    balance_tokens: int


# --8<-- [start:visible_pairs]
def visible_pairs(query_len: int, key_len: int, window: int | None = None) -> int:
    """Count the pairs of query and key that a causal mask leaves; the last query sees the last key.

    Args:
        query_len: number of queries.
        key_len: number of keys.
        window: how many keys a query sees at most, itself included. Default: all before it.

    Returns:
        An exact number: ``n (n + 1) / 2`` for n queries and n keys.

    Raises:
        TypeError: an argument is not an integer.
        ValueError: an argument is less than 1, or there are more queries than keys.

    Examples:
        >>> visible_pairs(4, 4), visible_pairs(1, 10), visible_pairs(4, 4, window=2)
        (10, 10, 7)
    """
    window = key_len if window is None else window
    check.at_least("query_len", query_len, 1)
    check.at_least("key_len", key_len, query_len)
    check.at_least("window", window, 1)
    before = key_len - query_len  # keys that the first query sees besides its own
    growing = max(0, min(query_len, window - before))  # queries that see all keys before them
    return growing * before + growing * (growing + 1) // 2 + (query_len - growing) * window
    # --8<-- [end:visible_pairs]


# --8<-- [start:model_cost]
def model_cost(
    *,
    layers: int,
    embed_dim: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    tokens: int,
    batch: int = 1,
    mlp_dim: int = 0,
    mlp_matrices: int = 2,
    window: int | None = None,
    global_layers: int = 0,
    layers_per_cache: int = 1,
    q_lora_rank: int | None = None,
    kv_lora_rank: int | None = None,
    qk_rope_head_dim: int = 0,
    v_head_dim: int | None = None,
    bytes_per_number: int = 2,
    gigabytes_per_second: int = 1000,
) -> ModelCost:
    """Count what the attention and the MLPs of a decoder cost.

    With ``kv_lora_rank`` it is latent attention (DeepSeek-V2, https://arxiv.org/abs/2405.04434):
    ``head_dim`` is then the width of a head's query and key without positions, and a token that is
    decoded meets the latents (the absorbed form).

    Args:
        layers: how many.
        embed_dim: width of the model.
        num_heads: number of heads of the query.
        num_kv_heads: number of heads of the key and value.
        head_dim: width of a head.
        tokens: length of each sequence; in decoding, of the cache.
        batch: number of sequences.
        mlp_dim: hidden width of the MLPs. Default: there are none.
        mlp_matrices: of an MLP; 3 if it is gated.
        window: how many tokens a sliding-window layer sees. Default: no layer has a window.
        global_layers: how many layers have no window, if others have one.
        layers_per_cache: how many layers share their keys and values.
        q_lora_rank: width of the latent that queries are computed from. Default: there is none.
        kv_lora_rank: width of the latent that is cached. Default: there is none.
        qk_rope_head_dim: width of the part of a head's query and key that carries the position.
        v_head_dim: width of a head's value. Default: ``head_dim``.
        bytes_per_number: 2 for float16 and bfloat16; of weights, cache and what is kept.
        gigabytes_per_second: how fast memory is read, in units of a thousand million bytes.

    Returns:
        Exact numbers; `ModelCost` says of what.

    Raises:
        TypeError: an argument is not an integer.
        ValueError: a size is too small, num_kv_heads does not divide num_heads,
            layers_per_cache not layers and global_layers, or latents would be shared.

    Examples:
        GPT-2's smallest, and how much of the FLOPs at 1024 tokens is scores and mixing.

        >>> cost = model_cost(
        ...     layers=12, embed_dim=768, num_heads=12, num_kv_heads=12, head_dim=64,
        ...     tokens=1024, mlp_dim=3072,
        ... )
        >>> cost.attention_parameters + cost.mlp_parameters == 12 * 12 * 768**2
        True
        >>> round(cost.score_flops / cost.forward_flops, 3), cost.balance_tokens == 6 * 768
        (0.182, True)
    """
    v_head_dim = head_dim if v_head_dim is None else v_head_dim
    window = tokens if window is None else window
    check.at_least("layers", layers, 1)
    check.at_least("embed_dim", embed_dim, 1)
    check.at_least("num_heads", num_heads, 1)
    check.at_least("num_kv_heads", num_kv_heads, 1)
    check.divides("num_kv_heads", num_kv_heads, "num_heads", num_heads)
    check.at_least("head_dim", head_dim, 1)
    check.at_least("v_head_dim", v_head_dim, 1)
    check.at_least("tokens", tokens, 1)
    check.at_least("batch", batch, 1)
    check.at_least("mlp_dim", mlp_dim, 0)
    check.at_least("mlp_matrices", mlp_matrices, 1)
    check.at_least("window", window, 1)
    check.at_least("global_layers", global_layers, 0)
    check.at_least("layers", layers, global_layers)
    check.at_least("layers_per_cache", layers_per_cache, 1)
    check.divides("layers_per_cache", layers_per_cache, "layers", layers)
    check.divides("layers_per_cache", layers_per_cache, "global_layers", global_layers)
    check.at_least("qk_rope_head_dim", qk_rope_head_dim, 0)
    check.at_least("bytes_per_number", bytes_per_number, 1)
    check.at_least("gigabytes_per_second", gigabytes_per_second, 1)
    if q_lora_rank is not None:
        check.at_least("q_lora_rank", q_lora_rank, 1)
    if kv_lora_rank is not None:
        check.at_least("kv_lora_rank", kv_lora_rank, 1)
    if kv_lora_rank is not None and layers_per_cache > 1:
        raise ValueError(f"layers_per_cache must be 1 in latent attention, got {layers_per_cache}")

    # Weights of a layer. Each meets every token once, in either form of latent attention.
    query_width = num_heads * (head_dim + qk_rope_head_dim)
    value_width = num_heads * v_head_dim
    queries = embed_dim * query_width
    if q_lora_rank is not None:
        queries = q_lora_rank * (embed_dim + query_width)
    if kv_lora_rank is None:
        cached = num_kv_heads * (head_dim + qk_rope_head_dim + v_head_dim)
        keys_and_values = embed_dim * cached
        decode_width = query_width + value_width
    else:
        cached = kv_lora_rank + qk_rope_head_dim
        up = num_heads * (head_dim + v_head_dim)
        keys_and_values = embed_dim * cached + kv_lora_rank * up
        decode_width = num_heads * (cached + kv_lora_rank)
    output = value_width * embed_dim
    caches = layers // layers_per_cache
    attention_parameters = layers * (queries + output) + caches * keys_and_values
    mlp_parameters = layers * mlp_matrices * embed_dim * mlp_dim

    # FLOPs: two for each weight and token, and for each number of a score and of a mix.
    projection_flops = 2 * batch * tokens * attention_parameters
    mlp_flops = 2 * batch * tokens * mlp_parameters
    pair_flops = 2 * batch * (query_width + value_width)
    score_flops = pair_flops * layers * tokens * tokens
    windowed = layers - global_layers
    pairs = global_layers * visible_pairs(tokens, tokens)
    pairs += windowed * visible_pairs(tokens, tokens, window)
    causal_score_flops = pair_flops * pairs
    parameters = attention_parameters + mlp_parameters
    forward_flops = projection_flops + mlp_flops + score_flops
    seen = global_layers * tokens + windowed * min(tokens, window)

    # Bytes.
    cache_bytes_per_token = caches * cached * bytes_per_number
    cache_bytes = batch * (seen // layers_per_cache) * cached * bytes_per_number
    weight_bytes = parameters * bytes_per_number
    kept = layers * (embed_dim + query_width + value_width) + caches * cached
    kept_with_weights = layers * (embed_dim + 2 * (query_width + value_width) + num_heads * tokens)
    logarithms = layers * 4 * num_heads  # of the sums of the softmax, in float32

    return ModelCost(
        attention_parameters=attention_parameters,
        mlp_parameters=mlp_parameters,
        projection_flops=projection_flops,
        score_flops=score_flops,
        causal_score_flops=causal_score_flops,
        mlp_flops=mlp_flops,
        forward_flops=forward_flops,
        causal_forward_flops=projection_flops + mlp_flops + causal_score_flops,
        training_flops=3 * forward_flops,
        decode_flops=2 * batch * (parameters + seen * decode_width),
        cache_bytes_per_token=cache_bytes_per_token,
        cache_bytes=cache_bytes,
        weight_bytes=weight_bytes,
        decode_nanoseconds=(weight_bytes + cache_bytes) // gigabytes_per_second,
        kept_bytes=batch * tokens * (kept * bytes_per_number + logarithms),
        kept_with_weights_bytes=batch * tokens * kept_with_weights * bytes_per_number,
        balance_tokens=-(-parameters // (layers * (query_width + value_width))),
    )
    # --8<-- [end:model_cost]

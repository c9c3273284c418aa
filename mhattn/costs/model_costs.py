"""What a whole model's attention costs: parameters, FLOPs, memory; exact integers, no torch."""

from dataclasses import dataclass

from mhattn.costs import integers as check

__all__ = ["ModelCost", "kept_bytes", "model_cost", "visible_pairs"]


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
        mlp_flops: forward, of the MLPs.
        forward_flops: of a forward pass, every query with every key.
        causal_forward_flops: of a forward pass that skips what the mask hides.
        training_flops: of a forward and a backward pass, every query with every key.
        decode_flops: of one more token of each sequence, once the cache holds ``tokens``.
        cache_bytes_per_token: what one more token adds to the KV cache of one sequence.
        cache_bytes: of the KV cache, all sequences.
        weight_bytes: of attention and MLPs.
        decode_nanoseconds: how long it takes to read the weights and the cache once.
        balance_tokens: from this length on, scores and mixing take as many FLOPs as all the rest.
    """

    attention_parameters: int
    mlp_parameters: int
    projection_flops: int
    score_flops: int
    mlp_flops: int
    forward_flops: int
    causal_forward_flops: int
    training_flops: int
    decode_flops: int
    cache_bytes_per_token: int
    cache_bytes: int
    weight_bytes: int
    decode_nanoseconds: int
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
    window = tokens if window is None else window
    v_head_dim = head_dim if v_head_dim is None else v_head_dim
    check_layer(embed_dim, num_heads, num_kv_heads, head_dim, v_head_dim)
    check_model(layers, global_layers, layers_per_cache, mlp_dim, mlp_matrices)
    check_run(tokens, batch, window, bytes_per_number, gigabytes_per_second)
    check_latent(kv_lora_rank, q_lora_rank, qk_rope_head_dim, layers_per_cache)

    # Weights: each of them meets every token once.
    widths = head_dim + qk_rope_head_dim + v_head_dim  # of a head's query or key, and its value
    cached = cached_numbers(num_kv_heads * widths, kv_lora_rank, qk_rope_head_dim)
    cached *= layers // layers_per_cache
    queries = query_weights(embed_dim, num_heads * (head_dim + qk_rope_head_dim), q_lora_rank)
    latents = latent_weights(num_heads * (head_dim + v_head_dim), kv_lora_rank)
    attention = layers * (queries + latents + num_heads * v_head_dim * embed_dim)
    attention += embed_dim * cached
    mlps = layers * mlp_matrices * embed_dim * mlp_dim

    # FLOPs: two for each weight and token, and for each number of a score and of a mix.
    mixed = num_heads * widths
    flops = 2 * batch * tokens
    linear_flops = flops * (attention + mlps)
    score_flops = flops * layers * tokens * mixed
    pairs = pairs_in_layers(layers, global_layers, tokens, window)
    seen = global_layers * tokens + (layers - global_layers) * min(tokens, window)
    step = decode_width(mixed, num_heads, kv_lora_rank, qk_rope_head_dim)

    weight_bytes = (attention + mlps) * bytes_per_number
    cache_bytes = batch * (seen * cached // layers) * bytes_per_number
    return ModelCost(
        attention_parameters=attention,
        mlp_parameters=mlps,
        projection_flops=flops * attention,
        score_flops=score_flops,
        mlp_flops=flops * mlps,
        forward_flops=linear_flops + score_flops,
        causal_forward_flops=linear_flops + 2 * batch * mixed * pairs,
        training_flops=3 * (linear_flops + score_flops),
        decode_flops=2 * batch * (attention + mlps + seen * step),
        cache_bytes_per_token=cached * bytes_per_number,
        cache_bytes=cache_bytes,
        weight_bytes=weight_bytes,
        decode_nanoseconds=(weight_bytes + cache_bytes) // gigabytes_per_second,
        balance_tokens=-(-(attention + mlps) // (layers * mixed)),
    )
    # --8<-- [end:model_cost]


# --8<-- [start:kept_bytes]
def kept_bytes(
    embed_dim: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    *,
    tokens: int,
    layers: int = 1,
    batch: int = 1,
    bytes_per_number: int = 2,
    with_weights: bool = False,
) -> int:
    """Count what `MultiHeadAttention` keeps for the backward pass of self-attention.

    A fused kernel keeps its inputs and output, and one number in float32 for each query and head.
    Where weights are returned they are kept as well, and keys and values once for each query head.
    Parameters and a mask are not counted. Grouped heads are taken to be causal: without a mask,
    their queries are copied, and kept once more.

    Args:
        embed_dim: width of the model.
        num_heads: number of heads of the query.
        num_kv_heads: number of heads of the key and value.
        head_dim: width of a head.
        tokens: length of each sequence.
        layers: how many.
        batch: number of sequences.
        bytes_per_number: 2 for float16 and bfloat16.
        with_weights: whether the attention weights are returned.

    Returns:
        An exact number.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is less than 1, or num_kv_heads does not divide num_heads.

    Examples:
        One layer of BERT-base on 512 tokens, in MiB.

        >>> sizes = {"embed_dim": 768, "num_heads": 12, "num_kv_heads": 12, "head_dim": 64}
        >>> kept_bytes(**sizes, tokens=512) / 2**20
        3.7734375
        >>> kept_bytes(**sizes, tokens=512, with_weights=True) / 2**20
        9.75
    """
    check_layer(embed_dim, num_heads, num_kv_heads, head_dim, head_dim)
    check_run(tokens, batch, tokens, bytes_per_number, 1)
    check.at_least("layers", layers, 1)
    queries = num_heads * head_dim
    kept = (embed_dim + 2 * queries + 2 * num_kv_heads * head_dim) * bytes_per_number
    kept += 4 * num_heads
    if with_weights:
        kept = (embed_dim + 4 * queries + num_heads * tokens) * bytes_per_number
    return layers * batch * tokens * kept
    # --8<-- [end:kept_bytes]


def cached_numbers(numbers: int, kv_lora_rank: int | None, qk_rope_head_dim: int) -> int:
    """What a layer keeps of a token: keys and values, or a latent and a key for the position."""
    return numbers if kv_lora_rank is None else kv_lora_rank + qk_rope_head_dim


def query_weights(embed_dim: int, query_width: int, q_lora_rank: int | None) -> int:
    """The matrix of the queries, or the two that go through a latent."""
    if q_lora_rank is None:
        return embed_dim * query_width
    return q_lora_rank * (embed_dim + query_width)


def latent_weights(expanded: int, kv_lora_rank: int | None) -> int:
    """The matrices that keys and values are computed with from a latent."""
    return 0 if kv_lora_rank is None else kv_lora_rank * expanded


def pairs_in_layers(layers: int, global_layers: int, tokens: int, window: int) -> int:
    windowed = (layers - global_layers) * visible_pairs(tokens, tokens, window)
    return global_layers * visible_pairs(tokens, tokens) + windowed


def decode_width(
    mixed: int, num_heads: int, kv_lora_rank: int | None, qk_rope_head_dim: int
) -> int:
    """Multiplications of one query with one cached token, its score and its share of the mix."""
    if kv_lora_rank is None:
        return mixed
    return num_heads * (2 * kv_lora_rank + qk_rope_head_dim)


def check_layer(
    embed_dim: int, num_heads: int, num_kv_heads: int, head_dim: int, v_head_dim: int
) -> None:
    check.at_least("embed_dim", embed_dim, 1)
    check.at_least("num_heads", num_heads, 1)
    check.at_least("num_kv_heads", num_kv_heads, 1)
    check.divides("num_kv_heads", num_kv_heads, "num_heads", num_heads)
    check.at_least("head_dim", head_dim, 1)
    check.at_least("v_head_dim", v_head_dim, 1)


def check_model(
    layers: int, global_layers: int, layers_per_cache: int, mlp_dim: int, mlp_matrices: int
) -> None:
    check.at_least("layers", layers, 1)
    check.at_least("global_layers", global_layers, 0)
    check.at_least("layers", layers, global_layers)
    check.at_least("layers_per_cache", layers_per_cache, 1)
    check.divides("layers_per_cache", layers_per_cache, "layers", layers)
    check.divides("layers_per_cache", layers_per_cache, "global_layers", global_layers)
    check.at_least("mlp_dim", mlp_dim, 0)
    check.at_least("mlp_matrices", mlp_matrices, 1)


def check_run(
    tokens: int, batch: int, window: int, bytes_per_number: int, gigabytes_per_second: int
) -> None:
    check.at_least("tokens", tokens, 1)
    check.at_least("batch", batch, 1)
    check.at_least("window", window, 1)
    check.at_least("bytes_per_number", bytes_per_number, 1)
    check.at_least("gigabytes_per_second", gigabytes_per_second, 1)


def check_latent(
    kv_lora_rank: int | None, q_lora_rank: int | None, qk_rope_head_dim: int, layers_per_cache: int
) -> None:
    if kv_lora_rank is not None:
        check.at_least("kv_lora_rank", kv_lora_rank, 1)
        if layers_per_cache > 1:
            raise ValueError(
                f"layers_per_cache must be 1 in latent attention, got {layers_per_cache}"
            )
    if q_lora_rank is not None:
        check.at_least("q_lora_rank", q_lora_rank, 1)
    check.at_least("qk_rope_head_dim", qk_rope_head_dim, 0)

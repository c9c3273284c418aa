"""What a layer of one kind keeps and multiplies, in attention of any kind that known models have.

The site's calculator counts the same in JavaScript, docs/assets/costs.js, which a test compares.
"""

from __future__ import annotations

from dataclasses import dataclass

from mhattn.costs import integers as check
from mhattn.costs.model_costs import check_layer, latent_weights, query_weights

__all__ = ["KindCost", "kind_cost"]


@dataclass(frozen=True)
class KindCost:
    """What `kind_cost` counts of one layer, and how many such layers there are.

    Attributes:
        layers: how many.
        weights: of the projections.
        cached: numbers that a token adds to the cache.
        state: numbers that are kept, however long the sequence.
        window: how many tokens a query sees at most. None: all before it.
        chunked: whether these are the tokens of its chunk, not the last ones.
        pair: multiplications of a query with a key that it sees, for score and mix.
        step: the same in decoding, where latents are not expanded.
        indexed: multiplications of the indexer's query with a key.
        index_cached: those of the cached numbers that the indexer reads.
        top_keys: how many keys the indexer chooses. None: there is none.
        parts: how many devices can share a sequence's cache: the KV heads; 1 for a latent.
        every: how many tokens are kept together as well.
        together: numbers that are kept of these. 0: the layer doesn't compress.
    """

    layers: int
    weights: int
    cached: int
    state: int
    window: int | None
    chunked: bool
    pair: int
    step: int
    indexed: int
    index_cached: int
    top_keys: int | None
    parts: int
    every: int
    together: int


# --8<-- [start:kind_cost]
def kind_cost(
    embed_dim: int,
    *,
    layers: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    sees: str = "all",
    window: int | None = None,
    shared: bool = False,
    output_gate: bool = False,
    gate_rank: int | None = None,
    kv_lora_rank: int | None = None,
    q_lora_rank: int | None = None,
    qk_rope_head_dim: int = 0,
    v_head_dim: int | None = None,
    o_lora_rank: int | None = None,
    output_groups: int = 1,
    every: int = 1,
    index_heads: int = 0,
    index_dim: int = 0,
    top_keys: int | None = None,
) -> KindCost:
    """Count what a layer of one kind keeps and multiplies.

    Args:
        embed_dim: width of the model.
        layers: how many layers are of this kind.
        num_heads: number of heads of the query; in linear attention, of the value.
        num_kv_heads: number of heads of the key and value; in linear attention, of the key.
        head_dim: width of a head; in latent attention without the part that has the position.
        sees: ``"all"``, ``"window"``, ``"chunk"`` or ``"state"``, as in `LayerSizes`.
        window: how many tokens a window or a chunk holds.
        shared: whether the layers read the cache of others.
        output_gate: whether a gate as wide as the values multiplies the output.
        gate_rank: width of the latent that the gates of linear attention are computed from.
            Default: they are computed from the input.
        kv_lora_rank: width of the latent that is cached. Default: there is none.
        q_lora_rank: width of the latent that queries are computed from. Default: there is none.
        qk_rope_head_dim: width of the part of a query and key that carries the position.
        v_head_dim: width of a head's value. Default: ``head_dim``.
        o_lora_rank: width that each group of heads is projected to, where one vector is key and
            value at once, of all heads (`CompressedSizes`). Default: there is no such vector.
        output_groups: how many groups these are.
        every: how many tokens such a layer keeps together, beside single ones. 1: none.
        index_heads: number of heads of an indexer, whose keys are cached as well.
        index_dim: width of its heads.
        top_keys: how many keys it chooses. Default: there is no indexer.

    Returns:
        Exact numbers; `KindCost` says of what.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is too small, num_kv_heads does not divide num_heads, ``sees`` is
            none of these, or a layer without o_lora_rank keeps tokens together.

    Examples:
        >>> kind = kind_cost(4096, layers=32, num_heads=32, num_kv_heads=8, head_dim=128)
        >>> kind.cached, kind.weights == 4096 * (2 * 32 + 2 * 8) * 128
        (2048, True)
    """
    value_dim = head_dim if v_head_dim is None else v_head_dim
    check_kind(layers, sees, window, qk_rope_head_dim, output_groups, index_heads, index_dim)
    check_ranks(gate_rank, kv_lora_rank, q_lora_rank, o_lora_rank, top_keys, every)
    check_layer(embed_dim, num_heads, num_kv_heads, head_dim, value_dim)
    if sees == "state":
        return state_cost(
            embed_dim, layers, num_heads, num_kv_heads, head_dim, value_dim, gate_rank
        )
    values = num_heads * value_dim
    key_dim = head_dim + qk_rope_head_dim
    pair = num_heads * (key_dim + value_dim)
    step = pair
    numbers = num_kv_heads * (key_dim + value_dim)
    parts = num_kv_heads
    source = embed_dim if q_lora_rank is None else q_lora_rank
    low = kv_lora_rank is not None or o_lora_rank is not None  # then each head weighs its scores
    indexer = source * index_heads * index_dim + embed_dim * (index_heads if low else 0)
    weights = query_weights(embed_dim, num_heads * key_dim, q_lora_rank) + indexer
    together = 0
    if o_lora_rank is not None:
        weights += embed_dim * head_dim + o_lora_rank * (values + output_groups * embed_dim)
        numbers = head_dim
        parts = 1
        if every > 1:  # what mixes them, and its gate; those of an indexer go into two rows
            together = head_dim + index_dim
            weights += 2 * embed_dim * together * (1 if index_dim == 0 else 2)
    else:
        if kv_lora_rank is not None:
            numbers = kv_lora_rank + qk_rope_head_dim
            step = num_heads * (2 * kv_lora_rank + qk_rope_head_dim)
            parts = 1
        weights += latent_weights(num_heads * (head_dim + value_dim), kv_lora_rank)
        weights += embed_dim * (values * (2 if output_gate else 1) + index_dim)
        weights += 0 if shared else embed_dim * numbers
        numbers += index_dim
    return KindCost(
        layers=layers, weights=weights, cached=0 if shared else numbers, state=0, window=window,
        chunked=sees == "chunk", pair=pair, step=step, indexed=index_heads * index_dim,
        index_cached=index_dim, top_keys=top_keys, parts=parts, every=every, together=together,
    )  # fmt: skip
    # --8<-- [end:kind_cost]


def state_cost(
    embed_dim: int,
    layers: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    value_dim: int,
    gate_rank: int | None,
) -> KindCost:
    """Of linear attention: a gate of the output and two numbers for each head.

    Or a gate and a rate for each number, both by way of a latent, and one number for each head.
    """
    values = num_heads * value_dim
    # In linear attention queries have as many heads as keys; only values may have more.
    weights = embed_dim * (2 * num_kv_heads * head_dim + 2 * values + num_heads)
    if gate_rank is None:
        weights += embed_dim * (values + num_heads)
    else:
        weights += 2 * gate_rank * (embed_dim + values)
    return KindCost(
        # Of each value head a matrix, as wide as its key and its value: a token adds nothing to it.
        layers=layers, weights=weights, cached=0, state=values * head_dim, window=None,
        chunked=False, pair=0, step=0, indexed=0, index_cached=0, top_keys=None,
        # Each head has a state of its own, so devices can share them out by heads.
        parts=num_heads, every=1, together=0,
    )  # fmt: skip


def check_kind(
    layers: int,
    sees: str,
    window: int | None,
    qk_rope_head_dim: int,
    output_groups: int,
    index_heads: int,
    index_dim: int,
) -> None:
    check.at_least("layers", layers, 1)
    if sees != "all" and sees != "window" and sees != "chunk" and sees != "state":
        raise ValueError(f"sees must be all, window, chunk or state, got {sees}")
    check_rank("window", window)
    check.at_least("qk_rope_head_dim", qk_rope_head_dim, 0)
    check.at_least("output_groups", output_groups, 1)
    check.at_least("index_heads", index_heads, 0)
    check.at_least("index_dim", index_dim, 0)


def check_ranks(
    gate_rank: int | None,
    kv_lora_rank: int | None,
    q_lora_rank: int | None,
    o_lora_rank: int | None,
    top_keys: int | None,
    every: int,
) -> None:
    # None stands for a part that the layer lacks. A rank of 0 would be a mistake.
    check_rank("gate_rank", gate_rank)
    check_rank("kv_lora_rank", kv_lora_rank)
    check_rank("q_lora_rank", q_lora_rank)
    check_rank("o_lora_rank", o_lora_rank)
    check_rank("top_keys", top_keys)
    check.at_least("every", every, 1)
    if every > 1 and o_lora_rank is None:
        raise ValueError(f"every must be 1 without o_lora_rank, got {every}")


def check_rank(name: str, rank: int | None) -> None:
    """Of what a layer may lack."""
    if rank is not None:
        check.at_least(name, rank, 1)

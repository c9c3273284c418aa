"""What serving a decoder takes: memory for weights and cache, and the least time that it can take.

The calculator of the site runs these very functions: its build translates them to JavaScript. So
they keep to arithmetic with integers, names, fields, conditions, sums and calls of one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mhattn.costs import integers as check
from mhattn.costs.model_costs import check_layer, latent_weights, query_weights, visible_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mhattn.costs.hardware import Accelerator
    from mhattn.costs.model_sizes import MlpSizes

__all__ = ["KindCost", "ServingCost", "kind_cost", "serving_cost"]


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


@dataclass(frozen=True)
class ServingCost:
    """What `serving_cost` counts; of an encoder, no step takes a time.

    Attributes:
        cache_bytes: of the KV cache, all sequences.
        token_bytes: what a token adds to the cache of one sequence, while no window is full.
        attention_parameters: weights of the attention's projections.
        mlp_parameters: weights of the MLPs, or of all experts and their routers.
        vocabulary_parameters: weights of the embedding and of the output.
        active_parameters: those of all that one token meets.
        weight_bytes: of all parameters.
        devices: how many were counted with.
        device_bytes: weights and cache on each device.
        fewest: the smallest power of two of devices on which it fits. None: not even on 4096.
        score_flops: of scores and mixing, in the prompts of all sequences.
        prompt_flops: of the prompts of all sequences.
        step_flops: of one more token of each sequence.
        prompt_nanoseconds: least time for the prompt of one sequence.
        prompts_nanoseconds: least time for those of all.
        step_nanoseconds: least time for one more token, where one sequence is served.
        steps_nanoseconds: least time for one more token of all.
    """

    cache_bytes: int
    token_bytes: int
    attention_parameters: int
    mlp_parameters: int
    vocabulary_parameters: int
    active_parameters: int
    weight_bytes: int
    devices: int
    device_bytes: int
    fewest: int | None
    score_flops: int
    prompt_flops: int
    step_flops: int
    prompt_nanoseconds: int
    prompts_nanoseconds: int
    step_nanoseconds: int | None
    steps_nanoseconds: int | None


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
    kv_lora_rank: int | None = None,
    q_lora_rank: int | None = None,
    qk_rope_head_dim: int = 0,
    v_head_dim: int | None = None,
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
        kv_lora_rank: width of the latent that is cached. Default: there is none.
        q_lora_rank: width of the latent that queries are computed from. Default: there is none.
        qk_rope_head_dim: width of the part of a query and key that carries the position.
        v_head_dim: width of a head's value. Default: ``head_dim``.
        index_heads: number of heads of an indexer, whose keys are cached beside the latent.
        index_dim: width of its heads.
        top_keys: how many keys it chooses. Default: there is no indexer.

    Returns:
        Exact numbers; `KindCost` says of what.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is too small, num_kv_heads does not divide num_heads, or ``sees`` is
            none of these.

    Examples:
        >>> kind = kind_cost(4096, layers=32, num_heads=32, num_kv_heads=8, head_dim=128)
        >>> kind.cached, kind.weights == 4096 * (2 * 32 + 2 * 8) * 128
        (2048, True)
    """
    value_dim = head_dim if v_head_dim is None else v_head_dim
    check_kind(layers, sees, window, kv_lora_rank, q_lora_rank, qk_rope_head_dim, top_keys)
    check_layer(embed_dim, num_heads, num_kv_heads, head_dim, value_dim)
    width = num_heads * head_dim
    if sees == "state":  # query and key; value, gate, output; two numbers for each head
        weights = embed_dim * (2 * num_kv_heads * head_dim + 3 * width + 2 * num_heads)
        kept = width * head_dim
        return KindCost(
            layers=layers, weights=weights, cached=0, state=kept, window=None, chunked=False,
            pair=0, step=0, indexed=0, index_cached=0, top_keys=None, parts=num_heads,
        )  # fmt: skip
    key_dim = head_dim + qk_rope_head_dim
    numbers = num_kv_heads * (key_dim + value_dim)
    step = num_heads * (key_dim + value_dim)
    parts = num_kv_heads
    if kv_lora_rank is not None:
        numbers = kv_lora_rank + qk_rope_head_dim
        step = num_heads * (2 * kv_lora_rank + qk_rope_head_dim)
        parts = 1
    gates = 1 if output_gate else 0
    weights = query_weights(embed_dim, num_heads * key_dim, q_lora_rank)
    weights += latent_weights(num_heads * (head_dim + value_dim), kv_lora_rank)
    weights += embed_dim * num_heads * value_dim * (1 + gates)
    weights += 0 if shared else embed_dim * numbers
    source = embed_dim if q_lora_rank is None else q_lora_rank
    weights += source * index_heads * index_dim + embed_dim * (index_dim + index_heads)
    return KindCost(
        layers=layers, weights=weights, cached=0 if shared else numbers + index_dim, state=0,
        window=window, chunked=sees == "chunk", pair=num_heads * (key_dim + value_dim), step=step,
        indexed=index_heads * index_dim, index_cached=index_dim, top_keys=top_keys, parts=parts,
    )  # fmt: skip
    # --8<-- [end:kind_cost]


# --8<-- [start:serving_cost]
def serving_cost(
    kinds: Sequence[KindCost],
    *,
    embed_dim: int,
    mlp: MlpSizes,
    vocabulary: int,
    tied: bool,
    tokens: int,
    device: Accelerator,
    batch: int = 1,
    weight_bits: int = 16,
    cache_bits: int = 16,
    devices: int = 0,
    causal: bool = True,
    learned_positions: int = 0,
) -> ServingCost:
    """Count what a decoder takes on one device, or on several that share its heads.

    A time is the larger of two: to read what must be read once, and to multiply what must be
    multiplied. Devices share out the KV heads, and where there are too few, the sequences; what
    they tell each other takes no time here. Of experts, those are read that a batch meets whose
    tokens choose evenly, at random. Left out: norms, biases, activations.

    Args:
        kinds: the layers, kind by kind.
        embed_dim: width of the model.
        mlp: what follows attention.
        vocabulary: rows of the embedding.
        tied: whether the output takes the embedding's matrix.
        tokens: length of each sequence.
        device: its memory, bandwidth and peak.
        batch: number of sequences.
        weight_bits: of each parameter.
        cache_bits: of each number in the cache.
        devices: how many. Default, 0: as few as hold it, 1, 2, 4 and so on.
        causal: whether a token sees only those before it; else it is an encoder, without a cache.
        learned_positions: rows of a table of learned positions.

    Returns:
        Exact numbers; `ServingCost` says of what.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is too small.

    Examples:
        One layer as wide as Llama 3.1 8B's, on an A100.

        >>> from mhattn.costs import MlpSizes, known_accelerator
        >>> sizes = {"layers": 1, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
        >>> cost = serving_cost(
        ...     [kind_cost(4096, **sizes)], embed_dim=4096, mlp=MlpSizes(3, 14336),
        ...     vocabulary=128256, tied=False, tokens=8192, device=known_accelerator("a100"),
        ... )
        >>> cost.cache_bytes == 2**25, cost.fewest
        (True, 1)
    """
    check_serving(embed_dim, tokens, batch, weight_bits, cache_bits, devices)
    check_device(device.memory, device.bandwidth, device.flops)
    layers = sum(kind.layers for kind in kinds)
    attention = sum(kind.layers * kind.weights for kind in kinds)
    mlps = mlp_weights(mlp, embed_dim, layers, mlp.experts)
    head = vocabulary * embed_dim
    tables = head * (1 if tied else 2) + learned_positions * embed_dim
    active = attention + mlp_weights(mlp, embed_dim, layers, mlp.per_token)
    weights = bytes_of(attention + mlps + tables, weight_bits)
    run = Run(
        kinds=kinds, embed_dim=embed_dim, layers=layers, mlp=mlp, always=attention + head,
        weight_bytes=weights, weight_bits=weight_bits, cache_bits=cache_bits, causal=causal,
        device=device,
    )  # fmt: skip
    fewest = fewest_devices(run, tokens, batch, 1)
    count = devices if devices > 0 else 1 if fewest is None else fewest
    scores = sum(kind.layers * prompt_pairs(kind, tokens, causal) for kind in kinds)
    prompt = 2 * (tokens * active + head + scores)
    step = 2 * (active + head + step_pairs(kinds, tokens))
    added = sum(kind.layers * kind.cached for kind in kinds) if causal else 0
    return ServingCost(
        cache_bytes=cache_on(run, tokens, batch, 1), token_bytes=bytes_of(added, cache_bits),
        attention_parameters=attention, mlp_parameters=mlps, vocabulary_parameters=tables,
        active_parameters=active + tables, weight_bytes=weights, devices=count, fewest=fewest,
        device_bytes=ceil_div(weights, count) + cache_on(run, tokens, batch, count),
        score_flops=2 * batch * scores, prompt_flops=batch * prompt, step_flops=batch * step,
        prompt_nanoseconds=prompt_time(run, prompt, tokens, 1, count),
        prompts_nanoseconds=prompt_time(run, prompt, tokens, batch, count),
        step_nanoseconds=step_time(run, step, tokens, 1, count),
        steps_nanoseconds=step_time(run, step, tokens, batch, count),
    )  # fmt: skip
    # --8<-- [end:serving_cost]


@dataclass(frozen=True)
class Run:
    """What stays the same in a run."""

    kinds: Sequence[KindCost]
    embed_dim: int
    layers: int
    mlp: MlpSizes
    always: int
    weight_bytes: int
    weight_bits: int
    cache_bits: int
    causal: bool
    device: Accelerator


def prompt_time(run: Run, flops: int, tokens: int, batch: int, devices: int) -> int:
    """Nanoseconds for so many prompts: weights are read, the cache is written."""
    moved = matrices_read(run, tokens * batch, devices) + cache_on(run, tokens, batch, devices)
    return larger_time(run, moved, batch * flops, devices)


def step_time(run: Run, flops: int, tokens: int, batch: int, devices: int) -> int | None:
    """Nanoseconds for one more token of so many sequences: weights and cache are read."""
    if not run.causal:
        return None
    read = bytes_of(numbers_read(run.kinds, tokens, batch, devices), run.cache_bits)
    return larger_time(run, matrices_read(run, batch, devices) + read, batch * flops, devices)


def larger_time(run: Run, moved: int, flops: int, devices: int) -> int:
    """Nanoseconds to move what one device moves, or to multiply what it multiplies."""
    moving = 1_000_000_000 * moved // run.device.bandwidth
    return max(moving, 1_000_000_000 * flops // (devices * run.device.flops))


def matrices_read(run: Run, tokens: int, devices: int) -> int:
    """Bytes of each device's share of the matrices that so many tokens meet."""
    met = run.always + mlps_met(run.mlp, run.embed_dim, run.layers, tokens)
    return ceil_div(bytes_of(met, run.weight_bits), devices)


def cache_on(run: Run, tokens: int, batch: int, devices: int) -> int:
    """Bytes of the cache on each device."""
    kept = numbers_kept(run.kinds, tokens, batch, devices) if run.causal else 0
    return bytes_of(kept, run.cache_bits)


def fewest_devices(run: Run, tokens: int, batch: int, devices: int) -> int | None:
    """From so many on, doubled until weights and cache fit. None: they don't fit on 4096."""
    share = ceil_div(run.weight_bytes, devices) + cache_on(run, tokens, batch, devices)
    if share <= run.device.memory:
        return devices
    return None if devices >= 4096 else fewest_devices(run, tokens, batch, 2 * devices)


def mlp_weights(mlp: MlpSizes, embed_dim: int, layers: int, taken: int) -> int:
    """The matrices of MLPs, of so many routed experts a layer, and of the routers."""
    dense = embed_dim * mlp.matrices * (0 if mlp.dim is None else mlp.dim)
    if mlp.experts == 0:
        return layers * dense
    inner = embed_dim if mlp.expert_embed is None else mlp.expert_embed
    around = 0 if mlp.expert_embed is None else 2 * mlp.expert_embed
    sparse = inner * mlp.matrices * mlp.expert_dim * (taken + mlp.shared)
    sparse += embed_dim * (mlp.experts + around)
    count = layers - mlp.dense_layers if mlp.expert_layers is None else mlp.expert_layers
    return mlp.dense_layers * dense + count * sparse


def mlps_met(mlp: MlpSizes, embed_dim: int, layers: int, tokens: int) -> int:
    """What is read of the MLPs if so many tokens choose their experts evenly, at random."""
    always = mlp_weights(mlp, embed_dim, layers, 0)
    if mlp.experts == 0:
        return always
    routed = mlp_weights(mlp, embed_dim, layers, mlp.experts) - always
    unmet = unmet_parts(mlp.experts - mlp.per_token, mlp.experts, tokens)
    return always + routed - routed * unmet // 1_000_000_000_000_000_000


def unmet_parts(others: int, experts: int, tokens: int) -> int:
    """``(others / experts) ** tokens`` in parts of 10^18: that no token chooses an expert."""
    if tokens == 0:
        return 1_000_000_000_000_000_000
    half = unmet_parts(others, experts, tokens // 2)
    square = half * half // 1_000_000_000_000_000_000
    return square * others // experts if tokens % 2 == 1 else square


def tokens_seen(kind: KindCost, tokens: int) -> int:
    return tokens if kind.window is None else min(tokens, kind.window)


def keys_met(kind: KindCost, tokens: int) -> int:
    """How many keys the last token attends to."""
    seen = tokens_seen(kind, tokens)
    return seen if kind.top_keys is None else min(seen, kind.top_keys)


def prompt_pairs(kind: KindCost, tokens: int, causal: bool) -> int:
    """Multiplications of a layer's scores and mixing in a prompt; of a state, two a number."""
    if not causal:
        return tokens * tokens * kind.pair
    met = visible_pairs(tokens, tokens, keys_met(kind, tokens))
    if kind.chunked:
        full = tokens_seen(kind, tokens)
        met = tokens // full * visible_pairs(full, full)
        rest = tokens % full
        met += rest * (rest + 1) // 2
    return met * kind.pair + visible_pairs(tokens, tokens) * kind.indexed + 2 * tokens * kind.state


def step_pairs(kinds: Sequence[KindCost], tokens: int) -> int:
    """Multiplications of one more token with what is kept, in all layers."""
    return sum(
        kind.layers * (keys_met(kind, tokens) * kind.step + tokens * kind.indexed + 2 * kind.state)
        for kind in kinds
    )


def numbers_kept(kinds: Sequence[KindCost], tokens: int, batch: int, devices: int) -> int:
    """What one of so many devices keeps: heads are shared out, and then sequences."""
    return sum(
        kind.layers
        * (tokens_seen(kind, tokens) * kind.cached + kind.state)
        * ceil_div(batch * kind.parts, devices)
        // kind.parts
        for kind in kinds
    )


def numbers_read(kinds: Sequence[KindCost], tokens: int, batch: int, devices: int) -> int:
    """What one of so many devices reads of that for one more token of each sequence.

    An indexer reads all of its keys, and of the rest what it chose. Layers that share the cache
    of others find it read.
    """
    return sum(
        kind.layers
        * (
            keys_met(kind, tokens) * (kind.cached - min(kind.cached, kind.index_cached))
            + tokens * min(kind.cached, kind.index_cached)
            + kind.state
        )
        * ceil_div(batch * kind.parts, devices)
        // kind.parts
        for kind in kinds
    )


def bytes_of(numbers: int, bits: int) -> int:
    return ceil_div(numbers * bits, 8)


def ceil_div(number: int, divisor: int) -> int:
    return -(-number // divisor)


def check_kind(
    layers: int,
    sees: str,
    window: int | None,
    kv_lora_rank: int | None,
    q_lora_rank: int | None,
    qk_rope_head_dim: int,
    top_keys: int | None,
) -> None:
    check.at_least("layers", layers, 1)
    if sees != "all" and sees != "window" and sees != "chunk" and sees != "state":
        raise ValueError(f"sees must be all, window, chunk or state, got {sees}")
    if window is not None:
        check.at_least("window", window, 1)
    if kv_lora_rank is not None:
        check.at_least("kv_lora_rank", kv_lora_rank, 1)
    if q_lora_rank is not None:
        check.at_least("q_lora_rank", q_lora_rank, 1)
    if top_keys is not None:
        check.at_least("top_keys", top_keys, 1)
    check.at_least("qk_rope_head_dim", qk_rope_head_dim, 0)


def check_serving(
    embed_dim: int, tokens: int, batch: int, weight_bits: int, cache_bits: int, devices: int
) -> None:
    check.at_least("embed_dim", embed_dim, 1)
    check.at_least("tokens", tokens, 1)
    check.at_least("batch", batch, 1)
    check.at_least("weight_bits", weight_bits, 1)
    check.at_least("cache_bits", cache_bits, 1)
    check.at_least("devices", devices, 0)


def check_device(memory: int, bandwidth: int, flops: int) -> None:
    check.at_least("memory", memory, 1)
    check.at_least("bandwidth", bandwidth, 1)
    check.at_least("flops", flops, 1)

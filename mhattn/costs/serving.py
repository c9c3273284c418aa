"""What serving a decoder takes: memory for weights and cache, and the least time that it can take.

The site's calculator counts the same in JavaScript, docs/assets/costs.js, which a test compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mhattn.costs import integers as check
from mhattn.costs.hardware import Accelerator
from mhattn.costs.kind_costs import KindCost
from mhattn.costs.layer_sizes import MlpSizes, mlp_weights, mlps_met
from mhattn.costs.model_costs import visible_pairs

__all__ = ["ServingCost", "serving_cost"]


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
    tokens choose evenly, at random. All weights count as shared out evenly; what devices have to
    copy, `Replica` counts. Left out: norms, biases, activations.

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

        >>> from mhattn.costs import MlpSizes, kind_cost, known_accelerator
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
    added = sum(kind.layers * (kind.cached + kind.together // kind.every) for kind in kinds)
    return ServingCost(
        cache_bytes=cache_on(run, tokens, batch, 1),
        token_bytes=bytes_of(added if causal else 0, cache_bits),
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
    # Matrices are read once for all tokens of a prompt. So a long prompt is bound by
    # arithmetic, and a step, which reads them for one token a sequence, by memory.
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
    # The larger one, not the sum: a device moves the next numbers while it multiplies these.
    return max(moving, 1_000_000_000 * flops // (devices * run.device.flops))


def matrices_read(run: Run, tokens: int, devices: int) -> int:
    """Bytes of each device's share of the matrices that so many tokens meet."""
    met = run.always + mlps_met(run.mlp, run.embed_dim, run.layers, tokens)
    return ceil_div(bytes_of(met, run.weight_bits), devices)


def cache_on(run: Run, tokens: int, batch: int, devices: int) -> int:
    """Bytes of the cache on each device."""
    # An encoder sees all its tokens at once, and generates none: it keeps nothing.
    kept = numbers_kept(run.kinds, tokens, batch, devices) if run.causal else 0
    return bytes_of(kept, run.cache_bits)


def fewest_devices(run: Run, tokens: int, batch: int, devices: int) -> int | None:
    """From so many on, doubled until weights and cache fit. None: they don't fit on 4096."""
    share = ceil_div(run.weight_bytes, devices) + cache_on(run, tokens, batch, devices)
    if share <= run.device.memory:
        return devices
    # A cache in one part, as that of a latent, gets no smaller with more devices: without an end,
    # the doubling would never stop.
    return None if devices >= 4096 else fewest_devices(run, tokens, batch, 2 * devices)


def tokens_seen(kind: KindCost, tokens: int) -> int:
    return tokens if kind.window is None else min(tokens, kind.window)


def chosen(kind: KindCost, keys: int) -> int:
    """How many of so many keys an indexer leaves."""
    return keys if kind.top_keys is None else min(keys, kind.top_keys)


def keys_met(kind: KindCost, tokens: int) -> int:
    """How many keys the last token attends to; beside single ones, one for each ``every``."""
    seen = tokens_seen(kind, tokens)
    return seen + chosen(kind, tokens // kind.every) if kind.together > 0 else chosen(kind, seen)


def prompt_pairs(kind: KindCost, tokens: int, causal: bool) -> int:
    """Multiplications of a layer's scores and mixing in a prompt; of a state, two a number."""
    if not causal:
        return tokens * tokens * kind.pair
    seen = tokens_seen(kind, tokens)
    met = visible_pairs(tokens, tokens, seen if kind.together > 0 else chosen(kind, seen))
    if kind.together > 0:
        met += rows_met(tokens, kind.every, chosen(kind, tokens))
    if kind.chunked:
        met = tokens // seen * visible_pairs(seen, seen)
        # Whole chunks are triangles of one size, and the last one is a smaller triangle.
        rest = tokens % seen
        met += rest * (rest + 1) // 2
    searched = rows_met(tokens, kind.every, tokens) * kind.indexed
    return met * kind.pair + searched + 2 * tokens * kind.state


def rows_met(tokens: int, every: int, most: int) -> int:
    """The sum of ``min(token // every, most)`` over the tokens from 1 on."""
    # In closed form, for a prompt may have a million tokens, and the calculator counts at every
    # key.
    full = min(tokens // every, most)
    before = every * full * (full - 1) // 2  # up to the first token that meets so many
    return before + (tokens + 1 - full * every) * full


def step_pairs(kinds: Sequence[KindCost], tokens: int) -> int:
    """Multiplications of one more token with what is kept, in all layers."""
    return sum(
        kind.layers
        * (
            keys_met(kind, tokens) * kind.step
            + tokens // kind.every * kind.indexed
            + 2 * kind.state
        )
        for kind in kinds
    )


def numbers_kept(kinds: Sequence[KindCost], tokens: int, batch: int, devices: int) -> int:
    """What one of so many devices keeps: heads are shared out, and then sequences."""
    return sum(
        kind.layers
        * (
            tokens_seen(kind, tokens) * kind.cached
            + tokens // kind.every * kind.together
            + kind.state
        )
        * ceil_div(batch * kind.parts, devices)
        // kind.parts
        for kind in kinds
    )


def numbers_read(kinds: Sequence[KindCost], tokens: int, batch: int, devices: int) -> int:
    """What one of so many devices reads of that for one more token of each sequence.

    Layers that share the cache of others find it read.
    """
    return sum(
        kind.layers
        * (numbers_met(kind, tokens) + kind.state)
        * ceil_div(batch * kind.parts, devices)
        // kind.parts
        for kind in kinds
    )


def numbers_met(kind: KindCost, tokens: int) -> int:
    """What one more token reads in a layer: of an indexer all keys, of the rest what it chose."""
    rows = tokens // kind.every
    if kind.together > 0:
        older = chosen(kind, rows) * (kind.together - kind.index_cached) + rows * kind.index_cached
        return tokens_seen(kind, tokens) * kind.cached + older
    # A layer that reads the cache of others has nothing cached, its index included.
    index = min(kind.cached, kind.index_cached)
    return keys_met(kind, tokens) * (kind.cached - index) + rows * index


def bytes_of(numbers: int, bits: int) -> int:
    return ceil_div(numbers * bits, 8)


def ceil_div(number: int, divisor: int) -> int:
    return -(-number // divisor)


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

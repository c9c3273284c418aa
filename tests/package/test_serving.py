"""Serving: against counts by hand, pair by pair, and against published numbers of parameters."""

import random
from dataclasses import replace
from math import ceil

import pytest

from mhattn.costs import (
    MlpSizes,
    kind_cost,
    known_accelerator,
    known_model,
    known_models,
    serving_cost,
)

CHIP = replace(known_accelerator("h100"), memory=10_007, bandwidth=1_009, flops=10_000_019)


def seen_by(kind, query, tokens, causal):
    """The keys that a query may see, one by one."""
    window = kind.get("window")
    for key in range(tokens):
        if causal and key > query:
            continue
        if window and causal:
            if kind.get("sees") == "chunk" and key // window != query // window:
                continue
            if kind.get("sees") != "chunk" and query - key >= window:
                continue
        yield key


def by_hand(kind, embed, tokens, causal):
    """One layer: weights, numbers kept, multiplications of a prompt's pairs and of a step's."""
    heads, kv, size = kind["num_heads"], kind["num_kv_heads"], kind["head_dim"]
    value = kind.get("v_head_dim", size)
    if kind.get("sees") == "state":
        state, inner = heads * size * value, heads * value
        matrices = [(embed, kv * size), (embed, kv * size), (embed, inner), (inner, embed)]
        matrices += [(embed, heads)]  # how much is written
        if rank := kind.get("gate_rank"):
            matrices += 2 * [(embed, rank), (rank, inner)]  # of the output; how much is kept
        else:
            matrices += [(embed, inner), (embed, heads)]
        weights = sum(rows * columns for rows, columns in matrices)
        return weights, state, 2 * state * tokens, 2 * state, state
    if kind.get("o_lora_rank"):
        return compressed_by_hand(kind, embed, tokens)
    rope = kind.get("qk_rope_head_dim", 0)
    latent, top = kind.get("kv_lora_rank"), kind.get("top_keys") or tokens
    index_heads, index = kind.get("index_heads", 0), kind.get("index_dim", 0)
    rank = kind.get("q_lora_rank")
    queries = embed * heads * (size + rope) if not rank else rank * (embed + heads * (size + rope))
    if latent:
        keys = embed * (latent + rope) + latent * heads * (size + value)
        row = latent + rope
    else:
        keys, row = embed * kv * (size + rope + value), kv * (size + rope + value)
    if kind.get("shared"):
        keys, row = keys - embed * row, 0
    weights = queries + keys + heads * value * embed * (2 if kind.get("output_gate") else 1)
    weights += (rank or embed) * index_heads * index + embed * index
    weights += embed * index_heads if latent else 0
    pairs = 0
    for query in range(tokens):
        visible = len(list(seen_by(kind, query, tokens, causal)))
        pairs += min(visible, top) * heads * (size + rope + value)
        pairs += (query + 1) * index_heads * index
    window = min(tokens, kind.get("window") or tokens)
    meets = min(window, top)
    step = heads * (2 * latent + rope) if latent else heads * (size + rope + value)
    kept = 0 if kind.get("shared") else window * (row + index)
    read = 0 if kind.get("shared") else meets * row + window * index
    return weights, kept, pairs, meets * step + tokens * index_heads * index, read


def compressed_by_hand(kind, embed, tokens):
    """A vector for each of the last tokens, and one for each whole group of ``every``."""
    heads, size, every = kind["num_heads"], kind["head_dim"], kind["every"]
    rank, low, groups = kind["q_lora_rank"], kind["o_lora_rank"], kind["output_groups"]
    top, index = kind.get("top_keys"), kind.get("index_dim", 0)
    index_heads = kind.get("index_heads", 0)
    matrices = [(embed, rank), (rank, heads * size), (embed, size)]
    matrices += [(heads * size, low), (groups * low, embed)]  # each group's heads alone
    if every > 1:  # a token's part of a group's vector and its gate, twice for groups that overlap
        matrices += (4 if top else 2) * [(embed, size + index)]
    if top:
        matrices += [(rank, index_heads * index), (embed, index_heads)]
    weights = sum(rows * columns for rows, columns in matrices)
    multiplied = []
    for query in range(tokens):
        single = len(list(seen_by(kind, query, tokens, True)))
        whole = (query + 1) // every if every > 1 else 0
        met = single + (min(whole, top) if top else whole)
        multiplied.append(met * heads * 2 * size + whole * index_heads * index)
    kept = single * size + whole * (size + index)
    read = met * size + whole * index
    return weights, kept, sum(multiplied), multiplied[-1], read


def drawn_kind(draw):
    kv = draw.choice([1, 2, 4])
    kind = {"layers": draw.randint(1, 5), "num_heads": kv * draw.choice([1, 3]), "num_kv_heads": kv}
    kind |= {"head_dim": draw.randint(1, 9), "sees": draw.choice(["all", "window", "chunk"])}
    if kind["sees"] != "all":
        kind["window"] = draw.randint(1, 12)
    whats = ["plain", "latent", "index", "state", "gate", "shared", "sizes"]
    what = draw.choice([*whats, "index of groups", "compressed", "compressed index"])
    if what == "gate":
        kind["output_gate"] = True
    if what == "shared":
        kind["shared"] = True
    if what in ("latent", "index"):
        kind |= {"kv_lora_rank": draw.randint(1, 9), "qk_rope_head_dim": draw.randint(0, 5)}
        kind |= {"sees": "all", "window": None, "v_head_dim": draw.randint(1, 7)}
        kind["q_lora_rank"] = draw.choice([None, 6])
        kind["num_kv_heads"] = kind["num_heads"]
    if "index" in what:
        kind |= {"index_heads": 3, "index_dim": 2, "top_keys": draw.randint(1, 12)}
    if what == "index of groups":
        kind |= {"sees": "all", "window": None}
    if what == "state":
        kind |= {"sees": "state", "window": None, "v_head_dim": draw.randint(1, 9)}
        kind["gate_rank"] = draw.choice([None, 5])
    if "compressed" in what:
        kind |= {"sees": "window", "window": draw.randint(1, 12), "num_kv_heads": 1}
        kind |= {"q_lora_rank": 6, "o_lora_rank": 3, "output_groups": draw.randint(1, 3)}
        kind["every"] = draw.randint(1 if what == "compressed" else 2, 7)
    if what == "sizes":
        kind |= {"qk_rope_head_dim": 3, "v_head_dim": 5}
    return kind


def drawn_mlp(draw):
    if draw.random() < 0.4:
        return MlpSizes(draw.choice([2, 3]), draw.randint(0, 40))
    experts = draw.randint(1, 9)
    more = {"expert_embed": 7} if draw.random() < 0.3 else {}
    return MlpSizes(
        3, draw.choice([None, 11]), experts=experts, per_token=draw.randint(1, experts),
        shared=draw.randint(0, 2), expert_dim=draw.randint(1, 9), dense_layers=draw.randint(0, 1),
        **more,
    )  # fmt: skip


def mlps_by_hand(mlp, embed, layers, experts):
    """Matrices of all layers, with so many routed experts in each."""
    total = 0
    for layer in range(layers):
        if not mlp.experts or layer < mlp.dense_layers:
            total += mlp.matrices * embed * (mlp.dim or 0)
            continue
        inner = mlp.expert_embed or embed
        total += mlp.matrices * inner * mlp.expert_dim * (experts + mlp.shared)
        total += embed * mlp.experts + (2 * embed * inner if mlp.expert_embed else 0)
    return total


@pytest.mark.parametrize("seed", range(80))
def test_settings_by_hand(seed):
    draw = random.Random(seed)
    embed, tokens, batch = draw.randint(1, 30), draw.randint(1, 30), draw.randint(1, 9)
    kinds = [drawn_kind(draw) for _ in range(draw.randint(1, 3))]
    mlp, rows, tied = drawn_mlp(draw), draw.randint(1, 50), draw.random() < 0.5
    bits, cache_bits = draw.choice([16, 8, 4]), draw.choice([16, 8, 4])
    causal = draw.random() < 0.85 or any(kind["sees"] == "state" for kind in kinds)
    causal = causal or any(kind.get("top_keys") or kind.get("every") for kind in kinds)
    devices = draw.choice([1, 2, 4, 8])
    cost = serving_cost(
        [kind_cost(embed, **kind) for kind in kinds], embed_dim=embed, mlp=mlp, vocabulary=rows,
        tied=tied, tokens=tokens, batch=batch, weight_bits=bits, cache_bits=cache_bits,
        device=CHIP, devices=devices, causal=causal,
    )  # fmt: skip
    found = [by_hand(kind, embed, tokens, causal) for kind in kinds]
    many = [kind["layers"] for kind in kinds]
    weights, kept, pairs, steps, _ = (
        sum(n * parts[i] for n, parts in zip(many, found, strict=True)) for i in range(5)
    )
    layers, head = sum(many), rows * embed
    tables = head * (1 if tied else 2)
    active = weights + mlps_by_hand(mlp, embed, layers, mlp.per_token)
    all_mlps = mlps_by_hand(mlp, embed, layers, mlp.experts)
    assert cost.attention_parameters == weights
    assert cost.mlp_parameters == all_mlps
    assert cost.weight_bytes == ceil((weights + all_mlps + tables) * bits / 8)
    assert cost.cache_bytes == (ceil(batch * kept * cache_bits / 8) if causal else 0)
    assert cost.score_flops == 2 * batch * pairs
    prompt, step = 2 * (tokens * active + head + pairs), 2 * (active + head + steps)
    assert cost.prompt_flops == batch * prompt
    assert cost.step_flops == batch * step
    # Every device keeps and reads its share of heads, then of sequences.
    parts = [
        kind["num_heads"] if kind["sees"] == "state"
        else 1 if kind.get("kv_lora_rank") or kind.get("every") else kind["num_kv_heads"]
        for kind in kinds
    ]  # fmt: skip

    def share(of, which):
        shares = [
            n * one[which] * ceil(of * part / devices) // part
            for n, one, part in zip(many, found, parts, strict=True)
        ]
        return ceil(sum(shares) * cache_bits / 8) if causal else 0

    def met(chosen_by):
        unmet = (1 - mlp.per_token / mlp.experts) ** chosen_by if mlp.experts else 0
        none = mlps_by_hand(mlp, embed, layers, 0)
        return weights + head + none + (all_mlps - none) * (1 - unmet)

    assert cost.device_bytes == ceil(cost.weight_bytes / devices) + share(batch, 1)
    for of, nanoseconds in ((1, cost.prompt_nanoseconds), (batch, cost.prompts_nanoseconds)):
        read = met(tokens * of) * bits / 8 / devices + share(of, 1)
        seconds = max(read / CHIP.bandwidth, of * prompt / devices / CHIP.flops)
        assert nanoseconds / 1e9 == pytest.approx(seconds, abs=3 / CHIP.bandwidth)
    for of, nanoseconds in ((1, cost.step_nanoseconds), (batch, cost.steps_nanoseconds)):
        if not causal:
            assert nanoseconds is None
            continue
        read = met(of) * bits / 8 / devices + share(of, 4)
        seconds = max(read / CHIP.bandwidth, of * step / devices / CHIP.flops)
        assert nanoseconds / 1e9 == pytest.approx(seconds, abs=3 / CHIP.bandwidth)


# Published, in units of a thousand million, and the cache of a token in bytes, by hand:
# keys and values x layers x KV heads x head size x 2 bytes; or layers x (latent + rotary) x 2.
PUBLISHED = {
    "gpt-2-124m": (0.124439808, 2 * 12 * 12 * 64 * 2),
    "llama-2-7b": (6.738415616, 2 * 32 * 32 * 128 * 2),
    "llama-3.1-8b": (8.030261248, 2 * 32 * 8 * 128 * 2),
    "llama-3.1-70b": (70.6, 2 * 80 * 8 * 128 * 2),
    "llama-3.1-405b": (405.9, 2 * 126 * 8 * 128 * 2),
    "mistral-7b-v0.1": (7.241732096, 2 * 32 * 8 * 128 * 2),
    "mixtral-8x7b": (46.702792704, 2 * 32 * 8 * 128 * 2),
    "mixtral-8x22b": (141, 2 * 56 * 8 * 128 * 2),
    "gemma-7b": (8.537680896, 2 * 28 * 16 * 256 * 2),
    "gemma-2-27b": (27.227128320, 2 * 46 * 16 * 128 * 2),
    "gemma-3-27b": (27.009002240, 2 * 62 * 16 * 128 * 2),
    "gemma-4-31b": (31, 2 * 2 * (50 * 16 * 256 + 10 * 4 * 512)),
    "qwen2.5-72b": (72.7, 2 * 80 * 8 * 128 * 2),
    "qwen3-32b": (32.762123264, 2 * 64 * 8 * 128 * 2),
    "qwen3-235b-a22b": (235.093634560, 2 * 94 * 4 * 128 * 2),
    "qwen3-next-80b-a3b": (80, 2 * 12 * 2 * 256 * 2),
    "gpt-oss-120b": (116.829156672, 2 * 36 * 8 * 64 * 2),
    "deepseek-v3": (671, 61 * (512 + 64) * 2),
    "glm-4.5": (355, 2 * 92 * 8 * 128 * 2),
    "glm-5": (744, 78 * (512 + 64 + 128) * 2),
    "kimi-k2": (1026, 61 * (512 + 64) * 2),
    "minimax-m2": (229, 2 * 62 * 8 * 128 * 2),
    "minimax-m3": (428, (60 * 2 * 4 * 128 + 57 * 128) * 2),
    "mimo-v2-flash": (309, (39 * 8 + 9 * 4) * (192 + 128) * 2),
    "deepseek-v4-flash": (284, (43 * 512 + 21 * 640 // 4 + 20 * 512 // 128) * 2),
    "nemotron-3-nano-30b-a3b": (31.6, 2 * 6 * 2 * 128 * 2),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models(name):
    published, token = PUBLISHED[name]
    cost = known_model(name).serving(1000, known_accelerator("h100"), weight_bits=8)
    assert cost.weight_bytes / 1e9 == pytest.approx(published, rel=0.02)
    assert cost.token_bytes == token


@pytest.mark.parametrize("name", known_models())
def test_every_model_is_counted_or_says_why(name):
    """The cache is the one that `ModelSizes` counts in its own way."""
    model, chip = known_model(name), known_accelerator("h100")
    if model.kind == "encoder-decoder":
        with pytest.raises(ValueError, match="the model must not be an encoder-decoder, got "):
            model.serving(10, chip)
    elif None in (model.mlp, model.vocabulary, model.tied):
        with pytest.raises(ValueError, match="MLP, vocabulary and tied must be known, not so of "):
            model.serving(10, chip)
    else:
        cost = model.serving(100_000, chip, batch=3)
        parts = cost.attention_parameters, cost.mlp_parameters, cost.vocabulary_parameters
        assert sum(parts) == model.parameters()
        assert cost.active_parameters == model.parameters(active=True)
        kept = model.kv_cache_bytes(100_000) if model.kind == "decoder" else 0
        assert cost.cache_bytes == 3 * kept


def test_fewest_devices():
    model, chip = known_model("llama-3.1-8b"), known_accelerator("h100")
    for memory, fewest in ((10**11, 1), (16 * 10**9, 2), (10**9, 32), (10**3, None)):
        cost = model.serving(8192, replace(chip, memory=memory))
        assert cost.fewest == fewest
        if fewest:
            assert cost.devices == fewest
            assert cost.device_bytes <= memory
        if fewest and fewest > 1:
            half = model.serving(8192, replace(chip, memory=memory), devices=fewest // 2)
            assert half.device_bytes > memory


def test_windows_bound_the_scores():
    """With a window, twice the length takes little more than twice the FLOPs."""
    model, chip = known_model("mistral-7b-v0.1"), known_accelerator("h100")
    short, long = (model.serving(n, chip).score_flops for n in (2**16, 2**17))
    assert 2 < long / short < 2.1
    model = known_model("mistral-7b-v0.3")
    short, long = (model.serving(n, chip).score_flops for n in (2**16, 2**17))
    assert long / short > 3.9


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"tokens": 0}, ValueError, "tokens must be at least 1, got 0"),
        ({"tokens": 2.5}, TypeError, "tokens must be an integer, got float"),
        ({"batch": 0}, ValueError, "batch must be at least 1, got 0"),
        ({"cache_bits": 0}, ValueError, "cache_bits must be at least 1, got 0"),
        ({"weight_bits": 0}, ValueError, "weight_bits must be at least 1, got 0"),
        ({"devices": -1}, ValueError, "devices must be at least 0, got -1"),
    ],
)
def test_impossible_runs(change, error, message):
    with pytest.raises(error) as raised:
        known_model("llama-3.1-8b").serving(
            **{"tokens": 8, "device": known_accelerator("h100")} | change
        )
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_kv_heads": 3}, "num_kv_heads must divide num_heads, 4, got 3"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"kv_lora_rank": 0}, "kv_lora_rank must be at least 1, got 0"),
        ({"top_keys": 0}, "top_keys must be at least 1, got 0"),
        ({"sees": "some"}, "sees must be all, window, chunk or state, got some"),
        ({"gate_rank": 0}, "gate_rank must be at least 1, got 0"),
        ({"o_lora_rank": 0}, "o_lora_rank must be at least 1, got 0"),
        ({"output_groups": 0}, "output_groups must be at least 1, got 0"),
        ({"index_dim": -1}, "index_dim must be at least 0, got -1"),
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"every": 2}, "every must be 1 without o_lora_rank, got 2"),
    ],
)
def test_impossible_layers(change, message):
    sizes = {"layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 3} | change
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        kind_cost(8, **sizes)
    assert str(raised.value) == message

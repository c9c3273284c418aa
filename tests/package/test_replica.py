"""Replicas and links: against counts by hand, `serving_cost`, and messages one by one."""

import random
from dataclasses import replace

import pytest

from mhattn.costs import (
    Chunk,
    Link,
    Replica,
    all_reduce_nanoseconds,
    known_accelerator,
    known_link,
    known_links,
    known_model,
    known_models,
)

H100, NVLINK = known_accelerator("h100"), known_link("nvlink-4")
FREE = Link("free", "free", "test", 10**30, "nowhere")  # takes no time
MODELS = ["llama-3.1-8b", "llama-3.1-70b", "deepseek-v3", "gpt-3-2.7b"]
# Bytes a second in units of a GB, as sheets print them: both ways together, or gigabits one way.
SHEETS = {
    "nvlink-3": 600 / 2,
    "nvlink-4": 900 / 2,
    "pcie-5": 128 / 2,
    "infiniband-ndr": 400 / 8,
    "ethernet-400": 400 / 8,
}
MICROSECONDS = {"nvlink": 3.33, "infiniband": 2.8, "ethernet": 3.6, "pcie": 0}


@pytest.mark.parametrize("name", SHEETS)
def test_both_entries_agree(name):
    link = known_link(name)
    assert link.bandwidth == SHEETS[name] * 10**9
    assert link.latency == MICROSECONDS[name.split("-")[0]] * 1000
    assert (link.latency > 0) == (link.latency_source is not None)
    assert set(known_links()) == set(SHEETS)


def messages(size, ranks, link):
    """When all have the sum, message by message: each sends its pieces at the same time."""
    if ranks == 1:
        return 0
    out = (ranks - 1) * (size / ranks) / link.bandwidth * 1e9
    pieces_arrive = link.latency + out
    return pieces_arrive + link.latency + out


@pytest.mark.parametrize("seed", range(50))
def test_an_all_reduce_is_its_messages(seed):
    draw = random.Random(seed)
    near, far = (Link("a", "a", "", draw.randint(1, 99) * 10**9, "", draw.randint(0, 9999))
                 for _ in range(2))  # fmt: skip
    together, outer = draw.randint(1, 8), draw.randint(1, 9)
    size = draw.randint(0, 10**8)
    few = draw.randint(1, together)
    found = all_reduce_nanoseconds(size, few, near, far, together)
    assert found == pytest.approx(messages(size, few, near), abs=2)
    found = all_reduce_nanoseconds(size, together * outer, near, far, together)
    expected = messages(size, together, near) + messages(size / together, outer, far)
    assert found == pytest.approx(expected, abs=100)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_it_is_serving_cost_where_links_take_no_time(name, tensor):
    model = known_model(name)
    replica = Replica(model, H100, FREE, tensor=tensor)
    if model.latent and tensor > 1:
        replica = replace(replica, attention="sequences")
    for batch in (4, 12):
        cost = model.serving(1009, H100, batch=batch, devices=tensor)
        step = replica.step_nanoseconds([Chunk(1, 1008)] * batch)
        if replica.attention == "heads":
            assert step == cost.steps_nanoseconds
            prompts = replica.step_nanoseconds([Chunk(1009, 0)] * batch)
            assert prompts == pytest.approx(cost.prompts_nanoseconds, rel=1e-9)
            assert replica.weight_bytes == -(-cost.weight_bytes // tensor)
        else:  # the weights of attention are read whole by each
            whole = cost.attention_parameters * 2 * (1 - 1 / tensor) / H100.bandwidth
            assert step == pytest.approx(cost.steps_nanoseconds + whole * 1e9, rel=1e-6)


def test_context_shares_out_the_cache_and_prompts():
    model = known_model("llama-3.1-8b")
    one = Replica(model, H100, FREE)
    four = replace(one, context=4)
    weights = one.step_nanoseconds([Chunk(1, 0)])
    long = 4 * 250_000 - 1
    alone = one.step_nanoseconds([Chunk(1, long)]) - weights
    shared = four.step_nanoseconds([Chunk(1, long)]) - weights
    assert alone == pytest.approx(4 * shared, rel=1e-4)
    prompt = [Chunk(100_000, 0)]
    assert one.step_nanoseconds(prompt) == pytest.approx(
        4 * four.step_nanoseconds(prompt), rel=0.01
    )
    assert four.cache_tokens == pytest.approx(4 * one.cache_tokens, abs=4)


@pytest.mark.parametrize(
    ("name", "tensor", "attention", "copies"),
    [
        ("llama-3.1-8b", 8, "heads", 1),
        ("llama-3.1-8b", 32, "heads", 4),
        ("llama-3.1-70b", 4, "heads", 1),
        ("deepseek-v3", 1, "heads", 1),
        ("deepseek-v3", 16, "heads", 16),
        ("deepseek-v3", 16, "sequences", 1),
        ("gemma-2b", 4, "heads", 4),
    ],
)
def test_copies_by_listing_them(name, tensor, attention, copies):
    model = known_model(name)
    replica = Replica(model, H100, NVLINK, tensor=tensor, attention=attention)
    assert replica.copies == copies
    if attention == "heads":  # which rows each machine needs for its heads of queries
        groups = 1 if model.latent else model.num_kv_heads
        own = model.num_heads // tensor
        kept = [{h * groups // model.num_heads for h in range(r * own, (r + 1) * own)}
                for r in range(tensor)]  # fmt: skip
        assert sum(map(len, kept)) == copies * groups


def replicas_by_heads():
    """Of every model that has one, on every number of machines that divides its heads."""
    for name in known_models():
        try:
            Replica(known_model(name), H100, NVLINK)
        except ValueError:
            continue
        model = known_model(name)
        for tensor in range(1, model.num_heads + 1):
            if model.num_heads % tensor == 0:
                yield Replica(model, H100, NVLINK, tensor=tensor)


def test_heads_of_keys_of_the_machine_that_needs_most():
    """Also where queries of one head of keys are on two machines, both of which begin elsewhere."""
    uneven = 0
    for replica in replicas_by_heads():
        model, tensor = replica.model, replica.tensor
        groups = 1 if model.latent else model.num_kv_heads
        own = model.num_heads // tensor
        most = max(
            len({h * groups // model.num_heads for h in range(r * own, (r + 1) * own)})
            for r in range(tensor)
        )
        assert replica.copies == pytest.approx(tensor * most / groups, rel=1e-12)
        uneven += groups % tensor > 0 and tensor % groups > 0
    assert uneven > 20


def by_hand(name, tensor):
    """Numbers in the matrices on each machine: of attention, and of all else."""
    if name == "deepseek-v3":
        latents = 7168 * 1536 + 7168 * (512 + 64)  # whole on each machine
        heads = 128 * (1536 * (128 + 64) + 512 * (128 + 128) + 128 * 7168)
        experts = 58 * (7168 * 256 + 257 * 3 * 7168 * 2048)
        rest = 3 * 3 * 7168 * 18432 + experts + 2 * 129280 * 7168
        return 61 * (latents + heads // tensor), rest // tensor
    layers, width, inner = {"llama-3.1-8b": (32, 4096, 14336), "llama-3.1-70b": (80, 8192, 28672)}[
        name
    ]
    keys = max(1, 8 // tensor) * 2 * width * 128
    rest = layers * 3 * width * inner + 2 * 128256 * width
    return layers * (keys + 2 * width * width // tensor), rest // tensor


BY_HAND = [("deepseek-v3", n) for n in (1, 8, 32, 128)]
BY_HAND += [("llama-3.1-8b", n) for n in (1, 8, 16, 32)]
BY_HAND += [("llama-3.1-70b", n) for n in (4, 16, 64)]


@pytest.mark.parametrize(("name", "tensor"), BY_HAND)
def test_copied_matrices_by_hand(name, tensor):
    """Heads of keys and latents' matrices are kept, read and multiplied on each machine."""
    attention, rest = by_hand(name, tensor)
    model = known_model(name)
    replica = Replica(model, H100, FREE, tensor=tensor)
    assert replica.weight_bytes == pytest.approx(2 * (attention + rest), abs=2)

    if model.latent:
        unmet = 58 * (256 - 8) * 3 * 7168 * 2048  # a token meets 8 of 256 experts
        pair, row = 61 * 128 * (192 + 128), 61 * 576
    else:
        unmet = 0
        pair, row = model.layers * 2 * model.embed_dim, model.layers * max(1, 8 // tensor) * 2 * 128
    tokens, table = 1000, model.vocabulary * model.embed_dim
    layers = attention + rest - (2 * table + unmet) / tensor
    pairs = tokens * (tokens + 1) // 2
    flops = 2 * (tokens * layers + (pairs * pair + table) / tensor)
    works = replace(replica, device=replace(H100, bandwidth=10**20))
    found = works.step_nanoseconds([Chunk(tokens, 0)])
    assert found == pytest.approx(flops / H100.flops * 1e9, abs=2)
    moved = 2 * (layers + table / tensor + tokens * row)
    reads = replace(replica, device=replace(H100, flops=10**20))
    found = reads.step_nanoseconds([Chunk(1, tokens - 1)])
    assert found == pytest.approx(moved / H100.bandwidth * 1e9, rel=1e-9, abs=2)


def test_the_latents_matrices_of_deepseek_are_1_8_gb():
    replica = Replica(known_model("deepseek-v3"), H100, NVLINK, tensor=128)
    even = known_model("deepseek-v3").parameters() * 2 / 128
    assert (replica.weight_bytes - even) / 1e9 == pytest.approx(1.83, abs=0.005)


@pytest.mark.parametrize("name", MODELS)
def test_memory_by_hand(name):
    model = known_model(name)
    for tensor in (1, 2, 4):
        replica = Replica(model, replace(H100, memory=10**13), NVLINK, tensor=tensor)
        copied = 61 * 7168 * (1536 + 576) * 2 * (tensor - 1) if model.latent else 0
        left = tensor * 10**13 - model.parameters() * 2 - copied
        copies = tensor if model.latent else 1
        token = model.kv_cache_bytes_per_token() * copies
        assert replica.cache_tokens == pytest.approx(left / token, abs=1.01)
    small = replace(replica, device=replace(H100, memory=10**9))
    assert small.cache_tokens == 0


def test_what_machines_wait_for():
    model, link = known_model("llama-3.1-70b"), replace(NVLINK, latency=1000)
    replica = Replica(model, H100, link, tensor=4)
    chunks = [Chunk(1, 50), Chunk(7, 3)]
    size = 8 * 8192 * 2
    each = 2 * 1000 + 2 * 3 / 4 * size / link.bandwidth * 1e9
    expected = 80 * 2 * each
    assert replica.waiting_nanoseconds(chunks) == pytest.approx(expected, abs=160)
    by_sequences = replace(replica, attention="sequences")
    assert by_sequences.waiting_nanoseconds(chunks) == pytest.approx(expected / 2, abs=80)
    assert replace(replica, tensor=1).waiting_nanoseconds(chunks) == 0
    split = replace(replica, tensor=1, context=2, near=replace(link, latency=0))
    numbers = 64 * (1 + 128 + 1)  # of one query: heads, times maximum, mix and total
    expected = 80 * 2 * 1 / 2 * numbers * 4 / link.bandwidth * 1e9
    assert split.waiting_nanoseconds([Chunk(1, 50)]) == pytest.approx(expected, abs=160)


MODEL = known_model("llama-3.1-8b")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: known_link("tin"), ValueError,
         f"name must be one of {', '.join(SHEETS)}, got 'tin'"),
        (lambda: known_link(4), TypeError, "name must be a string, got int"),
        (lambda: all_reduce_nanoseconds(1, 12, NVLINK), ValueError,
         "together must divide ranks, 12, got 8"),
        (lambda: all_reduce_nanoseconds(-1, 2, NVLINK), ValueError,
         "size must be at least 0, got -1"),
        (lambda: Replica(MODEL, H100, NVLINK, tensor=5), ValueError,
         "tensor must divide the number of heads, 32, got 5"),
        (lambda: Replica(MODEL, H100, NVLINK, attention="both"), ValueError,
         "attention must be 'heads' or 'sequences', got 'both'"),
        (lambda: Replica(MODEL, H100, NVLINK, context=2, attention="sequences"), ValueError,
         "context must be 1 where sequences are shared, got 2"),
        (lambda: Replica(known_model("gemma-3-27b"), H100, NVLINK), ValueError,
         "layers must keep and see every token, not so of Gemma 3 27B"),
        (lambda: Replica(known_model("bert-base"), H100, NVLINK), ValueError,
         "model must be a decoder of known sizes, got BERT-base"),
        (lambda: Replica(MODEL, H100, NVLINK).step_nanoseconds([]), ValueError,
         "chunks must have tokens to compute, got []"),
    ],
)  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value) == message

"""Every kind of layer, counted: against its parameters, its FLOPs, its cache, masks, and memory.

Run as a program, it measures the memory of a process of its own.
"""

import inspect
import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
import registry
import torch
from torch.utils.checkpoint import set_checkpoint_early_stop

from mhattn import (
    Alibi,
    KVCache,
    MultiHeadAttention,
    attention,
    causal_mask,
    strided_mask,
    window_mask,
)
from mhattn.core import LinearState, Position
from mhattn.costs import (
    LayerCost,
    kept_bytes,
    model_cost,
    peak_activation_bytes,
    training_peak_bytes,
)
from mhattn.costs.layer_costs import COUNTED, KINDS, LATENT, UNCOUNTED
from mhattn.inside import measure_flops, peak_bytes
from mhattn.variants import (
    LatentAttention,
    LearnedBias,
    RelativePosition,
    linear_attention,
    local_attention,
    strided_attention,
    tiled_attention,
)

KINDS = list(KINDS)
SIZES = {"embed_dim": 47, "num_heads": 6, "head_dim": 11, "window": 37, "stride": 13}
SIZES |= {"block": 17, "max_distance": 5, "q_lora_rank": 29, "kv_lora_rank": 23}
SIZES |= {"qk_rope_head_dim": 2, "v_head_dim": 19}
DTYPES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
LINUX = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux only")


def layer_of(cost, max_len=None):
    """The package's layer with these sizes, and its self-attention as a function of x."""
    n = max_len or cost.tokens
    attends = {
        "tiled": partial(tiled_attention, block_size=cost.block),
        "linear": partial(linear_attention, chunk_size=cost.block),
        "local": partial(local_attention, window=cost.window),
        "strided": partial(strided_attention, window=cost.window, stride=cost.stride),
    }
    positions = {
        "alibi": lambda: Alibi(cost.num_heads),
        "learned": lambda: LearnedBias(cost.num_heads, n),
        "relative": lambda: RelativePosition(cost.head_dim, cost.max_distance),
    }
    options = {"written": {"return_weights": True}, "absorbed": {"absorb": True}}
    options |= {"latent": {"absorb": False}}
    if cost.kind in LATENT:
        names = ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "v_head_dim")
        widths = {name: getattr(cost, name) for name in names}
        widths["qk_nope_head_dim"] = cost.head_dim
        layer = LatentAttention(cost.embed_dim, cost.num_heads, **widths)
    else:
        layer = MultiHeadAttention(
            cost.embed_dim,
            cost.num_heads,
            num_kv_heads=cost.kv_heads,
            head_dim=cost.head_dim,
            bias=cost.bias,
            attend=attends.get(cost.kind, attention),
            position=positions.get(cost.kind, lambda: None)(),
        )
    layer.to(DTYPES[cost.bytes_per_number])
    run = partial(layer, is_causal=cost.is_causal, **options.get(cost.kind, {}))

    def call(x, **others):
        output = run(x, **others)
        return output[0] if isinstance(output, tuple) else output

    return layer, call


def inputs(cost, *, training=False, tokens=None):
    shape = cost.batch, tokens or cost.tokens, cost.embed_dim
    return torch.randn(shape, dtype=DTYPES[cost.bytes_per_number], requires_grad=training)


def train(layer, call, x, output_grad):
    torch.autograd.grad(call(x), [x, *layer.parameters()], output_grad)


def costs(kind, tokens, **options):
    """With and without a causal mask, grouped heads and several sequences."""
    causal = (True,) if kind == "strided" else (True, False)
    kv_heads = (6,) if kind in LATENT else (6, 2, 1)
    for is_causal, groups, batch, n in itertools.product(causal, kv_heads, (1, 3), tokens):
        sizes = {"is_causal": is_causal, "num_kv_heads": groups, "batch": batch, "tokens": n}
        yield LayerCost(kind=kind, **SIZES | sizes | options)


each_kind = pytest.mark.parametrize("kind", KINDS)


def takes_heads(function):
    return {"query", "key", "value"} <= set(inspect.signature(function).parameters)


def test_every_function_that_attends_is_counted_or_says_why_not():
    parts = {"attend_in_groups", "fused_attention", "block_sums", "attention_gradients"}
    parts |= {"MultiHeadAttention", "Position"}
    public = registry.public()
    attend = {name for name, it in public.items() if inspect.isfunction(it) and takes_heads(it)}
    classes = {name: it for name, it in public.items() if inspect.isclass(it)}
    attend |= {
        name
        for name, it in classes.items()
        if (issubclass(it, torch.nn.Module) and takes_heads(it.forward))
        or issubclass(it, Position)
        or name == "LatentAttention"
    }
    known = set(COUNTED.values()) | UNCOUNTED.keys()
    assert attend - parts == known
    assert list(COUNTED) == KINDS
    assert not set(COUNTED.values()) & UNCOUNTED.keys()


@pytest.mark.parametrize("kind", UNCOUNTED)
def test_what_is_not_counted_says_why(kind):
    rule = f"^kind must be one of fused, written, .*, got '{kind}'; {re.escape(UNCOUNTED[kind])}$"
    with pytest.raises(ValueError, match=rule):
        LayerCost(kind=kind, **SIZES, tokens=5)


# Parameters, FLOPs, cache


@each_kind
@pytest.mark.parametrize("change", [{}, {"bias": False}, {"q_lora_rank": None}])
def test_parameters_are_those_of_the_layer(kind, change):
    for cost in costs(kind, [13], **change):
        layer, _ = layer_of(cost)
        assert cost.parameters == sum(p.numel() for p in layer.parameters())


@each_kind
@pytest.mark.parametrize("v_head_dim", [19, 7])
def test_forward_and_training_are_what_is_computed(kind, v_head_dim):
    """At lengths shorter than a window or a block, and longer than several of them."""
    for cost in costs(kind, [1, 13, 127], v_head_dim=v_head_dim):
        if v_head_dim == 7 and kind not in LATENT:
            return
        layer, call = layer_of(cost)
        x = inputs(cost, training=True)
        with torch.no_grad():
            assert measure_flops(call, x).total == cost.forward_flops, cost
        if kind == "strided" and cost.tokens <= 50:
            continue  # a single query, or none that looks beyond the window, takes another way
        with set_checkpoint_early_stop(False):
            found = measure_flops(train, layer, call, x, torch.randn_like(x)).total
        assert found == cost.training_flops, cost


def test_kernels_of_a_bias_are_counted_in_blocks():
    """More tokens than a block has, so that a causal call leaves some of them out."""
    for kind in ("learned", "relative"):
        cost = LayerCost(kind=kind, **SIZES | {"tokens": 601, "num_heads": 2})
        _, call = layer_of(cost)
        with torch.no_grad():
            assert measure_flops(call, inputs(cost)).total == cost.forward_flops


@each_kind
@pytest.mark.parametrize("tokens", [2, 13, 38, 101])
def test_a_step_and_its_cache(kind, tokens):
    for cost in costs(kind, [tokens], is_causal=True):
        if kind == "linear":
            cache = LinearState()
        else:
            kept = {"window": cost.window} if kind == "local" else {"max_len": tokens}
            cache = KVCache(**kept)
        _, call = layer_of(cost)
        before = inputs(cost, tokens=tokens - 1)
        with torch.no_grad():
            call(before, cache=cache)
            step = measure_flops(partial(call, cache=cache), inputs(cost, tokens=1))
        assert step.total == cost.decode_flops, cost
        if kind == "linear":
            assert cache.state.nbytes == cost.cache_bytes
        elif kind == "local":
            numbers = cost.batch * cost.kv_heads * 2 * cost.head_dim
            assert cost.cache_bytes == 4 * numbers * min(tokens, cost.window)
        else:
            assert cache.nbytes == cost.cache_bytes


@pytest.mark.parametrize("tokens", [1, 2, 13, 36, 37, 38, 53, 211])
def test_visible_pairs_are_those_of_the_masks(tokens):
    """With a window that the stride divides as well."""
    n = tokens
    for kind, window in itertools.product(KINDS, (7, 26)):
        for cost in costs(kind, [n], window=window):
            mask = torch.ones(n, n, dtype=torch.bool)
            if kind in ("local", "strided"):
                mask = window_mask(n, n, window)
            if kind == "strided":
                mask = mask | strided_mask(n, n, 13)
            if cost.is_causal:
                mask = mask & causal_mask(n)
            pairs, extra, widths = int(mask.sum()), 0, 2 * 11
            if kind == "relative":
                extra = n * 11 * 2 * 11  # vectors of 11 distances
            if kind in LATENT:
                extra = n * 23 * (11 + 19)
                widths = 23 + 2 + 23 if kind == "absorbed" else 11 + 2 + 19
            if kind == "linear":
                pairs, widths, extra = n, 2 * 11 * 12, 0
            assert cost.visible_core_flops == 2 * cost.batch * 6 * (pairs * widths + extra)


@each_kind
def test_nothing_takes_less_than_what_is_visible(kind):
    for cost in costs(kind, [1, 5, 37, 211]):
        assert cost.visible_core_flops <= cost.core_flops
        assert isinstance(cost.training_flops, int)


def test_dense_layers_are_those_of_a_model():
    """One way of counting: a model of one layer, and of layers that share a cache."""
    sizes = {"embed_dim": 47, "num_heads": 6, "num_kv_heads": 2, "head_dim": 11, "tokens": 101}
    cost = LayerCost(kind="written", **sizes, batch=3, bias=False, bytes_per_number=2)
    model = model_cost(layers=1, **sizes, batch=3)
    assert model.attention_parameters == cost.parameters == cost.projections
    assert model.forward_flops == cost.forward_flops
    assert model.training_flops == cost.training_flops
    assert model.decode_flops == cost.decode_flops
    assert model.cache_bytes == cost.cache_bytes
    assert model.causal_forward_flops == model.projection_flops + cost.visible_core_flops
    two = model_cost(layers=2, layers_per_cache=2, **sizes, batch=3)
    shared = LayerCost(kind="written", **sizes, batch=3, bytes_per_number=2)
    assert two.cache_bytes == shared.cache_bytes
    assert two.decode_flops == 2 * cost.decode_flops - 2 * 3 * 47 * 2 * 2 * 11


def test_latent_layers_are_those_of_a_model():
    cost = LayerCost(kind="latent", **SIZES, tokens=101, batch=3, bytes_per_number=2)
    names = ("embed_dim", "num_heads", "head_dim", "q_lora_rank", "kv_lora_rank")
    sizes = {name: SIZES[name] for name in (*names, "qk_rope_head_dim", "v_head_dim")}
    model = model_cost(layers=1, num_kv_heads=6, **sizes, tokens=101, batch=3)
    assert model.attention_parameters == cost.parameters - 23 - 29  # without norms
    assert model.cache_bytes == cost.cache_bytes
    projections = 2 * 3 * 101 * cost.projections
    assert model.causal_forward_flops == projections + cost.visible_core_flops


# Memory, as torch's allocator was asked for it

ROOM = 2**23  # more than buffers take that do not grow with the tokens


@each_kind
@pytest.mark.parametrize("size", [2, 4])
def test_peaks_of_inference(kind, size):
    """To the byte where a layer has no buffers of a fixed size."""
    torch.set_num_threads(1)
    for cost in costs(kind, [307], bytes_per_number=size):
        _, call = layer_of(cost)
        x = inputs(cost)
        with torch.no_grad():
            call(x)
            more = peak_bytes(lambda call=call, x=x: call(x)) - peak_activation_bytes(cost)
        if kind == "written":
            assert more == 0, cost
        elif kind == "alibi":
            assert 0 <= more < 2**18, cost  # the kernel's tile
        else:
            assert 0 <= more < ROOM, cost


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in ("written", "alibi", "relative")]
)
@pytest.mark.parametrize("size", [2, 4])
def test_buffers_of_a_fixed_size_do_not_grow(kind, size):
    """What is not counted is the same for two lengths, but for the edges of blocks."""
    torch.set_num_threads(1)
    more = []
    for n in (1009, 2003):
        sizes = {"tokens": n, "bytes_per_number": size, "batch": 3, "num_heads": 2, "block": 211}
        cost = LayerCost(kind=kind, **SIZES | sizes)
        _, call = layer_of(cost)
        x = inputs(cost)
        with torch.no_grad():
            counted = peak_activation_bytes(cost)
            more.append(peak_bytes(lambda call=call, x=x: call(x)) - counted)
    assert 0 <= more[1] <= max(0.02 * counted, more[0] + 2000), more


@pytest.mark.parametrize("embed_dim", [47, 131])
def test_peaks_of_training(embed_dim):
    torch.set_num_threads(1)
    for kind, size in (("written", 4), ("fused", 2), ("fused", 4)):
        options = {"embed_dim": embed_dim, "bytes_per_number": size}
        for cost in costs(kind, [211], **options):
            layer, call = layer_of(cost)
            x, output_grad = inputs(cost, training=True), inputs(cost)
            arguments = layer, call, x, output_grad
            train(*arguments)
            more = peak_bytes(lambda arguments=arguments: train(*arguments))
            more -= training_peak_bytes(cost)
            assert 0 <= more < (100 if kind == "written" else ROOM), cost


def test_what_is_kept_is_part_of_the_peak():
    sizes = {"embed_dim": 47, "num_heads": 6, "num_kv_heads": 2, "head_dim": 11, "tokens": 307}
    cost = LayerCost(kind="fused", **sizes)
    kept = kept_bytes(**sizes, bytes_per_number=4) - 307 * 47 * 4  # the input was there before
    gradients = 4 * 307 * 11 * (6 + 2 + 2 + 6)
    output = 4 * (307 * 47 + (6 * 11 + 1) * 47)
    assert training_peak_bytes(cost) == kept + gradients + output


# Memory, as the system gave it to a process of its own

FRESH = [
    {"kind": "fused", "num_kv_heads": 2, "batch": 24},
    {"kind": "fused", "bytes_per_number": 2, "batch": 32},
    {"kind": "fused", "training": True, "batch": 12},
    {"kind": "written", "batch": 3},
    {"kind": "local", "batch": 12},
    {"kind": "strided", "batch": 10},
    {"kind": "linear", "batch": 20},
    {"kind": "latent", "batch": 12},
]


def resident(field):
    """Bytes of this process, now (VmRSS) or at most so far (VmHWM)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(rf"{field}:\s*(\d+) kB", status)[1])


def measure_here(options):
    """Two lengths after a short one, which loads all that is needed: what each of them takes."""
    torch.set_num_threads(1)
    training = options.pop("training", False)
    for n in [64, *options.pop("lengths")]:
        cost = LayerCost(**options, tokens=n)
        layer, call = layer_of(cost)
        x, output_grad = inputs(cost, training=training), inputs(cost)
        before = resident("VmRSS")
        with torch.set_grad_enabled(training):
            _ = train(layer, call, x, output_grad) if training else call(x)
        count = training_peak_bytes if training else peak_activation_bytes
        if n > 64:
            print(resident("VmHWM") - before, count(cost))


def measure_each(every):
    """For each of these options a process of its own, forked from this one, which has torch."""
    for options in every:
        print(json.dumps(options), flush=True)
        if (child := os.fork()) == 0:
            measure_here(options)
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


@pytest.fixture(scope="module")
def taken():
    """For each of the options, the lines that its process printed."""
    sizes = {"embed_dim": 256, "num_heads": 8, "head_dim": 32, "window": 53, "stride": 31}
    sizes |= {"kv_lora_rank": 64, "qk_rope_head_dim": 16, "v_head_dim": 32}
    settings = [json.dumps(sizes | options | {"lengths": [1009, 1999]}) for options in FRESH]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, __file__, f"[{','.join(settings)}]"],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("{")]
    ends = [*starts[1:], len(lines)]
    assert [lines[start] for start in starts] == settings
    return [lines[start + 1 : end] for start, end in zip(starts, ends, strict=True)]


@pytest.mark.slow
@LINUX
@pytest.mark.parametrize("number", range(len(FRESH)), ids=lambda number: FRESH[number]["kind"])
def test_a_fresh_process_takes_what_is_counted(taken, number):
    """Large blocks are given back to the system as soon as they are free."""
    lines = taken[number]
    assert len(lines) == 2
    for line in lines:
        measured, counted = map(int, line.split())
        assert counted > 70 * 10**6
        assert abs(measured / counted - 1) < 0.1, (FRESH[number], measured, counted)


# Errors


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"kind": "dense"}, ValueError, "kind must be one of fused, written, alibi, learned, "),
        ({"num_kv_heads": 4}, ValueError, "num_kv_heads must divide num_heads, 6, got 4"),
        ({"kind": "strided", "is_causal": False}, ValueError, "is_causal must be True, got False"),
        ({"tokens": 0}, ValueError, "tokens must be at least 1, got 0"),
        ({"window": 0}, ValueError, "window must be at least 1, got 0"),
        ({"q_lora_rank": 0}, ValueError, "q_lora_rank must be at least 1, got 0"),
        ({"batch": 1.5}, TypeError, "batch must be an integer, got float"),
        ({"head_dim": True}, TypeError, "head_dim must be an integer, got bool"),
    ],
)
def test_impossible_layers(change, error, message):
    with pytest.raises(error) as raised:
        LayerCost(**{"kind": "fused", "tokens": 5} | SIZES | change)
    assert message in str(raised.value)


def test_training_of_other_kinds_is_not_counted():
    local = LayerCost(kind="local", **SIZES, tokens=5)
    with pytest.raises(ValueError, match="kind must be fused or written, got 'local'"):
        training_peak_bytes(local)
    narrow = LayerCost(**asdict(local) | {"kind": "written", "bytes_per_number": 2})
    with pytest.raises(ValueError, match="bytes_per_number must be at least 4, got 2"):
        training_peak_bytes(narrow)


if __name__ == "__main__":
    measure_each(json.loads(sys.argv[1]))

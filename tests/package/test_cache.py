"""The cache: prefill in any chunks and decoding give what the full pass gives."""

import copy
import itertools

import pytest
import torch
from drawn import few_now

from mhattn import Alibi, KVCache, MultiHeadAttention, Rotary, sink_mask, window_mask
from mhattn.core import LinearState
from mhattn.inside import peak_bytes
from mhattn.variants import LatentAttention, linear_attention

B, H, H_KV, L, D, D_V, E = 2, 6, 3, 13, 4, 5, 17


def layer(**options):
    mha = MultiHeadAttention(E, H, num_kv_heads=H_KV, head_dim=D, **options)
    return mha.double().eval()


def splits(length, chunks):
    """Some ways to cut a length into so many parts, each at least 1."""
    cuts = torch.randperm(length - 1)[: chunks - 1].sort().values + 1
    edges = [0, *cuts.tolist(), length]
    return [b - a for a, b in itertools.pairwise(edges)]


POSITIONS = {"no position": None, "rotary": Rotary(D), "alibi": Alibi(H)}
every_position = pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS)


@every_position
@pytest.mark.parametrize("window", [None, 1, 4, 7, 50])
@pytest.mark.parametrize("chunks", [1, 2, 5, L])
def test_chunks_give_the_full_pass(position, window, chunks):
    mha, x = layer(position=position), torch.randn(B, L, E, dtype=torch.float64)
    mask = None if window is None else window_mask(L, L, window)
    full = mha(x, mask=mask, is_causal=True)
    cache = KVCache(L) if window is None else KVCache(window=window)
    outputs = []
    for part in x.split(splits(L, chunks), dim=1):
        S = len(cache) + part.shape[1]
        mask = None if window is None else window_mask(part.shape[1], S, window)
        outputs.append(mha(part, mask=mask, is_causal=True, cache=cache))
    torch.testing.assert_close(torch.cat(outputs, dim=1), full)
    assert cache.seen == L


@every_position
@pytest.mark.parametrize("split", range(1, L))
def test_every_split_into_prefill_and_decoding(split, position):
    mha, x = layer(position=position), torch.randn(B, L, E, dtype=torch.float64)
    cache = KVCache(L + 3)
    outputs = [mha(x[:, :split], is_causal=True, cache=cache)]
    outputs += [mha(x[:, i : i + 1], is_causal=True, cache=cache) for i in range(split, L)]
    torch.testing.assert_close(torch.cat(outputs, dim=1), mha(x, is_causal=True))


def random_pair(number, dtype=torch.float32):
    shape = (B, H_KV, number)
    return torch.randn(*shape, D, dtype=dtype), torch.randn(*shape, D_V, dtype=dtype)


def test_appending_copies_only_what_is_new():
    cache = KVCache(1000)
    pairs = [random_pair(number) for number in (700, 1, 1)]
    cache.append(*pairs[0])
    assert peak_bytes(lambda: cache.append(*pairs[1])) == 0
    before = cache.append(*pairs[2])[0]
    assert before.untyped_storage().data_ptr() == cache._memory[0].untyped_storage().data_ptr()
    torch.testing.assert_close(before, torch.cat([key for key, _ in pairs], dim=2))


@pytest.mark.parametrize("window", [1, 2, 5])
def test_a_window_keeps_the_last_ones_in_bounded_memory(window):
    cache, keys, values = KVCache(window=window), [], []
    for number in (3, 1, 1, 2 * window + 9, *[1] * (5 * window)):
        key, value = random_pair(number)
        keys.append(key)
        values.append(value)
        kept = cache.append(key, value)
        seen = number + window - 1
        torch.testing.assert_close(kept[0], torch.cat(keys, dim=2)[:, :, -seen:])
        torch.testing.assert_close(kept[1], torch.cat(values, dim=2)[:, :, -seen:])
        assert cache.nbytes == B * H_KV * 2 * window * (D + D_V) * 4  # after the long one too
        assert len(cache) <= window


@pytest.mark.parametrize("chunk", [1, 2, 3, 6, 7, 8, 20])
def test_a_window_appends_chunks_of_any_length(chunk):
    window, cache = 6, KVCache(window=6)
    key, value = random_pair(60)
    for at in range(0, 60, chunk):
        new = slice(at, at + chunk)
        kept = cache.append(key[:, :, new], value[:, :, new])
        visible = slice(max(0, at - (window - 1)), at + chunk)
        torch.testing.assert_close(kept, (key[:, :, visible], value[:, :, visible]))


def test_a_long_prompt_into_an_empty_window_is_not_copied():
    cache, (key, value) = KVCache(window=5), random_pair(1000)
    cache.append(key, value)
    cache.reset()
    assert peak_bytes(lambda: cache.append(key, value)) == 0
    keys, values = cache.append(*random_pair(1))
    torch.testing.assert_close(keys[:, :, :4], key[:, :, -4:])
    torch.testing.assert_close(values[:, :, :4], value[:, :, -4:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_bytes_are_those_of_the_room(dtype):
    cache = KVCache(11)
    assert cache.nbytes == 0
    for number in (3, 2):
        cache.append(*random_pair(number, dtype))
        assert cache.nbytes == B * H_KV * 11 * (D + D_V) * dtype.itemsize


def test_reset_forgets_and_keeps_the_memory():
    cache, (key, value) = KVCache(7), random_pair(5)
    cache.append(key, value)
    cache.reset()
    assert (len(cache), cache.seen) == (0, 0)
    assert peak_bytes(lambda: cache.append(key, value)) == 0
    torch.testing.assert_close(cache.append(*random_pair(2))[0][:, :, :5], key)


def test_no_gradient_comes_through_the_cache():
    mha = layer()
    x = torch.randn(B, L, E, dtype=torch.float64, requires_grad=True)
    cache = KVCache(L)
    mha(x[:, :7], is_causal=True, cache=cache)
    mha(x[:, 7:], is_causal=True, cache=cache).sum().backward()
    assert x.grad[:, :7].eq(0).all()


@pytest.mark.parametrize(
    ("error", "text", "use"),
    [
        (ValueError, "max_len or window must be given, got neither", lambda: KVCache()),
        (ValueError, "max_len must be at least 1, got 0", lambda: KVCache(0)),
        (TypeError, "window must be an integer, got float", lambda: KVCache(window=2.0)),
        (TypeError, "sinks must be an integer, got float", lambda: KVCache(window=2, sinks=1.0)),
        (ValueError, "sinks must be at least 0, got -1", lambda: KVCache(window=2, sinks=-1)),
        (ValueError, "sinks must be 0 without a window, got 4", lambda: KVCache(9, sinks=4)),
        (ValueError, "^max_len must be None with a window, got 4$", lambda: KVCache(4, window=9)),
        (
            ValueError,
            "max_len must be at least 9 for these tokens, got 7",
            lambda: [cache := KVCache(7), *(cache.append(*random_pair(n)) for n in (5, 4))],
        ),
        (
            ValueError,
            r"value must be \(2, 3, 'L', 5\) as before, got \(2, 3, 1, 4\)",
            lambda: two_calls(lambda key, value: (key, key)),
        ),
        (
            ValueError,
            "key must be torch.float32 on cpu as before, got torch.float64 on cpu",
            lambda: two_calls(lambda key, value: (key.double(), value.double())),
        ),
        (
            ValueError,
            r"key must have 4 axes, got shape \(3, 1, 4\)",
            lambda: two_calls(lambda key, value: (key[0], value[0])),
        ),
    ],
)
def test_what_a_cache_refuses(error, text, use):
    with pytest.raises(error, match=text):
        use()


def two_calls(change):
    cache = KVCache(9)
    cache.append(*random_pair(3))
    cache.append(*change(*random_pair(1)))


def streamed(query, key, value, sinks, window, position, slopes):
    """Query by query, in loops: gather what is seen, count positions there, softmax."""
    group = query.shape[1] // key.shape[1]
    outputs = torch.empty(*query.shape[:3], value.shape[-1], dtype=query.dtype)
    for h in range(query.shape[1]):
        for i in range(query.shape[2]):
            seen = [j for j in range(i + 1) if j < sinks or j > i - window]
            keys = key[:, h // group, seen]  # (B, n, D)
            new = query[:, h, i : i + 1]  # (B, 1, D)
            if position == "rotary":
                keys = turned(keys, range(len(seen)))
                new = turned(new, [len(seen) - 1])
            scores = (new * keys).sum(-1) / D**0.5  # (B, n)
            if position == "alibi":
                scores = scores - slopes[h] * torch.arange(len(seen) - 1, -1, -1)
            weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
            outputs[:, h, i] = (weights[..., None] * value[:, h // group, seen]).sum(1)
    return outputs


def turned(x, positions):
    """Rotary positions as complex numbers, (B, n, D)."""
    speeds = 10_000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    angles = torch.tensor(list(positions), dtype=torch.float64)[:, None] * speeds
    pairs = torch.complex(x[..., : D // 2], x[..., D // 2 :]) * torch.polar(angles * 0 + 1, angles)
    return torch.cat([pairs.real, pairs.imag], dim=-1)


def expected_stream(mha, x, sinks, window, position):
    heads = [
        proj(x).unflatten(-1, (-1, D)).transpose(1, 2)
        for proj in (mha.q_proj, mha.k_proj, mha.v_proj)
    ]
    slopes = getattr(mha.position, "slopes", None)
    return mha.out_proj(
        streamed(*heads, sinks, window, position, slopes).transpose(1, 2).flatten(2)
    )


def stream(mha, x, first, sinks, window):
    """The first tokens at once, the others one by one."""
    cache = KVCache(window=window, sinks=sinks)
    parts = [x[:, :first], *x[:, first:].split(1, dim=1)]
    return torch.cat([mha(part, is_causal=True, cache=cache) for part in parts], dim=1), cache


WITH_SINKS = [(1, 1), (1, 4), (2, 1), (3, 5), (5, 3), (7, 2), (2, 50)]  # sinks, window


@pytest.mark.parametrize(("sinks", "window"), WITH_SINKS)
@pytest.mark.parametrize("name", POSITIONS)
def test_sinks_give_what_loops_give_position_by_position(name, sinks, window):
    mha, x = layer(position=POSITIONS[name]), torch.randn(B, 31, E, dtype=torch.float64)
    expected = expected_stream(mha, x, sinks, window, name)
    room = min(31, sinks + window)  # nothing is dropped in the first call
    for first in sorted({1, 2, sinks, min(sinks + 1, room), (room + 1) // 2, room - 1, room}):
        outputs, cache = stream(mha, x, first, sinks, window)
        torch.testing.assert_close(outputs, expected)
    assert cache.seen == 31 == cache.dropped + len(cache)


@pytest.mark.parametrize(("sinks", "window"), WITH_SINKS)
@pytest.mark.parametrize("chunks", [1, 2, 5, L])
def test_without_positions_any_chunks_give_the_full_pass_with_both_masks(chunks, sinks, window):
    mha, x = layer(), torch.randn(B, L, E, dtype=torch.float64)

    def mask(length, number):
        return window_mask(length, number, window) | sink_mask(length, number, sinks)

    full = mha(x, mask=mask(L, L), is_causal=True)
    cache, outputs = KVCache(window=window, sinks=sinks), []
    for part in x.split(splits(L, chunks), dim=1):
        seen = mask(part.shape[1], len(cache) + part.shape[1])
        outputs.append(mha(part, mask=seen, is_causal=True, cache=cache))
    torch.testing.assert_close(torch.cat(outputs, dim=1), full)


@pytest.mark.parametrize("chunk", [1, 2, 3, 6, 7, 8, 20])
@pytest.mark.parametrize("sinks", [1, 3, 11])
def test_the_first_tokens_are_always_there(sinks, chunk):
    window, cache = 4, KVCache(window=4, sinks=sinks)
    key, value = random_pair(97)
    for at in range(0, 97, chunk):
        new = slice(at, at + chunk)
        kept = cache.append(key[:, :, new], value[:, :, new])
        seen = range(min(at + chunk, 97))
        seen = [j for j in seen if j < sinks or j > at - window]
        torch.testing.assert_close(kept, (key[:, :, seen], value[:, :, seen]))
        assert cache.nbytes == B * H_KV * 2 * (window + sinks) * (D + D_V) * 4
        assert len(cache) == min(cache.seen, sinks + window - 1)


@pytest.mark.parametrize("chunks", [(9, 4, 1, 7), (20, 2, 5)])
@pytest.mark.parametrize("name", ["rotary", "alibi"])
def test_a_chunk_counts_positions_among_what_is_there(name, chunks):
    mha, sinks, window = layer(position=POSITIONS[name]), 2, 5
    x, at = torch.randn(B, sum(chunks), E, dtype=torch.float64), 0
    cache = KVCache(window=window, sinks=sinks)
    for length in chunks:
        seen = [j for j in range(at + length) if j < sinks or j > at - window]
        text = mha(x[:, at : at + length], x[:, seen], is_causal=True)
        output = mha(x[:, at : at + length], is_causal=True, cache=cache)
        torch.testing.assert_close(output, text)
        at += length


def test_moved_sinks_do_not_lose_digits():
    rotary, cache = Rotary(D), KVCache(window=3, sinks=2)
    key, value = torch.randn(2, 1, 1, 1000, D, dtype=torch.bfloat16)
    for t in range(1000):
        turned_key = rotary.rotate(key[:, :, t : t + 1], t)
        keys, _ = cache.append(turned_key, value[:, :, t : t + 1], move=rotary.move)
    expected = rotary.rotate(key[:, :, :2].double(), 995)
    torch.testing.assert_close(keys[:, :, :2].double(), expected, rtol=0.01, atol=0.02)


def test_reset_forgets_the_sinks():
    mha, cache = layer(position=Rotary(D)), KVCache(window=3, sinks=2)
    runs = []
    for _ in range(2):
        x = torch.randn(B, 17, E, dtype=torch.float64)
        cache.reset()
        parts = [mha(part, is_causal=True, cache=cache) for part in x.split(1, dim=1)]
        runs.append(torch.cat(parts, dim=1))
        torch.testing.assert_close(runs[-1], stream(mha, x, 1, 2, 3)[0])
    assert not runs[0].allclose(runs[1])


def test_a_step_with_sinks_copies_only_them():
    cache = KVCache(window=500, sinks=4)
    cache.append(*random_pair(900))
    cache.append(*random_pair(1))
    pair = random_pair(1)
    assert peak_bytes(lambda: cache.append(*pair)) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", POSITIONS)
def test_sinks_in_half_precision(name, dtype):
    mha, x = layer(position=POSITIONS[name]), torch.randn(B, 31, E, dtype=torch.float64)
    expected = expected_stream(mha, x, 2, 5, name)
    outputs, _ = stream(mha.to(dtype), x.to(dtype), 3, 2, 5)
    tolerance = 0.08 if dtype == torch.bfloat16 else 0.01
    assert outputs.dtype == dtype
    torch.testing.assert_close(outputs.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", POSITIONS)
def test_sinks_on_a_gpu(name):
    mha, x = layer(position=POSITIONS[name]), torch.randn(B, 31, E, dtype=torch.float64)
    expected = expected_stream(mha, x, 2, 5, name)
    outputs, _ = stream(mha.cuda(), x.cuda(), 3, 2, 5)
    torch.testing.assert_close(outputs.cpu(), expected)


def test_reset_forgets_the_shape_the_dtype_and_the_positions():
    cache = KVCache(7)
    cache.append(*random_pair(5), positions=torch.arange(5))
    cache.reset()
    assert cache.positions is None
    key, value = torch.randn(2, 3, 1, 4, 6, dtype=torch.float64)  # another batch, heads, width
    kept = cache.append(key, value)
    assert kept[0].equal(key)
    assert kept[1].equal(value)
    assert cache.positions is None
    cache.crop(0)
    cache.append(*random_pair(2), positions=torch.arange(2))
    assert cache.positions.equal(torch.arange(2).expand(B, 2))


@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize("sinks", [0, 2])
def test_a_cache_filled_in_inference_mode_goes_on_outside_of_it(sinks, reorder):
    mha, x = layer(position=Rotary(D)), torch.randn(B, L, E, dtype=torch.float64)
    options = {"window": 4, "sinks": sinks} if sinks else {"max_len": L}
    runs = []
    for mode in (torch.inference_mode, torch.no_grad):
        cache = KVCache(**options)
        with mode():
            parts = [mha(part, is_causal=True, cache=cache) for part in x[:, :9].split(3, dim=1)]
            if reorder:
                cache.reorder(torch.tensor([1, 0]))
        for after in (torch.no_grad, torch.enable_grad):
            with after():
                size = 2 if after is torch.no_grad else 1
                parts += [mha(x[:, cache.seen : cache.seen + size], is_causal=True, cache=cache)]
        runs.append(torch.cat([part.detach().clone() for part in parts], dim=1))
    assert runs[0].equal(runs[1])


CACHED = {
    "keys": (lambda: layer(), lambda: KVCache(L)),
    "sums": (lambda: layer(attend=linear_attention), LinearState),
    "latents": (
        lambda: LatentAttention(
            E, H, kv_lora_rank=8, qk_nope_head_dim=5, qk_rope_head_dim=2
        ).double(),
        lambda: KVCache(L),
    ),
}


@pytest.mark.parametrize("kind", CACHED)
def test_a_cache_is_for_one_layer(kind):
    """A second layer would attend to the first one's keys."""
    make, new = CACHED[kind]
    (one, other), cache = (make() for _ in range(2)), new()
    x = torch.randn(B, 4, E, dtype=torch.float64)
    one(x, is_causal=True, cache=cache)
    message = "cache must hold tokens of this layer only, got one with 4 tokens of another layer"
    with pytest.raises(ValueError, match=f"^{message}$"):
        other(x, is_causal=True, cache=cache)
    assert cache.seen == 4
    one(x, is_causal=True, cache=copy.deepcopy(cache))
    cache.reset()
    fresh = other(x, is_causal=True)
    torch.testing.assert_close(other(x, is_causal=True, cache=cache), fresh)


@pytest.mark.parametrize("kind", few_now(CACHED, 1, of="a cache in a graph", name=str))
@torch.no_grad()
def test_a_cache_goes_through_a_graph(kind):
    make, new = CACHED[kind]
    (mha, cache), x = (make(), new()), torch.randn(B, 6, E, dtype=torch.float64)
    torch._dynamo.reset()
    compiled = torch.compile(mha, fullgraph=True, backend="eager")
    parts = [compiled(part, is_causal=True, cache=cache) for part in x.split([3, 2, 1], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), mha(x, is_causal=True))
    with pytest.raises(ValueError, match=r"^cache must hold tokens of this layer only"):
        make()(x, is_causal=True, cache=cache)


def test_a_cache_of_ones_own_is_used():
    """Whoever copies the class from its page has another one than the layer knows."""

    class Own:
        def __init__(self):
            self.seen, self.kept, self.positions = 0, None, None

        def append(self, key, value, *, move=None, positions=None):
            new = key, value
            old = self.kept or tuple(x[:, :, :0] for x in new)
            self.kept = tuple(torch.cat(pair, dim=2) for pair in zip(old, new, strict=True))
            self.seen += key.shape[2]
            return self.kept

    layer, x = MultiHeadAttention(E - 1, 4, position=Rotary(4)).eval(), torch.randn(B, L, E - 1)
    cache = Own()
    with torch.no_grad():
        steps = [layer(token, is_causal=True, cache=cache) for token in x.split(1, dim=1)]
        torch.testing.assert_close(torch.cat(steps, dim=1), layer(x, is_causal=True))

"""Against the definition token by token, and against Hugging Face's layer of DeepSeek-V4."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mhattn import Rotary
from mhattn.core import rotary_frequencies
from mhattn.variants import (
    compress_rows,
    compressed_attention,
    compressed_mask,
    index_scores,
)

B, L, H, E, D, TURNED = 2, 29, 3, 17, 14, 6
WINDOW, BLOCK, LONG_BLOCK, KEPT = 5, 4, 7, 2
INDEX_HEADS, INDEX_DIM, Q_RANK, GROUPS = 5, 8, 11, 3
BASES = {"main": 100.0, "compress": 1000.0}
KINDS = ("compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention")


def rotary(width, base):
    """Rotary positions of the first pairs alone; the others are not turned."""
    frequencies = torch.zeros(width // 2)
    frequencies[: TURNED // 2] = rotary_frequencies(TURNED, base)
    return Rotary(width, frequencies=frequencies)


def order(width):
    """Where our features stand in theirs, which turn neighbours at the end of a head."""
    rest, turned = torch.arange(width - TURNED), torch.arange(width - TURNED, width)
    cut = (width - TURNED) // 2
    return torch.cat([turned[::2], rest[:cut], turned[1::2], rest[cut:]])


def loaded(layer, prefix, x, width, overlap):
    """The entries of a compressor of theirs, in our order of features, with its norm."""
    own = dict(layer.named_parameters())
    to = order(width)
    columns = torch.cat([to, to + width]) if overlap else to
    kv, gate = (x @ own[f"{prefix}.{name}_proj.weight"][columns].T for name in ("kv", "gate"))
    entries = compress_rows(kv, gate, own[f"{prefix}.position_bias"][:, columns], overlap=overlap)
    return F.rms_norm(entries, (width,), own[f"{prefix}.kv_norm.weight"][to], 1e-6)


def ours(layer, x, kind, start=0, steps=None):
    """Their layer in our functions: for the last ``steps`` queries, of rows from ``start`` on."""
    steps = x.shape[1] if steps is None else steps
    own = dict(layer.named_parameters())
    block = {KINDS[0]: BLOCK, KINDS[1]: LONG_BLOCK, KINDS[2]: BLOCK}[kind]
    to, last = order(D), x[:, -steps:]
    latent = F.rms_norm(last @ own["q_a_proj.weight"].T, (Q_RANK,), own["q_a_norm.weight"], 1e-6)
    query = (latent @ own["q_b_proj.weight"].T).unflatten(-1, (H, D))[..., to].transpose(1, 2)
    query = F.rms_norm(query, (D,), eps=1e-6)
    row = x[:, start:] @ own["kv_proj.weight"][to].T
    row = F.rms_norm(row, (D,), own["kv_norm.weight"][to], 1e-6)[:, None]
    entry, choice = row[..., :0, :], {}
    if kind != KINDS[2]:
        entry = loaded(layer, "compressor", x, D, overlap=kind == KINDS[0])[:, None]
    if kind == KINDS[0]:
        index = order(INDEX_DIM)
        small = (latent @ own["compressor.indexer.q_b_proj.weight"].T).unflatten(
            -1, (-1, INDEX_DIM)
        )
        small = small[..., index].transpose(1, 2)
        places = torch.arange(x.shape[1] - steps, x.shape[1])
        turn = rotary(INDEX_DIM, BASES["compress"])
        keys = loaded(layer, "compressor.indexer", x, INDEX_DIM, overlap=True)
        keys = turn.rotate(keys[:, None], positions=block * torch.arange(keys.shape[1]))[:, 0]
        weights = last @ own["compressor.indexer.scorer.weights_proj.weight"].T
        scores = index_scores(turn.rotate(small, positions=places), keys, weights)
        choice = {"scores": scores[:, None], "k": KEPT}
    sizes = (steps, row.shape[-2], entry.shape[-2])
    mask = compressed_mask(*sizes, window=WINDOW, block=block, start=start, **choice)
    turn = rotary(D, BASES["main" if kind == KINDS[2] else "compress"])
    options = {"block": block, "start": start, "sinks": own["sinks"]}
    heads = compressed_attention(query, row, entry, mask, turn, **options)
    back = torch.empty_like(heads)
    back[..., to] = heads  # to their order
    groups = back.transpose(1, 2).reshape(B, steps, GROUPS, -1)
    return layer.o_b_proj(layer.o_a_proj(groups).flatten(2))


def theirs(kind):
    # transformers takes seconds to load: not while tests are collected
    from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4Attention

    config = DeepseekV4Config(
        hidden_size=E,
        num_attention_heads=H,
        head_dim=D,
        qk_rope_head_dim=TURNED,
        q_lora_rank=Q_RANK,
        o_groups=GROUPS,
        o_lora_rank=5,
        num_hidden_layers=1,
        layer_types=[kind],
        mlp_layer_types=["moe"],
        compress_rates={KINDS[0]: BLOCK, KINDS[1]: LONG_BLOCK},
        sliding_window=WINDOW,
        index_n_heads=INDEX_HEADS,
        index_head_dim=INDEX_DIM,
        index_topk=KEPT,
        rope_theta=BASES["main"],
        compress_rope_theta=BASES["compress"],
        attn_implementation="eager",
    )
    # The indexer turns as many features as the layer, so their share of its width is its own.
    layer = DeepseekV4Attention(config, 0).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.7)
    return config, layer.requires_grad_(False)


def called(config, layer, x, cache=None, past=0):
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4RotaryEmbedding

    places = torch.arange(past, past + x.shape[1]).expand(B, -1)
    rope = DeepseekV4RotaryEmbedding(config)
    turns = {name: rope(x, places, layer_type=name) for name in BASES}
    first = max(0, past - WINDOW + 1) if cache is not None else 0
    keys = torch.arange(first, past + x.shape[1])
    own = places[0][:, None]
    seen = (keys <= own) & (keys > own - WINDOW)
    mask = torch.zeros(seen.shape).masked_fill(~seen, -math.inf).expand(B, 1, -1, -1)
    return layer(x, turns, places, mask, past_key_values=cache)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_equals_deepseek_v4_in_one_pass(kind, seed):
    torch.manual_seed(seed)
    config, layer = theirs(kind)
    x = torch.randn(B, L, E)
    torch.testing.assert_close(ours(layer, x, kind), called(config, layer, x), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_deepseek_v4_token_by_token_with_its_cache(kind):
    from transformers.cache_utils import DynamicCache

    config, layer = theirs(kind)
    x = torch.randn(B, L, E)
    cache = DynamicCache(config=config)
    steps = [called(config, layer, x[:, :10], cache)]
    steps += [called(config, layer, x[:, i : i + 1], cache, past=i) for i in range(10, L)]
    expected = torch.cat(steps, dim=1)
    torch.testing.assert_close(ours(layer, x, kind), expected, atol=1e-5, rtol=0)
    for i in range(10, L):  # only the rows of the window are there
        one = ours(layer, x[:, : i + 1], kind, start=i + 1 - WINDOW, steps=1)
        torch.testing.assert_close(one, expected[:, i : i + 1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_token_behind_a_query_reaches_it(kind):
    _, layer = theirs(kind)
    x = torch.randn(B, L, E)
    for place in (3, 8, 19, 27):  # a change of the last token of a block, and of others
        other = x.clone()
        other[:, place:] = torch.randn(B, L - place, E)
        before, after = (ours(layer, given, kind) for given in (x, other))
        torch.testing.assert_close(before[:, :place], after[:, :place])
        assert (before[:, place] - after[:, place]).abs().max() > 1e-3


def written_out(rows, gates, bias, overlap):
    """Entry by entry and feature by feature."""
    block, width = bias.shape[0], rows.shape[-1] // (2 if overlap else 1)
    entries = []
    for n in range(len(rows) // block):
        entry = []
        for feature in range(width):
            own = range(n * block, (n + 1) * block)
            at = [(i, i % block, feature + width * overlap) for i in own]
            if overlap and n:
                at += [(i - block, i % block, feature) for i in own]
            weights = [math.exp(gates[i, c] + bias[j, c]) for i, j, c in at]
            mixed = sum(w * rows[i, c] for w, (i, _, c) in zip(weights, at, strict=True))
            entry.append(mixed / sum(weights))
        entries.append(torch.stack(entry))
    return torch.stack(entries) if entries else rows.new_zeros(0, width)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("length", [3, 4, 7, 8, 23])
def test_entries_are_those_of_the_definition(overlap, length):
    rows, gates = torch.randn(2, length, 6, dtype=torch.float64)
    bias = torch.randn(BLOCK, 6, dtype=torch.float64)
    expected = written_out(rows, gates, bias, overlap)
    torch.testing.assert_close(compress_rows(rows, gates, bias, overlap=overlap), expected)
    batch = compress_rows(
        rows.expand(2, 3, -1, -1), gates.expand(2, 3, -1, -1), bias, overlap=overlap
    )
    torch.testing.assert_close(batch, expected.expand(2, 3, -1, -1))


@pytest.mark.parametrize("start", [0, 3, 11])
@pytest.mark.parametrize("shared", [1, H])
def test_attention_is_that_of_the_definition(start, shared):
    """Head by head and query by query, with angles written out as complex numbers."""
    few, s, n = 3, 7, 1
    query = torch.randn(B, H, few, D, dtype=torch.float64)
    row = torch.randn(B, 1, s, D, dtype=torch.float64)
    entry = torch.randn(B, 1, n, D, dtype=torch.float64)
    sinks = torch.randn(H, dtype=torch.float64)
    mask = torch.rand(B, shared, few, s + n) < 0.6
    turn = rotary(D, 50.0)

    def turned(x, place):
        half, angles = D // 2, turn.frequencies.double() * place
        pairs = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([pairs.real, pairs.imag])

    expected = torch.zeros_like(query)
    for b in range(B):
        seen = [turned(row[b, 0, j], start + j) for j in range(s)]
        seen += [turned(entry[b, 0, j], BLOCK * j) for j in range(n)]
        for h in range(H):
            for i in range(few):
                place = start + s - few + i
                q = turned(query[b, h, i], place)
                allowed = [j for j in range(s + n) if mask[b, h % shared, i, j]]
                powers = {j: math.exp(q @ seen[j] / math.sqrt(D)) for j in allowed}
                total = sum(powers.values()) + math.exp(sinks[h])
                mixed = sum((powers[j] * seen[j] for j in allowed), torch.zeros(D).double()) / total
                expected[b, h, i] = turned(mixed, -place)
    found = compressed_attention(
        query, row, entry, mask, turn, block=BLOCK, start=start, sinks=sinks
    )
    torch.testing.assert_close(found, expected)


def test_a_query_that_sees_nothing_gets_zeros():
    query, row = torch.randn(1, 2, 3, 4), torch.randn(1, 1, 3, 4, requires_grad=True)
    mask = torch.zeros(3, 3, dtype=torch.bool)
    mask[1, 0] = True
    for sinks in (None, torch.randn(2)):
        found = compressed_attention(
            query, row, row[:, :, :0], mask, Rotary(4), block=2, sinks=sinks
        )
        assert not found[:, :, [0, 2]].any()
        assert found[:, :, 1].all()
        (gradient,) = torch.autograd.grad(found.sum(), row)
        assert gradient.isfinite().all()


def test_mask_is_that_of_the_definition():
    few, s, n, start, scores = 5, 9, 3, 4, torch.randn(2, 5, 3)
    for given in (None, scores):
        choice = {} if given is None else {"scores": given, "k": KEPT}
        mask = compressed_mask(few, s, n, window=WINDOW, block=BLOCK, start=start, **choice)
        mask = mask.expand(2, few, s + n)
        for b in range(2):
            for i in range(few):
                place = start + s - few + i
                for j in range(s):
                    assert mask[b, i, j] == (0 <= place - start - j < WINDOW)
                complete = [j for j in range(n) if BLOCK * (j + 1) - 1 <= place]
                if given is not None:
                    complete = sorted(complete, key=lambda j: -scores[b, i, j].item())[:KEPT]
                assert mask[b, i, s:].nonzero().flatten().tolist() == sorted(complete)


X, BIAS = torch.zeros(7, 4), torch.zeros(3, 4)
QUERY, ROW, MASK = (
    torch.zeros(1, 2, 3, 4),
    torch.zeros(1, 1, 3, 4),
    torch.ones(3, 4, dtype=torch.bool),
)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: compress_rows(X.int(), X, BIAS), TypeError, "rows"),
        (lambda: compress_rows(X, X[:6], BIAS), ValueError, r"gates must be \(7, 4\) as rows, got"),
        (
            lambda: compress_rows(X, X, BIAS[:0]),
            ValueError,
            r"bias must be \(block, 4\), .* got \(0",
        ),
        (lambda: compress_rows(X, X, BIAS[:, :3]), ValueError, r"bias must be .*, got \(3, 3\)"),
        (
            lambda: compress_rows(X[:, :3], X[:, :3], BIAS[:, :3], overlap=True),
            ValueError,
            "with overlap, the last axis of rows must be even, got 3",
        ),
        (lambda: compressed_mask(3, 2, 0, window=1, block=1), ValueError, "S must be .* 3, got 2"),
        (lambda: compressed_mask(3, 5, 3, window=1, block=2), ValueError, "N .* blocks, 2, got 3"),
        (lambda: compressed_mask(3, 5, 1, window=0, block=2), ValueError, "window .* got 0"),
        (lambda: compressed_mask(3, 5, 1, window=1, block=2.0), TypeError, "block"),
        (lambda: compressed_mask(3, 5, 2, window=1, block=2, k=1), ValueError, "got only k"),
        (
            lambda: compressed_mask(3, 5, 2, window=1, block=2, k=1, scores=torch.zeros(3, 1)),
            ValueError,
            r"scores must be \(..., L, N\) = \(..., 3, 2\), got \(3, 1\)",
        ),
        (
            lambda: compressed_attention(QUERY, QUERY, ROW[:, :, :1], MASK, Rotary(4), block=2),
            ValueError,
            r"row must be \(1, 1, any, 4\), got",
        ),
        (
            lambda: compressed_attention(QUERY, ROW, ROW[:, :, :2], MASK, Rotary(4), block=2),
            ValueError,
            "N must be at most the number of complete blocks, 1, got 2",
        ),
        (
            lambda: compressed_attention(
                QUERY, ROW, ROW[:, :, :1], MASK, Rotary(4), block=2, sinks=torch.zeros(3)
            ),
            ValueError,
            r"sinks must be \(H,\) = \(2,\), got \(3,\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()

"""Frequencies of rotary positions against transformers, closed forms and a layer of Llama."""

import math
from functools import partial

import pytest
import torch

from mhattn import MultiHeadAttention, Rotary, attention
from mhattn.core import (
    llama3_frequencies,
    ntk_base,
    rotary_frequencies,
    yarn_frequencies,
    yarn_scale,
)

# head_dim, base, factor, tokens in training: small and large, with ramps inside and at the ends
SETTINGS = [
    (16, 10_000.0, 8.0, 32),
    (22, 37.0, 1.0, 101),
    (64, 150_000.0, 32.0, 4096),
    (128, 500_000.0, 8.0, 8192),
    (14, 1e6, 3.5, 4099),
    (26, 10_000.0, 2.0, 10**6),
]
settings = pytest.mark.parametrize(("head_dim", "base", "factor", "length"), SETTINGS)


def config(kind, head_dim, base, factor, length, **more):
    """Of two heads; transformers fills in and checks the rest."""
    from transformers import LlamaConfig  # takes seconds: not while tests are collected

    parameters = {"rope_type": kind, "rope_theta": base, "factor": factor, **more}
    if kind in ("yarn", "llama3"):
        parameters["original_max_position_embeddings"] = length
    return LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        head_dim=head_dim,
        max_position_embeddings=round(length * (1 if kind == "dynamic" else factor)),
        rope_parameters=parameters,
    )


def theirs(kind, *given, seq_len=None, **more):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    found, factor = ROPE_INIT_FUNCTIONS[kind](config(kind, *given, **more), "cpu", seq_len=seq_len)
    return found.double(), factor


def assert_close(found, expected):
    """Theirs are computed in float32."""
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@settings
def test_interpolation_is_theirs(head_dim, base, factor, length):
    expected, _ = theirs("linear", head_dim, base, factor, length)
    assert_close(rotary_frequencies(head_dim, base) / factor, expected)


@settings
def test_ntk_is_theirs_at_the_new_length(head_dim, base, factor, length):
    """Theirs grows with the sequence; its own factor of 1 leaves the growth alone."""
    given = head_dim, base, 1.0, length
    expected, _ = theirs("dynamic", *given, seq_len=round(factor * length))
    grown = round(factor * length) / length
    assert_close(rotary_frequencies(head_dim, ntk_base(base, grown, head_dim)), expected)


@pytest.mark.parametrize("whole_pairs", [True, False])
@pytest.mark.parametrize(("slow", "fast"), [(1.0, 32.0), (0.7, 5.0)])
@settings
def test_yarn_is_theirs(head_dim, base, factor, length, slow, fast, whole_pairs):
    more = {"beta_slow": slow, "beta_fast": fast, "truncate": whole_pairs}
    expected, growth = theirs("yarn", head_dim, base, factor, length, **more)
    turns = {"slow": slow, "fast": fast, "whole_pairs": whole_pairs}
    assert_close(yarn_frequencies(head_dim, base, factor, length, **turns), expected)
    assert yarn_scale(head_dim, factor) == pytest.approx(growth**2 / math.sqrt(head_dim))


@pytest.mark.parametrize(("slow", "fast"), [(1.0, 4.0), (0.3, 11.0)])
@settings
def test_llama3_is_theirs(head_dim, base, factor, length, slow, fast):
    more = {"low_freq_factor": slow, "high_freq_factor": fast}
    expected, _ = theirs("llama3", head_dim, base, factor, length, **more)
    found = llama3_frequencies(head_dim, base, factor, length, slow=slow, fast=fast)
    assert_close(found, expected)


def test_defaults_are_those_of_the_papers():
    given = 64, 10_000.0, 8.0, 4096
    assert_close(yarn_frequencies(*given), theirs("yarn", *given)[0])
    llama = theirs("llama3", *given, low_freq_factor=1.0, high_freq_factor=4.0)[0]
    assert_close(llama3_frequencies(*given), llama)
    assert_close(rotary_frequencies(64), theirs("linear", 64, 10_000.0, 1.0, 7)[0])


@settings
def test_ntk_keeps_the_fastest_and_slows_the_slowest_by_the_factor(head_dim, base, factor, length):
    before = rotary_frequencies(head_dim, base)
    after = rotary_frequencies(head_dim, ntk_base(base, factor, head_dim))
    assert after[0] == before[0] == 1
    assert (before[-1] / after[-1]).item() == pytest.approx(factor)


@pytest.mark.parametrize("function", [yarn_frequencies, llama3_frequencies])
@settings
def test_ramps_run_from_unchanged_to_the_whole_factor(function, head_dim, base, factor, length):
    before = rotary_frequencies(head_dim, base)
    ratio = before / function(head_dim, base, factor, length)
    assert ((ratio >= 1 - 1e-12) & (ratio <= factor + 1e-12)).all()
    assert (ratio.diff() >= -1e-12).all()
    turns = length * before / (2 * math.pi)
    torch.testing.assert_close(ratio[turns < 1e-3 / 2], factor + 0 * ratio[turns < 1e-3 / 2])
    torch.testing.assert_close(ratio[turns > 1000], 1 + 0 * ratio[turns > 1000])


@pytest.mark.parametrize("kind", ["linear", "yarn", "llama3"])
def test_a_layer_equals_llamas_with_copied_weights(kind):
    """Queries and keys grow with YaRN there; here, the scale does."""
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    head_dim, base, factor = 14, 500.0, 8.0
    given = head_dim, base, factor, 29
    more = {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if kind == "llama3" else {}
    llama = config(kind, *given, **more)
    llama._attn_implementation = "eager"
    layer, rotary = LlamaAttention(llama, layer_idx=0), LlamaRotaryEmbedding(llama)
    slower = {
        "linear": rotary_frequencies(head_dim, base) / factor,
        "yarn": yarn_frequencies(*given),
        "llama3": llama3_frequencies(*given),
    }
    scale = yarn_scale(head_dim, factor) if kind == "yarn" else None

    attend = partial(attention, scale=scale)
    position = Rotary(head_dim, frequencies=slower[kind])
    ours = MultiHeadAttention(
        2 * head_dim, 2, num_kv_heads=2, bias=False, attend=attend, position=position
    )
    names = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "out_proj": "o_proj"}
    with torch.no_grad():
        for mine, other in names.items():
            getattr(ours, mine).weight.copy_(getattr(layer, other).weight)
    x = torch.randn(3, 211, 2 * head_dim)
    turns = rotary(x, torch.arange(211)[None])
    ahead = torch.full((211, 211), -torch.inf).triu(1)
    expected, _ = layer(x, turns, ahead)
    torch.testing.assert_close(ours(x, is_causal=True), expected, rtol=1e-4, atol=1e-5)
    plain = MultiHeadAttention(2 * head_dim, 2, bias=False, position=Rotary(head_dim, base))
    plain.load_state_dict(ours.state_dict())
    assert not torch.allclose(plain(x, is_causal=True), expected, atol=1e-3)


def test_pairs_that_do_not_turn_are_partial_rotary_positions():
    """Six of fourteen features turn, among themselves; the others stay as they are."""
    zeros = torch.zeros(4, dtype=torch.float64)
    frequencies = torch.cat([rotary_frequencies(6), zeros])
    x = torch.randn(2, 3, 5, 14, dtype=torch.float64)
    turned = Rotary(14, frequencies=frequencies).rotate(x, start=11)
    chosen = [0, 1, 2, 7, 8, 9]
    expected = x.clone()
    expected[..., chosen] = Rotary(6).rotate(x[..., chosen], start=11)
    torch.testing.assert_close(turned, expected)


def test_gpt_neox_and_qwen3_next_pair_inside_the_turned_part_and_gemma4_the_whole_head():
    """`longer.md` says so: the first two need their features reordered, the third doesn't."""
    from transformers import Gemma4TextConfig, GPTNeoXConfig, Qwen3NextConfig
    from transformers.models.gemma4 import modeling_gemma4 as gemma4
    from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next

    sizes = {"hidden_size": 48, "num_attention_heads": 3}
    places = torch.arange(11)[None]
    x = torch.randn(2, 3, 11, 16)
    whole = Rotary(16, frequencies=torch.cat([rotary_frequencies(4), torch.zeros(6)]))
    order = [0, 1, *range(4, 10), 2, 3, *range(10, 16)]
    for module, turns in (
        (gpt_neox, gpt_neox.GPTNeoXRotaryEmbedding(GPTNeoXConfig(**sizes, rotary_pct=0.25))),
        (
            qwen3_next,
            qwen3_next.Qwen3NextRotaryEmbedding(Qwen3NextConfig(**sizes, head_dim=16)),
        ),
    ):
        theirs, _ = module.apply_rotary_pos_emb(x, x, *turns(x, places))
        ours = whole.rotate(x[..., order])
        torch.testing.assert_close(ours, theirs[..., order], rtol=1e-4, atol=1e-5)
        assert (whole.rotate(x) - theirs).abs().max() > 1
    config = Gemma4TextConfig(**sizes, head_dim=16, global_head_dim=16)
    turns = gemma4.Gemma4TextRotaryEmbedding(config)
    cos, sin = turns(x, places, "full_attention")
    frequencies = turns.full_attention_inv_freq
    assert (frequencies == 0).sum() == 6
    theirs = gemma4.apply_rotary_pos_emb(x, cos, sin)
    ours = Rotary(16, frequencies=frequencies).rotate(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_frequencies_replace_those_of_the_base():
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    given = Rotary(6, frequencies=rotary_frequencies(6, 37.0))
    torch.testing.assert_close(given.rotate(x, 4), Rotary(6, 37.0).rotate(x, 4))
    torch.testing.assert_close(given.frequencies, Rotary(6, 37.0).frequencies)
    slower = Rotary(6, frequencies=rotary_frequencies(6) / 4)
    torch.testing.assert_close(slower.rotate(x[..., :1, :], 12), Rotary(6).rotate(x[..., :1, :], 3))
    half = Rotary(6, frequencies=rotary_frequencies(6) / 4).half()
    assert half.rotate(x, 4).equal(slower.rotate(x, 4))


def test_moving_by_slower_turns_adds_up():
    rotary = Rotary(6, frequencies=rotary_frequencies(6) / 4)
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(rotary.move(rotary.rotate(x, 7), 5), rotary.rotate(x, 12))


@pytest.mark.parametrize(
    ("error", "text", "use"),
    [
        (ValueError, "head_dim must be even, got 7", lambda: rotary_frequencies(7)),
        (TypeError, "head_dim must be an integer, got float", lambda: rotary_frequencies(8.0)),
        (ValueError, "base must be greater than 1, got 1", lambda: rotary_frequencies(8, 1)),
        (ValueError, "head_dim must be at least 4, got 2", lambda: ntk_base(10.0, 2, 2)),
        (ValueError, "factor must be at least 1, got 0.5", lambda: ntk_base(10.0, 0.5, 8)),
        (ValueError, "factor must be at least 1, got nan", lambda: yarn_scale(8, math.nan)),
        (ValueError, "factor must be at least 1, got 0", lambda: yarn_frequencies(8, 10.0, 0, 9)),
        (
            ValueError,
            "length must be greater than 0, got 0",
            lambda: llama3_frequencies(8, 10.0, 2, 0),
        ),
        (
            ValueError,
            "slow and fast must be in order and positive, got 4.0 and 4.0",
            lambda: llama3_frequencies(8, 10.0, 2, 9, slow=4.0),
        ),
        (
            ValueError,
            "slow and fast must be in order and positive, got 0 and 32.0",
            lambda: yarn_frequencies(8, 10.0, 2, 9, slow=0),
        ),
        (
            ValueError,
            r"frequencies must be \(head_dim / 2,\) = \(4,\), got \(3,\)",
            lambda: Rotary(8, frequencies=torch.ones(3)),
        ),
        (
            TypeError,
            "frequencies must be a tensor of floats, got list",
            lambda: Rotary(4, frequencies=[1.0, 0.1]),
        ),
        (
            TypeError,
            "frequencies must be a tensor of floats, got torch.int64",
            lambda: Rotary(4, frequencies=torch.tensor([1, 0])),
        ),
        (
            ValueError,
            r"frequencies must be from 0 to less than pi, got \[1.0, -1.0\]",
            lambda: Rotary(4, frequencies=torch.tensor([1.0, -1.0])),
        ),
        (
            ValueError,
            r"frequencies must be from 0 to less than pi, got \[nan, 4.0\]",
            lambda: Rotary(4, frequencies=torch.tensor([math.nan, 4.0])),
        ),
        (
            ValueError,
            r"frequencies must be from 0 to less than pi, got \[4.0, 0.5\]",
            lambda: Rotary(4, frequencies=torch.tensor([4.0, 0.5])),
        ),
    ],
)
def test_what_frequencies_refuse(error, text, use):
    with pytest.raises(error, match=text):
        use()


@pytest.mark.parametrize("whole_pairs", [True, False])
@pytest.mark.parametrize(("length", "base"), [(3, 1e4), (0.1, 1e4), (6, 1e4), (1e6, 10.0)])
def test_pairs_beyond_both_ends_of_the_ramp(length, base, whole_pairs):
    """All pairs make fewer than one turn, or all more than 32: the whole factor, or none of it."""
    frequencies = rotary_frequencies(64, base)
    turns = length * frequencies / (2 * math.pi)
    assert (turns < 1).all() or (turns > 32).all()
    expected = frequencies / 4 if length < 7 else frequencies
    slower = yarn_frequencies(64, base, 4, length, whole_pairs=whole_pairs)
    torch.testing.assert_close(slower, expected)


@pytest.mark.parametrize("make", [yarn_frequencies, llama3_frequencies])
@pytest.mark.parametrize("given", [{"length": math.inf}, {"length": 9, "fast": math.inf}], ids=str)
def test_an_endless_training_is_refused(make, given):
    with pytest.raises(ValueError, match=r"^length and fast must be finite, got "):
        make(64, 10_000.0, 4, **given)

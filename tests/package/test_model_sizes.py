"""Known models: entered twice, counted by hand and by torch."""

import dataclasses
import importlib.resources
import itertools
import tomllib
from collections import deque
from fractions import Fraction

import pytest
import torch

from mhattn import MultiHeadAttention, attention_cost, known_model, known_models

KNOWN = [known_model(name) for name in known_models()]
each_model = pytest.mark.parametrize("model", KNOWN, ids=lambda model: model.name)

# Layers, width, heads, key-value heads, head size: entered a second time, from the sources.
SECOND_ENTRY = """
transformer-base 6 512 8 8 64       transformer-big 6 1024 16 16 64
bert-base 12 768 12 12 64           bert-large 24 1024 16 16 64
gpt-2-124m 12 768 12 12 64          gpt-2-355m 24 1024 16 16 64
gpt-2-774m 36 1280 20 20 64         gpt-2-1558m 48 1600 25 25 64
gpt-3-small 12 768 12 12 64         gpt-3-medium 24 1024 16 16 64
gpt-3-large 24 1536 16 16 96        gpt-3-xl 24 2048 24 24 128
gpt-3-2.7b 32 2560 32 32 80         gpt-3-6.7b 32 4096 32 32 128
gpt-3-13b 40 5140 40 40 128         gpt-3-175b 96 12288 96 96 128
t5-small 6 512 8 8 64               t5-base 12 768 12 12 64
t5-large 24 1024 16 16 64           t5-3b 24 1024 32 32 128
t5-11b 24 1024 128 128 128          t5-1.1-small 8 512 6 6 64
t5-1.1-xl 24 2048 32 32 64          t5-1.1-xxl 24 4096 64 64 64
llama-2-7b 32 4096 32 32 128        llama-2-13b 40 5120 40 40 128
llama-2-70b 80 8192 64 8 128        llama-3.1-8b 32 4096 32 8 128
llama-3.1-70b 80 8192 64 8 128      llama-3.1-405b 126 16384 128 8 128
llama-3.2-1b 16 2048 32 8 64        llama-3.2-3b 28 3072 24 8 128
mistral-7b-v0.1 32 4096 32 8 128    mistral-7b-v0.3 32 4096 32 8 128
mixtral-8x7b 32 4096 32 8 128       mixtral-8x22b 56 6144 48 8 128
falcon-7b 32 4544 71 1 64           falcon-40b 60 8192 128 8 64
gemma-2b 18 2048 8 1 256            gemma-7b 28 3072 16 16 256
gemma-2-2b 26 2304 8 4 256          gemma-2-9b 42 3584 16 8 256
gemma-2-27b 46 4608 32 16 128       gemma-3-1b 26 1152 4 1 256
gemma-3-4b 34 2560 8 4 256          gemma-3-12b 48 3840 16 8 256
gemma-3-27b 62 5376 32 16 128       qwen2.5-0.5b 24 896 14 2 64
qwen2.5-1.5b 28 1536 12 2 128       qwen2.5-3b 36 2048 16 2 128
qwen2.5-7b 28 3584 28 4 128         qwen2.5-14b 48 5120 40 8 128
qwen2.5-32b 64 5120 40 8 128        qwen2.5-72b 80 8192 64 8 128
qwen3-0.6b 28 1024 16 8 128         qwen3-1.7b 28 2048 16 8 128
qwen3-4b 36 2560 32 8 128           qwen3-8b 36 4096 32 8 128
qwen3-14b 40 5120 40 8 128          qwen3-32b 64 5120 64 8 128
qwen3-30b-a3b 48 2048 32 4 128      qwen3-235b-a22b 94 4096 64 4 128
deepseek-v2 60 5120 128 128 192     deepseek-v3 61 7168 128 128 192
"""

# KiB for one token in bfloat16, counted by hand.
KIB = {
    "llama-2-7b": 512,
    "llama-2-70b": 320,
    "llama-3.1-8b": 128,
    "llama-3.1-405b": 504,
    "mistral-7b-v0.1": 128,
    "qwen3-32b": 256,
    "gemma-2b": 18,
    "gemma-7b": 448,
    "gpt-3-175b": 4608,
    "falcon-7b": 8,
    "deepseek-v2": Fraction(135, 2),
    "deepseek-v3": Fraction(549, 8),
}
UNCONVENTIONAL = """
t5-3b t5-11b t5-1.1-small gemma-7b gemma-2-2b gemma-2-9b gemma-2-27b gemma-3-1b gemma-3-4b
gemma-3-12b gemma-3-27b qwen3-0.6b qwen3-4b qwen3-32b qwen3-30b-a3b qwen3-235b-a22b deepseek-v2
deepseek-v3 gpt-3-xl gpt-3-13b
"""


# The data


def test_both_entries_agree():
    fields = ("layers", "embed_dim", "num_heads", "num_kv_heads", "head_dim")
    first = [[m.name, *(str(getattr(m, field)) for field in fields)] for m in KNOWN]
    assert [*itertools.chain(*first)] == SECOND_ENTRY.split()


@each_model
def test_every_model_is_complete(model):
    assert model.name == model.name.lower()
    assert model.title.startswith((model.family, "Mixtral"))
    assert model.kind in ("encoder", "decoder", "encoder-decoder")
    assert model.source_kind in ("owner", "library", "paper")
    assert model.source.startswith(("https://github.com/", "https://arxiv.org/abs/"))
    assert model.source.startswith("https://arxiv.org/") == (model.source_kind == "paper")
    assert model.num_heads % model.num_kv_heads == 0
    assert (model.window is None) == (model.global_layers is None)
    sizes = [getattr(model, f.name) for f in dataclasses.fields(model) if "int" in str(f.type)]
    assert all(size is None or type(size) is int for size in sizes)


def test_titles_differ_and_families_stand_together():
    assert len({model.title for model in KNOWN}) == len(KNOWN)
    families = [family for family, _ in itertools.groupby(m.family for m in KNOWN)]
    assert len(families) == len(set(families)) == 11


def test_numbers_that_were_not_read_in_code_are_marked():
    assert {m.family for m in KNOWN if m.source_kind == "paper"} == {"Transformer", "GPT-3"}
    assert {m.source for m in KNOWN if "litgpt" in m.source or "nanoGPT" in m.source} == {
        m.source for m in KNOWN if m.source_kind == "library"
    }


def test_encoders_and_encoder_decoders():
    kinds = {m.family: m.kind for m in KNOWN if m.kind != "decoder"}
    encoder_decoder = dict.fromkeys(["Transformer", "T5"], "encoder-decoder")
    assert kinds == {"BERT": "encoder"} | encoder_decoder


def test_data_is_shipped_beside_the_code():
    data = importlib.resources.files("mhattn") / "model_sizes.toml"
    assert tuple(tomllib.loads(data.read_text(encoding="utf-8"))) == known_models()


def test_a_model_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        known_model("bert-base").num_heads = 16
    with pytest.raises(dataclasses.FrozenInstanceError):
        known_model("deepseek-v3").latent.kv_lora_rank = 1


# What follows


def test_who_breaks_the_convention():
    assert {m.name for m in KNOWN if not m.splits_width} == set(UNCONVENTIONAL.split())
    assert known_model("qwen3-32b").query_width == 8192
    assert known_model("t5-1.1-small").query_width == 384
    assert known_model("deepseek-v3").query_width == 128 * 192


def test_gpt_3_is_quoted_as_its_table_has_it():
    paper = {"gpt-3-xl": (3072, 2048), "gpt-3-13b": (5120, 5140)}
    for name, sizes in paper.items():
        model = known_model(name)
        assert (model.query_width, model.embed_dim) == sizes
        assert model.embed_dim % model.num_heads


def test_groups_by_hand():
    sizes = {"llama-2-7b": 1, "gemma-2-9b": 2, "llama-3.1-8b": 4, "falcon-7b": 71, "falcon-40b": 16}
    assert {name: known_model(name).group_size for name in sizes} == sizes
    kinds = {"llama-2-13b": "MHA", "llama-2-70b": "GQA", "gemma-3-1b": "MQA", "deepseek-v2": "MLA"}
    assert {name: known_model(name).attention for name in kinds} == kinds


@pytest.mark.parametrize(("name", "kib"), KIB.items())
def test_cache_by_hand(name, kib):
    model = known_model(name)
    assert model.kv_cache_bytes_per_token() == kib * 1024
    assert model.kv_cache_bytes_per_token(1) * 2 == kib * 1024
    assert isinstance(model.kv_cache_bytes_per_token(), int)


def test_an_encoder_keeps_no_cache():
    assert known_model("bert-base").kv_cache_bytes_per_token() == 0
    assert known_model("t5-base").kv_cache_bytes_per_token() == 12 * 2 * 12 * 64 * 2


@pytest.mark.parametrize("model", [m for m in KNOWN if not m.latent], ids=lambda model: model.name)
def test_projections_are_torchs(model):
    """A layer of the package with these sizes; latent attention is counted by hand below."""
    sizes = {"num_kv_heads": model.num_kv_heads, "head_dim": model.head_dim, "bias": False}
    with torch.device("meta"):
        layer = MultiHeadAttention(model.embed_dim, model.num_heads, **sizes)
    weights = sum(parameter.numel() for parameter in layer.parameters())
    cost = attention_cost(model.embed_dim, model.num_heads, query_len=1, **sizes)
    times = 3 if model.kind == "encoder-decoder" else 1
    assert model.attention_parameters == times * model.layers * weights
    assert weights == cost.parameters
    if model.kind != "encoder":
        kept = layer.k_proj.out_features + layer.v_proj.out_features
        assert model.cached_per_layer == kept
        assert model.kv_cache_bytes_per_token(4) == model.layers * kept * 4


def test_parameters_by_hand():
    assert known_model("gpt-3-175b").attention_parameters == 96 * 4 * 12_288**2 == 57_982_058_496
    assert known_model("t5-11b").attention_parameters == (24 + 2 * 24) * 4 * 1024 * 16_384
    assert known_model("llama-3.1-8b").attention_parameters == 32 * (2 * 4096**2 + 2 * 4096 * 1024)


def test_latent_attention_by_hand():
    """DeepSeek-V3, matrix by matrix: queries down and up, keys and values down and up, output."""
    model = known_model("deepseek-v3")
    queries = 7168 * 1536 + 1536 * 128 * (128 + 64)
    keys_and_values = 7168 * (512 + 64) + 512 * 128 * (128 + 128)
    assert model.attention_parameters == 61 * (queries + keys_and_values + 128 * 128 * 7168)
    assert model.attention_parameters == 61 * 187_105_280
    assert (model.head_dim, model.v_head_dim, model.cached_per_layer) == (192, 128, 576)
    assert known_model("llama-2-7b").v_head_dim == 128
    assert known_model("deepseek-v2").cached_per_layer == Fraction(9, 2) * 128  # Table 1 of V2


# Windows


def test_layers_without_a_window():
    for model in KNOWN:
        if model.name.startswith("gemma-2-"):  # every second layer
            assert (model.window, 2 * model.global_layers) == (4096, model.layers)
        elif model.name.startswith("gemma-3"):  # every sixth layer
            sixth = [layer for layer in range(model.layers) if (layer + 1) % 6 == 0]
            assert model.window == (512 if model.name == "gemma-3-1b" else 1024)
            assert model.global_layers == len(sixth)
        elif model.name == "mistral-7b-v0.1":
            assert (model.window, model.global_layers) == (4096, 0)
        else:
            assert model.window is None


@pytest.mark.parametrize("name", ["gemma-3-1b", "gemma-3-27b", "qwen2.5-3b", "deepseek-v2"])
@pytest.mark.parametrize("tokens", [1, 511, 512, 513, 1025, 3001])
def test_cache_of_a_sequence_is_what_layers_would_keep(name, tokens):
    model = known_model(name)
    sixth = [model.window is None or (layer + 1) % 6 == 0 for layer in range(model.layers)]
    caches = [deque(range(tokens), maxlen=None if whole else model.window) for whole in sixth]
    numbers = sum(len(cache) for cache in caches) * model.cached_per_layer
    assert model.kv_cache_bytes(tokens) == numbers * 2
    assert model.kv_cache_bytes(tokens, 3) == numbers * 3
    if tokens < 513:
        assert model.kv_cache_bytes(tokens) == tokens * model.kv_cache_bytes_per_token()


# Errors


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (
            "llama-3-8b",
            ValueError,
            "name must be one of known_models(), got 'llama-3-8b'; close: llama-3.1-8b, ",
        ),
        ("BERT-Base", ValueError, "got 'BERT-Base'; close: bert-base"),
        ("zzzz", ValueError, "name must be one of known_models(), got 'zzzz'"),
        (7, TypeError, "name must be a string, got int"),
        (None, TypeError, "name must be a string, got NoneType"),
    ],
)
def test_unknown_names(name, error, message):
    with pytest.raises(error) as raised:
        known_model(name)
    assert message in str(raised.value)
    assert ("close" in str(raised.value)) == ("close" in message)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "tokens must be at least 1, got 0"),
        ((1.5,), TypeError, "tokens must be an integer, got float"),
        ((True,), TypeError, "tokens must be an integer, got bool"),
        ((1, 0), ValueError, "bytes_per_number must be at least 1, got 0"),
        ((1, 0.75), TypeError, "bytes_per_number must be an integer, got float"),
    ],
)
def test_wrong_sizes(arguments, error, message):
    with pytest.raises(error) as raised:
        known_model("gpt-2-124m").kv_cache_bytes(*arguments)
    assert str(raised.value) == message
    if len(arguments) == 2:
        with pytest.raises(error) as raised:
            known_model("gpt-2-124m").kv_cache_bytes_per_token(arguments[1])
        assert str(raised.value) == message

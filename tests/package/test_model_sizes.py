"""Known models: entered twice, counted by hand and by torch."""

import dataclasses
import importlib.resources
import itertools
import re
import tomllib
from collections import deque
from fractions import Fraction

import pytest
import torch

from mhattn import MultiHeadAttention
from mhattn.costs import attention_cost, known_model, known_models

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
llama-4-scout 48 5120 40 8 128      llama-4-maverick 48 5120 40 8 128
mistral-7b-v0.1 32 4096 32 8 128    mistral-7b-v0.3 32 4096 32 8 128
mixtral-8x7b 32 4096 32 8 128       mixtral-8x22b 56 6144 48 8 128
mistral-large-2 88 12288 96 8 128
mistral-small-4 36 4096 32 32 128   ministral-3-8b 34 4096 32 8 128
mistral-large-4 72 6144 64 64 128
falcon-7b 32 4544 71 1 64           falcon-40b 60 8192 128 8 64
gemma-2b 18 2048 8 1 256            gemma-7b 28 3072 16 16 256
gemma-2-2b 26 2304 8 4 256          gemma-2-9b 42 3584 16 8 256
gemma-2-27b 46 4608 32 16 128       gemma-3-1b 26 1152 4 1 256
gemma-3-4b 34 2560 8 4 256          gemma-3-12b 48 3840 16 8 256
gemma-3-27b 62 5376 32 16 128
gemma-4-e2b 35 1536 8 1 256         gemma-4-e4b 42 2560 8 2 256
gemma-4-26b-a4b 30 2816 16 8 256    gemma-4-31b 60 5376 32 16 256
qwen2.5-0.5b 24 896 14 2 64
qwen2.5-1.5b 28 1536 12 2 128       qwen2.5-3b 36 2048 16 2 128
qwen2.5-7b 28 3584 28 4 128         qwen2.5-14b 48 5120 40 8 128
qwen2.5-32b 64 5120 40 8 128        qwen2.5-72b 80 8192 64 8 128
qwen3-0.6b 28 1024 16 8 128         qwen3-1.7b 28 2048 16 8 128
qwen3-4b 36 2560 32 8 128           qwen3-8b 36 4096 32 8 128
qwen3-14b 40 5120 40 8 128          qwen3-32b 64 5120 64 8 128
qwen3-30b-a3b 48 2048 32 4 128      qwen3-235b-a22b 94 4096 64 4 128
qwen3-next-80b-a3b 48 2048 16 2 256 qwen3.5-35b-a3b 40 2048 16 2 256
qwen3.5-9b 32 4096 16 4 256         qwen3.5-27b 64 5120 24 4 256
deepseek-v2 60 5120 128 128 192     deepseek-v3 61 7168 128 128 192
deepseek-v3.2 61 7168 128 128 192   deepseek-v4-flash 43 4096 64 1 512
gpt-oss-20b 24 2880 64 8 64         gpt-oss-120b 36 2880 64 8 64
olmo-2-7b 32 4096 32 32 128         olmo-2-13b 40 5120 40 40 128
olmo-3-7b 32 4096 32 32 128         olmo-3-32b 64 5120 40 8 128
smollm3-3b 36 2048 16 4 128         phi-4 40 5120 40 10 128
phi-4-mini 32 3072 24 8 128         glm-4.5-air 46 4096 96 8 128
glm-4.5 92 5120 96 8 128            glm-4.7-flash 47 2048 20 20 256
glm-5 78 6144 64 64 256             minimax-m2 62 3072 48 8 128
minimax-m3 60 6144 64 4 128         kimi-k2 61 7168 64 64 192
kimi-linear-48b-a3b 27 2304 32 32 192   mimo-v2-flash 48 4096 64 8 192
nemotron-3-nano-30b-a3b 29 2688 32 2 128
hy3-preview 80 4096 64 8 128        solar-open-100b 48 4096 64 8 128
longcat-flash 56 6144 64 64 192     muse-spark-open-816b-a42b 62 8192 128 16 64
inkling 66 6144 64 16 128           seed-oss-36b 64 5120 80 8 128
ernie-4.5-0.3b 18 1024 16 2 128
ernie-4.5-21b-a3b 28 2560 20 4 128
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
    "gpt-oss-120b": 72,
    "gpt-oss-20b": 48,
    "llama-4-scout": 192,
    "olmo-3-7b": 512,
    "olmo-3-32b": 256,
    "smollm3-3b": 72,
    "glm-4.5": 368,
    "glm-4.5-air": 184,
    "minimax-m2": 248,
    "kimi-k2": Fraction(549, 8),
    "mistral-small-4": Fraction(45, 2),
    "qwen3-next-80b-a3b": 24,
    "qwen3.5-35b-a3b": 20,
    "deepseek-v3.2": Fraction(549, 8) + Fraction(61 * 128 * 2, 1024),  # a latent, a key to index
    "glm-5": Fraction(78 * 576 * 2, 1024) + Fraction(78 * 128 * 2, 1024),
    "mistral-large-4": 72 * (512 + 64 + 128) * 2 // 1024,
    "ministral-3-8b": 136,
    "longcat-flash": 2 * 28 * (512 + 64) * 2 // 1024,
    "hy3-preview": 320,
    "muse-spark-open-816b-a42b": 248,
    "inkling": (55 * 16 + 11 * 8) * 2 * 128 * 2 // 1024,
    "seed-oss-36b": 256,
    "ernie-4.5-0.3b": 18,
    "deepseek-v4-flash": Fraction((43 * 512 + 21 * (512 + 128) // 4 + 20 * 512 // 128) * 2, 1024),
    "kimi-linear-48b-a3b": Fraction(7 * (512 + 64) * 2, 1024),
    "mimo-v2-flash": Fraction((39 * 8 + 9 * 4) * (192 + 128) * 2, 1024),
    "minimax-m3": Fraction((60 * 2 * 4 * 128 + 57 * 128) * 2, 1024),
    "nemotron-3-nano-30b-a3b": 6,
    "qwen3.5-27b": 64,
    "glm-4.7-flash": Fraction(47 * (512 + 64) * 2, 1024),
    "gemma-4-31b": 50 * 2 * 16 * 256 * 2 // 1024 + 10 * 2 * 4 * 512 * 2 // 1024,
}
UNCONVENTIONAL = """
t5-3b t5-11b t5-1.1-small gemma-7b gemma-2-2b gemma-2-9b gemma-2-27b gemma-3-1b gemma-3-4b
gemma-3-12b gemma-3-27b qwen3-0.6b qwen3-4b qwen3-32b qwen3-30b-a3b qwen3-235b-a22b deepseek-v2
deepseek-v3 gpt-3-xl gpt-3-13b gemma-4-e2b gemma-4-e4b gemma-4-26b-a4b gemma-4-31b
qwen3-next-80b-a3b qwen3.5-35b-a3b deepseek-v3.2 gpt-oss-20b gpt-oss-120b glm-4.5-air glm-4.5 glm-5
minimax-m2 kimi-k2 mistral-large-4 hy3-preview solar-open-100b longcat-flash inkling ernie-4.5-0.3b
qwen3.5-27b deepseek-v4-flash glm-4.7-flash minimax-m3 kimi-linear-48b-a3b mimo-v2-flash
nemotron-3-nano-30b-a3b seed-oss-36b
"""


# The data


def test_both_entries_agree():
    fields = ("layers", "embed_dim", "num_heads", "num_kv_heads", "head_dim")
    first = [[m.name, *(str(getattr(m, field)) for field in fields)] for m in KNOWN]
    assert [*itertools.chain(*first)] == SECOND_ENTRY.split()


@each_model
def test_every_model_is_complete(model):
    assert model.name == model.name.lower()
    assert model.title.startswith((model.family, "Mixtral", "Ministral"))
    assert model.kind in ("encoder", "decoder", "encoder-decoder")
    assert model.source_kind in ("owner", "library", "paper")
    assert model.source.startswith("https://arxiv.org/abs/") == (model.source_kind == "paper")
    for source in (model.source, *model.more_sources):  # pinned to a commit or a release
        assert re.fullmatch(r"https://(arxiv\.org/abs/[\d.]+|github\.com/.+)", source)
        pinned = re.search(
            r"github\.com/[^/]+/[^/]+/blob/([0-9a-f]{8}|[0-9a-f]{40}|v[\d.]+)/", source
        )
        assert pinned or "arxiv" in source
    assert model.num_heads % model.num_kv_heads == 0
    assert (model.window is None) == (model.global_layers is None)
    sizes = [getattr(model, f.name) for f in dataclasses.fields(model) if "int" in str(f.type)]
    assert all(size is None or type(size) is int for size in sizes)


def test_titles_differ_and_families_stand_together():
    assert len({model.title for model in KNOWN}) == len(KNOWN)
    families = [family for family, _ in itertools.groupby(m.family for m in KNOWN)]
    assert len(families) == len(set(families)) == 27


def test_numbers_that_were_not_read_in_code_are_marked():
    paper = {m.family for m in KNOWN if m.source_kind == "paper"}
    assert paper == {"Transformer", "GPT-3", "gpt-oss"}
    assert known_model("gpt-oss-120b").source_kind == "owner"
    libraries = (
        "Lightning-AI/litgpt",
        "karpathy/nanoGPT",
        "pytorch/torchtitan",
        "huggingface/transformers",
        "THUDM/slime",
    )
    for m in KNOWN:
        assert m.source.startswith(tuple(f"https://github.com/{name}/" for name in libraries)) == (
            m.source_kind == "library"
        )


def test_encoders_and_encoder_decoders():
    kinds = {m.family: m.kind for m in KNOWN if m.kind != "decoder"}
    encoder_decoder = dict.fromkeys(["Transformer", "T5"], "encoder-decoder")
    assert kinds == {"BERT": "encoder"} | encoder_decoder


def test_data_is_shipped_beside_the_code():
    data = importlib.resources.files("mhattn.costs") / "model_sizes.toml"
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


PLAIN = [m for m in KNOWN if not m.latent and not m.mixed]


@pytest.mark.parametrize("model", PLAIN, ids=lambda model: model.name)
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


# All parameters


@each_model
def test_parameters_are_as_published(model):
    """Within 2 %, or the row says why not; a row without the number names no source of it."""
    assert (model.published_parameters is None) == (model.published_source is None)
    assert model.differs is None or model.published_parameters
    if model.published_parameters:
        source = model.published_source
        assert re.match(r"https://(arxiv\.org/abs/|github\.com/[^/]+/[^/]+/blob/)", source)
        ratio = model.parameters() / model.published_parameters
        assert (abs(ratio - 1) > 0.02) == bool(model.differs)


# What libraries and reports count to more digits than a name has: here biases and norms are all
# that is missing. Entered a second time.
EXACT = {
    "bert-large": 335_141_888,
    "gpt-2-1558m": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-8b": 8_030_261_248,
    "mixtral-8x7b": 46_702_792_704,
    "gemma-3-27b": 27_009_002_240,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-235b-a22b": 235_093_634_560,
    "gpt-oss-120b": 116_829_156_672,
    "smollm3-3b": 3_075_100_928,
    "t5-1.1-xxl": 11_135_332_352,
}


@pytest.mark.parametrize("name", EXACT)
def test_biases_and_norms_are_all_that_is_missing(name):
    model = known_model(name)
    assert model.published_parameters == EXACT[name]
    assert 0.99 * EXACT[name] < model.parameters() < EXACT[name]


def test_parameters_of_experts_by_hand():
    """DeepSeek-V3: three layers with an MLP, 58 with a router, 256 experts and a shared one."""
    model = known_model("deepseek-v3")
    dense = 3 * 3 * 7168 * 18432
    expert = 3 * 7168 * 2048
    rest = model.attention_parameters + dense + 2 * 129_280 * 7168
    assert model.parameters() == rest + 58 * (257 * expert + 7168 * 256)
    assert model.parameters(active=True) == rest + 58 * (9 * expert + 7168 * 256)
    llama = known_model("llama-2-7b")
    assert llama.parameters() == llama.parameters(active=True)
    assert llama.parameters() == 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 2 * 32000 * 4096


def test_parameters_of_a_mixture_by_hand():
    """Qwen3-Next: 36 recurrent layers, 12 with a gate on their output; all have experts."""
    recurrent = 2048 * (2 * 16 * 128 + 3 * 32 * 128 + 2 * 32)
    softmax = 2048 * (3 * 16 * 256 + 2 * 2 * 256)
    experts = 513 * 3 * 2048 * 512 + 2048 * 512
    by_hand = 36 * recurrent + 12 * softmax + 48 * experts + 2 * 151_936 * 2048
    assert known_model("qwen3-next-80b-a3b").parameters() == by_hand


def test_parameters_of_compressed_attention_by_hand():
    """DeepSeek-V4-Flash, matrix by matrix as its modeling file has them."""
    queries_and_row = 4096 * 1024 + 1024 * 64 * 512 + 4096 * 512
    output = 8 * (64 * 512 // 8) * 1024 + 8 * 1024 * 4096  # eight groups of heads, then together
    plain = queries_and_row + output
    by_128 = plain + 2 * 4096 * 512  # a value and a gate
    indexer = 1024 * 64 * 128 + 4096 * 64 + 2 * 4096 * 2 * 128
    by_4 = plain + 2 * 4096 * 2 * 512 + indexer
    experts = 257 * 3 * 4096 * 2048 + 4096 * 256
    by_hand = 2 * plain + 21 * by_4 + 20 * by_128 + 43 * experts + 2 * 129_280 * 4096
    assert known_model("deepseek-v4-flash").parameters() == by_hand


def test_parameters_of_other_mixtures_by_hand():
    """Gates by way of a latent; values narrower than keys; a state space; an indexer on groups."""
    wide = 32 * 128
    recurrent = 2304 * 4 * wide + 2 * (2304 * 128 + 128 * wide) + 2304 * 32
    latent = 2304 * 32 * 192 + 2304 * 576 + 512 * 32 * 256 + wide * 2304
    experts = 26 * (257 * 3 * 2304 * 1024 + 2304 * 256) + 3 * 2304 * 9216
    kimi = 20 * recurrent + 7 * latent + experts + 2 * 163_840 * 2304
    assert known_model("kimi-linear-48b-a3b").parameters() == kimi
    full, local = ((64 + heads) * (192 + 128) * 4096 for heads in (4, 8))
    experts = 47 * (256 * 3 * 4096 * 2048 + 4096 * 256) + 3 * 4096 * 16_384
    mimo = 9 * full + 39 * local + experts + 2 * 152_576 * 4096
    assert known_model("mimo-v2-flash").parameters() == mimo
    space = 2688 * (2 * 64 * 64 + 2 * 8 * 128) + 64 * 64 * 2688 + 2 * 64 * 2688
    attention = 2688 * 2 * (32 + 2) * 128
    experts = 23 * ((128 * 1856 + 3712) * 2 * 2688 + 2688 * 128)
    nemotron = 23 * space + 6 * attention + experts + 2 * 131_072 * 2688
    assert known_model("nemotron-3-nano-30b-a3b").parameters() == nemotron
    attention = 6144 * 2 * (64 + 4) * 128
    indexer = 6144 * (4 * 128 + 128)
    experts = 57 * (129 * 3 * 6144 * 3072 + 6144 * 128) + 3 * 3 * 6144 * 12_288
    minimax = 60 * attention + 57 * indexer + experts + 2 * 200_064 * 6144
    assert known_model("minimax-m3").parameters() == minimax


@pytest.mark.parametrize("name", ["falcon-7b", "olmo-3-7b", "transformer-base"])
def test_what_the_sources_leave_open_is_not_counted(name):
    with pytest.raises(ValueError, match="MLP, vocabulary and tied must be known, not so of "):
        known_model(name).parameters()


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
        elif model.name.startswith("gpt-oss"):  # every second layer
            assert (model.window, 2 * model.global_layers) == (128, model.layers)
        elif model.name.startswith("olmo-3"):  # every fourth layer
            assert (model.window, 4 * model.global_layers) == (4096, model.layers)
        elif model.name.startswith("muse"):  # every fourth layer, counted from the last
            assert (model.window, model.global_layers) == (2048, len(range(61, -1, -4)))
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


# Kinds of layers


@each_model
def test_kinds_of_layers_fit_the_model(model):
    kinds = model.layer_kinds
    assert sum(kind.layers for kind in kinds) == model.layers
    assert all((kind.window is None) == (kind.sees in ("all", "state")) for kind in kinds)
    assert all((kind.state > 0) == (kind.sees == "state") for kind in kinds)
    most = max((kind for kind in kinds if not kind.state), key=lambda kind: kind.layers)
    heads = (most.num_heads, most.num_kv_heads, most.head_dim)
    assert heads == (model.num_heads, model.num_kv_heads, model.head_dim)
    assert model.kv_cache_bytes(7, 3) == sum(kind.kept(7) for kind in kinds) * 3


def gemma_4(layers, every, shared, local, full, window):
    """Layer by layer: what each keeps of each token, and its window; shared layers keep nothing."""
    for layer in range(layers - shared):
        whole = (layer + 1) % every == 0
        yield 2 * full if whole else 2 * local, None if whole else window


def qwen_3_next(layers):
    for layer in range(layers):
        yield (2 * 2 * 256, None) if layer % 4 == 3 else (0, None)


def llama_4():
    for layer in range(48):
        yield 2 * 8 * 128, None if layer % 4 == 3 else 8192


def inkling():
    for layer in range(66):
        whole = (layer + 1) % 6 == 0
        yield 2 * (8 if whole else 16) * 128, None if whole else 512


def mimo():
    for layer in range(48):
        whole = layer == 0 or (layer + 1) % 6 == 0
        yield (4 if whole else 8) * (192 + 128), None if whole else 129


LAYERS = {
    "llama-4-maverick": (llama_4, 0),
    "qwen3.5-9b": (lambda: [(0, None)] * 24 + [(2 * 4 * 256, None)] * 8, 24 * 32 * 128 * 128),
    "qwen3.5-27b": (lambda: [(0, None)] * 48 + [(2 * 4 * 256, None)] * 16, 48 * 48 * 128 * 128),
    "minimax-m3": (lambda: [(2 * 4 * 128, None)] * 3 + [(2 * 4 * 128 + 128, None)] * 57, 0),
    "kimi-linear-48b-a3b": (
        lambda: [(0, None)] * 20 + [(512 + 64, None)] * 7,
        20 * 32 * 128 * 128,
    ),
    "mimo-v2-flash": (mimo, 0),
    "nemotron-3-nano-30b-a3b": (
        lambda: [(0, None)] * 23 + [(2 * 2 * 128, None)] * 6,
        23 * 64 * 64 * 128,
    ),
    "gemma-4-e2b": (lambda: gemma_4(35, 5, 20, 1 * 256, 1 * 512, 512), 0),
    "gemma-4-e4b": (lambda: gemma_4(42, 6, 18, 2 * 256, 2 * 512, 512), 0),
    "gemma-4-26b-a4b": (lambda: gemma_4(30, 6, 0, 8 * 256, 2 * 512, 1024), 0),
    "gemma-4-31b": (lambda: gemma_4(60, 6, 0, 16 * 256, 4 * 512, 1024), 0),
    "llama-4-scout": (llama_4, 0),
    "qwen3-next-80b-a3b": (lambda: qwen_3_next(48), 36 * 32 * 128 * 128),
    "qwen3.5-35b-a3b": (lambda: qwen_3_next(40), 30 * 32 * 128 * 128),
    "deepseek-v3.2": (lambda: [(512 + 64 + 128, None)] * 61, 0),
    "glm-5": (lambda: [(512 + 64 + 128, None)] * 78, 0),
    "mistral-large-4": (lambda: [(512 + 64 + 128, None)] * 72, 0),
    "inkling": (inkling, 0),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("tokens", [1, 509, 513, 1031, 8191, 9001])
def test_cache_of_a_mixture_layer_by_layer(name, tokens):
    layers, state = LAYERS[name]
    kept = sum(numbers * len(range(tokens)[-(window or tokens) :]) for numbers, window in layers())
    model = known_model(name)
    assert model.kv_cache_bytes(tokens) == 2 * (kept + state)
    assert model.kv_cache_bytes_per_token() == 2 * sum(numbers for numbers, _ in layers())
    shared = sum(kind.layers for kind in model.layer_kinds if kind.shared)
    assert shared == model.layers - len([*layers()])


@pytest.mark.parametrize("tokens", [1, 3, 4, 127, 128, 129, 1031, 131_072])
def test_a_compressed_cache_token_by_token(tokens):
    """DeepSeek-V4-Flash: rows of the last 128 tokens, of each full four, and of each full 128."""
    window = len(range(tokens)[-128:]) * 512
    fours = len([t for t in range(tokens) if t % 4 == 3]) * (512 + 128)  # and a key to index
    blocks = len([t for t in range(tokens) if t % 128 == 127]) * 512
    kept = 43 * window + 21 * fours + 20 * blocks
    assert known_model("deepseek-v4-flash").kv_cache_bytes(tokens) == 2 * kept


def test_which_models_have_an_index_or_a_mixture():
    assert {m.name for m in KNOWN if m.mixed or m.index} == {*LAYERS, "deepseek-v4-flash"}
    assert vars(known_model("deepseek-v3.2").index) == {
        "num_heads": 64,
        "head_dim": 128,
        "top_keys": 2048,
    }
    assert known_model("glm-5").index.num_heads == 32


@pytest.mark.parametrize("name", [*LAYERS, "deepseek-v4-flash", "t5-small"])
def test_a_mixture_is_not_countable(name):
    model = known_model(name)
    assert not model.countable
    with pytest.raises(ValueError, match=f"layers of one kind, got {re.escape(model.title)}$"):
        model.cost_sizes()
    if name in LAYERS:
        with pytest.raises(ValueError, match="layers of one kind"):
            _ = model.attention_parameters


def test_layers_check_the_length():
    kind = known_model("gemma-4-31b").layer_kinds[0]
    with pytest.raises(ValueError, match="tokens must be at least 1, got 0"):
        kind.kept(0)
    with pytest.raises(TypeError, match="tokens must be an integer, got float"):
        kind.kept(1.5)


# What else the sources say


def test_scores_and_positions():
    assert {m.name for m in KNOWN if m.soft_cap} == {"gemma-2-2b", "gemma-2-9b", "gemma-2-27b"}
    sinks = {"gpt-oss-20b", "gpt-oss-120b", "mimo-v2-flash", "deepseek-v4-flash"}
    assert {m.name for m in KNOWN if m.sinks} == sinks
    bare = {m.name: m.layers_without_rope for m in KNOWN if m.layers_without_rope}
    fourth = {
        "llama-4-scout": 48 // 4,
        "llama-4-maverick": 48 // 4,
        "smollm3-3b": 36 // 4,
        "mistral-large-4": 72 // 4,
    }
    assert bare == fourth | {"muse-spark-open-816b-a42b": 16}
    bases = {"gemma-3": 10**6, "gemma-4": 10**6, "mimo": 5 * 10**6, "deepseek-v4": 160_000}
    for model in KNOWN:
        base = next((bases[name] for name in bases if model.name.startswith(name)), None)
        assert model.local_rope_base == (base and 10_000)
        assert base in (None, model.rope_base)
        if model.family in ("Transformer", "BERT", "GPT-2", "GPT-3", "T5"):
            assert model.rope_base is None
            assert not model.qk_norm
    by_hand = {
        "llama-2-7b": 10**4,
        "smollm3-3b": 5 * 10**6,
        "gemma-2-9b": 10**4,
        "phi-4": 250_000,
        "llama-3.1-8b": 5 * 10**5,
        "qwen3-8b": 10**6,
        "kimi-k2": 5 * 10**4,
    }
    by_hand |= {
        "qwen3-next-80b-a3b": 10**7,
        "gpt-oss-120b": 150_000,
        "gpt-oss-20b": 150_000,
        "glm-5": 10**6,
        "deepseek-v3.2": 10**4,
        "minimax-m2": 5 * 10**6,
    }
    assert {name: known_model(name).rope_base for name in by_hand} == by_hand
    normed = ("qwen3", "gemma-3", "gemma-4", "olmo", "minimax", "llama-4-scout", "hy3", "muse")
    normed += ("inkling", "deepseek-v4")
    expected = {m.name for m in KNOWN if m.name.startswith(normed)} | {"glm-4.5"}
    assert {m.name for m in KNOWN if m.qk_norm} == expected


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

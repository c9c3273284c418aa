"""Masks of the pages masks-in-practice and indexers against the classes of transformers.

    python tests/site/test_models_and_ours.py

writes what was found to docs/data/texts/models-and-ours.tsv, which both stories read.
"""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from mhsite.stories.source import DOCS
from mhsite.stories.translation import shown_section

from mhattn import attention, split_heads
from mhattn.core import causal_mask, window_mask
from mhattn.variants import compress_rows, index_scores

sys.path.insert(0, str(Path(__file__).parents[1] / "testing"))
from rights.hub import config, model  # nothing is downloaded

pytestmark = pytest.mark.filterwarnings("ignore")  # the library has many
FILE = DOCS / "data" / "texts" / "models-and-ours.tsv"
L, E, BLOCK, BEST = 29, 24, 4, 2
HEADS = 13  # if none fits, pools tie at 0


def of_the_story(name, *sections):
    namespace = {}
    for section in sections:
        exec(shown_section(f"{name}.pycon:{section}").code, namespace)
    return namespace


def drawn(module, seed=0):
    torch.manual_seed(seed)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module.eval().requires_grad_(False)


@torch.no_grad()
def diffusion():
    """A prompt of six tokens and a canvas of three: their two calls, and one pass with our mask."""
    story = of_the_story("masks-in-practice", "picture", "stack", "canvas")
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    sizes = {"hidden_size": 16, "intermediate_size": 16, **heads}
    text = config(
        "DiffusionGemmaTextConfig",
        **sizes,
        global_head_dim=8,
        vocab_size=53,
        num_hidden_layers=3,
        num_experts=2,
        top_k_experts=1,
        moe_intermediate_size=8,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention", "full_attention"],
    )
    images = {**sizes, "num_hidden_layers": 1}
    settings = config("DiffusionGemmaConfig", text_config=text, vision_config=images)
    torch.manual_seed(0)
    theirs = model("diffusion_gemma", "DiffusionGemmaModel")(settings).eval()
    ids = torch.randint(1, 53, (1, 9))
    expected = theirs(input_ids=ids[:, :6], decoder_input_ids=ids[:, 6:]).last_hidden_state

    tokens = theirs.decoder.embed_tokens(ids)
    rows = theirs.decoder.self_conditioning(tokens[:, 6:], torch.zeros_like(tokens[:, 6:]))
    rows = torch.cat([tokens[:, :6], rows], dim=1)
    near = causal_mask(9) & window_mask(9, 9, window=4)
    last = story["canvas"][:, None] & (torch.arange(9) > 6 - 4)  # and the whole canvas
    masks = {
        "our mask": (story["written"], near | last),
        "causal": (causal_mask(9), near),
    }
    found = {}
    for name, (full, window) in masks.items():
        both = {"full_attention": full[None, None], "sliding_attention": window[None, None]}
        output = theirs.encoder.language_model(inputs_embeds=rows, attention_mask=both)
        found[name] = (output.last_hidden_state[:, 6:] - expected).abs().max().item()
    return [f"{far:.2f}" for far in found.values()]


def compared(ours, theirs, far):
    """How many cells a mask has, how many differ, and the largest difference of numbers."""
    differ = (ours != theirs).sum().item()
    return [str(ours.numel()), str(differ), f"{far.abs().max():.4f}"]


@torch.no_grad()
def qwen():
    """The attention of Qwen4-Exp: what its indexer chooses, and its output."""
    pooled_mask = of_the_story("indexers", *POOLED)["pooled_mask"]
    pools_of = of_the_story("indexers", *POOLED)["pools_of"]
    settings = config(
        "Qwen4ExpTextConfig",
        hidden_size=E,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_hidden_layers=4,
        indexer_n_heads=3,
        indexer_kv_heads=1,
        indexer_head_dim=8,
        indexer_budget=BEST * BLOCK,
        indexer_compress_ratio=BLOCK,
    )
    layer = drawn(model("qwen4_exp", "Qwen4ExpTextAttention")(settings, 3))
    x = torch.randn(2, L, E)
    angle = torch.arange(L)[:, None] * torch.tensor([1.0, 0.1]).repeat(2)
    turned = (angle.cos().expand(2, L, 4), angle.sin().expand(2, L, 4))
    causal = causal_mask(L).expand(2, 1, L, L)
    theirs = layer.indexer(x, turned, causal, None) & causal
    expected = layer(x, turned, causal)[0]

    def turn(rows, at):  # the first four features
        cos, sin = angle[at].cos(), angle[at].sin()
        a, b, rest = rows[..., :2], rows[..., 2:4], rows[..., 4:]
        first = torch.cat([a, b], -1) * cos + torch.cat([-b, a], -1) * sin
        return torch.cat([first, rest], dim=-1)

    query, key = layer.indexer.index_qk_proj(x).split([24, 8], dim=-1)
    query = turn(layer.indexer.q_layernorm(split_heads(query, 3)), torch.arange(L))
    pools = layer.indexer.k_layernorm(pools_of(key, BLOCK))
    pools = turn(pools, BLOCK * torch.arange(pools.shape[1]))
    scores = index_scores(query, pools, torch.ones(2, L, 3))
    ours = pooled_mask(scores, BEST, BLOCK, L)[:, None]

    query, gate = layer.q_proj(x).view(2, L, 4, 16).chunk(2, dim=-1)
    query = turn(layer.q_norm(query).transpose(1, 2), torch.arange(L))
    key = turn(layer.k_norm(split_heads(layer.k_proj(x), 2)), torch.arange(L))
    heads = attention(query, key, split_heads(layer.v_proj(x), 2), mask=ours)
    heads = heads.transpose(1, 2) * gate.sigmoid()
    return compared(ours, theirs, layer.o_proj(heads.flatten(2)) - expected)


@torch.no_grad()
def glm():
    """The indexer of GLM-5.3: what it chooses, and its pools."""
    pooled_mask = of_the_story("indexers", *POOLED)["pooled_mask"]
    sizes = {"index_n_heads": HEADS, "index_head_dim": 8, "index_topk": BEST * BLOCK}
    settings = config(
        "Glm5NextTextConfig", hidden_size=E, q_lora_rank=13, index_kpool=BLOCK, **sizes
    )
    layer = drawn(model("glm5_next", "Glm5NextTextIndexer")(settings, 3))
    x, residual = torch.randn(2, L, E), torch.randn(2, L, 13)
    real = torch.ones(2, L, dtype=torch.bool)
    columns = layer(x, residual, real, None).long()
    theirs = torch.zeros(2, L, L + 1, dtype=torch.bool)
    theirs = theirs.scatter(-1, columns.where(columns >= 0, L), True)[..., :L]

    key, gates = layer.k_norm(layer.wk(x)), x @ layer.index_kpool_compress_gate.T
    pools = compress_rows(key, gates, layer.index_kpool_compress_ape)
    packed = torch.cat([key, gates, torch.ones(2, L, 1)], dim=-1)
    far = pools - layer.get_pooled_states(packed)[0]
    query = split_heads(layer.wq_b(residual), HEADS)
    scores = index_scores(query, pools, layer.weights_proj(x))
    return compared(pooled_mask(scores, BEST, BLOCK, L), theirs, far)


POOLED = ("indexer-figure", "teacher", "compressed", "pooled")
MODELS = {"DiffusionGemma": diffusion, "Qwen4-Exp": qwen, "GLM-5.3": glm}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_does_what_the_file_says(name):
    """If it does another thing by now: `python tests/site/test_models_and_ours.py` writes it."""
    lines = [line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines()]
    found = MODELS[name]()
    assert [name, *found] in lines
    equal = found[:1] if name == "DiffusionGemma" else found[1:]
    assert {float(number) for number in equal} == {0.0}


@torch.no_grad()
def test_pools_of_glm_begin_at_the_first_token():
    """The trap's claim: three slots of padding on the left change no choice."""
    sizes = {"index_n_heads": HEADS, "index_head_dim": 8, "index_topk": BEST * BLOCK}
    settings = config(
        "Glm5NextTextConfig", hidden_size=E, q_lora_rank=13, index_kpool=BLOCK, **sizes
    )
    layer = drawn(model("glm5_next", "Glm5NextTextIndexer")(settings, 3))
    x, residual = torch.randn(1, L, E), torch.randn(1, L, 13)
    real = torch.ones(1, L, dtype=torch.bool)
    alone = layer(x, residual, real, None)
    padded = layer(*(F.pad(y, (0, 0, 3, 0)) for y in (x, residual)), F.pad(real, (3, 0)), None)
    moved = padded[:, 3:]
    assert torch.equal(torch.where(moved >= 0, moved - 3, moved), alone)


def test_sizes_that_pages_name():
    """The defaults in masks-in-practice, indexers, kv-cache and families, in this order."""
    from transformers.models.diffusion_gemma import generation_diffusion_gemma as generation

    assert config("DiffusionGemmaConfig").canvas_length == 256
    settings = generation.DiffusionGemmaGenerationConfig
    assert settings._get_default_generation_params()["max_denoising_steps"] == 48
    assert config("Glm5NextTextConfig").index_kpool == 16
    hrm = config("HrmTextConfig")
    calls = hrm.H_cycles * (hrm.L_cycles + 1)
    assert (hrm.num_layers_per_stack, calls, hrm.num_hidden_layers) == (16, 8, 128)
    granite = config("GraniteSWAConfig", num_hidden_layers=8)
    assert granite.sliding_window == 128
    full = [i for i, kind in enumerate(granite.layer_types) if kind == "full_attention"]
    assert full == [0, 4]


@torch.no_grad()
def test_a_cache_of_recurrent_depth_has_a_place_for_each_call():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "head_dim": 8}
    settings = config("HrmTextConfig", vocab_size=53, num_hidden_layers=3, **sizes)
    hrm = model("hrm_text", "HrmTextModel")(settings).eval()
    cache = hrm(torch.randint(53, (1, 5))).past_key_values
    assert len(hrm.L_module.layers) + len(hrm.H_module.layers) == 6
    keys = [layer.keys for layer in cache.layers]
    assert len(keys) == 3 * 8
    assert not any(torch.equal(one, two) for i, one in enumerate(keys) for two in keys[:i])


if __name__ == "__main__":
    lines = ["\t".join([name, *compare()]) + "\n" for name, compare in MODELS.items()]
    FILE.write_text("".join(lines), encoding="utf-8")

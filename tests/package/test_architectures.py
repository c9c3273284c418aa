"""The tools for other people's models on each architecture, against the library's own weights and
zeros in the output projection; and the refusals, word by word."""

import warnings
from collections import Counter

import pytest
import torch
from architecture_table import last_norm, measured, rows, tried
from architectures import KIND_OF, made

from mhattn import attention_maps
from mhattn.inside import (
    attention_layers,
    captured_maps,
    fed_heads,
    head_outputs,
    layers,
    logit_attribution,
    register,
    residual_cache,
    with_sinks,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # the library has many
EAGER = {"attn_implementation": "eager"}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    kept = {}
    monkeypatch.setattr(layers, "REGISTERED", kept)
    monkeypatch.setattr("architecture_table.REGISTERED", kept)
    return kept


@pytest.mark.parametrize("name", KIND_OF)
def test_tools_do_as_the_table_says(name):
    """If a tool does more by now: `python tests/package/architecture_table.py` writes it."""
    assert measured(name) == rows()[name]


def test_table():
    table = rows()
    assert list(table) == list(KIND_OF)
    words = {"yes", "register", "by hand", "partly", "other heads", "no"}
    assert {row[column] for row in table.values() for column in list(row)[2:]} <= words
    count = Counter(row["maps"] for row in table.values())
    assert count["yes"] > 50
    assert count["yes"] + count["register"] > 75
    for row in table.values():  # any model means any
        if row["maps"] in ("yes", "register"):
            assert row["any"] in ("yes", "by hand", "register")


# Those where each sum of the stream shows what attention adds to it, and nothing else
PLAIN = """Llama Mistral Qwen3 Gemma2 Gemma3Text Phi3 Olmo2 Cohere StableLm SmolLM3 NanoChat GPT2
GPTNeo GPTBigCode OPT CTRL Mpt XGLM Mixtral Qwen3Moe Olmoe Glm4Moe DeepseekV3 Llama4Text GraniteSWA
RecurrentGemma Jamba Qwen3Next Lfm2 ModernBert Esm LongT5 ViT DeiT Dinov2WithRegisters DINOv3ViT
Beit VideoMAE AST"""


def line(norm, x, term):
    """What a term of x is behind the norm, whose divisor is that of x."""
    centred = torch.allclose(norm(x + 1), norm(x), atol=1e-3)
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))

    def size(y):
        y = y - y.mean(dim=-1, keepdim=True) if centred else y
        return (y.square().mean(dim=-1, keepdim=True) + (eps or 1e-6)).sqrt()

    return (norm(term) - norm(torch.zeros_like(term))) * size(term) / size(x)


@pytest.mark.parametrize("name", PLAIN.split())
def test_logits_get_from_heads_what_the_sums_show(name):
    model, inputs = made(name, **EAGER)
    model.requires_grad_(False)
    norm, width = last_norm(model, inputs)
    direction, given = torch.randn(width), []
    options = {"direction": direction, "norm": norm, "position": 2, **inputs}
    found, _, _ = tried(lambda: logit_attribution(model, **options), model)
    assert found.heads.abs().amax() > 1e-4
    with norm.register_forward_pre_hook(lambda module, args: given.append(args[0])):
        cache = residual_cache(model, **inputs).layers
    x = given[0][:, 2]
    biases = [getattr(layer.projection, "bias", None) for layer in attention_layers(model)]
    for layer, (seen, bias) in enumerate(zip(cache, biases, strict=True)):
        added = seen.between - seen.before
        expected = line(norm, x, added[:, 2]) @ direction
        if bias is not None:
            expected -= line(norm, x, bias.expand_as(x)) @ direction
        torch.testing.assert_close(
            found.heads[:, layer].sum(dim=-1), expected, rtol=1e-3, atol=1e-4
        )


# What is refused says why; the architecture behind each is in the table


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        (
            "GraniteSWA",
            None,
            r"^'layers.0.self_attn' must return weights, got rows that sum to",
        ),
        (
            "Longformer",
            "LongformerSelfAttention",
            r"once in a call, .*, got \[\]$",
        ),
        ("Hiera", "HieraMaskUnitAttention", r"once in a call, .* got \[\(2, 2, 4, 16, 16\)\]$"),
        (
            "Yoso",
            "YosoSelfAttention",
            r"^'encoder.layer.0.attention.self' must weigh .* \[\]$",
        ),
        (
            "Rwkv",
            "RwkvSelfAttention",
            r"inside.register\(RwkvSelfAttention, num_heads=...\)",
        ),
        ("Mamba", None, r"^model must hold an attention layer of mhattn, .* got MambaModel$"),
        (
            "Bloom",
            None,
            r"if BloomAttention is attention, .*register\(BloomAttention\)$",
        ),
    ],
)
def test_refused(name, kind, text):
    model, inputs = made(name, **EAGER)
    classes = {type(module).__name__: type(module) for module in model.modules()}
    if kind:
        register(classes[kind])
    with pytest.raises(ValueError, match=text):
        attention_maps(model, **inputs)


def test_the_way_out_of_sinks_that_act_behind_the_weights():
    """The error names `head_outputs`: what enters the projection, the sinks' share taken off."""
    model, inputs = made("GraniteSWA", **EAGER)
    assert [tuple(heads.shape) for heads in head_outputs(model, **inputs)] == [(2, 7, 4, 8)] * 2


def test_sinks_as_a_column():
    model, inputs = made("GptOss", **EAGER)
    for weights in attention_maps(model, **inputs).maps:
        assert weights.sum(dim=-1).min() < 0.9
        whole = with_sinks(weights)
        torch.testing.assert_close(whole.sum(dim=-1), torch.ones(2, 4, 7))
        assert torch.equal(whole[..., 1:], weights)
    own = model.layers[0].self_attn  # the share by its definition, for one row
    scores = torch.randn(2, 4, 7, 7)
    both = torch.cat([scores, own.sinks.view(1, 4, 1, 1).expand(2, 4, 7, 1)], dim=-1).softmax(-1)
    torch.testing.assert_close(with_sinks(both[..., :-1])[..., 0], both[..., -1])


@pytest.mark.parametrize("call", [attention_maps, captured_maps])
@pytest.mark.parametrize(
    ("name", "kind"), [("LongT5", "LongT5LocalAttention"), ("MiniMax", "MiniMaxLightningAttention")]
)
def test_what_is_missing_is_named(name, kind, call):
    model, inputs = made(name, **EAGER)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call(model, **inputs)
    [text] = [str(x.message) for x in said if "no maps of" in str(x.message)]
    assert f"({kind})" in text
    assert text.endswith("if it is attention, name its class to mhattn.inside.register")


def test_heads_of_two_maps_are_found_out():
    """In differential attention a head is the difference of two; the table says other heads."""
    model, inputs = made("DiffLlama", **EAGER)
    pairs = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]] * 2)
    assert all(torch.equal(each, pairs) for each in fed_heads(model, **inputs))
    found = captured_maps(made("DiffLlama")[0], **inputs)
    assert len(found.maps) == 4  # each half of the values is a call of its own


def test_registered_layers_need_no_eager():
    """A class of transformers that was registered is read from its call."""
    model, inputs = made("Llama")
    register(type(model.layers[0].self_attn))
    found = attention_maps(model, **inputs)
    eager, _ = made("Llama", **EAGER)
    eager.load_state_dict(model.state_dict())
    for weights, expected in zip(found.maps, attention_maps(eager, **inputs).maps, strict=True):
        torch.testing.assert_close(weights, expected)

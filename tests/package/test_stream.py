"""The residual cache: against hooks by hand, the library's hidden states, its own arithmetic."""

import pytest
import torch
from architecture_table import tried
from architectures import KIND_OF, made
from torch import nn
from torch.nn import functional as F

from mhattn import MultiHeadAttention, attention_maps
from mhattn.inside import (
    NAMES_ELSEWHERE,
    LayerCache,
    captured_maps,
    head_outputs,
    layers,
    register,
    residual_cache,
)
from mhattn.models import Encoder, LanguageModel

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers has many
B, L, H, D, E = 2, 7, 3, 5, 15  # E = H * D


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    kept = {}
    monkeypatch.setattr(layers, "REGISTERED", kept)
    monkeypatch.setattr("architecture_table.REGISTERED", kept)


def close(found, expected, atol=1e-5):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=atol)


def weighed(found):
    """Weights times values, each KV head for its group: ``(B, L, H, D)``."""
    groups = found.weights.shape[1] // found.value.shape[1]
    return (found.weights @ found.value.repeat_interleave(groups, dim=1)).transpose(1, 2)


class TestOurs:
    def test_language_model(self):
        """Against its blocks, called step by step."""
        sizes = {"num_heads": 6, "num_kv_heads": 2, "mlp_dim": 29}
        model = LanguageModel(11, 3, embed_dim=24, **sizes, base=100.0, eps=1e-5).eval()
        tokens = torch.randint(11, (B, L))
        found = residual_cache(model, tokens)
        close(found.output, model(tokens))
        x = model.embedding(tokens)
        outputs = head_outputs(model, tokens)
        maps = attention_maps(model, tokens).maps
        for i, (block, layer) in enumerate(zip(model.blocks, found.layers, strict=True)):
            assert layer.name == f"blocks.{i}.attention"
            close(layer.before, x)
            added = block.attention(block.attention_norm(x), is_causal=True)
            close(layer.added, added)
            close(layer.between, x + added)
            x, _ = block(x)
            close(layer.after, x)
            close(layer.heads, outputs[i])
            close(layer.weights, maps[i])
            query = block.attention.q_proj(block.attention_norm(layer.before))
            query = query.unflatten(-1, (6, 4)).transpose(1, 2)
            close(layer.query, block.attention.position.rotate(query, 0))
            close(weighed(layer), layer.heads)

    def test_encoder_with_norms_behind(self):
        model = Encoder(11, 13, 3, embed_dim=24, num_heads=6, mlp_dim=29).eval()
        tokens = torch.randint(11, (B, L))
        found = residual_cache(model, tokens)
        x = model.norm(model.embedding(tokens) + model.positions.weight[:L])
        for block, layer in zip(model.blocks, found.layers, strict=True):
            close(layer.before, x)
            close(layer.between, block.attention_norm(x + block.attention(x)))
            x, _ = block(x)
            close(layer.after, x)
        assert len(found.layers) == 3


class TestTorch:
    @pytest.mark.parametrize("batch_first", [True, False])
    @pytest.mark.parametrize("norm_first", [True, False])
    def test_encoder(self, norm_first, batch_first):
        block = nn.TransformerEncoderLayer(
            E, H, 17, norm_first=norm_first, batch_first=batch_first, activation="gelu"
        )
        model = nn.TransformerEncoder(block, 3, enable_nested_tensor=False).eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
        x = torch.randn(B, L, E) if batch_first else torch.randn(L, B, E)
        found = residual_cache(model, x)
        close(found.output, model(x))
        maps = attention_maps(model, x).maps
        for i, (part, layer) in enumerate(zip(model.layers, found.layers, strict=True)):
            close(layer.before, x)
            given = part.norm1(x) if norm_first else x
            middle = x + part.self_attn(given, given, given)[0]
            middle = middle if norm_first else part.norm1(middle)
            close(layer.between, middle)
            x = part(x)
            close(layer.after, x)
            close(layer.weights, maps[i])
            close(weighed(layer), layer.heads)

    def test_decoder_has_two_calls_a_block(self):
        block = nn.TransformerDecoderLayer(E, H, 17, batch_first=True, norm_first=True)
        model = nn.TransformerDecoder(block, 2).eval()
        x, memory = torch.randn(B, L, E), torch.randn(B, 11, E)
        found = residual_cache(model, x, memory)
        assert [layer.name.split(".")[-1] for layer in found.layers] == [
            *("self_attn", "multihead_attn") * 2
        ]
        own, cross = found.layers[:2]
        assert cross.weights.shape == (B, H, L, 11)
        close(cross.before, own.between)
        close(cross.before + cross.added, cross.between)
        close(own.after, cross.after)
        close(found.layers[2].before, own.after)

    @pytest.mark.parametrize(
        "options", [{}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True},
                    {"kdim": 4, "vdim": 6}, {"add_bias_kv": True, "add_zero_attn": True}]
    )  # fmt: skip
    def test_queries_keys_and_values(self, options):
        """They give the layer's own weights and heads."""

        class Cross(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = nn.MultiheadAttention(E, H, batch_first=True, **options)

            def forward(self, x, key, value):
                return x + self.attention(x, key, value)[0]

        model = nn.Sequential(Cross()).eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
        key, value = (
            torch.randn(B, 11, options.get("kdim", E)),
            torch.randn(B, 11, options.get("vdim", E)),
        )
        given = torch.randn(B, L, E), key, value
        whole = nn.ModuleList([model[0]]).eval()
        whole.forward = lambda *inputs: whole[0](*inputs)
        [layer] = residual_cache(whole, *given).layers
        _, expected = model[0].attention(*given, average_attn_weights=False)
        close(layer.weights, expected)
        close((layer.query @ layer.key.mT / D**0.5).softmax(dim=-1), expected)
        close(weighed(layer), layer.heads)
        assert layer.between is None  # a single sum
        close(layer.before, given[0])
        close(layer.after, given[0] + layer.added)


class Attention(nn.Module):  # a class that somebody wrote
    def __init__(self, fused):
        super().__init__()
        self.n_head, self.fused = H, fused
        self.c_attn, self.c_proj = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x):
        parts = self.c_attn(x).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (H, D)).transpose(1, 2) for part in parts)
        if self.fused:
            y = F.scaled_dot_product_attention(query, key, value)
        else:
            y = F.dropout((query @ key.mT / D**0.5).softmax(-1), 0.1, self.training) @ value
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Own(nn.Module):
    def __init__(self, fused, in_place):
        super().__init__()
        self.attention, self.mlp = Attention(fused), nn.Linear(E, E)
        self.norm, self.in_place = nn.LayerNorm(E), in_place

    def forward(self, x):
        if self.in_place:
            x = x.clone()
            x += self.attention(self.norm(x))
            x += self.mlp(x)
            return x
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


@pytest.mark.parametrize("fused", [True, False])
def test_registered_class(fused):
    register(Attention)
    model, x = nn.Sequential(Own(fused, False), Own(fused, False)).eval(), torch.randn(B, L, E)
    found = residual_cache(model, x)
    for block, layer in zip(model, found.layers, strict=True):
        close(layer.before, x)
        close(layer.between, x + block.attention(block.norm(x)))
        x = block(x)
        close(layer.after, x)
        parts = block.attention.c_attn(block.norm(layer.before)).chunk(3, dim=-1)
        for got, part in zip((layer.query, layer.key, layer.value), parts, strict=True):
            close(got, part.unflatten(-1, (H, D)).transpose(1, 2))
        close(layer.weights, (layer.query @ layer.key.mT / D**0.5).softmax(-1))


def test_sums_in_place_change_nothing_that_was_kept():
    register(Attention)
    torch.manual_seed(1)
    model = nn.Sequential(Own(True, True), Own(True, True)).eval()
    other = nn.Sequential(Own(True, False), Own(True, False)).eval()
    other.load_state_dict(model.state_dict())
    x = torch.randn(B, L, E)
    with torch.no_grad():
        pair = residual_cache(model, x).layers, residual_cache(other, x).layers
    for found, expected in zip(*pair, strict=True):
        for field in ("before", "added", "after", "weights"):
            close(getattr(found, field), getattr(expected, field))


def test_gradients_pass():
    sizes = {"num_heads": 6, "num_kv_heads": 2, "mlp_dim": 29}
    model = LanguageModel(11, 2, embed_dim=24, **sizes, base=100.0, eps=1e-5).eval()
    found = residual_cache(model, torch.randint(11, (B, L)))
    for part in found.layers[-1][1:]:
        assert part.requires_grad


def test_nothing_is_left_behind():
    model = nn.Sequential(Own(True, False)).eval()
    register(Attention)
    residual_cache(model, torch.randn(B, L, E))
    for part in model.modules():
        assert not part._forward_hooks
        assert not part._forward_pre_hooks


# Architectures of transformers

OTHERWISE = {  # what the library calls hidden states is something else than the stream
    "MobileBert": "the stream in a block is narrower",
    "Wav2Vec2Conformer": "half an MLP stands in front of attention",
    "Segformer": "images in rows and columns",
    "HrmText": "two streams in turn",
    "ProphetNet": "two streams in one",
    "Timesformer": "frames one by one",
}
GATED = {"Qwen3Next", "HrmText", "GraniteSWA", "ConvBert", "Hiera", "ProphetNet"}  # behind values
AT_ONCE = {"GPTJ", "GPTNeoX", "Falcon", "CodeGen", "Zamba2", "MiniMax", "Timesformer"}
REFUSED = {
    "Bloom": "must weigh once",
    "DiffLlama": "must weigh once",
    "GptOss": "must weigh once",
    "MiMoV2Flash": "must weigh once",
    "DebertaV2": "must weigh once",
    "XLM": "in an item of a ModuleList",
    "XLNet": "must weigh once",
    "Funnel": "must weigh once",
    "SqueezeBert": "must be called by its block",
    "Longformer": "must weigh once",
    "LED": "must weigh once",
    "WavLM": "projection must be called",
    "Mamba": "must hold an attention layer",
    "FNet": "must hold an attention layer",
    "Rwkv": "number of heads",
    "Yoso": "must weigh once",
}


def hidden(output):
    """All that the library calls hidden states."""
    fields = ("hidden_states", "encoder_hidden_states", "decoder_hidden_states")
    found = [x for field in fields for x in getattr(output, field, None) or ()]
    parts = (getattr(output, f"{part}_model_output", None) for part in ("text", "vision"))
    return found + [x for part in parts if part is not None for x in hidden(part)]


def among(x, many):
    return any(x.shape == y.shape and torch.allclose(x, y, atol=1e-4) for y in many)


@pytest.mark.parametrize("name", KIND_OF)
def test_architecture(name):
    with torch.no_grad():
        model, inputs = made(name)
        found, _, _ = tried(lambda: residual_cache(model, **inputs), model)
        if name in REFUSED:
            assert REFUSED[name] in str(found)
            return
        assert not isinstance(found, ValueError), found
        states = hidden(model(**inputs, output_hidden_states=True))
        singles = {layer.name for layer in found.layers if not is_cross(layer)}
        if name not in OTHERWISE:
            befores = [x.before for x in found.layers if x.name in singles]
            assert all(among(before, states) for before in befores)
        for layer in found.layers:
            if name not in GATED:
                close(weighed(layer), layer.heads)
            assert (layer.between is None) == (name in AT_ONCE) or name == "Hiera"  # which pools
        if name not in ("GraniteSWA", "ProphetNet", "Hiera"):  # of which `captured_maps` has none
            maps = captured_maps(model, **inputs, by_hand=True).maps
            for layer in found.layers:
                assert among(layer.weights, maps)


def is_cross(layer):
    return layer.name.lower().split(".")[-1] in ("encoder_attn", "encdecattention", "cross_attn")


@pytest.mark.parametrize(
    ("name", "part", "which"),
    [
        ("Llama", "layers.{}.post_attention_layernorm", "input"),
        ("Qwen3", "layers.{}.post_attention_layernorm", "input"),
        ("Gemma2", "layers.{}.pre_feedforward_layernorm", "input"),
        ("GPT2", "h.{}.ln_2", "input"),
        ("OPT", "decoder.layers.{}.final_layer_norm", "input"),
        ("ViT", "layers.{}.layernorm_after", "input"),
        ("Bert", "encoder.layer.{}.attention.output", "output"),
        ("DistilBert", "transformer.layer.{}.sa_layer_norm", "output"),
    ],
)
def test_the_stream_between_against_a_hook(name, part, which):
    model, inputs = made(name)
    kept = []

    def hook(module, args, result):
        kept.append(args[0] if which == "input" else result)

    for i in range(2):
        model.get_submodule(part.format(i)).register_forward_hook(hook)
    with torch.no_grad():
        model(**inputs)
        expected = list(kept)
        found = residual_cache(model, **inputs)
    for layer, between in zip(found.layers, expected, strict=True):
        close(layer.between, between.view_as(layer.between))  # OPT's has batch and length as one


@pytest.mark.parametrize("name", ["Llama", "Bert", "GPT2", "T5", "Mistral"])
def test_eager_and_fused_give_the_same(name):
    with torch.no_grad():
        model, inputs = made(name)
        found = residual_cache(model, **inputs)
        eager, _ = made(name, attn_implementation="eager")
        eager.load_state_dict(model.state_dict())
        for one, other in zip(found.layers, residual_cache(eager, **inputs).layers, strict=True):
            for field, x, y in zip(LayerCache._fields, one, other, strict=True):
                if field in ("key", "value") and x.shape != y.shape:  # groups, repeated or not
                    x = x.repeat_interleave(y.shape[1] // x.shape[1], dim=1)
                if field != "name":
                    close(x, y, atol=1e-4)


class TestRefused:
    def test_no_module(self):
        with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got int"):
            residual_cache(3)

    def test_training(self):
        register(Attention)
        with pytest.raises(ValueError, match="model must be in evaluation mode"):
            residual_cache(nn.Sequential(Own(True, False)), torch.randn(B, L, E))

    def test_no_block(self):
        rule = r"^'' must be in an item of a ModuleList or Sequential, a block, got MultiHeadAtt"
        with pytest.raises(ValueError, match=rule):
            residual_cache(MultiHeadAttention(E, H).eval(), torch.randn(B, L, E))

    def test_not_called(self):
        register(Attention)
        model = nn.ModuleList([nn.Sequential(Own(True, False))]).eval()
        model.forward = lambda x: x
        with pytest.raises(ValueError, match="projection must be called"):
            residual_cache(model, torch.randn(B, L, E))


def test_names_elsewhere():
    assert list(NAMES_ELSEWHERE) == list(LayerCache._fields[1:])

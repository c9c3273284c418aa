"""Maps against the libraries' own, ablation against zeros in weights; models stay as they were."""

import ast
import copy
import inspect
import warnings

import pytest
import torch
from torch import nn

from mhattn import MultiHeadAttention, attention_maps
from mhattn.inside import (
    ablate_heads,
    ablation_effects,
    attention_layers,
    attention_rollout,
    call_projections,
    edit_heads,
    head_outputs,
    head_similarity,
    observe,
    patch_heads,
)
from mhattn.models import LanguageModel
from mhattn.variants import LatentAttention

B, L, S, LAYERS, MLP = 3, 5, 7, 2, 31
CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # float32 by other kernels, through layers


@pytest.fixture(scope="module")
def transformers():
    """Imported once, so that no test is slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    return transformers


def encoder(num_heads=3, head_dim=7, **options):
    """Layers with random weights of their own."""
    options = {"batch_first": True, "dropout": 0.1, **options}
    embed_dim = num_heads * head_dim
    layer = nn.TransformerEncoderLayer(embed_dim, num_heads, MLP, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are no good with odd heads
        model = nn.TransformerEncoder(layer, LAYERS)
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            nn.init.normal_(parameter, std=0.3)
    return model.eval()


def state_of(model):
    """What hooks or swaps would leave behind."""
    hooks = (
        "_forward_hooks",
        "_forward_pre_hooks",
        "_backward_hooks",
        "_forward_hooks_with_kwargs",
    )
    return [
        (name, id(module), module.training, [dict(getattr(module, hook)) for hook in hooks])
        for name, module in model.named_modules()
    ] + [(name, id(weight), weight._version) for name, weight in model.named_parameters()]


def maps_from_layers(model, x, padding=None):
    """The input of each layer from the layers before it, its maps from PyTorch's function."""
    found, flags = [], {"need_weights": True, "average_attn_weights": False}
    for layer in model.layers:
        given = layer.norm1(x) if layer.norm_first else x
        attention = copy.deepcopy(layer.self_attn)
        found.append(attention(given, given, given, key_padding_mask=padding, **flags)[1])
        x = layer(x, src_key_padding_mask=padding)
    return found


class TestEncoder:
    @pytest.mark.parametrize("gradients", [False, True])
    @pytest.mark.parametrize("num_heads", [2, 3])  # the fast path wants an even number
    @pytest.mark.parametrize("norm_first", [False, True])
    @pytest.mark.parametrize("batch_first", [True, False])
    def test_maps_are_those_of_each_layer(self, batch_first, norm_first, num_heads, gradients):
        model = encoder(num_heads, batch_first=batch_first, norm_first=norm_first)
        x = torch.randn(B, L, num_heads * 7) if batch_first else torch.randn(L, B, num_heads * 7)
        with torch.set_grad_enabled(gradients):
            before, state = model(x), state_of(model)
            found = attention_maps(model, x)
            expected = maps_from_layers(model, x)
            assert state_of(model) == state
            assert torch.equal(model(x), before)
        torch.testing.assert_close(found.output, before, **CLOSE)
        assert found.names == ["layers.0.self_attn", "layers.1.self_attn"]
        for weights, theirs in zip(found.maps, expected, strict=True):
            assert weights.shape == (B, num_heads, L, L)
            assert weights.requires_grad == gradients
            torch.testing.assert_close(weights, theirs, **CLOSE)

    @pytest.mark.parametrize("gradients", [False, True])
    def test_padding(self, gradients):
        """Without gradients the encoder packs sequences of several lengths in one tensor."""
        model, x = encoder(2), torch.randn(B, L, 14)
        padding = torch.arange(L) >= torch.tensor([[L], [2], [4]])
        real = ~padding
        with torch.set_grad_enabled(gradients), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before = model(x, src_key_padding_mask=padding)
            found = attention_maps(model, x, src_key_padding_mask=padding)
            with ablate_heads(model, [(0, 1)]):
                ablated = model(x, src_key_padding_mask=padding)
            without = without_columns(model, [(0, 1)])(x, src_key_padding_mask=padding)
        torch.testing.assert_close(found.output, before, **CLOSE)
        torch.testing.assert_close(ablated, without, **CLOSE)
        for weights, theirs in zip(found.maps, maps_from_layers(model, x, padding), strict=True):
            weights, theirs = weights.transpose(1, 2)[real], theirs.transpose(1, 2)[real]
            torch.testing.assert_close(weights, theirs, **CLOSE)
        assert not found.maps[1][1, :, :, 2:].any()

    def test_causal_mask(self):
        model, x = encoder(), torch.randn(B, L, 21)
        mask = nn.Transformer.generate_square_subsequent_mask(L)
        found = attention_maps(model, x, mask=mask, is_causal=True)
        torch.testing.assert_close(found.output, model(x, mask=mask), **CLOSE)
        for weights in found.maps:
            assert not weights.triu(1).any()
            torch.testing.assert_close(weights.sum(dim=-1), torch.ones(B, 3, L))

    def test_encoder_and_decoder(self):
        sizes = {"num_encoder_layers": 1, "num_decoder_layers": 2, "dim_feedforward": MLP}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = nn.Transformer(21, 3, **sizes, batch_first=True).eval()
        source, target = torch.randn(B, S, 21), torch.randn(B, L, 21)
        found = attention_maps(model, source, target)
        pairs = zip(found.maps, found.names, strict=True)
        shapes = [(name, tuple(weights.shape[-2:])) for weights, name in pairs]
        assert shapes == [
            ("encoder.layers.0.self_attn", (S, S)),
            ("decoder.layers.0.self_attn", (L, L)),
            ("decoder.layers.0.multihead_attn", (L, S)),
            ("decoder.layers.1.self_attn", (L, L)),
            ("decoder.layers.1.multihead_attn", (L, S)),
        ]
        torch.testing.assert_close(found.output, model(source, target), **CLOSE)

    def test_half_precision(self):
        model, x = encoder(2).bfloat16(), torch.randn(B, L, 14).bfloat16()
        with torch.no_grad():
            found = attention_maps(model, x)
            with ablate_heads(model, [(1, 0)]):
                ablated = model(x)
            expected = without_columns(model, [(1, 0)])(x)
        assert found.maps[0].dtype == torch.bfloat16
        torch.testing.assert_close(ablated, expected, rtol=0.05, atol=0.05)


class TestTorchLayer:
    class Caller(nn.Module):
        """Calls the layer in a way of its own, and keeps what it got."""

        def __init__(self, call, **options):
            super().__init__()
            options = {"kdim": 11, "vdim": 13, "batch_first": True, **options}
            self.attention = nn.MultiheadAttention(21, 3, **options)
            self.call = call

        def forward(self, *inputs):
            self.got = self.call(self.attention, *inputs)
            return self.got[0]

    @pytest.mark.parametrize(
        "call",
        [
            lambda layer, q, k, v: layer(q, k, v),  # averaged
            lambda layer, q, k, v: layer(q, k, v, need_weights=False),
            lambda layer, q, k, v: layer(q, key=k, value=v, average_attn_weights=False),
            lambda layer, q, k, v: layer(q, k, v, None, True, None, False),
            lambda layer, q, k, v: layer(q, k, v, None, False),
        ],
    )
    def test_the_caller_gets_what_it_asked_for(self, call):
        model = self.Caller(call).eval()
        inputs = torch.randn(B, L, 21), torch.randn(B, S, 11), torch.randn(B, S, 13)
        model(*inputs)
        expected = model.got
        found = attention_maps(model, *inputs)
        torch.testing.assert_close(model.got[0], expected[0], **CLOSE)
        if expected[1] is None:
            assert model.got[1] is None
        else:
            torch.testing.assert_close(model.got[1], expected[1])
        _, theirs = model.attention(*inputs, average_attn_weights=False)
        assert found.names == ["attention"]
        torch.testing.assert_close(found.maps[0], theirs)

    def test_one_sequence_without_a_batch(self):
        layer, x = nn.MultiheadAttention(21, 3).eval(), torch.randn(L, 21)
        found = attention_maps(layer, x, x, x)
        expected = layer(x, x, x, average_attn_weights=False)[1]
        assert found.names == [""]
        torch.testing.assert_close(found.maps[0], expected[None])
        with ablate_heads(layer, [(0, 1)]):
            ablated = layer(x, x, x)[0]
        torch.testing.assert_close(ablated, without_columns(layer, [(0, 1)])(x, x, x)[0])

    @pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
    def test_keys_that_are_added(self, options):
        layer = nn.MultiheadAttention(21, 3, batch_first=True, **options).eval()
        x = torch.randn(B, L, 21)
        found = attention_maps(layer, x, x, x)
        assert found.maps[0].shape == (B, 3, L, L + 1)
        assert torch.equal(found.output[1], layer(x, x, x)[1])

    def test_frozen_layers_get_no_gradients(self):
        """The identity in the projection's place has weights that nobody trains."""
        layer, x = nn.MultiheadAttention(21, 3, batch_first=True).eval(), torch.randn(B, L, 21)
        layer.requires_grad_(False)
        [heads] = head_outputs(layer, x, x, x)
        assert not heads.requires_grad
        with patch_heads(layer, [(0, 1)], [heads]):
            assert not layer(x, x, x)[0].requires_grad


class OurModel(nn.Module):
    """Layers of several widths, the first with groups."""

    def __init__(self):
        super().__init__()
        sizes = {"kv_lora_rank": 11, "qk_nope_head_dim": 5, "qk_rope_head_dim": 2, "v_head_dim": 3}
        self.first = MultiHeadAttention(17, 6, num_kv_heads=2, head_dim=5)
        self.second = nn.ModuleDict({"latent": LatentAttention(17, 5, **sizes)})
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, x):
        x = x + self.first(x, is_causal=True)
        output, self.weights = self.second["latent"](x, is_causal=True, return_weights=True)
        return x + output


class TestOurs:
    def test_maps(self):
        model, x = OurModel().eval(), torch.randn(B, L, 17)
        before, state = model(x), state_of(model)
        found = attention_maps(model, x)
        assert state_of(model) == state
        assert torch.equal(model(x), before)
        torch.testing.assert_close(found.output, before)
        assert found.names == ["first", "second.latent"]
        _, expected = model.first(x, is_causal=True, return_weights=True)
        torch.testing.assert_close(found.maps[0], expected)
        torch.testing.assert_close(found.maps[1], model.weights)
        assert [len(weights[0]) for weights in found.maps] == [6, 5]

    def test_ablation_in_layers_with_different_numbers_of_heads(self):
        model, x = OurModel().eval(), torch.randn(B, L, 17)
        other = copy.deepcopy(model)
        with torch.no_grad():
            other.first.out_proj.weight[:, 5 * 5 : 6 * 5] = 0
            other.second["latent"].out_proj.weight[:, 4 * 3 : 5 * 3] = 0
        with ablate_heads(model, [(1, 4), (0, 5)]):
            torch.testing.assert_close(model(x), other(x))

    def test_language_model(self):
        sizes = {"num_heads": 15, "num_kv_heads": 5, "mlp_dim": MLP, "base": 50.0, "eps": 0.1}
        model = LanguageModel(29, 3, embed_dim=15 * 14, **sizes).eval()
        tokens = torch.randint(29, (B, L))
        found = attention_maps(model, tokens)
        logits, expected = model(tokens, return_weights=True)
        torch.testing.assert_close(torch.stack(found.maps, dim=1), expected)
        torch.testing.assert_close(found.output, logits, rtol=1e-4, atol=1e-4)
        assert found.names == [f"blocks.{i}.attention" for i in range(3)]


# Models of transformers: a class, its config, its layers and their projections


def llama(transformers, **options):
    sizes = {"hidden_size": 45, "intermediate_size": MLP, "num_hidden_layers": LAYERS}
    heads = {"num_attention_heads": 15, "num_key_value_heads": 5, "head_dim": 14}
    config = transformers.LlamaConfig(vocab_size=29, **sizes, **heads, **options)
    model = transformers.LlamaModel(config)
    return model, [layer.self_attn.o_proj for layer in model.layers]


def gpt2(transformers, **options):
    sizes = {"n_embd": 21, "n_layer": LAYERS, "n_head": 3, "n_positions": 11}
    model = transformers.GPT2Model(transformers.GPT2Config(vocab_size=29, **sizes, **options))
    return model, [block.attn.c_proj for block in model.h]


def bert(transformers, **options):
    sizes = {"hidden_size": 21, "intermediate_size": MLP, "num_hidden_layers": LAYERS}
    config = transformers.BertConfig(vocab_size=29, **sizes, num_attention_heads=3, **options)
    model = transformers.BertModel(config)
    return model, [layer.attention.output.dense for layer in model.encoder.layer]


def bart(transformers, **options):
    """Encoder, decoder, and attention from one to the other."""
    sizes = {"d_model": 21, "encoder_ffn_dim": MLP, "decoder_ffn_dim": MLP}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 11}
    heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 7}
    config = transformers.BartConfig(vocab_size=29, **sizes, **layers, **heads, **options)
    model = transformers.BartModel(config)
    decoder = model.decoder.layers[0]
    attention = model.encoder.layers[0].self_attn, decoder.self_attn, decoder.encoder_attn
    return model, [layer.out_proj for layer in attention]


def t5(transformers, **options):
    """Encoder, decoder, and attention from one to the other; the bias is returned as well."""
    sizes = {"d_model": 22, "d_kv": 7, "d_ff": MLP, "num_layers": LAYERS, "num_heads": 3}
    model = transformers.T5Model(transformers.T5Config(vocab_size=29, **sizes, **options))
    layers = [block.layer[0].SelfAttention for block in model.encoder.block]
    for block in model.decoder.block:
        layers += [block.layer[0].SelfAttention, block.layer[1].EncDecAttention]
    return model, [layer.o for layer in layers]


SIZES = {"hidden_size": 24, "num_hidden_layers": LAYERS, "num_attention_heads": 3, "vocab_size": 29}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def modernbert(transformers, **options):
    marks = {**TOKENS, "cls_token_id": 1, "sep_token_id": 2}
    config = transformers.ModernBertConfig(**SIZES, intermediate_size=MLP, **marks, **options)
    model = transformers.ModernBertModel(config)
    return model, [layer.attn.Wo for layer in model.layers]


def falcon(transformers, **options):
    model = transformers.FalconModel(transformers.FalconConfig(**SIZES, **options))
    return model, [block.self_attention.dense for block in model.h]


def deepseek_v3(transformers, **options):
    """Latent attention."""
    ranks = {"q_lora_rank": 8, "kv_lora_rank": 9, "num_key_value_heads": 3, "v_head_dim": 8}
    widths = {"qk_nope_head_dim": 4, "qk_rope_head_dim": 6, "first_k_dense_replace": LAYERS}
    experts = {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2}
    sizes = {**SIZES, **TOKENS, **ranks, **widths, **experts, "intermediate_size": MLP}
    model = transformers.DeepseekV3Model(transformers.DeepseekV3Config(**sizes, **options))
    return model, [layer.self_attn.o_proj for layer in model.layers]


def gpt_oss(transformers, **options):
    """With a sink for each head."""
    sizes = {**SIZES, "hidden_size": 32, "num_attention_heads": 4, "head_dim": 8, **TOKENS}
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "num_key_value_heads": 2}
    config = transformers.GptOssConfig(**sizes, **experts, intermediate_size=32, **options)
    model = transformers.GptOssModel(config)
    return model, [layer.self_attn.o_proj for layer in model.layers]


def bloom(transformers, **options):
    sizes = {"hidden_size": 24, "n_layer": LAYERS, "n_head": 3, "vocab_size": 29}
    return transformers.BloomModel(transformers.BloomConfig(**sizes, **options)), []


def deberta(transformers, **options):
    config = transformers.DebertaV2Config(**SIZES, intermediate_size=MLP, **options)
    return transformers.DebertaV2Model(config), []


MODELS = [llama, gpt2, bert, bart]
OTHERS = [modernbert, falcon, deepseek_v3]
EAGER = {"attn_implementation": "eager"}


def made(make, transformers, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, projections = make(transformers, **options)
    for name, parameter in model.named_parameters():
        if "norm" not in name.lower() and "ln_" not in name:
            nn.init.normal_(parameter, std=0.3)
    return model.eval(), projections


class TestTransformers:
    @pytest.mark.parametrize("make", MODELS)
    def test_maps_are_its_own(self, make, transformers):
        model, projections = made(make, transformers, **EAGER)
        tokens = torch.randint(3, 29, (B, L))
        theirs = model(tokens, output_attentions=True)
        names = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
        expected = [x for name in names for x in getattr(theirs, name, None) or ()]
        before, state = model(tokens).last_hidden_state, state_of(model)
        found = attention_maps(model, tokens)
        assert state_of(model) == state
        assert torch.equal(model(tokens).last_hidden_state, before)
        assert torch.equal(found.output.last_hidden_state, before)
        assert len(found.maps) == len(expected) == len(projections)
        for weights, own in zip(found.maps, expected, strict=True):
            assert torch.equal(weights, own)
        layers = attention_layers(model)
        assert [id(layer.projection) for layer in layers] == [id(part) for part in projections]
        assert found.names == [layer.name for layer in layers]
        assert [layer.num_heads for layer in layers] == [len(own[0]) for own in expected]

    def test_grouped_heads(self, transformers):
        """A map for each head of the query, all different."""
        model, _ = made(llama, transformers, **EAGER)
        maps = attention_maps(model, torch.randint(29, (B, L))).maps
        assert maps[0].shape == (B, 15, L, L)
        assert len(torch.unique(maps[0][0, :, -1], dim=0)) == 15

    def test_inside_of_another_module(self, transformers):
        model, _ = made(bert, transformers, **EAGER)
        outer = nn.Sequential(model).eval()
        tokens = torch.randint(29, (B, L))
        found = attention_maps(outer, tokens)
        assert found.names[1] == "0.encoder.layer.1.attention.self"
        assert torch.equal(found.maps[1], attention_maps(model, tokens).maps[1])
        with ablate_heads(outer, [(1, 2)]), ablate_heads(model, [(1, 0)]):
            both = outer(tokens).last_hidden_state
        with ablate_heads(model, [(1, 2), (1, 0)]):
            torch.testing.assert_close(model(tokens).last_hidden_state, both)

    def test_a_layer_that_is_used_again(self, transformers):
        sizes = {"hidden_size": 21, "intermediate_size": MLP, "embedding_size": 11}
        config = transformers.AlbertConfig(
            vocab_size=29, **sizes, num_hidden_layers=3, num_attention_heads=3, **EAGER
        )
        model, tokens = transformers.AlbertModel(config).eval(), torch.randint(29, (B, L))
        found = attention_maps(model, tokens)
        expected = model(tokens, output_attentions=True).attentions
        assert len(found.maps) == 3
        assert len(set(found.names)) == len(attention_layers(model)) == 1
        assert all(map(torch.equal, found.maps, expected))
        with pytest.raises(ValueError, match=r"must be called once, got 3 times$"):
            head_outputs(model, tokens)

    @pytest.mark.parametrize("make", MODELS)
    def test_without_eager(self, make, transformers):
        """By itself the library returns no weights and raises no error; here is one."""
        model, _ = made(make, transformers)
        tokens, state = torch.randint(3, 29, (B, L)), state_of(model)
        rule = "^attn_implementation must be 'eager', which has weights, got 'sdpa'; call"
        with pytest.raises(ValueError, match=rule):
            attention_maps(model, tokens)
        assert state_of(model) == state
        theirs = model(tokens, output_attentions=True)
        assert not theirs.get("attentions")
        assert not theirs.get("encoder_attentions")
        model.set_attn_implementation("eager")
        found = attention_maps(model, tokens)
        assert found.maps[0].shape[:1] == (B,)

    @pytest.mark.parametrize("implementation", ["eager", "sdpa"])
    @pytest.mark.parametrize("make", MODELS)
    def test_ablation_is_zeros_in_the_weight(self, make, implementation, transformers):
        model, projections = made(make, transformers, attn_implementation=implementation)
        tokens = torch.randint(3, 29, (B, L))

        def output():
            with torch.no_grad():
                return model(tokens).last_hidden_state

        last, whole = len(projections) - 1, output()
        with ablate_heads(model, [(last, 2), (0, 1)]):
            ablated = output()
        assert torch.equal(output(), whole)
        for layer, head in ((last, 2), (0, 1)):
            weight = projections[layer].weight
            columns = weight.T if make is gpt2 else weight  # its Conv1D stores the transpose
            size = columns.shape[1] // attention_layers(model)[layer].num_heads
            with torch.no_grad():
                columns[:, head * size : (head + 1) * size] = 0
        torch.testing.assert_close(ablated, output(), **CLOSE)
        assert not torch.allclose(ablated, whole, atol=1e-2)

    @pytest.mark.parametrize("size", [1, B])  # alone, the bias has the shape of the weights
    def test_t5_returns_its_bias_before_its_weights(self, size, transformers):
        model, projections = made(t5, transformers, **EAGER)
        inputs = {"input_ids": torch.randint(3, 29, (size, S))}
        inputs["decoder_input_ids"] = torch.randint(3, 29, (size, L))
        theirs = model(**inputs, output_attentions=True)
        own, crossed = theirs.decoder_attentions, theirs.cross_attentions
        turns = [x for pair in zip(own, crossed, strict=True) for x in pair]  # each layer's two
        found = attention_maps(model, **inputs)
        assert len(found.maps) == 6
        for weights, expected in zip(found.maps, [*theirs.encoder_attentions, *turns], strict=True):
            assert torch.equal(weights, expected)
        layers = attention_layers(model)
        assert [id(layer.projection) for layer in layers] == [id(part) for part in projections]
        heads = head_outputs(model, **inputs)
        assert [tuple(x.shape) for x in heads] == [(size, S, 3, 7)] * 2 + [(size, L, 3, 7)] * 4

    @pytest.mark.parametrize("make", OTHERS)
    def test_other_architectures(self, make, transformers):
        """Shapes of the projection and weights as the library returns them."""
        model, projections = made(make, transformers, **EAGER)
        tokens = torch.randint(3, 29, (B, L))
        expected = model(tokens, output_attentions=True).attentions
        found = attention_maps(model, tokens)
        assert len(found.maps) == len(expected) == LAYERS
        assert all(map(torch.equal, found.maps, expected))
        layers = attention_layers(model)
        assert [id(layer.projection) for layer in layers] == [id(part) for part in projections]
        assert {tuple(x.shape) for x in head_outputs(model, tokens)} == {(B, L, 3, 8)}

    def test_sinks_take_their_share(self, transformers):
        """Rows of gpt-oss sum to less than one, and what expects one says so."""
        model, _ = made(gpt_oss, transformers, **EAGER)
        tokens = torch.randint(3, 29, (B, L))
        maps = attention_maps(model, tokens).maps
        assert all(map(torch.equal, maps, model(tokens, output_attentions=True).attentions))
        assert maps[0].sum(dim=-1).max() < 1
        for reads in (attention_rollout, lambda maps: head_similarity(maps[0])):
            with pytest.raises(ValueError, match="weights must sum to 1 over what each query sees"):
                reads(maps)

    def test_a_class_that_keeps_its_implementation(self, transformers):
        """Falcon's layers do not change after they were built; the error says what does."""
        model, _ = made(falcon, transformers)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.set_attn_implementation("eager")
        cure = "a class that ignores it has to be built with attn_implementation='eager'$"
        with pytest.raises(ValueError, match=cure):
            attention_maps(model, torch.randint(3, 29, (B, L)))

    @pytest.mark.parametrize(
        ("made_of", "got"),
        [
            (lambda out, weights: out, r"after its output, got \[\]$"),
            (lambda out, weights: (out, None), r"after its output, got \['NoneType'\]$"),
            (lambda out, weights: (out, weights[:, 1:]), r"got \[\(3, 2, 5, 5\)\]$"),
            (lambda out, weights: (out, weights[0]), r"got \[\(3, 5, 5\)\]$"),
            (lambda out, weights: (out, weights - 0.5), "got numbers that are none$"),
            (lambda out, weights: (out, 2 * weights), "got numbers that are none$"),
        ],
    )
    def test_a_layer_that_returns_no_weights(self, made_of, got, transformers):
        model, _ = made(bert, transformers, **EAGER)
        layer = model.encoder.layer[1].attention.self
        layer.register_forward_hook(lambda module, args, result: made_of(*result))
        state = state_of(model)
        rule = r"^'encoder.layer.1.attention.self' must return weights, .*"
        with pytest.raises(ValueError, match=rule + got):
            attention_maps(model, torch.randint(3, 29, (B, L)))
        assert state_of(model) == state

    @pytest.mark.parametrize("make", [bloom, deberta])
    def test_models_of_the_library_that_it_does_not_know(self, make, transformers):
        """They lack one of the two attributes that the error names."""
        model, _ = made(make, transformers)
        rule = "or transformers with is_causal and a config with _attn_implementation, got "
        with pytest.raises(ValueError, match=rule + type(model).__name__):
            attention_layers(model)
        assert not any(hasattr(module, "is_causal") for module in model.modules())

    def test_projection_of_another_name(self, transformers):
        model, _ = made(llama, transformers)
        part = model.layers[1].self_attn
        part.unknown = part.o_proj
        del part.o_proj
        rule = r"^the output projection of 'layers.1.self_attn' must be one of o_proj, .* got \['q"
        with pytest.raises(ValueError, match=rule), ablate_heads(model, [(1, 0)]):
            pass

    def test_the_library_is_never_imported(self):
        tree = ast.parse(inspect.getsource(observe))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not any("transformers" in ast.unparse(node) for node in imports)


# Ablation in PyTorch's layers


def without_columns(model, heads):
    """A copy whose output projections have zeros where these heads come in."""
    other = copy.deepcopy(model)
    layers = [part for part in other.modules() if isinstance(part, nn.MultiheadAttention)]
    for layer, head in heads:
        size = layers[layer].head_dim
        with torch.no_grad():
            layers[layer].out_proj.weight[:, head * size : (head + 1) * size] = 0
    return other


class TestAblation:
    @pytest.mark.parametrize("gradients", [False, True])
    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("num_heads", [2, 3])
    @pytest.mark.parametrize("batch_first", [True, False])
    def test_zeros_are_zero_columns(self, batch_first, num_heads, bias, gradients):
        model = encoder(num_heads, batch_first=batch_first, bias=bias)
        x, heads = torch.randn(B, L, num_heads * 7), [(1, 1), (0, 0)]
        with torch.set_grad_enabled(gradients):
            before, state = model(x), state_of(model)
            with ablate_heads(model, heads):
                ablated = model(x)
            assert state_of(model) == state
            assert torch.equal(model(x), before)
            expected = without_columns(model, heads)(x)
        torch.testing.assert_close(ablated, expected, **CLOSE)
        assert not torch.allclose(ablated, before, atol=1e-2)

    @pytest.mark.parametrize("batch_first", [True, False])
    def test_another_replacement(self, batch_first):
        """Against our layer with the same weights; ``by`` always gets the batch first."""
        theirs = nn.MultiheadAttention(21, 3, batch_first=batch_first)
        ours, x = MultiHeadAttention.from_torch(theirs), torch.randn(B, L, 21)

        def mean(head):
            return head.mean(dim=0)

        with ablate_heads(ours, [(0, 2)], mean):
            expected = ours(x)
        given = x if batch_first else x.transpose(0, 1)
        with ablate_heads(theirs, [(0, 2)], mean):
            output = theirs(given, given, given)[0]
        output = output if batch_first else output.transpose(0, 1)
        torch.testing.assert_close(output, expected, **CLOSE)

    def test_maps_stay_and_later_ones_change(self):
        model, x = encoder(), torch.randn(B, L, 21)
        before = attention_maps(model, x).maps
        with ablate_heads(model, [(0, 1)]):
            after = attention_maps(model, x).maps
        torch.testing.assert_close(after[0], before[0])
        assert not torch.allclose(after[1], before[1], atol=1e-3)

    def test_gradients_reach_the_projection(self):
        model, x = encoder(), torch.randn(B, L, 21)
        with ablate_heads(model, [(1, 2)]):
            model(x).sin().sum().backward()
        grad = model.layers[1].self_attn.out_proj.weight.grad
        assert not grad[:, 14:].any()
        assert grad[:, :14].abs().min() > 0

    def test_effects_with_the_tools_for_one_layer(self):
        model, x = encoder(), torch.randn(B, L, 21)

        def loss(model=model):
            with torch.no_grad():
                return model(x).sin().sum().item()

        projections = [layer.projection for layer in attention_layers(model)]
        with call_projections(model):
            effects = ablation_effects(loss, projections, 3)
        for layer in range(LAYERS):
            for head in range(3):
                expected = loss(without_columns(model, [(layer, head)])) - loss()
                assert effects[layer, head].item() == pytest.approx(expected, abs=1e-4)

    def test_a_call_that_fails_leaves_nothing_behind(self):
        model, x = encoder(), torch.randn(B, L, 21)
        state = state_of(model)
        with pytest.raises(AssertionError, match="does not match"), ablate_heads(model, [(0, 1)]):
            model.layers[0].self_attn(x, x[..., :5], x)
        with pytest.raises(KeyError), ablate_heads(model, [(0, 1)]):
            raise KeyError
        with pytest.raises(AssertionError, match="embedding dim"):
            attention_maps(model, torch.randn(B, L, 5))
        assert state_of(model) == state

    def test_no_head_is_no_change(self):
        model, x = encoder(2), torch.randn(B, L, 14)
        with torch.no_grad(), ablate_heads(model, []):
            assert torch.equal(model(x), model(x))


class TestOutputsAndPatching:
    def test_outputs_are_weights_times_values(self):
        model, x = encoder(), torch.randn(B, L, 21)
        found, maps = head_outputs(model, x), attention_maps(model, x).maps
        assert [tuple(heads.shape) for heads in found] == [(B, L, 3, 7)] * LAYERS
        layer = model.layers[0].self_attn
        value = x @ layer.in_proj_weight[42:].T + layer.in_proj_bias[42:]
        expected = torch.einsum("bhls,bshd->blhd", maps[0], value.unflatten(-1, (3, 7)))
        torch.testing.assert_close(found[0], expected, **CLOSE)

    def test_all_heads_of_the_only_layer_are_its_output(self):
        layer, (x, other) = OurModel().first, torch.randn(2, B, L, 17)
        source, every = head_outputs(layer, other), [(0, head) for head in range(6)]
        with patch_heads(layer, every, source):
            torch.testing.assert_close(layer(x), layer(other))
        with patch_heads(layer, every, source, [1, -1]):
            output = layer(x)
        torch.testing.assert_close(output[:, [1, -1]], layer(other)[:, [1, -1]])
        torch.testing.assert_close(output[:, [0, 2, 3]], layer(x)[:, [0, 2, 3]])

    def test_one_head_is_its_term(self):
        layer, (x, other) = OurModel().first, torch.randn(2, B, L, 17)
        mine, theirs = head_outputs(layer, x)[0], head_outputs(layer, other)[0]
        with patch_heads(layer, [(0, 4)], [theirs]):
            moved = layer(x)
        expected = (theirs - mine)[:, :, 4] @ layer.out_proj.weight[:, 20:25].T
        torch.testing.assert_close(moved - layer(x), expected)

    def test_patching_with_itself_is_no_change(self, transformers):
        model, _ = made(llama, transformers)
        tokens = torch.randint(29, (B, L))
        with torch.no_grad():
            source = head_outputs(model, tokens)
            with patch_heads(model, [(0, 3), (1, 14)], source):
                patched = model(tokens).last_hidden_state
            assert torch.equal(patched, model(tokens).last_hidden_state)


class TestBadInput:
    def test_no_model(self):
        with pytest.raises(TypeError, match=r"^model must be a torch\.nn\.Module, got list$"):
            attention_maps([])

    def test_no_attention(self):
        rule = "^model must hold an attention layer of mhattn, .* got Linear$"
        with pytest.raises(ValueError, match=rule):
            attention_maps(nn.Linear(2, 2).eval(), torch.zeros(1, 2))

    def test_training(self):
        model, x = encoder(), torch.randn(B, L, 21)
        model.layers[1].self_attn.train()
        rule = "^model must be in evaluation mode, .* got 'layers.1.self_attn' in training$"
        with pytest.raises(ValueError, match=rule):
            attention_maps(model, x)
        with pytest.raises(ValueError, match=r"call model\.eval\(\), got TransformerEncoder in"):
            attention_maps(model.train(), x)

    def test_a_layer_that_is_not_called(self):
        model = OurModel().eval()
        model.forward = lambda x: x
        with pytest.raises(ValueError, match=r"^model must call an attention layer, got OurModel$"):
            attention_maps(model, torch.zeros(B, L, 17))
        with pytest.raises(ValueError, match=r"^projection must be called .* got Linear$"):
            head_outputs(model, torch.zeros(B, L, 17))

    def test_a_layer_that_has_no_weights(self):
        from mhattn.variants import linear_attention

        layer = MultiHeadAttention(21, 3, attend=linear_attention).eval()
        with pytest.raises(ValueError, match="return_weights"):
            attention_maps(layer, torch.randn(B, L, 21))

    @pytest.mark.parametrize(
        ("heads", "text"),
        [
            ([(2, 0)], r"^heads must be of 2 layers, from 0, got \(2, 0\)$"),
            ([(-1, 0)], r"^heads must be of 2 layers, from 0, got \(-1, 0\)$"),
            ([(0, 5), (1, 5)], r"^heads of layer 1 must be 0 to 4, got \(1, 5\)$"),
            ([(0, -1)], r"^heads of layer 0 must be 0 to 5, got \(0, -1\)$"),
            ([(1, 2), (1, 2)], r"^heads must not be named twice, got \(1, 2\)$"),
            (["2.3", (1, 2)], r"^heads must not be named twice, got \(1, 2\)$"),
            (["3.1"], r"^heads must be of 2 layers, from 0, got \(2, 0\)$"),
            (["2.6"], r"^heads of layer 1 must be 0 to 4, got \(1, 5\)$"),
        ],
    )
    def test_heads(self, heads, text):
        model, x = OurModel(), torch.randn(B, L, 17)
        with pytest.raises(ValueError, match=text), ablate_heads(model, heads):
            pass
        source = head_outputs(model, x)
        with pytest.raises(ValueError, match=text), patch_heads(model, heads, source):
            pass

    def test_names_are_those_of_the_pages(self):
        model, x = OurModel(), torch.randn(B, L, 17)
        source = head_outputs(model, torch.randn(B, L, 17))
        outputs = []
        for heads in ([(0, 5), (1, 3)], ["1.6", "2.4"]):
            with ablate_heads(model, heads):
                outputs.append(model(x))
            with patch_heads(model, heads, source, [-1, 0]):
                outputs.append(model(x))
        torch.testing.assert_close(outputs[:2], outputs[2:], rtol=0, atol=0)
        assert not torch.equal(outputs[0], outputs[1])

    @pytest.mark.parametrize("head", [3, 2.4, "24", "0.1", "1.-1", "1.2.3", (1,), (1, 2.0), None])
    def test_what_is_no_head(self, head):
        rule = (
            r'^heads must be pairs \(layer, head\), from 0, or names such as "24.4", from 1, got '
        )
        with pytest.raises(TypeError, match=rule), ablate_heads(OurModel(), [head]):
            pass

    @pytest.mark.parametrize("position", [L, -L - 1, 99])
    def test_position(self, position):
        model, x = OurModel(), torch.randn(B, L, 17)
        source = head_outputs(model, x)
        rule = rf"^positions must be in \[-5, 5\), got {position}$"
        with (
            pytest.raises(ValueError, match=rule),
            patch_heads(model, ["1.1"], source, [0, position]),
        ):
            model(x)

    def test_source(self):
        model, x = OurModel(), torch.randn(B, L, 17)
        source = head_outputs(model, x)
        with (
            pytest.raises(ValueError, match=r"^source must be of 2 layers, got 1$"),
            patch_heads(model, [(0, 0)], source[:1]),
        ):
            pass
        rule = r"^source\[0\] must be \(3, 4, 6, 5\), as in this call, got \(3, 5, 6, 5\)$"
        with pytest.raises(ValueError, match=rule), patch_heads(model, [(0, 0)], source):
            model(x[:, :4])

    def test_edits_still_need_a_call(self):
        """Without the context PyTorch's layer never calls its projection."""
        layer, x = nn.MultiheadAttention(21, 3), torch.randn(L, B, 21)
        with (
            pytest.raises(ValueError, match=r"^projection must be called"),
            edit_heads(layer.out_proj, 3, torch.zeros_like),
        ):
            layer(x, x, x)

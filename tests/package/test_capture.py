"""Maps of any model: weights of a call against its output, and models of forms that are common."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mhattn import MultiHeadAttention, attention_maps
from mhattn.inside import (
    ablate_heads,
    attention_layers,
    captured_maps,
    fed_heads,
    head_outputs,
    layers,
    patch_heads,
    peak_bytes,
    register,
    weights_of_call,
    with_sinks,
)

B, H, L, S, D, E = 3, 5, 7, 11, 2, 10  # E = H * D
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(layers, "REGISTERED", {})


def boolean(*shape):
    mask = torch.rand(*shape) < 0.6
    mask[..., 0] = True
    return mask


class Asking(nn.Module):
    def forward(self, x):  # (B, L, E)
        heads = x.unflatten(-1, (H, D)).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(2)


class TestWhatIsKept:
    def test_some_heads_and_rows_of_some_layers(self):
        model, x = nn.Sequential(*[Asking() for _ in range(4)]).eval(), torch.randn(B, L, E)
        whole = captured_maps(model, x)
        asked = []

        def keep(name, weights):
            asked.append((name, weights.shape))
            return weights[:, [1, 4], -1:] if name in ("1", "2") else None

        part = captured_maps(model, x, keep=keep)
        assert asked == [(name, (B, H, L, L)) for name in "0123"]
        assert part.names == ["1", "2"]
        for found, expected in zip(part.maps, whole.maps[1:3], strict=True):
            assert found.equal(expected[:, [1, 4], -1:])
        assert part.output.equal(whole.output)

    @pytest.mark.parametrize("kind", [MultiHeadAttention, nn.MultiheadAttention])
    def test_layers_that_are_asked(self, kind):
        layer = kind(E, H) if kind is MultiHeadAttention else kind(E, H, batch_first=True)
        x = torch.randn(B, L, E)
        whole = captured_maps(layer.eval(), x, x, x)
        part = captured_maps(layer, x, x, x, keep=lambda name, weights: weights[:, :1])
        assert part.maps[0].equal(whole.maps[0][:, :1])

    def test_nothing_is_kept_but_calls_were_seen(self):
        found = captured_maps(Asking().eval(), torch.randn(B, L, E), keep=lambda *both: None)
        assert (found.maps, found.names) == ([], [])
        with pytest.raises(ValueError, match="must call"):
            captured_maps(nn.ReLU().eval(), torch.randn(B, L, E), keep=lambda *both: None)

    @torch.no_grad()
    def test_memory_is_that_of_one_map(self):
        """Ten layers: with all maps, ten tables and what one call needs; else only the latter."""
        model, n = nn.Sequential(*[Asking() for _ in range(10)]).eval(), 512
        x, bytes_of_a_map = torch.randn(1, n, E), 4 * H * n * n
        everything = peak_bytes(lambda: captured_maps(model, x))
        means = peak_bytes(lambda: captured_maps(model, x, keep=lambda name, w: w.mean(dim=-1)))
        assert 8.9 < (everything - means) / bytes_of_a_map < 10.1


@pytest.mark.filterwarnings("ignore")  # the library has many
@torch.no_grad()
def test_what_generate_returns_are_the_rows_of_one_call():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"vocab_size": 53, "hidden_size": 32, "intermediate_size": 40}
    model = LlamaForCausalLM(LlamaConfig(attn_implementation="eager", **sizes)).eval()
    model.generation_config.pad_token_id = 0
    prompt, new = torch.randint(3, 53, (2, L)), 4
    options = {"return_dict_in_generate": True, "output_attentions": True, "do_sample": False}
    found = model.generate(prompt, max_new_tokens=new, min_new_tokens=new, **options)
    assert found.sequences.shape == (2, L + new)
    assert len(found.attentions) == new
    whole = captured_maps(model, found.sequences)
    for layer, maps in enumerate(whole.maps):
        assert found.attentions[0][layer].shape == (2, 4, L, L)
        torch.testing.assert_close(found.attentions[0][layer], maps[..., :L, :L], **CLOSE)
        for step in range(1, new):
            row = found.attentions[step][layer]
            assert row.shape == (2, 4, 1, L + step)
            at = L + step - 1
            torch.testing.assert_close(row, maps[..., at : at + 1, : L + step], **CLOSE)


class TestWeightsOfCall:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"scale": 0.3},
            {"attn_mask": boolean(L, S)},
            {"attn_mask": boolean(B, 1, L, S)},
            {"attn_mask": torch.randn(B, H, L, S)},
            {"attn_mask": torch.randn(1, H, 1, S), "scale": 2.0},
            {"is_causal": True},
        ],
    )
    @pytest.mark.parametrize("lead", [(B, H), (2, B, H)])
    def test_times_values_are_the_output(self, options, lead):
        query, key = torch.randn(*lead, L, D), torch.randn(*lead, S, D)
        value = torch.randn(*lead, S, 13)
        weights = weights_of_call(query, key, value, **options)
        assert weights.shape == (*lead, L, S)
        output = F.scaled_dot_product_attention(query, key, value, **options)
        torch.testing.assert_close(weights @ value, output)

    @pytest.mark.parametrize("lead", [(), (H,)])
    def test_without_a_batch(self, lead):
        query, key = torch.randn(*lead, L, D), torch.randn(*lead, S, D)
        weights = weights_of_call(query, key, key)
        torch.testing.assert_close(weights @ key, F.scaled_dot_product_attention(query, key, key))

    def test_groups(self):
        query, (key, value) = torch.randn(B, 6, L, D), torch.randn(2, B, 2, S, D)
        weights = weights_of_call(query, key, value, enable_gqa=True)
        output = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        torch.testing.assert_close(weights @ value.repeat_interleave(3, dim=1), output)

    def test_a_row_that_sees_nothing(self):
        query, mask = torch.randn(B, H, L, D), boolean(L, L)
        mask[3] = False
        weights = weights_of_call(query, query, query, mask)
        assert not weights[..., 3, :].any()
        torch.testing.assert_close(weights.sum(dim=-1)[..., 4], torch.ones(B, H))

    def test_half_precision(self):
        query = torch.randn(B, H, L, D).bfloat16()
        weights = weights_of_call(query, query, query)
        assert weights.dtype == torch.bfloat16
        wide = weights_of_call(*[query.float()] * 3)
        torch.testing.assert_close(weights, wide.bfloat16())

    def test_gradients(self):
        query, key = torch.randn(2, B, H, L, D, requires_grad=True).unbind()
        assert weights_of_call(query, key, key).requires_grad

    def test_bad_input(self):
        query = torch.randn(B, H, L, D)
        rule = r"^dropout_p must be 0, as dropout changes weights, got 0.1$"
        with pytest.raises(ValueError, match=rule):
            weights_of_call(query, query, query, dropout_p=0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nested = torch.nested.nested_tensor([torch.randn(H, L, D)])
        with pytest.raises(ValueError, match=r"^query must be padded, got a nested tensor$"):
            weights_of_call(nested, nested, nested)


# Forms that are common: nanoGPT's, with and without the fused kernel, and timm's


class CausalSelfAttention(nn.Module):
    def __init__(self, fused=True):
        super().__init__()
        self.n_head, self.fused = H, fused
        self.c_attn, self.c_proj = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.dropout = 0.1
        self.attn_dropout = nn.Dropout(0.1)

    def forward(self, x):
        size, length, _ = x.shape
        parts = self.c_attn(x).split(E, dim=2)
        q, k, v = (part.view(size, length, H, D).transpose(1, 2) for part in parts)
        if self.fused:
            dropout = self.dropout if self.training else 0
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=None, dropout_p=dropout, is_causal=True
            )
        else:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(D))
            seen = torch.ones(length, length).tril().view(1, 1, length, length)
            scores = scores.masked_fill(seen == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(scores, dim=-1)) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(size, length, E))


class Attention(nn.Module):  # as in a vision transformer of timm, with norms of queries and keys
    def __init__(self, fused=True):
        super().__init__()
        self.num_heads, self.head_dim, self.scale = H, D, D**-0.5
        self.fused_attn = fused
        self.qkv, self.proj = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.q_norm, self.k_norm = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn_drop, self.proj_drop = nn.Dropout(0.1), nn.Dropout(0.1)

    def forward(self, x):
        size, length, _ = x.shape
        qkv = self.qkv(x).reshape(size, length, 3, H, D).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.fused_attn:
            dropout = self.attn_drop.p if self.training else 0.0
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        else:
            attn = (q * self.scale) @ k.transpose(-2, -1)
            x = self.attn_drop(attn.softmax(dim=-1)) @ v
        return self.proj_drop(self.proj(x.transpose(1, 2).reshape(size, length, E)))


class Block(nn.Module):
    def __init__(self, kind, fused):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(E), kind(fused)

    def forward(self, x):
        return x + self.attn(self.norm(x))


def stack(kind, fused=True):
    model = nn.Sequential(Block(kind, fused), Block(kind, fused)).eval()
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            nn.init.normal_(parameter, std=0.5)
    return model


def by_definition(block, x):
    """The maps of a block from its weights alone."""
    given = block.norm(x)
    fused = block.attn.c_attn if hasattr(block.attn, "c_attn") else block.attn.qkv
    q, k, _ = (part.unflatten(-1, (H, D)).transpose(1, 2) for part in fused(given).chunk(3, dim=-1))
    if hasattr(block.attn, "q_norm"):
        q, k = block.attn.q_norm(q), block.attn.k_norm(k)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / D**0.5
    if hasattr(block.attn, "c_attn"):
        scores = scores + torch.full((x.shape[1],) * 2, -math.inf).triu(1)
    return scores.softmax(dim=-1)


FORMS = [CausalSelfAttention, Attention]


class TestForms:
    @pytest.mark.parametrize("fused", [True, False])
    @pytest.mark.parametrize("kind", FORMS)
    def test_maps_without_any_preparation(self, kind, fused):
        model, x = stack(kind, fused), torch.randn(B, L, E)
        before = model(x)
        hooks = [len(part._forward_hooks) for part in model.modules()]
        found = captured_maps(model, x, by_hand=not fused)
        assert torch.equal(found.output, before)
        assert [len(part._forward_hooks) for part in model.modules()] == hooks
        assert found.names == ["0.attn", "1.attn"]
        torch.testing.assert_close(found.maps[0], by_definition(model[0], x), **CLOSE)
        torch.testing.assert_close(found.maps[1], by_definition(model[1], model[0](x)), **CLOSE)

    @pytest.mark.parametrize("fused", [True, False])
    @pytest.mark.parametrize("kind", FORMS)
    def test_all_tools_after_register(self, kind, fused):
        model, x = stack(kind, fused), torch.randn(B, L, E)
        rule = rf"; if {kind.__name__} is attention, mhattn.inside.register\({kind.__name__}\)$"
        with pytest.raises(ValueError, match=rule):
            attention_maps(model, x)
        register(kind)  # as the error says
        assert [layer.projection for layer in attention_layers(model)] == [
            block.attn.c_proj if kind is CausalSelfAttention else block.attn.proj for block in model
        ]
        found = attention_maps(model, x)
        torch.testing.assert_close(found.maps[0], by_definition(model[0], x), **CLOSE)
        assert all(torch.equal(each, torch.eye(H).long()) for each in fed_heads(model, x))
        source = head_outputs(model, x)
        assert [tuple(heads.shape) for heads in source] == [(B, L, H, D)] * 2
        whole = model(x)
        with ablate_heads(model, [(1, 3)]):
            ablated = model(x)
        weight = attention_layers(model)[1].projection.weight
        with torch.no_grad():
            weight[:, 3 * D : 4 * D] = 0
        torch.testing.assert_close(ablated, model(x), **CLOSE)
        assert not torch.allclose(ablated, whole, atol=1e-3)
        with patch_heads(model, [(0, 1), (1, 4)], source):
            assert torch.equal(model(x), ablated) or torch.allclose(model(x), ablated, atol=1e-5)

    def test_one_call_in_words_of_the_page(self):
        model = stack(CausalSelfAttention)
        with pytest.raises(ValueError, match="by_hand=True takes softmaxes as well; if Causal"):
            captured_maps(stack(CausalSelfAttention, fused=False), torch.randn(B, L, E))
        model.train()
        with pytest.raises(ValueError, match="must be in evaluation mode"):
            captured_maps(model, torch.randn(B, L, E))

    def test_dropout_that_stays_on(self):
        """A mistake that is often made: a rate in the call that does not look at the mode."""

        class Wrong(nn.Module):
            def forward(self, x):
                return F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)

        rule = r"^the call in '1': dropout_p must be 0, as dropout changes weights, got 0.1$"
        with pytest.raises(ValueError, match=rule):
            captured_maps(nn.Sequential(nn.Identity(), Wrong()).eval(), torch.randn(B, H, L, D))


class TestOtherLayers:
    @pytest.mark.parametrize("gradients", [True, False])
    def test_torch_encoder(self, gradients):
        layer = nn.TransformerEncoderLayer(E, H, 31, batch_first=True)
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
        x, padding = torch.randn(B, L, E), torch.arange(L) >= torch.tensor([[L], [2], [4]])
        with torch.set_grad_enabled(gradients):
            found = captured_maps(model, x, src_key_padding_mask=padding)
            expected = attention_maps(model, x, src_key_padding_mask=padding)
        assert found.names == expected.names
        for weights, theirs in zip(found.maps, expected.maps, strict=True):
            real = weights.transpose(1, 2)[~padding], theirs.transpose(1, 2)[~padding]
            torch.testing.assert_close(*real)

    def test_torch_encoder_and_decoder(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = nn.Transformer(E, H, 1, 2, 31, batch_first=True).eval()
        source, target = torch.randn(B, S, E), torch.randn(B, L, E)
        found = captured_maps(model, source, target)
        expected = attention_maps(model, source, target)
        assert found.names == expected.names
        assert all(map(torch.equal, found.maps, expected.maps))

    def test_torch_function(self):
        """Called by itself, as in WavLM, with its heads averaged."""

        class Caller(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.MultiheadAttention(E, H)

            def forward(self, x):  # (L, B, E)
                own = self.layer
                weights = own.in_proj_weight, own.in_proj_bias, None, None, False, 0.5
                output = own.out_proj.weight, own.out_proj.bias
                return F.multi_head_attention_forward(
                    x, x, x, E, H, *weights, *output, training=self.training
                )[0]

        model, x = Caller().eval(), torch.randn(L, B, E)
        found = captured_maps(model, x)
        expected = model.layer(x, x, x, average_attn_weights=False)[1]
        assert found.names == [""]
        torch.testing.assert_close(found.maps[0], expected)
        assert torch.equal(found.output, model(x))

    def test_ours(self):
        model, x = (
            nn.Sequential(MultiHeadAttention(E, H), stack(Attention)).eval(),
            torch.randn(B, L, E),
        )
        found = captured_maps(model, x)
        assert found.names == ["0", "1.0.attn", "1.1.attn"]
        assert torch.equal(found.maps[0], attention_maps(model[0], x).maps[0])

    @pytest.mark.parametrize(
        ("shape", "expected"),
        [((L, D), (1, 1, L, L)), ((B, L, D), (B, 1, L, L)), ((2, B, H, L, D), (2, B, H, L, L))],
    )
    def test_calls_with_other_axes(self, shape, expected):
        class Layer(nn.Module):
            def forward(self, x):
                return F.scaled_dot_product_attention(x, x, x)

        assert captured_maps(Layer().eval(), torch.randn(shape)).maps[0].shape == expected

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("flash", [True, False])
    def test_x_transformers(self, flash):
        from x_transformers import Decoder, TransformerWrapper

        def made(flash):
            layers = Decoder(dim=E, depth=2, heads=H, attn_dim_head=D, attn_flash=flash)
            return TransformerWrapper(num_tokens=29, max_seq_len=L, attn_layers=layers).eval()

        model, tokens = made(flash), torch.randint(29, (B, L))
        other = made(False)
        other.load_state_dict(model.state_dict())
        _, theirs = other(tokens, return_intermediates=True)
        found = captured_maps(model, tokens, by_hand=not flash)
        assert torch.equal(found.output, model(tokens))
        expected = [each.post_softmax_attn for each in theirs.attn_intermediates]
        for weights, own in zip(found.maps, expected, strict=True):
            torch.testing.assert_close(weights, own, **CLOSE)


class TestByHand:
    def test_a_softmax_that_weighs_no_values(self):
        """A router's shares are no weights, nor is a softmax over another axis."""

        class Layer(nn.Module):
            def forward(self, x):  # (B, H, L, D)
                shares = x.softmax(dim=-1)  # of no product
                weights = (x @ x.mT).softmax(dim=-1)
                return (
                    weights.to(torch.float64).to(x.dtype) @ x + shares + x.softmax(dim=2) @ x.mT @ x
                )

        found = captured_maps(Layer().eval(), torch.randn(B, H, L, D), by_hand=True)
        assert [tuple(weights.shape) for weights in found.maps] == [(B, H, L, L)]

    def test_a_registered_layer_that_weighs_twice(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.num_heads, self.proj = H, nn.Linear(E, E)

            def forward(self, x):
                heads = self.proj(x).unflatten(-1, (H, D)).transpose(1, 2)
                for _ in range(2):
                    heads = F.scaled_dot_product_attention(heads, heads, heads)
                return heads.transpose(1, 2).flatten(2)

        register(Twice)
        shape = r"\(3, 5, 7, 7\)"
        rule = rf"^'0' must weigh once in a call, .* \(B, H=5, L, S\), got \[{shape}, {shape}\]$"
        with pytest.raises(ValueError, match=rule):
            attention_maps(nn.Sequential(Twice()).eval(), torch.randn(B, L, E))


class TestRegister:
    def test_where_things_are(self):
        class Odd(CausalSelfAttention):
            def __init__(self):
                super().__init__()
                self.config = nn.Module()
                self.config.size = self.n_head
                del self.n_head
                self.parts = nn.ModuleDict({"last": self.c_proj})

        model, x = nn.Sequential(Odd()).eval(), torch.randn(B, L, E)
        register(Odd)
        rule = (
            r"^number of heads of '0' must be num_heads, .* or name it: mhattn.inside.register\(Odd"
        )
        with pytest.raises(ValueError, match=rule):
            attention_maps(model, x)
        register(Odd, num_heads="config.sizes")
        rule = r"^num_heads must be where Odd has an integer, got 'config.sizes', which is None$"
        with pytest.raises(ValueError, match=rule):
            attention_maps(model, x)
        register(Odd, num_heads="config.size", projection="parts.first")
        rule = r"^projection must be a part of Odd, one of \['c_attn', .*\], got 'parts.first'$"
        with pytest.raises(ValueError, match=rule):
            attention_maps(model, x)
        register(Odd, num_heads="config.size", projection="parts.last")
        assert attention_layers(model)[0].projection is model[0].c_proj
        assert head_outputs(model, x)[0].shape == (B, L, H, D)

    def test_bad_input(self):
        with pytest.raises(TypeError, match=r"^kind must be a class of torch.nn.Module, got 3$"):
            register(3)
        with pytest.raises(TypeError, match=r"^kind must be a class .*, got Linear\("):
            register(nn.Linear(2, 2))
        rule = r"^(num_heads|projection) must be where the layer has it, .*, got "
        for wrong in ({"num_heads": 4}, {"projection": nn.Linear(2, 2)}, {"num_heads": b"heads"}):
            with pytest.raises(TypeError, match=rule):
                register(CausalSelfAttention, **wrong)
        for wrong in ({"num_heads": ""}, {"num_heads": "n heads"}, {"projection": "c_proj."}):
            with pytest.raises(ValueError, match=rule):
                register(CausalSelfAttention, **wrong)

    def test_a_call_that_fails_leaves_nothing_behind(self):
        register(CausalSelfAttention)
        model = stack(CausalSelfAttention)
        for call in (attention_maps, captured_maps):
            with pytest.raises(RuntimeError):
                call(model, torch.randn(B, L, E + 1))
        assert torch.overrides._get_current_function_mode_stack() == []
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


class TestWithSinks:
    def test_statistics_take_them(self):
        from mhattn.inside import attention_distance, attention_share, head_patterns

        whole = torch.rand(B, H, L, L).tril()
        whole = whole / (whole.sum(dim=-1, keepdim=True) + 0.7)
        weights = with_sinks(whole)
        first = attention_share(weights, head_patterns(L, L + 1)["first"])
        torch.testing.assert_close(first, (1 - whole.sum(dim=-1)).mean(dim=-1))
        assert attention_distance(weights).shape == (B, H)

    def test_bad_input(self):
        with pytest.raises(ValueError, match=r"^weights must not be negative, nor"):
            with_sinks(torch.full((2, 2), 0.6))
        with pytest.raises(ValueError, match=r"got -0.5 and -1$"):
            with_sinks(torch.full((2, 2), -0.5))
        with pytest.raises(TypeError, match=r"^weights must be"):
            with_sinks([0.5])


def test_weights_without_gradients():
    layer, x = nn.MultiheadAttention(E, H, batch_first=True).eval(), torch.randn(B, L, E)
    layer.requires_grad_(False)
    rule = r"^weights of '' must have gradients: call model.requires_grad_\(\)$"
    with pytest.raises(ValueError, match=rule):
        fed_heads(layer, x, x, x)


def test_no_model():
    with pytest.raises(TypeError, match=r"^model must be a torch\.nn\.Module, got int$"):
        captured_maps(3)

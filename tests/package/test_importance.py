"""Against zeros in the output projection, sums, means by hand, and finite differences."""

import itertools
import warnings

import pytest
import torch
from torch import nn

from mhattn import MultiHeadAttention
from mhattn.inside import (
    ablation_effects,
    edit_heads,
    gradient_scores,
    head_shares,
    head_terms,
    pruning_curve,
    replace_heads,
)

B, L, H, D, E = 2, 5, 6, 7, 11
LAYERS = 3
EVERY = list(itertools.product(range(LAYERS), range(H)))


class Model(nn.Module):
    """Attention layers with residual connections, and a number for each sequence."""

    def __init__(self, num_kv_heads=3):
        super().__init__()
        sizes = {"num_kv_heads": num_kv_heads, "head_dim": D, "dtype": torch.float64}
        self.layers = nn.ModuleList(MultiHeadAttention(E, H, **sizes) for _ in range(LAYERS))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x, is_causal=True)
        return x.sin().sum(dim=(1, 2))  # (B,)

    @property
    def projections(self):
        return [layer.out_proj for layer in self.layers]


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def x():
    return torch.randn(B, L, E, dtype=torch.float64)


def without_columns(model, heads):
    """A model whose output projections have zeros where these heads come in."""
    other = Model()
    other.load_state_dict(model.state_dict())
    for layer, head in heads:
        with torch.no_grad():
            other.projections[layer].weight[:, head * D : (head + 1) * D] = 0
    return other


def loss_of(model, x):
    return lambda: model(x).mean().item()


def heads_of(layer, *inputs, **options):
    """The layer's output and its heads."""
    kept = []

    def keep(heads):
        kept.append(heads)
        return heads

    with edit_heads(layer.out_proj, layer.num_heads, keep):
        output = layer(*inputs, **options)
    return output, kept[0]


class TestEdit:
    def test_it_gets_the_heads(self, model, x):
        """Each the weighted values of its own keys and values, from PyTorch's kernel."""
        layer = model.layers[0]
        _, heads = heads_of(layer, x, is_causal=True)
        query = layer.q_proj(x).view(B, L, H, D).transpose(1, 2)
        key, value = (
            proj(x).view(B, L, 3, D).transpose(1, 2) for proj in (layer.k_proj, layer.v_proj)
        )
        for head in range(H):
            group = head // 2
            expected = nn.functional.scaled_dot_product_attention(
                query[:, head], key[:, group], value[:, group], is_causal=True
            )
            torch.testing.assert_close(heads[:, :, head], expected)

    def test_what_it_returns_is_projected(self, model, x):
        layer, other = model.layers[0], torch.randn(B, L, H, D, dtype=torch.float64)
        with edit_heads(layer.out_proj, H, lambda heads: other):
            output = layer(x)
        torch.testing.assert_close(output, layer.out_proj(other.reshape(B, L, H * D)))

    def test_gradients_pass_through(self, model, x):
        layer, x = model.layers[0], x.requires_grad_()
        (plain,) = torch.autograd.grad(layer(x).sum(), x)
        with edit_heads(layer.out_proj, H, lambda heads: 2 * heads):
            (doubled,) = torch.autograd.grad(layer(x).sum(), x)
        torch.testing.assert_close(doubled, 2 * plain)

    def test_nothing_remains(self, model, x):
        before = model(x)
        with replace_heads(model.projections, H, EVERY):
            assert not torch.allclose(model(x), before)
        assert torch.equal(model(x), before)

    def test_nothing_remains_after_an_error(self, model, x):
        before = model(x)
        with pytest.raises(KeyError), replace_heads(model.projections, H, EVERY):
            raise KeyError
        assert torch.equal(model(x), before)
        assert not any(proj._forward_pre_hooks for proj in model.projections)

    def test_edits_of_two_kinds_add_up(self, model, x):
        """The inner one gets what the outer one returned."""
        layer = model.layers[0]
        _, heads = heads_of(layer, x)
        with (
            edit_heads(layer.out_proj, H, lambda heads: heads + 1),
            edit_heads(layer.out_proj, H, lambda heads: 3 * heads),
        ):
            output = layer(x)
        torch.testing.assert_close(output, layer.out_proj((3 * (heads + 1)).flatten(-2)))


class TestReplace:
    @pytest.mark.parametrize("head", EVERY)
    def test_zeros_are_zero_columns(self, model, x, head):
        with replace_heads(model.projections, H, [head]):
            torch.testing.assert_close(model(x), without_columns(model, [head])(x))

    def test_several_heads(self, model, x):
        heads = [(2, 5), (0, 1), (2, 0)]
        with replace_heads(model.projections, H, heads):
            torch.testing.assert_close(model(x), without_columns(model, heads)(x))

    def test_mean_by_hand(self, model, x):
        """Head 4 of the last layer, so that nothing behind it changes."""
        *first, last = model.layers
        for layer in first:
            x = x + layer(x)
        output, heads = heads_of(last, x)
        with replace_heads([last.out_proj], H, [(0, 4)], lambda head: head.mean(dim=(0, 1))):
            replaced = last(x)
        deviation = heads[:, :, 4] - heads[:, :, 4].reshape(B * L, D).mean(dim=0)
        block = last.out_proj.weight[:, 4 * D : 5 * D]
        torch.testing.assert_close(replaced, output - deviation @ block.T)

    def test_by_the_head_of_the_other_sequence(self, model, x):
        *_, last = model.layers
        with replace_heads(
            [last.out_proj], H, [(0, h) for h in range(H)], lambda head: head[[1, 0]]
        ):
            swapped = last(x)
        torch.testing.assert_close(swapped, last(x)[[1, 0]])

    def test_heads_that_were_kept_stay(self, model, x):
        layer, kept = model.layers[0], []
        _, heads = heads_of(layer, x)
        keep = edit_heads(layer.out_proj, H, lambda given: kept.append(given) or given)
        with keep, replace_heads([layer.out_proj], H, [(0, 1)]):
            layer(x)
        assert torch.equal(kept[0], heads)

    def test_no_head_is_no_change(self, model, x):
        with replace_heads(model.projections, H, []):
            assert torch.equal(model(x), model(x))


class TestTerms:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
    @pytest.mark.parametrize("num_kv_heads", [6, 3, 1])
    def test_they_add_up_to_the_output(self, x, num_kv_heads, dtype):
        layer = Model(num_kv_heads).layers[0].to(dtype)
        output, heads = heads_of(layer, x.to(dtype))
        weight, bias = layer.out_proj.weight, layer.out_proj.bias
        terms = head_terms(heads, weight)
        assert terms.shape == (B, L, H, E)
        assert terms.dtype == dtype
        tolerance = {torch.float64: 1e-12, torch.bfloat16: 0.05}[dtype]
        expected = {"rtol": tolerance, "atol": tolerance}
        torch.testing.assert_close(terms.sum(dim=-2) + bias, output, **expected)

    def test_a_term_is_the_layer_with_that_head_alone(self, model, x):
        layer = model.layers[0]
        _, heads = heads_of(layer, x)
        terms = head_terms(heads, layer.out_proj.weight)
        for head in range(H):
            others = [(0, other) for other in range(H) if other != head]
            with replace_heads([layer.out_proj], H, others):
                alone = layer(x) - layer.out_proj.bias
            torch.testing.assert_close(terms[:, :, head], alone)

    def test_shares_add_up_to_one(self):
        shares = head_shares(torch.randn(B, L, H, E, dtype=torch.float64))
        torch.testing.assert_close(shares.sum(dim=-1), torch.ones(B, L, dtype=torch.float64))

    def test_shares_are_projections(self):
        """The sum is (4, 0): a term along it, one across it, one against it."""
        terms = torch.tensor([[5.0, 1.0], [0.0, -1.0], [-1.0, 0.0]])
        assert head_shares(terms).tolist() == [1.25, 0, -0.25]

    def test_shares_of_nothing(self):
        assert head_shares(torch.zeros(H, E)).isnan().all()


class TestEffects:
    def test_ablation(self, model, x):
        effects = ablation_effects(loss_of(model, x), model.projections, H)
        assert effects.shape == (LAYERS, H)
        whole = model(x).mean()
        for layer, head in EVERY:
            expected = without_columns(model, [(layer, head)])(x).mean() - whole
            torch.testing.assert_close(effects[layer, head], expected)

    def test_ablation_by_something_else(self, model, x):
        def mean(head):
            return head.mean(dim=(0, 1))

        effects = ablation_effects(loss_of(model, x), model.projections, H, mean)
        with replace_heads(model.projections, H, [(1, 4)], mean):
            expected = model(x).mean()
        torch.testing.assert_close(effects[1, 4], expected - model(x).mean())

    def test_curve(self, model, x):
        order = [(0, 3), (2, 1), (0, 0)]
        curve = pruning_curve(loss_of(model, x), model.projections, H, order)
        expected = [without_columns(model, order[:gone])(x).mean() for gone in range(4)]
        torch.testing.assert_close(curve, torch.stack(expected))

    def test_curve_of_heads_that_are_doubled(self, model, x):
        order = [(2, 3), (2, 1)]
        projections = model.projections
        curve = pruning_curve(loss_of(model, x), projections, H, order, lambda head: 2 * head)
        with torch.no_grad():
            for _, head in order:
                projections[2].weight[:, head * D : (head + 1) * D] *= 2
        torch.testing.assert_close(curve[-1], model(x).mean())

    def test_ends_of_a_whole_curve(self, model, x):
        """All heads gone: each layer adds its bias and nothing else."""
        curve = pruning_curve(loss_of(model, x), model.projections, H, EVERY[::-1])
        biases = sum(proj.bias for proj in model.projections)
        torch.testing.assert_close(curve[0], model(x).mean())
        torch.testing.assert_close(curve[-1], (x + biases).sin().sum(dim=(1, 2)).mean())


class TestGradientScores:
    def test_finite_differences(self, model, x):
        """A head multiplied by 1 + 1e-5 and 1 - 1e-5, in each sequence."""
        scores = gradient_scores(lambda: model(x), model.projections, H)
        assert scores.shape == (LAYERS, H)
        step = 1e-5
        for layer, head in EVERY:
            found = []
            for gate in (1 + step, 1 - step):
                with replace_heads(model.projections, H, [(layer, head)], lambda y, g=gate: g * y):
                    found.append(model(x))
            slope = (found[0] - found[1]) / (2 * step)
            torch.testing.assert_close(
                scores[layer, head], slope.abs().mean(), rtol=1e-6, atol=1e-8
            )

    def test_of_a_linear_loss_they_are_the_effects(self, x):
        """One layer and a sum behind it: the first order is all there is."""
        layer = Model().layers[0]
        scores = gradient_scores(lambda: layer(x).sum(dim=(1, 2)), [layer.out_proj], H)
        sizes = []
        for sequence in x.split(1):
            loss = lambda sequence=sequence: layer(sequence).sum().item()  # noqa: E731
            sizes.append(ablation_effects(loss, [layer.out_proj], H).abs())
        torch.testing.assert_close(scores, torch.stack(sizes).mean(dim=0))

    def test_parameters_and_their_gradients_stay(self, model, x):
        model.layers[0].q_proj.weight.grad = given = torch.ones(H * D, E, dtype=torch.float64)
        gradient_scores(lambda: model(x), model.projections, H)
        assert torch.equal(given, torch.ones_like(given))
        assert sum(p.grad is not None for p in model.parameters()) == 1

    def test_parameters_may_be_frozen(self, model, x):
        expected = gradient_scores(lambda: model(x), model.projections, H)
        scores = gradient_scores(lambda: model.requires_grad_(False)(x), model.projections, H)
        torch.testing.assert_close(scores, expected)

    def test_a_layer_that_is_called_twice_has_one_gate(self, model, x):
        layer, step = model.layers[0], 1e-5
        twice = lambda: layer(layer(x).sin()).sum(dim=(1, 2))  # noqa: E731
        scores = gradient_scores(twice, [layer.out_proj], H)
        found = []
        for gate in (1 + step, 1 - step):
            with replace_heads([layer.out_proj], H, [(0, 2)], lambda y, g=gate: g * y):
                found.append(twice())
        slope = (found[0] - found[1]) / (2 * step)
        torch.testing.assert_close(scores[0, 2], slope.abs().mean(), rtol=1e-6, atol=1e-8)


class TestOtherLayers:
    def test_torch_never_calls_its_projection(self):
        theirs, x = nn.MultiheadAttention(12, 3, batch_first=True), torch.randn(B, L, 12)
        rule = "^projection must be called while its heads are edited, got NonDyn.*Linear$"
        with (
            pytest.raises(ValueError, match=rule),
            edit_heads(theirs.out_proj, 3, torch.zeros_like),
        ):
            theirs(x, x, x)
        ours = MultiHeadAttention.from_torch(theirs)
        with torch.no_grad():
            theirs.out_proj.weight[:, 4:8] = 0
        with replace_heads([ours.out_proj], 3, [(0, 1)]):
            torch.testing.assert_close(ours(x), theirs(x, x, x)[0], rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
    def test_transformers(self, name):
        """Small models with random weights: ablation is zeros in the weight."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, projections = getattr(self, name)()
        model.eval()
        tokens = torch.randint(0, 29, (B, L))
        head_dim = 8

        def output():
            with torch.no_grad():
                return model(tokens).last_hidden_state

        whole = output()
        with replace_heads(projections, 4, [(1, 2)]):
            replaced = output()
        weight = projections[1].weight
        columns = weight.T if name == "gpt2" else weight  # its Conv1D stores the transpose
        with torch.no_grad():
            columns[:, 2 * head_dim : 3 * head_dim] = 0
        torch.testing.assert_close(replaced, output(), rtol=1e-5, atol=1e-6)
        assert not torch.allclose(replaced, whole, atol=1e-3)

    def gpt2(self):
        from transformers import GPT2Config, GPT2Model

        model = GPT2Model(GPT2Config(vocab_size=29, n_embd=32, n_layer=2, n_head=4, n_positions=9))
        for block in model.h:
            nn.init.normal_(block.attn.c_proj.weight, std=0.5)
        return model, [block.attn.c_proj for block in model.h]

    def llama(self):
        from transformers import LlamaConfig, LlamaModel

        sizes = {"hidden_size": 32, "intermediate_size": 31, "num_hidden_layers": 2}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        model = LlamaModel(LlamaConfig(vocab_size=29, **sizes, **heads))
        for layer in model.layers:
            nn.init.normal_(layer.self_attn.o_proj.weight, std=0.5)
        return model, [layer.self_attn.o_proj for layer in model.layers]

    def bert(self):
        from transformers import BertConfig, BertModel

        sizes = {"hidden_size": 32, "intermediate_size": 31, "num_hidden_layers": 2}
        model = BertModel(BertConfig(vocab_size=29, **sizes, num_attention_heads=4))
        layers = model.encoder.layer
        for layer in layers:
            nn.init.normal_(layer.attention.output.dense.weight, std=0.5)
        return model, [layer.attention.output.dense for layer in layers]


class TestBadInput:
    @pytest.mark.parametrize(
        ("num_heads", "error", "text"),
        [
            (4, ValueError, "^num_heads must divide the width of projection, 42, got 4$"),
            (0, ValueError, "^num_heads must be at least 1, got 0$"),
            (6.0, TypeError, "^num_heads must be an integer, got float$"),
        ],
    )
    def test_number_of_heads(self, model, x, num_heads, error, text):
        for run in (
            lambda: ablation_effects(loss_of(model, x), model.projections, num_heads),
            lambda: pruning_curve(loss_of(model, x), model.projections, num_heads, [(0, 0)]),
            lambda: gradient_scores(lambda: model(x), model.projections, num_heads),
        ):
            with pytest.raises(error, match=text):
                run()
        assert not any(proj._forward_pre_hooks for proj in model.projections)

    def test_another_shape(self, model, x):
        rule = r"^edit must return the shape \(2, 5, 6, 7\), got \(2, 5, 7\)$"
        layer = model.layers[0]
        one = edit_heads(layer.out_proj, H, lambda heads: heads[:, :, 0])
        with pytest.raises(ValueError, match=rule), one:
            layer(x)

    @pytest.mark.parametrize(
        ("order", "text"),
        [
            (
                [(0, 0), (3, 0)],
                r"^heads must be of 3 layers with 6 heads, counted from 0, got \(3, 0\)$",
            ),
            ([(0, 6)], r"^heads must be of 3 layers with 6 heads, counted from 0, got \(0, 6\)$"),
            ([(0, -1)], r"^heads must be of 3 layers .* got \(0, -1\)$"),
            ([(0, 1), (2, 1), (0, 1)], r"^heads must not be named twice, got \(0, 1\)$"),
        ],
    )
    def test_heads(self, model, order, text):
        def loss():
            raise AssertionError("the order is checked first")

        with pytest.raises(ValueError, match=text):
            pruning_curve(loss, model.projections, H, order)
        with pytest.raises(ValueError, match=text), replace_heads(model.projections, H, order):
            pass

    def test_a_layer_that_is_not_called(self, model):
        with pytest.raises(ValueError, match=r"^projection must be called .* got Linear$"):
            ablation_effects(lambda: 0.0, model.projections, H)

    def test_losses_of_another_shape(self, model, x):
        with pytest.raises(ValueError, match=r"^losses must return the shape \(2,\), got \(\)$"):
            gradient_scores(lambda: model(x).mean(), model.projections, H)
        with pytest.raises(
            ValueError, match=r"^the number of projections must be at least 1, got 0$"
        ):
            gradient_scores(lambda: model(x), [], H)

    def test_terms(self):
        rule = r"^weight must be \(E, H \* D\) = \(E, 6 \* 7\), got shape \(42, 11\)$"
        with pytest.raises(ValueError, match=rule):
            head_terms(torch.randn(B, L, H, D), torch.randn(H * D, E))
        with pytest.raises(
            ValueError, match=r"^heads must have at least 2 axes, got shape \(7,\)$"
        ):
            head_terms(torch.randn(D), torch.randn(E, D))
        with pytest.raises(
            ValueError, match=r"^terms must have at least 2 axes, got shape \(11,\)$"
        ):
            head_shares(torch.randn(E))

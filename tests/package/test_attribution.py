"""Rollout against closed forms; logits and patching against a model whose answer is planted."""

import warnings

import pytest
import torch
from torch import nn

from mhattn import MultiHeadAttention, attention_maps
from mhattn.inside import (
    attention_rollout,
    head_outputs,
    head_terms,
    logit_attribution,
    patch_heads,
    residual_cache,
)
from mhattn.models import LanguageModel

B, H, L, LAYERS = 2, 3, 7, 5


def uniform():
    return torch.full((B, H, L, L), 1 / L, dtype=torch.float64)


def previous():
    """Each position looks at the one before; the first has only itself."""
    rows = torch.diag(torch.ones(L - 1, dtype=torch.float64), -1)
    rows[0, 0] = 1
    return rows.expand(B, H, L, L)


class TestRollout:
    @pytest.mark.parametrize("residual", [0.0, 0.3, 0.5, 1.0])
    @pytest.mark.parametrize("layers", [1, 2, LAYERS])
    def test_uniform(self, layers, residual):
        """The own position keeps residual^n; all share the rest."""
        kept = residual**layers
        expected = kept * torch.eye(L, dtype=torch.float64) + (1 - kept) / L
        found = attention_rollout([uniform()] * layers, residual)
        torch.testing.assert_close(found, expected.expand(B, L, L))

    @pytest.mark.parametrize("residual", [0.0, 0.3, 1.0])
    def test_identity(self, residual):
        own = torch.eye(L, dtype=torch.float64).expand(B, H, L, L)
        assert torch.allclose(attention_rollout([own] * LAYERS, residual), own[:, 0])

    def test_previous_token_is_a_binomial(self):
        """After n layers a token has C(n, k) r^(n-k) (1-r)^k of the one k places before."""
        found = attention_rollout([previous()] * LAYERS, 0.3)
        chances = torch.distributions.Binomial(LAYERS, torch.tensor(0.7, dtype=torch.float64))
        for back in range(LAYERS + 1):
            expected = chances.log_prob(torch.tensor(float(back))).exp()
            torch.testing.assert_close(found[:, L - 1, L - 1 - back], expected.expand(B))

    def test_the_last_layer_looks_at_the_one_before(self):
        """Permutations without a residual: the order of layers is that of the steps back."""
        orders = [torch.randperm(L) for _ in range(LAYERS)]
        maps = [torch.eye(L)[order].expand(1, 1, L, L) for order in orders]
        found = attention_rollout(maps, 0.0)[0]
        for query in range(L):
            place = query
            for order in reversed(orders):
                place = int(order[place])
            assert found[query].argmax() == place
            assert found[query].sum() == 1

    def test_heads_are_averaged(self):
        maps = torch.randn(LAYERS, B, H, L, L, dtype=torch.float64).softmax(dim=-1)
        expected = torch.eye(L, dtype=torch.float64)
        for layer in maps:
            step = 0.5 * sum(layer[:, head] for head in range(H)) / H
            expected = (step + 0.5 * torch.eye(L, dtype=torch.float64)) @ expected
        torch.testing.assert_close(attention_rollout(list(maps)), expected)
        torch.testing.assert_close(attention_rollout(maps), expected)

    def test_half_precision(self):
        maps = torch.randn(2, B, H, L, L).softmax(dim=-1)
        found = attention_rollout(maps.bfloat16())
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), attention_rollout(maps), rtol=0.05, atol=0.01)

    @pytest.mark.parametrize(
        ("maps", "residual", "error", "text"),
        [
            ([], 0.5, ValueError, "^the number of maps must be at least 1, got 0$"),
            ([uniform()], 1.5, ValueError, r"^residual must be in \[0, 1\], got 1.5$"),
            ([uniform(), uniform()[:1]], 0.5, ValueError, r"one shape, .* and \(1, 3, 7, 7\)$"),
            ([uniform()[:, :, :5]], 0.5, ValueError, r"^maps must be square .* \(2, 3, 5, 7\)$"),
            ([uniform()[0, 0]], 0.5, ValueError, r"^maps\[0\] must have at least 3 axes"),
            ([2 * uniform()], 0.5, ValueError, r"^weights must sum to 1"),
            ([[1.0]], 0.5, TypeError, r"^maps\[0\] must be a tensor of floats, got list$"),
        ],
    )
    def test_bad_input(self, maps, residual, error, text):
        with pytest.raises(error, match=text):
            attention_rollout(maps, residual)


# A model whose answer is known: two layers that continue what was seen before

LETTERS, PLACES = 11, 13
TOKEN, PLACE, BEFORE, ANSWER = 0, LETTERS, LETTERS + PLACES, 2 * LETTERS + PLACES
JUNK = 3 * LETTERS + PLACES
E, SURE = JUNK + 1, 200.0


class Planted(nn.Module):
    """Head (0, 0) writes which token stands before; head (1, 0) looks for the current one there.

    It then writes the token it finds as the answer, twice. Heads (0, 1) and (1, 1) write what
    nobody reads. All tokens and places are one-hot, in parts of the stream of their own.
    """

    def __init__(self):
        super().__init__()
        D = E
        options = {"head_dim": D, "bias": False, "dtype": torch.float64}
        self.layers = nn.ModuleList(MultiHeadAttention(E, 2, **options) for _ in range(2))
        self.norm = nn.Identity()
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        self.requires_grad_(False).eval()
        first, second = self.layers
        tokens, places = range(LETTERS), range(PLACES)
        for i in places[:-1]:  # the query of place i + 1 and the key of place i agree
            first.q_proj.weight[i, PLACE + i + 1] = SURE * D**0.5
            first.k_proj.weight[i, PLACE + i] = 1
        for i in tokens:
            first.v_proj.weight[i, TOKEN + i] = 1
            first.out_proj.weight[BEFORE + i, i] = 1
            second.q_proj.weight[i, TOKEN + i] = SURE * D**0.5
            second.k_proj.weight[i, BEFORE + i] = 1
            second.v_proj.weight[i, TOKEN + i] = 1
            second.out_proj.weight[ANSWER + i, i] = 2
        for layer in self.layers:
            layer.v_proj.weight[D : D + LETTERS, TOKEN : TOKEN + LETTERS] = torch.randn(
                LETTERS, LETTERS
            )
            layer.out_proj.weight[JUNK, D:] = 1

    def forward(self, tokens):
        x = torch.zeros(*tokens.shape, E, dtype=torch.float64)
        x.scatter_(2, tokens[..., None], 1)
        x[:, range(tokens.shape[1]), [PLACE + i for i in range(tokens.shape[1])]] = 1
        for layer in self.layers:
            x = x + layer(x, is_causal=True)
        return self.norm(x)[..., ANSWER : ANSWER + LETTERS]  # logits (B, L, LETTERS)


START, A = 10, 0
CLEAN = torch.tensor([[START, A, 1, 2, 3, 4, A]])  # 1 comes after A
OTHER = torch.tensor([[START, 2, 1, A, 3, 4, A]])  # 3 comes after A
EVERY = [(0, 0), (0, 1), (1, 0), (1, 1)]


def row(letter):
    return torch.eye(E, dtype=torch.float64)[ANSWER + letter]


class TestPlanted:
    def test_it_knows_the_answer(self):
        logits = Planted()(torch.cat([CLEAN, OTHER]))[:, -1]
        expected = torch.zeros(2, LETTERS, dtype=torch.float64)
        expected[0, 1] = expected[1, 3] = 2
        torch.testing.assert_close(logits, expected)

    def test_only_the_head_that_writes_the_answer_adds_to_it(self):
        model = Planted()
        direction = torch.stack([row(1) - row(3), row(1) - row(3)])
        tokens = torch.cat([CLEAN, OTHER])
        found = logit_attribution(model, tokens, direction=direction, norm=model.norm)
        expected = torch.zeros(2, 2, 2, dtype=torch.float64)
        expected[:, 1, 0] = torch.tensor([2.0, -2.0])
        torch.testing.assert_close(found.heads, expected)
        torch.testing.assert_close(found.total, torch.tensor([2.0, -2.0], dtype=torch.float64))
        torch.testing.assert_close(found.rest, torch.zeros(2, dtype=torch.float64))

    def test_an_earlier_position(self):
        """At place 3 stands 2, which has not occurred: nothing matches, all keys share."""
        model = Planted()
        found = logit_attribution(model, CLEAN, direction=row(1), norm=model.norm, position=3)
        torch.testing.assert_close(found.heads[0, 1, 0].item(), 2 / 4)

    @pytest.mark.parametrize(
        ("head", "positions", "moved"),
        [
            ((0, 0), slice(None), True),  # the answer of the clean text at last
            ((1, 0), slice(None), True),
            ((0, 1), slice(None), False),
            ((1, 1), slice(None), False),
            ((1, 0), [-1], True),  # it is written at the end,
            ((0, 0), [-1], False),  # and who stands before whom is written elsewhere
            ((0, 0), [2], False),  # this alone makes two places follow A: half of each
        ],
    )
    def test_patching_moves_the_answer(self, head, positions, moved):
        model = Planted()
        source = head_outputs(model, CLEAN)
        with patch_heads(model, [head], source, positions):
            logits = model(OTHER)[0, -1]
        if positions == [2]:
            assert logits[[1, 3]].tolist() == pytest.approx([1, 1])
        else:
            assert logits[[1, 3]].tolist() == pytest.approx([2, 0] if moved else [0, 2])

    def test_rollout_sees_the_way_and_not_what_it_carries(self):
        """Head (0, 1) and (1, 1) look at everything, and carry nothing that counts."""
        model = Planted().eval()
        found = attention_maps(model, CLEAN)
        rollout = attention_rollout(found.maps)[0, -1]
        assert rollout.min() > 0
        torch.testing.assert_close(rollout.sum().item(), 1.0)


# Against sums over the whole stream


def random_model():
    sizes = {"num_heads": 6, "num_kv_heads": 2, "mlp_dim": 31, "base": 50.0, "eps": 0.1}
    model = LanguageModel(29, 3, embed_dim=84, **sizes).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.requires_grad_(False).eval()


@pytest.mark.parametrize("position", [-1, 2])
def test_terms_of_a_language_model(position):
    """Heads by their blocks of the projection; the rest is the embedding and the MLPs, added up."""
    model, tokens = random_model(), torch.randint(29, (B, L))
    added, hooks = [], []
    for block in model.blocks:
        hooks.append(block.down.register_forward_hook(lambda m, i, output: added.append(output)))
    hooks.append(model.norm.register_forward_hook(lambda m, inputs, o: added.append(inputs[0])))
    logits = model(tokens)
    for hook in hooks:
        hook.remove()
    *mlps, stream = [x[:, position] for x in added]
    divisor = (stream.square().mean(dim=-1, keepdim=True) + model.norm.eps).sqrt()
    direction = model.embedding.weight[[7, 11]]

    def part(x):  # (B, E)
        return (x / divisor * model.norm.weight * direction).sum(dim=-1)

    found = logit_attribution(
        model, tokens, direction=direction, norm=model.norm, position=position
    )
    expected = logits[range(B), position, [7, 11]]
    torch.testing.assert_close(found.total, expected)
    torch.testing.assert_close(found.heads.sum(dim=(1, 2)) + found.rest, expected)
    rest = part(model.embedding(tokens)[:, position] + sum(mlps))
    torch.testing.assert_close(found.rest, rest)
    for layer, heads in enumerate(head_outputs(model, tokens)):
        weight = model.blocks[layer].attention.out_proj.weight
        terms = head_terms(heads[:, position], weight)  # (B, H, E)
        for head in range(6):
            torch.testing.assert_close(found.heads[:, layer, head], part(terms[:, head]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_eps_that_torch_takes_by_itself(dtype):
    """That of the dtype; the stream is so small that it counts half."""
    model, tokens = random_model().to(dtype), torch.randint(29, (B, L))
    model.norm = nn.RMSNorm(84).to(dtype).eval()
    assert model.norm.eps is None
    eps = torch.finfo(dtype).eps
    for block in model.blocks:
        for part in (block.attention.out_proj, block.down):
            part.weight *= eps**0.5 / 20
    model.embedding.weight *= eps**0.5
    seen = []
    with model.norm.register_forward_pre_hook(lambda module, args: seen.append(args[0][:, -1])):
        direction = model.embedding.weight[[7, 11]] / eps**0.5
        found = logit_attribution(model, tokens, direction=direction, norm=model.norm)
    square = seen[0].square().mean(dim=-1, keepdim=True)
    assert (square < 10 * eps).all()
    read = direction / (square + eps).sqrt()
    for layer, heads in enumerate(head_outputs(model, tokens)):
        terms = head_terms(heads[:, -1], model.blocks[layer].attention.out_proj.weight)
        expected = (terms * read[:, None]).sum(dim=-1)  # (B, H)
        torch.testing.assert_close(found.heads[:, layer], expected, rtol=1e-3, atol=1e-5)


def test_half_precision():
    model, tokens = random_model(), torch.randint(29, (B, L))
    expected = logit_attribution(
        model, tokens, direction=model.embedding.weight[7], norm=model.norm
    )
    model.bfloat16()
    found = logit_attribution(model, tokens, direction=model.embedding.weight[7], norm=model.norm)
    assert found.heads.dtype == torch.float32
    options = {"rtol": 0.1, "atol": 0.1 * expected.heads.abs().max().item()}
    torch.testing.assert_close(found.heads.double(), expected.heads, **options)


def test_nothing_is_left_behind():
    model, tokens = random_model(), torch.randint(29, (B, L))
    model.requires_grad_(True)
    before = model(tokens)
    logit_attribution(model, tokens, direction=model.embedding.weight[0], norm=model.norm)
    assert torch.equal(model(tokens), before)
    assert not any(part._forward_pre_hooks for part in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("norm_first", [True, False])
def test_torch_encoder(norm_first):
    """With a LayerNorm at the end, whose mean and bias count as well."""
    options = {"batch_first": True, "norm_first": norm_first, "dtype": torch.float64}
    layer = nn.TransformerEncoderLayer(21, 3, 31, **options)
    norm = nn.LayerNorm(21, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.TransformerEncoder(layer, 1, norm).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    x, direction = torch.randn(B, L, 21, dtype=torch.float64), torch.randn(21).double()
    found = logit_attribution(model, x, direction=direction, norm=norm)
    torch.testing.assert_close(found.total, model(x)[:, -1] @ direction)
    (heads,) = head_outputs(model, x)
    (block,) = model.layers
    terms = head_terms(heads, block.self_attn.out_proj.weight)[:, -1]  # (B, H, E)
    for each in [norm] if norm_first else [block.norm1, block.norm2, norm]:
        stream = stream_of(model, each, x)[:, -1]
        divisor = (stream.var(dim=-1, unbiased=False) + each.eps).sqrt()[:, None, None]
        terms = (terms - terms.mean(dim=-1, keepdim=True)) / divisor * each.weight
    torch.testing.assert_close(found.heads[:, 0], terms @ direction)


def stream_of(model, norm, x, **options):
    kept = []
    hook = norm.register_forward_pre_hook(lambda module, inputs: kept.append(inputs[0]))
    model(x, **options)
    hook.remove()
    return kept[0]


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_transformers(name):
    """Conv1D of GPT-2 stores the transpose; Llama's norm is a class of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        sizes = {"num_hidden_layers": 2, "hidden_size": 30, "num_attention_heads": 5}
        if name == "llama":
            config = transformers.LlamaConfig(
                vocab_size=29, intermediate_size=31, num_key_value_heads=1, **sizes
            )
            model = transformers.LlamaForCausalLM(config)
            norm, projections = model.model.norm, [x.self_attn.o_proj for x in model.model.layers]
        else:
            model = transformers.GPT2LMHeadModel(
                transformers.GPT2Config(vocab_size=29, n_positions=11, **sizes)
            )
            norm, projections = model.transformer.ln_f, [x.attn.c_proj for x in model.transformer.h]
    model.eval().requires_grad_(False)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    tokens, direction = torch.randint(3, 29, (B, L)), model.lm_head.weight[7]
    found = logit_attribution(model, tokens, direction=direction, norm=norm)
    close = {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(found.total, model(tokens).logits[:, -1, 7], **close)
    stream = stream_of(model, norm, tokens)[:, -1]
    heads = head_outputs(model, tokens)
    for layer, projection in enumerate(projections):
        weight = projection.weight.T if name == "gpt2" else projection.weight
        for head in range(5):
            (term,) = head_terms(heads[layer][:, -1], weight).unbind()[:1]
            only = term[head]
            centre = only.mean() if name == "gpt2" else 0
            spread = stream[0] - stream[0].mean() if name == "gpt2" else stream[0]
            size = spread.square().mean().sqrt()
            expected = ((only - centre) / size * norm.weight) @ direction
            torch.testing.assert_close(found.heads[0, layer, head], expected, **close)


SMALL = {"num_hidden_layers": 3, "hidden_size": 30, "num_attention_heads": 5, "vocab_size": 29}
SMALL |= {"attn_implementation": "eager", "pad_token_id": 0, "max_position_embeddings": 31}
GROUPED = SMALL | {"intermediate_size": 41, "num_key_value_heads": 1, "head_dim": 6}


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("Llama", GROUPED),
        ("Qwen3", GROUPED),
        ("Olmo2", {name: size for name, size in GROUPED.items() if name != "head_dim"}),
        ("Granite", GROUPED | {"residual_multiplier": 0.22, "logits_scaling": 4.0}),
        ("Gemma2", GROUPED),
        ("Gemma3", GROUPED),
        ("GPTNeoX", SMALL | {"intermediate_size": 41}),  # attention and MLP are added at once
    ],
)
def test_each_layer_adds_what_it_adds_to_the_stream(name, sizes):
    """Whatever stands between the output projection and the sum: a norm, a factor, nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        kind = "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config"
        model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, kind)(**sizes))
    model.double().eval().requires_grad_(False)
    for part, parameter in model.named_parameters():
        parameter.copy_(torch.randn_like(parameter) * (0.3 if "norm" in part else 0.4))
    norm = model.gpt_neox.final_layer_norm if name == "GPTNeoX" else model.model.norm
    tokens, direction = torch.randint(3, 29, (B, L)), torch.randn(30).double()
    mask = torch.ones(B, L, dtype=torch.long)
    mask[1, 2:4] = 0
    options = {"attention_mask": mask}
    found = logit_attribution(model, tokens, direction=direction, norm=norm, **options)
    stream = stream_of(model, norm, tokens, **options)[:, -1]
    plus = 1 if name.startswith("Gemma") else 0
    centre = name == "GPTNeoX"
    flat = stream - stream.mean(dim=-1, keepdim=True) if centre else stream
    eps = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon
    read = (
        (plus + norm.weight) * direction / (flat.square().mean(dim=-1, keepdim=True) + eps) ** 0.5
    )
    read = read - read.mean(dim=-1, keepdim=True) if centre else read
    cache = residual_cache(model, tokens, **options).layers
    assert len(cache) == 3
    for layer, seen in enumerate(cache):
        added = seen.added if seen.between is None else seen.between - seen.before
        added = (added[:, -1] * read).sum(dim=-1)
        if centre:  # the bias of the projection is no head's
            added -= read @ model.gpt_neox.layers[layer].attention.dense.bias
        # Norms of transformers compute in float32.
        torch.testing.assert_close(found.heads[:, layer].sum(dim=-1), added, rtol=1e-5, atol=1e-5)
    assert found.heads.abs().amax() > 0.01


def test_bert():
    """Its norms stand behind the sums, so a head passes all that follow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        model = transformers.BertModel(transformers.BertConfig(**SMALL, intermediate_size=41))
    model.double().eval().requires_grad_(False)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    tokens, direction = torch.randint(3, 29, (B, L)), torch.randn(30).double()
    norms = [norm for layer in model.encoder.layer for norm in norms_of(layer)]
    found = logit_attribution(model, tokens, direction=direction, norm=norms[-1], position=2)
    outputs = head_outputs(model, tokens)
    for layer, block in enumerate(model.encoder.layer):
        terms = head_terms(outputs[layer][:, 2], block.attention.output.dense.weight)  # (B, H, E)
        for norm in norms[2 * layer :]:
            stream = stream_of(model, norm, tokens)[:, 2]
            divisor = (stream.var(dim=-1, unbiased=False) + norm.eps).sqrt()[:, None, None]
            terms = (terms - terms.mean(dim=-1, keepdim=True)) / divisor * norm.weight
        torch.testing.assert_close(found.heads[:, layer], terms @ direction)


def norms_of(layer):
    return layer.attention.output.LayerNorm, layer.output.LayerNorm


class Curved(nn.Module):
    """A block that bends the stream where no module shows it."""

    def __init__(self, bend):
        super().__init__()
        self.attention, self.bend = MultiHeadAttention(21, 3), bend

    def forward(self, x):
        return self.bend(x + self.attention(x))


@pytest.mark.parametrize(
    ("bend", "right"),
    [
        (lambda x: x, True),
        (lambda x: -3 * x, True),
        (lambda x: x.tanh(), False),
        (lambda x: x / x.norm(dim=-1, keepdim=True), False),
        (lambda x: nn.functional.layer_norm(x, x.shape[-1:]), False),
    ],
)
def test_what_is_no_sum_is_refused(bend, right):
    blocks = nn.ModuleList(Curved(bend) for _ in range(2))
    model = nn.Sequential(*blocks, nn.Identity()).eval()
    x, direction = torch.randn(B, L, 21), torch.randn(21)
    if right:
        found = logit_attribution(model, x, direction=direction, norm=model[2])
        factor = model[1](x)[0, 0, 0] / (x + model[1].attention(x))[0, 0, 0]
        (first, second) = head_outputs(model, x)
        for layer, heads in enumerate((first, second)):
            terms = head_terms(heads[:, -1], blocks[layer].attention.out_proj.weight) @ direction
            torch.testing.assert_close(found.heads[:, layer], terms * factor ** (2 - layer))
    else:
        rule = r"^heads must reach norm through sums, .* heads that are multiplied add"
        with pytest.raises(ValueError, match=rule):
            logit_attribution(model, x, direction=direction, norm=model[2])


def test_a_layer_without_a_sum_hides_those_below():
    """Through another layer's weights nothing goes directly."""
    model = nn.Sequential(*[MultiHeadAttention(12, 3) for _ in range(2)], nn.Identity()).eval()
    x, direction = torch.randn(B, L, 12), torch.randn(12)
    found = logit_attribution(model, x, direction=direction, norm=model[2])
    assert found.heads[:, 0].abs().max() == 0
    terms = head_terms(head_outputs(model, x)[1][:, -1], model[1].out_proj.weight)
    torch.testing.assert_close(found.heads[:, 1], terms @ direction)


class SquaredNorm(nn.RMSNorm):
    """Its gain counts twice."""

    def forward(self, x):
        return super().forward(x) * self.weight


class TestBadInput:
    def test_direction(self):
        model, tokens = random_model(), torch.randint(29, (B, L))
        rule = r"^direction must be \(E,\) = \(84,\) or \(B, E\) = \(2, 84\), got \(3, 84\)$"
        with pytest.raises(ValueError, match=rule):
            logit_attribution(model, tokens, direction=model.embedding.weight[:3], norm=model.norm)

    def test_norm(self):
        model, tokens = random_model(), torch.randint(29, (B, L))
        direction = model.embedding.weight[0]
        with pytest.raises(ValueError, match=r"^norm must be called once .* got 0 times$"):
            logit_attribution(model, tokens, direction=direction, norm=nn.Identity())
        other = SquaredNorm(84, model.norm.eps, dtype=torch.float64)
        nn.init.normal_(other.weight)
        model.norm = other.eval()
        with pytest.raises(
            ValueError, match=r"^heads must .* known norms \(unknown: SquaredNorm\)"
        ):
            logit_attribution(model, tokens, direction=direction, norm=model.norm)

    def test_norm_that_no_head_reaches(self):
        layer = MultiHeadAttention(21, 3)
        model = nn.Sequential(layer, nn.Linear(21, 21), nn.LayerNorm(21)).eval()
        with pytest.raises(ValueError, match=r"^norm must read the stream that heads add to"):
            logit_attribution(
                model, torch.randn(B, L, 21), direction=torch.randn(21), norm=model[2]
            )

    def test_position(self):
        model, tokens = random_model(), torch.randint(29, (B, L))
        direction = model.embedding.weight[0]
        for position in (L, -L - 1):
            with pytest.raises(
                ValueError, match=rf"^position must be in \[-7, 7\), got {position}$"
            ):
                logit_attribution(
                    model, tokens, direction=direction, norm=model.norm, position=position
                )

    def test_uneven_layers(self):
        layers = [MultiHeadAttention(12, H) for H in (3, 2)]
        model, x = nn.Sequential(*layers, nn.Identity()).eval(), torch.randn(B, L, 12)
        rule = r"^layers must have the same number of heads, got \[3, 2\]$"
        with pytest.raises(ValueError, match=rule):
            logit_attribution(model, x, direction=torch.randn(12), norm=model[2])

"""Against closed forms, PyTorch's kernels, FlexAttention, and transformers' own layers."""

import functools
import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mhattn import Alibi, KVCache, MultiHeadAttention, Rotary, causal_mask
from mhattn.core import fused_attention
from mhattn.variants import NormedAttention, soft_capped_attention

B, H, L, S, D, D_V = 2, 3, 5, 7, 11, 13
CAP = 1.7
E, HEADS, KV_HEADS, HEAD_DIM = 42, 6, 2, 10  # of the layers; Gemma wants 6 to divide E


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """Imported once, here, so that no test is slow. They are part of the test extra."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers.models.gemma2.modeling_gemma2
        import transformers.models.gemma3.modeling_gemma3
        import transformers.models.olmo2.modeling_olmo2
        import transformers.models.qwen3.modeling_qwen3  # noqa: F401


def inputs(dtype=torch.float64, heads=H, kv_heads=H):
    sizes = (B, heads, L, D), (B, kv_heads, S, D), (B, kv_heads, S, D_V)
    return [torch.randn(size, dtype=dtype) for size in sizes]


def by_definition(x, gain, eps=1e-6):
    """One row after another."""
    rows = x.reshape(-1, x.shape[-1]).tolist()
    normed = []
    for row in rows:
        root = math.sqrt(sum(a * a for a in row) / len(row) + eps)
        normed.append([a / root * g for a, g in zip(row, gain.tolist(), strict=True)])
    return torch.tensor(normed, dtype=x.dtype).view(x.shape)


@pytest.fixture
def normed():
    """No gain is one, and the query's are not the key's."""
    attend = NormedAttention(D, dtype=torch.float64)
    for gain in attend.parameters():
        nn.init.uniform_(gain, 0.5, 2.0)
    return attend


@pytest.fixture
def mask():
    """One row sees nothing."""
    seen = torch.rand(B, 1, L, S) < 0.6
    seen[1, 0, 3] = False
    seen[0, 0, :, 2] = True
    return seen


class TestNormed:
    def test_definition(self, normed, mask):
        query, key, value = inputs()
        bias = torch.randn(H, L, S, dtype=torch.float64)
        q, k = by_definition(query, normed.q_gain), by_definition(key, normed.k_gain)
        expected = F.scaled_dot_product_attention(q, k, value, torch.where(mask, bias, -torch.inf))
        expected[1, :, 3] = 0
        options = {"mask": mask, "bias": bias}
        torch.testing.assert_close(normed(query, key, value, **options), expected)
        output, weights = normed(query, key, value, return_weights=True, **options)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(weights @ value, expected)

    def test_grouped_and_causal(self, normed):
        query, key, value = inputs(heads=6, kv_heads=2)
        q, k = by_definition(query, normed.q_gain), by_definition(key, normed.k_gain)
        k, v = (x.repeat_interleave(3, dim=1) for x in (k, value))
        expected = F.scaled_dot_product_attention(q, k, v, causal_mask(L, S))
        torch.testing.assert_close(normed(query, key, value, is_causal=True), expected)

    def test_no_score_exceeds_the_root_of_the_width(self):
        """Equal vectors reach it, opposite ones its negative."""
        attend = NormedAttention(D, eps=0.0, dtype=torch.float64)
        query, _, value = inputs()
        for factor in (1e-3, 1.0, 1e3):
            _, weights = attend(query, factor * query, value[:, :, :L], return_weights=True)
            scores = weights.log() - weights.log().logsumexp(-1, keepdim=True)
            spread = scores.diagonal(dim1=-2, dim2=-1)[..., None] - scores
            assert (spread >= -1e-9).all()  # its own key is the best
            assert (spread <= 2 * math.sqrt(D) + 1e-9).all()
        _, weights = attend(
            query[..., :1, :],
            torch.cat([query[..., :1, :], -query[..., :1, :]], -2),
            value[..., :2, :],
            return_weights=True,
        )
        ratio = weights[..., 0].log() - weights[..., 1].log()
        torch.testing.assert_close(ratio, torch.full_like(ratio, 2 * math.sqrt(D)))

    def test_gradient_is_divided_by_the_factor(self):
        """Where the norm of the weights doubles, the gradient halves; along them it is zero."""
        attend = NormedAttention(D, eps=0.0, dtype=torch.float64)
        query, key, value = inputs()
        grads = []
        for factor in (1.0, 8.0):
            leaf = (factor * query).requires_grad_()
            attend(leaf, key, value).square().sum().backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(grads[0], 8 * grads[1])
        along = (grads[0] * query).sum(-1)
        torch.testing.assert_close(along, torch.zeros_like(along))

    def test_gradients(self, normed):
        leaves = [x.requires_grad_() for x in inputs()]

        def run(*leaves):
            return normed(*leaves, is_causal=True)

        assert torch.autograd.gradcheck(run, leaves)
        normed(*leaves).square().sum().backward()
        for gain in (normed.q_gain, normed.k_gain):
            assert gain.grad.abs().min() > 0

    def test_eps(self):
        query, key, value = inputs()
        attend = NormedAttention(D, eps=0.37, dtype=torch.float64)
        q, k = (by_definition(x, attend.q_gain, 0.37) for x in (query, key))
        expected = F.scaled_dot_product_attention(q, k, value)
        torch.testing.assert_close(attend(query, key, value), expected)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision(self, normed, dtype):
        """The square of a number near 1000 is too large for float16."""
        query, key, value = (1000 * x for x in inputs(torch.float32))
        exact = normed(query.double(), key.double(), value.double() / 1000)
        half = normed.to(dtype)(*(x.to(dtype) for x in (query, key, value / 1000)))
        assert half.dtype == dtype
        torch.testing.assert_close(half.double(), exact, rtol=0.05, atol=0.05)

    def test_gains_in_float32_beside_half(self):
        """As autocast has it: the output keeps the inputs' dtype."""
        half = [x.to(torch.bfloat16) for x in inputs()]
        assert NormedAttention(D)(*half).dtype == torch.bfloat16

    @pytest.mark.parametrize("gains", [torch.float32, torch.bfloat16], ids=str)
    def test_norms_are_taken_in_float32(self, gains, monkeypatch):
        """Not every device's kernel widens half precision by itself."""
        seen, kernel = [], F.rms_norm

        def spy(x, shape, gain, eps):
            seen.extend([x.dtype, gain.dtype])
            return kernel(x, shape, gain, eps)

        monkeypatch.setattr(F, "rms_norm", spy)
        NormedAttention(D, dtype=gains)(*(x.to(torch.bfloat16) for x in inputs()))
        assert seen == [torch.float32] * 4
        seen.clear()
        NormedAttention(D, dtype=gains)(*inputs(torch.float64))
        assert seen == [torch.float64] * 4

    def test_reset(self, normed):
        normed.reset_parameters()
        assert all(gain.eq(1).all() for gain in normed.parameters())

    def test_dropout(self, normed):
        query, key, value = inputs()
        _, weights = normed(query, key, value, dropout=0.5, return_weights=True)
        assert 0.2 < (weights == 0).double().mean() < 0.8

    def test_errors(self):
        with pytest.raises(ValueError, match="head_dim must be at least 1, got 0"):
            NormedAttention(0)
        with pytest.raises(TypeError, match="head_dim must be an int"):
            NormedAttention(3.5)
        for eps in (-1.0, math.inf, math.nan):
            with pytest.raises(ValueError, match="eps must be finite and not negative, got"):
                NormedAttention(D, eps=eps)
        query, key, value = inputs(torch.float32)
        with pytest.raises(ValueError, match=r"query and key must have head_dim=5 last, got \(2"):
            NormedAttention(5)(query, key, value)
        with pytest.raises(ValueError, match=r"query and key must have the same last axis"):
            NormedAttention(D)(query, key[..., :9], value)
        with pytest.raises(TypeError, match=r"key must be a tensor of floats, got torch\.int64"):
            NormedAttention(D)(query, key.long(), value)

    def test_repr(self):
        assert repr(NormedAttention(3)) == "NormedAttention(head_dim=3, eps=1e-06)"


class TestCapped:
    def test_definition(self, mask):
        """One row after another, with Python's tanh and exp."""
        query, key, value = inputs()
        bias = torch.randn(H, L, S, dtype=torch.float64)
        output, weights = soft_capped_attention(
            query, key, value, cap=CAP, mask=mask, bias=bias, scale=0.6, return_weights=True
        )
        for b, h, i in [(0, 0, 0), (0, 2, 4), (1, 1, 2), (1, 0, 3)]:
            row = []
            for j in range(S):
                s = 0.6 * sum((query[b, h, i] * key[b, h, j]).tolist())
                s = CAP * math.tanh(s / CAP) + bias[h, i, j].item()
                row.append(math.exp(s) if mask[b, 0, i, j] else 0.0)
            total = sum(row) or 1.0
            expected = torch.tensor(row, dtype=torch.float64) / total
            torch.testing.assert_close(weights[b, h, i], expected)
            torch.testing.assert_close(output[b, h, i], expected @ value[b, h])

    def test_flex(self):
        """FlexAttention with the cap as a score function, grouped."""
        from torch.nn.attention.flex_attention import flex_attention

        query, key, value = inputs(heads=6, kv_heads=2)

        def score_mod(score, b, h, i, j):
            return CAP * torch.tanh(score / CAP)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is not compiled
            expected = flex_attention(query, key, value, score_mod, enable_gqa=True)
        torch.testing.assert_close(soft_capped_attention(query, key, value, cap=CAP), expected)

    def test_a_huge_cap_is_none(self):
        query, key, value = inputs()
        plain = fused_attention(query, key, value, is_causal=True)
        capped = soft_capped_attention(query, key, value, cap=1e7, is_causal=True)
        torch.testing.assert_close(capped, plain)

    def test_a_tiny_cap_is_the_mean_of_what_is_seen(self):
        query, key, value = inputs()
        capped = soft_capped_attention(100 * query, key, value, cap=1e-9, is_causal=True)
        counts = torch.arange(S - L + 1, S + 1)[:, None]
        torch.testing.assert_close(capped, value.cumsum(-2)[..., S - L :, :] / counts)

    def test_limits_of_the_weights(self):
        """No weight is more than e^(2 cap) times another one, and huge scores come close."""
        query, key, value = inputs()
        _, weights = soft_capped_attention(1e6 * query, key, value, cap=CAP, return_weights=True)
        ratio = weights.amax(-1) / weights.amin(-1)
        assert (ratio <= math.exp(2 * CAP) * (1 + 1e-9)).all()
        assert ratio.max() > 0.999 * math.exp(2 * CAP)

    def test_gradients(self):
        leaves = [x.requires_grad_() for x in inputs()]
        run = functools.partial(soft_capped_attention, cap=CAP, is_causal=True)
        assert torch.autograd.gradcheck(run, leaves)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision(self, dtype):
        """Dot products near 100,000 are infinite in float16."""
        half = [x.to(dtype) for x in inputs()]
        half[0] = half[0] * 1000
        half[1] = half[1] * 100
        exact = soft_capped_attention(*(x.double() for x in half), cap=CAP)
        capped = soft_capped_attention(*half, cap=CAP)
        assert capped.dtype == dtype
        torch.testing.assert_close(capped.double(), exact, rtol=0.03, atol=0.03)

    def test_dropout(self):
        query, key, value = inputs()
        output, weights = soft_capped_attention(
            query, key, value, cap=CAP, dropout=0.5, return_weights=True
        )
        assert 0.2 < (weights == 0).double().mean() < 0.8
        torch.testing.assert_close(output, weights @ value)

    def test_errors(self):
        query, key, value = inputs()
        for cap in (0.0, -50.0, math.inf, math.nan):
            with pytest.raises(ValueError, match=f"cap must be positive and finite, got {cap}"):
                soft_capped_attention(query, key, value, cap=cap)
        with pytest.raises(TypeError, match="query must be a tensor of floats"):
            soft_capped_attention(query.long(), key, value, cap=CAP)
        with pytest.raises(ValueError, match="key and value must have the same axes"):
            soft_capped_attention(query, key, value[..., 1:, :], cap=CAP)
        with pytest.raises(ValueError, match="bias must broadcast"):
            soft_capped_attention(query, key, value, cap=CAP, bias=torch.zeros(L + 1, S))
        with pytest.raises(TypeError, match="bias must be a tensor of floats"):
            soft_capped_attention(query, key, value, cap=CAP, bias=torch.zeros(L, S).bool())


CAPPED = functools.partial(soft_capped_attention, cap=CAP)


class TestInTheLayer:
    @pytest.mark.parametrize("attend", [NormedAttention(HEAD_DIM), CAPPED])
    def test_step_by_step_with_a_cache(self, attend):
        """Also with turned keys, which are normalised anew in every step."""
        layer = MultiHeadAttention(
            E, HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, attend=attend,
            position=Rotary(HEAD_DIM),
        ).double()  # fmt: skip
        x, cache = torch.randn(B, L, E, dtype=torch.float64), KVCache(L)
        steps = [layer(x[:, i : i + 1], is_causal=True, cache=cache) for i in range(L)]
        torch.testing.assert_close(torch.cat(steps, dim=1), layer(x, is_causal=True))

    def test_gains_are_parameters_of_the_layer(self):
        layer = MultiHeadAttention(E, HEADS, head_dim=7, attend=NormedAttention(7))
        assert {"attend.q_gain", "attend.k_gain"} <= dict(layer.named_parameters()).keys()

    def test_weights_of_any_size(self):
        layer = MultiHeadAttention(E, HEADS, head_dim=7, attend=NormedAttention(7), bias=False)
        x = torch.randn(B, L, E)
        before = layer(x)
        with torch.no_grad():
            layer.q_proj.weight *= 64
            layer.k_proj.weight *= 32
        torch.testing.assert_close(layer(x), before, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("attend", [NormedAttention(7), CAPPED])
    def test_a_bias_of_position(self, attend):
        """The bias is neither normalised nor capped."""
        layer = MultiHeadAttention(E, HEADS, head_dim=7, attend=attend, position=Alibi(HEADS))
        x = torch.randn(B, 50, E)
        _, weights = layer(x, is_causal=True, return_weights=True)
        assert weights[:, 0, -1, 0].max() < 1e-4  # slope 1/4, distance 49

    @pytest.mark.parametrize("attend", [NormedAttention(7), CAPPED])
    def test_it_compiles_as_one_graph(self, attend):
        layer = MultiHeadAttention(E, HEADS, head_dim=7, attend=attend)
        x = torch.randn(B, L, E)
        compiled = torch.compile(layer, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, is_causal=True), layer(x, is_causal=True))


def theirs(name, **options):
    """A layer of transformers, its gains random, its numbers float64."""
    prefix = name.capitalize()
    module = __import__(
        f"transformers.models.{name}.modeling_{name}", fromlist=[f"{prefix}Attention"]
    )
    config_class = getattr(module, f"{prefix}TextConfig", getattr(module, f"{prefix}Config", None))
    config = config_class(
        hidden_size=E,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        num_hidden_layers=1,
        attn_implementation="eager",
        **options,
    )
    layer = getattr(module, f"{prefix}Attention")(config, layer_idx=0).double().eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    for norm in (getattr(layer, "q_norm", None), getattr(layer, "k_norm", None)):
        if norm is not None:
            nn.init.uniform_(norm.weight, 0.5, 2.0)
    return layer


def ours(layer, **options):
    """Our layer with its weights."""
    mine = MultiHeadAttention(
        E, HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, bias=False, **options
    ).double()
    with torch.no_grad():
        for name in "qkv":
            getattr(mine, f"{name}_proj").weight.copy_(getattr(layer, f"{name}_proj").weight)
        mine.out_proj.weight.copy_(layer.o_proj.weight)
    return mine


def run_theirs(layer, x, *, turned):
    """Causal, with rotary positions or with angles of zero."""
    length = x.shape[1]
    angle = torch.zeros(HEAD_DIM // 2, dtype=x.dtype)
    if turned:
        angle = 10_000.0 ** (-torch.arange(0, HEAD_DIM, 2, dtype=x.dtype) / HEAD_DIM)
    angles = torch.arange(length, dtype=x.dtype)[:, None] * torch.cat([angle, angle])
    hidden = torch.full((length, length), -torch.inf, dtype=x.dtype).triu(1)
    positions = angles.cos()[None], angles.sin()[None]
    return layer(x, position_embeddings=positions, attention_mask=hidden[None, None])[0]


def copy_gains(attend, layer, *, plus=0.0):
    with torch.no_grad():
        attend.q_gain.copy_(plus + layer.q_norm.weight)
        attend.k_gain.copy_(plus + layer.k_norm.weight)


class TestTransformers:
    x = torch.randn(B, L, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    @pytest.mark.parametrize(("name", "plus"), [("qwen3", 0.0), ("gemma3", 1.0)])
    def test_normed(self, name, plus):
        """Without positions any gains are the same; Gemma stores them less one."""
        sizes = {"query_pre_attn_scalar": HEAD_DIM} if plus else {}
        layer = theirs(name, rms_norm_eps=1e-6, **sizes)
        mine = ours(layer, attend=NormedAttention(HEAD_DIM))
        copy_gains(mine.attend, layer, plus=plus)
        expected = run_theirs(layer, self.x, turned=False)
        tolerance = {"rtol": 1e-5, "atol": 1e-5}  # theirs normalises in float32
        torch.testing.assert_close(mine(self.x, is_causal=True), expected, **tolerance)

    def test_turned_then_normed(self):
        """Qwen3 normalises first: the same with equal gains in each pair, else not."""
        layer = theirs("qwen3", rms_norm_eps=1e-6)
        mine = ours(layer, attend=NormedAttention(HEAD_DIM), position=Rotary(HEAD_DIM))
        copy_gains(mine.attend, layer)
        difference = mine(self.x, is_causal=True) - run_theirs(layer, self.x, turned=True)
        assert difference.abs().max() > 0.01
        with torch.no_grad():
            for norm in (layer.q_norm, layer.k_norm):
                norm.weight[HEAD_DIM // 2 :] = norm.weight[: HEAD_DIM // 2]
        copy_gains(mine.attend, layer)
        expected = run_theirs(layer, self.x, turned=True)
        torch.testing.assert_close(mine(self.x, is_causal=True), expected, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("name", ["qwen3", "olmo2"])
    def test_behind_the_projections(self, name):
        """The chapter's way to their order: the norm is a part of the projection."""
        layer = theirs(name, rms_norm_eps=1e-6)
        mine = ours(layer, position=Rotary(HEAD_DIM))
        for role, heads in (("q", HEADS), ("k", KV_HEADS)):
            width = HEAD_DIM if name == "qwen3" else heads * HEAD_DIM
            norm = nn.RMSNorm(width, eps=1e-6, dtype=torch.float64)
            norm.weight = getattr(layer, f"{role}_norm").weight
            parts = [getattr(mine, f"{role}_proj"), norm]
            if name == "qwen3":
                parts[1:] = [nn.Unflatten(-1, (heads, HEAD_DIM)), norm, nn.Flatten(-2)]
            setattr(mine, f"{role}_proj", nn.Sequential(*parts))
        expected = run_theirs(layer, self.x, turned=True)
        torch.testing.assert_close(mine(self.x, is_causal=True), expected, rtol=1e-5, atol=1e-5)

    def test_capped(self):
        layer = theirs("gemma2", attn_logit_softcapping=CAP, query_pre_attn_scalar=HEAD_DIM)
        mine = ours(layer, attend=CAPPED, position=Rotary(HEAD_DIM))
        expected = run_theirs(layer, self.x, turned=True)
        torch.testing.assert_close(mine(self.x, is_causal=True), expected, rtol=1e-5, atol=1e-5)
        plain = ours(layer, position=Rotary(HEAD_DIM))(self.x, is_causal=True)
        assert (plain - expected).abs().max() > 0.01

"""Our layer and other libraries' layers, with the same weights: the same outputs and gradients."""

import functools
import warnings

import pytest
import torch
from measuring import comparisons, kernels, peers
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mhattn import Alibi, MultiHeadAttention, Rotary, padding_mask

B, L, HEADS, HEAD_DIM = 3, 17, 6, 10  # 6 heads in 3 groups of 2: no group is a head
E = HEADS * HEAD_DIM
X_TRANSFORMERS = [functools.partial(peers.x_transformers, flash=flash) for flash in (True, False)]
BERTS, GPT2S, LLAMAS = (
    [functools.partial(build, implementation=way) for way in ("sdpa", "eager")]
    for build in (peers.bert, peers.gpt2, peers.llama)
)
BOTH_WAYS = [peers.sdpa, peers.naive, peers.torch_module, *X_TRANSFORMERS]

KV_HEADS = {"MHA": 32, "GQA-8": 8, "MQA": 1}
KINDS = [*KV_HEADS, "MLA"]


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """Imported once, here, so that no test is slow. They are part of the test extra."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers.models.bert.modeling_bert
        import transformers.models.gpt2.modeling_gpt2
        import transformers.models.llama.modeling_llama  # noqa: F401
        import x_transformers  # noqa: F401


def layer(dtype=torch.float64, **options):
    """No bias of it is zero."""
    ours = MultiHeadAttention(E, HEADS, **options).to(dtype)
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.15)
    return ours


def tokens(dtype=torch.float64):
    return torch.randn(B, L, E, dtype=dtype)


def assert_same(ours, theirs, x, seen=None, **options):
    """Outputs, and gradients at the input; ``seen`` says which outputs count."""
    found, grad = [], torch.randn_like(x)
    for run in (functools.partial(ours, **options), theirs):
        leaf = x.clone().requires_grad_()
        output = run(leaf)
        if seen is not None:
            output = output * seen[..., None]
        output.backward(grad)
        found.append((output.detach(), leaf.grad))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("build", BOTH_WAYS + BERTS)
def test_all_see_all(build):
    ours = layer()
    assert_same(ours, build(ours), tokens())


@pytest.mark.parametrize("build", BOTH_WAYS)
def test_causal(build):
    ours = layer()
    assert_same(ours, build(ours, is_causal=True), tokens(), is_causal=True)


@pytest.mark.parametrize("build", GPT2S)
def test_gpt2(build):
    ours = layer()
    assert_same(ours, build(ours), tokens(), is_causal=True)


@pytest.mark.parametrize("build", [peers.torch_module, *X_TRANSFORMERS, *BERTS])
def test_hidden_keys(build):
    """Outputs at padding are not compared: x-transformers sets them to zero."""
    ours, lengths = layer(), torch.tensor([L, 11, 5])
    mask = padding_mask(lengths, S=L)
    seen = mask[:, 0, 0]
    assert_same(ours, build(ours, mask=mask), tokens(), seen, mask=mask)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("num_kv_heads", [1, 3, 6])
@pytest.mark.parametrize("build", LLAMAS + X_TRANSFORMERS)
def test_grouped_heads_and_rotary(build, num_kv_heads, bias):
    """In float32: there, Llama keeps its angles in float32 whatever the layer's dtype."""
    options = {"num_kv_heads": num_kv_heads, "bias": bias, "position": Rotary(HEAD_DIM, base=500)}
    ours = layer(torch.float32, **options)
    causal = {"is_causal": True} if build in X_TRANSFORMERS else {}
    theirs, x = build(ours, **causal), tokens(torch.float32)
    torch.testing.assert_close(theirs(x), ours(x, is_causal=True), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("build", LLAMAS)
def test_llama_with_heads_of_another_size(build):
    options = {"num_kv_heads": 2, "head_dim": 14, "position": Rotary(14)}
    ours, x = layer(torch.float32, **options), tokens(torch.float32)
    theirs = build(ours)
    torch.testing.assert_close(theirs(x), ours(x, is_causal=True), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("build", X_TRANSFORMERS)
def test_alibi(build, is_causal):
    """Six heads: no power of two."""
    ours, x = layer(torch.float32, position=Alibi(HEADS)), tokens(torch.float32)
    theirs = build(ours, is_causal=is_causal)
    torch.testing.assert_close(theirs(x), ours(x, is_causal=is_causal), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("build", BERTS + X_TRANSFORMERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(build, dtype):
    ours, x = layer(dtype), tokens(dtype)
    torch.testing.assert_close(build(ours)(x), ours(x), rtol=0.05, atol=0.05)


def test_bert_reaches_every_parameter_with_the_same_gradient():
    ours, x = layer(), tokens()
    theirs = peers.bert(ours)
    for run in (ours, theirs):
        run(x).square().mean().backward()
    names = {"q_proj": "self.query", "k_proj": "self.key", "v_proj": "self.value"}
    for name, other in (names | {"out_proj": "output.dense"}).items():
        mine, other = ours.get_submodule(name), theirs.layer.get_submodule(other)
        for kind in ("weight", "bias"):
            grads = getattr(mine, kind).grad, getattr(other, kind).grad
            torch.testing.assert_close(*grads)


@pytest.mark.parametrize("build", BOTH_WAYS + BERTS + GPT2S)
def test_copies_are_copies_and_as_many(build):
    ours = layer()
    theirs, before = build(ours), ours.out_proj.weight.clone()
    numbers = [sum(p.numel() for p in each.parameters()) for each in (ours, theirs)]
    assert numbers[0] == numbers[1]
    for parameter in theirs.parameters():
        nn.init.zeros_(parameter)
    assert ours.out_proj.weight.equal(before)


def test_layers_that_are_timed_are_equal():
    """The benchmark's own check, at a short length."""
    ours = comparisons.random_layer()
    assert ours.training
    layers = comparisons.all_layers(ours)
    for training in (False, True):
        calls = comparisons.layer_calls(layers, 13, training)
        comparisons.check_equal(calls)


def test_unequal_layers_are_not_timed():
    calls = {"one": lambda: torch.ones(3), "two": lambda: torch.zeros(3)}
    with pytest.raises(AssertionError, match="not close"):
        comparisons.timed(calls, rounds=1)


def test_outputs_and_weights_are_compared_before_they_are_timed(monkeypatch):
    monkeypatch.setattr(comparisons, "LENGTHS", (7,))
    monkeypatch.setattr(comparisons, "times", lambda calls, rounds: dict.fromkeys(calls, [1.0] * 6))
    assert comparisons.peers_weights(6)["rows"][0][0] == 7
    averaged = comparisons.random_layer().eval().to_torch()
    monkeypatch.setattr(
        comparisons.MultiHeadAttention, "to_torch", lambda self: lambda *x, **_: averaged(*x)
    )
    with pytest.raises(AssertionError):
        comparisons.peers_weights(6)


def test_what_cannot_be_built_is_refused():
    with pytest.raises(TypeError, match="ours must have a Rotary position, got NoneType"):
        peers.llama(MultiHeadAttention(12, 3))
    grouped = MultiHeadAttention(12, 6, num_kv_heads=2, position=Alibi(6))
    with pytest.raises(ValueError, match="ours must not group its heads, got groups of 3"):
        peers.x_transformers(grouped)


def test_a_roofline_counts_what_its_calls_do():
    cached, lengths = 13, (7, 11)
    counted = kernels.roofline_calls(kernels.Roof(cached, side=5, lengths=lengths))
    assert [call for call, _ in counted] == ["`x.sum()`", "`F.linear`", *KINDS, "MHA", "MHA"]
    for (name, queries), (call, flops, moved) in counted.items():
        if name == "`x.sum()`":
            assert (flops, moved) == (2 * 32 * cached * 64, 4 * 2 * 32 * cached * 64)
            continue
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            call()
        padded = 2 * 25 * 32 * cached * 32 if name == "MLA" else 0  # values as wide as keys
        assert counter.get_total_flops() == flops + padded
        if name in KV_HEADS:
            keys = queries if queries > 1 else cached
            rule = 0.5 / (1 / keys + KV_HEADS[name] / 32 / queries)  # four bytes a number
            assert flops / moved == pytest.approx(rule)
    _, flops, moved = counted["`F.linear`", 5]
    assert moved / flops == pytest.approx(2 * 3 / 5)
    _, _, moved = counted["MLA", 1]
    heads = 25 * 32 * (64 + 32 + 64)  # of 25 sequences: queries and outputs
    assert moved == 4 * (25 * cached * 160 + heads + 2 * 32 * 64 * 128)

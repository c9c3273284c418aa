"""Against `torch.nn.MultiheadAttention`, and against the projections written out."""

import copy
import itertools
import math
import shutil
import sys

import pytest
import torch
from torch import nn

from mhattn import (
    Alibi,
    MultiHeadAttention,
    Rotary,
    attention,
    causal_mask,
    padding_mask,
    window_mask,
)
from mhattn.variants import (
    GatedDelta,
    LatentAttention,
    LearnedBias,
    NormedAttention,
    RelativePosition,
    linear_attention,
    tiled_attention,
)

B, L, S, H, D = 2, 5, 7, 3, 11
E = H * D

SETTINGS = [
    {},
    {"bias": False},
    {"num_kv_heads": 1},
    {"num_heads": 6, "num_kv_heads": 2, "head_dim": 13},
    {"head_dim": 5, "bias": False},
    {"kdim": 17, "vdim": 19},
]


def module(num_heads=H, dtype=torch.float64, **options):
    mha = MultiHeadAttention(E, num_heads, **options).to(dtype)
    for parameter in mha.parameters():  # also the biases, which start at zero
        nn.init.normal_(parameter, std=0.3)
    return mha


def inputs(mha, dtype=torch.float64):
    shapes = (L, mha.embed_dim), (S, mha.kdim), (S, mha.vdim)
    return [torch.randn(B, *shape, dtype=dtype) for shape in shapes]


def project(linear, x):
    bias = 0 if linear.bias is None else linear.bias
    return torch.einsum("oi,bli->blo", linear.weight, x) + bias


def written_out(mha, query, key, value, mask=None):
    """Head by head, each with its own rows of the projections."""
    group, d = mha.num_heads // mha.num_kv_heads, mha.head_dim
    q, k, v = project(mha.q_proj, query), project(mha.k_proj, key), project(mha.v_proj, value)
    heads, weights = [], []
    for h in range(mha.num_heads):
        own, shared = slice(h * d, (h + 1) * d), slice(h // group * d, (h // group + 1) * d)
        scores = torch.einsum("bid,bjd->bij", q[..., own], k[..., shared]) / math.sqrt(d)
        if mask is not None:
            scores = torch.where(mask, scores, -torch.inf)
        weights.append(torch.softmax(scores, dim=2))
        heads.append(torch.einsum("bij,bjd->bid", weights[-1], v[..., shared]))
    return project(mha.out_proj, torch.cat(heads, dim=2)), torch.stack(weights, dim=1)


@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_forward_equals_the_formula_head_by_head(options, is_causal):
    mha = module(**options)
    x = inputs(mha)
    expected, expected_weights = written_out(mha, *x, causal_mask(L, S) if is_causal else None)
    output, weights = mha(*x, is_causal=is_causal, return_weights=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(mha(*x, is_causal=is_causal), expected)


def test_key_is_the_query_and_value_the_key_by_default():
    mha = module()
    query, key, _ = inputs(mha)
    assert mha(query).equal(mha(query, query, query))
    assert mha(query, key).equal(mha(query, key, key))


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_gradients_of_both_paths_are_the_formulas(options):
    mha = module(**options)
    x = [tensor.requires_grad_() for tensor in inputs(mha)]
    mask = causal_mask(L, S)
    sources = [*x, *mha.parameters()]
    probe = torch.randn(B, L, E).double()
    expected = torch.autograd.grad(written_out(mha, *x, mask)[0], sources, probe)
    torch.testing.assert_close(torch.autograd.grad(mha(*x, mask=mask), sources, probe), expected)
    output, _ = mha(*x, mask=mask, return_weights=True)
    torch.testing.assert_close(torch.autograd.grad(output, sources, probe), expected)


FUSED_OR_NOT = [{}, {"kdim": 17, "vdim": 19}, {"vdim": 19}]


@pytest.mark.parametrize("sizes", FUSED_OR_NOT, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_from_torch_is_the_same_function(sizes, bias, batch_first, dtype):
    theirs = nn.MultiheadAttention(
        E, H, bias=bias, batch_first=batch_first, dtype=dtype, dropout=0.3, **sizes
    ).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours = MultiHeadAttention.from_torch(theirs)
    x = inputs(ours, dtype)
    mask = window_mask(L, S, 3)
    given = x if batch_first else [tensor.transpose(0, 1) for tensor in x]
    expected, weights = theirs(*given, attn_mask=~mask, average_attn_weights=False)
    expected = expected if batch_first else expected.transpose(0, 1)
    output, our_weights = ours(*x, mask=mask, return_weights=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(our_weights, weights)
    torch.testing.assert_close(ours(*x, mask=mask), expected)

    back = ours.to_torch(batch_first=batch_first)
    assert back.state_dict().keys() == theirs.state_dict().keys()
    assert all(back.state_dict()[name].equal(t) for name, t in theirs.state_dict().items())
    assert back.batch_first == batch_first
    assert (back.dropout, ours.dropout) == (0.3, 0.3)


def test_from_torch_with_padding():
    theirs = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64).eval()
    ours = MultiHeadAttention.from_torch(theirs)
    x, lengths = torch.randn(B, S, E).double(), torch.tensor([7, 3])
    hidden = torch.arange(S) >= lengths[:, None]
    expected, _ = theirs(x, x, x, key_padding_mask=hidden)
    torch.testing.assert_close(ours(x, mask=padding_mask(lengths, S)), expected)


def test_from_torch_takes_over_the_gradient():
    theirs = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    ours = MultiHeadAttention.from_torch(theirs)
    x = torch.randn(B, L, E).double()
    theirs(x, x, x)[0].square().sum().backward()
    ours(x).square().sum().backward()
    parts = [getattr(ours, f"{name}_proj").weight.grad for name in "qkv"]
    torch.testing.assert_close(torch.cat(parts), theirs.in_proj_weight.grad)
    torch.testing.assert_close(ours.out_proj.weight.grad, theirs.out_proj.weight.grad)


@pytest.mark.parametrize("training", [True, False])
def test_conversion_keeps_dtype_device_and_training(training):
    theirs = nn.MultiheadAttention(E, H, dtype=torch.bfloat16).train(training)
    ours = MultiHeadAttention.from_torch(theirs)
    back = ours.to_torch()
    assert {p.dtype for m in (ours, back) for p in m.parameters()} == {torch.bfloat16}
    flags = [m.training for m in (ours, ours.q_proj, back, back.out_proj)]
    assert flags == [training] * 4


def test_conversion_copies_the_weights():
    theirs = nn.MultiheadAttention(E, H)
    ours = MultiHeadAttention.from_torch(theirs)
    before = copy.deepcopy(theirs.state_dict())
    back = ours.to_torch()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter += 1
    for m in (theirs, back):
        assert all(tensor.equal(before[name]) for name, tensor in m.state_dict().items())


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_from_torch_names_what_only_torch_has(option):
    theirs = nn.MultiheadAttention(E, H, **{option: True})
    with pytest.raises(ValueError, match=f"^module must not use {option}, got {option}=True$"):
        MultiHeadAttention.from_torch(theirs)


def test_to_torch_names_what_only_we_have():
    with pytest.raises(ValueError, match=r"num_kv_heads must be num_heads, 3, got 1$"):
        MultiHeadAttention(E, H, num_kv_heads=1).to_torch()
    with pytest.raises(ValueError, match=r"head_dim must be embed_dim / num_heads, 33 / 3, got 5$"):
        MultiHeadAttention(E, H, head_dim=5).to_torch()
    with pytest.raises(TypeError, match=r"MultiheadAttention, got Linear$"):
        MultiHeadAttention.from_torch(nn.Linear(2, 3))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("return_weights", [True, False])
def test_no_query_sees_what_comes_after_it(training, return_weights):
    mha = module(num_kv_heads=1).train(training)
    x = torch.randn(B, L, E).double()

    def run(x):
        result = mha(x, is_causal=True, return_weights=return_weights)
        return result[0] if return_weights else result

    before = run(x)
    for j in range(L):
        other = x.clone()
        other[:, j] += 1
        changed = (run(other) != before).any(-1).all(0)
        assert changed.tolist() == [i >= j for i in range(L)]


@pytest.mark.parametrize("return_weights", [True, False])
def test_dropout_is_applied_in_training_only(return_weights):
    mha = module(dropout=0.5)
    x = torch.randn(B, L, E).double()

    def run():
        result = mha(x, return_weights=return_weights)
        return result[0] if return_weights else result

    assert not run().equal(run())
    mha.eval()
    assert run().equal(run())
    mha.dropout = 0.0
    without = run()
    mha.dropout = 0.5
    assert run().equal(without)


def test_dropout_has_the_mean_of_the_output_without():
    mha = module(dropout=0.2, bias=False)
    x = torch.randn(1, L, E).double()
    draws = torch.stack([mha(x) for _ in range(1000)])
    error = draws.std(0) / math.sqrt(len(draws))
    assert ((draws.mean(0) - mha.eval()(x)).abs() < 5 * error).all()


def test_a_query_with_nothing_to_see_gets_the_output_bias():
    mha = module()
    x = torch.randn(B, L, E).double().requires_grad_()
    for return_weights in (True, False):
        result = mha(x, mask=padding_mask(torch.tensor([0, 5]), L), return_weights=return_weights)
        output = result[0] if return_weights else result
        torch.testing.assert_close(output[0], mha.out_proj.bias.expand(L, E))
        (grad,) = torch.autograd.grad(output.square().sum(), x)
        assert (grad[0] == 0).all()
        assert grad.isfinite().all()


def test_initialisation_is_xavier_on_each_matrix():
    mha = MultiHeadAttention(64, 4, num_kv_heads=1, kdim=32)
    for proj in mha.children():
        bound = math.sqrt(6 / sum(proj.weight.shape))
        largest = proj.weight.abs().max().item()
        assert 0.95 * bound < largest <= bound  # of at least 512 uniform numbers
        assert (proj.bias == 0).all()


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_parameters_have_the_shapes_of_the_settings(options):
    mha = MultiHeadAttention(E, **({"num_heads": H} | options))
    q_width, kv_width = mha.num_heads * mha.head_dim, mha.num_kv_heads * mha.head_dim
    assert mha.q_proj.weight.shape == (q_width, E)
    assert mha.k_proj.weight.shape == (kv_width, options.get("kdim", E))
    assert mha.v_proj.weight.shape == (kv_width, options.get("vdim", E))
    assert mha.out_proj.weight.shape == (E, q_width)
    assert {p.bias is not None for p in mha.children()} == {options.get("bias", True)}


def test_repr_says_what_the_linear_layers_do_not():
    text = repr(MultiHeadAttention(E, 6, num_kv_heads=2, head_dim=5, dropout=0.1))
    assert "embed_dim=33, num_heads=6, num_kv_heads=2, head_dim=5, dropout=0.1" in text


def test_autocast_on_the_cpu():
    mha = module(dtype=torch.float32)
    x = torch.randn(B, L, E)
    exact = mha(x, is_causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused = mha(x, is_causal=True)
        written, weights = mha(x, is_causal=True, return_weights=True)
    assert fused.dtype == written.dtype == torch.bfloat16
    assert weights.isfinite().all()
    for output in (fused, written):  # rounded some four times on the way
        scale = exact.abs().max()
        assert (output - exact).abs().max() < 4 * torch.finfo(torch.bfloat16).eps * scale


def test_compiles_as_one_graph():
    torch._dynamo.reset()  # or it takes lengths for fixed that other tests have shown it
    mha = module(num_kv_heads=1, dtype=torch.float32)
    compiled = torch.compile(mha, fullgraph=True, backend="eager")
    x, mask = torch.randn(B, L, E), padding_mask(torch.tensor([5, 2]), L)
    torch.testing.assert_close(compiled(x, mask=mask), mha(x, mask=mask))
    output, weights = compiled(x, mask=mask, is_causal=True, return_weights=True)
    expected, expected_weights = mha(x, mask=mask, is_causal=True, return_weights=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)


@pytest.mark.skipif(
    sys.platform == "win32" or not shutil.which("g++"),
    reason="needs a C++ compiler; Windows has another",
)
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@torch.no_grad()
def test_compiles_to_machine_code():
    mha = module(num_kv_heads=1, dtype=torch.float32)
    x = torch.randn(B, L, E)
    torch.testing.assert_close(torch.compile(mha)(x, is_causal=True), mha(x, is_causal=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_cuda_equals_the_cpu(options):
    mha = module(**options)
    x = inputs(mha)
    expected = mha(*x, is_causal=True)
    output = copy.deepcopy(mha).cuda()(*(tensor.cuda() for tensor in x), is_causal=True)
    torch.testing.assert_close(output.cpu(), expected)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        half = mha.cuda().float()(*(tensor.cuda().float() for tensor in x), is_causal=True)
    tolerance = 8 * torch.finfo(torch.bfloat16).eps * expected.abs().max().item()
    assert (half.cpu() - expected).abs().max() < tolerance


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 4}, "num_heads must divide embed_dim, 33, got 4"),
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"embed_dim": 0}, "embed_dim must be at least 1, got 0"),
        ({"num_kv_heads": 2}, "num_kv_heads must divide num_heads, 3, got 2"),
        ({"num_kv_heads": 0}, "num_kv_heads must be at least 1, got 0"),
        ({"head_dim": 0}, "head_dim must be at least 1, got 0"),
        ({"kdim": -1}, "kdim must be at least 1, got -1"),
        ({"vdim": 0}, "vdim must be at least 1, got 0"),
        ({"dropout": 1.0}, "dropout must be in [0, 1), got 1.0"),
    ],
)
def test_wrong_settings_are_named(arguments, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the message is compared below)
        MultiHeadAttention(**({"embed_dim": E, "num_heads": H} | arguments))
    assert str(error.value) == message


def test_a_number_of_heads_is_an_integer():
    with pytest.raises(TypeError, match=r"^num_heads must be an integer, got float$"):
        MultiHeadAttention(E, 3.0)


X = torch.zeros(2, 5, E)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X[0],), "query must be (batch, length, embed_dim=33), got shape (5, 33)"),
        ((X[..., :7],), "query must be (batch, length, embed_dim=33), got shape (2, 5, 7)"),
        ((X, X), "key must be (batch, length, kdim=17), got shape (2, 5, 33)"),
        ((X,), "key must be (batch, length, kdim=17), got shape (2, 5, 33)"),
        ((X, X[..., :17]), "value must be (batch, length, vdim=19), got shape (2, 5, 17)"),
        ((X, None, X), "value needs a key, got a value and key=None"),
    ],
)
def test_wrong_inputs_are_named(arguments, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        MultiHeadAttention(E, H, kdim=17, vdim=19)(*arguments)
    assert str(error.value) == message


def test_a_floating_mask_is_refused():
    with pytest.raises(TypeError, match="mask must be a tensor of booleans, True = may attend"):
        MultiHeadAttention(E, H)(X, mask=torch.zeros(5, 5))


def test_the_module_is_functional_on_projected_heads():
    mha = module()
    query, key, value = inputs(mha)
    q, k, v = (
        project(proj, x).reshape(B, -1, H, D).permute(0, 2, 1, 3)
        for proj, x in zip(mha.children(), (query, key, value), strict=False)
    )
    for return_weights, is_causal in itertools.product([True, False], repeat=2):
        options = {"return_weights": return_weights, "is_causal": is_causal}
        ours, expected = mha(query, key, value, **options), attention(q, k, v, **options)
        if return_weights:
            torch.testing.assert_close(ours[1], expected[1])
            ours, expected = ours[0], expected[0]
        merged = expected.permute(0, 2, 1, 3).reshape(B, L, E)
        torch.testing.assert_close(ours, project(mha.out_proj, merged))


# What goes together


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"position": Rotary(6)}, "position must have the layer's head_dim=11, got Rotary with 6"),
        ({"position": Alibi(5)}, "position must have the layer's num_heads=3, got Alibi with 5"),
        (
            {"position": RelativePosition(6, 2)},
            "position must have the layer's head_dim=11, got RelativePosition with 6",
        ),
        (
            {"position": LearnedBias(6, 2)},
            "position must have the layer's num_heads=3, got LearnedBias with 6",
        ),
        (
            {"attend": GatedDelta(3, 11), "num_kv_heads": 1},
            "attend must have the layer's num_kv_heads=1, got GatedDelta with 3",
        ),
        (
            {"attend": GatedDelta(3, 9)},
            "attend must have the layer's head_dim=11, got GatedDelta with 9",
        ),
        (
            {"attend": NormedAttention(7)},
            "attend must have the layer's head_dim=11, got NormedAttention with 7",
        ),
    ],
)
def test_parts_of_another_size_are_refused_when_they_are_set(options, message):
    size = message.split("'s ")[1].split("=")[0]
    message = message.replace(" with ", f" with {size}=")
    with pytest.raises(ValueError, match=f"^{message}$"):
        MultiHeadAttention(E, H, **options)
    mha = MultiHeadAttention(E, H, num_kv_heads=options.pop("num_kv_heads", None))
    ((name, part),) = options.items()
    before = getattr(mha, name)
    with pytest.raises(ValueError, match=f"^{message}$"):
        setattr(mha, name, part)
    assert getattr(mha, name) is before


def test_another_function_can_attend_later():
    mha, x = MultiHeadAttention(E, H), torch.randn(B, L, E)
    state = mha.state_dict()
    normed = NormedAttention(D)
    for attend in (linear_attention, normed, tiled_attention, attention):
        mha.attend = attend
        built = MultiHeadAttention(E, H, attend=attend)
        built.load_state_dict(state, strict=False)
        assert mha(x, is_causal=True).equal(built(x, is_causal=True))
        assert ("attend.q_gain" in mha.state_dict()) == (attend is normed)
    mha.attend = linear_attention
    with pytest.raises(ValueError, match=r"^return_weights must be False with attend=linear"):
        mha(x, return_weights=True)
    with pytest.raises(TypeError, match=r"^attend must be a function with known arguments, got "):
        mha.attend = "local"
    with pytest.raises(ValueError, match=r"^position must add nothing to the scores with attend="):
        mha.position = Alibi(H)
    assert mha.attend is linear_attention
    assert mha.position is None
    mha.attend = attention
    mha.position = Alibi(H)
    with pytest.raises(ValueError, match=r"^position must add nothing to the scores with attend="):
        mha.attend = linear_attention


@pytest.mark.parametrize(
    "make", [lambda: NormedAttention(D), lambda: GatedDelta(H, D), lambda: Wrapped(D)]
)
def test_what_attends_is_reset_as_well(make):
    with torch.device("meta"):
        mha = MultiHeadAttention(E, H, attend=make())
    mha.to_empty(device="cpu")
    for tensor in [*mha.parameters(), *mha.buffers()]:
        tensor.data.fill_(math.nan)
    mha.reset_parameters()
    expected = dict(make().named_parameters())
    assert expected
    for name, parameter in mha.attend.named_parameters():
        assert parameter.equal(expected[name])
    assert mha(torch.randn(B, L, E), is_causal=True).isfinite().all()


class Wrapped(nn.Module):
    """Has no way of its own to be reset, but its part has."""

    def __init__(self, head_dim):
        super().__init__()
        self.normed = NormedAttention(head_dim)

    def forward(self, query, key, value, *, is_causal=False):
        return self.normed(query, key, value, is_causal=is_causal)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: MultiHeadAttention(E, H)(torch.zeros(B, L, E).double()),
            "query must be torch.float32 as the layer's parameters, got torch.float64",
        ),
        (
            lambda: MultiHeadAttention(E, H)(torch.zeros(B, L, E), torch.zeros(B, S, E).bfloat16()),
            "key must be torch.float32 as the layer's parameters, got torch.bfloat16",
        ),
        (
            lambda: LatentAttention(
                E, H, kv_lora_rank=8, qk_nope_head_dim=5, qk_rope_head_dim=2
            ).bfloat16()(torch.zeros(B, L, E)),
            "query must be torch.bfloat16 as the layer's parameters, got torch.float32",
        ),
    ],
)
def test_a_layer_wants_the_dtype_of_its_parameters(call, message):
    with pytest.raises(TypeError, match=f"^{message}$"):
        call()


def test_autocast_takes_inputs_of_another_dtype():
    mha, x = MultiHeadAttention(E, H), torch.randn(B, L, E)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = mha(x.bfloat16(), x)
        mixed = attention(x, x.bfloat16(), x.bfloat16())
    assert output.dtype == mixed.dtype == torch.bfloat16

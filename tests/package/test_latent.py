"""Against the formula, written out number by number, and against Hugging Face's DeepSeek layers."""

import copy
import dataclasses
import math
import shutil
import sys

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mhattn import KVCache, MultiHeadAttention, causal_mask, padding_mask, window_mask
from mhattn.costs import known_model
from mhattn.variants import LatentAttention, latent_attention

B, L, S, H, E = 2, 5, 7, 3, 87  # E must be divisible by H for Hugging Face
R, D, TURNED, D_V, Q_RANK = 13, 11, 4, 17, 19
SIZES = {"kv_lora_rank": R, "qk_nope_head_dim": D, "qk_rope_head_dim": TURNED, "v_head_dim": D_V}

both_ways = pytest.mark.parametrize("absorb", [False, True])
with_and_without_q_lora_rank = pytest.mark.parametrize("q_lora_rank", [None, Q_RANK])


def module(dtype=torch.float64, q_lora_rank=Q_RANK, **options):
    layer = LatentAttention(E, H, q_lora_rank=q_lora_rank, **(SIZES | options)).to(dtype)
    for parameter in layer.parameters():  # also those of the norms, which start at one
        nn.init.normal_(parameter, std=0.4)
    return layer


def heads(L=L, S=S, dtype=torch.float64):
    """Query, kept, k_b and v_b."""
    query = torch.randn(B, H, L, D + TURNED, dtype=dtype)
    kept = torch.randn(B, 1, S, R + TURNED, dtype=dtype)
    ups = torch.randn(H, D, R, dtype=dtype), torch.randn(H, D_V, R, dtype=dtype)
    return query, kept, *ups


def norm(x, weight):
    return x / (x.square().mean() + 1e-6).sqrt() * weight


def turn(x, position, base=10_000.0):
    """As complex numbers, feature i with feature i + half."""
    half = len(x) // 2
    pairs = torch.complex(x[:half], x[half:])
    angles = torch.tensor([position * base ** (-2 * i / len(x)) for i in range(half)])
    pairs = pairs * torch.polar(torch.ones(half, dtype=torch.float64), angles.double())
    return torch.cat([pairs.real, pairs.imag])


def written_out(layer, x, allowed=None, base=10_000.0):
    """Token by token, head by head, from the paper's equations 9 to 19 and 37 to 47."""
    own = dict(layer.named_parameters())
    nope, v_dim = layer.qk_nope_head_dim, layer.v_head_dim
    width = nope + layer.qk_rope_head_dim
    outputs, tables = [], []
    for sequence in x:
        latents = [own["kv_a_proj.weight"] @ t for t in sequence]
        latents = [norm(latent, own["kv_a_layernorm.weight"]) for latent in latents]
        shared = [turn(own["k_rope_proj.weight"] @ t, j, base) for j, t in enumerate(sequence)]
        rows = []
        for i, token in enumerate(sequence):
            if layer.q_lora_rank is None:
                query = own["q_proj.weight"] @ token
            else:
                query = norm(own["q_a_proj.weight"] @ token, own["q_a_layernorm.weight"])
                query = own["q_b_proj.weight"] @ query
            mixed = []
            for h in range(layer.num_heads):
                q = query[h * width : (h + 1) * width]
                content, turned = q[:nope], turn(q[nope:], i, base)
                k_b = own["k_b_proj.weight"][h * nope : (h + 1) * nope]
                v_b = own["v_b_proj.weight"][h * v_dim : (h + 1) * v_dim]
                scores = [
                    (content @ (k_b @ c) + turned @ k) / math.sqrt(width)
                    for c, k in zip(latents, shared, strict=True)
                ]
                seen = [j for j in range(len(sequence)) if allowed is None or allowed[i, j]]
                weights = torch.zeros(len(sequence), dtype=x.dtype)
                weights[seen] = torch.stack([scores[j] for j in seen]).softmax(dim=0)
                mixed.append(sum(weights[j] * (v_b @ latents[j]) for j in seen))
                tables.append(weights)
            rows.append(own["out_proj.weight"] @ torch.cat(mixed))
        outputs.append(torch.stack(rows))
    tables = torch.stack(tables).unflatten(0, (len(x), x.shape[1], layer.num_heads))
    return torch.stack(outputs), tables.transpose(1, 2)


@both_ways
@with_and_without_q_lora_rank
@pytest.mark.parametrize("allowed", [None, causal_mask(S), window_mask(S, S, 3)], ids=str)
@torch.no_grad()
def test_layer_equals_the_formula_token_by_token(absorb, q_lora_rank, allowed):
    layer = module(q_lora_rank=q_lora_rank)
    x = torch.randn(B, S, E).double()
    expected, expected_weights = written_out(layer, x, allowed)
    output, weights = layer(x, mask=allowed, return_weights=True, absorb=absorb)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(layer(x, mask=allowed, absorb=absorb), expected)


@torch.no_grad()
def test_base_and_default_value_size():
    layer = module(base=100.0, v_head_dim=None)
    assert layer.v_head_dim == D
    x = torch.randn(B, S, E).double()
    torch.testing.assert_close(layer(x), written_out(layer, x, base=100.0)[0])


@both_ways
def test_gradients_are_the_formulas(absorb):
    layer = module()
    x = torch.randn(B, L, E).double().requires_grad_()
    sources = [x, *layer.parameters()]
    probe = torch.randn(B, L, E).double()
    expected = torch.autograd.grad(written_out(layer, x, causal_mask(L))[0], sources, probe)
    for return_weights in (False, True):
        output = layer(x, is_causal=True, absorb=absorb, return_weights=return_weights)
        output = output[0] if return_weights else output
        torch.testing.assert_close(torch.autograd.grad(output, sources, probe), expected)


@both_ways
def test_gradcheck(absorb):
    shapes = (1, 2, 2, 3 + 2), (1, 1, 3, 5 + 2), (2, 3, 5), (2, 4, 5)
    inputs = [torch.randn(shape).double().requires_grad_() for shape in shapes]
    assert torch.autograd.gradcheck(
        lambda *x: latent_attention(*x, is_causal=True, absorb=absorb), inputs
    )


MASKS = {
    "none": None,
    "keys": padding_mask(torch.tensor([7, 3]), S),
    "heads": torch.rand(H, L, S, generator=torch.Generator().manual_seed(1)) < 0.7,
    "all": torch.rand(B, H, L, S, generator=torch.Generator().manual_seed(2)) < 0.7,
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("return_weights", [False, True])
def test_absorbed_equals_expanded(name, is_causal, return_weights):
    options = {"is_causal": is_causal, "return_weights": return_weights}
    inputs = heads()
    one, other = (
        latent_attention(*inputs, mask=MASKS[name], absorb=absorb, **options)
        for absorb in (False, True)
    )
    torch.testing.assert_close(one, other)


@both_ways
def test_queries_with_nothing_to_see_get_zeros(absorb):
    inputs = [x.requires_grad_() for x in heads()]
    nothing = padding_mask(torch.tensor([0, 7]), S)
    for return_weights in (False, True):
        output = latent_attention(
            *inputs, mask=nothing, absorb=absorb, return_weights=return_weights
        )
        output = output[0] if return_weights else output
        assert (output[0] == 0).all()
        assert (output[1] != 0).all()
        grads = torch.autograd.grad(output.square().sum(), inputs)
        assert all(grad.isfinite().all() for grad in grads)


# The cache


@pytest.mark.parametrize("absorb", [None, False, True])
@pytest.mark.parametrize("parts", [[k, *[1] * (S - k)] for k in range(1, S)] + [[3, 2, 2]], ids=str)
@torch.no_grad()
def test_any_split_through_a_cache_is_the_full_pass(absorb, parts):
    layer = module()
    x = torch.randn(B, S, E).double()
    expected, expected_weights = layer(x, is_causal=True, return_weights=True)
    cache, again, end = KVCache(max_len=S), KVCache(max_len=S), 0
    for part in x.split(parts, dim=1):
        begin, end = end, end + part.shape[1]
        output = layer(part, is_causal=True, cache=cache, absorb=absorb)
        torch.testing.assert_close(output, expected[:, begin:end])
        options = {"is_causal": True, "return_weights": True, "absorb": absorb}
        _, weights = layer(part, cache=again, **options)
        torch.testing.assert_close(weights, expected_weights[:, :, begin:end, :end])
    assert cache.nbytes == B * S * (R + TURNED) * 8
    assert len(cache) == cache.seen == S


@torch.no_grad()
def test_window_cache_equals_a_window_mask():
    layer, length = module(), 23
    x = torch.randn(B, length, E).double()
    expected = layer(x, mask=window_mask(length, length, 5), is_causal=True)
    cache = KVCache(window=5)
    outputs = [layer(part, is_causal=True, cache=cache) for part in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected)
    assert cache.nbytes == B * 2 * 5 * (R + TURNED) * 8


def test_what_is_kept_is_what_the_cache_holds():
    layer, x = module(), torch.randn(B, S, E).double()
    cache = KVCache(max_len=S)
    layer(x[:, :3], is_causal=True, cache=cache)
    layer(x[:, 3:], is_causal=True, cache=cache)
    kept, none = cache._held()
    assert none.numel() == 0
    torch.testing.assert_close(kept, layer.compress(x))
    torch.testing.assert_close(kept[:, :, 3:], layer.compress(x[:, 3:], start=3))


def real_size(name):
    model = known_model(name)
    sizes = dataclasses.asdict(model.latent)
    return model, LatentAttention(model.embed_dim, model.num_heads, **sizes)


@pytest.mark.parametrize("name", ["deepseek-v2", "deepseek-v3"])
@torch.no_grad()
def test_real_sizes_have_the_parameters_and_the_cache_of_the_table(name):
    with torch.device("meta"):
        model, layer = real_size(name)
        cache, prompt = KVCache(max_len=11), torch.empty(1, 7, model.embed_dim)
        for _ in range(2):
            output = layer(prompt[:, : 11 - cache.seen], is_causal=True, cache=cache)
    assert output.shape == (1, 4, model.embed_dim)
    assert cache.nbytes == 11 * model.cached_per_layer * 4
    matrices = sum(p.numel() for p in layer.parameters() if p.ndim == 2)
    assert model.layers * matrices == model.attention_parameters
    norms = sum(p.numel() for p in layer.parameters() if p.ndim == 1)
    assert norms == model.latent.q_lora_rank + model.latent.kv_lora_rank


@with_and_without_q_lora_rank
def test_parameters_in_closed_form(q_lora_rank):
    closed = E * (R + TURNED) + R + R * H * (D + D_V) + H * D_V * E
    width = H * (D + TURNED)
    closed += E * width if q_lora_rank is None else q_lora_rank * (E + 1 + width)
    assert sum(p.numel() for p in module(q_lora_rank=q_lora_rank).parameters()) == closed


# What it costs


def counted(L, S, sizes, absorb):
    H, D, turned, D_v, R = sizes
    query, kept = torch.empty(1, H, L, D + turned), torch.empty(1, 1, S, R + turned)
    ups = torch.empty(H, D, R), torch.empty(H, D_v, R)
    with FlopCounterMode(display=False) as counter:
        latent_attention(query, kept, *ups, absorb=absorb, return_weights=True)
    return counter.get_total_flops()


ROOMY, NARROW = (H, D, TURNED, D_V, R + 30), (H, D, TURNED, D_V, R)


@pytest.mark.parametrize("sizes", [ROOMY, NARROW], ids=["roomy", "narrow"])
@pytest.mark.parametrize(("L", "S"), [(1, 1), (1, 2), (1, 97), (7, 97), (41, 97), (97, 97)])
def test_flops_are_the_closed_form_and_the_choice_is_the_cheaper(L, S, sizes):
    H, D, turned, D_v, R = sizes
    expanded = 2 * H * (S * R * (D + D_v) + L * S * (D + turned + D_v))
    absorbed = 2 * H * (L * R * (D + D_v) + L * S * (R + turned + R))
    assert counted(L, S, sizes, absorb=False) == expanded
    assert counted(L, S, sizes, absorb=True) == absorbed
    assert counted(L, S, sizes, absorb=None) == min(expanded, absorbed)


def test_a_decode_step_copies_nothing_that_is_kept():
    """The fused path hands the kernel the cache itself, as key and as value."""
    from mhattn.inside import peak_bytes

    with torch.no_grad():
        layer = module(torch.float32)
        cache, x = KVCache(max_len=4096), torch.randn(1, 4095, E)
        layer(x, is_causal=True, cache=cache)
        held = cache._held()[0].nbytes
        token = torch.randn(1, 1, E)
        more = peak_bytes(lambda: layer(token, is_causal=True, cache=cache))
    assert cache.seen == 4096
    assert held == 4095 * (R + TURNED) * 4
    assert more < held / 4


# Precision, compiling, devices


@both_ways
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@torch.no_grad()
def test_lower_precision_is_close_to_float64(dtype, absorb):
    layer, x = module(dtype), torch.randn(B, S, E, dtype=dtype)
    exact = copy.deepcopy(layer).double()(x.double(), is_causal=True)
    for return_weights in (False, True):
        output = layer(x, is_causal=True, absorb=absorb, return_weights=return_weights)
        output = output[0] if return_weights else output
        assert output.dtype == dtype
        error = (output.double() - exact).abs().max() / exact.abs().max()
        assert error < 16 * torch.finfo(dtype).eps  # rounded about six times on the way


@both_ways
@torch.no_grad()
def test_half_precision_through_a_cache(absorb):
    layer, x = module(torch.bfloat16), torch.randn(B, S, E, dtype=torch.bfloat16)
    exact = copy.deepcopy(layer).double()(x.double(), is_causal=True)
    cache = KVCache(max_len=S)
    parts = [layer(part, is_causal=True, cache=cache, absorb=absorb) for part in x.split(1, dim=1)]
    assert cache.nbytes == B * S * (R + TURNED) * 2
    error = (torch.cat(parts, dim=1).double() - exact).abs().max() / exact.abs().max()
    assert error < 16 * torch.finfo(torch.bfloat16).eps


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")
@both_ways
@torch.no_grad()
def test_autocast_on_the_cpu(absorb):
    layer, x = module(torch.float32), torch.randn(B, S, E)
    exact = layer(x, is_causal=True)
    for return_weights in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = layer(x, is_causal=True, absorb=absorb, return_weights=return_weights)
        output = output[0] if return_weights else output
        assert output.dtype == torch.bfloat16
        error = (output - exact).abs().max() / exact.abs().max()
        assert error < 16 * torch.finfo(torch.bfloat16).eps


@both_ways
def test_compiles_as_one_graph(absorb):
    layer, x = module(torch.float32), torch.randn(B, S, E)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    options = {"mask": padding_mask(torch.tensor([7, 2]), S), "is_causal": True, "absorb": absorb}
    torch.testing.assert_close(compiled(x, **options), layer(x, **options))
    output, weights = compiled(x, return_weights=True, **options)
    expected, expected_weights = layer(x, return_weights=True, **options)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)


@pytest.mark.skipif(
    sys.platform == "win32" or not shutil.which("g++"),
    reason="needs a C++ compiler; Windows has another",
)
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.slow
@both_ways
@torch.no_grad()
def test_compiles_to_machine_code(absorb):
    layer, x = module(torch.float32), torch.randn(B, S, E)
    options = {"is_causal": True, "absorb": absorb}
    torch.testing.assert_close(torch.compile(layer)(x, **options), layer(x, **options))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@both_ways
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@torch.no_grad()
def test_cuda_equals_the_cpu(dtype, absorb):
    layer = module(dtype)
    x = torch.randn(B, S, E, dtype=dtype)
    exact = copy.deepcopy(layer).double()(x.double(), is_causal=True)
    layer, cache = layer.cuda(), KVCache(max_len=S)
    outputs = [layer(x.cuda(), is_causal=True, absorb=absorb)]
    parts = x.cuda().split([3, 2, 1, 1], dim=1)
    steps = [layer(part, is_causal=True, cache=cache, absorb=absorb) for part in parts]
    outputs.append(torch.cat(steps, dim=1))
    for output in outputs:
        error = (output.cpu().double() - exact).abs().max() / exact.abs().max()
        assert error < max(16 * torch.finfo(dtype).eps, 1e-10)


# Known layers


def rows_by_halves(weight, turned):
    """From pairs of neighbours, as DeepSeek turns them, to pairs that are half a head apart."""
    rest, pairs = weight[: len(weight) - turned], weight[len(weight) - turned :]
    return torch.cat([rest, pairs[0::2], pairs[1::2]])


def take_over(ours, theirs):
    """Hugging Face's weights, in our names and our order of the turned features."""
    width = ours.qk_nope_head_dim + ours.qk_rope_head_dim
    with torch.no_grad():
        if ours.q_lora_rank is None:
            q_in, q_out = theirs.q_proj.weight, ours.q_proj.weight
        else:
            ours.q_a_proj.weight.copy_(theirs.q_a_proj.weight)
            ours.q_a_layernorm.weight.copy_(theirs.q_a_layernorm.weight)
            q_in, q_out = theirs.q_b_proj.weight, ours.q_b_proj.weight
        by_head = [rows_by_halves(rows, ours.qk_rope_head_dim) for rows in q_in.split(width)]
        q_out.copy_(torch.cat(by_head))
        down = rows_by_halves(theirs.kv_a_proj_with_mqa.weight, ours.qk_rope_head_dim)
        ours.kv_a_proj.weight.copy_(down[: ours.kv_lora_rank])
        ours.k_rope_proj.weight.copy_(down[ours.kv_lora_rank :])
        ours.kv_a_layernorm.weight.copy_(theirs.kv_a_layernorm.weight)
        up = theirs.kv_b_proj.weight.unflatten(0, (ours.num_heads, -1))
        ours.k_b_proj.weight.copy_(up[:, : ours.qk_nope_head_dim].flatten(0, 1))
        ours.v_b_proj.weight.copy_(up[:, ours.qk_nope_head_dim :].flatten(0, 1))
        ours.out_proj.weight.copy_(theirs.o_proj.weight)


ROPE = {"rope_type": "default", "rope_theta": 500.0}
CLOSE = {"atol": 1e-5, "rtol": 1e-5}  # their norms, angles and softmax are in float32
quietly = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def theirs_and_ours(version, q_lora_rank, rope=ROPE):
    """Hugging Face's layer, called with hidden states and a boolean mask; and ours, its weights."""
    pytest.importorskip("transformers")
    if version == "v2":
        from transformers.models.deepseek_v2 import modeling_deepseek_v2 as theirs

        prefix = "DeepseekV2"
    else:
        from transformers.models.deepseek_v3 import modeling_deepseek_v3 as theirs

        prefix = "DeepseekV3"
    config = getattr(theirs, f"{prefix}Config")(
        hidden_size=E,
        num_attention_heads=H,
        num_key_value_heads=H,
        kv_lora_rank=R,
        q_lora_rank=q_lora_rank,
        qk_nope_head_dim=D,
        qk_rope_head_dim=TURNED,
        v_head_dim=D_V,
        head_dim=TURNED,
        attn_implementation="eager",
        rope_parameters=rope,
    )
    layer = getattr(theirs, f"{prefix}Attention")(config, layer_idx=0).double().eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.4)
    ours = module(q_lora_rank=q_lora_rank, base=500.0)
    take_over(ours, layer)
    rotary = getattr(theirs, f"{prefix}RotaryEmbedding")(config)

    def call(x, allowed):
        embedding = rotary(x, torch.arange(x.shape[1]).expand(x.shape[:2]))
        hidden = torch.zeros(allowed.shape).double().masked_fill(~allowed, -math.inf)
        options = {"position_embeddings": embedding, "attention_mask": hidden}
        return layer(hidden_states=x, **options)[:2]

    return call, ours, layer


@quietly
@both_ways
@pytest.mark.parametrize("lengths", [None, [37, 23]], ids=["causal", "padded"])
@pytest.mark.parametrize("version", ["v2", "v3"])
@with_and_without_q_lora_rank
@torch.no_grad()
def test_hugging_face_computes_the_same(version, q_lora_rank, lengths, absorb):
    theirs, ours, _ = theirs_and_ours(version, q_lora_rank)
    x, options = torch.randn(B, 37, E).double(), {"is_causal": True, "absorb": absorb}
    allowed = causal_mask(37)[None, None]
    if lengths:
        options["mask"] = padding_mask(torch.tensor(lengths), 37)
        allowed = allowed & options["mask"]
    expected, expected_weights = theirs(x, allowed)
    output, weights = ours(x, return_weights=True, **options)
    torch.testing.assert_close(output, expected, **CLOSE)
    torch.testing.assert_close(weights, expected_weights, **CLOSE)
    torch.testing.assert_close(ours(x, **options), expected, **CLOSE)  # fused


@quietly
@both_ways
@pytest.mark.parametrize("version", ["v2", "v3"])
@torch.no_grad()
def test_hugging_face_in_one_pass_is_our_decoding(version, absorb):
    theirs, ours, _ = theirs_and_ours(version, Q_RANK)
    x, cache = torch.randn(B, 17, E).double(), KVCache(max_len=17)
    parts = x.split([11, 1, 1, 3, 1], dim=1)
    steps = [ours(part, is_causal=True, cache=cache, absorb=absorb) for part in parts]
    expected, _ = theirs(x, causal_mask(17)[None, None])
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, **CLOSE)


@quietly
def test_hugging_face_scales_by_one_more_square_with_yarn():
    """What the page says of DeepSeek-V3: its factor, 0.1 ln(40) + 1, squared."""
    yarn = {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0}
    *_, layer = theirs_and_ours("v3", None, ROPE | yarn)
    plain = (D + TURNED) ** -0.5
    assert layer.scaling == pytest.approx(plain * (0.1 * math.log(40) + 1) ** 2)
    assert theirs_and_ours("v3", None)[2].scaling == pytest.approx(plain)


@torch.no_grad()
def test_with_a_latent_wide_enough_it_is_multi_head_attention():
    """No norm, no turned part, and the identity in the place of the way down."""
    mha = MultiHeadAttention(E, H, head_dim=D, bias=False).double()
    x = torch.randn(B, S, E).double()
    query = mha.q_proj(x).unflatten(-1, (H, D)).transpose(1, 2)
    ups = [up.weight.unflatten(0, (H, D)) for up in (mha.k_proj, mha.v_proj)]
    for absorb in (False, True):
        heads = latent_attention(query, x[:, None], *ups, is_causal=True, absorb=absorb)
        output = mha.out_proj(heads.transpose(1, 2).flatten(-2))
        torch.testing.assert_close(output, mha(x, is_causal=True))


# The rest


def test_initialisation_is_xavier_on_each_matrix():
    layer = LatentAttention(
        64,
        4,
        kv_lora_rank=32,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=24,
        q_lora_rank=48,
    )
    for linear in layer.modules():
        if isinstance(linear, nn.Linear):
            bound = math.sqrt(6 / sum(linear.weight.shape))
            assert 0.95 * bound < linear.weight.abs().max().item() <= bound
            assert linear.bias is None
        elif isinstance(linear, nn.RMSNorm):
            assert (linear.weight == 1).all()


def test_repr_says_the_sizes():
    text = "num_heads=3, kv_lora_rank=13, qk_nope_head_dim=11, qk_rope_head_dim=4, v_head_dim=17"
    assert f"{text}, q_lora_rank=19" in repr(module())


@pytest.mark.parametrize(
    ("sizes", "error", "text"),
    [
        ({"qk_rope_head_dim": 5}, ValueError, "qk_rope_head_dim must be even, got 5"),
        ({"qk_rope_head_dim": 0}, ValueError, "qk_rope_head_dim must be at least 2, got 0"),
        ({"base": 1.0}, ValueError, "base must be greater than 1, got 1.0"),
        ({"kv_lora_rank": 0}, ValueError, "kv_lora_rank must be at least 1, got 0"),
        ({"qk_nope_head_dim": 2.0}, TypeError, "qk_nope_head_dim must be an integer, got float"),
        ({"v_head_dim": 0}, ValueError, "v_head_dim must be at least 1, got 0"),
        ({"q_lora_rank": 0}, ValueError, "q_lora_rank must be at least 1, got 0"),
    ],
    ids=str,
)
def test_sizes_are_checked(sizes, error, text):
    with pytest.raises(error) as caught:
        LatentAttention(E, H, **(SIZES | sizes))
    assert str(caught.value) == text
    with pytest.raises(ValueError, match=r"^num_heads must be at least 1, got 0$"):
        LatentAttention(E, 0, **SIZES)


WIDE = "query must be at least D=11 wide, as k_b, got (2, 3, 5, 10)"
ROW = "kept must be (B, 1, S, R + D_R) = (2, 1, S, 17), got"
WRONG = [
    (0, (B, H, L), "query must have 4 axes, got shape (2, 3, 5)"),
    (0, (B, H, L, D - 1), WIDE),
    (1, (B, S, R), "kept must have 4 axes, got shape (2, 7, 13)"),
    (1, (B, H, S, R + TURNED), f"{ROW} (2, 3, 7, 17)"),
    (1, (B, 1, S, R), f"{ROW} (2, 1, 7, 13)"),
    (2, (H, D, R, 1), "k_b must have 3 axes, got shape (3, 11, 13, 1)"),
    (2, (H + 1, D, R), "k_b must be (H=3, ..., R=13), got (4, 11, 13)"),
    (3, (H, D_V, R + 1), "v_b must be (H=3, ..., R=13), got (3, 17, 14)"),
]


@pytest.mark.parametrize(("place", "shape", "text"), WRONG, ids=str)
def test_shapes_are_checked(place, shape, text):
    inputs = list(heads())
    inputs[place] = torch.zeros(shape).double()
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        latent_attention(*inputs)
    assert str(caught.value) == text


def test_inputs_are_checked():
    query, kept, *ups = heads()
    with pytest.raises(TypeError, match=r"^query must be a tensor of floats, got torch.int64$"):
        latent_attention(query.long(), kept, *ups)
    with pytest.raises(TypeError, match=r"^kept must be a tensor of floats, got list$"):
        latent_attention(query, [kept], *ups)
    with pytest.raises(TypeError, match=r"^mask must be a tensor of booleans"):
        latent_attention(query, kept, *ups, mask=torch.ones(L, S))
    with pytest.raises(ValueError, match=r"^query must be \(batch, length, embed_dim=87\), got"):
        module()(torch.zeros(B, L, E + 1).double())


def test_a_full_cache_says_so():
    layer, cache = module(), KVCache(max_len=3)
    with pytest.raises(ValueError, match=r"^max_len must be at least 5 for these tokens, got 3$"):
        layer(torch.zeros(B, L, E).double(), is_causal=True, cache=cache)


@both_ways
@pytest.mark.parametrize("return_weights", [False, True])
def test_no_token_sees_what_comes_after_it(absorb, return_weights):
    layer, x = module(), torch.randn(B, L, E).double()

    def run(x):
        result = layer(x, is_causal=True, absorb=absorb, return_weights=return_weights)
        return result[0] if return_weights else result

    before = run(x)
    for j in range(L):
        other = x.clone()
        other[:, j] += 1
        changed = (run(other) != before).any(-1).all(0)
        assert changed.tolist() == [i >= j for i in range(L)]


def test_the_written_out_kernel_is_the_same():
    inputs = heads()
    expected = latent_attention(*inputs, is_causal=True, absorb=True)
    with sdpa_kernel(SDPBackend.MATH):
        torch.testing.assert_close(latent_attention(*inputs, is_causal=True, absorb=True), expected)

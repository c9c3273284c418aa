"""`measure_flops` against counts by hand: all that attends in the package, and torch's own."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from mhattn import Alibi, KVCache, MultiHeadAttention, Rotary, attention
from mhattn.core import attend_in_groups, attention_gradients, fused_attention
from mhattn.costs import attention_cost, latent_multiplications, latent_parameters
from mhattn.inside import measure_flops
from mhattn.inside.timing import FORMULAS, MULTIPLIES
from mhattn.models import EncoderBlock, LanguageModel, LanguageModelBlock
from mhattn.variants import (
    LatentAttention,
    LearnedBias,
    RelativePosition,
    linear_attention,
    local_attention,
    recurrent_linear_attention,
    strided_attention,
    tiled_attention,
)

B, L, S, E, H, H_KV, D, D_V = 2, 11, 13, 30, 6, 3, 5, 7
SDPA = F.scaled_dot_product_attention
every_device = pytest.mark.parametrize(
    "device",
    [
        "cpu",
        "meta",
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
        ),
    ],
)
WRITTEN = ("meta", "cuda")  # the formula is: no kernel there takes heads of five numbers


def drawn(*shape, device="cpu", **options):
    return torch.randn(*shape, device=device, requires_grad=True, **options)


def trained(module, *inputs, **options):
    """Forward, and backward down to the parameters and the inputs."""
    output = module(*inputs, **options)
    output = output[0] if isinstance(output, tuple) else output
    wanted = [x for x in (*inputs, *module.parameters()) if x.requires_grad]
    torch.autograd.grad(output, wanted, torch.randn_like(output))


def projections(length=L, key_len=S, kv_heads=H, width=D):
    """FLOPs of the four, by hand."""
    return 2 * B * E * width * (2 * length * H + 2 * key_len * kv_heads)


def both(length=L, key_len=S, width=2 * D):
    """Of scores and mix: the widths of the two added up."""
    return 2 * B * H * length * key_len * width


# The operators


def test_a_product_by_hand():
    x, y = torch.randn(2, 3), torch.randn(3, 5)
    assert measure_flops(torch.matmul, x, y) == (2 * 2 * 3 * 5, {"mm": 60})


@pytest.mark.parametrize(
    ("function", "flops"),
    [
        (lambda a, b: a @ b.mT, 2 * 2 * 5 * 5 * 5),
        (lambda a, b: a[0] @ b[0, 0], 2 * 5 * 5),
        (lambda a, b: a[0, 0] @ b[0, 0], 2 * 5),
        (lambda a, b: torch.vdot(a[0, 0], b[0, 0]), 2 * 5),
        (lambda a, b: torch.addmv(a[0, :, 0], a[0], b[0, 0]), 2 * 5 * 5),
        (lambda a, b: torch.addbmm(torch.zeros(5, 5), a, b.mT), 2 * 2 * 5 * 5 * 5),
        (lambda a, b: torch.baddbmm(torch.zeros(2, 5, 5), a, b.mT), 2 * 2 * 5 * 5 * 5),
        (lambda a, b: torch.zeros(2, 5, 5).baddbmm_(a, b.mT), 2 * 2 * 5 * 5 * 5),
        (lambda a, b: torch.zeros(5, 5).addbmm_(a, b.mT), 2 * 2 * 5 * 5 * 5),
        (lambda a, b: torch.zeros(5, 5).addmm_(a[0], b[0].T), 2 * 5 * 5 * 5),
        (lambda a, b: torch.zeros(5).addmv_(a[0], b[0, 0]), 2 * 5 * 5),
        (lambda a, b: torch.zeros(2, 5, 5) + a * b, 0),
        (lambda a, b: torch.einsum("bij,bkj->bik", a, b), 2 * 2 * 5 * 5 * 5),
        (lambda a, b: F.linear(a, b[0], b[0, 0]), 2 * 2 * 5 * 5 * 5),
        (lambda a, b: torch.ops.aten._addmm_activation(b[0, 0], a[0], b[0]), 2 * 5 * 5 * 5),
    ],
)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_products(function, flops, mode):
    with mode():
        a, b = torch.randn(2, 2, 5, 5)
        assert measure_flops(function, a, b).total == flops


@pytest.mark.parametrize("shape", [(7, 5), (3, 7, 5)])
def test_a_complex_product_is_four_real_ones(shape):
    """Each (a + bi)(c + di) takes four multiplications; adding the parts is in their additions."""
    x = torch.randn(*shape, dtype=torch.complex64, requires_grad=True)
    rows = math.prod(shape[:-1])
    assert measure_flops(lambda: x @ x.mT).total == 4 * 2 * rows * 5 * 7
    assert measure_flops(lambda: (x @ x.mT).abs().sum().backward()).total == 3 * 4 * 70 * rows


def test_products_of_groups_forwards_and_backwards():
    """Rows 0 to 2, 3 to 6 and 7 to 10 have a matrix each; then one matrix of each pair of rows."""
    x = drawn(11, 16, dtype=torch.bfloat16)
    experts = drawn(3, 16, 8, dtype=torch.bfloat16)
    ends = torch.tensor([3, 7, 11], dtype=torch.int32)

    def forward():
        return torch._grouped_mm(x, experts, offs=ends)

    once = 2 * 11 * 16 * 8
    assert measure_flops(forward) == (once, {"_grouped_mm": once})
    assert measure_flops(lambda: forward().float().sum().backward()).total == 3 * once
    meta = {"dtype": torch.bfloat16, "device": "meta"}
    several, wide = torch.empty(3, 5, 16, **meta), torch.empty(16, 24, **meta)
    ends = torch.tensor([8, 16, 24], dtype=torch.int32, device="meta")
    flops = measure_flops(lambda: torch._grouped_mm(several, wide, offs=ends)).total
    assert flops == 2 * 5 * 16 * 24, "8 columns of each of the three"


def test_a_mixture_of_experts():
    """Two of five experts for each token, three matrices each; the router scores all five."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen3MoeConfig(
        vocab_size=97,
        hidden_size=32,
        moe_intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=5,
        num_experts_per_tok=2,
    )
    model = transformers.Qwen3MoeForCausalLM(config).eval()
    tokens = torch.randint(97, (2, 7))
    projected = 2 * 14 * 32 * (32 + 16 + 16 + 32)
    scored_and_mixed = 2 * 2 * 4 * 7 * 7 * (8 + 8)
    sent, read = 2 * 14 * 32 * 5, 2 * 14 * 2 * 3 * 32 * 24
    with torch.no_grad():
        flops = measure_flops(model, tokens).total
    assert flops == 2 * (projected + scored_and_mixed + sent + read) + 2 * 14 * 32 * 97


def test_what_is_no_product_costs_nothing():
    x = torch.randn(5, 7)
    calls = [
        x.softmax,
        x.norm,
        lambda _: F.layer_norm(x, (7,)),
        lambda _: F.interpolate(x[None], 3),
    ]
    assert [measure_flops(call, -1) for call in calls] == [(0, {})] * 4


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_convolutions(kind, groups):
    convolution = kind(6, 4, 3, groups=groups)
    x = drawn(2, 6, 11)
    products = 11 if kind is nn.ConvTranspose1d else 9  # places, each with the whole kernel
    forward = 2 * 2 * products * 6 * (4 // groups) * 3
    assert measure_flops(convolution, x).total == forward
    assert measure_flops(trained, convolution, x).total == 3 * forward
    assert measure_flops(trained, convolution, x.detach()).total == 2 * forward


# Kernels of attention


def heads(*lengths, kv_heads=H, value_dim=D, **options):
    length, key_len = lengths
    return (
        drawn(B, H, length, D, **options),
        drawn(B, kv_heads, key_len, D, **options),
        drawn(B, kv_heads, key_len, value_dim, **options),
    )


def and_back(function, *inputs):
    output = function(*inputs)
    torch.autograd.grad(output, inputs, torch.randn_like(output))


KERNELS = {  # function, kv_heads, width of a value: FLOPs forward, and of each of both products
    "sdpa": (SDPA, H, D),
    "sdpa, causal": (partial(SDPA, is_causal=True), H, D),
    "sdpa, grouped": (partial(SDPA, enable_gqa=True), H_KV, D),
    "sdpa, one kv head": (partial(SDPA, enable_gqa=True), 1, D),
    "attention": (attention, H, D),
    "attention, causal": (partial(attention, is_causal=True), H, D),
    "attention, grouped": (attention, H_KV, D),
    "attend_in_groups": (attend_in_groups, H_KV, D),
    "fused_attention": (fused_attention, H, D),
}


@every_device
@pytest.mark.parametrize("name", KERNELS)
def test_fused_kernels(name, device):
    function, kv_heads, value_dim = KERNELS[name]
    inputs = heads(L, S, kv_heads=kv_heads, value_dim=value_dim, device=device)
    assert measure_flops(function, *inputs).total == both()
    backward = 2 if device in WRITTEN else 2.5  # scores are computed again
    assert measure_flops(and_back, function, *inputs).total == both() * (1 + backward)


def test_a_fused_kernel_is_counted_by_its_name():
    found = measure_flops(and_back, SDPA, *heads(L, S))
    name = "_scaled_dot_product_flash_attention_for_cpu"
    assert found.by_operator == {name: both(), f"{name}_backward": 2.5 * both()}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_fused_kernels_of_a_gpu(dtype):
    query, key, value = (drawn(B, H, n, 16, device="cuda", dtype=dtype) for n in (L, S, S))
    found = measure_flops(and_back, SDPA, query, key, value)
    assert found.total == 3.5 * both(width=32)
    assert all("attention" in name for name in found.by_operator)


def test_values_of_another_width():
    """Torch's function writes the formula out; the package's pads values, and pays for it."""
    inputs = heads(L, S, value_dim=D_V)
    assert measure_flops(SDPA, *inputs).total == both(width=D + D_V)
    assert measure_flops(and_back, SDPA, *inputs).total == 3 * both(width=D + D_V)
    assert measure_flops(fused_attention, *inputs).total == both(width=2 * D_V)
    assert measure_flops(and_back, fused_attention, *inputs).total == 3.5 * both(width=2 * D_V)


@pytest.mark.parametrize("kind", ["flash_attention", "efficient_attention", "cudnn_attention"])
def test_kernels_of_gpus_by_their_formulas(kind):
    """Widths differ, heads are grouped; no GPU is needed to multiply five numbers."""
    name = f"_scaled_dot_product_{kind}"
    forward, backward = (FORMULAS[getattr(torch.ops.aten, name + end)] for end in ("", "_backward"))
    query, key, value = heads(L, S, kv_heads=H_KV, value_dim=D_V)
    assert forward(query, key, value, out_val=None) == both(width=D + D_V)
    found = backward(torch.randn(B, H, L, D_V), query, key, value, out_val=None)
    assert found == both(width=D + D_V + D_V + D + D)


@pytest.mark.parametrize("kind", ["flash_attention", "cudnn_attention"])
def test_kernels_of_gpus_give_sizes_beside_tensors(kind):
    inputs = [x.detach() for x in heads(L, S, device="meta")]
    more = {"attn_bias": None, "compute_log_sumexp": True} if kind == "cudnn_attention" else {}
    kernel = partial(getattr(torch.ops.aten, f"_scaled_dot_product_{kind}"), *inputs, **more)
    assert any(isinstance(x, int) for x in kernel())
    assert measure_flops(kernel).total == both()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_eager_and_compiled():
    inputs = [x.detach() for x in heads(L, S)]
    assert measure_flops(flex_attention, *inputs) == (both(), {"flex_attention": both()})
    compiled = torch.compile(flex_attention, backend="eager")
    assert measure_flops(compiled, *inputs).total == both()
    torch.testing.assert_close(compiled(*inputs), SDPA(*inputs))  # afterwards it still compiles
    backward = FORMULAS[torch.ops.higher_order.flex_attention_backward]
    grad_output, numbers = torch.randn(B, H, L, D), torch.randn(B, H, L)
    query, key, value = inputs
    found = backward(query, key, value, grad_output, numbers, grad_output, out_val=None)
    assert found == 2.5 * both()


def test_written_out():
    with sdpa_kernel(SDPBackend.MATH):
        assert measure_flops(SDPA, *heads(L, S)).total == both()
        assert measure_flops(and_back, SDPA, *heads(L, S)).total == 3 * both()
    weights = partial(attention, return_weights=True)
    assert measure_flops(weights, *heads(L, S)).total == both()


def test_tiles():
    tiled = partial(tiled_attention, block_size=4)
    assert measure_flops(tiled, *heads(L, S)).total == both()
    assert measure_flops(and_back, tiled, *heads(L, S)).total == 3 * both()
    causal = partial(tiled, is_causal=True)
    seen = 4 * 6 + 4 * 10 + 3 * 13  # queries of a block, keys up to the last one's own
    assert measure_flops(causal, *heads(L, S)).total == both(1, seen)


def test_windows_and_strides():
    """Queries 0 to 2 are a block and see 3 keys, the others another one and see 11."""
    near = 3 * 3 + 8 * 11
    local = partial(local_attention, window=4, is_causal=True)
    assert measure_flops(local, *heads(L, L)).total == both(1, near)
    strided = partial(strided_attention, window=4, stride=3)
    rows, columns = 3, 3  # of 3 positions each: the queries from 3 on, and keys with a first row
    far = 3 * rows * columns
    assert measure_flops(strided, *heads(L, L)).total == both(1, near) + both(1, far, width=2 * 8)


def test_linear_attention():
    kv, table = D * (D + 1), L * L * (2 * D + 1)  # the last column is the denominator
    head = 2 * B * H
    assert measure_flops(linear_attention, *heads(L, S)).total == head * (L + S) * kv
    assert measure_flops(and_back, linear_attention, *heads(L, S)).total == 3 * head * (L + S) * kv
    causal = partial(linear_attention, is_causal=True)
    forward = head * (2 * L * kv + table)
    assert measure_flops(causal, *heads(L, L)).total == forward
    unneeded = head * 3 * L * kv  # the first state has no gradient, nobody needs the last one
    assert measure_flops(and_back, causal, *heads(L, L)).total == 3 * forward - unneeded
    recurrent = recurrent_linear_attention
    assert measure_flops(recurrent, *heads(L, L)).total == head * 2 * L * kv


def test_gradients_by_formula():
    """The scores, and a product for each of four gradients."""
    inputs = [x.detach() for x in heads(L, S)]
    found = measure_flops(attention_gradients, *inputs, torch.randn(B, H, L, D))
    assert found.total == 2.5 * both()


# Layers


@every_device
@pytest.mark.parametrize("kv_heads", [H, H_KV, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_the_layer_against_its_cost(device, kv_heads, bias):
    layer = MultiHeadAttention(E, H, num_kv_heads=kv_heads, bias=bias, device=device)
    x, y = drawn(B, L, E, device=device), drawn(B, S, E, device=device)
    sizes = {"query_len": L, "key_len": S, "num_kv_heads": kv_heads, "bias": bias, "batch": B}
    cost = attention_cost(E, H, **sizes)
    parts = cost["scores"].flops + cost["mix"].flops
    assert cost.flops == projections(kv_heads=kv_heads) + both()
    assert measure_flops(layer, x, y).total == cost.flops
    written = partial(layer, return_weights=True)
    assert measure_flops(written, x, y).total == cost.flops
    again = 0 if device in WRITTEN else parts / 2
    assert measure_flops(trained, layer, x, y).total == 3 * cost.flops + again
    assert measure_flops(partial(trained, layer, return_weights=True), x, y).total == 3 * cost.flops


def test_positions():
    for position in (Rotary(D + 1), None):
        layer = MultiHeadAttention(E, H, head_dim=D + 1, position=position)
        expected = projections(width=D + 1) + both(width=2 * (D + 1))
        assert measure_flops(layer, torch.randn(B, L, E), torch.randn(B, S, E)).total == expected
    for position in (Alibi(H), LearnedBias(H, 16)):
        layer = MultiHeadAttention(E, H, position=position)
        expected = projections(L, L) + both(L, L)
        assert measure_flops(layer, drawn(B, L, E)).total == expected


def test_relative_vectors_are_computed_again():
    """A product with the vectors beside each of both; in training each block once more."""
    layer = MultiHeadAttention(E, H, position=RelativePosition(D, 4))
    rows = layer.position.key_vectors.shape[0]
    block = both(L, L) + both(L, rows)
    x = drawn(B, L, E)
    assert measure_flops(layer, x).total == projections(L, L) + block
    with set_checkpoint_early_stop(False):
        found = measure_flops(trained, layer, x).total
    assert found == 3 * projections(L, L) + 4 * block


@pytest.mark.parametrize("q_lora_rank", [None, 9])
def test_latent_attention(q_lora_rank):
    """A head's value is as wide as its key here: else zeros are multiplied as well."""
    sizes = {"kv_lora_rank": 8, "qk_nope_head_dim": 5, "qk_rope_head_dim": 2, "v_head_dim": 7}
    layer = LatentAttention(E, H, q_lora_rank=q_lora_rank, **sizes)
    parameters = latent_parameters(E, H, q_lora_rank=q_lora_rank, **sizes)
    expanded = H * 8 * (5 + 7)  # these matrices are in latent_multiplications, too
    products = H * latent_multiplications(L, L, absorb=False, **sizes)
    expected = 2 * B * (L * (parameters - expanded) + products)
    x = drawn(B, L, E)
    assert measure_flops(layer, x).total == expected


@every_device
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("key_len", [L, S])
def test_the_layer_of_torch(device, need_weights, key_len):
    layer = nn.MultiheadAttention(E, H, batch_first=True, device=device)
    x = drawn(B, L, E, device=device)
    y = x if key_len == L else drawn(B, S, E, device=device)
    expected = projections(key_len=key_len) + both(key_len=key_len)
    call = partial(layer, x, y, y, need_weights=need_weights)
    assert measure_flops(call).total == expected
    with torch.no_grad():
        found = measure_flops(partial(layer.eval(), x, y, y, need_weights=need_weights))
    assert found.total == expected
    if device == "cpu" and key_len == L:
        assert found.by_operator == {"_native_multi_head_attention": expected}


@every_device
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_block_of_torch(device, norm_first):
    sizes = {"dim_feedforward": 17, "norm_first": norm_first, "device": device}
    block = nn.TransformerEncoderLayer(E, H, batch_first=True, dropout=0, **sizes)
    x = drawn(B, L, E, device=device)
    expected = projections(key_len=L) + both(key_len=L) + 2 * B * L * 2 * E * 17
    again = 0 if device in WRITTEN else both(key_len=L) / 2
    assert measure_flops(block, x).total == expected
    assert measure_flops(trained, block, x).total == 3 * expected + again
    with torch.no_grad():
        found = measure_flops(block.eval(), x)
    assert found.total == expected
    if device == "cpu":
        assert found.by_operator == {"_transformer_encoder_layer_fwd": expected}
    encoder = nn.TransformerEncoder(block, 3, enable_nested_tensor=False)
    hidden = torch.zeros(B, L, dtype=torch.bool, device=device)
    hidden[0, -2:] = True
    with torch.no_grad():
        found = measure_flops(partial(encoder.eval(), src_key_padding_mask=hidden), x)
    assert found.total == 3 * expected


def test_blocks_and_models_of_the_package():
    attended = projections(key_len=L) + both(key_len=L)
    block = EncoderBlock(E, H, 17, 1e-5)
    assert measure_flops(block, drawn(B, L, E)).total == attended + 2 * B * L * 2 * E * 17
    attended = projections(L, L, H_KV, 6) + both(L, L, 12)
    sizes = {"num_heads": H, "num_kv_heads": H_KV, "mlp_dim": 17, "base": 100.0, "eps": 1e-5}
    wide = 6 * H
    scale = wide / E
    block = LanguageModelBlock(wide, **sizes)
    expected = scale * projections(L, L, H_KV, 6) + both(L, L, 12) + 2 * B * L * 3 * wide * 17
    assert measure_flops(block, drawn(B, L, wide)).total == expected
    model = LanguageModel(19, 2, embed_dim=wide, **sizes)
    tokens = torch.randint(19, (B, L))
    assert measure_flops(model, tokens).total == 2 * expected + 2 * B * L * wide * 19


def test_a_step_with_a_cache():
    layer, cache = MultiHeadAttention(E, H), KVCache(max_len=20)
    step = partial(layer, is_causal=True, cache=cache)
    with torch.no_grad():
        step(torch.randn(B, L, E))
        found = measure_flops(step, torch.randn(B, 1, E))
    assert found.total == projections(1, 1) + both(1, L + 1)


class Again(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=False)


def test_checkpointing_is_a_second_forward_pass():
    layer, x = MultiHeadAttention(E, H), drawn(B, L, E)
    whole = projections(key_len=L) + both(key_len=L)

    def again(x):
        trained(Again(layer), x)

    with set_checkpoint_early_stop(False):
        assert measure_flops(again, x).total == 4 * whole + both(key_len=L) / 2
    output = 2 * B * L * E * E  # nothing is kept of the last product, so it isn't computed again
    assert measure_flops(again, x).total == 4 * whole + both(key_len=L) / 2 - output


# What it does not do


def test_it_agrees_with_torch_where_torch_counts():
    layer, x = MultiHeadAttention(E, H), drawn(B, L, E)

    def train():
        output, _ = layer(x, return_weights=True)
        output.sum().backward()

    with FlopCounterMode(display=False) as counter:
        train()
    assert measure_flops(train).total == counter.get_total_flops() > 0


def test_nothing_is_registered_for_others():
    def count():
        with FlopCounterMode(display=False) as counter:
            SDPA(*heads(L, S))
        return counter.get_total_flops()

    before = count()
    measure_flops(SDPA, *heads(L, S))
    assert count() == before


def test_compiled_functions_are_counted_as_written():
    compiled = torch.compile(lambda x, y: (x @ y).relu() @ y, backend="eager")
    x = torch.randn(5, 5)
    assert measure_flops(compiled, x, x).total == 2 * 2 * 5 * 5 * 5


def test_big_models_are_counted_without_being_computed():
    layer = MultiHeadAttention(4096, 32, num_kv_heads=8, device="meta")
    n = 2**17
    cost = attention_cost(4096, 32, num_kv_heads=8, query_len=n)
    assert measure_flops(layer, torch.empty(1, n, 4096, device="meta")).total == cost.flops


def test_the_result_is_that_of_one_call_and_errors_pass():
    calls = []
    measure_flops(calls.append, 7)
    assert calls == [7]
    with pytest.raises(ZeroDivisionError):
        measure_flops(lambda: 1 / 0)


@pytest.mark.parametrize("fn", [7, None, torch.randn(3, 3)])
def test_what_cannot_be_called(fn):
    with pytest.raises(TypeError, match=r"fn must be a function, got (int|NoneType|Tensor)"):
        measure_flops(fn)


UNKNOWN = {
    "mkldnn_rnn_layer": lambda x: nn.LSTM(16, 8, batch_first=True)(x),
    "_trilinear": lambda x: F.bilinear(x, x, torch.randn(3, 16, 16)),
    "_cdist_forward": lambda x: torch.cdist(x, x),
    "_linalg_svd": torch.linalg.svd,
    "_int_mm": lambda x: torch._int_mm(*torch.ones(2, 32, 32, dtype=torch.int8)),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_product_is_an_error_not_a_zero(name):
    with torch.no_grad(), pytest.raises(ValueError, match=f"with a formula, got aten.{name}"):
        measure_flops(UNKNOWN[name], torch.randn(2, 7, 16))


def test_the_error_names_the_module():
    inner = nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 3))
    model = nn.ModuleDict({"body": inner, "head": nn.Linear(3, 2)})
    model.forward = lambda x: model["head"](model["body"](x)[0])
    x = torch.randn(2, 5, 4)
    with torch.no_grad(), pytest.raises(ValueError, match=r"mkldnn_rnn_layer in body\.1$"):
        measure_flops(model, x)
    with torch.no_grad(), pytest.raises(ValueError, match=r"mkldnn_rnn_layer in LSTM$"):
        measure_flops(inner[1], x)
    with pytest.raises(ZeroDivisionError):  # and nothing is left of what watched
        measure_flops(lambda x: (model["head"](x[..., :3]), 1 / 0), x)
    assert not nn.modules.module._global_forward_hooks
    assert not nn.modules.module._global_forward_pre_hooks


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_that_are_not_dense():
    x, y = torch.randn(3, 5), torch.randn(5, 5)
    with pytest.raises(ValueError, match=r"dense tensors, got torch.sparse_coo in aten.mm"):
        measure_flops(lambda: x.to_sparse() @ y)
    for layout in (torch.jagged, torch.strided):
        nested = torch.nested.nested_tensor([x, y], layout=layout)
        with pytest.raises(ValueError, match=r"got nested in aten\.linear"):
            measure_flops(F.linear, nested, y)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 8, batch_first=True), 1)
    hidden = torch.tensor([[False, False], [False, True]])
    with torch.no_grad(), pytest.raises(ValueError, match="dense tensors, got nested in"):
        measure_flops(partial(encoder.eval(), src_key_padding_mask=hidden), torch.randn(2, 2, 16))


@pytest.mark.parametrize(
    ("name", "multiplies"),
    [
        ("aten.mm", True),
        ("aten._scaled_mm_v2", True),
        ("aten._scaled_dot_product_attention_math_for_mps", True),
        ("aten._cudnn_rnn_backward", True),
        ("aten._weight_int4pack_mm", True),
        ("flash_attn._flash_attn_forward", True),
        ("mkldnn._linear_pointwise", True),
        ("aten.addmm_", True),
        ("aten._linalg_eigh", True),
        ("aten._softmax", False),
        ("aten.linalg_vector_norm", False),
        ("aten.upsample_linear1d", False),
        ("aten._thnn_fused_lstm_cell", False),  # its products are others', done before
        ("aten._conj", False),
        ("aten._fused_sdp_choice", False),
    ],
)
def test_names_of_products(name, multiplies):
    assert (MULTIPLIES.search(name) is not None) == multiplies


def test_half_precision_and_empty_tensors():
    inputs = [x.to(torch.bfloat16) for x in heads(L, S)]
    assert measure_flops(attention, *inputs).total == both()
    assert measure_flops(torch.matmul, torch.zeros(0, 3), torch.zeros(3, 5)) == (0, {})
    assert math.isclose(measure_flops(attention, *heads(1, S)).total, both(1))

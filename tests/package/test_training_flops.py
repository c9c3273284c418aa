"""`measure_flops` on training steps: equal to a count by hand for all that trains in the package.

A product of matrices has two gradients, each a product of the same sizes: written out, training is
3 times forward. A fused kernel computes the scores again, one product of five backwards: 3.5 times
the kernel's forward count. Where a step is neither, the test says which products are missing.
"""

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

from mhattn import Alibi, MultiHeadAttention, Rotary, attention
from mhattn.core import attend_in_groups, fused_attention
from mhattn.costs import latent_parameters
from mhattn.inside import measure_flops
from mhattn.models import EncoderBlock, LanguageModel
from mhattn.variants import (
    LatentAttention,
    LearnedBias,
    RelativePosition,
    latent_attention_absorbed,
    latent_attention_expanded,
    linear_attention,
    local_attention,
    recurrent_linear_attention,
    relative_attention,
    strided_attention,
    tiled_attention,
)

B, L, S, E, H, H_KV, D, D_V = 2, 11, 13, 30, 6, 3, 5, 7
HEAD = 2 * B * H  # FLOPs of one multiplication in every head
NEAR = 3 * 3 + 8 * 11  # scores of a causal window of 4 keys: queries 0 to 2, then a block
TILED = 4 * 6 + 4 * 10 + 3 * 13  # causal tiles of 4 queries: keys up to the last one's own
FAR = 3 * 3 * 3  # with a stride of 3: three columns of three rows of queries and keys
LATENT = {"kv_lora_rank": 8, "qk_nope_head_dim": 5, "qk_rope_head_dim": 2, "v_head_dim": 7}


def drawn(*shape):
    return torch.randn(*shape, requires_grad=True)


def trained(call, *inputs, parameters=()):
    """Forward, and backward down to the inputs and the parameters."""
    output = call(*inputs)
    output = output[0] if isinstance(output, tuple) else output
    wanted = [x for x in (*inputs, *parameters) if x.requires_grad]
    torch.autograd.grad(output, wanted, torch.randn_like(output))


def flops(call, *inputs):
    """Of a forward pass and of a training step."""
    parameters = tuple(call.parameters()) if isinstance(call, nn.Module) else ()
    step = partial(trained, call, parameters=parameters)
    return measure_flops(call, *inputs).total, measure_flops(step, *inputs).total


def both(pairs, width=2 * D):
    """Scores and mix: the widths of the two added up."""
    return HEAD * pairs * width


KV = D * (D + 1)  # a state of linear attention: the last column is the denominator
CHUNK = L * L * (2 * D + 1)  # its table within a chunk, multiplied twice
CAUSAL = HEAD * (2 * L * KV + CHUNK)

KERNELS = {  # function, key-value heads, keys: FLOPs forward, and of a training step
    "attention": (attention, H, S, both(L * S), 3.5 * both(L * S)),
    "attention, grouped": (attention, H_KV, S, both(L * S), 3.5 * both(L * S)),
    "attention, one kv head": (attention, 1, S, both(L * S), 3.5 * both(L * S)),
    "attention, causal": (partial(attention, is_causal=True), H, S, both(L * S), 3.5 * both(L * S)),
    "attention, weights": (
        partial(attention, return_weights=True), H_KV, S, both(L * S), 3 * both(L * S),
    ),
    "attend_in_groups": (attend_in_groups, H_KV, S, both(L * S), 3.5 * both(L * S)),
    "fused_attention": (fused_attention, H_KV, S, both(L * S), 3.5 * both(L * S)),
    "tiled": (
        partial(tiled_attention, block_size=4), H_KV, S, both(L * S), 3 * both(L * S),
    ),
    "tiled, causal": (
        partial(tiled_attention, block_size=4, is_causal=True),
        H_KV, S, both(TILED), 3 * both(TILED),
    ),
    "local": (
        partial(local_attention, window=4, is_causal=True), H, L, both(NEAR), 3.5 * both(NEAR),
    ),
    "local, grouped": (
        partial(local_attention, window=4, is_causal=True), H_KV, L, both(NEAR), 3.5 * both(NEAR),
    ),
    "strided": (  # the window is written out, the stride is fused, in widths divisible by 8
        partial(strided_attention, window=4, stride=3),
        H, L, both(NEAR) + both(FAR, 16), 3 * both(NEAR) + 3.5 * both(FAR, 16),
    ),
    "strided, grouped": (
        partial(strided_attention, window=4, stride=3),
        H_KV, L, both(NEAR) + both(FAR, 16), 3 * both(NEAR) + 3.5 * both(FAR, 16),
    ),
    "linear": (linear_attention, H, S, HEAD * (L + S) * KV, 3 * HEAD * (L + S) * KV),
    "linear, grouped": (  # a state for each query head: keys are repeated before
        linear_attention, H_KV, S, HEAD * (L + S) * KV, 3 * HEAD * (L + S) * KV,
    ),
    "linear, recurrent": (
        recurrent_linear_attention, H, L, HEAD * 2 * L * KV, 3 * HEAD * 2 * L * KV,
    ),
    # one chunk: the state before it is zero, so queries get no gradient by it; nothing reads the
    # state behind it, so keys and values get none. Of 4 such products, and 2 forwards, 3 are saved:
    # the zero state itself has no gradient either.
    "linear, causal": (
        partial(linear_attention, is_causal=True), H, L, CAUSAL, 3 * CAUSAL - HEAD * 3 * L * KV,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name):
    function, kv_heads, keys, forward, training = KERNELS[name]
    inputs = drawn(B, H, L, D), drawn(B, kv_heads, keys, D), drawn(B, kv_heads, keys, D)
    assert flops(function, *inputs) == (forward, training)


@pytest.mark.parametrize("chunks", [2, 3])
def test_chunks_of_linear_attention(chunks):
    """Only the first state has no gradient, and only the last one is not read."""
    length = 4 * chunks
    inputs = [drawn(B, H, length, D) for _ in range(3)]
    forward = HEAD * (2 * length * KV + chunks * 4 * 4 * (2 * D + 1))
    found = flops(partial(linear_attention, is_causal=True, chunk_size=4), *inputs)
    assert found == (forward, 3 * forward - HEAD * 3 * 4 * KV)


def test_relative_attention():
    """Written out: a product with the vectors beside each of both."""
    rows, weights = 2 * 4 + 1, both(L * S)
    heads = drawn(B, H, L, D), drawn(B, H, S, D), drawn(B, H, S, D)
    forward = weights + both(L * rows)
    vectors = drawn(rows, D), drawn(rows, D)
    assert flops(relative_attention, *heads, *vectors) == (forward, 3 * forward)


@pytest.mark.parametrize("absorb", [False, True])
def test_latent_attention_by_both_orders(absorb):
    """Three matrices and scores and mix; the kernel of the absorbed order mixes the whole row."""
    query, kept = drawn(B, H, L, 5 + 2), drawn(B, 1, S, 8 + 2)
    up = HEAD * 8 * (5 + 7) * (L if absorb else S)
    kernel = both(L * S, 2 * (8 + 2) if absorb else 2 * 7)
    function = latent_attention_absorbed if absorb else latent_attention_expanded
    found = flops(function, query, kept, drawn(H, 5, 8), drawn(H, 7, 8))
    assert found == (up + kernel, 3 * up + 3.5 * kernel)


# Layers


def projections(kv_heads=H, width=D, length=L, embed_dim=E):
    return 2 * B * embed_dim * width * length * 2 * (H + kv_heads)


class Causal(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, is_causal=True)


def check_layer(layer, linear, written_out=0, fused=0, embed_dim=E):
    x = drawn(B, L, embed_dim)
    forward = linear + written_out + fused
    assert flops(layer, x) == (forward, 3 * (linear + written_out) + 3.5 * fused)


@pytest.mark.parametrize("kv_heads", [H, H_KV, 1])
def test_layers_of_every_kind(kv_heads):
    layer = partial(MultiHeadAttention, E, H, num_kv_heads=kv_heads)
    linear = projections(kv_heads)
    check_layer(layer(), linear, fused=both(L * L))
    tiled = partial(tiled_attention, block_size=4)
    check_layer(layer(attend=tiled), linear, written_out=both(L * L))
    near = partial(local_attention, window=4, is_causal=True)
    check_layer(Causal(layer(attend=near)), linear, fused=both(NEAR))
    far = partial(strided_attention, window=4, stride=3)
    far = Causal(layer(attend=far))
    check_layer(far, linear, written_out=both(NEAR), fused=both(FAR, 16))
    states = HEAD * 2 * L * KV
    check_layer(layer(attend=linear_attention), linear, written_out=states)


def test_positions():
    """What is added to scores has a gradient without products; what turns them has none at all."""
    for position in (Alibi(H), LearnedBias(H, 16)):
        check_layer(MultiHeadAttention(E, H, position=position), projections(), fused=both(L * L))
    turned = MultiHeadAttention(E, H, head_dim=6, position=Rotary(6))
    check_layer(turned, projections(width=6), fused=both(L * L, 12))


def test_relative_positions_compute_their_blocks_again():
    layer = MultiHeadAttention(E, H, position=RelativePosition(D, 4))
    block = both(L * L) + both(L * (2 * 4 + 1))
    with set_checkpoint_early_stop(False):
        found = flops(layer, drawn(B, L, E))
    assert found == (projections() + block, 3 * projections() + 4 * block)


@pytest.mark.parametrize("q_lora_rank", [None, 9])
def test_the_latent_layer(q_lora_rank):
    """Every matrix meets every token once: the same as for a linear layer of that size."""
    layer = LatentAttention(E, H, q_lora_rank=q_lora_rank, **LATENT)
    parameters = latent_parameters(E, H, q_lora_rank=q_lora_rank, **LATENT)
    check_layer(layer, 2 * B * L * parameters, fused=both(L * L, 2 * 7))


def test_blocks_and_models():
    """The encoder returns its weights, so its core is written out."""
    mlp = 2 * B * L * 2 * E * 17
    check_layer(EncoderBlock(E, H, 17, 1e-5), projections() + mlp, written_out=both(L * L))
    wide = 6 * H
    sizes = {"num_heads": H, "num_kv_heads": H_KV, "mlp_dim": 17, "base": 100.0, "eps": 1e-5}
    model = LanguageModel(19, 2, embed_dim=wide, **sizes)
    block = projections(H_KV, 6, embed_dim=wide) + 2 * B * L * 3 * wide * 17
    linear = 2 * block + 2 * B * L * wide * 19
    forward, training = flops(model, torch.randint(19, (B, L)))
    assert forward == linear + 2 * both(L * L, 12)
    assert training == 3 * linear + 2 * 3.5 * both(L * L, 12)


# Recomputation


class Block(nn.Module):
    def __init__(self, core):
        super().__init__()
        self.attention = MultiHeadAttention(E, H, attend=core, bias=False)
        self.mlp = nn.Sequential(nn.Linear(E, 17), nn.GELU(), nn.Linear(17, E))

    def forward(self, x):
        return self.mlp(self.attention(x))


def core(query, key, value):
    return (query @ key.mT).softmax(dim=-1) @ value


def core_again(query, key, value):
    return checkpoint(core, query, key, value, use_reentrant=False)


def saving(*operators):
    def policy(context, operator, *inputs, **options):
        kept = operator in operators
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return partial(create_selective_checkpoint_contexts, policy)


ATEN = torch.ops.aten
WEIGHTS = ATEN.mm.default, ATEN.addmm.default
LINEAR, CORE = projections() + 2 * B * L * 2 * E * 17, both(L * L)
POLICIES = {  # what is computed once more
    "nothing": (None, LINEAR + CORE),
    "products with weights": (saving(*WEIGHTS), CORE),
    "products of tokens": (saving(ATEN.bmm.default), LINEAR),
    "every product": (saving(*WEIGHTS, ATEN.bmm.default), 0),
}


@pytest.mark.parametrize("name", POLICIES)
def test_selective_checkpoints_compute_again_what_they_have_not_saved(name):
    context, again = POLICIES[name]
    block, x = Block(core), drawn(B, L, E)
    options = {"context_fn": context} if context else {}

    def step():
        output = checkpoint(block, x, use_reentrant=False, **options)
        torch.autograd.grad(output, [x, *block.parameters()], torch.randn_like(output))

    with set_checkpoint_early_stop(False):
        assert measure_flops(step).total == 3 * (LINEAR + CORE) + again


def test_a_checkpoint_around_the_core():
    """Torch stops before the mix, whose result nothing needs; told not to, it computes it again."""
    block, x = Block(core_again), drawn(B, L, E)
    assert flops(block, x) == (LINEAR + CORE, 3 * (LINEAR + CORE) + CORE / 2)
    with set_checkpoint_early_stop(False):
        assert flops(block, x) == (LINEAR + CORE, 3 * (LINEAR + CORE) + CORE)

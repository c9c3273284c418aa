"""Learned distances against dense forms in double precision, and against other libraries."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn

from mhattn import KVCache, MultiHeadAttention, attention, padding_mask
from mhattn.inside import peak_bytes
from mhattn.variants import LearnedBias, RelativePosition, relative_attention, relative_blocks

B, H, H_KV, L, S, D, E = 2, 6, 3, 5, 11, 7, 17


def drawn(position, dtype=torch.float64):
    for parameter in position.parameters():
        nn.init.normal_(parameter)
    return position.to(dtype)


def dense(position, query, key, value, mask=None, is_causal=False):
    """Each distance looked up, in tensors (L, S, D)."""
    (L, D), S = query.shape[-2:], key.shape[-2]
    group = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group, dim=1).double() for x in (key, value))
    distance = torch.arange(S) - torch.arange(S - L, S)[:, None]  # (L, S)
    keys, values = key[:, :, None], value[:, :, None]  # (B, H, 1, S, D)
    bias = torch.zeros(())
    if isinstance(position, LearnedBias):
        bias = position.table.double()[:, distance + position.max_len - 1]
    else:
        k = position.max_distance
        index = distance.clamp(-k, k) + k
        keys = keys + position.key_vectors.double()[index]
        values = values + position.value_vectors.double()[index]
    scores = (query.double()[..., None, :] * keys).sum(-1) / math.sqrt(D) + bias
    allowed = torch.ones_like(scores, dtype=torch.bool)
    allowed = allowed if mask is None else allowed & mask
    allowed = allowed & (distance <= 0) if is_causal else allowed
    weights = scores.masked_fill(~allowed, -1e300).softmax(-1) * allowed.any(-1, keepdim=True)
    return (weights[..., None] * values).sum(-2), weights


def some(L, S, dtype=torch.float64, heads=H_KV, dim=D):
    query = torch.randn(B, H, L, dim, dtype=dtype)
    return query, *torch.randn(2, B, heads, S, dim, dtype=dtype)


POSITIONS = {
    "bias": lambda: drawn(LearnedBias(H, 71)),
    "clipped": lambda: drawn(RelativePosition(D, 3)),
    "neighbours": lambda: drawn(RelativePosition(D, 1)),
    "not clipped": lambda: drawn(RelativePosition(D, 70)),
}
MASKS = {
    "none": lambda L, S: None,
    "lengths": lambda L, S: padding_mask(torch.tensor([0, S]), S),
    "one row": lambda L, S: torch.arange(S) % 2 > 0,
    "for queries": lambda L, S: torch.arange(L)[:, None] % 3 > 0,
    "for all": lambda L, S: torch.rand(B, H, L, S) > 0.5,
}
every_position = pytest.mark.parametrize("make", POSITIONS.values(), ids=POSITIONS)


@pytest.fixture(params=[False, True], ids=["one block", "many blocks"])
def room(request, monkeypatch):
    if request.param:
        sizes = {"ROOM": 64, "ROWS": 4, "CAUSAL_ROWS": 3}
        for name, size in sizes.items():
            monkeypatch.setattr(relative_blocks, name, size)


@every_position
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("L", "S"), [(1, 11), (13, 2), (37, 71)])
def test_all_equal_the_dense_form(make, mask, is_causal, L, S, room):
    position, inputs = make(), some(L, S)
    options = {"mask": MASKS[mask](L, S), "is_causal": is_causal}
    expected, weights = dense(position, *inputs, **options)
    torch.testing.assert_close(position.attend(*inputs, **options), expected)
    with torch.no_grad():  # another way through, without gradients to keep
        torch.testing.assert_close(position.attend(*inputs, **options), expected)
    both = position.attend(*inputs, **options, return_weights=True)
    torch.testing.assert_close(both, (expected, weights))


def test_the_sign_of_a_distance():
    """Everything to the key before one's own; a table that is turned round would say: after."""
    position = LearnedBias(1, 4)
    with torch.no_grad():
        position.table[0, 4 - 2] = 50.0  # distance -1
    _, weights = position.attend(*torch.zeros(3, 1, 1, 4, 2), return_weights=True)
    assert weights[0, 0].argmax(dim=-1).tolist()[1:] == [0, 1, 2]
    vectors = RelativePosition(1, 2)
    with torch.no_grad():
        vectors.key_vectors.zero_()
        vectors.value_vectors.copy_(torch.arange(5.0)[:, None])
    output = vectors.attend(*torch.zeros(3, 1, 1, 3, 1))
    expected = [(2 + 3 + 4) / 3, (1 + 2 + 3) / 3, (0 + 1 + 2) / 3]  # the means of the rows
    torch.testing.assert_close(output.flatten(), torch.tensor(expected))


def layer(position):
    return MultiHeadAttention(E, H, num_kv_heads=H_KV, head_dim=D, position=position).double()


@every_position
@pytest.mark.parametrize("split", range(1, 13))
def test_a_cache_split_anywhere_gives_the_full_pass(make, split):
    mha, x = layer(make()), torch.randn(B, 13, E, dtype=torch.float64)
    full, cache = mha(x, is_causal=True), KVCache(13)
    outputs = [mha(x[:, :split], is_causal=True, cache=cache)]
    outputs += [mha(x[:, i : i + 1], is_causal=True, cache=cache) for i in range(split, 13)]
    torch.testing.assert_close(torch.cat(outputs, dim=1), full)


@every_position
def test_layers_know_distances_and_not_places(make):
    mha, x = layer(make()), torch.randn(B, S, E, dtype=torch.float64)
    late = torch.arange(2 * S) >= S
    twice = mha(torch.cat([x, x], dim=1), mask=late & late[:, None])
    torch.testing.assert_close(twice[:, S:], mha(x))
    order = torch.randperm(S)
    assert not torch.allclose(mha(x[:, order]), mha(x)[:, order], atol=1e-3)


@every_position
@pytest.mark.parametrize("mask", ["none", "for all"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_reach_inputs_and_what_is_learned(make, mask, is_causal, room):
    position, inputs = make(), [x.requires_grad_() for x in some(L, S)]
    options = {"mask": MASKS[mask](L, S), "is_causal": is_causal}
    wanted = [*inputs, *position.parameters()]
    output = position.attend(*inputs, **options)
    _, weights = position.attend(*inputs, **options, return_weights=True)
    right_ones = dense(position, *inputs, **options)
    for result, expected in zip((output, weights), right_ones, strict=True):
        out = torch.randn_like(expected)
        found, right = (
            torch.autograd.grad(x, wanted, out, retain_graph=True, materialize_grads=True)
            for x in (result, expected)
        )
        torch.testing.assert_close(found, right)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", [LearnedBias, RelativePosition])
def test_gradcheck(kind, is_causal):
    position = drawn(kind(2, 5))
    names = list(dict(position.named_parameters()))
    inputs = [torch.randn(1, 2, n, 2, dtype=torch.float64) for n in (3, 5, 5)]

    def attend(*tensors):
        learned = dict(zip(names, tensors[3:], strict=True))
        options = {"is_causal": is_causal}
        return torch.func.functional_call(Attend(position), prefixed(learned), tensors[:3], options)

    tensors = [x.detach().requires_grad_() for x in (*inputs, *position.parameters())]
    assert torch.autograd.gradcheck(attend, tensors)


class Attend(nn.Module):
    """A position whose forward is its attend."""

    def __init__(self, position):
        super().__init__()
        self.position = position

    def forward(self, *inputs, **options):
        return self.position.attend(*inputs, **options)


def prefixed(parameters):
    return {f"position.{name}": value for name, value in parameters.items()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@every_position
def test_half_precision(make, dtype, is_causal):
    position = make()
    inputs = some(61, 67, dtype)
    expected, _ = dense(position, *inputs, is_causal=is_causal)
    position = copy.deepcopy(position).to(dtype)
    for keep in (torch.no_grad, torch.enable_grad):
        with keep():
            output = position.attend(*inputs, is_causal=is_causal)
        assert output.dtype == dtype
        torch.testing.assert_close(output.double(), expected, atol=0.06, rtol=0.06)


@every_position
@pytest.mark.parametrize("return_weights", [False, True])
def test_dropout(make, return_weights):
    """All values are one, those of distances too: what an output lacks was dropped."""
    position = make()
    for parameter in position.parameters():
        nn.init.zeros_(parameter)
    query, key, _ = some(37, 37)
    value = torch.ones_like(key)
    output = position.attend(query, key, value, dropout=0.5, return_weights=return_weights)
    output, weights = output if return_weights else (output, None)
    assert output.std() > 0.01
    assert abs(output.mean() - 1) < 0.1
    if return_weights:
        torch.testing.assert_close(weights.sum(-1), output[..., 0])


@pytest.mark.parametrize("batch", [(), (2, 3)], ids=["no batch", "two batches"])
@every_position
def test_any_batch(make, batch):
    position, mask = make(), torch.rand(L, L) > 0.2
    inputs = torch.randn(3, *batch, H, L, D, dtype=torch.float64)
    flat = [x.reshape(-1, H, L, D) for x in inputs]
    for options in ({}, {"mask": mask, "is_causal": True}):
        output, weights = position.attend(*inputs, **options, return_weights=True)
        expected = position.attend(*flat, **options)
        torch.testing.assert_close(output, expected.reshape(output.shape))
        torch.testing.assert_close(position.attend(*inputs, **options), output)
        assert weights.shape == (*batch, H, L, L)


def test_the_bias_is_a_view():
    table = torch.randn(3, 2 * 13 - 1)
    view = relative_blocks.backwards(table, first=2, last=6, S=7)
    assert view.stride() == (25, 1, 1)
    assert view.data_ptr() == table[:, 6:].data_ptr()
    assert view.untyped_storage().data_ptr() == table.untyped_storage().data_ptr()
    for row, place in enumerate(range(6, 1, -1)):
        assert view[:, row].equal(table[:, 12 - place : 12 - place + 7])


@pytest.mark.parametrize("is_causal", [False, True])
def test_no_bias_of_the_size_of_the_scores_is_made(is_causal):
    inputs = torch.randn(3, 1, 8, 1024, 64)
    position = drawn(LearnedBias(8, 1024), torch.float32)
    stored = 8 * 1024 * 1024 * 4
    with torch.no_grad():
        bytes_ours = peak_bytes(lambda: position.attend(*inputs, is_causal=is_causal))
        bytes_plain = peak_bytes(lambda: attention(*inputs, is_causal=is_causal))
    assert bytes_ours - bytes_plain < stored / 30


def test_the_fused_kernel_gets_a_bias_without_a_copy():
    """Whatever the bias' axes; only a mask makes a copy of it necessary."""
    query, key, value = torch.randn(3, 1, 8, 512, 8)
    bias = torch.randn(8, 1023).unfold(-1, 512, 1)
    stored = 8 * 512 * 512 * 4
    for kept in (bias, bias[None], bias[:, :1]):
        assert peak_bytes(lambda kept=kept: attention(query, key, value, bias=kept)) < stored / 4
        expected, _ = attention(query, key, value, bias=kept, return_weights=True)
        torch.testing.assert_close(attention(query, key, value, bias=kept), expected)


def test_vectors_need_no_table_of_vectors():
    """Not (L, S, D), not even (L, S) for each head; nor in training."""
    position = drawn(RelativePosition(32, 16), torch.float32)
    inputs = torch.randn(3, 1, 8, 512, 32)
    scores = 8 * 512 * 512 * 4
    with torch.no_grad():
        assert peak_bytes(lambda: position.attend(*inputs)) < scores
    inputs = [x.requires_grad_() for x in inputs]
    assert peak_bytes(lambda: position.attend(*inputs).sum().backward()) < 1.5 * scores


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("kind", [LearnedBias, RelativePosition])
def test_torch_can_compile_it(kind, grad):
    position = drawn(kind(3, 17), torch.float32)
    inputs = torch.randn(3, 2, 3, 17, 3)
    compiled = torch.compile(position.attend, fullgraph=True, backend="aot_eager")
    with torch.set_grad_enabled(grad):
        expected = position.attend(*inputs, is_causal=True)
        torch.testing.assert_close(compiled(*inputs, is_causal=True), expected)


def test_a_bias_for_every_distance_is_that_of_t5():
    """With as many buckets as there are distances, and the scale that T5 doesn't have."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        d_model=E, d_kv=D, num_heads=H, relative_attention_num_buckets=64, dropout_rate=0.0
    )
    config._attn_implementation = "eager"
    theirs = T5Attention(config, has_relative_attention_bias=True).double().eval()
    position = LearnedBias(H, 16).double()
    ours = MultiHeadAttention(E, H, head_dim=D, bias=False, position=position).double()
    buckets = theirs.relative_attention_bias.weight  # the second half is for later keys
    index = [-d if d <= 0 else 32 + d for d in range(-15, 16)]
    with torch.no_grad():
        nn.init.normal_(buckets)
        ours.q_proj.weight.copy_(theirs.q.weight * math.sqrt(D))
        for proj, weight in ((ours.k_proj, theirs.k), (ours.v_proj, theirs.v)):
            proj.weight.copy_(weight.weight)
        ours.out_proj.weight.copy_(theirs.o.weight)
        position.table.copy_(buckets[index].T)
        x = torch.randn(B, 16, E, dtype=torch.float64)
        torch.testing.assert_close(ours(x), theirs(x)[0])


def take_over(ours, theirs, names):
    for proj, name in zip(
        (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj), names, strict=True
    ):
        proj.load_state_dict(getattr(theirs, name).state_dict())


@pytest.mark.parametrize("length", [4, 13])
def test_vectors_are_those_of_vits(length):
    """Which has both terms; beyond its window it has zeros, so here nothing is beyond."""
    from transformers import VitsConfig
    from transformers.models.vits.modeling_vits import VitsAttention

    config = VitsConfig(hidden_size=H * D, num_attention_heads=H, window_size=12)
    theirs = VitsAttention(config).double().eval()
    position = RelativePosition(D, 12).double()
    ours = MultiHeadAttention(H * D, H, position=position).double()
    take_over(ours, theirs, ("q_proj", "k_proj", "v_proj", "out_proj"))
    x = torch.randn(B, length, H * D, dtype=torch.float64)
    with torch.no_grad():
        position.key_vectors.copy_(theirs.emb_rel_k[0])
        position.value_vectors.copy_(theirs.emb_rel_v[0])
        torch.testing.assert_close(ours(x), theirs(x)[0])


def test_clipped_keys_are_those_of_wav2vec2_bert():
    """Which clips, and leaves the values alone."""
    from transformers import Wav2Vec2BertConfig
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

    config = Wav2Vec2BertConfig(
        hidden_size=H * D,
        num_attention_heads=H,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=4,
        right_max_position_embeddings=4,
    )
    config._attn_implementation = "eager"
    theirs = Wav2Vec2BertSelfAttention(config).double().eval()
    position = RelativePosition(D, 4).double()
    ours = MultiHeadAttention(H * D, H, position=position).double()
    take_over(ours, theirs, ("linear_q", "linear_k", "linear_v", "linear_out"))
    x = torch.randn(B, 13, H * D, dtype=torch.float64)
    with torch.no_grad():
        position.key_vectors.copy_(theirs.distance_embedding.weight)
        position.value_vectors.zero_()
        torch.testing.assert_close(ours(x), theirs(x)[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_position
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_equals_the_cpu(make, is_causal, dtype):
    position, inputs = make(), some(61, 67, dtype, dim=D)
    expected, _ = dense(position, *inputs, is_causal=is_causal)
    position = position.to("cuda", dtype)
    for keep in (torch.no_grad, torch.enable_grad):
        with keep():
            output = position.attend(*(x.cuda() for x in inputs), is_causal=is_causal)
        torch.testing.assert_close(output.cpu().double(), expected, atol=0.06, rtol=0.06)


@pytest.mark.parametrize(
    ("error", "text", "use"),
    [
        (ValueError, "max_len must be at least 1, got 0", lambda: LearnedBias(2, 0)),
        (TypeError, "num_heads must be an integer, got float", lambda: LearnedBias(2.0, 3)),
        (ValueError, "head_dim must be at least 1, got 0", lambda: RelativePosition(0, 3)),
        (ValueError, "max_distance must be at least 1, got 0", lambda: RelativePosition(3, 0)),
        (
            ValueError,
            "query must have at most max_len=4 positions, got 5",
            lambda: LearnedBias(3, 4).attend(*torch.zeros(3, 2, 3, 5, 7)),
        ),
        (
            ValueError,
            "key must have at most max_len=4 positions, got 5",
            lambda: LearnedBias(3, 4).bias(2, 5),
        ),
        (
            ValueError,
            r"query must be \(..., H=4, L, D\), got \(2, 3, 5, 7\)",
            lambda: LearnedBias(4, 5).attend(*torch.zeros(3, 2, 3, 5, 7)),
        ),
        (
            ValueError,
            r"query must have head_dim=6 last, got \(2, 3, 5, 7\)",
            lambda: RelativePosition(6, 5).attend(*torch.zeros(3, 2, 3, 5, 7)),
        ),
        (
            ValueError,
            r"value must have head_dim=7 last, got \(2, 3, 5, 6\)",
            lambda: RelativePosition(7, 5).attend(
                *torch.zeros(2, 2, 3, 5, 7), torch.zeros(2, 3, 5, 6)
            ),
        ),
        (
            ValueError,
            "scale must be positive and finite, got 0",
            lambda: RelativePosition(7, 5).attend(*torch.zeros(3, 2, 3, 5, 7), scale=0),
        ),
        (
            ValueError,
            r"dropout must be in \[0, 1\), got 1",
            lambda: LearnedBias(3, 5).attend(*torch.zeros(3, 2, 3, 5, 7), dropout=1),
        ),
        (
            TypeError,
            "mask must be a tensor of booleans, True = may attend, got float",
            lambda: LearnedBias(3, 5).attend(*torch.zeros(3, 2, 3, 5, 7), mask=1.0),
        ),
    ],
)
def test_what_learned_distances_refuse(error, text, use):
    with pytest.raises(error, match=text):
        use()


@pytest.mark.parametrize(
    ("key_shape", "value_shape", "text"),
    [
        ((4, D), (4, 3), r"key_vectors must be \(2 k \+ 1, 7\), .* got \(4, 7\)"),
        ((5, 3), (5, 3), r"key_vectors must be \(2 k \+ 1, 7\), .* got \(5, 3\)"),
        ((5, D), (7, 3), r"value_vectors must be \(2 k \+ 1, 3\), .* got \(7, 3\)"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(key_shape, value_shape, text):
    inputs = [torch.zeros(2, n, width) for n, width in ((L, D), (S, D), (S, 3))]
    with pytest.raises(ValueError, match=text):
        relative_attention(*inputs, torch.zeros(key_shape), torch.zeros(value_shape))


@pytest.mark.parametrize("make", [RelativePosition, LearnedBias, None])
@pytest.mark.parametrize(
    ("positions", "text"),
    [
        (torch.arange(5), r"must be a pair of tensors, .* got a tensor of shape \(5,\)"),
        ((torch.arange(5),), r"must be a pair of tensors, .* got \(tensor"),
        (
            (torch.arange(5), torch.arange(5.0)),
            "of keys must be a tensor of integers, got torch.f",
        ),
    ],
)
def test_positions_that_are_no_pair_are_refused(make, positions, text):
    inputs = torch.zeros(3, 2, 3, 5, 7)
    attend = partial(relative_attention, *inputs, *torch.zeros(2, 3, 7))
    if make:
        attend = partial(make(7 if make is RelativePosition else 3, 9).attend, *inputs)
    with pytest.raises(TypeError, match=f"positions {text}"):
        attend(positions=positions)


def test_a_cache_beyond_max_len_is_refused():
    mha, cache = layer(LearnedBias(H, 3).double()), KVCache(5)
    x = torch.randn(B, 4, E, dtype=torch.float64)
    _ = mha(x[:, :3], is_causal=True, cache=cache)
    with pytest.raises(ValueError, match="key must have at most max_len=3 positions, got 4"):
        mha(x[:, 3:], is_causal=True, cache=cache)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"return_weights": True}], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 0), (0, 3, 5)], ids=str)
@pytest.mark.parametrize(
    "position", [RelativePosition(4, 2), LearnedBias(3, 9)], ids=lambda x: type(x).__name__
)
def test_no_queries_get_no_output(position, shape, options):
    key = torch.randn(*shape[:2], 7, 4)
    output = position.attend(torch.randn(*shape, 4), key, key, **options)
    if "return_weights" in options:
        output, weights = output
        assert weights.shape == (*shape, 7)
    assert output.shape == (*shape, 4)

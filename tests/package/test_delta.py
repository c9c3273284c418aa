"""Against the recurrence in plain Python, transformers' Qwen3-Next, and closed forms."""

import copy
import functools
import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from mhattn import GatedDelta, LinearState, MultiHeadAttention, gated_delta_attention
from mhattn.timing import peak_bytes

B, H, H_KV, L, D, D_V = 2, 6, 3, 29, 7, 5

every_chunk = pytest.mark.parametrize("chunk_size", [1, 2, 7, 28, 29, 64])


def tensors(length=L, *, heads=H, kv_heads=H, dtype=torch.float64):
    """Query, key of length 1, value, decay and beta."""
    query, key = (torch.randn(B, n, length, D).double() for n in (heads, kv_heads))
    value = torch.randn(B, kv_heads, length, D_V).double()
    decay, beta = torch.rand(2, B, kv_heads, length).double()
    inputs = query, F.normalize(key, dim=-1), value, 0.3 + 0.7 * decay, beta
    return [x.to(dtype) for x in inputs]


def step(state, k, v, a, b, erase):
    """One position, in plain Python numbers: the decayed state, then what is written."""
    state = [[a * x for x in row] for row in state]
    stored = [sum(k[d] * state[d][e] for d in range(len(k))) for e in range(len(v))]
    new = [b * (v[e] - stored[e] * erase) for e in range(len(v))]
    return [[state[d][e] + k[d] * new[e] for e in range(len(v))] for d in range(len(k))]


def by_loop(query, key, value, decay, beta, *, erase=True, state=None):
    """One head."""
    state = torch.zeros(key.shape[1], value.shape[1]) if state is None else state
    state, outputs = state.tolist(), []
    lists = (x.tolist() for x in (query, key, value, decay, beta))
    for q, k, v, a, b in zip(*lists, strict=True):
        state = step(state, k, v, a, b, erase)
        outputs.append([sum(q[d] * row[e] for d, row in enumerate(state)) for e in range(len(v))])
    return torch.tensor(outputs, dtype=query.dtype), torch.tensor(state, dtype=query.dtype)


def by_loop_over_heads(query, *others, state=None, **options):
    group = query.shape[1] // others[0].shape[1]
    results = [
        by_loop(
            query[b, h],
            *(x[b, h // group] for x in others),
            state=None if state is None else state[b, h],
            **options,
        )
        for b in range(query.shape[0])
        for h in range(query.shape[1])
    ]
    return [
        torch.stack(parts).unflatten(0, query.shape[:2]) for parts in zip(*results, strict=True)
    ]


def ours(query, key, value, decay, beta, **options):
    options = {"return_state": True, **options}
    return gated_delta_attention(query, key, value, decay=decay, beta=beta, **options)


def assert_equal(found, right, atol=1e-12):
    for x, y in zip(found, right, strict=True):
        torch.testing.assert_close(x, y, atol=atol, rtol=0)


@every_chunk
@pytest.mark.parametrize("erase", [True, False])
@pytest.mark.parametrize("kv_heads", [1, 3, 6])
def test_equal_to_the_recurrence(chunk_size, erase, kv_heads):
    inputs = tensors(kv_heads=kv_heads)
    state = torch.randn(B, H, D, D_V).double()
    expected = by_loop_over_heads(*inputs, erase=erase, state=state)
    assert_equal(ours(*inputs, erase=erase, state=state, chunk_size=chunk_size), expected)
    expected = by_loop_over_heads(*inputs, erase=erase)
    assert_equal(ours(*inputs, erase=erase, chunk_size=chunk_size), expected)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 41), st.booleans(), st.sampled_from([1, 2, 3]))
def test_chunks_and_steps_agree_with_their_gradients(length, chunk_size, erase, kv_heads):
    inputs = [x.requires_grad_() for x in tensors(length, kv_heads=kv_heads)]
    state = torch.randn(B, H, D, D_V).double().requires_grad_()
    results = [ours(*inputs, erase=erase, state=state, chunk_size=size) for size in (1, chunk_size)]
    assert_equal(*results)
    probes = [torch.randn_like(x) for x in results[0]]
    gradients = [torch.autograd.grad(r, [*inputs, state], probes) for r in results]
    assert_equal(*gradients)


@every_chunk
def test_gradients_are_the_slopes(chunk_size):
    inputs = [x.requires_grad_() for x in tensors(5, heads=1, kv_heads=1)]
    state = torch.randn(B, 1, D, D_V).double().requires_grad_()

    def run(*inputs):
        return ours(*inputs[:-1], state=inputs[-1], chunk_size=min(chunk_size, 3))

    torch.autograd.gradcheck(run, (*inputs, state))


@every_chunk
@pytest.mark.parametrize("cuts", [[29], [1] * 29, [13, 1, 1, 14], [28, 1], [2, 27]], ids=str)
def test_a_state_handed_on_is_the_full_pass(cuts, chunk_size):
    inputs = tensors(kv_heads=H_KV)
    expected, full = ours(*inputs, chunk_size=chunk_size)
    outputs, state = [], None
    cut = [x.split(cuts, dim=2) for x in inputs]
    for parts in zip(*cut, strict=True):
        output, state = ours(*parts, state=state, chunk_size=chunk_size)
        outputs.append(output)
    assert_equal([torch.cat(outputs, dim=2), state], [expected, full])


@pytest.fixture(scope="module")
def qwen():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.models.qwen3_next import configuration_qwen3_next as configuration
        from transformers.models.qwen3_next import modeling_qwen3_next as modeling
    return modeling, configuration.Qwen3NextConfig


@pytest.mark.parametrize("name", ["chunk", "recurrent"])
@pytest.mark.parametrize("with_state", [True, False])
@every_chunk
def test_the_rule_of_qwen3_next(qwen, name, with_state, chunk_size):
    """Theirs has the heads behind the positions, the decay's logarithm, and scales the query."""
    theirs = getattr(qwen[0], f"torch_{name}_gated_delta_rule")
    inputs = tensors(dtype=torch.float32)
    state = torch.randn(B, H, D, D_V) if with_state else None
    query, key, value, decay, beta = (x.transpose(1, 2) for x in inputs)
    options = {"initial_state": state, "output_final_state": True}
    output, last = theirs(query, key, value, decay.log(), beta, **options)
    inputs[0] = inputs[0] / D**0.5
    found = ours(*inputs, state=state, chunk_size=chunk_size)
    assert_equal(found, [output.transpose(1, 2), last], atol=2e-6)


def layer_of_qwen3_next(layer, x):
    """Its forward pass around our rule: projections, convolution, gates, norm, projection."""
    length, heads = x.shape[1], layer.num_v_heads
    pieces = layer.fix_query_key_value_ordering(layer.in_proj_qkvz(x), layer.in_proj_ba(x))
    *qkv, z, b, a = pieces
    mixed = torch.cat([y.flatten(2) for y in qkv], dim=-1).mT  # (B, channels, L)
    weight = layer.conv1d.weight
    mixed = F.silu(F.conv1d(F.pad(mixed, (3, 0)), weight, groups=len(weight))).mT
    sizes = [layer.key_dim, layer.key_dim, layer.value_dim]
    query, key, value = mixed.split(sizes, dim=-1)
    query, key, value = (
        y.unflatten(-1, (-1, size)).transpose(1, 2)
        for y, size in (
            (query, layer.head_k_dim),
            (key, layer.head_k_dim),
            (value, layer.head_v_dim),
        )
    )  # (B, heads, L, size)
    query, key = (
        F.normalize(y, dim=-1).repeat_interleave(heads // layer.num_k_heads, dim=1)
        for y in (query, key)
    )
    decay = (-layer.A_log.exp() * F.softplus(a + layer.dt_bias)).exp()  # (B, L, heads)
    rates = {"decay": decay.mT, "beta": b.sigmoid().mT}
    scaled = query / layer.head_k_dim**0.5
    output = gated_delta_attention(scaled, key, value, chunk_size=5, **rates)
    output = output.transpose(1, 2)  # (B, L, heads, D_v)
    size = output.square().mean(dim=-1, keepdim=True)
    normed = layer.norm.weight * output / (size + layer.layer_norm_epsilon).sqrt() * F.silu(z)
    return layer.out_proj(normed.reshape(len(x), length, -1))


def test_the_whole_layer_of_qwen3_next(qwen):
    modeling, configuration = qwen
    config = configuration(
        hidden_size=22,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        linear_num_key_heads=3,
        linear_num_value_heads=6,
        linear_key_head_dim=8,
        linear_value_head_dim=5,
    )
    layer = modeling.Qwen3NextGatedDeltaNet(config, layer_idx=0)
    assert config.layer_types[0] == "linear_attention"
    for parameter in (layer.A_log, layer.dt_bias, layer.norm.weight):
        torch.nn.init.normal_(parameter)
    x = torch.randn(B, 17, 22)
    with torch.no_grad():
        right, found = layer(x), layer_of_qwen3_next(layer, x)
    torch.testing.assert_close(found, right, atol=2e-5, rtol=0)


def test_without_decay_and_with_beta_one_the_last_value_is_read():
    """A unit key is written as a whole: what stood there before is gone."""
    _, key, value, *_ = tensors()
    output = gated_delta_attention(key, key, value)
    torch.testing.assert_close(output, value, atol=1e-12, rtol=0)


def test_orthogonal_keys_are_a_dictionary():
    """Seven slots, written in turn: each position reads what was last written to each."""
    key = torch.eye(D).double().repeat(5, 1)[:L].expand(B, H, L, D)
    value = torch.randn(B, H, L, D_V).double()
    _, state = gated_delta_attention(key, key, value, return_state=True, chunk_size=5)
    last = torch.tensor([max(i for i in range(L) if i % D == d) for d in range(D)])
    torch.testing.assert_close(state, value[:, :, last], atol=1e-12, rtol=0)


@every_chunk
def test_special_cases_are_tables(chunk_size):
    """Without erasing: every weight is a product, faded by the decays in between."""
    query, key, value, decay, beta = tensors()
    table = (query @ key.mT).tril()
    options = {"erase": False, "chunk_size": chunk_size}
    plain = gated_delta_attention(query, key, value, **options)
    torch.testing.assert_close(plain, table @ value)
    place = torch.arange(L).double()
    fading = 0.9 ** (place[:, None] - place)
    retention = gated_delta_attention(query, key, value, decay=0.9, **options)
    torch.testing.assert_close(retention, (table * fading) @ value)
    sums = decay.log().cumsum(dim=-1)
    fading = (sums[..., :, None] - sums[..., None, :]).exp() * beta[..., None, :]
    gated = gated_delta_attention(query, key, value, decay=decay, beta=beta, **options)
    torch.testing.assert_close(gated, (table * fading) @ value)


def test_steps_of_gradient_descent():
    """Each position: one step down the squared error of its own pair."""
    _, key, value, _, beta = tensors(13, heads=1, kv_heads=1)
    state = torch.zeros(D, D_V).double()
    for i in range(13):
        state.requires_grad_()
        error = (key[0, 0, i] @ state - value[0, 0, i]).square().sum() / 2
        (slope,) = torch.autograd.grad(error, state)
        state = (state - beta[0, 0, i] * slope).detach()
    _, found = gated_delta_attention(key, key, value, beta=beta, return_state=True)
    torch.testing.assert_close(found[0, 0], state)


@pytest.mark.parametrize("shape", [(L,), (H, L), (B, H, L), (2, B, H, L)], ids=len)
def test_any_leading_axes_and_numbers_for_the_rates(shape):
    query, key, value = torch.randn(3, *shape, D).double()
    key = F.normalize(key, dim=-1)
    rates = [torch.full((L,), x, dtype=torch.float64) for x in (0.9, 0.5)]
    flat = [x.reshape(1, -1, L, D) for x in (query, key, value)]
    full = [x.expand(flat[0].shape[:-1]) for x in rates]
    expected = by_loop_over_heads(*flat, *full)[0]
    found = gated_delta_attention(query, key, value, decay=0.9, beta=0.5, chunk_size=4)
    torch.testing.assert_close(found, expected.view(*shape, D))
    by_tensor = {"decay": rates[0], "beta": rates[1]}
    found = gated_delta_attention(query, key, value, **by_tensor)
    torch.testing.assert_close(found, expected.view(*shape, D))


@every_chunk
def test_decay_zero_clears_and_beta_zero_leaves(chunk_size):
    inputs = [x.requires_grad_() for x in tensors()]
    query, key, value, decay, beta = inputs
    clear = decay.detach().clone()
    clear[..., 11] = 0.0
    inputs[3] = clear.requires_grad_()
    output, state = ours(query, key, value, clear, beta, chunk_size=chunk_size)
    late = [x[:, :, 11:] for x in (query, key, value, clear, beta)]
    assert_equal([output[:, :, 11:], state], ours(*late))
    gradients = torch.autograd.grad(output.sum() + state.sum(), inputs)
    assert all(x.isfinite().all() for x in gradients)
    hidden = torch.arange(L) % 3 == 1  # keep the state, write nothing: as if it were not there
    kept, written = decay.masked_fill(hidden, 1.0), beta.masked_fill(hidden, 0.0)
    output, state = ours(query, key, value, kept, written, chunk_size=chunk_size)
    few = ours(*(x[:, :, ~hidden] for x in (query, key, value, decay, beta)))
    assert_equal([output[:, :, ~hidden], state], few)


def test_no_position_sees_a_later_one():
    inputs = tensors()
    before = ours(*inputs, return_state=False, chunk_size=4)
    for x in inputs[:3]:
        x[..., 18:, :] += 0.3
    for x in inputs[3:]:
        x[..., 18:] *= 0.5
    after = ours(*inputs, return_state=False, chunk_size=4)
    assert after[..., :18, :].equal(before[..., :18, :])
    assert not torch.isclose(after[..., 18:, :], before[..., 18:, :]).all(dim=-1).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("chunk_size", [1, 64])
def test_lower_precision_is_close_to_float64(dtype, chunk_size):
    inputs = tensors(257, dtype=dtype)
    exact, last = ours(*(x.double() for x in inputs))
    output, state = ours(*inputs, chunk_size=chunk_size)
    assert output.dtype == dtype
    assert state.dtype == torch.float32
    loose = {"atol": 1e-5, "rtol": 0 if dtype == torch.float32 else torch.finfo(dtype).eps}
    torch.testing.assert_close(output.double(), exact, **loose)
    torch.testing.assert_close(state.double(), last, atol=1e-5, rtol=0)


def test_a_number_is_not_rounded_to_the_keys_precision():
    """0.999 is 1 in bfloat16."""
    key = torch.ones(2, 1, dtype=torch.bfloat16)
    value = torch.tensor([[1024.0], [0.0]], dtype=torch.bfloat16)
    options = {"beta": 0.1, "erase": False, "return_state": True}
    _, state = gated_delta_attention(key, key, value, decay=0.999, **options)
    torch.testing.assert_close(state, torch.tensor([[1024 * 0.1 * 0.999]]))


def test_decays_too_small_for_a_product():
    """0.01 ** 64 is no float32; quotients of such products would be NaN."""
    query, key, value, _, beta = tensors(64, dtype=torch.float32)
    decay = torch.full_like(beta, 0.01)
    inputs = query, key, value, decay, beta
    expected = ours(*(x.double() for x in inputs), chunk_size=1)
    assert_equal([x.double() for x in ours(*inputs)], expected, atol=1e-6)


def test_memory_of_training_grows_with_the_length_only():
    def train(length):
        inputs = torch.randn(3, 1, 2, length, 32)
        inputs = [inputs[0], F.normalize(inputs[1], dim=-1), inputs[2]]
        leaves = [x.requires_grad_() for x in inputs]
        gated_delta_attention(*leaves, decay=0.9).sum().backward()

    peaks = [peak_bytes(functools.partial(train, length)) for length in (1024, 2048)]
    assert 1.8 < peaks[1] / peaks[0] < 2.05


def test_inputs_are_left_alone():
    inputs = [*tensors(), torch.randn(B, H, D, D_V).double()]
    copies = [x.clone() for x in inputs]
    ours(*inputs[:5], state=inputs[5])
    assert all(x.equal(y) for x, y in zip(inputs, copies, strict=True))


def test_the_layer_is_its_parts():
    """Gates from the keys, unit keys and queries, in a layer with grouped heads."""
    attend = GatedDelta(3, 5, chunk_size=4)
    layer = MultiHeadAttention(19, 6, num_kv_heads=3, head_dim=5, attend=attend)
    for parameter in attend.parameters():
        torch.nn.init.normal_(parameter)
    x, heads = torch.randn(B, 17, 19), []
    for h in range(6):
        own, shared = slice(5 * h, 5 * h + 5), slice(5 * (h // 2), 5 * (h // 2) + 5)
        parts = (layer.q_proj, own), (layer.k_proj, shared), (layer.v_proj, shared)
        q, k, v = (F.linear(x, proj.weight[s], proj.bias[s]) for proj, s in parts)
        decay, beta = (
            torch.sigmoid(k @ attend.gates[i, h // 2] + attend.bias[i, h // 2]) for i in (0, 1)
        )
        q, k = (y / y.square().sum(dim=-1, keepdim=True).sqrt() for y in (q, k))
        runs = [by_loop(q[b], k[b], v[b], decay[b], beta[b])[0] for b in range(B)]
        heads.append(torch.stack(runs))
    expected = layer.out_proj(torch.cat(heads, dim=-1))
    torch.testing.assert_close(layer(x, is_causal=True), expected, atol=1e-5, rtol=0)
    cache = LinearState()
    pieces = x.split([9, 1, 1, 6], dim=1)
    outputs = [layer(piece, is_causal=True, cache=cache) for piece in pieces]
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected, atol=1e-5, rtol=0)
    assert cache.seen == 17
    assert cache.state.shape == (B, 6, 5, 5)


def test_gates_at_the_start():
    attend = GatedDelta(4, 7)
    decay, beta = attend.bias.sigmoid()
    torch.testing.assert_close(decay, 1 - 2.0 ** -torch.arange(5, 9))
    assert beta.tolist() == [0.5] * 4
    assert attend.gates.eq(0).all()
    torch.nn.init.normal_(attend.gates)
    torch.nn.init.normal_(attend.bias)
    attend.reset_parameters()
    assert attend.gates.eq(0).all()
    torch.testing.assert_close(attend.bias.sigmoid()[1], beta)
    assert repr(attend) == "GatedDelta(4, 7, chunk_size=64)"
    half = GatedDelta(2, 3, dtype=torch.bfloat16)
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}


Q, K, V = (torch.zeros(2, *shape) for shape in [(6, 7, 8), (3, 7, 8), (3, 7, 4)])
WRONG = [
    ((Q[:, :, :5], K, V), {}, ValueError, "query must be as long as key"),
    ((Q, K, V[:, :, :2]), {}, ValueError, "key and value must have the same axes but the last"),
    ((Q.int(), K, V), {}, TypeError, "query must be a tensor of floats, got torch.int32"),
    ((Q, K, V), {"chunk_size": 0}, ValueError, "chunk_size must be at least 1, got 0"),
    ((Q, K, V), {"decay": 1.5}, ValueError, "decay must be from 0 to 1, got 1.5"),
    ((Q, K, V), {"decay": -0.5}, ValueError, "decay must be from 0 to 1, got -0.5"),
    ((Q, K, V), {"beta": -1.0}, ValueError, "beta must be at least 0 and finite, got -1.0"),
    (
        (Q, K, V),
        {"beta": float("nan")},
        ValueError,
        "beta must be at least 0 and finite, got nan",
    ),
    ((Q, K, V), {"beta": True}, TypeError, "beta must be a number or a tensor of floats, got bool"),
    (
        (Q, K, V),
        {"decay": torch.ones(7).int()},
        TypeError,
        "decay must be a number or a tensor of floats, got torch.int32",
    ),
    (
        (Q, K, V),
        {"decay": torch.ones(2, 6, 7)},
        ValueError,
        "decay must broadcast to (..., L) = (2, 3, 7), got (2, 6, 7)",
    ),
    (
        (Q, K, V),
        {"beta": torch.ones(1, 2, 3, 7)},
        ValueError,
        "beta must broadcast to (..., L) = (2, 3, 7), got (1, 2, 3, 7)",
    ),
    (
        (Q, K, V),
        {"log_decay": -1.0},
        TypeError,
        "log_decay must be a tensor of floats, got float",
    ),
    (
        (Q, K, V),
        {"log_decay": torch.zeros(7), "decay": 0.9},
        ValueError,
        "with log_decay, decay must be left at 1, got 0.9",
    ),
    (
        (Q, K, V),
        {"log_decay": torch.zeros(7), "decay": torch.ones(7)},
        ValueError,
        "with log_decay, decay must be left at 1, got a tensor",
    ),
    (
        (Q, K, V),
        {"state": torch.zeros(2, 6, 8, 5)},
        ValueError,
        "state must be (..., D, D_v) = (2, 6, 8, 4), got (2, 6, 8, 5)",
    ),
    ((Q, K, V), {"state": 0}, TypeError, "state must be a tensor of floats, got int"),
]


@pytest.mark.parametrize(("args", "options", "kind", "message"), WRONG)
def test_errors_name_argument_rule_and_value(args, options, kind, message):
    with pytest.raises(kind) as caught:
        gated_delta_attention(*args, **options)
    assert str(caught.value).startswith(message)


def test_errors_of_the_layer():
    layer = MultiHeadAttention(12, 3, attend=GatedDelta(3, 4))
    with pytest.raises(ValueError, match="with GatedDelta, is_causal must be True, got False"):
        layer(torch.randn(2, 5, 12))
    with pytest.raises(ValueError, match="head_dim must be at least 1, got 0"):
        GatedDelta(3, 0)
    with pytest.raises(ValueError, match="gates must fit the key's heads and width"):
        GatedDelta(2, 4)(Q, K, V)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_eight_heads_learn_to_forget_in_half_precision(dtype):
    """From head 4 on, the decay itself rounds to 1 in bfloat16, where a sigmoid has no slope."""
    attend = GatedDelta(8, 4)
    half = copy.deepcopy(attend).to(dtype)
    inputs = torch.randn(3, 1, 8, 64, 4).to(dtype)
    grads = []
    for module, x in ((half, inputs), (attend, inputs.float())):
        module(*x).float().square().sum().backward()
        grads.append(module.bias.grad[0].float())
    assert (grads[0] > 0).all()
    torch.testing.assert_close(*grads, rtol=0.05, atol=0)


def test_a_zero_key_in_half_precision_writes_nothing():
    zero = torch.zeros(1, 2, 3, 4, dtype=torch.float16)
    assert GatedDelta(2, 4, dtype=torch.float16)(zero, zero, zero + 1).eq(0).all()


@every_chunk
def test_a_logarithm_in_place_of_the_decay(chunk_size):
    query, key, value, decay, beta = tensors(kv_heads=H_KV)
    decay[..., 11] = 0.0
    options = {"beta": beta, "chunk_size": chunk_size, "return_state": True}
    expected = gated_delta_attention(query, key, value, decay=decay, **options)
    found = gated_delta_attention(query, key, value, log_decay=decay.log(), **options)
    assert_equal(found, expected)


@pytest.mark.parametrize("zeros", [[3], [2, 3], [0]], ids=str)
def test_the_gradient_of_a_decay_of_zero_is_the_slope(zeros):
    """So that a gate that cleared the state can open again."""
    query, key, value, decay, beta = tensors(5, heads=1, kv_heads=1)
    state = torch.randn(B, 1, D, D_V).double()
    decay[..., zeros] = 0.0

    def run(decay):
        return ours(query, key, value, decay, beta, state=state)[0].square().sum()

    (grad,) = torch.autograd.grad(run(decay.requires_grad_()), decay)
    assert grad[..., zeros].abs().min() > 1e-6 or len(zeros) == 2
    for place in range(5):
        near = [decay.detach().clone() for _ in range(2)]
        near[0][0, 0, place] -= 1e-6
        near[1][0, 0, place] += 1e-6
        slope = (run(near[1]) - run(near[0])) / 2e-6
        torch.testing.assert_close(grad[0, 0, place], slope, atol=1e-6, rtol=1e-6)

"""What every layer owes its user: positions, caches that cannot be misread, devices, dtypes."""

import copy
from functools import partial

import pytest
import torch
from registry import LAYERS, TABLE
from torch.utils._python_dispatch import TorchDispatchMode

from mhattn import (
    Alibi,
    KVCache,
    MultiHeadAttention,
    Rotary,
    attention,
    padding_mask,
    sinusoidal_positions,
    strided_mask,
    window_mask,
)
from mhattn.core import LinearState
from mhattn.variants import (
    LearnedBias,
    RelativePosition,
    linear_attention,
    local_attention,
    strided_attention,
    tiled_attention,
)

B, L, E, H, D = 2, 11, 33, 3, 10

# Layers with any position, and all that can be built on a device of one's own.
POSITIONS = [name for name in LAYERS if TABLE[name].can("positions") and TABLE[name].can("weights")]
BUILT = [name for name in LAYERS if TABLE[name].can("empty memory")]
every_position = pytest.mark.parametrize("name", POSITIONS)
every_layer = pytest.mark.parametrize("name", BUILT)


def layer(name):
    return GROUPED.module(num_kv_heads=1) if name == "grouped" else TABLE[name].module()


GROUPED = TABLE["plain"]


# Positions that are given


def first(result):
    return result[0] if isinstance(result, tuple) else result


@every_position
@pytest.mark.parametrize("return_weights", [False, True])
@pytest.mark.parametrize("shape", [(L,), (B, L)])
def test_given_positions_can_be_the_usual_ones(name, return_weights, shape):
    mha, x = layer(name), torch.randn(B, L, E).double()
    options = {"is_causal": True, "return_weights": return_weights}
    usual = mha(x, **options)
    given = mha(x, positions=torch.arange(L).expand(shape), **options)
    torch.testing.assert_close(given, usual)


@every_position
def test_padding_on_the_left_gives_what_padding_on_the_right_gives(name):
    mha, lengths = layer(name), torch.tensor([L, 4])
    right = torch.randn(B, L, E).double()
    left = torch.stack([right[0], right[1].roll(L - 4, dims=0)])
    real = torch.arange(L) >= L - lengths[:, None]  # (B, L)
    positions = (real.cumsum(-1) - 1).clamp(min=0)
    expected = mha(right, is_causal=True, mask=padding_mask(lengths, L))
    got = mha(left, is_causal=True, mask=real[:, None, None], positions=positions)
    torch.testing.assert_close(got[0], expected[0])
    torch.testing.assert_close(got[1, L - 4 :], expected[1, :4])


@every_position
def test_two_sequences_in_one(name):
    """Each starts at position 0, and none sees the other."""
    mha, x = layer(name), torch.randn(1, L, E).double()
    positions = torch.cat([torch.arange(4), torch.arange(L - 4)])
    number = torch.arange(L) >= 4
    packed = mha(x, is_causal=True, mask=number[:, None] == number, positions=positions)
    alone = [mha(part, is_causal=True) for part in (x[:, :4], x[:, 4:])]
    torch.testing.assert_close(packed, torch.cat(alone, dim=1))


@every_position
def test_only_distances_matter_and_they_do(name):
    mha, x = layer(name), torch.randn(B, L, E).double()
    usual = mha(x, is_causal=True)
    later = mha(x, is_causal=True, positions=torch.arange(L) + 1000)
    torch.testing.assert_close(later, usual)
    same = mha(x, is_causal=True, positions=torch.zeros(L, dtype=torch.int64))
    assert (same - usual).abs().max() > 1e-3


@every_position
@pytest.mark.parametrize("split", [1, 4, L - 1])
def test_given_positions_stay_in_the_cache(name, split):
    """Token 6 stands beside token 5: two guesses at the same place, as in a tree of guesses."""
    mha, x = layer(name), torch.randn(B, L, E).double()
    positions = torch.tensor([0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]).expand(B, L)
    full, cache = mha(x, is_causal=True, positions=positions), KVCache(L)
    parts = [slice(0, split), *(slice(i, i + 1) for i in range(split, L))]
    outputs = [
        mha(x[:, part], is_causal=True, positions=positions[:, part], cache=cache) for part in parts
    ]
    torch.testing.assert_close(torch.cat(outputs, dim=1), full)


def test_gradients_reach_what_is_learned_through_given_positions():
    for name in ("bias", "vectors"):
        mha, x = layer(name), torch.randn(B, L, E).double()
        learned = list(mha.position.parameters())
        usual = torch.autograd.grad(mha(x).square().sum(), learned)
        given = mha(x, positions=torch.arange(L).expand(B, L)).square().sum()
        torch.testing.assert_close(torch.autograd.grad(given, learned), usual)


def test_rows_of_the_sinusoids_for_any_positions():
    positions = torch.tensor([[0, 0, 1], [2, 3, 4]])
    table = sinusoidal_positions(5, 6, dtype=torch.float64)
    assert sinusoidal_positions(1, 6, start=4, dtype=torch.float64)[0].equal(table[positions][1, 2])


WRONG_POSITIONS = [
    (torch.zeros(L), TypeError, "positions must be a tensor of integers, got torch.float32"),
    (torch.zeros(L - 1).int(), ValueError, "positions must be (L,) = (11,) or (B, L) = (2, 11)"),
    (torch.zeros(3, L).int(), ValueError, "got (3, 11)"),
]


@every_position
@pytest.mark.parametrize(("positions", "kind", "message"), WRONG_POSITIONS)
def test_wrong_positions_are_named(name, positions, kind, message):
    x = torch.randn(B, L, E).double()
    with pytest.raises(kind) as caught:
        layer(name)(x, positions=positions)
    assert message.replace("positions must", "must") in str(caught.value)


def test_a_bias_knows_no_distance_beyond_its_table():
    mha = MultiHeadAttention(E, H, position=LearnedBias(H, L)).double()
    x = torch.randn(B, L, E).double()
    with pytest.raises(ValueError, match=r"^positions must be less than max_len=11 apart, got 11$"):
        mha(x, positions=torch.arange(L) + (torch.arange(L) == L - 1))
    x = torch.randn(B, 3 * L, E).double()  # longer than the table, but each sequence is not
    positions = torch.arange(L).repeat(3)
    number = torch.arange(3).repeat_interleave(L)
    with pytest.raises(ValueError, match=r"^query must have at most max_len=11 positions, got 33$"):
        mha(x, is_causal=True)
    packed = mha(x, mask=number[:, None] == number, is_causal=True, positions=positions)
    assert packed.isfinite().all()


def test_positions_need_a_layer_that_uses_them():
    mha, x = MultiHeadAttention(E, H), torch.randn(B, L, E)
    with pytest.raises(ValueError, match=r"^positions need a layer with a position, got position="):
        mha(x, positions=torch.arange(L))
    mha = MultiHeadAttention(E, H, position=Alibi(H))
    with pytest.raises(ValueError, match=r"^with positions, key must be None or the query"):
        mha(x, x[:, :7], positions=torch.arange(L))


# No silent misreading


@pytest.mark.parametrize("name", ["grouped", "latent", "alibi"])
def test_a_cache_is_causal_or_refused(name):
    mha, x = layer(name), torch.randn(B, L, E).double()
    with pytest.raises(ValueError, match=r"^with a cache, is_causal must be True, got False$"):
        mha(x, cache=KVCache(L))


def test_a_cache_takes_no_memory_of_another_sequence():
    mha, x = layer("grouped"), torch.randn(B, L, E).double()
    with pytest.raises(
        ValueError, match=r"^with cache, key must be None or the query, got another"
    ):
        mha(x, x[:, :5], is_causal=True, cache=KVCache(L))
    assert mha(x, x, is_causal=True, cache=KVCache(L)).equal(mha(x, is_causal=True))


@pytest.mark.parametrize("return_weights", [False, True])
def test_a_mask_for_each_sequence_names_the_way_out(return_weights):
    mha, x = layer("grouped"), torch.randn(B, L, E).double()
    with pytest.raises(ValueError, match=r"got \(2, 7\); for one row a sequence.*padding_mask\(\)"):
        mha(x, x[:, :7], mask=torch.ones(B, 7).bool(), return_weights=return_weights)


# One layer, however it attends

ATTENDS = {  # and the mask that says the same of dense attention
    "window": (partial(local_attention, window=4), lambda n, m: window_mask(n, m, 4)),
    "stride": (
        partial(strided_attention, window=4, stride=3),
        lambda n, m: window_mask(n, m, 4) | strided_mask(n, m, 3),
    ),
    "tiled": (partial(tiled_attention, block_size=3), lambda n, m: None),
    "dense": (attention, lambda n, m: None),
}
SETTINGS = {
    "plain": lambda: {},
    "grouped": lambda: {"num_kv_heads": 1},
    "turned": lambda: {"num_kv_heads": 1, "head_dim": D, "position": Rotary(D)},
    "without bias": lambda: {"head_dim": 7, "bias": False},
}
every_setting = pytest.mark.parametrize("setting", SETTINGS)
every_attend = pytest.mark.parametrize("how", ATTENDS)


def pair(how, **options):
    """A layer that attends so, and the dense one with the same parameters."""
    attend, _ = ATTENDS[how]
    ours = MultiHeadAttention(E, H, attend=attend, **options).double()
    dense = MultiHeadAttention(E, H, **options).double()
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    dense.load_state_dict(ours.state_dict())
    return ours, dense


@every_attend
@every_setting
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_layer_is_the_dense_one_with_a_mask(how, setting, is_causal):
    ours, dense = pair(how, **SETTINGS[setting]())
    x, mask = torch.randn(B, L, E).double(), ATTENDS[how][1](L, L)
    if how == "stride" and not is_causal:
        with pytest.raises(ValueError, match="with a stride, is_causal must be True, got False"):
            ours(x)
        return
    expected = dense(x, mask=mask, is_causal=is_causal)
    torch.testing.assert_close(ours(x, is_causal=is_causal), expected)


@every_attend
def test_cross_attention_with_widths_of_their_own(how):
    ours, dense = pair(how, kdim=17, vdim=19)
    x, key, value = (torch.randn(B, n, m).double() for n, m in [(L, E), (23, 17), (23, 19)])
    options = {"is_causal": how == "stride"}
    expected = dense(x, key, value, mask=ATTENDS[how][1](L, 23), **options)
    torch.testing.assert_close(ours(x, key, value, **options), expected)
    if how != "stride":
        real, seen = padding_mask(torch.tensor([23, 9]), 23), ATTENDS[how][1](L, 23)
        expected = dense(x, key, value, mask=real if seen is None else real & seen)
        torch.testing.assert_close(ours(x, key, value, mask=real), expected)


CACHES = {
    "all": lambda: KVCache(L),
    "window": lambda: KVCache(window=4),
    "state": LinearState,
}


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        *((how, "all") for how in [*ATTENDS, "linear"]),
        ("window", "window"),
        ("linear", "state"),
    ],
)
@every_setting
@pytest.mark.parametrize("split", [1, 4, L - 1])
def test_every_layer_decodes_as_it_reads(how, kept, setting, split):
    attend = linear_attention if how == "linear" else ATTENDS[how][0]
    mha = MultiHeadAttention(E, H, attend=attend, **SETTINGS[setting]()).double()
    x, cache = torch.randn(B, L, E).double(), CACHES[kept]()
    parts = [slice(0, split), *(slice(i, i + 1) for i in range(split, L))]
    for _ in range(2):
        outputs = [mha(x[:, part], is_causal=True, cache=cache) for part in parts]
        torch.testing.assert_close(torch.cat(outputs, dim=1), mha(x, is_causal=True))
        assert cache.seen == L
        cache.reset()


def test_a_linear_state_keeps_sums_only():
    mha, cache = layer("linear"), LinearState()
    assert (cache.nbytes, len(cache)) == (0, 0)
    x, y = torch.randn(B, L, E).double(), torch.randn(3, 2, E).double()
    mha(x, is_causal=True, cache=cache, mask=padding_mask(torch.tensor([L, 4]), L))
    size = B * mha.num_heads * mha.head_dim * (mha.head_dim + 1)
    assert (cache.nbytes, len(cache)) == (8 * size, L)
    shorter = LinearState()
    mha(x[1:, :4], is_causal=True, cache=shorter)
    torch.testing.assert_close(cache.state[1:], shorter.state)
    assert not cache.state.requires_grad
    rows = torch.tensor([1, 0, 0])
    cache.reorder(rows)
    got = mha(y, is_causal=True, cache=cache)
    expected = mha(torch.cat([x[rows], y], dim=1), is_causal=True)[1:, L:]
    torch.testing.assert_close(got[1:], expected)
    LinearState().reorder(rows)


class LearnedFeatures(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, query, key, value, *, mask=None, is_causal=False):
        def features(x):
            return (self.factor * x).exp()

        options = {"mask": mask, "is_causal": is_causal, "feature_map": features}
        return linear_attention(query, key, value, **options)


def test_what_attends_may_have_parameters():
    mha = MultiHeadAttention(E, H, attend=LearnedFeatures())
    mha(torch.randn(B, L, E), is_causal=True).square().sum().backward()
    assert {name for name, p in mha.named_parameters() if not p.grad.any()} == set()
    assert "attend.factor" in mha.state_dict()


def test_a_function_of_ones_own_gets_what_it_takes():
    asked = {}

    def everything(query, key, value, **options):
        asked.update(options)
        return attention(query, key, value, **options)

    def nothing(query, key, value):
        return attention(query, key, value)

    x, position = torch.randn(B, L, E), Alibi(H)
    mha = MultiHeadAttention(E, H, attend=everything, position=position, dropout=0.1).eval()
    dense = MultiHeadAttention(E, H, position=position)
    dense.load_state_dict(mha.state_dict())
    expected = dense(x, is_causal=True, return_weights=True)
    torch.testing.assert_close(mha(x, is_causal=True, return_weights=True), expected)
    assert asked.keys() == {"mask", "bias", "is_causal", "dropout", "return_weights"}
    mha = MultiHeadAttention(E, H, attend=nothing)
    dense = MultiHeadAttention(E, H)
    dense.load_state_dict(mha.state_dict())
    assert mha(x).equal(dense(x))
    with pytest.raises(
        ValueError, match=r"^is_causal must be False with attend=nothing, got True$"
    ):
        mha(x, is_causal=True)


def test_a_layer_says_how_it_attends():
    assert "attend" not in repr(MultiHeadAttention(E, H))
    mha = MultiHeadAttention(E, H, attend=partial(strided_attention, window=5, stride=3))
    assert "dropout=0.0, attend=strided_attention(window=5, stride=3)" in repr(mha)
    copied = copy.deepcopy(mha)
    x = torch.randn(B, L, E)
    assert copied(x, is_causal=True).equal(mha(x, is_causal=True))


X = torch.zeros(B, L, E)
WINDOW, STRIDE = (ATTENDS[how][0] for how in ("window", "stride"))
KEYS_ONLY = "mask must be the same for all queries, (..., 1, S): the keys are added up once for"


def attends(attend, **options):
    return MultiHeadAttention(E, H, attend=attend, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: attends(linear_attention, dropout=0.1),
            "dropout must be 0 with attend=linear_attention, got 0.1",
        ),
        (
            lambda: attends(WINDOW, position=Alibi(H)),
            "position must add nothing to the scores with attend=local_attention(window=4), "
            "got Alibi",
        ),
        (
            lambda: attends(linear_attention, position=RelativePosition(11, 3)),
            "position must not attend itself with attend=linear_attention, got RelativePosition",
        ),
        (
            lambda: attends(tiled_attention, position=LearnedBias(H, L)),
            "position must not attend itself with attend=tiled_attention, got LearnedBias",
        ),
        (
            lambda: attends(linear_attention)(X, return_weights=True),
            "return_weights must be False with attend=linear_attention, got True",
        ),
        (lambda: attends(STRIDE)(X), "with a stride, is_causal must be True, got False"),
        (
            lambda: attends(STRIDE)(X, is_causal=True, mask=torch.ones(L).bool()),
            "mask must be None with attend=strided_attention(window=4, stride=3), got a tensor",
        ),
        (
            lambda: attends(WINDOW)(X, mask=torch.ones(L, L).bool()),
            "mask must broadcast to (..., 1, S) = (2, 3, 1, 11), got (11, 11)",
        ),
        (
            lambda: attends(linear_attention)(X, mask=window_mask(L, L, 2)),
            KEYS_ONLY + " all of them, got (11, 11)",
        ),
        (
            lambda: attends(WINDOW)(X, X[:, :7]),
            "query must not be longer than key, got query (2, 3, 11, 11) and key (2, 3, 7, 11)",
        ),
        (
            lambda: attends(attention)(X, is_causal=True, cache=LinearState()),
            "cache must be a KVCache with attend=attention, got LinearState",
        ),
        (
            lambda: attends(linear_attention)(X, cache=LinearState()),
            "with a cache, is_causal must be True, got False",
        ),
        (
            lambda: attends(WINDOW).to_torch(),
            "for PyTorch's module attend must be attention, got local_attention(window=4)",
        ),
        (
            lambda: attends(partial(local_attention, window=0))(X),
            "window must be at least 1, got 0",
        ),
    ],
)
def test_what_cannot_be_combined_is_named(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "attend", ["local", None, torch.nn.functional.scaled_dot_product_attention]
)
def test_attend_is_a_function_that_can_be_asked(attend):
    with pytest.raises(TypeError, match=r"^attend must be a function with known arguments, got "):
        attends(attend)


# Devices, dtypes, empty memory


@every_layer
def test_device_and_dtype_reach_every_parameter(name):
    made = TABLE[name].make(device="meta", dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in made.parameters()} == {torch.bfloat16}
    assert {tensor.device.type for tensor in [*made.parameters(), *made.buffers()]} == {"meta"}


def test_a_position_that_is_passed_keeps_its_numbers():
    learned = LearnedBias(H, L)
    torch.nn.init.normal_(learned.table)
    before = learned.table.detach().clone()
    assert MultiHeadAttention(E, H, position=learned).position.table.equal(before)


class Dtypes(TorchDispatchMode):
    """Counts the operations, and notes the dtypes of what they return."""

    def __init__(self):
        super().__init__()
        self.count, self.dtypes = 0, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.count += 1
        if isinstance(result, torch.Tensor):
            self.dtypes.add(result.dtype)
        return result


@every_position
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("given", [False, True])
def test_no_forward_pass_makes_float64(name, dtype, given):
    """Not every device has it."""
    mha, x = TABLE[name].make().to(dtype), torch.randn(B, L, E, dtype=dtype)
    positions = torch.arange(L).expand(B, L) if given else None
    with Dtypes() as seen, torch.no_grad():
        mha(x, is_causal=True, positions=positions)
    assert torch.float64 not in seen.dtypes


def test_a_decode_step_with_rotary_takes_few_operations_more():
    counts = []
    for position in (None, Rotary(D)):
        mha, cache = MultiHeadAttention(E, H, head_dim=D, position=position), KVCache(L)
        with torch.no_grad():
            mha(torch.randn(B, 5, E), is_causal=True, cache=cache)
            with Dtypes() as seen:
                mha(torch.randn(B, 1, E), is_causal=True, cache=cache)
        counts.append(seen.count)
    # for queries and keys: two slices, the halves, four products and sums, joined; and a dtype
    assert counts[1] - counts[0] <= 18, counts


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_in_another_precision_keeps_exact_angles(dtype):
    rotary = Rotary(D).to(dtype)
    x = torch.randn(1, 1, 3, D).to(dtype)
    for start in (0, 1000, 5000, 10**6):
        expected = Rotary(D).rotate(x.double(), start).to(dtype)
        got = copy.deepcopy(rotary).rotate(x, start)
        atol = 2e-6 if dtype == torch.float64 else 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(got, expected, atol=atol if dtype.itemsize < 8 else 0, rtol=0)


@pytest.mark.parametrize("start", [0, 100, 4095, 4096, 10**6])
def test_kept_and_computed_angles_are_those_of_float64(start):
    """Positions up to 4096 come from a table; the next ones are computed."""
    x = torch.randn(1, 1, 3, D)
    expected = torch.zeros(1, 1, 3, D, dtype=torch.float64)
    for place in range(3):
        for i in range(D // 2):
            angle = torch.tensor((start + place) * 10_000 ** (-2 * i / D), dtype=torch.float64)
            a, b = x[0, 0, place, i].double(), x[0, 0, place, i + D // 2].double()
            expected[0, 0, place, i] = a * angle.cos() - b * angle.sin()
            expected[0, 0, place, i + D // 2] = b * angle.cos() + a * angle.sin()
    for given in ({"start": start}, {"positions": torch.arange(start, start + 3)}):
        got = Rotary(D).rotate(x, **given).double()
        torch.testing.assert_close(got, expected, atol=2e-6, rtol=0)


# Taking back and branching


@every_position
@pytest.mark.parametrize("kept", [0, 3, 7])
def test_a_cropped_cache_goes_on_as_if_nothing_had_come(name, kept):
    mha, x, y = layer(name), *torch.randn(2, B, L, E).double()
    cache = KVCache(2 * L)
    mha(x, is_causal=True, cache=cache)
    cache.crop(kept)
    assert (len(cache), cache.seen) == (kept, kept)
    got = mha(y, is_causal=True, cache=cache)
    expected = mha(torch.cat([x[:, :kept], y], dim=1), is_causal=True)
    torch.testing.assert_close(got, expected[:, kept:])


def test_a_window_gives_nothing_back():
    cache = KVCache(window=3)
    for token in torch.randn(7, 2, 1, 1, 1, D):
        cache.append(*token)
    with pytest.raises(ValueError, match=r"^length must be 7, since a window has dropped 5 tokens"):
        cache.crop(4)
    cache.crop(7)
    with pytest.raises(ValueError, match=r"^length must be at most the 7 tokens seen, got 8$"):
        cache.crop(8)


@every_position
def test_a_reordered_cache_continues_other_sequences(name):
    mha, x = layer(name), torch.randn(B, 5, E).double()
    new, rows = torch.randn(3, 2, E).double(), torch.tensor([1, 1, 0])
    cache = KVCache(L)
    mha(x, is_causal=True, cache=cache)
    cache.reorder(rows)
    got = mha(new, is_causal=True, cache=cache)
    full = mha(torch.cat([x[rows], new], dim=1), is_causal=True)
    torch.testing.assert_close(got, full[:, 5:])


def test_rows_of_a_cache_are_integers_on_one_axis():
    with pytest.raises(TypeError, match=r"^rows must be a tensor of integers, got torch.float32$"):
        KVCache(3).reorder(torch.zeros(2))
    with pytest.raises(ValueError, match=r"^rows must have 1 axes, got shape \(2, 1\)$"):
        KVCache(3).reorder(torch.zeros(2, 1).int())


def test_positions_come_in_every_call_or_in_none():
    token, place = torch.zeros(2, B, 1, 1, D), torch.zeros(1, dtype=torch.int64)
    cache = KVCache(3)
    cache.append(*token, positions=place)
    assert cache.positions.equal(torch.zeros(B, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"^positions must be given as before, got none$"):
        cache.append(*token)
    cache = KVCache(3)
    cache.append(*token)
    with pytest.raises(ValueError, match=r"^positions must be None as before, got shape \(1,\)$"):
        cache.append(*token, positions=place)
    with pytest.raises(ValueError, match=r"^positions must be None with sinks, got sinks=1$"):
        KVCache(window=3, sinks=1).append(*token, positions=place)

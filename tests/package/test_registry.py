"""Every layer, function that attends and position, held to what it owes its user: `registry.py`."""

import contextlib
import copy
import functools
import inspect
import io
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import registry
import test_compile
import test_types
import torch
from registry import (
    DUTIES,
    EXCEPTIONS,
    LAYERS,
    MAX,
    REACH,
    SHARES_OR_LESS,
    STRIDE,
    TABLE,
    WINDOW,
    B,
    D,
    E,
    Function,
    H,
    duty,
    how_to_enter,
    how_to_trace,
    near,
    place,
    public,
)
from torch import nn
from torch.func import functional_call

from mhattn import trace
from mhattn.core import Position
from mhattn.core.steps import STEPS
from mhattn.costs import LayerCost, layer_costs, peak_activation_bytes
from mhattn.costs.layer_costs import COUNTED, KINDS, UNCOUNTED
from mhattn.costs.layer_peaks import MOMENTS
from mhattn.inside import measure_flops, peak_bytes

# Uncompiled, FlexAttention computes the whole table, and says so in a warning.
pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight"),  # RMSNorm's
    pytest.mark.filterwarnings("ignore:There is a performance drop because we have not yet impl"),
]
N = 13  # a prime; with a window of 4, a stride of 3 and blocks of 5 there are several of each
HALF = (torch.bfloat16, torch.float16)


# The table itself


def test_every_duty_has_its_test():
    modules = [sys.modules[__name__], test_compile, test_types]
    tests = [x for module in modules for x in vars(module).values() if inspect.isfunction(x)]
    assert {test.duty for test in tests if hasattr(test, "duty")} == set(DUTIES)


def test_the_table_is_well_formed():
    for entry in TABLE.values():
        assert set(entry.cannot) <= set(DUTIES), entry.name
        assert set(entry.absent) <= set(DUTIES), entry.name
        assert not set(entry.cannot) & set(entry.absent), entry.name
        assert all(len(reason) > 10 for reason in entry.absent.values()), entry.name
        lacks = f"{entry.name}, in {Path(registry.__file__).name}: give "
        assert entry.formula is not None or "formula" in entry.absent, f"{lacks}formula="
        assert bool(entry.caches) == entry.can("cache"), f"{lacks}caches="
        costs = bool(entry.costs) == entry.can("flops") == entry.can("peaks")
        assert costs, f"{lacks}costs=, or why it has none in absent="
        assert bool(entry.typed) or "types" in entry.absent, f"{lacks}typed="


def must_enter(name, thing):
    """Modules and positions, functions of query, key and value, and what calls itself attention."""
    if inspect.isclass(thing) and issubclass(thing, nn.Module):
        return True
    if "attention" in name.lower() and callable(thing):
        return True
    if not inspect.isfunction(thing):
        return False
    return list(inspect.signature(thing).parameters)[:3] == ["query", "key", "value"]


def test_who_is_missing():
    """A new layer enters the registry: CONTRIBUTING."""
    owed = {name: thing for name, thing in public().items() if must_enter(name, thing)}
    assert len(owed) > 40
    held = {id(thing) for entry in TABLE.values() for thing in entry.of}
    missing = {name for name, thing in owed.items() if id(thing) not in held}
    complaints = [how_to_enter(name) for name in sorted(missing - set(EXCEPTIONS))]
    where = place(registry.__file__, "EXCEPTIONS = ")
    complaints += [f"{name}: take it out of {where}" for name in set(EXCEPTIONS) - missing]
    assert not complaints, "\n".join(complaints)
    assert all(len(reason) > 10 for reason in EXCEPTIONS.values())


def test_a_layer_that_is_missing_is_seen():
    class New(nn.Module):
        pass

    class NewPosition(Position):
        pass

    def new(query, key, value, temperature): ...

    def other(key, query, value): ...

    assert must_enter("New", New)
    assert must_enter("NewPosition", NewPosition)
    assert must_enter("new", new)
    assert must_enter("sparse_attention", other)
    assert not must_enter("other", other)


def test_lists_by_kind_are_those_of_the_table():
    kinds = [kind for entry in TABLE.values() for kind in entry.costs]
    assert sorted(kinds) == sorted(KINDS)
    assert MOMENTS.keys() == KINDS.keys() == COUNTED.keys()
    for entry in TABLE.values():
        names = {thing.__name__ for thing in entry.of}
        assert {COUNTED[kind] for kind in entry.costs} <= names | {"attention"}, entry.name
    known = {thing.__name__ for entry in TABLE.values() for thing in entry.of}
    assert UNCOUNTED.keys() <= known | EXCEPTIONS.keys()


def test_the_docstring_of_layer_costs_says_which_layers_have_no_kind():
    of_layers = {getattr(thing, "__name__", "") for entry in LAYERS.values() for thing in entry.of}
    where = place(layer_costs.__file__, "    There is no kind for")
    for name in UNCOUNTED.keys() & of_layers:
        assert f"`{name}`" in LayerCost.__doc__, f"add `{name}` in {where}: it is in UNCOUNTED"


def test_every_function_that_a_layer_attends_with_is_a_step_of_its_trace():
    for entry in TABLE.values():
        for thing in entry.of if entry.can("trace") else ():
            if inspect.isfunction(thing) and "attention" in thing.__name__:
                assert thing.__code__ in STEPS, how_to_trace(thing)


def test_the_table_prints_itself():
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("registry.py")],
        env={"PYTHONPATH": str(root)} | dict(__import__("os").environ),
        cwd=root,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    rows = [row for row in done.stdout.splitlines() if row.startswith("| ")]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows[1:]] == list(TABLE)
    assert all(row.count("|") == len(DUTIES) + 2 for row in rows)


# The formula, for all lengths and ways


def is_the_formula(entry, L, S, kv_heads=H, **options):
    module = entry.module(**({} if kv_heads == H else {"num_kv_heads": kv_heads}))
    inputs = entry.drawn(L, S, kv_heads=kv_heads)
    for is_causal in entry.ways() or [False]:
        got = entry.call(module, inputs, is_causal=is_causal)
        expected = entry.formula(module, inputs, entry.seen(L, S, is_causal))
        assert expected.isfinite().all()
        near(entry, got, expected)
        with torch.no_grad():
            near(entry, entry.call(module, inputs, is_causal=is_causal), expected)


@duty("formula")
def test_the_formula(entry):
    is_the_formula(entry, N, N)


@duty("shorter")
@pytest.mark.parametrize("L", [1, 5])
def test_fewer_queries_than_keys(entry, L):
    run_either(entry, L, N)


@duty("longer")
def test_more_queries_than_keys(entry):
    run_either(entry, N, 5)


def run_either(entry, L, S):
    if "formula" in entry.absent:
        entry.call(entry.module(), entry.drawn(L, S))
    else:
        is_the_formula(entry, L, S)


@duty("one")
def test_one_query_and_one_key(entry):
    if "formula" in entry.absent:
        output = entry.call(entry.module(), entry.drawn(1))
        assert output.shape[:2] == (B, 1)
        assert output.isfinite().all()
    else:
        is_the_formula(entry, 1, 1)


@duty("grouped heads")
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_grouped_heads(entry, kv_heads):
    if "formula" in entry.absent:
        entry.module(num_kv_heads=kv_heads)
    else:
        is_the_formula(entry, N, N, kv_heads)


@duty("all keys")
def test_without_causality(entry):
    module, inputs = entry.module(), entry.drawn(N)
    output = entry.call(module, inputs, is_causal=False)
    if entry.can("causal"):
        causal = entry.call(module, inputs, is_causal=True)
        assert not torch.allclose(output, causal)
    changed = entry.call(module, other_key(entry, inputs, N - 1), is_causal=False)
    assert (changed[..., 0, :] != output[..., 0, :]).any() or not entry.seen(N, N, False)[0, -1]


def other_key(entry, inputs, j):
    """The same inputs with key ``j`` changed, and its value."""
    changed = [x.clone() for x in inputs]
    for i in entry.keys:
        if changed[i].is_floating_point():
            changed[i][..., j, :] += torch.randn_like(changed[i][..., j, :])
        else:
            changed[i][..., j] = (changed[i][..., j] + 1) % 9
    return tuple(changed)


def rows_that_change(entry, module, inputs, j, **options):
    """Booleans ``(L,)``: whose output another key ``j`` changes."""
    before = entry.call(module, inputs, **options)
    after = entry.call(module, other_key(entry, inputs, j), **options)
    different = (after - before).abs() > 1e-9 * before.abs().max()
    return different.transpose(-2, 0).flatten(1).any(-1)


@duty("causal")
def test_no_query_sees_what_comes_after_it(entry):
    """And each sees all that its pattern shows it."""
    module, inputs = entry.module(), entry.drawn(N)
    exact = entry.dtype == torch.float64 and entry.name != "top_k_attention()"
    for j in (0, 5, 9, N - 1):
        changed = rows_that_change(entry, module, inputs, j, is_causal=True)
        seen = entry.seen(N, N, True)[:, j]
        assert not changed[:j].any()
        if exact:
            assert changed.equal(seen), j


# Masks


@duty("mask of keys")
def test_a_mask_hides_keys_as_if_they_were_cut_out(entry):
    """Others in each sequence, for a function, a layer and a model."""
    module, inputs, hidden = entry.module(), entry.drawn(N), (3, 5)
    real = torch.arange(N) >= torch.tensor(hidden)[:, None]
    real = (real if entry.front else real.flip(-1))[:, None, None]  # (B, 1, 1, S)
    for is_causal in entry.ways():
        output = entry.call(module, inputs, mask=real, is_causal=is_causal)
        for b, c in enumerate(hidden):
            kept = slice(c, N) if entry.front else slice(0, N - c)
            here, rows = cut_out(entry, inputs, b, kept), slice(0, N)
            if 0 in entry.keys or "longer" in entry.cannot:  # the queries are cut as well
                rows = kept
            if is_causal:  # who stands before the first key has nothing to see
                rows = slice(max(c, rows.start), rows.stop)
            if 0 not in entry.keys:
                here = only_rows(entry, here, rows, output.shape)
            expected = entry.call(module, here, is_causal=is_causal)
            near(entry, output[b : b + 1][..., rows, :], expected)


def cut_out(entry, inputs, b, kept):
    """Sequence b, with some of the keys."""
    alone = tuple(x[b : b + 1] if len(x) == B and x.ndim > 1 else x for x in inputs)
    if entry.cut is not None:
        return entry.cut(alone, kept.start)
    return tuple(
        (x[..., kept, :] if x.is_floating_point() else x[..., kept]) if i in entry.keys else x
        for i, x in enumerate(alone)
    )


def only_rows(entry, inputs, rows, shape):
    query, *others = inputs
    if entry.cut is not None:  # scores of each query
        others[-1] = others[-1][..., rows, :]
    return query[..., rows, :], *others


@duty("mask of pairs")
def test_a_mask_shows_each_query_its_own_keys(entry):
    module, inputs = entry.module(), entry.drawn(N)
    mask = (torch.rand(1, 1, N, N) < 0.5) | torch.eye(N, dtype=torch.bool)
    if entry.name == "top_k_attention()":
        mask = mask & (torch.rand(1, 1, N, N) < 0.3)  # at most k of them, so all are chosen
        mask &= mask.cumsum(-1) <= 3
    for j in (0, 7):
        is_causal = entry.ways()[-1]
        changed = rows_that_change(entry, module, inputs, j, mask=mask, is_causal=is_causal)
        seen = mask[0, 0, :, j] & entry.seen(N, N, is_causal)[:, j]
        if 0 in entry.keys:
            seen[j] = True  # its own query
        layers = getattr(module, "num_layers", len(getattr(module, "layers", [0])))
        if layers > 1:  # by way of others
            seen, changed = seen & changed, changed & seen
        assert changed.equal(seen)


@duty("nothing to attend")
def test_a_query_that_sees_no_key_gets_zeros(entry):
    module, is_causal = entry.module(), entry.ways()[-1]
    inputs = tuple(x.requires_grad_(differentiable(entry, x)) for x in entry.drawn(N))
    mask = torch.tensor([False, True])[:, None, None, None].expand(B, 1, 1, N)
    output = entry.call(module, inputs, mask=mask, is_causal=is_causal)
    assert output.isfinite().all()
    if not isinstance(module, Function):
        nothing = getattr(module, "out_proj", None)
        if nothing is not None:
            nothing = 0 if getattr(nothing, "bias", None) is None else nothing.bias
            near(entry, output[0], torch.zeros_like(output[0]) + nothing)
    else:
        assert not output[0].any()
        assert output[1].any(-1).all()
    sources = [x for x in (*inputs, *module.parameters()) if x.requires_grad]
    if sources:
        found = torch.autograd.grad(output.square().sum(), sources, allow_unused=True)
        assert all(x is None or x.isfinite().all() for x in found)


def differentiable(entry, x):
    return x.is_floating_point() and entry.can("gradients")


# Nothing at all


@duty("no queries")
def test_no_queries(entry):
    S = 0 if "no keys" in entry.absent or 0 in entry.keys else N
    is_empty(entry, 0, S)


@duty("no keys")
def test_no_keys(entry):
    module, inputs = entry.module(), entry.drawn(5, 0)
    for is_causal in entry.ways():
        output = entry.call(module, inputs, is_causal=is_causal)
        bias = getattr(getattr(module, "out_proj", None), "bias", None)
        near(entry, output, torch.zeros_like(output) + (0 if bias is None else bias))


@duty("no batch")
def test_no_batch(entry):
    module = entry.module()
    for is_causal in entry.ways():
        whole = entry.call(module, entry.drawn(N), is_causal=is_causal)
        output = entry.call(module, entry.drawn(N, batch=0), is_causal=is_causal)
        assert output.shape == (0, *whole.shape[1:])


def is_empty(entry, L, S):
    module = entry.module()
    for is_causal in entry.ways():
        width = entry.call(module, entry.drawn(N), is_causal=is_causal).shape[-1]
        output = entry.call(module, entry.drawn(L, S), is_causal=is_causal)
        assert output.shape[-2:] == (L, width)
        assert len(output) == B


# Precision


@duty("half precision")
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("built", ["drawn", "as built"])
def test_half_precision(entry, dtype, built):
    """As it is built, with the gradients of all that is learned, and for a token of zeros."""
    drawn = built == "drawn"
    half = entry.module(dtype) if drawn else entry.make().to(dtype)
    inputs, is_causal = entry.drawn(N, dtype=dtype), entry.ways()[-1]
    if drawn:
        for x in inputs[:3]:
            if x.is_floating_point():
                x[..., 3, :] = 0
    output = entry.call(half, inputs, is_causal=is_causal)
    exact = entry.module()
    exact.load_state_dict(half.state_dict())  # rounded likewise
    wide = tuple(x.to(entry.dtype) if x.is_floating_point() else x for x in inputs)
    expected = entry.call(exact, wide, is_causal=is_causal)
    assert output.dtype == dtype
    near_enough(output, expected, dtype)
    if not drawn and list(half.parameters()):
        probe = torch.randn_like(expected).to(dtype)
        found, right = (
            torch.autograd.grad(y, list(module.parameters()), probe.to(y.dtype), allow_unused=True)
            for y, module in ((output, half), (expected, exact))
        )
        for (name, _), one, other in zip(half.named_parameters(), found, right, strict=True):
            if one is not None and other.abs().max() > 1e-6:
                eps = torch.finfo(dtype).eps
                assert worst(one, other) < 16 * eps, name
                lost = (one == 0) & (other.abs() > eps * other.abs().max())
                assert not lost.any(), name  # as of a decay that rounds to 1


def worst(got, expected):
    """The largest error, in shares of the largest number."""
    return (got.double() - expected.double()).abs().max() / expected.abs().max()


def near_enough(output, expected, dtype):
    """Rounded a few times on the way: queries, keys, values, heads, output."""
    assert output.isfinite().all()
    assert worst(output, expected) < 8 * torch.finfo(dtype).eps


@duty("autocast")
def test_autocast(entry):
    single = exact = entry.module(torch.float32)
    if entry.dtype != torch.float32:
        exact = entry.module()
        exact.load_state_dict(single.state_dict())
    inputs, is_causal = entry.drawn(N), entry.ways()[-1]
    expected = entry.call(exact, inputs, is_causal=is_causal)
    given = tuple(x.float() if x.is_floating_point() else x for x in inputs)
    given = tuple(x.requires_grad_(differentiable(entry, x)) for x in given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = entry.call(single, given, is_causal=is_causal)
    near_enough(output, expected, torch.bfloat16)
    sources = [x for x in (*given, *single.parameters()) if x.requires_grad]
    if sources:
        found = torch.autograd.grad(output.float().sum(), sources, allow_unused=True)
        assert all(x is None or x.isfinite().all() for x in found)


# Gradients, transforms, graphs


def without_gradient(entry):
    """Places of inputs that only choose, such as scores of keys."""
    return {3} if entry.name == "top_k_attention()" else set()


@duty("gradients")
def test_gradients_are_the_slopes(entry):
    """By finite differences along random directions, in float64."""
    module, is_causal = entry.module(), entry.ways()[-1]
    names, values = (
        zip(*module.named_parameters(), strict=True)
        if any(True for _ in module.parameters())
        else ((), ())
    )
    inputs = entry.drawn(5)
    free = [
        i
        for i, x in enumerate(inputs)
        if x.is_floating_point() and i not in without_gradient(entry)
    ]

    def run(*numbers):
        given = list(inputs)
        for i, x in zip(free, numbers, strict=False):
            given[i] = x
        learned = dict(zip(names, numbers[len(free) :], strict=True))

        class Call(nn.Module):
            def __init__(self):
                super().__init__()
                self.module = module

            def forward(self):
                return entry.call(self.module, tuple(given), is_causal=is_causal)

        return functional_call(Call(), {f"module.{n}": x for n, x in learned.items()}, ())

    sources = [inputs[i] for i in free] + [value.detach() for value in values]
    sources = tuple(x.clone().requires_grad_() for x in sources)
    assert run(*sources).requires_grad
    assert torch.autograd.gradcheck(run, sources, fast_mode=True)
    found = torch.autograd.grad(run(*sources).square().sum(), sources)
    assert all(x.isfinite().all() for x in found)


@duty("vmap")
def test_vmap_is_a_loop(entry):
    module, is_causal = entry.module(), entry.ways()[-1]
    several = [entry.drawn(N) for _ in range(3)]
    stacked = tuple(torch.stack(parts) for parts in zip(*several, strict=True))

    def run(*inputs):
        return entry.call(module, inputs, is_causal=is_causal)

    with torch.no_grad():
        expected = torch.stack([run(*inputs) for inputs in several])
        near(entry, torch.vmap(run)(*stacked), expected)


@duty("sample gradients")
def test_gradients_of_each_sample(entry):
    module, is_causal = entry.module(), entry.ways()[-1]
    inputs = entry.drawn(N)
    batched = [(len(x) == B and x.ndim > 2) or not x.is_floating_point() for x in inputs]
    learned = {name: p.detach() for name, p in module.named_parameters()}

    class Call(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, *inputs):
            return entry.call(self.module, inputs, is_causal=is_causal)

    caller = Call()

    def loss(learned, *inputs):
        inputs = (x[None] if b else x for x, b in zip(inputs, batched, strict=True))
        named = {f"module.{name}": x for name, x in learned.items()}
        return functional_call(caller, named, tuple(inputs)).square().sum()

    axes = tuple(0 if b else None for b in batched)
    if learned:
        found = torch.vmap(torch.func.grad(loss), in_dims=(None, *axes))(learned, *inputs)
    else:
        found = {"input": torch.vmap(torch.func.grad(loss, 1), in_dims=(None, *axes))({}, *inputs)}
    for b in range(B):
        alone = [x[b : b + 1] if one else x for x, one in zip(inputs, batched, strict=True)]
        if learned:
            right = torch.autograd.grad(
                caller(*alone).square().sum(), list(module.parameters()), materialize_grads=True
            )
            right = dict(zip(learned, right, strict=True))
        else:
            alone[0] = alone[0].requires_grad_()
            (right,) = torch.autograd.grad(caller(*alone).square().sum(), alone[0])
            right = {"input": right[0]}
        for name, x in right.items():
            near(entry, found[name][b], x)


# Copies, files, empty memory


@duty("copies")
def test_copies_compute_the_same(entry):
    module, inputs, is_causal = entry.module(), entry.drawn(N), entry.ways()[-1]
    expected = entry.call(module, inputs, is_causal=is_causal)
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert entry.call(copied, inputs, is_causal=is_causal).equal(expected)
        theirs = {p.data_ptr() for p in module.parameters()}
        assert not theirs & {p.data_ptr() for p in copied.parameters()}


@duty("state")
def test_a_state_dict_carries_all_that_is_learned(entry):
    module, other = entry.module(), entry.module()
    inputs, is_causal = entry.drawn(N), entry.ways()[-1]
    expected = entry.call(module, inputs, is_causal=is_causal)
    assert not entry.call(other, inputs, is_causal=is_causal).equal(expected)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert entry.call(other, inputs, is_causal=is_causal).equal(expected)
    assert set(module.state_dict()) == {name for name, _ in module.named_parameters()}


@duty("empty memory")
@pytest.mark.parametrize("how", ["option", "context"])
def test_reset_parameters_sets_every_number(entry, how):
    """On the meta device nothing has numbers; then memory is there, but whatever was in it."""
    torch.manual_seed(0)
    expected = entry.make()
    with torch.device("meta") if how == "context" else contextlib.nullcontext():
        made = entry.make(**({} if how == "context" else {"device": "meta"}))
    tensors = [*made.parameters(), *made.buffers()]
    assert {x.device.type for x in tensors} == {"meta"}
    made = made.to_empty(device="cpu")
    for x in [*made.parameters(), *made.buffers()]:
        x.data.fill_(float("nan") if x.is_floating_point() else 77)
    if hasattr(made, "reset_parameters"):
        made.reset_parameters()
    else:  # a model: each of its parts, as torch's own tools do it
        for part in reversed(list(made.modules())):  # a layer after its projections
            getattr(part, "reset_parameters", lambda: None)()
    for (name, right), (_, x) in zip(expected.named_buffers(), made.named_buffers(), strict=True):
        assert x.equal(right), name
    for (name, right), (_, x) in zip(
        expected.named_parameters(), made.named_parameters(), strict=True
    ):
        assert x.isfinite().all(), name
        assert (x == x.flatten()[0]).all() == (right == right.flatten()[0]).all(), name
        if hasattr(made, "reset_parameters"):
            assert x.abs().max() <= 2 * max(1, right.abs().max()), name
            assert (x == 0).all() == (right == 0).all(), name


# What can be asked for besides


@duty("dropout")
def test_dropout_in_training_only(entry):
    inputs, is_causal = entry.drawn(N), entry.ways()[-1]
    if "state" in entry.absent:  # a function
        module = entry.module()
        run = functools.partial(entry.call, module, inputs, is_causal=is_causal)
        assert not run(dropout=0.5).equal(run(dropout=0.5))
        assert run(dropout=0.0).equal(run())
        return
    module = entry.module(dropout=0.5).train()
    run = functools.partial(entry.call, module, inputs, is_causal=is_causal)
    assert not run().equal(run())
    module.eval()
    expected = run()
    assert run().equal(expected)
    module.dropout = 0.0
    near(entry, module.train()(*inputs, is_causal=is_causal), expected)


@duty("weights")
def test_weights_are_shares(entry):
    module, inputs = entry.module(), entry.drawn(N)
    for is_causal in entry.ways():
        options = {} if is_causal == entry.default else {"is_causal": is_causal}
        if entry.name == "relative_attention()":
            output, weights = module(*inputs, **options)
        else:
            output, weights = module(*inputs, return_weights=True, **options)
        output = output[0] if isinstance(output, tuple) else output
        assert weights.shape[-2:] == (N, N)
        sums, one = weights.sum(-1), torch.ones(weights.shape[:-1], dtype=entry.dtype)
        if entry.weights == SHARES_OR_LESS:
            assert sums.max() < 1 + 1e-5
            assert sums.min() < 1 - 1e-3, f"they sum to one: leave out weights= of {entry.name}"
        else:
            how = f'the entry of {entry.name} may say weights="{SHARES_OR_LESS}"'
            near(entry, sums, one, msg=f"rows sum to {sums.flatten()[:5].tolist()}; {how}")
        assert (weights > 0).equal(entry.seen(N, N, is_causal).expand(weights.shape))
        near(entry, output, entry.call(module, inputs, is_causal=is_causal))


@duty("positions")
def test_given_positions_can_be_the_usual_ones(entry):
    module, inputs, is_causal = entry.module(), entry.drawn(N), entry.ways()[-1]
    x, positions = entry.alone(inputs), torch.arange(N)
    if isinstance(module, Function):  # of queries and of keys
        positions = positions, positions
    usual = entry.call(module, x, is_causal=is_causal)
    given = entry.call(module, x, is_causal=is_causal, positions=positions)
    near(entry, given, usual)


@duty("cache")
def test_token_by_token_is_the_full_pass(entry):
    module, inputs = entry.module(), entry.drawn(N)
    x = entry.alone(inputs)
    if not entry.caches:
        entry.call(module, x, cache=None)
    for make in entry.caches:
        expected, cache = entry.call(module, x, is_causal=True), make()
        named = {"caches" if isinstance(cache, list) else "cache": cache}
        parts = [slice(0, 5), slice(5, 6), slice(6, 9), *(slice(i, i + 1) for i in range(9, N))]
        outputs = [entry.call(module, (x[0][:, part],), is_causal=True, **named) for part in parts]
        near(entry, torch.cat(outputs, dim=1), expected)


@duty("trace")
def test_a_trace_goes_from_the_input_to_the_output(entry):
    module, is_causal = entry.module(), entry.ways()[-1]
    (x,) = entry.drawn(N)[:1]
    options = {} if is_causal == entry.default else {"is_causal": is_causal}
    traced = trace(module, x, **options)
    names = [step.name for step in traced]
    assert names[0] == "query"
    assert len(set(names)) == len(names)
    assert names.index("split q") < len(names) - 3
    attending = [thing for thing in entry.of if inspect.isfunction(thing)]
    how = "; ".join(how_to_trace(thing) for thing in attending if thing.__code__ not in STEPS)
    ends = ["mix", "merge", "out_proj"], ["heads", "merge", "out_proj"]
    assert names[-3:] in ends, f"the trace of {entry.name} ends in {names[-3:]}. {how}"
    if entry.can("weights"):
        assert names.index("weights") < names.index("mix" if "mix" in names else "heads")
        assert "scores" in names or entry.name == "vectors"  # whose scores come block by block
        weights = module(x, return_weights=True, **options)[1]
        near(entry, traced["weights"].tensor, weights)
    near(entry, traced["out_proj"].tensor, entry.call(module, (x,), is_causal=is_causal))


# Counts


def cost_of(entry, kind, tokens, is_causal):
    sizes = {"kv_lora_rank": 8, "qk_rope_head_dim": 4, "v_head_dim": 7, "max_distance": REACH}
    sizes |= {"window": WINDOW, "stride": STRIDE, "block": entry.block, "batch": B}
    head_dim = 5 if "kv_a_proj" in dict(entry.make().named_children()) else D
    sizes |= {"embed_dim": E, "num_heads": H, "head_dim": head_dim}
    return LayerCost(kind=kind, tokens=tokens, is_causal=is_causal, **sizes)


def self_attention(entry, tokens):
    return entry.make(), torch.randn(B, tokens, E)


@duty("flops")
def test_flops_are_those_of_the_closed_form(entry):
    for kind, options in entry.kinds().items():
        for is_causal in entry.ways():
            cost = cost_of(entry, kind, N, is_causal)
            module, x = self_attention(entry, N)
            with torch.no_grad():
                found = measure_flops(functools.partial(module, is_causal=is_causal, **options), x)
            assert found.total == cost.forward_flops
            assert cost.visible_core_flops <= cost.core_flops


@duty("peaks")
def test_peaks_are_those_that_are_counted(entry):
    """But for buffers that do not grow with the tokens."""
    for kind, options in entry.kinds().items():
        is_causal, tokens = entry.ways()[-1], MAX
        cost = cost_of(entry, kind, tokens, is_causal)
        module, x = self_attention(entry, tokens)
        run = functools.partial(module, x, is_causal=is_causal, **options)
        with torch.no_grad():
            run()
            more = peak_bytes(run) - peak_activation_bytes(cost)
        assert 0 <= more < 2**23

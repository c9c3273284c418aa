# %%
# --8<-- [start:setup]
import functools
import math
import time

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from mhattn import HEAD_COLORS, MultiHeadAttention, table

torch.set_num_threads(1)  # for matrices this small, more threads are slower


def new_layer(E, H, seed=0):
    torch.manual_seed(seed)
    return MultiHeadAttention(E, H, bias=False)


# --8<-- [end:setup]


# %%
# --8<-- [start:loops]
def refused(*inputs, **options):
    raise AssertionError("this is the layer's own call")


@torch.no_grad()
def test_loops(by_loops):
    for B, L, E, H in [(2, 5, 21, 3), (1, 1, 12, 2), (3, 7, 20, 5)]:
        layer, x = new_layer(E, H), torch.randn(B, L, E)
        expected = layer(x, is_causal=True)
        layer.forward = refused
        found = by_loops(layer, x)
        shape = tuple(found.shape)
        assert shape == (B, L, E), f"got shape {shape}, expected {(B, L, E)}"
        far = (found - expected).abs().amax(dim=(0, 2))  # of each token
        token = far.argmax() + 1
        wrong = f"{H} heads: token {token} is off by {far.max():.2f}"
        assert far.max() < 1e-4, wrong
    print("passed")


# --8<-- [end:loops]


# %%
# --8<-- [start:loops-solution]
def by_loops(layer, x):
    """One token, one head at a time: (B, L, E) to (B, L, E)."""
    H, D = layer.num_heads, layer.head_dim
    outputs = []
    for i in range(x.shape[1]):
        heads = []
        for h in range(H):
            own = slice(h * D, h * D + D)  # the head's rows
            one, seen = x[:, i : i + 1], x[:, : i + 1]
            query = one @ layer.q_proj.weight[own].T  # (B, 1, D)
            key = seen @ layer.k_proj.weight[own].T  # (B, i + 1, D)
            value = seen @ layer.v_proj.weight[own].T
            scores = query @ key.mT / math.sqrt(D)  # (B, 1, i + 1)
            heads.append(scores.softmax(dim=-1) @ value)  # (B, 1, D)
        outputs.append(torch.cat(heads, dim=-1) @ layer.out_proj.weight.T)
    return torch.cat(outputs, dim=1)


test_loops(by_loops)
# --8<-- [end:loops-solution]


# %%
# --8<-- [start:misplaced]
def transposed(x, H):
    return x.unflatten(-1, (H, -1)).transpose(1, 2)


def by_view(x, H):
    return x.view(x.shape[0], H, x.shape[1], -1)


def in_turn(x, H):  # feature 1 of every head, then feature 2
    return x.unflatten(-1, (-1, H)).permute(0, 3, 1, 2)


def backwards(x, H):
    return transposed(x, H).flip(1)


def test_misplaced(misplaced):
    """The shares are known: two orders agree at gcd + 1 places."""
    for L, H, D in [(5, 3, 7), (7, 4, 5), (4, 4, 2), (1, 6, 3)]:
        expected = {
            transposed: 0,
            in_turn: 1 - (math.gcd(H - 1, D - 1) + 1) / (H * D),
            backwards: 1 - H % 2 / H,
            by_view: 1 - (math.gcd(L - 1, H - 1) + 1) / (L * H),
        }
        for split, share in expected.items():
            found = float(misplaced(split, 2, L, H, D))
            wrong = f"{split.__name__}, L = {L}, H = {H}, D = {D}: "
            wrong += f"got {found:.3f}, expected {share:.3f}"
            assert abs(found - share) < 1e-5, wrong
    print("passed")


# --8<-- [end:misplaced]


# %%
# --8<-- [start:misplaced-solution]
def misplaced(split, B, L, H, D):
    """The share of numbers that a split puts at a wrong place."""
    x = torch.arange(B * L * H * D).view(B, L, H * D)  # all different
    heads = split(x, H)  # (B, H, L, D)
    wrong = 0
    for h in range(H):
        own = x[:, :, h * D : h * D + D]  # (B, L, D)
        wrong += (heads[:, h] != own).sum().item()
    return wrong / x.numel()


test_misplaced(misplaced)
# --8<-- [end:misplaced-solution]

# %%
# --8<-- [start:view]
lengths = [1, 2, 4, 8, 16]
shares = [misplaced(by_view, 1, L, 4, 8) for L in lengths]
columns = [f"L = {L}" for L in lengths]
print(table([shares], ["wrong after a view"], columns))
assert shares[0] == 0
assert min(shares[1:]) > 0.7
# --8<-- [end:view]

# %%
# --8<-- [start:example]
x = torch.arange(3 * 2).view(1, 3, 2)  # three tokens, two heads of size 1
print("by view:   ", by_view(x, 2)[0, :, :, 0].tolist())
print(f"transposed: {transposed(x, 2)[0, :, :, 0].tolist()}")
# --8<-- [end:example]


# %%
# --8<-- [start:at-once]
def formula(query, key, value):
    """Causal attention, as it is written down: (B, H, L, D)."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])  # (B, H, L, L)
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    weights = scores.masked_fill(~seen, -math.inf).softmax(dim=-1)
    return weights @ value


fused = functools.partial(F.scaled_dot_product_attention, is_causal=True)


@torch.no_grad()
def test_at_once(at_once):
    for attend, name in [(formula, "the formula"), (fused, "fused")]:
        for B, L, E, H in [(2, 5, 21, 3), (3, 7, 20, 5)]:
            layer, x = new_layer(E, H), torch.randn(B, L, E)
            shapes = []

            def watched(query, key, value, attend=attend, shapes=shapes):
                shapes.append(tuple(query.shape))
                return attend(query, key, value)

            found = at_once(layer, x, watched)
            expected = by_loops(layer, x)
            assert shapes == [(B, H, L, E // H)], f"called with {shapes}"
            shape, size = tuple(found.shape), (B, L, E)
            assert shape == size, f"got shape {shape}, expected {size}"
            far = (found - expected).abs().max().item()
            assert far < 1e-4, f"{name}, {H} heads: off by {far:.2f}"
    print("passed")


# --8<-- [end:at-once]


# %%
# --8<-- [start:at-once-solution]
def at_once(layer, x, attend):
    """All heads and all tokens in one call of attend."""
    query, key, value = (
        transposed(proj(x), layer.num_heads)  # (B, H, L, D)
        for proj in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    heads = attend(query, key, value)  # (B, H, L, D)
    return layer.out_proj(heads.transpose(1, 2).flatten(2))


test_at_once(at_once)
# --8<-- [end:at-once-solution]

# %%
# --8<-- [start:leak]
merges = {
    "transposed back": lambda heads: heads.transpose(1, 2).flatten(2),
    "viewed back": lambda heads: heads.contiguous().view(1, 8, 16),
}
layer, x = new_layer(16, 4), torch.randn(1, 8, 16)
moved = {}
for name, merged in merges.items():
    for token in (1, 8):
        other = x.clone()
        other[:, token - 1] += 1  # only this token changes
        outputs = []
        for each in (x, other):
            projs = layer.q_proj, layer.k_proj, layer.v_proj
            heads = fused(*(by_view(proj(each), 4) for proj in projs))
            outputs.append(layer.out_proj(merged(heads)))  # (B, L, E)
        far = (outputs[1] - outputs[0]).abs().amax(dim=(0, 2))
        moved[name, token] = [n + 1 for n in range(8) if far[n] > 1e-3]
        print(f"{name}: token {token} moves", *moved[name, token])
assert moved["transposed back", 8] != [8]
assert moved["viewed back", 8] == [8]
assert moved["viewed back", 1] == [1, 2]
# --8<-- [end:leak]


# %%
# --8<-- [start:apart]
def batched(layer, x):
    return at_once(layer, x, formula)


def in_kernel(layer, x):
    return at_once(layer, x, fused)


def half(x):
    """The same numbers with half of the gradient."""
    return x.detach() + (x - x.detach()) / 2


def half_of_weights(layer, x):
    weights = {name: half(each) for name, each in layer.named_parameters()}
    call = torch.func.functional_call
    return call(layer, weights, (x,), {"is_causal": True})


def more_of_spread(layer, x):
    """A wrong gradient that sums to zero."""
    y = batched(layer, x)
    spread = y - y.mean(dim=-1, keepdim=True)
    return y + 3 * (spread - spread.detach())


def one_number(answer):
    size = torch.as_tensor(answer).numel()
    assert size == 1, f"got {size} numbers, expected one"
    return float(answer)


def test_apart(apart):
    layer, x = new_layer(21, 3), torch.randn(2, 5, 21)
    for way in (batched, in_kernel):
        found = one_number(apart(by_loops, way, layer, x))
        wrong = f"by_loops and {way.__name__} are {found:.4f} apart"
        assert found < 1e-4, wrong
    others = {
        "one percent more": lambda layer, x: 1.01 * batched(layer, x),
        "half of x's gradient": lambda layer, x: batched(layer, half(x)),
        "half of the weights' gradient": half_of_weights,
        "a gradient that sums to zero": more_of_spread,
    }
    for name, way in others.items():
        found = one_number(apart(batched, way, layer, x))
        assert found > 1e-3, f"{name}: only {found:.4f} apart"
    print("passed")


# --8<-- [end:apart]


# %%
# --8<-- [start:apart-solution]
def apart(one, other, layer, x):
    """How far outputs and gradients are apart, over the largest."""
    found = []
    for way in (one, other):
        given = x.clone().requires_grad_()
        output = way(layer, given)
        wanted = [given, *layer.parameters()]
        slopes = torch.autograd.grad(output.square().sum(), wanted)
        found.append([output.detach(), *slopes])
    pairs = zip(*found, strict=True)
    return max((a - b).abs().max() / a.abs().max() for a, b in pairs)


test_apart(apart)
# --8<-- [end:apart-solution]


# %%
# --8<-- [start:launched]
def memory(found):
    """The pieces of memory in which the tensors of a list lie."""
    if isinstance(found, torch.Tensor):
        return {found.untyped_storage().data_ptr()}
    if isinstance(found, list | tuple):
        return set().union(*map(memory, found))
    return set()


class Watch(TorchDispatchMode):
    """Sees every operation that torch starts, and lets it pass."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        # Here args and the result are known.
        return result


def test_launched(launched):
    a, b = torch.randn(2, 6, 6)
    heads = torch.randn(3, 1, 2, 5, 4)
    cases = {
        "one product": (lambda: a @ b, 1),
        "views only": (lambda: a.view(2, 3, 6).transpose(0, 1).mT, 0),
        "product, softmax, sum": (lambda: (a @ b).softmax(-1).sum(), 3),
        "a view that is copied": (lambda: a.T.contiguous(), 1),
        "seven products": (lambda: [a @ b for _ in range(7)], 7),
        "a product of four axes": (lambda: heads[0] @ heads[1].mT, 1),
        "the fused kernel": (lambda: fused(*heads), 1),
    }
    for name, (function, expected) in cases.items():
        with torch.no_grad():
            found = launched(function)
        wrong = f"{name}: got {found}, expected {expected}"
        assert found == expected, wrong
    print("passed")


# --8<-- [end:launched]


# %%
# --8<-- [start:launched-solution]
class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        if not memory(result) <= memory(args):  # a view makes nothing new
            self.count += 1
        return result


def launched(function):
    """How many operations compute something while a function runs."""
    with Count() as counter:
        function()
    return counter.count


test_launched(launched)
# --8<-- [end:launched-solution]


# %%
# --8<-- [start:counts]
def head_by_head(query, key, value):
    """A loop over heads alone; all tokens of a head at once."""
    split = [each.split(1, dim=1) for each in (query, key, value)]
    heads = [formula(*head) for head in zip(*split, strict=True)]
    return torch.cat(heads, dim=1)


ways = {
    "a loop over tokens and heads": by_loops,
    "a loop over heads": lambda layer, x: at_once(layer, x, head_by_head),
    "all at once": batched,
    "the fused kernel": in_kernel,
}
layer, x = new_layer(32, 4), torch.randn(2, 16, 32)
for way in ways.values():
    assert apart(by_loops, way, layer, x) < 1e-4  # one function

sizes = [(16, 2), (16, 4), (16, 8), (32, 8)]  # tokens and heads
counts = []
for way in ways.values():
    counts.append([])
    for L, H in sizes:
        call = functools.partial(way, new_layer(32, H), torch.randn(2, L, 32))
        with torch.no_grad():
            counts[-1].append(launched(call))
columns = [f"{L} tokens, {H} heads" for L, H in sizes]
print(table(counts, list(ways), columns))
loops, heads, together, kernel = counts
assert len(set(together)) == len(set(kernel)) == 1  # whatever the size
assert loops[0] > 5 * together[0] > 5 * kernel[0]
assert loops[3] > 1.8 * loops[2]  # twice the tokens
assert heads[3] == heads[2]
# --8<-- [end:counts]


# %%
# --8<-- [start:times]
@torch.no_grad()
def seconds(way, layer, x):
    """Processor time of one call; other programs don't count."""
    calls, start = 0, time.process_time()
    while time.process_time() < start + 0.3:
        way(layer, x)
        calls += 1
    return (time.process_time() - start) / calls


layer, x = new_layer(32, 8), torch.randn(2, 32, 32)
took = {name: seconds(way, layer, x) for name, way in ways.items()}
fastest = took["the fused kernel"]
slower = {name: each / fastest for name, each in took.items()}
for name, times in {
    "a loop over tokens and heads": 20,
    "a loop over heads": 1.5,
}.items():
    assert slower[name] > times
    print(f"{name}: more than {times} times as long")
# --8<-- [end:times]


# %%
# --8<-- [start:step]
@torch.no_grad()
def test_step(step):
    for B, L, E, H in [(2, 5, 21, 3), (3, 9, 20, 5)]:
        layer, x = new_layer(E, H), torch.randn(B, L, E)
        keys, values, outputs = [], [], []
        with FlopCounterMode(display=False) as counter:
            for token in x.split(1, dim=1):  # (B, 1, E) each
                outputs.append(step(layer, token, keys, values))
        found = torch.cat(outputs, dim=1)
        shape = tuple(found.shape)
        assert shape == (B, L, E), f"got shape {shape}, expected {(B, L, E)}"
        far = (found - at_once(layer, x, fused)).abs().amax(dim=(0, 2))
        token = far.argmax() + 1
        wrong = f"token {token} of {L} is off by {far.max():.2f}"
        assert far.max() < 1e-4, wrong
        most = 2 * B * E * L * (4 * E + L + 1)  # each key is computed once
        flops = counter.get_total_flops()
        assert flops <= most, f"{flops:,} FLOPs, {most:,} are enough"
    print("passed")


# --8<-- [end:step]


# %%
# --8<-- [start:step-solution]
def step(layer, token, keys, values):
    """The next token: (B, 1, E) to (B, 1, E); the two lists grow."""
    H = layer.num_heads
    query = transposed(layer.q_proj(token), H)  # (B, H, 1, D)
    keys.append(transposed(layer.k_proj(token), H))
    values.append(transposed(layer.v_proj(token), H))
    key, value = torch.cat(keys, dim=2), torch.cat(values, dim=2)
    scores = query @ key.mT / math.sqrt(layer.head_dim)  # (B, H, 1, i + 1)
    heads = scores.softmax(dim=-1) @ value  # (B, H, 1, D)
    return layer.out_proj(heads.transpose(1, 2).flatten(2))


test_step(step)
# --8<-- [end:step-solution]


# %%
# --8<-- [start:record]
class Record(TorchDispatchMode):
    """Notes what each operation reads and writes; views are left out."""

    def __init__(self):
        super().__init__()
        self.steps, self.kept = [], []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        reads, writes = memory(args), memory(result)
        if not writes <= reads:
            self.steps.append((reads, writes))
        self.kept.append((args, result))  # so that no memory is used twice
        return result


@torch.no_grad()
def record(function):
    with Record() as notes:
        function()
    return notes.steps


x = torch.randn(2, 4, 21)
layer = new_layer(21, 3)
steps = record(lambda: in_kernel(layer, x))
assert len(steps) == launched(lambda: in_kernel(layer, x))
# --8<-- [end:record]


# %%
# --8<-- [start:chain]
def test_chain(longest_chain):
    """Letters stand for memory: an operation reads some, writes others."""
    cases = {
        "nothing": ([], 0),
        "one after the other": (["a>b", "b>c", "c>d"], 3),
        "side by side": (["a>b", "a>c", "a>d"], 1),
        "two joined": (["a>b", "a>c", "bc>d"], 2),
        "two chains, in turn": (["a>b", "c>d", "b>e", "d>f", "e>g"], 3),
        "the last is no end": (["a>b", "b>c", "c>d", "a>e"], 3),
        "long and short": (["a>b", "b>c", "a>d", "cd>e", "ad>f"], 3),
        "two results": (["a>bc", "c>d", "b>e", "e>f"], 3),
    }
    for name, (arrows, expected) in cases.items():
        sides = [arrow.split(">") for arrow in arrows]
        found = longest_chain([(set(a), set(b)) for a, b in sides])
        wrong = f"{name}: got {found}, expected {expected}"
        assert found == expected, wrong
    print("passed")


# --8<-- [end:chain]


# %%
# --8<-- [start:chain-solution]
def longest_chain(steps):
    """How many operations must wait for one another."""
    ready = {}  # memory: length of the longest chain that ends there
    for reads, writes in steps:
        before = max((ready.get(each, 0) for each in reads), default=0)
        ready.update(dict.fromkeys(writes, before + 1))
    return max(ready.values(), default=0)


test_chain(longest_chain)
# --8<-- [end:chain-solution]


# %%
# --8<-- [start:waiting]
def replayed(layer, x):
    """Token by token, although all are known."""
    keys, values = [], []
    outputs = [step(layer, one, keys, values) for one in x.split(1, dim=1)]
    return torch.cat(outputs, dim=1)


def written(layer, x):
    """As many tokens, but each is what the one before gave."""
    keys, values, tokens = [], [], [x[:, :1]]
    for _ in range(x.shape[1]):
        tokens.append(step(layer, tokens[-1], keys, values))
    return torch.cat(tokens[1:], dim=1)


ways |= {"with a cache": replayed, "writing": written}
rows, sizes = [], [(2, 8, 2), (2, 8, 8), (8, 8, 2), (2, 16, 2)]  # B, L, H
for way in ways.values():
    rows.append([])
    for B, L, H in sizes:
        call = functools.partial(way, new_layer(32, H), torch.randn(B, L, 32))
        rows[-1].append(longest_chain(record(call)))
columns = ["2 texts, 8 tokens, 2 heads", "8 heads", "8 texts", "16 tokens"]
print(table(rows, list(ways), columns))
for row in rows[:-1]:
    assert len(set(row)) == 1  # no size makes anything wait longer
assert len(set(rows[-1][:3])) == 1  # nor do heads and texts here
assert rows[-1][3] > 1.8 * rows[-1][0]  # but tokens do
# --8<-- [end:waiting]

# %%
# --8<-- [start:waiting-figure]
lengths, layer = [1, 2, 4, 8, 16, 32], new_layer(32, 4)
shown = ["a loop over tokens and heads", "all at once", "writing"]
size = {"figsize": (4.2, 2.9), "layout": "constrained"}
figure, axes = plt.subplots(1, 2, **size)
looks = zip(HEAD_COLORS, ["^-", "o-", "s--"], [4, 1.5, 1.5], strict=False)
for name, (color, line, width) in zip(shown, looks, strict=True):
    notes = []
    for L in lengths:
        x = torch.randn(2, L, 32)
        steps = record(functools.partial(ways[name], layer, x))
        notes.append((len(steps), longest_chain(steps)))
    for ax, curve in zip(axes, zip(*notes, strict=True), strict=True):
        look = {"color": color, "lw": width, "ms": width + 3}
        ax.plot(lengths, curve, line, label=name, **look)
for ax, title in zip(axes, ["operations", "longest chain"], strict=True):
    ax.set(title=title, xlabel="tokens", xscale="log", yscale="log")
    ax.set(ylim=(2, 2000), ylabel="number")
    ax.set_xticks([1, 4, 16], ["1", "4", "16"])
    ax.set_yticks([10, 100, 1000], ["10", "100", "1000"])
    ax.minorticks_off()
lines = axes[0].get_lines()
figure.legend(handles=lines, loc="outside upper center")
# --8<-- [end:waiting-figure]

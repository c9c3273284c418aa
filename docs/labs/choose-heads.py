# %%
# --8<-- [start:setup]
import copy

import matplotlib.pyplot as plt
import torch
from torch.utils.flop_counter import FlopCounterMode

from mhattn import COLORS, MultiHeadAttention, attention_weights, table
from mhattn.lessons import GatherModel, balanced, linked_tokens, train_models

torch.set_num_threads(1)  # for matrices this small, more threads are slower
torch.set_default_dtype(torch.float64)  # enough for machines to agree
# --8<-- [end:setup]


# %%
# --8<-- [start:cost]
def test_cost(cost):
    """Compares with real layers, as they are built and called."""
    names = ["parameters", "multiplications", "weights"]
    for E, H, D, L in [(24, 3, 8, 5), (24, 6, 4, 7), (10, 3, 7, 11)]:
        layer = MultiHeadAttention(E, H, head_dim=D, bias=False)
        with FlopCounterMode(display=False) as counter:
            _, weights = layer(torch.zeros(1, L, E), return_weights=True)
        expected = [
            sum(each.numel() for each in layer.parameters()),
            counter.get_total_flops() // 2,
            weights.numel(),
        ]
        found = zip(names, cost(E, H, D, L), expected, strict=True)
        for name, one, other in found:
            wrong = f"{name}, H = {H}, D = {D}: "
            wrong += f"got {one:,}, expected {other:,}"
            assert one == other, wrong
    print("passed")


# --8<-- [end:cost]


# %%
# --8<-- [start:cost-solution]
def cost(E, H, D, L):
    """Parameters, multiplications and attention weights of a layer."""
    parameters = 4 * E * H * D  # W_q, W_k, W_v, W_o
    products = 2 * L * L * H * D  # scores, and the mix of values
    return parameters, L * parameters + products, H * L * L


test_cost(cost)
# --8<-- [end:cost-solution]

# %%
# --8<-- [start:counted]
shapes = [(1, 64), (4, 16), (16, 4), (64, 1), (4, 64)]  # (H, D)
rows = [cost(64, H, D, 128) for H, D in shapes]
names = [f"{H} x {D}" for H, D in shapes]
print(table(rows, names, ["parameters", "multiplications", "weights"]))
assert len({row[:2] for row in rows[:4]}) == 1  # one cost for a width of 64
# --8<-- [end:counted]


# %%
# --8<-- [start:ranks]
def test_ranks(score_ranks):
    """On layers some of whose heads are made weak."""
    torch.manual_seed(0)
    for E, H, D, L in [(20, 3, 5, 13), (24, 3, 12, 7)]:
        layer = MultiHeadAttention(E, H, head_dim=D).requires_grad_(False)
        layer.k_proj.weight[2:D] = 0  # two features of head 1 are left
        layer.q_proj.weight[D : 2 * D] = 0  # none of head 2
        found = score_ranks(layer, torch.randn(L, E))
        got = tuple(found.shape)
        assert got == (H,), f"got shape {got}, expected {(H,)}"
        expected = [2, 0, min(D, L)]
        wrong = f"got {found.tolist()}, expected {expected}"
        assert found.tolist() == expected, wrong
    print("passed")


# --8<-- [end:ranks]


# %%
# --8<-- [start:ranks-solution]
def score_ranks(layer, x):
    """The rank of each head's scores: from (L, E) to (H,)."""
    sizes = (layer.num_heads, layer.head_dim)
    query, key = (
        proj(x).unflatten(-1, sizes).transpose(0, 1)  # (H, L, D)
        for proj in (layer.q_proj, layer.k_proj)
    )
    return torch.linalg.matrix_rank(query @ key.mT)


test_ranks(score_ranks)
# --8<-- [end:ranks-solution]

# %%
# --8<-- [start:rank-table]
torch.manual_seed(1)
x = torch.randn(24, 64)  # (L, E)
head_counts = [1, 4, 8, 16, 64]
ranks = [score_ranks(MultiHeadAttention(64, H), x) for H in head_counts]
for H, found in zip(head_counts, ranks, strict=True):
    assert found.eq(min(24, 64 // H)).all()  # the same for every head
rows = [[24, 64 // H, ranks[n].max()] for n, H in enumerate(head_counts)]
names = [f"{H} x {64 // H}" for H in head_counts]
print(table(rows, names, ["tokens", "head size", "rank"]))
# --8<-- [end:rank-table]


# %%
# --8<-- [start:reach]
def test_reach(reach):
    """On maps whose keys are counted by hand."""
    own = torch.eye(6)  # each looks at itself: six keys
    one = torch.zeros(6, 6).index_fill(1, torch.tensor([3]), 1.0)
    even = torch.full((6, 6), 1 / 6)  # nobody is singled out
    two = torch.zeros(6, 6)
    two[:, 1] = two[:, 4] = 1 / 2  # half is not more than half
    three = torch.zeros(6, 6)
    three[torch.arange(6), torch.tensor([0, 0, 2, 2, 5, 5])] = 0.6
    three[:, 1] = 0.4
    first = torch.stack([own, one, even, two, three])
    maps = torch.stack([first, first.flip(0)])  # (B, H, L, S)
    found = reach(maps)
    got = tuple(found.shape)
    assert got == (5,), f"got shape {got}, expected (5,)"
    expected = [4.5, 0.5, 0.0, 0.5, 4.5]
    for head, (one, other) in enumerate(zip(found, expected, strict=True)):
        wrong = f"head {head + 1}: got {one:.2f}, expected {other:.2f}"
        assert abs(one - other) < 1e-5, wrong
    print("passed")


# --8<-- [end:reach]


# %%
# --8<-- [start:reach-solution]
def reach(weights):
    """How many keys a head gives most of a row: (B, H, L, S) to (H,)."""
    chosen = (weights > 0.5).any(dim=-2)  # by some query: (B, H, S)
    return chosen.sum(dim=-1).double().mean(dim=0)


test_reach(reach)
# --8<-- [end:reach-solution]

# %%
# --8<-- [start:random-reach]
torch.manual_seed(2)
rows, head_dims = [], [1, 2, 4, 8]
for D in head_dims:
    query, key = torch.randn(50, 1, 400, D), torch.randn(50, 1, 12, D)
    weights = attention_weights(50 * query, key)  # sharp
    each = torch.cat([reach(one[None]) for one in weights])  # (50,)
    rows.append([each.mean(), each.max()])
names = [f"D = {D}" for D in head_dims]
print(table(rows, names, ["mean", "most"], digits=1))
assert rows[0][1] == 2
# --8<-- [end:random-reach]


# %%
# --8<-- [start:needed]
def test_needed(least_error):
    """Heads that know their sources, with the best matrix behind them."""
    torch.manual_seed(3)
    sizes = [(1, 5, 3, 2), (2, 3, 5, 4), (4, 1, 3, 2), (7, 4, 3, 2)]
    for H, D, R, k in sizes:
        weights, values = torch.rand(H, R), torch.randn(H, D, k)
        handed = torch.einsum("hr,hdk->hdrk", weights, values)
        handed = handed.reshape(H * D, R * k)  # from all numbers wanted
        left = torch.eye(R * k) - torch.linalg.pinv(handed) @ handed
        expected = left.square().sum().item() / (R * k)
        found = float(least_error(H, D, R, k))
        wrong = f"H = {H}, D = {D}, R = {R}, k = {k}: "
        wrong += f"got {found:.2f}, expected {expected:.2f}"
        assert abs(found - expected) < 1e-5, wrong
    print("passed")


# --8<-- [end:needed]


# %%
# --8<-- [start:needed-solution]
def least_error(H, D, R, k):
    """The share of what is wanted that can't pass through the heads."""
    passed = H * min(D, k)  # a head mixes k numbers, and has room for D
    return max(0.0, 1 - passed / (R * k))


test_needed(least_error)
# --8<-- [end:needed-solution]

# %%
# --8<-- [start:predicted]
shapes = [(1, 12), (2, 6), (3, 4), (6, 2), (12, 1)]  # (H, D)
bounds = {(H, D): least_error(H, D, R=3, k=2) for H, D in shapes}
names = [f"{H} x {D}" for H, D in shapes]
print(table([list(bounds.values())], ["error at least"], names))
# --8<-- [end:predicted]


# %%
# --8<-- [start:train]
def draw(batch):
    """Each of 12 tokens needs 2 numbers of each of 3 others."""
    return linked_tokens(batch, length=12, num_links=2, content_dim=2)


def trained(H, D, lr):
    """Three models, and the error of each after 400 steps."""
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = GatherModel(36, H, 6, head_dim=D, content_dim=2)
        models.append(model)
    errors = train_models(
        models,
        draw,
        kept,
        steps=400,
        lr=lr,
        batch=8,
        every=400,
    )
    return models, errors[-1]


torch.manual_seed(4)
kept = balanced(draw(4))
rates = [0.02, 0.06]
runs = {shape: {lr: trained(*shape, lr) for lr in rates} for shape in shapes}
errors = {shape: {lr: runs[shape][lr][1] for lr in rates} for shape in shapes}
# --8<-- [end:train]


# %%
# --8<-- [start:best]
def test_best(at_best):
    """On errors that are made up."""
    given = {
        (1, 12): {0.1: [0.5, 0.6, 0.7], 0.2: [0.8, 0.1, 0.9]},  # one lucky
        (2, 6): {0.1: [0.3, 0.3, 0.3], 0.2: [0.1, 0.1, 9.0]},  # one not
        (3, 4): {0.1: [0.4, 0.5, 0.3], 0.2: [0.2, 0.6, 0.3]},
    }
    given = {
        shape: {lr: torch.tensor(each) for lr, each in tried.items()}
        for shape, tried in given.items()
    }
    found = at_best(given)
    wrong = f"got shapes {list(found)}, expected {list(given)}"
    assert list(found) == list(given), wrong
    for shape, expected in zip(given, [0.1, 0.2, 0.2], strict=True):
        lr, errors = found[shape]
        wrong = f"{shape}: got rate {lr}, expected {expected}"
        assert lr == expected, wrong
        same = torch.equal(errors, given[shape][lr])
        assert same, f"{shape}: got the errors {errors.tolist()}"
    print("passed")


# --8<-- [end:best]


# %%
# --8<-- [start:best-solution]
def at_best(errors):
    """Of each shape the rate of the least median error, and its errors."""
    best = {}
    for shape, tried in errors.items():
        lr = min(tried, key=lambda lr: tried[lr].median())
        best[shape] = lr, tried[lr]
    return best


test_best(at_best)
# --8<-- [end:best-solution]

# %%
# --8<-- [start:found]
best = at_best(errors)
rows = []
for shape, (lr, each) in best.items():
    rows.append([bounds[shape], each.median(), each.min(), each.max(), lr])
    assert (each > bounds[shape]).all()  # no training gets below it
columns = ["at least", "median", "best", "worst", "rate"]
print(table(rows, names, columns))
ends = {shape: each for shape, (_, each) in best.items()}
assert ends[3, 4].max() < 0.01
for H in (1, 2):
    assert ends[H, 12 // H].max() < bounds[H, 12 // H] + 0.02
assert ends[3, 4].max() + 0.02 < ends[6, 2].min()
assert ends[6, 2].max() + 0.3 < ends[12, 1].min()
# --8<-- [end:found]

# %%
# --8<-- [start:found-figure]
figure, ax = plt.subplots(figsize=(4.2, 2.8), layout="constrained")
for place, shape in enumerate(shapes):
    across = place + torch.linspace(-0.2, 0.2, 3)
    ax.plot(across, ends[shape], "o", color=COLORS["output"], ms=5)
    ends_of_line = (place - 0.4, place + 0.4)
    ax.hlines(bounds[shape], *ends_of_line, color="black", ls=":")
ax.plot([], [], "o", color=COLORS["output"], label="a trained model")
ax.plot([], [], color="black", ls=":", label="counted by hand")
ax.set_xticks(range(5), [f"{H} × {D}" for H, D in shapes])
ax.set(xlabel="heads × head size", ylabel="error", ylim=(-0.04, 0.85))
ax.legend(loc="upper center")
# --8<-- [end:found-figure]

# %%
# --8<-- [start:why]
torch.manual_seed(5)
some = draw(100)
rows = []
for shape, (lr, each) in best.items():
    model = runs[shape][lr][0][each.argmin()]
    with torch.no_grad():
        weights = model(*some[:2], return_weights=True)[1]
    found = reach(weights)  # of each head
    rows.append([found.mean(), found.max()])
print(table(rows, names, ["keys a head reaches", "most"], digits=0))
assert rows[-1][1] <= 2  # of one number
# --8<-- [end:why]

# %%
# --8<-- [start:control]
wide, wide_errors = trained(12, 4, lr=0.02)
print(f"12 heads of size 4: error {wide_errors.max():.1f} at most")
assert wide_errors.max() < 0.05
# --8<-- [end:control]

# %%
# --8<-- [start:odd]
for H, D in [(12, None), (12, 512 // 12), (12, 43)]:
    try:
        layer = MultiHeadAttention(512, H, head_dim=D)
        width = layer.q_proj.out_features
        print(f"head size {D}: {H} heads are {width} wide")
    except ValueError as error:
        print(error)
# --8<-- [end:odd]


# %%
# --8<-- [start:widen]
def test_widen(widened):
    torch.manual_seed(6)
    for E, H, D, wide in [(10, 3, 5, 8), (12, 4, 3, 3), (14, 2, 7, 16)]:
        layer = MultiHeadAttention(E, H, head_dim=D).requires_grad_(False)
        for proj in (layer.q_proj, layer.k_proj, layer.v_proj):
            proj.bias.copy_(torch.randn(H * D))
        given = copy.deepcopy(layer)
        found = widened(given, wide)
        got = found.num_heads, found.head_dim
        wrong = f"heads and their size: got {got}, expected {(H, wide)}"
        assert got == (H, wide), wrong
        x = 3 * torch.randn(2, 11, E)
        far = (found(x) - layer(x)).abs().max().item()
        assert far < 1e-5, f"from size {D} to {wide}: off by {far:.2f}"
        same = torch.equal(given(x), layer(x))
        assert same, "the given layer has changed"
    print("passed")


# --8<-- [end:widen]


# %%
# --8<-- [start:widen-solution]
@torch.no_grad()
def widened(layer, head_dim):
    """The same function with larger heads: the new features are zero."""
    E, H, D = layer.embed_dim, layer.num_heads, layer.head_dim
    wide = MultiHeadAttention(E, H, head_dim=head_dim, vdim=layer.vdim)
    for name in ("q_proj", "k_proj", "v_proj"):
        old, new = getattr(layer, name), getattr(wide, name)
        longer = (head_dim / D) ** 0.5 if name == "q_proj" else 1  # scale
        for one, other in [(old.weight, new.weight), (old.bias, new.bias)]:
            rows = other.zero_().unflatten(0, (H, head_dim))
            rows[:, :D] = longer * one.unflatten(0, (H, D))
    columns = wide.out_proj.weight.zero_().unflatten(1, (H, head_dim))
    columns[:, :, :D] = layer.out_proj.weight.unflatten(1, (H, D))
    wide.out_proj.bias.copy_(layer.out_proj.bias)
    return wide


test_widen(widened)
# --8<-- [end:widen-solution]

# %%
# --8<-- [start:padded]
layer = MultiHeadAttention(512, 12, head_dim=43)
wide = widened(layer, 48)  # the next multiple of 8
x = torch.randn(1, 20, 512)
assert (wide(x) - layer(x)).abs().max() < 1e-5
more = cost(512, 12, 48, 128)[0] / cost(512, 12, 43, 128)[0]
print(f"{more:.2f} times the parameters, the same output")

wide(x).square().sum().backward()
for name in ("q_proj", "v_proj"):
    rows = getattr(wide, name).weight.grad.unflatten(0, (12, 48))
    old, new = rows[:, :43].abs().max(), rows[:, 43:].abs().max()
    assert old > 1e-3
    assert new == 0
    print(f"{name}: the new features' gradient is {new:.0f}")

with torch.no_grad():  # one of each pair is no longer zero
    for proj in (wide.k_proj, wide.v_proj):
        proj.weight.unflatten(0, (12, 48))[:, 43:].normal_(std=0.1)
wide.zero_grad()
output = wide(x)
assert (output - layer(x)).abs().max() < 1e-5  # the same still
output.square().sum().backward()
learns = wide.q_proj.weight.grad.unflatten(0, (12, 48))[:, 43:]
assert learns.abs().max() > 1e-3
learns = wide.out_proj.weight.grad.unflatten(1, (12, 48))[:, :, 43:]
assert learns.abs().max() > 1e-3
# --8<-- [end:padded]

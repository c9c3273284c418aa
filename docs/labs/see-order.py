# %%
# --8<-- [start:setup]
import functools

import matplotlib.pyplot as plt
import torch

from mhattn import (
    HEAD_COLORS,
    Alibi,
    MultiHeadAttention,
    Rotary,
    sinusoidal_positions,
    table,
)

torch.set_num_threads(1)  # for matrices this small, more threads are slower
# --8<-- [end:setup]

# %%
# --8<-- [start:sentences]
words = ["dog", "bites", "man"]
torch.manual_seed(0)
vectors = {word: torch.randn(16) for word in words}
layer = MultiHeadAttention(16, 2).requires_grad_(False)


def output_of(word, sentence):
    x = torch.stack([vectors[each] for each in sentence])[None]  # (1, L, E)
    return layer(x)[0, sentence.index(word)]


one = output_of("bites", ["dog", "bites", "man"])
other = output_of("bites", ["man", "bites", "dog"])
print(f"who bites whom changes {(one - other).abs().max():.1f}")
assert (one - other).abs().max() < 1e-5
# --8<-- [end:sentences]


# %%
# --8<-- [start:blind]
def one_number(answer):
    size = torch.as_tensor(answer).numel()
    assert size == 1, f"got {size} numbers, expected one"
    return float(answer)


def test_blind(sees_order):
    """Blind layers, and layers that see the order in several ways."""
    torch.manual_seed(1)
    for E, H in [(16, 2), (24, 3)]:
        plain = MultiHeadAttention(E, H).requires_grad_(False)
        found = one_number(sees_order(plain, E))
        wrong = f"without positions a new order changes {found:.3f}"
        assert found < 1e-5, wrong
        for position in (Rotary(8), Alibi(H)):
            seeing = MultiHeadAttention(E, H, position=position)
            seeing.requires_grad_(False)
            found = one_number(sees_order(seeing, E))
            kind = type(position).__name__
            wrong = f"with {kind} a new order changes only {found:.1e}"
            assert found > 1e-3, wrong
        causal = functools.partial(plain, is_causal=True)
        found = one_number(sees_order(causal, E))
        wrong = f"with a causal mask a new order changes only {found:.1e}"
        assert found > 1e-3, wrong
    print("passed")


# --8<-- [end:blind]


# %%
# --8<-- [start:blind-solution]
def sees_order(layer, E):
    """How much more than the order of outputs a new order changes."""
    x = torch.randn(2, 7, E)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    return (layer(x[:, order]) - layer(x)[:, order]).abs().max()


test_blind(sees_order)
# --8<-- [end:blind-solution]


# %%
# --8<-- [start:added]
def test_added(codes):
    for L, E in [(1, 2), (5, 8), (40, 16)]:
        found = codes(L, E)
        shape = tuple(found.shape)
        assert shape == (L, E), f"got shape {shape}, expected {(L, E)}"
        far = (found - sinusoidal_positions(L, E)).abs()
        place, feature = divmod(far.argmax().item(), E)
        wrong = f"position {place}, feature {feature}: off by {far.max():.2f}"
        assert far.max() < 1e-4, wrong
    print("passed")


# --8<-- [end:added]


# %%
# --8<-- [start:added-solution]
def codes(L, E):
    """A vector for each position: (L, E)."""
    speeds = 10_000.0 ** (-torch.arange(0, E, 2) / E)  # (E / 2,)
    angles = torch.arange(L)[:, None] * speeds
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)
    return pairs.flatten(1)  # sine, cosine, sine, cosine, …


test_added(codes)
found = sees_order(lambda x: layer(x + codes(x.shape[1], 16)), 16)
print(f"with codes, a new order changes {found:.1f} more")
assert found > 0.05
# --8<-- [end:added-solution]


# %%
# --8<-- [start:turned]
def test_turned(turn):
    torch.manual_seed(2)
    for D in (2, 8, 16):
        x = torch.randn(5, D)  # (L, D)
        for start in (0, 1, 900):
            found = turn(x.clone(), torch.arange(start, start + 5))
            shape = tuple(found.shape)
            assert shape == (5, D), f"got shape {shape}, expected {(5, D)}"
            expected = Rotary(D).rotate(x[None, None], start)[0, 0]
            far = (found - expected).abs().max().item()
            wrong = f"{D} features from position {start}: off by {far:.3f}"
            assert far < 1e-3, wrong
    print("passed")


# --8<-- [end:turned]


# %%
# --8<-- [start:turned-solution]
def turn(x, positions):
    """Feature i turns together with i + D / 2: (L, D) to (L, D)."""
    D = x.shape[-1]
    speeds = 10_000.0 ** (-torch.arange(0, D, 2) / D)  # (D / 2,)
    angles = positions[:, None] * speeds  # (L, D / 2)
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


test_turned(turn)
# --8<-- [end:turned-solution]


# %%
# --8<-- [start:shift]
def added(x, positions):
    return x + codes(1000, x.shape[-1])[positions]


def in_half(x, positions):
    """Turned, by angles that were counted in half precision."""
    speeds = 10_000.0 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = (positions.bfloat16()[:, None] * speeds.bfloat16()).float()
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def test_shift(moved_by_shift):
    torch.manual_seed(3)
    ways = {"nothing": lambda x, _: x, "turned": turn}
    for name, way in ways.items():
        found = one_number(moved_by_shift(way))
        assert found < 0.01, f"{name}: scores move by {found:.3f}"
    ways = {"added": added, "half precision": in_half}
    ways["squares of positions"] = lambda x, places: turn(x, places * places)
    for name, way in ways.items():
        found = one_number(moved_by_shift(way))
        assert found > 0.1, f"{name}: scores move by only {found:.3f}"
    print("passed")


# --8<-- [end:shift]


# %%
# --8<-- [start:shift-solution]
def moved_by_shift(way, shift=300):
    """How far scores move when queries and keys move alike."""
    q, k = torch.randn(2, 6, 16)  # two of (L, D)
    here = torch.arange(6)
    both = here, here + shift
    scores = [way(q, places) @ way(k, places).T for places in both]
    return (scores[1] - scores[0]).abs().max()


test_shift(moved_by_shift)
# --8<-- [end:shift-solution]


# %%
# --8<-- [start:distance]
def test_distance(slopes_off):
    for H, L in [(1, 3), (4, 7), (8, 5)]:
        found = slopes_off(H, L)
        shape = tuple(found.shape)
        assert shape == (H, L, L), f"got shape {shape}, expected {(H, L, L)}"
        far = (found - Alibi(H).bias(L, L)).abs().tril()
        head = far.amax(dim=(1, 2)).argmax().item()
        wrong = f"head {head + 1} of {H}: off by {far.max():.2f}"
        assert far.max() < 1e-5, wrong
    print("passed")


# --8<-- [end:distance]


# %%
# --8<-- [start:distance-solution]
def slopes_off(H, L):
    """What is added to the scores of each head: (H, L, L)."""
    slopes = 2.0 ** (-8 * torch.arange(1, H + 1) / H)  # (H,)
    places = torch.arange(L)
    away = places[:, None] - places  # query less key
    return -slopes[:, None, None] * away.abs()


test_distance(slopes_off)
# --8<-- [end:distance-solution]

# %%
# --8<-- [start:shifts]
shifts = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500]
ways = {"added": added, "turned": turn, "turned, half precision": in_half}
moved = {}
for name, way in ways.items():
    moved[name] = []
    for shift in shifts:
        torch.manual_seed(4)  # the same queries and keys each time
        moved[name].append(moved_by_shift(way, shift).item())
rows = [[curve[n] for n in (1, 4, 9)] for curve in moved.values()]
bias = slopes_off(4, 506)
later = [bias[:, n : n + 6, n : n + 6] for n in shifts]
rows.append([(later[n] - later[0]).abs().max() for n in (1, 4, 9)])
assert max(rows[-1]) < 1e-3
columns = [f"shift {shifts[n]}" for n in (1, 4, 9)]
print(table(rows, [*moved, "subtracted"], columns))
assert torch.tensor(257.0).bfloat16() == 256  # eight significant bits
assert max(moved["turned"]) < 0.01
assert min(moved["added"][1:]) > 0.3
assert moved["turned, half precision"][1] < 0.3
assert moved["turned, half precision"][-1] > 1
# --8<-- [end:shifts]

# %%
# --8<-- [start:shifts-figure]
figure, ax = plt.subplots(figsize=(4.2, 3.2), layout="constrained")
looks = zip(HEAD_COLORS, ["^-", "o-", "s--"], strict=False)
for (name, curve), (color, line) in zip(moved.items(), looks, strict=True):
    ax.plot(shifts[1:], curve[1:], line, color=color, ms=4, label=name)
ax.set(xscale="log", xlabel="shift, in positions", ylabel="change of a score")
ax.set_xticks([1, 10, 100, 500], ["1", "10", "100", "500"])
ax.minorticks_off()
figure.legend(loc="outside upper center", ncols=2)
# --8<-- [end:shifts-figure]

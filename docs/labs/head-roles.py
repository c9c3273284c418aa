# %%
# --8<-- [start:setup]
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from mhattn import HEAD_COLORS, causal_mask, table
from mhattn.lessons import Echo, data_file, echo_texts

torch.set_num_threads(1)  # for matrices this small, more threads are slower
torch.set_default_dtype(torch.float64)  # enough for machines to agree
# --8<-- [end:setup]


# %%
# --8<-- [start:model]
filed = torch.load(data_file("runs/head-statistics-learned.pt"))
model = Echo().eval()  # two layers of four heads
model.load_state_dict({name: each[0] for name, each in filed.items()})
torch.manual_seed(0)
untrained = Echo()
torch.manual_seed(100)
tokens = echo_texts(50).tokens[:, :-1]  # (B, L), none of them in training
names = [f"{layer}.{head}" for layer in (1, 2) for head in (1, 2, 3, 4)]


@torch.no_grad()
def weights_of(model):
    """All heads side by side: (B, 8, L, L)."""
    return model(tokens, return_weights=True)[1].flatten(1, 2)


weights = weights_of(model)
print(tuple(tokens.shape), tuple(weights.shape))
# --8<-- [end:model]


# %%
# --8<-- [start:judge]
def planted(pattern, share):
    """A head that gives this share to the pattern, the rest elsewhere."""
    visible = causal_mask(pattern.shape[-1]).expand(pattern.shape)
    inside = (pattern & visible).double()
    outside = (~pattern & visible).double()
    made = []
    for part, size in ((inside, share), (outside, 1 - share)):
        count = part.sum(dim=-1, keepdim=True)
        made.append(size * part / count.clamp(min=1))
    weights = sum(made)  # (B, L, L)
    return weights / weights.sum(dim=-1, keepdim=True)


def judge(statistic, pattern, words):
    """Heads with known shares: 0.9, 0.5 and 0, on short texts."""
    heads = [planted(pattern, share) for share in (0.9, 0.5, 0.0)]
    found = statistic(torch.stack(heads, dim=1), words.clone())
    got = tuple(found.shape)
    assert got == (3,), f"got shape {got}, expected (3,)"
    for one, share in zip(found.tolist(), (0.9, 0.5, 0.0), strict=True):
        wrong = f"got {one:.3f}, expected {share:.1f}"
        assert abs(one - share) < 1e-6, wrong
    print("passed")


WORDS = torch.tensor([[7, 1, 2, 3, 1, 2, 3, 1], [7, 4, 4, 5, 6, 5, 6, 4]])
# --8<-- [end:judge]


# %%
# --8<-- [start:previous]
def test_previous(previous):
    pattern = torch.eye(8).roll(-1, 1).tril(-1).bool()
    pattern = pattern.expand(2, 8, 8)
    # Query 0 has nothing before it, and query 1 no other choice but itself.
    judge(previous, pattern, WORDS)


# --8<-- [end:previous]


# %%
# --8<-- [start:previous-solution]
def previous(weights, tokens):
    """The weight on the token before, as a mean: (B, N, L, L) to (N,)."""
    return weights.diagonal(-1, -2, -1).mean(dim=(0, 2))


test_previous(previous)
# --8<-- [end:previous-solution]


# %%
# --8<-- [start:same]
def test_same(same):
    pattern = torch.zeros(2, 8, 8, dtype=torch.bool)
    for text, words in enumerate(WORDS.tolist()):
        for query, word in enumerate(words):
            for key in range(query):
                pattern[text, query, key] = words[key] == word
    judge(same, pattern, WORDS)


# --8<-- [end:same]


# %%
# --8<-- [start:same-solution]
def share(weights, pattern):
    """The mean weight on a pattern (B, L, L), where a query has one."""
    rows = (weights * pattern[:, None]).sum(dim=-1)  # (B, N, L)
    asked = pattern.any(dim=-1)[:, None]  # (B, 1, L)
    return (rows * asked).sum(dim=(0, 2)) / asked.sum()


def same(weights, tokens):
    """The weight on earlier tokens that are the query's: to (N,)."""
    equal = tokens[:, :, None] == tokens[:, None, :]  # (B, L, L)
    return share(weights, equal.tril(-1))


test_same(same)
# --8<-- [end:same-solution]


# %%
# --8<-- [start:induction]
def test_induction(induction):
    pattern = torch.zeros(2, 8, 8, dtype=torch.bool)
    for text, words in enumerate(WORDS.tolist()):
        for query, word in enumerate(words):
            for key in range(1, query + 1):
                pattern[text, query, key] = words[key - 1] == word
    judge(induction, pattern, WORDS)


# --8<-- [end:induction]


# %%
# --8<-- [start:induction-solution]
def induction(weights, tokens):
    """The weight on what followed the query's token before: to (N,)."""
    equal = tokens[:, :, None] == tokens[:, None, :]
    follows = F.pad(equal, (1, -1))  # one key further on
    return share(weights, follows.tril())


test_induction(induction)
# --8<-- [end:induction-solution]

# %%
# --8<-- [start:shares]
statistics = {"previous": previous, "same": same, "induction": induction}
shares = {name: f(weights, tokens) for name, f in statistics.items()}
print(table(list(shares.values()), list(shares), names))
# --8<-- [end:shares]


# %%
# --8<-- [start:shuffle]
def test_shuffle(shuffled):
    torch.manual_seed(3)
    noise = torch.rand(2, 3, 8, 8).masked_fill(~causal_mask(8), -torch.inf)
    given = noise.softmax(dim=-1)
    found = [shuffled(given.clone()) for _ in range(200)]
    got, shape = tuple(found[0].shape), tuple(given.shape)
    assert got == shape, f"got shape {got}, expected {shape}"
    above = max(each.triu(1).max().item() for each in found)
    assert above == 0, f"the future gets {above:.2f}"
    for each in found[:3]:
        far = (each.sort().values - given.sort().values).abs().max()
        assert far < 1e-12, "rows have other weights than before"
    mean = torch.stack(found).mean(dim=0)
    even = causal_mask(8) / torch.arange(1, 9)[:, None]
    far = (mean - even).abs().max().item()
    assert far < 0.05, f"some keys are preferred, by {far:.2f}"
    first = torch.zeros(2, 3, 8, 8)
    first[..., 0] = 1  # all weight on the first key
    places = torch.stack([shuffled(first).argmax(dim=-1) for _ in range(50)])
    rows = (places[..., 7] - places[..., 6]).abs().max()
    assert rows > 1, "all rows of a map share one order"
    maps = (places - places[:, :1, :1]).abs().max()
    assert maps > 0, "all maps share one order"
    print("passed")


# --8<-- [end:shuffle]


# %%
# --8<-- [start:shuffle-solution]
def shuffled(weights):
    """The weights of each row in random order, over visible keys."""
    visible = causal_mask(weights.shape[-1])
    noise = torch.rand(weights.shape).masked_fill(~visible, 2.0)
    return weights.gather(-1, noise.argsort(dim=-1))  # hidden ones last


test_shuffle(shuffled)
# --8<-- [end:shuffle-solution]


# %%
# --8<-- [start:roles]
def test_roles(has_role):
    """Heads that have it by construction, and heads by chance."""
    torch.manual_seed(4)
    words = echo_texts(8).tokens[:, :12]
    pattern = torch.eye(12).roll(-1, 1).tril(-1).bool().expand(8, 12, 12)
    good = [planted(pattern, size) for size in (0.9, 0.6)]
    noise = torch.randn(8, 40, 12, 12) * 3
    chance = noise.masked_fill(~causal_mask(12), -torch.inf).softmax(dim=-1)
    maps = torch.cat([torch.stack(good, dim=1), chance], dim=1)
    found = has_role(previous, maps, words)
    got = tuple(found.shape)
    assert got == (42,), f"got shape {got}, expected (42,)"
    assert found.dtype == torch.bool, "numbers, not booleans"
    assert found[:2].all(), "a planted head isn't found"
    alarms = found[2:].sum().item()
    assert alarms <= 4, f"{alarms} of 40 heads are found by chance"
    print(f"{alarms} of 40 found by chance: passed")


# --8<-- [end:roles]


# %%
# --8<-- [start:roles-solution]
def has_role(statistic, weights, tokens, draws=99):
    """Is the share above those of all shuffled maps? Booleans (N,)."""
    found = statistic(weights, tokens)
    chance = [statistic(shuffled(weights), tokens) for _ in range(draws)]
    return found > torch.stack(chance).amax(dim=0)


torch.manual_seed(5)
test_roles(has_role)
# --8<-- [end:roles-solution]

# %%
# --8<-- [start:found]
torch.manual_seed(6)
models = [weights, weights_of(untrained)]
roles = [
    has_role(statistic, maps, tokens).tolist()
    for maps in models
    for statistic in (previous, same, induction)
]
rows = {}
for place, model_name in enumerate(["trained", "before"]):
    for number, (name, statistic) in enumerate(statistics.items()):
        size = statistic(models[place], tokens).tolist()
        both = zip(size, roles[3 * place + number], strict=True)
        row = [f"{each:.2f}" + "*" * role for each, role in both]
        rows[f"{name} · {model_name}"] = row
print(table(list(rows.values()), list(rows), names))
best = {name: each.argmax().item() for name, each in shares.items()}
print("most:", {name: names[head] for name, head in best.items()})
assert best["previous"] < 4 <= best["induction"]
assert shares["induction"][best["induction"]] > 0.5
before = weights_of(untrained)
for name in ("previous", "induction"):
    most = statistics[name](before, tokens).max()
    assert shares[name].max() > 1.5 * most
# --8<-- [end:found]

# %%
# --8<-- [start:figure]
torch.manual_seed(7)
redrawn = [
    torch.stack([statistic(shuffled(weights), tokens) for _ in range(99)])
    for statistic in (previous, same, induction)
]
size = {"figsize": (4.4, 3.2), "layout": "constrained"}
figure, axes = plt.subplots(1, 3, sharey=True, **size)
places = torch.arange(8)
for place, (name, statistic) in enumerate(statistics.items()):
    ax, chance = axes[place], redrawn[place]
    ax.hlines(places, chance.amin(dim=0), chance.amax(dim=0), "black", lw=4)
    old = statistic(before, tokens)
    open_ring = {"mfc": "none", "color": HEAD_COLORS[1]}
    ax.plot(old, places, "o", label="before", **open_ring)
    ax.plot(shares[name], places, "o", color=HEAD_COLORS[0], label="trained")
    ax.set(title=name, xlim=(-0.05, 1))
axes[0].set_yticks(places, names)
axes[0].invert_yaxis()
axes[0].set_ylabel("head")
axes[1].set_xlabel("share of the weight")
lines, labels = axes[0].get_legend_handles_labels()
figure.legend(lines, labels, loc="outside upper center", ncols=2)
# --8<-- [end:figure]

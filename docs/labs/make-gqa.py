# %%
# --8<-- [start:setup]
import copy

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from mhattn import HEAD_COLORS, KVCache, MultiHeadAttention, table
from mhattn.lessons import data_file
from mhattn.models import LanguageModel
from mhattn.variants import pool_kv_heads

torch.set_num_threads(1)  # for matrices this small, more threads are slower
# --8<-- [end:setup]

# %%
# --8<-- [start:model]
text = data_file("texts/alice.en.txt").read_text(encoding="utf-8")
letters = sorted(set(text))
number = {letter: n for n, letter in enumerate(letters)}
tokens = torch.tensor([number[letter] for letter in text])
cut = int(0.9 * len(tokens))
training, aside = tokens[:cut], tokens[cut:]  # the last tenth is kept
LENGTH = 32

torch.manual_seed(0)
model = LanguageModel(
    len(letters),
    num_layers=2,
    embed_dim=64,
    num_heads=8,
    num_kv_heads=8,
    mlp_dim=128,
    base=100.0,
    eps=1e-5,
)
model.embedding.weight.data *= 0.2
print(f"{sum(each.numel() for each in model.parameters()):,} parameters")
# --8<-- [end:model]


# %%
# --8<-- [start:train]
def draw(source, batch):
    start = torch.randint(len(source) - LENGTH, (batch, 1))
    return source[start + torch.arange(LENGTH + 1)]  # (B, L + 1)


def loss_on(model, rows):
    logits = model(rows[:, :-1])  # (B, L, letters)
    return F.cross_entropy(logits.mT, rows[:, 1:])


def train(model, steps, seed):
    """Adam, on pieces drawn from the seed; it changes the model."""
    torch.manual_seed(seed)
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = loss_on(model, draw(training, 16))
        adam.zero_grad()
        loss.backward()
        adam.step()


torch.manual_seed(1)
kept = draw(aside, 128)


@torch.no_grad()
def loss_of(model):
    return loss_on(model, kept).item()


print(f"loss {loss_of(model):.1f} before training")
train(model, 300, seed=2)
print(f"loss {loss_of(model):.1f} after it")
assert loss_of(model) < 2.5
# --8<-- [end:train]


# %%
# --8<-- [start:pool]
def test_pool(pooled):
    """Rows of eight heads of width 3; each is told by its number."""
    rows = torch.arange(8.0).repeat_interleave(3)  # 0 0 0 1 1 1 …
    rows = rows[:, None] + torch.tensor([0.1, 0.2])  # (H * D, E)
    rows += torch.tensor([0.0, 100, 200]).repeat(8)[:, None]
    for num_kv_heads in (8, 4, 2, 1):
        found = pooled(rows, num_kv_heads, 3)
        shape, right = tuple(found.shape), (num_kv_heads * 3, 2)
        assert shape == right, f"got shape {shape}, expected {right}"
        size = 8 // num_kv_heads
        means = torch.arange(num_kv_heads) * size + (size - 1) / 2
        for head, mean in enumerate(means.tolist()):
            expected = torch.tensor([mean, mean + 100, mean + 200])
            expected = expected[:, None] + torch.tensor([0.1, 0.2])
            far = (found[3 * head : 3 * head + 3] - expected).abs().max()
            wrong = f"{num_kv_heads} heads, head {head + 1}: "
            wrong += f"off by {far:.1f}"
            assert far < 1e-3, wrong
    print("passed")


# --8<-- [end:pool]


# %%
# --8<-- [start:pool-solution]
def pooled(rows, num_kv_heads, head_dim):
    """The mean over neighbouring heads: to (num_kv_heads * D, E)."""
    groups = rows.unflatten(0, (num_kv_heads, -1, head_dim))
    return groups.mean(dim=1).flatten(0, 1)


test_pool(pooled)
# --8<-- [end:pool-solution]


# %%
# --8<-- [start:layer]
def test_layer(grouped):
    torch.manual_seed(3)
    old = copy.deepcopy(model.blocks[0].attention)
    x = torch.randn(2, 9, 64)
    for num_kv_heads in (4, 2, 1):
        new = grouped(old, num_kv_heads)
        wrong = f"{new.num_kv_heads} key-value heads, expected {num_kv_heads}"
        assert new.num_kv_heads == num_kv_heads, wrong
        expected = pool_kv_heads(old, num_kv_heads)(x, is_causal=True)
        far = (new(x, is_causal=True) - expected).abs().max().item()
        assert far < 1e-4, f"{num_kv_heads} heads: off by {far:.2f}"
        for weight in new.parameters():
            weight.data.zero_()
        for name, weight in model.blocks[0].attention.state_dict().items():
            same = torch.equal(old.state_dict()[name], weight)
            assert same, f"shares {name} with the old layer"
    print("passed")


# --8<-- [end:layer]


# %%
# --8<-- [start:layer-solution]
def grouped(layer, num_kv_heads):
    """A layer with fewer key-value heads, and weights of its own."""
    new = MultiHeadAttention(
        layer.embed_dim,
        layer.num_heads,
        num_kv_heads=num_kv_heads,
        bias=False,
        position=layer.position,  # it has no weights
    )
    state = copy.deepcopy(layer.state_dict())
    for name in ("k_proj.weight", "v_proj.weight"):
        state[name] = pooled(state[name], num_kv_heads, layer.head_dim)
    new.load_state_dict(state)
    return new


test_layer(grouped)
# --8<-- [end:layer-solution]


# %%
# --8<-- [start:model-test]
def test_model(converted):
    before = loss_of(model)
    given = copy.deepcopy(model)
    same = loss_of(converted(given, 8))
    wrong = f"with 8 of 8 heads the loss is {same:.2f}, not {before:.2f}"
    assert abs(same - before) < 1e-4, wrong
    few = converted(given, 2)
    assert few is not given, "the given model comes back, not a copy"
    heads = [block.attention.num_kv_heads for block in few.blocks]
    assert heads == [2, 2], f"key-value heads {heads}, expected [2, 2]"
    assert loss_of(given) == before, "the given model has changed"
    saved = sum(p.numel() for p in model.parameters())
    saved -= sum(p.numel() for p in few.parameters())
    right = 2 * 2 * 6 * 8 * 64  # layers, K and V, heads, D, E
    wrong = f"{saved:,} numbers are saved, expected {right:,}"
    assert saved == right, wrong
    print("passed")


# --8<-- [end:model-test]


# %%
# --8<-- [start:model-solution]
def converted(model, num_kv_heads):
    """A copy of the model, all of whose layers are grouped."""
    model = copy.deepcopy(model)
    for block in model.blocks:
        block.attention = grouped(block.attention, num_kv_heads)
    return model


test_model(converted)
# --8<-- [end:model-solution]

# %%
# --8<-- [start:costs]
before = loss_of(model)
sizes = [8, 4, 2, 1]
models = {size: converted(model, size) for size in sizes}
at_once = {size: loss_of(models[size]) for size in sizes}
for size, loss in at_once.items():
    print(f"key-value heads {size}: loss {loss:.1f}")
assert at_once[8] + 0.3 < min(at_once[size] for size in sizes[1:])
# --8<-- [end:costs]


# %%
# --8<-- [start:cache]
def test_cache(cache_bytes):
    for size in sizes:
        for length in (7, 40):
            caches = [KVCache(max_len=length) for _ in range(2)]
            models[size](tokens[None, :length], caches=caches)
            expected = sum(cache.nbytes for cache in caches)
            found = cache_bytes(copy.deepcopy(models[size]), length)
            wrong = f"{size} heads, {length} letters: "
            wrong += f"got {found}, expected {expected}"
            assert found == expected, wrong
    print("passed")


# --8<-- [end:cache]


# %%
# --8<-- [start:cache-solution]
def cache_bytes(model, length):
    """Bytes that the cache of one text holds, in float32."""
    total = 0
    for block in model.blocks:
        layer = block.attention
        numbers = 2 * layer.num_kv_heads * layer.head_dim  # K and V
        total += 4 * numbers * length
    return total


test_cache(cache_bytes)
# --8<-- [end:cache-solution]


# %%
# --8<-- [start:further]
def test_further(further):
    given = copy.deepcopy(models[2])
    losses = further(given, steps=20, every=10)
    assert len(losses) == 3, f"{len(losses)} losses, expected 3"
    far = abs(losses[0] - at_once[2])
    assert far < 1e-4, f"before the first step: off by {far:.2f}"
    assert loss_of(given) == at_once[2], "the given model has changed"
    expected = copy.deepcopy(models[2])
    train(expected, 10, seed=5)
    far = abs(losses[1] - loss_of(expected))
    assert far < 1e-3, f"after ten steps: off by {far:.3f}"
    wrong = f"the loss goes from {losses[1]:.2f} to {losses[2]:.2f}"
    assert losses[2] < losses[1], wrong
    print("passed")


# --8<-- [end:further]


# %%
# --8<-- [start:further-solution]
def further(model, steps=60, every=10):
    """The loss before, and every few steps of more training."""
    model = copy.deepcopy(model)
    losses = [loss_of(model)]
    for step in range(0, steps, every):
        train(model, every, seed=5 + step)
        losses.append(loss_of(model))
    return losses


test_further(further)
# --8<-- [end:further-solution]

# %%
# --8<-- [start:compare]
torch.manual_seed(4)
fresh = converted(model, 2)
for block in fresh.blocks:  # drawn anew, where the others are means
    for each in (block.attention.k_proj, block.attention.v_proj):
        torch.nn.init.xavier_uniform_(each.weight)

curves = {size: further(models[size]) for size in sizes}
curves["fresh"] = further(fresh)
rows, kept_bytes = [], [cache_bytes(models[size], 1) for size in sizes]
for name, bytes_ in zip(curves, [*kept_bytes, kept_bytes[2]], strict=True):
    rows.append([bytes_, f"{curves[name][0]:.2f}", f"{curves[name][-1]:.2f}"])
columns = ["bytes a letter", "converted", "trained on"]
beside = [f"{size} KV heads" for size in sizes]
print(table(rows, [*beside, "2, drawn anew"], columns))
ends = {name: curve[-1] for name, curve in curves.items()}
assert ends[8] < ends[4] - 0.05
assert ends[4] < ends[2] < ends["fresh"] - 0.03
for start, first, *_, end in [curves[size] for size in sizes[1:]]:
    assert start - first > 0.6 * (start - end) > 0.2  # most of it soon
# --8<-- [end:compare]

# %%
# --8<-- [start:compare-figure]
figure, ax = plt.subplots(figsize=(4.2, 3.2), layout="constrained")
looks = zip(HEAD_COLORS, ["-", "-", "-", "-", "--"], strict=False)
labels = ["8: as it was", "4", "2", "1", "2, drawn anew"]
drawn = zip(curves.values(), labels, looks, strict=False)
for curve, label, (color, line) in drawn:
    steps = range(0, 10 * len(curve), 10)
    ax.plot(steps, curve, color=color, ls=line, marker=".", label=label)
ax.set(xlabel="further steps", ylabel="loss, nats a letter")
ax.legend(title="key-value heads")
# --8<-- [end:compare-figure]

# %%
# --8<-- [start:setup]
import matplotlib.pyplot as plt
import torch

from mhattn import HEAD_COLORS, table
from mhattn.inside import head_outputs, patch_heads, residual_cache
from mhattn.lessons import data_file
from mhattn.models import LanguageModel, load_gguf

_ = torch.set_grad_enabled(False)  # nothing is trained here
# --8<-- [end:setup]


# %%
# --8<-- [start:model]
path = data_file("models/SmolLM2-135M-Instruct.Q4_1.gguf")
model, tokenizer = load_gguf(path)
model = model.eval()  # 30 layers of nine heads
frame = "After {} and {} met at the park, {} gave a book to"
pairs = [("James", "Sarah"), ("Lucy", "Mark"), ("Henry", "Laura")]
rows, right, wrong = [], [], []
for pair in pairs:
    for waits, acts in (pair, pair[::-1]):
        rows.append(tokenizer.encode(frame.format(*pair, acts)).ids)
        right += tokenizer.encode(" " + waits).ids  # one token each
        wrong += tokenizer.encode(" " + acts).ids
tokens = torch.tensor(rows)  # (B, L), the twins side by side
right, wrong = torch.tensor([right, wrong])  # (B,) each
twin = tokens[torch.arange(len(tokens)) ^ 1]
for prompt, name in zip(rows[:2], right[:2].tolist(), strict=True):
    print(tokenizer.decode(prompt), "…", tokenizer.decode([name]).strip())
# --8<-- [end:model]


# %%
# --8<-- [start:small]
def small():
    """A random model of three layers with six heads, to try things on."""
    torch.manual_seed(2)
    sizes = {"num_heads": 6, "num_kv_heads": 2, "mlp_dim": 29}
    made = LanguageModel(11, 3, embed_dim=24, **sizes, base=100.0, eps=1e-5)
    return made.eval(), *torch.randint(11, (2, 3, 7))


# --8<-- [end:small]


# %%
# --8<-- [start:gap]
def test_gap(gap):
    torch.manual_seed(1)
    logits = torch.randn(3, 5, 11)
    names = torch.tensor([1, 2, 3]), torch.tensor([4, 4, 0])
    found = gap(logits.clone(), *names)
    got = tuple(found.shape)
    assert got == (3,), f"got shape {got}, expected one number a prompt, (3,)"
    far = (found - gap(logits + 7, *names)).abs().max()
    assert far < 1e-4, "7 more for all logits must change nothing"
    other = logits.clone()
    other[:, :-1] = 0
    wrong = "only the last token answers, and earlier ones count here"
    assert torch.allclose(found, gap(other, *names)), wrong
    raised = logits.clone()
    raised[:, -1, 1:4] += 2
    more = gap(raised, *names) - found
    size = more[0].item()
    wrong = f"2 more for the right name must be 2 more here, got {size:.2f}"
    assert torch.allclose(more, torch.full((3,), 2.0), atol=1e-4), wrong
    print("passed")


# --8<-- [end:gap]


# %%
# --8<-- [start:gap-solution]
def gap(logits, right, wrong):
    """The right name's logit less the other one's: (B, L, V) to (B,)."""
    last, row = logits[:, -1], torch.arange(len(logits))
    return last[row, right] - last[row, wrong]


test_gap(gap)
# --8<-- [end:gap-solution]

# %%
# --8<-- [start:gaps]
whole = gap(model(tokens), right, wrong)
print([round(each, 1) for each in whole.tolist()])
# --8<-- [end:gaps]


# %%
# --8<-- [start:share]
def test_share(name_share):
    weights = torch.zeros(2, 3, 5, 5)
    weights[:, :, -1, 0] = 1  # the last token looks at the first one
    weights[0, 1, -1] = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.0])
    weights[1, 1, -1] = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4])
    weights[:, 2, :, 1] = 1  # all tokens look at the second one
    weights[:, 2, -1] = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])
    words = torch.tensor([[9, 4, 6, 4, 8], [9, 5, 3, 3, 8]])
    found = name_share(weights.clone(), words, torch.tensor([4, 3]))
    got = tuple(found.shape)
    assert got == (3,), f"got shape {got}, expected one share a head, (3,)"
    rest = found[2].item()
    wrong = f"the last token's own row counts, got {rest:.2f} from others"
    assert abs(rest) < 1e-6, wrong
    got = found[1].item()
    wrong = f"a name may stand twice: expected 0.55, got {got:.2f}"
    assert abs(got - 0.55) < 1e-6, wrong
    print("passed")


# --8<-- [end:share]


# %%
# --8<-- [start:share-solution]
def name_share(weights, tokens, names):
    """What the last token gives to a name: (B, H, L, L) to (H,)."""
    here = (tokens == names[:, None]).float()  # (B, L)
    return (weights[:, :, -1] * here[:, None]).sum(dim=-1).mean(dim=0)


test_share(name_share)
# --8<-- [end:share-solution]

# %%
# --8<-- [start:shares]
cache = residual_cache(model, tokens)
shares = [name_share(layer.weights, tokens, right) for layer in cache.layers]
shares = torch.stack(shares)  # (30, 9)


def named(place):  # as on a map: layer and head, from 1
    return f"{place // 9 + 1}.{place % 9 + 1}"


def strongest(numbers, count):
    return numbers.abs().flatten().topk(count).indices.tolist()


for place in strongest(shares, 4):
    print(named(place), f"{shares.flatten()[place].item():.2f}")
# --8<-- [end:shares]


# %%
# --8<-- [start:direct]
def test_direct(direct):
    torch.manual_seed(3)
    heads, weight = torch.randn(2, 5, 3, 4), torch.randn(7, 12)
    read = torch.randn(2, 7)
    found = direct(heads.clone(), weight.clone(), read.clone())
    got = tuple(found.shape)
    assert got == (2, 3), f"got shape {got}, expected (B, H) = (2, 3)"
    early = heads.clone()
    early[:, :-1] = 0
    far = (direct(early, weight, read) - found).abs().max().item()
    wrong = f"earlier tokens don't write to the last one, off by {far:.2f}"
    assert far < 1e-4, wrong
    added = (heads[:, -1].flatten(1) @ weight.T * read).sum(dim=-1)
    far = (found.sum(dim=-1) - added).abs().max().item()
    wrong = f"the heads must sum to what the layer adds, off by {far:.2f}"
    assert far < 1e-4, wrong
    alone = heads.clone()
    alone[:, :, :2] = 0
    added = (alone[:, -1].flatten(1) @ weight.T * read).sum(dim=-1)
    far = (found[:, 2] - added).abs().max().item()
    wrong = f"the third head alone adds something else, off by {far:.2f}"
    assert far < 1e-4, wrong
    print("passed")


# --8<-- [end:direct]


# %%
# --8<-- [start:direct-solution]
def direct(heads, weight, read):
    """What each head adds along a direction, at the last token.

    From (B, L, H, D), (E, H * D) and (B, E) to (B, H)."""
    back = (read @ weight).unflatten(-1, heads.shape[2:])  # (B, H, D)
    return (heads[:, -1] * back).sum(dim=-1)


test_direct(direct)
# --8<-- [end:direct-solution]

# %%
# --8<-- [start:directs]
names = model.embedding.weight[torch.stack([right, wrong])]
last = cache.layers[-1].after[:, -1]  # (B, E)
divisor = last.square().mean(dim=-1, keepdim=True).sqrt()
read = (names[0] - names[1]) * model.norm.weight / divisor
added = [
    direct(layer.heads, block.attention.out_proj.weight, read).mean(dim=0)
    for layer, block in zip(cache.layers, model.blocks, strict=True)
]
added = torch.stack(added) / whole.mean()  # (30, 9), parts of the gap
for place in strongest(added, 6):
    print(named(place), f"{added.flatten()[place].item():.2f}")
# --8<-- [end:directs]


# %%
# --8<-- [start:moved]
def test_moved(moved):
    made, one, two = small()
    good, bad = torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])
    before, end = (gap(made(each), good, bad).mean() for each in (one, two))
    ours, theirs = head_outputs(made, one), head_outputs(made, two)
    heads = [(0, 1), (1, 4), (2, 5)]
    found = list(moved(made, one, two, list(heads), good, bad))
    number = len(found)
    assert number == 3, f"one number for each of 3 heads, got {number}"
    for (layer, head), got in zip(heads, found, strict=True):
        change = (theirs[layer] - ours[layer])[:, :, head]

        def put(module, given, change=change, head=head):
            x = given[0].clone()
            x[..., 4 * head : 4 * head + 4] += change
            return (x,)

        projection = made.blocks[layer].attention.out_proj
        handle = projection.register_forward_pre_hook(put)
        now = gap(made(one), good, bad).mean()
        handle.remove()
        expected = ((before - now) / (before - end)).item()
        rule = f"head ({layer}, {head}) alone, all places from the twin"
        wrong = f"{rule}: expected {expected:.3f} of the way, got {got:.3f}"
        assert abs(got - expected) < 1e-3 * max(1, abs(expected)), wrong
    left = sum(len(part._forward_pre_hooks) for part in made.modules())
    assert left == 0, "the model isn't as before"
    print("passed")


# --8<-- [end:moved]


# %%
# --8<-- [start:moved-solution]
def moved(model, tokens, twin, heads, right, wrong):
    """How far each head from the twin moves the answer: from 0 to 1."""
    source, found = head_outputs(model, twin), []
    before = gap(model(tokens), right, wrong).mean()
    end = gap(model(twin), right, wrong).mean()
    for head in heads:
        with patch_heads(model, [head], source):
            now = gap(model(tokens), right, wrong).mean()
        found.append(((before - now) / (before - end)).item())
    return found


test_moved(moved)
# --8<-- [end:moved-solution]


# %%
# --8<-- [start:control]
def test_control(others):
    chosen = [(0, 1), (0, 2), (2, 5), (3, 0)]
    drawn = []
    for seed in range(40):
        torch.manual_seed(seed)
        found = others(list(chosen), 6)
        number = len(found)
        assert number == 4, f"expected one for each of 4, got {number}"
        layers = [layer for layer, _ in found]
        wrong = f"late layers count more: layers [0, 0, 2, 3], got {layers}"
        assert layers == [0, 0, 2, 3], wrong
        both = set(found) & set(chosen)
        assert not both, f"{sorted(both)[:1]} is one of the chosen themselves"
        assert len(set(found)) == 4, f"one head is drawn twice: {found}"
        inside = all(0 <= head < 6 for _, head in found)
        assert inside, f"no layer has such a head: {found}"
        drawn.append(tuple(found))
    heads = {head for found in drawn for layer, head in found if layer == 3}
    wrong = f"of five other heads, only {len(heads)} are ever drawn"
    assert len(heads) == 5, wrong
    print("passed")


# --8<-- [end:control]


# %%
# --8<-- [start:control-solution]
def others(chosen, num_heads):
    """For each chosen head another one of its layer, drawn by lot."""
    found = []
    for layer, _ in chosen:
        taken = [head for where, head in [*chosen, *found] if where == layer]
        free = [head for head in range(num_heads) if head not in taken]
        pick = torch.randint(len(free), ()).item()
        found.append((layer, free[pick]))
    return found


test_control(others)
# --8<-- [end:control-solution]

# %%
# --8<-- [start:found]
torch.manual_seed(4)
places = sorted({*strongest(shares, 4), *strongest(added, 6)})
hidden = 9 * 20 + 0  # 21.1: neither way finds it
chosen = [divmod(place, 9) for place in [*places, hidden]]
control = others(chosen, 9)
every = moved(model, tokens, twin, [*chosen, *control], right, wrong)
ours, chance = every[: len(chosen)], every[len(chosen) :]


def two(x):
    return f"{round(float(x), 2) + 0.0:.2f}"


rows = [
    [two(shares.flatten()[place]), two(added.flatten()[place]), two(far)]
    for place, far in zip([*places, hidden], ours, strict=True)
]
heads = [named(place) for place in [*places, hidden]]
columns = ["on the name", "of the gap, directly", "moves the answer"]
print(table(rows, heads, columns))
least, most = min(chance), max(chance)
print(f"\nothers of the same layers move it by {two(least)} to {two(most)}")
assert most < 0.1 < ours[-1]
assert added[20, 0].abs() < 0.05
# --8<-- [end:found]

# %%
# --8<-- [start:figure]
size = {"figsize": (4.8, 2.6), "layout": "constrained"}
figure, axes = plt.subplots(1, 3, sharey=True, **size)
values = [[float(x) for x in column] for column in zip(*rows, strict=True)]
for ax, column, title in zip(axes, values, columns, strict=True):
    ax.axvline(0, color="gray", lw=1)
    ax.plot(column, range(len(heads)), "o", color=HEAD_COLORS[0])
    ax.set_xlabel(title.replace(", ", ",\n"), fontsize=10)
axes[2].axvspan(least, most, color="gray", alpha=0.35)
axes[0].set_yticks(range(len(heads)), heads)
axes[0].invert_yaxis()
axes[0].set_ylabel("head")
# --8<-- [end:figure]

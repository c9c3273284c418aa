# %%
# --8<-- [start:setup]
import copy
import json

import matplotlib.pyplot as plt
import torch

from mhattn import HEAD_COLORS, causal_mask, table
from mhattn.inside import edit_heads, pruning_curve, replace_heads
from mhattn.lessons import data_file, echo_losses, echo_texts, train_echo

torch.set_num_threads(1)  # for matrices this small, more threads are slower
torch.set_default_dtype(torch.float64)  # enough for machines to agree
# --8<-- [end:setup]

# %%
# --8<-- [start:model]
*_, (_, model) = train_echo(3)  # two layers of four heads
torch.manual_seed(100)
texts = echo_texts(60)  # none of them in training
known = texts.target[:, :-1] >= 0  # letters that can be known: (B, L)
heads = [(layer, head) for layer in range(2) for head in range(4)]
names = [f"{layer + 1}.{head + 1}" for layer, head in heads]


@torch.no_grad()
def loss_of(model):
    return echo_losses(model, texts.tokens)[known].mean().item()


print(f"loss {loss_of(model):.2f}")
assert loss_of(model) < 0.05
# --8<-- [end:model]


# %%
# --8<-- [start:removal]
def test_removal(removed):
    """Compares with zeros in the place of the head."""
    given = copy.deepcopy(model)
    outputs = [layer.out_proj for layer in model.layers]
    tokens = texts.tokens[:9, :-1]
    for layer, head in [(0, 2), (1, 0), (1, 3)]:
        found = removed(given, layer, head)(tokens)
        with replace_heads(outputs, 4, [(layer, head)]):
            expected = model(tokens)
        far = (found - expected).abs().max().item()
        assert far < 1e-3, f"head {layer + 1}.{head + 1}: off by {far:.2f}"
    for name, weight in model.state_dict().items():
        same = torch.equal(weight, given.state_dict()[name])
        assert same, f"the given model has changed: {name}"
    print("passed")


# --8<-- [end:removal]


# %%
# --8<-- [start:removal-solution]
def removed(model, layer, head):
    """A copy in which a head adds nothing."""
    model = copy.deepcopy(model)
    columns = slice(16 * head, 16 * head + 16)  # what the head feeds
    model.layers[layer].out_proj.weight.data[:, columns] = 0
    return model


test_removal(removed)
# --8<-- [end:removal-solution]

# %%
# --8<-- [start:removal-table]
whole = loss_of(model)
removal = torch.tensor([loss_of(removed(model, *head)) for head in heads])
removal -= whole
largest = removal.argmax().item()
print(table([removal], ["loss, more by"], names))
assert removal[largest] > 5 * removal.sort().values[-2]
# --8<-- [end:removal-table]

# %%
# --8<-- [start:fifteen]
filed = data_file("runs/head-importance.json").read_text("utf-8")
filed = json.loads(filed)["runs"]["measured"]["values"]  # Echo 1 to 15
effects = torch.tensor([values[1] for values in filed]).flatten(1)  # (15, 8)
part = effects.amax(dim=1) / effects.sum(dim=1)  # of the strongest head
spread = part.quantile(torch.tensor([0, 0.5, 1])).tolist()
row = [*spread, part[2].item(), (part > 0.5).sum().item()]
columns = ["lowest", "median", "highest", "Echo 3", "models above half"]
print(table([row], ["part of one head"], columns))
here = (removal / removal.sum()).max()
assert abs(here - part[2]) < 0.1
assert part[2] > part.sort().values[-2] + 0.003  # Echo 3
# --8<-- [end:fifteen]


# %%
# --8<-- [start:confidence]
def test_confidence(confidence):
    """On maps whose largest weights are known."""
    even = causal_mask(4) / torch.arange(1, 5)[:, None]
    sure = torch.eye(4)  # each looks at itself
    maps = torch.stack([even, sure])[None]  # (B, H, L, L)
    found = confidence(maps.expand(3, 2, 4, 4))
    shape = tuple(found.shape)
    assert shape == (2,), f"got shape {shape}, expected (2,)"
    expected = torch.tensor([(1 / 2 + 1 / 3 + 1 / 4) / 3, 1.0])
    for head, (one, other) in enumerate(zip(found, expected, strict=True)):
        wrong = f"head {head + 1}: got {one:.3f}, expected {other:.3f}"
        assert (one - other).abs() < 1e-5, wrong
    print("passed")


# --8<-- [end:confidence]


# %%
# --8<-- [start:confidence-solution]
def confidence(weights):
    """The mean largest weight of each head: (B, H, L, L) to (H,)."""
    rows = weights[:, :, 1:]  # the first query sees one key
    return rows.amax(dim=-1).mean(dim=(0, 2))


test_confidence(confidence)
# --8<-- [end:confidence-solution]


# %%
# --8<-- [start:flatness]
def test_flatness(flatness):
    """On maps whose entropies are known."""
    even = causal_mask(4) / torch.arange(1, 5)[:, None]
    sure = torch.eye(4)
    two = torch.zeros(4, 4)
    two[:, 0] = two[:, 1] = 1 / 2  # half and half
    two[0] = sure[0]
    maps = torch.stack([even, sure, two])[None]
    found = flatness(maps.expand(3, 3, 4, 4))
    shape = tuple(found.shape)
    assert shape == (3,), f"got shape {shape}, expected (3,)"
    half = torch.tensor([2.0, 3.0, 4.0]).log()
    expected = [1.0, 0.0, (half[0] / half).mean().item()]
    for head, (one, other) in enumerate(zip(found, expected, strict=True)):
        wrong = f"head {head + 1}: got {one:.3f}, expected {other:.3f}"
        assert (one - other).abs() < 1e-5, wrong
    print("passed")


# --8<-- [end:flatness]


# %%
# --8<-- [start:flatness-solution]
def flatness(weights):
    """Entropy over the largest possible, of each head: to (H,)."""
    rows = weights[:, :, 1:]
    entropy = torch.special.entr(rows).sum(dim=-1)  # 0 log 0 is 0
    visible = torch.arange(2, weights.shape[-1] + 1)
    return (entropy / visible.log()).mean(dim=(0, 2))


test_flatness(flatness)
# --8<-- [end:flatness-solution]


# %%
# --8<-- [start:gradient]
def loss_with(model, gates):
    """The loss of each text, (B,), with a gate (2, 4) on the heads."""

    def gated(layer):
        return lambda found: found * gates[..., layer, :, None]

    first, second = (layer.out_proj for layer in model.layers)
    with (
        edit_heads(first, 4, gated(0)),
        edit_heads(second, 4, gated(1)),
    ):
        losses = echo_losses(model, texts.tokens)
    return (losses * known).sum(dim=1) / known.sum(dim=1)


def test_gradient(gradient):
    """Compares with gates that are moved a little, one by one."""
    found = gradient(copy.deepcopy(model))
    shape = tuple(found.shape)
    assert shape == (2, 4), f"got shape {shape}, expected (2, 4)"
    for layer, head in [(0, 2), (0, 0), (1, 3)]:
        losses = []
        for step in (1e-4, -1e-4):
            gates = torch.ones(2, 4)
            gates[layer, head] += step
            with torch.no_grad():
                losses.append(loss_with(model, gates))
        slopes = (losses[0] - losses[1]) / 2e-4  # of each text
        expected = slopes.abs().mean().item()
        one = found[layer, head].item()
        wrong = f"head {layer + 1}.{head + 1}: "
        wrong += f"got {one:.3f}, expected {expected:.3f}"
        assert abs(one - expected) < 0.03 * expected, wrong
    print("passed")


# --8<-- [end:gradient]


# %%
# --8<-- [start:gradient-solution]
def gradient(model):
    """The mean size of the loss's slope in each gate: (2, 4)."""
    slopes = []
    gates = torch.ones(2, 4, requires_grad=True)
    for loss in loss_with(model, gates):  # text by text
        slopes.append(torch.autograd.grad(loss, gates, retain_graph=True)[0])
    return torch.stack(slopes).abs().mean(dim=0)


test_gradient(gradient)
# --8<-- [end:gradient-solution]


# %%
# --8<-- [start:agree]
def test_agree(agree):
    a = torch.tensor([0.1, 5.0, 0.3, 40.0, 2.0])
    cases = {
        "itself": (a, 1.0),
        "its logarithm": (a.log(), 1.0),
        "the reverse": (-a, -1.0),
        "two neighbours exchanged": (
            torch.tensor([0.3, 5, 0.1, 40, 2]),
            0.9,
        ),
        "the largest made least": (
            torch.tensor([0.1, 5, 0.3, 0, 2]),
            0.0,
        ),
    }
    for name, (b, expected) in cases.items():
        found = torch.as_tensor(agree(a, b))
        size = found.numel()
        assert size == 1, f"got {size} numbers, expected one"
        wrong = f"{name}: got {found:.2f}, expected {expected:.2f}"
        assert abs(found - expected) < 1e-5, wrong
    print("passed")


# --8<-- [end:agree]


# %%
# --8<-- [start:agree-solution]
def agree(a, b):
    """Spearman's correlation: that of the ranks."""
    ranks = torch.stack([a, b]).argsort(dim=-1).argsort(dim=-1)
    return torch.corrcoef(ranks.double())[0, 1]


test_agree(agree)
# --8<-- [end:agree-solution]

# %%
# --8<-- [start:measures]
with torch.no_grad():
    weights = model(texts.tokens[:, :-1], return_weights=True)[1]
by_layer = weights.unbind(dim=1)  # two of (B, H, L, L)
measures = {
    "removal": removal,
    "gradient": gradient(model).flatten(),
    "confidence": torch.cat([confidence(each) for each in by_layer]),
    "not flat": 1 - torch.cat([flatness(each) for each in by_layer]),
}
print(table(list(measures.values()), list(measures), names))
# --8<-- [end:measures]

# %%
# --8<-- [start:agreements]
agreements = {name: agree(removal, each) for name, each in measures.items()}
for name in list(measures)[1:]:
    print(f"{name} and removal: {agreements[name]:.1f}")
sure = measures["confidence"]
assert sure[4:].min() > sure[largest] + 0.1  # surer, and needed less
# --8<-- [end:agreements]


# %%
# --8<-- [start:prune]
def test_prune(prune):
    outputs = [layer.out_proj for layer in model.layers]
    torch.manual_seed(3)
    order = [heads[place] for place in torch.randperm(8)]
    given, before = copy.deepcopy(model), loss_of(model)
    found = torch.tensor(prune(given, order))
    assert len(found) == 9, f"{len(found)} losses, expected 9"
    assert loss_of(given) == before, "the given model has changed"
    expected = pruning_curve(lambda: loss_of(model), outputs, 4, order)
    far = (found - expected).abs()
    first = (far > 1e-3).nonzero().flatten().tolist()[:1]
    assert not first, f"wrong with {first[0]} heads gone"
    print("passed")


# --8<-- [end:prune]


# %%
# --8<-- [start:prune-solution]
def prune(model, order):
    """The loss with no head gone, then one after the other."""
    losses = [loss_of(model)]
    for layer, head in order:
        model = removed(model, layer, head)
        losses.append(loss_of(model))
    return losses


test_prune(prune)
# --8<-- [end:prune-solution]

# %%
# --8<-- [start:curves]
curves = {
    name: prune(model, [heads[place] for place in measure.argsort()])
    for name, measure in measures.items()
}
torch.manual_seed(4)
orders = [[heads[n] for n in torch.randperm(8)] for _ in range(20)]
random = torch.tensor([prune(model, order) for order in orders])
middle = random.median(dim=0).values
rows = [curve[3] for curve in curves.values()]
print(table([[*rows, middle[3]]], ["three gone"], [*curves, "random"]))
assert curves["removal"][3] < middle[3] / 2
assert curves["confidence"][4] > 3 * curves["removal"][4]
# --8<-- [end:curves]

# %%
# --8<-- [start:curves-figure]
figure, ax = plt.subplots(figsize=(4.2, 3.6), layout="constrained")
low, high = random.quantile(torch.tensor([0.1, 0.9]), dim=0)
band = {"color": "black", "alpha": 0.12, "lw": 0}
ax.fill_between(range(9), low, high, label="random, eight of ten", **band)
looks = zip(HEAD_COLORS, [5, 1.5, 5, 1.5], ["o", "s", "^", "D"], strict=False)
drawn = zip(curves.items(), looks, strict=True)
for (name, curve), (color, width, mark) in drawn:
    look = {"color": color, "lw": width, "marker": mark}
    ax.plot(curve, label=name, ms=width + 3, **look)
ax.set(xlabel="heads removed", ylabel="loss, nats", ylim=(0, None))
figure.legend(loc="outside upper center", ncols=2)
# --8<-- [end:curves-figure]

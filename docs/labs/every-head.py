# %%
# --8<-- [start:setup]
import copy
import math
import string

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from mhattn import (
    MultiHeadAttention,
    causal_mask,
    plot_heads,
    plot_weights,
)

torch.set_num_threads(1)  # for matrices this small, more threads are slower
torch.manual_seed(1)
# --8<-- [end:setup]

# %%
# --8<-- [start:data]
LETTERS = string.ascii_lowercase  # tokens 0 to 25
START = len(LETTERS)  # token 26, drawn as ^
LENGTH = 20


def draw(batch, period=None):
    """Sequences: ^, then some letters again and again; and how many."""
    low, high = (6, 11) if period is None else (period, period + 1)
    period = torch.randint(low, high, (batch, 1))  # each sequence has its own
    letters = torch.rand(batch, 26).argsort(dim=-1)  # no letter twice
    rounds = letters.gather(1, torch.arange(LENGTH) % period)  # (B, LENGTH)
    return torch.cat([torch.full((batch, 1), START), rounds], dim=1), period


def text(tokens):
    return "".join((LETTERS + "^")[token] for token in tokens)


for row in draw(4)[0]:
    print(text(row))
# --8<-- [end:data]


# %%
# --8<-- [start:model]
class Model(nn.Module):
    """Two layers of attention and nothing else: no MLP, no LayerNorm."""

    def __init__(self, embed_dim=64, num_heads=4):
        super().__init__()
        self.token = nn.Embedding(len(LETTERS) + 1, embed_dim)
        self.position = nn.Embedding(LENGTH, embed_dim)
        layers = [MultiHeadAttention(embed_dim, num_heads) for _ in range(2)]
        self.layers = nn.ModuleList(layers)
        self.out = nn.Linear(embed_dim, len(LETTERS))
        for embedding in (self.token, self.position):
            nn.init.normal_(embedding.weight, std=0.5)

    def forward(self, tokens):
        position = self.position.weight[: tokens.shape[1]]  # (L, E)
        x = self.token(tokens) + position  # (B, L, E)
        kept = []
        for layer in self.layers:
            change, weights = layer(x, is_causal=True, return_weights=True)
            x = x + change  # the residual connection
            kept.append(weights)  # (B, H, L, L)
        weights = torch.stack(kept, dim=1)  # (B, layers, H, L, L)
        return self.out(x), weights


model = Model()
untrained = copy.deepcopy(model)
print(sum(p.numel() for p in model.parameters()), "parameters")
# --8<-- [end:model]


# %%
# --8<-- [start:train]
def losses(model, tokens):
    """The loss at each position, in nats: (B, L)."""
    logits, _ = model(tokens[:, :-1])  # (B, L, 26)
    return F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none")


optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
curve = {}
for step in range(301):
    loss = losses(model, draw(32)[0]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        curve[step] = loss.item()

for step, mean_loss in curve.items():
    print(f"step {step:3d}   loss {mean_loss:.3f}")
# --8<-- [end:train]

# %%
# --8<-- [start:losses]
test_tokens, test_period = draw(500)
repeated = torch.arange(LENGTH) > test_period  # (B, L): can be known


@torch.no_grad()
def repeated_loss(model):
    return losses(model, test_tokens)[repeated].mean().item()


for name, some in [("untrained", untrained), ("trained", model)]:
    with torch.no_grad():
        first = losses(some, test_tokens)[~repeated].mean().item()
    repeats = repeated_loss(some)
    print(f"{name:10}  first round {first:.3f}   repeats {repeats:.3f}")
print(f"any letter of 26: log 26 = {math.log(26):.3f}")
guess = test_period.expand_as(repeated)[repeated].log().mean()
print(f"any letter of the sequence: mean log period = {guess:.3f}")
assert repeats < guess / 10  # the text below relies on it
# --8<-- [end:losses]

# %%
# --8<-- [start:weights]
labels = list("^chapterchapter")
numbers = [(LETTERS + "^").index(label) for label in labels]
tokens = torch.tensor([numbers])  # (1, L)


@torch.no_grad()
def head_weights(model, tokens):
    """The weights of every head, layer after layer: (B, layers * H, L, L)."""
    return model(tokens)[1].flatten(1, 2)


before = head_weights(untrained, tokens)
after = head_weights(model, tokens)
names = [f"{layer}.{head}" for layer in (1, 2) for head in (1, 2, 3, 4)]
print(after.shape)
print(names)
torch.testing.assert_close(after.sum(dim=-1), torch.ones(1, 8, 15))
# --8<-- [end:weights]

# %%
# --8<-- [start:gallery]
figure, axes = plt.subplots(4, 2, figsize=(4.2, 8.8), layout="constrained")
options = {"queries": labels, "keys": labels, "titles": names}
plot_heads(after[0], axes=axes, vmax=1, **options)
for ax in axes.flat:
    ax.tick_params(labelsize=9, pad=1)
# --8<-- [end:gallery]

# %%
# --8<-- [start:gallery-untrained]
figure, axes = plt.subplots(2, 4, figsize=(4.2, 2.6), layout="constrained")
plot_heads(before[0], axes=axes, titles=names, vmax=1)
# --8<-- [end:gallery-untrained]


# %%
# --8<-- [start:scores]
def follows(tokens):
    """(B, L, S): key j stands right after an earlier token like query i's."""
    same = tokens[:, :, None] == tokens[:, None, :]  # (B, L, S)
    after_same = F.pad(same, (1, -1))  # one key further on
    return after_same & causal_mask(tokens.shape[1])


def head_scores(weights, tokens):
    """Five numbers for each of N heads: (B, N, L, L) to (5, N)."""
    rows = weights[..., 1:, :]  # query 0 sees itself alone
    to_self = weights.diagonal(0, -2, -1)[..., 1:]  # (B, N, L - 1)
    to_previous = weights.diagonal(-1, -2, -1)  # (B, N, L - 1)
    to_first = rows[..., 0]  # (B, N, L - 1)
    visible = torch.arange(2, tokens.shape[1] + 1)  # keys for each query
    flat = torch.special.entr(rows).sum(dim=-1) / visible.log()
    four = [to_self, to_previous, to_first, flat]
    target = follows(tokens)[:, None]  # (B, 1, L, S)
    matched = (weights * target).sum(dim=(0, -2, -1))  # (N,)
    match = matched / target.any(dim=-1).sum()  # a mean over such queries
    return torch.stack([x.mean(dim=(0, -1)) for x in four] + [match])


score_names = ["self", "prev", "first", "flat", "match"]
uniform = causal_mask(15) / torch.arange(1, 16)[:, None]  # (L, L)
uniform_scores = head_scores(uniform[None, None], tokens)[:, 0]  # (5,)
for s, name in enumerate(score_names):
    print(f"{name:6} {uniform_scores[s]:.3f}")
# --8<-- [end:scores]


# %%
# --8<-- [start:table]
def row(name, scores):
    return f"{name:8}" + "".join(f"{score:6.2f}" for score in scores)


scores_before = head_scores(before, tokens)  # (5, N)
scores_after = head_scores(after, tokens)
header = "".join(f"{name:>6}" for name in score_names)
print("          trained                         untrained")
print(f"{'':8}{header}  {header}")
for h, name in enumerate(names):
    left, right = scores_after[:, h].tolist(), scores_before[:, h].tolist()
    print(row(name, left) + row("", right)[6:])
print(row("", uniform_scores.tolist()), " uniform")
# --8<-- [end:table]

# %%
# --8<-- [start:best]
best = dict.fromkeys(score_names)
print("largest   head  trained  untrained  uniform")
for s, name in enumerate(score_names):
    best[name] = head = scores_after[s].argmax().item()
    trained, baseline = scores_after[s, head], scores_before[s].max()
    numbers = f"{trained:9.2f}{baseline:11.2f}{uniform_scores[s]:9.2f}"
    print(f"{name:9} {names[head]}{numbers}")
for s in (1, 2, 4):  # prev, first, match: far above both baselines
    assert scores_after[s].max() > 1.4 * scores_before[s].max()
    assert scores_after[s].max() > 2 * uniform_scores[s]
assert scores_after[3].max() < scores_before[3].max()  # flat
assert best["prev"] < 4 <= best["match"]  # in layer 1, in layer 2
# --8<-- [end:best]


# %%
# --8<-- [start:large-previous]
def draw_large(head, target):
    """One head's map; a ring where its role would have it look."""
    _, ax = plt.subplots(figsize=(4.0, 4.0))
    options = {"queries": labels, "keys": labels, "title": names[head]}
    plot_weights(after[0, head], ax=ax, **options)
    i, j = target.cpu().nonzero().T
    ax.scatter(j, i, s=50, facecolors="none", edgecolors="black")


draw_large(best["prev"], torch.ones(15, 15).tril(-1).triu(-1))
to_previous = after[0, best["prev"]].diagonal(-1)  # queries 1 to 14
early, late = to_previous[:10].mean(), to_previous[10:].mean()
print(f"to the previous token: queries 1-10 {early:.2f}, later {late:.2f}")
assert early > 2 * late
# --8<-- [end:large-previous]

# %%
# --8<-- [start:large-prefix]
draw_large(best["match"], follows(tokens)[0])
to_start = after[0, best["match"], :, 0]  # (L,)
one, two = to_start[1:8].mean(), to_start[8:].mean()
print(f"to ^ in round one {one:.2f}, in round two {two:.2f}")
assert one > 0.5 > 0.1 > two
# --8<-- [end:large-prefix]

# %%
# --8<-- [start:solution-average]
many = draw(50, period=7)[0][:, :15]  # (50, L): as long as our sequence
each = [head_scores(head_weights(model, t), t) for t in many.split(1)]
mean = torch.stack(each).mean(dim=0)  # (5, N)
spread = torch.stack(each).std(dim=0)
print("mean    " + header)
for h, name in enumerate(names):
    print(row(name, mean[:, h].tolist()))
print(row("", spread.amax(dim=1).tolist()), " spread, largest of 8 heads")
# --8<-- [end:solution-average]

# %%
# --8<-- [start:solution-shuffle]
shuffled = tokens.clone()
shuffled[0, 1:8] = tokens[0, torch.tensor([3, 6, 1, 7, 5, 2, 4])]
print(text(tokens[0]), text(shuffled[0]))
change = head_weights(model, shuffled) - after  # (1, N, L, L)
round_two = change[0, :, 8:]  # (N, 7, L)
moved = round_two.abs().sum(dim=-1).mean(dim=-1) / 2  # (N,)
for h, name in enumerate(names):
    print(f"{name}   {moved[h]:.2f}")
print("most:", names[moved.argmax()])
assert moved[4:].min() > 2 * moved[:4].max()  # layer 2, layer 1
# --8<-- [end:solution-shuffle]


# %%
# --8<-- [start:solution-zero]
def without(model, heads):
    """A copy in which these heads add nothing to the residual stream."""
    model = copy.deepcopy(model)
    for head in heads:
        layer, h = model.layers[head // 4], head % 4
        mine = slice(h * layer.head_dim, (h + 1) * layer.head_dim)
        layer.out_proj.weight.data[:, mine] = 0  # what head h passes through
    return model


print(f"all heads           {repeated_loss(model):.3f}")
single = []
for head, name in enumerate(names):
    single.append(repeated_loss(without(model, [head])))
    print(f"without {name}         {single[-1]:.3f}")
others = [head for head in range(4, 8) if head != best["match"]]
alone = repeated_loss(without(model, others))
print(f"only {names[best['match']]} in layer 2 {alone:.3f}")
assert alone > 1.5 * max(single[4:])
# --8<-- [end:solution-zero]

# %%
# --8<-- [start:solution-period]
print("period    match   6 back")
six_back = {}
for period in range(4, 13):
    some = draw(50, period)[0][:, :LENGTH]  # (50, L)
    weights = head_weights(model, some)  # (50, N, L, L)
    match = head_scores(weights, some)[4, best["match"]]
    back = weights[:, best["match"]].diagonal(-6, -2, -1).mean()
    print(f"{period:6d}{match:9.2f}{back:9.2f}")
    assert match > 0.5
    six_back[period] = back.item()
assert six_back.pop(7) > 2 * max(six_back.values())
# --8<-- [end:solution-period]

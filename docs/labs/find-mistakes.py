# %%
# --8<-- [start:setup]
import copy
import math
import os
import textwrap

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from mhattn import HEAD_COLORS, KVCache, MultiHeadAttention
from mhattn.testing import check_attention

torch.set_num_threads(1)  # for matrices this small, more threads are slower
# --8<-- [end:setup]


# %%
# --8<-- [start:layer]
class Suspect(nn.Module):
    """Causal attention with shared keys, padding, dropout and a cache."""

    def __init__(self, E, H, G, dropout=0.1):
        super().__init__()
        self.H, self.G, self.D = H, G, E // H
        self.dropout = dropout
        self.q = nn.Linear(E, H * self.D, bias=False)
        self.k = nn.Linear(E, G * self.D, bias=False)
        self.v = nn.Linear(E, G * self.D, bias=False)
        self.o = nn.Linear(H * self.D, E, bias=False)

    def split(self, x):
        x = x.unflatten(-1, (-1, self.D))  # (B, L, heads, D)
        return x.transpose(1, 2)  # (B, heads, L, D)

    def share(self, x):  # a key for each query: (B, H, S, D)
        return x.repeat(1, self.H // self.G, 1, 1)

    def score(self, q, k):
        return q @ k.mT / math.sqrt(self.D)  # (B, H, L, S)

    def visible(self, L, S):  # True: may be seen
        return torch.ones(L, S).tril().bool()

    def hide_padding(self, scores, keep):
        return scores.masked_fill(~keep[:, None, None], 1e-9)

    def weigh(self, scores, visible):
        return scores.softmax(dim=-1) * visible

    def drop(self, weights):
        return F.dropout(weights, self.dropout)

    def merge(self, heads):
        return heads.transpose(1, 2).flatten(2)  # (B, L, H * D)

    def forward(self, x, keep=None, cache=None):
        """x: (B, L, E); keep: (B, S), False where padding is."""
        q = self.split(self.q(x))
        k, v = self.split(self.k(x)), self.split(self.v(x))
        if cache is not None:
            k = torch.cat([cache[0], k], dim=2)
            v = torch.cat([cache[1], v], dim=2)
        scores = self.score(q, self.share(k))
        if keep is not None:
            scores = self.hide_padding(scores, keep)
        visible = self.visible(x.shape[1], k.shape[2])
        weights = self.drop(self.weigh(scores, visible))
        heads = weights @ self.share(v)  # (B, H, L, D)
        return self.o(self.merge(heads)), (k, v)


# --8<-- [end:layer]


# %%
# --8<-- [start:runs]
torch.manual_seed(0)
tokens = torch.randn(16, 12, 24)  # (B, L, E)
target = tokens.roll(1, dims=1)  # the vector before
suspect = Suspect(24, 6, 2)
optimizer = torch.optim.Adam(suspect.parameters(), lr=1e-2)
losses = []
for _ in range(200):
    loss = (suspect(tokens)[0] - target)[:, 1:].square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

print("shape", tuple(suspect(tokens)[0].shape))
print(f"loss {losses[0]:.1f} at first, {losses[-1]:.1f} at last")
assert losses[-1] < 0.8 * losses[0]
# --8<-- [end:runs]


# %%
# --8<-- [start:healthy]
class Healthy(nn.Module):
    """The package's layer, called in the same way."""

    def __init__(self, E=24, H=6, G=2, dropout=0.1):
        super().__init__()
        self.inner = MultiHeadAttention(
            E,
            H,
            num_kv_heads=G,
            bias=False,
            dropout=dropout,
        )
        self.q, self.k = self.inner.q_proj, self.inner.k_proj
        self.v, self.o = self.inner.v_proj, self.inner.out_proj
        self.H, self.G, self.D = H, G, E // H

    def forward(self, x, keep=None, cache=None):
        mask = None if keep is None else keep[:, None, None]
        cache = KVCache(max_len=64) if cache is None else cache
        return self.inner(x, is_causal=True, mask=mask, cache=cache), cache


def healthy(kind=Healthy, seed=0):
    torch.manual_seed(seed)
    return kind().eval().requires_grad_(False)


def judge(probe, sick):
    """A probe finds nothing in a healthy layer, and each sick one."""
    for seed in range(3):
        found = torch.as_tensor(probe(healthy(seed=seed)))
        got = tuple(found.shape)
        assert found.numel() == 1, f"got shape {got}, expected a number"
        assert found < 1e-5, f"healthy, and it finds {found.item():.3f}"
        for kind in sick:
            found = float(probe(healthy(kind, seed)))
            wrong = f"sick ({kind.__name__}), and it finds {found:.1e}"
            assert found > 1e-3, wrong
    print("found:", ", ".join(kind.__name__ for kind in sick))
    print("passed")


# --8<-- [end:healthy]


# %%
# --8<-- [start:unsteady]
class Noisy(Healthy):
    def forward(self, x, keep=None, cache=None):
        y, cache = super().forward(x, keep, cache)
        return y + 0.01 * torch.randn_like(y), cache


class Forgetful(Healthy):
    """Every second call adds something."""

    calls = 0

    def forward(self, x, keep=None, cache=None):
        self.calls += 1
        y, cache = super().forward(x, keep, cache)
        first = self.inner.out_proj.weight[:, : self.D].sum()
        return y + first * (self.calls % 2), cache


def test_unsteady(unsteady):
    torch.manual_seed(1)
    judge(unsteady, [Noisy, Forgetful])


# --8<-- [end:unsteady]


# %%
# --8<-- [start:unsteady-solution]
def unsteady(layer):
    x = torch.randn(2, 9, 24)
    return (layer(x)[0] - layer(x)[0]).abs().max()


test_unsteady(unsteady)
# --8<-- [end:unsteady-solution]


# %%
# --8<-- [start:future]
class SeesAll(Healthy):
    def forward(self, x, keep=None, cache=None):
        return self.inner(x), cache


class SeesOneMore(Healthy):
    def forward(self, x, keep=None, cache=None):
        seen = torch.ones(x.shape[1], x.shape[1]).tril(1).bool()
        return self.inner(x, mask=seen), cache


class Normalised(Healthy):
    """Divides by a norm over the whole text."""

    def forward(self, x, keep=None, cache=None):
        y, cache = super().forward(x, keep, cache)
        return y / y.norm(dim=1, keepdim=True), cache


def test_future(from_later):
    torch.manual_seed(2)
    judge(from_later, [SeesAll, SeesOneMore, Normalised])


# --8<-- [end:future]


# %%
# --8<-- [start:future-solution]
def from_later(layer):
    x = torch.randn(2, 9, 24)
    changed = x.clone()
    changed[:, 5:] = torch.randn(2, 4, 24)
    return (layer(changed)[0] - layer(x)[0])[:, :5].abs().max()


test_future(from_later)
# --8<-- [end:future-solution]


# %%
# --8<-- [start:padding]
class IgnoresPadding(Healthy):
    def forward(self, x, keep=None, cache=None):
        return super().forward(x, None, cache)


class TheFirstForAll(Healthy):
    """Every text gets the padding of the first."""

    def forward(self, x, keep=None, cache=None):
        keep = keep if keep is None else keep[:1].expand_as(keep)
        return super().forward(x, keep, cache)


def test_padding(from_padding):
    torch.manual_seed(3)
    judge(from_padding, [IgnoresPadding, TheFirstForAll])


# --8<-- [end:padding]


# %%
# --8<-- [start:padding-solution]
def from_padding(layer):
    x = torch.randn(2, 9, 24)
    keep = torch.ones(2, 9, dtype=torch.bool)
    keep[0, :2] = False  # on the left: later queries could see it
    keep[1, :4] = False
    changed = torch.where(keep[..., None], x, torch.randn_like(x))
    moved = layer(changed, keep)[0] - layer(x, keep)[0]
    return moved[keep].abs().max()


test_padding(from_padding)
# --8<-- [end:padding-solution]


# %%
# --8<-- [start:cache]
class StartsAnew(Healthy):
    def forward(self, x, keep=None, cache=None):
        return super().forward(x, keep)


class ForgetsSingles(Healthy):
    """A token that comes alone isn't kept."""

    def forward(self, x, keep=None, cache=None):
        if cache is None or x.shape[1] > 1:
            return super().forward(x, keep, cache)
        return super().forward(x, keep, copy.deepcopy(cache))[0], cache


def test_cache(by_pieces):
    torch.manual_seed(4)
    judge(by_pieces, [StartsAnew, ForgetsSingles])


# --8<-- [end:cache]


# %%
# --8<-- [start:cache-solution]
def by_pieces(layer):
    x = torch.randn(2, 9, 24)
    parts, cache = [], None
    for piece in x.split([4, 1, 3, 1], dim=1):
        y, cache = layer(piece, cache=cache)
        parts.append(y)
    return (torch.cat(parts, dim=1) - layer(x)[0]).abs().max()


test_cache(by_pieces)
# --8<-- [end:cache-solution]


# %%
# --8<-- [start:formula]
class Unscaled(Healthy):
    def forward(self, x, keep=None, cache=None):
        weight = self.inner.q_proj.weight
        weight *= math.sqrt(self.D)
        found = super().forward(x, keep, cache)
        weight /= math.sqrt(self.D)
        return found


class HeadsInTurn(Healthy):
    """Merges feature by feature instead of head by head."""

    def forward(self, x, keep=None, cache=None):
        weight = self.inner.out_proj.weight  # (E, H * D)
        right = weight.clone()
        weight.copy_(right.unflatten(1, (self.H, -1)).mT.flatten(1))
        found = super().forward(x, keep, cache)
        weight.copy_(right)
        return found


class OneKeyForAll(Healthy):
    """All heads take the key and value of the first group."""

    def forward(self, x, keep=None, cache=None):
        kept = [each.weight.clone() for each in (self.k, self.v)]
        for each in (self.k, self.v):
            each.weight.copy_(each.weight[: self.D].repeat(self.G, 1))
        found = super().forward(x, keep, cache)
        for each, weight in zip((self.k, self.v), kept, strict=True):
            each.weight.copy_(weight)
        return found


def test_formula(off_formula):
    torch.manual_seed(5)
    judge(off_formula, [Unscaled, HeadsInTurn, OneKeyForAll])


# --8<-- [end:formula]


# %%
# --8<-- [start:formula-solution]
def off_formula(layer):
    x = torch.randn(2, 9, 24)
    H, G, D = layer.H, layer.G, layer.D
    heads = []
    for h in range(H):
        own = slice(h * D, h * D + D)
        g = h // (H // G)  # neighbours share
        shared = slice(g * D, g * D + D)
        q = x @ layer.q.weight[own].T  # (B, L, D)
        k = x @ layer.k.weight[shared].T
        v = x @ layer.v.weight[shared].T
        rows = []
        for i in range(9):
            scores = k[:, : i + 1] @ q[:, i, :, None] / D**0.5
            weights = scores.softmax(dim=1)  # (B, i + 1, 1)
            rows.append((weights * v[:, : i + 1]).sum(dim=1))
        heads.append(torch.stack(rows, dim=1))
    expected = torch.cat(heads, dim=-1) @ layer.o.weight.T
    return (layer(x)[0] - expected).abs().max()


test_formula(off_formula)
# --8<-- [end:formula-solution]


# %%
# --8<-- [start:findings]
probes = {
    "unsteady": unsteady,
    "from later": from_later,
    "from padding": from_padding,
    "by pieces": by_pieces,
    "off formula": off_formula,
}


def findings(kind):
    """How far off a layer is, probe by probe."""
    torch.manual_seed(6)
    layer = kind(24, 6, 2).eval().requires_grad_(False)
    return {name: float(probe(layer)) for name, probe in probes.items()}


for name, off in findings(Suspect).items():
    print(name, f"{off:.1f}" if off > 1e-5 else "fine")
# --8<-- [end:findings]


# %%
# --8<-- [start:mend]
def examine(kind):
    """The doctor's report on a layer that is called as the suspect is."""
    torch.manual_seed(8)
    return check_attention(
        kind(24, 6, 2),
        embed_dim=24,
        num_heads=6,
        num_kv_heads=2,
        causal=True,
        empty_rows="finite",
        padding="keep",
        padding_true="attend",
        cache="cache",
    )


def test_mended(Mended):
    same = issubclass(Mended, Suspect)
    assert same, "another layer, not the suspect mended"
    got = tuple(Mended(24, 6, 2)(torch.randn(2, 9, 24))[0].shape)
    assert got == (2, 9, 24), f"got shape {got}, expected (2, 9, 24)"
    for name, off in findings(Mended).items():
        assert off < 1e-5, f"the probe {name!r} finds {off:.2f}"
    torch.manual_seed(7)
    training, x = Mended(24, 6, 2), torch.randn(2, 9, 24)
    moved = (training(x)[0] - training(x)[0]).abs().max()
    assert moved > 1e-3, "in training dropout should act"
    print("five probes find nothing")
    report = examine(Mended)
    os.environ["MHATTN_LANGUAGE"] = "en"
    said = "\n\n".join(str(each) for each in report.errors)
    assert report.ok, f"the doctor:\n{said}"
    print("nor does the doctor: passed")


# --8<-- [end:mend]


# %%
# --8<-- [start:mend-solution]
class Mended(Suspect):
    def share(self, x):
        return x.repeat_interleave(self.H // self.G, dim=1)

    def visible(self, L, S):
        return torch.ones(L, S).tril(S - L).bool()

    def hide_padding(self, scores, keep):
        return scores.masked_fill(~keep[:, None, None], -math.inf)

    def weigh(self, scores, visible):
        scores = scores.masked_fill(~visible, -math.inf)
        blind = scores.isneginf().all(dim=-1, keepdim=True)
        weights = scores.masked_fill(blind, 0).softmax(dim=-1)
        return weights.masked_fill(blind, 0)  # not NaN

    def drop(self, weights):
        return F.dropout(weights, self.dropout, self.training)


test_mended(Mended)
# --8<-- [end:mend-solution]


# %%
# --8<-- [start:doctor]
reports = [examine(kind) for kind in (Suspect, Mended, Healthy)]
for kind, report in zip((Suspect, Mended, Healthy), reports, strict=True):
    found = dict.fromkeys(each.check for each in report.findings)
    said = ", ".join(found) or "nothing"
    print(textwrap.fill(f"in {kind.__name__}: {said}", 62))
assert not reports[0].ok
(only,) = reports[2].findings
assert only.check == "gradients"
# --8<-- [end:doctor]


# %%
# --8<-- [start:stages]
def mended(*names):
    """The suspect with some of its methods mended."""
    methods = {name: vars(Mended)[name] for name in names}
    return type(Suspect)(Suspect.__name__, (Suspect,), methods)


order = [name for name, of in vars(Mended).items() if callable(of)]
order.reverse()  # the last first
steps = range(len(order) + 1)
stages = [findings(mended(*order[:n])) for n in steps]
off = torch.tensor([list(stage.values()) for stage in stages])
found = off > 1e-5
print(f"findings left: {found.sum(dim=1).tolist()}")
assert found[0].all()
assert not found[-1].any()
assert (found.sum(dim=1).diff() <= 0).all()
noise_left = findings(mended("weigh", "hide_padding", "visible", "share"))
assert min(noise_left.values()) > 1e-5  # drop comes last
assert findings(mended("share"))["off formula"] > 1e-5
# --8<-- [end:stages]

# %%
# --8<-- [start:stages-figure]
figure, ax = plt.subplots(figsize=(4.2, 3.0), layout="constrained")
for stage, row in enumerate(found.tolist()):
    for place, sick in enumerate(row):
        look = {"color": HEAD_COLORS[1] if sick else "black"}
        look |= {"marker": "o" if sick else ".", "ms": 13 if sick else 4}
        ax.plot(place, stage, ls="", **look)
ax.set_yticks(steps, ["as it was", *(f"+ {name}" for name in order)])
ax.set_xticks(range(5), [name.replace(" ", "\n") for name in probes])
ax.set(xlim=(-0.6, 4.6), ylim=(len(order) + 0.6, -0.6))
ax.set_ylabel("mended so far")
# --8<-- [end:stages-figure]

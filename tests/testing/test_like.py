"""A layer beside another one, ported or fused: what differs is found, what is alike passes."""

import copy

import pytest
import torch
from plain import E, H, Layer
from rights.of_transformers import bert
from torch import nn
from torch.nn import functional as F

from mhattn import MultiHeadAttention
from mhattn.testing import check_attention


def found(layer, like, **how):
    report = check_attention(layer, like=like, only=["like"], **how)
    return [finding.got for finding in report.errors], report


def torchs():
    torch.manual_seed(4)
    return nn.MultiheadAttention(E, H, batch_first=True)


class Ported(nn.Module):
    """The same weights in another class, whose masks say who may attend, with one slip or none."""

    def __init__(self, other, slip=""):
        super().__init__()
        self.num_heads, self.embed_dim, self.slip = H, E, slip
        self.qkv = nn.Linear(E, 3 * E)
        self.qkv.weight.data, self.qkv.bias.data = (
            other.in_proj_weight.data,
            other.in_proj_bias.data,
        )
        self.out = other.out_proj

    def forward(self, x, mask=None):
        q, k, v = (t.unflatten(-1, (H, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if self.slip == "far" and x.shape[1] > 64:
            k = k.roll(1, dims=2)
        if self.slip == "sense" and mask is not None:
            mask = ~mask
        scale = 0.5 if self.slip == "scale" else None
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        if self.slip == "detached":
            mixed = mixed.detach()
        return self.out(mixed.transpose(1, 2).flatten(2))


def test_the_same_weights_in_another_class_give_the_same():
    other = torchs()
    errors, report = found(Ported(other), other)
    assert errors == []
    assert report.checked == ["like"]


@pytest.mark.parametrize(
    ("slip", "says"),
    [
        ("scale", "outputs differ"),
        ("far", "outputs differ"),
        ("sense", "outputs differ"),
        ("detached", "gradients differ"),
    ],
)
def test_what_differs_is_found(slip, says):
    other = torchs()
    [got] = found(Ported(other, slip), other)[0]
    assert got.startswith(says)


def test_other_weights_are_found():
    assert found(Ported(torchs()), nn.MultiheadAttention(E, H, batch_first=True))[0]


def test_ours_beside_torchs():
    other = torchs()
    assert found(MultiHeadAttention.from_torch(other), other)[0] == []


def test_one_implementation_of_transformers_beside_another():
    eager = bert("eager", "BertSelfAttention")
    fused = bert("sdpa", "BertSelfAttention")
    fused.load_state_dict(eager.state_dict())
    assert found(fused, eager)[0] == []
    fused.query.weight.data *= 1.1
    assert found(fused, eager)[0]


def test_a_layer_beside_its_own_copy_and_causal_ones():
    layer = Layer()
    other = copy.deepcopy(layer)
    assert found(layer, other)[0] == []
    for p in other.parameters():
        p.data *= 1.01
    assert found(layer, other)[0]


def capped(query, key, value):
    """Another formula: soft-capped scores, causal."""
    scores = 2 * (query @ key.mT / query.shape[-1] ** 0.5 / 2).tanh()
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(dim=-1) @ value


class Capped(nn.Module):
    def __init__(self, cap=2.0):
        super().__init__()
        self.num_heads, self.cap = H, cap
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(E, E) for _ in range(4))

    def forward(self, x):
        maps = self.q_proj, self.k_proj, self.v_proj
        q, k, v = (m(x).unflatten(-1, (H, -1)).transpose(1, 2) for m in maps)
        scores = self.cap * (q @ k.mT / (E // H) ** 0.5 / self.cap).tanh()
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1) @ v
        return self.out_proj(mixed.transpose(1, 2).flatten(2))


def test_a_function_stands_between_the_layers_own_matrices():
    assert found(Capped(), capped, causal=True)[0] == []
    assert found(Capped(3.0), capped, causal=True)[0]
    report = check_attention(Capped(), like=capped, causal=True)
    assert report.ok, str(report)
    assert report.skipped["formula"] == "it is compared with another: like"


def test_a_function_beside_a_function():
    def slow(query, key, value):
        return (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1) @ value

    def wrong(query, key, value):
        return (query @ key.mT / query.shape[-2] ** 0.5).softmax(dim=-1) @ value

    assert found(F.scaled_dot_product_attention, slow)[0] == []
    assert found(F.scaled_dot_product_attention, wrong)[0]


def test_without_another_layer_the_check_is_skipped():
    report = check_attention(torchs(), only=["like"])
    assert report.skipped == {"like": "no other layer is given: say like="}
    with pytest.raises(TypeError, match="like must be a module or a function, got 3"):
        check_attention(torchs(), like=3)

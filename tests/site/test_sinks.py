"""The sink and the gate that the chapter writes, against the layers of gpt-oss and Qwen3-Next."""

import ast
import warnings

import pytest
import torch
import torch.nn.functional as F
from mhsite.stories.translation import shown_section
from torch import nn

from mhattn import MultiHeadAttention, Rotary, attention, causal_mask, window_mask

B, L, E, H, H_KV, D, WINDOW = 3, 13, 42, 6, 2, 20, 5
TURNED = 10  # of Qwen's features
SIZES = {
    "hidden_size": E,
    "num_attention_heads": H,
    "num_key_value_heads": H_KV,
    "head_dim": D,
    "num_hidden_layers": 2,
    "attn_implementation": "eager",
}


def class_of_the_page(section):
    """The only class of a section, without the training around it."""
    code = shown_section(f"resting-heads.pycon:{section}").code
    (found,) = [part for part in ast.parse(code).body if isinstance(part, ast.ClassDef)]
    namespace = {"nn": nn, "F": F, "torch": torch, "Rotary": Rotary, "attention": attention}
    exec(ast.unparse(found), namespace)
    return namespace[found.name]


def library(name, prefix):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = __import__(f"transformers.models.{name}.modeling_{name}", fromlist=[""])
    return getattr(module, f"{prefix}Config"), getattr(module, f"{prefix}Attention")


def turns(features):
    """Cosines and sines as transformers takes them, of this many features."""
    angle = 10_000.0 ** (-torch.arange(0, features, 2, dtype=torch.float64) / features)
    return angle, torch.arange(L, dtype=torch.float64)[:, None] * angle


def as_added(mask):
    hidden = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    return hidden[None, None]


@pytest.fixture
def x():
    return torch.randn(B, L, E, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["sliding_attention", "full_attention"])
def test_own_sink_is_that_of_gpt_oss(x, kind):
    config, layer = library("gpt_oss", "GptOss")
    config = config(**SIZES, attention_bias=True, layer_types=[kind, kind], sliding_window=WINDOW)
    theirs = layer(config, layer_idx=1).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    position = class_of_the_page("own")(D, H)
    ours = MultiHeadAttention(E, H, num_kv_heads=H_KV, head_dim=D, position=position).double()
    with torch.no_grad():
        position.score.copy_(theirs.sinks)
        for role, proj in {"q": "q", "k": "k", "v": "v", "o": "out"}.items():
            mine = getattr(ours, f"{proj}_proj")
            mine.load_state_dict(getattr(theirs, f"{role}_proj").state_dict())
    seen = causal_mask(L) & window_mask(L, L, WINDOW if kind == "sliding_attention" else L)
    angles = turns(D)[1]
    expected = theirs(x, (angles.cos()[None], angles.sin()[None]), as_added(seen))[0]
    torch.testing.assert_close(ours(x, mask=seen), expected)
    with torch.no_grad():
        position.score.fill_(-100.0)  # no sink
    assert (ours(x, mask=seen) - expected).abs().max() > 0.01


@pytest.mark.parametrize("gates_per_head", [1, D])
def test_gate_is_that_of_qwen3_next(x, gates_per_head):
    """Its layer has QK-norm, turns a part of the features, and has a gate for each number."""
    config, layer = library("qwen3_next", "Qwen3Next")
    theirs = layer(config(**SIZES, attention_bias=False), layer_idx=0).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    query, gate = theirs.q_proj.weight.detach().view(H, 2, D, E).unbind(1)
    gate[:] = gate[:, :gates_per_head].clone()  # one for a head is the same for all its numbers
    frequencies = torch.zeros(D // 2, dtype=torch.float64)
    frequencies[: TURNED // 2], angles = turns(TURNED)
    # Rotary turns feature c with c + D / 2, Qwen within its first features: another order
    half, turned = D // 2, TURNED // 2
    order = torch.empty(D, dtype=torch.int64)
    order[:turned], order[half : half + turned] = torch.arange(TURNED).view(2, -1)
    order[turned:half], order[half + turned :] = torch.arange(TURNED, D).view(2, -1)
    rotary = Rotary(D, frequencies=frequencies)
    mha = MultiHeadAttention(E, H, num_kv_heads=H_KV, head_dim=D, bias=False, position=rotary)
    ours = class_of_the_page("gate")(mha, gates_per_head).double()
    rows = {"q": query, "k": theirs.k_proj.weight.detach().view(H_KV, D, E)}
    with torch.no_grad():
        ours.gate.weight.copy_(gate[:, :gates_per_head].flatten(0, 1))
        ours.gate.bias.zero_()
        ours.mha.v_proj.load_state_dict(theirs.v_proj.state_dict())
        ours.out_proj.load_state_dict(theirs.o_proj.state_dict())
        for role, heads in (("q", H), ("k", H_KV)):
            proj, norm = getattr(ours.mha, f"{role}_proj"), nn.RMSNorm(D, eps=1e-6).double()
            proj.weight.copy_(rows[role][:, order].flatten(0, 1))
            norm.weight.copy_(1 + getattr(theirs, f"{role}_norm").weight[order])
            parts = nn.Unflatten(-1, (heads, D)), norm, nn.Flatten(-2)
            setattr(ours.mha, f"{role}_proj", nn.Sequential(proj, *parts))
    both = torch.cat([angles, angles], dim=-1)
    seen = as_added(causal_mask(L))
    expected = theirs(x, (both.cos()[None], both.sin()[None]), seen)[0]
    output, _ = ours(x, is_causal=True, return_weights=True)
    tolerance = {"rtol": 1e-5, "atol": 1e-5}  # theirs normalises in float32
    torch.testing.assert_close(output, expected, **tolerance)
    with torch.no_grad():
        ours.gate.weight.zero_()  # all gates 1/2
    output, _ = ours(x, is_causal=True, return_weights=True)
    assert (output - expected).abs().max() > 0.01

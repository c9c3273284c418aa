"""Linear layers with reordered weights: the same numbers as torch's, and clear errors."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from mhattn import EncoderBlock, MultiHeadAttention, PackedLinear, pack_linears

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch was built without oneDNN"
)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 13), (7, 13), (2, 7, 13), (2, 3, 5, 13), (0, 13)])
def test_equals_linear(bias, shape):
    linear = nn.Linear(13, 11, bias)
    x = torch.randn(shape)
    packed = PackedLinear(linear, num_tokens=7)
    expected = x.double() @ linear.weight.double().T
    if bias:
        expected = expected + linear.bias.double()
    with torch.no_grad():
        output = packed(x)
    torch.testing.assert_close(output.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("num_tokens", [1, 7, 4099])
def test_the_number_of_tokens_changes_nothing(num_tokens):
    linear, x = nn.Linear(17, 19), torch.randn(3, 23, 17)
    with torch.no_grad():
        found = PackedLinear(linear, num_tokens=num_tokens)(x)
        torch.testing.assert_close(found, linear(x), atol=1e-5, rtol=1e-5)


def test_rows_that_lie_apart():
    linear, x = nn.Linear(17, 19), torch.randn(17, 5, 3).permute(2, 1, 0)
    with torch.no_grad():
        torch.testing.assert_close(PackedLinear(linear)(x), linear(x), atol=1e-5, rtol=1e-5)


def test_it_is_a_copy():
    linear, x = nn.Linear(13, 11), torch.randn(5, 13)
    packed = PackedLinear(linear)
    with torch.no_grad():
        before = linear(x)
        linear.weight.zero_()
        linear.bias.zero_()
        torch.testing.assert_close(packed(x), before, atol=1e-5, rtol=1e-5)
    assert not list(packed.parameters())


@pytest.mark.parametrize("kv_heads", [1, 3, 6])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer(kv_heads, bias):
    layer = MultiHeadAttention(30, 6, num_kv_heads=kv_heads, kdim=13, vdim=17, bias=bias)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    query, key, value = torch.randn(2, 5, 30), torch.randn(2, 7, 13), torch.randn(2, 7, 17)
    mask = torch.rand(2, 1, 5, 7) < 0.7
    packed = pack_linears(layer, num_tokens=11)
    with torch.no_grad():
        expected, weights = layer(query, key, value, mask=mask, return_weights=True)
        found, same = packed(query, key, value, mask=mask, return_weights=True)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(same, weights, atol=1e-4, rtol=1e-4)
    kinds = {type(child) for child in layer.modules()}
    assert nn.Linear in kinds
    assert PackedLinear not in kinds, "the layer itself has changed"
    assert nn.Linear not in {type(child) for child in packed.modules()}


def test_a_block_goes_on_in_evaluation():
    block, x = EncoderBlock(12, 3, 29, eps=1e-5).train(), torch.randn(2, 5, 12)
    block.attention.dropout = 0.5
    packed = pack_linears(block)
    assert block.training
    assert not any(child.training for child in packed.modules())
    assert sum(type(child) is PackedLinear for child in packed.modules()) == 6
    with torch.no_grad():
        torch.testing.assert_close(packed(x)[0], block.eval()(x)[0], atol=1e-5, rtol=1e-5)


def test_a_bare_layer_is_packed_itself():
    linear, x = nn.Linear(13, 11), torch.randn(5, 13)
    packed = pack_linears(linear, num_tokens=5)
    assert type(packed) is PackedLinear
    assert not packed.training
    with torch.no_grad():
        torch.testing.assert_close(packed(x), linear(x), atol=1e-5, rtol=1e-5)
        before = packed(x)
        linear.bias.zero_()
        assert packed(x).equal(before)


def test_copies():
    layer, x = pack_linears(EncoderBlock(12, 3, 29, eps=1e-5)), torch.randn(2, 5, 12)
    copied = copy.deepcopy(layer)
    with torch.no_grad():
        expected, _ = layer(x)
        layer.up.bias.zero_()
        assert copied(x)[0].equal(expected)
        assert not layer(x)[0].equal(expected)
    assert copied.up is not layer.up
    shared = copy.deepcopy(nn.ModuleList([layer.up, layer.up]))
    assert shared[0] is shared[1]


@pytest.mark.parametrize(
    "save",
    [
        lambda module: module.state_dict(),
        lambda module: torch.save(module, io.BytesIO()),
        pickle.dumps,
    ],
)
def test_saving_is_refused(save):
    """Else a file without weights would be written, without a word."""
    rule = "^a PackedLinear can't be saved: save the module that was packed, and pack it again$"
    for module in (PackedLinear(nn.Linear(3, 5)), pack_linears(EncoderBlock(12, 3, 29, eps=1e-5))):
        with pytest.raises(TypeError, match=rule):
            save(module)


def test_gradients_are_refused():
    packed, x = PackedLinear(nn.Linear(13, 11)), torch.randn(5, 13, requires_grad=True)
    with pytest.raises(ValueError, match=r"x must not need a gradient .* got requires_grad=True"):
        packed(x)
    with torch.no_grad():
        assert packed(x).shape == (5, 11)
    assert not packed(x.detach()).requires_grad


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: PackedLinear(nn.Conv1d(3, 3, 1)), TypeError, "linear must .*, got Conv1d"),
        (lambda: PackedLinear(nn.Linear(3, 5).half()), ValueError, "got torch.float16 on cpu"),
        (lambda: PackedLinear(nn.Linear(3, 5, device="meta")), ValueError, "float32 on meta"),
        (lambda: PackedLinear(nn.Linear(3, 5), num_tokens=0), ValueError, "num_tokens .* got 0"),
        (lambda: PackedLinear(nn.Linear(3, 5), num_tokens=1.5), TypeError, "num_tokens"),
        (lambda: pack_linears(nn.ReLU()), ValueError, "must hold a torch.nn.Linear, got ReLU"),
        (lambda: pack_linears(lambda x: x), TypeError, "module must be .*, got function"),
        (lambda: PackedLinear(nn.Linear(3, 5))([1.0]), TypeError, "x must be .* got list"),
        (
            lambda: PackedLinear(nn.Linear(3, 5))(torch.ones(2, 3).bfloat16()),
            TypeError,
            "x must be a tensor of torch.float32, got torch.bfloat16",
        ),
        (
            lambda: PackedLinear(nn.Linear(3, 5))(torch.ones(2, 5)),
            ValueError,
            r"x must be \(..., 3\), got \(2, 5\)",
        ),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_without_onednn(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(ValueError, match="built with oneDNN, got one without"):
        PackedLinear(nn.Linear(3, 5))

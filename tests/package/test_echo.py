"""Echo against the same model and training written out, and its heads against their roles."""

import itertools

import pytest
import torch
from torch import nn

from mhattn import MultiHeadAttention, attention_maps
from mhattn.lessons import Echo, echo_losses, echo_texts, repeated_tokens, train_echo


def last(number, **options):
    return [model for _, model in train_echo(number, **options)][-1]


def test_forward_is_written_out_by_hand():
    torch.manual_seed(1)
    echo, tokens = Echo(), torch.randint(27, (3, 17))
    x = echo.token(tokens) + echo.position(torch.arange(17))
    for layer in echo.layers:
        assert isinstance(layer, MultiHeadAttention)
        x = x + layer(x, is_causal=True)
    torch.testing.assert_close(echo(tokens), echo.out(x))
    logits, weights = echo(tokens, return_weights=True)
    torch.testing.assert_close(logits, echo.out(x))
    expected = torch.stack(attention_maps(echo.eval(), tokens).maps, dim=1)
    torch.testing.assert_close(weights, expected)


def test_texts_are_those_of_the_task():
    torch.manual_seed(4)
    found = echo_texts(5)
    torch.manual_seed(4)
    for one, other in zip(found, repeated_tokens(5, 21, periods=(6, 10)), strict=True):
        assert one.equal(other)


def test_losses_are_minus_the_log_of_what_the_next_token_gets():
    torch.manual_seed(0)
    echo, tokens = Echo(), echo_texts(3).tokens
    chances = echo(tokens[:, :-1]).softmax(dim=-1)
    found = echo_losses(echo, tokens)
    for b, i in itertools.product(range(3), range(20)):
        torch.testing.assert_close(found[b, i], -chances[b, i, tokens[b, i + 1]].log())


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("bias", [False, True])
def test_training_is_that_of_a_plain_loop(bias, double):
    torch.manual_seed(6)  # number 7
    model = Echo(bias=bias)
    adam = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(3):
        tokens = repeated_tokens(32, 21, periods=(6, 10)).tokens
        loss = nn.CrossEntropyLoss()(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    found = last(7, steps=3, bias=bias)
    assert found.layers[0].q_proj.bias is None or bias
    for one, other in zip(found.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_looking_at_the_model_changes_no_random_number():
    """Neither those of the training, nor those of whoever looks."""
    quiet = last(2, steps=4)
    torch.manual_seed(11)
    expected = torch.rand(5)
    torch.manual_seed(11)
    steps, found = [], []
    for step, each in train_echo(2, steps=4, every=1):
        steps.append(step)
        found.append(torch.rand(()))
        model = each
    assert steps == [0, 1, 2, 3, 4]
    torch.testing.assert_close(torch.stack(found), expected)
    for one, other in zip(quiet.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_it_learns_the_repeats():
    steps = dict(train_echo(3, steps=120))  # one model, at its last step
    torch.manual_seed(0)
    tokens, target, _ = echo_texts(50)
    asked = target[:, :-1] >= 0
    assert echo_losses(steps[0], tokens)[asked].mean() < 2
    assert echo_losses(Echo(), tokens)[asked].mean() > 3


@pytest.mark.parametrize("name", ["number", "steps", "every"])
def test_numbers_are_checked_at_once(name):
    numbers = {"number": 1, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        train_echo(**numbers)
    with pytest.raises(TypeError, match=f"{name} must be an integer"):
        train_echo(**{"number": 1, name: 1.5})

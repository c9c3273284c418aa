"""The task of names and values against a reader of its text, and the model that learns it."""

import pytest
import torch

from mhattn import Alibi, MultiHeadAttention, Rotary, causal_mask, sinusoidal_positions
from mhattn.lessons import RecallModel, named_values, shares_right, train_recall


def answers(tokens, first):
    """Read from left to right and remember: what each position asks for, and where it stands."""
    known, found = {}, []
    for place, token in enumerate(tokens):
        name, value = divmod(token, 9)
        if value == 8:
            found.append(known.get(name, (-100, None)))
            continue
        found.append((-100, None))
        if not (first and name in known):
            known[name] = value, place
    return found


@pytest.mark.parametrize("first", [False, True])
def test_answers_are_those_of_a_reader(first):
    task = named_values(37, 53, first=first)
    assert task.tokens.shape == task.target.shape == (37, 53)
    assert task.pattern.shape == (37, 53, 53)
    for tokens, target, pattern in zip(*(x.tolist() for x in task), strict=True):
        for (answer, source), asked, keys in zip(
            answers(tokens, first), target, pattern, strict=True
        ):
            assert asked == answer
            assert [i for i, key in enumerate(keys) if key] == [source] * (source is not None)


def test_names_values_and_questions_are_as_frequent_as_said():
    tokens = named_values(1000, 101).tokens
    share = torch.bincount(tokens.flatten(), minlength=36).double() / tokens.numel()
    assert len(share) == 36
    share = share.view(4, 9)
    torch.testing.assert_close(share[:, 8], torch.full((4,), 1 / 8).double(), atol=0.01, rtol=0)
    given = torch.full((4, 8), 1 / 64).double()
    torch.testing.assert_close(share[:, :8], given, atol=0.005, rtol=0)


def test_the_same_seed_draws_the_same_task():
    tasks = []
    for _ in range(2):
        torch.manual_seed(3)
        tasks.append(named_values(2, 11))
    assert all(a.equal(b) for a, b in zip(*tasks, strict=True))


POSITIONS = {
    "nothing": ([None], False),
    "added": ([None], True),
    "turned": ([Rotary(6)], False),
    "subtracted": ([Alibi(2)], False),
    "two layers": ([None, Rotary(6)], False),
}


@pytest.mark.parametrize("kind", POSITIONS)
def test_the_model_is_embeddings_layers_and_a_readout(kind):
    positions, added = POSITIONS[kind]
    model = RecallModel(positions, added=added, embed_dim=12, num_heads=2).double()
    tokens = torch.randint(36, (3, 7))
    x = model.name.weight[tokens // 9] + model.value.weight[tokens % 9]
    if added:
        x = x + sinusoidal_positions(7, 12, dtype=torch.float64)
    torch.testing.assert_close(model.embed(tokens), x)
    assert [layer.position for layer in model.layers] == positions
    for i, layer in enumerate(model.layers):
        assert isinstance(layer, MultiHeadAttention)
        change = layer(x, mask=causal_mask(7))
        x = change if i == len(positions) - 1 else x + change
    torch.testing.assert_close(model(tokens), model.readout(x))
    window = causal_mask(7) & ~causal_mask(7).tril(-3)
    assert not torch.allclose(model(tokens, mask=window), model(tokens))


def test_a_layer_without_positions_answers_the_same_in_any_order():
    """The model's last answer, with the tokens before it shuffled; a second layer tells."""
    torch.manual_seed(0)
    tokens = torch.randint(36, (5, 11))
    shuffled = torch.cat([tokens[:, torch.randperm(10)], tokens[:, 10:]], dim=1)
    for positions, same in [([None], True), ([None, None], False), ([Rotary(8)], False)]:
        model = RecallModel(positions)
        last = [model(x)[:, -1] for x in (tokens, shuffled)]
        assert torch.allclose(*last, atol=1e-5) is same


def test_training_is_adam_on_the_questions():
    """One model, written out with the same draws."""
    torch.manual_seed(0)
    model = RecallModel([Rotary(8)])
    other = RecallModel([Rotary(8)])
    other.load_state_dict(model.state_dict())
    torch.manual_seed(1)
    train_recall([model], length=13, steps=3, lr=0.02, batch=5, first=True)
    torch.manual_seed(1)
    adam = torch.optim.Adam(other.parameters(), lr=0.02)
    for _ in range(3):
        task = named_values(5, 13, first=True)
        adam.zero_grad()
        chances = other(task.tokens).log_softmax(dim=-1)  # (B, L, 8)
        asked = task.target >= 0
        (-chances[asked].gather(1, task.target[asked][:, None]).mean()).backward()
        adam.step()
    for trained, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(trained, expected, atol=2e-4, rtol=0)


@pytest.mark.parametrize("rounded", [False, True])
def test_training_rounds_if_asked(rounded):
    model = RecallModel([Rotary(8)])
    train_recall([model], length=7, steps=5, batch=3, rounded=rounded)
    fractions = torch.cat([(1024 * p).frac().flatten() for p in model.parameters()])
    assert (fractions.count_nonzero() == 0) == rounded


def test_models_learn_side_by_side_and_remain_different():
    torch.manual_seed(0)
    models = [RecallModel([Rotary(8)]) for _ in range(2)]
    test = named_values(50, 16)
    before = shares_right(models, test, [(0, 16)])
    train_recall(models, length=16, steps=60)
    after = shares_right(models, test, [(0, 16)])
    assert (before < 0.3).all()
    assert (after > 0.5).all()
    assert not models[0].readout.weight.equal(models[1].readout.weight)


def test_shares_count_the_questions_of_their_range():
    class Says(torch.nn.Module):
        def __init__(self, value):
            super().__init__()
            self.number = value

        def forward(self, tokens, *, mask=None):
            number = self.number if mask is None else 5
            return torch.eye(8)[torch.full_like(tokens, number)]

    test = named_values(7, 23)
    ranges = [(0, 5), (5, 23)]
    shares = shares_right([Says(2), Says(5)], test, ranges)
    assert shares.dtype == torch.float64
    for row, value in zip(shares, (2, 5), strict=True):
        for share, (start, end) in zip(row, ranges, strict=True):
            asked = [t for t in test.target[:, start:end].flatten().tolist() if t >= 0]
            assert share.item() == pytest.approx(asked.count(value) / len(asked))
    masked = shares_right([Says(2)], test, ranges, mask=causal_mask(23))
    torch.testing.assert_close(masked[0], shares[1])
    assert shares_right([Says(2)], test, [(0, 1)]).isnan().all()


@pytest.mark.parametrize(
    ("error", "text", "use"),
    [
        (ValueError, "batch must be at least 1, got 0", lambda: named_values(0, 5)),
        (TypeError, "length must be an integer, got float", lambda: named_values(2, 5.0)),
        (ValueError, "the number of positions must be at least 1", lambda: RecallModel([])),
        (ValueError, "length must be at least 1, got 0", lambda: train_recall([], length=0)),
        (ValueError, "the number of models must be at least 1", lambda: train_recall([])),
        (
            TypeError,
            "position must be a mhattn.core.Position, got str",
            lambda: RecallModel(["turned"]),
        ),
    ],
)
def test_what_the_task_refuses(error, text, use):
    with pytest.raises(error, match=text):
        use()

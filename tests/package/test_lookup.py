"""Against hand-written grammars, a planted circuit, the definitions in loops, one training each."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mhattn import MultiHeadAttention
from mhattn.inside import head_patterns
from mhattn.lessons import (
    SENTENCE_WORDS,
    AttentionOnly,
    agreeing_verbs,
    lookup_losses,
    matched_brackets,
    previous_tokens,
    repeated_tokens,
    train_together,
)

DRAWS = [previous_tokens, matched_brackets, agreeing_verbs, repeated_tokens]


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(("batch", "length"), [(3, 1), (2, 13), (5, 17)])
def test_an_answer_is_asked_where_the_pattern_has_a_key_and_never_from_behind(draw, batch, length):
    tokens, target, pattern = draw(batch, length)
    assert tokens.shape == target.shape == (batch, length)
    assert pattern.shape == (batch, length, length)
    assert tokens.dtype == target.dtype == torch.long
    assert pattern.dtype == torch.bool
    assert pattern.any(dim=-1).equal(target >= 0)
    assert (target[target < 0] == -100).all()
    assert not pattern.triu(1).any()


@pytest.mark.parametrize("draw", DRAWS)
def test_the_same_seed_gives_the_same_and_another_gives_another(draw):
    found = []
    for seed in (3, 3, 5):
        torch.manual_seed(seed)
        found.append(draw(7, 13))
    assert all(a.equal(b) for a, b in zip(found[0], found[1], strict=True))
    assert not found[0].tokens.equal(found[2].tokens)


@pytest.mark.parametrize("draw", [previous_tokens, matched_brackets, repeated_tokens])
def test_the_answer_is_the_token_at_each_key_of_the_pattern(draw):
    tokens, target, pattern = draw(29, 17)
    b, i, j = pattern.nonzero().T
    assert len(b) > 100
    assert tokens[b, j].equal(target[b, i])


def test_previous_tokens_ask_for_the_one_before():
    tokens, target, pattern = previous_tokens(2, 7, letters=5)
    assert target[:, 1:].equal(tokens[:, :-1])
    assert tokens.unique().tolist() == [0, 1, 2, 3, 4]
    before = head_patterns(7)["previous"]
    assert pattern.equal(before.expand(2, 7, 7))


@pytest.mark.parametrize("periods", [(2, 2), (3, 5), (1, 3)])
def test_rounds_repeat_and_the_next_token_is_asked_from_the_second_on(periods):
    length, letters = 17, 11
    tokens, target, pattern = repeated_tokens(53, length, letters=letters, periods=periods)
    seen = set()
    for b in range(53):
        row = tokens[b].tolist()
        assert row[0] == letters
        assert letters not in row[1:]
        period = len(set(row[1:]))
        seen.add(period)
        assert all(row[i] == row[i - period] for i in range(1 + period, length))
        for i in range(length):
            earlier = [j for j in range(i) if row[j] == row[i]]
            assert pattern[b, i].nonzero().flatten().tolist() == [j + 1 for j in earlier]
            assert (target[b, i] >= 0) == (i > period)
            if i > period and i + 1 < length:
                assert target[b, i] == row[i + 1]
    assert seen == set(range(periods[0], periods[1] + 1))


@pytest.mark.parametrize(("kinds", "depth"), [(1, 1), (5, 3), (3, 7)])
def test_brackets_match_as_a_stack_says(kinds, depth):
    tokens, target, pattern = matched_brackets(211, 19, kinds=kinds, depth=depth)
    deepest, closed = 0, set()
    for b in range(211):
        stack = []
        for i, token in enumerate(tokens[b].tolist()):
            if token < kinds:
                stack.append(i)
                assert target[b, i] == -100
            else:
                mate = stack.pop()
                closed.add(token)
                assert target[b, i] == tokens[b, mate]
                assert pattern[b, i].nonzero().flatten().tolist() == [mate]
            deepest = max(deepest, len(stack))
    assert deepest == depth
    assert closed == {kinds}


def test_a_bracket_opens_half_of_the_time_where_it_may_do_both():
    tokens, _, _ = matched_brackets(4000, 3, kinds=3, depth=3)
    opened = (tokens < 3).double()
    assert opened[:, 0].mean() == 1
    assert abs(opened[:, 1].mean() - 0.5) < 0.04  # five standard deviations
    kinds = tokens[tokens < 3].bincount() / (tokens < 3).sum()
    torch.testing.assert_close(kinds, torch.full((3,), 1 / 3), atol=0.03, rtol=0)


def test_verbs_agree_with_the_first_noun_of_their_sentence():
    tokens, target, pattern = agreeing_verbs(97, 31)
    lengths, nearest = set(), []
    for b in range(97):
        words = [SENTENCE_WORDS[token] for token in tokens[b]]
        assert words[0] == "^"
        begin = 1
        for i in range(1, 32):
            done = i - begin  # words of this sentence before i
            asked = target[b, i - 1] >= 0
            if not asked:
                if i < 31:
                    noun = words[i] in SENTENCE_WORDS[:8]
                    assert noun if done % 2 == 0 else words[i] in ("near", "behind", "above")
                continue
            assert done in (3, 5), "a subject and one or two other nouns"
            lengths.add(done)
            form = SENTENCE_WORDS[target[b, i - 1]]
            assert form == ("are" if words[begin].endswith("s") else "is")
            assert pattern[b, i - 1].nonzero().flatten().tolist() == [begin]
            nearest.append(words[i - 1].endswith("s") == words[begin].endswith("s"))
            assert i == 31 or words[i] == form
            begin = i + 1
        assert 31 - begin < 5
    assert lengths == {3, 5}
    last = agreeing_verbs(97, 30).target[:, -1]  # sentences have an even number of words
    assert (last >= 0).any(), "the last token may ask, too"
    assert abs(sum(nearest) / len(nearest) - 0.5) < 0.15


def test_model_is_the_sum_of_its_layers_on_the_stream():
    model = AttentionOnly(11, 7, embed_dim=6, num_heads=3, num_layers=2)
    tokens = torch.randint(11, (5, 7))
    logits, weights = model(tokens, return_weights=True)
    x = model.token.weight[tokens] + model.position.weight
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    for k, layer in enumerate(model.layers):
        theirs = layer.to_torch()
        change, maps = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
        torch.testing.assert_close(weights[:, k], maps)
        x = x + change
    torch.testing.assert_close(logits, F.linear(x, model.readout.weight, model.readout.bias))
    assert weights.shape == (5, 2, 3, 7, 7)
    assert model(tokens).equal(logits)


def test_model_reads_from_left_to_right_and_shorter_sequences():
    model, tokens = AttentionOnly(11, 7), torch.randint(11, (2, 7))
    torch.testing.assert_close(model(tokens[:, :5]), model(tokens)[:, :5])


def test_a_planted_induction_circuit_solves_its_task():
    """Layer 1 writes down the token before; layer 2 looks for the current token there."""
    letters, length = 5, 13
    width = 2 * (letters + 1) + length  # the token, the one before, the position
    model = AttentionOnly(letters + 1, length, embed_dim=3 * width, num_heads=3, num_layers=2)
    for parameter in model.parameters():
        parameter.detach().zero_()
    token, before = slice(0, letters + 1), slice(letters + 1, 2 * letters + 2)
    place = slice(2 * letters + 2, width)
    answer = slice(width, width + letters + 1)
    one_hot = torch.eye(letters + 1)
    model.token.weight.data[:, token] = one_hot
    model.position.weight.data[:, place] = torch.eye(length)
    first, second = model.layers
    first.q_proj.weight.data[:length, place] = 1e4 * torch.eye(length).roll(-1, 0)
    first.q_proj.weight.data[length - 1, place] = 0
    first.k_proj.weight.data[:length, place] = torch.eye(length)
    first.v_proj.weight.data[: letters + 1, token] = one_hot
    first.out_proj.weight.data[before, : letters + 1] = one_hot
    second.q_proj.weight.data[: letters + 1, token] = 1e4 * one_hot
    second.k_proj.weight.data[: letters + 1, before] = one_hot
    second.v_proj.weight.data[: letters + 1, token] = one_hot
    second.out_proj.weight.data[answer, : letters + 1] = one_hot
    model.readout.weight.data[:, answer] = 50 * one_hot
    task = repeated_tokens(31, length, letters=letters, periods=(2, 5))
    logits, weights = model(task.tokens, return_weights=True)
    asked = task.target >= 0
    assert (logits.argmax(dim=-1) == task.target)[asked].all()
    assert lookup_losses(logits, task.target) < 1e-3
    found = (weights[:, 1, 0] * task.pattern).sum(dim=-1)[asked]
    torch.testing.assert_close(found, torch.ones_like(found))


def test_losses_are_the_mean_over_what_is_asked():
    logits = torch.randn(3, 5, 7)
    target = torch.randint(7, (3, 5))
    target[:, 0] = target[1, 3] = -100
    right = [
        -logits[b, i].log_softmax(dim=-1)[target[b, i]]
        for b in range(3)
        for i in range(5)
        if target[b, i] >= 0
    ]
    assert len(right) == 11
    torch.testing.assert_close(lookup_losses(logits, target), torch.stack(right).mean())


@pytest.mark.parametrize("rounded", [False, True])
def test_training_together_is_training_one_by_one(rounded):
    torch.manual_seed(2)
    together = [AttentionOnly(5, 7, embed_dim=6, num_heads=3).double() for _ in range(3)]
    alone = [AttentionOnly(5, 7, embed_dim=6, num_heads=3).double() for _ in range(3)]
    for a, b in zip(together, alone, strict=True):
        b.load_state_dict(a.state_dict())
    seen, stops, found = [], [], []

    def draw(batch):
        seen.append(previous_tokens(batch, 7, letters=5))
        return seen[-1]

    tokens = torch.randint(5, (2, 7))
    options = {"steps": 11, "lr": 0.01, "batch": 13, "every": 4, "rounded": rounded}
    for step in train_together(together, draw, **options):
        stops.append(step)
        with torch.no_grad():
            found.append([model(tokens) for model in together])
    assert stops == [0, 4, 8, 11]
    assert {len(task.tokens) for task in seen} == {39}
    for n, model in enumerate(alone):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(12):
            if step in stops:
                with torch.no_grad():
                    ours = found[stops.index(step)][n]
                    torch.testing.assert_close(ours, model(tokens), atol=1e-6, rtol=1e-6)
            if step == 11:
                break
            mine = slice(13 * n, 13 * n + 13)
            optimizer.zero_grad()
            logits = model(seen[step].tokens[mine])
            lookup_losses(logits, seen[step].target[mine]).backward()
            optimizer.step()
            if rounded and step in (4, 9):  # the fifth and the tenth
                for p in model.parameters():
                    p.data = (1024 * p.data + 0.5).floor() / 1024


def trained_from(shift, rounded):
    """The parameters of a model of two layers that starts a rounding error away."""
    torch.manual_seed(3)
    model = AttentionOnly(5, 7, embed_dim=6, num_heads=3).double()
    for p in model.parameters():
        p.data += shift
    draw = partial(previous_tokens, length=7, letters=5)
    for _ in train_together([model], draw, steps=10, batch=3, rounded=rounded):
        pass
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_rounded_training_forgets_a_rounding_error():
    plain = [trained_from(shift, rounded=False) for shift in (0, 1e-14)]
    rounded = [trained_from(shift, rounded=True) for shift in (0, 1e-14)]
    assert not plain[0].equal(plain[1])
    assert rounded[0].equal(rounded[1])
    assert (1024 * rounded[0]).frac().count_nonzero() == 0
    assert 0 < (rounded[0] - plain[0]).abs().max() < 0.01


def test_training_finds_the_previous_token():
    torch.manual_seed(0)
    models = [AttentionOnly(7, 9, num_layers=1) for _ in range(2)]
    for _ in train_together(models, lambda n: previous_tokens(n, 9, letters=7), steps=150):
        pass
    task = previous_tokens(50, 9, letters=7)
    for model in models:
        logits, weights = model(task.tokens, return_weights=True)
        assert lookup_losses(logits, task.target) < 0.1
        assert weights[:, 0].diagonal(-1, -2, -1).mean(dim=(0, -1)).max() > 0.6


def trained(**changes):
    options = {"steps": 5} | changes
    return train_together(
        [AttentionOnly(3, 5, num_layers=1)], lambda n: previous_tokens(n, 5, letters=3), **options
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: repeated_tokens(0, 5), ValueError, "batch must be at least 1, got 0"),
        (lambda: repeated_tokens(2, 5.0), TypeError, "length must be an integer, got float"),
        (
            lambda: repeated_tokens(2, 5, periods=(5, 4)),
            ValueError,
            "the second of periods must be at least 5, got 4",
        ),
        (
            lambda: repeated_tokens(2, 5, periods=(0, 4)),
            ValueError,
            "the first of periods must be at least 1, got 0",
        ),
        (
            lambda: repeated_tokens(2, 5, letters=6),
            ValueError,
            "letters must be at least 7, got 6",
        ),
        (lambda: previous_tokens(2, 0), ValueError, "length must be at least 1, got 0"),
        (lambda: previous_tokens(2, 5, letters=0), ValueError, "letters must be at least 1, got 0"),
        (lambda: matched_brackets(2, 5, kinds=0), ValueError, "kinds must be at least 1, got 0"),
        (lambda: matched_brackets(2, 5, depth=0), ValueError, "depth must be at least 1, got 0"),
        (lambda: agreeing_verbs(2.0, 5), TypeError, "batch must be an integer, got float"),
        (lambda: AttentionOnly(0, 5), ValueError, "num_tokens must be at least 1, got 0"),
        (lambda: AttentionOnly(3, 0), ValueError, "length must be at least 1, got 0"),
        (
            lambda: AttentionOnly(3, 5, num_layers=0),
            ValueError,
            "num_layers must be at least 1, got 0",
        ),
        (
            lambda: AttentionOnly(3, 5, num_heads=3),
            ValueError,
            "num_heads must divide embed_dim, 32, got 3",
        ),
        (
            lambda: lookup_losses(torch.zeros(2, 5, 3), torch.zeros(2, 7, dtype=torch.long)),
            ValueError,
            "target must be (2, 5), as logits without the last axis, got (2, 7)",
        ),
        (lambda: trained(steps=0), ValueError, "steps must be at least 1, got 0"),
        (lambda: trained(batch=0), ValueError, "batch must be at least 1, got 0"),
        (lambda: trained(every=2.5), TypeError, "every must be an integer, got float"),
        (
            lambda: train_together([], previous_tokens, steps=5),
            ValueError,
            "the number of models must be at least 1, got 0",
        ),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value) == message


def test_layers_are_those_of_the_package():
    model = AttentionOnly(3, 5, num_layers=3)
    assert len(model.layers) == 3
    assert all(isinstance(layer, MultiHeadAttention) for layer in model.layers)

"""Against loops over the definitions, closed forms, planted heads, and chance itself."""

import itertools
import math
import time

import pytest
import torch

from mhattn import attention_weights, causal_mask, masked_softmax, padding_mask, window_mask
from mhattn.inside import (
    attention_distance,
    attention_entropy,
    attention_share,
    find_roles,
    find_token_roles,
    head_divergence,
    head_patterns,
    largest_weight,
)

NAMES = ["self", "previous", "next", "local", "far", "backward", "forward", "first", "induction"]
AHEAD = ["next", "forward"]  # a causal head sees nothing there
B, H = 2, 3
SIZES = [(5, 7), (7, 5), (11, 11), (1, 13)]
MASKS = {
    "none": lambda L, S: None,
    "causal": lambda L, S: causal_mask(L, S),
    "padding": lambda L, S: padding_mask(torch.tensor([S - 2, 1]), S),
    "a sequence without keys": lambda L, S: padding_mask(torch.tensor([0, S]), S),
    "window": lambda L, S: window_mask(L, S, 2),
    "random": lambda L, S: torch.rand(B, H, L, S) < 0.5,
    "of keys": lambda L, S: torch.arange(S) > 0,
}


def random_weights(L, S, mask=None, sharp=2.0, dtype=torch.float64):
    return masked_softmax(sharp * torch.randn(B, H, L, S, dtype=dtype), mask)


# The definitions, one map at a time, in plain Python


def on_pattern(name, i, j, shift, window, tokens):
    """Whether key j is where a head of this name looks from query i."""
    away = j - (i + shift)
    if name == "induction":
        return 1 <= j <= i + shift and tokens[j - 1] == tokens[i + shift]
    rules = {
        "self": away == 0,
        "previous": away == -1,
        "next": away == 1,
        "local": abs(away) <= window,
        "far": abs(away) > window,
        "backward": away < 0,
        "forward": away > 0,
        "first": j == 0,
    }
    return rules[name]


def plain_mean(numbers):
    return sum(numbers) / len(numbers) if numbers else math.nan


def share_in_loops(weights, seen, on):
    """One map, ``(L, S)``, as nested lists; on and seen as well."""
    rows = []
    for row, may, good in zip(weights, seen, on, strict=True):
        kinds = {good[j] for j in range(len(row)) if may[j]}
        if kinds == {True, False}:
            rows.append(sum(w for w, see, hit in zip(row, may, good, strict=True) if see and hit))
    return plain_mean(rows)


def others_in_loops(weights, seen, shift):
    """Distance, entropy, relative entropy, largest weight of one map."""
    rows = [[], [], [], []]
    for i, (row, may) in enumerate(zip(weights, seen, strict=True)):
        own = [(j, w) for j, w in enumerate(row) if may[j]]
        if len(own) > 1:
            entropy = -sum(w * math.log(w) for _, w in own if w > 0)
            rows[0].append(sum(w * abs(i + shift - j) for j, w in own))
            rows[1].append(entropy)
            rows[2].append(entropy / math.log(len(own)))
            rows[3].append(max(w for _, w in own))
    return [plain_mean(x) for x in rows]


def each_map(function, weights, mask):
    L, S = weights.shape[-2:]
    seen = torch.ones(L, S, dtype=torch.bool) if mask is None else mask
    seen = seen.broadcast_to(weights.shape)
    maps = [[function(b, weights[b, h].tolist(), seen[b, h].tolist()) for h in range(H)]
            for b in range(B)]  # fmt: skip
    return torch.tensor(maps, dtype=torch.float64)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("L", "S"), SIZES)
def test_shares_follow_their_definition(L, S, mask):
    mask = MASKS[mask](L, S)
    weights, tokens = random_weights(L, S, mask), torch.randint(3, (B, S))
    patterns = head_patterns(L, S, window=2, tokens=tokens if L <= S else None)
    assert list(patterns) == (NAMES if L <= S else NAMES[:-1])
    for name, pattern in patterns.items():

        def loops(b, rows, seen, name=name):
            on = [[on_pattern(name, i, j, S - L, 2, tokens[b].tolist()) for j in range(S)]
                  for i in range(L)]  # fmt: skip
            return share_in_loops(rows, seen, on)

        expected = each_map(loops, weights, mask)
        found = attention_share(weights, pattern, mask)
        torch.testing.assert_close(
            found, expected, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("L", "S"), SIZES)
def test_the_other_statistics_follow_their_definition(L, S, mask):
    mask = MASKS[mask](L, S)
    weights = random_weights(L, S, mask)
    weights[weights < 0.05] = 0.0  # so that log 0 comes up
    weights = torch.nan_to_num(weights / weights.sum(-1, keepdim=True))
    found = [
        attention_distance(weights, mask),
        attention_entropy(weights, mask),
        attention_entropy(weights, mask, relative=True),
        largest_weight(weights, mask),
    ]
    for k, numbers in enumerate(found):
        expected = each_map(lambda b, x, y, k=k: others_in_loops(x, y, S - L)[k], weights, mask)
        torch.testing.assert_close(numbers, expected, equal_nan=True)


def divergence_in_loops(one, two, may_one, may_two):
    """Two maps, from the divergences of Kullback and Leibler to the mean of both."""
    rows = []
    for p, q, may_p, may_q in zip(one, two, may_one, may_two, strict=True):
        if sum(may_p) > 1 and sum(may_q) > 1:
            total = 0.0
            for x, y in zip(p, q, strict=True):
                total += x * math.log2(2 * x / (x + y)) / 2 if x else 0.0
                total += y * math.log2(2 * y / (x + y)) / 2 if y else 0.0
            rows.append(total)
    return plain_mean(rows)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("L", "S"), SIZES)
def test_divergence_follows_its_definition(L, S, mask):
    mask = MASKS[mask](L, S)
    weights = random_weights(L, S, mask)
    seen = torch.ones(L, S, dtype=torch.bool) if mask is None else mask
    seen = seen.broadcast_to(weights.shape).tolist()
    maps = weights.tolist()
    expected = [[[divergence_in_loops(maps[b][g], maps[b][h], seen[b][g], seen[b][h])
                  for h in range(H)] for g in range(H)] for b in range(B)]  # fmt: skip
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(head_divergence(weights, mask), expected, equal_nan=True)


def test_divergence_is_zero_for_equal_maps_and_one_for_maps_without_a_common_key():
    even, odd = torch.arange(10) % 2 == 0, torch.arange(10) % 2 == 1
    maps = [masked_softmax(torch.randn(7, 10), keys) for keys in (even, odd)]
    found = head_divergence(torch.stack([maps[0], maps[1], maps[0]]))
    right = torch.tensor([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]])
    torch.testing.assert_close(found, right, atol=1e-5, rtol=0)


def test_a_sequence_without_keys_has_no_numbers():
    mask = padding_mask(torch.tensor([0, 7]), 7)
    weights = random_weights(5, 7, mask)
    assert weights[0].count_nonzero() == 0
    for found in (
        attention_share(weights, head_patterns(5, 7)["local"], mask),
        attention_distance(weights, mask),
        attention_entropy(weights, mask),
        largest_weight(weights, mask),
    ):
        assert found.isnan().equal(torch.tensor([[True] * H, [False] * H]))
    assert head_divergence(weights, mask).isnan().all(dim=-1).equal(found.isnan())


def test_what_hidden_keys_get_does_not_count():
    """As in models that hide scores with a large negative number: a hidden row is uniform."""
    mask = padding_mask(torch.tensor([5, 7]), 7) & (torch.arange(5) > 0)[:, None]
    weights = random_weights(5, 7, mask)
    filled = weights.masked_fill(~mask.any(dim=-1, keepdim=True), 1 / 7)
    pattern = head_patterns(5, 7)["far"]
    for statistic in (
        lambda x: attention_share(x, pattern, mask),
        lambda x: attention_distance(x, mask),
        lambda x: attention_entropy(x, mask),
        lambda x: largest_weight(x, mask),
        lambda x: find_roles(x, {"far": pattern}, mask, generator=torch.Generator())["far"][0],
    ):
        assert statistic(filled).equal(statistic(weights))


# Closed forms


def harmonic(n):
    return sum(1 / k for k in range(1, n + 1))


@pytest.mark.parametrize("n", [5, 12, 31])
def test_closed_forms(n):
    """Uniform, identity, previous-token and causal-uniform maps, derived with a pencil."""
    causal = causal_mask(n)
    before = torch.eye(n, dtype=torch.float64).roll(-1, 1)
    before[0] = torch.eye(n)[0]
    maps = {
        "uniform": (torch.full((n, n), 1 / n, dtype=torch.float64), None),
        "identity": (torch.eye(n, dtype=torch.float64), None),
        "previous": (before, None),
        "causal": (masked_softmax(torch.zeros(n, n, dtype=torch.float64), causal), causal),
    }
    later = harmonic(n) - 1  # the sum of 1/2 ... 1/n, over the queries that have a choice
    expected = {
        "self": [1 / n, 1, 1 / n, later / (n - 1)],
        "previous": [1 / n, 0, 1, later / (n - 1)],
        "next": [1 / n, 0, 0, math.nan],
        "backward": [1 / 2, 0, 1, 1 - later / (n - 1)],
        "forward": [1 / 2, 0, 0, math.nan],
        "first": [1 / n, 1 / n, 2 / n, later / (n - 1)],
        "distance": [(n * n - 1) / (3 * n), 0, (n - 1) / n, n / 4],
        "entropy": [math.log(n), 0, 0, math.lgamma(n + 1) / (n - 1)],
        "relative": [1, 0, 0, 1],
        "largest": [1 / n, 1, 1, later / (n - 1)],
    }
    for k, (weights, mask) in enumerate(maps.values()):
        numbers = {
            name: attention_share(weights, pattern, mask)
            for name, pattern in head_patterns(n).items()
        } | {
            "distance": attention_distance(weights, mask),
            "entropy": attention_entropy(weights, mask),
            "relative": attention_entropy(weights, mask, relative=True),
            "largest": largest_weight(weights, mask),
        }
        for name, row in expected.items():
            assert numbers[name].item() == pytest.approx(row[k], abs=1e-12, nan_ok=True), name


@pytest.mark.parametrize("n", [8, 16, 61])
def test_a_window_in_a_uniform_map(n):
    """Of 2w + 1 keys in the middle, and fewer at both ends, ``(w(w+1))`` are missing in all."""
    w = 3
    weights = torch.full((n, n), 1 / n, dtype=torch.float64)
    near = ((2 * w + 1) * n - w * (w + 1)) / n**2
    patterns = head_patterns(n, window=w)
    assert attention_share(weights, patterns["local"]).item() == pytest.approx(near)
    assert attention_share(weights, patterns["far"]).item() == pytest.approx(1 - near)


# Any axes, dtype, device, gradient


def test_leading_axes_are_kept():
    tokens = torch.randint(3, (B, 7))
    patterns, mask = head_patterns(5, 7, tokens=tokens), causal_mask(5, 7)
    weights = random_weights(5, 7, mask)
    for pattern in patterns.values():
        found = attention_share(weights, pattern, mask)
        assert found.shape == (B, H)
        one = attention_share(weights[1, 2], pattern[1, 0] if pattern.ndim == 4 else pattern, mask)
        torch.testing.assert_close(found[1, 2], one, equal_nan=True)
    layers = torch.stack([weights, weights.flip(0)])  # (2, B, H, L, S)
    assert attention_entropy(layers, mask).shape == (2, B, H)
    assert find_roles(layers, patterns, mask)["induction"].found.shape == (2, B, H)
    assert attention_distance(weights[0, 0], mask).shape == ()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_half_precision_is_rounded_once(dtype):
    mask, pattern = causal_mask(61), head_patterns(61)["local"]
    weights = random_weights(61, 61, mask).to(dtype)
    for statistic in (
        lambda x: attention_share(x, pattern, mask),
        lambda x: attention_distance(x, mask),
        lambda x: attention_entropy(x, mask),
        lambda x: attention_entropy(x, mask, relative=True),
        lambda x: largest_weight(x, mask),
    ):
        found, exact = statistic(weights), statistic(weights.double())
        assert found.dtype == dtype
        near = {"atol": 0, "rtol": 0.51 * max(torch.finfo(dtype).eps, 1e-5)}
        torch.testing.assert_close(found.double(), exact, **near)
    role = find_roles(weights, {"local": pattern}, mask)["local"]
    assert [x.dtype for x in role] == [dtype, dtype, dtype, torch.bool]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    weights = random_weights(7, 7).cuda()
    patterns = head_patterns(7, device="cuda")
    draw = torch.Generator("cuda").manual_seed(0)
    assert find_roles(weights, patterns, generator=draw)["self"].found.is_cuda
    for statistic in (attention_distance, attention_entropy, largest_weight):
        torch.testing.assert_close(statistic(weights).cpu(), statistic(weights.cpu()))


def test_gradients_reach_the_scores_and_are_numbers():
    mask = causal_mask(5, 7) & (torch.arange(7) > 2)  # the first query sees no key
    pattern = head_patterns(5, 7)["previous"]
    scores = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    other = masked_softmax(torch.randn(5, 7, dtype=torch.float64), mask)

    def statistics(scores):
        weights = masked_softmax(scores, mask)
        return torch.stack(
            [
                attention_share(weights, pattern, mask),
                attention_distance(weights, mask),
                attention_entropy(weights, mask),
                attention_entropy(weights, mask, relative=True),
                largest_weight(weights, mask),
                head_divergence(torch.stack([weights, other]), mask)[0, 1],
            ]
        )

    assert torch.autograd.gradcheck(statistics, scores)


# Roles


def planted(n, name, causal, noise, sharp=6.0):
    """One head, ``(1, 1, n, n)``, that looks where the name says, but for noise."""
    tokens = torch.cat([torch.randperm(n // 2)] * 2)[None]  # each token twice
    patterns, mask = head_patterns(n, tokens=tokens), causal_mask(n) if causal else None
    scores = sharp * patterns[name] + noise * torch.randn(1, 1, n, n)
    return masked_softmax(scores, mask), patterns, mask


@pytest.mark.parametrize(
    ("name", "causal"),
    [
        (name, causal)
        for name in NAMES
        for causal in (False, True)
        if name not in AHEAD or not causal
    ],
)
def test_planted_heads_are_found(name, causal):
    weights, patterns, mask = planted(24, name, causal, noise=1.0)
    role = find_roles(weights, patterns, mask)[name]
    assert role.found.all()
    assert role.share.item() > role.threshold.item() > role.chance.item()


def test_a_head_is_not_found_for_what_it_does_not_do():
    draw = torch.Generator().manual_seed(0)
    weights = torch.eye(24).roll(-1, 1)
    weights[0] = torch.eye(24)[0]
    roles = find_roles(weights, head_patterns(24), generator=draw)
    found = [name for name, role in roles.items() if role.found]
    assert found == ["previous", "local", "backward"]


def test_a_causal_head_cannot_look_ahead():
    mask = causal_mask(11)
    roles = find_roles(random_weights(11, 11, mask), head_patterns(11), mask)
    for name in AHEAD:
        assert roles[name].share.isnan().all()
        assert not roles[name].found.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("n", [17, 41, 59, 256])
def test_a_uniform_head_has_no_role(n, dtype):
    """All patterns give it the same share, up to roundings, which differ at these lengths."""
    for mask in (None, causal_mask(n)):
        weights = masked_softmax(torch.zeros(n, n, dtype=dtype), mask)
        roles = find_roles(weights, head_patterns(n), mask, draws=19, rate=0.05)
        assert [name for name, role in roles.items() if role.found.any()] == []


def test_chance_is_the_share_of_a_uniform_head():
    mask = causal_mask(13, 17)
    weights = masked_softmax(3 * torch.randn(13, 17), mask)
    uniform = masked_softmax(torch.zeros(13, 17), mask)
    patterns = head_patterns(13, 17)
    roles = find_roles(weights, patterns, mask, draws=3000, rate=0.01)
    for name in ("self", "previous", "local", "far", "backward", "first"):
        expected = attention_share(uniform, patterns[name], mask)
        torch.testing.assert_close(roles[name].chance, expected, atol=0.01, rtol=0)


@pytest.mark.parametrize("rate", [0.02, 0.1])
@pytest.mark.parametrize("sharp", [0.5, 4.0])
@pytest.mark.parametrize("causal", [False, True])
def test_heads_without_a_role_are_found_at_the_stated_rate(causal, sharp, rate):
    """3 seeds of 400 heads of random scores: as many as the rate says, five deviations around."""
    n, mask = 13, causal_mask(13) if causal else None
    patterns = {name: head_patterns(n)[name] for name in ("previous", "local", "first")}
    for name in patterns:
        found = 0
        for seed in range(3):
            draw = torch.Generator().manual_seed(seed)
            weights = masked_softmax(sharp * torch.randn(400, n, n, generator=draw), mask)
            for some in weights.split(40):  # each with random patterns of its own
                role = find_roles(some, {name: patterns[name]}, mask, rate=rate, draws=49,
                                  generator=draw)[name]  # fmt: skip
                found += role.found.sum().item()
        # Heads that are compared with the same patterns are found together, now and then.
        spread = math.sqrt(1200 * rate * (1 - rate) * (1 + 40 / 49))
        assert abs(found - 1200 * rate) < 5 * spread, (name, found)


def test_the_threshold_falls_with_length():
    thresholds = []
    for n in (8, 32, 128):
        weights = masked_softmax(torch.randn(n, n))
        thresholds.append(find_roles(weights, head_patterns(n), draws=99)["local"].threshold)
    assert thresholds[0] > 2 * thresholds[1] > 4 * thresholds[2]


def test_a_seed_gives_the_same_roles_again():
    weights, patterns = random_weights(11, 11), head_patterns(11)
    thresholds = []
    for seed in (3, 3, 5):
        draw = torch.Generator().manual_seed(seed)
        roles = find_roles(weights, patterns, generator=draw)
        thresholds.append(torch.stack([role.threshold for role in roles.values()]))
    assert thresholds[0].equal(thresholds[1])
    assert not thresholds[0].equal(thresholds[2])


# Roles that depend on tokens, against other texts


def repeating_texts(count, length=20):
    """Letters that come again after 4 to 8: their induction patterns, ``(count, 1, L, L)``."""
    periods = torch.randint(4, 9, (count, 1))
    tokens = torch.arange(length) % periods
    return head_patterns(length, tokens=tokens)["induction"]


def plain_share_of_texts(weights, patterns, mask):
    """Mean over the queries of all texts that have a choice, one number after another."""
    numbers = []
    for text, pattern in zip(weights, patterns, strict=True):
        for row, hit, seen in zip(text, pattern, mask, strict=True):
            if (hit & seen).any() and (~hit & seen).any():
                numbers.append(sum(w for w, h in zip(row.tolist(), hit.tolist(), strict=True) if h))
    return plain_mean(numbers)


def test_a_share_of_texts_and_its_chance_follow_the_definition():
    torch.manual_seed(0)
    mask, patterns = causal_mask(20), repeating_texts(4)
    weights = masked_softmax(2 * torch.randn(4, H, 20, 20), mask)
    role = find_token_roles(weights, {"": patterns}, mask, draws=2400)[""]
    assert role.share.shape == (H,)
    for head in range(H):
        of_head = weights[:, head]
        shares = [
            plain_share_of_texts(of_head, [patterns[text, 0] for text in order], mask)
            for order in itertools.permutations(range(4))
        ]
        assert role.share[head].item() == pytest.approx(shares[0], abs=1e-5)
        assert role.chance[head].item() == pytest.approx(sum(shares) / 24, abs=0.004)
        assert role.threshold[head].item() == pytest.approx(max(shares), abs=1e-5)
        assert not role.found[head], "one order of 24 is as the texts are: too often for 1 %"


def test_a_planted_induction_head_is_found_and_a_preference_for_positions_is_not():
    torch.manual_seed(0)
    mask, patterns = causal_mask(20), repeating_texts(50)
    planted = 3.0 * patterns + torch.randn(50, 1, 20, 20)
    fixed = (4.0 * torch.randn(30, 20, 20)).expand(50, 30, 20, 20)  # thirty heads, deaf to text
    weights = masked_softmax(torch.cat([planted, fixed], dim=1), mask)
    role = find_token_roles(weights, {"induction": patterns}, mask)["induction"]
    assert role.found.tolist() == [True] + 30 * [False]

    rows = weights.transpose(0, 1).flatten(1, 2)  # all queries of a head, below each other
    below = patterns[:, 0].flatten(0, 1), mask.repeat(50, 1)
    by_keys = find_roles(rows, {"induction": below[0]}, below[1])["induction"]
    assert by_keys.found[1:].sum() > 5, "keys in random order are no fair comparison for them"


@pytest.mark.parametrize("rate", [0.02, 0.1])
def test_heads_whose_maps_ignore_the_tokens_are_found_at_the_stated_rate(rate):
    """3 seeds of 300 heads: one map for all texts, and a noise of each: five deviations around."""
    found, mask = 0, causal_mask(20)
    for seed in range(3):
        torch.manual_seed(seed)
        for _ in range(10):  # each with random orders of its own
            patterns = repeating_texts(24)
            scores = torch.randn(30, 20, 20) + torch.randn(24, 30, 20, 20)
            role = find_token_roles(
                masked_softmax(scores, mask), {"": patterns}, mask, rate=rate, draws=49
            )[""]
            found += role.found.sum().item()
    spread = math.sqrt(900 * rate * (1 - rate) * (1 + 30 / 49))
    assert abs(found - 900 * rate) < 5 * spread, found


# Wrong arguments


def call_with(change):
    arguments = {"weights": random_weights(5, 7), "pattern": head_patterns(5, 7)["self"]}
    return lambda: attention_share(**(arguments | change))


DROPPED = torch.tensor([[0.0, 1.1111], [0.5556, 0.5556]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            call_with({"weights": [[1.0]]}),
            TypeError,
            "weights must be a tensor of floats, got list",
        ),
        (
            call_with({"weights": torch.ones(5)}),
            ValueError,
            "weights must have at least 2 axes, got shape (5,)",
        ),
        (
            lambda: attention_entropy(DROPPED),
            ValueError,
            "weights must sum to 1 over what each query sees, got 1.111 (dropout? another mask?)",
        ),
        (
            lambda: largest_weight(torch.eye(3), ~causal_mask(3)),
            ValueError,
            "weights must sum to 1 over what each query sees, got 0 (dropout? another mask?)",
        ),
        (
            lambda: attention_distance(torch.full((2, 2), math.nan)),
            ValueError,
            "weights must sum to 1 over what each query sees, got nan (dropout? another mask?)",
        ),
        (
            lambda: attention_distance(torch.eye(3), torch.ones(3, 3)),
            TypeError,
            "mask must be a tensor of booleans, True = may attend, got torch.float32",
        ),
        (
            lambda: attention_distance(torch.eye(3), causal_mask(2)),
            ValueError,
            "mask must broadcast to (..., L, S) = (3, 3), got (2, 2)",
        ),
        (
            call_with({"pattern": torch.eye(5)}),
            TypeError,
            "pattern must be a tensor of booleans, got torch.float32",
        ),
        (
            call_with({"pattern": causal_mask(5)}),
            ValueError,
            "pattern must broadcast to (..., L, S) = (2, 3, 5, 7), got (5, 5)",
        ),
        (
            call_with({"pattern": torch.tensor([True])}),
            ValueError,
            "pattern must have at least 2 axes, got shape (1,)",
        ),
        (
            lambda: find_roles(torch.eye(3), {"odd": torch.eye(3)}),
            TypeError,
            "patterns['odd'] must be a tensor of booleans, got torch.float32",
        ),
        (
            lambda: find_roles(torch.eye(3), {}, rate=0.0),
            ValueError,
            "rate must be between 0 and 1, got 0.0",
        ),
        (
            lambda: find_roles(torch.eye(3), {}, rate=0.001),
            ValueError,
            "draws must be at least 1 / rate - 1 = 999, got 199",
        ),
        (
            lambda: find_roles(torch.eye(3), {}, draws=2.0),
            TypeError,
            "draws must be an integer, got float",
        ),
        (
            lambda: find_token_roles(random_weights(5, 7), head_patterns(5, 7)),
            ValueError,
            "patterns['self'] must have the axis of texts, B=2, got shape (5, 7)",
        ),
        (
            lambda: find_token_roles(random_weights(5, 7), {"one": torch.ones(1, 1, 5, 7) > 0}),
            ValueError,
            "patterns['one'] must have the axis of texts, B=2, got shape (1, 1, 5, 7)",
        ),
        (
            lambda: find_token_roles(torch.eye(3), {}),
            ValueError,
            "weights must have at least 3 axes, got shape (3, 3)",
        ),
        (
            lambda: find_token_roles(
                random_weights(5, 7), {}, torch.ones(B, 1, 5, 7, dtype=torch.bool)
            ),
            ValueError,
            "mask must be the same for all texts, without their axis, got shape (2, 1, 5, 7)",
        ),
        (
            lambda: head_divergence(torch.eye(3)),
            ValueError,
            "weights must have at least 3 axes, got shape (3, 3)",
        ),
        (lambda: head_patterns(-1), ValueError, "L must be at least 0, got -1"),
        (lambda: head_patterns(3, window=-1), ValueError, "window must be at least 0, got -1"),
        (
            lambda: head_patterns(3, tokens=torch.zeros(3, dtype=torch.int64)),
            ValueError,
            "tokens must be (B, S=3), got (3,)",
        ),
        (
            lambda: head_patterns(3, 2, tokens=torch.zeros(1, 2, dtype=torch.int64)),
            ValueError,
            "with tokens, L must be at most S=2, got 3",
        ),
        (
            lambda: head_patterns(3, tokens=torch.zeros(1, 3)),
            TypeError,
            "tokens must be a tensor of integers, got torch.float32",
        ),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value) == message


# Speed


def double_loop(weights, seen, on):
    """The local share and the entropy of one map, number by number."""
    shares, entropies = [], []
    for i in range(weights.shape[0]):
        share, entropy, visible, hits = 0.0, 0.0, 0, 0
        for j in range(weights.shape[1]):
            if seen[i, j]:
                w = weights[i, j].item()
                visible += 1
                entropy -= w * math.log(w) if w > 0 else 0.0
                if on[i, j]:
                    share, hits = share + w, hits + 1
        if 0 < hits < visible:
            shares.append(share)
        if visible > 1:
            entropies.append(entropy)
    return plain_mean(shares), plain_mean(entropies)


def test_all_maps_at_once_are_fifty_times_as_fast_as_a_double_loop():
    """One map of 256 by 256, by turns; the best of each. It is some 150 times."""
    n, mask = 256, causal_mask(256)
    weights = attention_weights(torch.randn(n, 8), torch.randn(n, 8), mask=mask)
    pattern = head_patterns(n)["local"]
    seconds = {"loop": [], "at once": []}
    for _ in range(3):
        start = time.perf_counter()
        slow = double_loop(weights, mask, pattern)
        middle = time.perf_counter()
        fast = attention_share(weights, pattern, mask), attention_entropy(weights, mask)
        seconds["at once"].append(time.perf_counter() - middle)
        seconds["loop"].append(middle - start)
    assert torch.stack(fast).tolist() == pytest.approx(slow, rel=1e-4)
    assert min(seconds["loop"]) > 50 * min(seconds["at once"]), seconds

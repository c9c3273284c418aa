"""Claims about positions, rates and hybrids, tried again: a part of Variants."""

from __future__ import annotations

import torch

from measuring.claims import Verdict, of_story

# longer


def dividing_positions_costs_near_and_gains_far(seed: int) -> Verdict:
    """Five models, as trained and with position / 8: medians where trained, and at eight times."""
    story = of_story("longer", "stretched")
    models = story.trained(seed)
    plain, eighth = (
        torch.tensor(story.tested(story.ways[way](models))).median(dim=0).values
        for way in ("as trained", "position / 8")
    )
    numbers = {
        "near": plain[0].item() - eighth[0].item(),
        "far": eighth[3].item() - plain[3].item(),
    }
    return Verdict(min(numbers.values()) > 0.1, numbers)


def log_n_helps_where_the_match_is_clear(seed: int) -> Verdict:
    """In at least four of five heads: the errors at 2048 keys, with log n and without."""
    found = torch.tensor(of_story("log-n", "log_n").log_n(seed))[..., -1]
    clear, doubtful = found[1] / found[0], found[3] / found[2]
    numbers = {"clear": clear.median().item(), "doubtful": doubtful.median().item()}
    as_said = (clear < 0.9) & (doubtful > 1.05)
    return Verdict(bool(as_said.sum() >= 4), numbers)


def a_larger_base_holds_four_times_and_no_more(seed: int) -> Verdict:
    """Five models each: medians at two to four times the length of training, and beyond."""
    story = of_story("longer", "larger_base")
    large = torch.tensor(story.larger_base(seed)).median(dim=0).values
    plain = torch.tensor(story.tested(story.trained(seed))).median(dim=0).values
    numbers = {
        "large": large[2].item(),
        "plain": plain[2].item(),
        "large_far": large[3].item(),
        "plain_far": plain[3].item(),
    }
    return Verdict(bool(large[2] > plain[2] + 0.1 and large[3] < plain[3]), numbers)


def turning_half_is_no_cure(seed: int) -> Verdict:
    """Five models each: the median up to twice the length, half turned and all."""
    story = of_story("longer", "partly")
    half = torch.tensor(story.partly(seed)[0]).median(dim=0).values[1].item()
    every = torch.tensor(story.tested(story.trained(seed))).median(dim=0).values[1].item()
    return Verdict(half < every - 0.03, {"half": half, "all": every})


# positions


def turned_fails_at_distances_added_at_positions(seed: int) -> Verdict:
    """Five models of each kind: medians at eight times the length, with all keys and near ones."""
    found = torch.tensor(of_story("positions", "one_layer").one_layer(seed))
    _, added, turned, subtracted = found[..., 3].median(dim=-1).values.tolist()
    numbers = {
        "turned": turned[0],
        "turned_near": turned[1],
        "added_near": added[1],
        "subtracted": subtracted[0],
    }
    holds = turned[0] < 0.6 and turned[1] > 0.85 and added[1] < 0.75 and subtracted[0] > 0.8
    return Verdict(holds, numbers)


def alibi_pays_where_the_first_counts(seed: int) -> Verdict:
    """Five models of each kind at the length of training: the first value is asked for."""
    found = torch.tensor(of_story("positions", "first_value").first_value(seed))
    added, turned, subtracted = found[..., 0].median(dim=-1).values.tolist()
    numbers = {"least": min(added, turned), "subtracted": subtracted}
    return Verdict(subtracted < 0.75 and min(added, turned) > 0.85, numbers)


def two_bare_layers_find_order_that_one_cannot(seed: int) -> Verdict:
    """Five models of each depth without positions, at the length of training."""
    two = torch.tensor(
        (story := of_story("positions", "two_layers")).tested(
            story.train_five(story.stacks["none, none"], seed, rounded=True)
        )
    )[:, 0]
    story = of_story("positions", "one_layer")
    one = torch.tensor(story.tested(story.train_five(story.makers["nothing"], seed)))[:, 0]
    numbers = {"one": one.median().item(), "two": two.median().item()}
    return Verdict(numbers["two"] > numbers["one"] + 0.15, numbers)


# qk-norm


def slow_queries_and_keys_bear_rates_that_plain_does_not(seed: int) -> Verdict:
    """Five models each at 0.15 and 0.3: how many learn, plain and with slow Q and K."""
    train = of_story("qk-norm", "at_rates").train
    plain, slow, normed = (
        (torch.tensor(train(seed, kind, [0.15, 0.3])[0]) >= 0.8).sum().item()
        for kind in ("plain", "Q and K slow", "QK-norm")
    )
    numbers = {"plain": plain, "slow": slow, "normed": normed}
    return Verdict(plain <= 1 and slow >= 8 and normed >= 8, numbers)


def qk_norm_without_fast_gains_only_needs_more_steps(seed: int) -> Verdict:
    """Five models of each of five kinds at 1.0 and at 2.0, 800 steps: how many learn."""
    train = of_story("qk-norm", "at_rates").train

    def learned(kind: str, steps: int = 800) -> int:
        right = torch.tensor(train(seed, kind, [1.0, 2.0], steps=steps)[0])
        return (right >= 0.8).sum().item()

    kinds = "plain", "QK-norm", "QK-norm, no gains", "QK-norm, slow gains", "Q and K slow"
    plain, fast, bare, gains, slow = map(learned, kinds)
    numbers = {"plain": plain, "fast": fast, "normed": min(bare, gains), "slow": slow}
    numbers["early"] = learned("QK-norm, no gains", steps=200)
    few = max(plain, fast) <= 1 and numbers["early"] <= 6
    return Verdict(few and numbers["normed"] >= 9 and slow >= 9, numbers)


def neither_cap_nor_norm_helps_plain_descent(seed: int) -> Verdict:
    """Five models of each kind by plain gradient descent, at 1 and at 6: how many learn."""
    found = torch.tensor(of_story("qk-norm", "with_sgd").with_sgd(seed))[:, 0]
    learn = (found >= 0.8).sum(dim=-1)
    numbers = {"low": learn[:, 0].min().item(), "high": learn[:, 1].max().item()}
    return Verdict(numbers["low"] >= 4 and numbers["high"] <= 1, numbers)


# delta-rule


def a_recurrence_below_softmax_does_both(seed: int) -> Verdict:
    """Five models of each stack: medians of 16 keys, and of keys that were written anew."""
    story = of_story("delta-rule", "hybrids")
    names = ("delta, softmax", "delta, delta", "softmax, softmax")
    found = [torch.tensor(story.learned(seed, *story.stacks[name])) for name in names]
    both, delta, softmax = (each.median(dim=-1).values.tolist() for each in found)
    numbers = {"both": min(both), "delta": delta[0], "softmax": softmax[1]}
    return Verdict(min(both) > 0.9 and delta[0] < 0.8 and softmax[1] < 0.88, numbers)

"""Claims, tried again: The course. See `measuring.claims`."""

from __future__ import annotations

import torch

from measuring.claims import Verdict, of_story

TEXTS = {"alice": "build-and-train", "poems": "build-and-train.zh"}  # English prose, Chinese verse


def one_head_returns_one_mean(seed: int) -> Verdict:
    """A thousand pairs of numbers: the best matrix behind one head for both, and behind two."""
    torch.manual_seed(seed)
    carried = torch.randn(6, 1000, dtype=torch.float64)  # a number a word
    needed = carried[[3, 1]]  # of Mia and of cats
    scores = torch.randn(2, 6, dtype=torch.float64)
    scores[0, 3] += 8  # the second question, then the first
    scores[1, 1] += 8
    heads = {"two": scores.softmax(dim=-1)}
    found = {}
    for factor in (0.5, 1, 2):
        both = (factor * scores[0] + scores[1]).softmax(dim=-1)
        heads[f"one, times {factor}"] = both[None]
    for name, weights in heads.items():
        seen = (weights @ carried).mT
        best = torch.linalg.lstsq(seen, needed.mT).solution
        found[name] = (seen @ best - needed.mT).square().mean().item()
    one = min(error for name, error in found.items() if name != "two")
    return Verdict(one > 0.4 and found["two"] < 0.05, {"one": one, "two": found["two"]})


def equal_heads_stay_equal(seed: int) -> Verdict:
    """Two heads that learn the layer of the sentence, three times from equal and other starts."""
    story = of_story("multi-head", "train")
    equal, other = [], []
    for i in range(3):
        torch.manual_seed(seed + i)
        these, those = torch.randn(2, 4, 8, 4) / 2
        equal.append(story.train(these, these)[1])
        other.append(story.train(these, those)[1])
    numbers = {"equal": max(equal), "other": min(other)}
    return Verdict(max(equal) == 0 and min(other) > 0.1, numbers)


def parts_of_the_block(seed: int) -> Verdict:
    """Two models of each of four kinds, trained four times as long as the page's."""
    story, right = of_story("block", "learned"), {}
    torch.manual_seed(seed)
    test, answers = story.draw(1000)
    for part in ("nothing", "attention", "second block", "places"):
        models = [story.build(part) for _ in range(2)]
        steps = 520 if part == "nothing" else 1040
        found = story.train(models, test, steps=steps).argmax(dim=-1) == answers
        right[part.split()[-1]] = 100 * found[..., 3:].double().mean(dim=(1, 2))
    numbers = {name: shares.mean().item() for name, shares in right.items()}
    late = max(right["block"].max(), right["places"].max())
    above = min(right["block"].min(), right["places"].min())
    ordered = right["attention"].max() < 41 and above > 52 and late < 92
    return Verdict(bool(ordered and right["nothing"].min() > 97), numbers)


def norm_and_mlp_lower_the_loss(seed: int) -> Verdict:
    """A pair of models of each text, 300 steps each: how far the losses lie apart."""
    gains = {}
    for name, page in TEXTS.items():
        story, losses = of_story(page, "one_or_four"), []
        for part in ("Plain", "Model"):
            torch.manual_seed(seed)
            # a class of another namespace, with the same data and the same seed
            model = of_story(page, part).__dict__[part](4)
            story.train(model, 300)
            losses.append(story.test_loss(model))
        gains[name] = losses[0] - losses[1]
    return Verdict(min(gains.values()) > 0.02, gains)


def a_head_forms_that_chooses_by_place(seed: int) -> Verdict:
    """Two models of the book, 300 steps: the largest share for the character before."""
    story, shares, shuffled = of_story("build-and-train", "one_or_four"), [], []
    for i in range(2):
        torch.manual_seed(seed + i)
        model = story.Model(4)
        before = story.profile(model, story.rows)[:, 1].max().item()
        story.train(model, 300)
        share, head = story.profile(model, story.rows)[:, 1].max(dim=0)
        order = torch.rand(story.rows.shape).argsort(-1)
        mixed = story.profile(model, story.rows.gather(-1, order))
        shares.append(share.item())
        shuffled.append(mixed[head, 1].item())
    numbers = {"share": min(shares), "shuffled": min(shuffled), "before": before}
    return Verdict(min(shares) > 0.5 and min(shuffled) > 0.4 and before < 0.2, numbers)


def four_heads_beat_one_a_little(seed: int) -> Verdict:
    """Two pairs of models of each text, one head and four, 300 steps: the gain in the loss."""
    numbers = {}
    for name, page in TEXTS.items():
        story = of_story(page, "one_or_four")
        numbers[name] = sum(story.one_or_four(seed + i)[0][2] for i in range(2)) / 2
    return Verdict(min(numbers.values()) > 0 and max(numbers.values()) < 0.08, numbers)

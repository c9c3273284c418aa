"""Claims about what a layer recalls, tried again: a part of Variants."""

from __future__ import annotations

from measuring.claims import Verdict, of_story


def one_layer_binds_by_its_convolution(seed: int) -> Verdict:
    """Two models of each kind; without a convolution at two other rates and with positions."""
    story = of_story("delta-rule", "short")
    make = {name: make for name, (make, _) in story.one_layer.items()}
    make["delta, turned"] = lambda: story.Recaller(turned=True)
    ways = [("delta, convolution", 200, 0.005), ("delta, k one token back", 200, 0.005)]
    ways += [("delta", 800, 0.002), ("delta", 800, 0.0125), ("delta, turned", 800, 0.005)]
    conv, back, *without = (
        story.asked_after(make[name], seed, steps, lr=rate, count=2)[1]
        for name, steps, rate in ways
    )
    numbers = {"conv": min(conv), "back": min(back), "without": max(map(max, without))}
    return Verdict(min(conv + back) > 0.9 and numbers["without"] < 0.3, numbers)


def two_layers_bind_without_a_convolution(seed: int) -> Verdict:
    """Three models of two layers after 200 and 800 steps, three of one with a convolution."""
    story = of_story("delta-rule", "short_beside")
    make, steps = story.beside["delta, two layers"]
    early, late = story.asked_after(make, seed, steps, count=3)
    conv, _ = story.asked_after(lambda: story.Recaller(story.every), seed, 200, count=3)
    numbers = {"early": sorted(early)[1], "late": max(late), "conv": sorted(conv)[1]}
    return Verdict(numbers["early"] < 0.5 and min(max(late), numbers["conv"]) > 0.9, numbers)

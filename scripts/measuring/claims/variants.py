"""Claims, tried again: Variants. See `measuring.claims`."""

from __future__ import annotations

import torch

from measuring.claims import Verdict, of_story


def tracking_needs_a_negative_factor(seed: int) -> Verdict:
    """Three models of each kind, each at the better of two rates, at tokens 17 to 40."""
    story, found = of_story("state-tracking", "parity"), {}
    for kind in ("b up to 2", "b up to 1", "decay", "softmax"):
        models = [[story.train(kind, rate, seed + i) for rate in story.rates] for i in range(3)]
        right = torch.tensor([[story.shares(model)[3] for model in pair] for pair in models])
        found[kind] = right.max(dim=1).values  # of the rates
    flips = found.pop("b up to 2")
    rest = torch.stack(list(found.values()))
    numbers = {"flips": 100 * flips.min().item(), "others": 100 * rest.max().item()}
    return Verdict(bool(flips.min() > 0.9 and rest.max() < 0.6), numbers)

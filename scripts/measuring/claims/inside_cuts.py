"""Claims of the page that cuts heads, tried on lists, names, passages and facts drawn anew."""

from __future__ import annotations

import torch

from measuring.claims import Verdict, of_story

TEXTS = 5  # for each claim; one takes some seconds


def _texts(function: str, seed: int, part: int | None = None) -> torch.Tensor:
    """What a function of the story returns for several new texts: to zero, and to the mean."""
    ask = getattr(of_story("cut-heads", function), function)
    found = [ask(seed + i) for i in range(TEXTS)]
    return torch.tensor(found if part is None else [each[part] for each in found])


def five_copiers_cost_more_than_heads_alike(seed: int) -> Verdict:
    """New lists: the second round without five by induction, and without heads alike."""
    zero, mean = (x[..., 0] - x[:, :1, 0] for x in _texts("lists", seed).unbind(dim=1))
    more = int((zero[:, 1] > zero[:, 8:].amax(dim=1)).sum())
    numbers = {"more": more, "own": zero[:, 1].median().item(), "page": zero[:, 2].median().item()}
    numbers |= {"alike": zero[:, 8:].median().item(), "mean": mean[:, 1].median().item()}
    numbers["alike_mean"] = mean[:, 8:].median().item()
    far = min(numbers["own"], numbers["page"]) > numbers["alike"] + 1
    holds = far and more >= TEXTS - 1 and numbers["mean"] > numbers["alike_mean"] + 0.5
    return Verdict(holds, numbers)


def marys_five_serve_other_names(seed: int) -> Verdict:
    """New names: what Mary's five take from the right one, and what heads alike take."""
    zero, mean = (x[..., 0] / x[:, :1, 0] for x in _texts("pairs", seed, 0).unbind(dim=1))
    numbers = {"own": zero[:, 1].median().item(), "mary": zero[:, 2].median().item()}
    numbers |= {"alike": zero[:, 8:].median().item(), "mean": mean[:, 2].median().item()}
    below = int((zero[:, 2] < zero[:, 8:].amin(dim=1)).sum())
    numbers["below"] = below
    far = numbers["mary"] < 0.5 and numbers["mean"] < 0.7 < numbers["alike"]
    return Verdict(far and below >= TEXTS - 1, numbers)


def a_cut_does_not_tell_heads_at_rest(seed: int) -> Verdict:
    """New passages: how far the loss moves without five heads at rest, and without heads alike."""
    zero, mean = (x[..., 0] - x[:, :1, 0] for x in _texts("passages", seed, 0).unbind(dim=1))
    numbers = {"rest": zero[:, 1].abs().median().item(), "most": zero[:, 1].max().item()}
    numbers |= {"alike": zero[:, 9:].abs().median().item(), "worst": zero[:, 9:].max().item()}
    numbers["mean"] = mean[:, 1].abs().max().item()
    small = max(numbers["rest"], numbers["alike"]) < 0.1
    return Verdict(small and numbers["most"] < 0.2 and numbers["mean"] < 0.1, numbers)


CAPITALS = (
    "Poland Warsaw Portugal Lisbon Sweden Stockholm Finland Helsinki Peru Lima Kenya Nairobi "
    "Iraq Baghdad Thailand Bangkok Iran Tehran Ireland Dublin Belgium Brussels Denmark "
    "Copenhagen Norway Oslo Hungary Budapest Bulgaria Sofia Romania Bucharest Cuba Havana Chile "
    "Santiago Lebanon Beirut Syria Damascus Jordan Amman Ukraine Kyiv Serbia Belgrade Latvia "
    "Riga Croatia Zagreb Morocco Rabat Tunisia Tunis Libya Tripoli Ghana Accra Senegal Dakar "
    "Uganda Kampala Nepal Kathmandu Taiwan Taipei Vietnam Hanoi Philippines Manila Indonesia "
    "Jakarta Afghanistan Kabul"
)


def head_24_5_costs_capitals_less_at_its_mean(seed: int) -> Verdict:
    """Fifteen other capitals by lot: what 24.5 costs them at zero and at its mean."""
    story = of_story("cut-heads", "known")
    torch.set_grad_enabled(False)
    words = CAPITALS.split()
    pairs = list(zip(words[::2], words[1::2], strict=True))
    drawn = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed))[:15]
    rises, one = [], (23, 4)
    for country, city in (pairs[i] for i in drawn):
        tokens = story.encode(f"The capital of {country} is the city of")
        right = story.encode(" " + city)[0, 0]
        zero, mean = (
            story.after([[], [one]], tokens, way)[:, -1].log_softmax(dim=-1)[:, right]
            for way in ("zero", "mean")
        )
        rises.append([(zero[0] - zero[1]).item(), (mean[0] - mean[1]).item()])
    at_zero, at_mean = torch.tensor(rises).unbind(dim=1)
    numbers = {"zero": at_zero.median().item(), "mean": at_mean.median().item()}
    numbers |= {"least": at_mean.min().item(), "most": at_mean.max().item()}
    return Verdict(numbers["zero"] > 0.2 and abs(numbers["mean"]) < numbers["zero"] / 2, numbers)


def cuts_by_lot_mend_dates_and_break_them(seed: int) -> Verdict:
    """Five new draws of five heads: wrong dates mended, right ones broken."""
    story = of_story("cut-heads", "dates")
    found = torch.tensor(story.dates(seed))[..., 1] == 1  # (44, 11)
    right, cut = found[:, 0], found[:, 1:6]
    mended, broken = cut[~right].float().mean().item(), 1 - cut[right].float().mean().item()
    some = int(cut[~right].any(dim=1).sum())
    numbers = {"mended": 100 * mended, "broken": 100 * broken, "some": some}
    return Verdict(bool(some > 0 and broken > 0.5 * mended), numbers)

"""Claims about the live model, the English and the Chinese one. See `measuring.claims`."""

from __future__ import annotations

import random
from functools import partial
from types import SimpleNamespace

import torch
from torch import nn

from measuring.claims import Verdict, of_story
from mhattn.inside import replace_heads

# Of each page its story, and how a name is asked for: half of it, after all of it.
LIVE = {
    "live-model": "‘{} is here,’ said the King. ‘Oh, {}",
    "live-model.zh": "{}，{}",
}


def live_parts(story: str) -> tuple[SimpleNamespace, nn.Module]:
    """What trained a page's model, and that model: its weights are filed, one byte each.

    The page writes them into a file for its script and reads that; a trial needs no such file.
    """
    return of_story(story, "learned"), of_story(story, "read_model").read_model()


def projections(model: nn.Module) -> list[nn.Module]:
    """Where heads are switched off: the output projections of both layers."""
    return [block.attention.out_proj for block in model.blocks]


def names_of(letters: str, form: str, draw: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """A hundred made-up names, each once and then its first three letters; and the last three."""
    number = {letter: place for place, letter in enumerate(letters)}  # what lacks is a blank
    small = [letter for letter in letters if letter.isalpha() and not letter.isupper()]
    people = ["".join(draw.sample(small, 6)).capitalize() for _ in range(100)]
    begun, ends = ([form.format(name, name[:3]) for name in people], [name[3:] for name in people])
    first, second = (
        torch.tensor([[number.get(letter, len(letters)) for letter in text] for text in texts])
        for texts in (begun, ends)
    )
    return first, second


def a_mean_over_text_hides_what_a_layer_is_for(seed: int) -> Verdict:
    """Both stored models without layer 2: text held out, cut anew, and a hundred new names."""
    draw, rows = random.Random(seed), []
    for name, form in LIVE.items():
        story, model = live_parts(name)
        begun, ends = names_of(story.letters, form, draw)
        held_out = story.rows_of(story.test_tokens[draw.randrange(story.L) :])
        for heads in ([], [(1, head) for head in range(story.H)], [(0, h) for h in range(story.H)]):
            text = begun
            with torch.no_grad(), replace_heads(projections(model), story.H, heads):
                loss = story.losses(model, held_out).mean().item()
                for _ in range(3):
                    text = torch.cat([text, model(text)[:, -1:].argmax(dim=-1)], dim=1)
            rows.append([loss, (text[:, -3:] == ends).all(dim=-1).sum().item()])
    found = torch.tensor(rows).view(len(LIVE), 3, 2)  # (whole, layer 2 off, layer 1 off)
    loss, named = found.unbind(dim=-1)
    second, first = (loss[:, 1:] - loss[:, :1]).T
    numbers = {"rise": second.max().item(), "first": first.min().item()}
    numbers |= {"names": named[:, 0].min().item(), "left": named[:, 1].max().item()}
    little = numbers["rise"] < 0.08 and numbers["rise"] < numbers["first"] / 5
    return Verdict(little and numbers["names"] > 30 and numbers["left"] < 5, numbers)


# Another sentence than the page's, to ask for a name.
ELSEWHERE = {
    "live-model": "‘{} was late,’ thought Alice. ‘Poor {}",
    "live-model.zh": "{}。{}",
}


def syllables(story: SimpleNamespace) -> str:
    """A name as the page's second kind has them."""
    return story.syllable() + story.syllable() + story.one_of("aeio")


def names_kept_out_of_training_are_completed(seed: int) -> Verdict:
    """Names kept out, in another sentence, and new ones of the page's rules; without layer 2."""
    shares, left = [], []
    for name, elsewhere in ELSEWHERE.items():
        story = of_story(name, "other_seed")
        model = of_story(name, "read_model").read_model()
        _ = torch.manual_seed(seed)
        if name == "live-model":
            rules = [partial(syllables, story), story.six_letters]
        else:
            rules = [partial(story.spliced, story.new), partial(story.any_letters, 5)]
        new = [story.hundred(rule) for rule in rules]
        known = next(iter(story.kinds.values()))
        for form, people in ((elsewhere, known), *((LIVE[name], some) for some in new)):
            story.completes.__globals__["form"] = form
            for heads in ([], [(1, head) for head in range(story.H)]):
                with replace_heads(projections(model), story.H, heads):
                    right = [story.completes(model, each) for each in people]
                (left if heads else shares).append(100 * sum(right) / len(right))
    numbers = {"least": min(shares), "most": max(shares), "left": max(left)}
    return Verdict(min(shares) > 45 and max(left) < 10, numbers)


def training_on_makes_up_for_a_head(seed: int) -> Verdict:
    """Both models, 100 steps more with other draws, with and without the costliest head."""
    shares, broken = [], []
    for name in LIVE:
        story, model = live_parts(name)

        def loss(
            other: nn.Module, heads: list, steps: int, story: SimpleNamespace = story
        ) -> float:
            with replace_heads(projections(other), story.H, heads):
                _ = torch.manual_seed(seed)
                story.train(other, steps=steps, lr=0.003)
                return story.losses(other, story.held_out).mean().item()

        each = [(0, head) for head in range(story.H)] + [(1, head) for head in range(story.H)]
        costs = [loss(model, [head], 0) - loss(model, [], 0) for head in each]
        worst = each[costs.index(max(costs))]
        kept, mended = (loss(live_parts(name)[1], off, 100) for off in ([], [worst]))
        broken.append(max(costs))
        shares.append(1 - (mended - kept) / max(costs))
    numbers = {"broken": min(broken), "least": 100 * min(shares), "most": 100 * max(shares)}
    return Verdict(min(broken) > 0.2 and min(shares) > 0.4, numbers)

"""Claims about words, grammar and translations in heads. See `measuring.claims`."""

from __future__ import annotations

import random
from types import SimpleNamespace

import torch
from mhsite.pages import claims as register

from measuring.claims import Verdict, of_story
from mhattn.inside import find_roles, replace_heads

# two-languages

WORDS = register.FOLDER / "two-languages.txt"  # who, does, what: words and their translations


def written_pairs(seed: int, number: int = 24) -> list[list[str]]:
    """Sentences and translations of parts drawn by lot, with the words that belong together."""
    draw, made = random.Random(seed), []
    parts = [line.split() for line in WORDS.read_text("utf-8").splitlines()]
    orders = [[x for _ in range(number // 8) for x in draw.sample(part, 8)] for part in parts]
    for words in zip(*orders, strict=True):
        (s, s2), (v, v2), (o, o2) = (word.split("=") for word in words)
        made.append([f"The {s} {v} the {o}.", f"{s2}{v2}{o2}。", " ".join(words)])
    return made


def wrong_attention_is_worse_than_none(seed: int) -> Verdict:
    """24 fresh sentences: translations found whole, without attention, with three shuffled."""
    story, pairs = of_story("two-languages", "of_redrawn"), written_pairs(seed)

    def share(model: torch.nn.Module) -> float:
        one, other = (story.vectors([pair[i] for pair in pairs], model) for i in (0, 1))
        both = story.right(one, other) + story.right(other, one)
        return both.item() / (2 * len(pairs))

    with torch.no_grad():
        whole, wrong = share(story.model), [share(story.redrawn(seed + i)) for i in range(3)]
        for block in story.model.blocks:
            block.attention.out_proj.weight.zero_()
            block.attention.out_proj.bias.zero_()
        none = share(story.model)
    numbers = {"whole": 100 * whole, "none": 100 * none, "wrong": 100 * max(wrong)}
    return Verdict(whole > 0.7 and none > 0.4 and max(wrong) < 0.25, numbers)


def strong_heads_are_strong_in_both_languages(seed: int) -> Verdict:
    """A random half in English, the rest in Chinese: strong heads, the ten highest, removal."""
    story, removal = of_story("two-languages", "of_redrawn"), of_story("two-languages", "without")
    order = random.Random(seed).sample(range(40), 40)
    english = [story.english[i] for i in order[:20]]
    rest = [story.english[i] for i in order[20:]]
    chinese = [story.chinese[i] for i in order[20:]]
    weights, patterns, mask = story.read(english, story.model)
    roles = find_roles(weights, patterns, mask, generator=torch.Generator().manual_seed(seed))
    there, common, lowest, other = story.shares(chinese), [], [], story.redrawn(seed)
    by_lot = [story.shares(texts, other) for texts in (english, chinese)]
    for name in ("previous", "next"):
        strong = roles[name].found & (roles[name].share > 0.5)
        lowest += there[name][strong].tolist()
        for one, two in ((roles[name].share, there[name]), (by_lot[0][name], by_lot[1][name])):
            common.append(len(story.ten(one) & story.ten(two)))
    gone = [tuple(head) for head in (roles["next"].share > 0.5).nonzero().tolist()]
    with replace_heads(removal.projections, 12, gone):
        after = [removal.vectors(texts, removal.model) for texts in (rest, chinese)]
    left = story.right(*after).item()
    numbers = {"strong": len(lowest), "lowest": min(lowest), "ten": min(common[::2])}
    numbers |= {"redrawn": max(common[1::2]), "left": left}
    stays = len(lowest) >= 2 and min(lowest) > 0.5 and min(common[::2]) >= 6
    return Verdict(stays and max(common[1::2]) <= 5 and left >= 19, numbers)


def no_head_translates_better_than_embeddings(seed: int) -> Verdict:
    """48 fresh pairs, twice: the head chosen on half of them, beside cosine and redrawn heads."""
    story, head, near, other = of_story("two-languages", "of_redrawn"), [], [], []
    for i in range(2):
        story.hits.__globals__["pairs"] = written_pairs(seed + i, 48)
        found, anew = story.hits(story.model), story.hits(story.redrawn(seed + i))
        head += [story.at_best(way).item() for way in found]
        other += [story.at_best(way).item() for way in anew]
        near += [way["embeddings"][~way["half"]].double().mean().item() for way in found]
    numbers = {"head": 25 * sum(head), "cosine": 25 * sum(near), "redrawn": 100 * max(other)}
    far = min(head) > max(other) + 0.15
    return Verdict(far and numbers["head"] < numbers["cosine"] + 4, numbers)


# syntax-or-meaning


def judged(seed: int, relations: list[str], story: SimpleNamespace) -> dict[str, list[float]]:
    """Of SmolLM2's best head on the first half: its rate there; near and far on the second."""
    found = {}
    for relation in relations:
        counts = [story.measured(story.read_smollm, relation, seed + i)[0] for i in range(2)]
        rates = torch.tensor(counts).double()[:, :4].mean(dim=0) / 24  # (4, heads)
        head = rates[:2].mean(dim=0).argmax()
        found[relation] = [rates[:2, head].mean().item(), *rates[2:, head].tolist(), head.item()]
    return found


def a_head_finds_the_subject_in_either_order(seed: int) -> Verdict:
    """The best heads on fresh words: on the second half, and in four other frames."""
    story = of_story("syntax-or-meaning", "in_smollm")
    found = judged(seed, ["subject", "before the verb"], story)
    rates = [rate for row in found.values() for rate in row[1:3]]
    looks = of_story("syntax-or-meaning", "looking")
    there = torch.stack([looks.looking(seed + i) for i in range(2)]).mean(dim=0)
    there = there[:, int(found["before the verb"][3])].min().item()
    numbers = {"worst": min(rates), "elsewhere": there}
    return Verdict(min(rates) > 0.8 and there > 0.75, numbers)


def heads_for_objects_lose_in_new_frames(seed: int) -> Verdict:
    """Three draws of words: the best head for objects, and 21.5, in its frames and in others."""
    story = of_story("syntax-or-meaning", "in_smollm")
    counts = [story.measured(story.read_smollm, "object", seed + i)[0] for i in range(3)]
    rates = torch.tensor(counts).double()[:, :4].mean(dim=0) / 24  # (4 frames, 270 heads)
    head = rates[:2].mean(dim=0).argmax()
    first, near, far = rates[:2, head].mean().item(), *rates[2:, head].tolist()
    numbers = {"first": first, "near": near, "far": far, "known": rates[3, 184].item()}
    return Verdict(first > 0.9 and far < 0.85 and numbers["known"] < 0.6, numbers)


def pronoun_heads_find_similar_words(seed: int) -> Verdict:
    """Both models' best heads for the pronoun, with fresh words, on synonyms and antonyms."""
    story = of_story("syntax-or-meaning", "in_smollm")
    other, rates = of_story("syntax-or-meaning", "in_encoder"), []
    for own, read in ((story, story.read_smollm), (other, other.read_encoder)):
        found = {}
        for relation in ("pronoun", "synonym", "antonym"):
            counts = [own.measured(read, relation, seed + i)[0] for i in range(2)]
            found[relation] = torch.tensor(counts).double()[:, :4].mean(dim=0) / 24
        head = found["pronoun"][:2].mean(dim=0).argmax()
        rates.append([of[2:, head].min().item() for of in found.values()])  # the worse order
    pronoun, *similar = torch.tensor(rates).amin(dim=0).tolist()
    numbers = {"pronoun": pronoun, "synonym": similar[0], "antonym": similar[1]}
    return Verdict(pronoun > 0.8 and min(similar) > 0.6, numbers)


def a_chosen_random_head_fails_on_new_sentences(seed: int) -> Verdict:
    """Both models with redrawn layers: the best head of each relation, chosen and tested."""
    story = of_story("syntax-or-meaning", "redrawn")
    found = torch.tensor([story.redrawn(seed + i) for i in range(2)]).double().mean(dim=0) / 12
    first, again = found.unbind(dim=2)  # (2 models, 8 relations, near and far)
    numbers = {"first": first.mean().item(), "again": again.mean().item()}
    numbers["worst"] = again.amin(dim=-1).max().item()
    fails = 0.4 < again.mean() < 0.6 and again.amin(dim=-1).max() < 0.75
    return Verdict(bool(first.mean() > 0.75 and fails), numbers)


def agreement_needs_subject_heads_no_more_than_others(seed: int) -> Verdict:
    """Two draws of beginnings: the gap whole, without heads that pass, without five other sets."""
    story = of_story("syntax-or-meaning", "without")
    found = story.found_again
    sets = [(), [story.best], found, *(story.others(found, seed + i) for i in range(5))]
    with torch.no_grad():
        gaps = [[story.agreement(seed + i, gone)[3] for gone in sets] for i in range(2)]
    whole, one, passed, *other = torch.tensor(gaps).mean(dim=0).tolist()
    numbers = {"whole": whole, "best": one, "passed": passed}
    numbers |= {"least": max(other), "most": min(other)}
    return Verdict(whole - passed > 0.8 and whole - one < 0.6 and min(other) < passed, numbers)

"""Claims, tried again: Inside models. See `measuring.claims`."""

from __future__ import annotations

import random
from types import SimpleNamespace

import torch
from mhsite.pages import claims as register

from measuring.claims import Verdict, of_story
from mhattn.inside import effective_heads, find_roles, replace_heads

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


# patching


def the_answer_crosses_in_layers_20_to_24(seed: int) -> Verdict:
    """Five new sentences with new names: streams from the twin, one position at a time."""
    story = of_story("patching", "apart")
    reach = of_story("patching", "grids")
    rows = [torch.tensor(reach.by_position(story.NewPairs(seed + i, 2))) for i in range(5)]
    name, last = (torch.stack([row[:, at] for row in rows]) for at in (0, -1))  # (5, 31 depths)
    between = max(row[:, 1:-1].abs().max().item() for row in rows)
    late = last[:, 24:].median(dim=0).values.min().item()
    numbers = {"early": name[:, :19].min().item(), "late": late, "between": between}
    crossed = last[:, 24:].min() > 0.5 and last[:, :19].abs().max() < 0.15
    return Verdict(bool(numbers["early"] > 0.85 and crossed and between < 0.15), numbers)


def values_carry_the_strongest_heads(seed: int) -> Verdict:
    """Five new sentences: 21.1 and 24.4, 18.5 and 24.1, by values and by queries alone."""
    story = of_story("patching", "apart")
    rows = [story.inputs_of(story.NewPairs(seed + i, 2)) for i in range(5)]
    found = torch.tensor(rows).median(dim=0).values  # (8 heads; all, map, q, k, v, elsewhere)
    place = [story.strongest.index(9 * (layer - 1) + head - 1)
             for layer, head in ((21, 1), (24, 4), (18, 5), (24, 1))]  # fmt: skip
    carry, turn = found[place[:2]], found[place[2:]]
    numbers = {"values": carry[:, 4].min().item(), "map": carry[:, 1].abs().max().item()}
    numbers |= {"queries": turn[:, 2].min().item(), "bring": turn[:, 4].abs().max().item()}
    apart = numbers["values"] > 0.2 > 0.1 > numbers["map"]
    return Verdict(apart and numbers["queries"] > 0.08 > numbers["bring"], numbers)


def removed_movers_come_back_by_a_head_that_relents(seed: int) -> Verdict:
    """Five new sentences without 24.1 and 24.2, and without 24.4: what is lost, and why."""
    story = of_story("patching", "removed")
    found = []
    for i in range(5):
        pairs = story.NewPairs(seed + i, 3)
        found.append([story.answered(pairs, gone, story.over_prompts)
                      for gone in (story.movers, story.strong[:1])])  # fmt: skip
    (direct, lost, own, heads, *_), strong = torch.tensor(found).mean(dim=0)
    numbers = {"direct": direct.item(), "lost": lost.item(), "relents": own.item()}
    numbers |= {"others": heads.item(), "direct4": strong[0].item(), "lost4": strong[1].item()}
    back = direct > 0.6 and lost < direct / 2 and own > 0.4 * direct and heads < 0.35 * direct
    return Verdict(bool(back and strong[1] > 0.8 * strong[0]), numbers)


def the_lens_tells_of_a_decline_that_is_not_there(seed: int) -> Verdict:
    """Five new sentences: the gap behind layer 24, by the lens and by the last divisor."""
    story, found = of_story("patching", "removed"), []
    for i in range(5):
        pairs = story.NewPairs(seed + i, 3)
        at = pairs.front[24][:, -1]
        by_lens = (story.model.norm(at) * pairs.toward).sum(dim=-1).mean()
        held = (at * story.late_gain(pairs) * pairs.toward).sum(dim=-1).mean()
        size = [x[:, -1].square().mean(dim=-1).sqrt().mean() for x in pairs.front[24::6]]
        end = pairs.gap.mean()
        found.append([by_lens / end, held / end, size[1] / size[0]])
    lens, held, grown = torch.tensor(found).median(dim=0).values.tolist()
    numbers = {"lens": lens, "held": held, "grown": grown}
    return Verdict(lens > 1.5 and 0.6 < held < 1.4 and grown > 1.8, numbers)


# rxnmapper


def the_mapping_head_leads_where_neighbours_change(seed: int) -> Verdict:
    """70 fresh reactions: atoms that the head and the rule of neighbours find, by place."""
    story = of_story("rxnmapper", "compared")
    half = story.held_out_draw(seed)
    counts = torch.tensor(story.by_kind(half)).double().sum(dim=0)  # (same, other; n, rule, head)
    rule, head = (100 * counts[:, k].sum() / counts[:, 0].sum() for k in (1, 2))
    changed = 100 * counts[1, 1:] / counts[1, 0]
    *_, redrawn = story.in_redrawn(seed, half)
    numbers = {"rule": rule.item(), "head": head.item(), "redrawn": redrawn[1]}
    numbers |= {"rule_there": changed[0].item(), "head_there": changed[1].item()}
    near = abs(rule - head) < 10 and redrawn[1] < 20
    return Verdict(bool(near and changed[1] > changed[0] + 15), numbers)


def guesses_need_the_mapping_head_most(seed: int) -> Verdict:
    """Fresh reactions whose product atoms are hidden: guessed without each head, in all uses."""
    story = of_story("rxnmapper", "without_heads")
    whole, once, *each = story.without_heads(seed)
    gone = each.pop(story.head)
    numbers = {"whole": whole, "once": once, "gone": gone, "others": min(each)}
    return Verdict(gone < min(each) and once > whole - 4, numbers)


# own-model


def a_head_may_lower_or_raise_what_it_looks_at(seed: int) -> Verdict:
    """Five sentences, names by lot: shares of six heads, and what they add to a name's logit."""
    story, rows = of_story("own-model", "elsewhere"), []
    for i in range(5):
        tokens, names = story.others(seed + i)
        maps = story.attention_maps(story.model, tokens).maps
        rows.append(story.looks(tokens, names, maps)[:, story.watched])
    found = torch.stack(rows)  # (5, on right and wrong, itself, to right and wrong; 6 heads)
    lowers, first, second, _, strong, last = found.unbind(dim=-1)
    raised = torch.stack([first, second])[..., 3]
    numbers = {"share": lowers[:, 0].min().item(), "lowers": lowers[:, 3].max().item()}
    numbers |= {"raises": raised.min().item(), "looked": last[:, :2].max().item()}
    numbers["last"] = last[:, 3].min().item()
    looks = lowers[:, 0].min() > 0.4 and lowers[:, 3].max() < -0.5 and raised.min() > 0.4
    wrong = (strong[:, 1] - strong[:, 0]).min() > 0.2 and strong[:, 4].max() < -1
    return Verdict(bool(looks and wrong and last[:, :2].max() < 0.1 < last[:, 3].min()), numbers)


def the_head_that_lowers_answers_to_earlier_heads(seed: int) -> Verdict:
    """Five sentences, names by lot: 25.5 without three pairs of heads, and on four passages."""
    story = of_story("own-model", "released")
    found = torch.tensor([story.released(seed + i) for i in range(5)])  # (5, 4, logit and weight)
    less, matched, control = (found[:, 1:] / found[:, :1]).median(dim=0).values
    novel = of_story("own-model", "ordinary")
    draw, ids = (
        random.Random(seed),
        novel.encode(novel.data_file("texts/alice.en.txt").read_text("utf-8")),
    )
    shift = draw.randrange(len(ids) // 10)
    novel.ordinary.__globals__["encode"] = lambda text: ids[shift:]  # other passages
    cases = [novel.ordinary(part) for part in draw.sample(range(8), 4)]
    number, _, lowered = torch.tensor(cases).sum(dim=0)[story.four[0] - 180]
    numbers = {"less": less[0].item(), "map": less[1].item(), "matched": matched[0].item()}
    numbers |= {"control": control[0].item(), "cases": number.item(), "lowered": lowered.item()}
    lets_go = max(less.max(), matched.max()) < 0.75 < control[0]
    return Verdict(bool(lets_go and number > 10 and lowered > 0.85 * number), numbers)


# head-diversity


def training_may_make_heads_differ_or_agree(seed: int) -> Verdict:
    """Five models of each task: effective heads of layer 2, beside the same numbers reordered."""
    story, numbers = of_story("head-diversity", "result"), {}
    mix = of_story("head-diversity", "reordered")
    for name, (task, count, steps) in story.tasks.items():
        models, untrained = story.train(task, count, steps, range(seed, seed + 5))
        mixed = [mix.reordered(model, seed) for model in models]
        found = [story.of_layers(story.both(each, story.tests[name])[:, 0])
                 for each in (models, untrained, mixed)]  # (5, 2 layers)  # fmt: skip
        trained, before, reordered = (each[:, 1] for each in found)
        numbers[f"{name}_more"] = (found[0] - found[1]).median(dim=0).values.min().item()
        numbers[name] = (trained - reordered).median().item()
        numbers[f"{name}_before"] = before.max().item()
    alone = max(numbers["induction_before"], numbers["verbs_before"]) < 1.2
    more = min(numbers["induction_more"], numbers["verbs_more"]) > 0.02
    return Verdict(
        alone and more and numbers["verbs"] > 0.15 > -0.03 > numbers["induction"], numbers
    )


def smollm_heads_look_alike_and_say_different_things(seed: int) -> Verdict:
    """Twelve random pieces of a book: effective heads of 28 layers, beside reordered numbers."""
    story = of_story("head-diversity", "in_reordered")
    draw = torch.Generator().manual_seed(seed)
    start = torch.randint(len(story.text) - 48, (12, 1), generator=draw)
    space = story.compared.__globals__
    space["tokens"] = torch.tensor(story.text)[start + torch.arange(48)]
    trained = story.compared(*story.inside(story.large))
    reordered = torch.tensor(story.in_reordered(seed))
    counts = [effective_heads(each)[:, 2:] for each in (trained, reordered)]
    (looks, says), (looks_2, says_2) = counts
    numbers = {"maps": looks.median().item(), "mixed_maps": looks_2.median().item()}
    numbers |= {"outputs": says.median().item(), "mixed_outputs": says_2.median().item()}
    alike = (looks < looks_2).double().mean() > 0.9 and (says > says_2).double().mean() > 0.9
    return Verdict(bool(alike and looks.median() < 1.5 and says.median() > 2.5), numbers)


# image-maps


def the_rollout_finds_the_object_in_two_layers(seed: int) -> Verdict:
    """Three models of two layers: answers without the object, and without what maps mark."""
    story, rows = of_story("image-maps", "vision"), []
    for i in range(3):
        model = story.train("plain", seed + i)
        marks, answers, *_ = story.measures(model, story.draw(100), seed)
        rows.append([answers[2], answers[0], marks[0][2], marks[5][2], marks[5][0], marks[8][2]])
    seen, blind, mean, rollout, share, square = 100 * torch.tensor(rows).T
    numbers = {"blind": blind.max().item(), "mean": mean.max().item()}
    numbers |= {"rollout": rollout.max().item(), "share": share.min().item()}
    numbers["square"] = square.max().item()
    steady = rollout.median() < 50 and share.min() > 20 and square.max() < 50
    return Verdict(bool(seen.min() > 90 and blind.max() < 45 and steady), numbers)


def the_last_layers_map_misses_what_five_layers_use(seed: int) -> Verdict:
    """Three models of five layers: the last layer's mean map, the rollout, a removed square."""
    story = of_story("image-maps", "five_layers")
    story.five_layers.__globals__["test_images"] = lambda: story.draw(100)  # fresh ones
    found = [story.five_layers(seed + i) for i in range(3)]
    marks = 100 * torch.tensor([marks for marks, _ in found])  # (3, 9 maps, share and right)
    on, right = marks.median(dim=0).values.T
    numbers = {"last": on[4].item(), "right": right[4].item(), "early": on[:2].max().item()}
    numbers |= {"rollout": on[7].item(), "rollout_right": right[7].item()}
    finds = on[7] > 22 and right[7] < 50 and right[8] < 45
    return Verdict(bool(on[4] < 25 and right[4] > 50 and on[:2].max() > 30 and finds), numbers)

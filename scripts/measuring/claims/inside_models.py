"""Claims, tried again: Inside models. See `measuring.claims`."""

from __future__ import annotations

import random

import torch

from measuring.claims import Verdict, of_story
from mhattn.inside import effective_heads

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


def early_streams_are_not_in_the_last_layers_language(seed: int) -> Verdict:
    """Eight new pieces of a book: the lens at each depth, beside the mean of the final streams."""
    story, draw = of_story("patching", "lens"), torch.Generator().manual_seed(seed)
    tokens = torch.tensor(story.encode(story.data_file("texts/alice.en.txt").read_text("utf-8")))
    start = torch.randint(len(tokens) - 129, (12, 1), generator=draw)
    front, _ = story.streams(tokens[start + torch.arange(128)])
    final = story.model.norm(front[30][:, 1:])
    new = final[:4].flatten(0, 1)[::8]
    mean = final[4:].flatten(0, 1).mean(dim=0).expand_as(new)
    none, far = story.apart_from(new, mean)[0], []
    for depth in (3, 9, 15, 21, 24):
        at = story.model.norm(front[depth][:4, 1:].flatten(0, 1)[::8])
        far.append(story.apart_from(new, at)[0])
    return Verdict(min(far) > 1.3 * none, {"lens": min(far), "none": none})


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


def the_procedure_maps_half_without_any_head(seed: int) -> Verdict:
    """70 fresh reactions: the procedure with even weights, a shuffled head and two heads."""
    story = of_story("rxnmapper", "compared")
    half = story.held_out_draw(seed)
    other, place, _ = story.in_redrawn(seed, half)
    makes = [story.even, lambda one: story.both_ways(one.text, place, other),
             lambda one: story.both_ways(one.text, story.other_head),
             lambda one: story.both_ways(one.text)]  # fmt: skip
    even, redrawn, second, best = (story.with_weights(make, half)[0] for make in makes)
    bare = story.found(half)[story.other_head].item()
    numbers = {"even": even, "redrawn": redrawn, "bare": bare, "second": second, "best": best}
    helped = even > 48 and redrawn < even + 6 and second > bare + 30
    return Verdict(helped and best > second, numbers)


def guesses_need_the_mapping_head_most(seed: int) -> Verdict:
    """Fresh reactions whose product atoms are hidden: guessed without each head, in all uses."""
    story = of_story("rxnmapper", "without_heads")
    whole, once, *each = story.without_heads(seed)
    gone = each.pop(story.head)
    numbers = {"whole": whole, "once": once, "gone": gone, "others": min(each)}
    return Verdict(gone < min(each) and once > whole - 4, numbers)


# map-to-cause


def a_head_may_lower_or_raise_what_it_looks_at(seed: int) -> Verdict:
    """Five sentences, names by lot: shares of six heads, and what they add to a name's logit."""
    story, rows = of_story("map-to-cause", "elsewhere"), []
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
    story = of_story("map-to-cause", "released")
    found = torch.tensor([story.released(seed + i) for i in range(5)])  # (5, 4, logit and weight)
    less, matched, control = (found[:, 1:] / found[:, :1]).median(dim=0).values
    novel = of_story("map-to-cause", "ordinary")
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


def more_diversity_is_no_gain(seed: int) -> Verdict:
    """Three models of each task, with a term for diversity of strength 1 and without it."""
    story = of_story("head-diversity", "penalised")
    found = torch.tensor([
        [[story.result(seed + i, name, strength) for strength in (0.0, 1.0)]
         for name in story.tasks] for i in range(3)])  # fmt: skip
    change = found[:, :, 1] - found[:, :, 0]  # (3, 2 tasks; maps, outputs, loss, costliest)
    induction, verbs = change[..., 2].median(dim=0).values.tolist()
    numbers = {"maps": change[..., 0].min().item(), "induction": induction, "verbs": verbs}
    return Verdict(numbers["maps"] > 0.5 and induction > 0.5 and verbs > 0.05, numbers)


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

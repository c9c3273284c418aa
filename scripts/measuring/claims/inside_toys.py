"""Claims of Inside models about toys of two layers, tried again. See `measuring.claims`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace

import torch

from measuring.claims import Verdict, of_story


def circuits(seed: int, number: int) -> tuple[list, Callable, SimpleNamespace]:
    """Models without biases, trained anew; their loss on new texts; their heads' four parts."""
    story, models = of_story("circuits", "learned"), []
    for i in range(number):
        torch.manual_seed(seed + i)
        models.append(story.train(story.Model()).requires_grad_(False))
    texts, target, _ = story.draw(200)
    known = target[:, :-1] >= 0

    def loss(model: Callable) -> float:
        return story.losses(model, texts)[known].mean().item()

    return models, loss, heads_of(models)


def heads_of(models: list) -> SimpleNamespace:
    """Query, key, value and output of each head: (models, layers, heads, D, E)."""
    from mhattn.inside import head_projections

    found = [[head_projections(layer) for layer in model.layers] for model in models]
    return SimpleNamespace(
        **{
            part: torch.stack([torch.stack([getattr(x, part) for x in of]) for of in found])
            for part in ("query", "key", "value", "output")
        }
    )


def lacking(model: Callable, path: str) -> Callable:
    """The model, but one input of layer 2 lacks layer 1."""

    def logits(tokens: torch.Tensor) -> torch.Tensor:
        early = model.token(tokens) + model.position.weight
        late = early + model.layers[0](early, is_causal=True)
        inputs = [early if name == path else late for name in ("query", "key", "value")]
        return model.out(late + model.layers[1](*inputs, is_causal=True))

    return logits


def layer_two_needs_layer_one_in_its_keys(seed: int) -> Verdict:
    """Three models: the loss when one input of layer 2 lacks layer 1."""
    models, loss, _ = circuits(seed, 3)
    paths = "query", "key", "value"
    found = {path: torch.tensor([loss(lacking(model, path)) for model in models]) for path in paths}
    numbers = {"query": found["query"].max().item(), "value": found["value"].max().item()}
    numbers["key"] = found["key"].min().item()
    return Verdict(
        numbers["key"] > 2 and numbers["query"] < 0.1 and numbers["value"] < 0.4, numbers
    )


def large_directions_carry_and_small_ones_count(seed: int) -> Verdict:
    """Three models with 8 or 12 of 16 directions kept: the largest, and any eight."""
    models, loss, _ = circuits(seed, 3)
    kept = of_story("circuits", "losses_kept").kept
    whole = torch.tensor([loss(model) for model in models])
    shares, rises = [], []
    for circuit in ("QK", "OV"):
        ways = (8, False), (8, True), (12, False)
        large, some, twelve = torch.tensor(
            [[loss(kept(model, circuit, *way)) for model in models] for way in ways]
        )
        shares.append((large.mean() / some.mean()).item())
        rises.append((twelve / whole).min().item())
    numbers = {"share": 100 * max(shares), "rise": 100 * (min(rises) - 1)}
    return Verdict(max(shares) < 0.15 and min(rises) > 1.05, numbers)


def heads_of_layer_two_copy(seed: int) -> Verdict:
    """Three models: eigenvalues of OV through the letters, and letters that raise themselves."""
    models, _, heads = circuits(seed, 3)
    shares = of_story("circuits", "shares").shares(models, heads)[:, 1]
    own = of_story("circuits", "own_letter").own_letter(models, heads)[:, 1]
    fresh = [type(model)().requires_grad_(False) for model in models]
    before = of_story("circuits", "shares").shares(fresh, heads_of(fresh))
    numbers = {"share": shares.min().item(), "own": own.min().item(), "before": before.max().item()}
    return Verdict(numbers["share"] > 0.8 and own.min() > 13 and numbers["before"] < 0.6, numbers)


def heads_of_layer_two_compare_alike(seed: int) -> Verdict:
    """Three models: pairs of heads whose queries, or keys, overlap more than chance allows."""
    from mhattn.inside import random_overlap, subspace_overlap

    _, _, heads = circuits(seed, 3)
    mean, deviation = random_overlap(64, 16, 16)
    pairs, far = torch.triu_indices(4, 4, offset=1), []
    for part in (heads.query, heads.key):
        overlap = subspace_overlap(part, part)[..., *pairs]  # (models, layers, 6)
        far.append((overlap > mean + 4 * deviation).sum(dim=(0, 2)))
    first, second = sum(far).tolist()  # of 36 each
    return Verdict(second >= 34 and first <= 6, {"first": first, "second": second})


def find_roles_keeps_its_rate(seed: int) -> Verdict:
    """A thousand heads of random scores: how many are found, of four roles, flat and sharp."""
    story = of_story("head-statistics", "found_by_chance")
    found = torch.tensor([story.found_by_chance(seed + i) for i in range(40)]).sum(dim=0)
    rates = torch.tensor([0.01, 0.01, 0.05, 0.05])[:, None]
    off = (found - 1000 * rates) / (1000 * rates * (1 - rates)).sqrt()  # in deviations
    low, high = found[:2].sum().item() / 80, found[2:].sum().item() / 80
    holds = bool(off.abs().max() < 4.5 and 6 < low * 10 < 14 and 40 < high * 10 < 60)
    return Verdict(holds, {"low": low, "high": high, "off": off.abs().max().item()})


def echos(seed: int, number: int) -> tuple[list, list, torch.Tensor]:
    """Echos trained anew, as they were before, and new texts."""
    import copy

    from mhattn.lessons import echo_texts, train_echo

    pairs = [
        [copy.deepcopy(echo) for _, echo in islice(train_echo(seed + i), 2)] for i in range(number)
    ]
    torch.manual_seed(seed)
    before, after = zip(*pairs, strict=True)
    return list(before), list(after), echo_texts(100)[0][:, :-1]


def found_is_not_much(seed: int) -> Verdict:
    """Five untrained Echos on 100 texts: how many tests find something, and how much it is."""
    from mhattn.lessons import echo_texts, train_echo

    story = of_story("head-statistics", "roles_of")
    torch.manual_seed(seed)
    texts = echo_texts(100)[0][:, :-1]
    models = [next(train_echo(seed + i))[1] for i in range(5)]
    roles = [role for model in models for role in story.roles_of(model, texts).values()]
    found = torch.stack([role.found.double() for role in roles]).mean().item()
    more = max((role.share - role.chance).max().item() for role in roles)
    return Verdict(found > 0.1 and more < 0.12, {"found": 100 * found, "more": more})


def training_makes_both_heads(seed: int) -> Verdict:
    """Three Echos before and after: largest shares of the previous token, induction, the first."""
    before, after, texts = echos(seed, 3)
    story = of_story("head-statistics", "roles_of")

    def largest(models: list) -> torch.Tensor:
        found = [story.roles_of(model, texts) for model in models]
        names = "previous", "induction", "first"
        return torch.tensor([[roles[name].share.max() for name in names] for roles in found])

    untrained, trained = largest(before), largest(after)
    low, high = trained.amin(dim=0), untrained.amax(dim=0)
    numbers = {"previous": low[0].item(), "induction": low[1].item(), "first": low[2].item()}
    numbers |= {"chance": high.max().item()}
    enough = torch.tensor([0.12, 0.6, 0.1])
    return Verdict(bool((low - high > enough).all()), numbers)


def both_scales_far_off_are_slower(seed: int) -> Verdict:
    """Five models of each initialisation: mean steps until the loss is below 1 nat."""
    from mhattn.lessons import AttentionOnly, lookup_losses, train_together

    story, steps = of_story("initialisation", "learned"), []
    for i in range(5):
        models = []
        for init in story.inits.values():
            torch.manual_seed(seed + i)
            models.append(AttentionOnly(13, 12))
            for layer in models[-1].layers:
                for projection in story.projections(layer):
                    init(projection.weight)
        test, curve = story.draw(60), []
        for _ in train_together(models, story.draw, steps=240, lr=0.005, batch=8, every=10):
            with torch.no_grad():
                found = [lookup_losses(model(test.tokens), test.target) for model in models]
            curve.append(torch.stack(found))
        reached = torch.stack(curve) < 1
        late = ~reached.any(dim=0)  # counted as if it came right after the end
        steps.append((10 * reached.int().argmax(dim=0)).masked_fill(late, 250))
    small, *usual, large = torch.stack(steps).double().mean(dim=0).tolist()
    middle = sum(usual) / len(usual)
    numbers = {"small": small, "least": min(usual), "most": max(usual), "large": large}
    return Verdict(small > 1.1 * middle and large > 1.1 * middle, numbers)


def adam_moves_both_pairs_alike(seed: int) -> Verdict:
    """Five models with normal 0.02: how far both pairs have moved, and how even attention is."""
    story = of_story("initialisation", "moves")
    found = torch.tensor([story.moves(seed + i) for i in range(5)])  # (5, looks, 2, 3)
    small, xavier = found.median(dim=0).values.unbind(dim=1)
    steps = (
        torch.arange(len(small)) * 10 if small[0, 0] == 0 else 10 + torch.arange(len(small)) * 10
    )
    at = {step: (steps == step).nonzero().item() for step in (20, 60, 90)}
    ratio = small[at[20] :, 0] / small[at[20] :, 1]
    numbers = {"least": ratio.min().item(), "most": ratio.max().item()}
    numbers |= {"early": small[at[20], 2].item(), "later": small[at[60], 2].item()}
    numbers["xavier"] = xavier[at[60], 2].item()
    close = abs(numbers["later"] - numbers["xavier"]) < 0.08
    alike = numbers["least"] > 0.7 and numbers["most"] < 1.4
    return Verdict(bool(alike and numbers["early"] > 0.95 and close), numbers)


def one_head_of_layer_one_leads(seed: int) -> Verdict:
    """Four models: the head that costs most, and the one that looks at the token before most."""
    story = of_story("head-importance", "measured")
    first, same, parts = 0, 0, []
    for i in range(4):
        model, _ = story.model_of(seed + i)
        effects = story.effects_of(model)
        strongest = effects.argmax().item()
        first += strongest < 4
        same += strongest == story.roles_of(model)[0].argmax().item()
        parts.append((effects.max() / effects.sum()).item())
    numbers = {"first": first, "same": same, "least": min(parts), "most": max(parts)}
    return Verdict(first == 4 and same >= 3, numbers)


def single_effects_do_not_add_up(seed: int) -> Verdict:
    """Three models: heads of layer 2 removed together, and one by one; two of each layer."""
    story, found = of_story("head-importance", "measured"), []
    for i in range(3):
        model, _ = story.model_of(seed + i)
        found.append(story.joined_of(model, seed + i))
    alone, together = torch.tensor(found).unbind(dim=-1)  # (3, 3) each
    ratio = together / alone
    numbers = {"least": ratio[:, 1].min().item(), "mixed": ratio[:, 2].median().item()}
    less = ratio[:, 2] < ratio[:, 1]
    return Verdict(numbers["least"] > 5 and int(less.sum()) >= 2, numbers)


def another_sequence_costs_twice_the_mean(seed: int) -> Verdict:
    """Three models: effects with another sequence's head over those with the mean."""
    story, ratios, squares = of_story("head-importance", "measured"), [], []
    for i in range(3):
        model, _ = story.model_of(seed + i)
        means, other = story.effects_of(model, story.mean), story.resampled_of(model)
        ratios.append((other.mean(dim=0).sum() / means.sum()).item())
        squares += [float(ratio) for ratio in story.squares_of(model)]
    numbers = {"least": min(ratios), "most": max(ratios)}
    numbers["off"] = max(abs(square - 2) for square in squares)
    return Verdict(
        numbers["least"] > 1.6 and numbers["most"] < 3.4 and numbers["off"] < 0.15, numbers
    )


def another_sequence_is_stranger_than_the_mean(seed: int) -> Verdict:
    """Three models: how far streams are from whole ones, for each of three replacements."""
    story = of_story("head-importance", "strange")
    found = torch.tensor([story.strange(seed + i) for i in range(3)])  # (3, 3, 2)
    than_mean = (found[:, 2] - found[:, 1]).amin(dim=0)
    than_zeros = (found[:, 2] - found[:, 0]).median(dim=0).values  # one of 21 models had none
    more = torch.minimum(than_mean, than_zeros)
    means = found[:, :, 1].mean(dim=0).tolist()
    numbers = dict(zip(("zeros", "mean", "other"), means, strict=True)) | {
        "more": more.min().item()
    }
    return Verdict(bool((more > 0).all()), numbers)


def gates_find_no_better_heads_than_greedy(seed: int) -> Verdict:
    """Two models, four penalties: the loss of the gates' sets, less that of rivals' sets."""
    story = of_story("head-importance", "gated")
    story.gated.__globals__["penalties"] = [0.05, 0.1, 0.3, 0.8]
    rivals = of_story("head-importance", "rivals_of")
    greedy, best, random = [], [], []
    for i in range(2):
        gates, _, choose, test = map(torch.as_tensor, story.gated(seed + i))
        stay = (story.chance_open(gates) > 0.5) * rivals.bits
        own = stay.sum(dim=-1)
        numbers = rivals.heads_in[own]
        own, numbers = (x[(numbers > 0) & (numbers < 8)] for x in (own, numbers))
        for sets, found in ((rivals.stepwise(choose), greedy), (rivals.best_sets(choose), best)):
            found.append((test[own] - test[sets[8 - numbers]]).mean().item())
        middle = torch.stack([test[rivals.heads_in == number].median() for number in numbers])
        random.append((test[own] - middle).mean().item())
    told = {"greedy": min(greedy), "best": max(best), "random": max(random)}
    return Verdict(told["greedy"] > -0.02 and told["best"] < 0.1 and told["random"] < -0.1, told)


def ten_models(seed: int, names: tuple[str, ...]) -> tuple[SimpleNamespace, dict]:
    """Ten models of each task, trained anew, the same before, and what was measured on the way."""
    story, found = of_story("how-heads-form", "formed"), {}
    torch.manual_seed(seed)
    for name in names:
        draw = story.draws.get(name, story.draws["induction"])
        found[name] = story.train(draw, *story.sizes[name], first=seed)
    return story, found


def every_task_gets_its_head(seed: int) -> Verdict:
    """Ten models of three tasks: the largest share of the heads, before and after."""
    story, found = ten_models(seed, ("previous", "brackets", "verbs"))
    numbers, untrained = {}, []
    for name, (models, before, _) in found.items():
        test = story.draws[name](50, story.LENGTH)
        best, start = (
            story.shares(story.look(x, test)[1], test.pattern).amax(dim=-1)
            for x in (models, before)
        )
        numbers[name] = int((best > 0.5).sum())
        untrained.append(start.max().item())
    numbers["untrained"] = max(untrained)
    holds = min(numbers[name] for name in found) >= 9 and numbers["untrained"] < 0.25
    return Verdict(holds, numbers)


def one_layer_stops_at_the_guess(seed: int) -> Verdict:
    """Ten models with one layer and ten with two: their loss, and that of the guess."""
    from mhattn.lessons import lookup_losses

    story, found = ten_models(seed, ("single", "induction"))
    test = story.draws["induction"](100, story.LENGTH)
    period = torch.tensor([len(row[1:].unique()) for row in test.tokens])
    asked = test.target >= 0
    guess = (period - 1).log()[:, None].expand_as(asked)[asked].mean().item()
    one, two = (
        torch.stack([lookup_losses(x, test.target) for x in story.look(found[name][0], test)[0]])
        for name in ("single", "induction")
    )
    numbers = {"guess": guess, "one": one.min().item(), "two": two.max().item()}
    return Verdict(numbers["one"] > guess - 0.05 and numbers["two"] < 0.3, numbers)


def the_previous_head_is_not_first(seed: int) -> Verdict:
    """Ten models: at which step each of both shares is halfway."""
    _, found = ten_models(seed, ("induction",))
    _, role, helper = found["induction"][2].unbind(dim=1)
    steps = []
    for line in (role, helper):
        reached = line >= (line[0] + line[-1]) / 2
        steps.append(10 * reached.int().argmax(dim=0).double().median().item())
    induction, previous = steps
    numbers = {"induction": induction, "previous": previous}
    return Verdict(previous >= induction and previous < 1.5 * induction, numbers)

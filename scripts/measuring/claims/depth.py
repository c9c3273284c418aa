"""Claims, tried again: In depth. See `measuring.claims`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from math import log, pi, sqrt

import torch

from measuring.claims import Verdict, of_story
from mhattn import attention
from mhattn.lessons import balanced


def late_losses(seed: int, number: int, *ways: tuple) -> torch.Tensor:
    """What so many stacks lose at the end of their training, in each way: (ways, models)."""
    story, late = of_story("deep-stacks", "warmed"), torch.zeros(len(ways), number)
    for row, way in enumerate(ways):
        for i in range(number):
            torch.manual_seed(seed + i)
            late[row, i] = story.train_deep(*way)[-1]
    return late


def warm_up_has_a_limit_that_pre_norm_does_not(seed: int) -> Verdict:
    """Three stacks in each of four ways, at 0.007 and at twice that rate."""
    ways = [("post-norm", 0.007), ("post-norm", 0.007, 50)]
    ways += [("post-norm", 0.014, 50), ("pre-norm", 0.014)]
    late = late_losses(seed, 3, *ways)
    bare, warmed, twice, pre = late.median(dim=1).values.tolist()
    numbers = {"bare": bare, "warmed": warmed, "twice": twice, "pre": pre}
    return Verdict(min(bare, twice) > 1.8 and max(warmed, pre) < 1, numbers)


def smaller_gradients_do_not_replace_warm_up(seed: int) -> Verdict:
    """Three post-norm stacks at 0.007: clipped, a hundredth of the gradient, and warmed up."""
    late = late_losses(
        seed,
        3,
        ("post-norm", 0.007, 1, True),
        ("post-norm", 0.007, 1, False, 0.01),
        ("post-norm", 0.007, 50),
    )
    clipped, small, warmed = late.median(dim=1).values.tolist()
    numbers = {"clipped": clipped, "small": small, "warmed": warmed}
    return Verdict(min(clipped, small) > 1.8 and warmed < 1, numbers)


def too_few_heads_lose_and_too_small_ones_too(seed: int) -> Verdict:
    """Five models of each of five shapes, at the page's rates, on sequences of their own."""
    story = of_story("how-many-heads", "learned")
    torch.manual_seed(seed)
    test, found = balanced(story.draw(8)), {}
    for heads, size in story.shapes:
        made = story.models(heads, size, range(seed, seed + 5))
        options = {"lr": story.best_rates[heads], "batch": 8, "steps": 400, "every": 400}
        found[heads] = story.train_models(made, story.draw, test, **options)[-1]
    middle = {heads: float(errors.median()) for heads, errors in found.items()}
    bounds = all(h / 4 + found[h].min() > 0.999 and h / 4 + middle[h] < 1.03 for h in (1, 2))
    numbers = {"one": middle[1], "two": middle[2], "four": middle[4]}
    numbers |= {"eight": middle[8], "sixteen": middle[16]}
    ordered = middle[4] < 0.05 < middle[8] < middle[16] - 0.05
    return Verdict(bool(bounds and ordered), numbers)


def a_leak_alone_ends_most_even_splits(seed: int) -> Verdict:
    """Three heads with a leak, 1500 steps, and three without, 500: each on exact sequences."""
    story, shares = of_story("one-head", "drift"), []
    torch.manual_seed(seed)
    exact = balanced(story.draw(1))  # 16 sequences: their mean error is exact

    def same(batch: int) -> tuple:
        return story.LinkedTokens(*(x.repeat(batch // 16, 1, 1) for x in exact))

    for kind, number, steps in ((story.GatherModel, 3, 1500), (story.NoLeak, 3, 500)):
        models = [kind(16, 1, 2) for _ in range(number)]
        story.train_models(models, same, exact, steps=steps, lr=0.02, every=steps)
        smaller = [story.mean_shares(model, exact)[0].min() for model in models]
        shares.append(torch.stack(smaller))
    leak, none = shares
    numbers = {"leak": leak.median().item(), "none": none.min().item()}
    return Verdict(bool(leak.median() < 0.15 and none.min() > 0.35), numbers)


def mixed_scores_help_most_at_the_lower_rate(seed: int) -> Verdict:
    """Ten models with mixed scores and ten without matrices, at two rates, same seeds."""
    story = of_story("talking-heads", "learned")
    kinds, rates = ["plain", "scores"], [0.02, 0.08]
    lots = [story.trained(seed + i, kinds, rates, 400) for i in range(2)]
    errors = torch.cat(torch.tensor(lots).unbind(), dim=-1).view(2, 2, 10)  # kinds, rates
    low, high = (errors[1] < errors[0]).sum(dim=-1).tolist()
    numbers = {"low": low, "high": high}
    return Verdict(low >= 7 and high <= low - 3, numbers)


def larger_heads_do_what_mixed_scores_do(seed: int) -> Verdict:
    """Ten models of four heads of size 4 and ten with mixed scores, at two rates each."""
    story = of_story("talking-heads", "learned")
    best = []
    for kind, rates in (("larger heads", [0.04, 0.06]), ("scores", [0.02, 0.04])):
        lots = [story.trained(seed + i, [kind], rates, 400) for i in range(2)]
        errors = torch.cat(torch.tensor(lots).unbind(), dim=-1)  # (2 rates, 10)
        best.append(errors.median(dim=-1).values.min().item())
    numbers = {"larger": best[0], "mixed": best[1]}
    return Verdict(best[0] < 0.02 and best[0] < best[1], numbers)


def only_logs_of_weights_have_the_limit(seed: int) -> Verdict:
    """Twenty drawn heads, size 2 to 4, of 13 tokens: ranks of scores, weights and their logs."""
    torch.manual_seed(seed)
    draw, ranks = random.Random(seed), []
    for _ in range(20):
        size = draw.choice([2, 3, 4])
        query, key = 3 * torch.randn(2, 13, size).double()
        scores = query @ key.mT / sqrt(size)
        tables = scores, scores.softmax(dim=-1), scores.log_softmax(dim=-1)
        ranks.append([int(torch.linalg.matrix_rank(each)) - size for each in tables])
    above = torch.tensor(ranks)  # the head size
    numbers = {"scores": above[:, 0].max().item(), "logs": above[:, 2].max().item()}
    numbers["weights"] = above[:, 1].min().item()
    return Verdict(
        bool(numbers["scores"] <= 0 and numbers["logs"] <= 1 < numbers["weights"]), numbers
    )


def a_circle_pays_with_the_square(seed: int) -> Verdict:
    """Five drawn numbers of tokens and twice as many: the score for 0.99 on a circle, on axes."""
    draw, ratios = random.Random(seed), []
    for _ in range(5):
        count, pair = draw.randrange(40, 200), []
        for length in (count, 2 * count):
            angles = torch.arange(length).double() * 2 * pi / length
            low, high = 0.0, 1e6
            for _ in range(80):  # the weight rises with the score: halve the interval
                middle = (low + high) / 2
                weight = (middle * angles.cos()).softmax(dim=0)[0]
                low, high = (middle, high) if weight < 0.99 else (low, middle)
            pair.append((high, log(99 * (length - 1))))
        ratios.append([pair[1][i] / pair[0][i] for i in range(2)])
    circle, axes = zip(*ratios, strict=True)
    numbers = {"circle": min(circle), "most": max(circle), "axes": max(axes)}
    return Verdict(min(circle) > 3.9 and max(circle) < 4.1 and max(axes) < 1.15, numbers)


def hidden_keys_get_exactly_no_gradient(seed: int) -> Verdict:
    """Twenty drawn masks: gradients of keys that no query sees and of queries that see nothing."""
    torch.manual_seed(seed)
    draw, hidden, seen = random.Random(seed), 0.0, []
    for _ in range(20):
        inputs = [torch.randn(13, 7).requires_grad_() for _ in range(3)]
        key, query = draw.randrange(13), draw.randrange(13)
        mask = torch.rand(13, 13) < 0.6
        mask[:, key], mask[query] = False, False
        attention(*inputs, mask=mask).square().sum().backward()
        of_query, of_key, of_value = (x.grad.abs().amax(dim=1) for x in inputs)
        hidden = max(hidden, *map(float, (of_key[key], of_value[key], of_query[query])))
        seen.append(of_key.median().item())
    return Verdict(hidden == 0 < min(seen), {"hidden": hidden, "seen": min(seen)})


def dead_rows(size: int, scale: float, number: int, drawn: Callable) -> float:
    """Of 500 queries, the share whose gradient is below a tenth of what even weights pass on."""
    query, key = drawn(500, 1, size), drawn(500, number, size)
    scores = (scale * query @ key.mT).requires_grad_()
    weights = scores.softmax(dim=-1)
    arriving = torch.randn(weights.shape)
    (gradient,) = torch.autograd.grad(weights, scores, arriving)
    even = (arriving - arriving.mean(dim=-1, keepdim=True)) / number
    return (gradient.norm(dim=-1) < 0.1 * even.norm(dim=-1)).double().mean().item()


def without_the_scale_rows_are_dead(seed: int) -> Verdict:
    """Normal and uniform numbers of variance 1, five draws: dead rows by size and by keys."""
    torch.manual_seed(seed)
    plain = {(64, 8): [], (64, 64): [], (64, 512): [], (1024, 64): []}
    scaled = []
    for drawn in (torch.randn, lambda *shape: sqrt(12) * (torch.rand(shape) - 0.5)):
        for _ in range(5):
            for (size, number), found in plain.items():
                found.append(dead_rows(size, 1.0, number, drawn))
                scaled.append(dead_rows(size, size**-0.5, number, drawn))
    few, medium, many, large = (torch.tensor(found) for found in plain.values())
    numbers = {"medium": medium.mean().item(), "large": large.mean().item()}
    numbers |= {"few": few.mean().item(), "many": many.mean().item(), "scaled": max(scaled)}
    ordered = few.min() > medium.max() and medium.min() > many.max() and large.min() > 0.6
    near = 0.12 < numbers["medium"] < 0.28
    return Verdict(bool(ordered and near and max(scaled) < 0.01), numbers)


def no_linear_map_keeps_more_than_its_numbers(seed: int) -> Verdict:
    """Six lengths and sizes: random maps, the mean and a trained map, beside the formula; signs."""
    torch.manual_seed(seed)
    story = of_story("fixed-memory", "lost_by_mean")
    squeeze = of_story("fixed-memory", "lost_by_squeeze")
    off, trained = [], []
    for n, size in ((2, 16), (8, 16), (8, 64), (32, 64), (32, 256), (64, 256)):
        bound = max(0.0, 1 - size / (16 * n))
        off.append(squeeze.lost_by_squeeze(n, size) - bound)
        if size == 16:
            off.append(story.lost_by_mean(n) - bound)
        if n == 8:  # learn the map and the guess, to lose as little as can be
            down, up = (torch.randn(a, b) / sqrt(a) for a, b in ((128, size), (size, 128)))
            adam = torch.optim.Adam([down.requires_grad_(), up.requires_grad_()], lr=0.005)
            for _ in range(1500):
                tokens = torch.randn(512, 128)
                loss = (tokens @ down @ up - tokens).square().mean()
                adam.zero_grad()
                loss.backward()
                adam.step()
            tokens = torch.randn(4000, 128)
            lost = (tokens @ down @ up - tokens).square().sum() / tokens.square().sum()
            trained.append(lost.item() - bound)
    signs = of_story("fixed-memory", "lost_by_signs").lost_by_signs
    left = sum(signs(torch.randn(32, 16)).item() for _ in range(50)) / 50
    numbers = {"off": max(map(abs, off)), "signs": left}
    numbers |= {"least": min(trained), "most": max(trained)}
    close = numbers["off"] < 0.03 and min(trained) > -0.01 and max(trained) < 0.03
    return Verdict(close and left < 0.42, numbers)


def a_loop_over_heads_calls_more_and_keeps_less(seed: int) -> Verdict:
    """Three drawn shapes: FLOPs, calls of products and bytes of a loop, and of all at once."""
    draw, count = random.Random(seed), of_story("parallel-heads", "count").count
    forms, found = of_story("parallel-heads", "one_by_one"), []
    for _ in range(3):
        heads, length = draw.choice((8, 16, 32)), draw.randrange(300, 600)
        loop, batch, two = (
            count(form, number, length)
            for form, number in ((forms.one_by_one, heads), (forms.together, heads),
                                 (forms.one_by_one, 2))
        )  # fmt: skip
        found.append([loop[0] / batch[0], loop[1] / heads, batch[1], batch[2] / loop[2] / heads,
                      loop[2] / two[2]])  # fmt: skip
    flops, calls, at_once, more, grown = torch.tensor(found, dtype=torch.float64).T
    numbers = {"flops": (flops - 1).abs().max().item(), "calls": calls.max().item()}
    numbers |= {"more": more.min().item(), "grown": grown.max().item()}
    counted = flops.eq(1).all() and calls.eq(2).all() and at_once.eq(2).all()
    return Verdict(bool(counted and more.min() > 0.3 and grown.max() < 1.2), numbers)


def a_loop_over_heads_is_slow_where_texts_are_short(seed: int) -> Verdict:
    """32 heads of size 16 with the fused kernel, in a loop and at once, 32 and 1024 tokens."""
    torch.manual_seed(seed)
    medians = []
    for length, rounds in ((32, 60), (1024, 12)):
        parts, ratios = torch.randn(3, 1, 32, length, 16), []
        for _ in range(rounds):
            seconds = []
            for single in (True, False):
                start = time.process_time()
                for _ in range(3):
                    split = zip(*(x.split(1, dim=1) for x in parts), strict=True)
                    _ = [attention(*head) for head in (split if single else [parts])]
                seconds.append(time.process_time() - start)
            ratios.append(seconds[0] / seconds[1])
        medians.append(torch.tensor(ratios[2:]).median().item())
    numbers = {"short": medians[0], "long": medians[1]}
    return Verdict(medians[0] > 2.5 and medians[1] < 1.6, numbers)


def zero_is_the_plain_sum_only_behind_a_norm(seed: int) -> Verdict:
    """The page's starts in sizes drawn by lot, then small, silent, and with outputs of one size."""
    draw, seeds = random.Random(seed), range(seed, seed + 3)
    story = of_story("between-layers", "beside_plain").draw.__globals__
    beside, run, drawn, unit = (story[each] for each in ("beside_plain", "run", "draw", "unit"))
    joined = story["joined"]
    heads, head_dim = draw.choice((2, 3, 5, 7)), draw.choice((7, 11, 13))
    story |= {"E": heads * head_dim, "H": heads, "L": draw.choice((11, 13, 17, 19))}

    def in_one_size(parts: list, x: torch.Tensor) -> tuple:
        return parts, unit(x)

    def trial(layers: int = 24, eps: float = 1e-6, entering: float = 1, last: float = 1) -> list:
        def smaller(number: int, models: int = 5) -> tuple:
            parts, x = drawn(number, models)
            return [[*part[:-1], part[-1] * last] for part in parts], x * entering

        story.update(layers=layers, EPS=eps, draw=smaller)
        return beside(seeds)

    found = trial(layers := draw.choice((7, 13, 23, 29)))
    equal, before = max(float(after.max()) for _, after in found[:5]), float(found[4][0].min())
    others = min(float(after.min()) for _, after in found[7:])
    exact = max(float(after.max()) for _, after in trial(layers, eps=0.0)[:5])
    silent = max(float(after.max()) for _, after in trial(layers, eps=1e-30, last=0.0))
    small = float(trial(entering=0.02, last=0.02)[4][1].median())
    story.update(run=lambda *given: unit(run(*given)), joined=lambda lot: in_one_size(*joined(lot)))
    one_size = float(trial()[8][1].max())
    numbers = {"exact": exact, "equal": equal, "before": before, "others": others}
    numbers |= {"small": small, "one_size": one_size, "silent": silent}
    holds = exact < 1e-9 and equal < 5e-3 and before > 3 and others > 0.3
    return Verdict(bool(holds and small > 0.1 and one_size < 5e-3 and silent < 1e-9), numbers)


def doubly_stochastic_products_neither_grow_nor_keep_streams_apart(seed: int) -> Verdict:
    """Fifteen products of 48 matrices, drawn anew: doubly stochastic, permutations, free."""
    story, one = of_story("between-layers", "mixed"), torch.eye(4)
    doubly = of_story("between-layers", "beside_plain").doubly

    def products(kind: Callable, n: int = 4) -> list:
        return story.mixed(kind, seed, n=n)

    forward, back, left = products(doubly)
    gain = max(float(forward.max()), float(back.max()))
    kept = max(float(left.max()), *(float(products(doubly, n)[2].median()) for n in (2, 3, 5, 7)))
    moved = float(products(lambda z: one[z[..., 0].argsort(-1)])[2].min())
    targets = (one, one.roll(1, dims=-1))
    near = min(float(products(lambda z, to=to: doubly(z + 8 * to))[2].median()) for to in targets)
    spread = [products(lambda z, c=c: doubly(c * z))[:2] for c in (2, 5, 15)]
    wide = max(float(gains.max()) for both in spread for gains in both)
    free, hardly = (
        float(products(lambda z, c=c: one + c * z)[0].median()) for c in (0.3, 0.01)
    )  # fmt: skip
    numbers = {"gain": gain, "kept": kept, "moved": moved, "near": near, "wide": wide}
    numbers |= {"free": free, "hardly": hardly}
    holds = gain < 1.001 and kept < 1e-3 and moved > 0.999 and near > 0.5 and wide < 1.3
    return Verdict(bool(holds and free > 20 and hardly < 2), numbers)

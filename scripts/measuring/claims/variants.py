"""Claims, tried again: Variants. See `measuring.claims`."""

from __future__ import annotations

import random
from types import SimpleNamespace

import torch
from torch.nn import functional as F

from measuring.claims import Verdict, of_story
from measuring.claims.positions import *  # noqa: F403
from measuring.claims.recall import *  # noqa: F403
from mhattn import attention_weights, causal_mask, window_mask
from mhattn.costs import known_model, known_models
from mhattn.variants import latent_attention
from mhattn.variants.linear import linear_attention, linear_attention_weights


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


def with_another_chain(story: str, function: str, seed: int) -> SimpleNamespace:
    """A story of letters that follow a chain, with a chain that no page has seen."""
    reached = of_story(story, function)
    torch.manual_seed(seed)
    scores = torch.randn(27, 27)
    scores[:, reached.AGAIN] += 2
    reached.draw.__globals__["chain"] = scores.softmax(dim=-1)
    return reached


def window_alone_loses_its_sink(seed: int) -> Verdict:
    """Five models of a new chain: what they lose late, with a window and with a sink kept."""
    story = with_another_chain("attention-sinks", "three_ways", seed)
    window, sink = torch.tensor(story.three_ways(seed, story.makers[1:]))  # (5, early and late)
    rises, beside = window[:, 1] - window[:, 0], sink[:, 1] - sink[:, 0]
    numbers = {"window": rises.min().item(), "sink": beside.max().item()}
    better = (window[:, 1] > sink[:, 1]).all()
    return Verdict(bool(better and rises.median() > 0.08 and beside.median() < 0.08), numbers)


def everything_kept_is_worse_than_a_window(seed: int) -> Verdict:
    """Five models of a new chain, trained on 24 tokens: late losses with all keys and with ten."""
    story = with_another_chain("attention-sinks", "three_ways", seed)
    every, window = torch.tensor(story.three_ways(seed, story.makers[:2]))[..., 1]
    numbers = {"every": every.min().item(), "window": window.max().item()}
    return Verdict(bool((every > window).all()), numbers)


def emptying_the_first_token_costs_more_than_hiding_it(seed: int) -> Verdict:
    """Six texts, each of two halves of the novel's pieces: the first token's part in them."""
    story = of_story("attention-sinks", "sinks")
    model, pieces = story.loaded()
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(6):
        one, two, three = pieces[torch.randperm(16, generator=draw)[:3]]
        start = int(torch.randint(10, 100, (1,), generator=draw))
        piece = torch.cat([one[start:], two[:start]])
        loss, _ = story.run(model, piece)
        tests = story.tried(model, piece, three, 0, loss)
        tests.append(story.tried(model, piece, three, 48, loss)[1])
        found.append(torch.stack(tests))
    hidden, emptied, swapped, ordinary = torch.stack(found).mean(dim=0).tolist()
    numbers = {"hidden": hidden, "emptied": emptied, "swapped": swapped, "ordinary": ordinary}
    return Verdict(emptied > hidden + 0.1 and abs(swapped) < 1e-3, numbers)


def trained_with_a_window_needs_no_sink(seed: int) -> Verdict:
    """Five models trained with a window of ten and their twins trained without it."""
    story = with_another_chain("attention-sinks", "windowed", seed)
    within = torch.tensor(story.windowed(seed)).squeeze(0)  # (5, early and late)
    torch.manual_seed(99)
    tokens = story.draw(16, 201)
    plain = with_another_chain("attention-sinks", "three_ways", seed)
    twins = plain.early_late(plain.five(seed), tokens, plain.makers[1])
    rises = within[:, 1] - within[:, 0]
    numbers = {"rises": rises.max().item(), "better": (twins - within)[:, 1].min().item()}
    return Verdict(bool(rises.median() < 0.06 and (twins - within)[:, 1].min() > 0), numbers)


def the_sink_is_a_token(seed: int) -> Verdict:
    """Ten heads of a new chain: weight on ^ at places 0 and 1, and on a letter at place 0."""
    story = with_another_chain("resting-heads", "placed", seed)
    found = torch.tensor(story.placed(seed))  # (5 ways, 5, 2 heads)
    first, _, moved, lettered, bare = found
    numbers = {"sink": first.median().item(), "moved": moved.median().item()}
    numbers |= {"letter": torch.stack([lettered, bare]).median().item()}
    follows = (first - moved).abs().max() < 0.15
    letters = torch.stack([found[1], lettered, bare])
    return Verdict(bool(first.median() > 0.5 and follows and letters.median() < 0.2), numbers)


def a_sink_of_its_own_replaces_the_token(seed: int) -> Verdict:
    """Five models of a new chain with a learned sink: where weight is, and late with a window."""
    story = with_another_chain("resting-heads", "owned", seed)
    found = torch.tensor(story.owned(seed)[0])  # (5, own 2, on ^ 2, early and late)
    rises = found[:, 5] - found[:, 4]
    numbers = {"own": found[:, :2].median().item(), "token": found[:, 2:4].median().item()}
    numbers["rise"] = rises.max().item()
    rests = found[:, :2].median() > 0.6 and found[:, 2:4].median() < 0.1
    return Verdict(bool(rests and rises.median() < 0.06), numbers)


def a_gate_must_stand_behind_the_softmax(seed: int) -> Verdict:
    """Five models of a new chain for each place of the gate: late losses without the token ^."""
    story = with_another_chain("resting-heads", "gated", seed)
    heads, values = torch.tensor(story.gated(seed))  # (5, 8): 0 and 1 on ^, 6 early, 7 late
    behind, before = (x[:, 7] - x[:, 6] for x in (heads, values))
    numbers = {"behind": behind.max().item(), "before": before.median().item()}
    numbers |= {"on": heads[:, :2].mean().item(), "still": values[:, :2].mean().item()}
    less = heads[:, :2].mean() < values[:, :2].mean() - 0.15
    return Verdict(bool(less and behind.median() < 0.05 < before.median() - 0.05), numbers)


def a_difference_cancels_only_shared_noise(seed: int) -> Verdict:
    """A thousand queries, one of a hundred keys fits: its share with the same noise and another."""
    story = of_story("resting-heads", "shares")
    torch.manual_seed(seed)
    (one, same), (alone, other) = (story.shares(shared).tolist() for shared in (True, False))
    numbers = {"one": one, "same": same, "other": other}
    return Verdict(same > 1.5 * one and other < 0.85 * alone, numbers)


def one_matrix_never_rings(seed: int) -> Verdict:
    """Five models of each of six kinds: how many of eight names each answers."""
    story = of_story("scoring", "answered")
    ring_two, ring_one, ring_other, pair_two, pair_one, pair_other = story.answered(seed)
    two, one = ring_two + pair_two, ring_one + ring_other
    numbers = {"two": min(two), "ring": max(one), "pair": max(pair_one), "other": min(pair_other)}
    solved = sorted(two)[1] == sorted(pair_other)[1] == 8  # one model may be stuck
    return Verdict(solved and max(one) < 8 and max(pair_one) <= 4, numbers)


def a_shared_row_learns_more_slowly(seed: int) -> Verdict:
    """Five models with key and value apart and five with one row: the ring, in percent."""
    story = of_story("scoring", "shared")
    apart, one = torch.tensor(story.shared(seed, sizes=(2,)))  # (300 and 600 steps, 5)
    numbers = {"apart": apart[0].median().item(), "early": one[0].median().item()}
    numbers["late"] = one[1].median().item()
    slower = apart[0].median() > one[0].median() + 1
    return Verdict(bool(slower and apart[0].median() > 99 and one[1].median() > 99), numbers)


def a_start_token_lets_a_bias_tell_distances(seed: int) -> Verdict:
    """Five models with a start token, without it and without distances, after 1200 steps."""
    story = of_story("relative-positions", "answered")
    ways = "number, 4 heads, start token", "number, 4 heads", "neither, 4 heads, start token"
    late = [torch.tensor(story.train(seed, *story.kinds[way])[1]) for way in ways]
    started, bare, control = late
    numbers = {"start": started.median().item(), "bare": bare.median().item()}
    numbers["control"] = control.median().item()
    apart = started.median() > 90 > bare.median() + 5
    return Verdict(bool(apart and control.max() < 25), numbers)


def only_sharp_heads_leave_keys_out(seed: int) -> Verdict:
    """Three draws of 512 random queries and keys: what is lost with all but 32 keys."""
    story = of_story("sparse-by-content", "lost")
    draws = {g: [story.lost(seed + i, g, 32) for i in range(3)] for g in (1, 4)}
    flat, sharp = (torch.stack(draws[gain]).mean(dim=0) for gain in (1, 4))
    numbers = {"flat": flat[0].item(), "sharp": sharp[0].item(), "error": sharp[1].item()}
    numbers |= {"chance": sharp[3].item()}
    few = sharp[0] < 10 and sharp[1] < 10 and sharp[3] > 5 * sharp[1]
    return Verdict(bool(few and flat[0] > 50), numbers)


def untrained_blocks_need_the_first(seed: int) -> Verdict:
    """Four new pieces of the novel: what few blocks lose, with the first one kept and without."""
    story = of_story("sparse-by-content", "untrained")
    model, tokens = story.loaded()
    draw = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(tokens) - 257, (4,), generator=draw).tolist()
    ways = {
        "means": story.few_blocks(True, False),
        "first": story.few_blocks(True, True),
        "last": story.few_blocks(False, False),
        "last_first": story.few_blocks(False, True),
        "two": story.few_blocks(True, False, k=2),
        "two_first": story.few_blocks(True, True, k=2),
    }
    more = dict.fromkeys(ways, 0.0)
    for start in starts:
        piece = tokens[start : start + 257]
        whole = story.losses(model, piece, story.attention).mean()
        for name, way in ways.items():
            more[name] += (story.losses(model, piece, way).mean() - whole).item() / len(starts)
    fewer = more["first"] < more["means"] / 2 and more["last_first"] < more["last"] / 2
    return Verdict(fewer and more["two_first"] > more["two"] - 0.15, more)


def a_score_for_a_block_hides_a_needle(seed: int) -> Verdict:
    """Three draws of 100 needles in blocks of 64 keys, random or like their neighbours."""
    story = of_story("sparse-by-content", "blocks_found")
    draws = [[story.blocks_found(seed + i, 64, alike) for i in range(3)] for alike in (0, 0.1)]
    random, alike = (torch.stack(each).mean(dim=0) for each in draws)  # by mean, bound, best
    numbers = {"mean": random[0].item(), "bound": random[1].item()}
    numbers |= {"alike": alike[0].item(), "alike_bound": alike[1].item()}
    hidden = random[:2].max() < 50 and min(random[2], alike[2]) > 95
    return Verdict(bool(hidden and alike[0] > 90 and alike[1] < 75), numbers)


def an_indexer_learns_from_the_weights(seed: int) -> Verdict:
    """Five indexers trained on all keys, five on those chosen: the best keys and their weight."""
    story = of_story("indexers", "judged")
    found = torch.tensor(story.judged(seed, trained=(200, 0)))  # (5 ways, 5, keys and weight)
    chance, _, untrained, every, chosen = found.mean(dim=1)
    numbers = {"keys": every[0].item(), "weight": every[1].item(), "untrained": untrained[0].item()}
    numbers["apart"] = (every - chosen).abs().max().item()
    learned = found[3:, :, 0].min() > 55 and found[3:, :, 1].min() > 80
    same = (every - chosen).abs().max() < 5 and (untrained - chance)[0].abs() < 10
    return Verdict(bool(learned and same), numbers)


def these_features_have_no_temperature(seed: int) -> Verdict:
    """Three draws of 64 keys: the weight of a key asked for with queries up to 32 times as long."""
    story = of_story("linear-attention", "look_up")
    ways = attention_weights, linear_attention_weights
    found = [
        [min(story.look_up(way, length, seed + i)[0] for i in range(3)) for length in (1, 8, 32)]
        for way in ways
    ]
    softmax, features = found
    numbers = {"softmax": softmax[1], "features": features[2]}
    return Verdict(softmax[1] > 0.99 and features[2] < 0.06, numbers)


def no_features_recall_beyond_the_bound(seed: int) -> Verdict:
    """Five draws of 128 random keys, and a table that is trained, as multiples of the bound."""
    story, bound, random_keys = of_story("linear-attention", "error"), 1 - 32 / 128, []
    for i in range(5):
        random_keys.append(story.error(lambda k, v: linear_attention(k, k, v), 128, seed + i))
    torch.manual_seed(seed)
    table = torch.randn(2, 128, 32).div(6).requires_grad_()  # features of queries and of keys
    adam = torch.optim.Adam([table], lr=0.02)
    for _ in range(1000):
        loss = (table[0] @ table[1].mT - torch.eye(128)).square().sum() / 128
        adam.zero_grad()
        loss.backward()
        adam.step()
    numbers = {"trained": loss.item() / bound, "random": min(random_keys) / bound}
    return Verdict(0.9999 < numbers["trained"] < 1.05 and numbers["random"] > 1.2, numbers)


def sharper_weights_need_more_random_features(seed: int) -> Verdict:
    """Five draws: the error of the weights with 256 and 4096 features, and with longer queries."""
    story = of_story("linear-attention", "distance")
    space = story.distance.__globals__
    found = {}
    for name, count, length in (("few", 256, 1), ("many", 4096, 1), ("sharp", 4096, 2)):
        errors = []
        for i in range(5):
            torch.manual_seed(seed + i)
            space["q"], space["k"] = torch.randn(2, 64, 16)
            errors.append(story.distance(count, length, seed + i))
        found[name] = sum(errors) / 5
    slow = found["many"] < found["few"] < 4 * found["many"]  # sixteen times as many features
    return Verdict(slow and found["sharp"] > found["many"] + 0.1, found)


def negative_factors_may_drift(seed: int) -> Verdict:
    """Seven models of the delta rule and two GRUs, at tokens 161 to 320, trained on 40."""
    story = of_story("state-tracking", "fresh")
    kinds = {"delta": ("b up to 2", 7), "gru": ("GRU", 2)}
    found = {
        name: torch.tensor([story.shares(story.train(kind, 0.006, seed + i))[6] for i in range(n)])
        for name, (kind, n) in kinds.items()
    }
    delta, gru = found["delta"], found["gru"]
    numbers = {"mean": 100 * delta.mean().item(), "worst": 100 * delta.min().item()}
    numbers["gru"] = 100 * gru.min().item()
    return Verdict(bool(delta.mean() > 0.7 and gru.min() > 0.98), numbers)


def a_window_and_a_stride_reach_all_in_two_layers(seed: int) -> Verdict:
    """Twenty drawn lengths, windows and strides: keys that don't reach the last query, in steps."""
    draw, missing, window_only = random.Random(seed), 0, []
    for _ in range(20):
        n, w = draw.randrange(100, 400), draw.randrange(3, 12)
        r = draw.randrange(2, w + 1)
        back = torch.arange(n)[:, None] - torch.arange(n)
        window = window_mask(n, n, w) & causal_mask(n)
        seen = (window | ((back >= 0) & (back % r == 0))).double()
        missing += int((torch.tril(torch.ones(n, n)) * (seen @ seen == 0)).sum())
        window_only.append(int(((window.double() @ window.double())[-1] > 0).sum()) - 2 * (w - 1))
    numbers = {"missing": missing, "window": max(window_only)}
    return Verdict(missing == 0 and set(window_only) == {1}, numbers)


def a_mask_alone_skips_nothing(seed: int) -> Verdict:
    """A window as a mask for the fused kernel: how many outputs are computed with a hidden key."""
    torch.manual_seed(seed)
    query, key, value = torch.randn(3, 1, 1, 1024, 8)
    value[:, :, 0] = torch.nan  # times a weight of 0: still NaN
    mask = window_mask(1024, 1024, 64) & causal_mask(1024)
    output = F.scaled_dot_product_attention(query, key, value, mask)
    computed = int(output.isnan().any(dim=-1).sum())
    return Verdict(computed > 512, {"computed": computed, "needed": int(mask[:, 0].sum())})


def absorbing_pays_for_few_queries(seed: int) -> Verdict:
    """Ten drawn sizes of latent layers: the FLOPs of both orders, counted, and where they cross."""
    from torch.utils.flop_counter import FlopCounterMode

    draw, off, once = random.Random(seed), [], []
    for _ in range(10):
        own, turned, latent = (
            draw.choice([64, 128]),
            draw.choice([32, 64]),
            draw.randrange(256, 769),
        )
        rows = draw.randrange(1000, 20_000)

        def flops(queries: int, absorb: bool, sizes: tuple = (own, turned, latent, rows)) -> int:
            own, turned, latent, rows = sizes
            shapes = (1, 8, queries, own + turned), (1, 1, rows, latent + turned), (8, own, latent)
            with torch.device("meta"):
                query, kept, up = map(torch.empty, shapes)
            with FlopCounterMode(display=False) as counter:
                latent_attention(query, kept, up, up, return_weights=True, absorb=absorb)
            return counter.get_total_flops()

        solved = 1 / (1 / rows + (2 * latent - 2 * own) / (latent * 2 * own))
        around = int(solved) - 1, int(solved) + 2
        cheaper = [flops(count, True) < flops(count, False) for count in around]
        off.append(cheaper != [True, False])
        once.append(flops(1, True) / flops(1, False))
    return Verdict(not any(off) and max(once) < 0.05, {"off": sum(off), "one": max(once)})


def runs_of_pairs_blur_columns(seed: int) -> Verdict:
    """A hundred drawn patches: the score of the same patch seven rows and seven columns away."""
    story = of_story("image-positions", "turn")
    angles = of_story("image-positions", "angles").angles
    torch.manual_seed(seed)
    patch = torch.randn(100, 1, 64, dtype=torch.float64).expand(100, 3, 64)
    places = torch.tensor([[0, 7, 0], [0, 0, 7]])  # here, 7 rows away, 7 columns away
    found = {}
    for name, woven in (("runs", False), ("woven", True)):
        turned = story.turn(patch, angles(places, [16, 16], woven))
        near = (turned * turned[:, :1]).sum(dim=-1) / patch.square().sum(dim=-1)
        _, found[f"{name}_rows"], found[f"{name}_columns"] = near.mean(dim=0).tolist()
    apart = found["runs_columns"] - found["runs_rows"]
    close = abs(found["woven_columns"] - found["woven_rows"])
    return Verdict(found["runs_columns"] > 0.97 and apart > 0.15 and close < 0.06, found)


def windows_save_memory_indexers_save_reading(seed: int) -> Verdict:
    """The newest row of each family at a drawn length: the cache's growth, and how much is read."""
    story = of_story("families", "attended")
    story.attended.__globals__["n"] = n = random.Random(seed).randrange(65_536, 131_073)
    cache, read = {"window": [], "index": []}, {"window": [], "index": []}
    newest = {m.family: m for m in map(known_model, known_models()) if m.kind == "decoder"}
    for m in newest.values():
        if m.context is not None and m.context < 131_072:
            continue
        windows = any(kind.window for kind in m.layer_kinds)
        if windows == bool(m.index):  # neither, or both as in DeepSeek-V4
            continue
        way = "window" if windows else "index"
        cache[way].append(m.kv_cache_bytes(n) / (n * m.kv_cache_bytes_per_token()))
        read[way].append(story.attended(m) / (m.layers * n))
    numbers = {f"{way}_cache": 100 * max(cache[way]) for way in cache}
    numbers |= {"window_read": 100 * min(read["window"]), "index_read": 100 * max(read["index"])}
    small = max(cache["window"]) < 0.67 and min(cache["index"]) > 0.999
    return Verdict(small and max(read["index"]) < 0.15 and min(read["window"]) > 1 / 6, numbers)

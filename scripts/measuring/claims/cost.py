"""Claims, tried again: Cost. See `measuring.claims`."""

from __future__ import annotations

import contextlib
import random
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from mhsite.stories.translation import shown_section

from measuring.claims import Verdict, of_story
from mhattn import KVCache, MultiHeadAttention, Rotary, attention, causal_mask
from mhattn.models import accept_drafts
from mhattn.parallel import compare_heads, compare_latent, compare_tokens, run
from mhattn.parallel.equalities import train_on
from mhattn.variants import Sums, block_sums, latent_attention, merge_sums


def wrong_groups_cost_each_piece_more(seed: int) -> Verdict:
    """Five new pieces of Alice, each in the five ways, with two bits and with four."""
    story, draw = of_story("smaller-cache", "lost"), torch.Generator().manual_seed(seed)
    space = story.lost.__globals__
    starts = torch.randint(len(story.alice) - 65, (5,), generator=draw)
    space["rows"] = story.alice[starts[:, None] + torch.arange(65)]
    space["exact"] = story.losses(attention)
    key_token, key_channel, value_token, value_channel, both = map(story.lost, range(5))
    pairs = [(key_token, key_channel), (value_channel, value_token)]
    lead = torch.tensor([[a - b for a, b in zip(x[1], y[1], strict=True)] for x, y in pairs])
    four, two = (sum(each) / 5 for each in both)
    numbers = {"keys": lead[0].min().item(), "values": lead[1].min().item()}
    numbers |= {"four": four, "two": two}
    more = (lead > 0).sum(dim=1).min() >= 4 and lead.mean(dim=1).min() > 0.2
    return Verdict(bool(more and abs(four) < 0.06 and two > 0.2), numbers)


def shorter_caches(*sections: str) -> dict[str, Any]:
    """What these sections define: they read no model, though they share names with some that do."""
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    with contextlib.redirect_stdout(None):
        for section in sections:
            exec(shown_section(f"smaller-cache.pycon:{section}").code, names)
    return names


def an_unbiased_bit_costs_more_than_it_brings(seed: int) -> Verdict:
    """Five fresh draws at one to four bits, for both kinds of query."""
    drawn = shorter_caches("levels", "forms", "drawn")["drawn"]
    errors = torch.tensor(
        [
            [[drawn(seed + i, bits, sought) for i in range(5)] for sought in (False, True)]
            for bits in (1, 2, 3, 4)
        ]
    )[..., 3]
    spread, sought = errors.median(dim=2).values.unbind(dim=1)  # (bits, forms)
    lost, regained = spread[:, 2] / spread[:, 0], sought[:, 2] / sought[:, 1]
    wins = sought[0, 2] < sought[0, 0] and sought[1, 2] < sought[1, 0]
    numbers = {
        "spread": lost[1].item(),
        "least": lost.min().item(),
        "sought": regained.min().item(),
    }
    return Verdict(bool(lost.min() > 2 and regained.min() > 1 and wins), numbers)


def solved_caches_need_biases_once_text_follows(seed: int) -> Verdict:
    """Five fresh draws with queries in eight directions."""
    shortened = shorter_caches("matching")["shortened"]
    errors = torch.tensor([shortened(seed + i, 8, 512) for i in range(5)])
    evicted, valued, solved = (100 * errors[..., 1]).unbind(dim=1)
    numbers = {"evicted": evicted.min().item(), "values": valued.min().item()}
    numbers["solved"] = solved.max().item()
    return Verdict(bool((solved < valued).all() and (valued < evicted).all()), numbers)


def fresh_layers(seed: int, pieces: int, length: int) -> SimpleNamespace:
    """The story of eight bits with other pieces of Alice, read by ten layers of SmolLM2."""
    text, recorded = of_story("eight-bits", "alice"), []

    def keep(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options):
        pair = [x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value)]
        recorded.append([x.double() for x in (query, *pair)])
        return attention(query, key, value, **options)

    draw = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text.alice) - length, (pieces, 1), generator=draw)
    for block in text.model.blocks:
        block.attention.attend = keep
    text.model(text.alice[starts + torch.arange(length)])
    story = of_story("eight-bits", "error")
    space = story.error.__globals__
    space["mask"], space["kept"] = causal_mask(length), recorded[1::3]
    space["right_terms"] = [story.terms_of(query, key) for query, key, _ in space["kept"]]
    values = [value for *_, value in space["kept"]]
    space["exact"] = [story.mixed(*pair) for pair in zip(space["right_terms"], values, strict=True)]
    return story


def only_weights_want_float8(seed: int) -> Verdict:
    """Two new pieces of 128 tokens and one of 512: the error of int8 over that of e4m3."""
    ways, weights, others = of_story("eight-bits", "ways").ways, [], []
    for story in (fresh_layers(seed, 2, 128), fresh_layers(seed + 1, 1, 512)):
        for part, way in (("q", 0), ("k", 0), ("p", 1), ("v", 2)):
            whole, floats = (story.error(**{part: ways[name][way]}) for name in ("int8", "e4m3"))
            (weights if part == "p" else others).append(whole / floats)
    numbers = {"weights": min(weights), "others": max(others)}
    return Verdict(min(weights) > 1.2 and max(others) < 0.8, numbers)


def keys_need_the_bits_more_than_values(seed: int) -> Verdict:
    """Two new pieces of 128 tokens and one of 512: 8 and 4 bits for keys and values, each way."""
    by_group, spared, other = of_story("eight-bits", "by_group").by_group, [], []
    for story in (fresh_layers(seed, 2, 128), fresh_layers(seed + 1, 1, 512)):
        for centre in (lambda key: key, lambda key: key - key.mean(dim=-2, keepdim=True)):
            for bits, found in ((("int8", "int4"), spared), (("int4", "int8"), other)):
                keys, values = map(by_group, bits)
                found.append(story.error(k=lambda x, f=keys, c=centre: f(c(x)), v=values))
    shares = [one / two for one, two in zip(spared, other, strict=True)]
    numbers = {"plain": max(shares[::2]), "centred": max(shares[1::2])}
    return Verdict(numbers["plain"] < 0.5 and numbers["centred"] < 0.7, numbers)


def a_module_beats_copied_drafts(seed: int) -> Verdict:
    """Five models: tokens a pass, sampled, with the own module, with copies, with a model apart."""
    rows = torch.tensor(of_story("speculative-decoding", "drafted").drafted(seed))
    copies, apart, own = rows[:, 1:4].T
    numbers = {"copies": (own - copies).min().item(), "lead": (own - apart).mean().item()}
    return Verdict(numbers["copies"] > 0.1, numbers)


def drafts_leave_the_distribution(seed: int) -> Verdict:
    """Five random pairs: 400,000 first tokens beside the distributions of model and drafts."""
    torch.manual_seed(seed)
    far, control = [], []
    for _ in range(5):
        target = torch.randn(2, 7).softmax(dim=-1)  # for the draft, and behind it
        draft = torch.randn(1, 7).mul(2).softmax(dim=-1)
        count = 400_000
        tokens = draft[0].multinomial(count, replacement=True)[:, None]
        kept, other = accept_drafts(
            target.expand(count, -1, -1), draft.expand(count, -1, -1), tokens
        )
        first = tokens[:, 0].where(kept > 0, other)
        shares = first.bincount(minlength=7) / count
        far.append((shares - target[0]).abs().sum().item() / 2)
        control.append((draft[0] - target[0]).abs().sum().item() / 2)
    numbers = {"far": 100 * max(far), "drafts": 100 * min(control)}
    return Verdict(max(far) < 0.004 < min(control), numbers)


def copied_heads_equal_one_process(seed: int) -> Verdict:
    """Two processes share a layer with one head of keys, which both have to copy."""
    draw = random.Random(seed)
    heads, length = draw.choice([6, 10, 14]), draw.randrange(5, 40)
    found = run(compare_heads, 2, heads, 1, length, 3)
    off = max(each[key] for each in found for key in ("output", "gradient", "weights"))
    copied = all(each["kv_heads"] == 1 for each in found)
    return Verdict(copied and off < 1e-5, {"off": off})


def latents_are_not_cut_by_heads(seed: int) -> Verdict:
    """Ten drawn sizes: which kept numbers the heads of each machine read; two processes."""
    torch.manual_seed(seed)
    draw, latent, grouped = random.Random(seed), [], []
    for _ in range(10):
        machines, share, rank = draw.choice((2, 4, 8)), draw.choice((1, 2)), draw.randrange(8, 33)
        heads, size, turned = machines * share, draw.randrange(4, 12), draw.randrange(2, 6)
        kept = torch.randn(1, 1, 7, rank + turned).double().requires_grad_()
        query = torch.randn(1, heads, 3, size + turned).double()
        k_b, v_b = torch.randn(2, heads, size, rank).double()
        out = latent_attention(query, kept, k_b, v_b)
        key = torch.randn(1, heads, 7, size).double().requires_grad_()
        by_head = attention(query[..., :size], key, key)
        for given, made, shares in ((kept, out, latent), (key, by_head, grouped)):
            for own in made.chunk(machines, dim=1):
                (reads,) = torch.autograd.grad(own.square().sum(), given, retain_graph=True)
                shares.append(
                    (reads != 0).double().mean().item() * (machines if given is key else 1)
                )
    off, whole = [], True
    for each in run(compare_latent, 2):
        off += [each[kind] for kind in ("output", "gradient", "weights")]
        whole = whole and each["cache"] == each["one"]
    numbers = {"latent": min(latent), "grouped": max(grouped), "off": max(off)}
    cut = min(latent) == 1 == round(max(grouped), 9)
    return Verdict(bool(cut and whole and max(off) < 1e-5), numbers)


def a_checkpoint_is_read_by_any_number(seed: int) -> Verdict:
    """Saved by two processes after some steps, read by one and by two: weights at the end."""
    draw, off = random.Random(seed), []
    before, steps = draw.randrange(3, 12), draw.randrange(3, 12)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "saved")
        run(train_on, 2, 0, before, None, folder)
        for readers in (1, 2):
            found = run(train_on, readers, before, steps, folder)
            off += [each["weights"] for each in found]
    return Verdict(max(off) < 1e-5, {"off": max(off)})


def sent_bytes_follow_the_formula(seed: int) -> Verdict:
    """Two processes, drawn sizes: bytes of a sum over heads and of split keys, counted."""
    draw = random.Random(seed)
    heads, length = draw.choice([6, 10, 14]), draw.randrange(5, 40)
    [shared, _] = run(compare_heads, 2, heads, heads, length)
    layer = 2 * length * (2 * heads) * 4  # B, L, E; float32
    batch, keys = draw.randrange(1, 4), draw.randrange(9, 60)
    [split, _] = run(compare_tokens, 2, "split", "blocks", keys, (batch, heads, heads))
    query = batch * heads * (1 + 8 + 1) * 4  # maximum, mix, total
    sent = [sum(each["forward"].values()) for each in (shared, split)]
    numbers = {"layer": sent[0] / layer, "query": sent[1] / query}
    return Verdict(sent == [layer, query], numbers)


def an_exchange_equals_one_process(seed: int) -> Verdict:
    """Two processes give tokens for heads: drawn lengths and heads, beside one process."""
    draw, off = random.Random(seed), []
    for _ in range(3):
        keys = 2 * draw.randrange(1, 4)
        sizes = (draw.randrange(1, 4), keys * draw.randrange(1, 4), keys)
        found = run(compare_tokens, 2, "exchange", "blocks", draw.randrange(9, 60), sizes)
        off += [max(each["output"], each["gradient"]) for each in found]
    return Verdict(max(off) < 1e-5, {"off": max(off)})


def sums_merge_in_any_order(seed: int) -> Verdict:
    """Twenty drawn cuts of 89 keys, merged in random order, beside all keys at once."""
    torch.manual_seed(seed)
    draw, off = random.Random(seed), 0.0
    query, key = torch.randn(7, 13).double() * 20, torch.randn(89, 13).double()
    value = torch.randn(89, 5).double()
    exact = attention(query, key, value)
    for _ in range(20):
        cuts = sorted(draw.sample(range(1, 89), draw.randrange(1, 12)))
        parts = [slice(a, b) for a, b in zip([0, *cuts], [*cuts, 89], strict=True)]
        sums = [block_sums(query, key[part], value[part]) for part in parts]
        while len(sums) > 1:  # any two of them
            draw.shuffle(sums)
            sums.append(merge_sums(sums.pop(), sums.pop()))
        off = max(off, (sums[0].output - exact).abs().max().item())
    nothing = Sums.over_nothing(query, value).total.abs().max().item()
    return Verdict(off < 1e-12 and nothing == 0, {"off": off})


def any_cut_gives_the_full_pass(seed: int) -> Verdict:
    """Twenty drawn cuts of 37 tokens, fed through a cache: beside one pass, in float64."""
    torch.manual_seed(seed)
    draw, off = random.Random(seed), 0.0
    layer = MultiHeadAttention(30, 3, num_kv_heads=1, position=Rotary(10)).double()
    x = torch.randn(2, 37, 30).double()
    with torch.no_grad():
        whole = layer(x, is_causal=True)
        seen = layer(x.flip(1), is_causal=True)  # so that a layer that ignores its cache is far off
        for _ in range(20):
            cuts = sorted(draw.sample(range(1, 37), draw.randrange(1, 36)))
            cache, rows = KVCache(max_len=37), []
            for a, b in zip([0, *cuts], [*cuts, 37], strict=True):
                rows.append(layer(x[:, a:b], is_causal=True, cache=cache))
            off = max(off, (torch.cat(rows, dim=1) - whole).abs().max().item())
    apart = (seen.flip(1) - whole).abs().max().item()
    return Verdict(off < 1e-12 and apart > 1e-3, {"off": off, "apart": apart})


def a_group_is_its_head_repeated(seed: int) -> Verdict:
    """Ten drawn layers: grouped heads beside each shared head repeated, and beside turns."""
    torch.manual_seed(seed)
    draw, off, turns = random.Random(seed), [], []
    for _ in range(10):
        keys, group, size = draw.choice([2, 3, 5]), draw.choice([2, 3]), draw.choice([7, 11])
        queries = torch.randn(2, keys * group, 13, size).double()
        key, value = torch.randn(2, 2, keys, 17, size).double()
        grouped = attention(queries, key, value)
        repeated = [x.repeat_interleave(group, dim=1) for x in (key, value)]
        in_turn = [x.repeat(1, group, 1, 1) for x in (key, value)]
        off.append((attention(queries, *repeated) - grouped).abs().max().item())
        turns.append((attention(queries, *in_turn) - grouped).abs().max().item())
    return Verdict(max(off) < 1e-12 and min(turns) > 0.1, {"off": max(off), "turns": min(turns)})

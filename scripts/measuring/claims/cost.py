"""Claims, tried again: Cost. See `measuring.claims`."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import torch

from measuring.claims import Verdict, of_story
from mhattn import KVCache, MultiHeadAttention, Rotary, attention
from mhattn.models import accept_drafts
from mhattn.parallel import compare_heads, compare_tokens, run
from mhattn.parallel.equalities import train_on
from mhattn.variants import Sums, block_sums, merge_sums


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

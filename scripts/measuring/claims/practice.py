"""Claims, tried again: Practice. See `measuring.claims`."""

from __future__ import annotations

import random
from itertools import accumulate, product

import torch
from torch.nn.utils.rnn import pad_sequence

from measuring.claims import Verdict, of_story
from mhattn import MultiHeadAttention


def the_ratio_tells_mistakes_from_rounding(seed: int) -> Verdict:
    """Five draws, 256 tokens, bfloat16: how many of six right and five wrong forms it refuses."""
    story = of_story("sixteen-bits", "verdicts")
    names = "fused", "in_steps", "in_chunks", "in_a_batch", "backwards", "wide"
    right = [getattr(of_story("sixteen-bits", name), name) for name in names]
    scaled = of_story("sixteen-bits", "scaled").scaled
    masked = of_story("sixteen-bits", "masked").masked
    cells = (slice(-32, None), 100), (60, 61), (slice(1, None), 0)
    wrong = [scaled(1.02), scaled(1.1), *(masked(cell) for cell in cells)]
    refused = {"right": 0, "wrong": 0}
    for i in range(5):
        query, key, value = story.draw(seed + i)
        inputs = [x.bfloat16() for x in (query, key, value / 20)]
        exact = story.written(*[x.double() for x in inputs])
        theirs = story.written(*inputs)
        for kind, forms in (("right", right), ("wrong", wrong)):
            for form in forms:
                refused[kind] += not story.is_rounding(form(*inputs), theirs, exact)
    return Verdict(refused["right"] <= 1 and refused["wrong"] >= 20, refused)


def a_fused_kernel_is_nearer_to_float64(seed: int) -> Verdict:
    """Five draws at four sizes of scores: errors of the fused and of the written-out form."""
    story = of_story("sixteen-bits", "errors")
    found = torch.tensor(
        [
            [story.errors(size, seed + i, torch.bfloat16) for i in range(5)]
            for size in (0.25, 1, 4, 16)
        ]
    )  # (sizes, 5, fused and written)
    fused, written = found.median(dim=1).values.T
    ratio = written / fused
    numbers = {"fused": 100 * fused.max().item(), "large": ratio[-1].item()}
    grows = written[-1] > 3 * written[0] and fused.max() < 2 * fused.min()
    return Verdict(bool(grows and ratio[-1] > 3), numbers)


def dropped_rows_keep_their_mean(seed: int) -> Verdict:
    """Ten drawn rows of seven weights, all 128 cases: the mean as dropped, and normalised again."""
    torch.manual_seed(seed)
    cases = torch.tensor(list(product((0.0, 1.0), repeat=7)), dtype=torch.float64)
    off, largest = 0.0, []
    for _ in range(10):
        row, p = torch.randn(7).double().mul(2).softmax(dim=0), float(torch.rand(())) * 0.6 + 0.1
        chance = (1 - p) ** cases.sum(1) * p ** (7 - cases.sum(1))
        dropped = cases * row / (1 - p)
        again = (dropped / dropped.sum(1, keepdim=True)).nan_to_num()
        again, left = chance @ again, 1 - p**7  # rows of which something is left
        off = max(off, (chance @ dropped - row).abs().max().item())
        largest.append((again[row.argmax()] / left - row.max()).item())
    return Verdict(off < 1e-12 and max(largest) < 0, {"off": off, "largest": max(largest)})


def two_biases_say_all(seed: int) -> Verdict:
    """Ten layers with random biases: without the key's, and with the value's in the output's."""
    torch.manual_seed(seed)
    draw, off, control = random.Random(seed), [], []
    for _ in range(10):
        heads = draw.choice([2, 3, 5])
        width = heads * draw.choice([3, 7, 11])
        layer = MultiHeadAttention(width, heads).double()
        x = torch.randn(2, draw.choice([13, 17]), width).double()
        with torch.no_grad():
            for projection in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj):
                projection.bias.normal_()
            whole = layer(x, is_causal=True)
            layer.out_proj.bias += layer.out_proj.weight @ layer.v_proj.bias
            layer.v_proj.bias.zero_()
            layer.k_proj.bias.zero_()
            off.append((layer(x, is_causal=True) - whole).abs().max().item())
            layer.q_proj.bias.zero_()
            control.append((layer(x, is_causal=True) - whole).abs().max().item())
    numbers = {"off": max(off), "query": min(control)}
    return Verdict(max(off) < 1e-12 and min(control) > 1e-3, numbers)


def drawn_prompts(seed: int) -> tuple[list, list[torch.Tensor]]:
    """The two models of the page with new weights, and three prompts of unequal lengths."""
    story = of_story("batches", "Writer")
    torch.manual_seed(seed)
    lengths = random.Random(seed).sample(range(2, 20), 3)
    models = [story.Writer(rotary=rotary).eval() for rotary in (False, True)]
    return models, [torch.randint(100, (length,)) for length in lengths]


@torch.no_grad()
def mask_and_positions_make_padding_harmless(seed: int) -> Verdict:
    """Two new models, three prompts padded on the left: last logits beside each alone."""
    models, prompts = drawn_prompts(seed)
    tokens = pad_sequence(prompts, batch_first=True, padding_side="left")
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    real = torch.arange(tokens.shape[1]) >= tokens.shape[1] - lengths[:, None]
    places, column = (real.cumsum(dim=1) - 1).clamp(min=0), torch.arange(tokens.shape[1])
    mask, off = real[:, None, None], []
    for model in models:
        alone = torch.stack([model(p[None], torch.arange(len(p)))[0, -1] for p in prompts])
        ways = [(column, None), (column, mask), (places, mask)]
        off.append([(model(tokens, *way)[:, -1] - alone).abs().max().item() for way in ways])
    added, rope = off
    numbers = {"right": max(added[2], rope[2]), "added": added[1], "rope": rope[1]}
    wrong = min(added[0], rope[0], added[1])
    return Verdict(max(added[2], rope[1], rope[2]) < 1e-4 and wrong > 0.05, numbers)


@torch.no_grad()
def mask_and_positions_keep_packed_texts_apart(seed: int) -> Verdict:
    """Two new models, three texts in one row: all logits beside each alone."""
    models, prompts = drawn_prompts(seed)
    packed, lengths = torch.cat(prompts), [len(prompt) for prompt in prompts]
    ids = torch.arange(3).repeat_interleave(torch.tensor(lengths))
    starts = torch.tensor([0, *accumulate(lengths)][:3])
    onward = torch.arange(len(packed))
    same, off = ids[:, None] == ids, []
    for model in models:
        alone = torch.cat([model(p[None], torch.arange(len(p)))[0] for p in prompts])
        ways = [(onward, None), (onward, same), (onward - starts[ids], same)]
        off.append([(model(packed[None], *way)[0] - alone).abs().max().item() for way in ways])
    added, rope = off
    numbers = {"right": max(added[2], rope[2]), "added": added[1], "rope": rope[1]}
    wrong = min(added[0], rope[0], added[1])
    return Verdict(max(added[2], rope[1], rope[2]) < 1e-4 and wrong > 0.05, numbers)

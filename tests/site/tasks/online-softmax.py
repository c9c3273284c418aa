def right(q, blocks):
    best, sums = None, None
    for key, value in blocks:
        scores = key @ q / len(q) ** 0.5
        top = scores.max() if best is None else max(best, scores.max())
        new = (scores - top).exp() @ torch.cat([value, torch.ones(len(value), 1)], dim=1)
        sums = new if best is None else new + (best - top).exp() * sums
        best = top
    return sums[:-1] / sums[-1]


# All blocks are kept until the end.
def wrong_kept(q, blocks):
    keys, values = map(torch.cat, zip(*blocks, strict=True))
    return attention(q[None], keys, values)[0]


# The largest score isn't taken away.
def wrong_overflow(q, blocks):
    total, mixed = 0, 0
    for key, value in blocks:
        terms = (key @ q / len(q) ** 0.5).exp()
        total, mixed = total + terms.sum(), mixed + terms @ value
    return mixed / total


# Sums of earlier blocks keep the largest score that they had.
def wrong_rescale(q, blocks):
    total, mixed = 0, 0
    for key, value in blocks:
        scores = key @ q / len(q) ** 0.5
        terms = (scores - scores.max()).exp()
        total, mixed = total + terms.sum(), mixed + terms @ value
    return mixed / total


# The mean of each block's attention.
def wrong_mean(q, blocks):
    return torch.stack([attention(q[None], *pair)[0] for pair in blocks]).mean(dim=0)


# The scale is forgotten.
def wrong_scale(q, blocks):
    return right(q * len(q) ** 0.5, blocks)


# Of all blocks, only the last one is left.
def wrong_last(q, blocks):
    for key, value in blocks:
        output = attention(q[None], key, value)[0]
    return output


# The sum is rescaled, the mixed values are not.
def wrong_mixed(q, blocks):
    m, total, mixed = torch.tensor(-torch.inf), 0, 0
    for key, value in blocks:
        scores = key @ q / len(q) ** 0.5
        old, m = m, torch.maximum(m, scores.max())
        terms = (scores - m).exp()
        total, mixed = (old - m).exp() * total + terms.sum(), mixed + terms @ value
    return mixed / total

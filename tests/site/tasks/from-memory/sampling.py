def right(scores, T, k, p):  # from the least probable on
    result = torch.zeros_like(scores)
    for row, probs in zip(scores / T, result, strict=True):
        largest = row.topk(min(k, len(row))).indices
        share = row[largest].softmax(-1)
        kept = largest[share.flip(0).cumsum(0).flip(0) > 1 - p + 1e-6]
        probs[kept] = row[kept].softmax(-1)
    return result


def right_masked(scores, T, k, p):  # with minus infinity, as sampling code of libraries does
    scores = scores / T
    last = scores.topk(min(k, scores.shape[-1])).values[:, -1:]
    scores = scores.masked_fill(scores < last, -torch.inf)
    ranked, order = scores.softmax(-1).sort(-1, descending=True)
    late = ranked.cumsum(-1) - ranked >= p
    return scores.masked_fill(late.scatter(1, order, late), -torch.inf).softmax(-1)


# The token that reaches p is dropped.
def wrong_crossing(scores, T, k, p):
    ranked, order = (scores / T).sort(-1, descending=True)
    share = ranked[:, :k].softmax(-1)
    share = share.masked_fill(share.cumsum(-1) > p + 1e-6, 0)
    share = share / share.sum(-1, keepdim=True)
    return torch.zeros_like(scores).scatter(1, order[:, :k], share)


# The same, but for the first token, which always stays.
def wrong_crossing_but_first(scores, T, k, p):
    ranked, order = (scores / T).sort(-1, descending=True)
    share = ranked[:, :k].softmax(-1)
    late = share.cumsum(-1) > p + 1e-6
    late[:, 0] = False
    share = share.masked_fill(late, 0)
    share = share / share.sum(-1, keepdim=True)
    return torch.zeros_like(scores).scatter(1, order[:, :k], share)


# What is left isn't divided by its sum.
def wrong_sum(scores, T, k, p):
    ranked, order = (scores / T).sort(-1, descending=True)
    share = ranked[:, :k].softmax(-1)
    share = share.masked_fill(share.cumsum(-1) - share >= p, 0)
    return torch.zeros_like(scores).scatter(1, order[:, :k], share)


# The probabilities stay in the order of their size.
def wrong_order(scores, T, k, p):
    ranked = (scores / T).sort(-1, descending=True).values
    share = ranked[:, :k].softmax(-1)
    share = share.masked_fill(share.cumsum(-1) - share >= p, 0)
    share = share / share.sum(-1, keepdim=True)
    return torch.nn.functional.pad(share, (0, scores.shape[-1] - share.shape[-1]))


# The scores are multiplied by the temperature.
def wrong_temperature(scores, T, k, p):
    return next_probs(scores, 1 / T, k, p)


# Top-p is chosen at temperature 1, and only what is left is made hotter.
def wrong_late(scores, T, k, p):
    kept = next_probs(scores, 1.0, k, p) > 0
    return (scores / T).masked_fill(~kept, -torch.inf).softmax(-1)


# Top-p comes first, of all tokens, and top-k afterwards.
def wrong_p_first(scores, T, k, p):
    kept = next_probs(scores, T, scores.shape[-1], p) > 0
    return next_probs(scores.masked_fill(~kept, -1e4), T, k, 1 - 1e-6)


# The k-th largest is that of the whole batch.
def wrong_batch(scores, T, k, p):
    last = scores.flatten().topk(min(k, scores.numel())).values[-1]
    return next_probs(scores.masked_fill(scores < last, -torch.inf), T, k, p)


# RuntimeError: there are no 50 largest of 6.
def wrong_large(scores, T, k, p):
    last = scores.topk(k).values[:, -1:]
    return next_probs(scores.masked_fill(scores < last, -torch.inf), T, k, p)


# A drawn token, not the probabilities.
def wrong_drawn(scores, T, k, p):
    return next_probs(scores, T, k, p).multinomial(1)

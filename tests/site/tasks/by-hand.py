def right(scores):
    ordered = scores.sort(dim=-1).values
    return ordered[..., -1] - ordered[..., -2]


# The largest less the smallest.
def wrong_range(scores):
    return scores.amax(dim=-1) - scores.amin(dim=-1).clamp(min=-1e9)


# The largest less the mean.
def wrong_mean(scores):
    return scores.amax(dim=-1) - scores.clamp(min=-1e9).mean(dim=-1)


# Along the queries, not along the keys.
def wrong_axis(scores):
    best, second = scores.T.topk(2, dim=-1).values.unbind(dim=-1)
    return (best - second)[: len(scores)].nan_to_num()


# A ratio: a constant that a row shares changes it.
def wrong_ratio(scores):
    best, second = scores.topk(2, dim=-1).values.unbind(dim=-1)
    return best / second


# The largest alone.
def wrong_best(scores):
    return scores.amax(dim=-1)

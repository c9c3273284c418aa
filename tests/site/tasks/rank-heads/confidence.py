def right(weights):  # sorted, and query by query
    largest = weights.sort(dim=-1).values[..., -1]  # (B, H, L)
    return largest[..., 1:].flatten(2).mean(dim=(0, 2))


# The first query has no choice, and is as sure in every head.
def wrong_first(weights):
    return weights.amax(dim=-1).mean(dim=(0, 2))


# The largest over queries: how much the most popular query gives each key.
def wrong_axis(weights):
    return weights[:, :, 1:].amax(dim=-2).mean(dim=(0, 2))


# One number for all heads.
def wrong_heads(weights):
    return weights[:, :, 1:].amax(dim=-1).mean()


# The last query alone, which has the most keys to choose from.
def wrong_last(weights):
    return weights[:, :, -1].amax(dim=-1).mean(dim=0)

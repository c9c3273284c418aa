def right(weights):  # row by row
    made = torch.zeros_like(weights)
    for maps, new in zip(weights.flatten(0, 1), made.flatten(0, 1), strict=True):
        for i in range(len(maps)):
            new[i, : i + 1] = maps[i, torch.randperm(i + 1)]
    return made


# Over all keys: the future gets weight.
def wrong_future(weights):
    return weights.gather(-1, torch.rand(weights.shape).argsort(dim=-1))


# One order of the keys for every row.
def wrong_rows(weights):
    noise = torch.rand(*weights.shape[:2], 1, weights.shape[-1]).expand(weights.shape)
    noise = noise.masked_fill(~causal_mask(weights.shape[-1]), 2.0)
    return weights.gather(-1, noise.argsort(dim=-1))


# One order for every head and text.
def wrong_maps(weights):
    noise = torch.rand(weights.shape[-2:]).expand(weights.shape)
    noise = noise.masked_fill(~causal_mask(weights.shape[-1]), 2.0)
    return weights.gather(-1, noise.argsort(dim=-1))


# New weights at random, which are as sharp in every head.
def wrong_new(weights):
    noise = torch.rand(weights.shape).masked_fill(~causal_mask(weights.shape[-1]), -torch.inf)
    return noise.softmax(dim=-1)


# The rows keep their weights, and neighbours change places.
def wrong_neighbours(weights):
    moved = weights.clone()
    moved[..., 1:, :2] = weights[..., 1:, :2].flip(-1)
    return moved

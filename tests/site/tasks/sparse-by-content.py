def right(weights, share):
    ranked = weights.sort(dim=-1, descending=True).values
    number = (ranked.cumsum(dim=-1) < share - 1e-7).sum(dim=-1, keepdim=True)
    return weights >= ranked.gather(-1, number.clamp(max=weights.shape[-1] - 1))


# The key that reaches the share is left out.
def wrong_last(weights, share):
    ranked, order = weights.sort(dim=-1, descending=True)
    mask = torch.zeros_like(weights, dtype=torch.bool)
    return mask.scatter(-1, order, ranked.cumsum(dim=-1) < share)


# The smallest weights are kept.
def wrong_way(weights, share):
    return right(-weights + 1, share * weights.shape[-1])


# Keys with at least this part of the largest weight.
def wrong_part(weights, share):
    return weights >= (1 - share) * weights.amax(dim=-1, keepdim=True)


# The mask stands in the order of the ranks.
def wrong_order(weights, share):
    ranked = weights.sort(dim=-1, descending=True).values
    return ranked.cumsum(dim=-1) - ranked < share


# As many keys in each row as the widest needs.
def wrong_fixed(weights, share):
    number = int(right(weights, share).sum(dim=-1).max())
    order = weights.topk(number, dim=-1).indices
    return torch.zeros_like(weights, dtype=torch.bool).scatter(-1, order, True)


# Zeros and ones are no mask.
def wrong_kind(weights, share):
    return right(weights, share).float()


# All keys.
def wrong_all(weights, share):
    return torch.ones_like(weights, dtype=torch.bool)


# One key more than needed.
def wrong_more(weights, share):
    ranked, order = weights.sort(dim=-1, descending=True)
    before = ranked.cumsum(dim=-1) - ranked - ranked.roll(1, -1)
    return torch.zeros_like(weights, dtype=torch.bool).scatter(-1, order, before < share)

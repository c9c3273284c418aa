def right(q, k, v, mask, cap):
    scores = q @ k.transpose(-2, -1) / (cap * q.shape[-1] ** 0.5)
    hidden = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    return torch.softmax(cap * torch.tanh(scores) + hidden, dim=-1) @ v


# Cut off, not bent.
def wrong_clamp(q, k, v, mask, cap):
    scores = (q @ k.mT / q.shape[-1] ** 0.5).clamp(-cap, cap)
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ v


# The mask comes first, and tanh makes -inf a finite score.
def wrong_order(q, k, v, mask, cap):
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
    return (cap * (scores / cap).tanh()).softmax(dim=-1) @ v


# tanh alone: scores are not enlarged again.
def wrong_cap(q, k, v, mask, cap):
    scores = (q @ k.mT / q.shape[-1] ** 0.5 / cap).tanh()
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ v


# The scale is forgotten.
def wrong_scale(q, k, v, mask, cap):
    return right(q * q.shape[-1] ** 0.5, k, v, mask, cap)


# The mask is taken the other way round.
def wrong_mask(q, k, v, mask, cap):
    return right(q, k, v, ~mask | torch.eye(7).bool(), cap)


# The weights are capped, not the scores.
def wrong_weights(q, k, v, mask, cap):
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
    return cap * (scores.softmax(dim=-1) / cap).tanh() @ v


# The last query is left out.
def wrong_last(q, k, v, mask, cap):
    return right(q, k, v, mask, cap)[..., :-1, :]

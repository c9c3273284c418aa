def right(state, k, v, a, b):
    old = torch.diag(a) @ state
    return old - b * torch.outer(k, k) @ old + b * torch.outer(k, v)


# Columns fade, not rows.
def wrong_columns(state, k, v, a, b):
    return right(state * a[: state.shape[1]], k, v, torch.ones(5), b)


# One decay for all rows.
def wrong_mean(state, k, v, a, b):
    return right(state, k, v, a.mean().expand(5), b)


# The old value is read before it has faded.
def wrong_order(state, k, v, a, b):
    return a[:, None] * state + torch.outer(k, b * (v - k @ state))


# What is written fades at once.
def wrong_late(state, k, v, a, b):
    return a[:, None] * right(state, k, v, torch.ones(5), b)


# Nothing is taken away: a sum, not a correction.
def wrong_sum(state, k, v, a, b):
    return a[:, None] * state + torch.outer(k, b * v)


# How much is written is ignored.
def wrong_beta(state, k, v, a, b):
    return right(state, k, v, a, 1.0)

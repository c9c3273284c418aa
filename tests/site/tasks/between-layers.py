def right(sources, query):
    values = torch.stack(sources)
    keys = F.rms_norm(values, values.shape[-1:], eps=1e-6)
    weights = (keys @ query).softmax(dim=0)
    return len(sources) * (weights.unsqueeze(-1) * values).sum(dim=0)


# The mean, as attention gives it.
def wrong_mean(sources, query):
    return right(sources, query) / len(sources)


# The sum, whatever the query.
def wrong_sum(sources, query):
    return sum(sources)


# The sources are normed as well.
def wrong_normed(sources, query):
    normed = [F.rms_norm(s, s.shape[-1:], eps=1e-6) for s in sources]
    return right(normed, query)


# The keys are not.
def wrong_keys(sources, query):
    values = torch.stack(sources)
    weights = (values @ query).softmax(dim=0)
    return len(sources) * (weights.unsqueeze(-1) * values).sum(dim=0)


# Softmax over the tokens.
def wrong_axis(sources, query):
    values = torch.stack(sources)
    keys = F.rms_norm(values, values.shape[-1:], eps=1e-6)
    weights = (keys @ query).softmax(dim=-1)
    return values.shape[2] * (weights.unsqueeze(-1) * values).sum(dim=0)


# Divided by the root of the width.
def wrong_scale(sources, query):
    return right(sources, query / len(query) ** 0.5)

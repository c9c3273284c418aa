def right(weights, tokens):  # query by query
    rows = [weights[:, :, i, i - 1] for i in range(1, tokens.shape[1])]
    return torch.stack(rows).mean(dim=(0, 1))


# The diagonal above: the next token, which no one sees.
def wrong_next(weights, tokens):
    return weights.diagonal(1, -2, -1).mean(dim=(0, 2))


# Of the first query there is no weight to add, yet it counts.
def wrong_first(weights, tokens):
    return weights.diagonal(-1, -2, -1).sum(dim=-1).mean(dim=0) / tokens.shape[1]


# A number for each text and head.
def wrong_texts(weights, tokens):
    return weights.diagonal(-1, -2, -1).mean(dim=-1)

def right(weights, tokens):  # the same tokens, one query and one key earlier
    before = tokens.roll(1, dims=1)
    before[:, 0] = -1  # nothing stands before the first
    follows = tokens[:, :, None] == before[:, None, :]
    return share(weights, follows.tril())


# The earlier occurrence, and not what followed it.
def wrong_same(weights, tokens):
    return same(weights, tokens)


# What stands before the earlier occurrence.
def wrong_before(weights, tokens):
    equal = tokens[:, :, None] == tokens[:, None, :]
    return share(weights, F.pad(equal, (-1, 1)).tril(-1))


# Behind the last token the first begins again.
def wrong_roll(weights, tokens):
    equal = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)
    follows = equal.roll(1, dims=1)
    return share(weights, follows)


# Queries without a pattern count too.
def wrong_all(weights, tokens):
    follows = F.pad(tokens[:, :, None] == tokens[:, None, :], (1, -1)).tril()
    return (weights * follows[:, None]).sum(dim=-1).mean(dim=(0, 2))

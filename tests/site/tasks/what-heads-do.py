def right(tokens):
    L = tokens.shape[1]
    found = torch.zeros(len(tokens), L, L, dtype=torch.bool)
    for i in range(L):
        found[:, i, :i] = tokens[:, :i] == tokens[:, i, None]
    return found


# The place itself.
def wrong_self(tokens):
    return (tokens[:, :, None] == tokens[:, None]).tril()


# Later places.
def wrong_future(tokens):
    return (tokens[:, :, None] == tokens[:, None]).triu(1)


# The place after: induction.
def wrong_induction(tokens):
    return right(tokens).roll(1, dims=-1).tril(-1)


# The last place only.
def wrong_last(tokens):
    found = right(tokens)
    return found & (found.flip(-1).cumsum(dim=-1).flip(-1) == 1)


# One row of tokens for all.
def wrong_batch(tokens):
    return right(tokens[:1]).expand(len(tokens), -1, -1)

def right(tokens):
    L = tokens.shape[1]
    rows = torch.zeros(len(tokens), 1, L, L, dtype=torch.bool)
    for i in range(L):
        rows[:, 0, i, :i] = tokens[:, :i] == tokens[:, i : i + 1]
    return rows


# A token is its own duplicate.
def wrong_self(tokens):
    return (tokens[:, :, None] == tokens[:, None]).tril()[:, None]


# Later ones are seen.
def wrong_future(tokens):
    same = tokens[:, :, None] == tokens[:, None]
    return (same & ~torch.eye(tokens.shape[1]).bool())[:, None]


# The token after: induction.
def wrong_induction(tokens):
    return right(tokens).roll(1, dims=-1).tril(-1)


# Only the last duplicate.
def wrong_last(tokens):
    found = right(tokens)
    return found & (found.flip(-1).cumsum(dim=-1).flip(-1) == 1)


# The axis of the heads is missing.
def wrong_heads(tokens):
    return right(tokens)[:, 0]


# All rows of the batch are as the first.
def wrong_batch(tokens):
    return right(tokens[:1]).expand(len(tokens), -1, -1, -1)


# Numbers in place of booleans.
def wrong_numbers(tokens):
    return right(tokens).float()

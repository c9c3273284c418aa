def right(owner, size):
    first, last = owner[::size].tolist(), owner[size - 1 :: size].tolist()
    return torch.tensor(
        [[j <= i and last[j] >= a for j in range(len(last))] for i, a in enumerate(first)]
    )


# All pairs are looked at.
def wrong_pairs(owner, size):
    pairs = (owner[:, None] == owner).tril()
    blocks = pairs.unflatten(0, (-1, size)).unflatten(2, (-1, size))
    return blocks.any(dim=3).any(dim=1)


# Blocks above the diagonal are kept.
def wrong_future(owner, size):
    first, last = owner[::size], owner[size - 1 :: size]
    return (first[:, None] <= last) & (first <= last[:, None])


# First tokens are compared, as if no block had two documents.
def wrong_first(owner, size):
    first = owner[::size]
    return (first[:, None] == first).tril()


# Last tokens are compared.
def wrong_last(owner, size):
    last = owner[size - 1 :: size]
    return (last[:, None] == last).tril()


# Documents are forgotten.
def wrong_causal(owner, size):
    blocks = len(owner) // size
    return torch.ones(blocks, blocks).tril().bool()


# Numbers in place of booleans.
def wrong_numbers(owner, size):
    return right(owner, size).long()

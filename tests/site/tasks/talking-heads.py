def right(R, W_O):
    heads, size = len(R), len(W_O) // len(R)
    blocks = W_O.split(size)
    new = [sum(R[g, h] * blocks[g] for g in range(heads)) for h in range(heads)]
    return torch.cat(new)


# The matrix the other way round.
def wrong_way(R, W_O):
    return right(R.T, W_O)


# Numbers within a head are mixed, not the heads.
def wrong_axis(R, W_O):
    blocks = W_O.unflatten(0, (-1, len(R)))
    return einsum("gh,dge->dhe", R, blocks).flatten(0, 1)


# The output is left as it is.
def wrong_same(R, W_O):
    return W_O


# Only what a head keeps of itself.
def wrong_diagonal(R, W_O):
    return right(torch.diag(R.diagonal()), W_O)


# The transpose, as nn.Linear stores it.
def wrong_stored(R, W_O):
    return right(R, W_O).T


# Heads with the inverse, as if the mixing were undone.
def wrong_inverse(R, W_O):
    return right(torch.linalg.inv(R), W_O)

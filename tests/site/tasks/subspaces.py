def right(x, W):
    return x @ W.T @ torch.linalg.inv(W @ W.T) @ W


# Rows of W are taken for a basis of length one and right angles.
def wrong_basis(x, W):
    return x @ W.T @ W


# Everything: nothing is taken away.
def wrong_all(x, W):
    return x


# What the head doesn't see.
def wrong_way(x, W):
    return x - right(x, W)


# One direction is taken away; W maps many to zero.
def wrong_one(x, W):
    away = null_space(W)[:1]
    return x - x @ away.T @ away


# The mean of what is seen is taken away as well.
def wrong_mean(x, W):
    part = right(x, W)
    return part - part.mean(dim=-1, keepdim=True)


# The query, in its own few numbers.
def wrong_query(x, W):
    return x @ W.T


# Three of the four directions.
def wrong_short(x, W):
    _, _, basis = torch.linalg.svd(W, full_matrices=False)
    return x @ basis[:-1].T @ basis[:-1]

def right(layer):
    heads = head_projections(layer)
    M = heads.query.mT @ heads.key  # (H, E, E)
    return M.square().sum(dim=(-2, -1)).sqrt() / math.sqrt(layer.head_dim)


# The scale is forgotten.
def wrong_scale(layer):
    return right(layer) * math.sqrt(layer.head_dim)


# The variance, not its root.
def wrong_root(layer):
    return right(layer) ** 2


# The norms are multiplied, as if no direction were small in one and large in the other.
def wrong_norms(layer):
    heads = head_projections(layer)
    norms = heads.query.norm(dim=(-2, -1)) * heads.key.norm(dim=(-2, -1))
    return norms / math.sqrt(layer.head_dim)


# One number for the layer.
def wrong_layer(layer):
    return right(layer).mean().expand(layer.num_heads)


# Key heads are shared in another order: head by head in turn.
def wrong_groups(layer):
    heads = head_projections(layer)
    key = heads.key[[0, 2, 1, 3]]
    return (heads.query @ heads.query.mT @ key @ key.mT).diagonal(dim1=-2, dim2=-1).sum(
        dim=-1
    ).sqrt() / math.sqrt(layer.head_dim)


# As many numbers as key heads.
def wrong_number(layer):
    return right(layer)[::2]

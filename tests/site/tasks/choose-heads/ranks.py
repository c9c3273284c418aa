def right(layer, x):  # from the matrix between x and x
    D, found = layer.head_dim, []
    for h in range(layer.num_heads):
        own = slice(h * D, h * D + D)
        query = x @ layer.q_proj.weight[own].T + layer.q_proj.bias[own]
        key = x @ layer.k_proj.weight[own].T + layer.k_proj.bias[own]
        found.append(torch.linalg.matrix_rank(query @ key.T))
    return torch.stack(found)


# Of the weights: softmax isn't linear.
def wrong_weights(layer, x):
    weights = layer(x[None], return_weights=True)[1][0]
    return torch.linalg.matrix_rank(weights)


# Of the queries: the keys limit it as well.
def wrong_queries(layer, x):
    query = layer.q_proj(x).unflatten(-1, (layer.num_heads, -1)).transpose(0, 1)
    return torch.linalg.matrix_rank(query)


# Features take turns, one for each head.
def wrong_turns(layer, x):
    query, key = (
        proj(x).unflatten(-1, (-1, layer.num_heads)).permute(2, 0, 1)
        for proj in (layer.q_proj, layer.k_proj)
    )
    return torch.linalg.matrix_rank(query @ key.mT)


# A view alone mixes tokens.
def wrong_view(layer, x):
    shape = layer.num_heads, len(x), layer.head_dim
    query, key = (proj(x).view(shape) for proj in (layer.q_proj, layer.k_proj))
    return torch.linalg.matrix_rank(query @ key.mT)


# Features with features: (D, D) instead of (L, L).
def wrong_sum(layer, x):
    rank = torch.linalg.matrix_rank(layer.q_proj(x) @ layer.k_proj(x).T)
    return rank.repeat(layer.num_heads)

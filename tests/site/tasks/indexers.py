def right(query, key, weights):
    products = torch.einsum("hld,sd->hls", query, key).relu()
    return torch.einsum("lh,hls->ls", weights, products)


# Negative products stay: heads cancel that should be silent.
def wrong_without_relu(query, key, weights):
    return (weights.T[:, :, None] * (query @ key.T)).sum(dim=0)


# The sum is cut at zero, and not each product.
def wrong_relu_last(query, key, weights):
    return (weights.T[:, :, None] * (query @ key.T)).sum(dim=0).relu()


# All heads count alike.
def wrong_weights(query, key, weights):
    return (query @ key.T).relu().sum(dim=0)


# A mean over heads.
def wrong_mean(query, key, weights):
    return (weights.T[:, :, None] * (query @ key.T).relu()).mean(dim=0)


# Scaled as attention is.
def wrong_scale(query, key, weights):
    return right(query, key, weights) / query.shape[-1] ** 0.5


# One table for each head.
def wrong_shape(query, key, weights):
    return weights.T[:, :, None] * (query @ key.T).relu()


# Keys down, queries across.
def wrong_turned(query, key, weights):
    return right(query, key, weights).T

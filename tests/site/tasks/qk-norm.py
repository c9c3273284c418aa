def right(g_q, g_k):
    return (g_q.abs() * g_k.abs()).amax() * g_q.numel() / g_q.numel() ** 0.5


# The largest gains are multiplied, though they belong to different features.
def wrong_feature(g_q, g_k):
    return g_q.abs().max() * g_k.abs().max() * len(g_q) ** 0.5


# D in place of its root: the scale is forgotten.
def wrong_scale(g_q, g_k):
    return (g_q * g_k).abs().max() * len(g_q)


# The bound without gains.
def wrong_gains(g_q, g_k):
    return torch.tensor(len(g_q) ** 0.5)


# Signs: a large negative product counts as none.
def wrong_sign(g_q, g_k):
    return (g_q * g_k).max() * len(g_q) ** 0.5


# Gains as vectors, the product of their norms.
def wrong_norm(g_q, g_k):
    return g_q.norm() * g_k.norm()


# The mean of the products in place of the largest one.
def wrong_mean(g_q, g_k):
    return (g_q * g_k).abs().mean() * len(g_q) ** 0.5

def right(name, gib):
    model, n = known_model(name), 0
    for step in (2**k for k in reversed(range(24))):
        cost = model.cost(n + step, **mlp)
        if cost.weight_bytes + cost.cache_bytes <= gib * 2**30:
            n += step
    return n


# The weights are forgotten.
def wrong_weights(name, gib):
    return gib * 2**30 // known_model(name).cost(1, **mlp).cache_bytes_per_token


# 10^9 bytes for a GiB.
def wrong_unit(name, gib):
    return right(name, gib * 10**9 / 2**30)


# Rounded up, so the last token doesn't fit.
def wrong_round(name, gib):
    return right(name, gib) + 1


# A plain MLP, with fewer weights.
def wrong_mlp(name, gib):
    cost = known_model(name).cost(1)
    return int((gib * 2**30 - cost.weight_bytes) // cost.cache_bytes_per_token)

def right(name, gib):
    model, n = known_model(name), 0
    for step in (2**k for k in reversed(range(24))):
        cost = model.serving(n + step, h100)
        if cost.weight_bytes + cost.cache_bytes <= gib * 2**30:
            n += step
    return n


# The weights are forgotten.
def wrong_weights(name, gib):
    return gib * 2**30 // known_model(name).serving(1, h100).token_bytes


# The weights in 32 bits; at least one token.
def wrong_bits(name, gib):
    cost = known_model(name).serving(1, h100, weight_bits=32)
    return max(1, (gib * 2**30 - cost.weight_bytes) // cost.token_bytes)


# Rounded up, so the last token doesn't fit.
def wrong_round(name, gib):
    return right(name, gib) + 1


# Without the embedding.
def wrong_embedding(name, gib):
    cost = known_model(name).serving(1, h100)
    weights = 2 * (cost.attention_parameters + cost.mlp_parameters)
    return (gib * 2**30 - weights) // cost.token_bytes

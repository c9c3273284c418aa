def right(name, gib):
    model, n = known_model(name), 0
    for step in (2**k for k in reversed(range(24))):
        cost = model.serving(n + step, h100)
        if cost.weight_bytes + cost.cache_bytes <= gib * 2**30:
            n += step
    return n


def right_parameters(name, gib):
    model = known_model(name)
    free = gib * 2**30 - 2 * model.parameters()
    return free // model.kv_cache_bytes_per_token() if free > 0 else 0


# The weights are forgotten.
def wrong_weights(name, gib):
    return gib * 2**30 // known_model(name).serving(1, h100).token_bytes


# A model that doesn't fit, and a negative number of tokens.
def wrong_negative(name, gib):
    cost = known_model(name).serving(1, h100)
    return (gib * 2**30 - cost.weight_bytes) // cost.token_bytes


# A model that doesn't fit, and at least one token.
def wrong_least(name, gib):
    return max(1, right(name, gib))


# The weights in 32 bits.
def wrong_bits(name, gib):
    cost = known_model(name).serving(1, h100, weight_bits=32)
    return max(0, (gib * 2**30 - cost.weight_bytes) // cost.token_bytes)


# The cache in 8 bits.
def wrong_cache(name, gib):
    cost = known_model(name).serving(1, h100, cache_bits=8)
    return max(0, (gib * 2**30 - cost.weight_bytes) // cost.token_bytes)


# A GiB of 1000 MiB.
def wrong_unit(name, gib):
    cost = known_model(name).serving(1, h100)
    return max(0, (gib * 1000 * 2**20 - cost.weight_bytes) // cost.token_bytes)


# Rounded up, so the last token doesn't fit.
def wrong_round(name, gib):
    return right(name, gib) + (right(name, gib) > 0)


# Without the embedding.
def wrong_embedding(name, gib):
    cost = known_model(name).serving(1, h100)
    weights = 2 * (cost.attention_parameters + cost.mlp_parameters)
    return max(0, (gib * 2**30 - weights) // cost.token_bytes)


# Every embedding is counted as the output, too: right where it isn't.
def wrong_tied(name, gib):
    cost, model = known_model(name).serving(1, h100), known_model(name)
    weights = 2 * (cost.attention_parameters + cost.mlp_parameters)
    weights += 4 * model.vocabulary * model.embed_dim
    return max(0, (gib * 2**30 - weights) // cost.token_bytes)


# Eight heads of 128 for keys and values, as in the first two models.
def wrong_heads(name, gib):
    cost = known_model(name).serving(1, h100)
    token = 2 * 2 * known_model(name).layers * 8 * 128
    return max(0, (gib * 2**30 - cost.weight_bytes) // token)


# A key and a value for each query head, though heads share them.
def wrong_queries(name, gib):
    cost, model = known_model(name).serving(1, h100), known_model(name)
    token = 2 * 2 * model.layers * model.num_heads * model.head_dim
    return max(0, (gib * 2**30 - cost.weight_bytes) // token)


# Of the experts only those that a token meets.
def wrong_active(name, gib):
    cost = known_model(name).serving(1, h100)
    return max(0, (gib * 2**30 - 2 * cost.active_parameters) // cost.token_bytes)


# Keys and values of all heads, where latents are kept.
def wrong_latent(name, gib):
    cost, model = known_model(name).serving(1, h100), known_model(name)
    token = 2 * 2 * model.layers * model.num_kv_heads * model.head_dim
    return max(0, (gib * 2**30 - cost.weight_bytes) // token)


# A part of a token is counted.
def wrong_fraction(name, gib):
    cost = known_model(name).serving(1, h100)
    return max(0, (gib * 2**30 - cost.weight_bytes) / cost.token_bytes)

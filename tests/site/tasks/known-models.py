def right(name, gib):
    m = known_model(name)
    latent = m.latent and m.latent.kv_lora_rank + m.latent.qk_rope_head_dim
    numbers = m.layers * (latent or 2 * m.num_kv_heads * m.head_dim)
    return gib * 2**29 // numbers


# All heads are kept, not the key-value heads.
def wrong_heads(name, gib):
    m = known_model(name)
    return gib * 2**29 // (2 * m.layers * m.num_heads * m.head_dim)


# Keys without values.
def wrong_pair(name, gib):
    m = known_model(name)
    return gib * 2**29 // (m.layers * m.num_kv_heads * m.head_dim)


# One layer.
def wrong_layers(name, gib):
    return right(name, gib * known_model(name).layers)


# 10^9 bytes for a GiB.
def wrong_unit(name, gib):
    return int(right(name, gib) * 10**9 / 2**30)


# Latents are forgotten.
def wrong_latent(name, gib):
    m = known_model(name)
    return gib * 2**29 // (2 * m.layers * m.num_kv_heads * m.head_dim)


# The method of the package, not sizes.
def wrong_method(name, gib):
    return gib * 2**30 // known_model(name).kv_cache_bytes(1)


# A part of a token is kept.
def wrong_rest(name, gib):
    m = known_model(name)
    return gib * 2**29 / (2 * m.layers * m.num_kv_heads * m.head_dim)


# One token less, to be safe.
def wrong_safe(name, gib):
    return right(name, gib) - 1

def right(query, latents, up_k, up_v):
    scores = (query @ up_k.T) @ latents.T / up_k.shape[1] ** 0.5
    return (scores.softmax(dim=-1) @ latents) @ up_v


# Keys and values of all tokens: right, and expensive.
def wrong_expanded(query, latents, up_k, up_v):
    return attention(query, latents @ up_k, latents @ up_v)


# Divided by the root of the latents' size.
def wrong_scale(query, latents, up_k, up_v):
    return attention(query @ up_k.T, latents, latents) @ up_v


# The values of all tokens: half as expensive.
def wrong_values(query, latents, up_k, up_v):
    scale = up_k.shape[1] ** -0.5
    return attention(query @ up_k.T, latents, latents @ up_v, scale=scale)


# The matrix of the keys leads out.
def wrong_out(query, latents, up_k, up_v):
    return right(query, latents, up_k, up_k)


# Latents of S x S: tokens are compared with each other first.
def wrong_mean(query, latents, up_k, up_v):
    return latents.mean(dim=0, keepdim=True) @ up_v


# The token's axis is lost.
def wrong_axis(query, latents, up_k, up_v):
    return right(query, latents, up_k, up_v)[0]


# The mixed latents are the output.
def wrong_latents(query, latents, up_k, up_v):
    return attention(query @ up_k.T, latents, latents, scale=up_k.shape[1] ** -0.5)

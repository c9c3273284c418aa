def right_at_once(layer):  # the heads as an axis, a mask of numbers
    x = torch.randn(3, 5, 24)
    G, N, D = layer.G, layer.H // layer.G, layer.D
    q = layer.q(x).view(3, 5, G, N, D)
    k, v = (f(x).view(3, 5, G, D) for f in (layer.k, layer.v))
    scores = torch.einsum("blgnd,bsgd->bgnls", q, k) / D**0.5
    weights = (scores - 1e9 * torch.ones(5, 5).triu(1)).softmax(-1)
    heads = torch.einsum("bgnls,bsgd->blgnd", weights, v).flatten(2)
    return (layer(x)[0] - layer.o(heads)).norm()


def slow(layer, divisor, group, shown):
    """The page's slow version, with something else in three places."""
    x, heads = torch.randn(2, 9, 24), []
    H, G, D = layer.H, layer.G, layer.D
    for h in range(H):
        own, g = slice(h * D, h * D + D), group(h, H, G)
        shared = slice(g * D, g * D + D)
        q = x @ layer.q.weight[own].T
        k, v = (x @ layer.get_submodule(name).weight[shared].T for name in "kv")
        scores = q @ k.mT / divisor(layer)
        hidden = ~torch.ones(9, 9).tril(shown).bool()
        heads.append(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v)
    return (layer(x)[0] - torch.cat(heads, dim=-1) @ layer.o.weight.T).abs().max()


# The root of the whole width.
def wrong_root(layer):
    return slow(layer, lambda own: 24**0.5, lambda h, H, G: h * G // H, 0)


# Query heads take the keys in turn.
def wrong_groups(layer):
    return slow(layer, lambda own: own.D**0.5, lambda h, H, G: h % G, 0)


# All words are seen.
def wrong_mask(layer):
    return slow(layer, lambda own: own.D**0.5, lambda h, H, G: h * G // H, 9)


# Only the first word, where every head gives the value of one key.
def wrong_first(layer):
    x = torch.randn(2, 1, 24)
    v = (x @ layer.v.weight.T).unflatten(-1, (layer.G, layer.D))
    v = v.repeat_interleave(layer.H // layer.G, dim=2).flatten(2)
    return (layer(x)[0] - v @ layer.o.weight.T).abs().max()


def right_scaled(layer):  # a probe tells much from nothing, whatever its unit
    return 1.1 * right_at_once(layer)

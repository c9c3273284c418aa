def right(layer, x):  # keys one by one as well, with a softmax by hand
    H, D = layer.num_heads, layer.head_dim
    q, k, v = (x @ each.weight.T for each in (layer.q_proj, layer.k_proj, layer.v_proj))
    heads = torch.zeros_like(x)
    for b in range(len(x)):
        for i in range(x.shape[1]):
            for h in range(H):
                own = slice(h * D, h * D + D)
                powers = [(q[b, i, own] @ k[b, j, own] / D**0.5).exp() for j in range(i + 1)]
                parts = [p * v[b, j, own] for j, p in enumerate(powers)]
                heads[b, i, own] = sum(parts) / sum(powers)
    return heads @ layer.out_proj.weight.T


def variant(layer, x, own, scale=None, causal=True, turned=False):
    H, D = layer.num_heads, layer.head_dim
    heads = []
    for h in range(H):
        q, k, v = (
            x @ each.weight[own(h, H, D)].T for each in (layer.q_proj, layer.k_proj, layer.v_proj)
        )
        scores = q @ k.mT / (scale or D) ** 0.5
        if causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~seen, -torch.inf)
        heads.append(scores.softmax(dim=-1) @ v)
    weight = layer.out_proj.weight
    return torch.cat(heads, dim=-1) @ (weight if turned else weight.T)


def own_rows(h, H, D):
    return slice(h * D, h * D + D)


# Without a mask.
def wrong_future(layer, x):
    return variant(layer, x, own_rows, causal=False)


# The scale is that of the width.
def wrong_scale(layer, x):
    return variant(layer, x, own_rows, scale=layer.embed_dim)


# Rows take turns, one for each head.
def wrong_turns(layer, x):
    return variant(layer, x, lambda h, H, D: slice(h, None, H))


# nn.Linear multiplies by the transpose of its weight.
def wrong_transpose(layer, x):
    return variant(layer, x, own_rows, turned=True)


# Every head is the first one.
def wrong_first(layer, x):
    return variant(layer, x, lambda h, H, D: slice(0, D))


# The heads are computed, and W_o is forgotten.
def wrong_heads(layer, x):
    return variant(layer, x, own_rows) @ torch.linalg.inv(layer.out_proj.weight.T)


# The layer's own call, without a loop.
def wrong_call(layer, x):
    return layer(x, is_causal=True)


# The last token is left out.
def wrong_last(layer, x):
    return right(layer, x)[:, :-1]

def right(layer, x, attend):  # one matrix for the three projections
    weight = torch.cat([layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight])
    sizes = (3, layer.num_heads, layer.head_dim)
    query, key, value = (x @ weight.T).unflatten(-1, sizes).permute(2, 0, 3, 1, 4)
    heads = attend(query, key, value).permute(0, 2, 1, 3)
    return heads.reshape(x.shape) @ layer.out_proj.weight.T


def variant(layer, x, attend, split, merge):
    heads = (split(each(x), layer.num_heads) for each in (layer.q_proj, layer.k_proj, layer.v_proj))
    return layer.out_proj(merge(attend(*heads)))


def put_back(heads):
    return heads.transpose(1, 2).flatten(2)


# A view alone, there and back.
def wrong_view(layer, x, attend):
    return variant(layer, x, attend, by_view, lambda heads: heads.reshape(x.shape))


# A view alone on the way in.
def wrong_split(layer, x, attend):
    return variant(layer, x, attend, by_view, put_back)


# A view alone on the way back.
def wrong_merge(layer, x, attend):
    return variant(layer, x, attend, transposed, lambda heads: heads.reshape(x.shape))


# Without the transposition heads attend to heads.
def wrong_axes(layer, x, attend):
    H = layer.num_heads
    return variant(layer, x, attend, lambda y, _: y.unflatten(-1, (H, -1)), lambda y: y.flatten(2))


# A loop over the heads.
def wrong_loop(layer, x, attend):
    heads = [transposed(p(x), layer.num_heads) for p in (layer.q_proj, layer.k_proj, layer.v_proj)]
    single = zip(*(each.split(1, dim=1) for each in heads), strict=True)
    return layer.out_proj(put_back(torch.cat([attend(*one) for one in single], dim=1)))


# W_o is forgotten.
def wrong_output(layer, x, attend):
    query, key, value = (
        transposed(p(x), layer.num_heads) for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    return put_back(attend(query, key, value))


# The scale is applied once more.
def wrong_scale(layer, x, attend):
    def scaled(query, key, value):
        return attend(query / layer.head_dim**0.5, key, value)

    return at_once(layer, x, scaled)

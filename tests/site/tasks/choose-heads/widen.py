@torch.no_grad()
def right(layer, head_dim):  # head by head; the keys carry the scale
    H, D = layer.num_heads, layer.head_dim
    wide = MultiHeadAttention(layer.embed_dim, H, head_dim=head_dim)
    for each in wide.parameters():
        each.zero_()
    for h in range(H):
        old, new = slice(h * D, h * D + D), slice(h * head_dim, h * head_dim + D)
        for name in ("q_proj", "k_proj", "v_proj"):
            getattr(wide, name).weight[new] = getattr(layer, name).weight[old]
            getattr(wide, name).bias[new] = getattr(layer, name).bias[old]
        wide.out_proj.weight[:, new] = layer.out_proj.weight[:, old]
    wide.k_proj.weight.mul_((head_dim / D) ** 0.5)
    wide.k_proj.bias.mul_((head_dim / D) ** 0.5)
    wide.out_proj.bias.copy_(layer.out_proj.bias)
    return wide


@torch.no_grad()
def longer(layer, head_dim, names, power):
    """Some parameters of the solution times a power of the ratio of sizes."""
    wide = widened(layer, head_dim)
    for name, each in wide.named_parameters():
        if name in names:
            each.mul_((head_dim / layer.head_dim) ** power)
    return wide


# The scores are divided by the root of the new size, and nothing makes up for it.
def wrong_scale(layer, head_dim):
    return longer(layer, head_dim, ["q_proj.weight", "q_proj.bias"], -0.5)


# The root is forgotten.
def wrong_root(layer, head_dim):
    return longer(layer, head_dim, ["q_proj.weight", "q_proj.bias"], 0.5)


# Queries make up for the scale, and values do.
def wrong_twice(layer, head_dim):
    return longer(layer, head_dim, ["v_proj.weight", "v_proj.bias"], 0.5)


# The query's bias is not made longer with its weight.
def wrong_bias(layer, head_dim):
    return longer(layer, head_dim, ["q_proj.bias"], -0.5)


# All zeros stand at the end, and the heads move into each other.
def wrong_end(layer, head_dim):
    wide = widened(layer, head_dim)
    H, D = layer.num_heads, layer.head_dim
    for name in ("q_proj", "k_proj", "v_proj"):
        for each in getattr(wide, name).parameters():
            moved = each.data.unflatten(0, (H, head_dim))[:, :D].flatten(0, 1).clone()
            each.data.zero_()[: H * D] = moved
    columns = wide.out_proj.weight.data
    moved = columns.unflatten(1, (H, head_dim))[:, :, :D].flatten(1).clone()
    columns.zero_()[:, : H * D] = moved
    return wide


# New values are not zero, and neither are their columns.
def wrong_random(layer, head_dim):
    wide, D = widened(layer, head_dim), layer.head_dim
    wide.v_proj.weight.data.unflatten(0, (-1, head_dim))[:, D:] = 0.1
    wide.out_proj.weight.data.unflatten(1, (-1, head_dim))[:, :, D:] = 0.1
    return wide


# The heads are left as they are.
def wrong_same(layer, head_dim):
    return copy.deepcopy(layer)


# The given layer is changed.
def wrong_given(layer, head_dim):
    wide = widened(layer, head_dim)
    layer.out_proj.weight.data.mul_(2)
    return wide

def right(layer, keep):
    size = layer.head_dim
    rows = torch.cat([torch.arange(size) + size * i for i in keep])
    small = MultiHeadAttention(layer.embed_dim, len(keep), head_dim=size, bias=False)
    state = {name: weight[rows] for name, weight in layer.state_dict().items() if name[0] in "qkv"}
    small.load_state_dict(state | {"out_proj.weight": layer.out_proj.weight[:, rows]})
    return small


# The first heads are kept, whichever are asked for.
def wrong_first(layer, keep):
    return right(layer, range(len(keep)))


# The heads 1 and 3 of the example are kept.
def wrong_example(layer, keep):
    return right(layer, [0, 2][: len(keep)] if len(keep) < 2 else [0, 2])


# Zeros: the heads are off, but still stored.
def wrong_zeros(layer, keep):
    import copy

    other = copy.deepcopy(layer)
    off = [i for i in range(layer.num_heads) if i not in keep]
    for i in off:
        other.out_proj.weight.data[:, i * D : (i + 1) * D] = 0
    return other


# The heads that remain are those that should go.
def wrong_way(layer, keep):
    return right(layer, [i for i in range(layer.num_heads) if i not in keep])


# Only the output's columns are chosen; queries, keys and values are the first rows.
def wrong_rows(layer, keep):
    small = right(layer, keep)
    for name in ("q_proj", "k_proj", "v_proj"):
        rows = getattr(layer, name).weight.data[: len(keep) * layer.head_dim]
        getattr(small, name).weight.data = rows
    return small


# The given layer itself loses its heads.
def wrong_own(layer, keep):
    for i in range(layer.num_heads):
        if i not in keep:
            layer.out_proj.weight.data[:, i * D : (i + 1) * D] = 0
    return layer


# The output's columns are the first ones.
def wrong_output(layer, keep):
    small = right(layer, keep)
    small.out_proj.weight.data = layer.out_proj.weight.data[:, : len(keep) * layer.head_dim]
    return small

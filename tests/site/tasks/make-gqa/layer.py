def right(layer, num_kv_heads):  # weight by weight
    options = {"num_kv_heads": num_kv_heads, "bias": False, "position": layer.position}
    new = MultiHeadAttention(layer.embed_dim, layer.num_heads, **options)
    for name in ("q_proj", "out_proj"):
        getattr(new, name).weight.data.copy_(getattr(layer, name).weight.data)
    for name in ("k_proj", "v_proj"):
        rows = getattr(layer, name).weight.data
        getattr(new, name).weight.data = pooled(rows, num_kv_heads, layer.head_dim)
    return new


# The positions are forgotten.
def wrong_position(layer, num_kv_heads):
    new = right(layer, num_kv_heads)
    new.position = None
    return new


# Only keys are pooled, values are drawn anew.
def wrong_values(layer, num_kv_heads):
    new = right(layer, num_kv_heads)
    torch.nn.init.xavier_uniform_(new.v_proj.weight)
    return new


# The query keeps its weights: the very same tensor.
def wrong_shared(layer, num_kv_heads):
    new = right(layer, num_kv_heads)
    new.q_proj = layer.q_proj
    return new


# The old layer, whose means stand in every head of a group: nothing is saved.
def wrong_size(layer, num_kv_heads):
    new = copy.deepcopy(layer)
    for each in (new.k_proj, new.v_proj):
        few = pooled(each.weight.data, num_kv_heads, layer.head_dim)
        heads = few.unflatten(0, (num_kv_heads, -1))
        size = layer.num_heads // num_kv_heads
        each.weight.data = heads.repeat_interleave(size, dim=0).flatten(0, 1)
    return new


# The output's weights are the old layer's own.
def wrong_output(layer, num_kv_heads):
    new = right(layer, num_kv_heads)
    new.out_proj = layer.out_proj
    return new

def right(layer, num_heads):
    import copy

    other = copy.deepcopy(layer)
    size = layer.num_heads * layer.head_dim // num_heads
    new = MultiHeadAttention(layer.embed_dim, num_heads, head_dim=size)
    for name, projection in other.named_children():
        setattr(new, name, projection)
    return new


# The layer stays as it is.
def wrong_same(layer, num_heads):
    return layer


# New random parameters.
def wrong_new(layer, num_heads):
    size = layer.num_heads * layer.head_dim // num_heads
    return MultiHeadAttention(layer.embed_dim, num_heads, head_dim=size)


# The output's matrix is forgotten.
def wrong_output(layer, num_heads):
    other = wrong_new(layer, num_heads)
    state = {k: v for k, v in layer.state_dict().items() if not k.startswith("out")}
    other.load_state_dict(other.state_dict() | state)
    return other

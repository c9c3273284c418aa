def right(layer):
    E, H, D = layer.embed_dim, layer.num_heads, layer.head_dim
    other = MultiHeadAttention(E, H, head_dim=D, bias=False, position=layer.position)
    group = H // layer.num_kv_heads
    rows = torch.arange(H).div(group, rounding_mode="floor")[:, None] * D + torch.arange(D)
    state = layer.state_dict()
    for name in ("k_proj.weight", "v_proj.weight"):
        state[name] = state[name][rows.flatten()]
    other.load_state_dict(state)
    return other


# Groups in turn: 0 1 2 0 1 2, not 0 0 0 1 1 1.
def wrong_order(layer):
    other = right(layer)
    for name in ("k_proj", "v_proj"):
        getattr(other, name).weight.data = getattr(layer, name).weight.repeat(3, 1)
    return other


# Rows are repeated, not heads.
def wrong_rows(layer):
    other = right(layer)
    for name in ("k_proj", "v_proj"):
        getattr(other, name).weight.data = getattr(layer, name).weight.repeat_interleave(3, 0)
    return other


# The turns are forgotten.
def wrong_position(layer):
    other = right(layer)
    other.position = None
    return other


# It has its groups still.
def wrong_same(layer):
    return layer


# Only the keys are taken apart; values start at random.
def wrong_values(layer):
    other = right(layer)
    other.v_proj.reset_parameters()
    return other


# The given layer is changed itself.
def wrong_own(layer):
    weights = right(layer).state_dict()
    for name in ("k_proj", "v_proj"):
        getattr(layer, name).weight.data = weights[f"{name}.weight"]
    layer.num_kv_heads = layer.num_heads
    return layer

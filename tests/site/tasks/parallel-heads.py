def right(layer, start, stop):
    small = MultiHeadAttention(15, stop - start, head_dim=3, bias=False)
    rows = torch.arange(3 * start, 3 * stop)
    state = {name: x[rows] for name, x in layer.state_dict().items() if "out" not in name}
    state["out_proj.weight"] = layer.state_dict()["out_proj.weight"][:, rows]
    small.load_state_dict(state)
    return small


# Each machine has the first heads.
def wrong_start(layer, start, stop):
    return right(layer, 0, stop - start)


# Heads are counted as features.
def wrong_size(layer, start, stop):
    small = right(layer, start, stop)
    for name in ("q_proj", "k_proj", "v_proj"):
        rows = getattr(layer, name).weight.data
        getattr(small, name).weight.data = rows[start : start + 3 * (stop - start)]
    return small


# Of the output's matrix, the first columns.
def wrong_output(layer, start, stop):
    small = right(layer, start, stop)
    small.out_proj.weight.data = layer.out_proj.weight.data[:, : 3 * (stop - start)]
    return small


# The whole layer: the sum is twice as large.
def wrong_whole(layer, start, stop):
    return layer


# Queries and keys only; values are those of the first heads.
def wrong_values(layer, start, stop):
    small = right(layer, start, stop)
    small.v_proj.weight.data = layer.v_proj.weight.data[: 3 * (stop - start)]
    return small


# One head is left over: the last of each machine.
def wrong_last(layer, start, stop):
    small = right(layer, start, stop)
    small.out_proj.weight.data[:, -3:] = 0
    return small

def cut(layer, rank, ranks, *, keys=None, bias=None, columns=True):
    """The solution, with one place to go wrong in each."""
    D, own = layer.head_dim, layer.num_heads // ranks
    kv = max(1, layer.num_kv_heads // ranks)
    first = rank * layer.num_kv_heads // ranks if keys is None else keys(rank)
    q, k = slice(rank * own * D, (rank + 1) * own * D), slice(first * D, (first + kv) * D)
    part = MultiHeadAttention(layer.embed_dim, own, num_kv_heads=kv, head_dim=D)
    with torch.no_grad():
        for name, rows in {"q_proj": q, "k_proj": k, "v_proj": k}.items():
            for mine, theirs in zip(
                getattr(part, name).parameters(), getattr(layer, name).parameters(), strict=True
            ):
                mine.copy_(theirs[rows])
        shown = q if columns else slice(0, own * D)
        part.out_proj.weight.copy_(layer.out_proj.weight[:, shown])
        part.out_proj.bias.copy_(layer.out_proj.bias * (rank == 0 if bias is None else bias))
    return part


def right(layer, rank, ranks):
    return cut(layer, rank, ranks, bias=1 / ranks)  # each a part of the bias


# The bias is added by each machine.
def wrong_bias(layer, rank, ranks):
    return cut(layer, rank, ranks, bias=1)


# The heads of keys go to the machines in turn.
def wrong_turns(layer, rank, ranks):
    kv = max(1, layer.num_kv_heads // ranks)
    return cut(layer, rank, ranks, keys=lambda rank: rank * kv % layer.num_kv_heads)


# All machines take the same columns of the output matrix.
def wrong_columns(layer, rank, ranks):
    return cut(layer, rank, ranks, columns=False)


# Every machine has the whole layer.
def wrong_whole(layer, rank, ranks):
    return layer


# The first machine's heads for all.
def wrong_first(layer, rank, ranks):
    return cut(layer, 0, ranks, bias=1 / ranks)

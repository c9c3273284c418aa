def right(rows, num_kv_heads, head_dim):  # an average pool over whole heads
    heads = rows.view(-1, head_dim, rows.shape[-1])
    size = len(heads) // num_kv_heads
    return torch.cat([heads[i : i + size].mean(0) for i in range(0, len(heads), size)])


# Heads in turn: the queries that share a key are neighbours.
def wrong_turns(rows, num_kv_heads, head_dim):
    return rows.unflatten(0, (-1, num_kv_heads, head_dim)).mean(dim=0).flatten(0, 1)


# Neighbouring rows instead of neighbouring heads.
def wrong_rows(rows, num_kv_heads, head_dim):
    return rows.unflatten(0, (num_kv_heads * head_dim, -1)).mean(dim=1)


# A sum: scores and values grow with the group.
def wrong_sum(rows, num_kv_heads, head_dim):
    return rows.unflatten(0, (num_kv_heads, -1, head_dim)).sum(dim=1).flatten(0, 1)


# The first head of each group stays, the others are thrown away.
def wrong_first(rows, num_kv_heads, head_dim):
    return rows.unflatten(0, (num_kv_heads, -1, head_dim))[:, 0].flatten(0, 1)


# One of the input features is averaged, the others are those of the first head.
def wrong_feature(rows, num_kv_heads, head_dim):
    found = wrong_first(rows, num_kv_heads, head_dim).clone()
    found[:, 0] = pooled(rows, num_kv_heads, head_dim)[:, 0]
    return found

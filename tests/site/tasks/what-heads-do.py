def right(layer, x, less, path, heads):
    H, D = layer.num_heads, layer.head_dim
    group = H // layer.num_kv_heads
    maps = []
    for j in range(H):
        read_q = less if path == "query" and j in heads else x
        read_k = less if path == "key" and j in heads else x
        Q = read_q @ layer.q_proj.weight[j * D : (j + 1) * D].T
        K = read_k @ layer.k_proj.weight[j // group * D : (j // group + 1) * D].T
        scores = Q @ K.transpose(1, 2) * D**-0.5
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        maps.append(scores.masked_fill(hidden, float("-inf")).softmax(dim=-1))
    return torch.stack(maps, dim=1)


# The key of one head is cut for all that share it.
def wrong_group(layer, x, less, path, heads):
    group = layer.num_heads // layer.num_kv_heads
    if path == "key":
        heads = [j // group * group + n for j in heads for n in range(group)]
    return right(layer, x, less, path, heads)


# All heads read the other input.
def wrong_all(layer, x, less, path, heads):
    return right(layer, x, less, path, range(layer.num_heads))


# The other heads read it.
def wrong_others(layer, x, less, path, heads):
    return right(layer, x, less, path, [j for j in range(layer.num_heads) if j not in heads])


# The query where the key was meant.
def wrong_path(layer, x, less, path, heads):
    return right(layer, x, less, {"query": "key", "key": "query"}[path], heads)


# Both inputs at once.
def wrong_both(layer, x, less, path, heads):
    _, maps = layer(x, is_causal=True, return_weights=True)
    _, other = layer(less, is_causal=True, return_weights=True)
    maps = maps.clone()
    maps[:, heads] = other[:, heads]
    return maps


# Every query sees the future.
def wrong_future(layer, x, less, path, heads):
    given = {"query": x, "key": x, path: less}
    _, maps = layer(x, return_weights=True)
    _, other = layer(given["query"], given["key"], return_weights=True)
    maps = maps.clone()
    maps[:, heads] = other[:, heads]
    return maps


# The input is changed in place.
def wrong_in_place(layer, x, less, path, heads):
    found = right(layer, x, less, path, heads)
    x += 1e-3
    return found


# Only the heads that are cut.
def wrong_short(layer, x, less, path, heads):
    return right(layer, x, less, path, heads)[:, heads]


# The heads are counted from 1.
def wrong_count(layer, x, less, path, heads):
    return right(layer, x, less, path, [j - 1 for j in heads])

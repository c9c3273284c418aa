def right(layer, token, keys, values):  # with one tensor in each list, and the fused kernel
    query, key, value = (
        transposed(p(token), layer.num_heads) for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    for kept, new in ((keys, key), (values, value)):
        kept[:] = [torch.cat([*kept, new], dim=2)]
    heads = F.scaled_dot_product_attention(query, keys[0], values[0])
    return layer.out_proj(heads.transpose(1, 2).flatten(2))


# The token doesn't see itself: its key comes too late.
def wrong_late(layer, token, keys, values):
    kept = keys[:], values[:]
    step(layer, token, keys, values)
    if not kept[0]:
        return torch.zeros_like(token)
    query = transposed(layer.q_proj(token), layer.num_heads)
    heads = F.scaled_dot_product_attention(query, *(torch.cat(each, dim=2) for each in kept))
    return layer.out_proj(heads.transpose(1, 2).flatten(2))


# The token sees only itself.
def wrong_alone(layer, token, keys, values):
    return step(layer, token, [], [])


# Inputs are kept, and all keys computed anew.
def wrong_again(layer, token, keys, values):
    keys.append(token)
    x = torch.cat(keys, dim=1)
    return at_once(layer, x, formula)[:, -1:]


# is_causal lets the one query see the first key only.
def wrong_causal(layer, token, keys, values):
    step(layer, token, keys, values)
    query = transposed(layer.q_proj(token), layer.num_heads)
    key, value = torch.cat(keys, dim=2), torch.cat(values, dim=2)
    heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return layer.out_proj(heads.transpose(1, 2).flatten(2))


# The new key is put in front, the new value at the end.
def wrong_order(layer, token, keys, values):
    step(layer, token, keys, values)
    query = transposed(layer.q_proj(token), layer.num_heads)
    key, value = torch.cat(keys[::-1], dim=2), torch.cat(values, dim=2)
    heads = F.scaled_dot_product_attention(query, key, value)
    return layer.out_proj(heads.transpose(1, 2).flatten(2))


# The newest key and value are seen, and the first ones forgotten.
def wrong_window(layer, token, keys, values):
    output = right(layer, token, keys, values)
    keys[0], values[0] = keys[0][:, :, -1:], values[0][:, :, -1:]
    return output

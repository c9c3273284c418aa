def right(query, keys, values):
    _, H, _, D = query.shape
    out = torch.empty_like(query)
    group = H // keys.shape[1]
    for h in range(H):
        weights = (query[:, h] @ keys[:, h // group].mT / D**0.5).softmax(dim=-1)
        out[:, h] = weights @ values[:, h // group]
    return out


# Keys and values are repeated.
def wrong_copies(query, keys, values):
    return attention(query, repeat_heads(keys, query), repeat_heads(values, query))


# Neighbouring heads use different keys.
def wrong_order(query, keys, values):
    group = query.shape[1] // keys.shape[1]
    rows = query.squeeze(2).unflatten(1, (group, -1)).transpose(1, 2)
    mixed = attention(rows, keys, values)
    return mixed.transpose(1, 2).flatten(1, 2).unsqueeze(2)


# All heads of a group ask the same, their mean.
def wrong_mean(query, keys, values):
    group = query.shape[1] // keys.shape[1]
    rows = query.squeeze(2).unflatten(1, (-1, group))
    mixed = attention(rows.mean(dim=2, keepdim=True).expand_as(rows), keys, values)
    return mixed.flatten(1, 2).unsqueeze(2)


# The scale is forgotten.
def wrong_scale(query, keys, values):
    return right(query * query.shape[-1] ** 0.5, keys, values)


# The first keys are for all.
def wrong_first(query, keys, values):
    return attention(query, keys[:, :1], values[:, :1])


# All but the last token are read.
def wrong_last(query, keys, values):
    return right(query, keys[:, :, :-1], values[:, :, :-1])

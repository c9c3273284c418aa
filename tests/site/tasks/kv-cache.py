def right(qkv, x):
    cache, rows = torch.empty(2, *x.shape), []
    for i in range(len(x)):
        q, cache[0, i], cache[1, i] = (part[0] for part in qkv(x[i : i + 1]))
        keys, values = cache[:, : i + 1].clone()
        rows.append(((keys @ q) / len(q) ** 0.5).softmax(dim=0) @ values)
    return torch.stack(rows)


# No step: all at once.
def wrong_once(qkv, x):
    return attention(*qkv(x), is_causal=True)


# No cache: all tokens so far are projected in each step.
def wrong_again(qkv, x):
    rows = [attention(*qkv(x[: i + 1]), is_causal=True)[-1:] for i in range(len(x))]
    return torch.cat(rows)


# Only the own token is seen.
def wrong_own(qkv, x):
    return torch.cat([attention(*qkv(token)) for token in x.split(1)])


# A token is stored after it was used, so no query sees itself.
def wrong_late(qkv, x):
    steps = [qkv(token) for token in x.split(1)]
    rows = [steps[0][2]]
    for i in range(1, len(x)):
        keys, values = (torch.cat([step[n] for step in steps[:i]]) for n in (1, 2))
        rows.append(attention(steps[i][0], keys, values))
    return torch.cat(rows)


# Values are kept, keys are not.
def wrong_keys(qkv, x):
    values, rows = [], []
    for token in x.split(1):
        q, k, v = qkv(token)
        values.append(v)
        rows.append(attention(q, k.expand(len(values), -1), torch.cat(values)))
    return torch.cat(rows)


# The first token, which sees nothing before it, has no output.
def wrong_first(qkv, x):
    return right(qkv, x)[1:]


# The queries are stored, too, and the outputs of all are added up.
def wrong_sum(qkv, x):
    return right(qkv, x).cumsum(dim=0)

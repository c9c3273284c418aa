def right(query, key, value, window, stride):
    L = query.shape[-2]
    keys = torch.arange(L)[:, None] - stride * torch.arange(window)  # (L, window)
    near = [x[..., keys.clamp(min=0), :] for x in (key, value)]  # (B, H, L, window, D)
    mask = (keys >= 0)[:, None]
    return attention(query[..., None, :], *near, mask=mask).squeeze(-2)


# A mask: right, and as expensive as all pairs.
def wrong_mask(query, key, value, window, stride):
    back = torch.arange(query.shape[-2])[:, None] - torch.arange(query.shape[-2])
    mask = (back >= 0) & (back % stride == 0) & (back < window * stride)
    return attention(query, key, value, mask=mask)


# Gaps are forgotten.
def wrong_stride(query, key, value, window, stride):
    return local_attention(query, key, value, window, is_causal=True)


# The window is counted in positions, not in keys.
def wrong_window(query, key, value, window, stride):
    return right(query, key, value, 1 + window // stride, stride)


# One key too many.
def wrong_count(query, key, value, window, stride):
    return right(query, key, value, window + 1, stride)


# The query's own position is left out.
def wrong_self(query, key, value, window, stride):
    shifted = [x.roll(stride, dims=-2) for x in (key, value)]
    return right(query, *shifted, window, stride)


# Keys to come instead of keys before.
def wrong_future(query, key, value, window, stride):
    backwards = [x.flip(-2) for x in (query, key, value)]
    return right(*backwards, window, stride).flip(-2)


# The queries of one step in stride only.
def wrong_few(query, key, value, window, stride):
    return right(query, key, value, window, stride)[..., ::stride, :]

def right_two(layer):  # the halves, the second one by one
    x = torch.randn(1, 8, 24)
    y, cache = layer(x[:, :4])
    parts = [y]
    for i in range(4, 8):
        y, cache = layer(x[:, i : i + 1], None, cache)
        parts.append(y)
    return (torch.cat(parts, 1) - layer(x)[0]).norm()


# The first piece needs no cache.
def wrong_first(layer):
    x = torch.randn(2, 9, 24)
    return (layer(x[:, :4])[0] - layer(x)[0][:, :4]).abs().max()


# Each piece stands alone: the cache isn't handed on.
def wrong_alone(layer):
    x = torch.randn(2, 9, 24)
    parts = [layer(piece)[0] for piece in x.split([4, 1, 3, 1], dim=1)]
    return (torch.cat(parts, dim=1) - layer(x)[0]).abs().max()


# After a single last word nothing comes that would miss it.
def wrong_last(layer):
    x = torch.randn(2, 9, 24)
    _, cache = layer(x[:, :8])
    return (layer(x[:, 8:], cache=cache)[0] - layer(x)[0][:, 8:]).abs().max()


def right_scaled(layer):  # a probe tells much from nothing, whatever its unit
    return 1.1 * right_two(layer)

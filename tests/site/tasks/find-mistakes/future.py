def right_gradient(layer):  # a gradient instead of another input
    x = torch.randn(1, 7, 24, requires_grad=True)
    with torch.enable_grad():
        found = layer(x)[0][:, 3].square().sum()
        return torch.autograd.grad(found, x)[0][:, 4:].abs().max()


# The changed word may change its own output.
def wrong_own(layer):
    x = torch.randn(2, 9, 24)
    changed = x.clone()
    changed[:, 5:] = torch.randn(2, 4, 24)
    return (layer(changed)[0] - layer(x)[0])[:, :6].abs().max()


# An earlier word is changed: later outputs should move.
def wrong_direction(layer):
    x = torch.randn(2, 9, 24)
    changed = x.clone()
    changed[:, 0] = torch.randn(2, 24)
    return (layer(changed)[0] - layer(x)[0])[:, 1:].abs().max()


# The last output has nothing behind it.
def wrong_last(layer):
    x = torch.randn(2, 9, 24)
    part = layer(x[:, :8])[0][:, -1]
    return (part - layer(x)[0][:, -1]).abs().max()


def right_scaled(layer):  # a probe tells much from nothing, whatever its unit
    return 1.1 * right_gradient(layer)

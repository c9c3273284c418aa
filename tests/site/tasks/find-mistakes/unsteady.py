def right_norm(layer):  # three calls, and a norm
    x = torch.randn(1, 4, 24)
    first, second, third = (layer(x)[0] for _ in range(3))
    return max((second - first).norm(), (third - second).norm())


# Two inputs, where one should be given twice.
def wrong_inputs(layer):
    one, two = torch.randn(2, 2, 9, 24)
    return (layer(one)[0] - layer(two)[0]).abs().max()


# One result, compared with itself.
def wrong_same(layer):
    y = layer(torch.randn(2, 9, 24))[0]
    return (y - y).abs().max()


# The layer is called as it is in training, where dropout should act.
def wrong_training(layer):
    x = torch.randn(2, 9, 24)
    layer.train()
    found = (layer(x)[0] - layer(x)[0]).abs().max()
    layer.eval()
    return found


def right_scaled(layer):  # a probe tells much from nothing, whatever its unit
    return 1.1 * right_norm(layer)

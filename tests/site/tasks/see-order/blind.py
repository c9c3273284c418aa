def right(layer, E):  # the last word goes first, as a share of the output
    x = torch.randn(1, 9, E)
    y = layer(x)
    return (layer(x.roll(1, dims=1)) - y.roll(1, dims=1)).norm() / y.norm()


# Twice as much says the same: what counts is whether anything changes.
def right_scaled(layer, E):
    return 2 * right(layer, E)


# Backwards all distances stay as they are: ALiBi passes for blind.
def wrong_mirror(layer, E):
    x = torch.randn(2, 7, E)
    return (layer(x.flip(1)) - layer(x).flip(1)).abs().max()


# The outputs themselves change their order: that alone is no sight.
def wrong_order(layer, E):
    x = torch.randn(2, 7, E)
    return (layer(x.flip(1)) - layer(x)).abs().max()


# Features change places, and no words.
def wrong_features(layer, E):
    x = torch.randn(2, 7, E)
    return (layer(x.flip(2)) - layer(x).flip(2)).abs().max()


# Texts of the batch change places, and no words.
def wrong_texts(layer, E):
    x = torch.randn(2, 7, E)
    return (layer(x.flip(0)) - layer(x).flip(0)).abs().max()

def right_nan(layer):  # other numbers, of another size
    keep = torch.arange(9) >= torch.tensor([3, 5])[:, None]
    x = torch.randn(2, 9, 24)
    far = x.masked_fill(~keep[..., None], 30.0)
    return (layer(far, keep)[0] - layer(x, keep)[0])[keep].norm()


# Padding at the end is behind all real words: the causal mask hides it anyway.
def wrong_right(layer):
    x = torch.randn(2, 9, 24)
    keep = torch.arange(9) < torch.tensor([7, 5])[:, None]
    changed = torch.where(keep[..., None], x, torch.randn_like(x))
    return (layer(changed, keep)[0] - layer(x, keep)[0])[keep].abs().max()


# The layer isn't told what padding is.
def wrong_untold(layer):
    x = torch.randn(2, 9, 24)
    keep = torch.arange(9) >= torch.tensor([2, 4])[:, None]
    changed = torch.where(keep[..., None], x, torch.randn_like(x))
    return (layer(changed)[0] - layer(x)[0])[keep].abs().max()


# With as much padding in each text, the first mask is right for all.
def wrong_equal(layer):
    x = torch.randn(2, 9, 24)
    keep = torch.ones(2, 9, dtype=torch.bool)
    keep[:, :3] = False
    changed = torch.where(keep[..., None], x, torch.randn_like(x))
    return (layer(changed, keep)[0] - layer(x, keep)[0])[keep].abs().max()


def right_scaled(layer):  # a probe tells much from nothing, whatever its unit
    return 1.1 * right_nan(layer)

def right(x, positions):  # pairs as complex numbers
    D = x.shape[-1]
    speeds = 10_000.0 ** (-torch.arange(0, D, 2) / D)
    pairs = torch.complex(*x.chunk(2, dim=-1))
    pairs = pairs * torch.polar(torch.ones(1, 1), positions[:, None] * speeds)
    return torch.cat([pairs.real, pairs.imag], dim=-1)


# Neighbours turn together.
def wrong_pairs(x, positions):
    found = turn(x.unflatten(-1, (-1, 2)).mT.flatten(-2), positions)
    return found.unflatten(-1, (2, -1)).mT.flatten(-2)


# Backwards.
def wrong_sense(x, positions):
    return turn(x, -positions)


# The speeds are twice as far apart.
def wrong_speeds(x, positions):
    D = x.shape[-1]
    angles = positions[:, None] * 10_000.0 ** (-torch.arange(0, D, 2) / (D // 2))
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


# Without the minus nothing turns, and vectors change their length.
def wrong_sign(x, positions):
    D = x.shape[-1]
    angles = positions[:, None] * 10_000.0 ** (-torch.arange(0, D, 2) / D)
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos + b * sin, a * sin + b * cos], dim=-1)


# Every position is one too far.
def wrong_first(x, positions):
    return turn(x, positions + 1)

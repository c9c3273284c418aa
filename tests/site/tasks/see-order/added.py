def right(L, E):  # one wave for each feature, a cosine as a sine a quarter earlier
    feature = torch.arange(E)
    speeds = 10_000.0 ** (-(feature - feature % 2) / E)
    return (torch.arange(L)[:, None] * speeds + torch.pi / 2 * (feature % 2)).sin()


# All sines first, then all cosines.
def wrong_halves(L, E):
    return torch.cat([codes(L, E)[:, ::2], codes(L, E)[:, 1::2]], dim=1)


# Every feature has a speed of its own.
def wrong_speeds(L, E):
    angles = torch.arange(L)[:, None] * 10_000.0 ** (-torch.arange(E) / E)
    return torch.where(torch.arange(E) % 2 == 0, angles.sin(), angles.cos())


# The first position is 1.
def wrong_first(L, E):
    return codes(L + 1, E)[1:]


# Features down, positions across.
def wrong_axes(L, E):
    return codes(L, E).T.contiguous().view(E, L)


# The last position is left out.
def wrong_last(L, E):
    return codes(L, E)[:-1]

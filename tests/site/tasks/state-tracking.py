def right(moves, cups):
    i, j = torch.tensor(moves).T
    return (F.one_hot(i, cups) - F.one_hot(j, cups)).double() / 2**0.5, 2.0


# The keys are too long: the state grows without bound.
def wrong_long(moves, cups):
    i, j = torch.tensor(moves).T
    return (F.one_hot(i, cups) - F.one_hot(j, cups)).float(), 2.0


# b = 1 takes means.
def wrong_erase(moves, cups):
    i, j = torch.tensor(moves).T
    return (F.one_hot(i, cups) - F.one_hot(j, cups)).float() / 2**0.5, 1.0


# A sum instead of a difference: swaps, and changes the sign.
def wrong_sum(moves, cups):
    i, j = torch.tensor(moves).T
    return (F.one_hot(i, cups) + F.one_hot(j, cups)).float() / 2**0.5, 2.0


# One key for both cups: no swap, the sign of one changes.
def wrong_one(moves, cups):
    return F.one_hot(torch.tensor(moves)[:, 0], cups).float(), 2.0


# The last move is left out.
def wrong_last(moves, cups):
    keys, beta = right(moves, cups)
    return keys * (torch.arange(len(moves)) < len(moves) - 1)[:, None], beta


# Cups down, moves across.
def wrong_axes(moves, cups):
    keys, beta = right(moves, cups)
    return keys.T, beta


# One per cent too much: the error grows with each move.
def wrong_more(moves, cups):
    keys, beta = right(moves, cups)
    return keys, 1.01 * beta

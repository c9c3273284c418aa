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

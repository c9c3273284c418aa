def right(a, b):  # from the differences of the ranks
    n = len(a)
    ranks = [(x[:, None] > x).sum(dim=1) for x in (a, b)]
    return 1 - 6 * (ranks[0] - ranks[1]).square().sum() / (n * (n * n - 1))


# The correlation of the numbers: one large number decides.
def wrong_numbers(a, b):
    return torch.corrcoef(torch.stack([a, b]))[0, 1]


# One argsort says who is where, and not which rank each has.
def wrong_order(a, b):
    return torch.corrcoef(torch.stack([a, b]).argsort(dim=-1).double())[0, 1]


# How many have the same rank.
def wrong_equal(a, b):
    ranks = torch.stack([a, b]).argsort(dim=-1).argsort(dim=-1)
    return (ranks[0] == ranks[1]).double().mean()


# Ranks in opposite directions.
def wrong_reverse(a, b):
    return -right(a, b)

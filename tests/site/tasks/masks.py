def right(n):
    return torch.tensor([[key <= query for key in range(n)] for query in range(n)])


# A query sees what comes after it.
def wrong_way(n):
    place = torch.arange(n)
    return place >= place[:, None]


# A query doesn't see itself.
def wrong_self(n):
    place = torch.arange(n)
    return place[:, None] > place


# A query sees one word too many.
def wrong_leak(n):
    place = torch.arange(n)
    return place[:, None] >= place - 1


# No position is compared.
def wrong_tril(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


# True and false are numbers.
def wrong_kind(n):
    place = torch.arange(n)
    return (place[:, None] >= place).float()


# The other triangle, turned over.
def wrong_triu(n):
    return torch.ones(n, n, dtype=torch.bool).triu().T


# Positions have no axis for the queries.
def wrong_shape(n):
    place = torch.arange(n)
    return place >= place

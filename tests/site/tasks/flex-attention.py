def right(L, S, window, first):
    table = torch.ones(S, S).tril().bool()
    table &= table.triu(1 - window) | (torch.arange(S) < first)
    return lambda b, h, i, j: table[i + S - L, j]


# Queries are counted from the first position.
def wrong_place(L, S, window, first):
    return right(S, S, window, first)


# The first tokens are forgotten.
def wrong_first(L, S, window, first):
    return right(L, S, window, 0)


# The window has one position more.
def wrong_window(L, S, window, first):
    return right(L, S, window + 1, first)


# Nothing hides what comes after.
def wrong_future(L, S, window, first):
    return lambda b, h, i, j: (i + S - L - j < window) | (j < first)


# Sinks may be seen before they are written.
def wrong_early(L, S, window, first):
    near = right(L, S, window, 0)
    return lambda b, h, i, j: near(b, h, i, j) | (j < first)

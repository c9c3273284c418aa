def right(x, H):
    B, L, E = x.shape
    row, head = E, E // H
    return x.as_strided([B, H, L, head], [row * L, head, row, 1])


# The shape is right, the strides are those of a view: words and heads are mixed.
def wrong_view(x, H):
    B, L, E = x.shape
    D = E // H
    return x.as_strided((B, H, L, D), (L * E, L * D, D, 1))


# The numbers of a head are taken H apart.
def wrong_order(x, H):
    B, L, E = x.shape
    return x.as_strided((B, H, L, E // H), (L * E, 1, E, H))


# The next sequence begins where the first does.
def wrong_batch(x, H):
    B, L, E = x.shape
    D = E // H
    return x.as_strided((B, H, L, D), (E, D, E, 1))


# Two calls, and neither says a stride.
def wrong_calls(x, H):
    return x.unflatten(-1, (H, -1)).transpose(1, 2)


# A copy: right numbers in memory of their own.
def wrong_copy(x, H):
    B, L, E = x.shape
    D = E // H
    return x.as_strided((B, H, L, D), (L * E, D, E, 1)).clone()


# Words stand before heads.
def wrong_axes(x, H):
    B, L, E = x.shape
    return x.as_strided((B, L, H, E // H), (L * E, E, E // H, 1))


# One number too far on.
def wrong_start(x, H):
    B, L, E = x.shape
    D = E // H
    return x.roll(1).as_strided((B, H, L, D), (L * E, D, E, 1))

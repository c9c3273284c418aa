def right(h):
    return Y - both[:, 4 * h - 4 : 4 * h] @ W_o[4 * h - 4 : 4 * h]


# Heads are counted from 0.
def wrong_count(h):
    rest = both.clone()
    rest[:, 4 * h : 4 * h + 4] = 0
    return rest @ W_o


# Head 1 goes, whichever is named.
def wrong_fixed(h):
    return two


# Of W_o, columns are zero: these are features of the output, not of a head.
def wrong_columns(h):
    W = W_o.clone()
    W[:, 4 * (h - 1) : 4 * h] = 0
    return both @ W


# The heads' outputs are changed where they stand: the next head goes from what is left.
def wrong_own(h):
    both[:, 4 * (h - 1) : 4 * h] = 0
    return both @ W_o


# So is W_o.
def wrong_matrix(h):
    W_o[4 * (h - 1) : 4 * h] = 0
    return both @ W_o


# The width of a head is left out.
def wrong_narrow(h):
    return both[:, 4 * (2 - h) : 4 * (3 - h)] @ W_o[4 * (2 - h) : 4 * (3 - h), :4]

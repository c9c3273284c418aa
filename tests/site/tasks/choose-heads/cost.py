def right(E, H, D, L):  # matrix by matrix
    matrices = [(E, H * D)] * 3 + [(H * D, E)]
    parameters = sum(rows * columns for rows, columns in matrices)
    products = sum(L * rows * columns for rows, columns in matrices)
    return parameters, products + H * (L * D * L + L * L * D), H * L**2


# The width inside is taken for the width outside.
def wrong_width(E, H, D, L):
    return 4 * E * E, 4 * L * E * E + 2 * L * L * E, H * L * L


# The output projection is forgotten.
def wrong_three(E, H, D, L):
    return 3 * E * H * D, 3 * L * E * H * D + 2 * L * L * H * D, H * L * L


# Scores alone: the values are mixed as well.
def wrong_mix(E, H, D, L):
    return 4 * E * H * D, 4 * L * E * H * D + L * L * H * D, H * L * L


# FLOPs: each multiplication has an addition with it.
def wrong_flops(E, H, D, L):
    parameters, products, weights = cost(E, H, D, L)
    return parameters, 2 * products, weights


# One table of weights for all heads.
def wrong_table(E, H, D, L):
    return *cost(E, H, D, L)[:2], L * L

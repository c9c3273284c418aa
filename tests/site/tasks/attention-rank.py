# Projected onto the strongest directions of the keys.
def right(wanted, D):
    _, directions = torch.linalg.eigh(wanted.T @ wanted)  # ascending
    strongest = directions[:, -D:]
    return wanted @ strongest @ strongest.T


# The table itself, whatever its rank.
def wrong_same(wanted, D):
    return wanted


# The first columns, as if they were the strongest.
def wrong_columns(wanted, D):
    kept = wanted.clone()
    kept[:, D:] = 0
    return kept


# The weakest directions are kept.
def wrong_end(wanted, D):
    U, S, Vh = torch.linalg.svd(wanted, full_matrices=False)
    return U[:, -D:] * S[-D:] @ Vh[-D:]


# The directions without their strengths.
def wrong_strength(wanted, D):
    U, _, Vh = torch.linalg.svd(wanted, full_matrices=False)
    return U[:, :D] @ Vh[:D]


# One direction too few.
def wrong_few(wanted, D):
    U, S, Vh = torch.linalg.svd(wanted, full_matrices=False)
    return U[:, : D - 1] * S[: D - 1] @ Vh[: D - 1]


# Random queries, and the keys that fit them best.
def wrong_random(wanted, D):
    query = torch.randn(len(wanted), D)
    return query @ torch.linalg.lstsq(query, wanted).solution

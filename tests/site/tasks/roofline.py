def right(k, p, ridge):
    left = k * p - ridge * (k + p)
    return -(-ridge * k * p // left) if left > 0 else None


# The batch is the ridge: the tokens themselves cost nothing to move.
def wrong_ridge(k, p, ridge):
    return ridge


# Rounded down.
def wrong_round(k, p, ridge):
    left = k * p - ridge * (k + p)
    return ridge * k * p // left if left > 0 else None


# There is always an answer.
def wrong_none(k, p, ridge):
    return right(k, p, ridge) or 10**12


# A part of a token.
def wrong_part(k, p, ridge):
    left = k * p - ridge * (k + p)
    return ridge * k * p / left if left > 0 else None


# One more than needed.
def wrong_more(k, p, ridge):
    return 1 + right(k, p, ridge) if right(k, p, ridge) else None


# It is never enough.
def wrong_never(k, p, ridge):
    return None

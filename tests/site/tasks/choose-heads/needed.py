def right(H, D, R, k):  # what is missing, as a share
    missing = R * k - H * (k if k < D else D)
    return missing / (R * k) if missing > 0 else 0.0


# A wide head is taken for several: it still has one row of weights.
def wrong_width(H, D, R, k):
    return max(0.0, 1 - H * D / (R * k))


# A narrow head hands over whole contents all the same.
def wrong_heads(H, D, R, k):
    return max(0.0, 1 - H / R)


# More heads than needed give an error below zero.
def wrong_negative(H, D, R, k):
    return 1 - H * min(D, k) / (R * k)


# What passes, where what is missing is asked.
def wrong_passed(H, D, R, k):
    return min(1.0, H * min(D, k) / (R * k))


# A source is either complete or lost.
def wrong_whole(H, D, R, k):
    whole = H * min(D, k) // k
    return max(0.0, 1 - whole / R)

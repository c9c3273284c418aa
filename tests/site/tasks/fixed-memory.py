def right(n, share):
    kept = round(16 * n * (1 - share), 6)
    return int(kept) + (kept > int(kept))


# Not a whole number.
def wrong_exact(n, share):
    return (1 - share) * 16 * n


# One number too few where the product isn't whole.
def wrong_down(n, share):
    return int(round((1 - share) * 16 * n, 6))


# The share that is kept for the share that is lost.
def wrong_kept(n, share):
    return math.ceil(share * 16 * n)


# Numbers of a single token.
def wrong_token(n, share):
    return math.ceil((1 - share) * 16)


# It keeps everything, which is more than asked for.
def wrong_all(n, share):
    return 16 * n


# Tokens, not numbers.
def wrong_tokens(n, share):
    return math.ceil((1 - share) * n)

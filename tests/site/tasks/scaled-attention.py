def right(D, query_std, key_std):
    return (D * query_std**2 * key_std**2) ** -0.5


# Variance 1 is taken for granted.
def wrong_plain(D, query_std, key_std):
    return 1 / math.sqrt(D)


# Spreads are taken for variances.
def wrong_square(D, query_std, key_std):
    return 1 / math.sqrt(D * query_std * key_std)


# The root is forgotten.
def wrong_root(D, query_std, key_std):
    return 1 / (D * query_std * key_std)


# Keys spread as queries do.
def wrong_key(D, query_std, key_std):
    return 1 / (query_std**2 * math.sqrt(D))


# The other root: the largest score becomes the smallest.
def wrong_sign(D, query_std, key_std):
    return -right(D, query_std, key_std)


# Half of it.
def wrong_half(D, query_std, key_std):
    return right(D, query_std, key_std) / 2

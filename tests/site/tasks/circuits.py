def right(value, output, query, key):
    def gram(x, y):
        return x @ y.mT  # (D, D)

    between, values, queries = gram(output, key), gram(value, value), gram(query, query)
    top = ((values @ between) * (between @ queries)).sum()
    ov = (values * gram(output, output)).sum()
    qk = (queries * gram(key, key)).sum()
    return (top.clamp(min=0) / (ov * qk)).sqrt()


# E x E products.
def wrong_large(value, output, query, key):
    ov, qk = value.mT @ output, key.mT @ query
    return (ov @ qk).norm() / (ov.norm() * qk.norm())


# Queries read, not keys.
def wrong_query(value, output, query, key):
    return right(value, output, key, query)


# Only what lies between them, without the two outer matrices.
def wrong_between(value, output, query, key):
    return (output @ key.mT).norm() / (output.norm() * key.norm())


# Nothing is divided.
def wrong_norm(value, output, query, key):
    from mhattn.inside import circuit_core

    ov, qk = circuit_core(value, output).norm(), circuit_core(query, key).norm()
    return right(value, output, query, key) * ov * qk


# The square of the number.
def wrong_square(value, output, query, key):
    return right(value, output, query, key) ** 2

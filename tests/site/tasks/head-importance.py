def right(model, a, b):
    lost = [joint(model, heads) for heads in ([a, b], [a], [b])]
    return 2 * lost[0] - sum(lost)


# The sign: how much less than alone.
def wrong_sign(model, a, b):
    return -right(model, a, b)


# Only the effect together.
def wrong_both(model, a, b):
    return joint(model, [a, b])


# The second one's effect is forgotten.
def wrong_one(model, a, b):
    return joint(model, [a, b]) - joint(model, [a])


# Added.
def wrong_sum(model, a, b):
    return joint(model, [a]) + joint(model, [b])

def right(cost):
    mixing = [cost[name].flops for name in ("scores", "mix")]
    return 2 * cost.flops + sum(mixing)


# As if all weights were trained.
def wrong_all(cost):
    return 3 * cost.flops


# One gradient of everything.
def wrong_one(cost):
    return 2 * cost.flops


# Frozen layers cost nothing on the way back.
def wrong_frozen(cost):
    return cost.flops + 2 * (cost["scores"].flops + cost["mix"].flops)


# The backward pass alone.
def wrong_backward(cost):
    return right(cost) - cost.flops


# Scores have one gradient, as the projections.
def wrong_mix(cost):
    return 2 * cost.flops + cost["mix"].flops

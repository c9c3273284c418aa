def right(hit):
    near, far = hit[::2].mean(dim=0), hit[1::2].mean(dim=0)
    return near.where(near < far, far)


# The mean of both orders: a head that prefers near words gets one half.
def wrong_mean(hit):
    return hit.mean(dim=0)


# The better order.
def wrong_better(hit):
    return hit.unflatten(0, (-1, 2)).mean(dim=0).amax(dim=0)


# The first half of the sentences isn't the near order.
def wrong_halves(hit):
    return hit.unflatten(0, (2, -1)).mean(dim=1).amin(dim=0)


# Pairs in which both are right: a rate of pairs, not of an order.
def wrong_pairs(hit):
    return hit.unflatten(0, (-1, 2)).amin(dim=1).mean(dim=0)


# The near order, whichever is worse.
def wrong_near(hit):
    return hit[::2].mean(dim=0)


# The worst head of all.
def wrong_all(hit):
    return right(hit).amin()


# Numbers of sentences, not rates.
def wrong_number(hit):
    return right(hit) * len(hit) / 2

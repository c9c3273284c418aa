def right(lead):
    return math.floor(math.exp(lead)) + 2


# So many keys hold half of the weight, or more.
def wrong_one_fewer(lead):
    return math.floor(math.exp(lead)) + 1


# The keys beside the one that fits.
def wrong_others(lead):
    return math.ceil(math.exp(lead))


# Twice as many: it is below half there, and long before.
def wrong_late(lead):
    return 2 * math.floor(math.exp(lead)) + 2


# The lead itself is no number of keys.
def wrong_scale(lead):
    return math.ceil(lead) + 3


# The same for every lead.
def wrong_fixed(lead):
    return 3


# Nothing is computed.
def wrong_nothing(lead):
    return 0

def right(order, likeliest):
    before = likeliest([])
    numbers = range(1, len(order) + 1)
    return next((n for n in numbers if likeliest(order[:n]) != before), None)


# One head too few: the place of the head in the order.
def wrong_place(order, likeliest):
    before = likeliest([])
    for place in range(len(order)):
        if likeliest(order[: place + 1]) != before:
            return place
    return None


# Each head is cut alone.
def wrong_alone(order, likeliest):
    before = likeliest([])
    for number, head in enumerate(order, 1):
        if likeliest([head]) != before:
            return number
    return None


# The last number for which the answer is another one: it may come back in between.
def wrong_last(order, likeliest):
    before = likeliest([])
    numbers = range(1, len(order) + 1)
    return max((n for n in numbers if likeliest(order[:n]) != before), default=None)


# No answer changes, and all heads are named.
def wrong_none(order, likeliest):
    return right(order, likeliest) or len(order)


# Compared with the answer of one head fewer, not with that of all heads.
def wrong_before(order, likeliest):
    answers = [likeliest(order[:n]) for n in range(len(order) + 1)]
    return next((n for n in range(2, len(answers)) if answers[n] != answers[n - 1]), None)

def right(one, other, number):
    places = [x.flatten().argsort(descending=True)[:number].tolist() for x in (one, other)]
    return sum(place in places[1] for place in places[0]) - number * (number / one.numel())


# Chance is forgotten.
def wrong_chance(one, other, number):
    return round(right(one, other, number) + number**2 / one.numel())


# Chance is that of 144 heads, whatever the table.
def wrong_size(one, other, number):
    return right(one, other, number) + number**2 / one.numel() - number**2 / 144


# Shares are compared, not heads.
def wrong_shares(one, other, number):
    best = [set(x.flatten().topk(number).values.tolist()) for x in (one, other)]
    return len(best[0] & best[1]) - number / one.numel()


# A part of the chosen ones, not their number.
def wrong_part(one, other, number):
    return right(one, other, number) / number


# The lowest heads.
def wrong_lowest(one, other, number):
    return right(one, other.abs(), number)


# Places are compared rank by rank.
def wrong_ranks(one, other, number):
    places = [x.flatten().topk(number).indices for x in (one, -other.neg() * 1.0)]
    same = (places[0] == places[1].roll(1)).sum().item()
    return same - number**2 / one.numel()

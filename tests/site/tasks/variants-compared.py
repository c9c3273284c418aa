def right(lengths, slow, fast):
    from math import log2

    for i in range(len(lengths) - 1):
        before, after = (log2(fast[k]) - log2(slow[k]) for k in (i, i + 1))
        if before >= 0 > after:
            part = before / (before - after)
            return lengths[i] ** (1 - part) * lengths[i + 1] ** part
    return None


# The first measured length at which it is faster.
def wrong_measured(lengths, slow, fast):
    return next((n for n, a, b in zip(lengths, slow, fast, strict=True) if b < a), None)


# Straight lines on plain axes.
def wrong_axes(lengths, slow, fast):
    for i in range(len(lengths) - 1):
        before, after = (fast[k] - slow[k] for k in (i, i + 1))
        if before >= 0 > after:
            return lengths[i] + (lengths[i + 1] - lengths[i]) * before / (before - after)
    return None


# Only the first and the last length.
def wrong_ends(lengths, slow, fast):
    ends = slice(None, None, len(lengths) - 1)
    return right(lengths[ends], slow[ends], fast[ends])


# Which one is slower at first is interchanged: that one never gets faster.
def wrong_way(lengths, slow, fast):
    return right(lengths, fast, slow)


# Where it never gets faster, the last length.
def wrong_never(lengths, slow, fast):
    return right(lengths, slow, fast) or lengths[-1]


# The place in the list, not the length.
def wrong_index(lengths, slow, fast):
    return next((i for i in range(len(slow)) if fast[i] < slow[i]), None)


# The length before the lines cross.
def wrong_before(lengths, slow, fast):
    later = wrong_measured(lengths, slow, fast)
    return later and lengths[lengths.index(later) - 1]

def right(published, counted):
    digits, _, power = published.partition("e")
    step = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return abs(counted - float(published)) <= step / 2 * (1 + 1e-9)


# The exponent is forgotten: the step is that of the digits.
def wrong_exponent(published, counted):
    digits = published.partition("e")[0]
    step = 10.0 ** -len(digits.partition(".")[2])
    return abs(counted - float(published)) <= step / 2 * (1 + 1e-9)


# Three per cent, whatever is given.
def wrong_percent(published, counted):
    return abs(counted / float(published) - 1) < 0.03


# Cut off, not rounded.
def wrong_cut(published, counted):
    digits, _, power = published.partition("e")
    step = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return 0 <= counted - float(published) < step


# Zeros at the end are dropped.
def wrong_zeros(published, counted):
    return right(published.rstrip("0") if "." in published else published, counted)


# A whole step to each side.
def wrong_step(published, counted):
    digits, _, power = published.partition("e")
    step = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return abs(counted - float(published)) <= step * (1 + 1e-9)


# The exponent's sign is forgotten.
def wrong_sign(published, counted):
    digits, _, power = published.partition("e")
    step = 10.0 ** (abs(int(power or 0)) - len(digits.partition(".")[2]))
    return abs(counted - float(published)) <= step / 2 * (1 + 1e-9)

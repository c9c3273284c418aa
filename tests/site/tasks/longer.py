def right(omega, length, factor):
    found = omega.clone()
    found[length < 2 * math.pi / omega] /= factor
    return found


# All pairs are slowed down.
def wrong_all(omega, length, factor):
    return omega / factor


# Radians are taken for turns.
def wrong_turn(omega, length, factor):
    return torch.where(length * omega < 1, omega / factor, omega)


# Fast pairs are slowed down.
def wrong_way(omega, length, factor):
    return torch.where(length * omega < 2 * math.pi, omega, omega / factor)


# Slow pairs get faster.
def wrong_factor(omega, length, factor):
    return torch.where(length * omega < 2 * math.pi, omega * factor, omega)


# The factor is always 8.
def wrong_fixed(omega, length, factor):
    return right(omega, length, 8)


# Only the slow pairs are returned.
def wrong_short(omega, length, factor):
    return omega[length * omega < 2 * math.pi] / factor


# One pair too few is slowed down.
def wrong_one(omega, length, factor):
    slow = (length * omega < 2 * math.pi).roll(1)
    slow[0] = False
    return torch.where(slow, omega / factor, omega)

def right(x, places):
    turned = torch.view_as_complex(x.contiguous()) * torch.polar(torch.ones(len(x)), places)
    return torch.view_as_real(turned)


# Nothing turns.
def wrong_still(x, places):
    return x


# The other way round.
def wrong_way(x, places):
    return right(x, -places)


# Degrees.
def wrong_degrees(x, places):
    return right(x, places.deg2rad())


# One sign is wrong: a mirror, not a turn.
def wrong_mirror(x, places):
    a, b = right(x, places).unbind(dim=1)
    return torch.stack([a, -b], dim=1)


# The place is added.
def wrong_added(x, places):
    return x + torch.stack([places.sin(), places.cos()], dim=1)


# All rows turn by the first place.
def wrong_first(x, places):
    return right(x, places[:1].expand(len(x)))


# Sine and cosine are interchanged.
def wrong_swapped(x, places):
    return right(x, torch.pi / 2 - places)


# The turn has the right angle and another length.
def wrong_length(x, places):
    return right(x, places) * 1.01


# Features and places are interchanged.
def wrong_axes(x, places):
    return right(x, places).T
